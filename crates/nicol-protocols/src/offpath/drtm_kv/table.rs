//! A server's memory: the index with its chains, the extents, and the values that the SoC keeps.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use nicol_core::ids::Key;
use nicol_core::memory::Region;
use nicol_core::units::Bytes;

use super::config::DrtmKvConfig;
use super::layout::{BUCKET, ENTRIES, Place, emit, extent_bytes};

/// What a server knows of a record besides its memory.
#[derive(Clone, Copy, Debug)]
struct Record {
    /// The word of the index that holds its place.
    word: u64,
    place: Place,
}

/// See the module.
pub(super) struct Table {
    /// Buckets.
    pub(super) index: Arc<Region>,
    /// Extents, in the host's memory.
    pub(super) values: Arc<Region>,
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
        let bytes = config.extents * extent_bytes(config.value_bytes);
        Self {
            index: Arc::new(Region::new(Bytes(buckets * BUCKET))),
            values: Arc::new(Region::new(Bytes(bytes))),
            config: config.clone(),
            records: BTreeMap::new(),
            free: (0..config.extents as u32).collect(),
            next_bucket: config.buckets,
            writing: BTreeSet::new(),
            cache: BTreeMap::new(),
        }
    }

    /// Loads a record; false if there is no space. Nobody reads meanwhile.
    pub(super) fn load(&mut self, key: Key, value: &[u8]) -> bool {
        let Some(extent) = self.free.pop_front() else { return false };
        let place = Place { extent, version: 1 };
        let offset = place.offset(extent_bytes(self.config.value_bytes));
        let Some(word) = self.new_entry(key) else { return false };
        let written = self.values.write(offset, &emit(key, 1, value)).is_ok()
            && self.index.store(word - 8, key.0).is_ok()
            && self.index.store(word, place.word()).is_ok();
        self.records.insert(key, Record { word, place });
        if self.config.alternative.caches() && (self.cache.len() as u64) < self.config.cached {
            self.cache.insert(key, value.to_vec());
        }
        written
    }

    /// The word of a new entry's place in the chain of `key`, which grows if it is full.
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
                    self.index.store(bucket * BUCKET, self.next_bucket + 1).ok()?;
                    self.next_bucket += 1;
                    self.next_bucket - 1
                }
                None => return None,
            };
        }
    }

    /// Where the value of `key` stands.
    pub(super) fn place(&self, key: Key) -> Option<Place> {
        self.records.get(&key).map(|record| record.place)
    }

    /// The value of `key`, if the SoC keeps it.
    pub(super) fn cached(&self, key: Key) -> Option<&[u8]> {
        self.cache.get(&key).map(Vec::as_slice)
    }

    /// Keeps a value that was read at `place`, if that is still current, in the stead of another one
    /// that `draw` picks if there are enough.
    pub(super) fn keep(&mut self, key: Key, place: Place, value: &[u8], draw: u64) {
        let current = self.place(key) == Some(place) && !self.writing.contains(&key);
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

    /// Begins a put of `key`: takes an extent for its next version. `Ok(None)`: another put of it is
    /// under way. `Err`: there is no such record, or no extent is free.
    pub(super) fn begin_put(&mut self, key: Key) -> Result<Option<Place>, Full> {
        let Some(record) = self.records.get(&key) else { return Err(Full) };
        if self.writing.contains(&key) {
            return Ok(None);
        }
        let Some(extent) = self.free.pop_front() else { return Err(Full) };
        self.writing.insert(key);
        Ok(Some(Place { extent, version: record.place.version + 1 }))
    }

    /// Takes `key` out of the cache: was it there? From here on it is not cached before the put ends.
    pub(super) fn forget(&mut self, key: Key) -> bool {
        self.cache.remove(&key).is_some()
    }

    /// The word of the index that holds the place of `key`.
    pub(super) fn word(&self, key: Key) -> Option<u64> {
        self.records.get(&key).map(|record| record.word)
    }

    /// The index has the new place of `key`: ends its put, and frees the old extent if `frees`.
    pub(super) fn end_put(&mut self, key: Key, place: Place, cached: Option<&[u8]>, frees: bool) {
        assert!(self.writing.remove(&key), "a put that ends has begun");
        if let Some(record) = self.records.get_mut(&key) {
            let old = std::mem::replace(&mut record.place, place);
            assert!(old.version < place.version, "a put moves the version forward");
            if frees {
                // Behind all that are free: a reader that still has its place sees another version.
                self.free.push_back(old.extent);
            }
        }
        if let Some(value) = cached {
            self.cache.insert(key, value.to_vec());
        }
    }

    /// A put has failed before the index had it: its extent is free again.
    pub(super) fn drop_put(&mut self, key: Key, place: Place) {
        self.writing.remove(&key);
        self.free.push_back(place.extent);
    }

    /// The value of `key` as memory has it.
    pub(super) fn get(&self, key: Key) -> Option<Vec<u8>> {
        let place = self.place(key)?;
        let bytes = extent_bytes(self.config.value_bytes);
        let mut extent = vec![0; bytes as usize];
        self.values.read(place.offset(bytes), &mut extent).ok()?;
        super::layout::verify(&extent, key, place.version, false).ok().map(<[u8]>::to_vec)
    }

    /// Every key, in ascending order.
    pub(super) fn keys(&self) -> impl Iterator<Item = Key> {
        self.records.keys().copied()
    }

    /// Extents that are neither free nor a record's.
    pub(super) fn lost(&self) -> u64 {
        self.config.extents - self.free.len() as u64 - self.records.len() as u64
    }

    /// Checks its structure; nobody writes meanwhile.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub(super) fn check(&self) {
        assert!(self.writing.is_empty(), "puts under way in a quiet table");
        let mut extents = BTreeSet::new();
        for (key, record) in &self.records {
            assert_eq!(self.index.load(record.word), Ok(record.place.word()), "{key:?}: the index");
            assert!(extents.insert(record.place.extent), "{key:?}: an extent of two records");
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
