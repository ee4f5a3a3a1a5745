//! Who is connected: CLIENT LIST, CLIENT INFO and CLIENT KILL, whichever thread a client is on.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::commands::CommandNumber;
use super::completions::Mailbox;
use super::encode::Protocol;
use super::number::parse_i64;
use super::parse::Command;
use super::session::{After, Session};
use super::shared::Shared;

const SYNTAX: &[u8] = b"ERR syntax error";

/// A connection as every thread sees it.
#[derive(Debug)]
pub struct Client {
    /// Its id, never reused.
    pub id: u64,
    /// Where the client is.
    pub peer: SocketAddr,
    /// Where it reached the server.
    pub local: SocketAddr,
    /// When it connected.
    pub since: Instant,
    /// The mailbox of its thread, and its place there.
    front: Arc<Mailbox>,
    slot: usize,
    /// Its end has been asked for.
    killed: AtomicBool,
    latest: Latest,
    seen: Mutex<Seen>,
}

/// What changes with every turn of a client. Its own thread stores it, without a lock: whoever reads
/// may meet one field of this turn beside another of the last one.
#[derive(Debug, Default)]
struct Latest {
    /// The number of the protocol; 0 before the first turn.
    protocol: AtomicU8,
    /// Commands queued since MULTI, plus 1; 0 without a MULTI.
    queued: AtomicU64,
    command: AtomicU16,
    /// When it last sent something: nanoseconds since it connected.
    active: AtomicU64,
}

/// What a client has chosen.
#[derive(Debug, Default)]
pub struct Seen {
    /// CLIENT SETNAME.
    pub name: Vec<u8>,
    /// CLIENT SETINFO LIB-NAME.
    pub library: Vec<u8>,
    /// CLIENT SETINFO LIB-VER.
    pub library_version: Vec<u8>,
    /// CLIENT NO-EVICT: remembered only; nothing is evicted here.
    pub no_evict: bool,
}

impl Client {
    /// A client that connects now, in place `slot` of the thread with the mailbox `front`.
    pub fn new(
        id: u64,
        (peer, local): (SocketAddr, SocketAddr),
        front: Arc<Mailbox>,
        slot: usize,
    ) -> Self {
        let since = Instant::now();
        let (killed, latest, seen) = (AtomicBool::new(false), Latest::default(), Mutex::default());
        Self { id, peer, local, since, front, slot, killed, latest, seen }
    }

    /// Asks its thread to close it.
    fn kill(&self) {
        if !self.killed.swap(true, Ordering::SeqCst) {
            self.front.kill(self.slot, self.id);
        }
    }

    /// What it has chosen and did last. Held for moments only.
    pub fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets what it has chosen.
    pub fn reset(&self) {
        *self.seen() = Seen::default();
    }

    /// Lets other threads see what the client did last. Only its own thread calls it.
    ///
    /// Cost: four stores.
    pub fn publish(
        &self,
        protocol: Protocol,
        queued: Option<usize>,
        command: CommandNumber,
        active: Instant,
    ) {
        let active = active.saturating_duration_since(self.since).as_nanos() as u64;
        self.latest.protocol.store(protocol.number(), Ordering::Relaxed);
        let queued = queued.map_or(0, |commands| commands as u64 + 1);
        self.latest.queued.store(queued, Ordering::Relaxed);
        self.latest.command.store(command.0, Ordering::Relaxed);
        self.latest.active.store(active, Ordering::Relaxed);
    }

    /// The line of CLIENT LIST, of the fields that there is something to say of.
    fn describe(&self, now: Instant, out: &mut String) {
        let seen = self.seen();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let latest = &self.latest;
        let queued = latest.queued.load(Ordering::Relaxed);
        let active = self.since + Duration::from_nanos(latest.active.load(Ordering::Relaxed));
        let protocol = Protocol::from_number(latest.protocol.load(Ordering::Relaxed));
        let flags = match (queued > 0, seen.no_evict) {
            (true, true) => "xe",
            (true, false) => "x",
            (false, true) => "e",
            (false, false) => "N",
        };
        out.push_str(&format!(
            "id={} addr={} laddr={} name={} age={} idle={} flags={flags} db=0 sub=0 psub=0 ssub=0 \
             multi={} cmd={} user=default resp={} lib-name={} lib-ver={}\n",
            self.id,
            self.peer,
            self.local,
            text(&seen.name),
            now.saturating_duration_since(self.since).as_secs(),
            now.saturating_duration_since(active).as_secs(),
            queued as i64 - 1,
            CommandNumber(latest.command.load(Ordering::Relaxed)).name(),
            protocol.unwrap_or(Protocol::Resp2).number(),
            text(&seen.library),
            text(&seen.library_version),
        ));
    }
}

/// Every connection, by its id.
#[derive(Debug, Default)]
pub struct Clients(Mutex<BTreeMap<u64, Arc<Client>>>);

