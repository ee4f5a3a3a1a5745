//! Xenic's messages, named as in the paper. Bodies are little-endian; a parsed message borrows the
//! body it came from.

use nicol_core::fabric::Message;
use nicol_core::ids::{Key, ShardId, TxnId, Version};
use nicol_core::txn::{Abort, Entry, KEYS_MAX, Outcome, ProcedureId, Txn, VALUE_MAX};
use nicol_core::wire::{Malformed, Reader, Writer};

/// Host to coordinator NIC: begin a transaction. [Xenic21 4.2 (1)]
pub(super) const TXN_REQUEST: u16 = 1;
/// Host to coordinator NIC: a further EXECUTE round of a multi-shot transaction.
pub(super) const TXN_EXECUTE: u16 = 2;
/// Host to coordinator NIC: the write-set values; commit. [Xenic21 4.2 (3)]
pub(super) const TXN_COMMIT: u16 = 3;
/// Host to coordinator NIC: the application refused.
pub(super) const TXN_ABORT: u16 = 4;
/// Host to NIC: log records up to a position have been applied. [Xenic21 4.2 (7)]
pub(super) const LOG_ACK: u16 = 5;
/// Coordinator NIC to primary NIC. [Xenic21 4.2 (2)]
pub(super) const EXECUTE: u16 = 10;
/// Coordinator NIC to primary NIC. [Xenic21 4.2 (4)]
pub(super) const VALIDATE: u16 = 11;
/// Coordinator NIC to backup NIC. [Xenic21 4.2 (5)]
pub(super) const LOG: u16 = 12;
/// Coordinator NIC to primary NIC. [Xenic21 4.2 (6)]
pub(super) const COMMIT: u16 = 13;
/// Coordinator NIC to primary NIC: release the locks of a transaction that will not commit.
pub(super) const ABORT: u16 = 14;

const ABSENT: u32 = u32::MAX;
/// Length that marks a key which is unlocked but not written.
const UNLOCK_ONLY: u32 = u32::MAX - 1;

fn emit_value(value: Option<&[u8]>, to: &mut Writer<'_>) {
    match value {
        Some(bytes) => {
            to.u32(bytes.len() as u32);
            to.bytes(bytes);
        }
        None => to.u32(ABSENT),
    }
}

fn parse_value<'a>(from: &mut Reader<'a>, len: u32) -> Result<Option<&'a [u8]>, Malformed> {
    match len {
        ABSENT => Ok(None),
        len if len as usize <= VALUE_MAX => Ok(Some(from.bytes(len as usize)?)),
        _ => Err(Malformed { what: "a value longer than the limit" }),
    }
}

fn parse_count(from: &mut Reader<'_>) -> Result<u16, Malformed> {
    let count = from.u16()?;
    if usize::from(count) > KEYS_MAX {
        return Err(Malformed { what: "more keys than a transaction may touch" });
    }
    Ok(count)
}

/// An empty reply.
pub(super) struct Ack;

impl Message for Ack {
    const KIND: u16 = 0;
    fn emit(&self, _to: &mut Writer<'_>) {}
}

/// The keys of `txn` in one message, with their place in the read or write set.
fn emit_keys<'a>(entries: impl Iterator<Item = &'a Entry> + Clone, to: &mut Writer<'_>) {
    to.u16(entries.clone().count() as u16);
    for entry in entries {
        to.u64(entry.key.0);
        to.u8(u8::from(entry.write));
    }
}

/// A key and whether it is in the write set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) key: Key,
    pub(super) write: bool,
}

fn parse_key(from: &mut Reader<'_>) -> Result<Access, Malformed> {
    let key = Key(from.u64()?);
    match from.u8()? {
        flag @ (0 | 1) => Ok(Access { key, write: flag == 1 }),
        _ => Err(Malformed { what: "a read or write flag" }),
    }
}

/// TXN_REQUEST: a transaction's initial state.
pub(super) struct TxnRequest<'a> {
    pub(super) txn: &'a Txn,
    pub(super) ship: bool,
}

impl Message for TxnRequest<'_> {
    const KIND: u16 = TXN_REQUEST;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u64(self.txn.id.0);
        to.u16(self.txn.procedure.0);
        to.u8(u8::from(self.ship));
        let args: &[u8] = if self.ship { self.txn.args() } else { &[] };
        to.u32(args.len() as u32);
        to.bytes(args);
        emit_keys(self.txn.entries().iter(), to);
    }
}

