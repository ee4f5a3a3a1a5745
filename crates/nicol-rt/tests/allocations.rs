//! A transaction allocates nothing in the steady state, and an operation of PRISM-KV so often as is
//! known: counted over the whole process.

use std::alloc::{GlobalAlloc, Layout as Block, System};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use nicol_commit::rdma_occ::{self, RdmaOccConfig};
use nicol_commit::xenic::{self, CombinedOps, ExecuteAt, XenicConfig};
use nicol_core::commit::CommitNode;
use nicol_core::engine::Start;
use nicol_core::exec::{Detached, join_quorum};
use nicol_core::fabric::Fabric;
use nicol_core::key_value::KeyValueNode;
use nicol_core::system::{Sequential, load_nodes};
use nicol_core::txn::Procedures;
use nicol_core::units::Nanos;
use nicol_core::view::View;
use nicol_core::workload::Workload;
use nicol_prism::kv::{self, KvConfig};
use nicol_rt::{LiveCluster, LiveConfig};
use nicol_workload::chooser::PartsPerMillion;
use nicol_workload::driver::{Load, RETRY, RunControl, RunPlan, spawn_clients};
use nicol_workload::key_value::{self, KeyValueWorkload};
use nicol_workload::smallbank::{Smallbank, SmallbankConfig};
use nicol_workload::ycsb::{KeyForm, Mix, Popularity, YcsbConfig};

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

