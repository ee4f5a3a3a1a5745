//! Writes that there is no space for abort before anything is logged.

use nicol_core::fabric::Fabric;
use nicol_core::txn::{Abort, Txn};
use nicol_store::host_table::ExhaustedSpace;

use super::open_txn::OpenTxn;
use crate::part::SHARDS_MAX;

/// Bytes that a write takes in a message besides its value.
const WRITE_FRAMING: usize = 20;

/// Errors: a value or a new record has no space at its primary, which is `exhausted`. What was
/// locked and is not written needs none.
pub(super) fn check_values(exhausted: ExhaustedSpace, txn: &Txn) -> Result<(), Abort> {
    // Usually nothing is.
    if !exhausted.is_none() && (0..txn.entries().len()).any(|index| refused(exhausted, txn, index))
    {
        return Err(Abort::NoResources);
    }
    Ok(())
}

fn refused(exhausted: ExhaustedSpace, txn: &Txn, index: usize) -> bool {
    // Records of ordered tables stand elsewhere.
    let put = txn.update(index).filter(|write| !write.key.is_ordered());
    let old = txn.value(index).map(<[u8]>::len);
    put.and_then(|write| write.value).is_some_and(|new| exhausted.refuses(old, new.len()))
}

/// Errors: as of [`check_values`], or the write set may not fit into a log record, whose body has
/// at most `body_max` bytes. A COMMIT names the keys that are locked and not updated as well.
pub(super) fn check_writes<F: Fabric>(open: &OpenTxn<F>, body_max: usize) -> Result<(), Abort> {
    let txn = &open.txn;
    check_values(open.exhausted, txn)?;
    let write_set = txn.entries().iter().enumerate().filter(|(_, entry)| entry.write);
    let head = open.updates.told().head_len(write_set.clone().count());
    let writes: usize = write_set
        .map(|(index, _)| txn.update(index).and_then(|write| write.value))
        .map(|value| WRITE_FRAMING + value.map_or(0, <[u8]>::len))
        .sum();
    if head + writes > body_max { Err(Abort::NoResources) } else { Ok(()) }
}

/// Errors: a transaction updates more shards than its log records can say.
pub(super) fn check_shards(shards: u16) -> Result<(), Abort> {
    if shards > SHARDS_MAX { Err(Abort::NoResources) } else { Ok(()) }
}
