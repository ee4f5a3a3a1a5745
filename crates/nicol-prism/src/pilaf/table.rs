//! A server's hash table, as its CPU changes it: one PUT or DELETE at a time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use nicol_core::memory::{AccessError, Region};
use nicol_core::units::Bytes;

use super::config::{Index, PilafConfig};
use super::layout::{ENTRY, Entry, Extent, extent_bytes};
use crate::kv::Hash;
use crate::kv::name::Name;

/// Entries that a cuckoo PUT looks at before it says that the table is full.
const MOVES_MAX: usize = 512;

/// The table and the extents.
pub struct Table {
    pub(super) region: Arc<Region>,
    config: PilafConfig,
    first_extent: u64,
    extent_bytes: u64,
    free: VecDeque<u64>,
}

/// The entry of a key, or a free one for it.
enum Found {
    At(u64, Extent),
    Unused(u64),
    Full,
}

impl Table {
    pub(super) fn new(config: &PilafConfig) -> Self {
        let first_extent = config.entries * ENTRY;
        let extent_bytes = extent_bytes(config.item_bytes);
        let size = first_extent + extent_bytes * config.extents;
        let free = (0..config.extents).map(|extent| first_extent + extent * extent_bytes);
        Self {
            region: Arc::new(Region::new(Bytes(size))),
            config: config.clone(),
            first_extent,
            extent_bytes,
            free: free.collect(),
        }
    }

    /// Reads entry `index`. The CPU's own words are never torn to itself.
    pub(super) fn entry(&self, index: u64) -> Entry {
        let mut bytes = [0; ENTRY as usize];
        let read = self.region.read(index * ENTRY, &mut bytes);
        read.ok().and_then(|()| Entry::parse(&bytes).ok()).unwrap_or(Entry::Unused)
    }

    /// The key and the value of an extent.
    pub(super) fn item(&self, extent: &Extent) -> Option<(Vec<u8>, Vec<u8>)> {
        let mut key = vec![0; extent.len() as usize];
        self.region.read(extent.at, &mut key).ok()?;
        let value = key.split_off(extent.key as usize);
        Some((key, value))
    }

    fn is_key(&self, extent: &Extent, key: &[u8]) -> bool {
        extent.key as usize == key.len() && self.item(extent).is_some_and(|(found, _)| found == key)
    }

    fn find(&self, key: &[u8]) -> Found {
        let mut unused = None;
        for index in probes(&self.config, key) {
            match self.entry(index) {
                Entry::Item(extent) if self.is_key(&extent, key) => {
                    return Found::At(index, extent);
                }
                Entry::Item(_) => {}
                Entry::Deleted => {
                    unused.get_or_insert(index);
                }
                Entry::Unused => {
                    unused.get_or_insert(index);
                    if self.config.index == Index::Probing {
                        break;
                    }
                }
            }
        }
        unused.map_or(Found::Full, Found::Unused)
    }

