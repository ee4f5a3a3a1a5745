//! A table's shape, and lookups in it: all that a remote coordinator needs.

use nicol_core::ids::{EngineId, Key, Version};
use nicol_core::memory::WORD;
use nicol_core::units::Bytes;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::heap::Heap;
use super::layout::{
    self, BlockRef, Body, Header, INLINE_MAX, SlotView, StoredValue, bucket, field, word_at,
};

/// Seed of the bucket hash. It differs from the partition hash's, in which all keys of a shard
/// agree.
const BUCKET_SEED: u64 = 0x2545_f491_4f6c_dd1d;
/// Buckets that a walk follows before it restarts. Only a chain that was unlinked and reused during
/// the walk is that long.
const HOPS_MAX: u32 = 4_096;
/// Tables of one region begin at multiples of it.
const PAGE_BYTES: u64 = 4_096;

/// The placement of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Design {
    /// FaRM's chained associative hopscotch: buckets of H / 2 slots, a record stands in its home
    /// bucket, in the next, or in its home's overflow chain. One READ covers the neighbourhood of
    /// H slots. [FaRM14 hashtable; Xenic21 4.1.4]
    Hopscotch {
        /// H: 8 in FaRM.
        neighbourhood: u16,
    },
    /// DrTM+H's chained buckets: a record stands in its home bucket or in a bucket linked to it.
    /// [Xenic21 4.1.4]
    Chained {
        /// B: slots of a bucket, 4, 8 or 16.
        bucket: u16,
    },
}

/// Configuration of a table's shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableConfig {
    /// The design.
    pub design: Design,
    /// Slots of the buckets that keys hash to; rounded up to whole buckets.
    pub slots: u64,
    /// Slots of the overflow chains; rounded up to whole buckets.
    pub overflow_slots: u64,
    /// Largest inline value: 8 to [`INLINE_MAX`] bytes.
    pub inline: usize,
    /// Memory for larger values.
    pub heap: Bytes,
}

impl TableConfig {
    /// Adds memory for those of `values`, as (bytes, records), that are not inline. It adds a
    /// quarter more than they take: an eighth is kept back from insertions, and a new value is
    /// written before the old one's block is freed.
    pub fn size_heap_for(&mut self, values: &[(u32, u64)]) {
        let long = values.iter().filter(|(len, _)| *len as usize > self.inline);
        let bytes: u64 = long.map(|&(len, records)| Heap::cost(len) * records).sum();
        self.heap.0 += bytes + bytes.div_ceil(4);
    }
}

/// A table's shape; equal on every node that has the same configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Its first byte in the region.
    base: u64,
    design: Design,
    buckets: u64,
    overflow_buckets: u64,
    bucket_slots: u64,
    inline: usize,
    heap: u64,
}

/// A range of the table's region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: usize,
}

/// A record as a reader found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The address of its slot and header word, for CAS and validation.
    pub address: u64,
    /// Its lock and version.
    pub header: Header,
    /// Its value; that of `header.version()` even while the record is locked.
    pub stored: StoredValue<'a>,
    incarnation: u64,
}

impl Record<'_> {
    /// Does the record exist? A slot may also hold an absent record: locked for an insertion, or
    /// deleted by a one-sided coordinator.
    pub const fn is_present(&self) -> bool {
        !matches!(self.stored, StoredValue::Absent)
    }

    /// Its header without a lock: the word for validation and for a CAS.
    pub fn unlocked(&self) -> Header {
        Header::unlocked(self.incarnation, self.header.version())
    }
}

/// The state of an absent key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Absence {
    /// The address of the home's bucket version.
    pub bucket_version_address: u64,
    /// The bucket version. The key is absent, now and at validation, if a READ finds the word
    /// unchanged.
    pub bucket_version: u64,
    /// The version of the absent key: an insertion installs a later one.
    pub floor: Version,
}

/// The result of one step of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// The record.
    Found(Record<'a>),
    /// Not here: READ the walk's next span, along the chain.
    Next,
    /// Not in the table, if the bucket version is still what it was: see [`Absence`].
    Absent(Absence),
    /// A writer interfered: READ the walk's span, which starts at the home again. Whose lock the
    /// record is being written under, if it is a record's.
    Torn(Option<EngineId>),
}

/// The result of a READ at a cached address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reread<'a> {
    /// The key's record.
    Found(Record<'a>),
    /// The key's record, being written: READ it again. Whose lock it is being written under.
    Torn(Option<EngineId>),
    /// Nothing, or another record: walk.
    Moved,
}

