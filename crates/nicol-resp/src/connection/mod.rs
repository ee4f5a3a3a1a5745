//! One client's socket, buffers and requests; beside it the event loop that drives it.

pub mod address;
pub mod blocked;
pub mod clients;
mod dispatch;
pub mod encode;
mod eviction;
pub mod front;
mod inline;
pub mod mailbox;
pub mod parse;
mod push;
pub mod session;
pub mod socket;
pub mod tls;

use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use nicol_core::ids::Key;

use self::blocked::Turn;
use self::clients::Buffers;
use self::dispatch::Answered;
use self::parse::{Command, Parser, ProtocolError, Step};
use self::session::{After, Answers, Session};
use self::socket::Stream;
use crate::commands::lookup;
use crate::commands::spec::{Action, Admin, Spec};
use crate::events::Event;
use crate::shared::{Shared, count};
use crate::slow_log::SlowClient;
use crate::stats::code_of;
use crate::transactions::output::OutputHead;
use crate::transactions::plan::{Bounds, Kind, PlanBuilder, Planned, parse_observations};
use crate::transactions::{End, REFUSED};

/// Buffers larger than this are given back once they are empty.
const BUFFER_KEPT: usize = 64 << 10;

/// The event that the connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    Input,
    /// For the outcome of a transaction.
    Transaction,
    /// Until a time, before it goes on.
    Pause,
    /// For the end of a pause.
    Postponed,
    /// For others to have their turn, before its walk goes on.
    Turn,
    /// For a key to change, so that its pop finds something.
    Blocked,
}

/// A pop that waits.
#[derive(Debug)]
struct Blocking {
    planned: Planned,
    /// The records in whose queues it stands, and in which of them.
    rows: Vec<Key>,
    turn: Turn,
    /// `None`: without end.
    until: Option<Instant>,
    /// A key has changed since its attempt was begun.
    woken: bool,
    /// Another client has ended its wait: with an error, or as if its time were over.
    ends: Option<bool>,
    attempts: u32,
}

/// How far a connection is from its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Open,
    /// Replies are sent, then the connection is closed.
    Closing,
    /// All was sent; what the client still sends is thrown away until it closes, or until a time.
    Lingering(Instant),
    Dead,
}

/// What [`Connection::step`] wants of the event loop.
#[derive(Debug, PartialEq, Eq)]
enum Want {
    More,
    /// Read; nothing complete is left.
    Input,
    /// Submit the batch, the transaction that EXEC ends, or the observation of a WATCH.
    Submit(Kind),
    /// Begin the session's walk.
    Walk,
    /// Go on after a while.
    Pause(std::time::Duration),
    /// Go on once commands are not paused any more.
    Postpone,
    /// Nothing: it is closing.
    Nothing,
}

/// A client.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    /// What it chose and queued.
    session: Session,
    waiting: Waiting,
    life: Life,
    /// Pipelined commands that will become one transaction.
    batch: PlanBuilder,
    /// Parts of a batch that was split, to be submitted in order (the last one first).
    rest: Vec<Planned>,
    /// Commands of one batch, at most: as many as answered a bounded number of bytes, twice as many
    /// after each batch that was executed whole.
    batch_max: usize,
    /// Replies not yet written.
    output: Vec<u8>,
    /// The poll tells when the socket has room for replies: asked for where it had none.
    awaits_room: bool,
    /// The socket may hold input.
    readable: bool,
    /// The client has closed its side, and that has not been read yet.
    ending: bool,
    /// The client has closed its side.
    ended: bool,
    /// When it last sent something.
    active: Instant,
    /// Since when its unread replies exceed the soft limit and it has read nothing.
    above_soft: Option<Instant>,
    /// Its commands wait because of unread replies.
    paused: bool,
    input: Vec<u8>,
    consumed: usize,
    written: usize,
    parser: Parser,
    /// Bytes of the request that the parser holds, if it waits for the batch before it.
    parsed: Option<usize>,
    /// Bytes of its buffers, as they were last counted.
    weight: usize,
    /// When its transaction was submitted.
    submitted: Instant,
    /// The command under way, or the one in the batch, is not answered.
    silent: bool,
    /// Its pop, if that may wait.
    blocking: Option<Blocking>,
    front: usize,
}

