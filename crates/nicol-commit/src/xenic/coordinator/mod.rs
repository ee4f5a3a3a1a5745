//! The coordinator's NIC engine: runs a transaction through the paper's steps. [Xenic21 4.2: C]
//!
//! [`NicCoordinator::commit_transaction`] is the figure. Beside it stand what its steps do
//! (`steps`), execution logic (`logic`), the transactions that take a shorter way (`multi_hop`,
//! `local`), and the ablation that must ask for everything twice (`split_requests`).

mod current;
mod decisions;
mod local;
mod logic;
mod multi_hop;
mod split_requests;
mod steps;

use std::rc::Rc;
use std::sync::Arc;

use nicol_core::fabric::{Delivery, Fabric, ReplyTo, Work};
use nicol_core::txn::{Abort, Procedures, Verdict};
use nicol_core::wire::Malformed;
use nicol_kit::Computed;

use super::config::CombinedOps;
use super::messages::{
    TXN_ABORT, TXN_COMMIT, TXN_EXECUTE, TXN_LOCAL, TXN_REQUEST, parse_txn_request,
};
use super::node::{Node, OwnInserts};
use super::open_txn::{InHand, OpenTxn, OpenTxns};
use super::server::OwnKeys;
use local::LocalTxns;
use logic::Logic;
use multi_hop::{Ended, MultiHop};
pub(super) use steps::Steps;

/// The coordinator's side of one NIC engine.
pub(super) struct NicCoordinator<F: Fabric> {
    fabric: F,
    node: Arc<Node>,
    txns: Rc<OpenTxns<F>>,
    steps: Rc<Steps<F>>,
    logic: Rc<Logic<F>>,
    multi_hop: MultiHop<F>,
    local: LocalTxns<F>,
}

impl<F: Fabric> NicCoordinator<F> {
    /// `own`: a coordinator locks and reads its own shard's keys itself.
    pub(super) fn new(
        fabric: F,
        node: Arc<Node>,
        procedures: Procedures,
        own: &Rc<OwnKeys<F>>,
        txns: Rc<OpenTxns<F>>,
    ) -> Self {
        let steps = Rc::new(Steps::new(fabric.clone(), node.clone()));
        let logic = Rc::new(Logic::new(fabric.clone(), node.clone(), procedures));
        let multi_hop = MultiHop::new(&fabric, &node, own, &steps, &logic);
        let local = LocalTxns::new(&fabric, &node, own, &steps);
        Self { fabric, node, txns, steps, logic, multi_hop, local }
    }

    /// Its steps.
    pub(super) fn steps(&self) -> &Steps<F> {
        &self.steps
    }

    /// Takes a message of this node's host.
    pub(super) fn deliver(self: &Rc<Self>, delivery: Delivery<'_>) -> Result<(), Malformed> {
        let Some(host) = delivery.reply_to else {
            return Err(Malformed { what: "a host request that wants no reply" });
        };
        if delivery.from.node != self.fabric.here().node {
            return Err(Malformed { what: "a host request from another node" });
        }
        match delivery.kind {
            // [Xenic21 4.2 step 1] The host has sent a transaction's initial state.
            TXN_REQUEST => {
                let (open, this) = (self.parse_request(delivery.body, host)?, self.clone());
                self.fabric.spawn(async move { this.run(InHand::new(open)).await });
                Ok(())
            }
            // [Xenic21 4.2.4] The host has executed a transaction on its own table.
            TXN_LOCAL => {
                let (open, refused) =
                    self.parse_new(host, |open| self.local.parse(delivery, open))?;
                let this = self.clone();
                self.fabric.spawn(async move { this.run_local(InHand::new(open), refused).await });
                Ok(())
            }
            // [Xenic21 4.2 step 3] The host has executed.
            TXN_EXECUTE => self.logic.host_decided(delivery, host, Verdict::More),
            TXN_COMMIT => self.logic.host_decided(delivery, host, Verdict::Commit),
            TXN_ABORT => self.logic.host_decided(delivery, host, Verdict::Refuse),
            _ => Err(Malformed { what: "an unknown kind of message" }),
        }
    }

