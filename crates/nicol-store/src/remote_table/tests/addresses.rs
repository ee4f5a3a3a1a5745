//! Coordinators that remember where records stand.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::*;
use crate::address_cache::AddressCache;

/// A coordinator, and the addresses that it remembers.
struct Coordinator {
    remote: Remote,
    addresses: AddressCache,
    /// Lookups that one READ answered.
    direct: u64,
}

impl Coordinator {
    fn of(table: &RemoteTable, capacity: usize) -> Self {
        Self { remote: Remote::of(table), addresses: AddressCache::new(capacity), direct: 0 }
    }

    /// A lookup by the remembered address, or by a walk if it is stale or unknown.
    fn lookup(&mut self, key: Key) -> Seen {
        for _ in 0..10_000_000 {
            let Some(address) = self.addresses.get(key) else { break };
            let bytes = self.remote.read(self.remote.geometry.record_span(address));
            match self.remote.geometry.reread(key, address, &bytes) {
                Reread::Found(record) => {
                    if let Some(seen) = self.remote.value(key, record) {
                        self.direct += 1;
                        return seen;
                    }
                }
                Reread::Moved => {
                    self.addresses.forget(key);
                }
                Reread::Torn(_) => {}
            }
        }
        let seen = self.remote.lookup(key);
        match &seen {
            Seen::Record { address, .. } => self.addresses.remember(key, *address),
            Seen::Absent(_) => {
                self.addresses.forget(key);
            }
        }
        seen
    }
}

/// What a lookup through addresses finds is what a walk finds.
fn check_against_a_walk(design: Design, deeds: Vec<(u64, Deed)>, capacity: usize) {
    let table = RemoteTable::new(geometry(design, 16), u64::MAX);
    let remote = Remote::of(&table);
    let mut coordinator = Coordinator::of(&table, capacity);
    let mut model = Model::new();
    for (number, (key, deed)) in deeds.into_iter().enumerate() {
        act(&table, &remote, &mut model, Key(key), deed, txn(3, 1 + number as u64));
        for looked_up in [key, key * 7 % 70, (key + 1) % 70].map(Key) {
            assert_eq!(coordinator.lookup(looked_up), remote.lookup(looked_up), "{looked_up:?}");
        }
        assert_eq!(coordinator.addresses.check(), Vec::<String>::new());
    }
    for key in (0..70).map(Key) {
        assert_eq!(coordinator.lookup(key), remote.lookup(key), "{key:?}");
    }
}

proptest! {
    #[test]
    fn a_remembered_address_finds_what_a_walk_finds(
        deeds in deeds(),
        design in prop::sample::select(&DESIGNS[..]),
        capacity in prop::sample::select(&[0usize, 16, 200][..]),
    ) {
        check_against_a_walk(design, deeds, capacity);
    }
}

/// The counts of what the threads of a test have done.
#[derive(Default)]
struct Progress {
    stop: AtomicBool,
    updates: AtomicU64,
    /// Lookups that one READ answered, and addresses that were stale.
    direct: AtomicU64,
    stale: AtomicU64,
}

impl Progress {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn note(&self, coordinator: &Coordinator) {
        self.direct.fetch_max(coordinator.direct, Ordering::Relaxed);
        self.stale.fetch_max(coordinator.addresses.counts().stale, Ordering::Relaxed);
    }

    /// True if enough of each kind has happened beside the others.
    fn is_enough(&self) -> bool {
        let enough = |count: &AtomicU64, least| count.load(Ordering::Relaxed) > test_steps(least);
        enough(&self.updates, 5_000) && enough(&self.direct, 1_000) && enough(&self.stale, 10)
    }
}

/// The owner inserts and deletes records until told to stop, so that others move.
fn churn(table: &RemoteTable, progress: &Progress) {
    let mut random = Stream::new(9, Purpose::Test, 2);
    for sequence in 1.. {
        if progress.is_over() {
            return;
        }
        let (key, id) = (Key(8 + random.below(100)), txn(9, sequence));
        let Ok(granted) = table.lock(key, id) else { continue };
        let version = granted.unlocked.version().next();
        let value = [version.0 as u8; 16];
        table.install(key, id, version, (random.below(2) == 0).then_some(&value[..]));
    }
}

/// Looks up, through remembered addresses, records that come, go and move; none is torn.
fn watch(coordinator: &mut Coordinator, key: Key) {
    if let Seen::Record { header, value: Some(value), .. } = coordinator.lookup(key) {
        let filled = header.version().0 as u8;
        assert!(value.iter().all(|byte| *byte == filled), "{key:?} is torn");
    }
}

/// One-sided updates of the keys below 8 through remembered addresses, counted in `progress`.
fn update(coordinator: &mut Coordinator, core: u8, progress: &Progress) {
    let mut random = Stream::new(10, Purpose::Test, u32::from(core));
    while !progress.is_over() {
        watch(coordinator, Key(8 + random.below(100)));
        let key = Key(random.below(8));
        let Seen::Record { address, header, unlocked, value } = coordinator.lookup(key) else {
            panic!("{key:?} was missed");
        };
        let value = value.unwrap();
        let version = unlocked.version();
        assert!(value.iter().all(|byte| *byte == version.0 as u8), "{key:?} is torn");
        let engine = EngineId::nic(NodeId(2), core);
        if header.is_locked() || !coordinator.remote.lock(address, unlocked, engine) {
            thread::yield_now();
            continue;
        }
        let next = [version.next().0 as u8; 16];
        coordinator.remote.commit(key, address, unlocked, Some(&next));
        progress.updates.fetch_add(1, Ordering::Relaxed);
        progress.note(coordinator);
    }
}

#[test]
fn stale_addresses_lose_no_update_while_records_move() {
    for &design in THREADED {
        let table = RemoteTable::new(geometry(design, 32), u64::MAX);
        (8..60).for_each(|key| table.load(Key(key), &[1; 16]));
        (0..8).for_each(|key| table.load(Key(key), &[1; 16]));
        let progress = Progress::default();
        thread::scope(|scope| {
            for core in 0..CORES {
                let (table, progress) = (&table, &progress);
                scope.spawn(move || update(&mut Coordinator::of(table, 64), core, progress));
            }
            scope.spawn(|| churn(&table, &progress));
            for _ in 0..10_000_000 {
                if progress.is_enough() {
                    break;
                }
                thread::yield_now();
            }
            progress.stop.store(true, Ordering::Relaxed);
        });
        let mut versions = 0;
        table.for_each(&mut |key, version, _| {
            versions += if key.0 < 8 { version.0 - 1 } else { 0 };
        });
        let Progress { updates, direct, stale, .. } = progress;
        assert_eq!(versions, updates.into_inner(), "{design:?}: an update was lost");
        assert!(direct.into_inner() > 0, "{design:?}: no address was of use");
        assert!(stale.into_inner() > 0, "{design:?}: no address was stale");
        assert_eq!((table.check(), table.locked_count()), (Vec::new(), 0));
    }
}
