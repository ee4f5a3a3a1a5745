use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::atomic::AtomicBool;
use std::thread;

use nicol_core::rng::{Purpose, Stream, test_steps};

use super::*;

mod edges;
mod walk;

const SEGMENTS: u64 = 96;

fn index(cached_objects_max: usize, busy_objects_max: usize) -> NicIndex {
    NicIndex::new(IndexConfig {
        segments: SEGMENTS,
        cached_objects_max,
        busy_objects_max,
        homes_per_hint: HomesPerHint::SEGMENT,
        value_bytes_max: usize::MAX,
    })
}

fn of(key: u64) -> (SlotHash, Key) {
    (SlotHash::of(Key(key)), Key(key))
}

fn lock(index: &NicIndex, key: u64, txn: u64) -> Result<(), LockRefused> {
    let (hash, key) = of(key);
    index.lock(hash, key, TxnId(txn))
}

fn unlock(index: &NicIndex, key: u64, txn: u64) -> bool {
    let (hash, key) = of(key);
    index.unlock(hash, key, TxnId(txn))
}

fn hint(index: &NicIndex, key: u64) -> Option<Hint> {
    let (hash, key) = of(key);
    match index.lookup(hash, key, &mut Vec::new()) {
        IndexLookup::Hit { .. } => None,
        IndexLookup::Miss(hint) => Some(hint),
    }
}

/// A lookup that reads from the host what the index does not have; was it a hit?
fn access(index: &NicIndex, key: u64) -> bool {
    let Some(hint) = hint(index, key) else { return true };
    let (hash, key) = of(key);
    assert!(index.learn(hash, key, hint.epoch, Version(1), Some((b"value", 2))));
    false
}

#[test]
fn a_lock_has_one_holder_and_outlives_eviction() {
    let index = index(1, 64);
    assert_eq!(lock(&index, 1, 1), Ok(()));
    assert_eq!(lock(&index, 1, 1), Ok(()));
    assert_eq!(lock(&index, 1, 2), Err(LockRefused::Held(TxnId(1))));
    for key in 10..200 {
        access(&index, key);
        index.check();
    }
    let (hash, key) = of(1);
    assert_eq!(index.holder(hash, key), Some(TxnId(1)));
    assert!(!unlock(&index, 1, 2));
    assert!(unlock(&index, 1, 1));
    assert_eq!((index.locked_count(), index.holder(hash, key)), (0, None));
    index.check();
}

#[test]
fn a_shared_key_is_not_locked_and_stays() {
    let index = index(1, 64);
    let (hash, key) = of(1);
    assert_eq!(index.lock_shared(hash, key), Ok(()));
    assert_eq!(index.lock_shared(hash, key), Ok(()));
    index.unlock_shared(hash, key);
    assert_eq!(lock(&index, 1, 1), Err(LockRefused::Shared));
    for key in 10..200 {
        access(&index, key);
    }
    index.check();
    index.unlock_shared(hash, key);
    assert_eq!(lock(&index, 1, 1), Ok(()));
    assert_eq!(index.lock_shared(hash, key), Err(LockRefused::Held(TxnId(1))));
    assert_eq!(index.locked_count(), 1);
    index.check();
}

/// `N` keys of one segment.
fn neighbours<const N: usize>() -> [u64; N] {
    let segment = |key: &u64| of(*key).0.base_segment(SEGMENTS);
    let mut keys = (0..).filter(|key| segment(key) == segment(&0));
    std::array::from_fn(|_| keys.next().unwrap())
}

fn current(index: &NicIndex, key: u64, version: u64, present: bool) -> Option<bool> {
    let (hash, key) = of(key);
    index.is_current(hash, key, TxnId(1), (Version(version), present))
}

