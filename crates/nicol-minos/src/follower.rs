//! The follower of a write: of MINOS-B, the right side of figures 2 and 3; of MINOS-O, at the
//! SmartNIC.

use std::rc::Rc;

use nicol_core::fabric::{Fabric, FabricError};
use nicol_core::history::Persistency;
use nicol_core::ids::Key;

use super::member::Member;
use super::messages::{Ack, Inv, Reject};
use super::model::{FollowerStep, Memory, ObsoleteStep, Step, Validation};
use super::received::Received;
use super::record::Record;
use super::records::Obsolete;
use super::send::{tell, tell_ack};
use super::survivor::Survivor;
use super::tags::{Tag, mark, mark_received};
use super::timestamp::Timestamp;

/// An engine as a follower of writes.
pub(super) struct Follower<F: Fabric> {
    member: Rc<Member<F>>,
}

impl<F: Fabric> Follower<F> {
    pub(super) fn new(member: &Rc<Member<F>>) -> Self {
        Self { member: member.clone() }
    }

    /// An INV. The steps that depend on the model stand in `model.rs`.
    pub(super) async fn follow(self, received: Received) {
        let (fabric, node) = (self.member.fabric(), self.member.node());
        let open = node.begin();
        let _phase = fabric.phase("line 26: INV");
        if self.member.views().is_current(received.inv.epoch).await {
            mark_received(fabric, Tag::Receives, &received);
            received.updating.replace(Some(node.begin_update()));
            node.enters(received.inv.key);
            if node.config().offload {
                self.follow_offloaded(&received).await;
            } else {
                self.follow_on_host(&received).await;
            }
            received.updating.take();
            // Its coordinator may have died while the update was on its way, and those that replay
            // what it has left may have looked before.
            Survivor::new(&self.member).replay_if_orphan(received.inv.key, received.inv.ts);
            node.leaves(received.inv.key);
        }
        drop(open);
    }

    async fn follow_on_host(&self, received: &Received) {
        // [MINOS24 fig. 2 line 26] INV for key k with TS_WR.
        let (inv, records) = (received.inv(), self.member.records());
        records.look_up();
        if self.has_had(&inv).await {
            return self.acknowledge_again(received).await;
        }
        // [MINOS24 fig. 2 line 27] Is it obsolete?
        if let Some(newer) = records.obsolete(&inv).await {
            // [MINOS24 fig. 2 lines 28 to 30, steps h, i] handleObsolete, ACK.
            return self.acknowledge_obsolete(received, newer).await;
        }
        // [MINOS24 fig. 2 line 31] Snatch RDLock.
        records.snatch_rd_lock(&inv).await;
        // [MINOS24 fig. 2 line 32] Spin for the WRLock.
        let locked = records.spin_for_wr_lock(&inv).await;
        // [MINOS24 fig. 2 line 33] Has it become obsolete since?
        if let Some(newer) = records.obsolete(&inv).await {
            // [MINOS24 fig. 2 line 36] Release the WRLock.
            records.release_wr_lock(locked).await;
            // [MINOS24 fig. 2 lines 37, 38, 40] handleObsolete, ACK.
            return self.acknowledge_obsolete(received, newer).await;
        }
        // [MINOS24 fig. 2 line 34] Update the LLC, and volatileTS.
        records.update_llc(&locked, &inv, &received.value).await;
        // [MINOS24 fig. 2 line 35] Release the WRLock.
        records.release_wr_lock(locked).await;
        // [MINOS24 fig. 2 lines 39, 40, steps j, k] Persist, ACK. Lines 41 to 44 follow with the
        // VAL.
        self.acknowledge(received).await;
    }

    /// An INV: "all the operations are performed in the SmartNIC. The host is not invoked."
    async fn follow_offloaded(&self, received: &Received) {
        // [MINOS24 fig. 8 line 26] INV for key k with TS_WR; rejected for want of resources.
        let (inv, records) = (received.inv(), self.member.records());
        records.look_up();
        if self.has_had(&inv).await {
            return self.acknowledge_again(received).await;
        }
        if self.member.node().volatile_queue().is_full() {
            return self.reject(received);
        }
        // [MINOS24 fig. 8 line 27] Is it obsolete?
        if let Some(newer) = records.obsolete(&inv).await {
            // [MINOS24 fig. 8 lines 28 to 30, steps h, i]
            return self.acknowledge_obsolete(received, newer).await;
        }
        // [MINOS24 fig. 8 line 31] Snatch RDLock.
        records.snatch_rd_lock(&inv).await;
        // [MINOS24 fig. 8 line 34] Enqueue the update in the vFIFO.
        self.member.queues().enqueue_volatile(&inv, &received.value).await;
        // [MINOS24 fig. 8 lines 39, 40, steps j, k] Enqueue it in the dFIFO, ACK.
        self.acknowledge(received).await;
    }

