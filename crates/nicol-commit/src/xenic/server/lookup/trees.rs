//! Keys of ordered tables: the host looks them up in its B+ trees, which no DMA reads.
//! [Xenic21 5.2, 5.6]
//!
//! A NIC asks for the keys that its index does not know, all of a request in one message; but not
//! for those that it knows were never there (`nicol_store::high_water`), such as new orders.

use nicol_core::fabric::{Fabric, FabricError, Message, Timeout, Work};
use nicol_core::ids::{EngineId, Key, Side, Version};
use nicol_core::txn::{RangeVersion, VersionRange};
use nicol_core::wire::{Malformed, Reader, Writer};
use nicol_store::high_water::HighWater;
use nicol_store::host_table::SlotHash;

use super::{Batch, Lookups};
use crate::messages::{Found, parse_value};
use crate::xenic::messages::TREE_LOOKUP;

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

    fn keys(&self, each: &mut dyn FnMut(Key)) {
        self.0.iter().for_each(|asked| each(asked.key));
    }
}

impl<F: Fabric> Lookups<F> {
    /// Answers for a key that the index does not know, at `epoch`: absent at version 0 if it
    /// certainly never had a record, else `None`.
    pub(super) fn confirm_absent(&self, key: Key, epoch: u64) -> Option<Found> {
        self.fabric.work(Work::IndexLookup);
        if !self.node.confirm_absent(key) {
            return None;
        }
        let (hash, version) = (SlotHash::of(key), Version(0));
        // If something was installed in between it may have been this key.
        let current = self.node.index_of(key).learn(hash, key, epoch, version, None);
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
        let high_water = HighWater::of(from.u32()?)
            .ok_or(Malformed { what: "the high-water mark of a group" })?;
        self.node.learn_high_water(asked.key, high_water);
        // The host's count of writes, where it has no record.
        let absent_at = match value {
            Some(_) => None,
            None => Some(RangeVersion { range: VersionRange::of(asked.key), writes: from.u64()? }),
        };
        // While the host was asked the world has moved: what was installed is in the index.
        let now = match self.in_index(asked.key, &mut batch.values) {
            Ok(found) => {
                batch.set(asked.position, found);
                return Ok(true);
            }
            Err(now) => now,
        };
        if absent_at.is_some_and(|version| self.node.may_lack_inserts(asked.key, version)) {
            return Ok(false);
        }
        if now.epoch != asked.epoch {
            asked.epoch = now.epoch;
            return Ok(false);
        }
        let (index, hash) = (self.node.index_of(asked.key), SlotHash::of(asked.key));
        // Above every version at which a local transaction may have seen no record. A node that has
        // come back knows of no deletion before its copy.
        let may_be = version > Version(0) || !self.node.lives().is_first();
        let deleted = value.is_none() && may_be;
        let version = if deleted { version.max(index.floor(hash)) } else { version };
        index.learn(hash, asked.key, now.epoch, version, value.map(|value| (value, 0)));
        let start = batch.values.len() as u32;
        batch.values.extend_from_slice(value.unwrap_or_default());
        let value = value.map(|value| (start, value.len() as u32));
        batch.set(asked.position, Found { version, value });
        Ok(true)
    }
}
