//! What optimistic engines with one word a record share: reads without writing anything, locks on
//! the write set while a transaction commits, records that go when they stay absent.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use nicol_core::fabric::{Fabric, Work};
use nicol_core::ids::{Key, Version};
use nicol_core::interactive::Seen;
use nicol_core::txn::Abort;
use nicol_store::multicore::{Place, Record, State};

use super::sets::{Read, Sets, Write};
use super::worker::{Absence, Protocol, Worker};

/// In a word: somebody holds the record.
pub(super) const LOCKED: u64 = 1;
/// In a word: the record is in no index any more.
pub(super) const GONE: u64 = 2;

/// Proof that the write set is locked.
#[must_use = "install the writes, or abort"]
pub(super) struct Locked {
    /// The highest of its words.
    pub(super) highest: u64,
}

/// Reads value and word of the record of `key` at one instant, without writing anything.
pub(super) async fn read<F: Fabric, P: Protocol>(
    worker: &Worker<F, P>,
    sets: &mut Sets,
    (key, place): (Key, Place),
    value: &mut Vec<u8>,
) -> Result<Seen, Abort> {
    let record = worker.store().record(place);
    for turn in 1..=worker.node.config().spins {
        let seen = record.word().load(Ordering::Acquire);
        if seen & GONE != 0 {
            return Err(Abort::Stale { key });
        }
        if !worker.hooks.heeds(seen & LOCKED != 0) {
            let state = record.state();
            worker.fabric.work(Work::Copy { bytes: state.len });
            // A writer may come between the state and the value: the word then tells.
            worker.fabric.within_access().await;
            value.clear();
            record.copy_value(state.len, value);
            fence(Ordering::Acquire);
            let again = record.word().load(Ordering::Relaxed);
            if !worker.hooks.looks_again() || again == seen {
                sets.reads.push(Read { place, key, seen: seen & !LOCKED });
                return Ok(Seen { present: state.present, version: state.version });
            }
        }
        worker.pause(turn).await;
    }
    Err(Abort::LockConflict { key })
}

/// Locks the word of the record of `key`; returns it as it was.
async fn lock<F: Fabric, P: Protocol>(
    worker: &Worker<F, P>,
    word: &AtomicU64,
    key: Key,
) -> Result<u64, Abort> {
    for turn in 1..=worker.node.config().spins {
        let seen = word.load(Ordering::Relaxed);
        if seen & GONE != 0 {
            return Err(Abort::Stale { key });
        }
        if try_lock(word, seen) {
            return Ok(seen);
        }
        worker.pause(turn).await;
    }
    Err(Abort::LockConflict { key })
}

fn try_lock(word: &AtomicU64, seen: u64) -> bool {
    let order = (Ordering::SeqCst, Ordering::Relaxed);
    seen & LOCKED == 0 && word.compare_exchange(seen, seen | LOCKED, order.0, order.1).is_ok()
}

/// Locks the write set, in the order of memory, so that nobody waits in a circle.
pub(super) async fn lock_writes<F: Fabric, P: Protocol>(
    worker: &Worker<F, P>,
    sets: &mut Sets,
) -> Result<Locked, Abort> {
    let _phase = worker.fabric.phase("lock the write set");
    sets.writes.sort_unstable_by_key(|write| write.place);
    let mut highest = 0;
    for index in 0..sets.writes.len() {
        let Write { place, key, .. } = sets.writes[index];
        worker.fabric.access().await;
        let word = worker.store().record(place).word();
        highest = highest.max(lock(worker, word, key).await?);
        sets.writes[index].held = LOCKED;
    }
    Ok(Locked { highest })
}

/// Installs the write set and unlocks it: the word of each record becomes `word`.
pub(super) async fn install<F: Fabric, P: Protocol>(
    worker: &Worker<F, P>,
    sets: &mut Sets,
    _: Locked,
    word: u64,
) {
    let _phase = worker.fabric.phase("install");
    for index in 0..sets.writes.len() {
        worker.fabric.access().await;
        let write = &sets.writes[index];
        let record = worker.store().record(write.place);
        let version = put(worker, record, write, sets.value(write)).await;
        record.word().store(word, Ordering::Release);
        let write = &mut sets.writes[index];
        (write.held, write.version) = (0, version);
    }
}

/// Changes a record that is locked; returns its new version.
pub(super) async fn put<F: Fabric, P: Protocol>(
    worker: &Worker<F, P>,
    record: Record<'_>,
    write: &Write,
    value: Option<&[u8]>,
) -> Version {
    let before = record.state();
    if let Some(value) = value {
        worker.fabric.work(Work::Copy { bytes: value.len() as u32 });
        // A concurrent reader sees the lock, and so does not use a value that does not fit the
        // state.
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
    version
}

/// Unlocks what of the write set is locked.
pub(super) fn abort<F: Fabric, P: Protocol>(worker: &Worker<F, P>, sets: &mut Sets) {
    if !worker.hooks.unlocks_aborted() {
        return;
    }
    for write in sets.writes.iter_mut().filter(|write| write.held == LOCKED) {
        write.held = 0;
        let record = worker.store().record(write.place);
        record.word().fetch_and(!LOCKED, Ordering::Release);
    }
}

/// Marks a watched record as gone if it is still absent. `timestamp` extracts from the record's
/// word the latest time at which the record was read or written.
pub(super) fn take_if_absent<F: Fabric, P: Protocol>(
    worker: &Worker<F, P>,
    place: Place,
    timestamp: impl Fn(u64) -> u64,
) -> Absence {
    let record = worker.store().record(place);
    if !try_lock(record.word(), record.word().load(Ordering::Relaxed)) {
        return Absence::Busy;
    }
    if record.state().present {
        record.unwatch();
        record.word().fetch_and(!LOCKED, Ordering::Release);
        return Absence::Present;
    }
    let seen = record.word().fetch_or(GONE, Ordering::SeqCst);
    Absence::Gone { timestamp: timestamp(seen) }
}

/// Does somebody hold the record?
pub(super) fn is_held(record: Record<'_>) -> bool {
    record.word().load(Ordering::Relaxed) & LOCKED != 0
}
