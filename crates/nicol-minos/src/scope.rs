//! The [PERSIST]sc transaction: what makes a scope durable. [MINOS24 III-C, figures 3 vii and viii]

use std::rc::Rc;

use nicol_core::fabric::{Fabric, FabricError};
use nicol_core::ids::EngineId;

use super::log::Logged;
use super::member::Member;
use super::messages::{AckP, Persist, ScopeValP};
use super::send::tell;
use super::tags::Tag;
use super::write::Write;

impl<F: Fabric> Member<F> {
    /// [PERSIST]sc at its coordinator: `write` counts the acknowledgements.
    pub(super) async fn persist_scope(self: Rc<Self>, write: Rc<Write>) {
        let open = self.node.begin();
        let _phase = self.fabric.phase("[PERSIST]sc");
        let scope = write.scope;
        self.mark_scope(Tag::EndsScope, scope);
        // [MINOS24 fig. 3 vii] [PERSIST]sc to every follower.
        self.send_persist(&write);
        match self.complete_scope(scope).await {
            Ok(()) => {
                // [MINOS24 fig. 3 vii] Spin until all [ACK_P]sc have come.
                write.spin_until(Write::is_durable).await;
                // [MINOS24 fig. 3 vii] [VAL_P]sc to every follower.
                self.tell_each(&self.all_followers(), ScopeValP { scope });
                self.mark_scope(Tag::ScopeReturns, scope);
                self.node.end_scope(scope);
                self.return_to_client(&write);
            }
            Err(_) => write.fail(),
        }
        self.end(&write, open);
    }

    /// Each write of a scope that is here has taken a step.
    fn mark_scope(&self, tag: Tag, scope: u64) {
        if self.fabric.records_steps() {
            let writes = self.node.writes_of(scope);
            writes.into_iter().for_each(|(key, ts)| self.mark(tag, key, ts));
        }
    }

    /// Sends [PERSIST]sc to every follower of this view.
    pub(super) fn send_persist(self: &Rc<Self>, write: &Write) {
        let followers = self.all_followers();
        self.await_acks(write, &followers);
        let (epoch, scope) = (write.epoch.get(), write.scope);
        self.tell_each(&followers, Persist { write: write.number, epoch, scope });
    }

    /// [PERSIST]sc at a follower.
    pub(super) async fn follow_persist(self: Rc<Self>, from: EngineId, persist: Persist) {
        let open = self.node.begin();
        let _phase = self.fabric.phase("[PERSIST]sc: follower");
        let Persist { write, epoch, scope } = persist;
        // [MINOS24 fig. 3 viii] Persist all WRs of the scope, and the [PERSIST]sc; then [ACK_P]sc.
        if self.is_of_this_view(epoch).await && self.complete_scope(scope).await.is_ok() {
            tell(&self.fabric, from, AckP { write, epoch });
        }
        drop(open);
    }

    /// Waits until the writes of a scope that are here are durable, or what superseded them is, and
    /// persists that.
    ///
    /// Errors: the log device has failed, for good.
    async fn complete_scope(self: &Rc<Self>, scope: u64) -> Result<(), FabricError> {
        for (key, ts) in self.node.writes_of(scope) {
            self.spin_until(key, |record| record.durable_ts >= ts).await;
            self.mark(Tag::ScopeIsDurable, key, ts);
        }
        self.persist_record(&Logged::Persist { scope }).await
    }
}
