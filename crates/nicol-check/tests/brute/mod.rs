//! An exhaustive reference for one key: tries every order of the operations. Independent of the
//! checkers, and as small as can be.
#![allow(dead_code, reason = "each test binary uses its part")]

use nicol_core::history::{
    Action, Crash, Effect, End, Found, History, Initial, Key, Loaded, Operation, Persistency, Read,
    Write,
};
use nicol_core::rng::Stream;

/// What the key holds, with the versions that its last write may have.
#[derive(Clone, Copy)]
struct Cell {
    present: bool,
    digest: Option<u64>,
    versions: (u64, u64),
    /// Later writes have versions above this.
    floor: u64,
}

struct Orders<'h> {
    operations: Vec<&'h Operation>,
    recovered: Option<&'h Read>,
    /// Operations that must come before the recovered state.
    after: Vec<bool>,
}

/// Is there an order of the operations of `history`, all on one key, in which every read returns what
/// it did, and the crash's recovered state, if there is one, stands behind all that `model` protects?
pub fn holds(history: &History, model: Persistency) -> bool {
    let loaded = match &history.initial {
        Initial::Listed(loaded) => loaded.first(),
        Initial::Untold => panic!("the generator tells what was loaded"),
    };
    let version = loaded.map_or(0, |loaded| loaded.version);
    let cell = Cell {
        present: loaded.is_some(),
        digest: loaded.and_then(|loaded| loaded.digest),
        versions: (version, version),
        floor: version,
    };
    let kept = |operation: &&Operation| {
        operation.end == End::Ok && !matches!(operation.action, Action::Persist { .. })
            || operation.end == End::Unknown && writes(operation)
    };
    let operations: Vec<_> = history.operations.iter().filter(kept).collect();
    let after = operations.iter().map(|own| protects(history, model, own)).collect();
    let recovered = history.crashes.first().map(|crash| &crash.recovered[0]);
    let placed = vec![false; operations.len()];
    Orders { operations, recovered, after }.extend(placed, recovered.is_none(), cell)
}

fn writes(operation: &Operation) -> bool {
    matches!(operation.action, Action::Put { .. } | Action::Delete { .. })
}

fn protects(history: &History, model: Persistency, operation: &Operation) -> bool {
    let acknowledged = operation.end == End::Ok;
    let scope = match operation.action {
        Action::Put { scope, .. } | Action::Delete { scope, .. } => scope,
        _ => None,
    };
    let persisted = history.operations.iter().any(|other| {
        let covers =
            matches!(other.action, Action::Persist { scope: of } if of.is_none() || of == scope);
        let later = other.client == operation.client && other.sequence > operation.sequence;
        covers && later && other.end == End::Ok
    });
    acknowledged
        && match model {
            Persistency::Strict => writes(operation),
            Persistency::Synch => true,
            Persistency::Renf => !writes(operation),
            Persistency::Scope => writes(operation) && persisted,
            Persistency::Event => false,
        }
}

impl Orders<'_> {
    fn extend(&self, placed: Vec<bool>, recovered: bool, cell: Cell) -> bool {
        let left = |at: &usize| !placed[*at];
        let certain = |at: &usize| self.operations[*at].end == End::Ok;
        let all = 0..self.operations.len();
        if recovered && all.clone().filter(left).all(|at| !certain(&at)) {
            return true;
        }
        let due = all.clone().filter(left).all(|at| !self.after[at]);
        if let Some(read) = self.recovered.filter(|_| !recovered && due) {
            let found = Found { present: read.present, version: read.version, digest: read.digest };
            let next = see(cell, found);
            if next.is_some_and(|next| self.extend(placed.clone(), true, next)) {
                return true;
            }
        }
        all.clone().filter(left).any(|at| {
            let before = |other: usize| precedes(self.operations[other], self.operations[at]);
            let blocked =
                all.clone().filter(left).filter(certain).any(|other| other != at && before(other));
            let Some(next) = take(cell, self.operations[at]).filter(|_| !blocked) else {
                return false;
            };
            let mut placed = placed.clone();
            placed[at] = true;
            self.extend(placed, recovered, next)
        })
    }
}

fn precedes(first: &Operation, then: &Operation) -> bool {
    let ended = first.responded.unwrap_or(u64::MAX);
    let own = first.client == then.client && first.sequence < then.sequence;
    ended < then.invoked || own && ended <= then.invoked
}

