//! Which request of which client a scheduler has given to which worker.

use std::collections::BTreeMap;

use nicol_core::ids::TxnId;

use super::decision::Scheduler;
use super::features::Features;

/// A request that counts at a worker.
#[derive(Clone, Copy, Debug)]
struct Given {
    worker: usize,
    features: Features,
    id: TxnId,
    /// Its place among all that were given.
    turn: u64,
}

/// A scheduler, and what counts there: one request for each client's slot at most, whoever of
/// several cores has decided it.
#[derive(Debug)]
pub(crate) struct Assignments {
    pub(super) scheduler: Scheduler,
    by_slot: BTreeMap<u64, Given>,
    /// Slots, the one first whose request was given first.
    by_turn: BTreeMap<u64, u64>,
    turn: u64,
}

impl Assignments {
    pub(super) fn new(scheduler: Scheduler) -> Self {
        Self { scheduler, by_slot: BTreeMap::new(), by_turn: BTreeMap::new(), turn: 0 }
    }

    /// Decides which worker gets the request `id` of a slot. What the slot had before is done,
    /// whether or not its worker has said so. `None` if no worker has space for more.
    pub(super) fn give(
        &mut self,
        (slot, id): (u64, TxnId),
        features: &Features,
        hint: usize,
    ) -> Option<usize> {
        self.remove(slot);
        let worker = self.scheduler.decide(features, hint)?;
        self.by_slot.insert(slot, Given { worker, features: *features, id, turn: self.turn });
        self.by_turn.insert(self.turn, slot);
        self.turn += 1;
        Some(worker)
    }

    /// A slot has sent a request that does not count here: what it had before is done.
    pub(super) fn sent_another(&mut self, slot: u64) {
        self.remove(slot);
    }

    /// The request `id` of a slot is done. Does nothing if it does not count any more.
    pub(super) fn done(&mut self, slot: u64, id: TxnId) {
        if self.by_slot.get(&slot).is_some_and(|given| given.id == id) {
            self.remove(slot);
        }
    }

    /// Takes the request that was given first as done. Does nothing if none counts.
    pub(super) fn forget_oldest(&mut self) {
        if let Some((_, &slot)) = self.by_turn.first_key_value() {
            self.remove(slot);
        }
    }

    fn remove(&mut self, slot: u64) {
        let Some(given) = self.by_slot.remove(&slot) else { return };
        self.by_turn.remove(&given.turn);
        self.scheduler.done(given.worker, &given.features);
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        assert_eq!(self.by_slot.len(), self.by_turn.len());
        self.by_slot.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::decision::{OPEN_MAX, Planes, Ranking};
    use super::*;

    fn assignments(workers: usize) -> Assignments {
        Assignments::new(Scheduler::new(workers, Ranking::Improved, Planes::Two))
    }

    fn queued(assignments: &Assignments) -> u16 {
        (0..2).map(|worker| assignments.scheduler.queued(worker)).sum()
    }

    #[test]
    fn a_late_word_that_a_request_is_done_does_not_end_the_next_one() {
        let (mut given, none) = (assignments(2), Features::default());
        given.give((7, TxnId(1)), &none, 0).unwrap();
        given.give((7, TxnId(2)), &none, 0).unwrap();
        given.done(7, TxnId(1));
        assert_eq!((given.len(), queued(&given)), (1, 1), "the second one runs");
        given.done(7, TxnId(2));
        given.done(7, TxnId(2));
        assert_eq!((given.len(), queued(&given)), (0, 0));
    }

    #[test]
    fn when_nobody_says_what_is_done_the_oldest_makes_way() {
        let (mut given, none) = (assignments(2), Features::default());
        let most = 2 * u64::from(OPEN_MAX);
        assert!((0..most).all(|slot| given.give((slot, TxnId(slot)), &none, 0).is_some()));
        assert_eq!(given.give((most, TxnId(most)), &none, 0), None);
        given.forget_oldest();
        assert!(given.give((most, TxnId(most)), &none, 0).is_some());
        assert_eq!(u64::from(queued(&given)), most);
        // The first one was forgotten: that it is done changes nothing.
        given.done(0, TxnId(0));
        assert_eq!(given.len() as u64, most);
        given.done(1, TxnId(1));
        assert_eq!(given.len() as u64, most - 1);
        (0..2 * most).for_each(|_| given.forget_oldest());
        assert_eq!((given.len(), queued(&given)), (0, 0));
    }
}
