//! The messages between coordinators, primaries and backups, named as in the papers. Bodies are
//! little-endian.
//!
//! A request is parsed once, where it arrives. What comes out holds the body: a slice during the
//! delivery, or a pooled buffer for the task that serves the request (`keep`).

use nicol_core::fabric::{Fabric, Message};
use nicol_core::ids::{Epoch, Key, ShardId, TxnId, Version};
use nicol_core::txn::{Abort, Entry, KEYS_MAX, Txn, VALUE_MAX};
use nicol_core::wire::{Malformed, Reader, Writer};
use nicol_store::host_table::ExhaustedSpace;

use nicol_kit::{Item, Items};

/// Coordinator to primary. [Xenic21 4.2 step 2]
pub(super) const EXECUTE: u16 = 10;
/// Coordinator to primary. [Xenic21 4.2 step 4]
pub(super) const VALIDATE: u16 = 11;
/// Coordinator to backup. [Xenic21 4.2 step 5]
pub(super) const LOG: u16 = 12;
/// Coordinator to primary. [Xenic21 4.2 step 6]
pub(super) const COMMIT: u16 = 13;
/// Coordinator to primary: release the locks of a transaction that will not commit.
pub(super) const ABORT: u16 = 14;
/// Coordinator to backup: how transactions have ended that it has logged.
pub(super) const DECIDED: u16 = 19;

/// Length that marks a record which is not there.
pub(super) const ABSENT: u32 = u32::MAX;

/// A value behind its length, or the mark of an absent one.
pub(super) fn emit_value(value: Option<&[u8]>, to: &mut Writer<'_>) {
    match value {
        Some(bytes) => {
            to.u32(bytes.len() as u32);
            to.bytes(bytes);
        }
        None => to.u32(ABSENT),
    }
}

/// Takes the value whose length, or mark, was `len`.
#[inline]
pub(super) fn parse_value<'a>(
    from: &mut Reader<'a>,
    len: u32,
) -> Result<Option<&'a [u8]>, Malformed> {
    match len {
        ABSENT => Ok(None),
        len if len as usize <= VALUE_MAX => Ok(Some(from.bytes(len as usize)?)),
        _ => Err(Malformed { what: "a value longer than the limit" }),
    }
}

/// Takes a number of keys.
pub(super) fn parse_count(from: &mut Reader<'_>) -> Result<u16, Malformed> {
    let count = from.u16()?;
    if usize::from(count) > KEYS_MAX {
        return Err(TOO_MANY_KEYS);
    }
    Ok(count)
}

/// Bit of a number of keys: the epoch in which the transaction began stands behind it.
const BEGAN: u16 = 1 << 15;
const _: () = assert!(KEYS_MAX < BEGAN as usize, "a number of keys leaves the bit free");

/// A number of keys and, if messages say it, the epoch in which their transaction began.
pub(super) fn emit_began(count: usize, began: Option<Epoch>, to: &mut Writer<'_>) {
    match began {
        None => to.u16(count as u16),
        Some(epoch) => {
            to.u16(count as u16 | BEGAN);
            to.u32(epoch.0);
        }
    }
}

/// The reverse of [`emit_began`].
pub(super) fn parse_began(from: &mut Reader<'_>) -> Result<(u16, Option<Epoch>), Malformed> {
    let word = from.u16()?;
    let began = if word & BEGAN != 0 { Some(Epoch(from.u32()?)) } else { None };
    let count = word & !BEGAN;
    if usize::from(count) > KEYS_MAX {
        return Err(TOO_MANY_KEYS);
    }
    Ok((count, began))
}

const TOO_MANY_KEYS: Malformed = Malformed { what: "more keys than a transaction may touch" };

/// An empty reply.
pub(super) struct Ack;

impl Message for Ack {
    const KIND: u16 = 0;
    fn emit(&self, _to: &mut Writer<'_>) {}
}

/// Calls `each` with the keys at `places` of `txn`, for traces.
pub(super) fn each_key(txn: &Txn, places: &[usize], each: &mut dyn FnMut(Key)) {
    places.iter().for_each(|&place| each(txn.entries()[place].key));
}

/// The keys of `txn` in one message, with their place in the read or write set.
pub(super) fn emit_keys<'a>(entries: impl Iterator<Item = &'a Entry> + Clone, to: &mut Writer<'_>) {
    to.u16(entries.clone().count() as u16);
    entries.for_each(|entry| emit_key(entry, to));
}

fn emit_key(entry: &Entry, to: &mut Writer<'_>) {
    to.u64(entry.key.0);
    to.u8(u8::from(entry.write));
}

/// A key and whether it is in the write set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) key: Key,
    pub(super) write: bool,
}

/// Takes a key with its place in the read or write set.
#[inline]
pub(super) fn parse_key(from: &mut Reader<'_>) -> Result<Access, Malformed> {
    let key = Key(from.u64()?);
    match from.u8()? {
        flag @ (0 | 1) => Ok(Access { key, write: flag == 1 }),
        _ => Err(Malformed { what: "a read or write flag" }),
    }
}

