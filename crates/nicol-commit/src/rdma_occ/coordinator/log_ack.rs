//! The second round of LOG, where there is one: every backup has logged, and may truncate. AMB-44

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use nicol_core::fabric::Fabric;
use nicol_core::ids::{NodeId, TxnId};

use super::context::Context;
use super::open_txn::OpenTxn;
use crate::rdma_occ::log_acks::Acknowledged;
use crate::rdma_occ::messages::LogAck;

/// The second rounds of one host engine's transactions.
pub(super) struct LogAcks<F: Fabric> {
    context: Rc<Context<F>>,
    /// What this engine has been told of what it backs up.
    acknowledged: Rc<Acknowledged>,
    /// The transactions that have logged and not ended their second round.
    logging: RefCell<BTreeSet<TxnId>>,
}

impl<F: Fabric> LogAcks<F> {
    pub(super) fn new(context: &Rc<Context<F>>, acknowledged: Rc<Acknowledged>) -> Self {
        Self { context: context.clone(), acknowledged, logging: RefCell::default() }
    }

    /// `txn` logs: its second round follows.
    pub(super) fn begin(&self, txn: TxnId) {
        if self.context.node.config().log_acks {
            self.logging.borrow_mut().insert(txn);
        }
    }

    /// A node is gone: nobody acknowledges what its coordinators have logged here.
    pub(super) fn look_again(&self) {
        self.acknowledged.look_again();
    }

    /// Tells every node that `has_record` of `open` that all have logged, and waits until those
    /// that are left have answered. Once for each transaction that has logged; nothing where there
    /// is no second round.
    ///
    /// Cost: a message to each node that backs up what is written, and its answer.
    pub(super) async fn acknowledge(
        &self,
        txn: TxnId,
        open: &mut OpenTxn<F>,
        has_record: impl Fn(&OpenTxn<F>, NodeId) -> bool,
    ) {
        if !self.context.node.config().log_acks || std::mem::replace(&mut open.acknowledged, true) {
            return;
        }
        let _phase = self.context.fabric.phase("LOG: second round");
        let oldest = self.logging.borrow().first().copied().unwrap_or(txn);
        let ack = LogAck { txn, oldest };
        for node in self.context.fabric.view().node_ids() {
            let has_record = has_record(open, node);
            if has_record && self.context.reach.is_here(node) {
                self.acknowledged.acknowledge(txn, oldest);
            } else if has_record && !self.context.reach.is_gone(node) {
                open.acks.push(node, self.context.rpc.demand(node, &ack, None));
            }
        }
        while let Some((node, mut reply)) = open.acks.next().await {
            while let Err(error) = reply {
                self.context.reach.wait_after(node, error).await;
                if self.context.reach.is_gone(node) {
                    break;
                }
                reply = self.context.rpc.demand(node, &ack, None).await;
            }
        }
        self.logging.borrow_mut().remove(&txn);
    }
}
