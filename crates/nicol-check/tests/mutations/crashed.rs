//! Honest histories with crashes: every operation takes effect at one instant of its interval, and
//! a crash loses nothing.

use nicol_core::history::{
    Action, Crash, Effect, End, Found, History, Initial, Key, Loaded, Operation, Read, Write,
};
use nicol_core::rng::{Purpose, Stream};

pub const KEYS: u64 = 4;
const CLIENTS: u32 = 4;
const PER_CLIENT: u64 = 7;
/// Pieces of a history, between which it crashes.
const PIECES: u64 = 3;

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
    /// The states of each key, in their order; the first is the load.
    pub states: Vec<Vec<Wrote>>,
    /// By crash and key: which state was there.
    pub at_crash: Vec<Vec<usize>>,
    /// Does the system export versions?
    pub versions: bool,
    /// Later than all of it.
    pub end: u64,
}

/// A draw.
pub fn draw(seed: u64, versions: bool) -> Drawn {
    let random = &mut Stream::new(seed, Purpose::Test, 3);
    let found = |key| Found { present: true, version: Some(1), digest: Some(100 + key) };
    let states = (0..KEYS).map(|key| vec![Wrote { id: 0, found: found(key) }]).collect();
    let history = History::default();
    let mut drawn = Drawn { history, states, at_crash: Vec::new(), versions, end: 1 };
    for piece in 0..PIECES {
        drawn.piece(random);
        if piece + 1 < PIECES {
            drawn.crash();
        }
    }
    let loaded = |key: u64| Loaded { key: Key::Number(key), version: 1, digest: Some(100 + key) };
    drawn.history.initial = Initial::Listed((0..KEYS).map(loaded).collect());
    drawn
}

impl Drawn {
    /// Operations that have all ended before the next crash.
    fn piece(&mut self, random: &mut Stream) {
        let (mut operations, mut due) = (Vec::new(), Vec::new());
        for client in 0..CLIENTS {
            let mut time = self.end + random.below(300);
            for _ in 0..PER_CLIENT {
                let (invoked, effect) = (time, time + 1 + random.below(200));
                let responded = effect + 1 + random.below(200);
                time = responded + random.below(200);
                let end = match random.below(10) {
                    0 => End::Failed,
                    1 => End::Unknown,
                    _ => End::Ok,
                };
                let id = (self.history.operations.len() + operations.len()) as u64 + 1;
                let action = self.action(id, random);
                let (sequence, responded) = (id, Some(responded));
                operations.push(Operation {
                    client,
                    sequence,
                    id,
                    invoked,
                    responded,
                    end,
                    action,
                });
                due.push((effect, operations.len() - 1));
            }
        }
        due.sort_unstable();
        for (_, at) in due {
            self.run(&mut operations[at], random);
        }
        self.end = operations.iter().filter_map(|one| one.responded).max().unwrap_or(0) + 50;
        self.history.operations.append(&mut operations);
    }

    fn action(&self, id: u64, random: &mut Stream) -> Action {
        let key = Key::Number(random.below(KEYS));
        let write = |effect| Write { key: key.clone(), effect, version: None };
        match random.below(if self.versions { 12 } else { 11 }) {
            0..5 => Action::Get { key, found: None },
            5..10 => {
                let put = Effect::Put { digest: Some(1_000 + id) };
                Action::Put { write: write(put), scope: None }
            }
            10 => Action::Persist { scope: None },
            _ => Action::Delete { write: write(Effect::Delete), scope: None },
        }
    }

    fn run(&mut self, operation: &mut Operation, random: &mut Stream) {
        let Some(key) = number(operation) else { return };
        let states = &mut self.states[key as usize];
        let now = states[states.len() - 1].found;
        let (drawn, versions) = (operation.end == End::Ok, self.versions);
        let happens = drawn || operation.end == End::Unknown && random.below(2) == 0;
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

    fn crash(&mut self) {
        let at: Vec<usize> = self.states.iter().map(|states| states.len() - 1).collect();
        let recovered =
            (0..KEYS).map(|key| self.read(key, self.states[key as usize][at[key as usize]]));
        let recovered = recovered.collect();
        self.history.crashes.push(Crash { at: self.end, recovered });
        self.at_crash.push(at);
        self.end += 50;
    }

    /// The state as a read or a recovery shows it.
    pub fn shown(&self, state: Wrote) -> Found {
        Found { version: state.found.version.filter(|_| self.versions), ..state.found }
    }

    pub fn read(&self, key: u64, state: Wrote) -> Read {
        let Found { present, version, digest } = self.shown(state);
        Read { key: Key::Number(key), present, version, digest }
    }
}

/// The key of a get, a put or a deletion.
pub fn number(operation: &Operation) -> Option<u64> {
    let key = match &operation.action {
        Action::Get { key, .. } => key,
        Action::Put { write, .. } | Action::Delete { write, .. } => &write.key,
        _ => return None,
    };
    match key {
        Key::Number(number) => Some(*number),
        Key::Bytes(_) => unreachable!("not drawn"),
    }
}
