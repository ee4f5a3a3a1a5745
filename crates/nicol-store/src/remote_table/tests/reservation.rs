//! Values that grow, shrink and go on a heap that is nearly full: refused in time, never lost.

use std::collections::VecDeque;

use super::*;

const KEYS: u64 = 24;
const LOGS: u64 = 3;

fn small(design: Design, heap: u64) -> RemoteTable {
    let config =
        TableConfig { design, slots: 16, overflow_slots: 96, inline: 24, heap: Bytes(heap) };
    RemoteTable::new(Geometry::new(config), u64::MAX)
}

type Logged = (Key, Version, Option<Vec<u8>>);

/// A write that is locked and admitted.
struct Pending {
    id: TxnId,
    key: Key,
    version: Version,
    value: Option<Vec<u8>>,
}

/// A primary, its replica, and what is on its way between them.
struct Pair {
    primary: RemoteTable,
    replica: RemoteTable,
    model: Model,
    pending: Vec<Pending>,
    logs: [VecDeque<Logged>; LOGS as usize],
    random: Stream,
    admitted: u32,
    refused: u32,
}

impl Pair {
    fn new(design: Design, heap: u64, seed: u64) -> Self {
        let primary = small(design, heap);
        Self {
            replica: primary.copy(),
            primary,
            model: Model::new(),
            pending: Vec::new(),
            logs: Default::default(),
            random: Stream::new(seed, Purpose::Test, 0),
            admitted: 0,
            refused: 0,
        }
    }

    fn value(&mut self) -> Option<Vec<u8>> {
        let len = match self.random.below(8) {
            0 => return None,
            1 => self.random.below(25),
            2 => 1_000 + self.random.below(2_500),
            _ => 25 + self.random.below(400),
        };
        Some(vec![self.random.bits() as u8; len as usize])
    }

    fn begin(&mut self, id: TxnId) {
        let key = Key(self.random.below(KEYS));
        let Ok(granted) = self.primary.lock(key, id) else { return };
        let value = self.value();
        let write = granted.present || value.is_some();
        let len = value.as_ref().map_or(0, Vec::len);
        if !write || !self.primary.reserve(key, id, len) {
            self.refused += u32::from(write);
            assert!(self.primary.unlock(key, id));
            return;
        }
        self.admitted += 1;
        let version = granted.unlocked.version().next();
        self.pending.push(Pending { id, key, version, value });
    }

    fn end(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let which = self.random.below(self.pending.len() as u64) as usize;
        let Pending { id, key, version, value } = self.pending.swap_remove(which);
        if self.random.below(4) == 0 {
            assert!(self.primary.unlock(key, id));
            return;
        }
        self.logs[(id.0 % LOGS) as usize].push_back((key, version, value.clone()));
        self.primary.install(key, id, version, value.as_deref());
        self.model.insert(key, (version, value));
    }

    fn apply(&mut self) {
        let log = self.random.below(LOGS) as usize;
        if let Some((key, version, value)) = self.logs[log].pop_front() {
            self.replica.apply(key, version, value.as_deref());
        }
    }

    fn step(&mut self, number: u64) {
        match self.random.below(8) {
            0..4 => self.begin(txn(3, 1 + number)),
            4..7 => self.end(),
            _ => self.apply(),
        }
    }

    fn drain(&mut self) {
        while !self.pending.is_empty() {
            self.end();
        }
        while self.logs.iter().any(|log| !log.is_empty()) {
            self.apply();
        }
    }
}

#[test]
fn a_nearly_full_heap_refuses_before_commit_and_never_after() {
    let (mut admitted, mut refused) = (0, 0);
    for seed in 0..if cfg!(miri) { 2 } else { 40 } {
        let heap = 1_024 << (seed % 4);
        let mut pair = Pair::new(DESIGNS[seed as usize % 4], heap, seed);
        let remote = Remote::of(&pair.primary);
        for number in 0..if cfg!(miri) { 200 } else { 2_000 } {
            pair.step(number);
            if number % 50 == 0 {
                assert_eq!(pair.primary.check(), Vec::<String>::new());
                assert_eq!(pair.replica.check(), Vec::<String>::new());
            }
        }
        pair.drain();
        for key in 0..KEYS {
            agree(&pair.primary, &remote, &pair.model, Key(key));
        }
        assert_eq!(pair.primary.check(), Vec::<String>::new());
        assert_eq!(pair.replica.check(), Vec::<String>::new());
        assert_eq!(pair.primary.digest(), pair.replica.digest());
        (admitted, refused) = (admitted + pair.admitted, refused + pair.refused);
    }
    assert!(admitted > 0 && refused > 0, "{admitted} admitted, {refused} refused");
}

/// Locks a key, is reserved space, and installs.
fn put(table: &RemoteTable, key: u64, value: &[u8]) -> Version {
    let (key, id) = (Key(key), txn(1, 1));
    let granted = table.lock(key, id).unwrap();
    assert!(table.reserve(key, id, value.len()));
    let version = granted.unlocked.version().next();
    table.install(key, id, version, Some(value));
    version
}

