//! The records of a node that many cores change at once: fixed-size rows in place, found by hash
//! or, in ordered tables, along a tree; a deleted record is freed when no transaction can read it
//! any more.
//!
//! The store knows no transactions. A record's first word is the protocol's: it decides which
//! transactions may read and change the rest. Three rules let protocols agree with the store:
//!
//! - A key that was looked up has a record, if only an absent one ([`Multicore::locate`]): so
//!   finding nothing is validated like any other read. (AMB-36)
//! - A record is taken out of its index only while it is absent and locked, and its word then says
//!   so for ever ([`Multicore::take_out`]): a transaction that has read it does not commit.
//! - A version of a key is never used twice: a new record begins where the records that were taken
//!   out have ended ([`Multicore::floor`]). It is begun while its place in the index is locked, so
//!   after those of its key were taken out.

mod arena;
mod epochs;
mod hash_index;
mod horizon;
#[cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "an instruction that only some machines have")
)]
mod prefetch;
mod range_index;
#[expect(unsafe_code, reason = "a copy into room that is not cleared first")]
mod record;
#[cfg(test)]
mod tests;
mod trails;

use std::iter;
use std::sync::atomic::{AtomicU64, Ordering, fence};

pub use arena::{Place, Room};
pub use epochs::Epochs;
pub use horizon::{Begun, Horizon};
pub use range_index::{Inserted, Leaf, Near, NodeNumber};
pub use record::{Record, State};
pub use trails::Trails;

use arena::Arena;
use hash_index::HashIndex;
use nicol_core::ids::{Key, Version};
use nicol_core::records::RecordSource;
use range_index::{Insertion, Obsolete, RangeIndex};
use record::HEADER;

/// Tables that a key's highest byte may name.
const TABLES: usize = 256;

/// Lookups whose cache misses overlap: those of a transaction with as many keys as TPC-C's have.
const AT_ONCE: usize = 64;
/// An odd factor whose product spreads neighbouring keys over the high bits: 2^64 by the golden
/// ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
/// Words of a cache line.
const LINE: usize = 64 / size_of::<u64>();
/// Words of a value that are fetched ahead: the machine follows a longer one by itself.
const AHEAD: usize = 6 * LINE;

/// What cores change, in cache lines of its own: who reads what stands beside it does not wait for
/// them.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Line<T>(pub T);

/// There is no more memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Where the record of a key stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located {
    /// Its place.
    pub place: Place,
    /// Was it made for this lookup? Then it is [watched](State::watched): the caller must have it
    /// removed again if it stays absent.
    pub is_new: bool,
    /// What that has changed in an ordered table.
    pub inserted: Option<Inserted>,
}

/// Memory that was taken out of an index, to be freed once no transaction can read it any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Garbage {
    /// A record.
    Record(Place),
    /// A node of the tree.
    Node(NodeNumber),
    /// So many words that [`Multicore::allocate`] gave out.
    Words(Place, usize),
}

/// The records of a node.
#[derive(Debug)]
pub struct Multicore {
    arena: Arena,
    hash: HashIndex,
    tree: RangeIndex,
    epochs: Epochs,
    horizon: Horizon,
    /// Words that a record has besides its header and those of a value.
    beside: usize,
    /// By table: words of a value.
    value_words: Box<[usize]>,
    floors: Line<Floors>,
}

/// The highest versions and timestamps of records that were taken out.
#[derive(Debug, Default)]
struct Floors {
    /// None had a higher version.
    version: AtomicU64,
    /// None was read or written at a later timestamp.
    timestamp: AtomicU64,
}

impl Multicore {
    /// A store for the records of `source`, whose values have `value_bytes` bytes at most where the
    /// source does not say; for `cores` cores. `longest` is that of each table's loaded values.
    pub fn new(
        source: &dyn RecordSource,
        value_bytes: usize,
        longest: &[usize; TABLES],
        cores: usize,
    ) -> Self {
        let stated = source.value_lengths().iter().map(|(bytes, _)| *bytes as usize).max();
        let most = value_bytes.max(stated.unwrap_or_default());
        let words = |loaded: &usize| match *loaded {
            0 => most.div_ceil(size_of::<u64>()),
            bytes => bytes.div_ceil(size_of::<u64>()),
        };
        Self {
            arena: Arena::new(),
            hash: HashIndex::new(source.records_per_shard() + source.growth_per_shard()),
            tree: RangeIndex::new(),
            epochs: Epochs::new(cores),
            horizon: Horizon::new(cores),
            beside: 0,
            value_words: longest.iter().map(words).collect(),
            floors: Line::default(),
        }
    }

