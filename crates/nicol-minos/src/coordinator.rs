//! The coordinator of MINOS-B: the left side of figures 2 and 3.

use std::rc::Rc;

use nicol_core::fabric::Fabric;
use nicol_kit::Open;

use super::local::Obsolete;
use super::member::Member;
use super::messages::{Val, ValC, ValP};
use super::model::Step;
use super::record::Record;
use super::tags::Tag;
use super::write::{Waiting, Write};

impl<F: Fabric> Member<F> {
    /// A client-write. The steps that depend on the model stand in `model.rs`.
    pub(super) async fn client_write(self: Rc<Self>, write: Rc<Write>) {
        let open = self.node.begin();
        // [MINOS24 fig. 2 line 4] A client-write to key k: TS_WR.
        self.issue_timestamp(&write).await;
        // [MINOS24 fig. 2 line 5] Is it obsolete already?
        if let Some(newer) = self.obsolete(&write.inv()).await {
            // [MINOS24 fig. 2 line 6, step a] handleObsolete: lines 2 and 3.
            self.handle_obsolete(&write, newer).await;
            // [MINOS24 fig. 2 line 7]
            self.return_to_client(&write);
            return self.end(&write, open);
        }
        // [MINOS24 fig. 2 line 8] Snatch RDLock.
        self.snatch_rd_lock(&write.inv()).await;
        // [MINOS24 fig. 2 line 9] Spin for the WRLock.
        let locked = self.spin_for_wr_lock(&write.inv()).await;
        // [MINOS24 fig. 2 line 10] Has it become obsolete since?
        let sent = match self.obsolete(&write.inv()).await {
            None => {
                // [MINOS24 fig. 2 line 11, step b] INV to every follower, before the own update.
                // AMB-41
                self.send_inv(&write);
                // [MINOS24 fig. 2 line 12] Update the LLC, and volatileTS.
                self.update_llc(&locked, &write.inv(), &write.value).await;
                // [MINOS24 fig. 2 line 13] Release the WRLock.
                self.release_wr_lock(locked).await;
                true
            }
            Some(newer) => {
                // [MINOS24 fig. 2 line 15] Release the WRLock: nothing below needs it.
                self.release_wr_lock(locked).await;
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
            self.release_rd_lock(write.key, write.ts()).await;
            self.return_to_client(&write);
        }
        self.end(&write, open);
    }

    /// Lines 18 to 22, in the order that the model gives them. Also what the SmartNIC does once the
    /// update is in its vFIFO.
    pub(super) async fn complete(self: &Rc<Self>, write: &Rc<Write>) {
        let (key, ts) = (write.key, write.ts());
        let offload = self.config().offload;
        for &step in if offload { self.steps.offloaded } else { self.steps.coordinator } {
            match step {
                // [MINOS24 fig. 2 line 18, step d] Persist to NVM.
                Step::Persist => match self.persist(&write.inv()).await {
                    Ok(()) => write.set_persisted(),
                    Err(_) => return write.fail(),
                },
                Step::PersistInBackground => {
                    self.fabric.spawn(self.clone().persist_own(write.clone()))
                }
                Step::SpinPersisted => write.spin_until(|write| write.is_persisted()).await,
                // [MINOS24 fig. 2 line 19, step e] Spin until all ACKs have come.
                Step::SpinConsistent => self.spin_for_acks(write, Write::is_consistent).await,
                Step::SpinDurable => self.spin_for_acks(write, Write::is_durable).await,
                // "the glb_volatileTS and glb_durableTS are also updated"
                Step::RaiseGlobalVolatile => self.raise_glb_volatile(key, ts).await,
                Step::RaiseGlobalDurable => self.raise_glb_durable(key, ts).await,
                // [MINOS24 fig. 2 lines 20, 21] Release the RDLock, if it is still this write's.
                Step::ReleaseRdLock => self.release_rd_lock(key, ts).await,
                // [MINOS24 fig. 2 line 22, step f] VAL to every follower.
                Step::SendVal => self.send_val(write, Val { key: key.0, ts: ts.bits() }),
                Step::SendValC => self.send_val(write, ValC { key: key.0, ts: ts.bits() }),
                Step::SendValP => self.send_val(write, ValP { key: key.0, ts: ts.bits() }),
                Step::Return => self.return_to_client(write),
                other => panic!("{other:?} is no step of a coordinator"),
            }
            // The others are told of where they change the record.
            let tells = !matches!(
                step,
                Step::RaiseGlobalVolatile
                    | Step::RaiseGlobalDurable
                    | Step::ReleaseRdLock
                    | Step::Return
            );
            if tells {
                self.mark(Tag::Marked(step), key, ts);
            }
        }
    }

    async fn spin_for_acks(&self, write: &Write, come: impl Fn(&Write) -> bool) {
        let _phase = self.fabric.phase("step e: spin for ACKs");
        write.spin_until(come).await;
    }

    /// A new TS_WR. [MINOS24 III-A]
    pub(super) async fn issue_timestamp(&self, write: &Write) {
        let _phase = self.fabric.phase("line 4: TS_WR");
        let (node, life) = (self.fabric.here().node, self.fabric.incarnation());
        let faithful = self.config().errata.timestamps;
        self.look_up();
        // What makes it unique is an atomic counter. AMB-15
        self.fabric.access().await;
        let issue = |record: &mut Record| record.issue(node, life, faithful);
        write.set_ts(self.node.store().change(write.key, issue));
        self.offer_value(write);
        self.mark(Tag::Issues, write.key, write.ts());
    }

    /// handleObsolete at the coordinator. [MINOS24 fig. 2 lines 1 to 3]
    pub(super) async fn handle_obsolete(&self, write: &Write, newer: Obsolete) {
        let _phase = self.fabric.phase("step a, c: handleObsolete");
        for &step in self.steps.obsolete_at_coordinator {
            self.spin(step, &write.inv(), &newer).await;
        }
        self.node.note_obsolete(&write.inv());
    }

    async fn persist_own(self: Rc<Self>, write: Rc<Write>) {
        let open = self.node.begin();
        if self.persist(&write.inv()).await.is_ok() {
            write.set_persisted();
        }
        drop(open);
    }

    /// The client, or the host in its name, is told. In the weak models before the write has ended.
    pub(super) fn return_to_client(&self, write: &Write) {
        write.set_returned();
        if !write.is_scope_end {
            self.mark(Tag::Marked(Step::Return), write.key, write.ts());
        }
        write.exchange().into_iter().for_each(|took| self.node.note_exchange(took));
        if let Waiting::Host(hosts) = &write.waiting {
            let left = std::mem::take(&mut *hosts.borrow_mut());
            left.into_iter().for_each(|(_, host)| self.answer_host(host));
        }
    }

    pub(super) fn end(&self, write: &Write, open: Open) {
        self.close_write(write);
        drop(open);
    }
}
