//! A primary's host and NIC side by side, over keys of ordered tables that come, go and were never
//! there: who is told that there is no record is told the truth, and at a version that no later
//! write of the key has. [AMB-36]

use std::collections::BTreeMap;

use nicol_core::ids::{Key, TableId, TxnId, Version};
use nicol_core::txn::{RangeVersion, VersionRange};
use nicol_store::high_water::HighWater;
use nicol_store::host_table::SlotHash;
use nicol_store::nic_index::{HomesPerHint, IndexConfig, IndexLookup, NicIndex};
use nicol_store::ordered::{OrderedTable, WriteCounters};
use proptest::prelude::*;

/// Keys of a group that take part, and bits of a key within its group.
const LOWS: u64 = 4;
const LOW_BITS: u32 = 24;
/// Two groups of a unit, and one of another.
const GROUPS: [u64; 3] = [0, 1, 1 << 8];
const KEYS: u64 = GROUPS.len() as u64 * LOWS;
const CACHED: usize = 64 * 64;

fn key(number: u64) -> Key {
    let group = GROUPS[(number / LOWS) as usize];
    Key::partitioned(TableId::ORDERED, 0, (group << LOW_BITS) | (number % LOWS))
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A NIC looks a key up, which it locks first or not.
    Look(u64, bool),
    /// The host answers one of those that ask; an answer arrives.
    Answer(usize),
    Arrive(usize),
    /// A host reads a key for a transaction that will write it or not; that asks the NIC.
    Read(u64, bool),
    Check(usize),
    /// A holder logs a record or a deletion, or gives up.
    Log(usize, bool),
    Unlock(usize),
    Install(usize),
    Apply(usize),
    /// The index forgets what it may.
    Forget,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (number, any_one) = (|| 0..KEYS, any::<usize>);
    let step = prop_oneof![
        8 => (number(), any::<bool>()).prop_map(|(key, lock)| Step::Look(key, lock)),
        6 => any_one().prop_map(Step::Answer),
        6 => any_one().prop_map(Step::Arrive),
        4 => (number(), any::<bool>()).prop_map(|(key, write)| Step::Read(key, write)),
        4 => any_one().prop_map(Step::Check),
        8 => (any_one(), any::<bool>()).prop_map(|(choice, put)| Step::Log(choice, put)),
        1 => any_one().prop_map(Step::Unlock),
        8 => any_one().prop_map(Step::Install),
        8 => any_one().prop_map(Step::Apply),
        2 => Just(Step::Forget),
    ];
    prop::collection::vec(step, 1..400)
}

/// A NIC that asks its host, and what that has answered.
#[derive(Clone, Copy)]
struct Asks {
    key: Key,
    epoch: u64,
    lock: Option<TxnId>,
    answer: Option<(Version, bool, HighWater)>,
}

/// What a host has read for a transaction.
#[derive(Clone, Copy)]
struct Read {
    key: Key,
    range_version: RangeVersion,
    version: Version,
    present: bool,
    writes: bool,
}

/// A record of the log.
#[derive(Clone, Copy)]
struct Logged {
    key: Key,
    txn: TxnId,
    version: Version,
    put: bool,
    installed: bool,
    applied: bool,
}

struct Model {
    table: OrderedTable,
    write_counters: WriteCounters,
    index: NicIndex,
    asks: Vec<Asks>,
    reads: Vec<Read>,
    /// Keys that are locked and were read, and the version found.
    held: Vec<(Key, TxnId, Version)>,
    log: Vec<Logged>,
    /// The last write of each key.
    written: BTreeMap<Key, (Version, bool)>,
    /// By key: the highest version at which a lookup was answered with 'no record'. A later write
    /// must have a higher one.
    absent: BTreeMap<Key, Version>,
    txns: u64,
    /// Lookups that the NIC answered without asking the host.
    spared: u64,
}

fn value(put: bool) -> Option<&'static [u8]> {
    put.then_some(b"x")
}

