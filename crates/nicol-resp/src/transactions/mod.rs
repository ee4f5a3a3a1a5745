//! From plans to transactions and from outcomes to replies.
//!
//! A plan waits in the lock table until it conflicts with no other of this front, then for room in
//! the store (`in_flight`), runs there, and is submitted again if it aborted. How it ended is
//! handed out by [`Transactions::take_ended`]; the event loop answers the client.

mod active_expiry;
mod calls;
mod evictor;
mod in_flight;
mod joined;
mod lock_table;
pub mod news;
pub mod op;
pub mod output;
pub mod page;
pub mod plan;
pub mod planner;
pub mod procedure;
pub mod record;
mod runs;
pub mod sizes;
pub mod stop;
pub mod tally;
pub mod work;

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nicol_core::fabric::FabricError;
use nicol_core::ids::Key;
use nicol_core::rng;
use nicol_core::serving::{Request, Response};
use nicol_core::txn::{Abort, Outcome, Txn, Verdict};

use self::active_expiry::{ACTIVE_EXPIRY, ActiveExpiry};
use self::evictor::{EVICTOR, Evictor};
use self::in_flight::InFlight;
use self::joined::{JOINED_BATCH, JoinedBatches, shares};
use self::lock_table::{LockTable, Waiter};
use self::news::Told;
use self::output::OutputHead;
use self::plan::{PlanBuilder, Planned};
use crate::commands::errors::OUT_OF_MEMORY;
use crate::commands::touches;
use crate::config::LARGE_BYTES;
use crate::connection::mailbox::{Completion, Mailbox, Promise};
use crate::events::Event;
use crate::shared::{Shared, count};

/// Attempts before a batch that aborts is split: a smaller one has fewer conflicts.
const ATTEMPTS_WHOLE: u32 = 8;
/// Attempts that follow at once; later ones wait.
const ATTEMPTS_AT_ONCE: u32 = 2;
/// The longest back-off is below `BACK_OFF << BACK_OFF_DOUBLINGS`.
const BACK_OFF: Duration = Duration::from_micros(500);
const BACK_OFF_DOUBLINGS: u32 = 6;

const UNKNOWN: &[u8] =
    b"UNKNOWN the outcome of the transaction is unknown: it may or may not take effect";
const OUT_OF_ROOM: &[u8] =
    b"MISCONF the disk of the logs is full: commands that write are refused until it has room";
pub const REFUSED: &[u8] = b"ERR internal error: the store refused the transaction";

/// Where the transaction of a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It waits for its turn; the store has not had it.
    Queued,
    /// The store has it.
    Store,
    /// It has aborted, and is submitted again after a while.
    BackOff,
}

/// The transaction that a connection waits for.
#[derive(Debug)]
struct Open {
    connection: u64,
    planned: Planned,
    /// How often it has been submitted.
    attempts: u32,
    /// When the store got it first; until then, when it was read.
    begun: Instant,
    stage: Stage,
}

/// A transaction that has ended, for the connection in place `slot`.
#[derive(Debug)]
pub struct Ended {
    pub slot: usize,
    pub connection: u64,
    pub planned: Planned,
    pub end: End,
}

/// How a transaction ended.
#[derive(Debug)]
pub enum End {
    /// It has committed, with this output of the procedure.
    Committed(Vec<u8>),
    /// Its halves are to be submitted instead, one after the other.
    Split([Planned; 2]),
    /// Each of its commands answers this error.
    Failed(Vec<u8>),
}

/// The transactions of one front.
pub struct Transactions {
    /// The number of its front.
    front: usize,
    shared: Arc<Shared>,
    mailbox: Arc<Mailbox>,
    /// By the places of the connections, which have one each at most.
    open: Vec<Option<Open>>,
    locks: LockTable,
    in_flight: InFlight,
    joined: JoinedBatches,
    expiry: ActiveExpiry,
    evictor: Evictor,
    /// When, and of which place and connection.
    back_offs: BinaryHeap<Reverse<(Instant, usize, u64)>>,
    random: rng::Stream,
    ended: VecDeque<Ended>,
}

