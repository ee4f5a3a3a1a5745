//! Multi-hop transactions at their coordinator: one primary executes them alone. [Xenic21 4.2.3]
//!
//! A transaction of this node's own shard is executed here, under locks on all its keys. For one of
//! this and one remote shard the coordinator P1 locks and reads its own keys and ships the
//! transaction to the remote primary P2. P2 locks, reads and executes at once, answers P1 with the
//! writes, and sends LOG to the backups of both shards, whose acks go straight to P1. P1 counts
//! them and commits.
//!
//! - **The point of no return** is P2's execution. P1 asks for its outcome when SHIP goes
//!   unanswered, which fences a SHIP still under way; P2 remembers the outcome until COMMIT.
//! - **Lost LOGs**: P1 opens the LOG requests, P2 sends them on behalf of P1, and P1, who has the
//!   writes from P2's answer, sends them again. A backup takes each once.
//! - **A backup on P1** is logged to by P1 itself. P2 logs at its own node, too, before it answers
//!   such a P1, if primaries log: no message more. AMB-50

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use nicol_core::fabric::{Fabric, FabricError, ReplyTo, RequestId, Timeout};
use nicol_core::ids::{Epoch, ShardId};
use nicol_core::txn::{Abort, Entry, Outcome, Verdict};

use super::logic::Logic;
use super::steps::Steps;
use crate::survivor::{Survivor, Without};
use crate::writes::Log;
use crate::xenic::config::Faithful;
use crate::xenic::messages::HostReply;
use crate::xenic::messages::ship::{Ship, ShipOutcome, Shipped, parse_ship_reply};
use crate::xenic::node::{Node, Path};
use crate::xenic::open_txn::{InHand, LogCall, OpenTxn};
use crate::xenic::server::{OwnKeys, ReadAtOnce};

/// How many times its timeout a coordinator asks for an outcome that only P2 knows before it tells
/// its host that the outcome is unknown. A host that is told so does not learn what was written
/// (`Event::unseen_writes`).
const OUTCOME_TIMEOUT: u64 = 64;

/// P2 is gone, and with it what has become of a SHIP that may write.
#[derive(Clone, Copy, Debug)]
struct Undecided;

/// The shards of a transaction that one primary can execute.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Execution {
    /// The shard of this node, if the transaction has keys there.
    own: Option<ShardId>,
    /// The remote shard, whose primary executes; without one, this node does.
    remote: Option<ShardId>,
}

/// How a transaction has ended that one primary was to execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// It is committed, or its outcome is unknown.
    Whole,
    /// That primary cannot execute it: it takes the ordinary way, from EXECUTE on.
    BeginsAgain,
}

/// The multi-hop transactions of one NIC engine.
pub(super) struct MultiHop<F: Fabric> {
    fabric: F,
    node: Arc<Node>,
    own: Rc<OwnKeys<F>>,
    steps: Rc<Steps<F>>,
    logic: Rc<Logic<F>>,
}

impl<F: Fabric> MultiHop<F> {
    pub(super) fn new(
        fabric: &F,
        node: &Arc<Node>,
        own: &Rc<OwnKeys<F>>,
        steps: &Rc<Steps<F>>,
        logic: &Rc<Logic<F>>,
    ) -> Self {
        let (fabric, node, own) = (fabric.clone(), node.clone(), own.clone());
        Self { fabric, node, own, steps: steps.clone(), logic: logic.clone() }
    }

