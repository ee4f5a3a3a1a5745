//! The client driver: clients that issue a family's operations to a system, retry aborted ones, and
//! record what they saw.
//!
//! It knows no family. What an operation is, how it is tried and what it tells the history is said
//! by a [`Session`]; that of the commit family is a workload's transactions ([`spawn_clients`]).
//!
//! One [`RunControl`] is shared by the whole run; each engine makes a [`Recorder`] of it and
//! [spawns](spawn) its clients. When the run is [finished](RunControl::finished), its
//! [result](RunControl::result) is complete.
//!
//! - **Window**: latency is that of operations that took effect and whose start lies in the
//!   measured window, throughput counts those whose end does. In an open loop an operation starts
//!   when it is due.
//! - **Bursts**: a run may have its clients work at some instants only, and take operations from a
//!   common stock ([`RunControl::work_in`]): so a load lasts as long as a plan of faults.
//! - **Retries**: an aborted operation is retried with the same arguments after a random wait. Its
//!   bound grows exponentially and starts at about the duration of the attempt. Refusals and
//!   unknown outcomes are final. Behind an unknown one the client goes on under a new name: to the
//!   history it is another client, since its last operation may still be under way.
//! - **Contention**: where the plan says so, fewer of an engine's clients have an operation under
//!   way at a time while most attempts abort, and the others wait for their turn (`window`,
//!   decision 0026). Latency includes that wait.
//! - **Pieces**: an operation in pieces, such as a chopped transaction, takes effect piece by piece
//!   and counts once, at its last one.
//! - **Deferred**: operations of one kind may be queued, answered at once, and executed in the
//!   background, one after the other on each engine (`deferred`). Such an operation begins, counts
//!   and ends where it is executed: it has committed then, and its latency begins when it was due.
//!   The latency of its answer is a number of its own, and neither is part of the latency of all
//!   kinds. What has been answered is executed when the measured time is over, too.
//! - **History**: one operation per attempt. Of a transaction its reads are all keys that were
//!   fetched, those of the write set included, and its scans the ranges read; its writes are the
//!   updates that execution decided on. An attempt that was never numbered was seen by nobody and
//!   is left out.

mod attempts;
mod bursts;
mod control;
mod deferred;
mod initial;
mod latency;
mod plan;
mod progress;
mod recorder;
mod result;
mod schedule;
mod session;
#[cfg(test)]
mod tests;
mod transactions;
mod window;

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

pub use bursts::Bursts;
pub use control::{CLIENTS_MAX, RETRY, RunControl};
pub use initial::history;
pub use latency::{LATENCY_MAX, Latencies, latency_histogram};
pub use plan::RunPlan;
pub use progress::Waiting;
pub use recorder::Recorder;
pub use result::{Counts, KindResult, RunResult};
pub use schedule::{Load, Retry};
pub use session::{ABORTS_MAX, Again, Attempted, ClientOperation, HistoryEntry, Session};
pub use transactions::spawn_clients;

use nicol_core::exec::Signal;
use nicol_core::fabric::{Local, Work};
use nicol_core::ids::{NodeId, ShardId};
use nicol_core::rng::{Purpose, Stream};
use nicol_core::units::Nanos;
use nicol_core::view::{Role, ShardMap, View};

use attempts::Attempts;
use deferred::{Deferred, Queued};
use recorder::{ClientSlot, Ending};
use schedule::Schedule;
use window::Window;

/// Spawns the clients of these numbers in the whole cluster, each with its `session`, on the engine
/// of `fabric`: each issues operations until the run ends. `session` is given a client's number,
/// and its name in the history: the number, or a new one for a client that takes the place of one
/// that a crash ended.
///
/// A client counts as running from this call on: dropping its task, even before it ran, ends it.
///
/// # Panics
/// If a number is not below the plan's number of clients.
pub fn spawn<F: Local, S: Session>(
    fabric: &F,
    recorder: &Rc<Recorder>,
    clients: Range<u32>,
    mut session: impl FnMut(u32, u32) -> S,
) {
    let plan = *recorder.run().plan();
    let window = Window::new(clients.len() as u32, plan.retry.adaptive_window);
    let attempts = |session, slot, window| Attempts {
        session,
        slot,
        fabric: fabric.clone(),
        run: Arc::clone(recorder.run()),
        recorder: Rc::clone(recorder),
        window,
    };
    let mut deferred = None;
    for number in clients.clone() {
        let slot = ClientSlot::new(Rc::clone(recorder), number);
        let session_of_client = session(number, slot.name());
        if session_of_client.deferred().is_some() && deferred.is_none() {
            let queue = Deferred::new(fabric, clients.len());
            let slot = ClientSlot::in_background(Rc::clone(recorder), number);
            let session = session(number, slot.name());
            fabric.spawn(Rc::clone(&queue).execute(attempts(session, slot, None)));
            deferred = Some(queue);
        }
        let client = Client {
            attempts: attempts(session_of_client, slot, Some(Rc::clone(&window))),
            schedule: Schedule::new(plan.load, plan.begin, number, plan.clients),
            random: Stream::new(plan.seed, Purpose::Workload, number),
            window: Rc::clone(&window),
            deferred: deferred.clone(),
            turn: fabric.signal(),
        };
        fabric.spawn(client.drive());
    }
}

