//! Messages between a host and its NIC, which cross PCIe reliably; those of transactions that take
//! a shorter way are in [`local`] and [`ship`].

pub(super) mod copy;
pub(super) mod local;
pub(super) mod recovery;
pub(super) mod ship;
pub(super) mod split_requests;

use nicol_core::fabric::Message;
use nicol_core::ids::{Key, TxnId, Version};
use nicol_core::txn::{KEYS_MAX, Outcome, ProcedureId, Txn};
use nicol_core::wire::{Malformed, Reader, Writer, append};

use crate::messages::{
    emit_abort, emit_keys, emit_value, parse_abort, parse_count, parse_key, parse_value,
};

/// Host to coordinator NIC: begin a transaction. [Xenic21 4.2 step 1]
pub(super) const TXN_REQUEST: u16 = 1;
/// Host to coordinator NIC: a further EXECUTE round of a multi-shot transaction.
pub(super) const TXN_EXECUTE: u16 = 2;
/// Host to coordinator NIC: the write-set values; commit. [Xenic21 4.2 step 3]
pub(super) const TXN_COMMIT: u16 = 3;
/// Host to coordinator NIC: the application refused.
pub(super) const TXN_ABORT: u16 = 4;
/// Host to NIC: log records up to a position have been applied. [Xenic21 4.2 step 7]
pub(super) const LOG_ACK: u16 = 5;
/// Host to coordinator NIC: a transaction that the host has executed on its own table.
/// [Xenic21 4.2.4]
pub(super) const TXN_LOCAL: u16 = 6;
/// NIC to host: keys of ordered tables, which no DMA reads.
pub(super) const TREE_LOOKUP: u16 = 7;
/// NIC to host: which records are undecided?
pub(super) const REPORT_RECORDS: u16 = 8;
/// Between NICs, after a loss: what a survivor knows.
pub(super) const REPORT: u16 = 20;
/// Between NIC engines of a node, after a loss: nothing more is taken of who is lost.
pub(super) const FENCE: u16 = 21;
/// Between NICs, after a loss: records that a survivor lacks.
pub(super) const REPLICATE: u16 = 22;
/// Between NICs, after a loss: what is decided.
pub(super) const RESOLVE: u16 = 23;
/// Between NICs, after a loss: records of what commits, for the primary that has locked it.
pub(super) const INSTALL: u16 = 24;
/// Between NICs, before a copy: reply once all that began earlier has ended.
pub(super) const DRAIN: u16 = 25;
/// Between NICs, and from the receiver to its host: records of a shard for a node that catches up.
pub(super) const COPY: u16 = 26;
/// Between NICs: it has every record of a shard.
pub(super) const COPIED: u16 = 27;
/// NIC to host: records of a shard, for a copy.
pub(super) const COPY_RANGE: u16 = 28;
/// Coordinator NIC to primary NIC: a whole transaction to execute. [Xenic21 4.2.3]
pub(super) const SHIP: u16 = 15;
/// Coordinator NIC to primary NIC: what has become of a transaction that was shipped?
pub(super) const SHIP_OUTCOME: u16 = 16;
/// Coordinator NIC to primary NIC: keys to read. [Xenic21 5.7]
pub(super) const READ: u16 = 17;
/// Coordinator NIC to primary NIC: keys to lock at the versions read. [Xenic21 5.7]
pub(super) const LOCK: u16 = 18;

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

    fn keys(&self, each: &mut dyn FnMut(Key)) {
        self.txn.entries().iter().for_each(|entry| each(entry.key));
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
    for _ in 0..parse_count(from)? {
        let access = parse_key(from)?;
        // A key that it has may come again, to be written.
        if txn.entries().len() == KEYS_MAX && txn.find(access.key).is_none() {
            return Err(Malformed { what: "more keys than a transaction may touch" });
        }
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

/// TXN_COMMIT: the write-set values, then the coordinator's own new records, of which the NIC does
/// not know yet.
pub(super) struct TxnCommit<'a>(pub(super) &'a Txn);

impl Message for TxnCommit<'_> {
    const KIND: u16 = TXN_COMMIT;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u64(self.0.id.0);
        to.u16(known_updates(self.0).count() as u16);
        for (index, update) in known_updates(self.0) {
            to.u16(index as u16);
            emit_value(update, to);
        }
        to.u16(own_records(self.0).count() as u16);
        for (key, value) in own_records(self.0) {
            to.u64(key.0);
            emit_value(Some(value), to);
        }
    }

    fn keys(&self, each: &mut dyn FnMut(Key)) {
        self.0.updates().for_each(|update| each(update.key));
    }
}

/// The updates of keys that the NIC knows, by their places among these.
fn known_updates(txn: &Txn) -> impl Iterator<Item = (usize, Option<&[u8]>)> {
    let known = txn.entries().iter().enumerate().filter(|(_, entry)| !entry.own);
    let updates = known.enumerate().map(|(place, (index, _))| (place, txn.update(index)));
    updates.filter_map(|(place, update)| Some((place, update?.value)))
}

fn own_records(txn: &Txn) -> impl Iterator<Item = (Key, &[u8])> {
    let own = txn.entries().iter().enumerate().filter(|(_, entry)| entry.own);
    own.filter_map(|(index, entry)| Some((entry.key, txn.update(index)?.value?)))
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
    for _ in 0..parse_count(&mut from)? {
        let (key, len) = (Key(from.u64()?), from.u32()?);
        let (Some(index), Some(value)) = (txn.add_own(key), parse_value(&mut from, len)?) else {
            return Err(Malformed { what: "a coordinator's own record" });
        };
        txn.put(index, value);
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

/// What the NIC has answered to its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// EXECUTE succeeded, and the transaction holds what was read: execution logic goes on.
    Executed,
    /// The transaction is over.
    Ended(Outcome),
}

/// Applies the NIC's answer to the host's transaction.
pub(super) fn parse_answer(body: &[u8], txn: &mut Txn) -> Result<Answer, Malformed> {
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
        return Ok(Answer::Executed);
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
    Ok(Answer::Ended(outcome))
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
    append(&mut txn.output, from.bytes(rest.len())?);
    Ok(())
}

#[cfg(test)]
mod tests;
