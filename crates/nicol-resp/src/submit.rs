//! From batches to transactions and from outcomes to replies: submission, retries, splits.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nicol_core::fabric::FabricError;
use nicol_core::ids::Key;
use nicol_core::txn::{Abort, Outcome, Procedures, Txn, Verdict};

use super::backend::{Request, Response};
use super::completions::{Completion, Promise};
use super::connection::{Connection, Transaction, Waiting};
use super::front::Front;
use super::gate::Waiter;
use super::joined::{JOINED_BATCH, shares};
use super::plan::{Kind, Plan, Planned, parse_observations};
use super::procedure::OutputHead;
use super::reaper::REAPER;
use super::shared::count;

/// Attempts before a batch that aborts is split: a smaller one has fewer conflicts.
const ATTEMPTS_WHOLE: u32 = 8;
/// Attempts that follow at once; later ones wait.
const ATTEMPTS_AT_ONCE: u32 = 2;
/// The longest back-off is below `BACK_OFF << BACK_OFF_DOUBLINGS`.
const BACK_OFF: Duration = Duration::from_micros(500);
const BACK_OFF_DOUBLINGS: u32 = 6;

const UNKNOWN: &[u8] =
    b"UNKNOWN the outcome of the transaction is unknown: it may or may not take effect";
const OUT_OF_MEMORY: &[u8] = b"OOM command not allowed when used memory > 'maxmemory'.";
const REFUSED: &[u8] = b"ERR internal error: the store refused the transaction";

impl Front {
    /// Submits the commands that the pipeline has gathered.
    pub(super) fn submit_batch(&mut self, slot: usize) {
        let (value_max, now) = (self.shared.config.limits.value_bytes, self.shared.unix_ms());
        let Some(connection) = self.connection(slot) else { return };
        let protocol = connection.session.protocol;
        let mut batch = std::mem::take(&mut connection.batch);
        let request = batch.finish(Kind::Batch, protocol, value_max, &[], now);
        self.reaper.note(&mut batch, &self.shared);
        if let Some(connection) = self.connection(slot) {
            connection.batch = batch;
        }
        self.begin(slot, Kind::Batch, request);
    }

    /// Submits the observation of a WATCH.
    pub(super) fn submit_watch(&mut self, slot: usize) {
        let (value_max, now) = (self.shared.config.limits.value_bytes, self.shared.unix_ms());
        let Some(connection) = self.connection(slot) else { return };
        let protocol = connection.session.protocol;
        let request = connection.batch.finish(Kind::Watch, protocol, value_max, &[], now);
        self.begin(slot, Kind::Watch, request);
    }

    /// Submits what was queued since MULTI, with what WATCH saw.
    pub(super) fn submit_exec(&mut self, slot: usize) {
        let (value_max, now) = (self.shared.config.limits.value_bytes, self.shared.unix_ms());
        let Some(connection) = self.connection(slot) else { return };
        let session = &mut connection.session;
        let watches = std::mem::take(&mut session.watches);
        let Some(mut multi) = session.multi.take() else { return };
        let request = multi.plan.finish(Kind::Exec, session.protocol, value_max, &watches, now);
        self.reaper.note(&mut multi.plan, &self.shared);
        self.begin(slot, Kind::Exec, request);
    }

    pub(super) fn begin(&mut self, slot: usize, kind: Kind, request: Request) {
        let shared = self.shared.clone();
        let Some(connection) = self.connection(slot) else { return };
        let commands = Plan::parse(&request.args).map_or(1, |plan| plan.commands);
        let request = Arc::new(request);
        let keyless = request.reads.is_empty() && request.writes.is_empty();
        let transaction = Transaction {
            request: request.clone(),
            kind,
            commands,
            attempts: 1,
            begun: Instant::now(),
            under_way: false,
        };
        connection.waiting = Waiting::Transaction(transaction);
        let connection = connection.session.id;
        if keyless {
            // Only errors and the like: no record, so no transaction.
            let response = without_records(&request);
            self.mailbox.complete(Completion { slot, connection, request, response });
            return;
        }
        count(&shared.counters.transactions, 1);
        self.enter_gate(Waiter { slot, connection, request });
    }

    /// Hands a transaction to the store, or keeps it until it is its turn.
    fn submit(&mut self, waiter: Waiter) {
        if let Some(waiter) = self.in_flight.enter(waiter, &self.shared.config.limits) {
            self.dispatch(waiter);
        }
    }

    /// Hands over those that wait, as far as there is room.
    pub(super) fn dispatch_waiting(&mut self) {
        while let Some(waiter) = self.in_flight.next(&self.shared.config.limits) {
            self.dispatch(waiter);
        }
    }

