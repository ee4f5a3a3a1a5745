//! The stores of the RDMA systems: hash tables that are read, locked and written with one-sided
//! operations. FaRM's hopscotch table and DrTM+H's chained buckets. [Xenic21 4.1.4]
//!
//! The table stands in a region, which its owner registers, alone or behind other tables. A
//! coordinator knows the table's [`Geometry`] and nothing else:
//!
//! | it wants to | it does |
//! |---|---|
//! | look a key up | READ [`Walk::span`], give the bytes to [`Walk::step`], until it finds or misses |
//! | read a remembered address | READ [`Geometry::record_span`], [`Geometry::reread`] |
//! | lock a record | CAS its header word from [`Record::unlocked`] to [`Header::locked_by`] |
//! | validate a record | READ its header word: still [`Record::unlocked`]? |
//! | validate an absent key | READ its home's bucket version: still [`Absence::bucket_version`]? |
//! | lock an absent key | ask the owner ([`RemoteTable::lock`]), which makes an absent, locked slot |
//! | commit a record it locked | WRITE the body ([`Geometry::emit_commit`]), then the new header |
//! | give back a lock taken by CAS | WRITE the unlocked header |
//! | give back a lock that the owner granted | ask the owner ([`RemoteTable::unlock`]) |
//! | free the slot of a record it deleted | ask the owner ([`RemoteTable::reclaim`]) |
//! | commit a value that takes a block | ask the owner before ([`RemoteTable::reserve`]; see `reservation`) |
//!
//! Safety: a record is rewritten or moved only while its header is locked (by a transaction, or
//! briefly by the owner), so an unlocked header that is read after a value validates it. The
//! checksum detects values torn within one READ. A header contains its slot's incarnation, so an
//! old header word never matches another record. Absent keys (AMB-36): every insertion and removal
//! of a key changes its home's bucket version, and so does every move that a reader could miss. An
//! unchanged bucket version therefore means that nothing was inserted. An absent key's version is
//! its home's floor, which no deletion there exceeds (as in decision 0003).
//!
//! The owner's engines call the methods of [`RemoteTable`]. Locks and installs in place take no
//! mutex; whatever changes the structure (insertion, removal, blocks of the heap) takes the
//! writer's. Readers never wait for it.
//!
//! This folder owns the table's fields. Here: lookups, locks and commits. `writer` changes the
//! structure, `reservation` keeps space for values, and an `Audit` goes over the whole table.

mod audit;
mod geometry;
mod heap;
mod layout;
mod reservation;
mod writer;

use std::fmt;
use std::hint;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nicol_core::ids::{EngineId, Key, TxnId, Version};
use nicol_core::memory::Region;

use crate::access::{load, read, store, swap};
use crate::digest;
use crate::host_table::Applied;
use audit::Audit;
pub use geometry::{Absence, Design, Geometry, Record, Reread, Span, Step, TableConfig, Walk};
pub use layout::{BlockRef, Header, INLINE_MAX, StoredValue};
use layout::{Shape, bucket, checksum, field};
use writer::Writer;

/// The result of a local lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The record's version; of an absent one, that of its slot or its home's floor.
    pub version: Version,
    /// Does the record exist?
    pub present: bool,
    /// True if a transaction has locked it.
    pub locked: bool,
}

/// The error of a lookup whose record was being committed all the time: its holder is slow or dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the record is being rewritten")]
pub struct Busy;

/// A lock that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The record's slot, for one-sided access.
    pub address: u64,
    /// Its header without the lock: version, and what a one-sided commit starts from.
    pub unlocked: Header,
    /// Does the record exist?
    pub present: bool,
}

/// Why a lock was not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockRefused {
    /// A transaction of `owner` holds it.
    Held {
        /// Its engine.
        owner: EngineId,
    },
    /// The key is absent and there is no slot for it.
    Full,
}

