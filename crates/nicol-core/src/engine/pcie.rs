//! [`Pcie`] for engines.

use std::sync::Arc;

use super::{Completion, Engine, Transfer, World};
use crate::fabric::Pcie;
use crate::memory::Region;

impl<W: World> Pcie for Engine<W> {
    fn dma_read(&self, from: &Arc<Region>, offset: u64, len: usize) -> Completion {
        let transfer = Transfer::DmaRead { region: from.clone(), offset, len: len as u32 };
        self.start_local(transfer, self.0.pool.take())
    }

    fn dma_write(&self, to: &Arc<Region>, offset: u64, bytes: &[u8]) -> Completion {
        self.start_dma_write(to, offset, bytes, false)
    }
}

impl<W: World> Engine<W> {
    pub(super) fn start_dma_write(
        &self,
        to: &Arc<Region>,
        offset: u64,
        bytes: &[u8],
        durable: bool,
    ) -> Completion {
        let mut buffer = self.0.pool.take();
        buffer.extend_from_slice(bytes);
        self.start_local(Transfer::DmaWrite { region: to.clone(), offset, durable }, buffer)
    }
}
