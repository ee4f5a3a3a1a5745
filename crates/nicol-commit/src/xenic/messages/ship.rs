//! Messages of multi-hop transactions. [Xenic21 4.2.3]

use nicol_core::fabric::{Message, RequestId};
use nicol_core::ids::{Epoch, Key, TxnId, Version};
use nicol_core::txn::{Abort, ProcedureId, Txn};
use nicol_core::wire::{Malformed, Reader, Writer, append};

use super::{SHIP, SHIP_OUTCOME};
use crate::messages::{emit_abort, emit_began, emit_value, parse_abort, parse_began, parse_value};

/// What a message says of a key besides its version and values.
#[derive(Clone, Copy)]
pub(super) struct Flags(pub(super) u8);

impl Flags {
    const WRITES: u8 = 1;
    const PRESENT: u8 = 2;
    const PUTS: u8 = 4;
    const DELETES: u8 = 8;
    const FETCHED: u8 = 16;
    const RANGE_CHECKED: u8 = 32;
    const OWN: u8 = 64;

    pub(super) fn of(txn: &Txn, index: usize) -> Self {
        let entry = &txn.entries()[index];
        let update = txn.update(index).map(|write| write.value.is_some());
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        Self(
            flag(entry.write, Self::WRITES)
                | flag(entry.present, Self::PRESENT)
                | flag(update == Some(true), Self::PUTS)
                | flag(update == Some(false), Self::DELETES)
                | flag(entry.fetched, Self::FETCHED)
                | flag(entry.range_checked, Self::RANGE_CHECKED)
                | flag(entry.own, Self::OWN),
        )
    }

    pub(super) fn parse(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let flags = Self(from.u8()?);
        let updates = flags.0 & (Self::PUTS | Self::DELETES);
        if flags.0 > 127 || updates == Self::PUTS | Self::DELETES {
            return Err(Malformed { what: "a key's flags" });
        }
        // An own record is new: absent so far, and not deleted.
        let new = Self::WRITES | Self::FETCHED | Self::OWN;
        if flags.is_own() && flags.0 & !Self::PUTS != new {
            return Err(Malformed { what: "a key's flags" });
        }
        if updates != 0 && !flags.writes() {
            return Err(Malformed { what: "a write outside the write set" });
        }
        Ok(flags)
    }

    pub(super) fn writes(self) -> bool {
        self.0 & Self::WRITES != 0
    }

    pub(super) fn is_own(self) -> bool {
        self.0 & Self::OWN != 0
    }

    pub(super) fn range_checked(self) -> bool {
        self.0 & Self::RANGE_CHECKED != 0
    }

    /// The flags of a key that is only read, as one that is refused has it.
    pub(super) fn read_only(self) -> Self {
        Self(self.0 & (Self::PRESENT | Self::FETCHED | Self::RANGE_CHECKED))
    }

    pub(super) fn present(self) -> bool {
        self.0 & Self::PRESENT != 0
    }
}

/// The new value of a key that is written.
pub(super) fn emit_update(txn: &Txn, index: usize, to: &mut Writer<'_>) {
    if let Some(write) = txn.update(index)
        && write.value.is_some()
    {
        emit_value(write.value, to);
    }
}

/// Sets what [`emit_update`] wrote on `txn`, whose key at `index` has been fetched.
pub(super) fn parse_update(
    from: &mut Reader<'_>,
    flags: Flags,
    txn: &mut Txn,
    index: usize,
) -> Result<(), Malformed> {
    if flags.0 & Flags::DELETES != 0 {
        txn.delete(index);
    }
    if flags.0 & Flags::PUTS != 0 {
        let len = from.u32()?;
        match parse_value(from, len)? {
            Some(value) => txn.put(index, value),
            None => return Err(Malformed { what: "a write without a value" }),
        }
    }
    Ok(())
}

/// SHIP: a transaction, with what its coordinator has read of its own shard, and the names of the
/// requests under which the backups' acks are expected there: shard by shard, the coordinator's
/// first, in the order of the view.
pub(in crate::xenic) struct Ship<'a, I> {
    pub(in crate::xenic) txn: &'a Txn,
    /// The epoch of its first EXECUTE, if messages say it.
    pub(in crate::xenic) began: Option<Epoch>,
    pub(in crate::xenic) delegated: I,
}

