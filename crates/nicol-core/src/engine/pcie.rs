//! [`Pcie`] for engines.

use std::sync::Arc;

use super::world::{land, len_of};
use super::{Completion, Engine, Transfer, World};
use crate::fabric::{FabricError, Pcie};
use crate::memory::{Region, WORD};

impl<W: World> Pcie for Engine<W> {
    fn transfers_at_once(&self) -> bool {
        // A trace shows what is served as tasks.
        W::SHARED_MEMORY && self.0.trace.is_none()
    }

    fn dma_read(&self, from: &Arc<Region>, offset: u64, len: usize) -> Completion {
        let transfer = Transfer::DmaRead { region: from.clone(), offset, len: len as u32 };
        self.start_local(transfer, self.0.pool.take())
    }

    fn fill_queue_entry(&self, bytes: usize) -> Completion {
        if W::SHARED_MEMORY {
            return Completion::ready(Ok(self.0.pool.payload(Vec::new())));
        }
        self.start_local(Transfer::Fill { len: bytes as u32 }, self.0.pool.take())
    }

    fn drain_queue_entry(&self, bytes: usize) -> Completion {
        let transfer = Transfer::DmaTouch { reads: false, len: bytes as u32 };
        self.start_local(transfer, self.0.pool.take())
    }

    fn dma_write(&self, to: &Arc<Region>, offset: u64, bytes: &[u8]) -> Completion {
        self.start_dma_write(to, offset, &[bytes], false)
    }
}

impl<W: World> Engine<W> {
    // In line, so that parts whose lengths the caller knows are single stores.
    #[inline(always)]
    pub(super) fn start_dma_write(
        &self,
        to: &Arc<Region>,
        offset: u64,
        parts: &[&[u8]],
        durable: bool,
    ) -> Completion {
        let inner = &*self.0;
        let must_persist = durable && !inner.world.memory_is_durable();
        if self.transfers_at_once() && !must_persist && !to.is_lost() {
            self.count_dma(false, len_of(parts) as u64);
            inner.world.regions().adopt(to, inner.here.side.other());
            let landed = land(to, offset, parts).map_err(FabricError::AccessDenied);
            return Completion::ready(landed.map(|()| inner.pool.payload(Vec::new())));
        }
        self.submit_dma_write(to, offset, parts, durable)
    }

    /// Starts a DMA write that is not made at once.
    #[inline(never)]
    fn submit_dma_write(
        &self,
        to: &Arc<Region>,
        offset: u64,
        parts: &[&[u8]],
        durable: bool,
    ) -> Completion {
        let mut buffer = self.0.pool.take();
        for part in parts {
            if !buffer.len().is_multiple_of(WORD) {
                buffer.resize(buffer.len().next_multiple_of(WORD), 0);
            }
            buffer.extend_from_slice(part);
        }
        self.start_local(Transfer::DmaWrite { region: to.clone(), offset, durable }, buffer)
    }
}
