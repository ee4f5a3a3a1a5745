//! The NIC caching index: locks, versions, hot values and location hints. [Xenic21 4.1.3]
//!
//! One entry per segment of the host table, with a fixed set of cache positions and chained
//! overflow pages. A position names an object: key, lock, version, cached value. A cached object
//! may state that there is no such record (a negative entry). Lock state exists only here.
//!
//! Entries are striped over short mutexes, so that NIC cores that share the NIC's memory can use
//! one index; no mutex is held across a fabric call. When the NIC learns that the host table has
//! doubled (see [`NicIndex::follow`]), each stripe splits its entries likewise, a few per
//! operation.
//!
//! Memory: at most 96 bytes per segment of the host table; per object 64 bytes, its
//! position, a page's share, and its value, of which a vacated object keeps up to 1,024 bytes for
//! the next one. Objects: `cached_objects_max`, and `busy_objects_max` more that are locked or
//! pinned; values: `value_bytes_max`, and those of pinned objects.

mod hints;
mod readers;
mod stripe;

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nicol_core::ids::{Key, TxnId, Version};
use nicol_core::units::Bytes;
use nicol_core::wire::append;

use crate::host_table::{LocatedRecord, PageRef, Progress, SegmentHeader, SlotHash, WalkRange};
pub use hints::{FirstRead, HomesPerHint};
use stripe::{Limits, Stripe};

/// Mutexes that the segments are spread over.
const STRIPES: usize = 64;

/// The index's size and the shape of the table it describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexConfig {
    /// Segments of the host table before it grows.
    pub segments: u64,
    /// Objects that may be cached; pinned and locked ones come on top when they must.
    pub cached_objects_max: usize,
    /// Objects that may come on top; beyond, no lock is granted on a key without an object.
    pub busy_objects_max: usize,
    /// How many homes of a segment share a displacement d_i.
    pub homes_per_hint: HomesPerHint,
    /// Bytes of all values beyond which objects are evicted; those that are pinned or locked stay.
    pub value_bytes_max: usize,
}

/// Why a lock was not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockRefused {
    /// Another transaction holds it.
    Held(TxnId),
    /// It is locked for reading.
    Shared,
    /// Every object is locked or pinned, and there may not be more.
    Full,
}

/// Where an index miss should look in the host table: what is known of the key's segment. All of it
/// may be out of date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hint {
    /// Highest known displacement of objects of the same home, or of its neighbours, d_i.
    pub displacement: u16,
    /// Its first overflow page, if one is known.
    pub overflow: Option<PageRef>,
    /// A segment and its header's move counter as read some time ago. If the counter still has that
    /// value, nothing has moved to the left or away since.
    pub seen: Option<(u64, u64)>,
    /// Changes with every install in the segment, and when the index forgets that a key of it is
    /// absent: see [`NicIndex::learn`].
    pub epoch: u64,
}

/// The index's knowledge of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexLookup {
    /// The current version, and the value or that there is none.
    Hit {
        /// The version.
        version: Version,
        /// Does the record exist?
        present: bool,
    },
    /// It must be read from the host table.
    Miss(Hint),
}

/// See the module documentation.
pub struct NicIndex {
    segments: u64,
    homes_per_hint: HomesPerHint,
    stripes: Vec<Mutex<Stripe>>,
    locked: AtomicUsize,
    pinned: AtomicUsize,
    /// How far the host table has doubled, as far as the NIC knows.
    known: AtomicU64,
}

impl NicIndex {
    /// An empty index.
    pub fn new(config: IndexConfig) -> Self {
        Self::above(config, Version(0))
    }

    /// An empty index of a table that had another one before: the version of every absent key is
    /// `floor` at least.
    pub fn above(config: IndexConfig, floor: Version) -> Self {
        let entries = config.segments.div_ceil(STRIPES as u64);
        let limits = Limits {
            cached: per_stripe(config.cached_objects_max),
            busy: per_stripe(config.busy_objects_max),
            value_bytes: config.value_bytes_max.div_ceil(STRIPES),
        };
        Self {
            segments: config.segments,
            homes_per_hint: config.homes_per_hint,
            stripes: (0..STRIPES)
                .map(|_| Mutex::new(Stripe::new(entries, limits, floor)))
                .collect(),
            locked: AtomicUsize::new(0),
            pinned: AtomicUsize::new(0),
            known: AtomicU64::new(Progress::default().word()),
        }
    }

