//! A fake world for tests: one engine with a clock that jumps to the next deadline, and a tiny
//! optimistic protocol over a map, whose steps take time so that clients interleave.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use nicol_core::commit::CommitProtocol;
use nicol_core::exec::{Executor, Signal, TaskRef};
use nicol_core::fabric::{Local, Work};
use nicol_core::ids::{EngineId, Incarnation, Key, NodeId, ShardId, TxnId, Version};
use nicol_core::rng::{Purpose, Stream};
use nicol_core::txn::{Abort, KeyRange, Outcome, Procedures, Txn, Verdict};
use nicol_core::units::Nanos;
use nicol_core::view::{ShardMap, View};
use nicol_core::workload::Workload;

struct World {
    view: View,
    now: Cell<Nanos>,
    random: RefCell<Stream>,
    executor: Rc<Executor>,
    /// Sleeping tasks, by wake-up time and by the order in which they fell asleep.
    sleeping: RefCell<BTreeMap<(Nanos, u64), TaskRef>>,
    sleeps: Cell<u64>,
}

/// The only engine of the fake world. The driver needs no part of a fabric but [`Local`].
#[derive(Clone)]
pub(crate) struct FakeEngine(Rc<World>);

/// Resolves once the clock has reached its deadline.
pub(crate) struct FakeWake {
    engine: FakeEngine,
    deadline: Nanos,
    asleep: bool,
}

impl Future for FakeWake {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.asleep && self.engine.now() >= self.deadline {
            return Poll::Ready(());
        }
        self.asleep = true;
        let world = &self.engine.0;
        let order = world.sleeps.replace(world.sleeps.get() + 1);
        let task = world.executor.current();
        world.sleeping.borrow_mut().insert((self.deadline, order), task);
        Poll::Pending
    }
}

impl FakeEngine {
    pub(crate) fn new(view: View) -> Self {
        Self(Rc::new(World {
            view,
            now: Cell::new(Nanos::ZERO),
            random: RefCell::new(Stream::new(9, Purpose::Protocol, 0)),
            executor: Rc::default(),
            sleeping: RefCell::default(),
            sleeps: Cell::new(0),
        }))
    }

    /// Runs all tasks until `until`, or until there are none.
    pub(crate) fn run_until(&self, until: Nanos) {
        let world = &self.0;
        loop {
            world.executor.run(usize::MAX);
            if world.executor.live() == 0 {
                return;
            }
            let (deadline, task) = {
                let mut sleeping = world.sleeping.borrow_mut();
                let next = sleeping.first_entry().expect("a task waits for a time");
                if next.key().0 > until {
                    return;
                }
                (next.key().0, next.remove())
            };
            world.now.set(deadline.max(self.now()));
            world.executor.wake(task);
        }
    }

    /// Drops all tasks, as a crash does.
    pub(crate) fn crash(&self) {
        self.0.executor.clear();
    }
}

impl Local for FakeEngine {
    type Wake = FakeWake;

    fn here(&self) -> EngineId {
        EngineId::host(NodeId(0), 0)
    }
    fn incarnation(&self) -> Incarnation {
        Incarnation::FIRST
    }
    fn view_changes(&self) -> Signal {
        self.signal()
    }

    fn has_lease(&self) -> bool {
        true
    }

    fn declare_complete(&self) {}

    fn view(&self) -> &View {
        &self.0.view
    }
    fn now(&self) -> Nanos {
        self.0.now.get()
    }
    fn sleep_until(&self, deadline: Nanos) -> FakeWake {
        FakeWake { engine: self.clone(), deadline, asleep: false }
    }
    fn yield_now(&self) -> FakeWake {
        self.sleep_until(self.now())
    }
    fn random(&self) -> u64 {
        self.0.random.borrow_mut().bits()
    }
    fn spawn<T: Future<Output = ()> + 'static>(&self, task: T) {
        self.0.executor.spawn(task);
    }
    fn work(&self, _: Work) {}
    fn signal(&self) -> Signal {
        Signal::new(self.0.executor.clone())
    }
}

/// Defects of the fake protocol that audits must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Validation {
    /// Every version read is compared before the writes are installed.
    Everything,
    /// Only those of the write set: write skew passes.
    WriteSet,
    /// None: updates are lost.
    Nothing,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct FakeConfig {
    pub(crate) validation: Validation,
    /// The longest time between reading and installing.
    pub(crate) step_max: u64,
    /// One commit in this many is reported as unknown although it is installed; 0: none.
    pub(crate) unknown_every: u64,
}

struct Record {
    version: Version,
    value: Option<Vec<u8>>,
}

/// A protocol over one map: read, execute, validate and install in one step.
#[derive(Clone)]
pub(crate) struct FakeProtocol {
    pub(crate) fabric: FakeEngine,
    config: FakeConfig,
    procedures: Procedures,
    store: Rc<RefCell<BTreeMap<Key, Record>>>,
    attempts: Rc<Cell<u64>>,
}

