//! One state of a cluster: the shipped code in the simulated world, after the steps that lead to
//! it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use nicol_core::engine::{Loss, Revival, Start};
use nicol_core::fabric::Fabric;
use nicol_core::history::Persistency;
use nicol_core::ids::{EngineId, Key, NodeId, ShardId, Side};
use nicol_core::key_value::{KeyValue, KeyValueNode};
use nicol_core::records::RecordSource;
use nicol_core::system::{NodeState, Sequential, SystemNode, load_nodes};
use nicol_core::units::Nanos;
use nicol_core::view::{ShardMap, View};
use nicol_minos::{MinosConfig, Node};
use nicol_sim::{Completes, Held, HeldCompletion, Profile, SimCluster, SimConfig};

use crate::order::{Class, Letter, hash};

pub const NODES: u16 = 3;
pub const KEY: Key = Key(7);
/// Bytes of a value. Each write has a length of its own, by which its way through the vFIFO is
/// known.
pub const VALUE_BYTES: u64 = 8;
/// How often a write that has not begun looks whether it may.
const LOOK: Nanos = Nanos::from_micros(20);
/// Longer than any node works after something has reached it.
const REST: Nanos = Nanos::from_micros(100);
/// Longer than a lease, after which the others go on without a node that has crashed.
const VIEW: Nanos = Nanos::from_millis(15);
/// Long enough for a node that returns to become a member.
const RETURN: Nanos = Nanos::from_millis(5);
/// Long enough for a cluster of which everything has crashed to serve again.
const RECOVERY: Nanos = Nanos::from_millis(40);
/// The kinds of ACK, ACK_C, ACK_P, VAL, VAL_C and VAL_P.
const GROWS: std::ops::RangeInclusive<u16> = 2..=7;
/// The kinds of what a node that returns asks for, and of the answer.
const SHIPS: std::ops::RangeInclusive<u16> = 24..=25;

/// What is explored.
#[derive(Clone, Debug)]
pub struct Scope {
    pub config: MinosConfig,
    /// The nodes at which the writes begin, in their order.
    pub writers: &'static [u16],
    /// Do all of them begin at one instant?
    pub together: bool,
    /// Messages that may arrive twice.
    pub duplicates: usize,
    pub crash: Crashes,
}

/// What may crash, once, at any instant between two steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crashes {
    Nothing,
    /// A node, which stays away.
    Node,
    /// A node, which returns at any later instant.
    NodeReturns,
    /// Everything, which comes back at once.
    Everything,
}

/// A step from one state to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The next write begins, or all.
    Begin,
    /// A message arrives; and waits to arrive again.
    Arrive(Held, bool),
    /// A persist, or a step of an update through the vFIFO, is complete.
    Complete(HeldCompletion),
    /// A node crashes, and the others learn so.
    Crash(u16),
    /// It comes back.
    Return(u16),
    /// Everything crashes, comes back and recovers.
    Blackout,
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
pub struct Writers {
    pub nodes: Vec<Arc<Node>>,
    writers: &'static [u16],
    ends_scopes: bool,
    begun: Arc<AtomicUsize>,
    told: Arc<Mutex<Vec<Told>>>,
}

/// What the client of a write has been told.
#[derive(Clone, Copy, Debug, Default)]
pub struct Told {
    /// Its timestamp, once it has returned.
    pub returned: Option<u64>,
    /// Has its scope been persisted?
    pub persisted: bool,
}

impl Writers {
    /// By write.
    pub fn told(&self) -> Vec<Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
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
            let (begun, told) = (self.begun.clone(), self.told.clone());
            let ends_scopes = self.ends_scopes;
            fabric.spawn(async move {
                while begun.load(Ordering::Relaxed) <= number {
                    writer.sleep_until(writer.now() + LOOK).await;
                }
                let value = [number as u8; VALUE_BYTES as usize];
                let ts = client.put(KEY, &value[number..]).await;
                let tell = |tell: &dyn Fn(&mut Told)| {
                    tell(&mut told.lock().unwrap_or_else(PoisonError::into_inner)[number]);
                };
                tell(&|told| told.returned = ts.ok().flatten().map(|version| version.0));
                if ends_scopes && client.persist().await.is_ok() {
                    tell(&|told| told.persisted = true);
                }
            });
        }
    }

    fn crashed(&self, loss: &Loss) {
        self.nodes[loss.node.index()].crashed(loss);
    }

    fn ended(&self, loss: &Loss) {
        self.nodes[loss.node.index()].ended(loss);
    }

    /// The clients do not come back.
    fn restart<F: Fabric>(&self, fabric: &F, revival: &Revival<'_>) {
        self.nodes[fabric.here().node.index()].restart_from(fabric, revival);
    }
}