impl Transactions {
    pub fn new(
        front: usize,
        shared: Arc<Shared>,
        mailbox: Arc<Mailbox>,
        random: rng::Stream,
    ) -> Self {
        Self {
            front,
            shared,
            mailbox,
            open: Vec::new(),
            locks: LockTable::default(),
            in_flight: InFlight::default(),
            joined: JoinedBatches::default(),
            expiry: ActiveExpiry::default(),
            evictor: Evictor::default(),
            back_offs: BinaryHeap::new(),
            random,
            ended: VecDeque::new(),
        }
    }

    /// Begins the transaction of the connection in place `slot`, which must have none.
    pub fn begin(&mut self, slot: usize, connection: u64, planned: Planned) {
        if self.open.len() <= slot {
            self.open.resize_with(slot + 1, || None);
        }
        assert!(self.open[slot].is_none(), "a connection has one transaction at a time");
        let (begun, stage) = (Instant::now(), Stage::Queued);
        self.open[slot] =
            Some(Open { connection, planned: planned.clone(), attempts: 1, begun, stage });
        if planned.is_keyless() {
            // Only errors and the like: no record, so no transaction.
            let request = planned.request().clone();
            let response = without_records(&request);
            self.mailbox.complete(Completion { slot, request, response });
            return;
        }
        count(&self.shared.counters.transactions, 1);
        if planned.accesses() && planned.ops().any(touches) {
            let random = &mut self.random;
            self.shared.eviction.touch(planned.rows(), || random.bits() as u32);
        }
        self.lock(Waiter { slot, connection, planned });
    }

    /// The next transaction that has ended; the caller answers its client.
    pub fn take_ended(&mut self) -> Option<Ended> {
        self.ended.pop_front()
    }

    /// Handles the store's answer to an attempt, or that of the front to one without records.
    pub fn answered(&mut self, completion: Completion) {
        self.in_flight.ended(&completion.request, completion.response.output.len());
        self.completed(completion);
    }

    /// Submits what waits for the store, as far as there is room, and what has backed off.
    pub fn go_on(&mut self, now: Instant) {
        while let Some(waiter) = self.in_flight.next(&self.shared.config.limits) {
            self.dispatch(waiter);
        }
        while let Some(&Reverse((at, slot, connection))) = self.back_offs.peek()
            && at <= now
        {
            self.back_offs.pop();
            let backs_off =
                |open: &&Open| open.connection == connection && open.stage == Stage::BackOff;
            let due = self.open.get(slot).and_then(Option::as_ref).filter(backs_off);
            if let Some(planned) = due.map(|open| open.planned.clone()) {
                self.dispatch(Waiter { slot, connection, planned });
            }
        }
    }

    /// When [`Transactions::go_on`] has something to do next, as far as it is known.
    pub fn next_due(&self) -> Option<Instant> {
        self.back_offs.peek().map(|Reverse((at, ..))| *at)
    }

    /// Looks at the limits of time of all: gives up what takes too long, refuses what waits for a
    /// store that does not answer, and frees what has expired.
    pub fn sweep(&mut self, now: Instant) {
        let late = self.in_flight.late_records();
        for slot in 0..self.open.len() {
            self.give_up(slot, &late);
        }
        // They have had no effect.
        for waiter in self.in_flight.take_stuck(now, &self.shared.config.limits) {
            let Waiter { slot, planned, .. } = waiter;
            let outcome = Outcome::Aborted(Abort::Fabric(FabricError::Unreachable));
            let response = Response { outcome, output: Vec::new() };
            let request = planned.request().clone();
            self.completed(Completion { slot, request, response });
        }
        self.expire();
    }

    /// The client in place `slot` is gone. Its keys are released now if it backs off, otherwise
    /// once the store has answered.
    pub fn abandon(&mut self, slot: usize) {
        let open = self.open.get_mut(slot).and_then(Option::take);
        if let Some(open) = open.filter(|open| open.stage == Stage::BackOff) {
            self.release(open.planned.request());
        }
    }

    /// Remembers where keys expire that were there before this server.
    pub fn expect_expiry(&mut self, rows: &[(i64, Key)]) {
        rows.iter().for_each(|&(deadline, row)| self.expiry.remember(deadline, row, &self.shared));
    }

    /// Remembers where the commands of `plan` let keys expire.
    pub fn note_expiry(&mut self, plan: &mut PlanBuilder) {
        self.expiry.note(plan, &self.shared);
    }

    /// Submits a transaction as soon as it conflicts with none of this front.
    fn lock(&mut self, waiter: Waiter) {
        if let Some(waiter) = self.locks.enter(waiter) {
            self.submit(waiter);
        }
    }

