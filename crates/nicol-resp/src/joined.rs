//! Joined batches: commands of several connections that wait for the same keys go as one
//! transaction.
//!
//! Transactions that write one key run one after the other, and each takes as long as its messages
//! do. When one of them has ended and the next is let in, those behind it that touch no further key
//! go with it: so a key that many clients write costs a transaction per turn, not per client. Its
//! commands run in the order in which the clients waited; each gets the replies to its own.

use std::sync::Arc;

use nicol_core::txn::{Abort, Outcome};

use super::backend::{Request, Response};
use super::completions::Completion;
use super::encode::split_replies;
use super::front::Front;
use super::gate::Waiter;
use super::plan::Planned;
use super::procedure::OutputHead;
use super::reaper::REAPER;
use super::shared::count;

/// The slot of joined batches among the connections.
pub const JOINED_BATCH: usize = usize::MAX - 3;

/// A transaction for several waiters.
#[derive(Debug)]
pub struct JoinedBatch {
    /// The commands of all, over the keys of the first.
    request: Arc<Request>,
    /// Those who wait, the first one being whom the gate let in.
    waiters: Vec<Waiter>,
}

impl JoinedBatch {
    /// Is `request` its commands?
    pub fn is(&self, request: &Arc<Request>) -> bool {
        Arc::ptr_eq(&self.request, request)
    }

    /// The places and ids of those who wait.
    pub fn places(&self) -> impl Iterator<Item = (usize, u64)> {
        self.waiters.iter().map(|waiter| (waiter.slot, waiter.connection))
    }
}

impl Front {
    /// Submits what the gate has let in, with those behind it that can go along.
    pub(super) fn depart(&mut self, first: Waiter) {
        let limits = &self.shared.config.limits;
        let (mut commands, mut bytes) = (first.request.commands(), first.request.args.len());
        let rides = |waiter: &Waiter| {
            commands += waiter.request.commands();
            bytes += waiter.request.args.len();
            waiter.slot != REAPER
                && commands <= limits.group_commands
                && bytes <= limits.group_bytes
                && first.request.covers(&waiter.request)
        };
        let followers = match first.slot {
            REAPER => Vec::new(),
            _ => self.gate.followers(&first.request, rides),
        };
        if followers.is_empty() {
            return self.submit(first);
        }
        count(&self.shared.counters.joined, followers.len() as u64);
        let joined = first.request.join(followers.iter().map(|waiter| &*waiter.request));
        let (connection, request) = (first.connection, Arc::new(joined));
        let waiters = std::iter::once(first).chain(followers).collect();
        self.joined_batches.push(JoinedBatch { request: request.clone(), waiters });
        self.submit(Waiter { slot: JOINED_BATCH, connection, request });
    }

    /// A joined batch has ended: everyone gets a share of the replies, or the outcome.
    pub(super) fn arrived(&mut self, request: &Arc<Request>, response: &Response) {
        let this = |batch: &JoinedBatch| Arc::ptr_eq(&batch.request, request);
        let Some(at) = self.joined_batches.iter().position(this) else { return };
        let batch = self.joined_batches.swap_remove(at);
        match response.outcome {
            Outcome::Committed => {
                self.release(request);
                self.share(&batch.waiters, &response.output);
            }
            Outcome::Unknown => {
                self.release(request);
                for waiter in &batch.waiters {
                    self.deliver(waiter, response.clone());
                }
            }
            // It had no effect. The first one, who holds the keys, goes on as if it had been alone;
            // the others wait for it again.
            Outcome::Aborted(_) => {
                let mut waiters = batch.waiters.into_iter();
                let Some(Waiter { slot, connection, request }) = waiters.next() else { return };
                for waiter in waiters {
                    self.wait_again(waiter);
                }
                let response = response.clone();
                self.completed(Completion { slot, connection, request, response });
            }
        }
    }

    /// Hands out the replies of a joined batch that has committed. Its output is that of one batch:
    /// a prefix of the commands may have been executed.
    fn share(&mut self, waiters: &[Waiter], output: &[u8]) {
        let (head, mut replies) = OutputHead::parse(output).unwrap_or_default();
        let mut left = head.executed;
        for (place, waiter) in waiters.iter().enumerate() {
            let executed = waiter.request.commands().min(left);
            left -= executed;
            // A batch executes at least one command.
            if executed == 0 && place > 0 {
                self.wait_again(waiter.clone());
                continue;
            }
            let response = match split_replies(replies, executed) {
                Some((own, rest)) if executed > 0 => {
                    replies = rest;
                    // The store's growth has been counted once, for the whole.
                    let mut output = OutputHead { executed, grown: 0 }.emit().to_vec();
                    output.extend_from_slice(own);
                    Response { outcome: Outcome::Committed, output }
                }
                _ => {
                    let outcome = Outcome::Aborted(Abort::Refused);
                    Response { outcome, output: Vec::new() }
                }
            };
            self.deliver(waiter, response);
        }
    }

    fn wait_again(&mut self, waiter: Waiter) {
        if let Some(waiter) = self.gate.enter(waiter) {
            self.submit(waiter);
        }
    }
}