impl Geometry {
    /// The shape that `config` describes.
    ///
    /// # Panics
    /// If H is odd or 0, B is 0, or the inline size is not 8 to [`INLINE_MAX`].
    pub fn new(config: TableConfig) -> Self {
        let bucket_slots = match config.design {
            Design::Hopscotch { neighbourhood } => {
                assert!(neighbourhood.is_multiple_of(2), "a neighbourhood is two buckets");
                u64::from(neighbourhood / 2)
            }
            Design::Chained { bucket } => u64::from(bucket),
        };
        assert!(bucket_slots > 0, "a bucket has slots");
        assert!(
            (8..=INLINE_MAX).contains(&config.inline),
            "8 to {INLINE_MAX} bytes stand in a slot"
        );
        Self {
            base: 0,
            design: config.design,
            buckets: config.slots.max(1).div_ceil(bucket_slots),
            overflow_buckets: config.overflow_slots.div_ceil(bucket_slots),
            bucket_slots,
            inline: config.inline,
            heap: config.heap.0.next_multiple_of(WORD as u64),
        }
    }

    /// The same shape from the first page of a region on that begins at byte `base` or behind.
    pub const fn behind(self, base: Bytes) -> Self {
        Self { base: base.0.next_multiple_of(PAGE_BYTES), ..self }
    }

    /// The design.
    pub const fn design(&self) -> Design {
        self.design
    }

    /// Largest inline value in bytes.
    pub const fn inline(&self) -> usize {
        self.inline
    }

    /// Where it ends in its region: the region's size, if nothing follows.
    pub const fn end(&self) -> Bytes {
        Bytes(self.heap_offset() + self.heap)
    }

    /// Buckets that keys hash to.
    pub const fn buckets(&self) -> u64 {
        self.buckets
    }

    /// Slots of a bucket.
    pub const fn bucket_slots(&self) -> u64 {
        self.bucket_slots
    }

    /// Slots that the READ of a home covers: H, or B.
    pub const fn home_slots(&self) -> u64 {
        self.home_buckets() * self.bucket_slots
    }

    /// The bucket that `key` hashes to.
    pub fn bucket(&self, key: Key) -> u64 {
        let hash = xxh3_64_with_seed(&key.0.to_le_bytes(), BUCKET_SEED);
        ((u128::from(hash) * u128::from(self.buckets)) >> 64) as u64
    }

    /// The first span that a lookup of `key` reads.
    pub fn home(&self, key: Key) -> Span {
        let len = (self.home_buckets() * self.bucket_bytes()) as usize;
        Span { offset: self.bucket_offset(self.bucket(key)), len }
    }

    /// Begins the lookup of `key`.
    pub fn walk(&self, key: Key) -> Walk {
        let absence = Absence { bucket_version_address: 0, bucket_version: 0, floor: Version(0) };
        Walk { geometry: *self, key, span: self.home(key), hops: 0, absence }
    }

    /// The memory of one record.
    pub const fn record_span(&self, address: u64) -> Span {
        Span { offset: address, len: self.slot_bytes() as usize }
    }

