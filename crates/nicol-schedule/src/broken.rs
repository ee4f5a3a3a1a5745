//! Schedulers broken on purpose, for the checkers' negative tests: ways to lose a request. The
//! steps ask [`Hooks`] about what they decide, and know no fault by name.

/// Ways to break a scheduler on purpose, so that runs can show that a lost request is noticed.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// None.
    None,
    /// What is refused is not told so.
    RefusesSilently,
    /// A queue that is full forgets the request that it has no place for.
    DropsWhenFull,
    /// A worker with a long queue forgets what waits there.
    LosesQueue,
    /// What comes before the first vectors is forgotten; vectors come of what aborts, so that none
    /// ever come.
    DropsBeforeVectors,
}

/// Requests that wait in a queue which a broken worker loses.
const LONG: usize = 64;

/// What the steps ask. Every answer is the protocol's, but for the one that a planted fault spoils.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hooks(pub(super) Sabotage);

impl Hooks {
    fn is(self, fault: Sabotage) -> bool {
        self.0 == fault
    }

    /// Is the client of a request that is refused told so?
    pub(super) fn tells_refusals(self) -> bool {
        !self.is(Sabotage::RefusesSilently)
    }

    /// Is a request refused if the queue of its worker is full?
    pub(super) fn refuses_when_full(self) -> bool {
        !self.is(Sabotage::DropsWhenFull)
    }

    /// Does a worker keep the requests that wait in its queue, of which there are so many?
    pub(super) fn keeps_queue(self, waiting: usize) -> bool {
        waiting < LONG || !self.is(Sabotage::LosesQueue)
    }

    /// Are requests given to workers before the first vectors, whose epoch is 0?
    pub(super) fn takes_before_vectors(self, epoch: impl FnOnce() -> u64) -> bool {
        !self.is(Sabotage::DropsBeforeVectors) || epoch() > 0
    }
}
