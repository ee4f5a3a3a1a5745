//! Requests by hand, with `recovery=prepared`. In the name of a coordinator whose life is over, as
//! a third node may send them on its behalf, or as they wait somewhere while it dies: nobody serves
//! them once a view has said so. And LOGs, which nobody applies before they are decided.

use std::sync::{Arc, Mutex};

use nicol_commit::Sabotage;
use nicol_commit::xenic::{Node, Recovery, XenicConfig};
use nicol_core::commit::CommitNode;
use nicol_core::engine::{Loss, Start};
use nicol_core::fabric::{Fabric, FabricError, Message, Timeout};
use nicol_core::ids::{EngineId, Epoch, Incarnation, Key, NodeId, ShardId, TableId, TxnId};
use nicol_core::records::RecordSource;
use nicol_core::system::{NodeState, Sequential, load_nodes};
use nicol_core::txn::Procedures;
use nicol_core::units::Nanos;
use nicol_core::view::{Halves, ShardMap, View};
use nicol_core::wire::Writer;
use nicol_sim::{Profile, RunEnd, SimCluster, SimConfig};

const EXECUTE: u16 = 10;
const LOG: u16 = 12;
const ABORT: u16 = 14;
const DECIDED: u16 = 19;

const ROWS: u64 = 60;
const ASKER: EngineId = EngineId::nic(NodeId(0), 0);
const DEAD: NodeId = NodeId(1);
/// Primary of its own shard, and backup of that of the dead.
const SERVER: EngineId = EngineId::nic(NodeId(2), 0);

struct Rows;

impl RecordSource for Rows {
    fn load(&self, shards: &dyn ShardMap, shard: ShardId, each: &mut dyn FnMut(Key, &[u8])) {
        keys_of(shards, shard).for_each(|key| each(key, b"old"));
    }

    fn records_per_shard(&self) -> u64 {
        ROWS
    }
}

fn keys_of(shards: &dyn ShardMap, shard: ShardId) -> impl Iterator<Item = Key> {
    let keys = (0..ROWS).map(|row| Key::new(TableId(1), row));
    keys.filter(move |key| shards.shard_of(*key) == shard)
}

/// A request of this kind, as its bytes.
struct Raw<const KIND: u16>(Vec<u8>);

impl<const KIND: u16> Message for Raw<KIND> {
    const KIND: u16 = KIND;

    fn emit(&self, to: &mut Writer<'_>) {
        to.bytes(&self.0);
    }
}

/// `txn` writes `key`: an EXECUTE or, without an epoch, an ABORT.
fn names_key<const KIND: u16>(txn: TxnId, began: Option<Epoch>, key: Key) -> Raw<KIND> {
    let mut body = Vec::new();
    let mut to = Writer::new(&mut body);
    to.u64(txn.0);
    to.u16(1 | u16::from(began.is_some()) << 15);
    if let Some(Epoch(epoch)) = began {
        to.u32(epoch);
    }
    to.u64(key.0);
    to.u8(1);
    Raw(body)
}

/// `txn` sets `key`, of `shard`, the only one that it updates.
fn log(txn: TxnId, began: Epoch, shard: ShardId, key: Key) -> Raw<LOG> {
    let mut body = Vec::new();
    let mut to = Writer::new(&mut body);
    to.u64(txn.0);
    to.u32(1 << 31 | 1 << 23 | 1 << 12 | u32::from(shard.0));
    to.u32(began.0);
    to.u16(shard.0);
    to.u64(key.0);
    to.u64(1_000);
    to.u32(3);
    to.bytes(b"new");
    Raw(body)
}

/// What one request came to: granted or not, or an error.
type Answers = Arc<Mutex<Vec<Result<bool, FabricError>>>>;

/// What one engine does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Script {
    /// It asks in the name of the living and, once a view leaves it out, of the dead.
    Late,
    /// It logs, and decides later.
    Undecided,
}

struct Late {
    script: Script,
    nodes: Vec<Arc<Node>>,
    view: View,
    answers: Answers,
}

impl Start for Late {
    fn start<F: Fabric>(&self, fabric: &F) {
        let _coordinator =
            self.nodes[fabric.here().node.index()].start(fabric, &Procedures::new(&[]));
        if fabric.here() == ASKER {
            let (fabric, answers, view) = (fabric.clone(), self.answers.clone(), self.view.clone());
            match self.script {
                Script::Late => fabric.clone().spawn(ask(fabric, view, answers)),
                Script::Undecided => fabric.clone().spawn(decide_later(fabric, view, answers)),
            }
        }
    }

    fn crashed(&self, loss: &Loss) {
        self.nodes[loss.node.index()].crashed(loss);
    }
}

/// Asks in the name of the living and of the dead.
async fn ask<F: Fabric>(fabric: F, view: View, answers: Answers) {
    let txn = |node| TxnId::new(EngineId::host(node, 0), Incarnation::FIRST, 1);
    let own = keys_of(&view, ShardId(SERVER.node.0)).next().unwrap();
    let backed_up = keys_of(&view, ShardId(DEAD.0)).next().unwrap();
    while fabric.view().epoch() == Epoch::FIRST {
        fabric.sleep_until(fabric.now() + Nanos::from_micros(100)).await;
    }
    // Everybody knows by then.
    fabric.sleep_until(fabric.now() + Nanos::from_millis(5)).await;
    for coordinator in [ASKER.node, DEAD] {
        let (txn, began) = (txn(coordinator), Epoch::FIRST);
        let execute = names_key::<EXECUTE>(txn, Some(began), own);
        let reply = fabric.call(SERVER, &execute, Timeout::Never).await;
        let granted = reply.map(|body| body.as_ref()[0] == 0);
        answers.lock().unwrap().push(granted);
        if granted == Ok(true) && coordinator == ASKER.node {
            let abort = names_key::<ABORT>(txn, None, own);
            fabric.call(SERVER, &abort, Timeout::Never).await.unwrap();
        }
        let log = log(txn, began, ShardId(DEAD.0), backed_up);
        let reply = fabric.call(SERVER, &log, Timeout::Never).await;
        answers.lock().unwrap().push(reply.map(|_| true));
    }
}

