//! Rings in another node's memory: what LOG and the message logs share at the end of the one who
//! WRITEs.

use nicol_core::fabric::{Fabric, FabricError, OneSided};
use nicol_core::ids::{NodeId, RKey};
use nicol_core::memory::WORD;

use super::host::{Host, RETRY_WAIT};
use super::locks::previous_word;
use crate::commit::log;

/// A ring that this engine alone writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogHandle {
    pub(super) node: NodeId,
    pub(super) rkey: RKey,
    pub(super) size: u64,
}

impl<F: Fabric> Host<F> {
    /// READs a word of a ring, or one that its reader keeps behind it.
    pub(super) async fn read_log_word(
        &self,
        log: LogHandle,
        offset: u64,
    ) -> Result<u64, FabricError> {
        let read = OneSided::Read { rkey: log.rkey, offset, len: WORD as u32 };
        previous_word(self.fabric.one_sided(log.node, read).await?.as_ref())
    }

    pub(super) fn write_log(&self, log: LogHandle, offset: u64, bytes: &[u8]) -> F::Completion {
        let write = OneSided::Write { rkey: log.rkey, offset, bytes };
        self.fabric.one_sided(log.node, write)
    }

    /// Gets a record, whose WRITE failed, into its ring, however long that takes.
    pub(super) async fn write_in_time(&self, log: LogHandle, record: &[u8], offset: u64, end: u64) {
        while !self.is_in_ring(log, record, offset, end).await {
            self.fabric.sleep_until(self.fabric.now() + RETRY_WAIT).await;
        }
    }

    /// Finds out whether a WRITE that failed took place, and posts it again if not. A verb that
    /// has failed does nothing any more; the same WRITE again would spoil the ring if the record
    /// has been read meanwhile.
    async fn is_in_ring(&self, log: LogHandle, record: &[u8], offset: u64, end: u64) -> bool {
        let Ok(head) = previous_word(record) else { panic!("a record begins with its head") };
        // Its last word lands last; the reader says that it has seen it before it zeroes it.
        let foot = offset + (record.len() - WORD) as u64;
        match self.read_log_word(log, foot).await {
            Ok(word) if word == head => return true,
            Ok(_) => {}
            Err(_) => return false,
        }
        match self.read_log_word(log, log::seen_offset(log.size)).await {
            Ok(seen) if seen >= end => true,
            Ok(_) => self.write_log(log, offset, record).await.is_ok(),
            Err(_) => false,
        }
    }
}
