//! The client driver: clients that issue a workload's transactions to a commit protocol, retry
//! aborted ones, and record what they saw.
//!
//! One [`RunControl`] is shared by the whole run; each engine makes a [`Recorder`] of it and spawns
//! its [`client`]s. When the run is [finished](RunControl::finished), its
//! [result](RunControl::result) is complete.
//!
//! - **Window**: latency is that of commits whose start lies in the measured window, throughput
//!   counts the commits whose end does. In an open loop a transaction starts when it is due.
//! - **Retries**: an aborted transaction is retried with the same arguments after a random wait.
//!   Its bound grows exponentially and starts at about the duration of the attempt. Refusals and
//!   unknown outcomes are final.
//! - **Pieces**: a chopped transaction commits piece by piece and counts once, at its last one.
//! - **History**: one operation per attempt. Its reads are all keys that were fetched, those of the
//!   write set included, and its scans the ranges read; its writes are the updates that execution
//!   decided on. An attempt that was never numbered was seen by nobody and is left out.

mod control;
mod initial;
mod recorder;
mod result;
mod schedule;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

pub use control::{CLIENTS_MAX, RETRY, RunControl, RunPlan};
pub use initial::history;
pub use recorder::Recorder;
pub use result::{Counts, KindResult, LATENCY_MAX, RunResult, latency_histogram};
pub use schedule::{Load, Retry};

use nicol_core::commit::CommitProtocol;
use nicol_core::fabric::{Local, Work};
use nicol_core::ids::{NodeId, ShardId};
use nicol_core::rng::{Purpose, Stream};
use nicol_core::txn::{Abort, Outcome};
use nicol_core::units::Nanos;
use nicol_core::view::{Role, ShardMap, View};
use nicol_core::workload::Workload;

use recorder::{ClientSlot, Ending};
use schedule::Schedule;

/// A client, as a task for the engine of `fabric`, which must be the coordinator's: issues
/// transactions until the run ends.
///
/// `client` is its number in the whole cluster, below the plan's number of clients. It counts as
/// running from this call on: dropping the task, even before it ran, ends the client.
///
/// # Panics
/// If the number is out of range, or `recorder` belongs to another run.
pub fn client<F: Local, C: CommitProtocol>(
    fabric: F,
    protocol: C,
    workload: Arc<dyn Workload>,
    run: Arc<RunControl>,
    client: u32,
    recorder: Rc<Recorder>,
) -> impl Future<Output = ()> + 'static {
    assert!(std::ptr::eq(recorder.run(), &*run), "the recorder is of this run");
    let plan = *run.plan();
    let client = Client {
        home: home_of(fabric.view(), fabric.here().node, client),
        schedule: Schedule::new(plan.load, plan.begin, client, plan.clients),
        random: Stream::new(plan.seed, Purpose::Workload, client),
        slot: ClientSlot::new(Rc::clone(&recorder), client),
        fabric,
        protocol,
        workload,
        run,
        recorder,
    };
    client.drive()
}

/// Makes the recorder of an engine and spawns its `clients` there, the first one numbered `first`.
pub fn spawn_clients<F: Local, C: CommitProtocol>(
    fabric: &F,
    protocol: &C,
    workload: &Arc<dyn Workload>,
    run: &Arc<RunControl>,
    first: u32,
    clients: u32,
) {
    let recorder = Recorder::new(run);
    for number in first..first + clients {
        fabric.spawn(client(
            fabric.clone(),
            protocol.clone(),
            Arc::clone(workload),
            Arc::clone(run),
            number,
            Rc::clone(&recorder),
        ));
    }
}

/// The node whose data a client prefers: its own, or, where that holds no shard, one after the
/// other of those that do.
fn home_of(view: &View, node: NodeId, client: u32) -> NodeId {
    if view.role(node) != Some(Role::Client) {
        return node;
    }
    view.primary(ShardId((client % u32::from(view.shards())) as u16))
}

struct Client<F, C> {
    home: NodeId,
    // Before the slot: what an attempt holds is dropped before the attempt is recorded as cut off.
    protocol: C,
    slot: ClientSlot,
    fabric: F,
    schedule: Schedule,
    random: Stream,
    workload: Arc<dyn Workload>,
    run: Arc<RunControl>,
    recorder: Rc<Recorder>,
}

impl<F: Local, C: CommitProtocol> Client<F, C> {
    async fn drive(mut self) {
        let plan = *self.run.plan();
        let mut left = plan.transactions_per_client.unwrap_or(u64::MAX);
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
            now = self.transact(due, now).await;
            left -= 1;
        }
        if left > 0 && plan.stop_at < Nanos::MAX {
            self.recorder.add_overdue(self.schedule.due_before(plan.stop_at).min(left));
        }
    }

    /// Has the run ended for this client at `now`, even if transactions are still due?
    fn must_stop(&self, now: Nanos) -> bool {
        self.run.stopped() || now >= self.run.plan().stop_at || self.recorder.is_full()
    }

    /// Runs the next transaction, due at `due`, from `now` to its end, which it returns.
    async fn transact(&mut self, due: Nanos, mut now: Nanos) -> Nanos {
        self.fabric.work(Work::Client);
        let kind = self.workload.next(self.home, &mut self.random, &mut self.slot.txn);
        // A closed loop's transaction starts now, which is not before it was due.
        let start = match self.run.plan().load {
            Load::Closed => now,
            Load::Open { .. } => due,
        };
        self.slot.begin(kind, self.workload.adds_keys(kind), start);
        let mut ending;
        loop {
            let initial = self.slot.txn.entries().len();
            (ending, now) = self.attempts(initial, now).await;
            if ending != Ending::Committed {
                break;
            }
            let left = self.slot.left();
            if !self.workload.next_piece(kind, &mut self.slot.txn) {
                break;
            }
            self.slot.piece(left);
        }
        self.slot.end(ending, now);
        now
    }

    /// Retries the transaction until it ends.
    async fn attempts(&mut self, initial: usize, mut now: Nanos) -> (Ending, Nanos) {
        let plan = *self.run.plan();
        let mut full = 0;
        for attempts in 1..=plan.retry.attempts_max {
            self.slot.attempt(now);
            let began = now;
            let outcome = self.protocol.run(&mut self.slot.txn).await;
            now = self.fabric.now();
            self.slot.attempted(outcome, now);
            match outcome {
                Outcome::Committed => {
                    self.slot.check_added_keys(initial);
                    return (Ending::Committed, now);
                }
                Outcome::Unknown => return (Ending::Unknown, now),
                Outcome::Aborted(Abort::Refused) => return (Ending::Refused, now),
                // Nobody serves what it needs.
                Outcome::Aborted(reason) if !reason.retryable() => return (Ending::Failed, now),
                Outcome::Aborted(reason) => full += u32::from(reason == Abort::NoResources),
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
            self.slot.txn.rewind(initial);
        }
        (Ending::Failed, now)
    }
}
