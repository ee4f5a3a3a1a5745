//! Silo (SOSP '13): optimistic, with transaction ids that name their epoch.
//!
//! | step | what | where |
//! |---|---|---|
//! | 4.5 | a read takes value and id at one instant, without writing anything | `read` |
//! | 4.4 phase 1 | lock the write set in the order of memory | `lock_writes` |
//! | 4.4 | the serialization point: the epoch is read | `commit` |
//! | 4.4 phase 2 | what was read has the same id, and nobody else's lock; the leaves their versions | `validate` |
//! | 4.4 phase 3 | the new id; install and unlock | `install` |
//! | 4.6 | scans and insertions | `nicol_store::multicore`, `sets.rs` |
//!
//! DEVIATION [Silo13 4.6]: an absent key that is read gets an absent record, also in tables without
//! an order; it goes when it stays absent for an epoch.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use nicol_core::fabric::{Fabric, Work};
use nicol_core::ids::Key;
use nicol_core::interactive::Seen;
use nicol_core::txn::Abort;
use nicol_store::multicore::{Multicore, Place, Record, State};

use super::config::Sabotage;
use super::record_form::RecordForm;
use super::sets::{Sets, Write};
use super::worker::{Absence, Protocol, Worker};

/// In a word: somebody holds the record.
const LOCKED: u64 = 1;
/// In a word: the record is in no index any more.
const GONE: u64 = 2;
/// What the next id of an epoch is higher by.
const STEP: u64 = 4;
/// Where the epoch stands in an id.
const EPOCH_SHIFT: u32 = 34;

/// The protocol.
#[derive(Clone, Copy, Debug)]
pub struct Silo;

/// Locks the word of the record of `key`; returns it as it was.
async fn lock<F: Fabric>(
    worker: &Worker<F, Silo>,
    word: &AtomicU64,
    key: Key,
) -> Result<u64, Abort> {
    for turn in 1..=worker.node.config().spins {
        let seen = word.load(Ordering::Relaxed);
        if seen & GONE != 0 {
            return Err(Abort::Stale { key });
        }
        let order = (Ordering::SeqCst, Ordering::Relaxed);
        if seen & LOCKED == 0
            && word.compare_exchange(seen, seen | LOCKED, order.0, order.1).is_ok()
        {
            return Ok(seen);
        }
        worker.pause(turn).await;
    }
    Err(Abort::LockConflict { key })
}

/// Proof that the write set is locked, and the highest id of it.
struct Locked(u64);

/// Proof that what was read is valid, and the highest id of what was read or is written.
struct Validated(u64);

/// [Silo13 4.4 phase 1] Locks the write set, in the order of memory, so that nobody waits in a
/// circle.
async fn lock_writes<F: Fabric>(
    worker: &Worker<F, Silo>,
    sets: &mut Sets,
) -> Result<Locked, Abort> {
    sets.writes.sort_unstable_by_key(|write| write.place);
    let mut highest = worker.newest.get();
    for index in 0..sets.writes.len() {
        let Write { place, key, .. } = sets.writes[index];
        worker.fabric.access().await;
        let word = worker.store().record(place).word();
        highest = highest.max(lock(worker, word, key).await?);
        sets.writes[index].held = LOCKED;
    }
    Ok(Locked(highest))
}

/// [Silo13 4.4 phase 2] What was read has not changed and nobody else is about to change it.
async fn validate<F: Fabric>(
    worker: &Worker<F, Silo>,
    sets: &Sets,
    Locked(mut highest): Locked,
) -> Result<Validated, Abort> {
    let sabotage = worker.sabotage();
    if sabotage != Sabotage::SkipsValidation {
        for read in &sets.reads {
            worker.fabric.access().await;
            let word = worker.store().record(read.place).word().load(Ordering::SeqCst);
            if word & !LOCKED != read.seen {
                return Err(Abort::Stale { key: read.key });
            }
            let locked = word & LOCKED != 0 && sabotage != Sabotage::IgnoresLocks;
            if locked && !sets.writes_at(read.place) {
                return Err(Abort::ValidateLocked { key: read.key });
            }
            highest = highest.max(word & !LOCKED);
        }
    }
    sets.validate_leaves(|node, version| worker.store().is_unchanged(node, version))?;
    Ok(Validated(highest))
}

