//! A server's memory: the index with its chains, the extents, and the values that the SoC keeps.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use nicol_core::ids::Key;
use nicol_core::memory::Region;
use nicol_core::units::Bytes;

use super::config::DrtmKvConfig;
use super::layout::{
    BUCKET, ENTRIES, KEPT, VERSION, ValueAddress, copy_stride, emit, extent_bytes, with_kept,
};

/// The server's own knowledge of a record, besides the memory.
#[derive(Clone, Copy, Debug)]
struct Record {
    /// The word of the index that holds its address.
    word: u64,
    address: ValueAddress,
}

/// A server's table: the index with its copies, the extents, and the values that the SoC keeps.
pub struct Table {
    /// Buckets, as many times as there are copies.
    pub(super) index: Arc<Region>,
    /// Extents, in the host's memory.
    pub(super) values: Arc<Region>,
    /// Values that clients READ of the SoC's memory, as they are in extents.
    pub(super) kept: Arc<Region>,
    /// From a copy of the index, and of a kept value, to the next.
    index_stride: u64,
    kept_stride: u64,
    /// The slot of each kept value that clients READ.
    slots: BTreeMap<Key, u32>,
    config: DrtmKvConfig,
    records: BTreeMap<Key, Record>,
    free: VecDeque<u32>,
    next_bucket: u64,
    /// Keys of puts under way, and the extents that they write.
    writing: BTreeSet<Key>,
    cache: BTreeMap<Key, Vec<u8>>,
}

/// The bucket that `key` hashes to.
pub(super) fn bucket_of(key: Key, buckets: u64) -> u64 {
    // SplitMix64's finalizer: rows that count up spread over all buckets.
    let mut hash = key.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (hash ^ hash >> 31) % buckets
}

impl Table {
    pub(super) fn new(config: &DrtmKvConfig) -> Self {
        let buckets = config.buckets + config.spare_buckets;
        let extent = extent_bytes(config.value_bytes);
        let kept = config.kept_bytes();
        let further = config.copies - 1;
        let strides = [buckets * BUCKET, kept].map(copy_stride);
        let [index_stride, kept_stride] = strides;
        let kept_copies = if kept == 0 { 0 } else { further * kept_stride };
        Self {
            index: Arc::new(Region::new(Bytes(further * index_stride + buckets * BUCKET))),
            values: Arc::new(Region::new(Bytes(config.extents * extent))),
            kept: Arc::new(Region::new(Bytes(kept_copies + kept))),
            index_stride,
            kept_stride,
            slots: BTreeMap::new(),
            config: config.clone(),
            records: BTreeMap::new(),
            free: (0..config.extents as u32).collect(),
            next_bucket: config.buckets,
            writing: BTreeSet::new(),
            cache: BTreeMap::new(),
        }
    }

    /// Loads a record; false if there is no space. Requires that nothing reads meanwhile.
    pub(super) fn load(&mut self, key: Key, value: &[u8]) -> bool {
        let Some(extent) = self.free.pop_front() else { return false };
        let address = ValueAddress { extent, version: 1 };
        let offset = address.offset(extent_bytes(self.config.value_bytes));
        let Some(word) = self.new_entry(key) else { return false };
        let written = self.values.write(offset, &emit(key, 1, value)).is_ok()
            && self.store(word - 8, key.0)
            && self.store(word, address.word());
        self.records.insert(key, Record { word, address });
        if self.config.alternative.caches() && (self.cache.len() as u64) < self.config.kept_most() {
            self.cache.insert(key, value.to_vec());
            if self.config.reads_kept() {
                return written && self.load_kept(key, word, value);
            }
        }
        written
    }

    /// Keeps the value of a record that is loaded where clients READ it, and tells so in its
    /// bucket.
    fn load_kept(&mut self, key: Key, word: u64, value: &[u8]) -> bool {
        let slot = self.slots.len() as u32;
        let bucket = word / BUCKET * BUCKET;
        let entry = (word - bucket - 16) / 16;
        let Ok(before) = self.index.load(bucket + KEPT) else { return false };
        self.slots.insert(key, slot);
        self.write_kept(slot, &emit(key, 1, value))
            && self.store(bucket + KEPT, with_kept(before, entry, slot))
    }

    /// Stores a word in every copy of the index.
    fn store(&self, at: u64, word: u64) -> bool {
        self.index_copies(at).all(|at| self.index.store(at, word).is_ok())
    }

