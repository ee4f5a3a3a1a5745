//! What the algorithms do to a record of their own node: the primitives of section III-A, and the
//! steps that coordinators and followers share.
//!
//! What takes or releases a lock is a compare-and-swap, which is charged (`SharedMemory::access`).
//! What only reads or sets a timestamp is a load or a store of the line that the core has by then:
//! it waits until memory has caught up with the core, and costs nothing (decision 0039).

use std::sync::Arc;

use nicol_core::fabric::{Fabric, Work};
use nicol_core::ids::Key;

use super::messages::Inv;
use super::model::{Spin, Step, Validation};
use super::node::Node;
use super::record::Record;
use super::tags::{Tag, mark};
use super::timestamp::Timestamp;
use super::value::{Recent, Value};
use super::write::Write;

/// Proof that a write is obsolete: the volatileTS that made it so, which the spins wait for. AMB-16
#[must_use = "an obsolete write waits for what made it so"]
pub(super) struct Obsolete(Timestamp);

/// Proof of holding the WRLock of a record.
#[must_use = "a write lock is released"]
pub(super) struct WrLocked(Key, Timestamp);

/// The records of a node, as one of its engines works on them.
pub(super) struct Records<F: Fabric> {
    fabric: F,
    node: Arc<Node>,
}

impl<F: Fabric> Records<F> {
    pub(super) fn new(fabric: &F, node: &Arc<Node>) -> Self {
        Self { fabric: fabric.clone(), node: node.clone() }
    }

    /// The values that replicas of a record share. Only modelled replicas do: on threads they would
    /// take each other's cache lines.
    fn recent(&self, key: Key) -> Option<&Recent> {
        if F::ACCESS_POINTS { self.node.recent(key) } else { None }
    }

    /// The value of a write that has come as `bytes`.
    pub(super) fn take_value(&self, key: Key, ts: Timestamp, bytes: &[u8]) -> Value {
        self.recent(key).map_or_else(|| bytes.into(), |recent| recent.share(key, ts, bytes))
    }

    /// A write has got its timestamp: its followers may share its value.
    pub(super) fn offer_value(&self, write: &Write) {
        if let (Some(value), Some(recent)) = (&write.value, self.recent(write.key)) {
            recent.offer(write.key, write.ts(), value);
        }
    }

    /// Finds a record by its key: once for each operation or message that names one. A SmartNIC,
    /// and its host, keep metadata in a small memory on their chips. [MINOS24 V-B2]
    pub(super) fn look_up(&self) {
        let offload = self.node.config().offload;
        self.fabric.work(if offload { Work::IndexLookup } else { Work::TableLookup });
    }

    /// Obsolete(TS_WR), under the WRLock or without.
    pub(super) async fn obsolete(&self, inv: &Inv<'_>) -> Option<Obsolete> {
        self.fabric.caught_up().await;
        let newer = |record: &Record| record.is_obsolete(inv.ts).then_some(record.volatile_ts);
        let newer = self.node.store().look(inv.key, newer).map(Obsolete);
        mark(
            &self.fabric,
            if newer.is_some() { Tag::Obsolete } else { Tag::Current },
            inv.key,
            inv.ts,
        );
        newer
    }

    /// The paper's "Snatch RDLock" for the write of `inv`.
    pub(super) async fn snatch_rd_lock(&self, inv: &Inv<'_>) {
        let _phase = self.fabric.phase("snatch the RDLock");
        self.fabric.access().await;
        self.node.store().change(inv.key, |record| {
            // One that was validated here in the meantime has no VAL to come: it was sent again in
            // a later view, and the VAL has overtaken it.
            if record.glb_volatile_ts < inv.ts {
                record.snatch_rd_lock(inv.ts);
            }
        });
        mark(&self.fabric, Tag::Snatches, inv.key, inv.ts);
    }

    /// Spins until it has the WRLock.
    pub(super) async fn spin_for_wr_lock(&self, inv: &Inv<'_>) -> WrLocked {
        let take = |record: &mut Record| {
            let free = !record.wr_lock;
            record.wr_lock = true;
            free.then_some(())
        };
        let _phase = self.fabric.phase("spin for the WRLock");
        loop {
            self.fabric.access().await;
            match self.node.store().take_or_watch(inv.key, take) {
                Ok(()) => {
                    mark(&self.fabric, Tag::Locks, inv.key, inv.ts);
                    return WrLocked(inv.key, inv.ts);
                }
                Err((bell, rings)) => self.fabric.wait_for_doorbell(&bell, rings).await,
            }
        }
    }

