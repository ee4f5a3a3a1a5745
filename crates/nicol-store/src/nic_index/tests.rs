use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use nicol_core::chance::{Purpose, Stream};
use proptest::prelude::*;

use super::*;
use crate::host_table::{Geometry, Growth, HostTable, SlotHash};

fn txn(number: u64) -> TxnId {
    TxnId(number)
}

#[test]
fn a_lock_has_one_holder_and_outlives_eviction() {
    let index = NicIndex::new(IndexConfig { segments: 64, cached_objects_max: 1 });
    assert_eq!(index.lock(0, Key(1), txn(1)), Ok(()));
    assert_eq!(index.lock(0, Key(1), txn(1)), Ok(()));
    assert_eq!(index.lock(0, Key(1), txn(2)), Err(Locked { holder: txn(1) }));
    for key in 10..100 {
        assert!(index.learn(0, Key(key), 0, Version(1), Some((b"value", 0))));
        index.check();
    }
    assert_eq!(index.holder(0, Key(1)), Some(txn(1)));
    assert!(!index.unlock(0, Key(1), txn(2)));
    assert!(index.unlock(0, Key(1), txn(1)));
    assert_eq!((index.locked_count(), index.holder(0, Key(1))), (0, None));
    index.check();
}

#[test]
fn a_read_that_began_before_an_install_is_not_cached() {
    let index = NicIndex::new(IndexConfig { segments: 4, cached_objects_max: 64 });
    let IndexLookup::Miss { epoch, .. } = index.lookup(3, Key(7), &mut Vec::new()) else {
        panic!("an empty index misses");
    };
    index.install(3, Key(7), Version(2), Some(b"new"));
    index.unpin(3, Key(7));
    assert!(!index.learn(3, Key(7), epoch, Version(1), Some((b"old", 0))));
    let mut value = Vec::new();
    let hit = index.lookup(3, Key(7), &mut value);
    assert_eq!(hit, IndexLookup::Hit { version: Version(2), present: true });
    assert_eq!(value, b"new");
}

/// What happens to a key, or to whatever is under way.
#[derive(Clone, Copy, Debug)]
enum Step {
    Lock(u64, u64),
    Unlock(u64, u64),
    /// Install and unlock, if the transaction holds the key.
    Put(u64, u64),
    Delete(u64, u64),
    /// The host applies one of the records that it has not applied.
    Apply(usize),
    /// A lookup; on a miss a read of the host table begins, which sees it as it is now.
    Read(u64),
    /// One of these reads ends.
    Land(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || 0..60u64;
    let txn = || 0..3u64;
    let step = prop_oneof![
        6 => (key(), txn()).prop_map(|(key, txn)| Step::Lock(key, txn)),
        1 => (key(), txn()).prop_map(|(key, txn)| Step::Unlock(key, txn)),
        4 => (key(), txn()).prop_map(|(key, txn)| Step::Put(key, txn)),
        2 => (key(), txn()).prop_map(|(key, txn)| Step::Delete(key, txn)),
        6 => any::<usize>().prop_map(Step::Apply),
        12 => key().prop_map(Step::Read),
        10 => any::<usize>().prop_map(Step::Land),
    ];
    prop::collection::vec(step, 1..400)
}

type State = (Version, Option<Vec<u8>>);

/// A read of the host table under way.
struct Pending {
    key: u64,
    epoch: u64,
    seen: State,
}

const SEGMENTS: u64 = 8;
const CACHED: usize = 3 * STRIPES;

/// An index, and what it must agree with.
struct Model {
    index: NicIndex,
    holders: BTreeMap<u64, u64>,
    committed: BTreeMap<u64, State>,
    host: BTreeMap<u64, State>,
    /// Writes that the host has not applied.
    log: Vec<(u64, State)>,
    reads: Vec<Pending>,
}

impl Model {
    fn new() -> Self {
        let config = IndexConfig { segments: SEGMENTS, cached_objects_max: CACHED };
        Self {
            index: NicIndex::new(config),
            holders: BTreeMap::new(),
            committed: BTreeMap::new(),
            host: BTreeMap::new(),
            log: Vec::new(),
            reads: Vec::new(),
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Lock(key, by) => {
                let granted = self.index.lock(key % SEGMENTS, Key(key), txn(by));
                let holder = *self.holders.entry(key).or_insert(by);
                let refused = Locked { holder: txn(holder) };
                assert_eq!(granted, if holder == by { Ok(()) } else { Err(refused) });
            }
            Step::Unlock(key, by) => self.unlock(key, by),
            Step::Put(key, by) => self.commit(key, by, Some(vec![by as u8; key as usize])),
            Step::Delete(key, by) => self.commit(key, by, None),
            Step::Apply(choice) => {
                if !self.log.is_empty() {
                    let (key, state) = self.log.swap_remove(choice % self.log.len());
                    let applied = self.host.entry(key).or_default();
                    // AMB-37: logs have no common order.
                    if applied.0 < state.0 {
                        *applied = state;
                    }
                    self.index.unpin(key % SEGMENTS, Key(key));
                }
            }
            Step::Read(key) => self.read(key),
            Step::Land(choice) => {
                if !self.reads.is_empty() {
                    let Pending { key, epoch, seen } =
                        self.reads.swap_remove(choice % self.reads.len());
                    let found = seen.1.as_deref().map(|value| (value, 3));
                    if self.index.learn(key % SEGMENTS, Key(key), epoch, seen.0, found) {
                        let committed = self.committed.get(&key).cloned().unwrap_or_default();
                        assert_eq!(seen, committed, "key {key}: an old read was taken for current");
                    }
                }
            }
        }
    }