impl<I: ExactSizeIterator<Item = RequestId> + Clone> Message for Ship<'_, I> {
    const KIND: u16 = SHIP;

    fn emit(&self, to: &mut Writer<'_>) {
        let txn = self.txn;
        to.u64(txn.id.0);
        to.u16(txn.procedure.0);
        to.u32(txn.args().len() as u32);
        to.bytes(txn.args());
        emit_began(txn.entries().len(), self.began, to);
        for (index, entry) in txn.entries().iter().enumerate() {
            to.u64(entry.key.0);
            to.u8(Flags::of(txn, index).0);
            if entry.fetched {
                to.u64(entry.version.0);
                emit_value(txn.value(index), to);
            }
        }
        to.u8(self.delegated.len() as u8);
        for request in self.delegated.clone() {
            to.u16(request.slot);
            to.u32(request.sequence);
        }
    }

    fn keys(&self, each: &mut dyn FnMut(Key)) {
        self.txn.entries().iter().for_each(|entry| each(entry.key));
    }
}

/// Fills `txn` and `delegated` from a SHIP; when the transaction began, if the message says it.
pub(in crate::xenic) fn parse_ship(
    body: &[u8],
    txn: &mut Txn,
    delegated: &mut Vec<RequestId>,
) -> Result<Option<Epoch>, Malformed> {
    let mut from = Reader::new(body);
    let id = TxnId(from.u64()?);
    let procedure = ProcedureId(from.u16()?);
    let args = from.u32()?;
    txn.reset(procedure, from.bytes(args as usize)?);
    txn.id = id;
    txn.ship = true;
    let (count, began) = parse_began(&mut from)?;
    for position in 0..usize::from(count) {
        let key = Key(from.u64()?);
        let flags = Flags::parse(&mut from)?;
        if flags.is_own() {
            return Err(Malformed { what: "a coordinator's own record in a SHIP" });
        }
        let index = if flags.writes() { txn.write(key) } else { txn.read(key) };
        if index != position {
            return Err(Malformed { what: "a key that comes twice" });
        }
        if flags.0 & Flags::FETCHED != 0 {
            let version = Version(from.u64()?);
            let len = from.u32()?;
            let value = parse_value(&mut from, len)?;
            txn.fetched(index, version, value);
        }
    }
    delegated.clear();
    for _ in 0..from.u8()? {
        delegated.push(RequestId { slot: from.u16()?, sequence: from.u32()? });
    }
    from.finish()?;
    Ok(began)
}

/// SHIP_OUTCOME: supersedes a SHIP that went unanswered.
pub(in crate::xenic) struct ShipOutcome(pub(in crate::xenic) TxnId);

impl Message for ShipOutcome {
    const KIND: u16 = SHIP_OUTCOME;
    fn emit(&self, to: &mut Writer<'_>) {
        to.u64(self.0.0);
    }
}

/// The transaction that a SHIP_OUTCOME asks about.
pub(in crate::xenic) fn parse_ship_outcome(body: &[u8]) -> Result<TxnId, Malformed> {
    let mut from = Reader::new(body);
    let id = TxnId(from.u64()?);
    from.finish()?;
    Ok(id)
}

/// The primary's answer to SHIP and SHIP_OUTCOME.
pub(in crate::xenic) enum ShipReply<'a> {
    /// Executed and, if it writes, logged: what was read and is written.
    Executed(&'a Txn),
    /// Not executed; nothing is locked here.
    Denied(Abort),
    /// The logic asks for further keys; nothing is locked here.
    More,
}

impl Message for ShipReply<'_> {
    const KIND: u16 = 0;

    fn emit(&self, to: &mut Writer<'_>) {
        match self {
            Self::Executed(txn) => {
                to.u8(0);
                for (index, entry) in txn.entries().iter().enumerate() {
                    to.u64(entry.version.0);
                    to.u8(Flags::of(txn, index).0);
                    emit_update(txn, index, to);
                }
                to.bytes(&txn.output);
            }
            Self::Denied(abort) => {
                to.u8(1);
                emit_abort(*abort, to);
            }
            Self::More => to.u8(2),
        }
    }
}

/// What a primary has made of a transaction that was shipped.
pub(in crate::xenic) enum Shipped {
    /// `txn` holds what was read and is written.
    Executed,
    Denied(Abort),
    More,
}

/// Applies a SHIP's reply to `txn`.
pub(in crate::xenic) fn parse_ship_reply(body: &[u8], txn: &mut Txn) -> Result<Shipped, Malformed> {
    let mut from = Reader::new(body);
    match from.u8()? {
        0 => {}
        1 => return Ok(Shipped::Denied(parse_abort(&mut from)?)),
        2 => return Ok(Shipped::More),
        _ => return Err(Malformed { what: "a SHIP's reply" }),
    }
    for index in 0..txn.entries().len() {
        let version = Version(from.u64()?);
        let flags = Flags::parse(&mut from)?;
        if flags.writes() != txn.entries()[index].write {
            return Err(Malformed { what: "a SHIP's reply about other keys" });
        }
        txn.executed_remotely(index, version, flags.present());
        parse_update(&mut from, flags, txn, index)?;
    }
    let rest = from.rest();
    append(&mut txn.output, from.bytes(rest.len())?);
    Ok(Shipped::Executed)
}
