//! Tests of ordered tables and their counters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use nicol_core::ids::TableId;
use nicol_core::rng::{Purpose, Stream};
use proptest::prelude::*;

use super::*;

fn key(row: u64) -> Key {
    Key::partitioned(TableId::ORDERED, 0, row)
}

fn whole(limit: u32, backward: bool) -> KeyRange {
    KeyRange { first: key(0), last: key(u64::from(u32::MAX)), backward, limit }
}

fn scan(table: &OrderedTable, range: &KeyRange) -> Vec<(Key, Version)> {
    let mut seen = Vec::new();
    table.scan(range, &mut |key, version, _| {
        seen.push((key, version));
        true
    });
    seen
}

#[test]
fn a_lock_has_one_holder() {
    let (write_counters, [one, two]) = (WriteCounters::default(), [TxnId(1), TxnId(2)]);
    assert!(write_counters.try_lock(key(4), one) && write_counters.try_lock(key(4), one));
    assert!(!write_counters.try_lock(key(4), two) && write_counters.try_lock(key(5), two));
    write_counters.unlock(key(4), two);
    assert_eq!((write_counters.is_locked(key(4)), write_counters.locked_count()), (true, 2));
    write_counters.unlock(key(4), one);
    assert!(!write_counters.is_locked(key(4)) && write_counters.try_lock(key(4), two));
}

#[test]
fn a_scan_ends_at_its_limit_from_either_end() {
    let table = OrderedTable::default();
    (0..9).for_each(|row| table.load(key(row), b""));
    let rows = |limit, backward| -> Vec<u64> {
        let seen = scan(&table, &whole(limit, backward));
        seen.into_iter().map(|(key, _)| key.row()).collect()
    };
    assert_eq!((rows(0, false), rows(2, false), rows(2, true)), (vec![], vec![0, 1], vec![8, 7]));
    assert_eq!(rows(100, true).len(), 9);
}

#[test]
fn a_transaction_s_own_locks_do_not_age_its_scan_and_only_it_gives_them_back() {
    let (table, write_counters) = (OrderedTable::default(), WriteCounters::default());
    let version = table.range_version(VersionRange::of(key(0)));
    write_counters.lock(key(1), TxnId(1));
    let current = |version| [1, 2].map(|txn| write_counters.is_current(version, TxnId(txn)));
    assert_eq!(current(version), [true, false]);
    write_counters.unlock(key(1), TxnId(2));
    assert_eq!((current(version), write_counters.locked_count()), ([true, false], 1));
    write_counters.unlock(key(1), TxnId(1));
    assert_eq!((current(version), write_counters.locked_count()), ([true, true], 0));
}

#[test]
fn new_records_hold_their_ranges_until_they_are_installed_and_the_host_may_lack_them() {
    let (table, write_counters) = (OrderedTable::default(), WriteCounters::default());
    let far = Key::partitioned(TableId::ORDERED, 0, 1 << 33);
    let (keys, range) = ([key(1), key(2), far], VersionRange::of(key(0)));
    let keys = || keys.into_iter();
    let before = table.range_version(range);
    assert_eq!(write_counters.hold_inserts(keys(), TxnId(1)), 2, "two ranges");
    let current = |version| [1, 2].map(|txn| write_counters.is_current(version, TxnId(txn)));
    assert_eq!(current(before), [true, false]);
    assert_eq!(write_counters.inserter(key(9)), Some(TxnId(1)));
    assert!(!write_counters.may_lack_inserts(before), "nothing is installed");
    write_counters.install_inserts(keys());
    write_counters.release_inserts(keys(), TxnId(2));
    assert_eq!(write_counters.inserting_count(), 2, "only the holder gives them back");
    write_counters.release_inserts(keys(), TxnId(1));
    assert_eq!((current(before), write_counters.inserter(far)), ([false; 2], None));
    assert!(write_counters.may_lack_inserts(before), "the host has applied nothing");
    for key in keys() {
        table.apply(key, Version(1), Some(b"x"));
    }
    let after = table.range_version(range);
    assert_eq!((current(after), write_counters.may_lack_inserts(after)), ([true; 2], false));
}

#[test]
fn a_scan_that_has_seen_more_than_was_committed_is_not_current() {
    let (table, write_counters) = (OrderedTable::default(), WriteCounters::default());
    let range = VersionRange::of(key(0));
    table.apply(key(1), Version(2), Some(b"x"));
    let ahead = table.range_version(range);
    assert!(!write_counters.is_current(ahead, TxnId(1)), "of a range that nobody has locked");
    write_counters.lock(key(1), TxnId(2));
    write_counters.unlock(key(1), TxnId(2));
    assert!(!write_counters.is_current(ahead, TxnId(1)));
    write_counters.install(key(1));
    assert!(write_counters.is_current(ahead, TxnId(1)));
    // A copy counts on from where the original was.
    let copy = table.copy();
    assert_eq!((copy.range_version(range), copy.tree().len()), (ahead, 1));
}

