//! The model explored by Stateright: two writes to one record on some nodes, every order of their
//! steps and messages, each message any number of times (an INV as often as the scope says), a
//! crash of one node at any instant, the change of view behind it, and replays.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use nicol_core::history::Persistency;
use nicol_minos::Validation::{RaiseGlobalDurable, RaiseGlobalVolatile, ReleaseRdLock};
use nicol_minos::{Await, Memory, Step, Tag};
use stateright::{Checker, Expectation, HasDiscoveries, Model, Property as Checked};

use crate::properties::{Property, SAFETY, TABLE};
use crate::rules::{Actor, Label, Protocol, stop};
use crate::state::{At, Node, Process, Stamp, State, Write};

const FIRST_VIEW: u32 = 1;
const LIFE: u32 = 1;

/// Every write ends, whatever has happened.
pub const NO_DEADLOCK: &str = "no deadlock";
/// When nothing is left to happen, replicas agree.
pub const CONVERGENCE: &str = "replicas agree in the end";

/// What is explored.
#[derive(Clone, Debug)]
pub struct Scope {
    pub protocol: Protocol,
    pub nodes: usize,
    /// The nodes at which the writes begin, in their order.
    pub writers: &'static [usize],
    /// May a node crash?
    pub crash: bool,
    /// Is every line a step? Else a process runs until it waits.
    pub by_line: bool,
    /// How the model is broken on purpose.
    pub sabotage: Sabotage,
    /// The only condition that is checked, if not all are.
    pub only: Option<&'static str>,
}

/// Ways to break the model, so that an exploration is seen to find something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    None,
    /// ACKs are not waited for.
    SkipsAcks,
    /// An obsolete write waits for nothing.
    SkipsSpins,
    /// What is not durable is acknowledged.
    PersistsNothing,
    /// A follower releases the read lock when it acknowledges.
    ReleasesEarly,
    /// An update is applied over a newer one.
    AppliesObsolete,
    /// An update leaves volatileTS as it was.
    ForgetsVolatileTs,
    /// Nobody replays what a dead coordinator has left.
    DropsReplays,
}

/// A transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A step, of a process or of what is none.
    Step(Label, Actor),
    /// A node crashes.
    Crash(usize),
    /// The view service leaves the dead node out.
    ChangeView,
}

impl Scope {
    pub fn new(model: Persistency, offload: bool) -> Self {
        let protocol = Protocol { arrivals: Some(1), ..Protocol::new(model, offload) };
        let (nodes, writers) = (3, &[0, 1]);
        let (sabotage, only) = (Sabotage::None, None);
        Self { protocol, nodes, writers, crash: false, by_line: false, sabotage, only }
    }

    fn label(&self, node: usize, tag: Tag, ts: Stamp) -> Label {
        let record = [Stamp::NONE; 6];
        Label { node, engine: 0, tag, ts, view: 0, peer: node, record, hostless: false }
    }

    /// What a process may do next.
    fn steps_of(&self, state: &State, process: &Process, ts: Stamp) -> Vec<Label> {
        let n = process.node;
        let known = state.view_of(n, 0);
        let of = |tag| self.label(n, tag, ts);
        let mut labels = match process.at {
            At::Line5 | At::Line10 | At::Line33 => vec![of(Tag::Current), of(Tag::Obsolete)],
            At::Line26 => {
                let again = Label { view: process.view, peer: process.from, ..of(Tag::HadAlready) };
                vec![of(Tag::Current), of(Tag::Obsolete), again]
            }
            At::Line8 | At::Line31 | At::Again => vec![of(Tag::Snatches)],
            At::Line9 | At::Line32 => vec![of(Tag::Locks)],
            At::Line11 | At::Replay => vec![Label { view: known, ..of(Tag::Invites) }],
            At::Line12 | At::Line34 if self.protocol.offload => vec![of(Tag::Enqueues)],
            At::Line12 | At::Line34 => vec![of(Tag::Updates)],
            At::Line13 | At::Line15 | At::Line35 | At::Line36 => vec![of(Tag::Unlocks)],
            at => {
                let step = self.protocol.next_marked(at).expect("a process has a next step");
                let withheld = known != process.view;
                let tag = match step {
                    Step::SendAck(memory) if withheld => Tag::Withholds(memory),
                    step => Tag::Marked(step),
                };
                vec![Label { view: process.view, peer: process.from, ..of(tag) }]
            }
        };
        let has_sent = matches!(process.at, At::Line12 | At::Line13 | At::Complete(_));
        if has_sent && known > process.view {
            labels.push(Label { view: known, ..of(Tag::Invites) });
        }
        labels
    }