/// Retries of a torn record before a local lookup gives up.
const TRIES_MAX: u32 = 256;

/// See the module documentation.
pub struct RemoteTable {
    geometry: Geometry,
    region: Arc<Region>,
    writer: Mutex<Writer>,
    used: AtomicU64,
    overflowed: AtomicU64,
    /// Number of reserved blocks and of strays; the writer keeps them.
    reserved: AtomicU64,
    strayed: AtomicU64,
    capacity: u64,
}

/// Where a key's slot is.
#[derive(Clone, Copy, Debug)]
enum Sought {
    Slot { address: u64, header: Header },
    Absent { floor: Version },
}

impl RemoteTable {
    /// An empty table for `capacity` records. The limit applies to admission: see
    /// [`RemoteTable::has_capacity`].
    pub fn new(geometry: Geometry, capacity: u64) -> Self {
        Self::within(&Arc::new(Region::new(geometry.end())), geometry, capacity)
    }

    /// The same in a region that other tables share. What is its own there is zeroed.
    pub fn within(region: &Arc<Region>, geometry: Geometry, capacity: u64) -> Self {
        Self {
            geometry,
            region: region.clone(),
            writer: Mutex::new(Writer::new(&geometry)),
            used: AtomicU64::new(0),
            overflowed: AtomicU64::new(0),
            reserved: AtomicU64::new(0),
            strayed: AtomicU64::new(0),
            capacity,
        }
    }

    /// A deep copy with every record in the same slot. Requires exclusive access.
    ///
    /// Cost: a copy of the memory, a fraction of inserting the records.
    pub fn copy(&self) -> Self {
        self.copy_within(&Arc::new(self.region.copy()))
    }

    /// The same over a copy of its region.
    pub fn copy_within(&self, region: &Arc<Region>) -> Self {
        let writer = self.writer().clone();
        let word = |word: &AtomicU64| AtomicU64::new(word.load(Ordering::Relaxed));
        Self {
            geometry: self.geometry,
            region: region.clone(),
            writer: Mutex::new(writer),
            used: word(&self.used),
            overflowed: word(&self.overflowed),
            reserved: word(&self.reserved),
            strayed: word(&self.strayed),
            capacity: self.capacity,
        }
    }

    /// Its shape.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Its memory, to be registered for READ, WRITE and the atomics.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Slots in use: records, and absent keys that are locked.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Slots in use in overflow chains.
    pub fn overflowed(&self) -> u64 {
        self.overflowed.load(Ordering::Relaxed)
    }

    /// Returns true if a transaction may insert a record. Checked when it locks an absent key. An
    /// eighth of the overflow buckets is kept back, so that few records of replicas, which place
    /// them differently, become strays; and an eighth of the heap, for values that grow. Space for
    /// the value itself is reserved when its length is known: [`RemoteTable::reserve`].
    pub fn has_capacity(&self) -> bool {
        self.used() < self.capacity && self.writer().has_reserve(&self.geometry)
    }

    /// Looks `key` up in local memory; a value found is appended to `into`.
    ///
    /// Takes no lock. Errors: [`Busy`] while a transaction commits to the record.
    pub fn get(&self, key: Key, into: &mut Vec<u8>) -> Result<Found, Busy> {
        for _ in 0..TRIES_MAX {
            match self.seek(key) {
                Sought::Absent { floor } => {
                    let absent = Found { version: floor, present: false, locked: false };
                    return Ok(self.find_stray(key, into).unwrap_or(absent));
                }
                Sought::Slot { address, header } => {
                    if let Some(present) = self.read_value(key, address, header, into) {
                        let locked = header.owner().is_some();
                        return Ok(Found { version: header.version(), present, locked });
                    }
                }
            }
            hint::spin_loop();
        }
        Err(Busy)
    }

