//! Readers and one-sided committers on threads of their own, beside the owner.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::*;

/// Keys that one-sided coordinators write, and keys that the owner inserts and deletes: more than
/// the table has slots, so that records move all the time. Miri, which interprets, has fewer.
const SLOTS: u64 = if cfg!(miri) { 4 } else { 32 };
const SHARED: u64 = SLOTS / 4;
const CHURNED: Range<u64> = 100..100 + 2 * SLOTS;
/// Bytes of a value out of line.
const LARGE: usize = if cfg!(miri) { 40 } else { 600 };

/// The counts of what the threads of a test have done.
#[derive(Default)]
struct Progress {
    stop: AtomicBool,
    committed: AtomicU64,
    reads: AtomicU64,
}

impl Progress {
    /// True if enough of each kind has happened beside the other.
    fn is_enough(&self) -> bool {
        let enough = |count: &AtomicU64| count.load(Ordering::Relaxed) > test_steps(2_000);
        enough(&self.committed) && enough(&self.reads)
    }
}

/// One-sided increments of the shared keys until told to stop.
fn commit_one_sidedly(remote: &Remote, core: u8, progress: &Progress) {
    let mut random = Stream::new(11, Purpose::Test, u32::from(core));
    while !progress.stop.load(Ordering::Relaxed) {
        let key = Key(random.below(SHARED));
        let Seen::Record { address, header, unlocked, .. } = remote.lookup(key) else {
            panic!("shared keys are always there");
        };
        if header.is_locked() || !remote.lock(address, unlocked, EngineId::nic(NodeId(1), core)) {
            thread::yield_now();
            continue;
        }
        let version = unlocked.version().next();
        remote.commit(key, address, unlocked, Some(&[version.0 as u8; 24]));
        progress.committed.fetch_add(1, Ordering::Relaxed);
    }
}

/// Reads every key until told to stop; no value is torn, no shared key missed.
fn read_one_sidedly(remote: &Remote, table: &RemoteTable, progress: &Progress) {
    let mut value = Vec::new();
    for key in (0..SHARED).chain(CHURNED).cycle().map(Key) {
        if progress.stop.load(Ordering::Relaxed) {
            return;
        }
        if let Seen::Record { header, value, .. } = remote.lookup(key) {
            let filled = [header.version().0 as u8];
            let value = value.unwrap_or_default();
            assert!(value.iter().all(|byte| [*byte] == filled), "{key:?} is torn");
        } else {
            assert!(key.0 >= SHARED, "{key:?} was missed");
        }
        value.clear();
        if let Ok(found) = table.get(key, &mut value) {
            assert!(found.present || key.0 >= SHARED, "{key:?} was missed");
            assert!(value.iter().all(|byte| u64::from(*byte) == found.version.0 & 0xff));
        }
        progress.reads.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn readers_and_one_sided_committers_get_along_with_the_owner() {
    for &design in THREADED {
        let table = RemoteTable::new(geometry(design, SLOTS), u64::MAX);
        for key in 0..SHARED {
            table.load(Key(key), &[1; 24]);
        }
        let progress = Progress::default();
        thread::scope(|scope| {
            for core in 0..CORES {
                let (table, progress) = (&table, &progress);
                scope.spawn(move || commit_one_sidedly(&Remote::of(table), core, progress));
                scope.spawn(move || read_one_sidedly(&Remote::of(table), table, progress));
            }
            let mut random = Stream::new(9, Purpose::Test, 1);
            let mut sequence = 0;
            let (least, most) = (test_steps(6_000), test_steps(4_000_000));
            while sequence < least || !progress.is_enough() && sequence < most {
                sequence += 1;
                let key = Key(CHURNED.start + random.below(CHURNED.end - CHURNED.start));
                let id = txn(9, sequence);
                let granted = table.lock(key, id).unwrap();
                let version = granted.unlocked.version().next();
                let value = [version.0 as u8; LARGE];
                let len = if random.below(2) == 0 { 8 } else { LARGE };
                let value = (random.below(2) == 0).then_some(&value[..len]);
                table.install(key, id, version, value);
            }
            progress.stop.store(true, Ordering::Relaxed);
        });
        let mut versions = 0;
        table.for_each(&mut |key, version, _| {
            versions += if key.0 < SHARED { version.0 - 1 } else { 0 };
        });
        assert_eq!(versions, progress.committed.load(Ordering::Relaxed), "an update was lost");
        assert_eq!((table.check(), table.locked_count()), (Vec::new(), 0));
    }
}

/// Adds 1 to the number in the record of `key` until told to stop.
fn count_one_sidedly(remote: &Remote, key: Key, progress: &Progress) {
    while !progress.stop.load(Ordering::Relaxed) {
        match remote.lookup(key) {
            Seen::Record { address, header, unlocked, value: Some(value) }
                if !header.is_locked() && remote.lock(address, unlocked, ENGINE) =>
            {
                let count = u64::from_le_bytes(value.try_into().unwrap()) + 1;
                remote.commit(key, address, unlocked, Some(&count.to_le_bytes()));
                progress.committed.fetch_add(1, Ordering::Relaxed);
            }
            _ => thread::yield_now(),
        }
    }
}

/// Replaces the record of `key` by what `change` makes of it, through the owner's calls.
fn change(table: &RemoteTable, key: Key, change: impl FnOnce(&[u8]) -> Option<Vec<u8>>) {
    let id = txn(9, 1);
    let granted = (0..10_000_000).any(|_| {
        let granted = table.lock(key, id).is_ok();
        if !granted {
            thread::yield_now();
        }
        granted
    });
    assert!(granted, "the lock of {key:?} was never given back");
    let mut value = Vec::new();
    let found = table.get(key, &mut value).unwrap();
    table.install(key, id, found.version.next(), change(&value).as_deref());
}

#[test]
fn an_update_is_not_lost_when_its_record_moves() {
    let table = RemoteTable::new(geometry(Design::Chained { bucket: 4 }, 1), u64::MAX);
    let (counter, filler) = (Key(0), Key(1));
    (1..5).for_each(|key| table.load(Key(key), b"filler"));
    table.load(counter, &[0; 8]);
    let progress = Progress::default();
    thread::scope(|scope| {
        for _ in 0..CORES {
            scope.spawn(|| count_one_sidedly(&Remote::of(&table), counter, &progress));
        }
        let (mut moved, mut rounds) = (0, 0);
        let committed = || progress.committed.load(Ordering::Relaxed);
        let (most, enough) = (test_steps(400_000), test_steps(20_000));
        while rounds < most && (moved < enough || committed() < enough) {
            rounds += 1;
            // The counter stands in the chain: it moves to where the filler was, if it can.
            change(&table, filler, |_| None);
            moved += u64::from(table.overflowed() == 0);
            let mut count = Vec::new();
            change(&table, counter, |value| {
                count = value.to_vec();
                None
            });
            change(&table, filler, |_| Some(b"filler".to_vec()));
            change(&table, counter, |_| Some(count));
        }
        progress.stop.store(true, Ordering::Relaxed);
    });
    let mut count = Vec::new();
    assert!(table.get(counter, &mut count).unwrap().present);
    let committed = progress.committed.load(Ordering::Relaxed);
    assert_eq!(u64::from_le_bytes(count.try_into().unwrap()), committed, "an update was lost");
    assert!(committed > 0, "nobody committed");
    assert_eq!((table.check(), table.locked_count()), (Vec::new(), 0));
}