    /// Releases what `request` held, and submits what waited for it.
    fn release(&mut self, request: &Request) {
        let mut admitted = Vec::new();
        self.locks.leave(request, &mut admitted);
        for waiter in admitted {
            // A client that hung up meanwhile is submitted too: the command was sent, and its place
            // in the table is given back by its completion.
            self.depart(waiter);
        }
    }

    /// Submits what has its locks, with those behind it that can go along.
    fn depart(&mut self, first: Waiter) {
        let limits = &self.shared.config.limits;
        let (mut commands, mut bytes) = (first.planned.commands(), first.planned.bytes());
        let rides = |waiter: &Waiter| {
            commands += waiter.planned.commands();
            bytes += waiter.planned.bytes();
            waiter.slot < EVICTOR
                && commands <= limits.group_commands
                && bytes <= limits.group_bytes
                && first.planned.covers(&waiter.planned)
        };
        let followers = match first.slot {
            ACTIVE_EXPIRY | EVICTOR => Vec::new(),
            _ => self.locks.followers(first.planned.request(), rides),
        };
        if followers.is_empty() {
            return self.submit(first);
        }
        count(&self.shared.counters.joined, followers.len() as u64);
        let waiter = self.joined.join(first, followers);
        self.submit(waiter);
    }

    /// Hands a transaction to the store, or keeps it until it is its turn.
    fn submit(&mut self, waiter: Waiter) {
        if let Some(waiter) = self.in_flight.enter(waiter, &self.shared.config.limits) {
            self.dispatch(waiter);
        }
    }

    /// Hands a transaction to the store, whatever it has: another attempt keeps its place.
    fn dispatch(&mut self, waiter: Waiter) {
        let Waiter { slot, connection, planned } = waiter;
        let request = planned.request().clone();
        self.in_flight.began(&request);
        match slot {
            JOINED_BATCH => {
                for (slot, connection) in self.joined.places(&request) {
                    self.mark_dispatched(slot, connection);
                }
            }
            _ => self.mark_dispatched(slot, connection),
        }
        let promise = Promise::new(self.mailbox.clone(), slot, request.clone());
        let done = Box::new(move |response| promise.keep(response));
        self.shared.backend.submit(connection, request, done);
    }

    /// The time of a transaction begins when the store gets it.
    fn mark_dispatched(&mut self, slot: usize, connection: u64) {
        if let Some(Some(open)) = self.open.get_mut(slot)
            && open.connection == connection
            && open.stage != Stage::Store
        {
            open.stage = Stage::Store;
            if open.attempts == 1 {
                open.begun = Instant::now();
            }
        }
    }

    /// Submits the rows whose keys have expired, if none are in progress.
    fn expire(&mut self) {
        // Nothing changes in a pause.
        if self.shared.pause.now().is_some() {
            return;
        }
        if let Some(planned) = self.expiry.due(&self.shared) {
            self.lock(Waiter { slot: ACTIVE_EXPIRY, connection: 0, planned });
        }
    }

    /// Handles the outcome of an attempt.
    fn completed(&mut self, completion: Completion) {
        let Completion { slot, request, mut response } = completion;
        let mut changed = response.outcome == Outcome::Unknown;
        let mut told = Told::default();
        if response.outcome == Outcome::Committed
            && let Some((head, _)) = OutputHead::parse(&response.output)
        {
            let counters = &self.shared.counters;
            count(&counters.hits, head.lookups.hits.into());
            count(&counters.misses, head.lookups.misses.into());
            count(&counters.expired, head.lookups.expired.into());
            for (database, keys) in head.growth.changes() {
                self.shared.keyspace.grow(database, keys.into());
            }
            changed = head.changed;
            let waits = |open: &Open| open.planned.waits().is_some();
            // Of a command that waits only the attempt counts that ends its wait.
            if !self.open.get(slot).and_then(Option::as_ref).is_some_and(waits) {
                news::note(&self.shared, self.front, &response.output);
            }
            told = news::send(&self.shared, &mut response.output);
        }
        for (deadline, row) in told.expiring {
            self.expiry.remember(deadline, row, &self.shared);
        }
        if changed {
            self.shared.blocked.changed(&request.writes);
            let rows: Vec<_> = told.wrote.iter().map(|(row, _)| *row).collect();
            self.shared.blocked.changed(&rows);
        }
        // Before the one who wrote can know of it.
        if changed && !self.shared.tracking.is_off() {
            let writer = self.open.get(slot).and_then(Option::as_ref).map(|open| open.connection);
            self.shared.tracking.written(&request, &told.wrote, writer);
        }
        match slot {
            ACTIVE_EXPIRY => {
                self.release(&request);
                self.expiry.expired(&response, &self.shared);
                return self.expire();
            }
            EVICTOR => {
                self.release(&request);
                return self.evicted(&response);
            }
            JOINED_BATCH => return self.joined_ended(&request, &response),
            _ => {}
        }
        let keyless = request.reads.is_empty() && request.writes.is_empty();
        self.in_flight.is_over(&request);
        let taken = self.take_open(slot, &request);
        if let Some(open) = &taken
            && let Outcome::Aborted(abort) = response.outcome
            && abort.retryable()
            && self.retry(slot, open, abort)
        {
            return;
        }
        if !keyless {
            self.release(&request);
        }
        if let Some(open) = taken {
            self.end(slot, open, response);
        }
    }