    /// What may happen of a write that no process does.
    fn rules(&self, state: &State, n: usize, ts: Stamp, write: &Write) -> Vec<Label> {
        let node = &state.nodes[n];
        let known = state.view_of(n, 0);
        let of = |tag| self.label(n, tag, ts);
        let mut labels = Vec::new();
        for &(peer, view) in write.invs.iter().filter(|(_, view)| *view == known) {
            labels.push(Label { view, peer, ..of(Tag::Receives) });
        }
        let persists = write.persisting.contains(&n)
            || write.processes.iter().any(|process| {
                process.node == n && self.protocol.next_marked(process.at) == Some(Step::Persist)
            });
        if persists && (node.durable < ts || write.persisting.contains(&n)) {
            labels.push(of(Tag::IsDurable));
        }
        if write.queued.contains(&n) {
            labels.push(of(Tag::Drains));
        }
        if node.glb_volatile_ts < ts {
            labels.push(of(Tag::Marked(Step::Validate(RaiseGlobalVolatile))));
        }
        if node.glb_durable_ts < ts {
            labels.push(of(Tag::Marked(Step::Validate(RaiseGlobalDurable))));
        }
        if node.rd_lock == ts {
            labels.push(of(Tag::Marked(Step::Validate(ReleaseRdLock))));
        }
        if self.is_to_be_replayed(state, n, ts, write) {
            labels.push(of(Tag::Replays));
        }
        if self.protocol.model == Persistency::Scope && write.has_returned {
            if n == ts.node() && !write.in_scope {
                labels.push(of(Tag::EndsScope));
            }
            if write.in_scope && !write.scope_acks.contains(&n) {
                labels.push(of(Tag::ScopeIsDurable));
            }
            let living = (0..self.nodes).filter(|other| state.nodes[*other].is_up);
            let all = living.into_iter().all(|other| write.scope_acks.contains(&other));
            if n == ts.node() && all && !write.scope_has_ended {
                labels.push(of(Tag::ScopeReturns));
            }
        }
        labels
    }

    /// As `survivor.rs` has it: read-locked, or not durable everywhere where that is tracked.
    fn is_to_be_replayed(&self, state: &State, n: usize, ts: Stamp, write: &Write) -> bool {
        let node = &state.nodes[n];
        let is_weak = matches!(self.protocol.model, Persistency::Event | Persistency::Scope);
        let half_done = !is_weak && node.volatile_ts == ts && node.glb_durable_ts < ts;
        let replays = |process: &Process| process.node == n && !process.at.is_followers();
        self.sabotage != Sabotage::DropsReplays
            && state.is_orphan(ts, state.view_of(n, 0))
            && (node.rd_lock == ts || half_done && node.rd_lock == Stamp::NONE)
            && !write.processes.iter().any(replays)
    }

    /// The model, or what it is broken to.
    fn take(&self, state: &mut State, label: &Label, actor: Actor) -> bool {
        let n = label.node;
        match (self.sabotage, label.tag) {
            (Sabotage::SkipsAcks, Tag::Marked(Step::Await(Await::Consistent))) => {
                // Pretends that the first ACK was the last.
                let view = state.view_of(n, 0);
                let first: Vec<usize> = state.followers(view, n).take(1).collect();
                let whole = state.views.clone();
                let mut few = (*whole).clone();
                few.entry(view).and_modify(|lives| {
                    lives.iter_mut().enumerate().for_each(|(node, life)| {
                        *life *= u32::from(node == n || first.contains(&node));
                    });
                });
                state.views = few.into();
                let taken = self.protocol.take(state, label, actor);
                state.views = whole;
                taken
            }
            (Sabotage::SkipsSpins, Tag::Marked(Step::Spin(_))) => {
                let (glb, durable) =
                    (state.nodes[n].glb_volatile_ts, state.nodes[n].glb_durable_ts);
                (state.nodes[n].glb_volatile_ts, state.nodes[n].glb_durable_ts) =
                    (Stamp(u64::MAX), Stamp(u64::MAX));
                let taken = self.protocol.take(state, label, actor);
                (state.nodes[n].glb_volatile_ts, state.nodes[n].glb_durable_ts) = (glb, durable);
                taken
            }
            (Sabotage::PersistsNothing, Tag::Marked(Step::Persist)) => {
                let durable = state.nodes[n].durable;
                state.nodes[n].durable = Stamp(u64::MAX);
                let taken = self.protocol.take(state, label, actor);
                state.nodes[n].durable = durable;
                taken
            }
            (
                Sabotage::ReleasesEarly,
                Tag::Marked(Step::SendAck(Memory::Both | Memory::Volatile)),
            ) => {
                let taken = self.protocol.take(state, label, actor);
                if taken && state.nodes[n].rd_lock == label.ts {
                    state.nodes[n].rd_lock = Stamp::NONE;
                }
                taken
            }
            (Sabotage::AppliesObsolete, Tag::Obsolete) => false,
            (Sabotage::AppliesObsolete, Tag::Current) => {
                let volatile_ts = state.nodes[n].volatile_ts;
                state.nodes[n].volatile_ts = volatile_ts.min(label.ts);
                let taken = self.protocol.take(state, label, actor);
                state.nodes[n].volatile_ts = volatile_ts;
                taken
            }
            (Sabotage::AppliesObsolete, Tag::Updates) => {
                state.nodes[n].volatile_ts = Stamp::NONE;
                self.protocol.take(state, label, actor)
            }
            (Sabotage::ForgetsVolatileTs, Tag::Updates) => {
                let volatile_ts = state.nodes[n].volatile_ts;
                let taken = self.protocol.take(state, label, actor);
                state.nodes[n].volatile_ts = volatile_ts;
                taken
            }
            _ => self.protocol.take(state, label, actor),
        }
    }

