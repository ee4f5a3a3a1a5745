//! The connected clients of all fronts.

use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::acl::names::DEFAULT;
use crate::connection::address::Address;
use crate::connection::encode::Protocol;
use crate::connection::mailbox::{Mailbox, Unblock};
use crate::pushes::Push;

/// The name of a command or of a subcommand as a number, 0 for none: threads tell each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandNumber(pub u16);

/// Bytes of messages that may wait for a client's thread.
const WAITING_MAX: usize = 32 << 20;
/// What a message takes beside its contents.
const PUSH_BYTES: usize = 64;

/// A connection as every thread sees it.
#[derive(Debug)]
pub struct Client {
    /// Its id, never reused.
    pub id: u64,
    /// Where the client is.
    pub peer: Address,
    /// Where it reached the server.
    pub local: Address,
    pub since: Instant,
    /// The descriptor of its socket.
    descriptor: RawFd,
    /// The mailbox of its thread, and its place there.
    front: Arc<Mailbox>,
    slot: usize,
    /// Its end has been asked for.
    killed: AtomicBool,
    /// Nothing more is sent to it.
    gone: AtomicBool,
    /// Its pop waits.
    blocked: AtomicBool,
    /// Its next command waits for the end of a pause.
    postponed: AtomicBool,
    /// Bytes of the messages that wait for its thread.
    waiting: AtomicUsize,
    latest: Latest,
    seen: Mutex<Seen>,
}

/// What changes with every turn of a client. Its own thread stores it without a lock, so a reader
/// may see one field of this turn beside another of the last one.
#[derive(Debug, Default)]
struct Latest {
    /// The number of the protocol; 0 before the first turn.
    protocol: AtomicU8,
    /// The number of the database.
    database: AtomicU8,
    /// Commands queued since MULTI, plus 1; 0 without a MULTI.
    queued: AtomicU64,
    command: AtomicU16,
    /// When it last sent something: nanoseconds since it connected.
    active: AtomicU64,
    /// What its buffers hold, in the order of [`Buffers`].
    buffers: [AtomicU64; BUFFERS],
    /// The most that its replies have taken.
    output_peak: AtomicU64,
    /// Channels, patterns and sharded channels that it has subscribed to.
    subscribed: [AtomicUsize; 3],
}

/// Numbers of [`Buffers`].
const BUFFERS: usize = 7;

/// Bytes of a client's buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buffers {
    /// All that they take.
    pub all: usize,
    /// Requests that were read and not yet executed.
    pub input: usize,
    /// Room for more of them.
    pub input_room: usize,
    /// Commands queued after MULTI.
    pub queued: usize,
    /// Replies that were not yet sent.
    pub unsent: usize,
    /// What the buffer of replies takes.
    pub output: usize,
    /// Whether there are replies for which the socket had no room: 1.
    pub waits_for_room: usize,
}

impl Buffers {
    const fn numbers(self) -> [usize; BUFFERS] {
        let Self { all, input, input_room, queued, unsent, output, waits_for_room } = self;
        [all, input, input_room, queued, unsent, output, waits_for_room]
    }
}

/// The choices of a client.
#[derive(Debug, Default)]
pub struct Seen {
    /// Who it is; nobody: the default user.
    pub user: Vec<u8>,
    /// CLIENT SETNAME.
    pub name: Vec<u8>,
    /// CLIENT SETINFO LIB-NAME.
    pub library: Vec<u8>,
    /// CLIENT SETINFO LIB-VER.
    pub library_version: Vec<u8>,
    /// CLIENT TRACKING: it keeps copies, and is told when these may have changed.
    pub tracks: bool,
    /// MONITOR: it sees every command.
    pub monitors: bool,
    /// CLIENT NO-EVICT: its connection is not closed for the memory that clients' buffers take.
    pub no_evict: bool,
}

impl Client {
    /// A client that connects now, in place `slot` of the thread with the mailbox `front`.
    pub fn new(
        id: u64,
        (peer, local): (Address, Address),
        descriptor: RawFd,
        front: Arc<Mailbox>,
        slot: usize,
    ) -> Self {
        let since = Instant::now();
        let [killed, gone, blocked, postponed] = [false; 4].map(AtomicBool::new);
        let (latest, seen) = (Latest::default(), Mutex::default());
        let waiting = AtomicUsize::new(0);
        Self {
            id,
            peer,
            local,
            since,
            descriptor,
            front,
            slot,
            killed,
            gone,
            blocked,
            postponed,
            waiting,
            latest,
            seen,
        }
    }

    /// Asks its thread to close it.
    pub fn kill(&self) {
        if !self.killed.swap(true, Ordering::SeqCst) {
            self.front.kill(self.slot, self.id);
        }
    }

    /// Hands a message to its thread, or has it closed if more wait than may.
    pub fn push(&self, push: Push) {
        let bytes = PUSH_BYTES + push.bytes();
        if self.waiting.fetch_add(bytes, Ordering::SeqCst) + bytes > WAITING_MAX {
            self.kill();
        } else {
            self.front.push(self.slot, self.id, push);
        }
    }

    /// Its thread has taken a message of so many bytes.
    pub fn taken(&self, push: &Push) {
        self.waiting.fetch_sub(PUSH_BYTES + push.bytes(), Ordering::SeqCst);
    }

    /// Whether it is to be closed since more messages wait for it than may.
    pub fn is_overrun(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > WAITING_MAX
    }

    /// It has subscribed to so many channels, patterns and sharded channels.
    pub fn listen(&self, counts: [usize; 3]) {
        for (subscribed, count) in self.latest.subscribed.iter().zip(counts) {
            subscribed.store(count, Ordering::Relaxed);
        }
    }