impl FakeProtocol {
    /// Loads every shard of `workload`, checking that a shard yields its own records only, within
    /// the announced number, and never one twice.
    pub(crate) fn load(fabric: &FakeEngine, config: FakeConfig, workload: &dyn Workload) -> Self {
        let mut store = BTreeMap::new();
        let view = fabric.view();
        for shard in (0..view.shards()).map(ShardId) {
            let mut count = 0;
            workload.load(view, shard, &mut |key, value| {
                count += 1;
                assert_eq!(view.shard_of(key), shard);
                let record = Record { version: Version(1), value: Some(value.to_vec()) };
                assert!(store.insert(key, record).is_none(), "{key:?} is loaded once");
            });
            assert!(count <= workload.records_per_shard());
        }
        Self {
            fabric: fabric.clone(),
            config,
            procedures: workload.procedures(),
            store: Rc::new(RefCell::new(store)),
            attempts: Rc::default(),
        }
    }

    pub(crate) fn value(&self, key: Key) -> Option<Vec<u8>> {
        self.store.borrow().get(&key)?.value.clone()
    }

    pub(crate) fn keys(&self) -> Vec<Key> {
        self.store.borrow().keys().copied().collect()
    }

    pub(crate) fn version(&self, key: Key) -> Version {
        self.store.borrow().get(&key).map_or(Version(0), |record| record.version)
    }

    async fn step(&self) {
        let length = 1 + self.fabric.random() % self.config.step_max;
        self.fabric.sleep_until(self.fabric.now() + Nanos(length)).await;
    }

    fn validate(&self, txn: &Txn) -> Result<(), Abort> {
        for entry in txn.entries() {
            let checked = match self.config.validation {
                Validation::Everything => true,
                Validation::WriteSet => entry.write,
                Validation::Nothing => false,
            };
            if checked && self.version(entry.key) != entry.version {
                return Err(Abort::Stale { key: entry.key });
            }
        }
        if self.config.validation == Validation::Everything {
            for scan in 0..txn.scans().len() {
                let entries = txn.found(scan).unwrap_or_default().iter();
                let found = entries.map(|&index| txn.entries()[index as usize].key);
                let range = txn.scans()[scan].range;
                if !found.eq(self.keys_in(&range)) {
                    return Err(Abort::Stale { key: range.first });
                }
            }
        }
        Ok(())
    }

    /// The keys of records that a scan finds.
    fn keys_in(&self, range: &KeyRange) -> Vec<Key> {
        let store = self.store.borrow();
        let all = store.range(range.first..=range.last);
        let mut keys: Vec<Key> =
            all.filter(|(_, record)| record.value.is_some()).map(|(&key, _)| key).collect();
        if range.backward {
            keys.reverse();
        }
        keys.truncate(range.limit as usize);
        keys
    }

    fn make_scans(&self, txn: &mut Txn) {
        for scan in 0..txn.scans().len() {
            if txn.scans()[scan].is_done() {
                continue;
            }
            let keys = self.keys_in(&txn.scans()[scan].range);
            let fits = txn.scanned(scan, |into| {
                for key in keys {
                    let value = self.value(key).unwrap_or_default();
                    into.add(key, self.version(key), &value);
                }
            });
            assert!(fits, "a workload's scan finds what a transaction may touch");
        }
    }
}

impl CommitProtocol for FakeProtocol {
    async fn run(&self, txn: &mut Txn) -> Outcome {
        let attempt = self.attempts.get() + 1;
        self.attempts.set(attempt);
        txn.id = TxnId::new(self.fabric.here(), self.fabric.incarnation(), attempt);
        self.step().await;
        loop {
            self.make_scans(txn);
            for index in 0..txn.entries().len() {
                let entry = txn.entries()[index];
                if !entry.fetched {
                    let value = self.value(entry.key);
                    txn.fetched(index, self.version(entry.key), value.as_deref());
                }
            }
            let verdict = self.procedures.execute(txn);
            if verdict == Verdict::Refuse {
                return Outcome::Aborted(Abort::Refused);
            }
            self.step().await;
            if verdict == Verdict::Commit {
                break;
            }
        }
        if let Err(abort) = self.validate(txn) {
            return Outcome::Aborted(abort);
        }
        for write in txn.updates() {
            let version = write.version.max(self.version(write.key));
            let record = Record { version, value: write.value.map(<[u8]>::to_vec) };
            self.store.borrow_mut().insert(write.key, record);
        }
        if self.config.unknown_every > 0 && attempt.is_multiple_of(self.config.unknown_every) {
            return Outcome::Unknown;
        }
        Outcome::Committed
    }
}
