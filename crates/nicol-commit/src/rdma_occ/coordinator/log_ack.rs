//! The second round of LOG, where there is one: every backup has logged, and may truncate. AMB-44

use nicol_core::fabric::Fabric;
use nicol_core::ids::TxnId;

use super::Steps;
use super::open_txn::OpenTxn;
use crate::rdma_occ::messages::LogAck;

impl<F: Fabric> Steps<F> {
    /// Tells every backup of `open` that all have logged, and waits until those that are left have
    /// answered. Once for each transaction that has logged; nothing where there is no second round.
    ///
    /// Cost: a message to each node that backs up what is written, and its answer.
    pub(super) async fn acknowledge_log(&self, txn: TxnId, open: &mut OpenTxn<F>) {
        if !self.node.config().log_acks || std::mem::replace(&mut open.acknowledged, true) {
            return;
        }
        let _phase = self.fabric.phase("LOG: second round");
        let oldest = self.logging.borrow().first().copied().unwrap_or(txn);
        let ack = LogAck { txn, oldest };
        for node in self.fabric.view().node_ids() {
            let has_record = self.bodies_for(open, node).next().is_some();
            if has_record && self.reach.is_here(node) {
                self.acknowledged.acknowledge(txn, oldest);
            } else if has_record && !self.reach.is_gone(node) {
                open.acks.push(node, self.rpc.demand(node, &ack, None));
            }
        }
        while let Some((node, mut reply)) = open.acks.next().await {
            while let Err(error) = reply {
                self.reach.wait_after(node, error).await;
                if self.reach.is_gone(node) {
                    break;
                }
                reply = self.rpc.demand(node, &ack, None).await;
            }
        }
        self.logging.borrow_mut().remove(&txn);
    }
}
