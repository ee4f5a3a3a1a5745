//! The event loop of one front, on a thread of its own or on that of engines.

mod event_loop;
mod waiting;
mod walking;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token};
use nicol_core::ids::Key;
use nicol_core::rng;
use nicol_core::serving::{EventLoop, Turn};
use socket2::{Domain, Socket, Type};

use super::address::Address;
use super::clients::Client;
use super::eviction::victims;
use super::mailbox::{Completion, Mailbox, Unblock};
use super::session::Session;
use super::socket::{Listener, Stream};
use super::{Connection, Life, Waiting, Want};
use crate::events::Event;
use crate::shared::{Shared, count};
use crate::transactions::Transactions;
use crate::transactions::plan::Kind;
use crate::wait_group::WaitGuard;

/// The listener's token; connections have their slots.
pub const LISTENER: Token = Token(usize::MAX);
/// The waker's token.
pub const WAKER: Token = Token(usize::MAX - 1);

/// Events taken in one turn.
const EVENTS_MAX: usize = 1_024;
/// Bytes of one read.
const READ_BYTES: usize = 64 << 10;
/// Reads of one connection in one turn: then others have theirs.
const READS_PER_TURN: usize = 4;
/// How often limits in time are looked at.
const SWEEP: Duration = Duration::from_millis(250);
/// How long a closed connection may go on sending into the void.
const LINGER: Duration = Duration::from_secs(1);

/// One thread's connections and what they wait for.
pub struct Front {
    /// Its place among the peers.
    number: usize,
    shared: Arc<Shared>,
    mailbox: Arc<Mailbox>,
    /// Every thread's mailbox, this one's included: accepted connections go round.
    peers: Vec<Arc<Mailbox>>,
    listener: Option<Listener>,
    /// A descriptor that is given up for a moment to refuse a connection when there is no other.
    spare: Option<Socket>,
    poll: Poll,
    /// Of the last wait, until they are handled.
    events: Events,
    /// When limits in time are looked at.
    sweep_at: Instant,
    /// When it ends although clients wait, once it is to stop.
    stop_by: Option<Instant>,
    /// The event descriptor is of no use any more.
    broken: bool,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    transactions: Transactions,
    /// When connections that pause go on.
    timers: BinaryHeap<Reverse<(Instant, usize, u64)>>,
    /// Connections with replies to write or a life to judge, at the end of the turn.
    touched: Vec<usize>,
    /// Connections whose command waits for the end of a pause: the place and the id of each.
    postponed: Vec<(usize, u64)>,
    /// Connections whose turn was cut short.
    again: Vec<usize>,
    scratch: Vec<u8>,
    completions: Vec<Completion>,
    accepted: usize,
    /// Says that this front has ended.
    _guard: WaitGuard,
}

impl Front {
    /// A front; the first one has the listener.
    pub fn new(
        shared: Arc<Shared>,
        mailbox: Arc<Mailbox>,
        peers: Vec<Arc<Mailbox>>,
        listener: Option<Listener>,
        poll: Poll,
        random: rng::Stream,
        guard: WaitGuard,
    ) -> Self {
        let own = peers.iter().position(|peer| Arc::ptr_eq(peer, &mailbox));
        let number = own.expect("a front is among its peers");
        let transactions = Transactions::new(number, shared.clone(), mailbox.clone(), random);
        Self {
            number,
            shared,
            mailbox,
            peers,
            listener,
            spare: None,
            poll,
            events: Events::with_capacity(EVENTS_MAX),
            sweep_at: Instant::now() + SWEEP,
            stop_by: None,
            broken: false,
            connections: Vec::new(),
            free: Vec::new(),
            transactions,
            timers: BinaryHeap::new(),
            touched: Vec::new(),
            postponed: Vec::new(),
            again: Vec::new(),
            scratch: vec![0; READ_BYTES],
            completions: Vec::new(),
            accepted: 0,
            _guard: guard,
        }
    }

