//! One client's socket, buffers and the transaction it waits for.

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::Instant;

use super::backend::Request;
use super::commands::{Action, Local, Spec, lookup};
use super::local;
use super::parse::{Command, Parser, ProtocolError, Step};
use super::plan::{COMMANDS_MAX, Kind, PlanBuilder};
use super::session::{After, Session};
use super::shared::{Shared, count};
use super::single::refusal;
use super::socket::Stream;
use super::translate::{Translator, arity_error, unknown_command};

/// Buffers larger than this are given back once they are empty.
const BUFFER_KEPT: usize = 64 << 10;

/// What the connection waits for.
#[derive(Debug, Default)]
pub enum Waiting {
    /// For input.
    #[default]
    Input,
    /// For the outcome of a transaction.
    Transaction(Transaction),
    /// Until a time, before it goes on.
    Pause,
}

/// A transaction in progress.
#[derive(Debug)]
pub struct Transaction {
    /// What was submitted.
    pub request: Arc<Request>,
    /// What it is.
    pub kind: Kind,
    /// Its commands: as many errors are answered if it fails.
    pub commands: usize,
    /// How often it has been submitted.
    pub attempts: u32,
    /// When the store got it first; until then, when it was read.
    pub begun: Instant,
    /// Has the store got an attempt? If not, it waits for its turn, or backs off.
    pub under_way: bool,
}

/// How far a connection is from its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Commands are processed.
    Open,
    /// Replies are sent, then the connection is closed.
    Closing,
    /// All was sent; what the client still sends is thrown away until it closes, or until a time.
    Lingering(Instant),
    /// To be removed.
    Dead,
}

/// What [`Connection::step`] wants of the event loop.
#[derive(Debug, PartialEq, Eq)]
pub enum Want {
    /// Call again.
    More,
    /// Read; nothing complete is left.
    Input,
    /// Submit the batch.
    Batch,
    /// Submit the transaction that EXEC ends.
    Exec,
    /// Submit the observation of a WATCH, which is the batch.
    Watch,
    /// Go on after a while.
    Pause(std::time::Duration),
    /// Nothing: it is closing.
    Nothing,
}

/// A client.
#[derive(Debug)]
pub struct Connection {
    /// Its socket.
    pub stream: Stream,
    /// What it chose and queued.
    pub session: Session,
    /// What it waits for.
    pub waiting: Waiting,
    /// Whether it still lives.
    pub life: Life,
    /// Pipelined commands that will become one transaction.
    pub batch: PlanBuilder,
    /// Parts of a batch that was split, to be submitted in order (the last one first).
    pub rest: Vec<Request>,
    /// Commands of one batch, at most: as many as answered a bounded number of bytes, twice as many
    /// after each batch that was executed whole.
    batch_max: usize,
    /// Replies not yet written.
    pub output: Vec<u8>,
    /// The poll tells when the socket has room for replies: asked for where it had none.
    pub awaits_room: bool,
    /// The socket may hold input.
    pub readable: bool,
    /// The client has closed its side, and that has not been read yet.
    pub ending: bool,
    /// The client has closed its side.
    pub ended: bool,
    /// When it last sent something.
    pub active: Instant,
    /// Since when its unread replies exceed the soft limit and it has read nothing.
    pub above_soft: Option<Instant>,
    /// Its commands wait because of unread replies.
    pub paused: bool,
    input: Vec<u8>,
    consumed: usize,
    written: usize,
    parser: Parser,
}

