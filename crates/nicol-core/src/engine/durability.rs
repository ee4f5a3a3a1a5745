//! [`Durability`] for engines.

use std::sync::Arc;

use super::{Completion, Engine, Transfer, World};
use crate::fabric::{Durability, FabricError, Pcie};
use crate::ids::Side;
use crate::memory::Region;

impl<W: World> Durability for Engine<W> {
    #[inline]
    fn dma_write_durable(&self, to: &Arc<Region>, offset: u64, parts: &[&[u8]]) -> Completion {
        self.0.operations.write(self.site(), (to, offset), parts, true)
    }

    fn persists_at_once(&self) -> bool {
        self.transfers_at_once() && self.world().memory_is_durable()
    }

    fn memory_is_durable(&self) -> bool {
        self.world().memory_is_durable()
    }

    fn shares_medium(&self) -> bool {
        self.world().shares_medium()
    }

    fn persist(&self, region: &Arc<Region>, offset: u64, len: usize) -> Completion {
        let mut buffer = self.site().pool().take();
        self.world().regions().adopt(region, Side::Host);
        // Checked before the buffer grows: a length is only as good as its region.
        if let Err(error) = region.check(offset, len as u64) {
            return Completion::ready(Err(FabricError::AccessDenied(error)));
        }
        if self.world().memory_is_durable() {
            return Completion::ready(Ok(self.site().pool().payload(buffer)));
        }
        if self.world().keeps_persisted() {
            buffer.resize(len, 0);
            let copied = region.read(offset, &mut buffer);
            assert!(copied.is_ok(), "the range was checked");
        }
        let transfer = Transfer::Persist { region: region.clone(), offset, len: len as u32 };
        self.start_transfer(transfer, buffer)
    }
}
