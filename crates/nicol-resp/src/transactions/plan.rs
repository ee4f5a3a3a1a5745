//! The arguments of the RESP procedure: a list of commands, as the front sends it to the engines.
//!
//! Layout, numbers little-endian: kind (1 byte; its highest bit: events are told; the one below:
//! sizes follow), protocol (1), value limit (4), commands (2), watches (2), now (8: milliseconds of
//! Unix time, by which keys expire), sizes if they are not Redis'; the commands; the watches. A
//! command: op (2), arguments (2), then each argument: tag (1: 0 for an argument that is no key, 1
//! for a key that is read, 2 for one that is written), row (8, of a key only), length (4), bytes. A
//! watch: row (8), version (8), present (1), seen (8: when).

use std::sync::Arc;
use std::time::Duration;

use nicol_core::ids::{Key, Version};
use nicol_core::serving::Request;
use nicol_core::txn::ProcedureId;

pub use super::op::Op;
use super::runs::Runs;
pub use super::sizes::Bounds;
use super::sizes::{SIZES_LEN, Sizes};
use crate::connection::blocked::Turn;
use crate::connection::encode::Protocol;

/// Commands that one plan can hold.
pub const COMMANDS_MAX: usize = u16::MAX as usize;

const HEADER_LEN: usize = 18;
/// Where the number of commands stands.
const COMMANDS: std::ops::Range<usize> = 6..8;
/// Where the time stands.
const NOW: std::ops::Range<usize> = 10..18;
const WATCH_LEN: usize = 25;

/// The tags of arguments.
const PLAIN: u8 = 0;
const READ: u8 = 1;
const WRITTEN: u8 = 2;

/// Set in the kind if the events of keys are told.
const TELLS: u8 = 0x80;
/// Set in the kind if sizes follow.
const SIZED: u8 = 0x40;

/// The kind of the list of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Commands of one pipeline; a prefix of them may be executed.
    Batch,
    /// The body of a MULTI: all or nothing.
    Exec,
    /// Observe the keys of a WATCH.
    Watch,
    /// Rows of a walk, to be listed or emptied; a prefix of them may be. Nothing joins it.
    Walk,
    /// One script: all of its effects or none. Nothing joins it.
    Script,
}

/// What a WATCH saw of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    pub row: Key,
    /// Its version; for an absent record, the floor below which nothing was.
    pub version: Version,
    pub present: bool,
    /// When it was seen: a key that has expired since has changed.
    pub seen: i64,
}

impl Watch {
    fn parse(bytes: &[u8; WATCH_LEN]) -> Self {
        Self {
            row: Key(word(&bytes[0..8])),
            version: Version(word(&bytes[8..16])),
            present: bytes[16] != 0,
            seen: word(&bytes[17..25]) as i64,
        }
    }

    /// Appends it in the layout that plans and [`parse_observations`] read.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.row.0.to_le_bytes());
        out.extend_from_slice(&self.version.0.to_le_bytes());
        out.push(u8::from(self.present));
        out.extend_from_slice(&self.seen.to_le_bytes());
    }
}

/// Arguments that are not in the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// An argument: with its record, if it is a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arg<'a> {
    /// The record of a key.
    pub row: Option<Key>,
    /// Whether it is a key that is written.
    pub writes: bool,
    pub bytes: &'a [u8],
}

/// Writes a plan, command by command.
#[derive(Clone, Debug, Default)]
pub struct PlanBuilder {
    body: Vec<u8>,
    reads: Vec<Key>,
    writes: Vec<Key>,
    commands: usize,
    runs: Runs<Op>,
    /// Where the number of arguments of the current command stands.
    arguments_at: usize,
    arguments: usize,
    op_writes: bool,
    expiring: Vec<(i64, Key)>,
    waits: Option<(Duration, Turn)>,
    tells: bool,
    publishes: bool,
    is_script: bool,
}

impl PlanBuilder {
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of commands so far.
    pub fn commands(&self) -> usize {
        self.commands
    }

    /// Number of keys so far, the same key counted each time.
    pub fn keys(&self) -> usize {
        self.reads.len() + self.writes.len()
    }