fn take(cell: Cell, operation: &Operation) -> Option<Cell> {
    match &operation.action {
        Action::Get { found, .. } => see(cell, found.unwrap()),
        Action::Put { write, .. } | Action::Delete { write, .. } => {
            let (present, digest) = match write.effect {
                Effect::Put { digest } => (true, digest),
                Effect::Delete => (false, None),
                Effect::Unknown => unreachable!("not generated"),
            };
            let least = cell.floor + 1;
            let versions = write.version.map_or((least, u64::MAX), |version| (version, version));
            (versions.0 >= least).then_some(Cell { present, digest, versions, floor: versions.0 })
        }
        other => unreachable!("not generated: {other:?}"),
    }
}

fn see(cell: Cell, found: Found) -> Option<Cell> {
    let digests = cell.digest.zip(found.digest).is_none_or(|(own, read)| own == read);
    if cell.present != found.present || found.present && !digests {
        return None;
    }
    let digest = cell.digest.or(found.digest);
    let (least, most) = cell.versions;
    let (versions, floor) = match found.version {
        None => (cell.versions, cell.floor),
        Some(version) if found.present => ((version, version), cell.floor.max(version)),
        Some(floor) => ((least, most.min(floor)), cell.floor.max(floor)),
    };
    let fits =
        found.version.is_none_or(|version| version >= least && (!found.present || version <= most));
    fits.then_some(Cell { digest, versions, floor, ..cell })
}

/// Which histories are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// With versions.
    Versions,
    /// Without, every value different, no deletions.
    Different,
    /// Without, values repeat and records are deleted.
    Repeating,
}

pub const KEY: Key = Key::Number(7);

/// A tiny history of one key: honest as drawn, then perhaps changed. With a crash if `crash`.
pub fn draw(random: &mut Stream, kind: Kind, crash: bool) -> History {
    let mut operations = draw_operations(random, kind);
    // The instants at which the operations take effect, and so their order.
    let mut order: Vec<(u64, u64, usize)> = operations
        .iter()
        .enumerate()
        .map(|(at, operation)| {
            let ends = operation.responded.filter(|_| operation.end == End::Ok);
            let ends = ends.unwrap_or(operation.invoked + 6).max(operation.invoked);
            let spread = (ends - operation.invoked) * 4 + 1;
            (operation.invoked * 4 + random.below(spread), operation.sequence, at)
        })
        .collect();
    order.sort_unstable();
    let loaded = random.below(2) == 0;
    let load = Loaded { key: KEY, version: 1, digest: Some(100) };
    let mut cell =
        Found { present: loaded, version: Some(u64::from(loaded)), digest: loaded.then_some(100) };
    let mut version = 1;
    let mut states = vec![cell];
    for (_, _, at) in order {
        run(random, &mut operations[at], &mut cell, &mut version, &mut states);
    }
    let crashes = if crash { vec![draw_crash(random, &states)] } else { Vec::new() };
    let initial = Initial::Listed(if loaded { vec![load] } else { Vec::new() });
    let mut history = History { initial, operations, crashes, ..History::default() };
    for _ in 0..random.below(4) {
        change(random, &mut history, kind);
    }
    if kind != Kind::Versions {
        strip_versions(&mut history);
    } else if random.below(2) == 0 {
        strip_floors(&mut history);
    }
    history
}

fn draw_operations(random: &mut Stream, kind: Kind) -> Vec<Operation> {
    let mut operations = Vec::new();
    for client in 0..3 {
        let mut time = random.below(3);
        for sequence in 0..1 + random.below(3) {
            let id = operations.len() as u64 + 1;
            let digest = Some(if kind == Kind::Repeating { random.below(2) } else { id });
            let write = |effect| Write { key: KEY, effect, version: None };
            let scope = Some(random.below(2));
            let action = match random.below(if kind == Kind::Different { 6 } else { 8 }) {
                0..3 => Action::Get { key: KEY, found: None },
                3..6 => Action::Put { write: write(Effect::Put { digest }), scope },
                6 => Action::Delete { write: write(Effect::Delete), scope },
                _ => Action::Persist { scope: random.below(3).checked_sub(1) },
            };
            let (invoked, responded) = (time, time + random.below(5));
            let end = match random.below(8) {
                0 => End::Failed,
                1 | 2 => End::Unknown,
                _ => End::Ok,
            };
            time = responded + random.below(2);
            let responded = Some(responded);
            operations.push(Operation { client, sequence, id, invoked, responded, end, action });
        }
    }
    operations
}

