//! What a look at a record comes to, other than what it was for.

use nicol_core::ids::Key;
use nicol_core::txn::Abort;

/// Why a step has not been taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halt {
    /// Somebody holds the record of this key: look again.
    Busy(Key),
    /// The transaction must end.
    Abort(Abort),
}

impl From<Abort> for Halt {
    fn from(abort: Abort) -> Self {
        Self::Abort(abort)
    }
}

/// The result of a look at a record; `None` if another transaction holds it.
#[inline(always)]
pub(super) fn unless_busy<T>(looked: Result<T, Halt>) -> Result<Option<T>, Abort> {
    match looked {
        Ok(seen) => Ok(Some(seen)),
        Err(Halt::Busy(_)) => Ok(None),
        Err(Halt::Abort(abort)) => Err(abort),
    }
}
