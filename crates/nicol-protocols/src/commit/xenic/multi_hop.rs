//! Multi-hop transactions at their coordinator NIC: another NIC executes. [Xenic21 4.2.3]
//!
//! The coordinator P1 locks and reads its own keys and ships the transaction to the remote primary
//! P2. P2 locks, reads and executes in one remote execution, answers P1 with the writes, and sends
//! LOG to the backups of both shards, whose acks go straight to P1. P1 counts them and commits.
//!
//! - **The point of no return** is P2's execution. P1 asks for its outcome when SHIP goes
//!   unanswered, which fences a SHIP still under way; P2 remembers the outcome until COMMIT.
//! - **Lost LOGs**: P1 opens the LOG requests, P2 sends them in P1's name, and P1, who has the
//!   writes from P2's answer, sends them again. A backup takes each once.
//! - **Acks to nobody**: a backup on P1 is logged to by P1 itself.

use std::cell::Cell;
use std::rc::Rc;

use nicol_core::fabric::{Fabric, FabricError, ReplyTo, RequestId, Timeout, Work};
use nicol_core::ids::{NodeId, ShardId};
use nicol_core::txn::{Abort, Outcome, Txn, Verdict};
use nicol_core::view::ShardSet;

use super::Faithful;
use super::coordinator::Validated;
use super::messages::HostReply;
use super::messages::ship::{Ship, ShipOutcome, Shipped, parse_ship_reply};
use super::nic::{Nic, OpenTxn, Sent};
use super::node::Path;
use crate::commit::messages::Log;

/// How many times its timeout a coordinator asks for an outcome that only P2 knows before it tells
/// its host that the outcome is unknown. A host that is told so does not learn what was written
/// (`Event::unseen_writes`).
const OUTCOME_TIMEOUT: u64 = 64;

impl<F: Fabric> Nic<F> {
    /// The shard whose primary's NIC should execute `txn`: its only shard, or the remote one of this
    /// node's own and one remote shard. `None`: the coordinator, one EXECUTE per shard; also if
    /// there are values that this node has no room for, since another one would not know.
    pub(super) fn execution_shard(&self, txn: &Txn) -> Option<ShardId> {
        let allowed = self.node.config().multi_hop
            && self.node.allows_shortcuts()
            && self.node.exhausted_space().is_none();
        // Only in a single round with all keys in the initial request, on the user's annotation.
        let known = self.multi_round.borrow().contains(&txn.procedure);
        if !allowed || !txn.ship || known || txn.entries().is_empty() {
            return None;
        }
        let own = self.node.shard();
        let mut remote = None;
        for entry in txn.entries() {
            let shard = Some(self.node.shard_of(entry.key));
            if shard == own {
                continue;
            }
            if remote.is_some() && shard != remote {
                return None;
            }
            remote = shard;
        }
        remote.or(own)
    }

    /// Executes at the primary of `shard`: this node, or a remote one.
    pub(super) async fn run_at(
        &self,
        mut open: Box<OpenTxn<F>>,
        shard: ShardId,
        reply_to: ReplyTo,
    ) {
        let own = self.node.shard();
        open.path = Path::MultiHop;
        // AMB-06: what P1 only reads is locked for reading until P2 has executed with its locks
        // held, since nobody validates it. The paper says nothing of it.
        let protect = own == Some(shard) || self.node.config().faithful == Faithful::Fixed;
        if let Err(abort) = self.lock_and_read(&mut open, protect).await {
            return self.end_aborted(open, abort, reply_to).await;
        }
        if open.txn.entries().iter().any(|entry| entry.write && entry.fetched) {
            open.held.extend(own);
        }
        if own == Some(shard) {
            self.run_remote_execution(open, reply_to).await;
        } else {
            self.ship(open, shard, reply_to).await;
        }
    }

