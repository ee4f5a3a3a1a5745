//! The procedure that runs RESP commands over the records of one transaction.
//!
//! It interprets the commands of its plan in order, over the records that EXECUTE fetched; a later
//! command sees the writes of the earlier ones. Its output is a head ([`OutputHead`]) and the
//! replies of the commands, or the observations of a WATCH.

use std::borrow::Cow;
use std::ops::Range;

use nicol_core::ids::Key;
use nicol_core::txn::{Entry, TXN_BYTES_MAX, Txn, VALUE_MAX, Verdict};

use super::encode::Reply;
use super::expiry::Expiry;
use super::number::{NOT_AN_INTEGER, parse_i64, push_i64};
use super::plan::{Arg, Kind, Op, Plan, Watch};
use super::record::{self, Pair};

/// The head of an output: the number of commands executed, and by how many keys the store has grown
/// (4 bytes each, little-endian).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputHead {
    /// Commands executed.
    pub executed: usize,
    /// Keys inserted minus keys deleted.
    pub grown: i64,
}

impl OutputHead {
    /// Its bytes.
    pub const LEN: usize = 8;

    /// The head of `output` and what follows it.
    pub fn parse(output: &[u8]) -> Option<(Self, &[u8])> {
        let (&[a, b, c, d, e, f, g, h], rest) = output.split_first_chunk::<{ Self::LEN }>()?;
        let executed = u32::from_le_bytes([a, b, c, d]) as usize;
        let grown = i64::from(i32::from_le_bytes([e, f, g, h]));
        Some((Self { executed, grown }, rest))
    }

    /// Its layout. A transaction has far fewer keys than the number holds.
    pub fn emit(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&(self.executed as u32).to_le_bytes());
        bytes[4..].copy_from_slice(&(self.grown as i32).to_le_bytes());
        bytes
    }
}

/// SET stores only if the key is absent.
pub const SET_NX: u8 = 1;
/// SET stores only if the key is present.
pub const SET_XX: u8 = 2;
/// SET answers the old value.
pub const SET_GET: u8 = 4;

/// Bytes of replies behind which a batch ends, and the commands after it become another one.
const BATCH_REPLIES: usize = 256 << 10;

const TOO_LARGE: &[u8] = b"ERR transaction is too large: its values and replies exceed 4 MB";
pub(super) const TOO_LONG: &[u8] = b"ERR string exceeds maximum allowed size (proto-max-bulk-len)";

/// Executes the plan in the arguments of `txn`.
pub fn execute(txn: &mut Txn) -> Verdict {
    let mut output = std::mem::take(&mut txn.output);
    output.clear();
    let mut values = Vec::new();
    let done = run(txn, &mut output, &mut values);
    txn.output = output;
    match done {
        Ok(updates) => {
            for (entry, update) in updates {
                match update {
                    Some(span) => txn.put(entry, &values[span]),
                    None => txn.delete(entry),
                }
            }
            Verdict::Commit
        }
        Err(record::Malformed) => {
            txn.output.clear();
            Verdict::Refuse
        }
    }
}

/// New records: where each lies in a buffer, or its deletion.
type Updates = Vec<(usize, Option<Range<usize>>)>;

fn run(
    txn: &Txn,
    output: &mut Vec<u8>,
    values: &mut Vec<u8>,
) -> Result<Updates, record::Malformed> {
    let plan = Plan::parse(txn.args())?;
    match plan.kind {
        Kind::Watch => observe(txn, &plan, output).map(|()| Vec::new()),
        Kind::Batch => {
            let mut work = Work::new(txn, &plan);
            output.extend_from_slice(&[0; OutputHead::LEN]);
            let executed = work.batch(output)?;
            let (updates, grown) = work.updates(values)?;
            output[..OutputHead::LEN].copy_from_slice(&OutputHead { executed, grown }.emit());
            Ok(updates)
        }
        Kind::Exec => {
            let executed = plan.commands;
            output.extend_from_slice(&OutputHead { executed, grown: 0 }.emit());
            for watch in plan.watches()? {
                if !unchanged(txn, watch, plan.now)? {
                    Reply::new(output, plan.protocol).null_array();
                    return Ok(Vec::new());
                }
            }
            let mut work = Work::new(txn, &plan);
            if !work.exec(output)? {
                output.truncate(OutputHead::LEN);
                Reply::new(output, plan.protocol).error(TOO_LARGE);
                return Ok(Vec::new());
            }
            let (updates, grown) = work.updates(values)?;
            output[..OutputHead::LEN].copy_from_slice(&OutputHead { executed, grown }.emit());
            Ok(updates)
        }
    }
}

