//! Durability under the node's log device.

use std::sync::Arc;

use super::Completions;
use crate::memory::Region;

/// Making bytes durable.
///
/// Contract: what a resolved completion has confirmed survives a crash of the node. What is
/// persisted are the bytes as they were when it was asked for, whatever happens to the memory
/// afterwards.
///
/// Cost: none of its own where memory itself is durable (battery-backed, as in the papers).
/// Errors: `NoResources` when the log device is full or has failed; it stays so from then on.
pub trait Durability: Completions {
    /// Like [`Pcie::dma_write`](super::Pcie::dma_write), and resolves when the bytes are durable as
    /// well. What is persisted are the bytes given, whatever happens to the memory once they
    /// landed.
    ///
    /// They are given in parts, which stand one behind the other, so that the caller need not
    /// copy them together first. Each but the last is filled up with zeros to whole words.
    fn dma_write_durable(&self, to: &Arc<Region>, offset: u64, parts: &[&[u8]])
    -> Self::Completion;

    /// True if what was written is durable as soon as that is asked for. See
    /// [`Pcie::transfers_at_once`](super::Pcie::transfers_at_once).
    fn persists_at_once(&self) -> bool;

    /// Does this node's memory survive a crash by itself? Then nothing is persisted elsewhere.
    fn memory_is_durable(&self) -> bool;

    /// True if this node's host and NIC persist on one device. Then a record that the one has
    /// persisted is durable for the other as well.
    fn shares_medium(&self) -> bool;

    /// Resolves when `len` bytes of this node's memory from `offset` on, as they are now, are
    /// durable.
    fn persist(&self, region: &Arc<Region>, offset: u64, len: usize) -> Self::Completion;
}
