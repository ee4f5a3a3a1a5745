//! Blocks in a replica's memory. [PRISM21 7.3, Figure 5]
//!
//! The metadata array comes first: block i's tag and address, and with blocks of variable size its
//! length, so that a CAS replaces them together. Buffers follow; each begins with the tag once
//! more, then the value, and is never changed while it is in use.

use nicol_core::memory::WORD;

use super::config::{Blocks, TAG};
use crate::tag::Tag;

/// Offsets of the metadata.
#[derive(Clone, Copy, Debug)]
pub(super) struct Metadata {
    sizes: Blocks,
}

impl Metadata {
    pub(super) const fn new(sizes: Blocks) -> Self {
        Self { sizes }
    }

    /// Words of an element: `tag | addr`, or `tag | addr | len | 0`. A CAS takes the whole of it.
    pub(super) const fn words(self) -> usize {
        match self.sizes {
            Blocks::Fixed => 2,
            Blocks::Variable => 4,
        }
    }

    /// Bytes of an element.
    pub(super) const fn stride(self) -> u64 {
        (self.words() * WORD) as u64
    }

    /// The address of the element of `block`: its tag.
    pub(super) const fn of(self, block: u64) -> u64 {
        block * self.stride()
    }

    /// The address of the pointer in it, which a length follows where there is one.
    pub(super) const fn pointer(self, block: u64) -> u64 {
        self.of(block) + WORD as u64
    }
}

/// The content of a buffer: `tag | value`.
pub(super) fn buffer(tag: Tag, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(TAG as usize + value.len());
    bytes.extend(tag.0.to_le_bytes());
    bytes.extend(value);
    bytes
}
