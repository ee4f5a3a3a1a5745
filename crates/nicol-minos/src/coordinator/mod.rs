//! The coordinator of a client-write: here of MINOS-B, the left side of figures 2 and 3, and what
//! both forms share; of MINOS-O, at the host in `host.rs` and at the SmartNIC in `offload.rs`.

use std::rc::Rc;

use nicol_core::fabric::Fabric;
use nicol_core::history::Persistency;
use nicol_core::ids::{Key, NodeId};
use nicol_core::units::Nanos;

use super::forget::Forgetter;
use super::member::Member;
use super::messages::{Reject, Val};
use super::model::{Await, CoordinatorStep, Memory, Step};
use super::pcie_messages::{HostAck, RelayInv, RelayVal};
use super::record::Record;
use super::records::Obsolete;
use super::send::{insist, send_reliably, tell_val};
use super::tags::{Tag, mark, mark_invitation};
use super::value::Value;
use super::write::{Waiting, Write};
use nicol_kit::Open;

mod host;
mod offload;

/// How long a coordinator, or a host, waits before it sends an INV again that was rejected.
const REJECT_RETRY: Nanos = Nanos::from_micros(2);

/// An engine as the coordinator of its writes.
pub(super) struct Coordinator<F: Fabric> {
    member: Rc<Member<F>>,
}

impl<F: Fabric> Clone for Coordinator<F> {
    fn clone(&self) -> Self {
        Self::new(&self.member)
    }
}

impl<F: Fabric> Coordinator<F> {
    pub(super) fn new(member: &Rc<Member<F>>) -> Self {
        Self { member: member.clone() }
    }

    /// A write to be coordinated here.
    pub(super) fn open(
        &self,
        key: Key,
        value: Option<Value>,
        scope: u64,
        waiting: Waiting,
    ) -> Rc<Write> {
        let changed = self.member.fabric().signal();
        self.member.node().enters(key);
        self.member.writes().open(|number| Write::new(number, key, value, scope, waiting, changed))
    }

    /// Runs a client-write that was opened here: of MINOS-O, at its host.
    pub(super) fn run(&self, write: &Rc<Write>) {
        let fabric = self.member.fabric();
        if self.member.config().offload {
            fabric.spawn(self.clone().hosted_write(write.clone()));
        } else {
            fabric.spawn(self.clone().client_write(write.clone()));
        }
    }

    /// A client-write. The steps that depend on the model stand in `model.rs`.
    async fn client_write(self, write: Rc<Write>) {
        let open = self.member.node().begin();
        let records = self.member.records();
        // [MINOS24 fig. 2 line 4] A client-write to key k: TS_WR.
        self.issue_timestamp(&write).await;
        // [MINOS24 fig. 2 line 5] Is it obsolete already?
        if let Some(newer) = records.obsolete(&write.inv()).await {
            // [MINOS24 fig. 2 line 6, step a] handleObsolete: lines 2 and 3.
            self.handle_obsolete(&write, newer).await;
            // [MINOS24 fig. 2 line 7]
            self.return_to_client(&write);
            return self.end(&write, open);
        }
        // [MINOS24 fig. 2 line 8] Snatch RDLock.
        records.snatch_rd_lock(&write.inv()).await;
        // [MINOS24 fig. 2 line 9] Spin for the WRLock.
        let locked = records.spin_for_wr_lock(&write.inv()).await;
        // [MINOS24 fig. 2 line 10] Has it become obsolete since?
        let sent = match records.obsolete(&write.inv()).await {
            None => {
                // [MINOS24 fig. 2 line 11, step b] INV to every follower, before the own update.
                // AMB-41
                self.send_inv(&write);
                // [MINOS24 fig. 2 line 12] Update the LLC, and volatileTS.
                records.update_llc(&locked, &write.inv(), &write.value).await;
                // [MINOS24 fig. 2 line 13] Release the WRLock.
                records.release_wr_lock(locked).await;
                true
            }
            Some(newer) => {
                // [MINOS24 fig. 2 line 15] Release the WRLock: nothing below needs it.
                records.release_wr_lock(locked).await;
                // [MINOS24 fig. 2 line 16, step c] handleObsolete.
                self.handle_obsolete(&write, newer).await;
                false
            }
        };
        // [MINOS24 fig. 2 line 17] Were INVs sent?
        if sent {
            // [MINOS24 fig. 2 lines 18 to 22, steps d, e, f]
            self.complete(&write).await;
        } else {
            // [MINOS24 fig. 2 lines 20, 21] It may own the RDLock: release it.
            records.release_rd_lock(write.key, write.ts()).await;
            self.return_to_client(&write);
        }
        self.end(&write, open);
    }

