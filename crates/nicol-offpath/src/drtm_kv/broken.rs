//! DrTM-KV broken on purpose, for the checkers' negative tests. The steps ask [`Hooks`] about what
//! they decide, and know no fault by name.

use nicol_core::fabric::{Fabric, ReplyTo};
use nicol_core::units::Nanos;

use super::messages::Answer;

/// One put in so many is lost by the fault that loses some.
const LOST_ONE_IN: u64 = 8;
/// The delay within a step that should happen at one instant.
const GAP: Nanos = Nanos::from_micros(10);

/// Ways to break the protocol on purpose, so that a sweep can show that its checkers see it.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    None,
    /// A get takes what an entry points to for its key's.
    TrustsExtents,
    /// A search ends with the first bucket of a chain.
    IgnoresChains,
    /// A put is acknowledged before it is made.
    AcknowledgesEarly,
    /// Some puts are acknowledged and not made.
    LosesPuts,
    /// Replaced extents are not freed.
    KeepsExtents,
    /// A put leaves the old value in the cache.
    KeepsCached,
    /// A put takes the key's old place out of its bucket, and writes the new one a little later: a
    /// READ of the bucket meanwhile has half of the change.
    TearsBuckets,
    /// A put changes the copies of the index one by one while the old value can still be read.
    LeavesOldCopies,
}

/// Questions of the steps. Every answer is the protocol's, except the one that a planted fault
/// spoils.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hooks(pub(super) Sabotage);

impl Hooks {
    fn is(self, fault: Sabotage) -> bool {
        self.0 == fault
    }

    /// Whether an extent is taken for the key's without a look at its key and version.
    pub(super) fn trusts_extents(self) -> bool {
        self.is(Sabotage::TrustsExtents)
    }

    /// Whether a search goes on in the next bucket of a chain.
    pub(super) fn follows_chains(self) -> bool {
        !self.is(Sabotage::IgnoresChains)
    }

    /// Called before a put is made. Returns whether it has been acknowledged already; `None`: it
    /// has, and is lost.
    pub(super) async fn begin_put<F: Fabric>(self, fabric: &F, to: ReplyTo) -> Option<bool> {
        let loses = self.is(Sabotage::LosesPuts) && fabric.random().is_multiple_of(LOST_ONE_IN);
        if !loses && !self.is(Sabotage::AcknowledgesEarly) {
            return Some(false);
        }
        fabric.reply(to, &Answer::Value(&[]));
        if loses {
            return None;
        }
        fabric.sleep_until(fabric.now() + GAP).await;
        Some(true)
    }

    /// Whether a put removes the old value from the cache.
    pub(super) fn forgets_cached(self) -> bool {
        !self.is(Sabotage::KeepsCached)
    }

    /// Whether the old value becomes unreadable before the copies of the index change.
    pub(super) fn retires_old(self) -> bool {
        !self.is(Sabotage::LeavesOldCopies)
    }

    /// The time for which an entry is empty before the new one is written; `None`: it is replaced
    /// at once.
    pub(super) fn tears_entry(self) -> Option<Nanos> {
        self.is(Sabotage::TearsBuckets).then_some(GAP)
    }

    /// The wait before the next copy of the index changes.
    pub(super) fn between_copies(self) -> Option<Nanos> {
        self.is(Sabotage::LeavesOldCopies).then_some(GAP)
    }

    pub(super) fn frees_old(self) -> bool {
        !self.is(Sabotage::KeepsExtents)
    }
}
