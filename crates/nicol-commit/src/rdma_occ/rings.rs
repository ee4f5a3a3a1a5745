//! Rings in another node's memory: how LOG and the message logs get a record into one for certain.

use nicol_core::fabric::Fabric;
use nicol_core::memory::WORD;

use super::reach::{LogHandle, Reach, word_of};
use crate::log;

/// Gets a record, whose WRITE failed, into its ring, however long that takes, or until its node is
/// gone.
pub(super) async fn write_in_time<F: Fabric>(
    reach: &Reach<F>,
    log: LogHandle,
    record: &[u8],
    offset: u64,
    end: u64,
) {
    while !reach.is_gone(log.node) && !is_in_ring(reach, log, record, offset, end).await {
        reach.wait_to_retry().await;
    }
}

/// Finds out whether a WRITE that failed took place, and posts it again if not. A verb that has
/// failed does nothing any more; the same WRITE again would spoil the ring if the record has been
/// read meanwhile.
async fn is_in_ring<F: Fabric>(
    reach: &Reach<F>,
    log: LogHandle,
    record: &[u8],
    offset: u64,
    end: u64,
) -> bool {
    let Ok(head) = word_of(record) else { panic!("a record begins with its head") };
    // Its last word lands last; the reader says that it has seen it before it zeroes it.
    let foot = offset + (record.len() - WORD) as u64;
    match reach.read_log_word(log, foot).await {
        Ok(word) if word == head => return true,
        Ok(_) => {}
        Err(_) => return false,
    }
    match reach.read_log_word(log, log::seen_offset(log.size)).await {
        Ok(seen) if seen >= end => true,
        Ok(_) => reach.write_log(log, offset, record).await.is_ok(),
        Err(_) => false,
    }
}
