//! The [PERSIST]sc transaction: what makes a scope durable. [MINOS24 III-C, figures 3 vii and viii]

use std::rc::Rc;

use nicol_core::fabric::{Fabric, FabricError};
use nicol_core::ids::EngineId;

use super::coordinator::Coordinator;
use super::log::Logged;
use super::member::Member;
use super::messages::{Ack, AckP, Persist, ScopeValP};
use super::record::Record;
use super::send::tell;
use super::tags::{Tag, mark};
use super::timestamp::Timestamp;
use super::write::Write;

/// An engine as what ends scopes.
pub(super) struct ScopeEnd<F: Fabric> {
    member: Rc<Member<F>>,
}

impl<F: Fabric> ScopeEnd<F> {
    pub(super) fn new(member: &Rc<Member<F>>) -> Self {
        Self { member: member.clone() }
    }

    /// Starts the [PERSIST]sc of `scope`: a write that counts the acknowledgements.
    pub(super) fn start(self, scope: u64) -> Rc<Write> {
        let fabric = self.member.fabric().clone();
        let changed = fabric.signal();
        let write = self.member.writes().open(|number| Write::scope_end(number, scope, changed));
        fabric.spawn(self.coordinate(write.clone()));
        write
    }

    async fn coordinate(self, write: Rc<Write>) {
        let (fabric, node) = (self.member.fabric(), self.member.node());
        let coordinator = Coordinator::new(&self.member);
        let open = node.begin();
        let _phase = fabric.phase("[PERSIST]sc");
        let (scope, views) = (write.scope, self.member.views());
        self.mark_scope(Tag::EndsScope, scope);
        // [MINOS24 fig. 3 vii] [PERSIST]sc to every follower.
        self.send_persist(&write);
        match self.complete_scope(scope).await {
            Ok(()) => {
                // [MINOS24 fig. 3 vii] Spin until all [ACK_P]sc have come.
                write.spin_until(Write::is_durable).await;
                // [MINOS24 fig. 3 vii] [VAL_P]sc to every follower.
                views.tell_each(&views.all_followers(), ScopeValP { scope });
                self.mark_scope(Tag::ScopeReturns, scope);
                node.end_scope(scope);
                coordinator.return_to_client(&write);
            }
            Err(_) => write.fail(),
        }
        coordinator.end(&write, open);
    }

    /// Each write of a scope that is here has taken a step.
    fn mark_scope(&self, tag: Tag, scope: u64) {
        let fabric = self.member.fabric();
        if fabric.records_steps() {
            let writes = self.member.node().writes_of(scope);
            writes.into_iter().for_each(|(key, ts)| mark(fabric, tag, key, ts));
        }
    }

    /// Sends [PERSIST]sc to every follower of this view.
    pub(super) fn send_persist(&self, write: &Write) {
        let followers = self.member.views().all_followers();
        Coordinator::new(&self.member).await_acks(write, &followers);
        let (epoch, scope) = (write.epoch.get(), write.scope);
        self.member.views().tell_each(&followers, Persist { write: write.number, epoch, scope });
    }

    /// [PERSIST]sc at a follower.
    pub(super) async fn follow(self, from: EngineId, persist: Persist) {
        let open = self.member.node().begin();
        let _phase = self.member.fabric().phase("[PERSIST]sc: follower");
        let Persist { write, epoch, scope } = persist;
        // [MINOS24 fig. 3 viii] Persist all WRs of the scope, and the [PERSIST]sc; then [ACK_P]sc.
        let is_current = self.member.views().is_current(epoch).await;
        if is_current && self.complete_scope(scope).await.is_ok() {
            tell(self.member.fabric(), from, AckP(Ack { write, epoch }));
        }
        drop(open);
    }

    /// Waits until the writes of a scope that are here are durable, or what superseded them is, and
    /// persists that.
    ///
    /// Errors: the log device has failed, for good.
    async fn complete_scope(&self, scope: u64) -> Result<(), FabricError> {
        for (key, ts) in self.member.node().writes_of(scope) {
            // A record without an update has been forgotten since: its deletion is durable.
            let done =
                |record: &Record| record.durable_ts >= ts || record.volatile_ts == Timestamp::NONE;
            self.member.records().spin_until(key, done).await;
            mark(self.member.fabric(), Tag::ScopeIsDurable, key, ts);
        }
        self.member.queues().persist_record(&Logged::Persist { scope }).await
    }
}
