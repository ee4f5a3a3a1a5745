//! What the driver asks of a family: what an operation of its clients is, and how it is tried.

use nicol_core::history::{Action, End};
use nicol_core::rng::Stream;

/// Reasons that a family may have for attempts to abort.
pub const ABORTS_MAX: usize = 12;

/// A client's session with a system: it draws the client's operations and makes attempts at them.
pub trait Session: 'static {
    /// The request in one operation, and what the attempt at it has learnt.
    type Operation: ClientOperation;

    /// Draws the next operation; returns its kind, an index into the names of the workload's kinds.
    fn next(&mut self, random: &mut Stream, operation: &mut Self::Operation) -> usize;

    /// Makes one attempt, without retries.
    #[expect(async_fn_in_trait, reason = "futures stay on the polling thread that made them")]
    async fn attempt(&self, operation: &mut Self::Operation) -> Attempted;

    /// Turns `operation`, a piece that has just taken effect, into the next piece of the same
    /// operation of `kind`; false, and nothing changed, if that was its last one. To the client the
    /// pieces are one operation; in the history each is one.
    fn next_piece(&mut self, _kind: usize, _operation: &mut Self::Operation) -> bool {
        false
    }

    /// The kind of operations that are queued, answered at once and executed in the background, if
    /// there is one.
    fn deferred(&self) -> Option<usize> {
        None
    }
}

/// An operation under way. The driver keeps it outside of the attempts, so that an attempt that a
/// crash cuts off is recorded as well.
pub trait ClientOperation: Default + 'static {
    /// Forgets what the last attempt has learnt, before another one.
    fn rewind(&mut self);

    /// What the attempt that just took effect adds to the sum of its kind
    /// ([`KindResult::total`](super::KindResult::total)).
    fn left(&self) -> i64 {
        0
    }

    /// The history entry of an attempt that ended with `end`. `None` if no other operation can have
    /// seen it.
    fn history_entry(&self, end: End) -> Option<HistoryEntry>;
}

/// An operation as a history tells it, but for its client and times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryEntry {
    /// The id that the system gave it; without one, the driver gives it one.
    pub id: Option<u64>,
    /// The request and its result.
    pub action: Action,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempted {
    Done,
    /// It had no effect, and never will have.
    Aborted {
        /// The reason, an index into the family's names of reasons, below [`ABORTS_MAX`].
        reason: usize,
        /// May it be tried again?
        again: Again,
    },
    /// It took effect, or will, or never does.
    Unknown,
}

impl Attempted {
    /// The end, as a history says it.
    pub(super) const fn end(self) -> End {
        match self {
            Self::Done => End::Ok,
            Self::Aborted { .. } => End::Failed,
            Self::Unknown => End::Unknown,
        }
    }
}

/// May an operation be tried again whose attempt aborted?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// No: the application refused it, which completes it.
    Refused,
    /// No: it fails, since no further attempt can mend the reason.
    Never,
    /// Up to [`Retry::attempts_max`](super::Retry::attempts_max) attempts.
    Yes,
    /// Up to [`Retry::full_max`](super::Retry::full_max) such attempts: a table, a log or a limit
    /// was full.
    WhenFull,
}