fn observe(txn: &Txn, plan: &Plan<'_>, output: &mut Vec<u8>) -> Result<(), record::Malformed> {
    let (mut cursor, mut args) = (plan.cursor(), Vec::new());
    output.extend_from_slice(&OutputHead { executed: plan.commands, grown: 0 }.emit());
    for _ in 0..plan.commands {
        cursor.command(&mut args)?;
        for arg in &args {
            let row = arg.row.ok_or(record::Malformed)?;
            let entry = txn.entries()[find(txn, row)?];
            let Entry { version, present, .. } = entry;
            Watch { row, version, present, seen: plan.now }.emit(output);
        }
    }
    Ok(())
}

/// A key that has expired since it was watched has changed, though its record has not.
fn unchanged(txn: &Txn, watch: Watch, now: i64) -> Result<bool, record::Malformed> {
    let index = find(txn, watch.row)?;
    let entry = txn.entries()[index];
    for pair in record::pairs(txn.value(index).unwrap_or_default()) {
        let pair = pair?;
        if pair.is_over(now) && !pair.is_over(watch.seen) {
            return Ok(false);
        }
    }
    Ok(entry.version == watch.version && entry.present == watch.present)
}

/// The entry of a key that the plan names; it is missing only in arguments from a hostile peer.
fn find(txn: &Txn, row: Key) -> Result<usize, record::Malformed> {
    let index = txn.find(row).ok_or(record::Malformed)?;
    match txn.entries()[index].fetched {
        true => Ok(index),
        false => Err(record::Malformed),
    }
}

impl From<super::plan::Malformed> for record::Malformed {
    fn from(_: super::plan::Malformed) -> Self {
        Self
    }
}

/// Why a command was not executed. It has had no effect.
pub(super) enum Stop {
    /// Malformed arguments, or a malformed record.
    Malformed,
    /// The transaction's budget of bytes is spent.
    Overflow,
}

impl From<record::Malformed> for Stop {
    fn from(_: record::Malformed) -> Self {
        Self::Malformed
    }
}

impl From<super::plan::Malformed> for Stop {
    fn from(_: super::plan::Malformed) -> Self {
        Self::Malformed
    }
}

/// A RESP key as the commands so far have left it.
pub(super) struct Slot<'t> {
    pub(super) entry: usize,
    key: &'t [u8],
    pub(super) value: Option<Cow<'t, [u8]>>,
    pub(super) expires: Option<i64>,
    dirty: bool,
    next: Option<usize>,
}

pub(super) struct Work<'t> {
    pub(super) txn: &'t Txn,
    pub(super) plan: Plan<'t>,
    pub(super) slots: Vec<Slot<'t>>,
    /// Entries whose records are to be rewritten without what has expired.
    pub(super) reaped: Vec<usize>,
    /// Per entry of the transaction, its first slot.
    heads: Vec<Option<usize>>,
    /// Bytes written and answered so far, against [`TXN_BYTES_MAX`].
    spent: usize,
}

impl<'t> Work<'t> {
    fn new(txn: &'t Txn, plan: &Plan<'t>) -> Self {
        let heads = vec![None; txn.entries().len()];
        let slots = Vec::with_capacity(plan.commands);
        Self { txn, plan: *plan, slots, reaped: Vec::new(), heads, spent: 0 }
    }

    /// Executes as many commands as fit the budget, the first one in any case, and none behind
    /// [`BATCH_REPLIES`]: other clients wait for as long as a batch takes.
    fn batch(&mut self, output: &mut Vec<u8>) -> Result<usize, record::Malformed> {
        let (mut cursor, mut args) = (self.plan.cursor(), Vec::new());
        for index in 0..self.plan.commands {
            let start = output.len();
            let op = cursor.command(&mut args)?;
            match self.command(op, &args, output) {
                Ok(()) if output.len() > BATCH_REPLIES => return Ok(index + 1),
                Ok(()) => {}
                Err(Stop::Malformed) => return Err(record::Malformed),
                Err(Stop::Overflow) => {
                    output.truncate(start);
                    if index > 0 {
                        return Ok(index);
                    }
                    Reply::new(output, self.plan.protocol).error(TOO_LARGE);
                    return Ok(1);
                }
            }
        }
        Ok(self.plan.commands)
    }

