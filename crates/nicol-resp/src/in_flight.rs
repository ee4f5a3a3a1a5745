//! How many transactions the store has at a time.
//!
//! Beyond it a front thread keeps them, each with its connection, from which no more is read: clients
//! that send more than the store executes wait, and none of them is told that an outcome is unknown.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use nicol_core::fabric::FabricError;
use nicol_core::ids::Key;
use nicol_core::txn::{Abort, Outcome};

use super::backend::{Request, Response};
use super::completions::{Completion, Promise};
use super::connection::Waiting;
use super::front::Front;
use super::gate::Waiter;
use super::joined::{JOINED_BATCH, JoinedBatch};

/// What the store has of one front thread, and what waits. The latter is bounded by the connections:
/// each has one transaction at most.
#[derive(Debug, Default)]
pub struct InFlight {
    transactions: usize,
    bytes: usize,
    waiting: VecDeque<Waiter>,
    /// When one ended last, or was the first to begin.
    moved: Option<Instant>,
    /// Those whose clients were told that the outcome is unknown, and that have not ended.
    late: Vec<Arc<Request>>,
}

impl InFlight {
    /// The store has answered `request`.
    pub fn ended(&mut self, request: &Request) {
        // What needs no record has never been there.
        if request.reads.is_empty() && request.writes.is_empty() {
            return;
        }
        assert!(self.transactions > 0, "a transaction ends once for each time it began");
        self.transactions -= 1;
        self.bytes -= request.args.len();
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

    fn began(&mut self, request: &Request) {
        if self.transactions == 0 {
            self.moved = Some(Instant::now());
        }
        self.transactions += 1;
        self.bytes += request.args.len();
    }
}

impl Front {
    /// Hands a transaction to the store, or keeps it until it is its turn.
    pub(super) fn submit(&mut self, waiter: Waiter) {
        match self.in_flight.waiting.is_empty() && self.has_room() {
            true => self.dispatch(waiter),
            false => self.in_flight.waiting.push_back(waiter),
        }
    }

    /// Hands over those that wait, as far as there is room.
    pub(super) fn dispatch_waiting(&mut self) {
        while self.has_room()
            && let Some(waiter) = self.in_flight.waiting.pop_front()
        {
            self.dispatch(waiter);
        }
    }

    /// Hands a transaction to the store, whatever it has: another attempt keeps its place.
    pub(super) fn dispatch(&mut self, waiter: Waiter) {
        let Waiter { slot, connection, request } = waiter;
        self.in_flight.began(&request);
        self.mark_under_way(slot, connection, &request);
        let promise = Promise::new(self.mailbox.clone(), slot, connection, request.clone());
        let done = Box::new(move |response| promise.keep(response));
        self.shared.backend.submit(connection, request, done);
    }

    fn has_room(&self) -> bool {
        let limits = &self.shared.config.limits;
        let InFlight { transactions, bytes, .. } = self.in_flight;
        transactions < limits.in_flight && (transactions == 0 || bytes < limits.in_flight_bytes)
    }

    /// The time of a transaction begins when the store gets it.
    fn mark_under_way(&mut self, slot: usize, id: u64, request: &Arc<Request>) {
        if slot == JOINED_BATCH {
            let this = |batch: &&JoinedBatch| batch.is(request);
            let Some(batch) = self.joined_batches.iter().find(this) else { return };
            let waiters: Vec<_> = batch.places().collect();
            for (slot, id) in waiters {
                self.mark_one(slot, id);
            }
            return;
        }
        self.mark_one(slot, id);
    }

    fn mark_one(&mut self, slot: usize, id: u64) {
        let Some(connection) = self.connection(slot) else { return };
        if connection.session.id == id
            && let Waiting::Transaction(transaction) = &mut connection.waiting
            && !transaction.under_way
        {
            transaction.under_way = true;
            if transaction.attempts == 1 {
                transaction.begun = Instant::now();
            }
        }
    }

    /// Refuses what waits for a store that has not answered anything for the time of a transaction:
    /// it has had no effect.
    pub(super) fn refuse_waiting(&mut self, now: Instant) {
        let max = self.shared.config.limits.transaction_time;
        let stuck = |moved: Instant| now.saturating_duration_since(moved) >= max;
        if self.has_room() || !self.in_flight.moved.is_some_and(stuck) {
            return;
        }
        for Waiter { slot, connection, request } in std::mem::take(&mut self.in_flight.waiting) {
            let outcome = Outcome::Aborted(Abort::Fabric(FabricError::Unreachable));
            let response = Response { outcome, output: Vec::new() };
            self.completed(Completion { slot, connection, request, response });
        }
    }
}
