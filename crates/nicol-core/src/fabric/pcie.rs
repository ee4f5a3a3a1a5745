//! DMA between the two sides of a node.

use std::sync::Arc;

use super::Completions;
use crate::memory::Region;

/// Transfers between this side's memory and the other side's, over PCIe.
///
/// Contract: reads join the round's read vector and writes its write vector; a full vector is
/// submitted at once, the others at the end of the round. What lies in one line of 64 bytes moves
/// at one instant; a longer read may be torn by a write. Transfers are not ordered with each other.
pub trait Pcie: Completions {
    /// True if every transfer is complete as soon as it is asked for, as where both sides share
    /// memory. Then who waits for nothing else needs no task (decision 0028). It does not change.
    fn transfers_at_once(&self) -> bool;

    /// Reads `len` bytes of the other side's memory over PCIe; joins this round's read vector.
    fn dma_read(&self, from: &Arc<Region>, offset: u64, len: usize) -> Self::Completion;

    /// Resolves when `bytes` stand in an entry of the NIC's volatile queue for updates on their way
    /// to the host. The queue itself is its user's: this is the time that filling an entry takes.
    /// Ready at once where the NIC has no such queue. [MINOS24 V-B4]
    fn fill_queue_entry(&self, bytes: usize) -> Self::Completion;

    /// Resolves when the NIC's hardware has moved `bytes` of a queue entry to the host's memory:
    /// the caller makes the write itself at that instant. [MINOS24 V-B4]
    fn drain_queue_entry(&self, bytes: usize) -> Self::Completion;

    /// Writes the other side's memory over PCIe; joins this round's write vector, resolves when
    /// the bytes have landed, and rings the region's doorbell.
    fn dma_write(&self, to: &Arc<Region>, offset: u64, bytes: &[u8]) -> Self::Completion;
}
