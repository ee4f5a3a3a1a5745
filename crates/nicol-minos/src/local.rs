//! What the algorithms do to a record of their own node: the primitives of section III-A, and the
//! steps that coordinators and followers share.
//!
//! What takes or releases a lock is a compare-and-swap, which is charged (`SharedMemory::access`).
//! What only reads or sets a timestamp is a load or a store of the line that the core has by then:
//! it waits until memory has caught up with the core, and costs nothing (decision 0039).

use std::rc::Rc;

use nicol_core::fabric::{Fabric, FabricError, Work};
use nicol_core::ids::Key;

use super::log::Logged;
use super::member::Member;
use super::messages::Inv;
use super::model::Step;
use super::record::Record;
use super::tags::Tag;
use super::timestamp::Timestamp;
use super::value::Value;

/// Proof that a write is obsolete: the volatileTS that made it so, which the spins wait for. AMB-16
#[must_use = "an obsolete write waits for what made it so"]
pub(super) struct Obsolete(Timestamp);

/// Proof of holding the WRLock of a record.
#[must_use = "a write lock is released"]
pub(super) struct WrLocked(Key, Timestamp);

impl<F: Fabric> Member<F> {
    /// Finds a record by its key: once for each operation or message that names one. A SmartNIC,
    /// and its host, keep metadata in a small memory on their chips. [MINOS24 V-B2]
    pub(super) fn look_up(&self) {
        let offload = self.config().offload;
        self.fabric.work(if offload { Work::IndexLookup } else { Work::TableLookup });
    }

    /// Obsolete(TS_WR), under the WRLock or without.
    pub(super) async fn obsolete(&self, inv: &Inv<'_>) -> Option<Obsolete> {
        self.fabric.caught_up().await;
        let newer = |record: &Record| {
            let obsolete = self.hooks().is_obsolete(record.is_obsolete(inv.ts));
            obsolete.then_some(record.volatile_ts)
        };
        let newer = self.node.store().look(inv.key, newer).map(Obsolete);
        self.mark(if newer.is_some() { Tag::Obsolete } else { Tag::Current }, inv.key, inv.ts);
        newer
    }

    /// "Snatch RDLock".
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
        self.mark(Tag::Snatches, inv.key, inv.ts);
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
                    self.mark(Tag::Locks, inv.key, inv.ts);
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
            if !self.hooks().is_obsolete(record.volatile_ts > inv.ts) {
                record.update(inv.ts, value.clone());
            }
        });
        self.mark(Tag::Updates, inv.key, inv.ts);
        self.node.note_scope(inv);
    }

    /// Releases the WRLock.
    pub(super) async fn release_wr_lock(&self, locked: WrLocked) {
        self.fabric.access().await;
        let WrLocked(key, ts) = locked;
        self.node.store().change(key, |record| {
            assert!(record.wr_lock, "a write lock is released once");
            record.wr_lock = false;
        });
        self.mark(Tag::Unlocks, key, ts);
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

    /// ConsistencySpin, or PersistencySpin.
    pub(super) async fn spin(&self, step: Step, inv: &Inv<'_>, newer: &Obsolete) {
        let Obsolete(target) = *newer;
        match step {
            _ if !self.hooks().spins() => {}
            Step::ConsistencySpin => {
                self.spin_until(inv.key, |record| record.glb_volatile_ts >= target).await;
            }
            Step::PersistencySpin => {
                self.spin_until(inv.key, |record| record.glb_durable_ts >= target).await;
            }
            other => panic!("{other:?} is no spin of an obsolete write"),
        }
        self.mark(Tag::Marked(step), inv.key, inv.ts);
    }

    /// glb_volatileTS becomes TS_WR.
    pub(super) async fn raise_glb_volatile(&self, key: Key, ts: Timestamp) {
        let faithful = self.config().errata.global_timestamps;
        self.fabric.caught_up().await;
        self.node.store().change(key, |record| record.raise_glb_volatile(ts, faithful));
        self.mark(Tag::Marked(Step::RaiseGlobalVolatile), key, ts);
    }

    /// glb_durableTS becomes TS_WR.
    pub(super) async fn raise_glb_durable(&self, key: Key, ts: Timestamp) {
        let faithful = self.config().errata.global_timestamps;
        self.fabric.caught_up().await;
        self.node.store().change(key, |record| record.raise_glb_durable(ts, faithful));
        self.mark(Tag::Marked(Step::RaiseGlobalDurable), key, ts);
    }

    /// Releases the RDLock if `ts` still owns it; offloaded, once the vFIFO has drained. [MINOS24
    /// V-B4]
    pub(super) async fn release_rd_lock(&self, key: Key, ts: Timestamp) {
        let _phase = self.fabric.phase("release the RDLock");
        let ready = |record: &Record| record.rd_lock != Some(ts) || record.value_ts >= ts;
        if !self.hooks().releases_early() {
            self.spin_until(key, ready).await;
        }
        self.fabric.access().await;
        self.node.store().change(key, |record| record.release_rd_lock(ts));
        self.mark(Tag::Marked(Step::ReleaseRdLock), key, ts);
    }

    /// Persists an update: into the host's log, or into the dFIFO, which drains there.
    ///
    /// Errors: the log device has failed, for good.
    pub(super) async fn persist(self: &Rc<Self>, inv: &Inv<'_>) -> Result<(), FabricError> {
        let _phase = self.fabric.phase("persist to NVM");
        let record = Logged::Update { key: inv.key, ts: inv.ts, value: inv.value };
        self.persist_record(&record).await?;
        self.fabric.caught_up().await;
        self.node.store().change(inv.key, |record| {
            record.durable_ts = record.durable_ts.max(inv.ts);
        });
        Ok(())
    }

    /// Persists a record of the log.
    pub(super) async fn persist_record(
        self: &Rc<Self>,
        record: &Logged<'_>,
    ) -> Result<(), FabricError> {
        if self.hooks().promises_early() {
            self.write_record_later(record.emit());
            return Ok(());
        }
        self.write_record(record).await
    }

    pub(super) async fn write_record(
        self: &Rc<Self>,
        record: &Logged<'_>,
    ) -> Result<(), FabricError> {
        let written = if self.durable_queue.is_some() {
            self.enqueue_durable(record).await
        } else {
            self.write_to_log(record).await
        };
        if let (Ok(()), Some((key, ts))) = (written, record.update()) {
            self.mark(Tag::IsDurable, key, ts);
        }
        written
    }

    async fn write_to_log(&self, record: &Logged<'_>) -> Result<(), FabricError> {
        let slot = self.log.take().await;
        let bytes = self.log.write(&slot, record);
        let offset = self.log.offset(&slot);
        let persisted = self.fabric.persist(self.log.region(), offset, bytes).await;
        self.log.give(slot);
        persisted.map(drop)
    }
}
