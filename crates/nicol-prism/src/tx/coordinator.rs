//! The coordinator: runs a transaction through the paper's phases, from a client's host engine.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use nicol_core::commit::CommitProtocol;
use nicol_core::fabric::{Fabric, Work};
use nicol_core::ids::{Key, NodeId, ShardId, TxnId};
use nicol_core::txn::{Abort, Outcome, Procedures, Txn};

use super::broken::choices::plan;
use super::chains::At;
use super::checks::Plan;
use super::clock::Clock;
use super::config::TxConfig;
use super::node::Node;
use crate::messages::{Handles, List};
use crate::servers::Servers;
use crate::tag::Tag;

/// A client engine's coordinator.
pub struct Coordinator<F: Fabric>(Rc<Steps<F>>);

impl<F: Fabric> Clone for Coordinator<F> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// The state that the steps of one engine's transactions share.
pub(super) struct Steps<F: Fabric> {
    pub(super) fabric: F,
    pub(super) node: Arc<Node>,
    pub(super) procedures: Procedures,
    pub(super) servers: Servers<F>,
    pub(super) clock: Clock<F>,
    pub(super) plan: Plan,
    sequence: Cell<u64>,
}

/// The slot of an entry's key, and what was read of it.
#[derive(Clone)]
pub(super) struct Access {
    pub(super) key: Key,
    pub(super) shard: ShardId,
    pub(super) server: NodeId,
    pub(super) handles: Rc<Handles>,
    pub(super) slot: u64,
    /// RC: the version that was read, as validation knows it.
    pub(super) rc: Tag,
    /// The item that was read, its address and its stamp, where that is known.
    pub(super) item: Option<(u64, Tag)>,
}

impl Access {
    pub(super) fn at<'a>(&'a self, config: &'a TxConfig) -> At<'a> {
        At { config, handles: &self.handles, slot: self.slot }
    }
}

/// The list of the smallest buffers of at least so many bytes.
pub(super) fn list_for(handles: &Handles, bytes: u64) -> Result<List, Abort> {
    let list = handles.lists.iter().find(|list| list.bytes >= bytes);
    list.copied().ok_or(Abort::NoResources)
}

impl<F: Fabric> Coordinator<F> {
    pub(super) fn new(fabric: &F, node: &Arc<Node>, procedures: &Procedures) -> Self {
        Self(Rc::new(Steps {
            fabric: fabric.clone(),
            node: node.clone(),
            procedures: procedures.clone(),
            servers: Servers::new(fabric, &node.open),
            clock: Clock::new(fabric, node.config()),
            plan: plan(node.config()),
            sequence: Cell::new(0),
        }))
    }
}

impl<F: Fabric> CommitProtocol for Coordinator<F> {
    async fn run(&self, txn: &mut Txn) -> Outcome {
        self.begin(txn);
        self.commit_transaction(txn).await.unwrap_or_else(Outcome::Aborted)
    }
}

impl<F: Fabric> Coordinator<F> {
    pub(super) fn steps(&self) -> &Rc<Steps<F>> {
        &self.0
    }

    /// Gives an attempt its id.
    pub(super) fn begin(&self, txn: &mut Txn) {
        let Self(steps) = self;
        steps.sequence.set(steps.sequence.get() + 1);
        let (here, life) = (steps.fabric.here(), steps.fabric.incarnation());
        txn.id = TxnId::new(here, life, steps.sequence.get());
        steps.fabric.work(Work::TxnSetup);
    }

    /// Commits a transaction. [PRISM21 8.2]
    ///
    /// Errors: it has not committed, and holds nothing that others wait for, but for what a task of
    /// its own gives up.
    async fn commit_transaction(&self, txn: &mut Txn) -> Result<Outcome, Abort> {
        let Self(steps) = self;
        // [PRISM21 8.2 execution] Read every key, and compute the writes. Keys that this adds are
        // read in a further round.
        let executed = steps.execute_rounds(txn).await?;
        // [PRISM21 8.2 prepare] TS, later than every RC.
        let latest = executed.latest(txn);
        let ts = steps.clock.after(latest).ok_or(Abort::NoResources)?;
        txn.install_at(ts.version());
        // [PRISM21 8.2 read validation] RC = PW, and PR := max(TS, PR); then [PRISM21 8.2 write
        // validation] TS > PW, and PW := TS; TS >= PR. In one chain at each server. AMB-53
        let prepared = match steps.prepare(txn, executed, ts).await {
            Ok(prepared) => prepared,
            // [PRISM21 8.2 abort] Raise C to TS where PW was raised.
            Err(refused) => return Err(steps.abort(refused, ts)),
        };
        // [PRISM21 8.2 commit] Install the writes, if TS > C.
        Ok(steps.commit(txn, prepared, ts).await)
    }
}