    /// Lines 18 to 22, in the order that the model gives them. Also what the SmartNIC does once the
    /// update is in its vFIFO.
    pub(super) async fn complete(&self, write: &Rc<Write>) {
        let (key, ts) = (write.key, write.ts());
        let (member, steps) = (&self.member, self.member.steps());
        for &step in steps.coordinator {
            match step {
                // [MINOS24 fig. 2 line 18, step d] Persist to NVM.
                CoordinatorStep::Persist => match member.queues().persist(&write.inv()).await {
                    Ok(()) => write.set_persisted(),
                    Err(_) => return write.fail(),
                },
                CoordinatorStep::PersistInBackground => {
                    member.fabric().spawn(self.clone().persist_own(write.clone()));
                }
                // [MINOS24 fig. 2 line 19, step e] Spin until all ACKs have come.
                CoordinatorStep::Await(what) => self.spin_for(write, what).await,
                // "the glb_volatileTS and glb_durableTS are also updated"
                // [MINOS24 fig. 2 lines 20, 21] Release the RDLock, if it is still this write's.
                CoordinatorStep::Validate(change) => {
                    member.records().validate(change, key, ts).await;
                }
                // [MINOS24 fig. 2 line 22, step f] VAL to every follower.
                CoordinatorStep::SendVal(memory) => self.send_val(write, memory),
            }
            // The others are told of where they change the record.
            if !matches!(step, CoordinatorStep::Validate(_)) {
                mark(member.fabric(), Tag::Marked(step.into()), key, ts);
            }
            if steps.returns_after(step, member.config().offload) {
                self.return_to_client(write);
            }
        }
    }

    async fn spin_for(&self, write: &Write, what: Await) {
        let phase = || self.member.fabric().phase("step e: spin for ACKs");
        match what {
            Await::OwnPersist => write.spin_until(Write::is_persisted).await,
            Await::Consistent => {
                let _phase = phase();
                write.spin_until(Write::is_consistent).await;
            }
            Await::Durable => {
                let _phase = phase();
                write.spin_until(Write::is_durable).await;
            }
        }
    }

    /// A new TS_WR. [MINOS24 III-A]
    async fn issue_timestamp(&self, write: &Write) {
        let (fabric, node) = (self.member.fabric(), self.member.node());
        let _phase = fabric.phase("line 4: TS_WR");
        let (here, life) = (fabric.here().node, fabric.incarnation());
        let faithful = node.config().errata.timestamps;
        self.member.records().look_up();
        // What makes it unique is an atomic counter. AMB-15
        fabric.access().await;
        let issue = |record: &mut Record| record.issue(here, life, faithful);
        write.set_ts(node.store().change(write.key, issue));
        self.member.records().offer_value(write);
        mark(fabric, Tag::Issues, write.key, write.ts());
    }

    /// handleObsolete at the coordinator. [MINOS24 fig. 2 lines 1 to 3]
    async fn handle_obsolete(&self, write: &Write, newer: Obsolete) {
        let _phase = self.member.fabric().phase("step a, c: handleObsolete");
        for &spin in self.member.steps().obsolete_at_coordinator {
            self.member.records().spin(spin, &write.inv(), &newer).await;
        }
        self.member.node().note_obsolete(&write.inv());
    }

    async fn persist_own(self, write: Rc<Write>) {
        let open = self.member.node().begin();
        if self.member.queues().persist(&write.inv()).await.is_ok() {
            write.set_persisted();
        }
        drop(open);
    }

