//! Changes of a table's structure: insertion, removal, moves, heap blocks. One writer at a time.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use nicol_core::ids::{IdMap, Key, TxnId, Version};
use nicol_core::memory::WORD;

use crate::tombstones::Tombstones;

use super::heap::Heap;
use super::layout::{self, Body, Header, Shape, bucket, field};
use super::{
    Applied, BlockRef, Design, Geometry, Granted, LockRefused, RemoteTable, Sought, StoredValue,
    engine_of,
};
use crate::access::{load, read, store, swap, write};

/// Buckets that a hopscotch insertion probes for an empty slot, which bounds its cost. Then it
/// appends to the overflow chain, as FaRM does.
const PROBE_MAX: u64 = 128;

/// A record that a replica could not store in its table.
#[derive(Clone, Debug)]
pub(super) struct Stray {
    pub(super) version: Version,
    pub(super) value: Vec<u8>,
}

/// The writer's state besides the table's memory.
#[derive(Clone, Debug)]
pub(super) struct Writer {
    pub(super) heap: Heap,
    /// Blocks of the heap that are reserved for holders of locks.
    pub(super) reserved: IdMap<Key, BlockRef>,
    /// A replica's strays.
    pub(super) strays: BTreeMap<Key, Stray>,
    /// Overflow buckets never linked yet, and those unlinked again.
    next: u64,
    end: u64,
    free: Vec<u64>,
    scratch: Vec<u8>,
    tombstones: Tombstones,
}

impl Writer {
    pub(super) fn new(geometry: &Geometry) -> Self {
        Self {
            heap: Heap::new(geometry.heap_offset(), geometry.heap_bytes()),
            reserved: IdMap::default(),
            strays: BTreeMap::new(),
            next: geometry.array_buckets(),
            end: geometry.all_buckets(),
            free: Vec::new(),
            scratch: vec![0; geometry.slot_bytes() as usize],
            tombstones: Tombstones::default(),
        }
    }

    /// Returns true if an eighth of the overflow buckets and of the heap is unused.
    pub(super) fn has_reserve(&self, geometry: &Geometry) -> bool {
        let overflow = self.end - geometry.array_buckets();
        self.free_buckets() >= overflow / 8 && self.heap.has_reserve()
    }

    pub(super) fn free_buckets(&self) -> u64 {
        self.end - self.next + self.free.len() as u64
    }

    pub(super) fn heap_in_use(&self) -> u64 {
        self.heap.in_use()
    }

    /// Frees the block of a removed value, if it had one.
    pub(super) fn take_back(&mut self, block: Option<BlockRef>) {
        if let Some(BlockRef { offset, len }) = block {
            self.heap.take_back(offset, len);
        }
    }

    fn take_bucket(&mut self) -> Option<u64> {
        if let Some(bucket) = self.free.pop() {
            return Some(bucket);
        }
        (self.next < self.end).then(|| {
            self.next += 1;
            self.next - 1
        })
    }
}

impl RemoteTable {
    /// Loads a record before the run, at version 1.
    ///
    /// # Panics
    /// If the table is full: it is sized for what is loaded.
    pub fn load(&self, key: Key, value: &[u8]) {
        self.apply(key, Version(1), Some(value));
        assert!(self.strayed() == 0, "a table is sized for what is loaded");
    }

    /// Applies a logged write to a replica whose keys nobody locks; `None` deletes. Does nothing if
    /// the table has this version or a newer one, so the writes of a key may be repeated and arrive
    /// in any order (AMB-37). A record that does not fit becomes a stray: see the module
    /// `reservation`.
    pub fn apply(&self, key: Key, version: Version, value: Option<&[u8]>) -> Applied {
        let writer = &mut *self.writer();
        let sought = self.seek(key);
        let current = match sought {
            Sought::Slot { header, .. } => header.version(),
            Sought::Absent { .. } => {
                let stray = writer.strays.get(&key).map_or(Version(0), |stray| stray.version);
                stray.max(writer.tombstones.deleted_at(key))
            }
        };
        if version <= current {
            return Applied::Skipped;
        }
        self.drop_stray(writer, key);
        if let Sought::Slot { address, header } = sought {
            assert!(!header.is_locked(), "nobody locks a replica's records");
            let word = header.word();
            let locked = swap(&self.region, address, word, header.locked_by_writer().word());
            assert!(locked, "nobody locks a replica's records");
        }
        match (value, sought) {
            (Some(value), Sought::Slot { address, .. }) => {
                if !self.rewrite_with_heap(writer, key, address, version, value, None) {
                    self.remove(writer, key, address, current);
                    self.keep_stray(writer, key, version, value);
                }
            }
            (Some(value), Sought::Absent { .. }) => {
                if !self.insert_value(writer, key, version, value) {
                    self.keep_stray(writer, key, version, value);
                }
                writer.tombstones.remove(key);
            }
            (None, sought) => {
                writer.tombstones.insert(key, version);
                match sought {
                    Sought::Slot { address, .. } => self.remove(writer, key, address, version),
                    Sought::Absent { .. } => {
                        let home = self.geometry.bucket(key);
                        self.bump_bucket_version(home);
                        self.raise_floor(home, version);
                        self.bump_bucket_version(home);
                    }
                }
            }
        }
        Applied::Changed
    }

