//! The coordinator: runs a transaction through the paper's steps, from a host engine.
//!
//! [`Steps::commit_transaction`] is the figure. Beside it stand what its steps do (`execute` with
//! `reads`, `lock`, `validate` with `reserve`, `log` with `log_rings`, `finish`) and what a
//! transaction carries from one to the next (`open_txn`).

mod broken;
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

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use nicol_core::commit::CommitProtocol;
use nicol_core::fabric::{Fabric, FabricError, Work};
use nicol_core::ids::{IdMap, Key, NodeId, ShardId, TxnId};
use nicol_core::txn::{Abort, Entry, Outcome, Procedures, Txn, Verdict};
use nicol_core::view::View;
use nicol_kit::{Computed, follow_views};

use super::ROUNDS_MAX;
use super::host::HostEngine;
use super::local_log::LocalLog;
use super::log_acks::Acknowledged;
use super::node::Node;
use super::owner::Owner;
use super::reach::Reach;
use super::rpc::Rpc;
use crate::messages::{ReadOf, verdict};
use crate::survivor::Survivor;
use log_rings::LogRing;
use open_txn::{InHand, OpenTxn, OpenTxns};

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
        let ring = |_| LogRing::new(log.size(), fabric.signal());
        let steps = Rc::new(Steps {
            rings: (0..fabric.view().nodes()).map(ring).collect(),
            txns: OpenTxns::new(fabric.clone(), node.clone()),
            fabric: fabric.clone(),
            node: node.clone(),
            procedures: procedures.clone(),
            owner,
            log,
            acknowledged,
            reach,
            rpc,
            values: RefCell::default(),
            swapping: RefCell::default(),
            logging: RefCell::default(),
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
        if let Err(abort) = steps.node.check_lease(&steps.fabric) {
            return Outcome::Aborted(abort);
        }
        let Some((id, mut open)) = steps.txns.open() else {
            return Outcome::Aborted(Abort::NoResources);
        };
        txn.id = id;
        steps.fabric.work(Work::TxnSetup);
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
        if steps.node.config().hooks().installs_aborted() {
            return broken::install_aborted(steps, txn, open);
        }
        steps.abort(txn, open);
    }
}

/// What the steps of one engine's transactions work with.
struct Steps<F: Fabric> {
    fabric: F,
    node: Arc<Node>,
    procedures: Procedures,
    /// This node's own shard: its keys are read, locked and installed in local memory.
    owner: Rc<dyn Owner>,
    /// What this engine backs up.
    log: Rc<LocalLog<F>>,
    /// What this engine has been told of what it backs up.
    acknowledged: Rc<Acknowledged>,
    /// The logs that this engine writes at other nodes, by node.
    rings: Vec<LogRing>,
    reach: Rc<Reach<F>>,
    rpc: Rc<Rpc<F>>,
    txns: OpenTxns<F>,
    /// The value of one record; nothing is awaited while it is in use.
    values: RefCell<Vec<u8>>,
    /// Keys that this engine locks by CAS, or tries to: a header names the engine only, so that
    /// its transactions must keep out of one another's way here.
    swapping: RefCell<IdMap<Key, TxnId>>,
    /// Where there is a second round of LOG: the transactions that have logged and not ended it.
    logging: RefCell<BTreeSet<TxnId>>,
}

impl<F: Fabric> Steps<F> {
    /// Commits a transaction: FaRM's protocol, which the others share [FaRM15 4; DrTM+H]. Which
    /// primitive a step uses is a value of [`RdmaOccConfig`](super::RdmaOccConfig), and whether
    /// LOCK or VALIDATE has anything left to do.
    ///
    /// Errors: it has not committed, and must release what it holds.
    async fn commit_transaction(
        self: &Rc<Self>,
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
        let locked = self.lock(txn, open, executed).await?;
        // [FaRM15 4 step 2] VALIDATE what was read and is not locked.
        let validated = self.validate(txn, open, locked).await?;
        // [FaRM15 4 step 3] LOG at every backup of every shard written: then it has committed. A
        // read-only transaction has nothing to log: it is complete.
        let logged = self.log(txn, open, validated).await?;
        // [FaRM15 4 step 4] COMMIT at the primaries. The client does not wait for it, where others
        // have logged the writes.
        Ok(self.commit(txn, open, logged).await)
        // [FaRM15 4 step 5] The backups' workers apply the logs (`worker`) and free their space.
    }

    /// One round of execution logic.
    fn compute(&self, txn: &mut Txn, open: &mut OpenTxn<F>) -> Result<Computed, Abort> {
        let _phase = self.fabric.phase("EXECUTE: logic");
        open.rounds += 1;
        self.fabric.work(Work::Execute { keys: txn.entries().len() as u16 });
        match self.procedures.execute(txn) {
            Verdict::More if open.rounds == ROUNDS_MAX => Err(Abort::NoResources),
            Verdict::Refuse if txn.local => Err(self.refused_here(txn, open)),
            verdict => Computed::of(verdict),
        }
    }

    /// What the primary of `shard` says of a VALIDATE, a LOCK or a RESERVE.
    fn verdict(&self, shard: ShardId, reply: Result<F::Payload, FabricError>) -> Result<(), Abort> {
        match reply {
            Err(error) => Err(self.node.failure(shard, error)),
            reply => verdict(reply),
        }
    }

    /// Learns from `view` which nodes are gone.
    fn learn(&self, view: &View) {
        self.node.lost().learn(view);
        for node in view.node_ids().filter(|&node| self.node.lost().contain(node)) {
            self.rings[node.index()].give_up();
        }
        // Nobody acknowledges what a coordinator that is gone has logged here.
        self.acknowledged.look_again();
    }

    /// The node of the primary of `shard`.
    fn primary(&self, shard: ShardId) -> NodeId {
        self.fabric.view().primary(shard)
    }
}

/// What a transaction has read of a key.
fn read_of(entry: &Entry) -> ReadOf {
    ReadOf { key: entry.key, version: entry.version, present: entry.present }
}