    /// Objects with values of `value` bytes that the index can cache in `memory`: 64 bytes each, 24
    /// of position and page at most, and the value in whole words.
    pub const fn objects_in(memory: Bytes, value: usize) -> usize {
        memory.0 as usize / (64 + 24 + value.next_multiple_of(8))
    }

    /// Preloads a record of the host table: caches it if that evicts no other, and learns its
    /// displacement.
    pub fn preload(&self, hash: SlotHash, record: &LocatedRecord<'_>) {
        let (mut stripe, number) = self.open(hash);
        let group = self.homes_per_hint.group(hash, self.segments);
        stripe.entry(number).displacements.raise(group, record.displacement);
        if let Some(index) = stripe.add_if_capacity(number, hash, record.key) {
            let object = stripe.object(index);
            object.set_known(record.version, true);
            stripe.set_value(index, record.value);
        }
    }

    /// How far the host table has doubled, as far as the NIC knows; its first reads assume it.
    pub fn known(&self) -> Progress {
        Progress::from_word(self.known.load(Ordering::Relaxed))
    }

    /// Records the host table's growth as seen in a segment's header.
    pub fn follow(&self, progress: Progress) {
        if progress > self.known() {
            self.known.fetch_max(progress.word(), Ordering::Relaxed);
        }
    }

    /// Changes how many objects may be cached. A smaller number takes effect with later operations.
    pub fn set_capacity(&self, cached_objects_max: usize) {
        for stripe in &self.stripes {
            stripe_of(stripe).set_cached_max(per_stripe(cached_objects_max));
        }
    }

