//! MINOS explored: every order in which the messages of concurrent writes to one record can arrive.
//!
//! A state is reached by replaying the shipped code from the start, in the simulated world, whose frames
//! wait on the wire until the exploration lets one arrive; a node then runs until it waits, in one order.
//! What a node does depends on nothing but the order of what has arrived at it: two ways to one such order
//! on every node lead to one state, and only one of them is followed. Acknowledgements that come one behind
//! the other commute: each only shortens a list of who is waited for. [MINOS24 VI, Table I, AMB-17]
//!
//! Explorations end after [`STATES`] states, or as many as NICOL_EXPLORE_STATES says.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};

use nicol_core::engine::{Loss, Revival, Start};
use nicol_core::fabric::Fabric;
use nicol_core::history::Persistency;
use nicol_core::ids::{Key, NodeId, ShardId};
use nicol_core::key_value::{KeyValue, KeyValueNode};
use nicol_core::records::RecordSource;
use nicol_core::system::{Sequential, SystemNode, load_nodes};
use nicol_core::units::Nanos;
use nicol_core::view::{ShardMap, View};
use nicol_protocols::minos::{Errata, Faithful, Metadata, MinosConfig, Node, Sabotage};
use nicol_sim::{Held, Profile, SimCluster, SimConfig};

const NODES: u16 = 3;
/// States of an exploration in the gate, at most.
const STATES: usize = 3_000;
/// The kinds of ACK, ACK_C and ACK_P.
const ACKS: RangeInclusive<u16> = 2..=4;
const KEY: Key = Key(7);
/// Each write begins so long after the one before, if it is not made to begin there and then.
const APART: Nanos = Nanos::from_millis(20);
/// Longer than any node works after a message has arrived.
const REST: Nanos = Nanos::from_micros(100);
/// Longer than a lease, after which the others go on without a node that has crashed.
const VIEW: Nanos = Nanos::from_millis(15);

/// What is explored.
#[derive(Clone, Debug)]
struct Scope {
    config: MinosConfig,
    /// The nodes at which the writes begin, in their order.
    writers: &'static [u16],
    /// Messages that may arrive twice.
    duplicates: usize,
    /// May a node crash, at any instant between two arrivals?
    crash: bool,
}

/// A step from one state to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    /// The next write begins.
    Begin,
    /// A message arrives; and waits to arrive again.
    Arrive(Held, bool),
    /// A node crashes, and the others learn so.
    Crash(u16),
}

/// What was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Explored {
    states: usize,
    /// States in which nothing is left to happen.
    ends: usize,
    /// Are these all?
    whole: bool,
}

struct Record;

impl RecordSource for Record {
    fn load(&self, shards: &dyn ShardMap, shard: ShardId, each: &mut dyn FnMut(Key, &[u8])) {
        if shards.shard_of(KEY) == shard {
            each(KEY, b"loaded..");
        }
    }

    fn records_per_shard(&self) -> u64 {
        1
    }
}

/// What runs on the cluster.
struct Writers {
    nodes: Vec<Arc<Node>>,
    writers: &'static [u16],
    /// By write: its timestamp, once it has returned.
    returned: Arc<Mutex<Vec<Option<u64>>>>,
}

impl Start for Writers {
    fn start<F: Fabric>(&self, fabric: &F) {
        let here = fabric.here();
        let Some(client) = KeyValueNode::start(&self.nodes[here.node.index()], fabric) else {
            return;
        };
        for (number, _) in self.writers.iter().enumerate().filter(|(_, node)| **node == here.node.0)
        {
            let (writer, client) = (fabric.clone(), client.clone());
            let returned = self.returned.clone();
            fabric.spawn(async move {
                writer.sleep_until(begins_at(number)).await;
                let ts = client.put(KEY, &[number as u8; 8]).await;
                let ts = ts.unwrap().map(|version| version.0);
                returned.lock().unwrap()[number] = ts;
            });
        }
    }

    fn crashed(&self, loss: &Loss) {
        self.nodes[loss.node.index()].crashed(loss);
    }

    fn restart<F: Fabric>(&self, _: &F, _: &Revival<'_>) {}
}

fn begins_at(number: usize) -> Nanos {
    Nanos(APART.0 * (1 + number as u64))
}

/// A state, reached by steps from the start.
struct State<'a> {
    scope: &'a Scope,
    world: SimCluster,
    writers: Arc<Writers>,
    /// Writes that have begun.
    begun: usize,
    duplicated: usize,
    dead: Option<u16>,
    seen: Seen,
}

/// By node: what it has seen, in order; of each, is it an acknowledgement?
type Seen = Vec<Vec<(bool, u64)>>;

/// One of the orders that lead to the same state.
fn canonical(mut seen: Seen) -> Seen {
    for node in &mut seen {
        node.chunk_by_mut(|one, next| one.0 && next.0).for_each(<[_]>::sort_unstable);
    }
    seen
}

