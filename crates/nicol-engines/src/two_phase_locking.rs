//! Strict two-phase locking: a transaction locks what it reads and writes, and lets go when it
//! ends.
//!
//! | step | what | where |
//! |---|---|---|
//! | growing | a shared lock to read, an exclusive one to write or to read for update | `find`, `will_write` |
//! | conflict | no-wait: abort. Wait-die: wait if older than every holder, else abort | `acquire` |
//! | commit point | all locks are held; the leaves that scans have read are as they were | `commit` |
//! | shrinking | install, then let go of everything | `commit` |
//!
//! DEVIATION [Bernstein87 3.7]: ranges are not locked. Nothing was inserted into a leaf whose
//! version is the same at the commit point, when every lock is held; an insertion that is not
//! committed yet holds the lock of its record, which a later scan meets.
//!
//! A lock is one word: the number of holders, and the timestamp of the oldest transaction that has
//! held it since it was free. A transaction waits only if it is older than that, or is that one: it
//! is older than every other holder.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use nicol_core::fabric::{Fabric, Work};
use nicol_core::history::Promise;
use nicol_core::ids::Key;
use nicol_core::interactive::Seen;
use nicol_core::txn::Abort;
use nicol_core::units::Nanos;
use nicol_store::multicore::{Multicore, Place, Record, Room};

use super::config::Waiting;
use super::halt::Halt;
use super::optimistic::put;
use super::record_form::RecordForm;
use super::sets::{Read, Sets};
use super::worker::{Absence, Protocol, Worker};

/// In a word: how many have a shared lock, or [`EXCLUSIVE`].
const HOLDERS: u64 = 0xfff;
/// The holder is one, and exclusive.
const EXCLUSIVE: u64 = HOLDERS;
/// In a word: the record is in no index any more.
const GONE: u64 = 1 << 12;
/// Where the timestamp stands.
const AGE_SHIFT: u32 = 13;
/// Looks at a lock after which a transaction that waits gives up: more than any holder takes that
/// suffers no stalls.
const WAITS_MAX: u32 = 100_000;
/// Stalls, of the longest, for which it waits on: more than those that hold the lock suffer, one
/// after the other.
const STALLS_MAX: u64 = 100;

/// How a lock is held.
const SHARED: u64 = 1;

/// The protocol.
#[derive(Clone, Copy, Debug)]
pub struct TwoPhaseLocking;

/// How an attempt at a lock ended.
enum Attempt {
    Locked,
    Gone,
    /// Others hold it. No holder is older than this.
    Held(u64),
}

/// The age that a word tells: the low bits of the oldest holder's timestamp.
const fn age_of(timestamp: u64) -> u64 {
    timestamp & (u64::MAX >> AGE_SHIFT)
}

/// Tries to hold `word` as `mode`, which the transaction of this age holds as `held` already.
fn attempt(word: &AtomicU64, mode: u64, held: u64, age: u64) -> Attempt {
    let mut seen = word.load(Ordering::Acquire);
    loop {
        if seen & GONE != 0 {
            return Attempt::Gone;
        }
        let holders = seen & HOLDERS;
        let free = match mode {
            SHARED => holders < EXCLUSIVE - 1,
            _ => holders == held,
        };
        if !free {
            return Attempt::Held(seen >> AGE_SHIFT);
        }
        let oldest = if holders == 0 { age } else { (seen >> AGE_SHIFT).min(age) };
        let holders = if mode == SHARED { holders + 1 } else { EXCLUSIVE };
        let new = oldest << AGE_SHIFT | holders;
        match word.compare_exchange(seen, new, Ordering::SeqCst, Ordering::Acquire) {
            Ok(_) => return Attempt::Locked,
            Err(changed) => seen = changed,
        }
    }
}

/// May a transaction of this age, which holds the lock as `held`, wait for its other holders? None
/// of them is older than `oldest`. Whoever waits is older than whom it waits for, so that no ring
/// of them waits for ever. [Rosenkrantz78 2]
const fn may_wait(waiting: Waiting, age: u64, held: u64, oldest: u64) -> bool {
    match waiting {
        Waiting::NoWait => false,
        Waiting::WaitDie => age < oldest || held == SHARED && age == oldest,
        Waiting::Always => true,
    }
}