    /// Every key is of this shard, and is locked.
    async fn run_remote_execution(&self, mut open: Box<OpenTxn<F>>, reply_to: ReplyTo) {
        self.fabric.work(Work::Execute { keys: open.txn.entries().len() as u16 });
        let verdict = self.procedures.execute(&mut open.txn);
        self.unlock_shared(&mut open);
        match verdict {
            Verdict::Commit => self.commit_validated(open, Validated(()), reply_to).await,
            Verdict::Refuse => self.end_aborted(open, Abort::Refused, reply_to).await,
            Verdict::More => {
                self.remember_multi_round(&open.txn);
                open.path = Path::Ordinary;
                match self.execute(&mut open).await {
                    Ok(executed) => self.run_shipped(open, executed, reply_to).await,
                    Err(abort) => self.end_aborted(open, abort, reply_to).await,
                }
            }
        }
    }

    fn remember_multi_round(&self, txn: &Txn) {
        let mut known = self.multi_round.borrow_mut();
        if !known.contains(&txn.procedure) {
            known.push(txn.procedure);
        }
    }

    /// [Xenic21 Figure 7b] Ships to P2, counts the acks of the backups, commits.
    async fn ship(&self, mut open: Box<OpenTxn<F>>, remote: ShardId, reply_to: ReplyTo) {
        self.open_delegated_logs(&mut open, remote);
        let node = self.fabric.view().primary(remote);
        let timeout = Timeout::After(self.node.config().timeout);
        let message = Ship { txn: &open.txn, delegated: &open.delegated };
        let to = self.fabric.view().nic_of(node, self.fabric.here().core);
        let mut reply = self.fabric.call(to, &message, timeout).await;
        let mut unknown = false;
        let writes = open.txn.entries().iter().any(|entry| entry.write);
        if let Err(FabricError::TimedOut { request }) = reply
            && writes
        {
            // P2 may have executed: only P2 can say, and it must not begin to now.
            let told = self.give_up_later(reply_to);
            reply = self.ask_outcome(&open, node, request).await;
            unknown = told.replace(true);
        }
        let shipped = match reply {
            Ok(body) => parse_ship_reply(body.as_ref(), &mut open.txn)
                .unwrap_or(Shipped::Denied(Abort::Fabric(FabricError::Malformed))),
            Err(error) => Shipped::Denied(Abort::Fabric(error)),
        };
        self.unlock_shared(&mut open);
        match shipped {
            Shipped::Executed => self.count_acks(open, remote, reply_to, unknown).await,
            Shipped::Denied(abort) if !unknown => {
                self.give_up_delegated(&mut open, &ShardSet::new());
                self.end_aborted(open, abort, reply_to).await;
            }
            Shipped::More if !unknown => self.take_back(open, reply_to).await,
            Shipped::Denied(_) | Shipped::More => {
                self.give_up_delegated(&mut open, &ShardSet::new());
                self.release(&mut open).await;
                self.recycle(open);
            }
        }
    }

    /// Reports that the outcome is unknown, unless it is found out in time: then the flag is set.
    fn give_up_later(&self, reply_to: ReplyTo) -> Rc<Cell<bool>> {
        let told = Rc::new(Cell::new(false));
        let (fabric, flag) = (self.fabric.clone(), told.clone());
        let deadline = fabric.now() + self.node.config().timeout * OUTCOME_TIMEOUT;
        self.fabric.spawn(async move {
            fabric.sleep_until(deadline).await;
            if !flag.replace(true) {
                let (outcome, shipped) = (Outcome::Unknown, None);
                fabric.reply(reply_to, &HostReply::Ended { outcome, shipped });
            }
        });
        told
    }

    /// Asks P2, for as long as it takes, what has become of a SHIP that went unanswered.
    async fn ask_outcome(
        &self,
        open: &OpenTxn<F>,
        node: NodeId,
        request: RequestId,
    ) -> Result<F::Payload, FabricError> {
        let to = self.fabric.view().nic_of(node, self.fabric.here().core);
        loop {
            let ask = self.fabric.call_superseding(to, &ShipOutcome(open.txn.id), request);
            match ask.await {
                Err(FabricError::NoResources) => self.wait_for_slot().await,
                answered => return answered,
            }
        }
    }

