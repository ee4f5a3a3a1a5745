//! The members of a chain, and what they send each other of their files.

use nicol_core::ids::{Epoch, Key, NodeId};

use super::layout::Record;

/// A node as a member of a chain: since a view it has been a member without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Life {
    pub(super) since: Epoch,
    pub(super) node: NodeId,
}

/// A chain as its head sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chain {
    /// The view that it is of.
    pub(super) epoch: Epoch,
    pub(super) head: Life,
    /// The others, in their order.
    pub(super) backups: Vec<Life>,
}

/// A page of another node's files.
#[derive(Debug)]
pub(super) struct Page<'a> {
    /// In the order of their keys.
    pub(super) records: Vec<Record<'a>>,
    /// The last key that it speaks of.
    pub(super) last: Key,
}
