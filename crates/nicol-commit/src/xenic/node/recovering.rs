//! How far recovery is at one node, and what it has decided. (decision 0102)

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nicol_core::ids::{Epoch, TxnId};

use crate::decided::Decision;

/// The recovery of one node, which its engines share.
#[derive(Debug)]
pub(in crate::xenic) struct Recovering(Mutex<State>);

#[derive(Debug)]
struct State {
    /// The newest view known here that has lost a node; none yet: the first.
    due: Epoch,
    /// The view in which this node has reported last.
    reported: Epoch,
    /// The view whose decisions it has applied last.
    ended: Epoch,
    is_resolving: bool,
    /// What recoveries have decided: nothing is taken of it any more.
    closed: BTreeSet<TxnId>,
}

impl Recovering {
    /// Nothing is due.
    pub(super) fn new() -> Self {
        let (due, reported, ended) = (Epoch::FIRST, Epoch::FIRST, Epoch::FIRST);
        let closed = BTreeSet::new();
        Self(Mutex::new(State { due, reported, ended, is_resolving: false, closed }))
    }

    /// A view has lost a node.
    pub(super) fn note_due(&self, epoch: Epoch) {
        let state = &mut *self.state();
        state.due = state.due.max(epoch);
    }

    /// Is there a loss from which this node has not recovered?
    pub(in crate::xenic) fn is_due(&self) -> bool {
        let state = self.state();
        state.ended < state.due
    }

    /// The node reports in this view: nothing of an earlier recovery is taken any more. False while
    /// one is being applied.
    pub(in crate::xenic) fn begin(&self, epoch: Epoch) -> bool {
        let state = &mut *self.state();
        if !state.is_resolving {
            state.reported = state.reported.max(epoch);
        }
        !state.is_resolving
    }

    /// Is the recovery of this view the one in which the node has reported last?
    pub(in crate::xenic) fn is_in(&self, epoch: Epoch) -> bool {
        self.state().reported == epoch
    }

    /// Begins to apply the decisions of this view, until what is returned is dropped; `None`: it is
    /// over, or another one is being applied.
    pub(in crate::xenic) fn resolve(&self, epoch: Epoch) -> Option<Resolving<'_>> {
        let state = &mut *self.state();
        let may = state.reported == epoch && !state.is_resolving;
        state.is_resolving |= may;
        may.then(|| Resolving(self))
    }

    /// The decisions of this view are applied.
    pub(in crate::xenic) fn end(&self, epoch: Epoch) {
        let state = &mut *self.state();
        state.ended = state.ended.max(epoch);
    }

    /// Notes what is decided.
    pub(in crate::xenic) fn close(&self, decisions: &[Decision]) {
        self.state().closed.extend(decisions.iter().map(|decision| decision.txn));
    }

    /// Has a recovery decided about `txn`?
    pub(in crate::xenic) fn has_closed(&self, txn: TxnId) -> bool {
        self.state().closed.contains(&txn)
    }

    /// How many transactions recoveries have decided.
    pub(super) fn decided(&self) -> u64 {
        self.state().closed.len() as u64
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Decisions are being applied.
#[must_use = "they are being applied as long as it lives"]
pub(in crate::xenic) struct Resolving<'a>(&'a Recovering);

impl Drop for Resolving<'_> {
    fn drop(&mut self) {
        self.0.state().is_resolving = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_are_applied_by_one_at_a_time() {
        let (recovering, epoch) = (Recovering::new(), Epoch(3));
        assert!(recovering.begin(epoch));
        let first = recovering.resolve(epoch);
        assert!(first.is_some());
        assert!(recovering.resolve(epoch).is_none(), "another one is being applied");
        assert!(!recovering.begin(Epoch(4)), "and still is");
        drop(first);
        assert!(recovering.begin(Epoch(4)));
        assert!(recovering.resolve(epoch).is_none(), "it is over");
    }
}