    /// Its pop waits, or does not any more. Only its own thread calls it.
    pub fn block(&self, blocked: bool) {
        self.blocked.store(blocked, Ordering::SeqCst);
    }

    /// Whether its pop waits.
    pub fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::SeqCst)
    }

    /// Its next command waits for the end of a pause, or does not any more.
    pub fn postpone(&self, postponed: bool) {
        self.postponed.store(postponed, Ordering::SeqCst);
    }

    /// Whether its next command waits: a pop for something to pop, or any for the end of a pause.
    pub fn waits(&self) -> bool {
        self.is_blocked() || self.postponed.load(Ordering::SeqCst)
    }

    /// Ends its wait, as if its time were over or with an error; `false`: it does not wait.
    pub fn unblock(&self, with_error: bool) -> bool {
        let blocked = self.is_blocked();
        if blocked {
            self.front.unblock(self.slot, self.id, Unblock::End { with_error });
        }
        blocked
    }

    /// Makes its thread look around.
    pub fn wake(&self) {
        self.front.wake();
    }

    /// It leaves: nothing more is sent to it.
    pub fn leave(&self) {
        self.gone.store(true, Ordering::SeqCst);
    }

    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::SeqCst)
    }

    /// Whether it has subscribed to anything.
    pub fn listens(&self) -> bool {
        self.latest.subscribed.iter().any(|count| count.load(Ordering::Relaxed) > 0)
    }

    /// What it has chosen and did last. Held for moments only.
    pub fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name of its user.
    pub fn user(&self) -> Vec<u8> {
        let seen = self.seen();
        if seen.user.is_empty() { DEFAULT.to_vec() } else { seen.user.clone() }
    }

    /// Forgets what it has chosen.
    pub fn reset(&self) {
        *self.seen() = Seen::default();
    }

    /// Lets other threads see what the client did last. Only its own thread calls it.
    ///
    /// Cost: five stores.
    pub fn publish(
        &self,
        (protocol, database): (Protocol, u8),
        queued: Option<usize>,
        command: CommandNumber,
        active: Instant,
    ) {
        let active = active.saturating_duration_since(self.since).as_nanos() as u64;
        self.latest.protocol.store(protocol.number(), Ordering::Relaxed);
        self.latest.database.store(database, Ordering::Relaxed);
        let queued = queued.map_or(0, |commands| commands as u64 + 1);
        self.latest.queued.store(queued, Ordering::Relaxed);
        self.latest.command.store(command.0, Ordering::Relaxed);
        self.latest.active.store(active, Ordering::Relaxed);
    }

    /// Tells the bytes of its buffers. Only its own thread calls it.
    pub fn weigh(&self, buffers: Buffers) {
        for (told, bytes) in self.latest.buffers.iter().zip(buffers.numbers()) {
            told.store(bytes as u64, Ordering::Relaxed);
        }
        self.latest.output_peak.fetch_max(buffers.output as u64, Ordering::Relaxed);
    }

    /// The line of CLIENT LIST, of a client whose invalidations go to the client `redirect`.
    pub fn describe(
        &self,
        now: Instant,
        name_of: fn(CommandNumber) -> &'static str,
        redirect: i64,
        out: &mut String,
    ) {
        let user = self.user();
        let seen = self.seen();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let latest = &self.latest;
        let subscribed = latest.subscribed.each_ref().map(|count| count.load(Ordering::Relaxed));
        let queued = latest.queued.load(Ordering::Relaxed);
        let active = self.since + Duration::from_nanos(latest.active.load(Ordering::Relaxed));
        let protocol = Protocol::from_number(latest.protocol.load(Ordering::Relaxed));
        let told = [
            (seen.monitors, 'O'),
            (self.listens(), 'P'),
            (queued > 0, 'x'),
            (self.waits(), 'b'),
            (seen.tracks, 't'),
            (self.local.path().is_some(), 'U'),
            (seen.no_evict, 'e'),
        ];
        let flags: String = told.iter().filter(|(holds, _)| *holds).map(|(_, flag)| flag).collect();
        let flags = if flags.is_empty() { "N" } else { &flags };
        let buffers = latest.buffers.each_ref().map(|bytes| bytes.load(Ordering::Relaxed));
        let [all, input, input_room, queued_bytes, unsent, output, waits_for_room] = buffers;
        let peak = latest.output_peak.load(Ordering::Relaxed);
        let waiting = self.waiting.load(Ordering::SeqCst);
        let events = if waits_for_room > 0 { "rw" } else { "r" };
        // A request's arguments stay where they were read, and replies are in one buffer.
        out.push_str(&format!(
            "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={flags} db={} sub={} \
             psub={} ssub={} multi={} qbuf={input} qbuf-free={input_room} argv-mem=0 \
             multi-mem={queued_bytes} rbs={output} rbp={peak} obl={unsent} oll=0 omem={waiting} \
             tot-mem={all} events={events} cmd={} user={} redir={redirect} resp={} lib-name={} \
             lib-ver={}\n",
            self.id,
            self.peer.endpoint(),
            self.local.endpoint(),
            self.descriptor,
            text(&seen.name),
            now.saturating_duration_since(self.since).as_secs(),
            now.saturating_duration_since(active).as_secs(),
            latest.database.load(Ordering::Relaxed),
            subscribed[0],
            subscribed[1],
            subscribed[2],
            queued as i64 - 1,
            name_of(CommandNumber(latest.command.load(Ordering::Relaxed))),
            text(&user),
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
    /// All of them, by id. Held for moments only: connections that come and go wait for it.
    pub fn all(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Client>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client has come.
    pub fn add(&self, client: Arc<Client>) {
        self.all().insert(client.id, client);
    }

    pub fn remove(&self, id: u64) {
        self.all().remove(&id);
    }
}