    /// Hands a transaction to the store, whatever it has: another attempt keeps its place.
    fn dispatch(&mut self, waiter: Waiter) {
        let Waiter { slot, connection, request } = waiter;
        self.in_flight.began(&request);
        // The time of a transaction begins when the store gets it.
        match slot {
            JOINED_BATCH => {
                for (slot, id) in self.joined_batches.places(&request) {
                    self.mark_under_way(slot, id);
                }
            }
            _ => self.mark_under_way(slot, connection),
        }
        let promise = Promise::new(self.mailbox.clone(), slot, connection, request.clone());
        let done = Box::new(move |response| promise.keep(response));
        self.shared.backend.submit(connection, request, done);
    }

    fn mark_under_way(&mut self, slot: usize, id: u64) {
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
        for waiter in self.in_flight.take_stuck(now, &self.shared.config.limits) {
            let Waiter { slot, connection, request } = waiter;
            let outcome = Outcome::Aborted(Abort::Fabric(FabricError::Unreachable));
            let response = Response { outcome, output: Vec::new() };
            self.completed(Completion { slot, connection, request, response });
        }
    }

    /// Releases what `request` held, and lets in the requests that waited for it.
    fn release(&mut self, request: &Request) {
        let mut admitted = Vec::new();
        self.gate.leave(request, &mut admitted);
        for waiter in admitted {
            // A client that hung up meanwhile is submitted too: the command was sent, and its place
            // in the gate is given back by its completion.
            self.depart(waiter);
        }
    }

    /// Submits what the gate has let in, with those behind it that can go along.
    fn depart(&mut self, first: Waiter) {
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
        let waiter = self.joined_batches.join(first, followers);
        self.submit(waiter);
    }

    /// A joined batch has ended: everyone gets a share of the replies, or the outcome.
    fn arrived(&mut self, request: &Arc<Request>, response: &Response) {
        let Some(waiters) = self.joined_batches.take(request) else { return };
        match response.outcome {
            Outcome::Committed => {
                self.release(request);
                let shares = shares(&waiters, &response.output);
                for (waiter, share) in waiters.into_iter().zip(shares) {
                    match share {
                        Some(share) => self.deliver(&waiter, share),
                        None => self.enter_gate(waiter),
                    }
                }
            }
            Outcome::Unknown => {
                self.release(request);
                for waiter in &waiters {
                    self.deliver(waiter, response.clone());
                }
            }
            // It had no effect. The first one, who holds the keys, goes on as if it had been alone;
            // the others wait for it again.
            Outcome::Aborted(_) => {
                let mut waiters = waiters.into_iter();
                let Some(Waiter { slot, connection, request }) = waiters.next() else { return };
                for waiter in waiters {
                    self.enter_gate(waiter);
                }
                let response = response.clone();
                self.completed(Completion { slot, connection, request, response });
            }
        }
    }

    /// Submits a transaction as soon as it conflicts with none of this thread.
    fn enter_gate(&mut self, waiter: Waiter) {
        if let Some(waiter) = self.gate.enter(waiter) {
            self.submit(waiter);
        }
    }

    /// Submits the rows whose keys have expired, if none are in progress.
    pub(super) fn reap(&mut self) {
        if let Some(request) = self.reaper.due(&self.shared) {
            self.enter_gate(Waiter { slot: REAPER, connection: 0, request: Arc::new(request) });
        }
    }

    /// A client hung up in a transaction. If it waits for a back-off, it is released here.
    pub(super) fn abandon(&mut self, connection: u64, transaction: &Transaction) {
        let backing_off = self.timers.iter().any(|Reverse((_, _, id))| *id == connection);
        if backing_off {
            let request = transaction.request.clone();
            self.release(&request);
        }
    }

    /// Handles the outcome of an attempt.
    pub(super) fn completed(&mut self, completion: Completion) {
        let Completion { slot, connection: id, request, response } = completion;
        if response.outcome == Outcome::Committed
            && let Some((head, _)) = OutputHead::parse(&response.output)
        {
            self.shared.keys.fetch_add(head.grown, Ordering::Relaxed);
        }
        match slot {
            REAPER => {
                self.release(&request);
                self.reaper.reaped(&response, &self.shared);
                return self.reap();
            }
            JOINED_BATCH => return self.arrived(&request, &response),
            _ => {}
        }
        let keyless = request.reads.is_empty() && request.writes.is_empty();
        self.in_flight.is_over(&request);
        let taken = self.take_waiting(slot, id, &request);
        if let Some(transaction) = &taken
            && let Outcome::Aborted(abort) = response.outcome
            && abort.retryable()
            && self.retry(slot, id, transaction, abort)
        {
            return;
        }
        if !keyless {
            self.release(&request);
        }
        if let Some(transaction) = taken {
            self.finish(slot, transaction, response);
            self.drive(slot);
        }
    }