impl Connection {
    pub fn new(stream: Stream, session: Session, front: usize) -> Self {
        Self {
            stream,
            session,
            waiting: Waiting::Input,
            life: Life::Open,
            batch: PlanBuilder::new(),
            rest: Vec::new(),
            batch_max: usize::MAX,
            output: Vec::new(),
            awaits_room: false,
            readable: true,
            ending: false,
            ended: false,
            active: Instant::now(),
            above_soft: None,
            paused: false,
            input: Vec::new(),
            consumed: 0,
            written: 0,
            parser: Parser::default(),
            parsed: None,
            weight: 0,
            submitted: Instant::now(),
            silent: false,
            blocking: None,
            front,
        }
    }

    /// Counts the bytes that its buffers take; returns by how many they have grown.
    fn weigh(&mut self) -> i64 {
        let buffers = self.buffers();
        self.session.client.weigh(buffers);
        let before = std::mem::replace(&mut self.weight, buffers.all);
        buffers.all as i64 - before as i64
    }

    fn buffers(&self) -> Buffers {
        let rest: usize = self.rest.iter().map(Planned::bytes).sum();
        let queued = self.session.multi.as_ref().map_or(0, |multi| multi.plan.bytes());
        let walk = self.session.walk.as_ref().map_or(0, |walk| walk.bytes());
        let taken = self.input.capacity() + self.output.capacity() + walk;
        Buffers {
            all: taken + self.batch.bytes() + rest + queued,
            input: self.input.len() - self.consumed,
            input_room: self.input.capacity() - self.input.len(),
            queued,
            unsent: self.output.len() - self.written,
            output: self.output.capacity(),
            waits_for_room: self.awaits_room.into(),
        }
    }

    /// Bytes of replies that the client has not taken.
    fn unread(&self) -> usize {
        // What the socket has taken and not sent counts as a byte.
        self.output.len() - self.written + usize::from(self.stream.has_unsent())
    }

    /// Processes one request of what has been read.
    fn step(&mut self, shared: &Shared) -> Want {
        if self.life != Life::Open || self.waiting != Waiting::Input {
            return Want::Nothing;
        }
        if let Some(len) = self.parsed.take() {
            return self.execute(shared, len);
        }
        let limits = shared.config.limits.request(self.session.authenticated);
        match self.parser.parse(&self.input[self.consumed..], &limits) {
            Ok(Step::Incomplete) => Want::Input,
            Ok(Step::Empty(len)) => {
                self.consumed += len;
                Want::More
            }
            Ok(Step::Command(len)) => self.execute(shared, len),
            Err(_) if self.batch.commands() > 0 => {
                self.parser.reset();
                Want::Submit(Kind::Batch)
            }
            Err(error) => {
                self.protocol_error(shared, error);
                Want::Nothing
            }
        }
    }

    /// Executes the command that the parser holds, in `len` bytes, or keeps it until the batch
    /// before it is done.
    fn execute(&mut self, shared: &Shared, len: usize) -> Want {
        let want = self.answered(shared);
        if matches!(want, Want::Submit(Kind::Batch) | Want::Postpone) {
            self.parsed = Some(len);
        } else {
            self.show(shared);
            self.consumed += len;
            count(&shared.counters.commands, 1);
        }
        want
    }

    fn protocol_error(&mut self, shared: &Shared, error: ProtocolError) {
        count(&shared.counters.protocol_errors, 1);
        shared.stats.of(self.front).errors(b"ERR", 1);
        shared.events.note(Event::ProtocolError, &self.session.client.peer);
        let text = format!("ERR Protocol error: {error}");
        self.session.reply(&mut self.output).error(text.as_bytes());
        self.life = Life::Closing;
    }

