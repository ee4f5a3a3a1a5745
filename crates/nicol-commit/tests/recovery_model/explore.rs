//! The model explored by Stateright, breadth first, so that the trace of a fault is a shortest one.

use std::time::{Duration, Instant};

use stateright::{Checker, Expectation, HasDiscoveries, Model, Property as Checked};

use crate::properties::{ALWAYS, IN_THE_END, Property};
use crate::scope::{Scope, view_nodes};
use crate::state::{Phase, SHARDS, State};

/// A transition, with the transaction, the shard and the node that it is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Begin(usize),
    Execute(usize, usize),
    Validate(usize, usize),
    Proceed(usize),
    Log(usize, usize, usize),
    Accept(usize, usize, usize),
    Commit(usize, usize),
    Abort(usize, usize),
    Mark(usize),
    LearnMark(usize, usize, usize),
    Vote(usize, usize, usize),
    Replicate(usize, usize, usize),
    DecideKnown(usize),
    DecideByVotes(usize),
    Apply(usize, usize, usize),
    Tell(usize),
    Truncate(usize, usize, usize),
    Crash(usize),
    Remove(usize),
    EndLease(usize),
    Learn(usize),
    Serve(usize, usize),
    ComeBack(usize),
    ReadRange(usize, usize),
    TakeRange(usize, usize),
    Complete(usize),
}

impl Action {
    /// Takes the transition, or says false if it cannot be taken.
    fn take(self, scope: &Scope, state: &mut State) -> bool {
        match self {
            Self::Begin(t) => scope.begin(state, t),
            Self::Execute(t, s) => scope.execute(state, t, s),
            Self::Validate(t, s) => scope.validate(state, t, s),
            Self::Proceed(t) => scope.proceed(state, t),
            Self::Log(t, s, n) => scope.log(state, t, s, n),
            Self::Accept(t, s, n) => scope.accept(state, t, s, n),
            Self::Commit(t, s) => scope.commit(state, t, s),
            Self::Abort(t, s) => scope.abort(state, t, s),
            Self::Mark(t) => scope.mark(state, t),
            Self::LearnMark(t, s, n) => scope.learn_mark(state, t, s, n),
            Self::Vote(t, s, n) => scope.vote(state, t, s, n),
            Self::Replicate(t, s, n) => scope.replicate(state, t, s, n),
            Self::DecideKnown(t) => scope.decide(state, t, false),
            Self::DecideByVotes(t) => scope.decide(state, t, true),
            Self::Apply(t, s, n) => scope.apply(state, t, s, n),
            Self::Tell(t) => scope.tell(state, t),
            Self::Truncate(t, s, n) => scope.truncate(state, t, s, n),
            Self::Crash(n) => scope.crash(state, n),
            Self::Remove(n) => scope.remove(state, n),
            Self::EndLease(n) => scope.end_lease(state, n),
            Self::Learn(n) => scope.learn(state, n),
            Self::Serve(n, s) => scope.serve(state, n, s),
            Self::ComeBack(n) => scope.come_back(state, n),
            Self::ReadRange(n, s) => scope.read_range(state, n, s),
            Self::TakeRange(n, s) => scope.take_range(state, n, s),
            Self::Complete(n) => scope.complete(state, n),
        }
    }

    /// Will it happen by itself once faults have stopped? What a node that has stopped has sent may
    /// be lost, and nobody is taken for dead who is not.
    fn is_certain(self, scope: &Scope, state: &State) -> bool {
        match self {
            Self::Crash(_) | Self::ComeBack(_) | Self::Truncate(..) => false,
            Self::Remove(node) => !state.nodes[node].is_up,
            Self::Execute(t, _)
            | Self::Validate(t, _)
            | Self::Log(t, ..)
            | Self::Accept(t, ..)
            | Self::Commit(t, _)
            | Self::Abort(t, _)
            | Self::LearnMark(t, ..) => scope.is_alive(state, t),
            Self::Apply(t, _, node) => state.is_current(node) && scope.decider(state, t).is_some(),
            _ => true,
        }
    }
}

/// Every transition of a scope, those first that most often can be taken.
fn all(scope: &Scope) -> Vec<Action> {
    let mut actions = Vec::new();
    for node in view_nodes() {
        actions.extend([Action::Learn(node), Action::EndLease(node), Action::Crash(node)]);
        actions.extend([Action::Remove(node), Action::ComeBack(node), Action::Complete(node)]);
        for shard in 0..SHARDS {
            actions.push(Action::Serve(node, shard));
            actions.extend([Action::ReadRange(node, shard), Action::TakeRange(node, shard)]);
        }
    }
    for txn in scope.txns() {
        actions.extend([Action::Begin(txn), Action::Proceed(txn), Action::Mark(txn)]);
        actions.extend([Action::DecideKnown(txn), Action::DecideByVotes(txn)]);
        actions.push(Action::Tell(txn));
        for shard in scope.touched(txn) {
            actions.extend([Action::Execute(txn, shard), Action::Validate(txn, shard)]);
        }
        for shard in scope.listed(txn) {
            actions.extend([Action::Commit(txn, shard), Action::Abort(txn, shard)]);
            for node in view_nodes() {
                actions.extend([Action::Log(txn, shard, node), Action::Accept(txn, shard, node)]);
                actions.extend([Action::LearnMark(txn, shard, node)]);
                actions.extend([Action::Vote(txn, shard, node), Action::Apply(txn, shard, node)]);
                actions.push(Action::Replicate(txn, shard, node));
                actions.push(Action::Truncate(txn, shard, node));
            }
        }
    }
    actions
}