#[test]
fn what_the_host_read_is_current_until_an_install_even_an_evicted_one() {
    let index = index(1, 64);
    let [one, two, three, four, five] = neighbours();
    let install = |key, version, value| {
        let (hash, key) = of(key);
        index.install(hash, key, Version(version), value);
        index.unpin(hash, key);
    };
    assert_eq!((current(&index, one, 4, true), current(&index, two, 0, false)), BOTH);
    install(one, 5, Some(b"new"));
    assert_eq!((current(&index, one, 4, true), current(&index, one, 5, true)), SECOND);
    install(three, 1, Some(b"pushes it out"));
    install(four, 1, Some(b"pushes it out"));
    assert_eq!(current(&index, one, 4, true), None);
    assert_eq!(current(&index, one, 5, true), Some(true));
    install(two, 7, None);
    assert_eq!((current(&index, two, 6, false), current(&index, two, 7, false)), SECOND);
    assert_eq!(current(&index, two, 7, true), Some(false));
    assert_eq!(current(&index, five, 6, false), Some(false), "below the segment's floor");
}

const BOTH: (Option<bool>, Option<bool>) = (Some(true), Some(true));
const SECOND: (Option<bool>, Option<bool>) = (Some(false), Some(true));

#[test]
fn a_key_seen_absent_is_inserted_above_that() {
    let index = index(8, 64);
    let (hash, key) = of(1);
    assert!(index.learn(hash, key, 0, Version(2), None));
    assert_eq!(lock(&index, 1, 2), Ok(()));
    assert_eq!(current(&index, 1, 6, false), Some(false), "its holder may insert it at 3");
    assert!(unlock(&index, 1, 2));
    assert_eq!(current(&index, 1, 6, false), Some(true));
    let raised = IndexLookup::Hit { version: Version(6), present: false };
    assert_eq!(index.lookup(hash, key, &mut Vec::new()), raised);
}

#[test]
fn a_locked_key_stays_absent_at_the_version_seen_though_the_floor_rises() {
    let index = index(8, 64);
    let [one, two] = neighbours();
    let (hash, key) = of(one);
    assert_eq!(lock(&index, one, 1), Ok(()));
    assert_eq!(current(&index, one, 3, false), Some(true));
    let (other, deleted) = of(two);
    index.install(other, deleted, Version(9), None);
    let seen = IndexLookup::Hit { version: Version(3), present: false };
    assert_eq!(index.lookup(hash, key, &mut Vec::new()), seen);
    index.install(hash, key, Version(4), Some(b"inserted"));
}

#[test]
fn a_read_that_began_before_an_install_is_not_cached() {
    let index = index(64, 64);
    let Some(Hint { epoch, .. }) = hint(&index, 7) else { panic!("an empty index misses") };
    let (hash, key) = of(7);
    index.install(hash, key, Version(2), Some(b"new"));
    index.unpin(hash, key);
    assert!(!index.learn(hash, key, epoch, Version(1), Some((b"old", 0))));
    let mut value = Vec::new();
    let hit = index.lookup(hash, key, &mut value);
    assert_eq!(hit, IndexLookup::Hit { version: Version(2), present: true });
    assert_eq!(value, b"new");
}

#[test]
fn it_agrees_with_a_model_whatever_happens_and_however_the_table_grows() {
    let mut random = Stream::new(5, Purpose::Test, 0);
    let index = index(128, 4_096);
    let mut host: BTreeMap<u64, (u64, Option<Vec<u8>>)> = BTreeMap::new();
    let mut pins: Vec<u64> = Vec::new();
    let mut locks: BTreeMap<u64, u64> = BTreeMap::new();
    let mut progress = Progress::default();
    let (mut evicted, mut negative) = (false, false);
    for step in 0..20_000u64 {
        let key = random.below(700);
        let (hash, name) = of(key);
        match random.below(6) {
            0 => {
                let (version, value) = host.entry(key).or_insert((0, None));
                *version = (*version).max(index.floor(hash).0) + 1;
                *value = (random.below(4) != 0).then(|| step.to_le_bytes().to_vec());
                index.install(hash, name, Version(*version), value.as_deref());
                pins.push(key);
            }
            1 if !pins.is_empty() => {
                let key = pins.swap_remove(random.below(pins.len() as u64) as usize);
                let (hash, name) = of(key);
                index.unpin(hash, name);
            }
            2 => match locks.remove(&key) {
                Some(txn) => assert!(unlock(&index, key, txn)),
                None => {
                    assert_eq!(lock(&index, key, step + 1), Ok(()));
                    locks.insert(key, step + 1);
                }
            },
            3 if random.below(4) == 0 => {
                progress = progress.next(SEGMENTS);
                index.follow(progress);
            }
            _ => {
                let mut read = Vec::new();
                match index.lookup(hash, name, &mut read) {
                    IndexLookup::Hit { version, present } => {
                        let (expected, value) = &host[&key];
                        assert_eq!(version.0, *expected);
                        assert_eq!(present.then_some(read), *value);
                        negative |= !present;
                    }
                    IndexLookup::Miss(Hint { epoch, .. }) => {
                        evicted |= host.contains_key(&key);
                        if let Some((version, value)) = host.get(&key) {
                            let found = value.as_ref().map(|value| (value.as_slice(), 1));
                            index.learn(hash, name, epoch, Version(*version), found);
                        }
                    }
                }
            }
        }
        index.check();
        assert_eq!(index.holder(hash, name).map(|txn| txn.0), locks.get(&key).copied());
    }
    assert!(evicted, "the capacity was never reached");
    assert!(negative, "no absence was ever cached");
    assert!(progress.level() >= 2, "{progress:?}");
}