struct Counting;

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, block: Block) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise is the system allocator's.
        unsafe { System.alloc(block) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, block: Block) {
        // SAFETY: the caller's promise is the system allocator's.
        unsafe { System.dealloc(pointer, block) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, block: Block, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise is the system allocator's.
        unsafe { System.realloc(pointer, block, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const CLIENTS: u32 = 8;

struct Bank<N> {
    nodes: Vec<Arc<N>>,
    workload: Arc<dyn Workload>,
    procedures: Procedures,
    run: Arc<RunControl>,
}

impl<N: CommitNode> Start for Bank<N> {
    fn start<F: Fabric>(&self, fabric: &F) {
        let here = fabric.here();
        let node = &self.nodes[usize::from(here.node.0)];
        if let Some(coordinator) = node.start(fabric, &self.procedures) {
            let first = u32::from(here.node.0) * CLIENTS;
            spawn_clients(fabric, &coordinator, &self.workload, &self.run, first, CLIENTS);
        }
    }
}

/// Accounts per node, and the records that they are.
const ACCOUNTS: u64 = 250;
const RECORDS: u64 = 1_000;

/// A server of PRISM-KV, and its clients.
struct Store {
    nodes: Vec<Arc<kv::Node>>,
    workload: Arc<KeyValueWorkload>,
    run: Arc<RunControl>,
}

impl Start for Store {
    fn start<F: Fabric>(&self, fabric: &F) {
        let node = &self.nodes[usize::from(fabric.here().node.0)];
        if let Some(client) = KeyValueNode::start(node, fabric) {
            key_value::spawn_clients(fabric, &client, &self.workload, &self.run, 0..CLIENTS);
        }
    }
}

/// Runs so many GETs and PUTs per client, of 512 B values, and returns how many allocations that
/// took.
fn allocations_of_prism_kv(operations: u64, reads: PartsPerMillion) -> u64 {
    let view = View::new(1, 1, 1, 1).unwrap();
    let workload = Arc::new(KeyValueWorkload::ycsb(
        YcsbConfig {
            mix: Mix::A,
            records: RECORDS,
            reads,
            popularity: Popularity::Uniform,
            keys: KeyForm::Number,
            value_bytes: 512,
        },
        1,
        0,
    ));
    let config = KvConfig::paper(vec![(KvConfig::item_bytes(8, 512), RECORDS)]);
    let store = Arc::new(Store {
        nodes: load_nodes::<kv::Node>(&view, &config, &*workload, &Sequential).unwrap(),
        run: RunControl::new(plan(CLIENTS, operations), workload.kinds()),
        workload,
    });
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    let live = LiveConfig { threads: Some(1), spin: false, ..LiveConfig::new(view) };
    let cluster = LiveCluster::launch(&live, store.clone()).unwrap();
    cluster.run_until(|| store.run.finished(), Duration::from_millis(1)).unwrap();
    cluster.stop().unwrap();
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

/// Asserts that a GET, or a PUT, of PRISM-KV allocates no more than so often.
fn allocates_at_most(most: u64, name: &str, reads: PartsPerMillion) {
    let (short, long) = (1_500, 4_500);
    let start_up = allocations_of_prism_kv(short, reads);
    let more = allocations_of_prism_kv(long, reads).saturating_sub(start_up);
    let operations = (long - short) * u64::from(CLIENTS);
    let each = more as f64 / operations as f64;
    println!("{name}: {each:.2} allocations each");
    // Pools still grow now and then.
    assert!(each < most as f64 + 0.05, "{name}: {each:.2} allocations each, {most} are known");
}

/// So many transactions or operations of each of some clients.
fn plan(clients: u32, each: u64) -> RunPlan {
    RunPlan {
        seed: 1,
        clients,
        begin: Nanos::ZERO,
        warmup_until: Nanos::ZERO,
        stop_at: Nanos::MAX,
        operations_per_client: Some(each),
        load: Load::Closed,
        retry: RETRY,
        record: false,
        history_max: 0,
    }
}

/// Runs so many transactions per client and returns how many allocations that took in all.
fn allocations<N: CommitNode>(transactions: u64, config: &N::Config) -> u64 {
    let view = View::new(3, 3, 1, 1).unwrap();
    let workload: Arc<dyn Workload> = Arc::new(Smallbank::new(SmallbankConfig::paper(3, ACCOUNTS)));
    let bank = Arc::new(Bank {
        nodes: load_nodes::<N>(&view, config, &*workload, &Sequential).unwrap(),
        procedures: workload.procedures(),
        run: RunControl::new(plan(3 * CLIENTS, transactions), workload.kinds()),
        workload,
    });
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    let live = LiveConfig { threads: Some(2), spin: false, ..LiveConfig::new(view) };
    let cluster = LiveCluster::launch(&live, bank.clone()).unwrap();
    cluster.run_until(|| bank.run.finished(), Duration::from_millis(1)).unwrap();
    cluster.stop().unwrap();
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

/// Asserts that transactions allocate nothing once the pools have grown.
fn allocates_nothing<N: CommitNode>(name: &str, config: &N::Config) {
    let (short, long) = (1_500, 4_500);
    let start_up = allocations::<N>(short, config);
    let more = allocations::<N>(long, config).saturating_sub(start_up);
    let transactions = (long - short) * u64::from(3 * CLIENTS);
    // Pools still grow now and then: less than once in a hundred transactions.
    assert!(more * 100 < transactions, "{name}: {more} allocations in {transactions} transactions");
}

/// A reply that has come.
struct Reply(bool);

impl Future for Reply {
    type Output = Result<(), ()>;
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(if self.0 { Ok(()) } else { Err(()) })
    }
}

impl Detached for Reply {}

/// Asserts that waiting for a quorum, and for the rest, allocates nothing.
fn a_quorum_allocates_nothing() {
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    let mut context = Context::from_waker(Waker::noop());
    for granted in 0..5 {
        let replies = (0..5).map(|reply| Reply(reply < granted));
        let mut replies = join_quorum::<8, _, _>(replies, 3, Result::is_ok);
        let reached = Pin::new(&mut replies).poll(&mut context);
        assert_eq!(reached, Poll::Ready(granted >= 3));
        assert!(Pin::new(&mut replies.rest()).poll(&mut context).is_ready());
    }
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), before);
}

/// What decides which way a transaction takes.
#[derive(Clone, Copy, Debug)]
struct Way {
    execute_at: ExecuteAt,
    local_paths: bool,
    combined_ops: CombinedOps,
}

impl Way {
    fn config(self) -> XenicConfig {
        let Self { execute_at, local_paths, combined_ops } = self;
        let paper = XenicConfig::paper(RECORDS, 8);
        XenicConfig {
            execute_at,
            local_paths,
            combined_ops,
            multi_hop: paper.multi_hop && combined_ops == CombinedOps::All,
            ..paper
        }
    }
}

const PUBLISHED: Way =
    Way { execute_at: ExecuteAt::Annotation, local_paths: true, combined_ops: CombinedOps::All };
const WAYS: [Way; 6] = [
    PUBLISHED,
    Way { execute_at: ExecuteAt::Host, ..PUBLISHED },
    Way { execute_at: ExecuteAt::Host, local_paths: false, ..PUBLISHED },
    Way { execute_at: ExecuteAt::Nic, ..PUBLISHED },
    Way { combined_ops: CombinedOps::Keys, ..PUBLISHED },
    Way { combined_ops: CombinedOps::None, ..PUBLISHED },
];

// One test: allocations are those of the whole process.
#[test]
fn a_transaction_allocates_nothing_in_the_steady_state_and_an_operation_little() {
    a_quorum_allocates_nothing();
    // A chain, its parts and its answer; a PUT has two chains and an item, and reports what it has
    // replaced.
    allocates_at_most(6, "GET", PartsPerMillion(1_000_000));
    allocates_at_most(18, "PUT", PartsPerMillion(0));
    for way in WAYS {
        allocates_nothing::<xenic::Node>(&format!("{way:?}"), &way.config());
    }
    for system in rdma_occ::SYSTEMS {
        let config = RdmaOccConfig::named(system, RECORDS, 8).unwrap();
        allocates_nothing::<rdma_occ::Node>(system, &config);
    }
}