/// A state, reached by steps from the start.
pub struct State<'a> {
    pub scope: &'a Scope,
    pub world: SimCluster,
    pub writers: Arc<Writers>,
    /// Writes that have begun.
    pub begun: usize,
    duplicated: usize,
    /// The node that has crashed, if one has.
    pub crashed: Option<u16>,
    /// Has it, or has everything, come back?
    pub is_back: bool,
    pub blackout: bool,
    /// By node: what has reached it, in order, and a hash of that.
    seen: Vec<(Vec<Letter>, [u64; 2])>,
    /// The newest timestamp that a read might have returned.
    pub read: u64,
    /// The newest that was durable on any node when everything crashed.
    pub durable_at_blackout: u64,
}

impl<'a> State<'a> {
    /// The state before any step.
    pub fn first(scope: &'a Scope, profile: &Arc<Profile>) -> Self {
        let view = View::new(NODES.into(), NODES.into(), 1, 1).unwrap_or_else(|error| {
            panic!("three nodes with an engine on each side: {error:?}");
        });
        let view = view.with_halves(Node::halves(&scope.config));
        let nodes = load_nodes(&view, &scope.config, &Record, &Sequential).unwrap();
        let writers = Arc::new(Writers {
            nodes,
            writers: scope.writers,
            ends_scopes: scope.config.model == Persistency::Scope,
            begun: Arc::default(),
            told: Arc::new(Mutex::new(vec![Told::default(); scope.writers.len()])),
        });
        let mut sim = SimConfig::new(view, profile.clone(), 1);
        (sim.holds_frames, sim.holds_completions, sim.keeps_content) = (true, true, true);
        sim.view_service = scope.crash != Crashes::Nothing;
        sim.tuning.aggregation = false;
        let world = SimCluster::new(sim);
        world.start(writers.clone());
        let seen = vec![(Vec::new(), [0; 2]); NODES.into()];
        let state = Self {
            scope,
            world,
            writers,
            begun: 0,
            duplicated: 0,
            crashed: None,
            is_back: false,
            blackout: false,
            seen,
            read: 1,
            durable_at_blackout: 1,
        };
        state.run(REST);
        state
    }

    /// Takes a step.
    pub fn take(&mut self, step: Choice) {
        self.seen = self.seen_after(step);
        match step {
            Choice::Begin => {
                self.begun += if self.scope.together { self.scope.writers.len() } else { 1 };
                self.writers.begun.store(self.begun, Ordering::Relaxed);
            }
            Choice::Arrive(held, again) => {
                self.world.release(held, again);
                self.duplicated += usize::from(again);
            }
            Choice::Complete(held) => self.world.complete(held),
            Choice::Crash(node) => {
                self.crashed = Some(node);
                self.world.crash(Loss { node: NodeId(node), host: true, nic: true });
                self.run(VIEW);
            }
            Choice::Return(node) => {
                self.is_back = true;
                self.world.restart(NodeId(node), &[Side::Host, Side::Nic]);
                self.run(RETURN);
            }
            Choice::Blackout => self.black_out(),
        }
        self.run(REST);
    }

    fn black_out(&mut self) {
        let newest = (0..NODES).map(|node| self.durable_ts(NodeId(node))).max();
        (self.durable_at_blackout, self.blackout) = (newest.unwrap_or_default(), true);
        let nodes: Vec<NodeId> = self.world.nodes().collect();
        for &node in &nodes {
            self.world.crash(Loss { node, host: true, nic: true });
        }
        nodes.iter().for_each(|node| self.world.restart(*node, &[Side::Host, Side::Nic]));
        self.is_back = true;
        self.run(RECOVERY);
    }

    /// Lets the nodes work for `span`; what is no choice happens at once.
    fn run(&self, span: Nanos) {
        let (world, until) = (&self.world, self.world.now() + span);
        loop {
            world.held().into_iter().filter(|held| self.is_prompt(held)).for_each(|held| {
                world.release(held, false);
            });
            let prompt = |held: &HeldCompletion| self.completes_promptly(held);
            world.held_completions().into_iter().filter(prompt).for_each(|held| {
                world.complete(held);
            });
            let held = world.held_count();
            if world.run_until(&mut |_| world.held_count() != held, until)
                != nicol_sim::RunEnd::Done
            {
                return;
            }
        }
    }

    /// Recovery asks again and again: its questions and answers are on their way for no time.
    fn is_prompt(&self, held: &Held) -> bool {
        self.blackout || SHIPS.contains(&held.kind)
    }

    /// What drains from a dFIFO into the host's log is durable before and after: where it is
    /// matters to whoever recovers alone.
    fn completes_promptly(&self, held: &HeldCompletion) -> bool {
        let drains = self.scope.config.offload && held.of == Completes::Log;
        self.blackout || drains && self.scope.crash != Crashes::Everything
    }

