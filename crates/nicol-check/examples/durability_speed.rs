//! How long the durability checker takes for a million operations with a crash of everything in the
//! middle, by persistency model.
//!
//! `cargo run --release -p nicol-check --example durability_speed`

use std::time::Instant;

use nicol_check::durability;
use nicol_check::linearizability::Bound;
use nicol_core::history::{
    Action, Crash, Effect, End, Found, History, Initial, Key, Loaded, Operation, Persistency,
    Promise, Read, Write,
};
use nicol_core::rng::{Purpose, Stream};

const OPERATIONS: u64 = 1_000_000;
const CLIENTS: u64 = 64;
/// The last operation that takes effect before the crash.
const LAST: u64 = OPERATIONS / 2;
/// An operation takes effect in the middle of its interval, one a tick.
const HALF: u64 = CLIENTS / 2;
/// Operations of a client from one `Persist` to the next, where writes have scopes.
const SCOPE: u64 = 8;

/// A version and the digest of its value.
type State = (u64, u64);

/// A record.
#[derive(Clone, Copy)]
struct Cell {
    now: State,
    /// The newest one that the model protects.
    protected: State,
    /// The newest version ever: none is given twice.
    highest: u64,
}

/// An honest history under `model` on so many keys: half reads. The crash leaves of each key what
/// the model protects, and every other key as it was.
fn honest(model: Persistency, keys: u64, versions: bool) -> History {
    let mut random = Stream::new(1, Purpose::Test, 0);
    let mut cells = vec![Cell { now: (1, 0), protected: (1, 0), highest: 1 }; keys as usize];
    let loaded = |key| Loaded { key: Key::Number(key), version: 1, digest: Some(0) };
    let mut history = History {
        promise: Promise::Durable(model),
        initial: Initial::Listed((0..keys).map(loaded).collect()),
        ..History::default()
    };
    let at = LAST + CLIENTS;
    // By client: the writes of the scope that is open.
    let mut open = vec![Vec::new(); CLIENTS as usize];
    for id in 1..=OPERATIONS {
        if id == LAST + HALF + 1 {
            history.crashes.push(crash(at, &mut cells, model, versions));
        }
        let (client, turn) = (id % CLIENTS, id / CLIENTS);
        let (invoked, responded) = (id + HALF, id + CLIENTS + HALF);
        // What the crash meets before its middle has no effect, and nobody learns how it ended.
        let (counts, ends) = (id <= LAST || invoked > at, responded <= at || invoked > at);
        let number = random.below(keys);
        let (key, cell) = (Key::Number(number), &mut cells[number as usize]);
        let scope = (model == Persistency::Scope).then(|| turn / SCOPE * CLIENTS + client);
        let action = if scope.is_some() && turn % SCOPE == SCOPE - 1 {
            let written: Vec<(u64, State)> = std::mem::take(&mut open[client as usize]);
            for (number, state) in written.into_iter().filter(|_| ends) {
                let protected = &mut cells[number as usize].protected;
                *protected = (*protected).max(state);
            }
            Action::Persist { scope }
        } else if random.below(2) == 0 {
            if model == Persistency::Renf && ends {
                cell.protected = cell.now;
            }
            let (version, digest) = cell.now;
            let version = versions.then_some(version);
            let found = Found { present: true, version, digest: Some(digest) };
            Action::Get { key, found: ends.then_some(found) }
        } else {
            if counts {
                cell.highest += 1;
                cell.now = (cell.highest, id);
                open[client as usize].push((number, cell.now));
            }
            let version = (versions && ends).then_some(cell.now.0);
            let write = Write { key, effect: Effect::Put { digest: Some(id) }, version };
            Action::Put { write, scope }
        };
        history.operations.push(Operation {
            client: (client + if invoked > at { CLIENTS } else { 0 }) as u32,
            sequence: turn,
            id,
            invoked,
            responded: ends.then_some(responded),
            end: if ends { End::Ok } else { End::Unknown },
            action,
        });
    }
    history
}

/// What the crash leaves.
fn crash(at: u64, cells: &mut [Cell], model: Persistency, versions: bool) -> Crash {
    let mut recovered = Vec::new();
    for (number, cell) in (0..).zip(cells) {
        let keeps_all = matches!(model, Persistency::Strict | Persistency::Synch);
        if !keeps_all && number % 2 == 0 {
            cell.now = cell.protected;
        }
        let (version, digest) = cell.now;
        recovered.push(Read {
            key: Key::Number(number),
            present: true,
            version: versions.then_some(version),
            digest: Some(digest),
        });
    }
    Crash { at, recovered }
}

fn main() {
    for (what, versions) in [("versions", true), ("different values", false)] {
        for (model, keys) in Persistency::ALL.into_iter().flat_map(|one| [(one, 1_000), (one, 1)]) {
            let history = honest(model, keys, versions);
            let started = Instant::now();
            let report = durability::check(&history, model, Bound::default());
            let seconds = started.elapsed().as_secs_f64();
            let verdict = if report.holds() { "durable" } else { "NOT shown durable" };
            println!(
                "{}, {what}: {OPERATIONS} operations on {keys} keys, {verdict}, {} acknowledged \
                 writes lost, {seconds:.2} s",
                model.name(),
                report.acknowledged_lost
            );
        }
    }
}