    /// The state of a transaction that its host begins.
    pub(super) fn parse_request(
        &self,
        body: &[u8],
        host: ReplyTo,
    ) -> Result<Box<OpenTxn<F>>, Malformed> {
        let parse = |open: &mut OpenTxn<F>| {
            parse_txn_request(body, &mut open.txn)?;
            open.place_keys(&self.node);
            Ok(())
        };
        self.parse_new(host, parse).map(|(open, ())| open)
    }

    /// A new transaction's state, filled by `parse`.
    fn parse_new<T>(
        &self,
        host: ReplyTo,
        parse: impl FnOnce(&mut OpenTxn<F>) -> Result<T, Malformed>,
    ) -> Result<(Box<OpenTxn<F>>, T), Malformed> {
        let mut open = self.txns.open(host);
        self.txns.begin(&mut open, self.node.begun().in_epoch_of(self.fabric.view()));
        match parse(&mut open) {
            Ok(parsed) => Ok((open, parsed)),
            Err(malformed) => {
                self.txns.close(open);
                Err(malformed)
            }
        }
    }

    /// Runs a transaction that its host has begun.
    async fn run(self: Rc<Self>, mut open: InHand<F>) {
        self.fabric.work(Work::TxnSetup);
        let mut ended = Ok(Ended::BeginsAgain);
        // [Xenic21 4.2.3] One primary may be able to execute it alone.
        if let Some(execution) = self.multi_hop.execution(&open) {
            ended = self.multi_hop.commit(&mut open, execution).await;
        } else if self.node.config().combined_ops != CombinedOps::All {
            // [Xenic21 5.7] An ablation.
            let committed = self.commit_with_split_requests(&mut open).await;
            ended = committed.map(|()| Ended::Whole);
        }
        let ended = match ended {
            Ok(Ended::BeginsAgain) => self.commit_transaction(&mut open).await,
            ended => ended.map(|_| ()),
        };
        self.end(open, ended).await;
    }

    /// Runs a transaction that its host has executed. If the application has `refused`, the host
    /// learns whether what it has read was current.
    async fn run_local(self: Rc<Self>, mut open: InHand<F>, refused: bool) {
        self.fabric.work(Work::TxnSetup);
        let ended = self.local.commit(&mut open, refused).await;
        self.end(open, ended).await;
    }

    /// Commits a transaction. Steps: Figure 6 and section 4.2 of the paper.
    ///
    /// Errors: it has not committed, and must release what it holds.
    pub(super) async fn commit_transaction(&self, open: &mut InHand<F>) -> Result<(), Abort> {
        // [Xenic21 4.2 step 1] The host has sent the transaction's initial state (`host`).
        //
        // [Xenic21 4.2 step 2] EXECUTE at the primaries: lock the write set and read every key.
        let mut executed = self.steps.execute(open).await?;
        // [Xenic21 4.2 step 3] Execution logic computes the writes, at the host or, if it was
        // shipped, here. Keys that it adds are EXECUTEd in a further round.
        while self.logic.compute(open).await? == Computed::AddedKeys {
            executed = self.steps.execute(open).await?;
        }
        // [Xenic21 5.6] The coordinator's own new records have no locks: before anything is
        // validated, scans of their ranges are held off (decision 0110).
        OwnInserts::of(&self.node).hold(&self.fabric, &open.txn);
        // [Xenic21 4.2 step 4] VALIDATE at the primaries what was read and is not locked.
        let validated = self.steps.validate(open, executed).await?;
        // [Xenic21 4.2 step 5] LOG at every backup of every shard written. A read-only transaction
        // has nothing to log: it is complete.
        let logged = self.steps.log(open, validated).await?;
        // [Xenic21 4.2 step 6] Committed: the host is told, then COMMIT at the primaries.
        let reported = self.steps.report_logged(open, logged);
        self.steps.commit(open, reported).await;
        // [Xenic21 4.2 step 7] The hosts apply the logs to their tables (`host::worker`); their
        // acks free log space and unpin (`server::log_writer`).
        Ok(())
    }

    /// Ends a transaction: what has not committed is reported as aborted and releases its locks.
    pub(super) async fn end(&self, mut open: InHand<F>, ended: Result<(), Abort>) {
        if let Err(abort) = ended {
            self.steps.abort(&mut open, abort).await;
        }
        self.txns.close(open.lend());
    }
}