/// Why a request was denied.
pub(super) fn emit_abort(abort: Abort, to: &mut Writer<'_>) {
    to.u8(abort.index() as u8);
    let key = match abort {
        Abort::LockConflict { key }
        | Abort::Stale { key }
        | Abort::ValidateLocked { key }
        | Abort::AwaitsRecovery { key } => key,
        Abort::ShardUnavailable { shard } => Key(shard.0.into()),
        Abort::Refused | Abort::NoResources | Abort::Fabric(_) => Key(0),
    };
    to.u64(key.0);
}

/// The reverse of [`emit_abort`].
pub(super) fn parse_abort(from: &mut Reader<'_>) -> Result<Abort, Malformed> {
    let reason = from.u8()?;
    let key = Key(from.u64()?);
    Ok(match reason {
        0 => Abort::LockConflict { key },
        1 => Abort::Stale { key },
        2 => Abort::ValidateLocked { key },
        3 => Abort::Refused,
        4 => Abort::NoResources,
        5 => Abort::Fabric(nicol_core::fabric::FabricError::Unreachable),
        6 => {
            let shard = u16::try_from(key.0).map_err(|_| Malformed { what: "a shard's number" })?;
            Abort::ShardUnavailable { shard: ShardId(shard) }
        }
        7 => Abort::AwaitsRecovery { key },
        _ => return Err(Malformed { what: "an abort reason" }),
    })
}

/// EXECUTE: one shard's keys of this round. [Xenic21 4.2 step 2]
pub(super) struct Execute<'a> {
    pub(super) txn: &'a Txn,
    /// The epoch of its first EXECUTE, if messages say it.
    pub(super) began: Option<Epoch>,
    /// Indices of the shard's keys.
    pub(super) keys: &'a [usize],
}

impl Message for Execute<'_> {
    const KIND: u16 = EXECUTE;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u64(self.txn.id.0);
        emit_began(self.keys.len(), self.began, to);
        for entry in self.keys.iter().map(|&index| &self.txn.entries()[index]) {
            emit_key(entry, to);
        }
    }

    fn keys(&self, each: &mut dyn FnMut(Key)) {
        each_key(self.txn, self.keys, each);
    }
}

impl Item for Access {
    type Of<'a> = Self;

    fn parse(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        parse_key(from)
    }
}

/// A parsed EXECUTE, READ or ABORT: a transaction and keys.
#[derive(Clone, Copy)]
pub(super) struct Keys<B> {
    pub(super) txn: TxnId,
    /// The epoch in which it began, if the message says it.
    pub(super) began: Option<Epoch>,
    accesses: Items<B, Access>,
}

impl<'a> Keys<&'a [u8]> {
    /// Parses and checks every key.
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(body);
        let txn = TxnId(from.u64()?);
        let (count, began) = parse_began(&mut from)?;
        Ok(Self { txn, began, accesses: Items::parse(body, from, count)? })
    }

    /// See [`Items::keep`].
    pub(super) fn keep<F: Fabric>(self, fabric: &F) -> Keys<F::Payload> {
        Keys { txn: self.txn, began: self.began, accesses: self.accesses.keep(fabric) }
    }
}

impl<B: AsRef<[u8]>> Keys<B> {
    /// The keys, in the sender's order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Access> + Clone {
        self.accesses.iter()
    }

    /// The keys of the write set.
    pub(super) fn written(&self) -> impl Iterator<Item = Key> + Clone {
        self.iter().filter(|access| access.write).map(|access| access.key)
    }
}

/// The primary's answer to EXECUTE.
pub(super) enum ExecuteReply<'a, I> {
    /// Locked and read: version and value of each key, in the request's order. Records and values
    /// that the primary's table has no space for must not be written: usually there are none.
    Granted(ExhaustedSpace, I, &'a [u8]),
    /// Nothing was locked.
    Denied(Abort),
}

/// Bits of the first byte of an [`ExecuteReply::Granted`].
const NO_SPACE_FOR_VALUES: u8 = 2;
const NO_SPACE_FOR_RECORDS: u8 = 4;

/// One key's state as EXECUTE found it: its value is a range of the reply's value buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) version: Version,
    pub(super) value: Option<(u32, u32)>,
}

impl Found {
    /// True if the key is in the state that a transaction has read.
    pub(super) fn is_as_read(&self, read: &ReadOf) -> bool {
        (self.version, self.value.is_some()) == (read.version, read.present)
    }
}

