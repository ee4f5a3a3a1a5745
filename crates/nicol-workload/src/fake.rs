//! A fake world for tests: one engine with a clock that jumps to the next deadline, and a tiny
//! optimistic protocol over a map, whose steps take time so that clients interleave.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use nicol_core::commit::CommitProtocol;
use nicol_core::exec::Signal;
use nicol_core::fabric::{
    Fabric, FabricError, HasDoorbell, Message, OneSided, ReplyTo, RequestId, Service, Timeout, Work,
};
use nicol_core::ids::{EngineId, FreeListKey, Key, NodeId, RKey, ShardId, TxnId, Version};
use nicol_core::memory::{Access, AccessError, Buffers, Region};
use nicol_core::rng::{Purpose, Stream};
use nicol_core::txn::{Abort, KeyRange, Outcome, Procedures, Txn, Verdict};
use nicol_core::units::Nanos;
use nicol_core::view::{ShardMap, View};
use nicol_core::workload::Workload;

type Task = Pin<Box<dyn Future<Output = ()>>>;

struct World {
    view: View,
    now: Cell<Nanos>,
    deadlines: RefCell<BTreeSet<Nanos>>,
    random: RefCell<Stream>,
    tasks: RefCell<Vec<Task>>,
}

/// The only engine of the fake world.
#[derive(Clone)]
pub(crate) struct FakeFabric(Rc<World>);

/// Resolves once the clock has reached its deadline.
pub(crate) struct FakeWake(FakeFabric, Nanos);

