//! Explores MINOS: every order in which messages, persists and steps of the vFIFOs of concurrent
//! writes to one record can come to an end, with messages that arrive twice and crashes at any
//! instant. [MINOS24 VI, Table I, AMB-17]
//!
//! A state is reached by replaying the shipped code from the start, in the simulated world, which
//! holds frames between nodes and completions of devices until the exploration lets one through;
//! the nodes then run until they wait. What a node does depends on nothing but the order of what
//! has reached it: two ways to one such order on every node, up to what commutes ([`order`]), lead
//! to one state, and one of them is followed. Which state is gone on from is drawn, and so is
//! whether messages or devices come first from there, so that an exploration that ends at its bound
//! has seen some of everything.
//!
//! ```text
//! cargo xtask explore [--quick] [--states N] [--only WORDS]
//! ```
//!
//! `--only`: what has these words in its name, such as `AMB-15`, `minos-o:event` or `everything
//! crashes`.

mod conditions;
mod order;
mod state;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use nicol_core::history::Persistency;
use nicol_minos::{Faithful, MinosConfig, Sabotage};
use nicol_sim::Profile;

use conditions::is_end;
use state::{Choice, Crashes, Scope, State, VALUE_BYTES};

/// States of one scope of one system, at most.
const STATES: usize = 100_000;
/// The same in the gate.
const QUICK_STATES: usize = 150;
/// States after which something broken must have been found.
const BROKEN_STATES: usize = 20_000;

/// A way from the start.
struct Path {
    before: Option<(Rc<Path>, Choice)>,
}

impl Path {
    fn steps(&self) -> Vec<Choice> {
        let (mut steps, mut at) = (Vec::new(), self);
        while let Some((before, step)) = &at.before {
            steps.push(*step);
            at = before;
        }
        steps.reverse();
        steps
    }
}

/// What was seen.
#[derive(Clone, Copy, Debug, Default)]
struct Explored {
    states: usize,
    /// States in which nothing is left to happen but crashes.
    ends: usize,
    /// The most steps to a state.
    depth: usize,
    /// Are these all?
    whole: bool,
}

/// Numbers that look random, always the same.
struct Draws(u64);

