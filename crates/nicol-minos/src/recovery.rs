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

use std::ops::RangeInclusive;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use nicol_core::engine::Revival;
use nicol_core::fabric::{Fabric, Message, ReplyTo, Timeout};
use nicol_core::history::Persistency;
use nicol_core::ids::{EngineId, Key, NodeId};
use nicol_core::units::Nanos;
use nicol_core::view::Role;
use nicol_core::wire::{Malformed, Reader, Writer};

use super::log::{Logged, QUEUE_LABEL};
use super::member::Member;
use super::messages::{Inv, NO_SCOPE, SHIP};
use super::node::Node;
use super::tags::{EVERY_KEY, Tag};
use super::timestamp::Timestamp;
use super::value::Value;
use super::views::is_orphan;

/// How long a node that recovers waits before it tries again.
const PAUSE: Nanos = Nanos::from_micros(50);
/// How long it waits for an answer.
const ANSWER: Timeout = Timeout::After(Nanos::from_millis(2));
/// Records of a page.
const PAGE: usize = 24;
/// Timestamps of a request: 4 KiB.
const COMPARED: usize = 256;

/// Asks for what the sender lacks of the records from `first` up to `last`.
// DEVIATION [MINOS24 III-E]: "the log of all the updates that have been committed since the time
// when F stopped responding" is found by comparing timestamps. What F has acknowledged before it
// stopped may not have become durable there in the weak models, so that the time alone does not
// tell what it lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ship<'a> {
    /// The view in which the sender is a member.
    epoch: u64,
    first: Key,
    last: Key,
    /// What the sender has in between, in the order of keys.
    own: &'a [(Key, Timestamp)],
}

impl Message for Ship<'_> {
    const KIND: u16 = SHIP;

    fn emit(&self, to: &mut Writer<'_>) {
        let own = self.own.iter().flat_map(|(key, ts)| [key.0, ts.bits()]);
        [self.epoch, self.first.0, self.last.0]
            .into_iter()
            .chain(own)
            .for_each(|word| to.u64(word));
    }
}

/// The epoch, the keys, and what the sender has of them.
type Asked = (u64, RangeInclusive<Key>, Vec<(Key, Timestamp)>);

impl Ship<'_> {
    fn parse(body: &[u8]) -> Result<Asked, Malformed> {
        let mut reader = Reader::new(body);
        let [epoch, first, last] = reader.u64s()?;
        let mut own = Vec::new();
        while !reader.rest().is_empty() {
            let [key, ts] = reader.u64s()?;
            own.push((Key(key), Timestamp::of_bits(ts)));
        }
        if !own.is_sorted_by_key(|(key, _)| *key) {
            return Err(Malformed { what: "timestamps of records out of order" });
        }
        Ok((epoch, Key(first)..=Key(last), own))
    }
}

/// A record as it is shipped.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shipped {
    key: Key,
    ts: Timestamp,
    glb_volatile_ts: Timestamp,
    glb_durable_ts: Timestamp,
    /// The owner of its read lock; [`Timestamp::NONE`] if it is free.
    owner: Timestamp,
    value: Option<Value>,
}

/// Records of the sender that differ from the receiver's or are under way, in the order of their
/// keys.
#[derive(Debug, PartialEq, Eq)]
struct Page {
    /// Does the sender serve?
    ready: bool,
    /// Are there more?
    more: bool,
    records: Vec<Shipped>,
}

impl Message for Page {
    const KIND: u16 = 25;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u8(u8::from(self.ready));
        to.u8(u8::from(self.more));
        for record in &self.records {
            let times = [record.ts, record.glb_volatile_ts, record.glb_durable_ts, record.owner];
            to.u64(record.key.0);
            times.into_iter().for_each(|ts| to.u64(ts.bits()));
            to.u8(u8::from(record.value.is_some()));
            let value = record.value.as_deref().unwrap_or_default();
            to.u32(value.len() as u32);
            to.bytes(value);
        }
    }
}

impl Page {
    fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let (ready, more) = (reader.u8()? == 1, reader.u8()? == 1);
        let mut records = Vec::new();
        while !reader.rest().is_empty() {
            let [key, times @ ..] = reader.u64s::<5>()?;
            let [ts, glb_volatile_ts, glb_durable_ts, owner] = times.map(Timestamp::of_bits);
            let (present, len) = (reader.u8()? == 1, reader.u32()?);
            let value = reader.bytes(len as usize)?;
            let (key, value) = (Key(key), present.then(|| value.into()));
            records.push(Shipped { key, ts, glb_volatile_ts, glb_durable_ts, owner, value });
        }
        Ok(Self { ready, more, records })
    }
}

