//! Tiny histories: honest as drawn, then perhaps changed.

use nicol_core::history::{
    Action, Crash, Effect, End, Found, History, Initial, Loaded, Operation, Read, Scan, Write,
};
use nicol_core::rng::Stream;

use super::KEYS;

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

/// What really happens.
struct World {
    cells: [Found; 2],
    versions: [u64; 2],
    /// The states of each key since the last crash.
    states: [Vec<Found>; 2],
}

/// A tiny history of one key or two, with so many crashes, each followed by operations. After a
/// crash some keys are looked at, and others are not.
pub fn draw(random: &mut Stream, kind: Kind, crashes: u64) -> History {
    let keys = 1 + random.below(2) as usize;
    let mut loaded = Vec::new();
    let cells = [0, 1].map(|at: usize| {
        let is_loaded = random.below(2) == 0;
        let digest = 100 + at as u64;
        if is_loaded {
            loaded.push(Loaded { key: KEYS[at].clone(), version: 1, digest: Some(digest) });
        }
        let version = Some(u64::from(is_loaded));
        Found { present: is_loaded, version, digest: is_loaded.then_some(digest) }
    });
    let states = cells.map(|cell| vec![cell]);
    let mut world = World { cells, versions: [1; 2], states };
    let mut history = History { initial: Initial::Listed(loaded), ..History::default() };
    for piece in 0..=crashes {
        let first = history.operations.len();
        draw_operations(random, &mut history, kind, keys, crashes > 0);
        let mut order: Vec<(u64, u64, usize)> = Vec::new();
        for (at, operation) in history.operations.iter().enumerate().skip(first) {
            let ends = operation.responded.filter(|_| operation.end == End::Ok);
            let ends = ends.unwrap_or(operation.invoked + 6).max(operation.invoked);
            let spread = (ends - operation.invoked) * 4 + 1;
            order.push((operation.invoked * 4 + random.below(spread), operation.sequence, at));
        }
        order.sort_unstable();
        for (_, _, at) in order {
            world.run(random, &mut history.operations[at]);
        }
        if piece < crashes {
            let crash = world.crash(random, &history, keys);
            history.crashes.push(crash);
        }
    }
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

fn draw_operations(
    random: &mut Stream,
    history: &mut History,
    kind: Kind,
    keys: usize,
    short: bool,
) {
    let begins = history.crashes.last().map_or(0, |crash| crash.at + 1);
    for client in 0..3 {
        let mut time = begins + random.below(3);
        let own = history.operations.iter().filter(|one| one.client == client).count() as u64;
        for sequence in 0..1 + random.below(if short { 2 } else { 3 }) {
            let id = history.operations.len() as u64 + 1;
            let sequence = own + sequence;
            let digest = Some(if kind == Kind::Repeating { random.below(2) } else { id });
            let key = KEYS[random.below(keys as u64) as usize].clone();
            let write = |effect| Write { key: key.clone(), effect, version: None };
            let scope = Some(random.below(2));
            let action = match random.below(if kind == Kind::Different { 7 } else { 9 }) {
                0..2 => Action::Get { key, found: None },
                2 => Action::Scan(draw_scan(random)),
                3..6 => Action::Put { write: write(Effect::Put { digest }), scope },
                6 => Action::Persist { scope: random.below(3).checked_sub(1) },
                _ => Action::Delete { write: write(Effect::Delete), scope },
            };
            let (invoked, responded) = (time, time + random.below(5));
            let end = match random.below(8) {
                0 => End::Failed,
                1 | 2 => End::Unknown,
                _ => End::Ok,
            };
            time = responded + random.below(2);
            let responded = Some(responded);
            let operation = Operation { client, sequence, id, invoked, responded, end, action };
            history.operations.push(operation);
        }
    }
}

/// Of both keys, of one, or of none.
fn draw_scan(random: &mut Stream) -> Scan {
    let ends = [5, 7, 8, 9, 12].map(nicol_core::history::Key::Number);
    let [one, other] = [random.below(5), random.below(5)];
    let first = ends[one.min(other) as usize].clone();
    let last = ends[one.max(other) as usize].clone();
    let limit = [None, None, Some(0), Some(1), Some(2)][random.below(5) as usize];
    Scan { first, last, backward: random.below(2) == 0, limit, found: Vec::new() }
}

impl World {
    /// Lets an operation take effect.
    fn run(&mut self, random: &mut Stream, operation: &mut Operation) {
        let happens = match operation.end {
            End::Ok => true,
            End::Unknown => random.below(2) == 0,
            End::Failed => false,
        };
        let acknowledged = operation.end == End::Ok;
        let told = acknowledged || random.below(2) == 0;
        match &mut operation.action {
            Action::Get { key, found } => {
                let cell = self.cells[usize::from(*key == KEYS[1])];
                *found = acknowledged.then_some(cell);
            }
            Action::Put { write, .. } | Action::Delete { write, .. } => {
                let at = usize::from(write.key == KEYS[1]);
                let next = self.versions[at] + 1 + random.below(2);
                write.version = told.then_some(next);
                if happens {
                    self.versions[at] = next;
                    let digest = match write.effect {
                        Effect::Put { digest } => digest,
                        _ => None,
                    };
                    let present = matches!(write.effect, Effect::Put { .. });
                    self.cells[at] = Found { present, version: Some(next), digest };
                    self.states[at].push(self.cells[at]);
                }
            }
            Action::Scan(scan) if acknowledged => {
                let range = scan.first.clone()..=scan.last.clone();
                let mut found: Vec<Read> = (0..2)
                    .filter(|at| range.contains(&KEYS[*at]) && self.cells[*at].present)
                    .map(|at| read(at, self.cells[at]))
                    .collect();
                if scan.backward {
                    found.reverse();
                }
                found.truncate(scan.limit.map_or(usize::MAX, |limit| limit as usize));
                scan.found = found;
            }
            _ => {}
        }
    }

    /// Every key goes back by up to two states, and somebody may look at it.
    fn crash(&mut self, random: &mut Stream, history: &History, keys: usize) -> Crash {
        let ends = history.operations.iter().filter_map(|one| one.responded).max();
        let mut recovered = Vec::new();
        for at in 0..keys {
            let states = &self.states[at];
            let back = random.below(3).min(random.below(states.len() as u64)) as usize;
            let left = states[states.len() - 1 - back];
            if random.below(2) == 0 {
                recovered.push(read(at, left));
            }
            self.cells[at] = left;
            self.versions[at] = left.version.unwrap_or(0);
            self.states[at] = vec![left];
        }
        Crash { at: ends.unwrap_or(0) + 1, recovered }
    }
}

fn read(at: usize, found: Found) -> Read {
    let Found { present, version, digest } = found;
    Read { key: KEYS[at].clone(), present, version, digest }
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
        (Action::Scan(scan), Action::Put { write, .. }, 0..2) if !scan.found.is_empty() => {
            let Effect::Put { digest } = write.effect else { return };
            let last = scan.found.len() - 1;
            (scan.found[last].digest, scan.found[last].version) =
                (digest, write.version.or(scan.found[last].version));
        }
        (Action::Scan(scan), _, 2..4) => {
            scan.found.pop();
        }
        (Action::Scan(scan), _, 4) => scan.limit = None,
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

/// Gets that found no record tell no version, as scans do.
fn strip_floors(history: &mut History) {
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
            Action::Scan(scan) => scan.found.iter_mut().for_each(|read| read.version = None),
            _ => {}
        }
    }
    for read in history.crashes.iter_mut().flat_map(|crash| &mut crash.recovered) {
        read.version = None;
    }
}

