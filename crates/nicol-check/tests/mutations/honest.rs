//! Honest histories of a few keys: every operation takes effect at one instant of its interval.

use nicol_core::history::{
    Action, Effect, End, Found, History, Initial, Key, Loaded, Operation, Write,
};
use nicol_core::rng::{Purpose, Stream};

pub const KEYS: u64 = 4;
const CLIENTS: u32 = 5;
const PER_CLIENT: u64 = 16;

/// A write that took effect.
#[derive(Clone, Copy, Debug)]
pub struct Wrote {
    /// The id of the operation; 0 for the load.
    pub id: u64,
    pub found: Found,
}

/// A history and what really happened.
#[derive(Clone)]
pub struct Drawn {
    pub history: History,
    /// The states of each key, in their order; the first is the load or absence.
    pub states: Vec<Vec<Wrote>>,
    /// Later than all of it.
    pub end: u64,
}

/// A draw; with `versions`, the system exports them and records are deleted.
pub fn draw(seed: u64, versions: bool) -> Drawn {
    let mut random = Stream::new(seed, Purpose::Test, 1);
    let (mut operations, mut due) = (Vec::new(), Vec::new());
    for client in 0..CLIENTS {
        let mut time = 1 + random.below(1_000);
        for sequence in 0..PER_CLIENT {
            let (invoked, effect) = (time, time + 1 + random.below(400));
            let responded = effect + 1 + random.below(400);
            time = responded + random.below(300);
            let end = match random.below(10) {
                0 => End::Failed,
                1 => End::Unknown,
                _ => End::Ok,
            };
            let id = operations.len() as u64 + 1;
            let key = Key::Number(random.below(KEYS));
            let write = |effect| Write { key: key.clone(), effect, version: None };
            let action = match random.below(if versions { 10 } else { 8 }) {
                0..4 => Action::Get { key, found: None },
                4..8 => {
                    let put = Effect::Put { digest: Some(1_000 + id) };
                    Action::Put { write: write(put), scope: None }
                }
                _ => Action::Delete { write: write(Effect::Delete), scope: None },
            };
            let responded = Some(responded);
            operations.push(Operation { client, sequence, id, invoked, responded, end, action });
            due.push((effect, operations.len() - 1));
        }
    }
    due.sort_unstable();
    let load = |key: u64| Found { present: true, version: Some(1), digest: Some(100 + key) };
    let states = (0..KEYS).map(|key| vec![Wrote { id: 0, found: load(key) }]).collect();
    let mut drawn = Drawn { history: History::default(), states, end: 1_000_000 };
    for (_, at) in due {
        drawn.run(&mut operations[at], &mut random, versions);
    }
    let loaded = |key: u64| Loaded { key: Key::Number(key), version: 1, digest: Some(100 + key) };
    let initial = Initial::Listed((0..KEYS).map(loaded).collect());
    drawn.history = History { initial, operations, ..History::default() };
    drawn
}

impl Drawn {
    fn run(&mut self, operation: &mut Operation, random: &mut Stream, versions: bool) {
        let key = number(operation);
        let states = &mut self.states[key as usize];
        let now = states[states.len() - 1].found;
        let happens = match operation.end {
            End::Ok => true,
            End::Unknown => random.below(2) == 0,
            End::Failed => false,
        };
        let drawn = operation.end == End::Ok;
        match &mut operation.action {
            Action::Get { found, .. } => {
                let version = now.version.filter(|_| versions);
                *found = drawn.then_some(Found { version, ..now });
            }
            Action::Put { write, .. } | Action::Delete { write, .. } => {
                let version = now.version.map(|version| version + 1 + random.below(3));
                write.version = version.filter(|_| versions && drawn);
                if happens {
                    let found = match write.effect {
                        Effect::Put { digest } => Found { present: true, version, digest },
                        _ => Found { present: false, version, digest: None },
                    };
                    states.push(Wrote { id: operation.id, found });
                }
            }
            other => unreachable!("not drawn: {other:?}"),
        }
    }
}

/// The key of a get, a put or a deletion.
pub fn number(operation: &Operation) -> u64 {
    let key = match &operation.action {
        Action::Get { key, .. } => key,
        Action::Put { write, .. } | Action::Delete { write, .. } => &write.key,
        other => unreachable!("not drawn: {other:?}"),
    };
    match key {
        Key::Number(number) => *number,
        Key::Bytes(_) => unreachable!("not drawn"),
    }
}