    /// Takes the transaction of a connection that waits for `request`, if it still does.
    fn take_waiting(
        &mut self,
        slot: usize,
        id: u64,
        request: &Arc<Request>,
    ) -> Option<Transaction> {
        let connection = self.connection(slot).filter(|connection| connection.session.id == id)?;
        match std::mem::take(&mut connection.waiting) {
            Waiting::Transaction(transaction) if Arc::ptr_eq(&transaction.request, request) => {
                Some(transaction)
            }
            // One that ran out of time has been answered: nobody waits for it any more.
            other => {
                connection.waiting = other;
                None
            }
        }
    }

    /// Hands a waiter, whose keys are released already, its response.
    pub(super) fn deliver(&mut self, waiter: &Waiter, response: Response) {
        let Waiter { slot, connection, request } = waiter;
        self.in_flight.is_over(request);
        if let Some(transaction) = self.take_waiting(*slot, *connection, request) {
            self.finish(*slot, transaction, response);
            self.drive(*slot);
        }
    }

    /// Tries again, if another attempt is due; keeps its place in the gate.
    fn retry(&mut self, slot: usize, id: u64, failed: &Transaction, abort: Abort) -> bool {
        // The store never got it, and answers nothing.
        if !failed.under_way {
            return false;
        }
        let attempts = failed.attempts;
        let splits = failed.kind == Kind::Batch && failed.commands > 1;
        let too_large = abort == Abort::NoResources;
        if splits && (too_large || attempts >= ATTEMPTS_WHOLE) {
            return false;
        }
        if too_large && self.shared.backend.is_full() {
            return false;
        }
        let limits = &self.shared.config.limits;
        if attempts >= limits.attempts || failed.begun.elapsed() >= limits.transaction_time {
            return false;
        }
        count(&self.shared.counters.retries, 1);
        let doublings = attempts.min(BACK_OFF_DOUBLINGS);
        let wait = match attempts {
            0..ATTEMPTS_AT_ONCE => 0,
            _ => self.random.below((BACK_OFF.as_micros() as u64) << doublings),
        };
        let request = Arc::new(failed.request.at(self.shared.unix_ms()));
        let Some(connection) = self.connection(slot) else { return false };
        connection.waiting = Waiting::Transaction(Transaction {
            request: request.clone(),
            kind: failed.kind,
            commands: failed.commands,
            attempts: attempts + 1,
            begun: failed.begun,
            under_way: wait == 0,
        });
        match wait {
            0 => self.dispatch(Waiter { slot, connection: id, request }),
            micros => {
                let at = Instant::now() + Duration::from_micros(micros);
                self.timers.push(Reverse((at, slot, id)));
            }
        }
        true
    }

    /// A timer went off: a back-off or a pause is over.
    pub(super) fn alarm(&mut self, slot: usize, id: u64) {
        let Some(connection) = self.connection(slot) else { return };
        if connection.session.id != id {
            return;
        }
        match &mut connection.waiting {
            Waiting::Transaction(transaction) => {
                let request = transaction.request.clone();
                self.dispatch(Waiter { slot, connection: id, request });
            }
            Waiting::Pause => {
                connection.waiting = Waiting::Input;
                self.drive(slot);
            }
            Waiting::Input => {}
        }
    }

    /// Tells a client whose transaction takes too long that its outcome is unknown, and goes on: if
    /// the store has it, or it waits for a record that a late one holds. The records stay its own
    /// until the engines have answered.
    pub(super) fn give_up(&mut self, slot: usize, held: &BTreeSet<Key>) {
        let max = self.shared.config.limits.transaction_time;
        let Some(connection) = self.connection(slot) else { return };
        let waits_for_late = |late: &Transaction| {
            late.attempts == 1
                && late
                    .request
                    .reads
                    .iter()
                    .chain(&late.request.writes)
                    .any(|key| held.contains(key))
        };
        match std::mem::take(&mut connection.waiting) {
            Waiting::Transaction(late)
                if late.begun.elapsed() >= max && (late.under_way || waits_for_late(&late)) =>
            {
                let text = format!(
                    "UNKNOWN the transaction was not answered within {} ms: it may or may not take \
                     effect",
                    max.as_millis()
                );
                fail(connection, &late, text.as_bytes());
                count(&self.shared.counters.unknown, 1);
                self.in_flight.is_late(late.request);
                self.drive(slot);
            }
            other => connection.waiting = other,
        }
    }