/// Fills `txn` from a TXN_REQUEST; returns whether its execution is shipped.
pub(super) fn parse_txn_request(body: &[u8], txn: &mut Txn) -> Result<bool, Malformed> {
    let mut from = Reader::new(body);
    let id = TxnId(from.u64()?);
    let procedure = ProcedureId(from.u16()?);
    let ship = from.u8()? == 1;
    let args = from.u32()?;
    txn.reset(procedure, from.bytes(args as usize)?);
    txn.id = id;
    txn.ship = ship;
    parse_added_keys(&mut from, txn)?;
    from.finish()?;
    Ok(ship)
}

fn parse_added_keys(from: &mut Reader<'_>, txn: &mut Txn) -> Result<(), Malformed> {
    let count = parse_count(from)?;
    if txn.entries().len() + usize::from(count) > KEYS_MAX {
        return Err(Malformed { what: "more keys than a transaction may touch" });
    }
    for _ in 0..count {
        let access = parse_key(from)?;
        if access.write {
            txn.write(access.key)
        } else {
            txn.read(access.key)
        };
    }
    Ok(())
}

/// TXN_EXECUTE: the keys that execution added.
pub(super) struct TxnExecute<'a>(pub(super) &'a Txn);

impl Message for TxnExecute<'_> {
    const KIND: u16 = TXN_EXECUTE;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u64(self.0.id.0);
        emit_keys(self.0.entries().iter().filter(|entry| !entry.fetched), to);
    }
}

/// The transaction that a TXN_EXECUTE, TXN_COMMIT or TXN_ABORT is about.
pub(super) fn parse_txn_id(body: &[u8]) -> Result<TxnId, Malformed> {
    Ok(TxnId(Reader::new(body).u64()?))
}

/// Adds the keys of a TXN_EXECUTE to `txn`.
pub(super) fn parse_txn_execute(body: &[u8], txn: &mut Txn) -> Result<(), Malformed> {
    let mut from = Reader::new(body);
    from.u64()?;
    parse_added_keys(&mut from, txn)?;
    from.finish()
}

/// TXN_COMMIT: the write-set values.
pub(super) struct TxnCommit<'a>(pub(super) &'a Txn);

impl Message for TxnCommit<'_> {
    const KIND: u16 = TXN_COMMIT;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u64(self.0.id.0);
        to.u16(self.0.updates().count() as u16);
        for (index, update) in indexed_updates(self.0) {
            to.u16(index as u16);
            emit_value(update, to);
        }
    }
}

fn indexed_updates(txn: &Txn) -> impl Iterator<Item = (usize, Option<&[u8]>)> {
    (0..txn.entries().len()).filter_map(|index| txn.update(index).map(|write| (index, write.value)))
}

/// Sets the writes of a TXN_COMMIT on `txn`.
pub(super) fn parse_txn_commit(body: &[u8], txn: &mut Txn) -> Result<(), Malformed> {
    let mut from = Reader::new(body);
    from.u64()?;
    for _ in 0..parse_count(&mut from)? {
        let index = usize::from(from.u16()?);
        if !txn.entries().get(index).is_some_and(|entry| entry.write) {
            return Err(Malformed { what: "a write outside the write set" });
        }
        let len = from.u32()?;
        match parse_value(&mut from, len)? {
            Some(value) => txn.put(index, value),
            None => txn.delete(index),
        }
    }
    from.finish()
}

/// TXN_ABORT.
pub(super) struct TxnAbort(pub(super) TxnId);

impl Message for TxnAbort {
    const KIND: u16 = TXN_ABORT;
    fn emit(&self, to: &mut Writer<'_>) {
        to.u64(self.0.0);
    }
}

/// LOG_ACK: everything below `applied` bytes of the NIC engine's log is in the tables.
pub(super) struct LogAck {
    pub(super) applied: u64,
}

impl Message for LogAck {
    const KIND: u16 = LOG_ACK;
    fn emit(&self, to: &mut Writer<'_>) {
        to.u64(self.applied);
    }
}

/// Parses a LOG_ACK.
pub(super) fn parse_log_ack(body: &[u8]) -> Result<LogAck, Malformed> {
    let mut from = Reader::new(body);
    let applied = from.u64()?;
    from.finish()?;
    Ok(LogAck { applied })
}

