use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use nicol_core::chance::{Purpose, Stream, test_steps};
use nicol_core::ids::NodeId;
use nicol_core::units::Bytes;

use super::*;

const DESIGNS: [Design; 3] = [
    Design::Hopscotch { neighbourhood: 8 },
    Design::Chained { bucket: 4 },
    Design::Chained { bucket: 16 },
];

fn geometry(design: Design, slots: u64) -> Geometry {
    Geometry::new(TableConfig {
        design,
        slots,
        overflow_slots: 8 * slots,
        inline: 24,
        heap: Bytes(if cfg!(miri) { 1 << 16 } else { 1 << 20 }),
    })
}

fn txn(core: u8, sequence: u64) -> TxnId {
    TxnId::new(EngineId::nic(NodeId(7), core), sequence)
}

/// A coordinator that has the geometry and one-sided operations, and nothing else.
struct Remote {
    geometry: Geometry,
    region: Arc<Region>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Record { address: u64, header: Header, unlocked: Header, value: Option<Vec<u8>> },
    Absent(Absence),
}

impl Remote {
    fn of(table: &RemoteTable) -> Self {
        Self { geometry: table.geometry(), region: table.region().clone() }
    }

    fn read(&self, span: Span) -> Vec<u8> {
        let mut bytes = vec![0; span.len];
        self.region.read(span.offset, &mut bytes).unwrap();
        bytes
    }

    fn lookup(&self, key: Key) -> Seen {
        let mut walk = self.geometry.walk(key);
        loop {
            let bytes = self.read(walk.span());
            match walk.step(&bytes) {
                Step::Found(record) => match self.value(key, record) {
                    Some(seen) => return seen,
                    None => walk = self.geometry.walk(key),
                },
                Step::Absent(absence) => {
                    if self.region.load(absence.guard_address) == Ok(absence.guard) {
                        return Seen::Absent(absence);
                    }
                    walk = self.geometry.walk(key);
                }
                Step::Next | Step::Torn => {}
            }
        }
    }

    fn value(&self, key: Key, record: Record<'_>) -> Option<Seen> {
        let value = match record.place {
            Place::Absent => None,
            Place::Inline(value) => Some(value.to_vec()),
            Place::OutOfLine(block) => {
                let bytes = self.read(self.geometry.block_span(block)?);
                let version = record.header.version();
                Some(self.geometry.parse_block(key, version, &bytes)?.to_vec())
            }
        };
        let (address, header, unlocked) = (record.address, record.header, record.unlocked());
        Some(Seen::Record { address, header, unlocked, value })
    }

    fn lock(&self, address: u64, unlocked: Header, owner: EngineId) -> bool {
        let (old, new) = (unlocked.word(), unlocked.locked_by(owner).word());
        self.region.compare_swap(address, old, new) == Ok(old)
    }

    fn commit(&self, key: Key, address: u64, unlocked: Header, value: Option<&[u8]>) {
        let version = unlocked.version().next();
        let mut body = Vec::new();
        assert!(self.geometry.emit_commit(key, unlocked, version, value, &mut body));
        self.region.write(self.geometry.commit_address(address), &body).unwrap();
        self.region.store(address, unlocked.installed(version).word()).unwrap();
    }
}

type Model = BTreeMap<Key, (Version, Option<Vec<u8>>)>;

/// The table agrees with the model about `key`, for the owner and for a remote coordinator.
fn agree(table: &RemoteTable, remote: &Remote, model: &Model, key: Key) {
    let mut value = Vec::new();
    let found = table.get(key, &mut value).unwrap();
    let seen = match remote.lookup(key) {
        Seen::Record { header, value, .. } => (header.version(), value),
        Seen::Absent(absence) => (absence.floor, None),
    };
    assert_eq!((found.version, found.present.then_some(value)), seen, "{key:?}");
    let (version, expected) = model.get(&key).cloned().unwrap_or_default();
    assert_eq!(seen.1, expected, "{key:?}");
    assert!(if expected.is_some() { seen.0 == version } else { seen.0 >= version });
}

