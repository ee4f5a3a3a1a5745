//! Schedulers broken on purpose, for the checkers' negative tests: a service that stands before a
//! server's own and spoils some of its requests. The server itself knows nothing of it.

mod service;

pub(super) use service::service;

/// Ways to break a scheduler on purpose, so that runs can show that a lost request is noticed.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    None,
    /// A client whose request is refused is not told.
    RefusesSilently,
    /// A queue that is full forgets the request that it has no place for.
    DropsWhenFull,
    /// A worker with a long queue forgets what waits there.
    LosesQueue,
    /// What comes before the first vectors is forgotten; vectors come of what aborts, so that none
    /// ever come.
    DropsBeforeVectors,
    /// Data stays where the request before it has left its own: what a worker then executes is that
    /// of the request before.
    ExecutesOldData,
}
