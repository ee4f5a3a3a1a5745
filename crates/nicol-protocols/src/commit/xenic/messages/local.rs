//! TXN_LOCAL: a transaction that the host has executed on its own table. [Xenic21 4.2.4]

use nicol_core::fabric::Message;
use nicol_core::ids::{Key, TxnId, Version};
use nicol_core::txn::{ProcedureId, Txn};
use nicol_core::wire::{Malformed, Reader, Writer};

use super::TXN_LOCAL;
use super::ship::{Flags, emit_update, parse_update};
use crate::commit::messages::parse_count;

/// TXN_LOCAL: what the transaction read and writes.
pub(in crate::commit::xenic) struct TxnLocal<'a>(pub(in crate::commit::xenic) &'a Txn);

impl Message for TxnLocal<'_> {
    const KIND: u16 = TXN_LOCAL;

    fn emit(&self, to: &mut Writer<'_>) {
        let txn = self.0;
        to.u64(txn.id.0);
        to.u16(txn.entries().len() as u16);
        for (index, entry) in txn.entries().iter().enumerate() {
            to.u64(entry.key.0);
            to.u64(entry.version.0);
            to.u8(Flags::of(txn, index).0);
            emit_update(txn, index, to);
        }
    }
}

/// Fills `txn` from a TXN_LOCAL.
pub(in crate::commit::xenic) fn parse_txn_local(
    body: &[u8],
    txn: &mut Txn,
) -> Result<(), Malformed> {
    let mut from = Reader::new(body);
    let id = TxnId(from.u64()?);
    txn.reset(ProcedureId(0), &[]);
    txn.id = id;
    for position in 0..usize::from(parse_count(&mut from)?) {
        let (key, version) = (Key(from.u64()?), Version(from.u64()?));
        let flags = Flags::parse(&mut from)?;
        let index = if flags.writes() { txn.write(key) } else { txn.read(key) };
        if index != position {
            return Err(Malformed { what: "a key that comes twice" });
        }
        txn.executed_remotely(index, version, flags.present());
        parse_update(&mut from, flags, txn, index)?;
    }
    from.finish()
}
