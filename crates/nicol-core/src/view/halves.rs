//! Which sides of a node (host and NIC) are members only together.

use crate::ids::Side;

/// Which sides of a node, host and NIC, a system needs together.
///
/// A side that needs the other gets a lease only while both are up; without it, it serves no
/// request and is no member of the view. Both start together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Halves {
    /// Each side serves without the other.
    #[default]
    Apart,
    /// The host serves without its NIC engines; these need the host.
    HostAlone,
    /// Each side needs the other.
    Together,
    /// Each side needs the other. A side that was up when the other crashed keeps its memory: it
    /// has it again when both start.
    Paired,
}

impl Halves {
    /// Does `side` need the other side of its node?
    pub const fn needs_other(self, side: Side) -> bool {
        match self {
            Self::Apart => false,
            Self::HostAlone => matches!(side, Side::Nic),
            Self::Together | Self::Paired => true,
        }
    }

    /// Does a side keep its memory over a restart that only the other side's crash, or the view
    /// service, has caused? A crash of the side itself takes its memory in any case.
    pub const fn keeps_memory(self) -> bool {
        matches!(self, Self::Paired)
    }

    /// True if the node's data is unusable after a crash of `side`, until the node has recovered.
    pub const fn are_lost_with(self, side: Side) -> bool {
        matches!(side, Side::Host) || !matches!(self, Self::HostAlone)
    }
}