    /// The value of `key`.
    pub(super) fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        match self.find(key) {
            Found::At(_, extent) => self.item(&extent).map(|(_, value)| value),
            Found::Unused(_) | Found::Full => None,
        }
    }

    /// A free extent for an item of so many bytes.
    pub(super) fn take(&mut self, bytes: usize) -> Option<u64> {
        if bytes as u64 > self.extent_bytes { None } else { self.free.pop_front() }
    }

    /// Gives an extent back that no entry points to.
    pub(super) fn give(&mut self, extent: u64) {
        self.free.push_back(extent);
    }

    /// Lets the entry of `key` point to `extent`, which is written; frees the old one. False if the
    /// table is full.
    pub(super) fn install(&mut self, key: &[u8], extent: Extent) -> Result<bool, AccessError> {
        let (index, replaced) = match self.find(key) {
            Found::At(index, old) => (index, Some(old.at)),
            Found::Unused(index) => (index, None),
            Found::Full => match self.make_room(key)? {
                Some(index) => (index, None),
                None => return Ok(false),
            },
        };
        self.region.write(index * ENTRY, &Entry::Item(extent).emit())?;
        if let Some(old) = replaced {
            self.give(old);
        }
        Ok(true)
    }

    pub(super) fn remove(&mut self, key: &[u8]) -> Result<(), AccessError> {
        let Found::At(index, old) = self.find(key) else { return Ok(()) };
        self.region.write(index * ENTRY, &Entry::Deleted.emit())?;
        self.give(old.at);
        Ok(())
    }

    /// Cuckoo: moves items to their other places until one of the places for `key` is unused. Each
    /// item is copied before its old entry is used again, the last one first, so that none is
    /// missing meanwhile.
    fn make_room(&mut self, key: &[u8]) -> Result<Option<u64>, AccessError> {
        if self.config.index == Index::Probing {
            return Ok(None);
        }
        let mut from: BTreeMap<u64, u64> = BTreeMap::new();
        let mut queue: VecDeque<u64> = probes(&self.config, key).collect();
        let roots: Vec<u64> = queue.iter().copied().collect();
        let mut looked = 0;
        while let Some(index) = queue.pop_front() {
            looked += 1;
            let Entry::Item(extent) = self.entry(index) else {
                return self.move_along(index, &from, &roots).map(Some);
            };
            let Some((resident, _)) = self.item(&extent) else { continue };
            for next in probes(&self.config, &resident) {
                if !roots.contains(&next) && !from.contains_key(&next) && looked < MOVES_MAX {
                    from.insert(next, index);
                    queue.push_back(next);
                }
            }
        }
        Ok(None)
    }

    fn move_along(
        &self,
        unused: u64,
        from: &BTreeMap<u64, u64>,
        roots: &[u64],
    ) -> Result<u64, AccessError> {
        let mut hole = unused;
        while !roots.contains(&hole) {
            let source = from[&hole];
            self.region.write(hole * ENTRY, &self.entry(source).emit())?;
            hole = source;
        }
        self.region.write(hole * ENTRY, &Entry::Deleted.emit())?;
        Ok(hole)
    }

    /// Calls `each` with every item.
    pub(super) fn for_each(&self, each: &mut dyn FnMut(&[u8], &[u8])) {
        for index in 0..self.config.entries {
            if let Entry::Item(extent) = self.entry(index)
                && let Some((key, value)) = self.item(&extent)
            {
                each(&key, &value);
            }
        }
    }

    /// Extents that are leaked: no entry points to them, and they are not free. Call it once quiet.
    pub(super) fn lost(&self) -> u64 {
        let mut used = 0;
        (0..self.config.entries)
            .filter(|&index| matches!(self.entry(index), Entry::Item(_)))
            .for_each(|_| used += 1);
        self.config.extents.saturating_sub(used + self.free.len() as u64)
    }

    /// Checks that extents lie side by side and none is used twice.
    ///
    /// # Panics
    /// If not.
    pub(super) fn check(&self) {
        let mut seen = std::collections::BTreeSet::new();
        for index in 0..self.config.entries {
            if let Entry::Item(extent) = self.entry(index) {
                let from_first = extent.at.wrapping_sub(self.first_extent);
                assert!(from_first.is_multiple_of(self.extent_bytes), "an extent is whole");
                assert!(seen.insert(extent.at), "an extent belongs to one entry");
            }
        }
        assert!(self.free.iter().all(|extent| seen.insert(*extent)), "a free extent is nobody's");
    }
}

/// The entries where `key` may be, in the order of a search.
pub(super) fn probes(config: &PilafConfig, key: &[u8]) -> impl Iterator<Item = u64> + use<> {
    let (name, entries) = (Name::of(key), config.entries);
    let hash = if config.collision_free { Hash::CollisionFree } else { Hash::Probing };
    let (cuckoo, probing) = match config.index {
        Index::Cuckoo => (Some(name.three(entries)), None),
        Index::Probing => (None, Some(name.probes(hash, entries))),
    };
    cuckoo.into_iter().flatten().chain(probing.into_iter().flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(table: &mut Table, key: &[u8], value: &[u8]) -> bool {
        let bytes = [key, value].concat();
        let Some(at) = table.take(bytes.len()) else { return false };
        table.region.write(at, &bytes).unwrap();
        let (key_len, value) = (key.len() as u32, value.len() as u32);
        let extent = Extent { at, key: key_len, value, crc: crc32c::crc32c(&bytes) };
        let done = table.install(key, extent).unwrap();
        if !done {
            table.give(at);
        }
        done
    }

    #[test]
    fn both_kinds_of_tables_hold_what_a_map_holds() {
        for index in [Index::Probing, Index::Cuckoo] {
            let config =
                PilafConfig { index, entries: 64, extents: 80, ..PilafConfig::paper(40, 32) };
            let mut table = Table::new(&config);
            let mut model = BTreeMap::new();
            let mut state = 7_u64;
            for step in 0..4_000_u64 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let key = (state >> 33) % 44;
                let key = format!("key {key}").into_bytes();
                if state >> 60 < 4 {
                    table.remove(&key).unwrap();
                    model.remove(&key);
                } else {
                    let value = step.to_le_bytes().to_vec();
                    if put(&mut table, &key, &value) {
                        model.insert(key.clone(), value);
                    } else {
                        assert!(index == Index::Cuckoo && !model.contains_key(&key));
                    }
                }
                assert_eq!(table.get(&key), model.get(&key).cloned(), "{index:?}, step {step}");
                table.check();
            }
            let mut found = BTreeMap::new();
            table.for_each(&mut |key, value| drop(found.insert(key.to_vec(), value.to_vec())));
            assert_eq!((&found, table.lost()), (&model, 0));
            assert!(model.len() > 25, "{}", model.len());
        }
    }
}
