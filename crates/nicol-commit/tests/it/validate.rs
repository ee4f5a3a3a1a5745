//! VALIDATE while a writer of what was read commits: every frame arrives when the test says.

use std::sync::{Arc, Mutex};

use nicol_commit::xenic::{Node, XenicConfig};
use nicol_core::commit::{CommitNode, CommitProtocol};
use nicol_core::engine::Start;
use nicol_core::fabric::Fabric;
use nicol_core::ids::{EngineId, Key, NodeId, ShardId, TableId};
use nicol_core::records::RecordSource;
use nicol_core::system::{Sequential, load_nodes};
use nicol_core::txn::{Outcome, ProcedureId, Procedures, Txn, Verdict};
use nicol_core::units::Nanos;
use nicol_core::view::{ShardMap, View};
use nicol_sim::{Profile, SimCluster, SimConfig};
use nicol_store::host_table::SlotHash;

/// Kinds of messages between NICs.
const EXECUTE: u16 = 10;
const VALIDATE: u16 = 11;
const COMMIT: u16 = 13;
const REPLY: u16 = 0;

const ROWS: u64 = 600;
/// Segments of the smallest table.
const SEGMENTS: u64 = 64;
/// Longer than anything takes that no frame holds up.
const WHILE: Nanos = Nanos::from_micros(20);
const READER: NodeId = NodeId(0);
const WRITER: NodeId = NodeId(3);

struct Rows;

impl RecordSource for Rows {
    fn load(&self, shards: &dyn ShardMap, shard: ShardId, each: &mut dyn FnMut(Key, &[u8])) {
        let keys = (0..ROWS).map(|row| Key::new(TableId(1), row));
        keys.filter(|key| shards.shard_of(*key) == shard).for_each(|key| each(key, b"old"));
    }

    fn records_per_shard(&self) -> u64 {
        ROWS
    }
}

fn renew(txn: &mut Txn) -> Verdict {
    for index in 0..txn.entries().len() {
        if txn.entries()[index].write {
            txn.put(index, b"new");
        }
    }
    Verdict::Commit
}

/// Two keys of one primary that share a segment of its table, and one of another primary.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    written: Key,
    beside: Key,
    elsewhere: Key,
}

impl Wanted {
    fn of(view: &View) -> Self {
        let at = |shard| {
            let keys = (0..ROWS).map(|row| Key::new(TableId(1), row));
            keys.filter(move |key| view.shard_of(*key) == ShardId(shard))
        };
        let written = at(1).next().unwrap();
        let segment = |key| SlotHash::of(key).base_segment(SEGMENTS);
        let beside = at(1).skip(1).find(|key| segment(*key) == segment(written)).unwrap();
        Self { written, beside, elsewhere: at(2).next().unwrap() }
    }
}

type Ended = Arc<Mutex<Vec<(NodeId, Outcome, Txn)>>>;

struct Two {
    nodes: Vec<Arc<Node>>,
    wanted: Wanted,
    ended: Ended,
}

impl Start for Two {
    fn start<F: Fabric>(&self, fabric: &F) {
        let here = fabric.here();
        let procedures = Procedures::new(&[renew]);
        let started = self.nodes[here.node.index()].start(fabric, &procedures);
        let (Some(coordinator), READER | WRITER) = (started, here.node) else { return };
        let (wanted, ended) = (self.wanted, self.ended.clone());
        fabric.spawn(async move {
            let mut txn = Txn::default();
            txn.reset(ProcedureId(0), &[]);
            if here.node == READER {
                for key in [wanted.written, wanted.beside, wanted.elsewhere] {
                    txn.read(key);
                }
            } else {
                txn.write(wanted.written);
                txn.write(wanted.elsewhere);
            }
            let outcome = coordinator.run(&mut txn).await;
            ended.lock().unwrap().push((here.node, outcome, txn));
        });
    }
}

/// A cluster whose frames wait.
struct Stepped(SimCluster);

impl Stepped {
    fn go_on(&self, time: Nanos) {
        self.0.run_until(&mut |_| false, self.0.now() + time);
    }

    /// Lets the next message of this kind arrive, and what follows from it.
    fn pass(&self, from: u16, to: u16, kind: u16) {
        self.pass_for(from, to, kind, WHILE);
    }

    fn pass_for(&self, from: u16, to: u16, kind: u16, time: Nanos) {
        let nic = |node| EngineId::nic(NodeId(node), 0);
        let held = self.0.held();
        let meant = |frame: &&nicol_sim::Held| {
            (frame.from, frame.to, frame.kind) == (nic(from), nic(to), kind)
        };
        let Some(frame) = held.iter().find(meant) else {
            panic!("no message {kind} from {from} to {to}: {held:?}");
        };
        self.0.release(*frame, false);
        self.go_on(time);
    }

    /// A request and its answer.
    fn ask(&self, from: u16, to: u16, kind: u16) {
        self.pass(from, to, kind);
        self.pass(to, from, REPLY);
    }
}

/// What a reader sees of two records of one transaction, if it commits: one is written while the
/// reader's VALIDATE of it and of a key that the index does not know has been under way so long.
fn read_beside_commit(after: Nanos) -> Option<[Vec<u8>; 2]> {
    let view = View::new(4, 1, 1, 1).unwrap();
    let config = XenicConfig {
        // One object for each segment: no two keys of a segment are known at a time.
        index_objects: 1,
        warm_index: false,
        slots_percent: 1,
        ..XenicConfig::paper(ROWS, 8)
    };
    let (wanted, ended) = (Wanted::of(&view), Ended::default());
    let nodes: Vec<Arc<Node>> = load_nodes(&view, &config, &Rows, &Sequential).unwrap();
    let segments = |node: &Arc<Node>| node.only_table().map(|(table, _)| table.segments());
    assert!(nodes.iter().all(|node| segments(node) == Some(SEGMENTS)));
    let profile = Arc::new(Profile::load("liquidio3").unwrap());
    let mut sim = SimConfig::new(view.clone(), profile, 1);
    sim.holds_frames = true;
    let world = Stepped(SimCluster::new(sim));
    world.0.start(Arc::new(Two { nodes, wanted, ended: ended.clone() }));
    world.go_on(WHILE);
    let (reader, writer) = (READER.0, WRITER.0);
    // The reader has read both keys of one primary before anything is written,
    world.ask(reader, 1, EXECUTE);
    // the writer commits, at first at the other primary only,
    world.ask(writer, 1, EXECUTE);
    world.ask(writer, 2, EXECUTE);
    world.pass(writer, 2, COMMIT);
    // where the reader sees it.
    world.ask(reader, 2, EXECUTE);
    world.ask(reader, 2, VALIDATE);
    world.pass_for(reader, 1, VALIDATE, after);
    world.pass(writer, 1, COMMIT);
    world.pass(1, reader, REPLY);
    let ended = ended.lock().unwrap();
    let (_, outcome, txn) = ended.iter().find(|(node, ..)| *node == READER).unwrap();
    let value = |key| txn.value(txn.find(key).unwrap()).unwrap().to_vec();
    (*outcome == Outcome::Committed).then(|| [wanted.written, wanted.elsewhere].map(value))
}

#[test]
fn what_was_locked_when_validation_began_is_not_current() {
    for after in (0..4_000).step_by(50) {
        let seen = read_beside_commit(Nanos(after));
        assert_eq!(seen, None, "{after} ns after its VALIDATE: half of a transaction");
    }
}