    /// As [`Connection::command`], if commands are not paused, and without an answer if the client
    /// wants none.
    fn answered(&mut self, shared: &Shared) -> Want {
        let wanted = self.session.answers;
        let (is_silent, is_paused) = (wanted != Answers::On, self.is_paused(shared));
        // A command without an answer is alone in its batch.
        if self.batch.commands() > 0 && (is_silent || self.silent || is_paused) {
            return Want::Submit(Kind::Batch);
        }
        if is_paused {
            return Want::Postpone;
        }
        self.silent = is_silent;
        if wanted == Answers::SkipNext {
            self.session.answers = Answers::On;
        }
        let before = self.output.len();
        let speaks = self.speaks();
        let want = self.command(shared);
        let quiet = wanted == Answers::SkipNext || self.session.answers == Answers::Off;
        if quiet && !speaks {
            self.hush(before);
        }
        self.silent &= self.batch.commands() > 0 || matches!(want, Want::Submit(_) | Want::Walk);
        want
    }

    /// Batches, queues or answers the command that the parser holds. `Submit(Batch)`: the commands
    /// before it must be executed first.
    fn command(&mut self, shared: &Shared) -> Want {
        let command = self.parser.command(&self.input[self.consumed..]);
        let spec = lookup(command.arg(0));
        self.session.refresh_user(shared);
        let ready = spec.filter(|spec| spec.accepts(command.len()) && self.session.authenticated);
        let ready = ready.filter(|_| !self.session.only_listens());
        if let Some(spec) = ready
            && let Action::Data(..) = spec.action_of(&command)
            && self.session.multi.is_none()
            && !dispatch::is_http(&command)
        {
            // Between WATCH and MULTI each command is a transaction of its own: a group that sets
            // and deletes a watched key would leave no trace for EXEC to see.
            let grouped = self.session.watches.is_empty();
            // Nothing waits for a pop that waits itself, nor ends with a script.
            let grouped = grouped && !spec.is_alone() && !self.batch.is_alone();
            let room = self.batch.commands() == 0 || grouped && self.fits(shared, spec, &command);
            let refused = dispatch::refused(shared, spec, &command);
            let denied = self.session.denied(spec, &command);
            if !room || (refused.is_some() || denied.is_some()) && self.batch.commands() > 0 {
                return Want::Submit(Kind::Batch);
            }
            if let Some(denied) = denied {
                let (session, out, begun) = (&mut self.session, &mut self.output, Instant::now());
                let before = out.len();
                dispatch::deny(session, shared, (spec, &command), denied, out);
                let answered = Answered::new(&out[before..], begun, false);
                dispatch::note(session, shared, self.front, (Some(spec), &command), answered);
                return Want::More;
            }
            if let Some(text) = refused {
                let (session, out, begun) = (&mut self.session, &mut self.output, Instant::now());
                let before = out.len();
                session.refuse(out, &text);
                let answered = Answered::new(&out[before..], begun, false);
                dispatch::note(session, shared, self.front, (Some(spec), &command), answered);
                return Want::More;
            }
            self.session.track(shared, spec, &command);
            self.session.caches = None;
            let planner = shared.planner_for(self.session.database, self.session.user.rights());
            spec.plan(&planner, &mut self.batch, &command);
            self.session.last_command = spec.command_number();
            return Want::More;
        }
        if self.batch.commands() > 0 {
            return Want::Submit(Kind::Batch);
        }
        if spec.is_some_and(|spec| matches!(spec.action, Action::Admin(Admin::Client, _))) {
            self.session.client.weigh(self.buffers());
        }
        let (session, out, begun) = (&mut self.session, &mut self.output, Instant::now());
        let before = out.len();
        let after = dispatch::answer(session, shared, spec, &command, &mut self.batch, out);
        let answered = Answered::new(&out[before..], begun, after.submits());
        dispatch::note(session, shared, self.front, (spec, &command), answered);
        match after {
            After::Go => Want::More,
            After::Wait(time) => Want::Pause(time),
            After::Exec => Want::Submit(Kind::Exec),
            After::Watch => Want::Submit(Kind::Watch),
            After::Walk => Want::Walk,
            After::Close => {
                self.life = Life::Closing;
                Want::Nothing
            }
            After::Drop => {
                self.life = Life::Dead;
                Want::Nothing
            }
        }
    }

