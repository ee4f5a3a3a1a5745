//! What an open transaction has read and will write, in buffers that are used again.

use std::cell::Cell;

use nicol_core::ids::{Key, Version};
use nicol_core::txn::Abort;
use nicol_store::multicore::{Inserted, Leaf, NodeNumber, Place};

/// A record that was read.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    pub(super) place: Place,
    pub(super) key: Key,
    /// The protocol's word, as it was; in an engine with several versions, the one that was read.
    pub(super) seen: u64,
}

/// A record that will be written. What a commit notes in it are cells: its steps go over the set
/// while they do so.
#[derive(Clone, Debug)]
pub struct Write {
    pub(super) place: Place,
    pub(super) key: Key,
    /// Where the value stands in the buffer, and its bytes; `None` deletes.
    value: Option<(u32, u32)>,
    /// Does the transaction hold it? What that means is the protocol's.
    pub(super) held: Cell<u64>,
    /// The version that it has installed.
    pub(super) version: Cell<Version>,
}

/// The sets of one transaction.
#[derive(Debug, Default)]
pub struct Sets {
    pub(super) reads: Vec<Read>,
    pub(super) writes: Vec<Write>,
    /// The leaves that scans have read, and their versions.
    leaves: Vec<(NodeNumber, u64, Key)>,
    /// Absent records that the transaction has made, watched and on no worker's list: it puts there
    /// at its end what it has not filled itself, which no cell names any more.
    made: Vec<Cell<Place>>,
    /// Locks that are held, in an engine that locks while it executes.
    pub(super) locks: Vec<(Place, u64)>,
    /// Behind the lock that was looked for last: records are mostly written in the order in which
    /// they were locked.
    next_lock: Cell<usize>,
    /// The transaction's timestamp, if the protocol gives it one when it begins.
    pub(super) timestamp: u64,
    /// Does it only read, and sees what there was earlier? Then nothing that it reads is noted.
    pub(super) is_snapshot: bool,
    /// It sees what was written before this timestamp, in an engine with several versions.
    pub(super) sees: u64,
    /// A record whose version, outside of it, it has read, and that has room for that version.
    pub(super) outside: Option<(Key, Place)>,
    /// When the latest of what it has read was written, in such an engine.
    pub(super) latest: u64,
    /// The epoch of its commit point, if it is logged and has passed it; else 0.
    pub(super) epoch: u64,
    bytes: Vec<u8>,
    /// The leaves that a scan or an insertion reads.
    pub(super) row: Vec<u8>,
    /// Where records of ordered tables stand that are to be read next.
    pub(super) found: Vec<(Key, Place)>,
    /// Where the read stands that was looked for last: records are mostly written as they were
    /// read.
    cursor: usize,
}

impl Sets {
    pub(super) fn clear(&mut self) {
        self.reads.clear();
        self.writes.clear();
        self.leaves.clear();
        self.made.clear();
        self.locks.clear();
        self.bytes.clear();
        self.found.clear();
        self.timestamp = 0;
        self.is_snapshot = false;
        self.sees = 0;
        self.outside = None;
        self.latest = 0;
        self.epoch = 0;
        self.cursor = 0;
        self.next_lock.set(0);
    }

    /// Where the record of `key` stands, if it was read.
    pub(super) fn place_of(&mut self, key: Key) -> Option<Place> {
        let (before, after) = self.reads.split_at(self.cursor.min(self.reads.len()));
        let found = after.iter().chain(before).position(|read| read.key == key)?;
        self.cursor = (self.cursor.min(self.reads.len()) + found) % self.reads.len();
        Some(self.reads[self.cursor].place)
    }

    /// Where the lock of the record at `place` stands among those that are held.
    pub(super) fn lock_at(&self, place: Place) -> Option<usize> {
        let (before, after) = self.locks.split_at(self.next_lock.get().min(self.locks.len()));
        let found = after.iter().chain(before).position(|(locked, _)| *locked == place)?;
        let at = (before.len() + found) % self.locks.len();
        self.next_lock.set(at + 1);
        Some(at)
    }

    /// The number of the write of `key`, if there is one.
    pub(super) fn written(&self, key: Key) -> Option<usize> {
        self.writes.iter().position(|write| write.key == key)
    }

    /// Does the transaction write the record at `place`? Of a write set that is in the order of
    /// memory, as in optimistic engines with one word a record.
    pub(super) fn writes_at(&self, place: Place) -> bool {
        self.writes.binary_search_by_key(&place, |write| write.place).is_ok()
    }

    /// The value of a write; `None` deletes.
    pub(super) fn value(&self, write: &Write) -> Option<&[u8]> {
        let (start, len) = write.value?;
        Some(&self.bytes[start as usize..(start + len) as usize])
    }

    /// Notes the first write of `key`.
    pub(super) fn write(&mut self, place: Place, key: Key, value: Option<&[u8]>) {
        let value = self.keep(value);
        let (held, version) = (Cell::default(), Cell::default());
        self.writes.push(Write { place, key, value, held, version });
    }

    /// Notes a later one, of the same key as the write of this number.
    pub(super) fn overwrite(&mut self, index: usize, value: Option<&[u8]>) {
        self.writes[index].value = self.keep(value);
    }

    fn keep(&mut self, value: Option<&[u8]>) -> Option<(u32, u32)> {
        let value = value?;
        let start = self.bytes.len();
        self.bytes.extend_from_slice(value);
        Some((start as u32, value.len() as u32))
    }

    /// Notes that a leaf was read, beginning with `key`.
    pub(super) fn note(&mut self, leaf: &Leaf, key: Key) {
        self.leaves.push((leaf.node, leaf.version, key));
    }

    /// Forgets which leaves were read.
    pub(super) fn forget_leaves(&mut self) {
        self.leaves.clear();
    }

    /// The leaves that were read, their versions, and a key of each.
    pub(super) fn leaves(&self) -> &[(NodeNumber, u64, Key)] {
        &self.leaves
    }

    /// Notes an absent record that was made for the transaction.
    pub(super) fn made(&mut self, place: Place) {
        self.made.push(Cell::new(place));
    }

    /// The transaction fills the record at `place`. Has it made it? Then nobody need watch it.
    pub(super) fn fills_own(&self, place: Place) -> bool {
        let own = self.made.iter().find(|made| made.get() == place);
        own.inspect(|made| made.set(Place::NONE)).is_some()
    }

    /// The records that were made, and that the transaction has not filled.
    pub(super) fn left_absent(&self) -> impl Iterator<Item = Place> {
        self.made.iter().map(Cell::get).filter(|place| place.is_some())
    }

    /// The transaction's own insertion must not look like another's. [Silo13 4.6] Returns whether
    /// it has read that leaf before: then it has seen that the record is absent.
    pub(super) fn inserted(&mut self, inserted: Inserted) -> bool {
        let mut was_read = false;
        for (node, version, _) in &mut self.leaves {
            if *node == inserted.node && *version == inserted.before {
                *version = inserted.after;
                was_read = true;
            }
        }
        was_read
    }

    /// VALIDATE of scans: nothing was inserted where they have read.
    pub(super) fn validate_leaves(
        &self,
        is_unchanged: impl Fn(NodeNumber, u64) -> bool,
    ) -> Result<(), Abort> {
        let changed = self.leaves.iter().find(|(node, version, _)| !is_unchanged(*node, *version));
        changed.map_or(Ok(()), |(_, _, key)| Err(Abort::Stale { key: *key }))
    }
}