/// One transaction of a random kind on `key`; what it did to the record.
fn act(table: &RemoteTable, remote: &Remote, model: &mut Model, key: Key, random: &mut Stream) {
    let id = txn(3, 1 + random.below(1 << 30));
    let granted = table.lock(key, id).unwrap();
    assert_eq!(table.lock(key, id), Ok(granted), "a lock is granted again to its holder");
    let refused = LockRefused::Held { owner: EngineId::nic(NodeId(7), 3) };
    assert_eq!(table.lock(key, txn(3, 1 << 31)), Err(refused));
    assert_eq!((table.holder(key), table.locked_count()), (Some(id), 1));
    let version = granted.unlocked.version().next();
    let large = random.below(5) == 0;
    let len = if large { 25 + random.below(3_000) } else { random.below(25) };
    let value = vec![random.below(256) as u8; len as usize];
    let Seen::Record { address, header, unlocked, value: old } = remote.lookup(key) else {
        panic!("a locked key has a slot");
    };
    assert_eq!((address, unlocked), (granted.address, granted.unlocked));
    assert_eq!(header.owner(), Some(EngineId::nic(NodeId(7), 3)));
    let one_sided = len <= 24 && old.is_none_or(|old| old.len() <= 24);
    match random.below(4) {
        0 => assert!(table.unlock(key, id)),
        1 => {
            table.install(key, id, version, None);
            model.insert(key, (version, None));
        }
        2 if one_sided => {
            let value = (random.below(3) != 0).then_some(value);
            remote.commit(key, address, unlocked, value.as_deref());
            model.insert(key, (version, value));
        }
        _ => {
            table.install(key, id, version, Some(&value));
            model.insert(key, (version, Some(value)));
        }
    }
    assert!(!table.unlock(key, id), "the lock was given back");
}

#[test]
#[cfg_attr(miri, ignore = "single-threaded, and slow to interpret")]
fn it_agrees_with_a_map_whatever_happens() {
    for design in DESIGNS {
        let table = RemoteTable::new(geometry(design, 32), u64::MAX);
        let remote = Remote::of(&table);
        let mut random = Stream::new(5, Purpose::Test, 0);
        let mut model = Model::new();
        let mut overflowed = 0;
        for _ in 0..4_000 {
            let key = Key(random.below(70));
            act(&table, &remote, &mut model, key, &mut random);
            agree(&table, &remote, &model, key);
            assert_eq!(table.check(), Vec::<String>::new());
            assert_eq!(table.locked_count(), 0);
            overflowed = overflowed.max(table.overflowed());
        }
        for key in 0..70 {
            agree(&table, &remote, &model, Key(key));
        }
        let present = model.values().filter(|(_, value)| value.is_some()).count();
        assert_eq!(table.len(), present as u64);
        assert!(overflowed > 8, "{design:?} never overflowed");
    }
}

#[test]
#[cfg_attr(miri, ignore = "single-threaded, and slow to interpret")]
fn replicas_agree_whatever_the_design_and_the_order_of_the_log() {
    let tables = DESIGNS.map(|design| RemoteTable::new(geometry(design, 64), u64::MAX));
    let mut log = Vec::new();
    for step in 0..600u64 {
        let value = (step % 3 != 2).then(|| vec![step as u8; (step % 50) as usize]);
        log.push((Key(step % 40), Version(2 + step / 40), value));
    }
    let mut random = Stream::new(8, Purpose::Test, 0);
    for table in &tables {
        for key in 0..40 {
            table.load(Key(key), b"loaded");
        }
        for (key, version, value) in &log {
            table.apply(*key, *version, value.as_deref());
            assert_eq!(table.check(), Vec::<String>::new());
        }
        for last in (1..log.len()).rev() {
            log.swap(last, random.below(last as u64 + 1) as usize);
        }
    }
    let [one, two, three] = tables.each_ref().map(RemoteTable::digest);
    assert_eq!((one, one), (two, three));
    let applied = tables[0].apply(Key(0), Version(1), Some(b"late"));
    assert_eq!(applied, Applied::Skipped);
    tables[0].load(Key(77), b"another");
    assert_ne!(tables[0].digest(), two);
}

#[test]
fn an_absent_key_that_was_read_is_guarded_against_its_insertion() {
    for design in DESIGNS {
        let table = RemoteTable::new(geometry(design, 16), u64::MAX);
        let remote = Remote::of(&table);
        let key = Key(9);
        let valid =
            |absence: Absence| table.region().load(absence.guard_address) == Ok(absence.guard);
        let Seen::Absent(before) = remote.lookup(key) else { panic!("an empty table") };
        assert!(valid(before));
        let id = txn(0, 1);
        let granted = table.lock(key, id).unwrap();
        assert!(!valid(before), "a lock of the key is seen");
        assert!(!granted.present);
        assert!(table.unlock(key, id));
        let Seen::Absent(again) = remote.lookup(key) else { panic!("nothing was inserted") };
        assert_eq!((table.used(), again.floor), (0, Version(0)));
        table.lock(key, id).unwrap();
        table.install(key, id, Version(1), Some(b"x"));
        table.lock(key, id).unwrap();
        table.install(key, id, Version(2), None);
        let Seen::Absent(deleted) = remote.lookup(key) else { panic!("it was deleted") };
        assert!(!valid(again));
        assert_eq!(deleted.floor, Version(2), "a version is not used again");
    }
}

