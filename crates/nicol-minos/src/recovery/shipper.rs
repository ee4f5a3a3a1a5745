//! What a node ships to one that recovers.

use std::ops::RangeInclusive;
use std::rc::Rc;

use nicol_core::fabric::{Fabric, ReplyTo};
use nicol_core::ids::Key;
use nicol_core::wire::Malformed;

use super::PAUSE;
use super::messages::{Page, Ship, Shipped};
use crate::member::Member;
use crate::timestamp::Timestamp;

/// Records of a page.
const PAGE: usize = 24;

/// An engine as one that others copy from.
pub(crate) struct Shipper<F: Fabric> {
    member: Rc<Member<F>>,
}

impl<F: Fabric> Shipper<F> {
    pub(crate) fn new(member: &Rc<Member<F>>) -> Self {
        Self { member: member.clone() }
    }

    /// SHIP: what the asker lacks of the records of this node, once it knows a view in which the
    /// asker is a member. A node that does not serve first has everything that was sent to it in
    /// earlier views: others may have it, and nobody sends it again.
    pub(crate) fn ship_to(self, body: &[u8], to: ReplyTo) -> Result<(), Malformed> {
        let (epoch, keys, own) = Ship::parse(body)?;
        let fabric = self.member.fabric().clone();
        fabric.clone().spawn(async move {
            let node = self.member.node();
            let open = node.begin();
            // An engine that does not know it might complete a write without the asker, behind this
            // page.
            while !(node.knows_epoch(epoch) && (node.is_ready() || node.has_settled())) {
                fabric.sleep_until(fabric.now() + PAUSE).await;
            }
            fabric.access().await;
            fabric.reply(to, &self.page(keys, &own));
            drop(open);
        });
        Ok(())
    }

    fn page(&self, keys: RangeInclusive<Key>, own: &[(Key, Timestamp)]) -> Page {
        let node = self.member.node();
        let (store, ready) = (node.store(), node.is_ready());
        // Also what the asker has and this node has not.
        let mut asked = store.keys(|_| true);
        asked.retain(|key| keys.contains(key));
        let theirs = |key: Key| own.binary_search_by_key(&key, |(key, _)| *key).ok();
        let absent = own.iter().filter(|(key, _)| asked.binary_search(key).is_err());
        let mut absent: Vec<Key> = absent.map(|(key, _)| *key).collect();
        asked.append(&mut absent);
        asked.sort_unstable();
        let tracked = node.config().tracks_durability();
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
        node.note_shipped(own.len(), records.len());
        Page { ready, more, forgotten: store.forgotten(), records }
    }
}