    /// Executes every command; `false` if they do not fit the budget.
    fn exec(&mut self, output: &mut Vec<u8>) -> Result<bool, record::Malformed> {
        let (mut cursor, mut args) = (self.plan.cursor(), Vec::new());
        Reply::new(output, self.plan.protocol).array(self.plan.commands);
        for _ in 0..self.plan.commands {
            let op = cursor.command(&mut args)?;
            match self.command(op, &args, output) {
                Ok(()) => {}
                Err(Stop::Malformed) => return Err(record::Malformed),
                Err(Stop::Overflow) => return Ok(false),
            }
        }
        Ok(true)
    }

    fn command(&mut self, op: Op, args: &[Arg<'t>], output: &mut Vec<u8>) -> Result<(), Stop> {
        let mut reply = Reply::new(output, self.plan.protocol);
        match (op, args) {
            (Op::Literal, [text]) => {
                self.spend(text.bytes.len())?;
                output.extend_from_slice(text.bytes);
            }
            (Op::Get, [key]) => {
                let slot = self.slot(key)?;
                self.answer(slot, &mut reply)?;
            }
            (Op::Set, [key, value, how]) => self.set(key, value, how.bytes, &mut reply)?,
            (Op::GetEx, [key, expiry, wrong @ ..]) => {
                let wrong = wrong.first().map(|text| text.bytes);
                self.get_ex(key, expiry.bytes, wrong, &mut reply)?;
            }
            (Op::Expire, [key, how]) => self.expire(key, how.bytes, &mut reply)?,
            (Op::Ttl, [key, unit]) => self.ttl(key, unit.bytes, &mut reply)?,
            (Op::Persist, [key]) => self.persist(key, &mut reply)?,
            (Op::Reap, [row]) => self.reap(row, &mut reply)?,
            (Op::GetRange, [key, first, last]) => {
                self.get_range(key, [first.bytes, last.bytes], &mut reply)?;
            }
            (Op::SetRange, [key, offset, value]) => {
                self.set_range(key, offset.bytes, value.bytes, &mut reply)?;
            }
            (Op::AddFloat, [key, amount]) => self.add_float(key, amount.bytes, &mut reply)?,
            (Op::Rename | Op::RenameNx, [from, to]) => self.rename(op, from, to, &mut reply)?,
            (Op::SetNx, [key, value]) => {
                let slot = self.slot(key)?;
                let absent = self.slots[slot].value.is_none();
                if absent {
                    self.store(slot, Cow::Borrowed(value.bytes))?;
                }
                reply.integer(i64::from(absent));
            }
            (Op::GetSet, [key, value]) => {
                let slot = self.slot(key)?;
                self.spend(value.bytes.len())?;
                self.answer(slot, &mut reply)?;
                self.replace(slot, Some(Cow::Borrowed(value.bytes)), None)?;
            }
            (Op::GetDel, [key]) => {
                let slot = self.slot(key)?;
                self.answer(slot, &mut reply)?;
                if self.slots[slot].value.is_some() {
                    self.change(slot, None)?;
                }
            }
            (Op::Append, [key, value]) => self.append(key, value.bytes, &mut reply)?,
            (Op::StrLen, [key]) => reply.integer(self.len(key)? as i64),
            (Op::Add, [key, step]) => self.add(key, step.bytes, &mut reply)?,
            (Op::Type, [key]) => {
                let slot = self.slot(key)?;
                reply.status(if self.slots[slot].value.is_some() { "string" } else { "none" });
            }
            (Op::Object, [key, question]) => self.object(key, question.bytes, &mut reply)?,
            (Op::Del | Op::Exists | Op::MGet, keys) => self.each(op, keys, &mut reply)?,
            (Op::MSet | Op::MSetNx, pairs) => self.mset(op, pairs, &mut reply)?,
            _ => return Err(Stop::Malformed),
        }
        Ok(())
    }

    fn set(
        &mut self,
        key: &Arg<'t>,
        value: &Arg<'t>,
        how: &[u8],
        reply: &mut Reply<'_>,
    ) -> Result<(), Stop> {
        let (&flags, expiry) = how.split_first().ok_or(Stop::Malformed)?;
        let expiry = Expiry::parse(expiry).ok_or(Stop::Malformed)?;
        let slot = self.slot(key)?;
        let present = self.slots[slot].value.is_some();
        let refused = (flags & SET_NX != 0 && present) || (flags & SET_XX != 0 && !present);
        if !refused {
            self.spend(value.bytes.len())?;
        }
        match (flags & SET_GET != 0, refused) {
            (true, _) => self.answer(slot, reply)?,
            (false, true) => reply.null(),
            (false, false) => reply.status("OK"),
        }
        if !refused {
            let expires = expiry.deadline(self.plan.now, self.slots[slot].expires);
            self.replace(slot, Some(Cow::Borrowed(value.bytes)), expires)?;
        }
        Ok(())
    }

    fn append(&mut self, key: &Arg<'t>, tail: &'t [u8], reply: &mut Reply<'_>) -> Result<(), Stop> {
        let slot = self.slot(key)?;
        let len = self.slots[slot].value.as_ref().map_or(0, |value| value.len());
        if len + tail.len() > self.plan.value_max {
            reply.error(TOO_LONG);
            return Ok(());
        }
        // Only the first change of a value copies it; the budget counts that copy once.
        let owned = matches!(self.slots[slot].value, Some(Cow::Owned(_)));
        self.spend(if owned { tail.len() } else { len + tail.len() })?;
        let mut value = self.slots[slot].value.take().unwrap_or(Cow::Borrowed(&[])).into_owned();
        value.extend_from_slice(tail);
        reply.integer(value.len() as i64);
        self.change(slot, Some(Cow::Owned(value)))
    }

    fn add(&mut self, key: &Arg<'t>, step: &[u8], reply: &mut Reply<'_>) -> Result<(), Stop> {
        let slot = self.slot(key)?;
        let step = parse_i64(step).ok_or(Stop::Malformed)?;
        let Some(current) = self.slots[slot].value.as_deref().map_or(Some(0), parse_i64) else {
            reply.error(NOT_AN_INTEGER);
            return Ok(());
        };
        let Some(sum) = current.checked_add(step) else {
            reply.error(b"ERR increment or decrement would overflow");
            return Ok(());
        };
        let mut text = Vec::with_capacity(20);
        push_i64(&mut text, sum);
        self.store(slot, Cow::Owned(text))?;
        reply.integer(sum);
        Ok(())
    }

    fn each(&mut self, op: Op, keys: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
        if op == Op::MGet {
            reply.array(keys.len());
        }
        let mut count = 0;
        for key in keys {
            let slot = self.slot(key)?;
            let present = self.slots[slot].value.is_some();
            count += i64::from(present);
            match op {
                Op::MGet => self.answer(slot, reply)?,
                Op::Del if present => self.change(slot, None)?,
                _ => {}
            }
        }
        if op != Op::MGet {
            reply.integer(count);
        }
        Ok(())
    }

    fn mset(&mut self, op: Op, pairs: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
        if !pairs.len().is_multiple_of(2) {
            return Err(Stop::Malformed);
        }
        if op == Op::MSetNx {
            for pair in pairs.chunks_exact(2) {
                let slot = self.slot(&pair[0])?;
                if self.slots[slot].value.is_some() {
                    reply.integer(0);
                    return Ok(());
                }
            }
        }
        self.spend(pairs.iter().map(|arg| arg.bytes.len()).sum())?;
        for pair in pairs.chunks_exact(2) {
            let slot = self.slot(&pair[0])?;
            self.replace(slot, Some(Cow::Borrowed(pair[1].bytes)), None)?;
        }
        match op {
            Op::MSet => reply.status("OK"),
            _ => reply.integer(1),
        }
        Ok(())
    }

    /// The slot of a key, made from its record at its first use.
    pub(super) fn slot(&mut self, key: &Arg<'t>) -> Result<usize, Stop> {
        let entry = find(self.txn, key.row.ok_or(Stop::Malformed)?)?;
        let mut at = self.heads[entry];
        while let Some(slot) = at {
            if self.slots[slot].key == key.bytes {
                return Ok(slot);
            }
            at = self.slots[slot].next;
        }
        let pair = match self.txn.value(entry) {
            Some(record) => record::find(record, key.bytes)?,
            None => None,
        };
        let pair = pair.filter(|pair| !pair.is_over(self.plan.now));
        let (value, expires) =
            (pair.map(|pair| Cow::Borrowed(pair.value)), pair.and_then(|pair| pair.expires));
        let next = self.heads[entry];
        self.slots.push(Slot { entry, key: key.bytes, value, expires, dirty: false, next });
        self.heads[entry] = Some(self.slots.len() - 1);
        Ok(self.slots.len() - 1)
    }

    pub(super) fn answer(&mut self, slot: usize, reply: &mut Reply<'_>) -> Result<(), Stop> {
        self.spend(self.slots[slot].value.as_ref().map_or(0, |value| value.len()))?;
        reply.bulk_or_null(self.slots[slot].value.as_deref());
        Ok(())
    }

    /// Stores a value that takes the old one's deadline.
    pub(super) fn store(&mut self, slot: usize, value: Cow<'t, [u8]>) -> Result<(), Stop> {
        self.spend(value.len())?;
        self.change(slot, Some(value))
    }

    /// Changes a value, if not to none with its old deadline.
    pub(super) fn change(&mut self, slot: usize, value: Option<Cow<'t, [u8]>>) -> Result<(), Stop> {
        let expires = self.slots[slot].expires;
        self.replace(slot, value, expires)
    }

    /// Changes a value and its deadline; one that is over leaves nothing.
    pub(super) fn replace(
        &mut self,
        slot: usize,
        value: Option<Cow<'t, [u8]>>,
        expires: Option<i64>,
    ) -> Result<(), Stop> {
        let slot = &mut self.slots[slot];
        if !self.txn.entries()[slot.entry].write {
            return Err(Stop::Malformed);
        }
        let over = expires.is_some_and(|deadline| deadline <= self.plan.now);
        slot.value = value.filter(|_| !over);
        slot.expires = expires.filter(|_| slot.value.is_some());
        slot.dirty = true;
        Ok(())
    }

    pub(super) fn spend(&mut self, bytes: usize) -> Result<(), Stop> {
        if self.spent + bytes > TXN_BYTES_MAX {
            return Err(Stop::Overflow);
        }
        self.spent += bytes;
        Ok(())
    }

    /// The new records, in `values`: what the old one held of other keys, then the changed ones.
    /// Also by how many keys they exceed the old ones.
    fn updates(&self, values: &mut Vec<u8>) -> Result<(Updates, i64), record::Malformed> {
        let (mut updates, mut grown) = (Vec::new(), 0);
        for (entry, head) in self.heads.iter().enumerate() {
            let chain = || std::iter::successors(*head, |slot| self.slots[*slot].next);
            let dirty = chain().any(|slot| self.slots[slot].dirty);
            if !dirty && !self.reaped.contains(&entry) {
                continue;
            }
            let start = values.len();
            for pair in record::pairs(self.txn.value(entry).unwrap_or_default()) {
                let pair = pair?;
                let dirty =
                    |slot: usize| self.slots[slot].dirty && self.slots[slot].key == pair.key;
                if !pair.is_over(self.plan.now) && !chain().any(dirty) {
                    record::push(values, pair);
                } else {
                    grown -= 1;
                }
            }
            for slot in chain().map(|slot| &self.slots[slot]).filter(|slot| slot.dirty) {
                if let Some(value) = &slot.value {
                    let Slot { key, expires, .. } = *slot;
                    record::push(values, Pair { key, value, expires });
                    grown += 1;
                }
            }
            // Refused: keys of one row whose values together exceed a record. It needs a collision
            // of 56 bits between keys of half a megabyte each.
            if values.len() - start > VALUE_MAX {
                return Err(record::Malformed);
            }
            let put = (values.len() > start).then_some(start..values.len());
            updates.push((entry, put));
        }
        Ok((updates, grown))
    }
}