    /// Updates volatile memory, and volatileTS.
    pub(super) async fn update_llc(&self, locked: &WrLocked, inv: &Inv<'_>, value: &Option<Value>) {
        assert_eq!(locked.0, inv.key, "the lock is the record's");
        let _phase = self.fabric.phase("update the LLC");
        let bytes = inv.value.map_or(0, <[u8]>::len) as u32;
        self.fabric.work(Work::Copy { bytes });
        self.fabric.caught_up().await;
        self.node.store().change(inv.key, |record| {
            assert!(record.wr_lock, "an update holds the write lock");
            // A node that recovers may have copied a newer one meanwhile, without the lock.
            if record.volatile_ts <= inv.ts {
                record.update(inv.ts, value.clone());
            }
        });
        mark(&self.fabric, Tag::Updates, inv.key, inv.ts);
        self.node.note_scope(inv);
    }

    pub(super) async fn release_wr_lock(&self, locked: WrLocked) {
        self.fabric.access().await;
        let WrLocked(key, ts) = locked;
        self.node.store().change(key, |record| {
            assert!(record.wr_lock, "a write lock is released once");
            record.wr_lock = false;
        });
        mark(&self.fabric, Tag::Unlocks, key, ts);
    }

    /// Waits until `done` of a record.
    pub(super) async fn spin_until(&self, key: Key, done: impl Fn(&Record) -> bool) {
        self.fabric.caught_up().await;
        loop {
            match self.node.store().look_or_watch(key, |record| done(record).then_some(())) {
                Ok(()) => return,
                Err((bell, rings)) => self.fabric.wait_for_doorbell(&bell, rings).await,
            }
            // Another core has changed it: its line moves here.
            self.fabric.access().await;
        }
    }

    /// ConsistencySpin or PersistencySpin: waits until `newer`, which made the write obsolete, is
    /// complete.
    pub(super) async fn spin(&self, spin: Spin, inv: &Inv<'_>, newer: &Obsolete) {
        let Obsolete(target) = *newer;
        let told = |record: &Record| match spin {
            Spin::Consistency => record.glb_volatile_ts >= target,
            Spin::Persistency => record.glb_durable_ts >= target,
        };
        if self.node.config().hooks().spins() {
            self.spin_until(inv.key, told).await;
        }
        mark(&self.fabric, Tag::Marked(Step::Spin(spin)), inv.key, inv.ts);
    }

    /// Takes a step of the end of a write. [MINOS24 fig. 2 lines 20, 21, 42, 43]
    pub(super) async fn validate(&self, change: Validation, key: Key, ts: Timestamp) {
        let faithful = self.node.config().errata.global_timestamps;
        match change {
            Validation::RaiseGlobalVolatile => {
                self.fabric.caught_up().await;
                self.node.store().change(key, |record| record.raise_glb_volatile(ts, faithful));
            }
            Validation::RaiseGlobalDurable => {
                self.fabric.caught_up().await;
                self.node.store().change(key, |record| record.raise_glb_durable(ts, faithful));
            }
            Validation::ReleaseRdLock => return self.release_rd_lock(key, ts).await,
        }
        mark(&self.fabric, Tag::Marked(Step::Validate(change)), key, ts);
    }

    /// Releases the RDLock if `ts` still owns it; offloaded, once the vFIFO has drained. [MINOS24
    /// V-B4]
    pub(super) async fn release_rd_lock(&self, key: Key, ts: Timestamp) {
        let _phase = self.fabric.phase("release the RDLock");
        let ready = |record: &Record| record.rd_lock != Some(ts) || record.value_ts >= ts;
        self.spin_until(key, ready).await;
        self.fabric.access().await;
        self.node.store().change(key, |record| record.release_rd_lock(ts));
        mark(&self.fabric, Tag::Marked(Step::Validate(Validation::ReleaseRdLock)), key, ts);
    }
}