#[test]
fn an_old_header_never_locks_the_next_record_of_its_slot() {
    let table = RemoteTable::new(geometry(Design::Chained { bucket: 4 }, 1), u64::MAX);
    let remote = Remote::of(&table);
    table.load(Key(1), b"one");
    let Seen::Record { address, unlocked, .. } = remote.lookup(Key(1)) else { panic!("loaded") };
    assert_eq!(table.apply(Key(1), Version(2), None), Applied::Changed);
    table.load(Key(2), b"two");
    let Seen::Record { address: reused, unlocked: next, .. } = remote.lookup(Key(2)) else {
        panic!("loaded")
    };
    assert_eq!((reused, next.version()), (address, unlocked.version()));
    assert!(!remote.lock(address, unlocked, EngineId::nic(NodeId(0), 0)));
    let bytes = remote.read(remote.geometry.record_span(address));
    assert_eq!(remote.geometry.revisit(Key(1), address, &bytes), Revisit::Moved);
    assert!(matches!(remote.geometry.revisit(Key(2), address, &bytes), Revisit::Found(_)));
}

#[test]
fn a_full_table_refuses_to_lock_an_absent_key() {
    let config = TableConfig {
        design: Design::Chained { bucket: 4 },
        slots: 4,
        overflow_slots: 4,
        inline: 8,
        heap: Bytes(0),
    };
    let table = RemoteTable::new(Geometry::new(config), u64::MAX);
    for key in 0..8 {
        assert!(table.lock(Key(key), txn(0, 1)).is_ok());
    }
    assert_eq!(table.lock(Key(8), txn(0, 1)), Err(LockRefused::Full));
    assert!(table.unlock(Key(3), txn(0, 1)));
    assert!(table.lock(Key(8), txn(0, 1)).is_ok());
    assert_eq!(table.check(), Vec::<String>::new());
    let small = RemoteTable::new(Geometry::new(config), 1);
    assert!(small.has_room());
    small.load(Key(0), b"x");
    assert!(!small.has_room());
    assert_eq!(small.lock(Key(1), txn(0, 1)), Err(LockRefused::Full));
}

/// Keys that one-sided coordinators write, and keys that the owner inserts and deletes.
const SHARED: u64 = 8;
const CHURNED: std::ops::Range<u64> = 100..if cfg!(miri) { 104 } else { 160 };

/// What the threads of a test have done so far.
#[derive(Default)]
struct Progress {
    stop: AtomicBool,
    committed: AtomicU64,
    reads: AtomicU64,
}

impl Progress {
    /// Has enough of each kind happened beside the other?
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
    while !progress.stop.load(Ordering::Relaxed) {
        for key in (0..SHARED).chain(CHURNED).map(Key) {
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
}

#[test]
fn readers_and_one_sided_committers_get_along_with_the_owner() {
    for design in DESIGNS {
        let table = RemoteTable::new(geometry(design, 64), u64::MAX);
        for key in 0..SHARED {
            table.load(Key(key), &[1; 24]);
        }
        let progress = Progress::default();
        thread::scope(|scope| {
            for core in 0..2 {
                let (table, progress) = (&table, &progress);
                scope.spawn(move || commit_one_sidedly(&Remote::of(table), core, progress));
                scope.spawn(move || read_one_sidedly(&Remote::of(table), table, progress));
            }
            let mut random = Stream::new(9, Purpose::Test, 1);
            let mut sequence = 0;
            while sequence < test_steps(6_000) || !progress.is_enough() && sequence < 4_000_000 {
                sequence += 1;
                let key = Key(CHURNED.start + random.below(CHURNED.end - CHURNED.start));
                let id = txn(9, sequence);
                let granted = table.lock(key, id).unwrap();
                let version = granted.unlocked.version().next();
                let value = [version.0 as u8; 600];
                let len = if random.below(2) == 0 { 8 } else { 600 };
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