/// A scope with its transitions, listed once.
#[derive(Clone, Debug)]
pub struct Explorer {
    scope: Scope,
    all: Vec<Action>,
}

impl Explorer {
    pub fn new(scope: Scope) -> Self {
        let all = all(&scope);
        Self { scope, all }
    }

    /// Is anything left to happen once faults have stopped?
    fn goes_on(&self, state: &State) -> bool {
        self.all.iter().any(|action| {
            action.is_certain(&self.scope, state) && action.take(&self.scope, &mut state.clone())
        })
    }

    /// The first of some properties that a state does not have.
    fn broken(&self, state: &State, all: &[Property]) -> Option<&'static str> {
        let is_checked = |name| self.scope.only.is_none_or(|only| only == name);
        let mut all = all.iter().filter(|(name, _)| is_checked(*name));
        all.find(|(_, holds)| !holds(&self.scope, state)).map(|(name, _)| *name)
    }
}

impl Model for Explorer {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.scope.first()]
    }

    fn actions(&self, _: &State, actions: &mut Vec<Action>) {
        actions.extend(&self.all);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        action.take(&self.scope, &mut next).then_some(next)
    }

    fn properties(&self) -> Vec<Checked<Self>> {
        let some = |name, holds: fn(&Self, &State) -> bool| Checked::<Self>::sometimes(name, holds);
        let mut all = vec![
            Checked::<Self>::always("always", |it, state| it.broken(state, &ALWAYS).is_none()),
            Checked::<Self>::always("in the end", |it, state| {
                it.broken(state, &IN_THE_END).is_none() || it.goes_on(state)
            }),
            some("every transaction commits", |it, state| {
                it.scope.txns().all(|txn| state.txns[txn].told.committed)
            }),
        ];
        if self.scope.f > 0 {
            all.push(some("recovery commits", |_, state| decides(state, true)));
            all.push(some("recovery aborts", |_, state| decides(state, false)));
        }
        if self.scope.programmes.len() > 1 && self.scope.f > 0 {
            all.push(some("a transaction commits after a recovery", |_, state| {
                let is_late = |epoch: u8| epoch > crate::state::FIRST;
                decides(state, true)
                    && state.txns.iter().any(|txn| is_late(txn.epoch) && txn.told.committed)
            }));
        }
        all
    }
}

/// Has a recovery decided so?
fn decides(state: &State, commits: bool) -> bool {
    state
        .txns
        .iter()
        .any(|txn| txn.phase != Phase::NotBegun && txn.decisions.contains(&Some(commits)))
}

/// What an exploration has seen.
#[derive(Clone, Copy, Debug)]
pub struct Explored {
    pub states: usize,
    /// The longest of the shortest ways to a state.
    pub depth: usize,
    pub took: Duration,
    /// Are these all states?
    pub is_whole: bool,
}

/// What was found to be broken, and a shortest way to it.
#[derive(Clone, Debug)]
pub struct Found {
    pub property: &'static str,
    pub trace: Vec<Action>,
    pub states: usize,
}

/// Explores `scope` in up to `most` transitions.
///
/// Errors: the first property that is violated, and the steps to it. What should happen and never
/// does, if all was seen, is such a property with no steps.
pub fn explore(scope: &Scope, most: usize) -> Result<Explored, Found> {
    let began = Instant::now();
    let explorer = Explorer::new(scope.clone());
    let checker = explorer.clone().checker().finish_when(HasDiscoveries::AnyFailures);
    let checker = checker.target_state_count(most).spawn_bfs().join();
    let states = checker.unique_state_count();
    let is_whole = checker.state_count() < most;
    for property in explorer.properties() {
        let path = checker.discovery(property.name);
        match (property.expectation, path) {
            (Expectation::Always, Some(path)) => {
                let last = path.last_state();
                let always = explorer.broken(last, &ALWAYS);
                let broken = always.or_else(|| explorer.broken(last, &IN_THE_END));
                let property = broken.expect("a state that was found breaks a property");
                return Err(Found { property, trace: path.into_actions(), states });
            }
            (Expectation::Sometimes, None) if is_whole => {
                return Err(Found { property: property.name, trace: Vec::new(), states });
            }
            _ => {}
        }
    }
    let depth = checker.max_depth();
    Ok(Explored { states, depth, took: began.elapsed(), is_whole })
}
