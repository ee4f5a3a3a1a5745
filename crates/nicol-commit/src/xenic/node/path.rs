//! How transactions came to their commit.

/// The ways that a transaction may take to its commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::xenic) enum Path {
    /// Executed by a primary NIC. [Xenic21 4.2.3]
    MultiHop,
    /// Executed on the host's own table. [Xenic21 4.2.4]
    LocalWrite,
    /// The same, without a write.
    LocalRead,
    /// Executed by the coordinator, with one EXECUTE per shard. [Xenic21 4.2]
    Ordinary,
}

impl Path {
    pub(super) const COUNT: usize = 4;
    pub(super) const ALL: [Self; Self::COUNT] =
        [Self::MultiHop, Self::LocalWrite, Self::LocalRead, Self::Ordinary];

    /// Its name in reports.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::MultiHop => "multi_hop",
            Self::LocalWrite => "local_write",
            Self::LocalRead => "local_read",
            Self::Ordinary => "ordinary",
        }
    }
}