    /// The same before its first record: each has so many more words, for a protocol's own.
    #[must_use]
    pub fn with_words_beside(mut self, beside: usize) -> Self {
        self.beside = beside;
        self
    }

    /// Takes memory for `bytes` of further records, and for half as much of nodes of ordered
    /// tables, page by page, as far as the store has room for so many: who makes records then does
    /// not wait for the system to clear memory.
    pub fn reserve(&self, bytes: u64) {
        self.arena.reserve(bytes);
        self.tree.reserve(bytes / 2);
    }

    /// Tells which versions no transaction can read any more.
    pub const fn horizon(&self) -> &Horizon {
        &self.horizon
    }

    /// Tells when no transaction can read any more what was taken out.
    pub fn epochs(&self) -> &Epochs {
        &self.epochs
    }

    /// The record at `place`.
    #[inline]
    pub fn record(&self, place: Place) -> Record<'_> {
        Record(self.arena.words(place))
    }

    /// Where the record of `key` stands, if there is one.
    #[inline]
    pub fn place_of(&self, key: Key) -> Option<Place> {
        let mut near = Near::NOWHERE;
        self.place_near(key, &mut near)
    }

    /// The same, where the last look for a key near it, of an ordered table, has ended at `near`.
    #[inline]
    pub fn place_near(&self, key: Key, near: &mut Near) -> Option<Place> {
        if key.is_ordered() {
            return self.tree.find(key.0, near);
        }
        self.hash.find(key, |place| self.record(place))
    }

    /// The same for a reader of the past: if there is no record, the version that the key's absence
    /// has. None that was there before has a higher one, and none that is made later a lower one.
    pub fn place_or_floor(&self, key: Key, near: &mut Near) -> Result<Place, Version> {
        loop {
            let floor = self.floor();
            // Who makes the record, and is not seen here, sees this floor. It pairs with the locks
            // of both indexes.
            fence(Ordering::SeqCst);
            let found = match key.is_ordered() {
                true => self.tree.find(key.0, near),
                false => self.hash.find_settled(key, |place| self.record(place)),
            };
            // One that was taken out meanwhile had raised it before.
            match found {
                Some(place) => return Ok(place),
                None if self.floor() == floor => return Err(floor),
                None => {}
            }
        }
    }

    /// The record of `key`, if there is one.
    pub fn find(&self, key: Key) -> Option<Record<'_>> {
        self.place_of(key).map(|place| self.record(place))
    }

    /// Prefetches the records of `keys`, as far as they are found by hash, so that lookups and
    /// reads find them in the cache; where values do not stand in the records, what is `beyond`
    /// them. The cache misses of different keys overlap.
    ///
    /// Cost: who calls this waits for the heads of chains only, for all at once, and for the
    /// records where something is beyond.
    #[inline]
    pub fn prefetch(
        &self,
        keys: impl Iterator<Item = Key>,
        beyond: Option<impl Fn(Record<'_>) -> Place>,
    ) {
        let mut keys = keys.filter(|key| !key.is_ordered());
        loop {
            let mut heads = [None; AT_ONCE];
            let mut count = 0;
            // All heads before the first record: a miss that depends on another one does not
            // overlap.
            for (head, key) in heads.iter_mut().zip(&mut keys) {
                *head = Some((key, self.hash.prefetch(key)));
                count += 1;
            }
            let heads = heads.iter().take(count).flatten();
            self.prefetch_at(heads.map(|(key, head)| (*key, head.first())), &beyond);
            if count < AT_ONCE {
                break;
            }
        }
    }

    /// The same of records that stand there, of these keys' tables; of no place none.
    #[inline]
    pub fn prefetch_at(
        &self,
        records: impl Iterator<Item = (Key, Place)> + Clone,
        beyond: &Option<impl Fn(Record<'_>) -> Place>,
    ) {
        let records = records.filter(|(_, place)| place.is_some());
        let ahead = |key: Key| self.value_words[usize::from(key.table().0)].min(AHEAD);
        let Some(beyond) = beyond else {
            records.for_each(|(key, place)| self.record(place).prefetch(ahead(key)));
            return;
        };
        let inside = |key: Key| if self.beside > 0 { self.beside + ahead(key) } else { 0 };
        records.clone().for_each(|(key, place)| self.record(place).prefetch(inside(key)));
        for (key, place) in records {
            let beyond = beyond(self.record(place));
            if beyond.is_some() && beyond != place.inside() {
                self.record(beyond).prefetch(ahead(key));
            }
        }
    }

    /// Where the record of `key` stands. If there is none, an absent one is made, whose first word
    /// `word` decides, which is told where it stands.
    ///
    /// # Errors
    /// If there is no memory for one.
    pub fn locate(
        &self,
        key: Key,
        word: impl FnOnce(&Self, Place, Option<&mut Room>) -> Option<u64>,
    ) -> Result<Located, Full> {
        let mut near = Near::NOWHERE;
        match self.place_near(key, &mut near) {
            Some(place) => Ok(Located { place, is_new: false, inserted: None }),
            None => self.make(key, &mut near, None, word),
        }
    }

    /// The same of a key of which [`Multicore::place_near`] has just found no record. It is made in
    /// the caller's room, if it has one.
    ///
    /// # Errors
    /// If there is no memory for one.
    pub fn make(
        &self,
        key: Key,
        near: &mut Near,
        mut room: Option<&mut Room>,
        word: impl FnOnce(&Self, Place, Option<&mut Room>) -> Option<u64>,
    ) -> Result<Located, Full> {
        let value_words = self.value_words[usize::from(key.table().0)];
        let words = HEADER + self.beside + value_words;
        let place = self.arena.allocate_in(room.as_deref_mut(), words).ok_or(Full)?;
        // The floors were raised before the record of a key is taken out: whoever has its place in
        // the index locked, and finds no record there, finds them raised.
        let begin = || {
            let floor = self.floor();
            let word = word(self, place, room)?;
            self.record(place).begin(key, value_words, word, floor);
            Some(())
        };
        let insertion = match key.is_ordered() {
            true => self.tree.insert((key.0, place), near, begin),
            false => self.hash.insert((key, place), |place| self.record(place), begin),
        };
        match insertion {
            Insertion::Done(inserted) => Ok(Located { place, is_new: true, inserted }),
            // Another core was faster.
            Insertion::Exists(found) => {
                self.arena.free(place, words);
                Ok(Located { place: found, is_new: false, inserted: None })
            }
            Insertion::Full => {
                self.arena.free(place, words);
                Err(Full)
            }
        }
    }

    /// Takes the record at `place` out of its index. Its word must say that it is locked and gone,
    /// it must be absent, and not have been used after `timestamp`. What this returns is to be
    /// [freed](Multicore::free) when the [oldest epoch](Epochs::oldest) is later than the present
    /// one.
    pub fn take_out(&self, place: Place, timestamp: u64) -> impl Iterator<Item = Garbage> + use<> {
        let record = self.record(place);
        let (key, state) = (record.key(), record.state());
        assert!(!state.present, "only an absent record is taken out");
        self.floors.0.version.fetch_max(state.version.0, Ordering::SeqCst);
        self.floors.0.timestamp.fetch_max(timestamp, Ordering::SeqCst);
        let (removed, nodes) = if key.is_ordered() {
            self.tree.remove(key.0, place)
        } else {
            (self.hash.remove(key, place, |place| self.record(place)), Obsolete::default())
        };
        assert!(removed, "a record that can be found is in its index");
        iter::once(Garbage::Record(place)).chain(nodes.into_iter().flatten().map(Garbage::Node))
    }

    /// Frees what was taken out.
    pub fn free(&self, garbage: Garbage) {
        match garbage {
            Garbage::Record(place) => {
                let words = HEADER + self.beside + self.record(place).value_words();
                self.arena.free(place, words);
            }
            Garbage::Node(node) => self.tree.free(node),
            Garbage::Words(place, words) => self.arena.free(place, words),
        }
    }

    /// Words of a protocol's own, such as those of an old version; in the core's room, if it has
    /// one.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn allocate(&self, room: Option<&mut Room>, words: usize) -> Result<Place, Full> {
        self.arena.allocate_in(room, words).ok_or(Full)
    }

    /// Frees such words at once; the core that does so uses them again first.
    pub fn free_words(&self, room: &mut Room, place: Place, words: usize) {
        self.arena.free_in(room, place, words);
    }

    /// The words at a place that [`Multicore::allocate`] gave out, and those behind them.
    #[inline]
    pub fn words(&self, place: Place) -> &[AtomicU64] {
        self.arena.words(place)
    }

    /// No record that was taken out had a higher version.
    pub fn floor(&self) -> Version {
        Version(self.floors.0.version.load(Ordering::SeqCst))
    }

    /// No record that was taken out was used at a later timestamp.
    pub fn timestamp_floor(&self) -> u64 {
        self.floors.0.timestamp.load(Ordering::SeqCst)
    }

    /// The leaf in which `key`, of an ordered table, stands or would stand.
    pub fn leaf_of(&self, key: Key) -> Leaf {
        let mut near = Near::NOWHERE;
        self.leaf_near(key, &mut near)
    }

    /// The same, where the last look for a key near it has ended at `near`.
    pub fn leaf_near(&self, key: Key, near: &mut Near) -> Leaf {
        self.tree.leaf_of(key.0, near)
    }

    /// True if nothing was inserted into a leaf, or taken out, since it had `version`.
    pub fn is_unchanged(&self, node: NodeNumber, version: u64) -> bool {
        self.tree.is_unchanged(node, version)
    }

    /// Notes that a leaf was read until `timestamp`, for protocols that order by timestamps: what
    /// is inserted there afterwards must be later.
    pub fn read_until(&self, node: NodeNumber, timestamp: u64) {
        self.tree.read_until(node, timestamp);
    }

    /// Until when the leaf of `key` was read; 0 of a key that is in none.
    pub fn was_read_until(&self, key: Key, near: &mut Near) -> u64 {
        if key.is_ordered() { self.tree.was_read_until(key.0, near) } else { 0 }
    }

    /// Calls `each` with every record, absent ones included. Requires that no other thread changes
    /// any.
    pub fn for_each(&self, each: &mut dyn FnMut(Record<'_>)) {
        self.tree.for_each(&mut |place| each(self.record(place)));
        self.hash.for_each(&mut |place| each(self.record(place)), |place| self.record(place));
    }

    /// Records, absent ones included. Requires that no other thread changes any.
    pub fn records(&self) -> u64 {
        let mut records = 0;
        self.for_each(&mut |_| records += 1);
        records
    }

    /// Places of 32 bytes that were given out, those that were freed since or are a core's room
    /// included.
    pub fn places(&self) -> u64 {
        self.arena.given_out()
    }

    /// Bytes of records, of the hash index and of the tree.
    pub fn bytes(&self) -> (u64, u64) {
        (self.arena.bytes(), self.hash.bytes() + self.tree.bytes())
    }

    /// Copies `len` bytes from word `from` at a place that [`Multicore::allocate`] gave out.
    pub fn copy_words(&self, place: Place, from: usize, len: usize, into: &mut Vec<u8>) {
        record::copy(&self.words(place)[from..], len, into);
    }

    /// Copies `len` bytes from word `from` on at one place to the same words at another, both of
    /// which [`Multicore::allocate`] gave out.
    pub fn copy_value(&self, of: Place, to: Place, from: usize, len: usize) {
        let words = from..from + len.div_ceil(size_of::<u64>());
        let (of, to) = (&self.words(of)[words.clone()], &self.words(to)[words]);
        for (of, to) in of.iter().zip(to) {
            to.store(of.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Writes `value` from word `from` on at a place that [`Multicore::allocate`] gave out.
    pub fn write_words(&self, place: Place, from: usize, value: &[u8]) {
        record::overwrite(&self.words(place)[from..], value);
    }
}
