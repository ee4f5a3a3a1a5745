//! The survivor that recovers: it asks all, decides, and tells them. [Xenic21 4.2.1]
//! (decision 0102)

use std::sync::Arc;

use nicol_core::fabric::{Fabric, FabricError, Message, Timeout};
use nicol_core::ids::{Epoch, NodeId};
use nicol_core::view::Role;
use nicol_core::wire::Reader;
use nicol_kit::VIEW_WAIT;

use super::config::SLOT_WAIT;
use super::messages::recovery::{Account, InView, Told};
use super::messages::{INSTALL, REPLICATE, REPORT, RESOLVE};
use super::node::Node;
use super::resolution::Resolution;
use crate::survivor::Survivor;

/// The first NIC engine of each node stands ready; that of the lowest survivor recovers.
pub(super) struct Recoverer<F: Fabric> {
    fabric: F,
    node: Arc<Node>,
}

/// A later view has come, whose recovery begins anew.
struct Overtaken;

impl<F: Fabric> Recoverer<F> {
    pub(super) fn new(fabric: &F, node: &Arc<Node>) -> Self {
        Self { fabric: fabric.clone(), node: node.clone() }
    }

    /// Recovers after every loss, for ever.
    pub(super) async fn run(self) {
        let changes = self.fabric.view_changes();
        loop {
            let change = changes.wait();
            self.node.learn(self.fabric.view());
            let survivors = self.survivors();
            if self.node.recovery().is_due() && survivors.first() == Some(&self.node.id()) {
                let epoch = self.fabric.view().epoch();
                // If it is overtaken, the next view has come already.
                let _next = self.recover(epoch, &survivors).await;
            }
            change.await;
        }
    }

    /// The nodes that hold shards and have not lost them.
    fn survivors(&self) -> Vec<NodeId> {
        let servers = self.fabric.view().nodes_of(Role::Server);
        servers.filter(|&node| !self.node.lost().contain(node)).collect()
    }

    async fn recover(&self, epoch: Epoch, survivors: &[NodeId]) -> Result<(), Overtaken> {
        let _phase = self.fabric.phase("4.2.1: recovery");
        let mut accounts = Vec::with_capacity(survivors.len());
        for &node in survivors {
            let reply = self.ask(epoch, node, &InView::<REPORT>(epoch)).await?;
            match Account::parse(&mut Reader::new(reply.as_ref())) {
                Ok(account) => accounts.push((node, account)),
                Err(malformed) => panic!("a survivor's account cannot be parsed: {malformed}"),
            }
        }
        let mut resolution = Resolution::of(self.fabric.view(), &accounts, |txn, shard| {
            self.node.must_log_at_primary(txn, shard)
        });
        // Before anybody learns a decision, all have what it needs: else the only survivor that
        // has a record might install it, and be lost with it.
        for (node, records) in std::mem::take(&mut resolution.lacking) {
            let account = &Account { records, ..Account::default() };
            self.ask(epoch, node, &Told::<REPLICATE> { epoch, account }).await?;
        }
        // And before a backup applies and forgets a record, the primary has installed it: a later
        // recovery would find nobody who has it.
        for (node, records) in std::mem::take(&mut resolution.installs) {
            let account = &Account { records, ..Account::default() };
            self.ask(epoch, node, &Told::<INSTALL> { epoch, account }).await?;
        }
        let account = &Account { decisions: resolution.decisions, ..Account::default() };
        for &node in survivors {
            self.ask(epoch, node, &Told::<RESOLVE> { epoch, account }).await?;
        }
        Ok(())
    }

    /// Asks the first NIC engine of a survivor, for as long as the view stays.
    async fn ask<M: Message>(
        &self,
        epoch: Epoch,
        node: NodeId,
        message: &M,
    ) -> Result<F::Payload, Overtaken> {
        loop {
            let to = self.fabric.view().nic_of(node, 0);
            let answered = self.fabric.call(to, message, Timeout::Never).await;
            if self.fabric.view().epoch() != epoch {
                return Err(Overtaken);
            }
            let wait = match answered {
                Ok(reply) => return Ok(reply),
                Err(FabricError::NoResources) => SLOT_WAIT,
                Err(FabricError::Unreachable) => VIEW_WAIT,
                Err(error) => panic!("a survivor refused to recover: {error}"),
            };
            self.fabric.sleep_until(self.fabric.now() + wait).await;
        }
    }
}
