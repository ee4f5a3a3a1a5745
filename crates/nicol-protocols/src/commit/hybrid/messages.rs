//! The messages that only the baselines send; the others are those of the commit family.

use nicol_core::fabric::Message;
use nicol_core::ids::{RKey, TxnId};
use nicol_core::txn::Txn;
use nicol_core::wire::{Malformed, Reader, Writer};

use crate::commit::messages::{LOG, Reads, Validate};

/// Coordinator to primary: lock keys at the versions read.
pub(super) const LOCK: u16 = 15;
/// Host engine to host engine: which memory may I reach?
pub(super) const HELLO: u16 = 16;

/// LOCK: the keys to lock, with what was read of them.
pub(super) struct Lock<'a> {
    pub(super) txn: &'a Txn,
    pub(super) keys: &'a [usize],
}

impl Message for Lock<'_> {
    const KIND: u16 = LOCK;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u64(self.txn.id.0);
        Validate { txn: self.txn, keys: self.keys }.emit(to);
    }
}

/// Parses a LOCK.
pub(super) fn parse_lock(body: &[u8]) -> Result<(TxnId, Reads<'_>), Malformed> {
    let mut from = Reader::new(body);
    let txn = TxnId(from.u64()?);
    Ok((txn, Reads::parse(from.rest())?))
}

/// LOG, its body framed before.
pub(super) struct FramedLog<'a>(pub(super) &'a [u8]);

impl Message for FramedLog<'_> {
    const KIND: u16 = LOG;

    fn emit(&self, to: &mut Writer<'_>) {
        to.bytes(self.0);
    }
}

/// HELLO.
pub(super) struct Hello;

impl Message for Hello {
    const KIND: u16 = HELLO;
    fn emit(&self, _to: &mut Writer<'_>) {}
}

/// The memory of a node that one host engine of another may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Doors {
    /// The primary shard's table.
    pub(super) table: RKey,
    /// The log ring that this engine alone writes.
    pub(super) ring: RKey,
}

impl Message for Doors {
    const KIND: u16 = 0;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u32(self.table.0);
        to.u32(self.ring.0);
    }
}

/// Parses the answer to HELLO.
pub(super) fn parse_doors(body: &[u8]) -> Result<Doors, Malformed> {
    let mut from = Reader::new(body);
    let doors = Doors { table: RKey(from.u32()?), ring: RKey(from.u32()?) };
    from.finish()?;
    Ok(doors)
}