impl Draws {
    fn below(&mut self, limit: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

/// What comes first on a way, if anything of it can happen.
#[derive(Clone, Copy, Debug)]
enum First {
    Any,
    Messages,
    Devices,
}

impl First {
    /// The place of one of `choices`.
    fn draw(self, choices: &[Choice], draws: &mut Draws) -> usize {
        let is_first = |choice: &Choice| match self {
            Self::Any => true,
            Self::Messages => matches!(choice, Choice::Begin | Choice::Arrive(_, false)),
            Self::Devices => matches!(choice, Choice::Complete(_)),
        };
        let all = 0..choices.len();
        let first: Vec<usize> = all.filter(|place| is_first(&choices[*place])).collect();
        if first.is_empty() { draws.below(choices.len()) } else { first[draws.below(first.len())] }
    }
}

/// Explores everything that can happen, or as many states of it.
///
/// Errors: the first condition that does not hold, and the steps to it.
fn explore(scope: &Scope, profile: &Arc<Profile>, most: usize) -> Result<Explored, String> {
    let (mut open, mut known) = (vec![Rc::new(Path { before: None })], BTreeSet::new());
    let (mut explored, mut draws) = (Explored::default(), Draws(1));
    while !open.is_empty() {
        let mut path = open.swap_remove(draws.below(open.len()));
        let steps = path.steps();
        let first = [First::Any, First::Messages, First::Devices][draws.below(3)];
        let mut state = State::first(scope, profile);
        let mut depth = steps.len();
        // The states on the way have been checked, but what reads may have seen there is noted
        // again.
        for step in steps {
            state.take(step);
            let _held_before = state.check();
        }
        loop {
            if explored.states == most {
                return Ok(explored);
            }
            explored.states += 1;
            explored.depth = explored.depth.max(depth);
            let choices = state.choices();
            let mut checked = state.check();
            if is_end(&choices) {
                explored.ends += 1;
                checked = checked.and_then(|()| state.check_end());
            }
            checked.map_err(|what| told(what, &state, &path))?;
            let mut new: Vec<Choice> = choices;
            new.retain(|choice| known.insert(state.name_after(*choice)));
            if new.is_empty() {
                break;
            }
            let next = new.swap_remove(first.draw(&new, &mut draws));
            let child = |step| Rc::new(Path { before: Some((path.clone(), step)) });
            open.extend(new.into_iter().map(child));
            path = child(next);
            state.take(next);
            depth += 1;
        }
    }
    explored.whole = true;
    Ok(explored)
}

fn told(what: &str, state: &State<'_>, path: &Path) -> String {
    let steps: Vec<String> = path.steps().iter().map(|step| format!("  {step:?}")).collect();
    format!("{what}: {:?} {:?} after\n{}", state.metadata(), state.writers.told(), steps.join("\n"))
}

/// A system and what happens to it.
fn scope(model: Persistency, offload: bool, writers: &'static [u16]) -> Scope {
    let config = MinosConfig::paper(model, offload, VALUE_BYTES);
    Scope { config, writers, together: false, duplicates: 0, crash: Crashes::Nothing }
}

/// What is explored of every system, by name.
type Shape = (&'static str, fn(&mut Scope));

const SHAPES: [Shape; 7] = [
    ("one write", |scope| scope.writers = &[0]),
    ("two writes at two nodes", |scope| scope.writers = &[0, 1]),
    ("two writes at one node", |scope| {
        (scope.writers, scope.together) = (&[0, 0], true);
    }),
    ("one write, a message twice, a node crashes", |scope| {
        (scope.writers, scope.duplicates, scope.crash) = (&[0], 1, Crashes::Node);
    }),
    ("two writes, a message twice, a node crashes", |scope| {
        (scope.writers, scope.duplicates, scope.crash) = (&[0, 1], 1, Crashes::Node);
    }),
    ("two writes, a message twice, a node crashes and returns", |scope| {
        (scope.writers, scope.duplicates, scope.crash) = (&[0, 1], 1, Crashes::NodeReturns);
    }),
    ("two writes, a message twice, everything crashes", |scope| {
        (scope.writers, scope.duplicates, scope.crash) = (&[0, 1], 1, Crashes::Everything);
    }),
];

fn name(scope: &Scope) -> String {
    let place = if scope.config.offload { "minos-o" } else { "minos-b" };
    format!("{place}:{}", scope.config.model.name())
}

/// Explores each shape of each system, and prints what was seen.
fn explore_all(profile: &Arc<Profile>, most: usize, only: &str) -> Result<(), String> {
    for (what, shape) in SHAPES {
        for model in Persistency::ALL {
            for offload in [false, true] {
                let mut scope = scope(model, offload, &[]);
                shape(&mut scope);
                let began = Instant::now();
                let name = format!("{what}, {}", name(&scope));
                if !name.contains(only) {
                    continue;
                }
                let explored =
                    explore(&scope, profile, most).map_err(|broken| format!("{name}: {broken}"))?;
                let Explored { states, ends, depth, whole } = explored;
                let extent = if whole { "whole" } else { "to its bound" };
                println!(
                    "{name}: {states} states, {ends} ends, {depth} deep, {extent}, {:.1} s",
                    began.elapsed().as_secs_f64()
                );
                if whole && ends == 0 {
                    return Err(format!("{name}: no end was reached"));
                }
            }
        }
    }
    Ok(())
}

/// What is broken, where, what happens to it, and how the conditions begin of which one must not
/// hold.
struct Planted {
    what: &'static str,
    system: (Persistency, bool),
    shape: Shape,
    plant: fn(&mut MinosConfig),
    found: &'static [&'static str],
}

/// An exploration that finds nothing is believed once it has found what is broken.
#[rustfmt::skip]
fn planted() -> Vec<Planted> {
    use Persistency::{Event, Renf, Strict, Synch};
    use Sabotage::{
        AcksBeforePersist, AppliesObsolete, DropsReplays, ForgetsFollower, LosesQueue, ReleasesEarly, Resurrects,
    };
    let [_, two, one_node, _, node, _, all] = SHAPES;
    let (host, nic) = (false, true);
    let case = |what, system, shape, plant, found| Planted { what, system, shape, plant, found };
    vec![
        case("releases early", (Synch, host), two, |c| c.sabotage = ReleasesEarly, &["a read sees", "3b*"]),
        case("forgets a follower", (Synch, host), two, |c| c.sabotage = ForgetsFollower, &["2b*", "3b*"]),
        case("applies what is obsolete", (Synch, host), two, |c| c.sabotage = AppliesObsolete, &["2b*", "a write"]),
        case("acknowledges before it has persisted", (Synch, host), two, |c| c.sabotage = AcksBeforePersist, &["3b*"]),
        case("acknowledges before it has persisted", (Strict, nic), two, |c| c.sabotage = AcksBeforePersist, &["3b*"]),
        case("acknowledges before it has persisted", (Renf, nic), two, |c| c.sabotage = AcksBeforePersist, &["3b*"]),
        case("drops replays", (Synch, host), node, |c| c.sabotage = DropsReplays, &["deadlock"]),
        case("resurrects", (Strict, host), all, |c| c.sabotage = Resurrects, &["what a client", "an older"]),
        case("loses the dFIFO", (Synch, nic), all, |c| c.sabotage = LosesQueue, &["what a", "an older"]),
        case("AMB-15", (Synch, host), one_node, |c| c.errata.timestamps = Faithful::Paper, &["replicas"]),
        case("AMB-15", (Event, nic), one_node, |c| c.errata.timestamps = Faithful::Paper, &["replicas"]),
        case("AMB-16", (Synch, host), two, |c| c.errata.global_timestamps = Faithful::Paper, &["2a"]),
        case("AMB-19", (Event, nic), two, |c| c.errata.queued = Faithful::Paper, &["2b*"]),
    ]
}

fn find_planted(profile: &Arc<Profile>, only: &str) -> Result<(), String> {
    for Planted { what, system: (model, offload), shape: (happens, shape), plant, found } in
        planted()
    {
        let mut scope = scope(model, offload, &[]);
        shape(&mut scope);
        plant(&mut scope.config);
        let began = Instant::now();
        let name = format!("{what}, {}, {happens}", name(&scope));
        if !name.contains(only) {
            continue;
        }
        let told = match explore(&scope, profile, BROKEN_STATES) {
            Ok(explored) => return Err(format!("{name}: nothing was found: {explored:?}")),
            Err(told) => told,
        };
        if !found.iter().any(|found| told.starts_with(found)) {
            return Err(format!("{name}: {told}\ninstead of {found:?}"));
        }
        let condition = told.lines().next().and_then(|line| line.split(": [").next());
        let took = began.elapsed().as_secs_f64();
        println!("{name}: \"{}\", as it should, {took:.1} s", condition.unwrap_or_default());
    }
    Ok(())
}

fn run() -> Result<(), String> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (mut most, mut only, mut left) = (STATES, "", &words[..]);
    while !left.is_empty() {
        left = match left {
            ["--quick", left @ ..] => {
                most = QUICK_STATES;
                left
            }
            ["--states", number, left @ ..] => {
                most = number.parse().map_err(|_| format!("--states {number}: a number"))?;
                left
            }
            ["--only", words, left @ ..] => {
                only = words;
                left
            }
            _ => return Err("usage: explore [--quick] [--states N] [--only WORDS]".to_owned()),
        };
    }
    let profile = Profile::load("minos-snic").map_err(|error| format!("minos-snic: {error}"))?;
    let profile = Arc::new(profile);
    let began = Instant::now();
    find_planted(&profile, only)?;
    explore_all(&profile, most, only)?;
    println!("{:.1} s", began.elapsed().as_secs_f64());
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(broken) => {
            eprintln!("explore: {broken}");
            ExitCode::FAILURE
        }
    }
}