    fn unlock(&mut self, key: u64, by: u64) {
        let held = self.holders.get(&key) == Some(&by);
        assert_eq!(self.index.unlock(key % SEGMENTS, Key(key), txn(by)), held);
        if held {
            self.holders.remove(&key);
        }
    }

    fn commit(&mut self, key: u64, by: u64, value: Option<Vec<u8>>) {
        if self.holders.get(&key) != Some(&by) {
            return;
        }
        let before = self.committed.get(&key).map_or(Version(0), |state| state.0);
        let version = before.max(self.index.floor(key % SEGMENTS)).next();
        self.index.install(key % SEGMENTS, Key(key), version, value.as_deref());
        self.committed.insert(key, (version, value.clone()));
        self.log.push((key, (version, value)));
        self.unlock(key, by);
    }

    fn read(&mut self, key: u64) {
        let mut read = Vec::new();
        match self.index.lookup(key % SEGMENTS, Key(key), &mut read) {
            IndexLookup::Hit { version, present } => {
                let state = (version, present.then_some(read));
                assert_eq!(Some(&state), self.committed.get(&key).or(Some(&(Version(0), None))));
            }
            IndexLookup::Miss { epoch, .. } => {
                let seen = self.host.get(&key).cloned().unwrap_or_default();
                self.reads.push(Pending { key, epoch, seen });
            }
        }
    }

    fn agrees(&self) {
        self.index.check();
        assert_eq!(self.index.locked_count(), self.holders.len());
        assert_eq!(self.index.pinned_count(), self.log.len());
        for key in 0..60 {
            let holder = self.holders.get(&key).map(|&by| txn(by));
            assert_eq!(self.index.holder(key % SEGMENTS, Key(key)), holder);
        }
        let extra = self.holders.len() + self.log.len();
        assert!(self.index.object_count() <= CACHED + extra, "eviction keeps up");
    }
}

proptest! {
    #[test]
    fn it_agrees_with_a_model_whatever_happens(steps in steps()) {
        let mut model = Model::new();
        for step in steps {
            model.take(step);
            model.agrees();
        }
    }
}

#[test]
fn what_was_evicted_is_read_from_the_host_again() {
    let mut model = Model::new();
    let mut evicted = 0;
    for round in 0..200 {
        for key in 0..60 {
            model.take(Step::Lock(key, 1));
            model.take(if (key + round) % 5 == 0 {
                Step::Delete(key, 1)
            } else {
                Step::Put(key, 1)
            });
            model.take(Step::Apply(0));
            model.take(Step::Read(key * 7 % 60));
            evicted += usize::from(!model.reads.is_empty());
            model.take(Step::Land(0));
            model.agrees();
        }
    }
    assert!(evicted > 0, "the capacity was never reached");
}

/// Keys whose value counts their updates, and keys that come and go.
const COUNTED: u64 = 8;
const KEYS: u64 = 60;

/// An index and its host table, used by NIC cores and host workers.
struct Shard {
    index: NicIndex,
    table: HostTable,
    stop: AtomicBool,
    committed: AtomicU64,
    read: AtomicU64,
}

/// A record of a log.
type LogRecord = (Key, Version, Option<[u8; 16]>);

impl Shard {
    fn new() -> Self {
        let geometry = Geometry::new(48, 8, 16);
        let table = HostTable::new(geometry, u64::MAX, Growth::Off);
        (0..COUNTED).for_each(|key| table.load(Key(key), &image(0, Version(1))));
        Self {
            index: NicIndex::new(IndexConfig {
                segments: geometry.segments(),
                cached_objects_max: STRIPES,
            }),
            table,
            stop: AtomicBool::new(false),
            committed: AtomicU64::new(0),
            read: AtomicU64::new(0),
        }
    }