/// The node whose data a client on `node` prefers: its own, or, where that holds no shard, one
/// after the other of those that do.
pub fn home_of(view: &View, node: NodeId, client: u32) -> NodeId {
    if view.role(node) != Some(Role::Client) {
        return node;
    }
    view.primary(ShardId((client % u32::from(view.shards())) as u16))
}

struct Client<F, S: Session> {
    attempts: Attempts<F, S>,
    schedule: Schedule,
    random: Stream,
    window: Rc<Window>,
    /// The background work of all clients of the engine.
    deferred: Option<Rc<Deferred<S::Operation>>>,
    /// Wakes it when it has a permit of the window, or a place among the deferred operations.
    turn: Signal,
}

impl<F: Local, S: Session> Client<F, S> {
    async fn drive(mut self) {
        let run = Arc::clone(&self.attempts.run);
        match run.bursts() {
            Some(bursts) => self.drive_in(bursts).await,
            None => self.drive_on().await,
        }
        if let Some(deferred) = &self.deferred {
            deferred.leave();
        }
    }

    /// Works in bursts, as long as there is something to do in each.
    async fn drive_in(&mut self, bursts: &Bursts) {
        let mut now = self.attempts.fabric.now();
        for burst in bursts.iter() {
            if burst.from > now {
                self.attempts.fabric.sleep_until(burst.from).await;
                now = self.attempts.fabric.now();
            }
            while !self.attempts.must_stop(now) && burst.take() {
                now = self.operate(now, now).await;
            }
        }
    }

    /// Works until its operations are done, or the run ends.
    async fn drive_on(&mut self) {
        let plan = *self.attempts.run.plan();
        let fabric = self.attempts.fabric.clone();
        let mut left = plan.operations_per_client.unwrap_or(u64::MAX);
        // Reading the clock costs as much as a message: once before and once after each attempt.
        let mut now = fabric.now();
        while left > 0 {
            let due = self.schedule.due(now);
            if due >= plan.stop_at || self.attempts.must_stop(now) {
                break;
            }
            if due > now {
                fabric.sleep_until(due).await;
                now = fabric.now();
                // A stop may have been asked for meanwhile.
                if self.attempts.must_stop(now) {
                    break;
                }
            }
            self.schedule.advance();
            now = self.operate(due, now).await;
            left -= 1;
        }
        if left > 0 && plan.stop_at < Nanos::MAX {
            let overdue = self.schedule.due_before(plan.stop_at).min(left);
            self.attempts.recorder.add_overdue(overdue);
        }
    }

    /// Runs the next operation, due at `due`, from `now` to its end, which it returns; of one that
    /// is deferred, to its answer.
    async fn operate(&mut self, due: Nanos, mut now: Nanos) -> Nanos {
        let Attempts { fabric, session, slot, run, .. } = &mut self.attempts;
        fabric.work(Work::Client);
        let kind = session.next(&mut self.random, &mut slot.operation);
        // A closed loop's operation starts now, which is not before it was due.
        let start = match run.plan().load {
            Load::Closed => now,
            Load::Open { .. } => due,
        };
        if session.deferred() == Some(kind) {
            return self.defer(kind, start, now).await;
        }
        slot.begin(kind, start, now);
        let waits = !self.window.has_permit();
        let _place = self.window.enter(&self.turn).await;
        if waits {
            now = self.attempts.fabric.now();
            // The end of the run may have come before its turn.
            if self.attempts.must_stop(now) {
                self.attempts.slot.end(Ending::Abandoned, now);
                return now;
            }
        }
        self.attempts.run(kind, now).await
    }

    /// Queues the operation of `kind` that is due at `start`; returns when it is answered, which is
    /// at once but where the queue is full.
    async fn defer(&mut self, kind: usize, start: Nanos, mut now: Nanos) -> Nanos {
        let deferred = self.deferred.as_ref().expect("a workload defers from the start or never");
        if deferred.place(&self.turn).await {
            now = self.attempts.fabric.now();
            // The end of the run may have come before its turn.
            if self.attempts.must_stop(now) {
                deferred.release();
                return now;
            }
        }
        let operation = &mut self.attempts.slot.operation;
        deferred.push(Queued { kind, start, operation: std::mem::take(operation) });
        self.attempts.recorder.answered(kind, start, now);
        now
    }
}