    /// Notes when rows expire that were there before this server.
    pub fn expect_expiry(&mut self, rows: &[(i64, Key)]) {
        self.transactions.expect_expiry(rows);
    }

    /// Serves until the server stops, on a thread of its own.
    pub fn run(mut self) {
        while self.turn() != Turn::Ended {
            self.wait(SWEEP);
        }
    }

    /// Lets connections go on that have events; returns whether there was one.
    fn handle_events(&mut self) -> bool {
        let events = std::mem::replace(&mut self.events, Events::with_capacity(0));
        for event in &events {
            match event.token() {
                LISTENER => self.accept(),
                WAKER => {}
                Token(slot) => {
                    if let Some(connection) = self.connection(slot) {
                        connection.readable |= event.is_readable() || event.is_error();
                        connection.ending |= event.is_read_closed();
                        self.drive(slot);
                    }
                }
            }
        }
        let any = !events.is_empty();
        self.events = events;
        self.events.clear();
        any
    }

    /// Takes what other threads left, lets due timers go off, and writes what is to be written;
    /// returns whether a connection was touched.
    fn go_on(&mut self) -> bool {
        for stream in self.mailbox.take_accepted() {
            self.adopt(stream);
        }
        for (slot, id, how) in self.mailbox.take_unblocked() {
            match how {
                Unblock::TryAgain => self.unblock(slot, id),
                Unblock::End { with_error } => self.end_wait(slot, id, with_error),
            }
        }
        self.resume();
        let mut completions = std::mem::take(&mut self.completions);
        self.mailbox.take_completions(&mut completions);
        for completion in completions.drain(..) {
            self.transactions.answered(completion);
            self.deliver();
        }
        self.completions = completions;
        self.push();
        let now = Instant::now();
        self.transactions.go_on(now);
        while let Some(Reverse((at, slot, id))) = self.timers.peek().copied()
            && at <= now
        {
            self.timers.pop();
            self.go_off(slot, id, now);
        }
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort_unstable();
        touched.dedup();
        let any = !touched.is_empty();
        for slot in touched.drain(..) {
            self.settle(slot, now);
        }
        self.touched = touched;
        self.evict();
        any
    }

    /// Closes the connections that other threads want closed.
    fn close_killed(&mut self) {
        for (slot, id) in self.mailbox.take_killed() {
            let Some(connection) = self.connection(slot) else { continue };
            if connection.session.id == id {
                let client = connection.session.client.clone();
                connection.life = Life::Dead;
                self.touched.push(slot);
                match client.is_overrun() {
                    true => note_slow(&self.shared, &client),
                    false => self.shared.events.note(Event::ClientKilled, &client.peer),
                }
            }
        }
    }

    /// Writes the messages that wait for clients.
    fn push(&mut self) {
        for (slot, id, push) in self.mailbox.take_pushes() {
            if let Some(connection) = self.served(slot, id) {
                connection.push(&push);
                self.touched.push(slot);
            }
        }
    }

    /// Closes connections while the buffers of all clients take more than they may. Those of other
    /// threads are closed by theirs.
    fn evict(&mut self) {
        let held = self.shared.client_bytes.load(Ordering::Relaxed) as usize;
        let over = held.saturating_sub(self.shared.config.limits.client_bytes);
        if over == 0 {
            return;
        }
        for slot in victims(&self.connections, over) {
            if let Some(connection) = self.connection(slot) {
                let client = connection.session.client.clone();
                count(&self.shared.counters.evicted, 1);
                self.shared.events.note(Event::ClientEvicted, &client.peer);
                self.remove(slot);
            }
        }
    }

    /// The time until the next limit in time or timer.
    fn timeout(&self) -> Duration {
        let pause = self.timers.peek().map(|Reverse((at, ..))| *at);
        let due = pause.into_iter().chain(self.transactions.next_due());
        let resumes = self.shared.pause.ends_at().filter(|_| !self.postponed.is_empty());
        let next = due.chain(resumes).fold(self.sweep_at, Instant::min);
        next.saturating_duration_since(Instant::now())
    }

