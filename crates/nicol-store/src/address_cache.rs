//! A coordinator's cache of record addresses in remote tables. [Xenic21 4.1.4: DrTM+H]
//!
//! A cached address lets a coordinator read a record with one READ of its slot instead of a walk.
//! The cache is not notified when the owner moves or deletes a record. The reader detects it by the
//! key word and the checksum of what it reads (`remote_table::Geometry::reread`), drops the address
//! and walks.
//!
//! Bounded and set-associative: a key belongs to one set of eight entries, which evicts by second
//! chance. The content depends on the calls alone. Nothing is allocated after construction.

use std::hint;

use nicol_core::ids::Key;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Entries of a set: two cache lines of 64 bytes.
const WAYS: usize = 8;
/// Seed of the set hash.
const SET_SEED: u64 = 0x5851_f42d_4c95_7f2d;
/// The address of no record.
const NOWHERE: u64 = u64::MAX;

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: Key,
    address: u64,
}

#[derive(Clone, Debug)]
struct Set {
    entries: [Entry; WAYS],
    /// Bit per entry: requested since the clock hand passed.
    used: u8,
    hand: u8,
}

const EMPTY: Set =
    Set { entries: [Entry { key: Key(0), address: NOWHERE }; WAYS], used: 0, hand: 0 };

/// Counters of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Lookups that found an address.
    pub hits: u64,
    /// Lookups that found none.
    pub misses: u64,
    /// Addresses dropped because the record had moved.
    pub stale: u64,
    /// Addresses evicted.
    pub evicted: u64,
}

/// See the module documentation.
#[derive(Clone, Debug)]
pub struct AddressCache {
    sets: Box<[Set]>,
    len: usize,
    counts: CacheCounts,
}

impl AddressCache {
    /// An empty cache of `capacity` addresses, rounded up to whole sets; 0 disables it.
    pub fn new(capacity: usize) -> Self {
        let sets = vec![EMPTY; capacity.div_ceil(WAYS)].into_boxed_slice();
        Self { sets, len: 0, counts: CacheCounts::default() }
    }

    /// Addresses that it can hold.
    pub fn capacity(&self) -> usize {
        self.sets.len() * WAYS
    }

    /// Addresses that it holds.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if it holds no address.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its counters.
    pub fn counts(&self) -> CacheCounts {
        self.counts
    }

    /// Bytes of its memory.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.sets)
    }

    /// The last known address of the record of `key`.
    pub fn get(&mut self, key: Key) -> Option<u64> {
        let found = self.find(key);
        let Some((set, way)) = found else {
            self.counts.misses += 1;
            return None;
        };
        self.counts.hits += 1;
        self.sets[set].used |= 1 << way;
        Some(self.sets[set].entries[way].address)
    }

    /// Caches the address of the record of `key`.
    ///
    /// # Panics
    /// If the address is `u64::MAX`: no region is that large.
    pub fn remember(&mut self, key: Key, address: u64) {
        assert!(address != NOWHERE, "an address lies in a region");
        if self.sets.is_empty() {
            return;
        }
        if let Some((set, way)) = self.find(key) {
            self.sets[set].entries[way].address = address;
            return;
        }
        let at = self.set_of(key);
        let set = &mut self.sets[at];
        let vacant = set.entries.iter().position(|entry| entry.address == NOWHERE);
        let way = vacant.unwrap_or_else(|| set.victim());
        if vacant.is_some() {
            self.len += 1;
        } else {
            self.counts.evicted += 1;
        }
        // Not marked as used: what is asked for once only goes before what is asked for again.
        set.used &= !(1 << way);
        set.entries[way] = Entry { key, address };
    }

    /// Caches the addresses of several records. The cache misses of their sets overlap.
    pub fn remember_several(&mut self, records: &[(Key, u64)]) {
        if self.sets.is_empty() {
            return;
        }
        let sets = records.iter().map(|&(key, _)| &self.sets[self.set_of(key)]);
        // Nothing depends on what is read.
        hint::black_box(sets.fold(0, |seen, set| seen ^ set.used ^ set.entries[0].key.0 as u8));
        records.iter().for_each(|&(key, address)| self.remember(key, address));
    }

    /// Drops the address of `key`, whose record was not there. Returns whether there was one.
    pub fn forget(&mut self, key: Key) -> bool {
        let Some((set, way)) = self.find(key) else { return false };
        self.sets[set].entries[way].address = NOWHERE;
        self.sets[set].used &= !(1 << way);
        self.len -= 1;
        self.counts.stale += 1;
        true
    }

    /// Forgets everything: after a change of view, shards may have other primaries.
    pub fn clear(&mut self) {
        self.sets.fill(EMPTY);
        self.len = 0;
    }

    /// Checks every structural invariant; one line for each violation.
    pub fn check(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut held = 0;
        for (number, set) in self.sets.iter().enumerate() {
            for (way, entry) in set.entries.iter().enumerate() {
                let used = set.used >> way & 1 != 0;
                if entry.address == NOWHERE {
                    if used {
                        lines.push(format!("set {number}: vacant entry {way} counts as used"));
                    }
                    continue;
                }
                held += 1;
                if self.set_of(entry.key) != number {
                    lines.push(format!("set {number}: {:?} is another set's", entry.key));
                }
                if self.find(entry.key) != Some((number, way)) {
                    lines.push(format!("set {number}: {:?} stands twice", entry.key));
                }
            }
        }
        if held != self.len {
            lines.push(format!("found {held} addresses, counted {}", self.len));
        }
        lines
    }

    fn set_of(&self, key: Key) -> usize {
        let hash = xxh3_64_with_seed(&key.0.to_le_bytes(), SET_SEED);
        ((u128::from(hash) * self.sets.len() as u128) >> 64) as usize
    }

    fn find(&self, key: Key) -> Option<(usize, usize)> {
        let at = self.set_of(key);
        let set = self.sets.get(at)?;
        let holds = |entry: &Entry| entry.key == key && entry.address != NOWHERE;
        Some((at, set.entries.iter().position(holds)?))
    }
}

