//! What a backup remembers of deletions.

use nicol_core::commit::{CommitNode, CommitProtocol};
use nicol_core::engine::Start;
use nicol_core::ids::TableId;
use nicol_core::records::RecordSource;
use nicol_core::system::{Sequential, load_nodes};
use nicol_core::txn::{Outcome, ProcedureId, Procedures, Txn, Verdict};
use nicol_core::units::Nanos;
use nicol_core::view::SideState;
use nicol_sim::{Profile, RunEnd, SimCluster, SimConfig};
use nicol_store::host_table::Applied;

use super::*;

/// Clients, and records that each of them deletes.
const CLIENTS: u64 = 4;
const DELETIONS: u64 = 2 * FORGET_EVERY;

struct Rows;

fn key(row: u64) -> Key {
    Key::new(TableId(1), row)
}

impl RecordSource for Rows {
    fn load(&self, shards: &dyn ShardMap, shard: ShardId, each: &mut dyn FnMut(Key, &[u8])) {
        let keys = (0..CLIENTS * DELETIONS).map(key);
        keys.filter(|key| shards.shard_of(*key) == shard).for_each(|key| each(key, b"there"));
    }

    fn records_per_shard(&self) -> u64 {
        CLIENTS * DELETIONS
    }
}

fn delete(txn: &mut Txn) -> Verdict {
    txn.delete(0);
    Verdict::Commit
}

/// Clients of one node that delete one record after the other.
struct Deleting {
    nodes: Vec<Arc<Node>>,
    deleted: Arc<AtomicU64>,
}

impl Start for Deleting {
    fn start<F: Fabric>(&self, fabric: &F) {
        let here = fabric.here();
        let procedures = Procedures::new(&[delete]);
        let started = self.nodes[here.node.index()].start(fabric, &procedures);
        let (Some(coordinator), NodeId(0)) = (started, here.node) else { return };
        for client in 0..CLIENTS {
            let (coordinator, deleted) = (coordinator.clone(), self.deleted.clone());
            fabric.spawn(async move {
                let mut txn = Txn::default();
                for row in 0..DELETIONS {
                    txn.reset(ProcedureId(0), &[]);
                    txn.write(key(client * DELETIONS + row));
                    assert_eq!(coordinator.run(&mut txn).await, Outcome::Committed);
                    deleted.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    }
}

/// Deletions that the backup of a shard remembers of those that every client made first.
fn remembered(config: &RdmaOccConfig) -> usize {
    let view = View::new(2, 2, 1, 1).unwrap();
    let nodes = load_nodes::<Node>(&view, config, &Rows, &Sequential).unwrap();
    let deleted = Arc::new(AtomicU64::new(0));
    let profile = Arc::new(Profile::load("connectx5").unwrap());
    let cluster = SimCluster::new(SimConfig::new(view.clone(), profile, 1));
    cluster.start(Arc::new(Deleting { nodes: nodes.clone(), deleted: deleted.clone() }));
    let done = || deleted.load(Ordering::Relaxed) == CLIENTS * DELETIONS;
    assert_eq!(cluster.run_until(&mut |_| done(), Nanos::from_secs(5)), RunEnd::Done);
    let shard = ShardId(0);
    let backup = nodes[1].backup(shard).unwrap();
    let first = (0..CLIENTS).flat_map(|client| (0..9).map(move |row| client * DELETIONS + row));
    let theirs = first.map(key).filter(|key| view.shard_of(*key) == shard);
    // At the version at which it was deleted: it counts as older while that is known.
    let is_known =
        |key: &Key| backup.tables.of(*key).apply(*key, Version(2), Some(b"x")) == Applied::Skipped;
    theirs.filter(is_known).count()
}

#[test]
fn a_backup_forgets_deletions_whoever_frees_its_log() {
    for system in ["fasst", "farm"] {
        for log_acks in [false, true] {
            let config = RdmaOccConfig::named(system, CLIENTS * DELETIONS, 8).unwrap();
            let left = remembered(&RdmaOccConfig { log_acks, ..config });
            assert_eq!(left, 0, "{system}, log_acks: {log_acks}");
        }
    }
}

#[test]
fn a_record_that_a_dead_coordinator_left_torn_keeps_no_deletion() {
    let view = View::new(3, 3, 1, 1).unwrap();
    let config = RdmaOccConfig::drtm_h(CLIENTS * DELETIONS, 8);
    let nodes = load_nodes::<Node>(&view, &config, &Rows, &Sequential).unwrap();
    let (node, shard) = (&nodes[1], ShardId(2));
    let Some(deleted) = (0..).map(key).find(|key| view.shard_of(*key) == shard) else { return };
    let apply = |value| {
        let backup = node.backup(shard).unwrap();
        backup.tables.of(deleted).apply(deleted, Version(2), value)
    };
    assert_eq!(apply(None), Applied::Changed);
    let torn = node.log_of(EngineId::host(NodeId(0), 0));
    torn.region().store(0, 1).unwrap();
    (0..3).for_each(|_| node.applied(FORGET_EVERY));
    assert_eq!(apply(Some(b"x")), Applied::Skipped, "its record may still be whole");
    let incarnation = nicol_core::ids::Incarnation::FIRST.next();
    let dead = SideState { up: false, incarnation };
    node.lost().learn(&view.with_side(NodeId(0), Side::Host, dead));
    (0..3).for_each(|_| node.applied(FORGET_EVERY));
    assert_eq!(apply(Some(b"x")), Applied::Changed, "nothing older can come");
}