/// What happens next: to one of a few keys, or to what is under way.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A transaction locks, or gives up.
    Lock(u64, u64),
    Unlock(u64, u64),
    /// The record of a lock that is held reaches the host's log, and is installed later.
    Log(u64, u64),
    Install(usize),
    /// A transaction holds the range, and the record of a new row of its own reaches the log;
    /// it is installed later, and the range given back.
    Hold(u64),
    InstallInsert(usize),
    /// The host applies one of the records.
    Apply(usize),
    Scan(u64),
    Check(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (row, txn) = (|| 0..6u64, || 1..4u64);
    let step = prop_oneof![
        6 => (row(), txn()).prop_map(|(row, txn)| Step::Lock(row, txn)),
        1 => (row(), txn()).prop_map(|(row, txn)| Step::Unlock(row, txn)),
        4 => (row(), txn()).prop_map(|(row, txn)| Step::Log(row, txn)),
        4 => any::<usize>().prop_map(Step::Install),
        2 => txn().prop_map(Step::Hold),
        2 => any::<usize>().prop_map(Step::InstallInsert),
        4 => any::<usize>().prop_map(Step::Apply),
        4 => txn().prop_map(Step::Scan),
        4 => any::<usize>().prop_map(Step::Check),
    ];
    prop::collection::vec(step, 1..300)
}

/// A scan: transaction, version, what it saw.
type Seen = (u64, RangeVersion, Vec<(Key, Version)>);

/// A primary: its two sides, and what has truly been committed.
#[derive(Default)]
struct Model {
    table: OrderedTable,
    write_counters: WriteCounters,
    holders: BTreeMap<u64, u64>,
    committed: BTreeMap<u64, Version>,
    /// Rows whose record is in the log and not yet installed, and the record.
    logged: Vec<(u64, u64, Version, bool)>,
    /// New rows of a transaction's own, and the transaction.
    inserting: Vec<(u64, u64)>,
    log: Vec<(u64, Version, bool)>,
    scans: Vec<Seen>,
    versions: u64,
}

impl Model {
    fn take(&mut self, step: Step) {
        match step {
            Step::Lock(row, txn) if !self.holders.contains_key(&row) => {
                self.holders.insert(row, txn);
                self.write_counters.lock(key(row), TxnId(txn));
                self.write_counters.lock(key(row), TxnId(txn));
            }
            Step::Unlock(row, txn)
                if self.holders.get(&row) == Some(&txn) && !self.is_logged(row) =>
            {
                self.unlock(row, txn);
            }
            Step::Log(row, txn) if self.holders.get(&row) == Some(&txn) && !self.is_logged(row) => {
                self.versions += 1;
                let (version, put) = (Version(self.versions), !self.versions.is_multiple_of(3));
                self.logged.push((row, txn, version, put));
                self.log.push((row, version, put));
            }
            Step::Install(choice) if !self.logged.is_empty() => {
                let choice = choice % self.logged.len();
                let (row, txn, version, put) = self.logged.swap_remove(choice);
                self.write_counters.install(key(row));
                match put {
                    true => self.committed.insert(row, version),
                    false => self.committed.remove(&row),
                };
                self.unlock(row, txn);
            }
            Step::Hold(txn) => {
                self.versions += 1;
                let row = 100 + self.versions;
                self.write_counters.hold_inserts([key(row)].into_iter(), TxnId(txn));
                self.inserting.push((row, txn));
                self.log.push((row, Version(1), true));
            }
            Step::InstallInsert(choice) if !self.inserting.is_empty() => {
                let (row, txn) = self.inserting.swap_remove(choice % self.inserting.len());
                assert_eq!(self.write_counters.install_inserts([key(row)].into_iter()), 1);
                self.committed.insert(row, Version(1));
                if self.inserting.iter().all(|(_, other)| *other != txn) {
                    self.write_counters.release_inserts([key(row)].into_iter(), TxnId(txn));
                }
            }
            Step::Apply(choice) if !self.log.is_empty() => {
                let (row, version, put) = self.log.swap_remove(choice % self.log.len());
                self.table.apply(key(row), version, put.then_some(&b"x"[..]));
            }
            Step::Scan(txn) => {
                let version = self.table.range_version(VersionRange::of(key(0)));
                self.scans.push((txn, version, scan(&self.table, &whole(99, false))));
            }
            Step::Check(choice) if !self.scans.is_empty() => {
                let (txn, version, seen) = self.scans.swap_remove(choice % self.scans.len());
                // A transaction asks before it logs.
                let asks = self.logged.iter().all(|logged| logged.1 != txn)
                    && self.inserting.iter().all(|inserting| inserting.1 != txn);
                if asks && self.write_counters.is_current(version, TxnId(txn)) {
                    let now = self.committed.iter().map(|(row, version)| (key(*row), *version));
                    assert_eq!(seen, now.collect::<Vec<_>>(), "an old scan is called current");
                }
            }
            _ => {}
        }
        assert_eq!(self.write_counters.locked_count(), self.holders.len());
    }

