//! Values whose lengths change on a memory that is nearly full: what finds no space aborts, and
//! whatever commits is stored everywhere.

use std::collections::BTreeMap;
use std::sync::Arc;

use nicol_check::serializability;
use nicol_core::commit::CommitNode;
use nicol_core::engine::Start;
use nicol_core::fabric::Fabric;
use nicol_core::faults::FaultPlan;
use nicol_core::history::Promise;
use nicol_core::ids::{Key, NodeId, ShardId, TableId};
use nicol_core::records::{RecordSource, Records};
use nicol_core::rng::Stream;
use nicol_core::system::{Sequential, load_nodes};
use nicol_core::txn::{Abort, ProcedureId, Procedures, Txn, Verdict};
use nicol_core::units::{Bytes, Nanos};
use nicol_core::view::{ShardMap, View};
use nicol_core::workload::Workload;
use nicol_protocols::commit::rdma_occ::{self, RdmaOccConfig};
use nicol_protocols::commit::xenic::{self, ExecuteAt, XenicConfig};
use nicol_sim::{Profile, RunEnd, SimCluster, SimConfig};
use nicol_store::host_table::Growth;
use nicol_workload::driver::{Load, RETRY, RunControl, RunPlan, history, spawn_clients};

const NODES: u16 = 3;
const ROWS: u64 = 90;
const CLIENTS: u32 = 4;
/// Bytes of a value that stand in a slot.
const INLINE: usize = 64;
const LONGEST: u64 = 4_000;

/// Writes of values of any length, deletions and reads of one to three rows.
struct Sizes;

fn all_keys() -> impl Iterator<Item = Key> {
    (0..ROWS).map(|row| Key::new(TableId(1), row))
}

/// A value names its key at its beginning and its length in every other byte.
fn value_of(key: Key, len: usize) -> Vec<u8> {
    let mut value = vec![len as u8; len.max(8)];
    value[..8].copy_from_slice(&key.0.to_le_bytes());
    value
}

fn belongs(key: Key, value: &[u8]) -> bool {
    value == value_of(key, value.len())
}

fn execute(txn: &mut Txn) -> Verdict {
    let args = txn.args().to_vec();
    for index in 0..txn.entries().len() {
        let key = txn.entries()[index].key;
        assert!(txn.value(index).is_none_or(|value| belongs(key, value)), "{key:?} is whole");
        if !txn.entries()[index].write {
            continue;
        }
        match u16::from_le_bytes([args[2 * index], args[2 * index + 1]]) {
            0 => txn.delete(index),
            len => txn.put(index, &value_of(key, usize::from(len))),
        }
    }
    Verdict::Commit
}

impl RecordSource for Sizes {
    fn load(&self, shards: &dyn ShardMap, shard: ShardId, each: &mut dyn FnMut(Key, &[u8])) {
        let theirs = |key: &Key| shards.shard_of(*key) == shard;
        all_keys().filter(theirs).for_each(|key| each(key, &value_of(key, 100)));
    }

    fn records_per_shard(&self) -> u64 {
        ROWS
    }

    fn value_lengths(&self) -> Vec<(u32, u64)> {
        // Space for a third of what comes: values of 800 bytes on average.
        vec![(200, ROWS / u64::from(NODES))]
    }
}

impl Workload for Sizes {
    fn name(&self) -> &'static str {
        "sizes"
    }

    fn procedures(&self) -> Procedures {
        Procedures::new(&[execute])
    }

    fn next(&self, _home: NodeId, random: &mut Stream, txn: &mut Txn) -> usize {
        let mut args = Vec::new();
        for _ in 0..3 {
            let len = match random.below(8) {
                0 => 0,
                1 => 8 + random.below(INLINE as u64 - 8),
                2 | 3 => 8 + random.below(LONGEST),
                _ => 8 + random.below(300),
            };
            args.extend_from_slice(&(len as u16).to_le_bytes());
        }
        txn.reset(ProcedureId(0), &args);
        txn.ship = random.below(2) == 0;
        for _ in 0..=random.below(3) {
            let key = Key::new(TableId(1), random.below(ROWS));
            if random.below(4) == 0 {
                txn.read(key);
            } else {
                txn.write(key);
            }
        }
        0
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["sizes"]
    }

    fn audit(&self, state: &mut dyn Records, _totals: &[i128]) -> Vec<String> {
        let mut lines = Vec::new();
        state.for_each(&mut |key, value| {
            if !belongs(key, value) {
                lines.push(format!("{key:?} holds something else"));
            }
        });
        lines
    }
}

struct Cluster<N> {
    nodes: Vec<Arc<N>>,
    workload: Arc<dyn Workload>,
    procedures: Procedures,
    run: Arc<RunControl>,
}