#[test]
fn a_reservation_lasts_until_its_lock_is_released() {
    for design in DESIGNS {
        let table = small(design, 512);
        let (long, short) = ([1; 400], [2; 20]);
        put(&table, 1, &short);
        let (first, second) = (txn(1, 1), txn(2, 2));
        let (one, two) = (Key(1), Key(2));
        let version = table.lock(one, first).unwrap().unlocked.version();
        assert!(!table.reserve(one, second, 400), "only the holder is reserved space");
        assert!(table.reserve(one, first, 400));
        assert!(table.reserve(one, first, 399), "asked again, it stays one block");
        assert!(table.lock(two, second).is_ok());
        assert!(!table.reserve(two, second, 400));
        assert!(table.reserve(two, second, 24), "what stands in its slot takes no space");
        assert_eq!(table.check(), Vec::<String>::new());
        assert!(table.unlock(one, first));
        assert!(!table.reserve(one, first, 400), "it has ended");
        assert!(table.reserve(two, second, 400), "the space was given back");
        table.install(two, second, version.next(), Some(&long));
        // In its own block; the first key finds none.
        assert!(table.lock(two, second).is_ok() && table.reserve(two, second, 480));
        assert!(table.lock(one, first).is_ok() && !table.reserve(one, first, 25));
        // It may install what it was not reserved space for if that takes none, or nothing at all.
        table.install(two, second, version.next().next(), Some(&short));
        table.install(one, first, version.next(), None);
        assert_eq!((table.check(), table.locked_count()), (Vec::new(), 0));
    }
}

#[test]
fn a_replica_keeps_strays() {
    for design in DESIGNS {
        let primary = small(design, 512);
        let replica = primary.copy();
        let long = |byte: u8| vec![byte; 400];
        let mut log = Vec::new();
        for (key, value) in [(1, long(1)), (1, vec![2; 8]), (2, long(3)), (2, vec![]), (1, long(4))]
        {
            log.push((Key(key), put(&primary, key, &value), value));
        }
        let apply = |at: usize| {
            let (key, version, value) = &log[at];
            let applied = replica.apply(*key, *version, Some(value));
            assert_eq!(replica.check(), Vec::<String>::new());
            let mut found = Vec::new();
            let version = replica.get(*key, &mut found).unwrap().version;
            (applied, replica.strayed(), found.first().copied(), version)
        };
        // The other log first: both long values at once, which the primary never had.
        let version = |at: usize| log[at].1;
        assert_eq!(apply(2), (Applied::Changed, 0, Some(3), version(2)));
        assert_eq!(apply(0), (Applied::Changed, 1, Some(1), version(0)));
        assert_eq!(replica.len(), 2);
        assert_eq!(apply(0), (Applied::Skipped, 1, Some(1), version(0)));
        assert_eq!(apply(1), (Applied::Changed, 0, Some(2), version(1)), "it has a place again");
        assert_eq!(apply(4), (Applied::Changed, 1, Some(4), version(4)), "it has lost its slot");
        assert_eq!(apply(1), (Applied::Skipped, 1, Some(4), version(4)));
        assert_eq!(apply(3), (Applied::Changed, 1, None, version(3)));
        assert_eq!(replica.digest(), primary.digest());
        assert_eq!(replica.apply(Key(1), version(4).next(), None), Applied::Changed);
        assert_eq!((replica.check(), replica.len(), replica.strayed()), (Vec::new(), 1, 0));
        assert_eq!(replica.apply(Key(1), version(4), Some(b"late")), Applied::Skipped);
    }
}

#[test]
fn a_replica_without_slots_keeps_records_apart() {
    let config = TableConfig {
        design: Design::Chained { bucket: 4 },
        slots: 4,
        overflow_slots: 4,
        inline: 24,
        heap: Bytes(4_096),
    };
    let replica = RemoteTable::new(Geometry::new(config), u64::MAX);
    for key in 0..20 {
        replica.apply(Key(key), Version(1), Some(&vec![key as u8; 4 * key as usize]));
        assert_eq!(replica.check(), Vec::<String>::new());
    }
    assert_eq!((replica.len(), replica.strayed()), (20, 12));
    for key in 0..20 {
        let mut value = Vec::new();
        assert!(replica.get(Key(key), &mut value).unwrap().present);
        assert_eq!(value, vec![key as u8; 4 * key as usize]);
        replica.apply(Key(key), Version(2), None);
    }
    assert_eq!((replica.check(), replica.len(), replica.strayed()), (Vec::new(), 0, 0));
}

#[test]
fn engines_reserve_space_concurrently() {
    let table = small(DESIGNS[1], 4_096);
    let work = &|core: u8| {
        let mut random = Stream::new(6, Purpose::Test, u32::from(core));
        let (mut installed, mut refused) = (0, 0);
        for sequence in 1..=test_steps(5_000) {
            let (key, id) = (Key(random.below(8)), txn(core, sequence));
            let Ok(granted) = table.lock(key, id) else { continue };
            let value = vec![core; random.below(1_500) as usize];
            if !table.reserve(key, id, value.len()) || random.below(4) == 0 {
                refused += 1;
                assert!(table.unlock(key, id));
                continue;
            }
            let keep = !granted.present || random.below(8) > 0;
            let version = granted.unlocked.version().next();
            table.install(key, id, version, keep.then_some(&value));
            installed += 1;
        }
        assert!(installed > 0 && refused > 0, "{installed} installed, {refused} given back");
    };
    std::thread::scope(|scope| {
        for core in 0..=CORES {
            scope.spawn(move || work(core));
        }
    });
    assert_eq!((table.check(), table.locked_count()), (Vec::new(), 0));
}