    /// Number of records that the plan and the rows in `further` name, each counted once.
    ///
    /// Cost: a sort of all of them. What was named twice is forgotten, so that the next call sorts
    /// no more than there are records.
    pub fn records(&mut self, further: impl Iterator<Item = Key>) -> usize {
        self.writes.sort_unstable();
        self.writes.dedup();
        self.reads.sort_unstable();
        self.reads.dedup();
        let mut all: Vec<Key> = self.reads.iter().chain(&self.writes).copied().collect();
        all.extend(further);
        all.sort_unstable();
        all.dedup();
        all.len()
    }

    pub fn bytes(&self) -> usize {
        self.body.len()
    }

    /// Begins a command, which reads its keys or `writes` them; its arguments follow.
    ///
    /// # Panics
    /// If the plan is full.
    pub fn begin(&mut self, op: Op, writes: bool) {
        assert!(self.commands < COMMANDS_MAX, "the caller bounds the commands of a plan");
        if self.body.is_empty() {
            self.body.resize(HEADER_LEN, 0);
        }
        self.body.extend_from_slice(&op.number().to_le_bytes());
        self.arguments_at = self.body.len();
        self.body.extend_from_slice(&[0; 2]);
        self.commands += 1;
        self.runs.push(op, 1);
        self.arguments = 0;
        self.op_writes = writes;
    }

    /// Adds a key to the current command.
    pub fn key(&mut self, row: Key, bytes: &[u8]) {
        match self.op_writes {
            true => self.writes.push(row),
            false => self.reads.push(row),
        }
        self.body.push(if self.op_writes { WRITTEN } else { READ });
        self.body.extend_from_slice(&row.0.to_le_bytes());
        self.argument(bytes);
    }

    /// Adds a key that the current command reads, whatever it does to its other keys.
    pub fn source(&mut self, row: Key, bytes: &[u8]) {
        let writes = std::mem::replace(&mut self.op_writes, false);
        self.key(row, bytes);
        self.op_writes = writes;
    }

    /// Adds an argument that is no key to the current command.
    pub fn plain(&mut self, bytes: &[u8]) {
        self.body.push(PLAIN);
        self.argument(bytes);
    }

    /// Notes that `row` may hold a key that expires at `deadline`.
    pub fn expires(&mut self, deadline: i64, row: Key) {
        self.expiring.push((deadline, row));
    }

    /// Moves what was noted to `into`.
    pub fn take_expiring(&mut self, into: &mut Vec<(i64, Key)>) {
        into.append(&mut self.expiring);
    }

    /// The current command, the only one of its plan, may wait so many milliseconds for something
    /// to pop or read, 0: without end, in the queue of `turn`.
    pub fn waits(&mut self, millis: u64, turn: Turn) {
        self.waits = Some((Duration::from_millis(millis), turn));
    }

    /// Whether it writes keys so far, or publishes.
    pub fn writes(&self) -> bool {
        !self.writes.is_empty() || self.publishes
    }

    /// Its current command publishes.
    pub fn publishes(&mut self) {
        self.publishes = true;
    }

    /// Its current command, the only one if it is no MULTI, is a script, which may write.
    pub fn script(&mut self, writes: bool) {
        self.is_script = true;
        self.publishes |= writes;
    }

    /// The events of its keys are told once it has committed.
    pub fn tell_events(&mut self) {
        self.tells = true;
    }

    /// Whether no other command joins it: its command may wait, or is a script.
    pub fn is_alone(&self) -> bool {
        self.waits.is_some() || self.is_script
    }

    /// Adds a command that answers `reply`.
    pub fn literal(&mut self, reply: &[u8]) {
        self.begin(Op::LITERAL, false);
        self.plain(reply);
    }

    /// Adds a command, the one in place `number` of the table, that answers the error `reply`.
    pub fn failed(&mut self, number: u16, reply: &[u8]) {
        self.literal(reply);
        self.plain(&number.to_le_bytes());
    }