    /// The addresses of a word of the index, one in each copy.
    pub(super) fn index_copies(&self, at: u64) -> impl Iterator<Item = u64> + use<> {
        let stride = self.index_stride;
        (0..self.config.copies).map(move |copy| copy * stride + at)
    }

    /// The addresses of a slot's value, one in each copy.
    fn kept_copies(&self, slot: u32) -> impl Iterator<Item = u64> + use<> {
        let (stride, bytes) = (self.kept_stride, extent_bytes(self.config.value_bytes));
        (0..self.config.copies).map(move |copy| copy * stride + u64::from(slot) * bytes)
    }

    fn write_kept(&self, slot: u32, extent: &[u8]) -> bool {
        self.kept_copies(slot).all(|at| self.kept.write(at, extent).is_ok())
    }

    /// The word for the address of a new entry in the chain of `key`, which grows if it is full.
    fn new_entry(&mut self, key: Key) -> Option<u64> {
        let mut bucket = bucket_of(key, self.config.buckets);
        loop {
            for entry in 0..ENTRIES {
                let word = bucket * BUCKET + 16 + entry * 16;
                if self.index.load(word).ok()? == 0 {
                    return Some(word);
                }
            }
            let next = self.index.load(bucket * BUCKET).ok()?;
            bucket = match next.checked_sub(1) {
                Some(next) => next,
                None if self.next_bucket < self.config.buckets + self.config.spare_buckets => {
                    if !self.store(bucket * BUCKET, self.next_bucket + 1) {
                        return None;
                    }
                    self.next_bucket += 1;
                    self.next_bucket - 1
                }
                None => return None,
            };
        }
    }

    /// The address of the value of `key`.
    pub(super) fn address(&self, key: Key) -> Option<ValueAddress> {
        self.records.get(&key).map(|record| record.address)
    }

    /// The value of `key`, if the SoC keeps it.
    pub(super) fn cached(&self, key: Key) -> Option<&[u8]> {
        self.cache.get(&key).map(Vec::as_slice)
    }

    /// Keeps a value that was read at `address`, if that is still current, instead of another one
    /// that `draw` picks if there are enough.
    pub(super) fn keep(&mut self, key: Key, address: ValueAddress, value: &[u8], draw: u64) {
        let current = self.address(key) == Some(address) && !self.writing.contains(&key);
        if !current || self.config.cached == 0 {
            return;
        }
        if self.cache.len() as u64 >= self.config.cached && !self.cache.contains_key(&key) {
            let from = Key(draw);
            let victim = self.cache.range(from..).next().or_else(|| self.cache.iter().next());
            if let Some(victim) = victim.map(|(key, _)| *key) {
                self.cache.remove(&victim);
            }
        }
        self.cache.insert(key, value.to_vec());
    }

    /// Takes a free extent.
    pub(super) fn take_extent(&mut self) -> Option<u32> {
        self.free.pop_front()
    }

    /// Begins a put of `key`: takes an extent for its next version. `Ok(None)`: another put of it
    /// is under way. `Err`: there is no such record, or no extent is free.
    pub(super) fn begin_put(&mut self, key: Key) -> Result<Option<ValueAddress>, Full> {
        let Some(old) = self.address(key) else { return Err(Full) };
        if self.writing.contains(&key) {
            return Ok(None);
        }
        let Some(extent) = self.take_extent() else { return Err(Full) };
        self.writing.insert(key);
        Ok(Some(old.next(extent)))
    }

    /// Takes `key` out of the cache, and returns whether it was there. Until the put ends it is not
    /// cached, and a READ of its slot finds no version of it.
    pub(super) fn forget(&mut self, key: Key) -> bool {
        if let Some(slot) = self.slots.get(&key) {
            let retired =
                self.kept_copies(*slot).all(|at| self.kept.store(at + VERSION, 0).is_ok());
            assert!(retired, "a slot is in its region");
        }
        self.cache.remove(&key).is_some()
    }

    /// The address of `key`, and the word of the index that holds it.
    pub(super) fn entry(&self, key: Key) -> Option<(ValueAddress, u64)> {
        self.records.get(&key).map(|record| (record.address, record.word))
    }