    /// Opens a request for each ack that a backup on another node will send.
    fn open_delegated_logs(&self, open: &mut OpenTxn<F>, remote: ShardId) {
        open.delegated.clear();
        let (view, here) = (self.fabric.view(), self.fabric.here());
        let shards = self.shards_written(&open.txn, [self.node.shard(), Some(remote)]);
        for shard in shards.into_iter().flatten() {
            for backup in view.backups(shard).filter(|&backup| backup != here.node) {
                let (asker, reply) =
                    self.fabric.open_delegated_call(view.nic_of(backup, here.core));
                open.delegated.push(asker.request);
                open.calls.push(Sent { to: backup, shard, reply });
            }
        }
    }

    /// Those of `shards` that the transaction may write.
    pub(super) fn shards_written(
        &self,
        txn: &Txn,
        shards: [Option<ShardId>; 2],
    ) -> [Option<ShardId>; 2] {
        shards.map(|shard| {
            let mut written = txn.entries().iter().filter(|entry| entry.write);
            shard.filter(|&shard| written.any(|entry| self.node.shard_of(entry.key) == shard))
        })
    }

    /// Gives up the acks of shards that are not among those `updated`: P2 sends them no LOG.
    fn give_up_delegated(&self, open: &mut OpenTxn<F>, updated: &ShardSet) {
        let engine = self.fabric.here();
        for index in (0..open.calls.len()).rev() {
            if !updated.contains(open.calls[index].shard) {
                drop(open.calls.swap_remove(index).reply);
                let request = open.delegated.swap_remove(index);
                self.fabric.refuse(ReplyTo { engine, request }, FabricError::Unreachable);
            }
        }
    }

    /// P2 has executed: waits for the acks of its LOGs, reports, commits at both primaries.
    async fn count_acks(
        &self,
        mut open: Box<OpenTxn<F>>,
        remote: ShardId,
        reply_to: ReplyTo,
        unknown: bool,
    ) {
        let updated: ShardSet =
            open.txn.updates().map(|write| self.node.shard_of(write.key)).collect();
        self.give_up_delegated(&mut open, &updated);
        if updated.is_empty() {
            // P2 has kept nothing of a transaction that writes nothing.
            if !unknown {
                self.reply_committed(&open, reply_to);
            }
            self.release(&mut open).await;
            return self.recycle(open);
        }
        open.held.insert(remote);
        let timeout = match unknown {
            false => Timeout::After(self.node.config().timeout),
            true => Timeout::Never,
        };
        for index in 0..open.calls.len() {
            let (shard, request) = (open.calls[index].shard, open.delegated[index]);
            self.select_updates(&mut open, shard);
            let message = Log { txn: &open.txn, shard, keys: &open.keys };
            self.fabric.retransmit(request, &message, timeout);
        }
        self.log_on_this_node(&mut open, remote, timeout);
        let logged = self.await_logs(&mut open, reply_to, unknown).await;
        // [Xenic21 4.2 step 6] COMMIT at the primaries.
        self.commit_primaries(&mut open, logged).await;
        self.recycle(open);
    }

    /// If this node is a backup of P2's shard, its LOG need not travel: the writes are here.
    fn log_on_this_node(&self, open: &mut OpenTxn<F>, shard: ShardId, timeout: Timeout) {
        let here = self.fabric.here().node;
        self.select_updates(open, shard);
        if !open.keys.is_empty() && self.node.is_backup_of(shard) {
            let reply = self.send_log(open, shard, here, timeout, None);
            open.calls.push(Sent { to: here, shard, reply });
        }
    }

    /// The logic asks for further keys, which P2 does not serve: begins again, executing here.
    async fn take_back(&self, mut open: Box<OpenTxn<F>>, reply_to: ReplyTo) {
        self.remember_multi_round(&open.txn);
        self.give_up_delegated(&mut open, &ShardSet::new());
        self.release(&mut open).await;
        let (id, initial) = (open.txn.id, open.txn.entries().len());
        open.txn.rewind(initial);
        open.txn.id = id;
        open.path = Path::Ordinary;
        self.run_here(open, reply_to).await;
    }
}