    /// Locks `key` for `txn`; granted again to the transaction that holds it. An absent key gets a
    /// slot, which [`RemoteTable::unlock`] frees.
    pub fn lock(&self, key: Key, txn: TxnId) -> Result<Granted, LockRefused> {
        let engine = engine_of(txn);
        loop {
            let Sought::Slot { address, header } = self.seek(key) else {
                if let Some(outcome) = self.lock_absent(key, txn) {
                    return outcome;
                }
                continue;
            };
            let shape = Shape(load(&self.region, address + field::SHAPE as u64));
            if !header.is_locked() {
                let locked = header.locked_by(engine).word();
                if swap(&self.region, address, header.word(), locked) {
                    store(&self.region, address + field::HOLDER as u64, txn.0);
                    let present = shape.is_present();
                    return Ok(Granted { address, unlocked: header, present });
                }
            } else if let Some(owner) = header.owner() {
                if owner != engine || !self.is_held(address, txn) {
                    return Err(LockRefused::Held { owner });
                }
                let unlocked = Header::unlocked(shape.incarnation(), header.version());
                return Ok(Granted { address, unlocked, present: shape.is_present() });
            }
            // The writer has it in hand for a moment, or it has just changed.
            hint::spin_loop();
        }
    }

    /// Unlocks `key` if `txn` holds it; returns whether it did. Frees the space that was reserved
    /// for it.
    pub fn unlock(&self, key: Key, txn: TxnId) -> bool {
        let Some((address, header)) = self.held_by(key, txn) else { return false };
        if let Some(reserved) = self.take_reservation(key) {
            self.writer().take_back(Some(reserved));
        }
        let shape = Shape(load(&self.region, address + field::SHAPE as u64));
        if shape.is_present() {
            store(&self.region, address + field::HOLDER as u64, 0);
            let unlocked = Header::unlocked(shape.incarnation(), header.version());
            store(&self.region, address, unlocked.word());
        } else {
            self.remove(&mut self.writer(), key, address, header.version());
        }
        true
    }

    /// The transaction that `key` was locked for through [`RemoteTable::lock`].
    pub fn holder(&self, key: Key) -> Option<TxnId> {
        match self.seek(key) {
            Sought::Slot { address, header } if header.owner().is_some() => {
                let holder = load(&self.region, address + field::HOLDER as u64);
                (holder != 0).then_some(TxnId(holder))
            }
            _ => None,
        }
    }

    /// The engine whose transaction holds `key`, however it was locked.
    pub fn owner_of(&self, key: Key) -> Option<EngineId> {
        match self.seek(key) {
            Sought::Slot { header, .. } => header.owner(),
            Sought::Absent { .. } => None,
        }
    }

    /// Applies a COMMIT of `txn` and unlocks: the new value, or `None` for a deletion.
    ///
    /// # Panics
    /// If `txn` does not hold the lock, the version does not move forward, or the value takes a
    /// block that was not reserved ([`RemoteTable::reserve`]) and none is free.
    pub fn install(&self, key: Key, txn: TxnId, version: Version, value: Option<&[u8]>) {
        let Some((address, header)) = self.held_by(key, txn) else {
            panic!("a COMMIT finds the locks of its transaction");
        };
        assert!(header.version() < version, "a COMMIT moves the version forward");
        let reserved = self.take_reservation(key);
        match value {
            Some(value) => self.rewrite(key, address, version, value, reserved),
            None => {
                let writer = &mut *self.writer();
                self.remove(writer, key, address, version);
                writer.take_back(reserved);
            }
        }
    }

    /// Frees the slot of a key that a one-sided commit deleted. Returns whether there was an
    /// unlocked one. Until then the absent key occupies the slot.
    pub fn reclaim(&self, key: Key) -> bool {
        let writer = &mut *self.writer();
        let Sought::Slot { address, header } = self.seek(key) else { return false };
        if header.is_locked()
            || !swap(&self.region, address, header.word(), header.locked_by_writer().word())
        {
            return false;
        }
        // Only under the lock does a slot's shape stay what it is.
        let shape = Shape(load(&self.region, address + field::SHAPE as u64));
        if shape.is_present() {
            store(&self.region, address, header.word());
            return false;
        }
        self.remove(writer, key, address, header.version());
        true
    }

