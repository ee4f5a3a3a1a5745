//! A node that has crashed and comes back. [MINOS24 III-E, AMB-20]
//!
//! 1. It begins with what its host's memory still holds, if only its NIC has crashed, and else with
//!    what was loaded. It applies its log and its dFIFO in any order, and what is left in the vFIFO
//!    of a NIC that has lived on: each record if it is newer than what is there.
//! 2. As soon as both of its sides are members of the view, it takes part in writes. The host waits
//!    for its NIC: before, nobody would send it what it has not copied.
//! 3. A member that serves ships it every update that it lacks, which it persists as well: what
//!    that member has acknowledged in earlier views is there, and later writes wait for both. If
//!    nobody serves, because everything has crashed, it waits until every server is back and takes
//!    the newest of all their logs, once no update of an earlier view is on its way there.
//! 4. Records that are locked there are locked here until they are not. Where nobody serves, nobody
//!    replays what a dead coordinator has locked: it is complete once everybody has taken the
//!    newest.
//! 5. What only its own log has is a write that never completed: it is locked, and replayed unless
//!    its coordinator lives, which sends it again.
//! 6. It serves.

mod messages;
mod shipper;

use std::rc::Rc;

use nicol_core::fabric::{Fabric, Timeout};
use nicol_core::ids::{EngineId, Key, NodeId};
use nicol_core::medium::MediumWrite;
use nicol_core::units::Nanos;
use nicol_core::view::Role;

use self::messages::{Page, Ship, Shipped};
pub(super) use self::shipper::Shipper;
use super::log::Logged;
use super::member::Member;
use super::messages::{Inv, NO_SCOPE};
use super::node::Node;
use super::record::Record;
use super::survivor::{Survivor, is_orphan};
use super::tags::{EVERY_KEY, Tag, mark, mark_record};
use super::timestamp::Timestamp;

/// How long a node that recovers waits before it tries again.
const PAUSE: Nanos = Nanos::from_micros(50);
/// How long it waits for an answer.
const ANSWER: Timeout = Timeout::After(Nanos::from_millis(2));
/// Timestamps of a request: 4 KiB.
const COMPARED: usize = 256;

/// Applies what the medium of a node has kept: the newest of each record.
pub(super) fn apply_medium<'a>(
    node: &Node,
    medium: impl DoubleEndedIterator<Item = &'a MediumWrite>,
) {
    // Newest first, which is as good as any order.
    for write in medium.rev().filter(|write| write.intact) {
        // A write of a device that tears is checked as a whole; what is no record is of nobody
        // here.
        let Ok(Logged::Update { key, ts, value }) = Logged::parse(&write.bytes) else { continue };
        node.store().change(key, |record| {
            if record.value_ts < ts {
                record.update(ts, value.map(Into::into));
            }
            record.durable_ts = record.durable_ts.max(ts);
        });
    }
}

/// Applies what is left in the vFIFO of a NIC that has lived while its host crashed, as the
/// hardware would have.
pub(super) fn apply_volatile_entries(node: &Node) {
    for entry in node.volatile_entries().take_all() {
        node.store().change(entry.key, |record| {
            if record.value_ts < entry.ts {
                record.update(entry.ts, entry.value);
            }
        });
    }
}

/// An engine whose node recovers.
pub(super) struct Recovery<F: Fabric> {
    member: Rc<Member<F>>,
}

impl<F: Fabric> Recovery<F> {
    pub(super) fn new(member: &Rc<Member<F>>) -> Self {
        Self { member: member.clone() }
    }

    /// Recovers, and then serves.
    pub(super) async fn run(self, has_log: bool) {
        let (fabric, node) = (self.member.fabric(), self.member.node());
        let open = node.begin();
        loop {
            while !(fabric.has_lease() && self.member.views().is_member(fabric.here().node)) {
                self.pause().await;
            }
            if self.copy_records(has_log).await.is_some() {
                break;
            }
            self.pause().await;
        }
        node.serve_again();
        if node.config().forgets {
            node.deletions().begin(node.store().deletions());
        }
        mark(fabric, Tag::Serves, EVERY_KEY, Timestamp::NONE);
        // Coordinators may have died in the meantime, when this node left replays to others.
        fabric.spawn(Survivor::new(&self.member).replay_orphans());
        drop(open);
    }

    fn mark_record(&self, key: Key) {
        mark_record(self.member.fabric(), self.member.node(), key);
    }

    async fn pause(&self) {
        let fabric = self.member.fabric();
        fabric.sleep_until(fabric.now() + PAUSE).await;
    }