/// The coordinator NIC's answer to its host.
pub(super) enum HostReply<'a> {
    /// EXECUTE succeeded: the state of the keys that this round fetched, in their order.
    Executed { txn: &'a Txn, fetched: &'a [usize] },
    /// The transaction is over. A shipped one also returns what it read, wrote and put out.
    Ended { outcome: Outcome, shipped: Option<&'a Txn> },
}

impl Message for HostReply<'_> {
    const KIND: u16 = 0;

    fn emit(&self, to: &mut Writer<'_>) {
        match self {
            Self::Executed { txn, fetched } => {
                to.u8(0);
                for &index in *fetched {
                    to.u64(txn.entries()[index].version.0);
                    emit_value(txn.value(index), to);
                }
            }
            Self::Ended { outcome, shipped } => {
                to.u8(1);
                emit_outcome(*outcome, to);
                let Some(txn) = shipped else { return };
                to.u16(txn.entries().len() as u16);
                for (index, entry) in txn.entries().iter().enumerate() {
                    to.u64(entry.key.0);
                    to.u64(entry.version.0);
                    let update = txn.update(index).map(|write| write.value.is_some());
                    let flags = u8::from(entry.write)
                        | u8::from(entry.present) << 1
                        | u8::from(update == Some(true)) << 2
                        | u8::from(update == Some(false)) << 3;
                    to.u8(flags);
                }
                to.bytes(&txn.output);
            }
        }
    }
}

fn emit_outcome(outcome: Outcome, to: &mut Writer<'_>) {
    match outcome {
        Outcome::Committed => to.u8(0),
        Outcome::Unknown => to.u8(1),
        Outcome::Aborted(abort) => {
            to.u8(2);
            emit_abort(abort, to);
        }
    }
}

fn emit_abort(abort: Abort, to: &mut Writer<'_>) {
    to.u8(abort.index() as u8);
    let key = match abort {
        Abort::LockConflict { key } | Abort::Stale { key } | Abort::ValidateLocked { key } => key,
        Abort::Refused | Abort::NoResources | Abort::Fabric(_) => Key(0),
    };
    to.u64(key.0);
}

fn parse_abort(from: &mut Reader<'_>) -> Result<Abort, Malformed> {
    let reason = from.u8()?;
    let key = Key(from.u64()?);
    Ok(match reason {
        0 => Abort::LockConflict { key },
        1 => Abort::Stale { key },
        2 => Abort::ValidateLocked { key },
        3 => Abort::Refused,
        4 => Abort::NoResources,
        5 => Abort::Fabric(nicol_core::fabric::FabricError::Unreachable),
        _ => return Err(Malformed { what: "an abort reason" }),
    })
}

/// Applies the NIC's answer to the host's transaction: `None` if execution goes on, the outcome
/// if it is over.
pub(super) fn parse_host_reply(body: &[u8], txn: &mut Txn) -> Result<Option<Outcome>, Malformed> {
    let mut from = Reader::new(body);
    if from.u8()? == 0 {
        for index in 0..txn.entries().len() {
            if txn.entries()[index].fetched {
                continue;
            }
            let version = Version(from.u64()?);
            let len = from.u32()?;
            let value = parse_value(&mut from, len)?;
            txn.fetched(index, version, value);
        }
        from.finish()?;
        return Ok(None);
    }
    let outcome = match from.u8()? {
        0 => Outcome::Committed,
        1 => Outcome::Unknown,
        2 => Outcome::Aborted(parse_abort(&mut from)?),
        _ => return Err(Malformed { what: "an outcome" }),
    };
    if !from.rest().is_empty() {
        parse_shipped(&mut from, txn)?;
    }
    Ok(Some(outcome))
}

fn parse_shipped(from: &mut Reader<'_>, txn: &mut Txn) -> Result<(), Malformed> {
    for _ in 0..parse_count(from)? {
        let (key, version, flags) = (Key(from.u64()?), Version(from.u64()?), from.u8()?);
        let index = if flags & 1 != 0 { txn.write(key) } else { txn.read(key) };
        txn.executed_remotely(index, version, flags & 2 != 0);
        if flags & 4 != 0 && flags & 1 != 0 {
            txn.put(index, &[]);
        }
        if flags & 8 != 0 && flags & 1 != 0 {
            txn.delete(index);
        }
    }
    let rest = from.rest();
    txn.output.extend_from_slice(from.bytes(rest.len())?);
    Ok(())
}

