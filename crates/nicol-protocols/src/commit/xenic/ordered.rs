//! Ordered tables: B+ trees, which no DMA reads. [Xenic21 5.2, 5.6]
//!
//! A host that executes a local transaction reads and scans its own trees, each version range under
//! its version, and its NIC says whether the range versions are current (`nicol_store::ordered`). A
//! NIC that executes asks its host for the keys that its index does not know, all of a request in
//! one message; but not for those that it knows were never there (`nicol_store::never`), such as
//! new orders.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use nicol_core::fabric::{Delivery, Fabric, FabricError, Message, Service, Timeout, Work};
use nicol_core::ids::{EngineId, Key, Side, Version};
use nicol_core::txn::{Txn, VersionRange};
use nicol_core::wire::{Malformed, Reader, Writer};
use nicol_store::high_water::HighWater;
use nicol_store::host_table::SlotHash;

use super::host::Coordinator;
use super::lookup::{Batch, Lookups};
use super::messages::TREE_LOOKUP;
use super::node::Node;
use crate::commit::messages::{Found, emit_value, parse_count, parse_value};

/// A key that the index does not know.
pub(super) struct Asked {
    pub(super) position: usize,
    pub(super) key: Key,
    pub(super) epoch: u64,
}

/// TREE_LOOKUP: a NIC asks its host for keys of ordered tables.
struct TreeLookup<'a>(&'a [Asked]);

impl Message for TreeLookup<'_> {
    const KIND: u16 = TREE_LOOKUP;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u16(self.0.len() as u16);
        for asked in self.0 {
            to.u64(asked.key.0);
        }
    }
}

/// The host's answer: version and value of each key, and how far up its group ever had records, in
/// the order asked.
struct TreeReply<'a> {
    node: &'a Node,
    keys: Reader<'a>,
    scratch: &'a RefCell<Vec<u8>>,
}

impl Message for TreeReply<'_> {
    const KIND: u16 = 0;

    fn emit(&self, to: &mut Writer<'_>) {
        let mut keys = self.keys;
        let value = &mut *self.scratch.borrow_mut();
        while let Ok(key) = keys.u64() {
            value.clear();
            let found = self.node.own().get(Key(key), value);
            to.u64(found.version.0);
            emit_value(found.present.then_some(value.as_slice()), to);
            // After the lookup: the mark is at least as high as what was found there.
            to.u32(self.node.own().ordered.high_water(Key(key)).keys());
        }
    }
}

/// What a host engine does for NICs.
pub(super) struct HostService<F: Fabric> {
    fabric: F,
    node: Arc<Node>,
    /// A value on its way from a tree into a reply.
    scratch: RefCell<Vec<u8>>,
}

impl<F: Fabric> HostService<F> {
    pub(super) fn new(fabric: F, node: Arc<Node>) -> Rc<Self> {
        Rc::new(Self { fabric, node, scratch: RefCell::default() })
    }
}

impl<F: Fabric> Service for HostService<F> {
    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        let own = delivery.from.node == self.fabric.here().node;
        let (TREE_LOOKUP, Some(reply_to), true) = (delivery.kind, delivery.reply_to, own) else {
            return Err(Malformed { what: "a message that no host takes" });
        };
        let mut from = Reader::new(delivery.body);
        let count = parse_count(&mut from)?;
        let keys = from;
        for _ in 0..count {
            if !Key(from.u64()?).is_ordered() {
                return Err(Malformed { what: "a key that a NIC reads itself" });
            }
            self.fabric.work(Work::TableLookup);
        }
        from.finish()?;
        self.fabric.reply(reply_to, &TreeReply { node: &self.node, keys, scratch: &self.scratch });
        Ok(())
    }
}

impl<F: Fabric> Lookups<F> {
    /// Answers for a key that the index does not know, at `epoch`: absent at version 0 if it
    /// certainly never had a record, else `None`.
    pub(super) fn confirm_absent(&self, key: Key, epoch: u64) -> Option<Found> {
        self.fabric.work(Work::IndexLookup);
        if !self.node().confirm_absent(key) {
            return None;
        }
        let (hash, version) = (SlotHash::of(key), Version(0));
        // If something was installed in between it may have been this key.
        let current = self.node().index().learn(hash, key, epoch, version, None);
        current.then_some(Found { version, value: None })
    }

    /// Asks the host for the keys that are left, until no install has come in between.
    pub(super) async fn ask_host(&self, batch: &mut Batch<F>) -> Result<(), FabricError> {
        let here = self.fabric.here();
        let hosts = self.fabric.view().engines(here.node, Side::Host);
        let host = EngineId::host(here.node, (usize::from(here.core) % hosts) as u8);
        while !batch.asked.is_empty() {
            let call = self.fabric.call(host, &TreeLookup(&batch.asked), Timeout::Never);
            let reply = call.await?;
            let mut from = Reader::new(reply.as_ref());
            let mut asked = std::mem::take(&mut batch.asked);
            let mut answered = Ok(());
            asked.retain_mut(|asked| match self.answer(asked, &mut from, batch) {
                Ok(is_current) => !is_current,
                Err(malformed) => {
                    answered = Err(malformed);
                    false
                }
            });
            batch.asked = asked;
            answered.map_err(|_| FabricError::Malformed)?;
        }
        Ok(())
    }

    /// Takes the host's answer for one key; false if it must be asked again.
    fn answer(
        &self,
        asked: &mut Asked,
        from: &mut Reader<'_>,
        batch: &mut Batch<F>,
    ) -> Result<bool, Malformed> {
        let (version, len) = (Version(from.u64()?), from.u32()?);
        let value = parse_value(from, len)?;
        let high_water =
            HighWater::of(from.u32()?).ok_or(Malformed { what: "the high_water of a group" })?;
        self.node().learn_high_water(asked.key, high_water);
        // While the host was asked the world has moved: what was installed is in the index.
        let now = match self.in_index(asked.key, &mut batch.values) {
            Ok(found) => {
                batch.set(asked.position, found);
                return Ok(true);
            }
            Err(now) => now,
        };
        if now.epoch != asked.epoch {
            asked.epoch = now.epoch;
            return Ok(false);
        }
        let (index, hash) = (self.node().index(), SlotHash::of(asked.key));
        // Above every version at which a local transaction may have seen no record.
        let deleted = value.is_none() && version > Version(0);
        let version = if deleted { version.max(index.floor(hash)) } else { version };
        index.learn(hash, asked.key, now.epoch, version, value.map(|value| (value, 0)));
        let start = batch.values.len() as u32;
        batch.values.extend_from_slice(value.unwrap_or_default());
        let value = value.map(|value| (start, value.len() as u32));
        batch.set(asked.position, Found { version, value });
        Ok(true)
    }
}

impl<F: Fabric> Coordinator<F> {
    /// Reads a key of an ordered table in local memory, under its range's version.
    pub(super) fn read_ordered(&self, txn: &mut Txn, index: usize, value: &mut Vec<u8>) {
        let key = txn.entries()[index].key;
        txn.note_range_version(self.node.own().ordered.range_version(VersionRange::of(key)));
        let found = self.node.own().get(key, value);
        txn.fetched_in_range(index, found.version, found.present.then_some(value.as_slice()));
    }
}
