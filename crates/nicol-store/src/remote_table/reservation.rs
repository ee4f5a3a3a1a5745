//! Space for values: what a primary reserves before a transaction is logged, and where a replica
//! keeps what it finds no place for.
//!
//! What has committed is stored everywhere, without a panic and without a loss, because:
//!
//! - The primary says no in time. An absent key gets its slot when it is locked, and
//!   [`RemoteTable::reserve`] takes the very block that the new value will stand in. The block is
//!   nobody else's until [`RemoteTable::install`] fills it or [`RemoteTable::unlock`] gives it
//!   back. So a heap in pieces makes a reservation fail, never an install. Whether a write takes a
//!   block at all follows from the old and the new length ([`Geometry::takes_block`]), and the lock
//!   keeps the old one as it is.
//! - A replica never says no. It need not be less full than its primary, though all it stores was
//!   reserved there: its blocks lie elsewhere, and its logs have no order among them (AMB-37), so
//!   that it may hold the old, long value of one key beside the new, long value of another. What it
//!   finds no slot or no block for is a stray: a record in memory of its own, which costs an
//!   allocation, and which one-sided coordinators, who read primaries only, would not find. The
//!   next write of the key looks for a place again.
//!
//! A replica's records are the primary's, but for writes that wait in its logs: so its strays are
//! no larger than what lags behind, and what fragmentation or long chains have cost it.

use std::sync::atomic::Ordering;

use nicol_core::ids::{Key, TxnId, Version};

use super::heap::Heap;
use super::writer::Writer;
use super::{BlockRef, Found, Geometry, RemoteTable};

/// A record of a replica that found no place.
#[derive(Clone, Debug)]
pub(super) struct Stray {
    pub(super) version: Version,
    pub(super) value: Vec<u8>,
}

impl Geometry {
    /// Does a value of `new` bytes take a block of the heap beside what the record has? `old` is
    /// the length of its value, `None` if there is no record. If it does, the primary must have
    /// reserved it ([`RemoteTable::reserve`]) before the write commits.
    pub fn takes_block(&self, old: Option<usize>, new: usize) -> bool {
        let cost = |len: usize| if len <= self.inline() { 0 } else { Heap::cost(len as u32) };
        cost(new) > 0 && cost(new) != old.map_or(0, cost)
    }
}

impl RemoteTable {
    /// Reserves space for a new value of `len` bytes for `txn`, which holds the lock of `key`.
    /// Returns whether there is space; if not, nothing has changed. Also false if it holds
    /// no lock any more: then it has ended. May be repeated.
    ///
    /// Takes the block now, if the value takes one: see the module `reservation`. No allocation,
    /// unless the heap must merge free neighbours.
    pub fn reserve(&self, key: Key, txn: TxnId, len: usize) -> bool {
        let writer = &mut *self.writer();
        let Some((address, _)) = self.held_by(key, txn) else { return false };
        let old = self.block_of(address).map(|block| block.len as usize);
        if let Some(block) = writer.reserved.remove(&key) {
            self.reserved.fetch_sub(1, Ordering::Relaxed);
            writer.take_back(Some(block));
        }
        if !self.geometry.takes_block(old, len) {
            return true;
        }
        let len = len as u32;
        let Some(offset) = writer.heap.take(len) else { return false };
        writer.reserved.insert(key, BlockRef { offset, len });
        self.reserved.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Takes the block out that was reserved to the holder of `key`, if one was. The requests of
    /// one transaction come one after the other, so that the holder sees its own reservation.
    ///
    /// Takes the writer's mutex only while any reservation is open.
    pub(super) fn take_reservation(&self, key: Key) -> Option<BlockRef> {
        if self.reserved.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let block = self.writer().reserved.remove(&key)?;
        self.reserved.fetch_sub(1, Ordering::Relaxed);
        Some(block)
    }

    /// Keeps a record of a replica that found no place.
    pub(super) fn keep_stray(&self, writer: &mut Writer, key: Key, version: Version, value: &[u8]) {
        let stray = Stray { version, value: value.to_vec() };
        let fresh = writer.strays.insert(key, stray).is_none();
        assert!(fresh, "a stray is taken out before its key is written");
        self.strayed.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes out the stray of `key`, if there is one.
    pub(super) fn drop_stray(&self, writer: &mut Writer, key: Key) {
        if writer.strays.remove(&key).is_some() {
            self.strayed.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Looks `key` up among the strays; its value is appended to `into`.
    pub(super) fn find_stray(&self, key: Key, into: &mut Vec<u8>) -> Option<Found> {
        if self.strayed() == 0 {
            return None;
        }
        let writer = self.writer();
        let stray = writer.strays.get(&key)?;
        into.extend_from_slice(&stray.value);
        Some(Found { version: stray.version, present: true, locked: false })
    }

    /// Records that this replica has found no place for, and keeps apart.
    pub fn strayed(&self) -> u64 {
        self.strayed.load(Ordering::Relaxed)
    }
}