    /// A joined batch has ended: everyone gets a share of the replies, or the outcome.
    fn joined_ended(&mut self, request: &Arc<Request>, response: &Response) {
        let Some(waiters) = self.joined.take(request) else { return };
        match response.outcome {
            Outcome::Committed => {
                self.release(request);
                let shares = shares(&waiters, &response.output);
                for (waiter, share) in waiters.into_iter().zip(shares) {
                    match share {
                        Some(share) => self.end_waiter(&waiter, share),
                        None => self.lock(waiter),
                    }
                }
            }
            Outcome::Unknown => {
                self.release(request);
                for waiter in &waiters {
                    self.end_waiter(waiter, response.clone());
                }
            }
            // It had no effect. The first one, who holds the keys, goes on as if it had been alone;
            // the others wait for it again.
            Outcome::Aborted(_) => {
                let mut waiters = waiters.into_iter();
                let Some(Waiter { slot, planned, .. }) = waiters.next() else { return };
                waiters.for_each(|waiter| self.lock(waiter));
                let (request, response) = (planned.request().clone(), response.clone());
                self.completed(Completion { slot, request, response });
            }
        }
    }

    /// Ends the transaction of a waiter whose keys are released already.
    fn end_waiter(&mut self, waiter: &Waiter, response: Response) {
        let request = waiter.planned.request();
        self.in_flight.is_over(request);
        if let Some(open) = self.take_open(waiter.slot, request) {
            self.end(waiter.slot, open, response);
        }
    }

    /// Takes the transaction of a place if it is `request`. One that ran out of time has been
    /// answered: nobody waits for it any more.
    fn take_open(&mut self, slot: usize, request: &Arc<Request>) -> Option<Open> {
        let place = self.open.get_mut(slot)?;
        place.take_if(|open| Arc::ptr_eq(open.planned.request(), request))
    }

    /// Tries again, if another attempt is due; it keeps its locks.
    fn retry(&mut self, slot: usize, failed: &Open, abort: Abort) -> bool {
        // The store never got it, and answers nothing.
        if failed.stage != Stage::Store {
            return false;
        }
        let Open { connection, attempts, begun, .. } = *failed;
        let too_large = abort == Abort::NoResources;
        if too_large && self.waits_for_room(slot, failed) {
            return true;
        }
        if failed.planned.splits() && (too_large || attempts >= ATTEMPTS_WHOLE) {
            return false;
        }
        let backend = &self.shared.backend;
        let is_full = || backend.is_full() || is_large(failed);
        if too_large && (backend.is_out_of_room() || is_full()) {
            return false;
        }
        let limits = &self.shared.config.limits;
        if attempts >= limits.attempts || begun.elapsed() >= limits.transaction_time {
            return false;
        }
        count(&self.shared.counters.retries, 1);
        let doublings = attempts.min(BACK_OFF_DOUBLINGS);
        let wait = match attempts {
            0..ATTEMPTS_AT_ONCE => 0,
            _ => self.random.below((BACK_OFF.as_micros() as u64) << doublings),
        };
        let planned = failed.planned.at(self.shared.unix_ms());
        let stage = if wait == 0 { Stage::Store } else { Stage::BackOff };
        let attempts = attempts + 1;
        self.open[slot] =
            Some(Open { connection, planned: planned.clone(), attempts, begun, stage });
        if wait == 0 {
            self.dispatch(Waiter { slot, connection, planned });
        } else {
            let at = Instant::now() + Duration::from_micros(wait);
            self.back_offs.push(Reverse((at, slot, connection)));
        }
        true
    }