/// Lets an operation take effect.
fn run(
    random: &mut Stream,
    operation: &mut Operation,
    cell: &mut Found,
    version: &mut u64,
    states: &mut Vec<Found>,
) {
    let happens = match operation.end {
        End::Ok => true,
        End::Unknown => random.below(2) == 0,
        End::Failed => false,
    };
    let told = operation.end == End::Ok || random.below(2) == 0;
    match &mut operation.action {
        Action::Get { found, .. } => {
            // A floor may be above the version of the deletion.
            *found = (operation.end == End::Ok).then_some(*cell);
        }
        Action::Put { write, .. } | Action::Delete { write, .. } => {
            let next = *version + 1 + random.below(2);
            write.version = told.then_some(next);
            if happens {
                *version = next;
                let digest = match write.effect {
                    Effect::Put { digest } => digest,
                    _ => None,
                };
                let present = matches!(write.effect, Effect::Put { .. });
                *cell = Found { present, version: Some(next), digest };
                states.push(*cell);
            }
        }
        _ => {}
    }
}

fn draw_crash(random: &mut Stream, states: &[Found]) -> Crash {
    let back = random.below(3).min(random.below(states.len() as u64)) as usize;
    let state = states[states.len() - 1 - back];
    let Found { present, version, digest } = state;
    Crash { at: 1_000, recovered: vec![Read { key: KEY, present, version, digest }] }
}

/// Changes one thing, so that the history is wrong more often than not.
fn change(random: &mut Stream, history: &mut History, kind: Kind) {
    let at = random.below(history.operations.len() as u64) as usize;
    let other = random.below(history.operations.len() as u64) as usize;
    let from = history.operations[other].action.clone();
    let operation = &mut history.operations[at];
    match (&mut operation.action, from, random.below(6)) {
        (Action::Get { found: Some(found), .. }, Action::Get { found: Some(from), .. }, 0..3) => {
            *found = from;
        }
        (Action::Get { found: Some(found), .. }, Action::Put { write, .. }, 0..3) => {
            let Effect::Put { digest } = write.effect else { return };
            *found = Found { present: true, version: write.version.or(found.version), digest };
        }
        (Action::Get { found: Some(found), .. }, _, 3) => {
            found.version = Some(random.below(8));
        }
        (Action::Get { found: Some(found), .. }, _, 4) if !found.present => {
            found.version = found.version.map(|version| version + random.below(2));
        }
        (Action::Put { write, .. } | Action::Delete { write, .. }, _, 3)
            if operation.end == End::Unknown || kind == Kind::Versions =>
        {
            write.version = Some(1 + random.below(8));
        }
        (Action::Put { .. } | Action::Delete { .. }, _, 4) => operation.end = End::Unknown,
        (Action::Put { .. } | Action::Delete { .. }, _, 5) => operation.end = End::Failed,
        _ => {
            operation.responded = operation.responded.map(|at| at.saturating_sub(random.below(2)));
            operation.responded = operation.responded.max(Some(operation.invoked));
        }
    }
}

/// Gets that found no record tell no version, as scans do: only where no deletion of unknown outcome
/// could explain them at any place.
fn strip_floors(history: &mut History) {
    let unsure = |operation: &Operation| {
        matches!(operation.action, Action::Delete { .. }) && operation.end == End::Unknown
    };
    if history.operations.iter().any(unsure) {
        return;
    }
    for operation in &mut history.operations {
        if let Action::Get { found: Some(found), .. } = &mut operation.action {
            found.version = found.version.filter(|_| found.present);
        }
    }
}

fn strip_versions(history: &mut History) {
    for operation in &mut history.operations {
        match &mut operation.action {
            Action::Get { found: Some(found), .. } => found.version = None,
            Action::Put { write, .. } | Action::Delete { write, .. } => write.version = None,
            _ => {}
        }
    }
    for read in history.crashes.iter_mut().flat_map(|crash| &mut crash.recovered) {
        read.version = None;
    }
}

/// A history in a few lines.
pub fn show(history: &History) -> String {
    let mut lines = vec![format!("{:?}", history.initial)];
    lines.extend(history.operations.iter().map(|operation| {
        let Operation { client, sequence, id, invoked, responded, end, action } = operation;
        let until = responded.unwrap_or(u64::MAX);
        format!("{id}: client {client}.{sequence} {invoked}..{until} {end:?} {action:?}")
    }));
    lines.extend(history.crashes.iter().map(|crash| format!("{crash:?}")));
    lines.join("\n")
}
