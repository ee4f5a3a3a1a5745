//! What survivors do when a view changes: writes under way go on with its members, and what a dead
//! coordinator has left is replayed. AMB-20

use std::rc::Rc;

use nicol_core::fabric::Fabric;
use nicol_core::history::Persistency;
use nicol_core::ids::{Key, Side};
use nicol_core::view::{SideState, View};
use nicol_kit::follow_views;

use super::member::Member;
use super::messages::NO_SCOPE;
use super::record::Record;
use super::tags::Tag;
use super::timestamp::Timestamp;
use super::write::Waiting;

impl<F: Fabric> Member<F> {
    /// Follows the views, for ever.
    pub(super) fn watch_views(self: &Rc<Self>) {
        let member = self.clone();
        self.fabric.spawn(follow_views(self.fabric.clone(), move |view| member.learn(view)));
    }

    /// Another view: every write under way asks its followers of this view, whoever has answered in
    /// an earlier one, because those may have become others.
    fn learn(self: &Rc<Self>, view: &View) {
        let epoch = u64::from(view.epoch().0);
        self.node.note_epoch(self.fabric.here(), epoch);
        self.mark_view();
        for write in self.open_writes() {
            if write.has_sent() && write.epoch.get() < epoch {
                write.again.set(true);
                if write.is_scope_end {
                    self.send_persist(&write);
                } else {
                    self.send_inv(&write);
                }
            }
        }
        let here = self.fabric.here();
        // A node that recovers replays what it must when it has copied everything.
        if here.core == 0 && here.side == self.config().side() && self.node.may_replay() {
            self.fabric.spawn(self.clone().replay_orphans());
        }
    }

    /// Replays every write that is here and whose coordinator is no member of the view any more.
    pub(super) async fn replay_orphans(self: Rc<Self>) {
        let open = self.node.begin();
        let view = self.fabric.view().clone();
        let weak = matches!(self.config().model, Persistency::Event | Persistency::Scope);
        let half_done = |record: &Record| {
            !weak
                && is_orphan(&view, record.volatile_ts)
                && record.glb_durable_ts < record.volatile_ts
        };
        let locked = |record: &Record| record.rd_lock.is_some_and(|owner| is_orphan(&view, owner));
        for key in self.node.store().keys(|record| locked(record) || half_done(record)) {
            let newest = |record: &Record| record.rd_lock.unwrap_or(record.volatile_ts);
            let ts = self.node.store().look(key, newest);
            if is_orphan(&view, ts) {
                self.fabric.spawn(self.clone().replay(key, ts));
            }
        }
        drop(open);
    }

    /// Replays the write of `key` at `ts` if it owns the read lock here, and its coordinator is no
    /// member of the view any more.
    pub(super) fn replay_if_orphan(self: &Rc<Self>, key: Key, ts: Timestamp) {
        let owns = |record: &Record| record.rd_lock == Some(ts);
        let orphan = is_orphan(self.fabric.view(), ts) && self.node.may_replay();
        if orphan && self.node.store().look(key, owns) {
            self.fabric.spawn(self.clone().replay(key, ts));
        }
    }

    /// Replays the write of `key` at `ts`: as its coordinator would have, with the timestamp that
    /// it has, so that it does not matter how many do.
    pub(super) async fn replay(self: Rc<Self>, key: Key, ts: Timestamp) {
        if !self.hooks().replays() {
            return;
        }
        let open = self.node.begin();
        // Its update may still wait for a lock, or in the vFIFO.
        // A lock that was copied, and whose update nobody had, is gone again without one.
        let settled = |record: &Record| {
            record.value_ts >= ts || record.rd_lock != Some(ts) && record.volatile_ts < ts
        };
        self.spin_until(key, settled).await;
        let (value_ts, value) =
            self.node.store().look(key, |record| (record.value_ts, record.value.clone()));
        match value_ts.cmp(&ts) {
            std::cmp::Ordering::Less => drop(open),
            // A replay that is under way asks in every later view, too. Of another one each
            // follower would begin a replay, of which others would, for as long as one node does
            // not answer.
            std::cmp::Ordering::Equal if self.is_open(key, ts) => drop(open),
            std::cmp::Ordering::Equal => {
                let write = self.open_write(key, value, NO_SCOPE, Waiting::Here);
                write.set_ts(ts);
                self.mark(Tag::Replays, key, ts);
                if self.hooks().replays_as_new() {
                    self.issue_again(&write).await;
                }
                write.again.set(true);
                self.send_inv(&write);
                self.complete(&write).await;
                self.end(&write, open);
            }
            std::cmp::Ordering::Greater => {
                // What superseded it completes, and is ordered behind it.
                self.spin_until(key, |record| record.glb_volatile_ts >= ts).await;
                self.release_rd_lock(key, ts).await;
                drop(open);
            }
        }
    }
}

/// Is the life that issued `ts` no member of `view`?
pub(super) fn is_orphan(view: &View, ts: Timestamp) -> bool {
    let alive = SideState { up: true, incarnation: ts.life() };
    ts.version() > 0 && view.side(ts.node(), Side::Host) != alive
}