impl<'a> State<'a> {
    /// The state after `steps`.
    fn after(scope: &'a Scope, profile: &Arc<Profile>, steps: &[Choice]) -> Self {
        let view = View::new(NODES.into(), NODES.into(), 1, 1).unwrap();
        let returned = Arc::new(Mutex::new(vec![None; scope.writers.len()]));
        let nodes = load_nodes(&view, &scope.config, &Record, &Sequential);
        let writers = Arc::new(Writers { nodes, writers: scope.writers, returned });
        let mut sim = SimConfig::new(view, profile.clone(), 1);
        (sim.holds_frames, sim.view_service) = (true, scope.crash);
        sim.keeps_content = scope.crash;
        sim.tuning.aggregation = false;
        let world = SimCluster::new(sim);
        world.start(&writers);
        let seen = vec![Vec::new(); NODES.into()];
        let mut state = Self { scope, world, writers, begun: 0, duplicated: 0, dead: None, seen };
        state.rest();
        for &step in steps {
            state.seen = state.seen_after(step);
            state.take(step);
        }
        state
    }

    fn rest(&self) {
        self.world.run_until(&mut |_| false, self.world.now() + REST);
    }

    fn take(&mut self, step: Choice) {
        match step {
            Choice::Begin => {
                self.world.run_until(&mut |_| false, begins_at(self.begun));
                self.begun += 1;
            }
            Choice::Arrive(held, again) => {
                self.world.release(held, again);
                self.duplicated += usize::from(again);
            }
            Choice::Crash(node) => {
                self.dead = Some(node);
                self.world.crash(Loss { node: NodeId(node), host: true, nic: true });
                self.world.run_until(&mut |_| false, self.world.now() + VIEW);
            }
        }
        self.rest();
    }

    /// What the nodes have seen once `step` has been taken.
    fn seen_after(&self, step: Choice) -> Seen {
        let mut seen = self.seen.clone();
        match step {
            Choice::Begin => {
                seen[usize::from(self.scope.writers[self.begun])].push((false, u64::MAX));
            }
            Choice::Arrive(Held { to, from, kind, digest }, again) => {
                let what = digest.wrapping_add(u64::from(from.node.0));
                let what = what.wrapping_mul(2).wrapping_add(u64::from(again));
                seen[to.node.index()].push((ACKS.contains(&kind), what));
            }
            Choice::Crash(node) => {
                seen.iter_mut().for_each(|seen| seen.push((false, node.into())));
            }
        }
        seen
    }

    /// What may happen next.
    fn choices(&self) -> Vec<Choice> {
        let mut choices = Vec::new();
        if self.begun < self.scope.writers.len() && self.dead.is_none() {
            choices.push(Choice::Begin);
        }
        let held: BTreeSet<Held> = self.world.held().into_iter().collect();
        for held in held.into_iter().filter(|held| Some(held.to.node.0) != self.dead) {
            choices.push(Choice::Arrive(held, false));
            if self.duplicated < self.scope.duplicates {
                choices.push(Choice::Arrive(held, true));
            }
        }
        if self.scope.crash && self.dead.is_none() && self.begun > 0 {
            choices.extend((0..NODES).map(Choice::Crash));
        }
        choices
    }

    fn living(&self) -> Vec<Metadata> {
        let nodes = self.writers.nodes.iter().enumerate();
        let living = nodes.filter(|(node, _)| Some(*node as u16) != self.dead);
        living.map(|(_, node)| node.metadata(KEY)).collect()
    }

    /// The conditions of Table I that hold in every state, as AMB-17 words them, and what reads and
    /// clients may rely on.
    fn check(&self) -> Result<(), &'static str> {
        let model = self.scope.config.model;
        let nodes = self.living();
        let volatile = nodes.iter().map(|node| node.volatile_ts).min().unwrap_or(0);
        let durable = nodes.iter().map(|node| node.durable_ts).min().unwrap_or(0);
        let reads_durable = matches!(model, Persistency::Synch | Persistency::Renf);
        let returns_durable = matches!(model, Persistency::Synch | Persistency::Strict);
        for node in &nodes {
            ensure(node.glb_volatile_ts <= volatile, "2b*, 2c*: glb_volatileTS is not everywhere")?;
            ensure(node.glb_durable_ts <= durable, "3b*: glb_durableTS is not everywhere")?;
            ensure(!node.wr_lock, "4b: a WRLock is kept while a node waits")?;
            if node.rd_lock.is_none() {
                ensure(node.value_ts <= volatile, "a read sees what another node has not")?;
                let is_durable = !reads_durable || node.value_ts <= durable;
                ensure(is_durable, "a read sees what is not durable everywhere")?;
            }
        }
        for ts in self.writers.returned.lock().unwrap().iter().flatten() {
            ensure(*ts <= volatile, "a write has returned that is not everywhere")?;
            let is_durable = !returns_durable || *ts <= durable;
            ensure(is_durable, "a write has returned that is not durable everywhere")?;
        }
        if nodes.iter().all(|node| node.rd_lock.is_none()) {
            let first = &nodes[0];
            let same = nodes.iter().all(|node| {
                (node.volatile_ts, node.glb_volatile_ts)
                    == (first.volatile_ts, first.glb_volatile_ts)
            });
            ensure(same, "2a: unlocked, and the timestamps differ")?;
            let same = nodes.iter().all(|node| node.glb_durable_ts == first.glb_durable_ts);
            ensure(!reads_durable || same, "3a: unlocked, and glb_durableTS differs")?;
        }
        Ok(())
    }

    /// Nothing is left to happen: every write is complete.
    fn check_end(&self) -> Result<(), &'static str> {
        let nodes = self.living();
        let begun = self.begun.max(if self.dead.is_some() { 1 } else { 0 });
        let returned = self.writers.returned.lock().unwrap();
        let writers = self.scope.writers.iter().zip(&*returned).take(begun);
        let mut living = writers.filter(|(node, _)| Some(**node) != self.dead);
        ensure(living.all(|(_, ts)| ts.is_some()), "deadlock: a write does not return")?;
        ensure(nodes.iter().all(|node| node.rd_lock.is_none()), "deadlock: an RDLock is left")?;
        let mut values = self.writers.nodes.iter().enumerate().filter_map(|(number, node)| {
            let mut value = Vec::new();
            (Some(number as u16) != self.dead).then(|| (node.read(KEY, &mut value), value))
        });
        let first = values.next();
        ensure(values.all(|value| Some(&value) == first.as_ref()), "replicas differ")
    }
}