    /// The shards of a transaction if one primary may execute it: that of its only shard, or the
    /// remote one of this node's and one remote shard. `None`: the coordinator, one EXECUTE per
    /// shard; also if there are values that this node has no space for, since another one would not
    /// know (of records see [`may_insert_without_space`]).
    pub(super) fn execution(&self, open: &OpenTxn<F>) -> Option<Execution> {
        let txn = &open.txn;
        // Both nodes must agree on who gets LOGs, which later views change. (decision 0105)
        let allowed = self.node.config().multi_hop
            && self.node.exhausted_space().takes_values()
            && !self.node.lost().have_returned();
        // Only in a single round with all keys in the initial request, on the user's annotation.
        let known = self.logic.is_multi_round(txn.procedure);
        if !allowed || !txn.ship || known || txn.entries().is_empty() {
            return None;
        }
        // [Xenic21 4.2.1] A shard that another node has come to lead is not executed there.
        let has_moved = |shard: ShardId| self.fabric.view().led_since(shard) != Epoch::FIRST;
        if open.began.is_some() && open.shards.iter().any(has_moved) {
            return None;
        }
        let mut execution = Execution::default();
        for shard in open.shards.iter() {
            let known = match self.node.is_primary(shard) {
                true => &mut execution.own,
                false => &mut execution.remote,
            };
            if *known.get_or_insert(shard) != shard {
                return None;
            }
        }
        Some(execution)
    }

    /// Commits a transaction that one primary executes.
    ///
    /// Errors: it has not committed, and must release what it holds.
    pub(super) async fn commit(
        &self,
        open: &mut InHand<F>,
        execution: Execution,
    ) -> Result<Ended, Abort> {
        open.path = Path::MultiHop;
        self.node.check_served(&open.txn, |_, _| true)?;
        // AMB-06: what P1 only reads is locked for reading until P2 has executed with its locks
        // held, since nobody validates it. The paper says nothing of it.
        let protect = execution.remote.is_none() || self.node.config().faithful == Faithful::Fixed;
        let read = self.own.lock_and_read(open, protect).await?;
        if let Some(own) = execution.own
            && open.txn.entries().iter().any(|entry| entry.write && entry.fetched)
        {
            open.holds_locks_at(own);
        }
        match execution.remote {
            None => self.execute_alone(open, read).await,
            Some(_) if may_insert_without_space(open) => {
                self.own.unlock_shared(open);
                Ok(self.begin_again(open).await)
            }
            Some(remote) => self.ship(open, execution, remote).await,
        }
    }

    /// Every key is of this shard, and is locked.
    async fn execute_alone(&self, open: &mut InHand<F>, read: ReadAtOnce) -> Result<Ended, Abort> {
        let verdict = self.logic.execute_here(open);
        self.own.unlock_shared(open);
        match verdict {
            Verdict::Commit => {
                // [Xenic21 4.2 step 5] LOG at every backup.
                let logged = self.steps.log(open, read.into()).await?;
                // [Xenic21 4.2 step 6] Committed: the host is told, then COMMIT at this primary.
                let reported = self.steps.report_logged(open, logged);
                self.steps.commit(open, reported).await;
                Ok(Ended::Whole)
            }
            Verdict::Refuse => Err(Abort::Refused),
            Verdict::More => {
                self.logic.remember_multi_round(open.txn.procedure);
                open.path = Path::Ordinary;
                Ok(Ended::BeginsAgain)
            }
        }
    }

    /// [Xenic21 Figure 7b] Ships to P2, counts the acks of the backups, commits.
    async fn ship(
        &self,
        open: &mut InHand<F>,
        execution: Execution,
        remote: ShardId,
    ) -> Result<Ended, Abort> {
        let _phase = self.fabric.phase("4.2.3: SHIP");
        self.open_delegated_logs(open, execution);
        let shipped = self.ask_to_execute(open, remote).await;
        self.own.unlock_shared(open);
        match shipped {
            Ok(Shipped::Executed) => {
                self.count_acks(open, execution, remote).await?;
                Ok(Ended::Whole)
            }
            Ok(Shipped::Denied(abort)) => {
                self.abandon_logs(open, |_| false);
                Err(abort)
            }
            Ok(Shipped::More) if open.reported => {
                // Its host does not wait for it any more.
                self.abandon_logs(open, |_| false);
                Err(Abort::NoResources)
            }
            Ok(Shipped::More) => {
                self.logic.remember_multi_round(open.txn.procedure);
                Ok(self.begin_again(open).await)
            }
            Err(Undecided) => {
                self.abandon_logs(open, |_| false);
                self.node.did(Without::ExecutionNode);
                if open.began.is_some() {
                    return Err(self.take_back(open, execution, remote).await);
                }
                self.leave_undecided(open);
                Ok(Ended::Whole)
            }
        }
    }

