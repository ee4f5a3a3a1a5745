//! A NIC engine's part of a copy, but for the leader's: it says when what began earlier has ended,
//! and takes the records for a node that catches up. (decision 0105)

use std::rc::Rc;
use std::sync::Arc;

use nicol_core::fabric::{Fabric, FabricError, ReplyTo, Timeout};
use nicol_core::ids::{EngineId, Epoch};
use nicol_core::wire::Malformed;
use nicol_kit::VIEW_WAIT;

use crate::messages::Ack;
use crate::xenic::config::SLOT_WAIT;
use crate::xenic::messages::copy::{CopiedShard, Copy, parse_copy};
use crate::xenic::messages::recovery::parse_in_view;
use crate::xenic::messages::{COPY, DRAIN};
use crate::xenic::node::Node;
use crate::xenic::open_txn::OpenTxns;

/// What one NIC engine does for copies.
pub(in crate::xenic) struct Copying<F: Fabric> {
    fabric: F,
    node: Arc<Node>,
    txns: Rc<OpenTxns<F>>,
}

impl<F: Fabric> Copying<F> {
    pub(super) fn new(fabric: F, node: Arc<Node>, txns: Rc<OpenTxns<F>>) -> Rc<Self> {
        Rc::new(Self { fabric, node, txns })
    }

    /// Takes a DRAIN, COPY or COPIED.
    pub(super) fn take(
        self: &Rc<Self>,
        kind: u16,
        body: &[u8],
        reply_to: ReplyTo,
    ) -> Result<(), Malformed> {
        let this = self.clone();
        match kind {
            DRAIN => {
                let epoch = parse_in_view(body)?;
                self.fabric.spawn(async move { this.drain(epoch, reply_to).await });
            }
            COPY => {
                let (shard, _) = parse_copy(body)?;
                if self.node.lives().is_first() || self.node.held(shard).is_none() {
                    return Err(Malformed { what: "a copy for another node" });
                }
                let body = self.fabric.keep(body);
                self.fabric.spawn(async move { this.copy(body, reply_to).await });
            }
            _ => {
                let CopiedShard(shard) = CopiedShard::parse(body)?;
                self.node.lives().note_copied(shard);
                declare_if_complete(&self.fabric, &self.node);
                self.fabric.reply(reply_to, &Ack);
            }
        }
        Ok(())
    }

    /// DRAIN: replies once this engine knows the view of `epoch`, its node has recovered from every
    /// loss that it knows of, and all has ended that began here before that view.
    async fn drain(&self, epoch: Epoch, reply_to: ReplyTo) {
        let _phase = self.fabric.phase("server: DRAIN");
        loop {
            self.node.learn(self.fabric.view());
            let knows = self.fabric.view().epoch() >= epoch;
            let recovered = !self.node.recovery().is_due();
            if knows && recovered && self.txns.have_ended_before(epoch) {
                return self.fabric.reply(reply_to, &Ack);
            }
            self.fabric.sleep_until(self.fabric.now() + VIEW_WAIT).await;
        }
    }

    /// COPY: the host applies the records. What comes for a shard that is whole is from a leader
    /// that others have followed.
    async fn copy(&self, body: F::Payload, reply_to: ReplyTo) {
        let _phase = self.fabric.phase("server: COPY");
        let Ok((shard, _)) = parse_copy(body.as_ref()) else { return };
        let host = EngineId::host(self.fabric.here().node, 0);
        while !self.node.lives().has_copied(shard) {
            // The shard's number stands before the records.
            let records = &body.as_ref()[size_of::<u16>()..];
            match self.fabric.call(host, &Copy { shard, records }, Timeout::Never).await {
                Ok(_) => break,
                Err(FabricError::NoResources) => {
                    self.fabric.sleep_until(self.fabric.now() + SLOT_WAIT).await;
                }
                Err(error) => return self.fabric.refuse(reply_to, error),
            }
        }
        self.fabric.reply(reply_to, &Ack);
    }
}

/// Tells the view service that this node has caught up, if it has every record of each shard for
/// which its view says that it is being given them.
pub(in crate::xenic) fn declare_if_complete<F: Fabric>(fabric: &F, node: &Node) {
    let (view, lives) = (fabric.view(), node.lives());
    let mut catches_up = view.shard_ids().filter(|&of| view.catching_up(of).contains(&node.id()));
    let is_due = !lives.is_first() && view.is_catching_up(node.id());
    if is_due && catches_up.all(|shard| lives.has_copied(shard)) {
        fabric.declare_complete();
    }
}
