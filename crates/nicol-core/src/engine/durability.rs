//! [`Durability`] for engines.

use std::sync::Arc;

use super::{Completion, Engine, Transfer, World};
use crate::fabric::{Durability, FabricError, Pcie};
use crate::ids::Side;
use crate::memory::Region;

impl<W: World> Durability for Engine<W> {
    #[inline]
    fn dma_write_durable(&self, to: &Arc<Region>, offset: u64, parts: &[&[u8]]) -> Completion {
        self.start_dma_write(to, offset, parts, true)
    }

    fn persists_at_once(&self) -> bool {
        self.transfers_at_once() && self.0.world.memory_is_durable()
    }

    fn memory_is_durable(&self) -> bool {
        self.0.world.memory_is_durable()
    }

    fn shares_medium(&self) -> bool {
        self.0.world.shares_medium()
    }

    fn persist(&self, region: &Arc<Region>, offset: u64, len: usize) -> Completion {
        let mut buffer = self.0.pool.take();
        self.0.world.regions().adopt(region, Side::Host);
        // Checked before the buffer grows: a length is only as good as its region.
        if let Err(error) = region.check(offset, len as u64) {
            return Completion::ready(Err(FabricError::AccessDenied(error)));
        }
        if self.0.world.memory_is_durable() {
            return Completion::ready(Ok(self.0.pool.payload(buffer)));
        }
        if self.0.world.keeps_persisted() {
            buffer.resize(len, 0);
            let copied = region.read(offset, &mut buffer);
            assert!(copied.is_ok(), "the range was checked");
        }
        let transfer = Transfer::Persist { region: region.clone(), offset, len: len as u32 };
        self.start_local(transfer, buffer)
    }
}
