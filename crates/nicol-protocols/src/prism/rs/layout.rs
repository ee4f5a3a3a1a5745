//! Blocks in a replica's memory. [PRISM21 7.3, Figure 5]
//!
//! The metadata array comes first: block i's tag and address, and with blocks of variable size its
//! length, so that a CAS replaces them together. Buffers follow; each begins with the tag once more,
//! then the value, and is never changed while it is in use.

use nicol_core::ids::{EngineId, Incarnation, Version};
use nicol_core::memory::WORD;
use nicol_core::view::View;

use super::config::{Blocks, TAG};

const ID_BITS: u32 = 24;
const LIFE_BITS: u32 = 10;

/// A version of a block: a timestamp, and who chose it. Tags compare as words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Tag(pub(super) u64);

impl Tag {
    /// Of what is loaded before the start.
    pub(super) const LOADED: Self = Self(1);

    /// The tag of timestamp `ts` by `writer`.
    ///
    /// # Panics
    /// After 2^40 timestamps.
    pub(super) const fn new(ts: u64, writer: Writer) -> Self {
        assert!(ts >> (u64::BITS - ID_BITS) == 0, "a timestamp has 40 bits");
        Self(ts << ID_BITS | writer.0)
    }

    /// Its timestamp.
    pub(super) const fn ts(self) -> u64 {
        self.0 >> ID_BITS
    }

    /// As histories tell it.
    pub(super) const fn version(self) -> Version {
        Version(self.0)
    }
}

/// Who chooses tags: a life of an engine. What an earlier life may have chosen, nobody knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Writer(u64);

impl Writer {
    /// `engine` in this life of its side.
    ///
    /// # Panics
    /// If it is no host engine of `view`; if it lives for the 1,024th time.
    pub(super) fn new(view: &View, engine: EngineId, life: Incarnation) -> Self {
        let Some(index) = view.host_index_of(engine) else { panic!("{engine} is no host engine") };
        assert!(index < 1 << (ID_BITS - LIFE_BITS), "a writer has 14 bits");
        assert!(life.0 < 1 << LIFE_BITS, "a life has 10 bits");
        Self((index as u64) << LIFE_BITS | u64::from(life.0))
    }
}

/// Where the metadata stands.
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

/// What a buffer holds: `tag | value`.
pub(super) fn buffer(tag: Tag, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(TAG as usize + value.len());
    bytes.extend(tag.0.to_le_bytes());
    bytes.extend(value);
    bytes
}

/// The reverse of [`buffer`].
pub(super) fn parse(bytes: &[u8]) -> Option<(Tag, &[u8])> {
    let (tag, value) = bytes.split_first_chunk()?;
    Some((Tag(u64::from_le_bytes(*tag)), value))
}

#[cfg(test)]
mod tests {
    use nicol_core::ids::NodeId;

    use super::*;

    #[test]
    fn a_later_timestamp_wins_whoever_chose_it_and_equal_ones_differ_by_writer_and_life() {
        let view = View::new(3, 3, 2, 1).unwrap();
        let writer =
            |node, life| Writer::new(&view, EngineId::host(NodeId(node), 1), Incarnation(life));
        let (first, later, other) = (writer(0, 1), writer(0, 2), writer(2, 1));
        assert!(Tag::new(2, first) > Tag::new(1, other) && Tag::new(1, first) > Tag::LOADED);
        assert!(Tag::new(1, later) > Tag::new(1, first) && Tag::new(1, other) > Tag::new(1, later));
        assert_eq!(Tag::new(7, other).ts(), 7);
        let bytes = buffer(Tag(9), b"value");
        assert_eq!(parse(&bytes), Some((Tag(9), &b"value"[..])));
        assert_eq!(parse(&bytes[..7]), None);
    }
}
