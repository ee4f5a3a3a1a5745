mod addresses;
mod crashes;
mod reservation;
mod threads;

use std::collections::BTreeMap;
use std::sync::Arc;

use nicol_core::ids::{Incarnation, NodeId};
use nicol_core::rng::{Purpose, Stream, test_steps};
use nicol_core::units::Bytes;
use proptest::prelude::*;

use super::*;

const DESIGNS: [Design; 4] = [
    Design::Hopscotch { neighbourhood: 8 },
    Design::Chained { bucket: 4 },
    Design::Chained { bucket: 8 },
    Design::Chained { bucket: 16 },
];

/// What the tests with threads take of it: Miri, which interprets, has time for two designs, and
/// for two threads beside the owner's.
const THREADED: &[Design] = if cfg!(miri) { &[DESIGNS[0], DESIGNS[1]] } else { &DESIGNS };
const CORES: u8 = if cfg!(miri) { 1 } else { 2 };

fn geometry(design: Design, slots: u64) -> Geometry {
    Geometry::new(TableConfig {
        design,
        slots,
        overflow_slots: 8 * slots,
        inline: 24,
        heap: Bytes(1 << 20),
    })
}

fn txn(core: u8, sequence: u64) -> TxnId {
    TxnId::new(EngineId::nic(NodeId(7), core), Incarnation::FIRST, sequence)
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
        for _ in 0..10_000_000 {
            let bytes = self.read(walk.span());
            match walk.step(&bytes) {
                Step::Found(record) => match self.value(key, record) {
                    Some(seen) => return seen,
                    None => walk = self.geometry.walk(key),
                },
                Step::Absent(absence) => {
                    if self.region.load(absence.bucket_version_address)
                        == Ok(absence.bucket_version)
                    {
                        return Seen::Absent(absence);
                    }
                    walk = self.geometry.walk(key);
                }
                Step::Next | Step::Torn(_) => {}
            }
        }
        panic!("{key:?} stays torn");
    }

    fn value(&self, key: Key, record: Record<'_>) -> Option<Seen> {
        let value = match record.stored {
            StoredValue::Absent => None,
            StoredValue::Inline(value) => Some(value.to_vec()),
            StoredValue::OutOfLine(block) => {
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

/// The action of a transaction on a key that it has locked.
#[derive(Clone, Debug)]
enum Deed {
    Abort,
    Put(Vec<u8>),
    Delete,
    /// Where old and new value stand in the slot; by the owner otherwise.
    PutOneSidedly(Vec<u8>),
    DeleteOneSidedly,
    DeleteOneSidedlyAndReclaim,
}

fn deeds() -> impl Strategy<Value = Vec<(u64, Deed)>> {
    let small = || prop::collection::vec(any::<u8>(), 0..25);
    let large = (25..3_000usize, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]);
    let deed = prop_oneof![
        2 => Just(Deed::Abort),
        6 => small().prop_map(Deed::Put),
        3 => large.prop_map(Deed::Put),
        5 => Just(Deed::Delete),
        5 => small().prop_map(Deed::PutOneSidedly),
        1 => Just(Deed::DeleteOneSidedly),
        1 => Just(Deed::DeleteOneSidedlyAndReclaim),
    ];
    prop::collection::vec((0..70u64, deed), 1..250)
}

const ENGINE: EngineId = EngineId::nic(NodeId(7), 3);

/// One transaction on `key`.
fn act(table: &RemoteTable, remote: &Remote, model: &mut Model, key: Key, deed: Deed, id: TxnId) {
    let granted = table.lock(key, id).unwrap();
    assert_eq!(table.lock(key, id), Ok(granted), "a lock is granted again to its holder");
    let refused = LockRefused::Held { owner: ENGINE };
    assert_eq!(table.lock(key, txn(3, 1 << 31)), Err(refused));
    assert_eq!((table.holder(key), table.locked_count()), (Some(id), 1));
    assert!(!table.reclaim(key), "a locked slot is not reclaimed");
    let version = granted.unlocked.version().next();
    let Seen::Record { address, header, unlocked, value: old } = remote.lookup(key) else {
        panic!("a locked key has a slot");
    };
    assert_eq!((address, unlocked), (granted.address, granted.unlocked));
    assert_eq!((header.owner(), old.is_some()), (Some(ENGINE), granted.present));
    let in_slot = old.is_none_or(|old| old.len() <= 24);
    let new = match deed {
        Deed::Abort => {
            assert!(table.unlock(key, id));
            return;
        }
        Deed::Put(value) | Deed::PutOneSidedly(value) if !in_slot || value.len() > 24 => {
            table.install(key, id, version, Some(&value));
            Some(value)
        }
        Deed::Put(value) => {
            table.install(key, id, version, Some(&value));
            Some(value)
        }
        Deed::PutOneSidedly(value) => {
            remote.commit(key, address, unlocked, Some(&value));
            Some(value)
        }
        Deed::DeleteOneSidedly | Deed::DeleteOneSidedlyAndReclaim if in_slot => {
            remote.commit(key, address, unlocked, None);
            assert_eq!(table.get(key, &mut Vec::new()).unwrap().version, version);
            if matches!(deed, Deed::DeleteOneSidedlyAndReclaim) {
                assert!(table.reclaim(key), "its slot is free again");
                assert!(!table.reclaim(key), "it has none any more");
            }
            None
        }
        Deed::Delete | Deed::DeleteOneSidedly | Deed::DeleteOneSidedlyAndReclaim => {
            table.install(key, id, version, None);
            None
        }
    };
    model.insert(key, (version, new));
    assert!(!table.unlock(key, id), "the lock was given back");
}

fn check_against_a_map(design: Design, deeds: Vec<(u64, Deed)>) {
    let table = RemoteTable::new(geometry(design, 16), u64::MAX);
    let remote = Remote::of(&table);
    let mut model = Model::new();
    for (number, (key, deed)) in deeds.into_iter().enumerate() {
        let key = Key(key);
        act(&table, &remote, &mut model, key, deed, txn(3, 1 + number as u64));
        agree(&table, &remote, &model, key);
        assert_eq!(table.check(), Vec::<String>::new());
        assert_eq!(table.locked_count(), 0);
    }
    for key in 0..70 {
        agree(&table, &remote, &model, Key(key));
    }
    let present = model.values().filter(|(_, value)| value.is_some()).count();
    assert_eq!(table.len(), present as u64);
}

proptest! {
    #[test]
    fn it_agrees_with_a_map_whatever_happens(
        deeds in deeds(),
        design in prop::sample::select(&DESIGNS[..]),
    ) {
        check_against_a_map(design, deeds);
    }
}

#[test]
fn records_hop_to_make_space_and_overflow_when_they_cannot() {
    let table = RemoteTable::new(geometry(DESIGNS[0], 64), u64::MAX);
    let remote = Remote::of(&table);
    let addresses = |keys: std::ops::Range<u64>| -> Vec<u64> {
        keys.map(|key| match remote.lookup(Key(key)) {
            Seen::Record { address, .. } => address,
            Seen::Absent(_) => panic!("key {key} is there"),
        })
        .collect()
    };
    let (mut hopped, mut before) = (0, Vec::new());
    for key in 0..80 {
        table.load(Key(key), &[key as u8; 24]);
        assert_eq!(table.check(), Vec::<String>::new());
        let after = addresses(0..key + 1);
        hopped += before.iter().zip(&after).filter(|(before, after)| before != after).count();
        before = after;
    }
    assert!(hopped > 0, "no record hopped");
    assert!(table.overflowed() > 0, "no record overflowed");
    let overflowed = table.overflowed();
    for key in 0..60 {
        table.apply(Key(key), Version(2), None);
        assert_eq!(table.check(), Vec::<String>::new());
        addresses(key + 1..80);
    }
    assert!(table.overflowed() < overflowed, "chains are shortened");
    for key in 60..80 {
        table.apply(Key(key), Version(2), None);
    }
    for key in (0..200).map(Key) {
        let mut walk = remote.geometry.walk(key);
        let bytes = remote.read(walk.span());
        assert!(matches!(walk.step(&bytes), Step::Absent(_)), "an empty chain is still linked");
    }
}

#[test]
fn a_locked_record_stays_where_it_is() {
    for design in DESIGNS {
        let table = RemoteTable::new(geometry(design, 64), u64::MAX);
        let remote = Remote::of(&table);
        let mut locked = Vec::new();
        for key in (0..40).map(Key) {
            table.load(key, b"locked");
            let Seen::Record { address, unlocked, .. } = remote.lookup(key) else {
                panic!("it was loaded");
            };
            assert!(remote.lock(address, unlocked, ENGINE));
            locked.push((key, address, unlocked));
        }
        for key in (40..120).map(Key) {
            table.load(key, b"other");
        }
        for key in (40..120).map(Key) {
            table.apply(key, Version(2), None);
        }
        assert_eq!((table.check(), table.locked_count()), (Vec::new(), locked.len()));
        for (key, address, unlocked) in locked {
            let Seen::Record { address: now, .. } = remote.lookup(key) else {
                panic!("it is locked, not gone");
            };
            assert_eq!(now, address, "{key:?} moved");
            remote.commit(key, address, unlocked, Some(b"new"));
        }
        assert_eq!((table.check(), table.locked_count()), (Vec::new(), 0));
    }
}

#[test]
fn a_reader_between_home_and_chain_learns_that_a_record_moved_back() {
    for design in DESIGNS {
        let table = RemoteTable::new(geometry(design, 1), u64::MAX);
        let remote = Remote::of(&table);
        let slots = remote.geometry.home_slots();
        (0..slots + 1).for_each(|key| table.load(Key(key), b"value"));
        assert_eq!(table.overflowed(), 1);
        let chained = Key(slots);
        let mut walk = remote.geometry.walk(chained);
        assert_eq!(walk.step(&remote.read(walk.span())), Step::Next);
        table.apply(Key(0), Version(2), None);
        assert_eq!(table.overflowed(), 0, "the last record of the chain fills the gap");
        let Step::Absent(absence) = walk.step(&remote.read(walk.span())) else {
            panic!("the chain is empty");
        };
        assert_ne!(table.region().load(absence.bucket_version_address), Ok(absence.bucket_version));
        assert!(matches!(remote.lookup(chained), Seen::Record { .. }));
    }
}

#[test]
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
    let digest = tables[0].digest();
    assert_eq!(tables.each_ref().map(RemoteTable::digest), [digest; 4]);
    let applied = tables[0].apply(Key(0), Version(1), Some(b"late"));
    assert_eq!(applied, Applied::Skipped);
    tables[0].load(Key(77), b"another");
    assert_ne!(tables[0].digest(), digest);
}

#[test]
fn an_insertion_changes_the_bucket_version_of_an_absent_key() {
    for design in DESIGNS {
        let table = RemoteTable::new(geometry(design, 16), u64::MAX);
        let remote = Remote::of(&table);
        let key = Key(9);
        let valid = |absence: Absence| {
            table.region().load(absence.bucket_version_address) == Ok(absence.bucket_version)
        };
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
    assert_eq!(remote.geometry.reread(Key(1), address, &bytes), Reread::Moved);
    assert!(matches!(remote.geometry.reread(Key(2), address, &bytes), Reread::Found(_)));
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
    assert!(small.has_capacity());
    small.load(Key(0), b"x");
    assert!(!small.has_capacity());
    assert_eq!(small.lock(Key(1), txn(0, 1)), Err(LockRefused::Full));
}