    /// Lets a process run until it waits.
    fn run_on(&self, state: &mut State, label: &Label) {
        let mut node_and_write = Some((label.node, label.ts));
        while let Some((n, ts)) = node_and_write.take() {
            let Some(write) = state.writes.get(&ts).cloned() else { return };
            let own = write.processes.iter().enumerate().filter(|(_, other)| other.node == n);
            let [(place, process)] = own.collect::<Vec<_>>()[..] else { return };
            for label in self.steps_of(state, process, ts) {
                let mut next = state.clone();
                if self.take(&mut next, &label, Actor::Process(place)) {
                    *state = next;
                    node_and_write = Some((n, ts));
                    break;
                }
            }
        }
    }

    /// Can anything happen but a crash?
    fn goes_on(&self, state: &State) -> bool {
        let mut actions = Vec::new();
        self.actions(state, &mut actions);
        let is_step = |action: &Action| !matches!(action, Action::Crash(_));
        actions.into_iter().filter(is_step).any(|action| self.next_state(state, action).is_some())
    }

    /// Has every write of a living node ended, and is nothing locked?
    fn has_ended(&self, state: &State) -> bool {
        let mut living = state.nodes.iter().filter(|node| node.is_up);
        let ended = state.writes.iter().all(|(ts, write)| {
            let ended = write.processes.is_empty() && write.queued.is_empty();
            ended && (write.has_returned || !state.nodes[ts.node()].is_up)
        });
        ended && living.all(|node| node.rd_lock == Stamp::NONE)
    }

    /// Do the living nodes have the same, in memory and in their logs?
    fn agrees(&self, state: &State) -> bool {
        let mut living = state.nodes.iter().filter(|node| node.is_up);
        let has = |node: &Node| [node.value_ts, node.volatile_ts, node.durable];
        let newest = living.clone().map(|node| node.volatile_ts).max();
        living.all(|node| has(node).into_iter().all(|ts| Some(ts) == newest))
    }

    /// Does `state` keep these, of those that are checked? Else the first that it does not.
    fn broken(&self, state: &State, all: &[Property]) -> Option<&'static str> {
        let is_checked = |name| self.only.is_none_or(|only| only == name);
        let mut all = all.iter().filter(|(name, _)| is_checked(*name));
        all.find(|(_, holds)| !holds(&self.protocol, state)).map(|(name, _)| *name)
    }

    /// At its end, is a state as `holds` says?
    fn in_the_end(&self, state: &State, name: &str, holds: fn(&Self, &State) -> bool) -> bool {
        let is_checked = self.only.is_none_or(|only| only == name);
        !is_checked || holds(self, state) || self.goes_on(state)
    }
}

