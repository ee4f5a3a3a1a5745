//! What optimistic engines with one word a record share: reads without writing anything, locks on
//! the write set while a transaction commits, records that go when they stay absent.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use nicol_core::fabric::{Fabric, Work};
use nicol_core::ids::Key;
use nicol_core::interactive::Seen;
use nicol_core::txn::Abort;
use nicol_store::multicore::{Place, Record, State};

use super::halt::Halt;
use super::record_form::RecordForm;
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

/// A protocol of this kind: it says how a transaction commits, and reads and lets go as all do.
pub trait Optimistic: RecordForm {
    /// As [`Protocol::commit`].
    #[expect(async_fn_in_trait, reason = "futures stay on the polling thread that made them")]
    async fn commit<F: Fabric>(worker: &Worker<F, Self>, sets: &mut Sets) -> Result<(), Abort>;

    /// Until when the record of this word was read or written; 0 in a protocol without such a time.
    fn last_used(word: u64) -> u64;
}

impl<O: Optimistic> Protocol for O {
    type Found = Found;

    type Kept = ();

    #[inline(always)]
    fn find<F: Fabric>(
        worker: &Worker<F, Self>,
        _sets: &mut Sets,
        at: (Key, Place),
        _for_update: bool,
    ) -> Result<Found, Halt> {
        find(worker, at)
    }

    fn before_copy<F: Fabric>(fabric: &F) -> Option<F::Access> {
        Some(fabric.within_access())
    }

    #[inline(always)]
    fn copy<F: Fabric>(
        worker: &Worker<F, Self>,
        sets: &mut Sets,
        at: (Key, Place),
        found: Found,
        value: &mut Vec<u8>,
    ) -> Result<Seen, Halt> {
        copy(worker, sets, at, found, value)
    }

    fn commit<F: Fabric>(
        worker: &Worker<F, Self>,
        sets: &mut Sets,
    ) -> impl Future<Output = Result<(), Abort>> {
        <O as Optimistic>::commit(worker, sets)
    }

    fn abort<F: Fabric>(worker: &Worker<F, Self>, sets: &mut Sets) {
        unlock(worker, sets);
    }

    fn take_if_absent<F: Fabric>(worker: &Worker<F, Self>, place: Place) -> Absence {
        take_if_absent(worker, place, O::last_used)
    }
}

/// The first half of a read: the record's word, and its state.
pub type Found = (u64, State);

/// The first half of a read: the word, unless somebody has locked it, then what the record holds.
#[inline(always)]
fn find<F: Fabric, P: Protocol>(
    worker: &Worker<F, P>,
    (key, place): (Key, Place),
) -> Result<Found, Halt> {
    let record = worker.store().record(place);
    let seen = record.word().load(Ordering::Acquire);
    if seen & GONE != 0 {
        return Err(Abort::Stale { key }.into());
    }
    if seen & LOCKED != 0 {
        return Err(Halt::Busy(key));
    }
    let state = record.state();
    worker.fabric.work(Work::Copy { bytes: state.len });
    Ok((seen, state))
}

/// The second half: the value. A writer may have come before it: the word then tells.
#[inline(always)]
fn copy<F: Fabric, P: Protocol>(
    worker: &Worker<F, P>,
    sets: &mut Sets,
    (key, place): (Key, Place),
    (seen, state): Found,
    value: &mut Vec<u8>,
) -> Result<Seen, Halt> {
    let record = worker.store().record(place);
    record.copy_value(state.len, value);
    fence(Ordering::Acquire);
    let again = record.word().load(Ordering::Relaxed);
    if worker.hooks.looks_again() && again != seen {
        return Err(Halt::Busy(key));
    }
    sets.reads.push(Read { place, key, seen: seen & !LOCKED });
    Ok(Seen { present: state.present, version: state.version })
}

/// Must a transaction that has read the record of this word, and does not write it, heed its lock?
#[inline(always)]
pub(super) fn is_others<F: Fabric, P: Protocol>(worker: &Worker<F, P>, word: u64) -> bool {
    worker.hooks.heeds(word & LOCKED != 0)
}

/// Locks the record of `write`; returns its word as it was.
#[inline(always)]
fn lock<F: Fabric, P: Protocol>(worker: &Worker<F, P>, write: &Write) -> Result<u64, Halt> {
    let key = write.key;
    let word = worker.store().record(write.place).word();
    let seen = word.load(Ordering::Relaxed);
    if seen & GONE != 0 {
        return Err(Abort::Stale { key }.into());
    }
    if !try_lock(word, seen) {
        return Err(Halt::Busy(key));
    }
    write.held.set(LOCKED);
    Ok(seen)
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
    let lock = |highest: u64, write| Ok(highest.max(lock(worker, write)?));
    let highest = worker.each(sets.writes.iter(), 0, lock).await?;
    Ok(Locked { highest })
}

/// Installs the write set and unlocks it: the word of each record becomes what `word` returns.
pub(super) async fn install<F: Fabric, P: Protocol>(
    worker: &Worker<F, P>,
    sets: &Sets,
    _: Locked,
    word: impl FnOnce() -> u64,
) {
    let _phase = worker.phase("install").await;
    let word = word();
    let unlock = |write: &Write| {
        worker.store().record(write.place).word().store(word, Ordering::Release);
        write.held.set(0);
    };
    put(worker, sets, unlock).await;
}

/// Puts the writes into their records, which are locked; `changed` is called after each.
pub(super) async fn put<F: Fabric, P: Protocol>(
    worker: &Worker<F, P>,
    sets: &Sets,
    changed: impl Fn(&Write),
) {
    let value = |write: &Write| put_value(worker, write, sets.value(write));
    let state = |write: &Write| {
        put_state(worker, sets, write);
        changed(write);
    };
    worker.each_held_in_two(sets.writes.iter(), value, state).await;
}

#[inline(always)]
fn put_value<F: Fabric, P: Protocol>(worker: &Worker<F, P>, write: &Write, value: Option<&[u8]>) {
    let Some(value) = value else { return };
    worker.fabric.work(Work::Copy { bytes: value.len() as u32 });
    // A concurrent reader sees the lock, and so does not use a value that does not fit the state.
    fence(Ordering::Release);
    worker.store().record(write.place).write_value(value);
}

#[inline(always)]
fn put_state<F: Fabric, P: Protocol>(worker: &Worker<F, P>, sets: &Sets, write: &Write) {
    let (record, value) = (worker.store().record(write.place), sets.value(write));
    let before = record.state();
    let (present, len) = (value.is_some(), value.map_or(0, <[u8]>::len) as u32);
    let version = if present || before.present { before.version.next() } else { before.version };
    let watched = match present {
        true => before.watched && !sets.fills_own(write.place),
        false => true,
    };
    record.set_state(State { version, present, len, watched });
    if watched && !before.watched {
        worker.was_deleted(write.key, write.place);
    }
    write.version.set(version);
}

/// Unlocks what of the write set is locked.
fn unlock<F: Fabric, P: Protocol>(worker: &Worker<F, P>, sets: &Sets) {
    for write in sets.writes.iter().filter(|write| write.held.get() == LOCKED) {
        write.held.set(0);
        let record = worker.store().record(write.place);
        record.word().fetch_and(!LOCKED, Ordering::Release);
    }
}

/// Marks a watched record as gone if it is still absent. `timestamp` extracts from the record's
/// word the latest time at which the record was read or written.
fn take_if_absent<F: Fabric, P: Protocol>(
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