/// Leaves out what a history need not tell: digests, versions, what was loaded.
pub fn sparse(random: &mut Stream, history: &mut History) {
    let [digests, versions] = [0, 1].map(|_| random.below(3) > 0);
    let mut leave_out = |digest: &mut Option<u64>, version: Option<&mut Option<u64>>| {
        if digests && random.below(3) == 0 {
            *digest = None;
        }
        if let Some(version) = version.filter(|_| versions && random.below(3) == 0) {
            *version = None;
        }
    };
    if let Initial::Listed(loaded) = &mut history.initial {
        loaded.iter_mut().for_each(|loaded| leave_out(&mut loaded.digest, None));
    }
    for operation in &mut history.operations {
        match &mut operation.action {
            Action::Get { found: Some(Found { version, digest, .. }), .. } => {
                leave_out(digest, Some(version));
            }
            Action::Put { write, .. } | Action::Delete { write, .. } => match &mut write.effect {
                Effect::Put { digest } => leave_out(digest, Some(&mut write.version)),
                _ => leave_out(&mut None, Some(&mut write.version)),
            },
            Action::Scan(scan) => {
                scan.found.iter_mut().for_each(|read| {
                    leave_out(&mut read.digest, Some(&mut read.version));
                });
            }
            _ => {}
        }
    }
    if random.below(2) == 0 {
        history.initial = Initial::Untold;
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