    fn segment(&self, key: Key) -> u64 {
        SlotHash::of(key).base_segment(self.table.geometry().segments())
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The current state of a key, as a NIC core finds it: the counter, if there is a record.
    fn look_up(&self, key: Key) -> (Version, Option<u64>) {
        let (segment, mut value) = (self.segment(key), Vec::new());
        loop {
            value.clear();
            let (version, present) = match self.index.lookup(segment, key, &mut value) {
                IndexLookup::Hit { version, present } => (version, present),
                IndexLookup::Miss { epoch, .. } => {
                    let found = self.table.get(key, &mut value);
                    let version = found.version.max(self.index.floor(segment));
                    let record = found.present.then_some((value.as_slice(), 0));
                    let version = if found.present { found.version } else { version };
                    if !self.index.learn(segment, key, epoch, version, record) {
                        continue;
                    }
                    (version, found.present)
                }
            };
            return (version, present.then(|| counter(&value, version)));
        }
    }

    /// A NIC core: transactions that lock, read, install, log and unlock.
    fn commit(&self, core: u64, log: &Sender<LogRecord>) {
        let mut random = Stream::new(21, Purpose::Test, core as u32);
        for number in 1.. {
            if self.is_over() {
                return;
            }
            let (key, id) = (Key(random.below(KEYS)), txn(core << 32 | number));
            if self.index.lock(self.segment(key), key, id).is_err() {
                continue;
            }
            let (version, count) = self.look_up(key);
            let version = version.next();
            let keep = key.0 < COUNTED || random.below(2) == 0;
            let value = keep.then(|| image(count.unwrap_or(0) + 1, version));
            self.index.install(self.segment(key), key, version, value.as_ref().map(|v| &v[..]));
            log.send((key, version, value)).unwrap();
            self.committed.fetch_add(u64::from(key.0 < COUNTED), Ordering::Relaxed);
            assert!(self.index.unlock(self.segment(key), key, id));
        }
    }

    /// A host worker.
    fn apply(&self, log: &Receiver<LogRecord>) {
        for (key, version, value) in log {
            self.table.apply(key, version, value.as_ref().map(|value| &value[..]));
            self.index.unpin(self.segment(key), key);
        }
    }

    /// Reads every key: versions do not go back, and no counted key is missed.
    fn watch(&self) {
        let mut versions = vec![Version(0); KEYS as usize];
        while !self.is_over() {
            for (key, last) in versions.iter_mut().enumerate() {
                let (version, count) = self.look_up(Key(key as u64));
                assert!(version >= *last, "key {key} went back from {last:?} to {version:?}");
                assert!(count.is_some() || key as u64 >= COUNTED, "key {key} was missed");
                *last = version;
                self.read.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// A value: a counter, and the version that it was written at.
fn image(count: u64, version: Version) -> [u8; 16] {
    let mut image = [0; 16];
    image[..8].copy_from_slice(&count.to_le_bytes());
    image[8..].copy_from_slice(&version.0.to_le_bytes());
    image
}

fn counter(image: &[u8], version: Version) -> u64 {
    assert_eq!(image[8..], version.0.to_le_bytes(), "the value is another version's");
    u64::from_le_bytes(image[..8].try_into().unwrap())
}

#[test]
fn cores_that_share_an_index_lose_no_update_and_see_no_old_one() {
    let shard = Shard::new();
    thread::scope(|scope| {
        for core in 0..2 {
            let (log, records) = mpsc::channel();
            let shard = &shard;
            scope.spawn(move || shard.commit(core, &log));
            scope.spawn(move || shard.apply(&records));
        }
        scope.spawn(|| shard.watch());
        let enough = |count: &AtomicU64| count.load(Ordering::Relaxed) > 20_000;
        for _ in 0..10_000_000 {
            if enough(&shard.committed) && enough(&shard.read) {
                break;
            }
            thread::yield_now();
        }
        shard.stop.store(true, Ordering::Relaxed);
    });
    let counts = (0..COUNTED).map(|key| shard.look_up(Key(key)).1.unwrap());
    assert_eq!(counts.sum::<u64>(), shard.committed.load(Ordering::Relaxed), "an update was lost");
    assert!(shard.committed.load(Ordering::Relaxed) > 0, "nobody committed");
    shard.index.check();
    shard.table.check();
    assert_eq!((shard.index.locked_count(), shard.index.pinned_count()), (0, 0));
}
