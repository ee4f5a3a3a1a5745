//! Which clients keep copies of which keys, and are told when one may have changed.
//!
//! A client's read is noted before it is submitted, and stays noted until its reply is written: a
//! write that commits meanwhile is told at once, and told again behind the reply. So no client
//! keeps a value that was written over and is not told of it. It may be told of more than has
//! changed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nicol_core::ids::{IdMap, Key};
use nicol_core::serving::Request;

use crate::connection::clients::Client;
use crate::pushes::{Push, Stale};
use crate::transactions::plan::{Op, Plan};

/// Keys that clients may keep, over all clients: beyond it some are forgotten, and this is told.
const KEYS_MAX: usize = 1_000_000;

/// Of which of its reads a client keeps what they answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    All,
    /// Of none but those behind CLIENT CACHING YES.
    OptIn,
    /// Of all but those behind CLIENT CACHING NO.
    OptOut,
    /// It is told of every write to a key with a prefix of its own.
    Broadcast,
}

/// How a client wants to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mode {
    pub choice: Choice,
    /// Not of its own writes, unless they went along with others'.
    pub no_loop: bool,
    /// Of broadcasts; none: of all keys.
    pub prefixes: Vec<Vec<u8>>,
    /// The client that is told in its place.
    pub redirect: Option<u64>,
}

#[derive(Debug)]
struct Tracker {
    client: Arc<Client>,
    mode: Mode,
    /// The client that is told in its place, if there is to be one.
    in_place: Option<Arc<Client>>,
    /// That one is gone, and this has been said.
    is_broken: bool,
    /// What it reads and has not been answered yet.
    reading: Vec<(Key, Vec<u8>)>,
}

/// A key that a client keeps, or will.
#[derive(Debug)]
struct Copy {
    client: u64,
    key: Vec<u8>,
    is_reading: bool,
    /// It was written while the client was reading it.
    is_stale: bool,
}

#[derive(Debug, Default)]
struct State {
    clients: BTreeMap<u64, Tracker>,
    rows: IdMap<Key, Vec<Copy>>,
    copies: usize,
}

/// All clients that keep copies.
#[derive(Debug, Default)]
pub struct Tracking {
    /// Clients that do: while it is 0, nobody looks further.
    clients: AtomicUsize,
    state: Mutex<State>,
}

impl Tracking {
    /// Whether there is no client to tell anything.
    pub fn is_off(&self) -> bool {
        self.clients.load(Ordering::SeqCst) == 0
    }

    /// A client begins, or goes on in another mode; `in_place` is told in its place.
    pub fn start(&self, client: &Arc<Client>, mode: Mode, in_place: Option<&Arc<Client>>) {
        let mut state = self.state();
        let known = state.clients.remove(&client.id);
        let reading = known.map_or_else(Vec::new, |tracker| tracker.reading);
        let (client, in_place) = (client.clone(), in_place.cloned());
        let tracker = Tracker { client, mode, in_place, is_broken: false, reading };
        state.clients.insert(tracker.client.id, tracker);
        self.clients.store(state.clients.len(), Ordering::SeqCst);
    }

    /// A client keeps nothing any more. What it kept is forgotten with the next write to each key.
    pub fn stop(&self, client: u64) {
        if !self.is_off() {
            let mut state = self.state();
            state.clients.remove(&client);
            self.clients.store(state.clients.len(), Ordering::SeqCst);
            if state.clients.is_empty() {
                *state = State::default();
            }
        }
    }

    /// How a client wants to be told, if it does, and whether nobody is told any more in its place.
    pub fn mode(&self, client: u64) -> Option<(Mode, bool)> {
        let state = self.state();
        let tracker = state.clients.get(&client)?;
        Some((tracker.mode.clone(), tracker.is_broken))
    }

    /// Clients that keep copies, and how many they keep.
    pub fn counts(&self) -> (usize, usize) {
        let state = self.state();
        (state.clients.len(), state.copies)
    }

    /// A client is about to read `key` in `row`, and will keep it.
    pub fn reads(&self, client: u64, row: Key, key: &[u8]) {
        let mut state = self.state();
        let Some(tracker) = state.clients.get_mut(&client) else { return };
        tracker.reading.push((row, key.to_vec()));
        let copies = state.rows.entry(row).or_default();
        match copies.iter_mut().find(|copy| copy.client == client && copy.key == key) {
            Some(copy) => copy.is_reading = true,
            None => {
                let key = key.to_vec();
                copies.push(Copy { client, key, is_reading: true, is_stale: false });
                state.copies += 1;
            }
        }
        while state.copies > KEYS_MAX
            && let Some(other) = state.rows.keys().copied().find(|other| *other != row)
        {
            state.forget_row(other, None);
        }
    }