fn take_one<T>(from: &mut Vec<T>, choice: usize) -> Option<T> {
    (!from.is_empty()).then(|| from.swap_remove(choice % from.len()))
}

impl Model {
    fn new(segments: u64, loaded: u64, warm: bool) -> Self {
        let config = IndexConfig {
            segments,
            cached_objects_max: CACHED,
            busy_objects_max: 64,
            homes_per_hint: HomesPerHint::ONE,
            value_bytes_max: usize::MAX,
        };
        let mut model = Self {
            table: OrderedTable::default(),
            write_counters: WriteCounters::default(),
            index: NicIndex::new(config),
            asks: Vec::new(),
            reads: Vec::new(),
            held: Vec::new(),
            log: Vec::new(),
            written: BTreeMap::new(),
            absent: BTreeMap::new(),
            txns: 0,
            spared: 0,
        };
        for key in (0..KEYS).filter(|number| number % LOWS < loaded).map(key) {
            model.table.load(key, b"x");
            model.written.insert(key, (Version(1), true));
        }
        if warm {
            model.write_counters.preload(&model.table);
        }
        model
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Look(number, locks) => {
                let lock = locks.then(|| self.next_txn());
                if lock.is_none_or(|txn| self.lock(key(number), txn)) {
                    self.look(key(number), lock);
                }
            }
            Step::Answer(choice) => self.answer(choice),
            Step::Arrive(choice) => self.arrive(choice),
            Step::Read(number, writes) => {
                let (key, range_version) =
                    (key(number), self.table.range_version(VersionRange::of(key(number))));
                let found = self.table.get(key, &mut Vec::new());
                let (version, present) = (found.version, found.present);
                self.reads.push(Read { key, range_version, version, present, writes });
            }
            Step::Check(choice) => self.check(choice),
            Step::Log(choice, put) => self.log(choice, put),
            Step::Unlock(choice) => {
                if let Some((key, txn, _)) = take_one(&mut self.held, choice) {
                    self.unlock(key, txn);
                }
            }
            Step::Install(choice) => self.install(choice),
            Step::Apply(choice) => self.apply(choice),
            Step::Forget => self.forget(),
        }
        self.index.check();
    }

    fn next_txn(&mut self) -> TxnId {
        self.txns += 1;
        TxnId(self.txns)
    }

    fn lock(&self, key: Key, txn: TxnId) -> bool {
        let locked = self.index.lock(SlotHash::of(key), key, txn).is_ok();
        if locked {
            self.write_counters.lock(key, txn);
        }
        locked
    }

    fn unlock(&self, key: Key, txn: TxnId) {
        self.write_counters.unlock(key, txn);
        assert!(self.index.unlock(SlotHash::of(key), key, txn), "a holder unlocks");
    }

    /// Looks a key up as a NIC does: in the index, else among what never was, else at its host.
    fn look(&mut self, key: Key, lock: Option<TxnId>) {
        let hash = SlotHash::of(key);
        let epoch = match self.index.lookup(hash, key, &mut Vec::new()) {
            IndexLookup::Hit { version, present } => {
                return self.found(key, version, present, lock);
            }
            IndexLookup::Miss(hint) => hint.epoch,
        };
        if self.write_counters.confirm_absent(key) {
            assert!(self.index.learn(hash, key, epoch, Version(0), None), "nothing came between");
            self.spared += 1;
            return self.found(key, Version(0), false, lock);
        }
        self.asks.push(Asks { key, epoch, lock, answer: None });
    }

    fn answer(&mut self, choice: usize) {
        let count = self.asks.len().max(1);
        if let Some(asks) = self.asks.get_mut(choice % count)
            && asks.answer.is_none()
        {
            let found = self.table.get(asks.key, &mut Vec::new());
            asks.answer = Some((found.version, found.present, self.table.high_water(asks.key)));
        }
    }

    fn arrive(&mut self, choice: usize) {
        let Some(asks) = take_one(&mut self.asks, choice) else { return };
        let Asks { key, epoch, lock, answer: Some((version, present, high_water)) } = asks else {
            return self.asks.push(asks);
        };
        // COMMIT installs as soon as it has logged: an answer that saw the record comes later.
        if self.log.iter().any(|logged| logged.key == key && logged.applied && !logged.installed) {
            return self.asks.push(asks);
        }
        let hash = SlotHash::of(key);
        self.write_counters.learn_high_water(key, high_water);
        let now = match self.index.lookup(hash, key, &mut Vec::new()) {
            IndexLookup::Hit { version, present } => {
                return self.found(key, version, present, lock);
            }
            IndexLookup::Miss(hint) => hint.epoch,
        };
        if now != epoch {
            return self.asks.push(Asks { key, epoch: now, lock, answer: None });
        }
        let deleted = !present && version > Version(0);
        let version = if deleted { version.max(self.index.floor(hash)) } else { version };
        let known = value(present).map(|value| (value, 0));
        assert!(self.index.learn(hash, key, now, version, known), "nothing came between");
        self.found(key, version, present, lock);
    }

    /// A NIC has found a key, for a holder or for somebody who only reads it.
    fn found(&mut self, key: Key, version: Version, present: bool, lock: Option<TxnId>) {
        let holder = self.index.holder(SlotHash::of(key), key);
        if holder.is_none() || holder == lock {
            self.tell(key, version, present);
        }
        if let Some(txn) = lock {
            self.held.push((key, txn, version));
        }
    }

    /// Somebody takes this for the state of the key now.
    fn tell(&mut self, key: Key, version: Version, present: bool) {
        let (last, is_present) = self.written.get(&key).copied().unwrap_or_default();
        assert_eq!(present, is_present, "{key:?} at {version:?}, written at {last:?}");
        if present {
            assert_eq!(version, last, "{key:?}");
        } else {
            assert!(version >= last, "{key:?}: absent at {version:?}, deleted at {last:?}");
            let absent = self.absent.entry(key).or_default();
            *absent = version.max(*absent);
        }
    }

    /// The NIC commits what a host has read, or locks what it will write.
    fn check(&mut self, choice: usize) {
        let Some(read) = take_one(&mut self.reads, choice) else { return };
        let (key, hash, txn) = (read.key, SlotHash::of(read.key), self.next_txn());
        if read.writes && !self.lock(key, txn) {
            return;
        }
        let current = self.write_counters.is_current(read.range_version, txn)
            && (read.present || self.index.confirm_absent_at(hash, key, txn, read.version));
        match (current, read.writes) {
            (true, true) => self.found(key, read.version, read.present, Some(txn)),
            (true, false) => self.tell(key, read.version, read.present),
            (false, true) => self.unlock(key, txn),
            (false, false) => {}
        }
    }

    fn log(&mut self, choice: usize, put: bool) {
        let Some((key, txn, version)) = take_one(&mut self.held, choice) else { return };
        let version = version.next();
        let (last, _) = self.written.get(&key).copied().unwrap_or_default();
        assert!(version > last, "{key:?}: {version:?} is written again");
        let absent = self.absent.get(&key).copied();
        assert!(
            absent.is_none_or(|absent| version > absent),
            "{key:?}: written at {version:?}, and was seen absent at {absent:?}"
        );
        self.log.push(Logged { key, txn, version, put, installed: false, applied: false });
    }

    fn install(&mut self, choice: usize) {
        let count = self.log.len().max(1);
        let Some(logged) = self.log.get_mut(choice % count) else { return };
        if std::mem::replace(&mut logged.installed, true) {
            return;
        }
        let Logged { key, txn, version, put, .. } = *logged;
        self.write_counters.install(key);
        self.index.install(SlotHash::of(key), key, version, value(put));
        self.written.insert(key, (version, put));
        self.unlock(key, txn);
        self.unpin();
    }

    fn apply(&mut self, choice: usize) {
        let count = self.log.len().max(1);
        let Some(logged) = self.log.get_mut(choice % count) else { return };
        if !std::mem::replace(&mut logged.applied, true) {
            self.table.apply(logged.key, logged.version, value(logged.put));
            self.unpin();
        }
    }

    fn unpin(&mut self) {
        self.log.retain(|logged| {
            let over = logged.installed && logged.applied;
            if over {
                self.index.unpin(SlotHash::of(logged.key), logged.key);
            }
            !over
        });
    }

    fn forget(&mut self) {
        self.index.set_capacity(0);
        for number in 0..4 * KEYS {
            // An unlock lets the index look for what may go.
            let (key, txn) = (key(number % KEYS), self.next_txn());
            if self.lock(key, txn) {
                self.unlock(key, txn);
            }
        }
        self.index.set_capacity(CACHED);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn what_is_said_to_be_absent_is(
        apart: bool,
        loaded in 0..=LOWS,
        warm: bool,
        steps in steps(),
    ) {
        // The keys share an entry of the index, or hardly any two do.
        let mut model = Model::new(if apart { 4_096 } else { 1 }, loaded, warm);
        for step in steps {
            model.take(step);
        }
    }
}