#[test]
fn when_everything_is_pinned_or_locked_reads_go_uncached_and_locks_are_refused() {
    let index = index(64, 64);
    let mut refused = None;
    for key in 0..2_000 {
        if lock(&index, key, 1) == Err(LockRefused::Full) {
            refused = refused.or(Some(key));
        }
    }
    let objects = index.object_count();
    assert!(objects <= 64 * 2, "{objects} objects");
    assert!(!access(&index, 5_000));
    assert!(!access(&index, 5_000), "cached though nothing could make way");
    assert_eq!(index.object_count(), objects);
    index.check();
    let Some(refused) = refused else { panic!("no lock was refused") };
    // A COMMIT comes after the point of no return: it is never refused.
    let (hash, key) = of(refused);
    index.install(hash, key, Version(1), Some(b"x"));
    for key in 0..2_000 {
        unlock(&index, key, 1);
    }
    assert_eq!(lock(&index, refused, 2), Ok(()));
    assert!(unlock(&index, refused, 2));
    index.unpin(hash, key);
    assert!(!access(&index, 5_000));
    assert!(access(&index, 5_000), "there is space again");
    index.check();
}

#[test]
fn a_cache_smaller_than_the_working_set_keeps_what_is_hot() {
    let index = index(1_024, 64);
    let mut random = Stream::new(6, Purpose::Test, 0);
    let hits = |hot: u64, random: &mut Stream| {
        let (mut hits, mut looks) = (0, 0);
        for step in 0..60_000 {
            let is_hot = random.below(10) != 0;
            let key = if is_hot { hot + random.below(400) } else { 10_000 + random.below(100_000) };
            let hit = access(&index, key);
            if is_hot && step > 20_000 {
                hits += u64::from(hit);
                looks += 1;
            }
        }
        index.check();
        assert!(index.object_count() <= 1_024);
        (hits, looks)
    };
    // The second hot set displaces the first.
    for hot in [0, 5_000] {
        let (hits, looks) = hits(hot, &mut random);
        assert!(hits * 100 > looks * 95, "{hits} hits of {looks}");
    }
    index.set_capacity(64);
    for key in 0..20_000 {
        access(&index, key);
    }
    assert!(index.object_count() <= 64, "{} objects", index.object_count());
    index.check();
}

#[test]
fn it_follows_the_table_a_few_entries_at_a_time_and_forgets_nothing() {
    let index = index(4_096, 64);
    for key in 0..1_000 {
        access(&index, key);
    }
    assert_eq!(lock(&index, 3, 9), Ok(()));
    let before = index.entry_count();
    let progress = Progress::new(2, 17);
    index.follow(progress);
    // Stale news changes nothing.
    index.follow(Progress::new(1, 90));
    assert_eq!((index.known(), index.entry_count()), (progress, before));
    let mut rounds = 0;
    while index.entry_count() < 4 * before + 17 {
        for key in 0..1_000 {
            assert!(hint(&index, key).is_none(), "key {key} was forgotten");
        }
        index.check();
        rounds += 1;
        assert!(rounds < 50, "it does not follow: {} entries", index.entry_count());
    }
    assert_eq!(lock(&index, 3, 8), Err(LockRefused::Held(TxnId(9))));
}