    /// Drops the deletions that were recorded before the previous call. Between the two calls,
    /// every older write of those keys must have been applied.
    pub fn forget_old_deletions(&self) {
        self.writer().tombstones.forget_old();
    }

    /// Gives an absent key a locked slot; `None` if it has got one meanwhile.
    pub(super) fn lock_absent(&self, key: Key, txn: TxnId) -> Option<Result<Granted, LockRefused>> {
        let writer = &mut *self.writer();
        let Sought::Absent { floor } = self.seek(key) else { return None };
        if self.used() >= self.capacity {
            return Some(Err(LockRefused::Full));
        }
        let inserted = self.insert(writer, key, floor, StoredValue::Absent, Some(txn));
        Some(match inserted {
            None => Err(LockRefused::Full),
            Some(address) => {
                let shape = Shape(load(&self.region, address + field::SHAPE as u64));
                let unlocked = Header::unlocked(shape.incarnation(), floor);
                Ok(Granted { address, unlocked, present: false })
            }
        })
    }

    /// Replaces the value of a record that the caller has locked, and unlocks it.
    ///
    /// # Panics
    /// If the value needs another block than the reserved one and none is free.
    pub(super) fn rewrite(
        &self,
        key: Key,
        address: u64,
        version: Version,
        value: &[u8],
        reserved: Option<BlockRef>,
    ) {
        let large = value.len() > self.geometry.inline();
        if large || reserved.is_some() || self.block_of(address).is_some() {
            let writer = &mut *self.writer();
            let done = self.rewrite_with_heap(writer, key, address, version, value, reserved);
            assert!(done, "a COMMIT finds the space that was reserved");
        } else {
            self.write_record(key, address, version, StoredValue::Inline(value));
        }
    }

    /// Inserts a record of a replica. Returns whether it fitted.
    fn insert_value(&self, writer: &mut Writer, key: Key, version: Version, value: &[u8]) -> bool {
        let Some(stored) = self.store_value(writer, key, version, value, None) else {
            return false;
        };
        let inserted = self.insert(writer, key, version, stored, None).is_some();
        if let StoredValue::OutOfLine(block) = stored
            && !inserted
        {
            writer.take_back(Some(block));
        }
        inserted
    }

    /// Replaces the value of a locked record, and unlocks it. Returns false, without a change, if
    /// there is no block for the value.
    fn rewrite_with_heap(
        &self,
        writer: &mut Writer,
        key: Key,
        address: u64,
        version: Version,
        value: &[u8],
        reserved: Option<BlockRef>,
    ) -> bool {
        let old = self.block_of(address);
        let len = value.len() as u32;
        if let Some(BlockRef { offset, len: old_len }) = old
            && value.len() > self.geometry.inline()
            && !self.geometry.takes_block(Some(old_len as usize), value.len())
        {
            // In place, so that remembered addresses stay valid. The record is locked, and the
            // block's checksum shows a reader that does not look at the lock that it is torn.
            layout::write_block(&self.region, offset, key, version, value);
            self.write_record(
                key,
                address,
                version,
                StoredValue::OutOfLine(BlockRef { offset, len }),
            );
            writer.take_back(reserved);
            return true;
        }
        let Some(stored) = self.store_value(writer, key, version, value, reserved) else {
            return false;
        };
        self.write_record(key, address, version, stored);
        writer.take_back(old);
        true
    }

    /// Removes a record that the caller has locked, and closes the gap from its home's chain.
    pub(super) fn remove(&self, writer: &mut Writer, key: Key, address: u64, version: Version) {
        let home = self.geometry.bucket(key);
        let block = self.block_of(address);
        self.bump_bucket_version(home);
        self.raise_floor(home, version);
        self.vacate(address);
        self.shorten_chain(writer, home, address);
        self.bump_bucket_version(home);
        writer.take_back(block);
        self.used.fetch_sub(1, Ordering::Relaxed);
    }

