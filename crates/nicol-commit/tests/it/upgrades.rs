//! Transactions of many keys that they read and then write: each is locked in a further round.

use std::sync::Arc;

use nicol_commit::rdma_occ::{self, RdmaOccConfig};
use nicol_commit::xenic::{self, ExecuteAt, XenicConfig};
use nicol_core::commit::CommitNode;
use nicol_core::ids::{Key, NodeId, ShardId, TableId};
use nicol_core::records::{RecordSource, Records};
use nicol_core::rng::Stream;
use nicol_core::txn::{ProcedureId, Procedures, Txn, Verdict};
use nicol_core::view::ShardMap;
use nicol_core::workload::Workload;

use crate::cluster::{RUN, Run, run};

/// As many as locks and rounds make a test of a second. More keys are a store's own test.
const ROWS: u64 = 1_024;

/// Reads so many rows, then writes all of them.
struct Upgrades {
    keys: u64,
}

fn upgrade(txn: &mut Txn) -> Verdict {
    let reads: Vec<Key> =
        txn.entries().iter().filter(|entry| !entry.write).map(|entry| entry.key).collect();
    if !reads.is_empty() {
        reads.into_iter().for_each(|key| _ = txn.write(key));
        return Verdict::More;
    }
    (0..txn.entries().len()).for_each(|index| txn.put(index, b"new"));
    Verdict::Commit
}

impl RecordSource for Upgrades {
    fn load(&self, shards: &dyn ShardMap, shard: ShardId, each: &mut dyn FnMut(Key, &[u8])) {
        let keys = (0..ROWS).map(|row| Key::new(TableId(1), row));
        keys.filter(|key| shards.shard_of(*key) == shard).for_each(|key| each(key, b"old"));
    }

    fn records_per_shard(&self) -> u64 {
        ROWS
    }
}

impl Workload for Upgrades {
    fn name(&self) -> &'static str {
        "upgrades"
    }

    fn procedures(&self) -> Procedures {
        Procedures::new(&[upgrade])
    }

    fn next(&self, _home: NodeId, random: &mut Stream, txn: &mut Txn) -> usize {
        txn.reset(ProcedureId(0), &[]);
        txn.ship = random.below(2) == 0;
        (0..self.keys).for_each(|row| _ = txn.read(Key::new(TableId(1), row)));
        0
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["upgrade"]
    }

    fn audit(&self, _state: &mut dyn Records, _totals: &[i128]) -> Vec<String> {
        Vec::new()
    }
}

fn commits<N: CommitNode>(config: &N::Config, keys: u64) {
    let how = Run { engines: 1, clients_per_node: 1, transactions: 6, ..RUN };
    let ran = run::<N>(&how, config, Arc::new(Upgrades { keys }), keys);
    assert!(
        ran.held(),
        "{keys} keys: {} leaked, {:#?} {:#?}",
        ran.leaked,
        ran.anomalies,
        ran.wrong
    );
    assert_eq!(ran.counts.committed, 6, "{keys} keys: {:?}", ran.counts);
}

#[test]
fn a_thousand_keys_are_read_and_then_written() {
    for keys in [2, ROWS / 2, ROWS / 2 + 1, ROWS] {
        for execute_at in [ExecuteAt::Annotation, ExecuteAt::Host, ExecuteAt::Nic] {
            commits::<xenic::Node>(
                &XenicConfig { execute_at, ..XenicConfig::paper(ROWS, 8) },
                keys,
            );
        }
        for system in rdma_occ::SYSTEMS {
            commits::<rdma_occ::Node>(&RdmaOccConfig::named(system, ROWS, 8).unwrap(), keys);
        }
    }
}