    /// P2 is gone and may have executed: its LOGs may have reached backups of both shards. P1 has
    /// no writes to send after them, and must not release what backups may have been written.
    fn leave_undecided(&self, open: &mut OpenTxn<F>) {
        self.steps.report(open, Outcome::Unknown);
        if !open.locks.is_empty() {
            self.node.lost().leave_undecided(open.txn.id);
            open.locks.clear();
        }
    }

    /// P2 is gone and may have executed. Nobody applies its LOGs before P1 says so: P1 aborts.
    async fn take_back(&self, open: &OpenTxn<F>, execution: Execution, remote: ShardId) -> Abort {
        let shards = execution.own.into_iter().chain([remote]).collect::<Vec<_>>();
        self.steps.take_back(open, &shards).await;
        Abort::ShardUnavailable { shard: remote }
    }

    /// Asks P2 to execute and, if it does not answer, what has become of that.
    ///
    /// Errors: the outcome cannot be learnt any more.
    async fn ask_to_execute(
        &self,
        open: &mut OpenTxn<F>,
        remote: ShardId,
    ) -> Result<Shipped, Undecided> {
        let delegated = open.logs.iter().map(|call| call.delegated);
        let message = Ship { txn: &open.txn, began: open.began, delegated };
        let mut reply = self.steps.ask(remote, &message).await;
        let writes = open.txn.entries().iter().any(|entry| entry.write);
        if let Err(FabricError::TimedOut { request }) = reply
            && writes
        {
            // P2 may have executed: only P2 can say, and it must not begin to now.
            let told = self.report_unknown_later(open.host);
            reply = self.ask_outcome(open, remote, request).await;
            open.reported = told.replace(true);
        }
        if matches!(reply, Err(FabricError::Unreachable)) && writes {
            // It may have executed in the life that is over.
            return Err(Undecided);
        }
        Ok(match reply {
            Ok(body) => parse_ship_reply(body.as_ref(), &mut open.txn)
                .unwrap_or(Shipped::Denied(Abort::Fabric(FabricError::Malformed))),
            Err(error) => Shipped::Denied(self.node.failure(remote, error)),
        })
    }

    /// Reports that the outcome is unknown, unless it is found out in time: then the flag is set.
    fn report_unknown_later(&self, host: ReplyTo) -> Rc<Cell<bool>> {
        let told = Rc::new(Cell::new(false));
        let (fabric, flag) = (self.fabric.clone(), told.clone());
        let deadline = fabric.now() + self.node.config().timeout * OUTCOME_TIMEOUT;
        self.fabric.spawn(async move {
            fabric.sleep_until(deadline).await;
            if !flag.replace(true) {
                let (outcome, shipped) = (Outcome::Unknown, None);
                fabric.reply(host, &HostReply::Ended { outcome, shipped });
            }
        });
        told
    }

    /// Asks P2, for as long as it takes, what has become of a SHIP that went unanswered.
    async fn ask_outcome(
        &self,
        open: &OpenTxn<F>,
        remote: ShardId,
        request: RequestId,
    ) -> Result<F::Payload, FabricError> {
        let to = self.steps.primary_nic(remote);
        loop {
            let ask = self.fabric.call_superseding(to, &ShipOutcome(open.txn.id), request);
            match ask.await {
                Err(FabricError::NoResources) => self.steps.wait_for_slot().await,
                answered => return answered,
            }
        }
    }

    /// Opens a request for each ack that a backup on another node will send.
    fn open_delegated_logs(&self, open: &mut OpenTxn<F>, execution: Execution) {
        let here = self.fabric.here();
        let OpenTxn { txn, shards, logs, .. } = open;
        let concerned = [execution.own, execution.remote];
        for (shard, backup) in self.node.delegated_logs(txn, shards, concerned, here.node) {
            let to = self.fabric.view().nic_of(backup, here.core);
            let (asker, reply) = self.fabric.open_delegated_call(to);
            logs.push(LogCall { shard, to: backup, delegated: asker.request }, reply);
        }
    }