impl<N: CommitNode> Start for Cluster<N> {
    fn start<F: Fabric>(&self, fabric: &F) {
        let here = fabric.here();
        let node = &self.nodes[usize::from(here.node.0)];
        if let Some(coordinator) = node.start(fabric, &self.procedures) {
            let first = (u32::from(here.node.0) * 2 + u32::from(here.core)) * CLIENTS;
            spawn_clients(fabric, &coordinator, &self.workload, &self.run, first, CLIENTS);
        }
    }
}

/// Runs the workload, judges it, and returns commits and aborts for want of space.
fn run<N: CommitNode>(config: &N::Config, seed: u64, faults: bool) -> (u64, u64) {
    let view = View::new(usize::from(NODES), usize::from(NODES), 2, 1).unwrap();
    let workload: Arc<dyn Workload> = Arc::new(Sizes);
    let plan = RunPlan {
        seed,
        clients: u32::from(NODES) * 2 * CLIENTS,
        begin: Nanos::ZERO,
        warmup_until: Nanos::ZERO,
        stop_at: Nanos::MAX,
        operations_per_client: Some(80),
        load: Load::Closed,
        retry: RETRY,
        record: true,
        history_max: 1 << 20,
    };
    let cluster = Arc::new(Cluster {
        nodes: load_nodes::<N>(&view, config, &*workload, &Sequential),
        procedures: workload.procedures(),
        run: RunControl::new(plan, workload.kinds()),
        workload,
    });
    let profile = Arc::new(Profile::load("connectx5").unwrap());
    let mut sim = SimConfig::new(view.clone(), profile, seed);
    if faults {
        sim.faults = FaultPlan::messages(seed);
    }
    let world = SimCluster::new(sim);
    world.start(&cluster);
    let ran = world.run_until(&mut |_| cluster.run.finished(), Nanos::from_secs(600));
    assert_eq!(ran, RunEnd::Done);
    let limit = world.now().saturating_add(Nanos::from_secs(10));
    world.run_until(&mut |_| cluster.nodes.iter().all(|node| node.is_settled()), limit);
    assert!(world.settle(limit) != RunEnd::Limit, "work is stuck");
    let mut digests = BTreeMap::new();
    for node in &cluster.nodes {
        node.check();
        let audit = node.audit();
        assert_eq!(audit.leaks.iter().map(|(_, count)| count).sum::<u64>(), 0);
        for (shard, digest) in audit.digests {
            assert_eq!(*digests.entry(shard).or_insert(digest), digest, "{shard:?} diverges");
        }
        node.for_each(&mut |key, value| assert!(belongs(key, value), "{key:?} is whole"));
    }
    let mut result = cluster.run.result();
    let operations = std::mem::take(&mut result.history);
    let judged =
        serializability::check(&history(Promise::default(), operations, &*cluster.workload, &view));
    assert!(judged.held(), "{judged:#?}");
    let aborts = Abort::NAMES.iter().zip(result.whole.aborts);
    let full = aborts.filter(|(name, _)| **name == "no_resources").map(|(_, count)| count).sum();
    (result.whole.committed, full)
}

#[test]
fn values_without_space_abort_under_every_baseline() {
    for system in rdma_occ::SYSTEMS {
        let (mut committed, mut full) = (0, 0);
        for seed in 0..6 {
            let mut config = RdmaOccConfig::named(system, ROWS, INLINE).unwrap();
            let faults = seed >= 3;
            if faults {
                config.timeout = Nanos::from_micros(500);
            }
            let (commits, aborts) = run::<rdma_occ::Node>(&config, seed, faults);
            (committed, full) = (committed + commits, full + aborts);
        }
        assert!(committed > 5_000 && full > 100, "{system}: {committed} committed, {full} aborted");
    }
}

#[test]
fn values_without_space_abort_on_every_path_of_xenic() {
    // The initial values' blocks, and those of one size more.
    let growth = Growth::Doubling { memory_max: Bytes(3 << 19) };
    let paper = XenicConfig { growth, ..XenicConfig::paper(ROWS, INLINE) };
    let (host, nic) = (ExecuteAt::Host, ExecuteAt::Nic);
    let ways = [
        paper.clone(),
        XenicConfig { execute_at: host, ..paper.clone() },
        XenicConfig { execute_at: host, local_paths: false, ..paper.clone() },
        XenicConfig { execute_at: nic, multi_hop: false, ..paper.clone() },
        XenicConfig { combined_ops: false, multi_hop: false, ..paper.clone() },
    ];
    for (way, config) in ways.iter().enumerate() {
        let (mut committed, mut full) = (0, 0);
        for seed in 0..4 {
            let (commits, aborts) = run::<xenic::Node>(config, seed, seed >= 2);
            (committed, full) = (committed + commits, full + aborts);
        }
        assert!(
            committed > 3_000 && full > 100,
            "way {way}: {committed} committed, {full} aborted"
        );
    }
}