    /// The client, or the host in its name, is told. In the weak models before the write has ended.
    pub(super) fn return_to_client(&self, write: &Write) {
        write.set_returned();
        if !write.is_scope_end {
            mark(self.member.fabric(), Tag::Marked(Step::Return), write.key, write.ts());
        }
        write.exchange().into_iter().for_each(|took| self.member.node().note_exchange(took));
        if let Waiting::Host(hosts) = &write.waiting {
            let left = std::mem::take(&mut *hosts.borrow_mut());
            left.into_iter().for_each(|(_, host)| self.member.fabric().reply(host, &HostAck));
        }
    }

    pub(super) fn end(&self, write: &Write, open: Open) {
        self.member.writes().close(write);
        // Of one that was given up nobody knows who has it, or will.
        if !write.is_scope_end && !write.has_failed() {
            self.member.node().leaves(write.key);
            let is_last = self.member.fabric().here().side == self.member.config().side();
            if write.value.is_none() && is_last && self.member.config().forgets {
                Forgetter::new(&self.member).note((write.key, write.ts()));
            }
        }
        drop(open);
    }

    /// Sends the INV of `write` to all its followers.
    pub(super) fn send_inv(&self, write: &Rc<Write>) {
        let followers = self.member.views().followers(write.key);
        self.await_acks(write, &followers);
        self.send_inv_to(write, &followers);
    }

    /// Begins to wait for the ACKs of `followers`.
    pub(super) fn await_acks(&self, write: &Write, followers: &[NodeId]) {
        let fabric = self.member.fabric();
        write.await_acks(self.member.views().epoch(), followers, fabric.now());
        if !write.is_scope_end {
            mark_invitation(fabric, &write.inv());
        }
    }

    /// Sends it to these.
    fn send_inv_to(&self, write: &Rc<Write>, followers: &[NodeId]) {
        let (fabric, config) = (self.member.fabric(), self.member.config());
        if config.relays() && !followers.is_empty() {
            let nic = fabric.view().nic_for(fabric.here(), write.number);
            return fabric.send(nic, &RelayInv { to: followers, inv: write.inv() });
        }
        let peers = self.member.views().peers(followers);
        for to in send_reliably(fabric, &peers, &write.inv(), config.fanout()) {
            let (sender, write) = (fabric.clone(), write.clone());
            fabric.spawn(async move { insist(&sender, to, &write.inv()).await });
        }
    }

    /// Sends the VAL that vouches for `memory` to every follower of the record.
    fn send_val(&self, write: &Write, memory: Memory) {
        let (fabric, config) = (self.member.fabric(), self.member.config());
        let followers = self.member.views().followers(write.key);
        let val = Val { key: write.key.0, ts: write.ts().bits() };
        if config.relays() {
            let nic = fabric.view().nic_for(fabric.here(), write.number);
            return fabric.send(nic, &RelayVal { to: &followers, memory, val });
        }
        tell_val(fabric, &self.member.views().peers(&followers), memory, val, config.fanout());
    }

    /// An ACK has come that vouches for `memory`. Of a write that has ended, or of an earlier life
    /// of this engine, nobody waits for one.
    pub(super) fn acknowledged(&self, from: NodeId, number: u64, epoch: u64, memory: Memory) {
        let (fabric, config) = (self.member.fabric(), self.member.config());
        let Some(write) = self.member.writes().find(number) else { return };
        if from == fabric.here().node {
            // Batched: the SmartNIC has gathered them.
            write.all_acknowledged(epoch, memory);
        } else {
            write.acknowledged(from, epoch, memory);
        }
        if memory.is_volatile() || config.model == Persistency::Strict {
            write.answered(fabric.now());
        }
        if memory.is_volatile() && epoch == write.epoch.get() {
            self.pass_ack(&write, from);
        }
    }

    /// An INV was rejected: it is sent again.
    pub(super) fn rejected(&self, from: NodeId, reject: Reject) {
        let Some(write) = self.member.writes().find(reject.write) else { return };
        let coordinator = self.clone();
        self.member.fabric().spawn(async move {
            let fabric = coordinator.member.fabric();
            fabric.sleep_until(fabric.now() + REJECT_RETRY).await;
            if write.epoch.get() == reject.epoch && write.lacks(from) {
                coordinator.send_inv_to(&write, &[from]);
            }
        });
    }
}