    /// Records in the table. Counted in its memory, since one-sided commits insert and delete
    /// without the owner.
    pub fn len(&self) -> u64 {
        let mut records = 0;
        self.each_slot(&mut |address, _| {
            let shape = Shape(load(&self.region, address + field::SHAPE as u64));
            records += u64::from(shape.is_present());
        });
        records + self.strayed()
    }

    /// Returns true if there are no records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Locked records. Counted in the table's memory, since coordinators lock without the owner.
    pub fn locked_count(&self) -> usize {
        let mut locked = 0;
        self.each_slot(&mut |_, header| locked += usize::from(header.owner().is_some()));
        locked
    }

    /// Calls `each` with every locked record's key and the engine whose transaction holds it. Goes
    /// over every slot: for audits.
    pub fn for_each_locked(&self, each: &mut dyn FnMut(Key, EngineId)) {
        self.each_slot(&mut |address, header| {
            if let Some(owner) = header.owner() {
                each(Key(load(&self.region, address + field::KEY as u64)), owner);
            }
        });
    }

    /// Calls `each` with every key that has a slot: the slot's address, and the block of a value
    /// out of line.
    pub fn each_address(&self, each: &mut dyn FnMut(Key, u64, Option<BlockRef>)) {
        self.each_slot(&mut |address, _| {
            let key = Key(load(&self.region, address + field::KEY as u64));
            each(key, address, self.block_of(address));
        });
    }

    /// Calls `each` with every record, in the order of the table's memory. Requires that nobody
    /// commits to the table. A record that a crash has left half written, under its writer's lock,
    /// is nobody's to read, and is left out.
    ///
    /// # Panics
    /// If a record stays torn that nobody has locked.
    pub fn for_each(&self, each: &mut dyn FnMut(Key, Version, &[u8])) {
        Audit::of(self).for_each(each);
    }

    /// A digest of all records that does not depend on their location: that of
    /// [`crate::host_table::HostTable::digest`].
    pub fn digest(&self) -> u64 {
        digest::of_records(|each| self.for_each(each))
    }

    /// Checks every structural invariant; one line for each violation. Requires that nobody commits
    /// to the table.
    pub fn check(&self) -> Vec<String> {
        Audit::of(self).check()
    }

    /// Visits every slot in use.
    fn each_slot(&self, visit: &mut dyn FnMut(u64, Header)) {
        for bucket in 0..self.geometry.all_buckets() {
            for slot in 0..self.geometry.bucket_slots() {
                let address = self.geometry.slot_offset(bucket, slot);
                if let Some(header) = Header::parse(load(&self.region, address)) {
                    visit(address, header);
                }
            }
        }
    }

    /// The slot and header of `key` if `txn` holds its lock.
    fn held_by(&self, key: Key, txn: TxnId) -> Option<(u64, Header)> {
        match self.seek(key) {
            Sought::Slot { address, header }
                if header.owner() == Some(engine_of(txn)) && self.is_held(address, txn) =>
            {
                Some((address, header))
            }
            _ => None,
        }
    }

    fn is_held(&self, address: u64, txn: TxnId) -> bool {
        load(&self.region, address + field::HOLDER as u64) == txn.0
    }

    /// Prefetches the home of `key`, so that [`RemoteTable::load`] finds it in the cache.
    ///
    /// Cost: a hash and the cache misses of a bucket, which nothing waits for: those of several
    /// keys overlap.
    pub fn touch(&self, key: Key) {
        let home = self.geometry.bucket(key);
        for slot in 0..self.geometry.bucket_slots() {
            let key_at = self.geometry.slot_offset(home, slot) + field::KEY as u64;
            hint::black_box(load(&self.region, key_at));
        }
    }

