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

/// What the store has of one front, and what waits. The latter is bounded by the
/// connections: each has one transaction at most.
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

    fn has_room(&self, limits: &Limits) -> bool {
        let Self { transactions, bytes, .. } = *self;
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