    fn is_logged(&self, row: u64) -> bool {
        self.logged.iter().any(|logged| logged.0 == row)
    }

    fn unlock(&mut self, row: u64, txn: u64) {
        self.holders.remove(&row);
        self.write_counters.unlock(key(row), TxnId(txn));
    }
}

proptest! {
    #[test]
    fn a_scan_that_is_called_current_is(steps in steps()) {
        let mut model = Model::default();
        for step in steps {
            model.take(step);
        }
        // When everything is over, every scan is current.
        for _ in 0..2_000 {
            model.take(Step::Install(0));
            model.take(Step::InstallInsert(0));
            model.take(Step::Apply(0));
        }
        model.holders.clone().into_iter().for_each(|(row, txn)| model.unlock(row, txn));
        let version = model.table.range_version(VersionRange::of(key(0)));
        prop_assert!(model.write_counters.is_current(version, TxnId(9)));
        prop_assert_eq!(model.write_counters.inserting_count(), 0);
        prop_assert!(!model.write_counters.may_lack_inserts(version));
        prop_assert_eq!(model.table.tree().check(), Vec::<String>::new());
    }
}

/// A primary whose host and NIC run on threads of their own.
#[derive(Default)]
struct Primary {
    table: OrderedTable,
    write_counters: WriteCounters,
    /// The rows that exist; a writer locks its row, as the index locks keys.
    rows: Mutex<BTreeSet<u64>>,
    current: AtomicU64,
    stop: AtomicBool,
}

impl Primary {
    fn write(&self, core: u64, log: &Sender<(u64, Version, bool)>) {
        let mut random = Stream::new(31, Purpose::Test, core as u32);
        for number in 1.. {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            // Rows of a core's own: locks never clash.
            let (row, txn) = (random.below(20) * 2 + core, TxnId(core << 32 | number));
            self.write_counters.lock(key(row), txn);
            let mut rows = self.rows.lock().unwrap();
            let put = !rows.contains(&row);
            log.send((row, Version(number + 1), put)).unwrap();
            thread::yield_now();
            self.write_counters.install(key(row));
            if put {
                rows.insert(row);
            } else {
                rows.remove(&row);
            }
            self.write_counters.unlock(key(row), txn);
            drop(rows);
            if number % 8 == 0 {
                self.rest();
            }
        }
    }

    /// Waits until a scan was current: now and then nobody writes, so that one can be.
    fn rest(&self) {
        let seen = self.current.load(Ordering::Relaxed);
        while self.current.load(Ordering::Relaxed) == seen && !self.stop.load(Ordering::Relaxed) {
            thread::yield_now();
        }
    }

    fn apply(&self, log: &Receiver<(u64, Version, bool)>) {
        for (row, version, put) in log {
            self.table.apply(key(row), version, put.then_some(&b"x"[..]));
        }
    }

    fn watch(&self) {
        while !self.stop.load(Ordering::Relaxed) {
            let version = self.table.range_version(VersionRange::of(key(0)));
            let seen = scan(&self.table, &whole(99, false));
            let rows = self.rows.lock().unwrap();
            if self.write_counters.is_current(version, TxnId(7)) {
                let seen = seen.iter().map(|(key, _)| key.row());
                assert!(seen.eq(rows.iter().copied()), "an old scan is called current");
                self.current.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

#[test]
fn a_scan_beside_writers_is_current_or_known_not_to_be() {
    let primary = Primary::default();
    thread::scope(|scope| {
        for core in 0..2 {
            let (log, records) = mpsc::channel();
            let primary = &primary;
            scope.spawn(move || primary.write(core, &log));
            scope.spawn(move || primary.apply(&records));
        }
        scope.spawn(|| primary.watch());
        for _ in 0..100_000_000 {
            if primary.current.load(Ordering::Relaxed) > 200 {
                break;
            }
            thread::yield_now();
        }
        primary.stop.store(true, Ordering::Relaxed);
    });
    assert!(primary.current.load(Ordering::Relaxed) > 0, "no scan was current");
    let rows = primary.rows.into_inner().unwrap();
    assert_eq!(primary.table.tree().len(), rows.len() as u64);
}