impl Connection {
    /// A new client.
    pub fn new(stream: Stream, session: Session) -> Self {
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
        }
    }

    /// A batch of so many `commands` was executed up to `executed`.
    pub fn note_executed(&mut self, executed: usize, commands: usize) {
        self.batch_max = match executed < commands {
            true => executed,
            false => self.batch_max.saturating_mul(2),
        };
    }

    /// Bytes of replies that the client has not taken.
    pub fn unread(&self) -> usize {
        self.output.len() - self.written
    }

    /// Processes one request of what has been read.
    pub fn step(&mut self, shared: &Shared) -> Want {
        if self.life != Life::Open || !matches!(self.waiting, Waiting::Input) {
            return Want::Nothing;
        }
        let limits = shared.config.limits.request(self.session.authenticated);
        match self.parser.parse(&self.input[self.consumed..], &limits) {
            Ok(Step::Incomplete) => Want::Input,
            Ok(Step::Empty(len)) => {
                self.consumed += len;
                Want::More
            }
            Ok(Step::Command(len)) => {
                let want = self.command(shared);
                if want == Want::Batch {
                    // The command is parsed again once the commands before it are done.
                    self.parser.reset();
                } else {
                    self.consumed += len;
                    count(&shared.counters.commands, 1);
                }
                want
            }
            Err(_) if self.batch.commands() > 0 => {
                self.parser.reset();
                Want::Batch
            }
            Err(error) => {
                self.protocol_error(shared, error);
                Want::Nothing
            }
        }
    }

    fn protocol_error(&mut self, shared: &Shared, error: ProtocolError) {
        count(&shared.counters.protocol_errors, 1);
        let text = format!("ERR Protocol error: {error}");
        self.session.reply(&mut self.output).error(text.as_bytes());
        self.life = Life::Closing;
    }

    /// Executes, queues or batches the command that the parser holds. `Want::Batch`: the commands
    /// before it must be executed first.
    fn command(&mut self, shared: &Shared) -> Want {
        let command = self.parser.command(&self.input[self.consumed..]);
        let spec = lookup(command.arg(0));
        let ready = spec.filter(|spec| spec.accepts(command.len()) && self.session.authenticated);
        if let Some(spec) = ready
            && let Action::Data(data) = spec.action
            && self.session.multi.is_none()
            && !is_http(&command)
        {
            // Between WATCH and MULTI each command is a transaction of its own: a group that sets
            // and deletes a watched key would leave no trace for EXEC to see.
            let grouped = self.session.watches.is_empty();
            let room = self.batch.commands() == 0 || grouped && self.fits(shared, spec, &command);
            let refused = refused(shared, spec, &command);
            if !room || refused.is_some() && self.batch.commands() > 0 {
                return Want::Batch;
            }
            if let Some(text) = refused {
                self.session.refuse(&mut self.output, &text);
                return Want::More;
            }
            translator(shared).add(&mut self.batch, spec, data, &command);
            self.session.last_command = spec.command_number();
            return Want::More;
        }
        if self.batch.commands() > 0 {
            return Want::Batch;
        }
        let out = &mut self.output;
        let session = &mut self.session;
        let after = other(session, shared, spec, &command, &mut self.batch, out);
        match after {
            After::Go => Want::More,
            After::Wait(time) => Want::Pause(time),
            After::Exec => Want::Exec,
            After::Watch => Want::Watch,
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

    /// May `command` join the batch, which is not empty?
    fn fits(&self, shared: &Shared, spec: &Spec, command: &Command<'_>) -> bool {
        let limits = &shared.config.limits;
        !shared.config.single
            && self.batch.commands() < limits.group_commands.min(self.batch_max)
            && self.batch.keys() + Translator::keys(spec, command) <= limits.group_keys
            && self.batch.bytes() + command.bytes() <= limits.group_bytes
    }

    /// May more be read than what is still to be executed?
    pub fn has_room(&self, shared: &Shared) -> bool {
        let limits = shared.config.limits.request(self.session.authenticated);
        self.input.len() - self.consumed < limits.request_bytes
    }

    /// Reads what fits `scratch`; `true` if something came.
    pub fn fill(&mut self, shared: &Shared, scratch: &mut [u8]) -> bool {
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
                self.readable = self.ending || len == scratch.len();
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

    /// Must it read before its next command is executed? Without it a client that reads nothing
    /// would have its commands executed at the expense of all others.
    pub fn must_read(&mut self, shared: &Shared) -> bool {
        self.paused = self.unread() > shared.config.limits.output_soft_bytes;
        self.paused
    }

    /// Writes what the socket takes; returns how many bytes.
    pub fn flush(&mut self, shared: &Shared) -> usize {
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
        self.output.clear();
        self.written = 0;
        if self.output.capacity() > BUFFER_KEPT {
            self.output = Vec::new();
        }
        before
    }
}

fn translator(shared: &Shared) -> Translator<'_> {
    let (hash_seed, limits) = (shared.config.hash_seed, &shared.config.limits);
    Translator { hash_seed, limits, now: shared.unix_ms() }
}

/// Is it a request of a web browser or a proxy? A web page could make a browser write data through
/// it.
fn is_http(command: &Command<'_>) -> bool {
    let name = command.arg(0);
    let verbs = [&b"post"[..], b"host:", b"head", b"put", b"options", b"patch", b"connect"];
    verbs.iter().any(|verb| name.eq_ignore_ascii_case(verb))
        || command.is_inline() && command.len() == 3 && command.arg(2).starts_with(b"HTTP/")
}

/// Why the store does not run `command`, if it runs single operations only.
fn refused(shared: &Shared, spec: &Spec, command: &Command<'_>) -> Option<Vec<u8>> {
    if shared.config.single { refusal(spec, command) } else { None }
}

/// Executes a command that is no data command, queues one of a MULTI, or answers what is wrong.
fn other(
    session: &mut Session,
    shared: &Shared,
    spec: Option<&'static Spec>,
    command: &Command<'_>,
    batch: &mut PlanBuilder,
    out: &mut Vec<u8>,
) -> After {
    if is_http(command) {
        count(&shared.counters.protocol_errors, 1);
        return After::Drop;
    }
    let Some(spec) = spec else {
        session.refuse(out, &unknown_command(command));
        return After::Go;
    };
    if !spec.accepts(command.len()) && spec.action == Action::Local(Local::Exec) {
        session.multi = None;
        session.watches.clear();
        let text = "EXECABORT Transaction discarded because of: wrong number of arguments for \
                    'exec' command";
        session.reply(out).error(text.as_bytes());
        return After::Go;
    }
    if !spec.accepts(command.len()) {
        session.refuse(out, &arity_error(spec.name));
        return After::Go;
    }
    if !session.authenticated && !spec.flags.contains(&"no_auth") {
        session.refuse(out, b"NOAUTH Authentication required.");
        return After::Go;
    }
    session.last_command = spec.command_number();
    if spec.action == Action::Local(Local::Client) {
        // Before a MULTI that is in progress is taken apart.
        session.publish(Instant::now());
    }
    use Local::{Discard, Exec, Multi, Quit, Reset, Watch};
    let at_once =
        matches!(spec.action, Action::Local(Exec | Discard | Multi | Watch | Quit | Reset));
    if session.multi.is_some() && !at_once {
        queue(session, shared, spec, command, out);
        return After::Go;
    }
    if let Some(text) = refused(shared, spec, command) {
        session.refuse(out, &text);
        return After::Go;
    }
    let Action::Local(local) = spec.action else { return After::Go };
    let after = local::run(local, session, shared, command, out);
    if after == After::Watch {
        let max = shared.config.limits.transaction_keys;
        let many = session.watches.len() + command.len() - 1 > max;
        let observed = match many && watched(session, shared, spec, command) > max {
            true => Err(b"ERR too many watched keys".to_vec()),
            false => translator(shared).observe(batch, spec, command),
        };
        if let Err(text) = observed {
            session.reply(out).error(&text);
            return After::Go;
        }
    }
    after
}

/// The records watched once `command`, a WATCH, has been executed.
fn watched(session: &Session, shared: &Shared, spec: &Spec, command: &Command<'_>) -> usize {
    let mut rows = translator(shared).rows(spec, command);
    rows.extend(session.watches.iter().map(|watch| watch.row));
    rows.sort_unstable();
    rows.dedup();
    rows.len()
}

/// Queues a command after MULTI. A command without records is answered now and its reply queued.
fn queue(
    session: &mut Session,
    shared: &Shared,
    spec: &'static Spec,
    command: &Command<'_>,
    out: &mut Vec<u8>,
) {
    let limits = &shared.config.limits;
    let Some(mut multi) = session.multi.take() else { return };
    let named = multi.plan.keys() + session.watches.len() + Translator::keys(spec, command);
    let bytes = multi.plan.bytes() + command.bytes();
    let many = named > limits.transaction_keys && {
        let further = translator(shared).rows(spec, command);
        let watched = session.watches.iter().map(|watch| watch.row);
        multi.plan.records(further.into_iter().chain(watched)) > limits.transaction_keys
    };
    let mut refusal = None;
    if many {
        refusal = Some(format!("ERR too many keys (limit {} keys)", limits.transaction_keys));
    } else if bytes > limits.transaction_bytes || multi.plan.commands() >= COMMANDS_MAX {
        let max = limits.transaction_bytes;
        refusal = Some(format!("ERR transaction is too large (limit {max} bytes)"));
    } else {
        match spec.action {
            Action::Data(data) => translator(shared).add(&mut multi.plan, spec, data, command),
            Action::Local(Local::Auth | Local::Hello) => {
                refusal = Some(format!("ERR {} inside MULTI is not allowed", spec.name));
            }
            // It would kill now, and EXEC may never come.
            Action::Local(Local::Client) if command.arg(1).eq_ignore_ascii_case(b"kill") => {
                refusal = Some("ERR CLIENT KILL inside MULTI is not allowed".to_owned());
            }
            Action::Local(Local::Unwatch) => multi.plan.literal(b"+OK\r\n"),
            Action::Local(local) => {
                let mut reply = Vec::new();
                // None of these closes, waits or submits.
                let _ = local::run(local, session, shared, command, &mut reply);
                multi.plan.literal(&reply);
            }
        }
    }
    session.multi = Some(multi);
    match refusal {
        Some(text) => session.refuse(out, text.as_bytes()),
        None => session.reply(out).status("QUEUED"),
    }
}