#[test]
fn preloaded_records_are_kept_up_to_the_capacity() {
    let index = index(64, 64);
    let tell = |key: u64, displacement: u16| {
        let (hash, key) = of(key);
        let value = &key.0.to_le_bytes()[..];
        index.preload(hash, &LocatedRecord { key, version: Version(1), value, displacement });
    };
    (0..1_000).for_each(|key| tell(key, 3));
    let known = (0..1_000).filter(|&key| hint(&index, key).is_none()).count();
    assert_eq!((known, index.object_count()), (64, 64), "one in each stripe");
    let hints: Vec<_> = (0..1_000).filter_map(|key| hint(&index, key)).collect();
    assert!(hints.iter().all(|hint| hint.displacement == 3), "displacements of all are known");
    index.check();
}

#[test]
fn hints_learn_upward_and_tell_whose_header_was_seen() {
    let index = index(64, 64);
    let (hash, key) = of(1);
    let first = hint(&index, 1).map(|hint| (hint.displacement, hint.overflow, hint.seen));
    assert_eq!(first, Some((0, None, None)));
    for (displacement, expected) in [(3, 3), (1, 3), (7, 7)] {
        // A read that is no longer current still tells how far objects are from home.
        index.learn(hash, key, 99, Version(1), Some((b"x", displacement)));
        assert_eq!(hint(&index, 1).map(|hint| hint.displacement), Some(expected));
    }
    let header = SegmentHeader { moves: 6, overflow: None, floor: Version(0), level: 0 };
    index.learn_header(hash, 5, &header);
    assert_eq!(hint(&index, 1).and_then(|hint| hint.seen), Some((5, 6)));
    let overflow = Some(PageRef(NonZeroU64::MIN));
    index.learn_header(hash, 5, &SegmentHeader { moves: 7, overflow, ..header });
    let last = hint(&index, 1).map(|hint| (hint.overflow, hint.seen));
    assert_eq!(last, Some((overflow, None)));
}

/// One NIC core: takes locks and commits under them, looks up, reads its host's memory on a miss.
struct Core<'a> {
    index: &'a NicIndex,
    /// The version of each key that the host has applied; its value is the version's bytes.
    host: &'a [AtomicU64],
    /// Keys that a core has locked.
    owned: &'a [AtomicBool],
    random: Stream,
    missed: u64,
    committed: u64,
}

impl Core<'_> {
    fn commit(&mut self, key: usize, txn: u64) {
        let (hash, name) = of(key as u64);
        if self.index.lock(hash, name, TxnId(txn)).is_err() {
            return;
        }
        let alone = !self.owned[key].swap(true, Ordering::Acquire);
        assert!(alone, "two cores hold a lock of key {key}");
        for _ in 0..self.random.below(6) {
            let other = self.random.below(self.host.len() as u64) as usize;
            self.look_up(other);
        }
        let known = match self.index.lookup(hash, name, &mut Vec::new()) {
            IndexLookup::Hit { version, .. } => version.0,
            IndexLookup::Miss(_) => self.host[key].load(Ordering::Acquire),
        };
        let version = known + 1;
        self.index.install(hash, name, Version(version), Some(&version.to_le_bytes()));
        self.owned[key].store(false, Ordering::Release);
        assert!(self.index.unlock(hash, name, TxnId(txn)), "a lock outlives whatever happens");
        // The host applies the log later: until then a pin keeps the new value in the index.
        self.host[key].fetch_max(version, Ordering::AcqRel);
        self.index.unpin(hash, name);
        self.committed += 1;
    }

    fn look_up(&mut self, key: usize) {
        let (hash, name) = of(key as u64);
        let applied = self.host[key].load(Ordering::Acquire);
        let mut value = Vec::new();
        match self.index.lookup(hash, name, &mut value) {
            IndexLookup::Hit { version, present } => {
                assert!(present && value == version.0.to_le_bytes(), "{value:?} {version:?}");
                assert!(version.0 >= applied, "key {key}: {version:?} after {applied}");
            }
            IndexLookup::Miss(Hint { epoch, .. }) => {
                self.missed += 1;
                let found = self.host[key].load(Ordering::Acquire);
                // A DMA read takes its time.
                if self.random.below(256) == 0 {
                    thread::yield_now();
                }
                let value = found.to_le_bytes();
                self.index.learn(hash, name, epoch, Version(found), Some((&value, 0)));
            }
        }
    }
}