    /// Looks for the slot of `key`, by header and key words alone.
    fn seek(&self, key: Key) -> Sought {
        let home = self.geometry.bucket(key);
        let head = self.geometry.bucket_offset(home);
        loop {
            let bucket_version = load(&self.region, head + bucket::VERSION as u64);
            if let Some((address, header)) = self.scan(home, key) {
                return Sought::Slot { address, header };
            }
            let floor = Version(load(&self.region, head + bucket::FLOOR as u64));
            let after = load(&self.region, head + bucket::VERSION as u64);
            if bucket_version == after && bucket_version.is_multiple_of(2) {
                return Sought::Absent { floor };
            }
            hint::spin_loop();
        }
    }

    fn scan(&self, home: u64, key: Key) -> Option<(u64, Header)> {
        let mut found = None;
        self.each_slot_of_home(home, &mut |address| {
            if load(&self.region, address + field::KEY as u64) == key.0 {
                let header = Header::parse(load(&self.region, address));
                // The key again: the header may be that of the slot's next record.
                if load(&self.region, address + field::KEY as u64) == key.0 {
                    found = header.map(|header| (address, header));
                }
            }
            found.is_some()
        });
        found
    }

    /// Visits the slots where keys of `home` may be, until `visit` returns true.
    fn each_slot_of_home(&self, home: u64, visit: &mut dyn FnMut(u64) -> bool) {
        let first = home..home + self.geometry.home_buckets();
        for bucket in first {
            for slot in 0..self.geometry.bucket_slots() {
                if visit(self.geometry.slot_offset(bucket, slot)) {
                    return;
                }
            }
        }
        let mut link = self.link(home);
        while link != 0 {
            for slot in 0..self.geometry.bucket_slots() {
                if visit(self.geometry.slot_offset(link, slot)) {
                    return;
                }
            }
            link = self.link(link);
        }
    }

    fn link(&self, bucket: u64) -> u64 {
        load(&self.region, self.geometry.bucket_offset(bucket) + bucket::LINK as u64)
    }

    /// Appends the value of a record if it is not torn. Returns whether the record exists.
    fn read_value(
        &self,
        key: Key,
        address: u64,
        header: Header,
        into: &mut Vec<u8>,
    ) -> Option<bool> {
        let shape = Shape(load(&self.region, address + field::SHAPE as u64));
        let sum = load(&self.region, address + field::CHECKSUM as u64);
        let value = address + field::VALUE as u64;
        let start = into.len();
        let len = shape.stored_len();
        if len > self.geometry.inline() {
            return None;
        }
        into.resize(start + len, 0);
        read(&self.region, value, &mut into[start..]);
        let mut whole = sum == checksum(key, header.version(), shape, &into[start..]);
        if whole && let Some(block) = shape.block(|| load(&self.region, value)) {
            into.truncate(start);
            whole = self.read_block(key, header.version(), block, into);
        }
        if !whole {
            into.truncate(start);
        }
        whole.then(|| shape.is_present())
    }

    fn read_block(&self, key: Key, version: Version, block: BlockRef, into: &mut Vec<u8>) -> bool {
        let start = into.len();
        let Some(span) = self.geometry.block_span(block) else { return false };
        into.resize(start + span.len, 0);
        read(&self.region, span.offset, &mut into[start..]);
        let whole = layout::parse_block(&into[start..], key, version).is_some();
        into.drain(start..start + layout::BLOCK_HEAD);
        whole
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The engine that a lock of `txn` names.
fn engine_of(txn: TxnId) -> EngineId {
    match txn.engine() {
        Some(engine) => engine,
        None => panic!("a transaction's id names its engine"),
    }
}

impl fmt::Debug for RemoteTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteTable({:?}, {} slots used)", self.geometry.design(), self.used())
    }
}

#[cfg(test)]
mod tests;
