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
//! - **Retries**: an aborted operation is retried with the same arguments after a random wait. Its
//!   bound grows exponentially and starts at about the duration of the attempt. Refusals and
//!   unknown outcomes are final.
//! - **Contention**: where the plan says so, fewer of an engine's clients have an operation under
//!   way at a time while most attempts abort, and the others wait for their turn (`window`,
//!   decision 0026). Latency includes that wait.
//! - **Pieces**: an operation in pieces, such as a chopped transaction, takes effect piece by piece
//!   and counts once, at its last one.
//! - **History**: one operation per attempt. Of a transaction its reads are all keys that were
//!   fetched, those of the write set included, and its scans the ranges read; its writes are the
//!   updates that execution decided on. An attempt that was never numbered was seen by nobody and
//!   is left out.

mod control;
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
    for number in clients {
        let slot = ClientSlot::new(Rc::clone(recorder), number);
        let client = Client {
            session: session(number, slot.name()),
            slot,
            fabric: fabric.clone(),
            schedule: Schedule::new(plan.load, plan.begin, number, plan.clients),
            random: Stream::new(plan.seed, Purpose::Workload, number),
            run: Arc::clone(recorder.run()),
            recorder: Rc::clone(recorder),
            window: Rc::clone(&window),
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
    // Before the slot: what an attempt holds is dropped before the attempt is recorded as cut off.
    session: S,
    slot: ClientSlot<S::Operation>,
    fabric: F,
    schedule: Schedule,
    random: Stream,
    run: Arc<RunControl>,
    recorder: Rc<Recorder>,
    window: Rc<Window>,
    /// Wakes it when it has a permit of the window.
    turn: Signal,
}

impl<F: Local, S: Session> Client<F, S> {
    async fn drive(mut self) {
        let plan = *self.run.plan();
        let mut left = plan.operations_per_client.unwrap_or(u64::MAX);
        // Reading the clock costs as much as a message: once before and once after each attempt.
        let mut now = self.fabric.now();
        while left > 0 {
            let due = self.schedule.due(now);
            if due >= plan.stop_at || self.must_stop(now) {
                break;
            }
            if due > now {
                self.fabric.sleep_until(due).await;
                now = self.fabric.now();
                // A stop may have been asked for meanwhile.
                if self.must_stop(now) {
                    break;
                }
            }
            self.schedule.advance();
            now = self.operate(due, now).await;
            left -= 1;
        }
        if left > 0 && plan.stop_at < Nanos::MAX {
            self.recorder.add_overdue(self.schedule.due_before(plan.stop_at).min(left));
        }
    }

    /// True if the run has ended for this client at `now`, even if operations are still due.
    fn must_stop(&self, now: Nanos) -> bool {
        self.run.stopped() || now >= self.run.plan().stop_at || self.recorder.is_full()
    }

    /// Runs the next operation, due at `due`, from `now` to its end, which it returns.
    async fn operate(&mut self, due: Nanos, mut now: Nanos) -> Nanos {
        self.fabric.work(Work::Client);
        let kind = self.session.next(&mut self.random, &mut self.slot.operation);
        // A closed loop's operation starts now, which is not before it was due.
        let start = match self.run.plan().load {
            Load::Closed => now,
            Load::Open { .. } => due,
        };
        self.slot.begin(kind, start, now);
        let waits = !self.window.has_permit();
        let _place = self.window.enter(&self.turn).await;
        if waits {
            now = self.fabric.now();
            // The end of the run may have come before its turn.
            if self.must_stop(now) {
                self.slot.end(Ending::Abandoned, now);
                return now;
            }
        }
        let mut ending;
        loop {
            (ending, now) = self.attempts(now).await;
            if ending != Ending::Done {
                break;
            }
            let left = self.slot.operation.left();
            if !self.session.next_piece(kind, &mut self.slot.operation) {
                break;
            }
            self.slot.piece(left);
        }
        self.slot.end(ending, now);
        now
    }

    /// Retries the operation until it ends.
    async fn attempts(&mut self, mut now: Nanos) -> (Ending, Nanos) {
        let plan = *self.run.plan();
        let mut full = 0;
        for attempts in 1..=plan.retry.attempts_max {
            self.slot.attempt(now);
            let began = now;
            let attempted = self.session.attempt(&mut self.slot.operation).await;
            now = self.fabric.now();
            self.slot.attempted(attempted, now);
            let contended = matches!(attempted, Attempted::Aborted { again: Again::Yes, .. });
            self.window.attempted(contended);
            match attempted {
                Attempted::Done => return (Ending::Done, now),
                Attempted::Unknown => return (Ending::Unknown, now),
                Attempted::Aborted { again: Again::Refused, .. } => return (Ending::Refused, now),
                Attempted::Aborted { again: Again::Never, .. } => return (Ending::Failed, now),
                Attempted::Aborted { again, .. } => full += u32::from(again == Again::WhenFull),
            }
            if attempts == plan.retry.attempts_max || full >= plan.retry.full_max {
                break;
            }
            if self.must_stop(now) {
                return (Ending::Abandoned, now);
            }
            let wait = plan.retry.wait(attempts, now - began, self.fabric.random());
            self.fabric.sleep_until(now.saturating_add(wait)).await;
            now = self.fabric.now();
            // The end of the run may have come during the wait.
            if self.must_stop(now) {
                return (Ending::Abandoned, now);
            }
            self.slot.operation.rewind();
        }
        (Ending::Failed, now)
    }
}