    /// Parses the bytes of [`Geometry::record_span`], read at a cached address.
    pub fn reread<'a>(&self, key: Key, address: u64, bytes: &'a [u8]) -> Reread<'a> {
        if bytes.len() as u64 != self.slot_bytes() {
            return Reread::Moved;
        }
        match layout::parse_slot(bytes, key) {
            SlotView::Other => Reread::Moved,
            SlotView::Torn(header) => Reread::Torn(header.owner()),
            SlotView::Record { header, incarnation, stored } => {
                Reread::Found(Record { address, header, stored, incarnation })
            }
        }
    }

    /// The memory of a value out of line; `None` if the reference, which came over the wire, does
    /// not lie in the heap.
    pub fn block_span(&self, block: BlockRef) -> Option<Span> {
        let len = layout::BLOCK_HEAD + block.len as usize;
        let end = block.offset.checked_add(len as u64)?;
        let inside = block.offset >= self.heap_offset() && end <= self.end().0;
        let aligned = block.offset.is_multiple_of(WORD as u64);
        (inside && aligned).then_some(Span { offset: block.offset, len })
    }

    /// The value in the bytes of [`Geometry::block_span`]; `None` if the block was reused since:
    /// walk again.
    pub fn parse_block<'a>(&self, key: Key, version: Version, bytes: &'a [u8]) -> Option<&'a [u8]> {
        layout::parse_block(bytes, key, version)
    }

    /// The address for the body that [`Geometry::emit_commit`] makes.
    pub const fn commit_address(&self, address: u64) -> u64 {
        address + field::HOLDER as u64
    }

    /// The address for the transaction's id of a coordinator that locked a record one-sidedly.
    /// After that WRITE the owner treats the lock as one that it granted, and can make the commit.
    pub const fn holder_address(&self, address: u64) -> u64 {
        address + field::HOLDER as u64
    }

    /// Returns true if the bytes of [`Geometry::record_span`] hold `key` under exactly this header,
    /// whatever its body.
    pub fn stands_under(&self, key: Key, header: Header, bytes: &[u8]) -> bool {
        word_at(bytes, field::HEADER) == Some(header.word())
            && word_at(bytes, field::KEY) == Some(key.0)
    }

    /// Appends the body of a one-sided commit of the record whose header was `unlocked` before its
    /// holder locked it. The holder WRITEs it at [`Geometry::commit_address`], then WRITEs
    /// `unlocked.installed(version)` at the record's address, which unlocks it.
    ///
    /// Returns whether the value is inline. If it is not, or if the old one was not, the owner must
    /// install it, because only the owner manages the heap.
    pub fn emit_commit(
        &self,
        key: Key,
        unlocked: Header,
        version: Version,
        value: Option<&[u8]>,
        into: &mut Vec<u8>,
    ) -> bool {
        let stored = match value {
            None => StoredValue::Absent,
            Some(value) if value.len() <= self.inline => StoredValue::Inline(value),
            Some(_) => return false,
        };
        let mut pointer = [0; WORD];
        Body::new(key, version, stored, unlocked.incarnation(), &mut pointer).emit(into);
        true
    }

    /// Buckets that one READ of a home covers.
    pub(super) const fn home_buckets(&self) -> u64 {
        match self.design {
            Design::Hopscotch { .. } => 2,
            Design::Chained { .. } => 1,
        }
    }

    /// Buckets outside chains. They include the last home's neighbour, so that no neighbourhood
    /// wraps around.
    pub(super) const fn array_buckets(&self) -> u64 {
        self.buckets + self.home_buckets() - 1
    }

    pub(super) const fn all_buckets(&self) -> u64 {
        self.array_buckets() + self.overflow_buckets
    }

    pub(super) const fn slot_bytes(&self) -> u64 {
        layout::slot_bytes(self.inline)
    }

    pub(super) const fn bucket_bytes(&self) -> u64 {
        bucket::HEAD as u64 + self.bucket_slots * self.slot_bytes()
    }

    pub(super) const fn bucket_offset(&self, bucket: u64) -> u64 {
        self.base + bucket * self.bucket_bytes()
    }

    pub(super) const fn slot_offset(&self, bucket: u64, slot: u64) -> u64 {
        self.bucket_offset(bucket) + self.slot_in_bucket(slot)
    }

    const fn slot_in_bucket(&self, slot: u64) -> u64 {
        bucket::HEAD as u64 + slot * self.slot_bytes()
    }

    pub(super) const fn heap_offset(&self) -> u64 {
        self.bucket_offset(self.all_buckets())
    }

    pub(super) const fn heap_bytes(&self) -> u64 {
        self.heap
    }

    /// True if this is the number of a bucket that a chain may link to.
    pub(super) const fn is_overflow(&self, bucket: u64) -> bool {
        bucket >= self.array_buckets() && bucket < self.all_buckets()
    }
}

/// A lookup in progress: names the next READ, and parses its result.
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    geometry: Geometry,
    key: Key,
    span: Span,
    hops: u32,
    absence: Absence,
}

impl Walk {
    /// The next READ.
    pub const fn span(&self) -> Span {
        self.span
    }

    /// Slots in the span.
    pub const fn slots(&self) -> u64 {
        if self.hops == 0 { self.geometry.home_slots() } else { self.geometry.bucket_slots }
    }

    /// Reads the bytes of the span.
    pub fn step<'a>(&mut self, bytes: &'a [u8]) -> Step<'a> {
        let geometry = self.geometry;
        if bytes.len() != self.span.len {
            return self.again(None);
        }
        let head = |at: usize| word_at(bytes, at).unwrap_or_default();
        if self.hops == 0 {
            self.absence = Absence {
                bucket_version_address: self.span.offset + bucket::VERSION as u64,
                bucket_version: head(bucket::VERSION),
                floor: Version(head(bucket::FLOOR)),
            };
        }
        let (mut torn, mut writer) = (false, None);
        let slot_bytes = geometry.slot_bytes() as usize;
        for (number, part) in bytes.chunks_exact(geometry.bucket_bytes() as usize).enumerate() {
            let slots = part[bucket::HEAD..].chunks_exact(slot_bytes);
            for (slot, bytes) in slots.enumerate() {
                match layout::parse_slot(bytes, self.key) {
                    SlotView::Other => {}
                    SlotView::Torn(header) => (torn, writer) = (true, header.owner()),
                    SlotView::Record { header, incarnation, stored } => {
                        let bucket = number as u64 * geometry.bucket_bytes();
                        let inside = bucket + geometry.slot_in_bucket(slot as u64);
                        let address = self.span.offset + inside;
                        return Step::Found(Record { address, header, stored, incarnation });
                    }
                }
            }
        }
        let link = head(bucket::LINK);
        if torn || self.hops == HOPS_MAX || (link != 0 && !geometry.is_overflow(link)) {
            return self.again(writer);
        }
        if link != 0 {
            self.hops += 1;
            let len = geometry.bucket_bytes() as usize;
            self.span = Span { offset: geometry.bucket_offset(link), len };
            return Step::Next;
        }
        if !self.absence.bucket_version.is_multiple_of(2) {
            return self.again(None);
        }
        Step::Absent(self.absence)
    }

    fn again(&mut self, writer: Option<EngineId>) -> Step<'static> {
        *self = self.geometry.walk(self.key);
        Step::Torn(writer)
    }
}
