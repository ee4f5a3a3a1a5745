//! Values whose lengths change on a memory that is nearly full: what finds no space aborts, and
//! whatever commits is stored everywhere.

use std::sync::Arc;

use nicol_commit::rdma_occ::{self, RdmaOccConfig};
use nicol_commit::xenic::{self, CombinedOps, ExecuteAt, XenicConfig};
use nicol_core::commit::CommitNode;
use nicol_core::faults::FaultPlan;
use nicol_core::ids::{Key, NodeId, ShardId, TableId};
use nicol_core::records::{RecordSource, Records};
use nicol_core::rng::Stream;
use nicol_core::txn::{Abort, ProcedureId, Procedures, Txn, Verdict};
use nicol_core::units::{Bytes, Nanos};
use nicol_core::view::ShardMap;
use nicol_core::workload::Workload;
use nicol_store::host_table::Growth;

use crate::cluster::{NODES, RUN, Run, run};

const ROWS: u64 = 90;
/// Clients of a node.
const CLIENTS: u32 = 8;
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

/// Runs the workload, judges it, and returns commits and aborts for want of space.
fn fill<N: CommitNode>(config: &N::Config, seed: u64, faults: bool) -> (u64, u64) {
    let clients = u64::from(NODES) * u64::from(CLIENTS);
    let how = Run {
        on: "connectx5",
        clients_per_node: CLIENTS,
        transactions: 80 * clients,
        faults: if faults { FaultPlan::messages(seed) } else { FaultPlan::none() },
        ..RUN
    };
    let ran = run::<N>(&how, config, Arc::new(Sizes), seed);
    assert!(
        ran.held(),
        "seed {seed}: {} leaked, {:#?} {:#?}",
        ran.leaked,
        ran.anomalies,
        ran.wrong
    );
    (ran.counts.committed, ran.counts.aborts[Abort::NoResources.index()])
}

#[test]
fn values_without_space_abort_under_every_baseline() {
    for system in rdma_occ::SYSTEMS {
        let (mut committed, mut full) = (0, 0);
        for seed in 0..6 {
            let mut config = RdmaOccConfig::named(system, ROWS, INLINE).unwrap();
            // Only what the workload asks for.
            config.table.heap = Bytes(0);
            let faults = seed >= 3;
            if faults {
                config.timeout = Nanos::from_micros(500);
            }
            let (commits, aborts) = fill::<rdma_occ::Node>(&config, seed, faults);
            (committed, full) = (committed + commits, full + aborts);
        }
        assert!(committed > 5_000 && full > 100, "{system}: {committed} committed, {full} aborted");
    }
}

/// The ways of xenic that execute a transaction elsewhere, or check it otherwise.
fn ways(paper: &XenicConfig) -> Vec<XenicConfig> {
    let (host, nic) = (ExecuteAt::Host, ExecuteAt::Nic);
    vec![
        paper.clone(),
        XenicConfig { execute_at: host, ..paper.clone() },
        XenicConfig { execute_at: host, local_paths: false, ..paper.clone() },
        XenicConfig { execute_at: nic, multi_hop: false, ..paper.clone() },
    ]
}

#[test]
fn values_without_space_abort_on_every_path_of_xenic() {
    // The slots, the slab of the initial values, and two or three more.
    let growth = Growth::Doubling { memory_max: Bytes(5 << 16) };
    let paper = XenicConfig { growth, ..XenicConfig::paper(ROWS, INLINE) };
    let mut ways = ways(&paper);
    ways.extend([CombinedOps::Keys, CombinedOps::None].map(|combined_ops| XenicConfig {
        combined_ops,
        multi_hop: false,
        ..paper.clone()
    }));
    for (way, config) in ways.iter().enumerate() {
        let (mut committed, mut full) = (0, 0);
        for seed in 0..4 {
            let (commits, aborts) = fill::<xenic::Node>(config, seed, seed >= 2);
            (committed, full) = (committed + commits, full + aborts);
        }
        assert!(
            committed > 3_000 && full > 100,
            "way {way}: {committed} committed, {full} aborted"
        );
    }
}

/// Of as many rows as there are again: writes what is there, and deletes what is not.
struct Absent;

impl RecordSource for Absent {
    fn load(&self, shards: &dyn ShardMap, shard: ShardId, each: &mut dyn FnMut(Key, &[u8])) {
        Sizes.load(shards, shard, each);
    }

    fn records_per_shard(&self) -> u64 {
        // Fewer than each shard is loaded with.
        ROWS / 9
    }
}

impl Workload for Absent {
    fn name(&self) -> &'static str {
        "absent"
    }

    fn procedures(&self) -> Procedures {
        Procedures::new(&[|txn| {
            for index in 0..txn.entries().len() {
                let entry = txn.entries()[index];
                match entry.present {
                    true => txn.put(index, &value_of(entry.key, 100)),
                    false => txn.delete(index),
                }
            }
            Verdict::Commit
        }])
    }

    fn next(&self, _home: NodeId, random: &mut Stream, txn: &mut Txn) -> usize {
        txn.reset(ProcedureId(0), &[]);
        txn.ship = random.below(2) == 0;
        for _ in 0..=random.below(3) {
            txn.write(Key::new(TableId(1), random.below(2 * ROWS)));
        }
        0
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["absent"]
    }

    fn audit(&self, _state: &mut dyn Records, _totals: &[i128]) -> Vec<String> {
        Vec::new()
    }
}

#[test]
fn a_full_store_deletes_what_is_absent_on_every_path_of_xenic() {
    let paper = XenicConfig { growth: Growth::Off, ..XenicConfig::paper(ROWS, 128) };
    let mut ways = ways(&paper);
    ways.push(XenicConfig { execute_at: ExecuteAt::Nic, ..paper });
    for (way, config) in ways.iter().enumerate() {
        let how = Run { on: "connectx5", clients_per_node: 2, transactions: 600, ..RUN };
        let ran = run::<xenic::Node>(&how, config, Arc::new(Absent), way as u64);
        assert!(ran.held(), "way {way}: {:#?} {:#?}", ran.anomalies, ran.wrong);
        let full = ran.counts.aborts[Abort::NoResources.index()];
        let committed = ran.counts.committed;
        assert!(full == 0 && committed >= 600, "way {way}: {committed} committed, {full} aborted");
    }
}
