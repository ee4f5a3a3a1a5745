//! [`Pcie`] for engines.

use std::sync::Arc;

use super::{Completion, Engine, Transfer, World};
use crate::fabric::Pcie;
use crate::memory::Region;

impl<W: World> Pcie for Engine<W> {
    fn transfers_at_once(&self) -> bool {
        self.site().transfers_at_once()
    }

    fn dma_read(&self, from: &Arc<Region>, offset: u64, len: usize) -> Completion {
        let transfer = Transfer::DmaRead { region: from.clone(), offset, len: len as u32 };
        self.start_transfer(transfer, self.site().pool().take())
    }

    fn fill_queue_entry(&self, bytes: usize) -> Completion {
        if W::SHARED_MEMORY {
            return self.site().done();
        }
        self.start_transfer(Transfer::Fill { len: bytes as u32 }, self.site().pool().take())
    }

    fn drain_queue_entry(&self, bytes: usize) -> Completion {
        let transfer = Transfer::DmaTouch { reads: false, len: bytes as u32 };
        self.start_transfer(transfer, self.site().pool().take())
    }

    fn dma_write(&self, to: &Arc<Region>, offset: u64, bytes: &[u8]) -> Completion {
        self.0.operations.write(self.site(), (to, offset), &[bytes], false)
    }
}
