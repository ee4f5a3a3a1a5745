//! Logical timestamps. [MINOS24 III-A, figure 1b]

use nicol_core::ids::{EngineId, Incarnation, NodeId, Version};

const LIFE_BITS: u32 = 12;
const WRITER_BITS: u32 = EngineId::NODE_BITS + LIFE_BITS;

/// A timestamp: a version, then the node that chose it. A newer write has the higher one.
///
/// Behind the node stands its life: what an earlier life of it has issued, nobody knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Timestamp(u64);

impl Timestamp {
    /// Of a record that nobody has written.
    pub(super) const NONE: Self = Self(0);
    /// Of what is loaded before the start.
    pub(super) const LOADED: Self = Self(1);

    /// The timestamp of `version` by `node` in this life.
    ///
    /// # Panics
    /// After 2^40 versions of a record, or 4,096 lives of a node.
    pub(super) const fn new(version: u64, node: NodeId, life: Incarnation) -> Self {
        assert!(version >> (u64::BITS - WRITER_BITS) == 0, "a version has 40 bits");
        assert!(life.0 >> LIFE_BITS == 0, "a life has 12 bits");
        Self(version << WRITER_BITS | (node.0 as u64) << LIFE_BITS | life.0 as u64)
    }

    /// As it travels and is logged.
    pub(super) const fn bits(self) -> u64 {
        self.0
    }

    /// The inverse of [`Timestamp::bits`]
    pub(super) const fn of_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(super) const fn version(self) -> u64 {
        self.0 >> WRITER_BITS
    }

    /// The node that chose it.
    pub(super) const fn node(self) -> NodeId {
        NodeId((self.0 >> LIFE_BITS) as u16 & ((1 << EngineId::NODE_BITS) - 1))
    }

    /// The incarnation of the node that issued it.
    pub(super) const fn life(self) -> Incarnation {
        Incarnation(self.0 as u32 & ((1 << LIFE_BITS) - 1))
    }

    /// As histories tell it: what is loaded has version 1.
    pub(super) const fn told(self) -> Version {
        Version(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_come_before_nodes_and_nodes_before_lives() {
        let at = |version, node, life| Timestamp::new(version, NodeId(node), Incarnation(life));
        let rising =
            [Timestamp::NONE, Timestamp::LOADED, at(1, 0, 1), at(1, 0, 2), at(1, 4_095, 1)];
        assert!(rising.is_sorted() && rising[4] < at(2, 0, 1));
        assert_eq!((at(7, 3, 2).version(), Timestamp::LOADED.told()), (7, Version(1)));
        assert_eq!((at(7, 3, 2).node(), at(7, 3, 2).life()), (NodeId(3), Incarnation(2)));
        assert_eq!(Timestamp::of_bits(at(7, 3, 2).bits()), at(7, 3, 2));
    }
}