    /// Stores a value inline, in the reserved block, or in a new block of the heap; `None` if the
    /// heap has none.
    fn store_value<'a>(
        &self,
        writer: &mut Writer,
        key: Key,
        version: Version,
        value: &'a [u8],
        reserved: Option<BlockRef>,
    ) -> Option<StoredValue<'a>> {
        let (large, len) = (value.len() > self.geometry.inline(), value.len() as u32);
        let offset = match reserved {
            Some(block) if large && Heap::cost(block.len) == Heap::cost(len) => block.offset,
            _ => {
                writer.take_back(reserved);
                if !large {
                    return Some(StoredValue::Inline(value));
                }
                writer.heap.take(len)?
            }
        };
        layout::write_block(&self.region, offset, key, version, value);
        Some(StoredValue::OutOfLine(BlockRef { offset, len }))
    }

    /// The block of a record's value, if it is out of line.
    pub(super) fn block_of(&self, address: u64) -> Option<BlockRef> {
        let shape = Shape(load(&self.region, address + field::SHAPE as u64));
        shape.block(|| load(&self.region, address + field::VALUE as u64))
    }

    /// Inserts an absent key. Returns its slot, or `None` if there is none.
    fn insert(
        &self,
        writer: &mut Writer,
        key: Key,
        version: Version,
        stored: StoredValue<'_>,
        holder: Option<TxnId>,
    ) -> Option<u64> {
        let home = self.geometry.bucket(key);
        self.bump_bucket_version(home);
        let slot = self.vacant_slot(writer, home);
        if let Some(address) = slot {
            let incarnation = self.next_incarnation(address);
            let unlocked = Header::unlocked(incarnation, version);
            let header = holder.map_or(unlocked, |txn| unlocked.locked_by(engine_of(txn)));
            store(&self.region, address + field::KEY as u64, key.0);
            self.write_body(key, address, version, stored, incarnation);
            let holder = holder.map_or(0, |txn| txn.0);
            store(&self.region, address + field::HOLDER as u64, holder);
            store(&self.region, address, header.word());
            self.used.fetch_add(1, Ordering::Relaxed);
            self.count_overflow(address, 1);
        }
        self.bump_bucket_version(home);
        slot
    }

    fn next_incarnation(&self, address: u64) -> u64 {
        let shape = Shape(load(&self.region, address + field::SHAPE as u64));
        layout::next_incarnation(shape.incarnation())
    }

    /// An empty slot for a key of `home`: in its neighbourhood, moved there, or in the chain.
    fn vacant_slot(&self, writer: &mut Writer, home: u64) -> Option<u64> {
        let last = home + self.geometry.home_buckets() - 1;
        if let Some(slot) = (home..=last).find_map(|bucket| self.vacant_in(bucket)) {
            return Some(slot);
        }
        if let Design::Hopscotch { .. } = self.geometry.design()
            && let Some(slot) = self.hop(writer, last)
        {
            return Some(slot);
        }
        let mut tail = home;
        loop {
            let next = self.link(tail);
            if next == 0 {
                break;
            }
            tail = next;
            if let Some(slot) = self.vacant_in(tail) {
                return Some(slot);
            }
        }
        let fresh = writer.take_bucket()?;
        self.set_link(fresh, 0);
        self.set_link(tail, fresh);
        self.vacant_in(fresh)
    }

    fn vacant_in(&self, bucket: u64) -> Option<u64> {
        (0..self.geometry.bucket_slots())
            .map(|slot| self.geometry.slot_offset(bucket, slot))
            .find(|&slot| load(&self.region, slot) == 0)
    }

    /// Brings an empty slot into `bucket`: finds the nearest one behind it, then moves records
    /// whose home is the bucket before it into it, bucket by bucket. [FaRM14 hashtable]
    fn hop(&self, writer: &mut Writer, bucket: u64) -> Option<u64> {
        let end = (bucket + PROBE_MAX).min(self.geometry.array_buckets());
        let (mut at, mut empty) =
            (bucket + 1..end).find_map(|at| Some((at, self.vacant_in(at)?)))?;
        while at > bucket {
            let before = at - 1;
            // Readers go upwards, so that they meet a record that moves up: the bucket version may
            // stay.
            let moved = (0..self.geometry.bucket_slots())
                .map(|slot| self.geometry.slot_offset(before, slot))
                .find(|&slot| {
                    self.home_at(slot) == before && self.move_record(writer, slot, empty)
                })?;
            (at, empty) = (before, moved);
        }
        Some(empty)
    }

    /// The home of the key that stands in a slot in use.
    fn home_at(&self, address: u64) -> u64 {
        self.geometry.bucket(Key(load(&self.region, address + field::KEY as u64)))
    }

    /// Moves the record at `from` to the empty slot `to`, unless it is locked. Returns whether it
    /// moved. If readers reach `to` first, its home's bucket version is odd during the move.
    fn move_record(&self, writer: &mut Writer, from: u64, to: u64) -> bool {
        let word = load(&self.region, from);
        let Some(header) = Header::parse(word).filter(|header| !header.is_locked()) else {
            return false;
        };
        if !swap(&self.region, from, word, header.locked_by_writer().word()) {
            return false;
        }
        let shape = Shape(load(&self.region, from + field::SHAPE as u64));
        let incarnation = self.next_incarnation(to);
        let value = &mut writer.scratch[..shape.stored_len()];
        read(&self.region, from + field::VALUE as u64, value);
        for at in [field::KEY, field::CHECKSUM] {
            store(&self.region, to + at as u64, load(&self.region, from + at as u64));
        }
        store(&self.region, to + field::HOLDER as u64, 0);
        store(&self.region, to + field::SHAPE as u64, shape.moved_to(incarnation).0);
        write(&self.region, to + field::VALUE as u64, value);
        store(&self.region, to, Header::unlocked(incarnation, header.version()).word());
        self.count_overflow(to, 1);
        self.vacate(from);
        true
    }

    /// Empties the slot of a record that is locked.
    fn vacate(&self, address: u64) {
        let shape = Shape(load(&self.region, address + field::SHAPE as u64));
        store(&self.region, address + field::SHAPE as u64, Shape::empty(shape.incarnation()).0);
        store(&self.region, address + field::HOLDER as u64, 0);
        store(&self.region, address, 0);
        self.count_overflow(address, -1);
    }

    /// Moves a record from the last bucket of a chain into the hole, and unlinks that bucket once
    /// it is empty.
    fn shorten_chain(&self, writer: &mut Writer, home: u64, hole: u64) {
        let (mut before, mut last) = (home, self.link(home));
        if last == 0 {
            return;
        }
        while self.link(last) != 0 {
            (before, last) = (last, self.link(last));
        }
        let slots = |bucket| {
            let geometry = self.geometry;
            (0..geometry.bucket_slots()).map(move |slot| geometry.slot_offset(bucket, slot))
        };
        if slots(last).all(|slot| slot != hole) {
            let _moved = slots(last).any(|slot| self.move_record(writer, slot, hole));
        }
        if slots(last).all(|slot| load(&self.region, slot) == 0) {
            self.set_link(before, 0);
            writer.free.push(last);
        }
    }

    /// Does the slot at `address` stand in an overflow bucket?
    pub(super) fn is_in_chain(&self, address: u64) -> bool {
        address >= self.geometry.bucket_offset(self.geometry.array_buckets())
    }

    fn count_overflow(&self, address: u64, change: i64) {
        if self.is_in_chain(address) {
            self.overflowed.fetch_add(change as u64, Ordering::Relaxed);
        }
    }

    /// Writes the body of a record, then its header, unlocked.
    fn write_record(&self, key: Key, address: u64, version: Version, stored: StoredValue<'_>) {
        let shape = Shape(load(&self.region, address + field::SHAPE as u64));
        self.write_body(key, address, version, stored, shape.incarnation());
        store(&self.region, address, Header::unlocked(shape.incarnation(), version).word());
    }

    fn write_body(
        &self,
        key: Key,
        address: u64,
        version: Version,
        stored: StoredValue<'_>,
        incarnation: u64,
    ) {
        let mut pointer = [0; WORD];
        let body = Body::new(key, version, stored, incarnation, &mut pointer);
        store(&self.region, address + field::HOLDER as u64, 0);
        store(&self.region, address + field::SHAPE as u64, body.shape.0);
        store(&self.region, address + field::CHECKSUM as u64, body.checksum);
        write(&self.region, address + field::VALUE as u64, body.value);
    }

    fn set_link(&self, bucket: u64, link: u64) {
        store(&self.region, self.geometry.bucket_offset(bucket) + bucket::LINK as u64, link);
    }

    /// Makes a home's bucket version odd, or even again.
    fn bump_bucket_version(&self, home: u64) {
        let at = self.geometry.bucket_offset(home) + bucket::VERSION as u64;
        store(&self.region, at, load(&self.region, at) + 1);
    }

    fn raise_floor(&self, home: u64, version: Version) {
        let at = self.geometry.bucket_offset(home) + bucket::FLOOR as u64;
        store(&self.region, at, load(&self.region, at).max(version.0));
    }
}