    /// A client's reads have been answered: it is told behind the reply what to forget of them.
    pub fn answered(&self, client: u64) {
        let mut guard = self.state();
        let state = &mut *guard;
        let Some(tracker) = state.clients.get_mut(&client) else { return };
        let reading = std::mem::take(&mut tracker.reading);
        let mut stale = Vec::new();
        for (row, key) in reading {
            let Some(copies) = state.rows.get_mut(&row) else { continue };
            let is_it = |copy: &Copy| copy.client == client && copy.key == key;
            let Some(place) = copies.iter().position(is_it) else { continue };
            copies[place].is_reading = false;
            if copies[place].is_stale {
                stale.push(copies.swap_remove(place).key);
                state.copies -= 1;
            }
        }
        if !stale.is_empty() {
            tracker.tell(Stale::Keys(stale));
        }
    }

    /// A transaction of `writer` may have changed what `request` writes, and has written these
    /// `keys`, each with its row, which the request need not name. Where it names only rows, as
    /// FLUSHDB does, clients with prefixes are told to forget all.
    pub fn written(&self, request: &Request, keys: &[(Key, Vec<u8>)], writer: Option<u64>) {
        if self.is_off() || request.writes.is_empty() && keys.is_empty() {
            return;
        }
        let mut state = self.state();
        for row in request.writes.iter().chain(keys.iter().map(|(row, _)| row)) {
            state.forget_row(*row, writer);
        }
        let broadcasts = |tracker: &Tracker| tracker.mode.choice == Choice::Broadcast;
        if !state.clients.values().any(broadcasts) {
            return;
        }
        let mut written = written_keys(&request.args);
        if let Some(written) = &mut written {
            written.extend(keys.iter().map(|(_, key)| key.clone()));
            written.sort_unstable();
            written.dedup();
        }
        for tracker in state.clients.values_mut().filter(|tracker| broadcasts(tracker)) {
            let Mode { prefixes, no_loop, .. } = &tracker.mode;
            if *no_loop && writer == Some(tracker.client.id) {
                continue;
            }
            let Some(written) = &written else {
                tracker.tell(Stale::All);
                continue;
            };
            // A message for each prefix, as Redis sends them.
            let all = [Vec::new()];
            let prefixes = if prefixes.is_empty() { &all[..] } else { prefixes };
            let meant = |prefix: &Vec<u8>| {
                let keys = written.iter().filter(|key| key.starts_with(prefix));
                keys.cloned().collect::<Vec<_>>()
            };
            let told: Vec<_> = prefixes.iter().map(meant).filter(|keys| !keys.is_empty()).collect();
            told.into_iter().for_each(|keys| tracker.tell(Stale::Keys(keys)));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The keys that the plan in `args` writes; `None` if it writes rows whose keys it does not name.
fn written_keys(args: &[u8]) -> Option<Vec<Vec<u8>>> {
    let Ok(plan) = Plan::parse(args) else { return Some(Vec::new()) };
    let (mut cursor, mut args, mut keys) = (plan.cursor(), Vec::new(), Vec::new());
    for _ in 0..plan.commands {
        let Ok(op) = cursor.command(&mut args) else { break };
        if op == Op::PURGE {
            // It names rows only: what has expired there is told beside it.
            continue;
        }
        if [Op::EMPTY, Op::EVICT].contains(&op) {
            return None;
        }
        keys.extend(args.iter().filter(|arg| arg.writes).map(|arg| arg.bytes.to_vec()));
    }
    keys.sort();
    keys.dedup();
    Some(keys)
}

impl Tracker {
    /// Tells it, or another in its place. That this one is gone is told once.
    fn tell(&mut self, stale: Stale) {
        match &self.in_place {
            None => self.client.push(Push::Invalidate { stale, in_place: false }),
            Some(other) if !other.is_gone() => {
                other.push(Push::Invalidate { stale, in_place: true });
            }
            Some(other) if !self.is_broken => {
                self.client.push(Push::RedirectBroken(other.id));
                self.is_broken = true;
            }
            Some(_) => {}
        }
    }
}

impl State {
    /// Tells the clients that keep keys of `row`, but for `writer` if it wants so.
    fn forget_row(&mut self, row: Key, writer: Option<u64>) {
        let Some(mut copies) = self.rows.remove(&row) else { return };
        let before = copies.len();
        copies.retain_mut(|copy| {
            let Some(tracker) = self.clients.get_mut(&copy.client) else { return false };
            if !(tracker.mode.no_loop && writer == Some(copy.client)) {
                tracker.tell(Stale::Keys(vec![copy.key.clone()]));
                copy.is_stale |= copy.is_reading;
            }
            copy.is_reading
        });
        self.copies -= before - copies.len();
        if !copies.is_empty() {
            self.rows.insert(row, copies);
        }
    }
}