/// `txn` has ended.
fn decided(txn: TxnId, commits: bool) -> Raw<DECIDED> {
    let mut body = Vec::new();
    let mut to = Writer::new(&mut body);
    to.u16(1);
    to.u64(txn.0);
    to.u8(u8::from(commits));
    Raw(body)
}

/// Two transactions log a key each; after 200 us the first commits, and the second aborts.
async fn decide_later<F: Fabric>(fabric: F, view: View, answers: Answers) {
    let keys: Vec<Key> = keys_of(&view, ShardId(DEAD.0)).take(2).collect();
    let txn =
        |number| TxnId::new(EngineId::host(ASKER.node, 0), Incarnation::FIRST, number as u64 + 1);
    for (number, &key) in keys.iter().enumerate() {
        let log = log(txn(number), Epoch::FIRST, ShardId(DEAD.0), key);
        let reply = fabric.call(SERVER, &log, Timeout::Never).await;
        answers.lock().unwrap().push(reply.map(|_| true));
    }
    fabric.sleep_until(fabric.now() + Nanos::from_micros(200)).await;
    for number in 0..2 {
        let reply = fabric.call(SERVER, &decided(txn(number), number == 0), Timeout::Never).await;
        answers.lock().unwrap().push(reply.map(|_| true));
    }
}

/// A cluster in which one engine follows `script`.
fn cluster(sabotage: Sabotage, script: Script) -> (SimCluster, Vec<Arc<Node>>, Answers) {
    let view = View::new(3, 2, 1, 1).unwrap().with_halves(Halves::Together);
    let recovery = Recovery::Prepared;
    let config = XenicConfig { recovery, sabotage, ..XenicConfig::paper(ROWS, 8) };
    let nodes = load_nodes::<Node>(&view, &config, &Rows, &Sequential).unwrap();
    let mut sim = SimConfig::new(view.clone(), Arc::new(Profile::load("liquidio3").unwrap()), 1);
    sim.view_service = true;
    let world = SimCluster::new(sim);
    let told = Answers::default();
    let answers = told.clone();
    world.start(Arc::new(Late { script, nodes: nodes.clone(), view, answers }));
    (world, nodes, told)
}

/// The answers to EXECUTE and LOG of the living, then of the dead, and how many keys stay locked.
fn answers(sabotage: Sabotage) -> (Vec<Result<bool, FabricError>>, usize) {
    let (world, nodes, told) = cluster(sabotage, Script::Late);
    world.crash(Loss { node: DEAD, host: true, nic: true });
    let done = || told.lock().unwrap().len() == 4;
    assert_eq!(world.run_until(&mut |_| done(), Nanos::from_millis(100)), RunEnd::Done);
    let audit = nodes[SERVER.node.index()].audit();
    let locks = audit.awaiting_recovery.iter().find(|(name, _)| *name == "locks");
    let locked = locks.map_or(0, |(_, locked)| *locked as usize);
    let answers = told.lock().unwrap().clone();
    (answers, locked)
}

#[test]
fn a_coordinator_whose_life_is_over_locks_and_logs_nothing() {
    let (told, locked) = answers(Sabotage::None);
    let [execute, log, of_dead, log_of_dead] = told[..] else { panic!("{told:?}") };
    assert_eq!((execute, log), (Ok(true), Ok(true)), "who lives is served");
    assert_eq!(of_dead, Ok(false));
    assert_eq!(log_of_dead, Err(FabricError::Unreachable));
    assert_eq!(locked, 0);
}

#[test]
fn a_fault_that_serves_it_leaves_a_lock_for_ever() {
    let (told, locked) = answers(Sabotage::TakesOverruled);
    assert_eq!((&told[..], locked), (&[Ok(true); 4][..], 1));
}

/// How many records of the shard that it backs up the server has with a new value: before anything
/// was decided, and at the end.
fn applied(sabotage: Sabotage) -> (usize, usize) {
    let (world, nodes, told) = cluster(sabotage, Script::Undecided);
    let server = &nodes[SERVER.node.index()];
    let new = || {
        let mut new = 0;
        server.for_each_of(ShardId(DEAD.0), &mut |_, _, value| new += usize::from(value == b"new"));
        new
    };
    let done = |count| told.lock().unwrap().len() == count;
    assert_eq!(world.run_until(&mut |_| done(2), Nanos::from_millis(1)), RunEnd::Done);
    world.run_until(&mut |_| false, world.now() + Nanos::from_micros(100));
    let (before, was_settled) = (new(), server.is_settled());
    assert_eq!(was_settled, sabotage != Sabotage::None, "records that are kept wait for somebody");
    assert_eq!(world.run_until(&mut |_| done(4), Nanos::from_millis(2)), RunEnd::Done);
    world.run_until(&mut |_| false, world.now() + Nanos::from_micros(100));
    assert!(server.is_settled() && told.lock().unwrap().iter().all(|told| *told == Ok(true)));
    (before, new())
}

#[test]
fn a_backup_applies_what_is_decided_and_drops_what_is_taken_back() {
    assert_eq!(applied(Sabotage::None), (0, 1));
    assert_eq!(applied(Sabotage::AppliesUndecided), (2, 2), "a fault that applies it at once");
}