impl Model for Scope {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let views = BTreeMap::from([(FIRST_VIEW, vec![LIFE; self.nodes])]);
        vec![State::first(views, true)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (&ts, write) in &state.writes {
            for (place, process) in write.processes.iter().enumerate() {
                let labels = self.steps_of(state, process, ts).into_iter();
                actions.extend(labels.map(|label| Action::Step(label, Actor::Process(place))));
            }
            for n in (0..self.nodes).filter(|n| state.nodes[*n].is_up) {
                let labels = self.rules(state, n, ts, write).into_iter();
                actions.extend(labels.map(|label| Action::Step(label, Actor::Rule)));
            }
        }
        for (n, node) in state.nodes.iter().enumerate().filter(|(_, node)| node.is_up) {
            if node.rd_lock == Stamp::NONE && node.value_ts > state.floor {
                let label = self.label(n, Tag::Reads, node.value_ts);
                actions.push(Action::Step(label, Actor::Rule));
            }
            let last = *state.views.keys().last().expect("there is a view");
            if state.view_of(n, 0) < last {
                let label = Label { view: last, ..self.label(n, Tag::Learns, Stamp::NONE) };
                actions.push(Action::Step(label, Actor::Rule));
            }
        }
        let all_live = state.nodes.iter().all(|node| node.is_up);
        if let Some(&n) = self.writers.get(state.begun).filter(|n| state.nodes[**n].is_up) {
            let node = &state.nodes[n];
            let version = node.volatile_ts.version().max(node.issued) + 1;
            let label = self.label(n, Tag::Issues, Stamp::new(version, n, LIFE));
            actions.push(Action::Step(label, Actor::Rule));
        }
        if self.crash && all_live && state.begun > 0 {
            actions.extend((0..self.nodes).map(Action::Crash));
        }
        if !all_live && state.views.len() == 1 {
            actions.push(Action::ChangeView);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Step(label, actor) => {
                if !self.take(&mut next, &label, actor) {
                    return None;
                }
                next.begun += usize::from(label.tag == Tag::Issues);
                if !self.by_line {
                    self.run_on(&mut next, &label);
                }
            }
            Action::Crash(n) => {
                stop(&mut next, n);
                next.nodes[n].is_up = false;
            }
            Action::ChangeView => {
                let lives = next.nodes.iter().map(|node| if node.is_up { LIFE } else { 0 });
                let mut views = (*next.views).clone();
                views.insert(FIRST_VIEW + 1, lives.collect());
                next.views = views.into();
            }
        }
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Checked<Self>> {
        let always = |name, holds: fn(&Self, &State) -> bool| Checked::<Self>::always(name, holds);
        let some = |name, holds: fn(&Self, &State) -> bool| Checked::<Self>::sometimes(name, holds);
        let mut all = vec![
            always("safety", |scope, state| scope.broken(state, &SAFETY).is_none()),
            always("Table I", |scope, state| scope.broken(state, &TABLE).is_none()),
            always(NO_DEADLOCK, |scope, state| {
                scope.in_the_end(state, NO_DEADLOCK, Self::has_ended)
            }),
            always(CONVERGENCE, |scope, state| scope.in_the_end(state, CONVERGENCE, Self::agrees)),
            some("everything ends", |scope, state| {
                let begun = state.begun == scope.writers.len();
                begun && scope.has_ended(state) && scope.agrees(state)
            }),
            some("a client reads a new value", |_, state| {
                let is_read = |node: &Node| node.value_ts == state.floor;
                state.floor.version() > 0 && state.nodes.iter().any(is_read)
            }),
        ];
        if self.writers.len() > 1 {
            all.push(some("a write is found to be obsolete", |_, state| {
                let mut processes = state.writes.values().flat_map(|write| &write.processes);
                processes.any(|process| process.target != Stamp::NONE)
            }));
        }
        if self.crash {
            all.push(some("a write of a dead coordinator returns", |_, state| {
                let is_dead = |ts: &Stamp| !state.nodes[ts.node()].is_up;
                state.writes.iter().any(|(ts, write)| write.has_returned && is_dead(ts))
            }));
        }
        all
    }
}

/// What an exploration has seen.
#[derive(Clone, Copy, Debug)]
pub struct Explored {
    pub states: usize,
    pub took: Duration,
    /// Are these all states?
    pub is_whole: bool,
}

/// Explores `scope` in up to `most` states.
///
/// Errors: the first property that is violated, and the steps to it; or what never happens, if all
/// was seen.
pub fn explore(scope: &Scope, most: usize) -> Result<Explored, String> {
    let began = Instant::now();
    let violated = HasDiscoveries::AnyFailures;
    let checker = scope.clone().checker().threads(NonZeroUsize::MIN.get()).finish_when(violated);
    let checker = checker.target_state_count(most).spawn_bfs().join();
    let states = checker.unique_state_count();
    let is_whole = checker.state_count() < most;
    for property in scope.properties() {
        let path = checker.discovery(property.name);
        match (property.expectation, path) {
            (Expectation::Always, Some(path)) => {
                let last = path.last_state();
                let which = scope.broken(last, &SAFETY).or_else(|| scope.broken(last, &TABLE));
                let which = which.unwrap_or(property.name);
                let steps: Vec<String> = path.into_actions().iter().map(shown).collect();
                return Err(format!("{which} after {}", steps.join("; ")));
            }
            (Expectation::Sometimes, None) if is_whole => {
                return Err(format!("never: {}", property.name));
            }
            _ => {}
        }
    }
    Ok(Explored { states, took: began.elapsed(), is_whole })
}

fn shown(action: &Action) -> String {
    match action {
        Action::Step(label, _) => {
            let (version, writer) = (label.ts.version(), label.ts.node());
            format!("n{} {} <{version},{writer}>", label.node, label.tag.name())
        }
        other => format!("{other:?}"),
    }
}