    /// Lines 39 and 40, in the order that the model gives them. Also what the SmartNIC does once
    /// the update is in its vFIFO.
    async fn acknowledge(&self, received: &Received) {
        for &step in self.member.steps().follower {
            match step {
                // [MINOS24 fig. 2 line 39] Persist to NVM. A node whose log device has failed never
                // acknowledges.
                FollowerStep::Persist => {
                    if self.persist(received).await.is_err() {
                        return;
                    }
                }
                FollowerStep::SendAck(memory) => self.send_ack(memory, received),
            }
        }
    }

    async fn persist(&self, received: &Received) -> Result<(), FabricError> {
        self.member.queues().persist(&received.inv()).await?;
        let Inv { key, ts, .. } = received.inv;
        mark(self.member.fabric(), Tag::Marked(Step::Persist), key, ts);
        Ok(())
    }

    /// handleObsolete at the follower, and its ACKs, "as if the write was done".
    /// [MINOS24 fig. 2 lines 23 to 25, 29]
    async fn acknowledge_obsolete(&self, received: &Received, newer: Obsolete) {
        let _phase = self.member.fabric().phase("step h: handleObsolete");
        received.updating.take();
        for &step in self.member.steps().obsolete_at_follower {
            match step {
                ObsoleteStep::Spin(spin) => {
                    self.member.records().spin(spin, &received.inv(), &newer).await;
                }
                ObsoleteStep::SendAck(memory) => self.send_ack(memory, received),
            }
        }
        self.member.node().note_obsolete(&received.inv());
    }

    /// [MINOS24 fig. 2 line 40, steps i, j, k]
    fn send_ack(&self, memory: Memory, received: &Received) {
        let (fabric, node) = (self.member.fabric(), self.member.node());
        let Inv { write, epoch, .. } = received.inv;
        // Who has joined since may have copied this node's records before this update: it is sent
        // again to all members of the newer view, and what is acknowledged there counts.
        if self.member.views().epoch() != epoch {
            return mark_received(fabric, Tag::Withholds(memory), received);
        }
        mark_received(fabric, Tag::Marked(Step::SendAck(memory)), received);
        let strict = node.config().model == Persistency::Strict;
        let last = if strict { Memory::Durable } else { Memory::Volatile };
        if memory == Memory::Both || memory == last {
            node.note_handling(fabric.now().since(received.at));
        }
        tell_ack(fabric, received.from, memory, Ack { write, epoch });
    }

    /// A VAL, VAL_C or VAL_P. [MINOS24 fig. 2 line 41, steps l, m]
    pub(super) async fn validated(self, key: Key, ts: Timestamp, changes: &'static [Validation]) {
        let open = self.member.node().begin();
        let _phase = self.member.fabric().phase("line 41: VAL");
        self.member.records().look_up();
        for &change in changes {
            // [MINOS24 fig. 2 lines 42, 43] "the glb_volatileTS and glb_durableTS are also updated"
            self.member.records().validate(change, key, ts).await;
        }
        // [MINOS24 fig. 2 line 44]
        drop(open);
    }

    /// Whether this node already had the update of an INV that was sent again.
    async fn has_had(&self, inv: &Inv<'_>) -> bool {
        if !inv.again {
            return false;
        }
        self.member.fabric().caught_up().await;
        self.member.node().store().look(inv.key, |record| record.volatile_ts == inv.ts)
    }

    /// Acknowledges an update that is here, once it is durable where that matters. Whether anybody
    /// is about to persist it, nobody knows: a node that recovers may have copied it.
    async fn acknowledge_again(&self, received: &Received) {
        let inv = received.inv();
        mark_received(self.member.fabric(), Tag::HadAlready, received);
        // What came out of the own log is not locked before it is found to be unfinished.
        self.member.records().snatch_rd_lock(&inv).await;
        for &step in self.member.steps().follower {
            match step {
                FollowerStep::Persist => {
                    let there = |record: &Record| record.durable_ts >= inv.ts;
                    let there = self.member.node().store().look(inv.key, there);
                    if !there && self.member.queues().persist(&inv).await.is_err() {
                        return;
                    }
                    mark(self.member.fabric(), Tag::Marked(Step::Persist), inv.key, inv.ts);
                }
                FollowerStep::SendAck(memory) => self.send_ack(memory, received),
            }
        }
    }

    /// Tells the sender to send the INV again later. [MINOS24 V-B1]
    fn reject(&self, received: &Received) {
        let Inv { write, epoch, .. } = received.inv;
        self.member.node().count_rejected();
        mark_received(self.member.fabric(), Tag::Rejects, received);
        tell(self.member.fabric(), received.from, Reject { write, epoch });
    }
}