    /// Whether `command` may join the batch, which is not empty.
    fn fits(&self, shared: &Shared, spec: &Spec, command: &Command<'_>) -> bool {
        let limits = &shared.config.limits;
        !shared.config.single
            && self.batch.commands() < limits.group_commands.min(self.batch_max)
            && self.batch.keys() + spec.keys.count(command.len()) <= limits.group_keys
            && self.batch.bytes() + command.bytes() <= limits.group_bytes
    }

    /// The plan that [`Want::Submit`] asks for; `note` sees its builder.
    fn finish(
        &mut self,
        kind: Kind,
        shared: &Shared,
        note: impl FnOnce(&mut PlanBuilder),
    ) -> Option<Planned> {
        let bounds =
            Bounds { value_max: shared.config.limits.value_bytes, sizes: shared.sizes.load() };
        let now = shared.unix_ms();
        let Self { session, batch, .. } = self;
        let (mut multi, watches) = match kind {
            Kind::Exec => (session.take_multi(), std::mem::take(&mut session.watches)),
            Kind::Batch | Kind::Watch | Kind::Walk | Kind::Script => (None, Vec::new()),
        };
        let plan = match kind {
            Kind::Exec => &mut multi.as_mut()?.plan,
            Kind::Batch | Kind::Watch | Kind::Walk | Kind::Script => batch,
        };
        if shared.notices.is_on() {
            plan.tell_events();
        }
        let planned = plan.finish(kind, session.protocol, bounds, &watches, now);
        note(plan);
        if let Some((paused, time)) = multi.and_then(|multi| multi.pause) {
            shared.pause.begin(paused, time);
        }
        Some(planned)
    }

    /// Answers the client's transaction, or prepares its parts.
    fn end(&mut self, planned: &Planned, end: End, shared: &Shared) {
        let (took, before) = (self.submitted.elapsed(), self.output.len());
        match end {
            End::Committed(output) => {
                let executed = OutputHead::parse(&output).map_or(0, |(head, _)| head.executed);
                self.note_calls(planned, executed, took, shared);
                if self.answer(planned, &output).is_none() {
                    self.fail(planned, REFUSED, shared);
                }
                let null = planned.kind() == Kind::Exec
                    && OutputHead::parse(&output)
                        .is_some_and(|(_, replies)| matches!(replies, b"*-1\r\n" | b"_\r\n"));
                if null {
                    count(&shared.counters.watch_failures, 1);
                    self.session.undo_select();
                }
            }
            End::Split([first, second]) => self.rest.extend([second, first]),
            End::Failed(text) => {
                self.session.undo_select();
                let mut stats = shared.stats.of(self.front);
                planned.places(planned.commands()).for_each(|calls| stats.failed(calls));
                drop(stats);
                self.fail(planned, &text, shared);
            }
        }
        self.hush(before);
        self.push_stale(shared);
    }

    /// Counts the first `executed` commands, and keeps them if they took long.
    fn note_calls(&self, planned: &Planned, executed: usize, took: Duration, shared: &Shared) {
        let mut stats = shared.stats.of(self.front);
        planned.places(executed).for_each(|calls| stats.called(calls, took));
        if planned.kind() == Kind::Exec
            && let Some(exec) = lookup(b"exec")
        {
            stats.called((exec.number.into(), 1), took);
        }
        drop(stats);
        shared.stats.spikes.note(took);
        if shared.stats.slow.is_slow(took) {
            shared.stats.slow.add_planned(
                took,
                planned,
                executed,
                SlowClient::of(&self.session.client),
            );
        }
    }