impl Future for FakeWake {
    type Output = ();
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.0.now() >= self.1 { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl FakeFabric {
    pub(crate) fn new(view: View) -> Self {
        Self(Rc::new(World {
            view,
            now: Cell::new(Nanos::ZERO),
            deadlines: RefCell::default(),
            random: RefCell::new(Stream::new(9, Purpose::Protocol, 0)),
            tasks: RefCell::default(),
        }))
    }

    /// Runs all tasks until `until`, or until there are none.
    pub(crate) fn run_until(&self, until: Nanos) {
        let mut context = Context::from_waker(Waker::noop());
        loop {
            let mut tasks = self.0.tasks.take();
            tasks.retain_mut(|task| task.as_mut().poll(&mut context).is_pending());
            tasks.append(&mut self.0.tasks.borrow_mut());
            if tasks.is_empty() {
                return;
            }
            *self.0.tasks.borrow_mut() = tasks;
            let next = self.0.deadlines.borrow_mut().pop_first().expect("a task waits for a time");
            if next > until {
                return;
            }
            self.0.now.set(next.max(self.now()));
        }
    }

    /// Drops all tasks, as a crash does.
    pub(crate) fn crash(&self) {
        let tasks = self.0.tasks.take();
        drop(tasks);
    }
}

fn unreachable_peer() -> Ready<Result<Vec<u8>, FabricError>> {
    ready(Err(FabricError::Unreachable))
}

impl Fabric for FakeFabric {
    type Completion = Ready<Result<Vec<u8>, FabricError>>;
    type Payload = Vec<u8>;
    type Wake = FakeWake;

    fn here(&self) -> EngineId {
        EngineId::host(NodeId(0), 0)
    }
    fn view(&self) -> &View {
        &self.0.view
    }
    fn now(&self) -> Nanos {
        self.0.now.get()
    }
    fn sleep_until(&self, deadline: Nanos) -> FakeWake {
        self.0.deadlines.borrow_mut().insert(deadline);
        FakeWake(self.clone(), deadline)
    }
    fn yield_now(&self) -> FakeWake {
        self.sleep_until(self.now())
    }
    fn caught_up(&self) -> FakeWake {
        self.sleep_until(self.now())
    }
    fn random(&self) -> u64 {
        self.0.random.borrow_mut().bits()
    }
    fn spawn<T: Future<Output = ()> + 'static>(&self, task: T) {
        self.0.tasks.borrow_mut().push(Box::pin(task));
    }
    fn work(&self, _: Work) {}
    fn serve(&self, _: Rc<dyn Service>) -> bool {
        false
    }
    fn send<M: Message>(&self, _: EngineId, _: &M) {}
    fn call<M: Message>(&self, _: EngineId, _: &M, _: Timeout) -> Self::Completion {
        unreachable_peer()
    }
    fn call_superseding<M: Message>(&self, _: EngineId, _: &M, _: RequestId) -> Self::Completion {
        unreachable_peer()
    }
    fn open_delegated_call(&self, _: EngineId) -> (ReplyTo, Self::Completion) {
        let request = RequestId { slot: 0, sequence: 0 };
        (ReplyTo { engine: self.here(), request }, unreachable_peer())
    }
    fn send_on_behalf_of<M: Message>(&self, _: ReplyTo, _: EngineId, _: &M) {}
    fn retransmit<M: Message>(&self, _: RequestId, _: &M, _: Timeout) {}
    fn give_up_after(&self, _: RequestId, _: Nanos) {}
    fn reply<M: Message>(&self, _: ReplyTo, _: &M) {}
    fn refuse(&self, _: ReplyTo, _: FabricError) {}
    fn keep(&self, bytes: &[u8]) -> Vec<u8> {
        bytes.to_vec()
    }
    fn register(&self, _: &Arc<Region>, _: Access) -> RKey {
        RKey(0)
    }
    fn revoke(&self, _: RKey) -> bool {
        false
    }
    fn register_buffers(&self, _: Buffers) -> Result<FreeListKey, AccessError> {
        Err(AccessError::Denied { rkey: 0 })
    }
    fn post_buffers(&self, list: FreeListKey, _: &[u64]) -> Result<(), AccessError> {
        Err(AccessError::Denied { rkey: list.0 })
    }
    fn buffers_ready(&self, _: FreeListKey) -> usize {
        0
    }
    fn one_sided(&self, _: NodeId, _: OneSided<'_>) -> Self::Completion {
        unreachable_peer()
    }
    fn dma_read(&self, _: &Arc<Region>, _: u64, _: usize) -> Self::Completion {
        unreachable_peer()
    }
    fn dma_write_durable(&self, _: &Arc<Region>, _: u64, _: &[u8]) -> Self::Completion {
        unreachable_peer()
    }
    fn dma_write(&self, _: &Arc<Region>, _: u64, _: &[u8]) -> Self::Completion {
        unreachable_peer()
    }
    fn wait_for_doorbell(&self, _: &Arc<dyn HasDoorbell>, _: u64) -> FakeWake {
        self.yield_now()
    }
    fn persist(&self, _: &Arc<Region>, _: u64, _: usize) -> Self::Completion {
        unreachable_peer()
    }
    fn signal(&self) -> Signal {
        unreachable!("the driver waits for no signal")
    }
}

/// How the fake protocol is broken on purpose, so that audits have something to find.
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
    /// How long the time between reading and installing is at most.
    pub(crate) step_max: u64,
    /// Every so manieth commit is reported as unknown (it is installed); 0: none.
    pub(crate) unknown_every: u64,
}

struct Record {
    version: Version,
    value: Option<Vec<u8>>,
}

/// A protocol over one map: read, execute, validate and install in one step.
#[derive(Clone)]
pub(crate) struct FakeProtocol {
    pub(crate) fabric: FakeFabric,
    config: FakeConfig,
    procedures: Procedures,
    store: Rc<RefCell<BTreeMap<Key, Record>>>,
    attempts: Rc<Cell<u64>>,
}

impl FakeProtocol {
    /// Loads every shard of `workload`, checking that a shard yields its own records only, within
    /// the announced number, and never one twice.
    pub(crate) fn load(fabric: &FakeFabric, config: FakeConfig, workload: &dyn Workload) -> Self {
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
        txn.id = TxnId::new(self.fabric.here(), attempt);
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