    /// Copies every record from a node that serves; else, if every server is back, from all. `None`
    /// if nobody could be copied from.
    async fn copy_records(&self, has_log: bool) -> Option<()> {
        let (fabric, this) = (self.member.fabric(), self.member.node());
        let (view, here) = (fabric.view().clone(), fabric.here().node);
        let others: Vec<NodeId> =
            view.nodes_of(Role::Server).filter(|node| *node != here).collect();
        let members: Vec<NodeId> =
            others.iter().filter(|node| self.member.views().is_member(**node)).copied().collect();
        for &node in &members {
            let nothing = Key(u64::MAX);
            let page = self.ship(node, nothing, nothing, &[]).await;
            if page.is_some_and(|page| page.ready) {
                return self.copy_from(node, true).await;
            }
        }
        if members.len() < others.len() || !has_log {
            return None;
        }
        while !(this.knows_epoch(view.epoch().0.into()) && this.has_settled()) {
            self.pause().await;
        }
        for &node in &members {
            self.copy_from(node, false).await?;
        }
        // Everything that anybody has is here, and nobody has anything else, but for new writes:
        // somebody may have recovered in the meantime.
        let (store, view) = (this.store(), fabric.view());
        let is_new = |ts: Timestamp| ts.version() > 0 && !is_orphan(view, ts);
        for key in store.keys(|_| true) {
            store.change(key, |record| {
                if !is_new(record.value_ts) {
                    record.glb_volatile_ts = record.glb_volatile_ts.max(record.value_ts);
                    record.glb_durable_ts = record.glb_durable_ts.max(record.value_ts);
                }
                record.rd_lock = record.rd_lock.filter(|owner| is_new(*owner));
            });
            self.mark_record(key);
        }
        Some(())
    }

    /// Copies every record of `node` that is newer there; if it serves, replays what only the own
    /// log has.
    async fn copy_from(&self, node: NodeId, serves: bool) -> Option<()> {
        let mut locked = Vec::new();
        let copied = self.copy_and_wait(node, serves, &mut locked).await;
        if copied.is_none() {
            self.forget_locks(&locked);
        }
        copied
    }

    /// The same; `locked` is what it has locked here since it is locked there.
    async fn copy_and_wait(
        &self,
        node: NodeId,
        serves: bool,
        locked: &mut Vec<(Key, Timestamp)>,
    ) -> Option<()> {
        let (mut first, mut seen) = (Key(0), Vec::new());
        // Records that come up later are those of new writes, or are shipped.
        let keys = self.member.node().store().keys(|_| true);
        loop {
            let from = keys.partition_point(|key| *key < first);
            let asked = &keys[from..keys.len().min(from + COMPARED)];
            let whole = from + asked.len() == keys.len();
            let last = asked.last().filter(|_| !whole).copied().unwrap_or(Key(u64::MAX));
            let own: Vec<(Key, Timestamp)> = asked
                .iter()
                .map(|&key| (key, self.member.node().store().look(key, |own| own.value_ts)))
                .collect();
            let page = self.ship(node, first, last, &own).await?;
            self.member.node().store().pass_forgotten(page.forgotten);
            for shipped in &page.records {
                self.take(shipped);
                seen.push((shipped.key, shipped.ts));
                if shipped.owner != Timestamp::NONE {
                    locked.push((shipped.key, shipped.owner));
                }
            }
            let until = match page.records.last() {
                Some(shipped) if page.more => shipped.key,
                _ => last,
            };
            if page.ready {
                self.confirm(own.iter().filter(|(key, _)| *key <= until), &page.records);
            }
            if until.0 == u64::MAX {
                break;
            }
            first = Key(until.0 + 1);
        }
        if serves {
            self.forget_deleted(&seen);
            // Before the locks are waited for: a write that owns one may wait here for what made it
            // obsolete, which is such a replay.
            self.lock_unfinished(&seen);
            self.member.node().has_copied();
            self.member.fabric().spawn(Survivor::new(&self.member).replay_orphans());
        }
        for &(key, _) in &*locked {
            while let Some(owner) = self.owner_at(node, key).await? {
                if !serves && is_orphan(self.member.fabric().view(), owner) {
                    break;
                }
                self.pause().await;
            }
        }
        self.persist_copies().await
    }