    /// Appends the replies of a committed transaction. `None`: its output is not in the layout.
    fn answer(&mut self, done: &Planned, output: &[u8]) -> Option<()> {
        let (OutputHead { executed, .. }, replies) = OutputHead::parse(output)?;
        let commands = done.commands();
        if done.kind() == Kind::Watch {
            for watch in parse_observations(replies).ok()? {
                // The first observation of a record counts: what was watched earlier may have
                // changed.
                if !self.session.watches.iter().any(|known| known.row == watch.row) {
                    self.session.watches.push(watch);
                }
            }
            self.session.reply(&mut self.output).status("OK");
            return Some(());
        }
        if executed == 0 && commands > 0 || executed > commands {
            return None;
        }
        if executed < commands {
            // The others are likely to answer as much, and each part reads all its records.
            for from in (executed..commands).step_by(executed).rev() {
                self.rest.push(done.part(from, (from + executed).min(commands)).ok()?);
            }
        }
        if done.kind() == Kind::Batch {
            self.batch_max = match executed < commands {
                true => executed,
                false => self.batch_max.saturating_mul(2),
            };
        }
        self.output.extend_from_slice(replies);
        Some(())
    }

    /// Answers every command of a transaction with an error.
    fn fail(&mut self, failed: &Planned, text: &[u8], shared: &Shared) {
        let errors = if failed.kind() == Kind::Batch { failed.commands() } else { 1 };
        shared.stats.of(self.front).errors(code_of(text), errors);
        for _ in 0..errors {
            self.session.reply(&mut self.output).error(text);
        }
    }

    /// Whether more may be read than what is still to be executed.
    fn has_room(&self, shared: &Shared) -> bool {
        let limits = shared.config.limits.request(self.session.authenticated);
        self.input.len() - self.consumed < limits.request_bytes
    }

    /// Reads what fits `scratch`; `true` if something came.
    fn fill(&mut self, shared: &Shared, scratch: &mut [u8]) -> bool {
        if !self.readable {
            return false;
        }
        self.input.drain(..self.consumed);
        self.consumed = 0;
        if self.input.is_empty() && self.input.capacity() > BUFFER_KEPT {
            self.input = Vec::new();
        }
        let limits = shared.config.limits.request(self.session.authenticated);
        let room = match self.life {
            Life::Open => limits.request_bytes.saturating_sub(self.input.len()).max(1),
            _ => scratch.len(),
        };
        let room = room.min(scratch.len());
        let scratch = &mut scratch[..room];
        match self.stream.read(scratch) {
            Ok(0) => {
                self.ended = true;
                self.readable = false;
                false
            }
            Ok(len) => {
                // A short read has drained the socket: the next byte raises a new event. The end
                // may have been told together with these bytes, and is then not told again.
                self.readable = self.ending || !self.stream.is_drained(len, scratch.len());
                self.active = Instant::now();
                count(&shared.counters.input_bytes, len as u64);
                if self.life == Life::Open {
                    self.input.extend_from_slice(&scratch[..len]);
                }
                true
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => true,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.readable = false;
                false
            }
            Err(_) => {
                self.life = Life::Dead;
                false
            }
        }
    }

    /// Whether it must read before its next command is executed. Without it a client that reads
    /// nothing would have its commands executed at the expense of all others.
    fn must_read(&mut self, shared: &Shared) -> bool {
        self.paused = self.unread() > shared.config.limits.output_soft_bytes;
        self.paused
    }

    /// Writes what the socket takes; returns how many bytes.
    fn flush(&mut self, shared: &Shared) -> usize {
        let before = self.unread();
        while self.written < self.output.len() {
            match self.stream.write(&self.output[self.written..]) {
                Ok(len) if len > 0 => {
                    self.written += len;
                    count(&shared.counters.output_bytes, len as u64);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return before - self.unread();
                }
                Ok(_) | Err(_) => {
                    self.life = Life::Dead;
                    return before - self.unread();
                }
            }
        }
        match self.stream.flush() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => self.life = Life::Dead,
            _ => {}
        }
        self.output.clear();
        self.written = 0;
        if self.output.capacity() > BUFFER_KEPT {
            self.output = Vec::new();
        }
        before
    }
}
