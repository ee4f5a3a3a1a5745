//! What others know of a leaf.

use super::super::arena::Place;
use super::{FANOUT, NodeNumber};

/// A leaf as it was at one instant.
#[derive(Clone, Copy, Debug)]
pub struct Leaf {
    /// Which.
    pub node: NodeNumber,
    /// Its version then.
    pub version: u64,
    /// The lowest key that may stand in it.
    pub low: u64,
    /// The highest.
    pub high: u64,
    pub(super) count: usize,
    pub(super) entries: [(u64, Place); FANOUT],
}

impl Leaf {
    /// Its entries, in the order of their keys.
    pub fn entries(&self) -> &[(u64, Place)] {
        &self.entries[..self.count]
    }
}

/// An insertion, as transactions that have read the leaf must know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inserted {
    /// The leaf.
    pub node: NodeNumber,
    /// Its version before.
    pub before: u64,
    /// Its version after.
    pub after: u64,
}

/// The leaf at which a search has ended, as it was then. While it is that, searches for what stands
/// in it need not begin at the root: keys that are near each other are mostly looked for one after
/// the other.
#[derive(Clone, Copy, Debug)]
pub struct Near {
    pub(super) leaf: u32,
    pub(super) version: u64,
}

impl Near {
    /// No leaf: none that is part of a tree has this version.
    pub const NOWHERE: Self = Self { leaf: 0, version: u64::MAX };
}
