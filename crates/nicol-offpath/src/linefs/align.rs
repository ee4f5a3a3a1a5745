//! How a node comes to have the files of its head: after a promotion, and when it comes back.
//!
//! The first host engine of each node looks after every view what is due, shard by shard. It asks
//! for the files page by page, makes each page persistent and takes it; then it tells the head. See
//! [`State`](super::standing::State) for what each of them may do meanwhile.

use std::rc::Rc;

use nicol_core::fabric::{Fabric, FabricError, Message, ReplyTo, Timeout, Work};
use nicol_core::ids::{EngineId, Key, NodeId, Side};
use nicol_core::units::Nanos;

use super::member::Member;
use super::messages::{Aligned, Done, Lacking, Ship, Shipped, Slot};
use super::standing::{Due, Shipment, Step};

/// How long a node waits before it tries again what has failed.
const PAUSE: Nanos = Nanos::from_micros(50);
/// How long it waits for an answer.
const ANSWER: Timeout = Timeout::After(Nanos::from_millis(2));
/// Bytes of a page of several blocks at most: a chunk is as long as the shortest may be set to.
const PAGE: usize = 2 << 10;

/// The answer of a member that was asked for files.
enum Copied {
    /// All of them; they are here now.
    All,
    Nothing,
}

/// An engine as what copies the files of a head, and ships its own.
pub(super) struct Alignment<F: Fabric> {
    member: Rc<Member<F>>,
}

impl<F: Fabric> Alignment<F> {
    pub(super) fn new(member: &Rc<Member<F>>) -> Self {
        Self { member: member.clone() }
    }

    /// Does what is due after each view, for ever.
    pub(super) async fn keep_aligned(self) {
        let Member { fabric, node, .. } = &*self.member;
        let changes = fabric.view_changes();
        loop {
            let change = changes.wait();
            node.learn(fabric, fabric.view());
            let dues = node.state().due();
            if dues.is_empty() {
                change.await;
                continue;
            }
            let open = node.begin();
            let mut failed = false;
            for due in &dues {
                let done = match &due.step {
                    Step::Copy { from } => self.copy(due, from).await,
                    Step::Tell => self.tell(due).await,
                };
                failed |= done.is_err();
            }
            drop(open);
            if failed {
                fabric.sleep_until(fabric.now() + PAUSE).await;
            }
        }
    }

    /// Copies the files of a shard from the first of `from` that has them, or gives them up if none
    /// has.
    async fn copy(&self, due: &Due, from: &[NodeId]) -> Result<(), FabricError> {
        let mut failed = Ok(());
        for &node in from {
            match self.copy_from(due, node).await {
                Ok(Copied::All) => return Ok(()),
                Ok(Copied::Nothing) => {}
                Err(error) => failed = Err(error),
            }
        }
        failed.map(|()| self.member.node.state().give_up(due))
    }

    async fn copy_from(&self, due: &Due, node: NodeId) -> Result<Copied, FabricError> {
        let mut first = Key(0);
        loop {
            let Due { shard, epoch, head, .. } = *due;
            let answer = self.ask(node, &Ship { shard, epoch, head, first }).await?;
            let shipped = Shipped::parse(answer.as_ref()).map_err(|_| FabricError::Malformed)?;
            let Some(shipped) = shipped else { return Ok(Copied::Nothing) };
            let page = shipped.page(first).map_err(|_| FabricError::Malformed)?;
            self.make_persistent(shipped.blocks).await?;
            page.records.iter().for_each(|_| self.member.fabric.work(Work::TableApply));
            self.member.fabric.access().await;
            if !self.member.node.state().take(due, first, &page) {
                return Err(FabricError::Unreachable);
            }
            self.member.node.counts.copied(page.records.len());
            match page.last {
                Key(u64::MAX) => return Ok(Copied::All),
                Key(last) => first = Key(last + 1),
            }
        }
    }

    /// Persists blocks that were copied, in the slot that chunks of this engine have elsewhere.
    async fn make_persistent(&self, blocks: &[u8]) -> Result<(), FabricError> {
        let Member { fabric, memory, .. } = &*self.member;
        let here = fabric.here();
        let slot = Slot { node: here.node, core: here.core, slot: 0 };
        let (copies, offset) = (memory.inbox(Side::Host), memory.place_of(Side::Host, slot));
        fabric.work(Work::Copy { bytes: blocks.len() as u32 });
        copies.write(offset, blocks).map_err(|_| FabricError::NoResources)?;
        fabric.persist(copies, offset, blocks.len()).await.map(drop)
    }

    /// Tells the head that its files are here.
    async fn tell(&self, due: &Due) -> Result<(), FabricError> {
        let Due { shard, head, here, .. } = *due;
        self.ask(head.node, &Aligned { shard, head, follower: here }).await?;
        self.member.node.state().told(due);
        Ok(())
    }

    async fn ask<M: Message>(&self, node: NodeId, message: &M) -> Result<F::Payload, FabricError> {
        self.member.fabric.call(EngineId::host(node, 0), message, ANSWER).await
    }

    /// SHIP: sends a page of this node's files, or says that it lacks them.
    pub(super) async fn ship(&self, to: ReplyTo, ship: Ship) {
        let Ship { shard, epoch, head, first } = ship;
        self.member.fabric.access().await;
        let page = self.member.node.state().page(shard, epoch, head, first, PAGE);
        match page {
            Shipment::Page(blocks, last) => {
                self.member.fabric.work(Work::Copy { bytes: blocks.len() as u32 });
                self.member.fabric.reply(to, &Shipped { last, blocks: &blocks });
            }
            Shipment::Lacking => self.member.fabric.reply(to, &Lacking),
            Shipment::Later => self.member.fabric.refuse(to, FabricError::NoResources),
        }
    }

    /// ALIGNED: a follower has the files of this head.
    pub(super) async fn note_follower(&self, to: ReplyTo, aligned: Aligned) {
        let Aligned { shard, head, follower } = aligned;
        self.member.fabric.access().await;
        if self.member.node.state().follow(shard, head, follower) {
            self.member.fabric.reply(to, &Done);
        } else {
            self.member.fabric.refuse(to, FabricError::NoResources);
        }
    }
}