fn ensure(holds: bool, what: &'static str) -> Result<(), &'static str> {
    if holds { Ok(()) } else { Err(what) }
}

/// Explores everything that can happen.
///
/// Errors: the first condition that does not hold, and the steps to it.
fn explore(scope: &Scope) -> Result<Explored, String> {
    let profile = Arc::new(Profile::load("minos-snic").unwrap());
    let (mut open, mut known) = (vec![Vec::new()], BTreeSet::new());
    let mut explored = Explored::default();
    let most = std::env::var("NICOL_EXPLORE_STATES").ok().and_then(|states| states.parse().ok());
    let most = most.unwrap_or(STATES);
    while let Some(steps) = open.pop() {
        if explored.states == most {
            return Ok(explored);
        }
        let state = State::after(scope, &profile, &steps);
        explored.states += 1;
        let choices = state.choices();
        let mut checked = state.check();
        if choices.iter().all(|choice| matches!(choice, Choice::Crash(_))) {
            explored.ends += 1;
            checked = checked.and_then(|()| state.check_end());
        }
        checked.map_err(|what| format!("{what}: {:?} after {steps:?}", state.living()))?;
        for choice in choices {
            if known.insert(canonical(state.seen_after(choice))) {
                open.push([&steps[..], &[choice]].concat());
            }
        }
    }
    explored.whole = true;
    Ok(explored)
}

fn scope(model: Persistency, offload: bool, writers: &'static [u16]) -> Scope {
    let config = MinosConfig::paper(model, offload, 8);
    Scope { config, writers, duplicates: 0, crash: false }
}

/// Explores each model in both places; prints what was seen.
fn each(what: &str, scope_of: impl Fn(Persistency, bool) -> Scope) -> Vec<Explored> {
    let mut all = Vec::new();
    for model in Persistency::ALL {
        for offload in [false, true] {
            let explored = explore(&scope_of(model, offload)).unwrap();
            let name = format!("{what}: {} {model:?}", if offload { "minos-o" } else { "minos-b" });
            eprintln!("{name}: {explored:?}");
            assert!(explored.ends > 0, "{name}");
            all.push(explored);
        }
    }
    all
}

#[test]
fn two_concurrent_writes_hold_the_conditions_in_every_order_of_messages() {
    each("two writes", |model, offload| scope(model, offload, &[0, 1]));
}

#[test]
fn one_write_survives_the_crash_of_any_node_at_any_instant() {
    each("one write and a crash", |model, offload| Scope {
        crash: true,
        ..scope(model, offload, &[0])
    });
}

#[test]
fn messages_may_arrive_twice() {
    each("one write, a message twice", |model, offload| Scope {
        duplicates: 1,
        ..scope(model, offload, &[0])
    });
}

/// An exploration that finds nothing is believed once it has found what is broken.
#[test]
fn what_is_broken_is_found() {
    let sabotaged = |sabotage, crash| {
        let mut scope = scope(Persistency::Synch, false, if crash { &[0] } else { &[0, 1] });
        (scope.config.sabotage, scope.crash) = (sabotage, crash);
        scope
    };
    let mut printed = scope(Persistency::Synch, false, &[0, 1]);
    printed.config.errata = Errata { global_timestamps: Faithful::Paper, ..Errata::FIXED };
    for (scope, condition) in [
        (sabotaged(Sabotage::ReleasesEarly, false), "a read sees"),
        (sabotaged(Sabotage::ForgetsFollower, false), "2b*"),
        (sabotaged(Sabotage::AppliesObsolete, false), "2b*"),
        (sabotaged(Sabotage::DropsReplays, true), "deadlock"),
        (printed, "2a"),
    ] {
        let found = explore(&scope).unwrap_err();
        assert!(found.starts_with(condition), "{:?}: {found}", scope.config.sabotage);
    }
}