    /// The plan; the builder is empty again.
    pub fn finish(
        &mut self,
        kind: Kind,
        protocol: Protocol,
        bounds: Bounds,
        watches: &[Watch],
        now: i64,
    ) -> Planned {
        assert!(watches.len() <= usize::from(u16::MAX), "the caller bounds the watches");
        let is_script = std::mem::take(&mut self.is_script) && kind == Kind::Batch;
        let kind = if is_script { Kind::Script } else { kind };
        let mut args = std::mem::take(&mut self.body);
        args.resize(args.len().max(HEADER_LEN), 0);
        args[0] = kind as u8 | if std::mem::take(&mut self.tells) { TELLS } else { 0 };
        args[1] = protocol.number();
        args[2..6].copy_from_slice(&(bounds.value_max as u32).to_le_bytes());
        args[COMMANDS].copy_from_slice(&(self.commands as u16).to_le_bytes());
        args[8..10].copy_from_slice(&(watches.len() as u16).to_le_bytes());
        args[NOW].copy_from_slice(&now.to_le_bytes());
        if bounds.sizes != Sizes::default() {
            args[0] |= SIZED;
            args.splice(HEADER_LEN..HEADER_LEN, bounds.sizes.emit());
        }
        watches.iter().for_each(|watch| watch.emit(&mut args));
        let mut writes = std::mem::take(&mut self.writes);
        writes.sort_unstable();
        writes.dedup();
        let mut reads = std::mem::take(&mut self.reads);
        reads.extend(watches.iter().map(|watch| watch.row));
        reads.sort_unstable();
        reads.dedup();
        reads.retain(|key| writes.binary_search(key).is_err());
        let (commands, runs) = (std::mem::take(&mut self.commands), std::mem::take(&mut self.runs));
        let request = Arc::new(Request { reads, writes, args, procedure: PROCEDURE });
        self.publishes = false;
        let waits = self.waits.take().filter(|_| kind == Kind::Batch);
        Planned { request, kind, protocol, commands, runs, now, waits }
    }

    fn argument(&mut self, bytes: &[u8]) {
        self.arguments += 1;
        assert!(self.arguments <= usize::from(u16::MAX), "the parser bounds the arguments");
        let at = self.arguments_at;
        self.body[at..at + 2].copy_from_slice(&(self.arguments as u16).to_le_bytes());
        self.body.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        self.body.extend_from_slice(bytes);
    }
}

/// A plan that is ready to be submitted, with what the front needs to know of it.
#[derive(Clone, Debug)]
pub struct Planned {
    request: Arc<Request>,
    kind: Kind,
    protocol: Protocol,
    commands: usize,
    runs: Runs<Op>,
    now: i64,
    waits: Option<(Duration, Turn)>,
}

impl Planned {
    /// How long its client waits for something to pop or read, 0 without end, and in which queue;
    /// `None`: not at all.
    pub fn waits(&self) -> Option<(Duration, Turn)> {
        self.waits
    }

    /// The last argument of its last command becomes `last`, which is as long.
    pub fn settle(&mut self, last: &[u8]) {
        let mut request = Request::clone(&self.request);
        let start = request.args.len().saturating_sub(last.len());
        request.args.splice(start.., last.iter().copied());
        self.request = Arc::new(request);
    }

    /// The request; every attempt of a plan has one of its own.
    pub fn request(&self) -> &Arc<Request> {
        &self.request
    }