/// EXECUTE: one shard's keys of this round. [Xenic21 4.2 (2)]
pub(super) struct Execute<'a> {
    pub(super) txn: &'a Txn,
    /// Indices of the shard's keys.
    pub(super) keys: &'a [usize],
}

impl Message for Execute<'_> {
    const KIND: u16 = EXECUTE;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u64(self.txn.id.0);
        emit_keys(self.keys.iter().map(|&index| &self.txn.entries()[index]), to);
    }
}

/// A parsed EXECUTE, or ABORT: a transaction and keys.
#[derive(Clone, Copy)]
pub(super) struct Keys<'a> {
    pub(super) txn: TxnId,
    count: u16,
    from: Reader<'a>,
}

impl<'a> Keys<'a> {
    /// Parses and checks every key.
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(body);
        let txn = TxnId(from.u64()?);
        let count = parse_count(&mut from)?;
        let keys = Self { txn, count, from };
        for _ in 0..count {
            parse_key(&mut from)?;
        }
        from.finish()?;
        Ok(keys)
    }

    /// The keys, in the sender's order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Access> + use<'a> {
        let mut from = self.from;
        (0..self.count).map_while(move |_| parse_key(&mut from).ok())
    }
}

/// The primary's answer to EXECUTE.
pub(super) enum ExecuteReply<'a, I> {
    /// Locked and read: version and value of each key, in the request's order.
    Granted(I, &'a [u8]),
    /// Nothing was locked.
    Denied(Abort),
}

/// One key's state as EXECUTE found it: its value is a range of the reply's value buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) version: Version,
    pub(super) value: Option<(u32, u32)>,
}

impl<I: Iterator<Item = Found> + Clone> Message for ExecuteReply<'_, I> {
    const KIND: u16 = 0;

    fn emit(&self, to: &mut Writer<'_>) {
        match self {
            Self::Granted(found, values) => {
                to.u8(0);
                for found in found.clone() {
                    to.u64(found.version.0);
                    let bytes = found
                        .value
                        .map(|(start, len)| &values[start as usize..(start + len) as usize]);
                    emit_value(bytes, to);
                }
            }
            Self::Denied(abort) => {
                to.u8(1);
                emit_abort(*abort, to);
            }
        }
    }
}

/// Applies an EXECUTE's reply to the keys it asked for.
pub(super) fn parse_execute_reply(
    body: &[u8],
    txn: &mut Txn,
    keys: &[usize],
) -> Result<Result<(), Abort>, Malformed> {
    let mut from = Reader::new(body);
    if from.u8()? != 0 {
        return Ok(Err(parse_abort(&mut from)?));
    }
    for &index in keys {
        let version = Version(from.u64()?);
        let len = from.u32()?;
        let value = parse_value(&mut from, len)?;
        txn.fetched(index, version, value);
    }
    from.finish()?;
    Ok(Ok(()))
}

/// VALIDATE: keys that were read but not locked, with the versions read. [Xenic21 4.2 (4)]
pub(super) struct Validate<'a> {
    pub(super) txn: &'a Txn,
    pub(super) keys: &'a [usize],
}

impl Message for Validate<'_> {
    const KIND: u16 = VALIDATE;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u16(self.keys.len() as u16);
        for &index in self.keys {
            let entry = &self.txn.entries()[index];
            to.u64(entry.key.0);
            to.u64(entry.version.0);
            to.u8(u8::from(entry.present));
        }
    }
}

/// A key with what a transaction read of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadOf {
    pub(super) key: Key,
    pub(super) version: Version,
    pub(super) present: bool,
}

/// A parsed VALIDATE.
#[derive(Clone, Copy)]
pub(super) struct Reads<'a> {
    count: u16,
    from: Reader<'a>,
}

impl<'a> Reads<'a> {
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(body);
        let count = parse_count(&mut from)?;
        let reads = Self { count, from };
        for _ in 0..count {
            parse_read(&mut from)?;
        }
        from.finish()?;
        Ok(reads)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = ReadOf> + use<'a> {
        let mut from = self.from;
        (0..self.count).map_while(move |_| parse_read(&mut from).ok())
    }
}

fn parse_read(from: &mut Reader<'_>) -> Result<ReadOf, Malformed> {
    let (key, version) = (Key(from.u64()?), Version(from.u64()?));
    Ok(ReadOf { key, version, present: from.u8()? == 1 })
}

/// The primary's answer to VALIDATE.
pub(super) struct ValidateReply(pub(super) Result<(), Abort>);

