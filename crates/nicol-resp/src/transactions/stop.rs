//! Why a command was not executed.

use super::{plan, record};

/// Why a command was not executed. It has had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Malformed arguments, or a malformed record.
    Malformed,
    /// The transaction's budget of bytes is spent.
    Overflow,
    /// It has asked for records: the procedure is to be run again with them.
    More,
    /// The command answers this error.
    Error(&'static [u8]),
    /// A script has taken more than it may: the transaction answers this and has no effect.
    Spent(&'static [u8]),
}

impl From<&'static [u8]> for Stop {
    fn from(text: &'static [u8]) -> Self {
        Self::Error(text)
    }
}

impl From<record::Malformed> for Stop {
    fn from(_: record::Malformed) -> Self {
        Self::Malformed
    }
}

impl From<plan::Malformed> for Stop {
    fn from(_: plan::Malformed) -> Self {
        Self::Malformed
    }
}