    /// Confirms the records that were compared with a serving node and that it has not shipped:
    /// they are equal there, complete, and not locked. A lock that an earlier, failed attempt
    /// copied has been released since, perhaps by a coordinator that did not know this node as a
    /// member.
    fn confirm<'a>(&self, own: impl Iterator<Item = &'a (Key, Timestamp)>, shipped: &[Shipped]) {
        let tracked = self.member.config().tracks_durability();
        for &(key, ts) in own {
            if shipped.binary_search_by_key(&key, |shipped| shipped.key).is_err() {
                self.member.node().store().change(key, |record| {
                    record.glb_volatile_ts = record.glb_volatile_ts.max(ts);
                    if tracked {
                        record.glb_durable_ts = record.glb_durable_ts.max(ts);
                    }
                    record.release_up_to(ts);
                });
                self.mark_record(key);
            }
        }
    }

    /// Releases the locks that were copied of a node that has died: if their updates never reached
    /// this node, they will not come.
    fn forget_locks(&self, locked: &[(Key, Timestamp)]) {
        for &(key, owner) in locked {
            self.member.node().store().change(key, |record| {
                if record.volatile_ts < owner {
                    record.release_rd_lock(owner);
                }
            });
            self.mark_record(key);
        }
    }

    /// Forgets deletions of the own log whose records a node that serves does not have: it has
    /// forgotten them, or they never completed. To whoever reads, both is the same.
    fn forget_deleted(&self, seen: &[(Key, Timestamp)]) {
        let node = self.member.node();
        if !node.config().forgets {
            return;
        }
        for (key, ts) in node.store().deletions() {
            if seen.binary_search(&(key, Timestamp::NONE)).is_ok() {
                let at_rest = |record: &Record| {
                    record.value_ts == ts
                        && record.rd_lock.is_none()
                        && !record.wr_lock
                        && record.open == 0
                };
                node.store().forget(key, ts, at_rest);
            }
        }
    }

    /// Locks the records that are newer here than what was `seen` at a node that serves, in the
    /// order of keys: nobody reads such a write before it is complete. Its coordinator completes
    /// it, or, once that has died, a replay. What was not seen is the same there, or of a new
    /// write.
    fn lock_unfinished(&self, seen: &[(Key, Timestamp)]) {
        let newer = |key: Key, ts: Timestamp| {
            let place = seen.binary_search_by_key(&key, |(key, _)| *key);
            ts.version() > 0 && place.is_ok_and(|place| seen[place].1 < ts)
        };
        let store = self.member.node().store();
        for key in store.keys(|record| record.glb_volatile_ts < record.value_ts) {
            store.change(key, |record| {
                if newer(key, record.value_ts) {
                    record.snatch_rd_lock(record.value_ts);
                }
            });
            self.mark_record(key);
        }
    }

    /// Persists what was copied and is in no log here; `None` if the log device has failed.
    async fn persist_copies(&self) -> Option<()> {
        let store = self.member.node().store();
        for key in store.keys(|record| record.durable_ts < record.value_ts) {
            let (ts, value) = store.look(key, |record| (record.value_ts, record.value.clone()));
            let (write, epoch, scope, again) = (0, 0, NO_SCOPE, true);
            let value = value.as_deref();
            self.member
                .queues()
                .persist(&Inv { write, epoch, key, ts, scope, again, value })
                .await
                .ok()?;
        }
        Some(())
    }

    /// The owner of the record's read lock at `node`. Once the lock is released there, it is
    /// released here, unless a newer write has it.
    async fn owner_at(&self, node: NodeId, key: Key) -> Option<Option<Timestamp>> {
        let page = self.ship(node, key, key, &[]).await?;
        let Some(shipped) = page.records.first() else { return Some(None) };
        self.take(shipped);
        if shipped.owner != Timestamp::NONE {
            return Some(Some(shipped.owner));
        }
        self.member.node().store().change(key, |record| record.release_up_to(shipped.ts));
        self.mark_record(key);
        Some(None)
    }

    /// Takes a record that was shipped, as far as it is newer.
    fn take(&self, shipped: &Shipped) {
        self.member.node().store().change(shipped.key, |record| {
            if record.value_ts < shipped.ts {
                record.volatile_ts = record.volatile_ts.max(shipped.ts);
                record.land(shipped.ts, shipped.value.clone());
            }
            record.glb_volatile_ts = record.glb_volatile_ts.max(shipped.glb_volatile_ts);
            record.glb_durable_ts = record.glb_durable_ts.max(shipped.glb_durable_ts);
            if shipped.owner != Timestamp::NONE {
                record.snatch_rd_lock(shipped.owner);
            } else {
                // Taken from a page of an attempt that has failed, and released there since.
                record.release_up_to(shipped.ts);
            }
        });
        self.mark_record(shipped.key);
    }

    async fn ship(
        &self,
        node: NodeId,
        first: Key,
        last: Key,
        own: &[(Key, Timestamp)],
    ) -> Option<Page> {
        let epoch = self.member.views().epoch();
        let asked = Ship { epoch, first, last, own };
        let answer =
            self.member.fabric().call(EngineId::host(node, 0), &asked, ANSWER).await.ok()?;
        Page::parse(answer.as_ref()).ok()
    }
}