impl Clients {
    fn all(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Client>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client has come.
    pub fn add(&self, client: Arc<Client>) {
        self.all().insert(client.id, client);
    }

    /// It has gone.
    pub fn remove(&self, id: u64) {
        self.all().remove(&id);
    }
}

/// CLIENT INFO.
pub fn info(session: &Session, out: &mut Vec<u8>) {
    let mut text = String::new();
    session.client.describe(Instant::now(), &mut text);
    session.reply(out).verbatim(&text);
}

/// CLIENT LIST.
pub fn list(session: &Session, shared: &Shared, command: &Command<'_>, out: &mut Vec<u8>) {
    match listed(shared, command) {
        Ok(text) => session.reply(out).verbatim(&text),
        Err(error) => session.reply(out).error(&error),
    }
}

fn listed(shared: &Shared, command: &Command<'_>) -> Result<String, Vec<u8>> {
    let (mut text, now) = (String::new(), Instant::now());
    let all = shared.clients.all();
    match (command.arg(2).to_ascii_lowercase().as_slice(), command.len()) {
        (_, 2) => all.values().for_each(|client| client.describe(now, &mut text)),
        (b"type", 4) => {
            if is_normal(command.arg(3))? {
                all.values().for_each(|client| client.describe(now, &mut text));
            }
        }
        (b"id", 4..) => {
            for id in command.args(3) {
                let id = parse_i64(id).ok_or(b"ERR Invalid client ID")?;
                if let Some(client) = all.get(&(id as u64)) {
                    client.describe(now, &mut text);
                }
            }
        }
        _ => return Err(SYNTAX.into()),
    }
    Ok(text)
}

/// Does a type of clients, as it is written, name those that there are here?
fn is_normal(name: &[u8]) -> Result<bool, Vec<u8>> {
    match name.to_ascii_lowercase().as_slice() {
        b"normal" => Ok(true),
        b"master" | b"slave" | b"replica" | b"pubsub" => Ok(false),
        _ => Err([b"ERR Unknown client type '", name, b"'"].concat()),
    }
}

/// Which clients a CLIENT KILL is for: all that fit every filter.
#[derive(Debug)]
struct Filter<'a> {
    id: Option<i64>,
    peer: Option<&'a [u8]>,
    local: Option<&'a [u8]>,
    /// False if clients of another kind are meant, of which there are none.
    normal: bool,
    spares_caller: bool,
}

impl<'a> Filter<'a> {
    /// The filters of a CLIENT KILL in its newer form.
    fn parse(command: &Command<'a>) -> Result<Self, Vec<u8>> {
        let mut filter =
            Self { id: None, peer: None, local: None, normal: true, spares_caller: true };
        if !command.len().is_multiple_of(2) {
            return Err(SYNTAX.into());
        }
        for index in (2..command.len()).step_by(2) {
            let value = command.arg(index + 1);
            match command.arg(index).to_ascii_lowercase().as_slice() {
                b"id" => {
                    let id = parse_i64(value).filter(|id| *id > 0);
                    filter.id = Some(id.ok_or(b"ERR client-id should be greater than 0")?);
                }
                b"addr" => filter.peer = Some(value),
                b"laddr" => filter.local = Some(value),
                b"type" => filter.normal &= is_normal(value)?,
                b"user" if value == b"default" => {}
                b"user" => return Err([b"ERR No such user '", value, b"'"].concat()),
                b"skipme" => match value.to_ascii_lowercase().as_slice() {
                    b"yes" => filter.spares_caller = true,
                    b"no" => filter.spares_caller = false,
                    _ => return Err(SYNTAX.into()),
                },
                _ => return Err(SYNTAX.into()),
            }
        }
        Ok(filter)
    }

    fn fits(&self, client: &Client, caller: u64) -> bool {
        let is = |address: SocketAddr, wanted: Option<&[u8]>| {
            wanted.is_none_or(|wanted| address.to_string().as_bytes() == wanted)
        };
        self.normal
            && self.id.is_none_or(|id| id as u64 == client.id)
            && is(client.peer, self.peer)
            && is(client.local, self.local)
            && !(self.spares_caller && client.id == caller)
    }
}

/// CLIENT KILL. A caller that is among the killed gets its answer first.
pub fn kill(session: &Session, shared: &Shared, command: &Command<'_>, out: &mut Vec<u8>) -> After {
    let by_address = command.len() == 3;
    let filter = if by_address {
        let peer = Some(command.arg(2));
        Ok(Filter { id: None, peer, local: None, normal: true, spares_caller: false })
    } else {
        Filter::parse(command)
    };
    let filter = match filter {
        Ok(filter) => filter,
        Err(error) => {
            session.reply(out).error(&error);
            return After::Go;
        }
    };
    let (mut killed, mut after) = (0, After::Go);
    for client in shared.clients.all().values() {
        if !filter.fits(client, session.client.id) {
            continue;
        }
        killed += 1;
        match client.id == session.client.id {
            true => after = After::Close,
            false => client.kill(),
        }
    }
    match (by_address, killed) {
        (true, 0) => session.reply(out).error(b"ERR No such client"),
        (true, _) => session.reply(out).status("OK"),
        (false, _) => session.reply(out).integer(killed),
    }
    after
}