#[test]
fn a_warm_nic_is_spared_what_is_entered_in_order() {
    for (warm, spared) in [(true, GROUPS.len() as u64 * 2), (false, 0)] {
        let mut model = Model::new(1, 2, warm);
        for number in (0..KEYS).filter(|number| number % LOWS >= 2) {
            model.take(Step::Look(number, true));
            model.take(Step::Log(0, true));
            model.take(Step::Install(0));
        }
        assert_eq!(model.spared, spared, "warm: {warm}");
    }
}

/// A model in which the third key of a group is absent, below one that was there; all is applied.
fn with_a_gap() -> Model {
    let mut model = Model::new(1, 2, true);
    model.write(3, true);
    model.take(Step::Apply(0));
    assert_eq!(model.table.get(key(2), &mut Vec::new()).version, Version(1));
    model
}

impl Model {
    /// A NIC writes a key that it knows or need not ask for, and installs that.
    fn write(&mut self, number: u64, put: bool) {
        self.take(Step::Look(number, true));
        if self.held.is_empty() {
            self.take(Step::Answer(0));
            self.take(Step::Arrive(0));
        }
        self.take(Step::Log(0, put));
        self.take(Step::Install(0));
    }
}

#[test]
fn an_answer_that_a_local_read_has_overtaken_is_asked_for_again() {
    let mut model = with_a_gap();
    model.take(Step::Look(2, false));
    model.take(Step::Answer(0));
    // The version of absent keys rises, and a local transaction sees that.
    let late = model.asks.pop().unwrap();
    model.write(2 * LOWS, false);
    model.take(Step::Apply(0));
    model.take(Step::Read(2, false));
    model.take(Step::Check(0));
    assert_eq!(model.absent.get(&key(2)), Some(&Version(2)));
    model.asks.push(late);
    model.take(Step::Arrive(0));
    assert!(model.asks[0].answer.is_none(), "it is asked again");
    model.take(Step::Answer(0));
    model.take(Step::Arrive(0));
    model.write(2, true);
}

#[test]
fn a_host_that_has_not_applied_a_deletion_does_not_insert_below_it() {
    let mut model = with_a_gap();
    // Installed and not applied; a NIC sees an absent key at its version, and forgets that.
    model.write(2 * LOWS, false);
    for step in [Step::Look(2, false), Step::Answer(0), Step::Arrive(0), Step::Forget] {
        model.take(step);
    }
    assert_eq!(model.absent.get(&key(2)), Some(&Version(2)));
    model.take(Step::Read(2, true));
    model.take(Step::Check(0));
    assert!(model.held.is_empty(), "it may not write at that version");
    model.take(Step::Apply(0));
    model.take(Step::Read(2, true));
    model.take(Step::Check(0));
    model.take(Step::Log(0, true));
}