    /// Tells a client whose transaction takes too long that its outcome is unknown: if the store
    /// has it, or it waits for a record of `late` ones. Its locks stay until the store answers.
    fn give_up(&mut self, slot: usize, late: &BTreeSet<Key>) {
        let max = self.shared.config.limits.transaction_time;
        let is_late = |open: &mut Open| {
            let stuck = match open.stage {
                Stage::Store => true,
                Stage::Queued => open.planned.rows().any(|row| late.contains(row)),
                Stage::BackOff => false,
            };
            stuck && open.begun.elapsed() >= max
        };
        let Some(Open { connection, planned, .. }) = self.open[slot].take_if(is_late) else {
            return;
        };
        let text = format!(
            "UNKNOWN the transaction was not answered within {} ms: it may or may not take effect",
            max.as_millis()
        );
        self.note_unknown(connection);
        self.in_flight.is_late(planned.request().clone());
        self.ended.push_back(Ended { slot, connection, planned, end: End::Failed(text.into()) });
    }

    fn note_unknown(&self, connection: u64) {
        count(&self.shared.counters.unknown, 1);
        self.shared.events.note(Event::UnknownOutcome, &format_args!("client id={connection}"));
    }

    fn end(&mut self, slot: usize, open: Open, response: Response) {
        let end = match response.outcome {
            Outcome::Committed => End::Committed(response.output),
            Outcome::Unknown => {
                self.note_unknown(open.connection);
                End::Failed(UNKNOWN.to_vec())
            }
            Outcome::Aborted(abort) => match halves(&open, abort) {
                Some(halves) => End::Split(halves),
                None => {
                    count(&self.shared.counters.aborted, 1);
                    End::Failed(self.failure(&open, abort))
                }
            },
        };
        let Open { connection, planned, .. } = open;
        self.ended.push_back(Ended { slot, connection, planned, end });
    }

    /// The error that every command of an aborted transaction answers.
    fn failure(&self, open: &Open, abort: Abort) -> Vec<u8> {
        match abort {
            Abort::Refused => REFUSED.to_vec(),
            abort if !abort.retryable() => format!(
                "CLUSTERDOWN a record that the transaction needs is not served since a node has \
                 crashed, and it had no effect: {}",
                abort.name()
            )
            .into(),
            Abort::NoResources if self.shared.backend.is_out_of_room() => OUT_OF_ROOM.to_vec(),
            Abort::NoResources if self.shared.backend.is_full() || is_large(open) => {
                count(&self.shared.counters.out_of_memory, 1);
                OUT_OF_MEMORY.to_vec()
            }
            _ if open.stage != Stage::Store => format!(
                "TRYAGAIN the store has answered nothing for {} ms: the transaction was not \
                 executed",
                self.shared.config.limits.transaction_time.as_millis()
            )
            .into(),
            abort => format!(
                "TRYAGAIN the transaction had no effect after {} attempts: {}",
                open.attempts,
                abort.name()
            )
            .into(),
        }
    }
}

/// Whether a transaction was given a large value, which a store may refuse while it takes others.
fn is_large(open: &Open) -> bool {
    open.planned.request().args.len() > LARGE_BYTES
}

/// The halves of a batch that has aborted in the store: each has fewer conflicts.
fn halves(failed: &Open, abort: Abort) -> Option<[Planned; 2]> {
    let planned = &failed.planned;
    if failed.stage != Stage::Store || !planned.splits() || !abort.retryable() {
        return None;
    }
    let half = planned.commands() / 2;
    Some([planned.part(0, half).ok()?, planned.part(half, planned.commands()).ok()?])
}

fn without_records(request: &Request) -> Response {
    let mut txn = Txn::default();
    txn.reset(request.procedure, &request.args);
    let outcome = match procedure::execute(&mut txn) {
        Verdict::Commit => Outcome::Committed,
        Verdict::More | Verdict::Refuse => Outcome::Aborted(Abort::Refused),
    };
    Response { outcome, output: txn.output }
}
