//! What systems that are broken on purpose have in common.

/// What the steps of a system ask where a planted fault may decide otherwise. What that is, the
/// system's `broken.rs` adds: every answer is the protocol's, but for the one that a fault spoils.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hooks<S>(S);

impl<S: Copy + PartialEq> Hooks<S> {
    /// Of a system with this fault, or none.
    #[inline]
    pub(crate) const fn new(fault: S) -> Self {
        Self(fault)
    }

    /// Is the system broken in this way?
    #[inline]
    pub(crate) fn is(self, fault: S) -> bool {
        self.0 == fault
    }
}