    fn connection(&mut self, slot: usize) -> Option<&mut Connection> {
        self.connections.get_mut(slot)?.as_mut()
    }

    /// Takes up every connection that waits.
    fn accept(&mut self) {
        while let Some(listener) = &self.listener {
            if self.spare.is_none() {
                // If there is none now, the next connection or the next sweep tries again.
                self.spare = Socket::new(Domain::IPV4, Type::DGRAM, None).ok();
            }
            match listener.accept() {
                Ok(stream) => {
                    let to = self.accepted % self.peers.len();
                    self.accepted += 1;
                    match to {
                        0 => self.adopt(stream),
                        to => self.peers[to].accept(stream),
                    }
                }
                // The client has gone meanwhile.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // Out of descriptors, most likely.
                Err(_) if self.refuse_one() => {}
                // The event comes again only with the next connection, so the ones that wait are
                // taken up when a sweep calls this again.
                Err(_) => return,
            }
        }
    }

    /// Refuses the first connection that waits, in the place of the spare descriptor.
    fn refuse_one(&mut self) -> bool {
        let (Some(listener), Some(spare)) = (&self.listener, self.spare.take()) else {
            return false;
        };
        drop(spare);
        let Ok(stream) = listener.accept() else { return false };
        count(&self.shared.counters.accepted, 1);
        self.refuse(stream, b"-ERR max number of clients reached: no file descriptor is left\r\n");
        true
    }

    /// Closes a new connection with a line that says why.
    fn refuse(&self, mut stream: Stream, why: &[u8]) {
        count(&self.shared.counters.rejected, 1);
        let limit = self.shared.config.limits.clients;
        self.shared.events.note(Event::ClientRefused, &format_args!("limit {limit}"));
        // One line fits any new socket's buffer; a client that is gone needs no answer.
        let _ = std::io::Write::write(&mut stream, why);
    }

    fn adopt(&mut self, mut stream: Stream) {
        let counters = &self.shared.counters;
        let limits = &self.shared.config.limits;
        count(&counters.accepted, 1);
        let Ok(ends) = stream.ends() else { return };
        if counters.connected.fetch_add(1, Ordering::SeqCst) >= limits.clients as u64 {
            counters.connected.fetch_sub(1, Ordering::SeqCst);
            self.refuse(stream, b"-ERR max number of clients reached\r\n");
            return;
        }
        let slot = self.free.pop().unwrap_or(self.connections.len());
        let secured = self.shared.config.tls.as_ref().map_or(Ok(()), |tls| stream.secure(tls));
        let prepared = secured.and_then(|()| stream.prepare(limits.keepalive));
        if prepared.is_err() || self.register(&mut stream, slot).is_err() {
            counters.connected.fetch_sub(1, Ordering::SeqCst);
            if slot < self.connections.len() {
                self.free.push(slot);
            }
            return;
        }
        self.insert(slot, stream, ends);
        self.drive(slot);
    }

    fn register(&self, stream: &mut Stream, slot: usize) -> std::io::Result<()> {
        self.poll.registry().register(stream, Token(slot), Interest::READABLE)
    }

    /// Has the poll watch for room in a connection's socket while there are replies that found
    /// none. Room that nobody waits for would be told with every reply that the client reads.
    fn watch_for_room(&mut self, slot: usize) {
        let Some(Some(connection)) = self.connections.get_mut(slot) else { return };
        let blocked = connection.unread() > 0 && connection.waiting != Waiting::Pause;
        if std::mem::replace(&mut connection.awaits_room, blocked) == blocked {
            return;
        }
        let interest = match blocked {
            true => Interest::READABLE | Interest::WRITABLE,
            false => Interest::READABLE,
        };
        let registry = self.poll.registry();
        if registry.reregister(&mut connection.stream, Token(slot), interest).is_err() {
            connection.life = Life::Dead;
        }
    }