#[test]
fn cores_that_share_it_see_no_old_value_and_never_hold_one_lock_twice() {
    // Four stripes only, of eight cached objects each, so that the cores meet.
    let segments = 4;
    let index = NicIndex::new(IndexConfig {
        segments,
        cached_objects_max: 8 * STRIPES,
        busy_objects_max: 64 * STRIPES,
        homes_per_hint: HomesPerHint::ONE,
        value_bytes_max: usize::MAX,
    });
    let keys = 300;
    let host: Vec<_> = (0..keys).map(|_| AtomicU64::new(0)).collect();
    let owned: Vec<_> = (0..keys).map(|_| AtomicBool::new(false)).collect();
    let (missed, committed) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for number in 0..4u32 {
            let random = Stream::new(12, Purpose::Test, number);
            let (index, host, owned) = (&index, &host, &owned);
            let (missed, committed) = (&missed, &committed);
            scope.spawn(move || {
                let mut core = Core { index, host, owned, random, missed: 0, committed: 0 };
                let mut progress = Progress::default();
                for step in 0..test_steps(40_000) {
                    let key = core.random.below(keys) as usize;
                    match core.random.below(3) {
                        0 => core.commit(key, step * 4 + u64::from(number) + 1),
                        _ => core.look_up(key),
                    }
                    if number == 0 && step % 512 == 0 {
                        progress = progress.next(segments);
                        index.follow(progress);
                    }
                }
                missed.fetch_add(core.missed, Ordering::Relaxed);
                committed.fetch_add(core.committed, Ordering::Relaxed);
            });
        }
    });
    index.check();
    assert_eq!((index.locked_count(), index.pinned_count()), (0, 0));
    let (missed, committed) = (missed.into_inner(), committed.into_inner());
    assert!(missed > test_steps(10_000) && committed > test_steps(10_000), "{missed}, {committed}");
}

#[test]
fn large_values_leave_the_index_before_their_number_is_reached() {
    let value_bytes_max = 64 << 20;
    let index = NicIndex::new(IndexConfig {
        segments: SEGMENTS,
        cached_objects_max: 1 << 16,
        busy_objects_max: 1 << 10,
        value_bytes_max,
        homes_per_hint: HomesPerHint::ONE,
    });
    let value = vec![7; 100_000];
    for key in 0..2_000 {
        let (key, txn) = (Key(key), TxnId(1 + key));
        let hash = SlotHash::of(key);
        index.lock(hash, key, txn).unwrap();
        index.install(hash, key, Version(1), Some(&value));
        assert!(index.unlock(hash, key, txn));
        index.unpin(hash, key);
    }
    index.check();
    // Each stripe may exceed its share by the value that it took last.
    let most = value_bytes_max + STRIPES * value.len() + (4 << 20);
    let memory = index.memory().0 as usize;
    assert!(memory <= most, "{memory} bytes for values of {value_bytes_max}");
    assert!(index.object_count() >= value_bytes_max / value.len() / 2, "some stay cached");
    // What is pinned stays, however large.
    let pinned: Vec<_> = (10_000..11_000).map(Key).collect();
    for &key in &pinned {
        index.install(SlotHash::of(key), key, Version(1), Some(&value));
    }
    let mut found = Vec::new();
    for &key in &pinned {
        let hit = index.lookup(SlotHash::of(key), key, &mut found);
        assert!(matches!(hit, IndexLookup::Hit { present: true, .. }));
    }
    index.check();
}