    /// Gives up the acks of shards that are not `updated`: P2 sends them no LOG.
    fn abandon_logs(&self, open: &mut OpenTxn<F>, updated: impl Fn(ShardId) -> bool) {
        let engine = self.fabric.here();
        open.logs.abandon(
            |call| !updated(call.shard),
            |call| {
                let asker = ReplyTo { engine, request: call.delegated };
                self.fabric.refuse(asker, FabricError::Unreachable);
            },
        );
    }

    /// P2 has executed: waits for the acks of its LOGs, reports, commits at both primaries.
    ///
    /// Errors: it has written nothing, and this node may not say what it has read; or as of
    /// [`Steps::await_logs`].
    async fn count_acks(
        &self,
        open: &mut OpenTxn<F>,
        execution: Execution,
        remote: ShardId,
    ) -> Result<(), Abort> {
        let updates = |shard: &ShardId| {
            open.shards.of(&open.txn, Entry::is_updated).any(|updated| updated == Some(*shard))
        };
        let updated = [execution.own, execution.remote].map(|shard| shard.filter(updates));
        self.abandon_logs(open, |shard| updated.contains(&Some(shard)));
        if updated == [None; 2] {
            // P2 has kept nothing of a transaction that writes nothing.
            self.node.check_lease(&self.fabric)?;
            self.steps.report(open, Outcome::Committed);
            self.steps.release(open).await;
            return Ok(());
        }
        open.holds_locks_at(remote);
        let timeout = match open.reported {
            false => Timeout::After(self.node.config().timeout),
            true => Timeout::Never,
        };
        open.note_shards_updated();
        let OpenTxn { logs, txn, shards, updates, keys, .. } = &mut *open;
        let mut selected = None;
        for &LogCall { shard, delegated, .. } in logs.iter() {
            if selected.replace(shard) != Some(shard) {
                keys.of(shard, shards.of(txn, Entry::is_updated));
            }
            let log = Log { txn, shard, updated: updates.told(), keys };
            self.fabric.retransmit(delegated, &log, timeout);
        }
        self.log_on_this_node(open, remote, timeout);
        let logged = self.steps.await_logs(open).await?;
        // [Xenic21 4.2 step 6] Committed: the host is told, then COMMIT at the primaries.
        let reported = self.steps.report_logged(open, logged);
        self.steps.commit(open, reported).await;
        Ok(())
    }

    /// If this node is a backup of P2's shard, its LOG need not travel: the writes are here.
    fn log_on_this_node(&self, open: &mut OpenTxn<F>, remote: ShardId, timeout: Timeout) {
        open.select(remote, Entry::is_updated);
        if !open.keys.is_empty() && self.node.is_backup_of(remote) {
            let to = self.fabric.here().node;
            let call = LogCall { shard: remote, to, delegated: RequestId::NONE };
            let reply = self.steps.send_log(open, call, timeout, None);
            open.logs.push(call, reply);
        }
    }

    /// P2 cannot execute it, since the logic asks for further keys, which it does not serve, or
    /// since only this node knows what it has no space for: begins again as any other.
    async fn begin_again(&self, open: &mut InHand<F>) -> Ended {
        self.abandon_logs(open, |_| false);
        self.steps.release(open).await;
        let (id, initial) = (open.txn.id, open.txn.entries().len());
        open.txn.rewind(initial);
        open.txn.id = id;
        open.path = Path::Ordinary;
        Ended::BeginsAgain
    }
}

/// Might P2 insert a record of this node's shard, which has no capacity for it?
fn may_insert_without_space<F: Fabric>(open: &OpenTxn<F>) -> bool {
    let absent = |entry: &Entry| entry.write && entry.fetched && !entry.present;
    open.exhausted.refuses_records() && open.txn.entries().iter().any(absent)
}