impl Message for ValidateReply {
    const KIND: u16 = 0;

    fn emit(&self, to: &mut Writer<'_>) {
        match self.0 {
            Ok(()) => to.u8(0),
            Err(abort) => {
                to.u8(1);
                emit_abort(abort, to);
            }
        }
    }
}

/// Parses a VALIDATE's reply.
pub(super) fn parse_validate_reply(body: &[u8]) -> Result<Result<(), Abort>, Malformed> {
    let mut from = Reader::new(body);
    match from.u8()? {
        0 => Ok(Ok(())),
        _ => Ok(Err(parse_abort(&mut from)?)),
    }
}

/// A write set of one shard, as LOG and COMMIT carry it and as it stands in a log record.
struct WriteSet<'a> {
    txn: &'a Txn,
    shard: ShardId,
    keys: &'a [usize],
}

impl WriteSet<'_> {
    fn emit(&self, unlocks: bool, to: &mut Writer<'_>) {
        let written = |&index: &usize| self.txn.update(index).is_some();
        to.u64(self.txn.id.0);
        to.u16(self.shard.0);
        let count = self.keys.iter().filter(|&index| unlocks || written(index)).count();
        to.u16(count as u16);
        for &index in self.keys {
            match self.txn.update(index) {
                Some(write) => {
                    to.u64(write.key.0);
                    to.u64(write.version.0);
                    emit_value(write.value, to);
                }
                None if unlocks => {
                    to.u64(self.txn.entries()[index].key.0);
                    to.u64(0);
                    to.u32(UNLOCK_ONLY);
                }
                None => {}
            }
        }
    }
}

/// LOG: a shard's writes for one of its backups. [Xenic21 4.2 (5)]
pub(super) struct Log<'a> {
    pub(super) txn: &'a Txn,
    pub(super) shard: ShardId,
    pub(super) keys: &'a [usize],
}

impl Message for Log<'_> {
    const KIND: u16 = LOG;

    fn emit(&self, to: &mut Writer<'_>) {
        WriteSet { txn: self.txn, shard: self.shard, keys: self.keys }.emit(false, to);
    }
}

/// COMMIT: a shard's writes, and the keys that are only unlocked. [Xenic21 4.2 (6)]
pub(super) struct Commit<'a> {
    pub(super) txn: &'a Txn,
    pub(super) shard: ShardId,
    pub(super) keys: &'a [usize],
}

impl Message for Commit<'_> {
    const KIND: u16 = COMMIT;

    fn emit(&self, to: &mut Writer<'_>) {
        WriteSet { txn: self.txn, shard: self.shard, keys: self.keys }.emit(true, to);
    }
}

/// ABORT: the keys that the transaction may have locked at this primary.
pub(super) struct AbortLocks<'a> {
    pub(super) txn: &'a Txn,
    pub(super) keys: &'a [usize],
}

impl Message for AbortLocks<'_> {
    const KIND: u16 = ABORT;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u64(self.txn.id.0);
        emit_keys(self.keys.iter().map(|&index| &self.txn.entries()[index]), to);
    }
}

/// What a LOG or COMMIT does to one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change<'a> {
    Put(&'a [u8]),
    Delete,
    UnlockOnly,
}

/// A parsed LOG or COMMIT.
#[derive(Clone, Copy)]
pub(super) struct Writes<'a> {
    pub(super) txn: TxnId,
    pub(super) shard: ShardId,
    count: u16,
    from: Reader<'a>,
}

impl<'a> Writes<'a> {
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(body);
        let (txn, shard) = (TxnId(from.u64()?), ShardId(from.u16()?));
        let count = parse_count(&mut from)?;
        let writes = Self { txn, shard, count, from };
        for _ in 0..count {
            parse_change(&mut from)?;
        }
        from.finish()?;
        Ok(writes)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, Version, Change<'a>)> + use<'a> {
        let mut from = self.from;
        (0..self.count).map_while(move |_| parse_change(&mut from).ok())
    }
}

fn parse_change<'a>(from: &mut Reader<'a>) -> Result<(Key, Version, Change<'a>), Malformed> {
    let (key, version) = (Key(from.u64()?), Version(from.u64()?));
    let len = from.u32()?;
    let change = match len {
        UNLOCK_ONLY => Change::UnlockOnly,
        len => parse_value(from, len)?.map_or(Change::Delete, Change::Put),
    };
    Ok((key, version, change))
}
