//! The leader of a shard gives its records to a node that comes back, while it serves.
//! (decision 0105)

use std::collections::BTreeSet;
use std::sync::Arc;

use nicol_core::fabric::{Fabric, FabricError, Message, Timeout};
use nicol_core::ids::{EngineId, Epoch, Incarnation, NodeId, ShardId, Side};
use nicol_kit::VIEW_WAIT;

use super::config::SLOT_WAIT;
use super::messages::DRAIN;
use super::messages::copy::{CopiedShard, Copy, CopyRange, Place, parse_range};
use super::messages::recovery::{InView, ReportRecords};
use super::node::Node;
use super::server::declare_if_complete;

/// A shard, the node that catches up, and the life in which it does.
type Task = (ShardId, NodeId, Incarnation);

/// The first NIC engine of each node: it copies the shards that the node leads.
pub(super) struct Copier<F: Fabric> {
    fabric: F,
    node: Arc<Node>,
}

/// A later view has come: what is left to copy begins anew.
struct Overtaken;

impl<F: Fabric> Copier<F> {
    pub(super) fn new(fabric: &F, node: &Arc<Node>) -> Self {
        Self { fabric: fabric.clone(), node: node.clone() }
    }

    /// Copies whatever a view asks for, for ever.
    pub(super) async fn run(self) {
        let changes = self.fabric.view_changes();
        let mut done = BTreeSet::new();
        loop {
            let change = changes.wait();
            self.node.learn(self.fabric.view());
            declare_if_complete(&self.fabric, &self.node);
            for task in self.tasks() {
                if !done.contains(&task) {
                    match self.copy(task).await {
                        Ok(()) => done.insert(task),
                        Err(Overtaken) => break,
                    };
                }
            }
            change.await;
        }
    }

    /// What the view asks of this node.
    fn tasks(&self) -> Vec<Task> {
        let view = self.fabric.view();
        let led = view.led_by(self.node.id()).filter(|&shard| !view.is_lost(shard));
        let of_shard = |shard: ShardId| {
            let newcomers = view.catching_up(shard).iter();
            newcomers.map(move |&to| (shard, to, view.side(to, Side::Nic).incarnation))
        };
        led.flat_map(of_shard).collect()
    }

    async fn copy(&self, (shard, to, _): Task) -> Result<(), Overtaken> {
        let _phase = self.fabric.phase("4.2.1: copy");
        let (epoch, here) = (self.fabric.view().epoch(), self.fabric.here());
        self.drain(epoch, self.fabric.view().joined(to)).await?;
        self.await_decisions(epoch, shard).await?;
        let (host, newcomer) = (EngineId::host(here.node, 0), EngineId::nic(to, 0));
        // The host answers once it has read what stands in its logs.
        self.ask(epoch, host, &ReportRecords::OfLost).await?;
        let mut next = Some(Place::default());
        while let Some(from) = next {
            let range = self.ask(epoch, host, &CopyRange { shard, from }).await?;
            let Ok((behind, records)) = parse_range(range.as_ref()) else {
                panic!("the own host answers with a range of {shard:?}")
            };
            if !records.is_empty() {
                self.ask(epoch, newcomer, &Copy { shard, records }).await?;
            }
            next = behind;
        }
        self.ask(epoch, newcomer, &CopiedShard(shard)).await.map(drop)
    }

    /// Waits until all has ended that began before a view that all members know: what begins since
    /// sends its LOGs to the newcomer.
    async fn drain(&self, epoch: Epoch, before: Epoch) -> Result<(), Overtaken> {
        let view = self.fabric.view();
        let is_up = |engine: &EngineId| {
            engine.side == Side::Nic
                && [Side::Host, Side::Nic].iter().all(|&side| view.side(engine.node, side).up)
        };
        for engine in view.engine_ids().filter(is_up) {
            self.ask(epoch, engine, &InView::<DRAIN>(before)).await?;
        }
        Ok(())
    }

    /// Waits until nothing is undecided that this node has inherited with `shard`.
    async fn await_decisions(&self, epoch: Epoch, shard: ShardId) -> Result<(), Overtaken> {
        let is_settled = || {
            let inherited = self.node.inherited().get(shard);
            inherited.map_or(self.node.is_primary(shard), |one| one.is_settled(|_| false))
        };
        while !is_settled() {
            self.fabric.sleep_until(self.fabric.now() + VIEW_WAIT).await;
            self.check(epoch)?;
        }
        Ok(())
    }

    fn check(&self, epoch: Epoch) -> Result<(), Overtaken> {
        if self.fabric.view().epoch() == epoch { Ok(()) } else { Err(Overtaken) }
    }

    /// Asks an engine, for as long as the view stays.
    async fn ask<M: Message>(
        &self,
        epoch: Epoch,
        to: EngineId,
        message: &M,
    ) -> Result<F::Payload, Overtaken> {
        loop {
            let answered = self.fabric.call(to, message, Timeout::Never).await;
            self.check(epoch)?;
            let wait = match answered {
                Ok(reply) => return Ok(reply),
                Err(FabricError::NoResources) => SLOT_WAIT,
                Err(FabricError::Unreachable) => VIEW_WAIT,
                Err(error) => panic!("a copy was refused: {error}"),
            };
            self.fabric.sleep_until(self.fabric.now() + wait).await;
        }
    }
}