impl Set {
    /// The entry to evict: the first from the clock hand on that was not requested since it passed.
    fn victim(&mut self) -> usize {
        loop {
            let way = self.hand as usize;
            self.hand = (self.hand + 1) % WAYS as u8;
            if self.used & 1 << way == 0 {
                return way;
            }
            self.used &= !(1 << way);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Get(u64),
        Remember(u64, u64),
        Forget(u64),
        Clear,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let key = 0..200u64;
        let step = prop_oneof![
            40 => key.clone().prop_map(Step::Get),
            40 => (key.clone(), 0..1_000u64).prop_map(|(key, at)| Step::Remember(key, at)),
            10 => key.prop_map(Step::Forget),
            1 => Just(Step::Clear),
        ];
        prop::collection::vec(step, 1..400)
    }

    proptest! {
        #[test]
        fn it_holds_the_address_that_was_stored_last(steps in steps(), capacity in 0..100usize) {
            let mut cache = AddressCache::new(capacity);
            let mut told = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Get(key) => {
                        if let Some(address) = cache.get(Key(key)) {
                            prop_assert_eq!(Some(&address), told.get(&key));
                        }
                    }
                    Step::Remember(key, address) => {
                        cache.remember(Key(key), address);
                        told.insert(key, address);
                        let kept = (capacity > 0).then_some(address);
                        prop_assert_eq!(cache.get(Key(key)), kept);
                    }
                    Step::Forget(key) => {
                        let held = cache.get(Key(key)).is_some();
                        prop_assert_eq!(cache.forget(Key(key)), held);
                        told.remove(&key);
                    }
                    Step::Clear => {
                        cache.clear();
                        told.clear();
                    }
                }
                prop_assert_eq!(cache.check(), Vec::<String>::new());
                prop_assert!(cache.len() <= told.len().min(cache.capacity()));
            }
        }
    }

    #[test]
    fn a_key_asked_for_again_outlives_keys_asked_for_once() {
        let mut cache = AddressCache::new(64);
        cache.remember(Key(1), 8);
        for once in 1_000..3_000 {
            assert_eq!(cache.get(Key(1)), Some(8));
            cache.remember(Key(once), once);
            assert_eq!(cache.check(), Vec::<String>::new());
        }
        let counts = cache.counts();
        assert_eq!((cache.len(), counts.hits, counts.misses), (64, 2_000, 0));
        assert_eq!(counts.evicted, 2_001 - 64);
    }

    #[test]
    fn the_same_calls_keep_the_same_addresses() {
        let run = || {
            let mut cache = AddressCache::new(100);
            (0..5_000u64).for_each(|step| cache.remember(Key(step * 7 % 300), step));
            (0..300).map(|key| cache.get(Key(key))).collect::<Vec<_>>()
        };
        assert_eq!(run(), run());
        assert!(run().iter().any(Option::is_some), "it remembered nothing");
    }
}
