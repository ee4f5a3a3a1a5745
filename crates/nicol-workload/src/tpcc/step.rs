//! How a step of a procedure ends.

use nicol_core::wire::Malformed;

/// Why a procedure's run ends before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Rows were added that must be fetched first.
    More,
    /// The application refuses, or the rows or arguments are invalid.
    Refuse,
}

impl From<Malformed> for Stop {
    fn from(_: Malformed) -> Self {
        Self::Refuse
    }
}

/// The result of a step of a procedure.
pub(super) type Step<T> = Result<T, Stop>;