    fn insert(&mut self, slot: usize, stream: Stream, ends: (Address, Address)) {
        let id = self.shared.next_connection.fetch_add(1, Ordering::Relaxed);
        let client =
            Arc::new(Client::new(id, ends, stream.descriptor(), self.mailbox.clone(), slot));
        self.shared.clients.add(client.clone());
        let session = Session::new(&self.shared, client);
        if slot == self.connections.len() {
            self.connections.push(None);
        }
        assert!(self.connections[slot].is_none(), "a free place is empty");
        self.connections[slot] = Some(Connection::new(stream, session, self.number));
    }

    /// Processes what a connection has sent, as far as it may go on now.
    fn drive(&mut self, slot: usize) {
        let shared = self.shared.clone();
        let mut reads = 0;
        let Some(Some(connection)) = self.connections.get_mut(slot) else { return };
        self.touched.push(slot);
        if connection.waiting == Waiting::Blocked && connection.ending {
            connection.life = Life::Dead;
        }
        if connection.waiting != Waiting::Input {
            return;
        }
        if connection.life == Life::Open && connection.must_read(&shared) {
            // What it sends is read on, up to the size of a request: it may send all before it
            // reads.
            while reads < READS_PER_TURN && connection.has_room(&shared) {
                if !connection.fill(&shared, &mut self.scratch) {
                    return;
                }
                reads += 1;
            }
            if reads == READS_PER_TURN {
                self.again.push(slot);
            }
            return;
        }
        if let Some(part) = connection.rest.pop() {
            return self.begin(slot, part);
        }
        loop {
            match connection.step(&shared) {
                Want::More if connection.must_read(&shared) && connection.batch.commands() == 0 => {
                    return;
                }
                Want::More => {}
                Want::Input => {
                    if reads == READS_PER_TURN {
                        self.again.push(slot);
                        break;
                    }
                    reads += 1;
                    if connection.fill(&shared, &mut self.scratch) {
                        continue;
                    }
                    if connection.batch.commands() > 0 {
                        return self.submit(slot, Kind::Batch);
                    }
                    break;
                }
                Want::Submit(kind) => return self.submit(slot, kind),
                Want::Walk => return self.walk_on(slot),
                Want::Pause(time) => {
                    connection.waiting = Waiting::Pause;
                    let at = Instant::now() + time;
                    self.timers.push(Reverse((at, slot, connection.session.id)));
                    return;
                }
                Want::Postpone => return self.postpone(slot),
                Want::Nothing => {
                    let dropping = connection.life != Life::Open;
                    if dropping && reads < READS_PER_TURN {
                        reads += 1;
                        if connection.fill(&shared, &mut self.scratch) {
                            continue;
                        }
                    }
                    break;
                }
            }
        }
        if self.connections[slot].as_ref().is_some_and(|c| c.readable && c.life != Life::Open) {
            self.again.push(slot);
        }
    }

    /// Begins the transaction that a connection's commands have made.
    fn submit(&mut self, slot: usize, kind: Kind) {
        let Some(Some(connection)) = self.connections.get_mut(slot) else { return };
        let note = |plan: &mut _| self.transactions.note_expiry(plan);
        if let Some(planned) = connection.finish(kind, &self.shared, note) {
            self.begin(slot, planned);
        }
    }

