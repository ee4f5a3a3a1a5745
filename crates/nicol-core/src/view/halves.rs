//! What half of a node is worth: which sides count as members only together.

use crate::ids::Side;

/// What half of a node is worth to what runs there.
///
/// A side that needs its other half has no lease without it and serves nobody: it is a member only
/// together with it. Both begin their lives together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Halves {
    /// Each side goes on without the other.
    #[default]
    Apart,
    /// The host goes on without its NIC engines, which are worth nothing without it.
    HostAlone,
    /// Neither is worth anything without the other.
    Together,
}

impl Halves {
    /// Is `side` worth nothing without the other side of its node?
    pub const fn needs_other(self, side: Side) -> bool {
        match self {
            Self::Apart => false,
            Self::HostAlone => matches!(side, Side::Nic),
            Self::Together => true,
        }
    }

    /// Is what a node holds lost with `side`?
    pub const fn are_lost_with(self, side: Side) -> bool {
        matches!(side, Side::Host) || !matches!(self, Self::HostAlone)
    }
}
