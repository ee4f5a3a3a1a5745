//! The follower of MINOS-B: the right side of figures 2 and 3.

use std::rc::Rc;

use nicol_core::fabric::Fabric;
use nicol_core::history::Persistency;
use nicol_core::ids::Key;

use super::local::Obsolete;
use super::member::Member;
use super::messages::{Ack, AckC, AckP, Inv, Reject};
use super::model::Step;
use super::received::Received;
use super::record::Record;
use super::send::tell;
use super::tags::Tag;
use super::timestamp::Timestamp;

impl<F: Fabric> Member<F> {
    /// An INV. The steps that depend on the model stand in `model.rs`.
    pub(super) async fn follow(self: Rc<Self>, received: Received) {
        let open = self.node.begin();
        let _phase = self.fabric.phase("line 26: INV");
        if self.is_of_this_view(received.inv.epoch).await {
            self.mark_received(Tag::Receives, &received);
            received.updating.replace(Some(self.node.begin_update()));
            if self.config().offload {
                self.follow_offloaded(&received).await;
            } else {
                self.follow_on_host(&received).await;
            }
            received.updating.take();
            // Its coordinator may have died while the update was on its way, and those that replay
            // what it has left may have looked before.
            self.replay_if_orphan(received.inv.key, received.inv.ts);
        }
        drop(open);
    }

    async fn follow_on_host(self: &Rc<Self>, received: &Received) {
        // [MINOS24 fig. 2 line 26] INV for key k with TS_WR.
        let inv = received.inv();
        self.look_up();
        if self.has_had(&inv).await {
            return self.acknowledge_again(received).await;
        }
        // [MINOS24 fig. 2 line 27] Is it obsolete?
        if let Some(newer) = self.obsolete(&inv).await {
            // [MINOS24 fig. 2 lines 28 to 30, steps h, i] handleObsolete, ACK.
            return self.acknowledge_obsolete(received, newer).await;
        }
        // [MINOS24 fig. 2 line 31] Snatch RDLock.
        self.snatch_rd_lock(&inv).await;
        // [MINOS24 fig. 2 line 32] Spin for the WRLock.
        let locked = self.spin_for_wr_lock(&inv).await;
        // [MINOS24 fig. 2 line 33] Has it become obsolete since?
        if let Some(newer) = self.obsolete(&inv).await {
            // [MINOS24 fig. 2 line 36] Release the WRLock.
            self.release_wr_lock(locked).await;
            // [MINOS24 fig. 2 lines 37, 38, 40] handleObsolete, ACK.
            return self.acknowledge_obsolete(received, newer).await;
        }
        // [MINOS24 fig. 2 line 34] Update the LLC, and volatileTS.
        self.update_llc(&locked, &inv, &received.value).await;
        // [MINOS24 fig. 2 line 35] Release the WRLock.
        self.release_wr_lock(locked).await;
        // [MINOS24 fig. 2 lines 39, 40, steps j, k] Persist, ACK. Lines 41 to 44 follow with the
        // VAL.
        self.acknowledge(received).await;
    }

    /// Lines 39 and 40, in the order that the model gives them. Also what the SmartNIC does once
    /// the update is in its vFIFO.
    pub(super) async fn acknowledge(self: &Rc<Self>, received: &Received) {
        if self.hooks().releases_early() {
            self.release_rd_lock(received.inv.key, received.inv.ts).await;
        }
        for &step in self.steps.follower {
            match step {
                // [MINOS24 fig. 2 line 39] Persist to NVM. A node whose log device has failed never
                // acknowledges.
                Step::Persist => {
                    if self.persist(&received.inv()).await.is_err() {
                        return;
                    }
                    self.mark(Tag::Marked(step), received.inv.key, received.inv.ts);
                }
                step => self.send_ack(step, received),
            }
        }
    }

    /// handleObsolete at the follower, and its ACKs, "as if the write was done".
    /// [MINOS24 fig. 2 lines 23 to 25, 29]
    pub(super) async fn acknowledge_obsolete(
        self: &Rc<Self>,
        received: &Received,
        newer: Obsolete,
    ) {
        let _phase = self.fabric.phase("step h: handleObsolete");
        received.updating.take();
        for &step in self.steps.obsolete_at_follower {
            match step {
                Step::ConsistencySpin | Step::PersistencySpin => {
                    self.spin(step, &received.inv(), &newer).await;
                }
                step => self.send_ack(step, received),
            }
        }
        self.node.note_obsolete(&received.inv());
    }