/// Lets go of a lock.
fn release(word: &AtomicU64, mode: u64) {
    if mode == EXCLUSIVE {
        word.store(0, Ordering::Release);
        return;
    }
    let less = |seen: u64| {
        let holders = (seen & HOLDERS) - 1;
        Some(if holders == 0 { 0 } else { seen - 1 })
    };
    // It never refuses: `less` always has a word.
    let _ = word.fetch_update(Ordering::Release, Ordering::Relaxed, less);
}

/// Locks the record of `key`, waits or aborts. [Rosenkrantz78 2]
#[inline(always)]
fn acquire<F: Fabric>(
    worker: &Worker<F, TwoPhaseLocking>,
    sets: &mut Sets,
    (key, place): (Key, Place),
    mode: u64,
) -> Result<(), Halt> {
    let (word, age) = (worker.store().record(place).word(), age_of(sets.timestamp));
    // What nobody holds this transaction does not hold.
    let is_free = word.load(Ordering::Relaxed) & HOLDERS == 0;
    let known = if is_free { None } else { sets.lock_at(place) };
    let held = known.map_or(0, |at| sets.locks[at].1);
    if held >= mode {
        return Ok(());
    }
    match attempt(word, mode, held, age) {
        Attempt::Locked => {
            match known {
                Some(at) => sets.locks[at].1 = mode,
                None => sets.locks.push((place, mode)),
            }
            Ok(())
        }
        Attempt::Gone => Err(Abort::Stale { key }.into()),
        // It goes on without the lock.
        Attempt::Held(_) if !worker.hooks.heeds(true) => Ok(()),
        Attempt::Held(oldest) => {
            let waits = may_wait(worker.waiting, age, held, oldest);
            Err(if waits { Halt::Busy(key) } else { Abort::LockConflict { key }.into() })
        }
    }
}

impl RecordForm for TwoPhaseLocking {
    const PROMISE: Promise = Promise::StrictSerializable;

    fn word(_: &Multicore, _: Place, _: Option<&mut Room>) -> Option<u64> {
        Some(0)
    }

    fn is_held(_: &Multicore, record: Record<'_>) -> bool {
        record.word().load(Ordering::Relaxed) & HOLDERS != 0
    }
}

impl Protocol for TwoPhaseLocking {
    fn begin<F: Fabric>(worker: &Worker<F, Self>, sets: &mut Sets, _since: Option<u64>) {
        // A transaction that is tried again keeps its age.
        if sets.timestamp == 0 {
            sets.timestamp = worker.later(0);
        }
    }

    /// Nothing: the lock is all that a read needs.
    type Found = ();

    type Kept = ();

    #[inline(always)]
    fn find<F: Fabric>(
        worker: &Worker<F, Self>,
        sets: &mut Sets,
        at: (Key, Place),
        for_update: bool,
    ) -> Result<(), Halt> {
        if worker.hooks.locks_reads() {
            let mode = if for_update { EXCLUSIVE } else { SHARED };
            acquire(worker, sets, at, mode)?;
        }
        Ok(())
    }

    fn before_copy<F: Fabric>(_: &F) -> Option<F::Access> {
        None
    }

    #[inline(always)]
    fn copy<F: Fabric>(
        worker: &Worker<F, Self>,
        sets: &mut Sets,
        at: (Key, Place),
        (): (),
        value: &mut Vec<u8>,
    ) -> Result<Seen, Halt> {
        let record = worker.store().record(at.1);
        let state = record.state();
        record.copy_value(state.len, value);
        worker.fabric.work(Work::Copy { bytes: state.len });
        // Not to validate it, but to find it again.
        sets.reads.push(Read { place: at.1, key: at.0, seen: 0 });
        Ok(Seen { present: state.present, version: state.version })
    }