    /// Locks `key` for `txn`; granted again to the transaction that holds it.
    pub fn lock(&self, hash: SlotHash, key: Key, txn: TxnId) -> Result<(), LockRefused> {
        let (mut stripe, entry) = self.open(hash);
        let Some(index) = stripe.find_or_add(entry, hash, key) else {
            return Err(LockRefused::Full);
        };
        let object = stripe.object(index);
        match object.holder() {
            Some(holder) if holder != txn => Err(LockRefused::Held(holder)),
            Some(_) => Ok(()),
            None if object.readers > 0 => Err(LockRefused::Shared),
            None => {
                object.set_holder(Some(txn));
                self.locked.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    /// Locks `key` for `txn` in place of `from`, if that one holds it; without `from`, if nobody
    /// does. Never refused for want of space. Returns whether it did.
    pub fn pass_lock(&self, hash: SlotHash, key: Key, from: Option<TxnId>, txn: TxnId) -> bool {
        let (mut stripe, number) = self.open(hash);
        let index = stripe.find_or_force(number, hash, key);
        let object = stripe.object(index);
        if object.holder() != from || object.readers > 0 {
            return false;
        }
        object.set_holder(Some(txn));
        if from.is_none() {
            self.locked.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    /// Unlocks `key` if `txn` holds it; returns whether it did.
    pub fn unlock(&self, hash: SlotHash, key: Key, txn: TxnId) -> bool {
        let (mut stripe, entry) = self.open(hash);
        let Some(index) = stripe.find(entry, hash, key) else { return false };
        let object = stripe.object(index);
        if object.holder() != Some(txn) {
            return false;
        }
        object.set_holder(None);
        self.locked.fetch_sub(1, Ordering::Relaxed);
        // An object made for the lock alone says nothing any more.
        if object.known().is_none() {
            stripe.remove(index);
        }
        stripe.evict();
        true
    }

    /// The transaction that holds `key`.
    pub fn holder(&self, hash: SlotHash, key: Key) -> Option<TxnId> {
        let (mut stripe, entry) = self.open(hash);
        let index = stripe.find(entry, hash, key)?;
        stripe.object(index).holder()
    }

    /// Looks `key` up; a hit's value is appended to `into`.
    pub fn lookup(&self, hash: SlotHash, key: Key, into: &mut Vec<u8>) -> IndexLookup {
        let (mut stripe, entry) = self.open(hash);
        if let Some(index) = stripe.find(entry, hash, key) {
            let object = stripe.object(index);
            object.used = true;
            if let Some((version, present)) = object.known() {
                append(into, object.value());
                return IndexLookup::Hit { version, present };
            }
        }
        let group = self.homes_per_hint.group(hash, self.segments);
        IndexLookup::Miss(stripe.entry(entry).hint(group))
    }

    /// The version of every absent key of the segment that has no object of its own.
    pub fn floor(&self, hash: SlotHash) -> Version {
        let (mut stripe, entry) = self.open(hash);
        stripe.entry(entry).floor
    }

    /// Caches what a DMA read found. Returns whether it is current: it is not if, since the miss
    /// that caused the read (its `epoch`), something was installed in the segment or a negative
    /// entry of it was evicted. A current record is not cached if every object that could be
    /// evicted is locked, pinned or in use.
    pub fn learn(
        &self,
        hash: SlotHash,
        key: Key,
        epoch: u64,
        version: Version,
        found: Option<(&[u8], u16)>,
    ) -> bool {
        let (mut stripe, number) = self.open(hash);
        let entry = stripe.entry(number);
        if let Some((_, displacement)) = found {
            // [Xenic21 4.1.3] d_i learns upward.
            let group = self.homes_per_hint.group(hash, self.segments);
            entry.displacements.raise(group, displacement);
        }
        if entry.epoch != epoch {
            return false;
        }
        if let Some(index) = stripe.find_or_cache(number, hash, key) {
            let object = stripe.object(index);
            if object.known().is_none() {
                object.set_known(version, found.is_some());
                stripe.set_value(index, found.map_or(&[], |(value, _)| value));
            }
        } else if found.is_none() {
            stripe.forget_absent(number, version);
        }
        true
    }

    /// Stores the header of the host table's segment `segment` as a hint.
    pub fn learn_header(&self, hash: SlotHash, segment: u64, header: &SegmentHeader) {
        let (mut stripe, number) = self.open(hash);
        let entry = stripe.entry(number);
        entry.overflow = header.overflow;
        entry.seen = (segment, header.moves);
    }

    /// Applies a COMMIT: the new value, or `None` for a deletion. Pins the object until the host
    /// has applied it (see [`NicIndex::unpin`]). Never refused, because the key was locked before.
    ///
    /// # Panics
    /// If the version does not move forward: a write-set key is locked from EXECUTE to COMMIT.
    pub fn install(&self, hash: SlotHash, key: Key, version: Version, value: Option<&[u8]>) {
        let (mut stripe, number) = self.open(hash);
        let index = stripe.find_or_force(number, hash, key);
        let object = stripe.object(index);
        if let Some((known, _)) = object.known() {
            assert!(version > known, "a COMMIT moves the version forward");
        }
        object.set_known(version, value.is_some());
        object.pins += 1;
        object.used = true;
        stripe.set_value(index, value.unwrap_or_default());
        let entry = stripe.entry(number);
        entry.epoch += 1;
        if value.is_none() {
            entry.floor = entry.floor.max(version);
        }
        self.pinned.fetch_add(1, Ordering::Relaxed);
    }

    /// Forgets what is known of `key`, since the table has it now; not of one that is pinned, which
    /// is newer. Its locks stay. DMA reads of its segment that are under way bring nothing.
    pub fn forget(&self, hash: SlotHash, key: Key) {
        let (mut stripe, number) = self.open(hash);
        stripe.entry(number).epoch += 1;
        let Some(index) = stripe.find(number, hash, key) else { return };
        if stripe.object(index).pins > 0 {
            return;
        }
        stripe.set_value(index, &[]);
        let object = stripe.object(index);
        object.forget();
        if object.holder().is_none() && object.readers == 0 {
            stripe.remove(index);
        }
    }

    /// Takes one pin back.
    ///
    /// # Panics
    /// If `key` is not pinned.
    pub fn unpin(&self, hash: SlotHash, key: Key) {
        let (mut stripe, entry) = self.open(hash);
        let index = stripe.find(entry, hash, key);
        assert!(index.is_some(), "a pinned object stays in the index");
        let Some(index) = index else { return };
        let object = stripe.object(index);
        assert!(object.pins > 0, "an object is unpinned as often as it was pinned");
        object.pins -= 1;
        self.pinned.fetch_sub(1, Ordering::Relaxed);
        stripe.evict();
    }

    /// Locks held, read locks included.
    pub fn locked_count(&self) -> usize {
        self.locked.load(Ordering::Relaxed)
    }

    /// Calls `each` with every key that a transaction has locked, and the transaction; not with
    /// keys that are only locked for reading. Goes over every object: for audits.
    pub fn for_each_locked(&self, each: &mut dyn FnMut(Key, TxnId)) {
        for stripe in &self.stripes {
            stripe_of(stripe).locked().for_each(|(key, holder)| each(key, holder));
        }
    }

    /// Calls `each` with every key of `range` that a transaction has locked, or that is pinned: of
    /// those that have committed, the ones that the host may not have applied yet. Some of other
    /// ranges may be among them, and some come twice.
    ///
    /// Cost: a short mutex, and a look at the cached objects of a segment or two.
    pub fn for_each_busy(&self, range: WalkRange, each: &mut dyn FnMut(Key)) {
        let base = range.hash.base_segment(self.segments);
        let stripe = stripe_of(&self.stripes[(base % STRIPES as u64) as usize]);
        // No entry is split further than the host table, as it is known to be.
        let finest = self.known().level() + 1;
        for copy in 0..1 << finest.saturating_sub(range.level) {
            let hash = range.hash.with_copy(range.level, copy);
            stripe.each_busy(stripe.entry_of(base / STRIPES as u64, hash), each);
        }
    }

    /// Pins that have not been taken back.
    pub fn pinned_count(&self) -> usize {
        self.pinned.load(Ordering::Relaxed)
    }

    /// Objects in the index.
    pub fn object_count(&self) -> usize {
        self.stripes.iter().map(|stripe| stripe_of(stripe).live()).sum()
    }

    /// Memory that it takes.
    ///
    /// Cost: a short mutex for each of the stripes.
    pub fn memory(&self) -> Bytes {
        Bytes(self.stripes.iter().map(|stripe| stripe_of(stripe).memory() as u64).sum())
    }

    /// Entries that it has now: one per segment, once it has followed the host table.
    pub fn entry_count(&self) -> usize {
        self.stripes.iter().map(|stripe| stripe_of(stripe).entry_count()).sum()
    }

    /// Checks every structural invariant; for tests.
    ///
    /// # Panics
    /// If one does not hold.
    pub fn check(&self) {
        let (mut locked, mut pinned) = (0, 0);
        for stripe in &self.stripes {
            let counts = stripe_of(stripe).check();
            locked += counts.locked;
            pinned += counts.pinned;
        }
        assert!(locked == self.locked_count(), "the locks are counted");
        assert!(pinned == self.pinned_count(), "the pins are counted");
    }

    /// The stripe and entry of a hash; the stripe follows the host table's growth by a few entries.
    #[inline]
    fn open(&self, hash: SlotHash) -> (MutexGuard<'_, Stripe>, usize) {
        let base = hash.base_segment(self.segments);
        let (number, local) = (base % STRIPES as u64, base / STRIPES as u64);
        let mut stripe = stripe_of(&self.stripes[number as usize]);
        let known = self.known();
        if !stripe.has_followed(known) {
            self.let_follow(&mut stripe, number, known);
        }
        let entry = stripe.entry_of(local, hash);
        (stripe, entry)
    }

    /// Lets the stripe of this number follow the host table, which has grown as far as `known`.
    #[cold]
    fn let_follow(&self, stripe: &mut Stripe, number: u64, known: Progress) {
        // Entries of this stripe whose segments the host table has split.
        let (copies, rest) = (known.split() / self.segments, known.split() % self.segments);
        let entries = copies * self.segments.div_ceil(STRIPES as u64)
            + (rest + STRIPES as u64 - 1 - number) / STRIPES as u64;
        stripe.follow(known, Progress::new(known.level(), entries));
    }
}

fn per_stripe(objects: usize) -> usize {
    objects.div_ceil(STRIPES).max(1)
}

#[inline]
fn stripe_of(stripe: &Mutex<Stripe>) -> MutexGuard<'_, Stripe> {
    stripe.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for NicIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NicIndex({} objects, {} locked)", self.object_count(), self.locked_count())
    }
}

#[cfg(test)]
mod tests;
