//! One-sided operations: access to memory of other nodes.

use std::sync::Arc;

use super::Completions;
use crate::chain::Chain;
use crate::ids::{FreeListKey, NodeId, RKey};
use crate::memory::{Access, AccessError, BufferUses, Buffers, ChainMark, Region};

/// A one-sided operation on remote regions. Offsets are multiples of eight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OneSided<'a> {
    /// Reads `len` bytes.
    Read {
        rkey: RKey,
        offset: u64,
        /// Bytes.
        len: u32,
    },
    /// Writes `bytes`; resolves when they are in the remote memory.
    Write { rkey: RKey, offset: u64, bytes: &'a [u8] },
    /// Compares and swaps a word; yields the previous value (eight bytes, little-endian).
    CompareSwap {
        rkey: RKey,
        offset: u64,
        /// Swap only if the word has this value.
        expected: u64,
        new: u64,
    },
    /// Adds to a word, wrapping; yields the previous value (eight bytes, little-endian).
    FetchAdd { rkey: RKey, offset: u64, amount: u64 },
    /// Executes a chain of operations in order; resolves to its
    /// [`ChainResults`](crate::chain::ChainResults). Whatever is refused is an outcome in there. An
    /// error of the whole means that nothing was executed (`Malformed`, `NoResources`), or a fault
    /// on the way. [PRISM21 3.4]
    Chain(&'a Chain),
}

impl OneSided<'_> {
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Read { .. } => "READ",
            Self::Write { .. } => "WRITE",
            Self::CompareSwap { .. } => "CAS",
            Self::FetchAdd { .. } => "FETCH_ADD",
            Self::Chain(_) => "chain",
        }
    }
}

/// Access to registered memory of other nodes, without their hosts' CPU.
///
/// Contract: the card executes an operation where the profile has verbs; else the target's NIC
/// engine does it in software. Words of eight bytes are read and written at one instant, longer
/// ranges are not: a read beside a write may be torn. Operations of one engine are not ordered with
/// each other. What lies outside a registration is refused and changes nothing.
pub trait OneSidedOps: Completions {
    /// Registers a region of this node for one-sided access by others.
    fn register(&self, region: &Arc<Region>, access: Access) -> RKey;

    /// Takes a registration back. Returns whether it was there.
    fn revoke(&self, rkey: RKey) -> bool;

    /// Registers buffers of this node for remote ALLOCATEs. Errors: the buffers are not aligned, or
    /// not in a region of this node that may be written. [PRISM21 3.2]
    ///
    /// # Panics
    /// If more buffers are in use than there are.
    fn register_buffers(&self, buffers: Buffers) -> Result<FreeListKey, AccessError>;

    /// Posts buffers that are no longer used to their free list again, the daemon's part of
    /// recycling. They wait there until no chain under way can have a pointer to them [PRISM21 3.2,
    /// 4.2]. At the first that is not in use this stops with `NotInUse`; those before it are
    /// posted.
    fn post_buffers(&self, list: FreeListKey, offsets: &[u64]) -> Result<(), AccessError>;

    /// Which buffers of this node's `list` are in use; `None` if there is no such list.
    fn buffer_uses(&self, list: FreeListKey) -> Option<Arc<BufferUses>>;

    /// Marks the chains that are under way at this node now: see [`OneSidedOps::have_ended`].
    fn mark_chains(&self) -> ChainMark;

    /// Have all chains ended that were under way at `mark`? If so, a buffer that was in use at
    /// `mark`, and to which no pointer refers now, is free: no chain is left that could install it.
    fn have_ended(&self, mark: ChainMark) -> bool;

    /// Buffers of this node's `list` that an ALLOCATE could pop now.
    fn buffers_ready(&self, list: FreeListKey) -> usize;

    /// Posts a one-sided operation to `node`, executed there without its host's CPU.
    fn one_sided(&self, node: NodeId, operation: OneSided<'_>) -> Self::Completion;

    /// The same, executed by what executes chains at `node`. Where that is software, the software
    /// executes this verb as well, although the card could. [PRISM21 6.2, 7.4, 8.3]
    fn one_sided_like_chain(&self, node: NodeId, operation: OneSided<'_>) -> Self::Completion;
}
