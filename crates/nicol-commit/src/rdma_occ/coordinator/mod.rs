//! The coordinator: runs a transaction through the paper's steps, from a host engine.
//!
//! [`Steps::commit_transaction`] is the figure. Beside it stand what its steps do, each in a type
//! of its own over the engine's `context` (`execute` with `reads`, `lock`, `validate` with
//! `reserve`, `log` with `log_rings` and `log_ack`, `finish`), and what a transaction carries from
//! one to the next (`open_txn`).

mod context;
mod execute;
mod finish;
mod lock;
mod log;
mod log_ack;
mod log_rings;
mod open_txn;
mod reads;
mod reserve;
mod validate;

use std::rc::Rc;
use std::sync::Arc;

use nicol_core::commit::CommitProtocol;
use nicol_core::fabric::{Fabric, Work};
use nicol_core::txn::{Abort, Entry, Outcome, Procedures, Txn, Verdict};
use nicol_core::view::View;
use nicol_kit::{Computed, follow_views};

use super::ROUNDS_MAX;
use super::host::HostEngine;
use super::node::Node;
use crate::messages::ReadOf;
use crate::survivor::Survivor;
use context::Context;
use execute::{Executed, Executions};
use finish::Endings;
use lock::Locks;
use log::Logging;
use open_txn::{InHand, OpenTxn, OpenTxns};
use validate::Checks;

/// A host engine's coordinator.
pub struct Coordinator<F: Fabric>(Rc<Steps<F>>);

impl<F: Fabric> Clone for Coordinator<F> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<F: Fabric> Coordinator<F> {
    pub(super) fn new(
        fabric: &F,
        node: &Arc<Node>,
        procedures: &Procedures,
        engine: HostEngine<F>,
    ) -> Self {
        let HostEngine { owner, log, acknowledged, reach, rpc } = engine;
        let (fabric, node) = (fabric.clone(), node.clone());
        let txns = Rc::new(OpenTxns::new(fabric.clone(), node.clone()));
        let context = Rc::new(Context { fabric: fabric.clone(), node, owner, reach, rpc });
        let locks = Rc::new(Locks::new(&context));
        let logging = Rc::new(Logging::new(&context, log, acknowledged));
        let steps = Rc::new(Steps {
            executions: Executions::new(&context),
            checks: Checks::new(&context),
            endings: Endings::new(&context, &locks, &logging, &txns),
            procedures: procedures.clone(),
            context,
            locks,
            logging,
            txns,
        });
        let follower = steps.clone();
        fabric.spawn(follow_views(fabric.clone(), move |view| follower.learn(view)));
        Self(steps)
    }
}

impl<F: Fabric> CommitProtocol for Coordinator<F> {
    async fn run(&self, txn: &mut Txn) -> Outcome {
        let Self(steps) = self;
        // Others may have gone on without this node.
        if let Err(abort) = steps.context.node.check_lease(&steps.context.fabric) {
            return Outcome::Aborted(abort);
        }
        let Some((id, mut open)) = steps.txns.open() else {
            return Outcome::Aborted(Abort::NoResources);
        };
        txn.id = id;
        steps.context.fabric.work(Work::TxnSetup);
        match steps.commit_transaction(txn, &mut open).await {
            Ok(outcome) => outcome,
            Err(abort) => {
                self.abort(txn, &mut open);
                Outcome::Aborted(abort)
            }
        }
    }
}

impl<F: Fabric> Coordinator<F> {
    /// Ends a transaction that has not committed.
    fn abort(&self, txn: &Txn, open: &mut InHand<F>) {
        let Self(steps) = self;
        if steps.context.node.config().hooks().installs_aborted() {
            return steps.endings.install_aborted(txn, open);
        }
        steps.endings.abort(txn, open);
    }
}

/// The steps of one engine's transactions.
struct Steps<F: Fabric> {
    context: Rc<Context<F>>,
    procedures: Procedures,
    executions: Executions<F>,
    locks: Rc<Locks<F>>,
    checks: Checks<F>,
    logging: Rc<Logging<F>>,
    endings: Rc<Endings<F>>,
    txns: Rc<OpenTxns<F>>,
}

impl<F: Fabric> Steps<F> {
    /// Commits a transaction: FaRM's protocol, which the others share [FaRM15 4; DrTM+H]. Which
    /// primitive a step uses is a value of [`RdmaOccConfig`](super::RdmaOccConfig), and whether
    /// LOCK or VALIDATE has anything left to do.
    ///
    /// Errors: it has not committed, and must release what it holds.
    async fn commit_transaction(
        &self,
        txn: &mut Txn,
        open: &mut InHand<F>,
    ) -> Result<Outcome, Abort> {
        // [FaRM15 4] Execution: read every key and compute the writes. Keys that this adds are read
        // in a further round.
        let mut executed = self.execute(txn, open).await?;
        while self.compute(txn, open)? == Computed::AddedKeys {
            executed = self.execute(txn, open).await?;
        }
        // [FaRM15 4 step 1] LOCK what was written, at the version read.
        let locked = self.locks.lock(txn, open, executed).await?;
        // [FaRM15 4 step 2] VALIDATE what was read and is not locked.
        let validated = self.checks.validate(txn, open, locked).await?;
        // [FaRM15 4 step 3] LOG at every backup of every shard written: then it has committed. A
        // read-only transaction has nothing to log: it is complete.
        let logged = self.logging.log(txn, open, validated).await?;
        // [FaRM15 4 step 4] COMMIT at the primaries. The client does not wait for it, where others
        // have logged the writes.
        Ok(self.endings.commit(txn, open, logged).await)
        // [FaRM15 4 step 5] The backups' workers apply the logs (`worker`) and free their space.
    }

    /// Reads every key that has not been read yet.
    async fn execute(&self, txn: &mut Txn, open: &mut OpenTxn<F>) -> Result<Executed, Abort> {
        let executed = self.executions.execute(txn, open).await?;
        self.locks.lock_read(txn, open, executed).await
    }

    /// One round of execution logic.
    fn compute(&self, txn: &mut Txn, open: &mut OpenTxn<F>) -> Result<Computed, Abort> {
        let _phase = self.context.fabric.phase("EXECUTE: logic");
        open.rounds += 1;
        self.context.fabric.work(Work::Execute { keys: txn.entries().len() as u16 });
        match self.procedures.execute(txn) {
            Verdict::More if open.rounds == ROUNDS_MAX => Err(Abort::NoResources),
            Verdict::Refuse if txn.local => Err(self.checks.refused_here(txn, open)),
            verdict => Computed::of(verdict),
        }
    }

    /// Learns from `view` which nodes are gone.
    fn learn(&self, view: &View) {
        self.context.node.lost().learn(view);
        self.logging.give_up_lost(view);
    }
}

/// A transaction's read of a key.
fn read_of(entry: &Entry) -> ReadOf {
    ReadOf { key: entry.key, version: entry.version, present: entry.present }
}