/// [Silo13 4.4 phase 3] Installs the writes under a new id, and unlocks them.
async fn install<F: Fabric>(
    worker: &Worker<F, Silo>,
    sets: &mut Sets,
    epoch: u64,
    Validated(highest): Validated,
) {
    // Higher than the ids of all that was read or is written, than the last one of this core, and
    // of the epoch of the serialization point. [Silo13 4.2]
    let id = (highest + STEP).max(epoch << EPOCH_SHIFT);
    worker.newest.set(id);
    for write in &sets.writes {
        worker.fabric.access().await;
        let record = worker.store().record(write.place);
        put(worker, record, write, sets.value(write)).await;
        record.word().store(id, Ordering::Release);
    }
    sets.writes.iter_mut().for_each(|write| write.held = 0);
}

/// Changes a record that is locked.
pub(super) async fn put<F: Fabric, P: Protocol>(
    worker: &Worker<F, P>,
    record: Record<'_>,
    write: &Write,
    value: Option<&[u8]>,
) {
    let before = record.state();
    if let Some(value) = value {
        worker.fabric.work(Work::Copy { bytes: value.len() as u32 });
        // Whoever reads beside this sees by the lock that value and state do not fit.
        fence(Ordering::Release);
        record.write_value(value);
    }
    worker.fabric.access().await;
    let (present, len) = (value.is_some(), value.map_or(0, <[u8]>::len) as u32);
    let version = if present || before.present { before.version.next() } else { before.version };
    let watched = before.watched || !present;
    record.set_state(State { version, present, len, watched });
    if watched && !before.watched {
        worker.look_later(write.place);
    }
}

impl RecordForm for Silo {
    const STRICT: bool = true;

    fn word(_: &Multicore) -> Option<u64> {
        Some(0)
    }

    fn is_held(_: &Multicore, record: Record<'_>) -> bool {
        record.word().load(Ordering::Relaxed) & LOCKED != 0
    }
}

impl Protocol for Silo {
    async fn read<F: Fabric>(
        worker: &Worker<F, Self>,
        sets: &mut Sets,
        (key, place): (Key, Place),
        _for_update: bool,
        value: &mut Vec<u8>,
    ) -> Result<Seen, Abort> {
        let record = worker.store().record(place);
        for turn in 1..=worker.node.config().spins {
            let seen = record.word().load(Ordering::Acquire);
            if seen & GONE != 0 {
                return Err(Abort::Stale { key });
            }
            if seen & LOCKED == 0 || worker.sabotage() == Sabotage::IgnoresLocks {
                let state = record.state();
                value.clear();
                record.copy_value(state.len, value);
                worker.fabric.work(Work::Copy { bytes: state.len });
                fence(Ordering::Acquire);
                if record.word().load(Ordering::Relaxed) == seen {
                    sets.reads.push(super::sets::Read { place, key, seen: seen & !LOCKED });
                    return Ok(Seen { present: state.present, version: state.version });
                }
            }
            worker.pause(turn).await;
        }
        Err(Abort::LockConflict { key })
    }

    async fn commit<F: Fabric>(worker: &Worker<F, Self>, sets: &mut Sets) -> Result<(), Abort> {
        let locked = lock_writes(worker, sets).await?;
        // [Silo13 4.4] The serialization point: between the locks and what follows.
        fence(Ordering::SeqCst);
        let epoch = worker.store().epochs().now();
        worker.stall().await;
        let validated = validate(worker, sets, locked).await?;
        worker.stall().await;
        install(worker, sets, epoch, validated).await;
        Ok(())
    }

    fn abort<F: Fabric>(worker: &Worker<F, Self>, sets: &mut Sets) {
        if worker.sabotage() == Sabotage::KeepsLocks {
            return;
        }
        for write in sets.writes.iter_mut().filter(|write| write.held == LOCKED) {
            write.held = 0;
            let record = worker.store().record(write.place);
            record.word().fetch_and(!LOCKED, Ordering::Release);
        }
    }

    fn take_if_absent<F: Fabric>(worker: &Worker<F, Self>, place: Place) -> Absence {
        let record = worker.store().record(place);
        let seen = record.word().load(Ordering::Relaxed);
        let order = (Ordering::SeqCst, Ordering::Relaxed);
        let free = seen & LOCKED == 0
            && record.word().compare_exchange(seen, seen | LOCKED, order.0, order.1).is_ok();
        if !free {
            return Absence::Busy;
        }
        if record.state().present {
            record.unwatch();
            record.word().store(seen, Ordering::Release);
            return Absence::Present;
        }
        record.word().store(seen | LOCKED | GONE, Ordering::SeqCst);
        Absence::Gone { timestamp: 0 }
    }
}
