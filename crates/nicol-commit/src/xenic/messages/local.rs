//! TXN_LOCAL: a transaction that the host has executed on its own table. [Xenic21 4.2.4]

use nicol_core::fabric::Message;
use nicol_core::ids::{Key, TxnId, Version};
use nicol_core::txn::{ProcedureId, RangeVersion, Txn, VersionRange};
use nicol_core::wire::{Malformed, Reader, Writer};

use super::TXN_LOCAL;
use super::ship::{Flags, emit_update, parse_update};
use crate::messages::parse_count;

/// Range versions that a transaction may have: a few for each scan.
const RANGE_VERSIONS_MAX: u16 = 1_024;

/// TXN_LOCAL: what the transaction read and writes.
pub(in crate::xenic) struct TxnLocal<'a> {
    pub(in crate::xenic) txn: &'a Txn,
    /// Has the application refused? Then nothing is written, and what it read is checked.
    pub(in crate::xenic) refused: bool,
}

impl Message for TxnLocal<'_> {
    const KIND: u16 = TXN_LOCAL;

    fn emit(&self, to: &mut Writer<'_>) {
        let txn = self.txn;
        to.u64(txn.id.0);
        to.u8(u8::from(self.refused));
        to.u16(txn.range_versions().len() as u16);
        for version in txn.range_versions() {
            to.u32(version.range.0);
            to.u64(version.writes);
        }
        to.u16(txn.entries().len() as u16);
        for (index, entry) in txn.entries().iter().enumerate() {
            to.u64(entry.key.0);
            to.u64(entry.version.0);
            let flags = Flags::of(txn, index);
            if self.refused {
                to.u8(flags.read_only().0);
            } else {
                to.u8(flags.0);
                emit_update(txn, index, to);
            }
        }
    }

    fn keys(&self, each: &mut dyn FnMut(Key)) {
        self.txn.entries().iter().for_each(|entry| each(entry.key));
    }
}

/// Fills `txn` from a TXN_LOCAL; returns whether the application has refused.
pub(in crate::xenic) fn parse_txn_local(body: &[u8], txn: &mut Txn) -> Result<bool, Malformed> {
    let mut from = Reader::new(body);
    let id = TxnId(from.u64()?);
    txn.reset(ProcedureId(0), &[]);
    txn.id = id;
    let refused = match from.u8()? {
        0 => false,
        1 => true,
        _ => return Err(Malformed { what: "whether the application has refused" }),
    };
    let range_versions = from.u16()?;
    if range_versions > RANGE_VERSIONS_MAX {
        return Err(Malformed { what: "more range_versions than a transaction may have" });
    }
    for _ in 0..range_versions {
        let (range, writes) = (VersionRange(from.u32()?), from.u64()?);
        txn.note_range_version(RangeVersion { range, writes });
    }
    for position in 0..usize::from(parse_count(&mut from)?) {
        let (key, version) = (Key(from.u64()?), Version(from.u64()?));
        let flags = Flags::parse(&mut from)?;
        let index = match (flags.is_own(), flags.writes()) {
            (true, _) => txn.add_own(key),
            (false, true) => Some(txn.write(key)),
            (false, false) => Some(txn.read(key)),
        };
        let Some(index) = index.filter(|&index| index == position) else {
            return Err(Malformed { what: "a key that comes twice" });
        };
        if !flags.is_own() {
            txn.executed_remotely(index, version, flags.present());
        }
        if flags.range_checked() {
            txn.mark_range_checked(index);
        }
        parse_update(&mut from, flags, txn, index)?;
    }
    from.finish()?;
    Ok(refused)
}