    /// The kind of the list of commands.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    pub fn commands(&self) -> usize {
        self.commands
    }

    /// Bytes of its arguments.
    pub fn bytes(&self) -> usize {
        self.request.args.len()
    }

    /// Whether it names no record, and so needs no transaction.
    pub fn is_keyless(&self) -> bool {
        self.request.reads.is_empty() && self.request.writes.is_empty()
    }

    /// The places in the table of its first `commands`, with how many there are of each in a row.
    /// Literals have no place.
    pub fn places(&self, commands: usize) -> impl Iterator<Item = (usize, usize)> {
        let mut left = commands;
        let first = self.runs.iter().map(move |(op, count)| {
            let count = count.min(left);
            left -= count;
            (op, count)
        });
        let counted = first.filter(|(_, count)| *count > 0);
        counted.filter_map(|(op, count)| Some((op.place()?, count)))
    }

    /// Each of its first `commands`, by its place in the table, with its arguments as they were
    /// planned; no literals.
    pub fn described(&self, commands: usize) -> Vec<(usize, Vec<&[u8]>)> {
        let Ok(plan) = Plan::parse(&self.request.args) else { return Vec::new() };
        let (mut cursor, mut args, mut all) = (plan.cursor(), Vec::new(), Vec::new());
        for _ in 0..plan.commands.min(commands) {
            let Ok(op) = cursor.command(&mut args) else { break };
            if let Some(place) = op.place() {
                all.push((place, args.iter().map(|arg| arg.bytes).collect()));
            }
        }
        all
    }

    /// The records that it names.
    pub fn rows(&self) -> impl Iterator<Item = &Key> {
        self.request.reads.iter().chain(&self.request.writes)
    }

    /// What its commands do.
    pub fn ops(&self) -> impl Iterator<Item = Op> {
        self.runs.iter().map(|(op, _)| op)
    }

    /// Whether it runs commands of a client, which access the records that it names.
    pub fn accesses(&self) -> bool {
        matches!(self.kind, Kind::Batch | Kind::Exec | Kind::Script)
    }

    /// Whether it is a batch that can be run in parts.
    pub fn splits(&self) -> bool {
        matches!(self.kind, Kind::Batch | Kind::Walk) && self.commands > 1
    }

    /// The same plan, to be submitted again at `now`.
    pub fn at(&self, now: i64) -> Self {
        let mut request = Request::clone(&self.request);
        request.args[NOW].copy_from_slice(&now.to_le_bytes());
        Self { request: Arc::new(request), now, runs: self.runs.clone(), ..*self }
    }

    /// Whether both are batches, and the commands of `other` can be run behind those of this one
    /// over the same keys.
    pub fn covers(&self, other: &Self) -> bool {
        let (own, its) = (&*self.request, &*other.request);
        let writes = |key: &Key| own.writes.binary_search(key).is_ok();
        let reads = |key: &Key| writes(key) || own.reads.binary_search(key).is_ok();
        self.kind == Kind::Batch
            && other.kind == Kind::Batch
            && self.protocol == other.protocol
            && sizes(&own.args) == sizes(&its.args)
            && its.writes.iter().all(writes)
            && its.reads.iter().all(reads)
    }

    /// The commands of this batch and then those of `others`, which it covers.
    pub fn join<'p>(&self, others: impl Iterator<Item = &'p Self>) -> Self {
        let mut request = Request::clone(&self.request);
        let mut runs = self.runs.clone();
        let mut tells = 0;
        let Self { kind, protocol, mut commands, mut now, .. } = *self;
        for other in others {
            assert!(self.covers(other), "a joined batch touches no other keys");
            let head = HEADER_LEN + sizes(&other.request.args).len();
            request.args.extend_from_slice(&other.request.args[head..]);
            tells |= other.request.args[0] & TELLS;
            commands += other.commands;
            other.runs.iter().for_each(|(op, count)| runs.push(op, count));
            now = now.max(other.now);
        }
        assert!(commands <= COMMANDS_MAX, "the caller bounds the commands of a plan");
        request.args[0] |= tells;
        request.args[COMMANDS].copy_from_slice(&(commands as u16).to_le_bytes());
        request.args[NOW].copy_from_slice(&now.to_le_bytes());
        Self { request: Arc::new(request), kind, protocol, commands, runs, now, waits: None }
    }

    /// The commands `from..to` alone: what remains of a batch, or a part of it.
    ///
    /// # Errors
    /// If the arguments are not in the layout.
    pub fn part(&self, from: usize, to: usize) -> Result<Self, Malformed> {
        let plan = Plan::parse(&self.request.args)?;
        let mut builder = PlanBuilder { tells: plan.tells, ..PlanBuilder::new() };
        let (mut cursor, mut args) = (plan.cursor(), Vec::new());
        for index in 0..to.min(plan.commands) {
            let op = cursor.command(&mut args)?;
            if index < from {
                continue;
            }
            builder.begin(op, args.iter().any(|arg| arg.writes));
            for arg in &args {
                match arg.row {
                    Some(row) if arg.writes => builder.key(row, arg.bytes),
                    Some(row) => builder.source(row, arg.bytes),
                    None => builder.plain(arg.bytes),
                }
            }
        }
        Ok(builder.finish(self.kind, self.protocol, plan.bounds, &[], self.now))
    }
}

