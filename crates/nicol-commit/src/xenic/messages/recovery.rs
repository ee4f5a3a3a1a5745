//! Messages of recovery: what nodes know of the transactions that lost coordinators began, and what
//! is decided about them. [Xenic21 4.2.1] (decision 0102)

use nicol_core::fabric::Message;
use nicol_core::ids::{Epoch, ShardId, TxnId};
use nicol_core::wire::{Malformed, Reader, Writer};

use super::REPORT_RECORDS;
use crate::decided::{Decision, Fate};
use crate::writes::Writes;

/// What a node knows, or is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::xenic) struct Account {
    /// Whose locks the primary of a shard has.
    pub(in crate::xenic) locked: Vec<(TxnId, ShardId)>,
    /// Bodies of LOGs.
    pub(in crate::xenic) records: Vec<Box<[u8]>>,
    pub(in crate::xenic) decisions: Vec<Decision>,
}

impl Account {
    /// Takes what [`Message::emit`] of a message wrote that carries one.
    pub(in crate::xenic) fn parse(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut account = Self::default();
        for _ in 0..from.u32()? {
            account.locked.push((TxnId(from.u64()?), ShardId(from.u16()?)));
        }
        for _ in 0..from.u32()? {
            let len = from.u32()? as usize;
            let record = from.bytes(len)?;
            if Writes::parse(record)?.began.is_none() {
                return Err(Malformed { what: "a record that does not list its shards" });
            }
            account.records.push(record.into());
        }
        for _ in 0..from.u32()? {
            let (txn, commits) = (TxnId(from.u64()?), from.u8()?);
            let fate = if commits == 1 { Fate::Committed } else { Fate::Aborted };
            account.decisions.push(Decision { txn, fate });
        }
        from.finish()?;
        Ok(account)
    }

    fn emit(&self, to: &mut Writer<'_>) {
        to.u32(self.locked.len() as u32);
        for (txn, shard) in &self.locked {
            to.u64(txn.0);
            to.u16(shard.0);
        }
        to.u32(self.records.len() as u32);
        for record in &self.records {
            to.u32(record.len() as u32);
            to.bytes(record);
        }
        to.u32(self.decisions.len() as u32);
        for Decision { txn, fate } in &self.decisions {
            to.u64(txn.0);
            to.u8(u8::from(*fate != Fate::Aborted));
        }
    }
}

/// A reply that is an account.
pub(in crate::xenic) struct AccountReply<'a>(pub(in crate::xenic) &'a Account);

impl Message for AccountReply<'_> {
    const KIND: u16 = 0;

    fn emit(&self, to: &mut Writer<'_>) {
        self.0.emit(to);
    }
}

/// A request of recovery in the view of an epoch: REPORT, or FENCE within a node.
pub(in crate::xenic) struct InView<const KIND: u16>(pub(in crate::xenic) Epoch);

impl<const KIND: u16> Message for InView<KIND> {
    const KIND: u16 = KIND;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u32(self.0.0);
    }
}

/// The epoch of a request of recovery that says nothing else.
pub(in crate::xenic) fn parse_in_view(body: &[u8]) -> Result<Epoch, Malformed> {
    let mut from = Reader::new(body);
    let epoch = Epoch(from.u32()?);
    from.finish()?;
    Ok(epoch)
}

/// A NIC asks its host which records are undecided, once it has read what stands in the logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::xenic) enum ReportRecords {
    /// Those of lost coordinators, and what is decided of these.
    OfLost,
    /// Those of one shard.
    OfShard(ShardId),
}

impl ReportRecords {
    pub(in crate::xenic) fn parse(body: &[u8]) -> Result<Self, Malformed> {
        if body.is_empty() {
            return Ok(Self::OfLost);
        }
        let mut from = Reader::new(body);
        let shard = ShardId(from.u16()?);
        from.finish()?;
        Ok(Self::OfShard(shard))
    }
}

impl Message for ReportRecords {
    const KIND: u16 = REPORT_RECORDS;

    fn emit(&self, to: &mut Writer<'_>) {
        match self {
            Self::OfLost => {}
            Self::OfShard(shard) => to.u16(shard.0),
        }
    }
}

/// REPLICATE, INSTALL and RESOLVE: records that a survivor lacks; records that a primary installs;
/// then decisions.
pub(in crate::xenic) struct Told<'a, const KIND: u16> {
    pub(in crate::xenic) epoch: Epoch,
    pub(in crate::xenic) account: &'a Account,
}

impl<const KIND: u16> Message for Told<'_, KIND> {
    const KIND: u16 = KIND;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u32(self.epoch.0);
        self.account.emit(to);
    }
}

/// Takes a REPLICATE, INSTALL or RESOLVE.
pub(in crate::xenic) fn parse_told(body: &[u8]) -> Result<(Epoch, Account), Malformed> {
    let mut from = Reader::new(body);
    let epoch = Epoch(from.u32()?);
    Ok((epoch, Account::parse(&mut from)?))
}