impl<I: Iterator<Item = Found> + Clone> Message for ExecuteReply<'_, I> {
    const KIND: u16 = 0;

    fn emit(&self, to: &mut Writer<'_>) {
        match self {
            Self::Granted(exhausted, found, values) => {
                let no_values = !exhausted.takes_values();
                let no_records = exhausted.refuses_records();
                let short = u8::from(no_values) * NO_SPACE_FOR_VALUES;
                to.u8(short + u8::from(no_records) * NO_SPACE_FOR_RECORDS);
                if no_values {
                    to.u32(exhausted.to_bits());
                }
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

/// Applies an EXECUTE's reply to the keys it asked for; what the primary has no space for.
pub(super) fn parse_execute_reply(
    body: &[u8],
    txn: &mut Txn,
    keys: &[usize],
) -> Result<Result<ExhaustedSpace, Abort>, Malformed> {
    let mut from = Reader::new(body);
    let granted = from.u8()?;
    if granted & !(NO_SPACE_FOR_VALUES | NO_SPACE_FOR_RECORDS) != 0 {
        return Ok(Err(parse_abort(&mut from)?));
    }
    let values = if granted & NO_SPACE_FOR_VALUES != 0 { from.u32()? } else { 0 };
    let exhausted = ExhaustedSpace::from_bits(values, granted & NO_SPACE_FOR_RECORDS != 0);
    for &index in keys {
        let version = Version(from.u64()?);
        let len = from.u32()?;
        let value = parse_value(&mut from, len)?;
        txn.fetched(index, version, value);
    }
    from.finish()?;
    Ok(Ok(exhausted))
}

/// VALIDATE: keys that were read but not locked, with the versions read. [Xenic21 4.2 step 4]
pub(super) struct Validate<'a> {
    pub(super) txn: &'a Txn,
    /// The epoch of its first EXECUTE, if messages say it.
    pub(super) began: Option<Epoch>,
    pub(super) keys: &'a [usize],
}

impl Message for Validate<'_> {
    const KIND: u16 = VALIDATE;

    fn emit(&self, to: &mut Writer<'_>) {
        emit_began(self.keys.len(), self.began, to);
        for &index in self.keys {
            let entry = &self.txn.entries()[index];
            to.u64(entry.key.0);
            to.u64(entry.version.0);
            to.u8(u8::from(entry.present));
        }
    }

    fn keys(&self, each: &mut dyn FnMut(Key)) {
        each_key(self.txn, self.keys, each);
    }
}

/// A key with what a transaction read of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadOf {
    pub(super) key: Key,
    pub(super) version: Version,
    pub(super) present: bool,
}

impl Item for ReadOf {
    type Of<'a> = Self;

    fn parse(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (key, version) = (Key(from.u64()?), Version(from.u64()?));
        Ok(Self { key, version, present: from.u8()? == 1 })
    }
}

/// A parsed VALIDATE.
#[derive(Clone, Copy)]
pub(super) struct Reads<B> {
    /// The epoch in which their transaction began, if the message says it.
    pub(super) began: Option<Epoch>,
    reads: Items<B, ReadOf>,
}

impl<'a> Reads<&'a [u8]> {
    /// Parses and checks every key.
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        Self::parse_rest(body, Reader::new(body))
    }

    fn parse_rest(body: &'a [u8], mut from: Reader<'a>) -> Result<Self, Malformed> {
        let (count, began) = parse_began(&mut from)?;
        Ok(Self { began, reads: Items::parse(body, from, count)? })
    }

    /// See [`Items::keep`].
    pub(super) fn keep<F: Fabric>(self, fabric: &F) -> Reads<F::Payload> {
        Reads { began: self.began, reads: self.reads.keep(fabric) }
    }
}

impl<B: AsRef<[u8]>> Reads<B> {
    /// The keys and what was read of them, in the sender's order.
    pub(super) fn iter(&self) -> impl Iterator<Item = ReadOf> + Clone {
        self.reads.iter()
    }

    /// The keys alone.
    pub(super) fn keys(&self) -> impl Iterator<Item = Key> + Clone {
        self.iter().map(|read| read.key)
    }
}

/// A parsed LOCK: a transaction, and keys to lock at the versions that it has read.
#[derive(Clone, Copy)]
pub(super) struct LockReads<B> {
    pub(super) txn: TxnId,
    pub(super) reads: Reads<B>,
}

impl<'a> LockReads<&'a [u8]> {
    /// Parses and checks every key.
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(body);
        let txn = TxnId(from.u64()?);
        Ok(Self { txn, reads: Reads::parse_rest(body, from)? })
    }

    /// See [`Items::keep`].
    pub(super) fn keep<F: Fabric>(self, fabric: &F) -> LockReads<F::Payload> {
        LockReads { txn: self.txn, reads: self.reads.keep(fabric) }
    }
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

/// What the answer to a VALIDATE says, or to a LOCK or a RESERVE, which are answered alike.
pub(super) fn parse_verdict(body: &[u8]) -> Result<Result<(), Abort>, Malformed> {
    let mut from = Reader::new(body);
    match from.u8()? {
        0 => Ok(Ok(())),
        _ => Ok(Err(parse_abort(&mut from)?)),
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
        let entries = self.keys.iter().map(|&index| &self.txn.entries()[index]);
        // The coordinator's own records are not locked.
        emit_keys(entries.filter(|entry| !entry.own), to);
    }

    fn keys(&self, each: &mut dyn FnMut(Key)) {
        each_key(self.txn, self.keys, each);
    }
}
