//! What survivors do when a view changes: writes under way go on with its members, and what a dead
//! coordinator has left is replayed. AMB-20

use std::rc::Rc;

use nicol_core::fabric::Fabric;
use nicol_core::ids::{Key, Side};
use nicol_core::view::{SideState, View};

use super::coordinator::Coordinator;
use super::member::Member;
use super::messages::NO_SCOPE;
use super::record::Record;
use super::scope::ScopeEnd;
use super::tags::{Tag, mark, mark_view};
use super::timestamp::Timestamp;
use super::write::Waiting;
use nicol_kit::follow_views;

/// An engine as one that goes on when others have died.
pub(super) struct Survivor<F: Fabric> {
    member: Rc<Member<F>>,
}

impl<F: Fabric> Clone for Survivor<F> {
    fn clone(&self) -> Self {
        Self::new(&self.member)
    }
}

impl<F: Fabric> Survivor<F> {
    pub(super) fn new(member: &Rc<Member<F>>) -> Self {
        Self { member: member.clone() }
    }

    /// Follows the views, for ever.
    pub(super) fn watch_views(self) {
        let fabric = self.member.fabric().clone();
        fabric.spawn(follow_views(fabric.clone(), move |view| self.learn(view)));
    }

    /// Learns another view: every write under way asks all followers of this view again, also those
    /// that answered in an earlier one, since they may have restarted.
    fn learn(&self, view: &View) {
        let (fabric, node) = (self.member.fabric(), self.member.node());
        let (epoch, here) = (u64::from(view.epoch().0), fabric.here());
        node.note_epoch(here, epoch);
        mark_view(fabric, self.member.views());
        for write in self.member.writes().all() {
            if write.has_sent() && write.epoch.get() < epoch {
                write.again.set(true);
                if write.is_scope_end {
                    ScopeEnd::new(&self.member).send_persist(&write);
                } else {
                    Coordinator::new(&self.member).send_inv(&write);
                }
            }
        }
        // A node that recovers replays what it must when it has copied everything.
        if here.core == 0 && here.side == node.config().side() && node.may_replay() {
            fabric.spawn(self.clone().replay_orphans());
        }
    }

    /// Replays every write that is here and whose coordinator is no member of the view any more.
    pub(super) async fn replay_orphans(self) {
        let (fabric, node) = (self.member.fabric(), self.member.node());
        let open = node.begin();
        let view = fabric.view().clone();
        let tracked = node.config().tracks_durability();
        let half_done = |record: &Record| {
            tracked
                && is_orphan(&view, record.volatile_ts)
                && record.glb_durable_ts < record.volatile_ts
        };
        let locked = |record: &Record| record.rd_lock.is_some_and(|owner| is_orphan(&view, owner));
        for key in node.store().keys(|record| locked(record) || half_done(record)) {
            let newest = |record: &Record| record.rd_lock.unwrap_or(record.volatile_ts);
            let ts = node.store().look(key, newest);
            if is_orphan(&view, ts) {
                fabric.spawn(self.clone().replay(key, ts));
            }
        }
        drop(open);
    }

    /// Replays the write of `key` at `ts` if it owns the read lock here, and its coordinator is no
    /// member of the view any more.
    pub(super) fn replay_if_orphan(&self, key: Key, ts: Timestamp) {
        let (fabric, node) = (self.member.fabric(), self.member.node());
        let owns = |record: &Record| record.rd_lock == Some(ts);
        let orphan = is_orphan(fabric.view(), ts) && node.may_replay();
        if orphan && node.store().look(key, owns) {
            fabric.spawn(self.clone().replay(key, ts));
        }
    }

    /// Replays the write of `key` at `ts`: as its coordinator would have, with the timestamp that
    /// it has, so that it does not matter how many do.
    async fn replay(self, key: Key, ts: Timestamp) {
        let (node, records) = (self.member.node(), self.member.records());
        let coordinator = Coordinator::new(&self.member);
        let open = node.begin();
        node.enters(key);
        // Its update may still wait for a lock, or in the vFIFO.
        // A lock that was copied, and whose update nobody had, is gone again without one.
        let settled = |record: &Record| {
            record.value_ts >= ts || record.rd_lock != Some(ts) && record.volatile_ts < ts
        };
        records.spin_until(key, settled).await;
        let (value_ts, value) =
            node.store().look(key, |record| (record.value_ts, record.value.clone()));
        match value_ts.cmp(&ts) {
            std::cmp::Ordering::Less => drop(open),
            // A replay that is under way asks in every later view, too. Of another one each
            // follower would begin a replay, of which others would, for as long as one node does
            // not answer.
            std::cmp::Ordering::Equal if self.member.writes().is_open(key, ts) => drop(open),
            std::cmp::Ordering::Equal => {
                let write = coordinator.open(key, value, NO_SCOPE, Waiting::Here);
                write.set_ts(ts);
                mark(self.member.fabric(), Tag::Replays, key, ts);
                write.again.set(true);
                coordinator.send_inv(&write);
                coordinator.complete(&write).await;
                coordinator.end(&write, open);
            }
            std::cmp::Ordering::Greater => {
                // What superseded it completes, and is ordered behind it.
                records.spin_until(key, |record| record.glb_volatile_ts >= ts).await;
                records.release_rd_lock(key, ts).await;
                drop(open);
            }
        }
        node.leaves(key);
    }
}

/// Whether the life that issued `ts` is not a member of `view`.
pub(super) fn is_orphan(view: &View, ts: Timestamp) -> bool {
    let alive = SideState { up: true, incarnation: ts.life() };
    ts.version() > 0 && view.side(ts.node(), Side::Host) != alive
}
