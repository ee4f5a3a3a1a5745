//! A record's metadata and the primitives on it. [MINOS24 III-A, figure 1a]

use std::sync::Arc;

use nicol_core::ids::{Incarnation, NodeId};
use nicol_core::memory::Doorbell;

use super::config::Faithful;
use super::timestamp::Timestamp;
use super::value::Value;

/// One record of one node.
#[derive(Debug, Default)]
pub(super) struct Record {
    /// RDLock_Owner: the youngest write under way; `None` is <-1, -1>.
    pub(super) rd_lock: Option<Timestamp>,
    /// WRLock: a local-write is under way.
    pub(super) wr_lock: bool,
    /// volatileTS. In the offloaded form the vFIFO counts as volatile memory. AMB-19
    pub(super) volatile_ts: Timestamp,
    pub(super) glb_volatile_ts: Timestamp,
    pub(super) glb_durable_ts: Timestamp,
    /// The newest update in this node's log.
    pub(super) durable_ts: Timestamp,
    /// The last version that this node has issued, or, in a record that was made later, the highest
    /// of all that it has forgotten.
    pub(super) issued: u64,
    /// Writes of it that this node coordinates or follows, where records are forgotten.
    pub(super) open: u32,
    /// The timestamp of the value: in the offloaded form it lags behind volatileTS until the vFIFO
    /// has drained.
    pub(super) value_ts: Timestamp,
    /// `None`: there is none, or it was removed.
    pub(super) value: Option<Value>,
    /// Rung after each change, once somebody waits for one.
    pub(super) bell: Option<Arc<Doorbell>>,
}

/// A record's metadata on one node, as a checker of the protocol sees it (Table I, 4b). Timestamps
/// are in the order of their numbers; what is loaded has 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    pub rd_lock: Option<u64>,
    pub wr_lock: bool,
    pub volatile_ts: u64,
    pub glb_volatile_ts: u64,
    pub glb_durable_ts: u64,
    /// The newest update in the node's log.
    pub durable_ts: u64,
    /// The timestamp of the value that a read would see.
    pub value_ts: u64,
}

impl Record {
    pub(super) fn metadata(&self) -> Metadata {
        Metadata {
            rd_lock: self.rd_lock.map(Timestamp::bits),
            wr_lock: self.wr_lock,
            volatile_ts: self.volatile_ts.bits(),
            glb_volatile_ts: self.glb_volatile_ts.bits(),
            glb_durable_ts: self.glb_durable_ts.bits(),
            durable_ts: self.durable_ts.bits(),
            value_ts: self.value_ts.bits(),
        }
    }

    /// A record as it is loaded.
    pub(super) fn loaded(value: Value) -> Self {
        let loaded = Timestamp::LOADED;
        Self {
            volatile_ts: loaded,
            glb_volatile_ts: loaded,
            glb_durable_ts: loaded,
            durable_ts: loaded,
            value_ts: loaded,
            value: Some(value),
            ..Self::default()
        }
    }

    /// Keeps the value with its timestamp and resets the rest, as when the lives of all engines of
    /// a node have ended. A recovery takes the locks again and learns from other nodes what they
    /// have.
    pub(super) fn keep_value(&mut self) {
        let known = self.value_ts.min(Timestamp::LOADED);
        (self.rd_lock, self.wr_lock, self.open) = (None, false, 0);
        self.volatile_ts = self.value_ts;
        for others in [&mut self.glb_volatile_ts, &mut self.glb_durable_ts, &mut self.durable_ts] {
            *others = known;
        }
    }

    /// Whether nothing is left to do about the deletion at `ts` on this node: it is in volatile and
    /// in durable memory, the node knows that all have it, and nobody works on the record or waits
    /// for it. Also if it was forgotten.
    pub(super) fn is_deleted_at(&self, ts: Timestamp, tracks_durability: bool) -> bool {
        let at_rest = self.rd_lock.is_none()
            && !self.wr_lock
            && self.open == 0
            && self.bell.as_ref().is_none_or(|bell| Arc::strong_count(bell) == 1);
        let gone = (self.value_ts, self.volatile_ts) == (Timestamp::NONE, Timestamp::NONE);
        let complete = (self.value_ts, self.volatile_ts) == (ts, ts)
            && self.value.is_none()
            && self.durable_ts >= ts
            && self.glb_volatile_ts >= ts
            && (!tracks_durability || self.glb_durable_ts >= ts);
        at_rest && (gone || complete)
    }

    /// Bytes of its value.
    pub(super) fn value_bytes(&self) -> u64 {
        self.value.as_ref().map_or(0, |value| value.len() as u64)
    }

