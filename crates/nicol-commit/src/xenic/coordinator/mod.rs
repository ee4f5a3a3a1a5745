//! The coordinator's NIC engine: runs a transaction through the paper's steps. [Xenic21 4.2: C]
//!
//! [`NicCoordinator::commit_transaction`] is the figure. Beside it stand what its steps do
//! (`steps`), how it waits for its host (`at_host`), the transactions that take a shorter way
//! (`multi_hop`, `local`), and the ablation that must ask for everything twice (`split_requests`).

mod at_host;
mod local;
mod multi_hop;
mod split_requests;
mod steps;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use nicol_core::fabric::{Delivery, Fabric, ReplyTo, Work};
use nicol_core::ids::{IdMap, TxnId};
use nicol_core::txn::{Abort, ProcedureId, Procedures, Verdict};
use nicol_core::wire::Malformed;
use nicol_kit::Computed;

use super::config::{CombinedOps, ROUNDS_MAX};
use super::messages::{
    TXN_ABORT, TXN_COMMIT, TXN_EXECUTE, TXN_LOCAL, TXN_REQUEST, parse_txn_request,
};
use super::node::Node;
use super::open_txn::{InHand, OpenTxn, OpenTxns};
use super::server::NicServer;
pub(super) use steps::SLOT_WAIT;

/// The coordinator's side of one NIC engine.
pub(super) struct NicCoordinator<F: Fabric> {
    fabric: F,
    node: Arc<Node>,
    procedures: Procedures,
    /// This engine's own server: a coordinator locks and reads its own shard's keys there.
    server: Rc<NicServer<F>>,
    txns: Rc<OpenTxns<F>>,
    /// The transactions whose hosts are executing.
    at_host: RefCell<IdMap<TxnId, Box<OpenTxn<F>>>>,
    /// Procedures that have asked for further keys: they are not shipped again.
    multi_round: RefCell<Vec<ProcedureId>>,
}

impl<F: Fabric> NicCoordinator<F> {
    pub(super) fn new(
        fabric: F,
        node: Arc<Node>,
        procedures: Procedures,
        server: Rc<NicServer<F>>,
        txns: Rc<OpenTxns<F>>,
    ) -> Self {
        let (at_host, multi_round) = (RefCell::default(), RefCell::default());
        Self { fabric, node, procedures, server, txns, at_host, multi_round }
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
                    self.parse_new(host, |open| self.parse_local(delivery, open))?;
                let this = self.clone();
                self.fabric
                    .spawn(async move { this.commit_for_host(InHand::new(open), refused).await });
                Ok(())
            }
            // [Xenic21 4.2 step 3] The host has executed.
            TXN_EXECUTE => self.host_decided(delivery, host, Verdict::More),
            TXN_COMMIT => self.host_decided(delivery, host, Verdict::Commit),
            TXN_ABORT => self.host_decided(delivery, host, Verdict::Refuse),
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
        let ended = match self.execution_shard(&open) {
            // [Xenic21 4.2.3] One primary can execute it alone.
            Some(execution) => self.commit_multi_hop(&mut open, execution).await,
            None if self.node.config().combined_ops == CombinedOps::All => {
                self.commit_transaction(&mut open).await
            }
            // [Xenic21 5.7] An ablation.
            None => self.commit_with_split_requests(&mut open).await,
        };
        self.end(open, ended).await;
    }

    /// Commits a transaction. Steps: Figure 6 and section 4.2 of the paper.
    ///
    /// Errors: it has not committed, and must release what it holds.
    pub(super) async fn commit_transaction(&self, open: &mut InHand<F>) -> Result<(), Abort> {
        // [Xenic21 4.2 step 1] The host has sent the transaction's initial state (`host`).
        //
        // [Xenic21 4.2 step 2] EXECUTE at the primaries: lock the write set and read every key.
        let mut executed = self.execute(open).await?;
        // [Xenic21 4.2 step 3] Execution logic computes the writes, at the host or, if it was
        // shipped, here. Keys that it adds are EXECUTEd in a further round.
        while self.compute(open).await? == Computed::AddedKeys {
            executed = self.execute(open).await?;
        }
        // [Xenic21 4.2 step 4] VALIDATE at the primaries what was read and is not locked.
        let validated = self.validate(open, executed).await?;
        // [Xenic21 4.2 step 5] LOG at every backup of every shard written. A read-only transaction
        // has nothing to log: it is complete.
        let logged = self.log(open, validated).await?;
        // [Xenic21 4.2 step 6] Committed: the host has been told. COMMIT at the primaries.
        self.commit(open, logged).await;
        // [Xenic21 4.2 step 7] The hosts apply the logs to their tables (`host::worker`); their
        // acks free log space and unpin (`server::log_writer`).
        Ok(())
    }

    /// One round of execution logic, where the transaction says. [Xenic21 4.2.2]
    async fn compute(&self, open: &mut InHand<F>) -> Result<Computed, Abort> {
        let _phase = self.fabric.phase("step 3: execution logic");
        if open.rounds == ROUNDS_MAX {
            return Err(Abort::NoResources);
        }
        open.rounds += 1;
        let verdict =
            if open.txn.ship { self.execute_here(open) } else { self.execute_at_host(open).await };
        Computed::of(verdict)
    }

    /// Execution logic on this core.
    pub(super) fn execute_here(&self, open: &mut OpenTxn<F>) -> Verdict {
        self.fabric.work(Work::Execute { keys: open.txn.entries().len() as u16 });
        let verdict = self.procedures.execute(&mut open.txn);
        open.place_keys(&self.node);
        verdict
    }

    /// Ends a transaction: what has not committed is reported as aborted and releases its locks.
    pub(super) async fn end(&self, mut open: InHand<F>, ended: Result<(), Abort>) {
        if let Err(abort) = ended {
            self.abort(&mut open, abort).await;
        }
        self.txns.close(open.lend());
    }
}