    /// The index has the new address of `key`: ends its put, and frees the old extent.
    pub(super) fn end_put(&mut self, key: Key, address: ValueAddress, cached: Option<&[u8]>) {
        assert!(self.writing.remove(&key), "a put that ends has begun");
        if let Some(record) = self.records.get_mut(&key) {
            let old = std::mem::replace(&mut record.address, address);
            assert_eq!(old.next(address.extent), address, "a put takes the next version");
            // Behind all that are free: a reader that still has its address sees another version.
            self.free.push_back(old.extent);
        }
        // Meanwhile another value may have taken the place in the cache.
        let has_space = (self.cache.len() as u64) < self.config.kept_most();
        if let Some(value) = cached.filter(|_| has_space) {
            self.cache.insert(key, value.to_vec());
            if let Some(slot) = self.slots.get(&key) {
                let kept = self.write_kept(*slot, &emit(key, address.version, value));
                assert!(kept, "a slot is in its region");
            }
        }
    }

    /// A put has failed before the index had it: its extent is free again.
    pub(super) fn drop_put(&mut self, key: Key, address: ValueAddress) {
        self.writing.remove(&key);
        self.free.push_back(address.extent);
    }

    /// The value of `key` as memory has it.
    pub(super) fn get(&self, key: Key) -> Option<Vec<u8>> {
        let address = self.address(key)?;
        let bytes = extent_bytes(self.config.value_bytes);
        let mut extent = vec![0; bytes as usize];
        self.values.read(address.offset(bytes), &mut extent).ok()?;
        super::layout::verify(&extent, key, address.version).ok().map(<[u8]>::to_vec)
    }

    /// Every key, in ascending order.
    pub(super) fn keys(&self) -> impl Iterator<Item = Key> {
        self.records.keys().copied()
    }

    /// Extents that are neither free nor a record's.
    pub(super) fn lost(&self) -> u64 {
        self.config.extents - self.free.len() as u64 - self.records.len() as u64
    }

    /// Checks its structure. Requires that nothing writes meanwhile.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub(super) fn check(&self) {
        assert!(self.writing.is_empty(), "puts under way in a quiet table");
        let mut extents = BTreeSet::new();
        for (key, record) in &self.records {
            for at in self.index_copies(record.word) {
                assert_eq!(self.index.load(at), Ok(record.address.word()), "{key:?}: the index");
            }
            for at in self.slots.get(key).into_iter().flat_map(|slot| self.kept_copies(*slot)) {
                let mut extent = vec![0; extent_bytes(self.config.value_bytes) as usize];
                let read = self.kept.read(at, &mut extent).is_ok();
                let version = record.address.version;
                let found = super::layout::verify(&extent, *key, version);
                assert!(read && found.is_ok(), "{key:?}: what clients READ of the SoC is stale");
            }
            assert!(extents.insert(record.address.extent), "{key:?}: an extent of two records");
            let value = self.get(*key);
            assert!(value.is_some(), "{key:?}: a value that does not verify itself");
            let cached = self.cache.get(key);
            assert!(cached.is_none() || cached == value.as_ref(), "{key:?}: the cache is stale");
        }
        assert!(self.free.iter().all(|extent| extents.insert(*extent)), "a free extent in use");
        assert!(self.cache.len() as u64 <= self.config.cached, "the cache has a limit");
    }
}

/// There is no such record, or no extent is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

#[cfg(test)]
mod tests {
    use nicol_core::ids::TableId;

    use super::super::config::Alternative;
    use super::*;

    #[test]
    fn a_key_outlives_its_last_version() {
        let key = Key::new(TableId(1), 1);
        let mut table = Table::new(&DrtmKvConfig::paper(Alternative::A3, 4, 8));
        assert!(table.load(key, b"loaded"));
        table.records.get_mut(&key).unwrap().address.version = u32::MAX - 1;
        for (version, value) in [(u32::MAX, b"one"), (1, b"two"), (2, b"six")] {
            let address = table.begin_put(key).unwrap().unwrap();
            assert_eq!(address.version, version, "0 names no value");
            assert_eq!(table.begin_put(key), Ok(None), "one put at a time");
            let offset = address.offset(extent_bytes(8));
            table.values.write(offset, &emit(key, version, value)).unwrap();
            let (_, word) = table.entry(key).unwrap();
            assert!(table.store(word, address.word()));
            table.end_put(key, address, None);
            assert_eq!(table.get(key).as_deref(), Some(&value[..]));
            table.check();
        }
    }
}
