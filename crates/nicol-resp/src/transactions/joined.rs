//! Joined batches: commands of several connections that wait for the same keys go as one
//! transaction.
//!
//! Transactions that write one key run one after the other, and each takes as long as its messages
//! do. When one of them has ended and the next is let in, those behind it that touch no further key
//! go with it: so a key that many clients write costs a transaction per turn, not per client. Its
//! commands run in the order in which the clients waited; each gets the replies to its own.

use std::sync::Arc;

use nicol_core::txn::{Abort, Outcome};

use super::lock_table::Waiter;
use super::output::OutputHead;
use crate::connection::encode::split_replies;
use nicol_core::serving::{Request, Response};

/// The slot of joined batches among the connections.
pub const JOINED_BATCH: usize = usize::MAX - 3;

/// A transaction for several waiters.
#[derive(Debug)]
struct JoinedBatch {
    /// The commands of all, over the keys of the first.
    request: Arc<Request>,
    /// The connections that wait; the gate let the first one in.
    waiters: Vec<Waiter>,
}

/// The joined batches under way of one front.
#[derive(Debug, Default)]
pub struct JoinedBatches(Vec<JoinedBatch>);

impl JoinedBatches {
    /// Makes one transaction of `first` and its `followers`, which touch no further key.
    pub fn join(&mut self, first: Waiter, followers: Vec<Waiter>) -> Waiter {
        let planned = first.planned.join(followers.iter().map(|waiter| &waiter.planned));
        let (connection, request) = (first.connection, planned.request().clone());
        let waiters = std::iter::once(first).chain(followers).collect();
        self.0.push(JoinedBatch { request, waiters });
        Waiter { slot: JOINED_BATCH, connection, planned }
    }

    /// The places and ids of the connections that wait for `request`.
    pub fn places(&self, request: &Arc<Request>) -> Vec<(usize, u64)> {
        let batch = self.0.iter().find(|batch| Arc::ptr_eq(&batch.request, request));
        let waiters = batch.map_or(&[][..], |batch| &batch.waiters);
        waiters.iter().map(|waiter| (waiter.slot, waiter.connection)).collect()
    }

    /// `request` has ended: returns the connections that waited for it.
    pub fn take(&mut self, request: &Arc<Request>) -> Option<Vec<Waiter>> {
        let at = self.0.iter().position(|batch| Arc::ptr_eq(&batch.request, request))?;
        Some(self.0.swap_remove(at).waiters)
    }
}

/// Each waiter's own replies in the output of a joined batch that has committed. `None`: none of
/// its commands was executed, since a prefix of the batch may be; it goes again.
pub fn shares(waiters: &[Waiter], output: &[u8]) -> Vec<Option<Response>> {
    let (head, mut replies) = OutputHead::parse(output).unwrap_or_default();
    let mut left = head.executed;
    let share = |(place, waiter): (usize, &Waiter)| {
        let executed = waiter.planned.commands().min(left);
        left -= executed;
        // A batch executes at least one command.
        if executed == 0 && place > 0 {
            return None;
        }
        let (outcome, output) = match split_replies(replies, executed) {
            Some((own, rest)) if executed > 0 => {
                replies = rest;
                // The store's growth has been counted once, for the whole.
                let mut output = Vec::new();
                OutputHead::begin(&mut output);
                output.extend_from_slice(own);
                OutputHead { executed, ..OutputHead::default() }.finish(&mut output, &[]);
                (Outcome::Committed, output)
            }
            _ => (Outcome::Aborted(Abort::Refused), Vec::new()),
        };
        Some(Response { outcome, output })
    };
    waiters.iter().enumerate().map(share).collect()
}