    fn letter(&self, step: Choice) -> (Letter, Option<NodeId>) {
        let mut node = None;
        let mut here = |engine: EngineId| {
            node = Some(engine.node);
            engine.pack()
        };
        let (class, words) = match step {
            Choice::Begin if self.scope.together => (Class::Fixed, [1, 0, 0, 0, 0]),
            Choice::Begin => {
                node = Some(NodeId(self.scope.writers[self.begun]));
                (Class::Fixed, [2, 0, 0, 0, 0])
            }
            Choice::Arrive(Held { to, from, kind, digest }, again) => {
                let grows = GROWS.contains(&kind) && self.has_errata_fixed();
                let class = if grows { Class::Grows } else { Class::Fixed };
                let (to, from) = (here(to), from.pack());
                (class, [3 + u64::from(again), to.into(), from.into(), kind.into(), digest])
            }
            Choice::Complete(HeldCompletion { engine, of, bytes, digest }) => {
                let class = match of {
                    Completes::Log | Completes::DurableQueue => Class::Grows,
                    Completes::VolatileQueue => Class::Fills,
                    Completes::Crossing => Class::Drains,
                };
                (class, [5, here(engine).into(), of as u64, bytes, digest])
            }
            Choice::Crash(node) => (Class::Fixed, [6, node.into(), 0, 0, 0]),
            Choice::Return(node) => (Class::Fixed, [7, node.into(), 0, 0, 0]),
            Choice::Blackout => (Class::Fixed, [8, 0, 0, 0, 0]),
        };
        let bytes = words.map(u64::to_le_bytes);
        let what = nicol_core::history::digest(bytes.as_flattened());
        // What recovery meets depends on the order of everything.
        match self.is_back {
            true => (Letter { class: Class::Fixed, what }, None),
            false => (Letter { class, what }, node),
        }
    }

    /// As printed, a VAL may set a timestamp back.
    fn has_errata_fixed(&self) -> bool {
        self.scope.config.errata == nicol_minos::Errata::FIXED
    }

    fn seen_after(&self, step: Choice) -> Vec<(Vec<Letter>, [u64; 2])> {
        let mut seen = self.seen.clone();
        let (letter, node) = self.letter(step);
        for (place, (letters, hashed)) in seen.iter_mut().enumerate() {
            if node.is_none_or(|node| node.index() == place) {
                letters.push(letter);
                *hashed = hash(letters);
            }
        }
        seen
    }

    /// A name of the state after `step`.
    pub fn name_after(&self, step: Choice) -> [u64; 2 * NODES as usize] {
        let (letter, node) = self.letter(step);
        let mut name = [0; 2 * NODES as usize];
        for (place, (letters, hashed)) in self.seen.iter().enumerate() {
            let hashed = if node.is_none_or(|node| node.index() == place) {
                hash(&[&letters[..], &[letter]].concat())
            } else {
                *hashed
            };
            name[2 * place..2 * place + 2].copy_from_slice(&hashed);
        }
        name
    }

    /// What may happen next.
    pub fn choices(&self) -> Vec<Choice> {
        let mut choices = Vec::new();
        if self.blackout {
            return choices;
        }
        let next = self.scope.writers.get(self.begun);
        // The clients of a node die with it.
        if next.is_some_and(|node| self.crashed != Some(*node)) {
            choices.push(Choice::Begin);
        }
        let mut held = self.world.held();
        held.sort_unstable();
        held.dedup();
        for held in held.into_iter().filter(|held| !self.is_down(held.to.node)) {
            choices.push(Choice::Arrive(held, false));
            if self.duplicated < self.scope.duplicates {
                choices.push(Choice::Arrive(held, true));
            }
        }
        let mut completions = self.world.held_completions();
        completions.sort_unstable();
        completions.dedup();
        choices.extend(completions.into_iter().map(Choice::Complete));
        if self.crashed.is_none() && self.begun > 0 {
            match self.scope.crash {
                Crashes::Nothing => {}
                Crashes::Node | Crashes::NodeReturns => {
                    choices.extend((0..NODES).map(Choice::Crash));
                }
                Crashes::Everything => choices.push(Choice::Blackout),
            }
        }
        let gone = self.crashed.filter(|_| !self.is_back);
        if let (Some(node), Crashes::NodeReturns) = (gone, self.scope.crash) {
            choices.push(Choice::Return(node));
        }
        choices
    }

    /// Has `node` crashed, and not come back?
    pub fn is_down(&self, node: NodeId) -> bool {
        self.crashed == Some(node.0) && !self.is_back
    }

    /// The newest update of the record that a crash of `node` now leaves in any case.
    pub fn durable_ts(&self, node: NodeId) -> u64 {
        let mut newest = 1;
        for write in self.world.synced_writes(node) {
            let logged = nicol_minos::logged_update(&write.bytes, &mut |_, ts, _| {
                newest = newest.max(ts.0);
            });
            assert!(logged.is_ok(), "a log holds what MINOS has written");
        }
        newest
    }
}