/// The sizes in a plan's arguments; empty if they are Redis'.
fn sizes(args: &[u8]) -> &[u8] {
    match args[0] & SIZED {
        0 => &[],
        _ => &args[HEADER_LEN..HEADER_LEN + SIZES_LEN],
    }
}

/// The one procedure of the RESP front.
pub const PROCEDURE: ProcedureId = ProcedureId(0);

/// A plan's head and the place of its commands.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// The kind of the list of commands.
    pub kind: Kind,
    /// Whether the events of keys are told.
    pub tells: bool,
    /// How replies are written.
    pub protocol: Protocol,
    pub bounds: Bounds,
    pub commands: usize,
    /// When it was submitted, in milliseconds of Unix time.
    pub now: i64,
    watches: usize,
    body: &'a [u8],
}

impl<'a> Plan<'a> {
    /// Reads the head of `args`.
    pub fn parse(args: &'a [u8]) -> Result<Self, Malformed> {
        let (head, body) = args.split_first_chunk::<HEADER_LEN>().ok_or(Malformed)?;
        let [kind, protocol, v0, v1, v2, v3, c0, c1, w0, w1, ..] = *head;
        let (sizes, body) = match kind & SIZED {
            0 => (Sizes::default(), body),
            _ => {
                let (sizes, body) = body.split_first_chunk().ok_or(Malformed)?;
                (Sizes::parse(sizes), body)
            }
        };
        let (kind, tells) = (kind & !(TELLS | SIZED), kind & TELLS != 0);
        let kind = match kind {
            0 => Kind::Batch,
            1 => Kind::Exec,
            2 => Kind::Watch,
            3 => Kind::Walk,
            4 => Kind::Script,
            _ => return Err(Malformed),
        };
        Ok(Self {
            kind,
            tells,
            protocol: Protocol::from_number(protocol).ok_or(Malformed)?,
            bounds: Bounds { value_max: u32::from_le_bytes([v0, v1, v2, v3]) as usize, sizes },
            commands: usize::from(u16::from_le_bytes([c0, c1])),
            now: word(&head[NOW]) as i64,
            watches: usize::from(u16::from_le_bytes([w0, w1])),
            body,
        })
    }

    pub fn watches(&self) -> Result<impl Iterator<Item = Watch> + use<'a>, Malformed> {
        let start = self.body.len().checked_sub(self.watches * WATCH_LEN).ok_or(Malformed)?;
        Ok(self.body[start..].as_chunks::<WATCH_LEN>().0.iter().map(Watch::parse))
    }

    /// A cursor at the first command.
    pub fn cursor(&self) -> Cursor<'a> {
        Cursor(self.body)
    }
}

/// Reads commands one after the other.
#[derive(Clone, Debug)]
pub struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    /// The next command; its arguments replace what is in `args`.
    pub fn command(&mut self, args: &mut Vec<Arg<'a>>) -> Result<Op, Malformed> {
        args.clear();
        let [op, op_high, low, high] = *self.take::<4>()?;
        let op = Op::of_number(u16::from_le_bytes([op, op_high]));
        for _ in 0..u16::from_le_bytes([low, high]) {
            let [tag] = *self.take::<1>()?;
            let row = match tag {
                PLAIN => None,
                READ | WRITTEN => Some(Key(u64::from_le_bytes(*self.take::<8>()?))),
                _ => return Err(Malformed),
            };
            let len = u32::from_le_bytes(*self.take::<4>()?) as usize;
            let (bytes, rest) = self.0.split_at_checked(len).ok_or(Malformed)?;
            self.0 = rest;
            args.push(Arg { row, writes: tag == WRITTEN, bytes });
        }
        Ok(op)
    }

    fn take<const N: usize>(&mut self) -> Result<&'a [u8; N], Malformed> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(Malformed)?;
        self.0 = rest;
        Ok(head)
    }
}

fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// The observations in the output of a WATCH, after its count of commands.
pub fn parse_observations(output: &[u8]) -> Result<Vec<Watch>, Malformed> {
    let (watches, rest) = output.as_chunks::<WATCH_LEN>();
    if !rest.is_empty() {
        return Err(Malformed);
    }
    Ok(watches.iter().map(Watch::parse).collect())
}