    /// TS_WR of a new client-write at `node`. AMB-15
    pub(super) fn issue(
        &mut self,
        node: NodeId,
        life: Incarnation,
        faithful: Faithful,
    ) -> Timestamp {
        let seen = self.volatile_ts.version();
        let version = match faithful {
            // "the volatileTS version of the record [...] adding one (without updating volatileTS)"
            Faithful::Paper => seen + 1,
            Faithful::Fixed => seen.max(self.issued) + 1,
        };
        self.issued = version;
        Timestamp::new(version, node, life)
    }

    /// The paper's Obsolete(TS_WR): a write with a later timestamp has changed the record.
    pub(super) fn is_obsolete(&self, ts: Timestamp) -> bool {
        ts < self.volatile_ts
    }

    /// Snatch RDLock: takes it if it is free, or from an older write.
    pub(super) fn snatch_rd_lock(&mut self, ts: Timestamp) {
        if self.rd_lock.is_none_or(|owner| owner < ts) {
            self.rd_lock = Some(ts);
        }
    }

    /// Releases the RDLock if `ts` owns it.
    pub(super) fn release_rd_lock(&mut self, ts: Timestamp) {
        if self.rd_lock == Some(ts) {
            self.rd_lock = None;
        }
    }

    /// Releases the RDLock if a write up to `ts` owns it.
    pub(super) fn release_up_to(&mut self, ts: Timestamp) {
        if self.rd_lock.is_some_and(|owner| owner <= ts) {
            self.rd_lock = None;
        }
    }

    /// The update of volatile memory: the value, and volatileTS.
    pub(super) fn update(&mut self, ts: Timestamp, value: Option<Value>) {
        self.volatile_ts = ts;
        self.land(ts, value);
    }

    /// Sets the value and none of the metadata.
    pub(super) fn land(&mut self, ts: Timestamp, value: Option<Value>) {
        (self.value_ts, self.value) = (ts, value);
    }

    /// glb_volatileTS becomes `ts`. AMB-16
    pub(super) fn raise_glb_volatile(&mut self, ts: Timestamp, faithful: Faithful) {
        self.glb_volatile_ts = raised(self.glb_volatile_ts, ts, faithful);
    }

    /// glb_durableTS becomes `ts`. AMB-16
    pub(super) fn raise_glb_durable(&mut self, ts: Timestamp, faithful: Faithful) {
        self.glb_durable_ts = raised(self.glb_durable_ts, ts, faithful);
    }
}

/// "glb_volatileTS is set to TS_WR": literally it may go back.
fn raised(from: Timestamp, ts: Timestamp, faithful: Faithful) -> Timestamp {
    match faithful {
        Faithful::Paper => ts,
        Faithful::Fixed => from.max(ts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(2);
    const LIFE: Incarnation = Incarnation::FIRST;

    fn loaded() -> Record {
        Record::loaded(b"0"[..].into())
    }

    #[test]
    fn the_youngest_write_owns_the_read_lock_and_only_it_releases_it() {
        let mut record = loaded();
        let (older, younger) = (Timestamp::new(1, NODE, LIFE), Timestamp::new(2, NODE, LIFE));
        record.snatch_rd_lock(older);
        record.snatch_rd_lock(younger);
        record.snatch_rd_lock(older);
        assert_eq!(record.rd_lock, Some(younger));
        record.release_rd_lock(older);
        assert_eq!(record.rd_lock, Some(younger));
        record.release_rd_lock(younger);
        assert_eq!(record.rd_lock, None);
    }

    #[test]
    fn the_value_outlives_those_who_work_on_it_and_locks_and_vouchers_do_not() {
        let (old, new) = (Timestamp::new(1, NODE, LIFE), Timestamp::new(2, NODE, LIFE));
        let mut record = loaded();
        record.snatch_rd_lock(old);
        record.update(old, Some(b"1"[..].into()));
        record.raise_glb_volatile(old, Faithful::Fixed);
        (record.wr_lock, record.volatile_ts, record.durable_ts) = (true, new, new);
        record.keep_value();
        let left = Metadata { value_ts: old.bits(), ..loaded().metadata() };
        assert_eq!(record.metadata(), Metadata { volatile_ts: old.bits(), ..left });
        assert_eq!(record.value.as_deref(), Some(&b"1"[..]));
    }

    #[test]
    fn timestamps_of_one_node_are_unique_but_as_printed() {
        let mut record = loaded();
        let mut issue = |faithful| record.issue(NODE, LIFE, faithful);
        assert!(issue(Faithful::Fixed) < issue(Faithful::Fixed));
        assert_eq!(issue(Faithful::Paper), issue(Faithful::Paper));
    }

    #[test]
    fn global_timestamps_never_go_back_but_as_printed() {
        let (one, two) = (Timestamp::new(1, NODE, LIFE), Timestamp::new(2, NODE, LIFE));
        for (faithful, left) in [(Faithful::Fixed, two), (Faithful::Paper, one)] {
            let mut record = loaded();
            record.raise_glb_volatile(two, faithful);
            record.raise_glb_volatile(one, faithful);
            assert_eq!(record.glb_volatile_ts, left);
        }
    }
}