    fn writes_at_once<F: Fabric>(_: &Worker<F, Self>, sets: &Sets, place: Place) -> bool {
        sets.lock_at(place).is_some_and(|at| sets.locks[at].1 == EXCLUSIVE)
    }

    async fn will_write<F: Fabric>(
        worker: &Worker<F, Self>,
        sets: &mut Sets,
        at: (Key, Place),
    ) -> Result<(), Abort> {
        worker.fabric.access().await;
        worker.repeat(async || acquire(worker, sets, at, EXCLUSIVE)).await
    }

    fn looks_most<F: Fabric>(_: &Worker<F, Self>) -> u32 {
        WAITS_MAX
    }

    fn patience<F: Fabric>(worker: &Worker<F, Self>) -> Nanos {
        worker.node.config().stall * STALLS_MAX
    }

    fn give_up<F: Fabric>(worker: &Worker<F, Self>, key: Key) -> Abort {
        worker.node.gave_up_waiting();
        Abort::LockConflict { key }
    }

    async fn commit<F: Fabric>(worker: &Worker<F, Self>, sets: &mut Sets) -> Result<(), Abort> {
        let _phase = worker.fabric.phase("install and unlock");
        worker.fabric.access().await;
        if !sets.leaves().is_empty() {
            // Of two that have each inserted where the other has scanned, one sees that.
            fence(Ordering::SeqCst);
        }
        sets.validate_leaves(|node, version| worker.store().is_unchanged(node, version))?;
        if let Some(stall) = worker.stall() {
            stall.await;
        }
        worker.commit_point(sets)?;
        put(worker, sets, |_| {}).await;
        for (place, mode) in sets.locks.drain(..) {
            release(worker.store().record(place).word(), mode);
        }
        Ok(())
    }

    fn abort<F: Fabric>(worker: &Worker<F, Self>, sets: &mut Sets) {
        for (place, mode) in sets.locks.drain(..) {
            release(worker.store().record(place).word(), mode);
        }
    }

    fn take_if_absent<F: Fabric>(worker: &Worker<F, Self>, place: Place) -> Absence {
        let record = worker.store().record(place);
        match attempt(record.word(), EXCLUSIVE, 0, 0) {
            Attempt::Locked if record.state().present => {
                record.unwatch();
                release(record.word(), EXCLUSIVE);
                Absence::Present
            }
            Attempt::Locked => {
                record.word().store(GONE | EXCLUSIVE, Ordering::SeqCst);
                Absence::Gone { timestamp: 0 }
            }
            Attempt::Gone | Attempt::Held(_) => Absence::Busy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(word: &AtomicU64, mode: u64, held: u64, age: u64) -> Option<bool> {
        match attempt(word, mode, held, age) {
            Attempt::Held(oldest) => Some(may_wait(Waiting::WaitDie, age, held, oldest)),
            Attempt::Locked | Attempt::Gone => None,
        }
    }

    #[test]
    fn the_oldest_of_those_that_read_waits_until_it_may_write() {
        let word = AtomicU64::new(0);
        assert_eq!(waits(&word, SHARED, 0, 5), None);
        assert_eq!(waits(&word, SHARED, 0, 7), None);
        assert_eq!(waits(&word, EXCLUSIVE, SHARED, 5), Some(true), "it has read first");
        assert_eq!(waits(&word, EXCLUSIVE, SHARED, 7), Some(false), "one of both dies");
        for (age, may_wait) in [(4, true), (6, false), (8, false)] {
            assert_eq!(waits(&word, EXCLUSIVE, 0, age), Some(may_wait), "age {age} holds nothing");
        }
        assert!(!may_wait(Waiting::NoWait, 5, SHARED, 5));
        release(&word, SHARED);
        assert_eq!(waits(&word, EXCLUSIVE, SHARED, 5), None, "the other one has gone");
        assert_eq!(waits(&word, SHARED, 0, 4), Some(true));
        assert_eq!(waits(&word, SHARED, 0, 6), Some(false));
    }
}