    /// [MINOS24 fig. 2 line 40, steps i, j, k]
    fn send_ack(self: &Rc<Self>, step: Step, received: &Received) {
        let Inv { write, epoch, .. } = received.inv;
        // Who has joined since may have copied this node's records before this update: it is sent
        // again to all members of the newer view, and what is acknowledged there counts.
        if self.epoch() != epoch {
            return self.mark_received(Tag::Withholds(step), received);
        }
        self.mark_received(Tag::Marked(step), received);
        let last = if self.config().model == Persistency::Strict {
            Step::SendAckP
        } else {
            Step::SendAckC
        };
        if step == Step::SendAck || step == last {
            self.node.note_handling(self.fabric.now().since(received.at));
        }
        match step {
            Step::SendAck => tell(&self.fabric, received.from, Ack { write, epoch }),
            Step::SendAckC => tell(&self.fabric, received.from, AckC { write, epoch }),
            Step::SendAckP => tell(&self.fabric, received.from, AckP { write, epoch }),
            other => panic!("{other:?} is no step of a follower"),
        }
    }

    /// A VAL, VAL_C or VAL_P. [MINOS24 fig. 2 line 41, steps l, m]
    pub(super) async fn validated(self: Rc<Self>, key: u64, ts: u64, steps: &'static [Step]) {
        let open = self.node.begin();
        let _phase = self.fabric.phase("line 41: VAL");
        let (key, ts) = (Key(key), Timestamp::of_bits(ts));
        self.look_up();
        for &step in steps {
            match step {
                // [MINOS24 fig. 2 lines 42, 43] "the glb_volatileTS and glb_durableTS are also
                // updated"
                Step::RaiseGlobalVolatile => self.raise_glb_volatile(key, ts).await,
                Step::RaiseGlobalDurable => self.raise_glb_durable(key, ts).await,
                Step::ReleaseRdLock => self.release_rd_lock(key, ts).await,
                other => panic!("{other:?} is no step of a VAL"),
            }
        }
        // [MINOS24 fig. 2 line 44]
        drop(open);
    }

    /// Has this node had the update of an INV that was sent again?
    pub(super) async fn has_had(&self, inv: &Inv<'_>) -> bool {
        if !inv.again {
            return false;
        }
        self.fabric.caught_up().await;
        self.node.store().look(inv.key, |record| record.volatile_ts == inv.ts)
    }

    /// Acknowledges an update that is here, once it is durable where that matters. Whether anybody
    /// is about to persist it, nobody knows: a node that recovers may have copied it.
    pub(super) async fn acknowledge_again(self: &Rc<Self>, received: &Received) {
        let inv = received.inv();
        self.mark_received(Tag::HadAlready, received);
        // What came out of the own log is not locked before it is found to be unfinished.
        self.snatch_rd_lock(&inv).await;
        for &step in self.steps.follower {
            match step {
                Step::Persist => {
                    let there = |record: &Record| record.durable_ts >= inv.ts;
                    let there = self.node.store().look(inv.key, there);
                    if !there && self.persist(&inv).await.is_err() {
                        return;
                    }
                    self.mark(Tag::Marked(step), inv.key, inv.ts);
                }
                step => self.send_ack(step, received),
            }
        }
    }

    /// Tells the sender to send the INV again later. [MINOS24 V-B1]
    pub(super) fn reject(self: &Rc<Self>, received: &Received) {
        let Inv { write, epoch, .. } = received.inv;
        self.node.count_rejected();
        self.mark_received(Tag::Rejects, received);
        tell(&self.fabric, received.from, Reject { write, epoch });
    }

    /// Waits until this engine knows the view of `epoch`; false if it knows a later one. What was
    /// sent in an earlier view is sent again in this one, to those that are members of it. AMB-20
    pub(super) async fn is_of_this_view(&self, epoch: u64) -> bool {
        self.knows_view(epoch).await == epoch
    }

    /// The epoch of this engine's view.
    pub(super) fn epoch(&self) -> u64 {
        u64::from(self.fabric.view().epoch().0)
    }

    /// Waits until this engine knows the view of `epoch`, or a later one: its epoch.
    pub(super) async fn knows_view(&self, epoch: u64) -> u64 {
        let changes = self.fabric.view_changes();
        loop {
            let change = changes.wait();
            let own = self.epoch();
            if own >= epoch {
                return own;
            }
            change.await;
        }
    }
}