/// Applies what the medium of a node has kept: the newest of each record.
pub(super) fn apply_medium(node: &Node, revival: &Revival<'_>) {
    let hooks = node.config().hooks();
    let memory_kept = node.memory_kept.load(Ordering::Acquire);
    // Newest first, which is as good as any order.
    for write in revival.medium.iter().rev().filter(|write| write.intact) {
        if write.label & QUEUE_LABEL != 0 && !hooks.finds_queue(memory_kept) {
            continue;
        }
        // A write of a device that tears is checked as a whole; what is no record is of nobody
        // here.
        let Ok(Logged::Update { key, ts, value }) = Logged::parse(&write.bytes) else { continue };
        node.store().change(key, |record| {
            if hooks.recovers(record.value_ts < ts) {
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

impl<F: Fabric> Member<F> {
    /// Recovers, and then serves.
    pub(super) async fn recover(self: Rc<Self>, has_log: bool) {
        let open = self.node.begin();
        loop {
            while !(self.fabric.has_lease() && self.is_member(self.fabric.here().node)) {
                self.pause().await;
            }
            if self.copy_records(has_log).await.is_some() {
                break;
            }
            self.pause().await;
        }
        self.node.serve_again();
        self.mark(Tag::Serves, EVERY_KEY, Timestamp::NONE);
        // Coordinators may have died in the meantime, when this node left replays to others.
        self.fabric.spawn(self.clone().replay_orphans());
        drop(open);
    }

    async fn pause(&self) {
        self.fabric.sleep_until(self.fabric.now() + PAUSE).await;
    }

    /// Copies every record from a node that serves; else, if every server is back, from all. `None`
    /// if nobody could be copied from.
    async fn copy_records(self: &Rc<Self>, has_log: bool) -> Option<()> {
        let view = self.fabric.view().clone();
        let here = self.fabric.here().node;
        let others: Vec<NodeId> =
            view.nodes_of(Role::Server).filter(|node| *node != here).collect();
        let members: Vec<NodeId> =
            others.iter().filter(|node| self.is_member(**node)).copied().collect();
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
        while !(self.node.knows_epoch(view.epoch().0.into()) && self.node.has_settled()) {
            self.pause().await;
        }
        for &node in &members {
            self.copy_from(node, false).await?;
        }
        // Everything that anybody has is here, and nobody has anything else, but for new writes:
        // somebody may have recovered in the meantime.
        let (store, view) = (self.node.store(), self.fabric.view());
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
    async fn copy_from(self: &Rc<Self>, node: NodeId, serves: bool) -> Option<()> {
        let mut locked = Vec::new();
        let copied = self.copy_and_wait(node, serves, &mut locked).await;
        if copied.is_none() {
            self.forget_locks(&locked);
        }
        copied
    }

    /// The same; `locked` is what it has locked here since it is locked there.
    async fn copy_and_wait(
        self: &Rc<Self>,
        node: NodeId,
        serves: bool,
        locked: &mut Vec<(Key, Timestamp)>,
    ) -> Option<()> {
        let (mut first, mut seen) = (Key(0), Vec::new());
        // Records that come up later are those of new writes, or are shipped.
        let keys = self.node.store().keys(|_| true);
        loop {
            let from = keys.partition_point(|key| *key < first);
            let asked = &keys[from..keys.len().min(from + COMPARED)];
            let whole = from + asked.len() == keys.len();
            let last = asked.last().filter(|_| !whole).copied().unwrap_or(Key(u64::MAX));
            let own: Vec<(Key, Timestamp)> = asked
                .iter()
                .map(|&key| (key, self.node.store().look(key, |own| own.value_ts)))
                .collect();
            let page = self.ship(node, first, last, &own).await?;
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
            // Before the locks are waited for: a write that owns one may wait here for what made it
            // obsolete, which is such a replay.
            self.lock_unfinished(&seen);
            self.node.has_copied();
            self.fabric.spawn(self.clone().replay_orphans());
        }
        for &(key, _) in &*locked {
            while let Some(owner) = self.owner_at(node, key).await? {
                if !serves && is_orphan(self.fabric.view(), owner) {
                    break;
                }
                self.pause().await;
            }
        }
        self.persist_copies().await
    }

    /// What was compared with a node that serves and is not among the records that it has shipped
    /// is the same there, complete, and not locked: a lock that an attempt which failed has copied
    /// was released since, perhaps by a coordinator that did not know this node as a member.
    fn confirm<'a>(&self, own: impl Iterator<Item = &'a (Key, Timestamp)>, shipped: &[Shipped]) {
        let tracked = self.tracks_durability();
        for &(key, ts) in own {
            if shipped.binary_search_by_key(&key, |shipped| shipped.key).is_err() {
                self.node.store().change(key, |record| {
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
            self.node.store().change(key, |record| {
                if record.volatile_ts < owner {
                    record.release_rd_lock(owner);
                }
            });
            self.mark_record(key);
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
        let store = self.node.store();
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
    async fn persist_copies(self: &Rc<Self>) -> Option<()> {
        let store = self.node.store();
        for key in store.keys(|record| record.durable_ts < record.value_ts) {
            let (ts, value) = store.look(key, |record| (record.value_ts, record.value.clone()));
            let (write, epoch, scope, again) = (0, 0, NO_SCOPE, true);
            let value = value.as_deref();
            self.persist(&Inv { write, epoch, key, ts, scope, again, value }).await.ok()?;
        }
        Some(())
    }

    /// Who owns the record's read lock at `node`? Once it has been released there, so it is here,
    /// unless of a newer write.
    async fn owner_at(&self, node: NodeId, key: Key) -> Option<Option<Timestamp>> {
        let page = self.ship(node, key, key, &[]).await?;
        let Some(shipped) = page.records.first() else { return Some(None) };
        self.take(shipped);
        if shipped.owner != Timestamp::NONE {
            return Some(Some(shipped.owner));
        }
        self.node.store().change(key, |record| record.release_up_to(shipped.ts));
        self.mark_record(key);
        Some(None)
    }

    /// Takes a record that was shipped, as far as it is newer.
    fn take(&self, shipped: &Shipped) {
        self.node.store().change(shipped.key, |record| {
            if self.hooks().recovers(record.value_ts < shipped.ts) {
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
        let epoch = u64::from(self.fabric.view().epoch().0);
        let asked = Ship { epoch, first, last, own };
        let answer = self.fabric.call(EngineId::host(node, 0), &asked, ANSWER).await.ok()?;
        Page::parse(answer.as_ref()).ok()
    }

    /// SHIP: what the asker lacks of the records of this node, once it knows a view in which the
    /// asker is a member. A node that does not serve first has everything that was sent to it in
    /// earlier views: others may have it, and nobody sends it again.
    pub(super) fn ship_to(self: &Rc<Self>, body: &[u8], to: ReplyTo) -> Result<(), Malformed> {
        let (epoch, keys, own) = Ship::parse(body)?;
        let member = self.clone();
        self.fabric.spawn(async move {
            let open = member.node.begin();
            // An engine that does not know it might complete a write without the asker, behind this
            // page.
            let node = &member.node;
            while !(node.knows_epoch(epoch) && (node.is_ready() || node.has_settled())) {
                member.pause().await;
            }
            member.fabric.access().await;
            member.fabric.reply(to, &member.page(keys, &own));
            drop(open);
        });
        Ok(())
    }

    /// Does the model tell when an update is durable everywhere?
    fn tracks_durability(&self) -> bool {
        !matches!(self.config().model, Persistency::Event | Persistency::Scope)
    }

    fn page(&self, keys: RangeInclusive<Key>, own: &[(Key, Timestamp)]) -> Page {
        let (store, ready) = (self.node.store(), self.node.is_ready());
        // Also what the asker has and this node has not.
        let mut asked = store.keys(|_| true);
        asked.retain(|key| keys.contains(key));
        let theirs = |key: Key| own.binary_search_by_key(&key, |(key, _)| *key).ok();
        let absent = own.iter().filter(|(key, _)| asked.binary_search(key).is_err());
        let mut absent: Vec<Key> = absent.map(|(key, _)| *key).collect();
        asked.append(&mut absent);
        asked.sort_unstable();
        let tracked = self.tracks_durability();
        asked.retain(|&key| {
            let Some(place) = theirs(key) else { return true };
            store.look(key, |record| {
                let ts = record.value_ts;
                let complete =
                    record.glb_volatile_ts >= ts && (!tracked || record.glb_durable_ts >= ts);
                let same = own[place].1 == ts && record.rd_lock.is_none();
                !same || ready && !complete
            })
        });
        let more = asked.len() > PAGE;
        asked.truncate(PAGE);
        let shipped = |key: Key| {
            store.look(key, |record| Shipped {
                key,
                ts: record.value_ts,
                glb_volatile_ts: record.glb_volatile_ts,
                glb_durable_ts: record.glb_durable_ts,
                owner: record.rd_lock.unwrap_or(Timestamp::NONE),
                value: record.value.clone(),
            })
        };
        let records: Vec<Shipped> = asked.into_iter().map(shipped).collect();
        self.node.note_shipped(own.len(), records.len());
        Page { ready, more, records }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_node_has_is_told_in_order() {
        let own = [(Key(1), Timestamp::of_bits(8)), (Key(4), Timestamp::NONE)];
        let asked = Ship { epoch: 3, first: Key(0), last: Key(9), own: &own };
        let mut body = Vec::new();
        asked.emit(&mut Writer::new(&mut body));
        assert_eq!(Ship::parse(&body), Ok((3, Key(0)..=Key(9), own.to_vec())));
        assert!(Ship::parse(&body[..body.len() - 8]).is_err(), "a key without a timestamp");
        body[24] = 5;
        assert!(Ship::parse(&body).is_err(), "out of order");
    }

    #[test]
    fn pages_survive_the_wire_and_torn_ones_are_refused() {
        let ts = Timestamp::of_bits;
        let record = |key, owner, value: Option<&[u8]>| Shipped {
            key: Key(key),
            ts: ts(5),
            glb_volatile_ts: ts(4),
            glb_durable_ts: ts(3),
            owner: ts(owner),
            value: value.map(Into::into),
        };
        let records = vec![record(1, 0, Some(b"one")), record(2, 7, None)];
        let page = Page { ready: true, more: false, records };
        let mut body = Vec::new();
        page.emit(&mut Writer::new(&mut body));
        assert_eq!(Page::parse(&body), Ok(page));
        assert!(Page::parse(&body[..body.len() - 1]).is_err());
    }
}