    /// Answers a transaction that has ended, or splits it.
    fn finish(&mut self, slot: usize, transaction: Transaction, response: Response) {
        let shared = self.shared.clone();
        let Some(connection) = self.connection(slot) else { return };
        match response.outcome {
            Outcome::Committed => {
                if answer(connection, &transaction, &response.output).is_none() {
                    fail(connection, &transaction, REFUSED);
                }
                let null = transaction.kind == Kind::Exec
                    && matches!(
                        response.output.get(OutputHead::LEN..),
                        Some(b"*-1\r\n" | b"_\r\n")
                    );
                count(&shared.counters.watch_failures, u64::from(null));
            }
            Outcome::Unknown => {
                count(&shared.counters.unknown, 1);
                fail(connection, &transaction, UNKNOWN);
            }
            Outcome::Aborted(abort) => {
                let splits = transaction.kind == Kind::Batch && transaction.commands > 1;
                let tried = transaction.under_way;
                if tried && splits && abort.retryable() && split(connection, &transaction) {
                    return;
                }
                count(&shared.counters.aborted, 1);
                let text = match abort {
                    Abort::Refused => REFUSED.to_vec(),
                    abort if !abort.retryable() => format!(
                        "CLUSTERDOWN a record that the transaction needs is not served since a node \
                         has crashed, and it had no effect: {}",
                        abort.name()
                    )
                    .into_bytes(),
                    Abort::NoResources if shared.backend.is_full() => {
                        count(&shared.counters.out_of_memory, 1);
                        OUT_OF_MEMORY.to_vec()
                    }
                    _ if !tried => format!(
                        "TRYAGAIN the store has answered nothing for {} ms: the transaction was not \
                         executed",
                        shared.config.limits.transaction_time.as_millis()
                    )
                    .into_bytes(),
                    abort => format!(
                        "TRYAGAIN the transaction had no effect after {} attempts: {}",
                        transaction.attempts,
                        abort.name()
                    )
                    .into_bytes(),
                };
                fail(connection, &transaction, &text);
            }
        }
    }
}

/// Appends the replies of a committed transaction. `None`: its output is not in the layout.
fn answer(connection: &mut Connection, done: &Transaction, output: &[u8]) -> Option<()> {
    let (OutputHead { executed, .. }, replies) = OutputHead::parse(output)?;
    if done.kind == Kind::Watch {
        for watch in parse_observations(replies).ok()? {
            // The first observation of a record counts: what was watched earlier may have changed.
            if !connection.session.watches.iter().any(|known| known.row == watch.row) {
                connection.session.watches.push(watch);
            }
        }
        connection.session.reply(&mut connection.output).status("OK");
        return Some(());
    }
    if executed == 0 && done.commands > 0 || executed > done.commands {
        return None;
    }
    if executed < done.commands {
        // The others are likely to answer as much, and each part reads all its records.
        let plan = Plan::parse(&done.request.args).ok()?;
        for from in (executed..done.commands).step_by(executed).rev() {
            let to = (from + executed).min(done.commands);
            connection.rest.push(plan.part(from, to).ok()?);
        }
    }
    if done.kind == Kind::Batch {
        connection.note_executed(executed, done.commands);
    }
    connection.output.extend_from_slice(replies);
    Some(())
}

/// Replaces a batch by its halves; `false` if its plan cannot be read.
fn split(connection: &mut Connection, failed: &Transaction) -> bool {
    let half = failed.commands / 2;
    let Ok(plan) = Plan::parse(&failed.request.args) else { return false };
    let (Ok(first), Ok(second)) = (plan.part(0, half), plan.part(half, failed.commands)) else {
        return false;
    };
    connection.rest.push(second);
    connection.rest.push(first);
    true
}

/// Answers every command of a transaction with an error.
fn fail(connection: &mut Connection, failed: &Transaction, text: &[u8]) {
    let errors = if failed.kind == Kind::Batch { failed.commands } else { 1 };
    for _ in 0..errors {
        connection.session.reply(&mut connection.output).error(text);
    }
}

fn without_records(request: &Request) -> Response {
    let mut txn = Txn::default();
    txn.reset(request.procedure, &request.args);
    let procedures: Procedures = super::procedures();
    let outcome = match procedures.execute(&mut txn) {
        Verdict::Commit => Outcome::Committed,
        Verdict::More | Verdict::Refuse => Outcome::Aborted(Abort::Refused),
    };
    Response { outcome, output: txn.output }
}
