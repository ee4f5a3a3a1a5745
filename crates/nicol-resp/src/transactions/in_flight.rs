//! How many transactions the store has at a time.
//!
//! Beyond it a front keeps them, each with its connection, from which no more is read:
//! clients that send more than the store executes wait, and none of them is told that an outcome is
//! unknown.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use nicol_core::ids::Key;

use super::lock_table::Waiter;
use crate::config::Limits;
use nicol_core::serving::Request;

/// The part by which the largest of the latest answers is forgotten with each further one.
const FADING: usize = 16;

/// What the store has of one front, and what waits. The latter is bounded by the
/// connections: each has one transaction at most.
#[derive(Debug, Default)]
pub struct InFlight {
    transactions: usize,
    bytes: usize,
    /// Bytes of the largest of the latest answers.
    answer_bytes: usize,
    waiting: VecDeque<Waiter>,
    /// When one ended last, or was the first to begin.
    moved: Option<Instant>,
    /// Those whose clients were told that the outcome is unknown, and that have not ended.
    late: Vec<Arc<Request>>,
}

impl InFlight {
    /// The store has answered `request` with so many bytes.
    pub fn ended(&mut self, request: &Request, answer_bytes: usize) {
        // What needs no record has never been there.
        if request.reads.is_empty() && request.writes.is_empty() {
            return;
        }
        assert!(self.transactions > 0, "a transaction ends once for each time it began");
        self.transactions -= 1;
        self.bytes -= request.args.len();
        let fading = self.answer_bytes - self.answer_bytes.div_ceil(FADING);
        self.answer_bytes = answer_bytes.max(fading);
        self.moved = Some(Instant::now());
    }

    /// The client of `request` was told that its outcome is unknown.
    pub fn is_late(&mut self, request: Arc<Request>) {
        self.late.push(request);
    }

    /// `request` has ended, or has become part of another one.
    pub fn is_over(&mut self, request: &Arc<Request>) {
        self.late.retain(|late| !Arc::ptr_eq(late, request));
    }

    /// The records of those that are late: who waits for one of them waits for the store.
    pub fn late_records(&self) -> BTreeSet<Key> {
        self.late.iter().flat_map(|late| late.reads.iter().chain(&late.writes)).copied().collect()
    }

    /// Lets `waiter` go to the store, or keeps it until it is its turn.
    pub fn enter(&mut self, waiter: Waiter, limits: &Limits) -> Option<Waiter> {
        if self.waiting.is_empty() && self.has_room(limits) {
            return Some(waiter);
        }
        self.waiting.push_back(waiter);
        None
    }

    /// The next one that waits, if the store may have it.
    pub fn next(&mut self, limits: &Limits) -> Option<Waiter> {
        if self.has_room(limits) { self.waiting.pop_front() } else { None }
    }

    /// Removes the waiting transactions if the store is full and has answered nothing for the time
    /// limit of a transaction.
    pub fn take_stuck(&mut self, now: Instant, limits: &Limits) -> VecDeque<Waiter> {
        let stuck =
            |moved: Instant| now.saturating_duration_since(moved) >= limits.transaction_time;
        if self.has_room(limits) || !self.moved.is_some_and(stuck) {
            return VecDeque::new();
        }
        std::mem::take(&mut self.waiting)
    }

    /// May the store have one more? Each may be answered with as much as the latest ones were: what
    /// clients read is in memory several times on its way to them.
    fn has_room(&self, limits: &Limits) -> bool {
        let Self { transactions, bytes, answer_bytes, .. } = *self;
        let answers = transactions.saturating_mul(answer_bytes);
        let bytes = bytes.saturating_add(answers);
        transactions < limits.in_flight && (transactions == 0 || bytes < limits.in_flight_bytes)
    }

    /// The store gets `request`.
    pub fn began(&mut self, request: &Request) {
        if self.transactions == 0 {
            self.moved = Some(Instant::now());
        }
        self.transactions += 1;
        self.bytes += request.args.len();
    }
}

#[cfg(test)]
mod tests {
    use nicol_core::txn::ProcedureId;

    use super::*;

    #[test]
    fn fewer_are_let_in_while_their_answers_are_large() {
        let limits = Limits::default();
        let request = Request {
            procedure: ProcedureId(0),
            args: Vec::new(),
            reads: vec![Key(1)],
            writes: Vec::new(),
        };
        let mut in_flight = InFlight::default();
        let admitted = |in_flight: &mut InFlight| {
            let before = in_flight.transactions;
            while in_flight.has_room(&limits) {
                in_flight.began(&request);
            }
            in_flight.transactions - before
        };
        assert_eq!(admitted(&mut in_flight), limits.in_flight);
        in_flight.ended(&request, 1_000_000);
        assert_eq!(admitted(&mut in_flight), 0, "as many megabytes are on their way");
        while in_flight.transactions > 0 {
            in_flight.ended(&request, 1_000_000);
        }
        let most = admitted(&mut in_flight);
        assert!((2..20).contains(&most), "{most} answers of a megabyte");
        (0..most).for_each(|_| in_flight.ended(&request, 10));
        for _ in 0..200 {
            in_flight.began(&request);
            in_flight.ended(&request, 10);
        }
        assert_eq!(admitted(&mut in_flight), limits.in_flight, "answers are small again");
    }
}