    /// Writes a connection's replies and judges whether it lives on.
    fn settle(&mut self, slot: usize, now: Instant) {
        let shared = self.shared.clone();
        let Some(connection) = self.connection(slot) else { return };
        // Before the client can know that its command is done.
        connection.session.publish(connection.active);
        // A password's answer waits as long as the client does.
        let written = match connection.waiting {
            Waiting::Pause => 0,
            _ => connection.flush(&shared),
        };
        self.watch_for_room(slot);
        let Some(connection) = self.connection(slot) else { return };
        let limits = &shared.config.limits;
        let unread = connection.unread();
        if connection.is_overrun(limits, written, now) {
            note_slow(&shared, &connection.session.client);
            connection.life = Life::Dead;
        }
        let goes_on = connection.paused && unread <= limits.output_soft_bytes;
        connection.paused &= !goes_on;
        let waits = connection.waiting != Waiting::Input
            || connection.paused
            || goes_on
            || !connection.rest.is_empty();
        if connection.ended && !waits && connection.life == Life::Open {
            connection.life = Life::Closing;
        }
        if connection.life == Life::Closing && unread == 0 && !waits {
            // An error means that the client is gone; the removal below or the sweep follows.
            let _ = connection.stream.shutdown(std::net::Shutdown::Write);
            connection.life = Life::Lingering(now + LINGER);
        }
        let gone = match connection.life {
            Life::Dead => true,
            Life::Lingering(until) => connection.ended || now >= until,
            Life::Open | Life::Closing => false,
        };
        if gone {
            self.remove(slot);
            return;
        }
        // Two's complement: what is less is added as well.
        shared.client_bytes.fetch_add(connection.weigh() as u64, Ordering::Relaxed);
        if goes_on {
            self.again.push(slot);
        }
    }

    fn remove(&mut self, slot: usize) {
        self.wait_no_longer(slot);
        let Some(mut connection) = self.connections[slot].take() else { return };
        // Closing the socket takes it off the poll even if this call fails.
        let _ = self.poll.registry().deregister(&mut connection.stream);
        self.shared.counters.connected.fetch_sub(1, Ordering::SeqCst);
        self.shared.client_bytes.fetch_sub(connection.weight as u64, Ordering::Relaxed);
        self.shared.clients.remove(connection.session.id);
        connection.session.stop_tracking(&self.shared);
        connection.session.leave(&self.shared);
        connection.session.client.leave();
        self.free.push(slot);
        self.transactions.abandon(slot);
    }

    /// Looks at every limit in time.
    fn sweep(&mut self, now: Instant) {
        let shared = self.shared.clone();
        let limits = &shared.config.limits;
        for slot in 0..self.connections.len() {
            let Some(connection) = self.connection(slot) else { continue };
            let idle = now.saturating_duration_since(connection.active);
            let slow = connection.is_slow(limits, now);
            let late = !connection.session.authenticated
                && now.saturating_duration_since(connection.session.client.since)
                    >= limits.login_time;
            let waits = !matches!(connection.waiting, Waiting::Input | Waiting::Pause)
                || connection.session.is_told();
            let silent = limits.idle.is_some_and(|max| idle >= max) && !waits;
            if slow || late || silent {
                connection.life = Life::Dead;
            }
            if slow {
                note_slow(&shared, &connection.session.client);
            }
            if self.connection(slot).is_some_and(|connection| connection.life != Life::Open) {
                self.settle(slot, now);
            }
        }
        self.transactions.sweep(now);
        self.deliver();
        self.accept();
        self.shared.events.report(now);
        let commands = self.shared.counters.commands.load(Ordering::Relaxed);
        self.shared.stats.rate.sample(now, commands);
    }

    /// Stops taking commands; `true` once no client waits for a reply.
    fn drained(&mut self) -> bool {
        self.listener = None;
        let mut idle = true;
        for connection in self.connections.iter_mut().flatten() {
            let waits = matches!(connection.waiting, Waiting::Transaction | Waiting::Turn);
            if connection.life == Life::Open && !waits {
                connection.life = Life::Closing;
            }
            idle &= !waits && connection.unread() == 0;
        }
        idle
    }
}

/// A client is closed since it does not read what it is sent.
fn note_slow(shared: &Shared, client: &Client) {
    count(&shared.counters.slow_closed, 1);
    shared.events.note(Event::SlowClient, &client.peer);
}
