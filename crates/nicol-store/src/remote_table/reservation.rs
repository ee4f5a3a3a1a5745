//! Space for values: reservations that a primary makes before a transaction is logged, and the
//! strays of replicas.
//!
//! A committed write is stored at every replica, without a panic and without a loss:
//!
//! - The primary refuses in time. An absent key gets its slot when it is locked, and
//!   [`RemoteTable::reserve`] allocates the block for the new value. No other write gets the block
//!   until [`RemoteTable::install`] fills it or [`RemoteTable::unlock`] frees it. A fragmented heap
//!   can therefore make a reservation fail, but never an install. Whether a write needs a block
//!   follows from the old and the new length ([`Geometry::takes_block`]); the lock keeps the old
//!   length unchanged.
//! - A replica never refuses. It may be fuller than its primary, although everything it stores was
//!   reserved there: its blocks are placed differently, and its logs have no common order (AMB-37),
//!   so it may hold the old, long value of one key beside the new, long value of another. A record
//!   without a slot or a block is a stray: it is kept in separate memory, which costs an
//!   allocation. One-sided coordinators would not find it, but they read primaries only. The next
//!   write of the key tries again to store it in the table.
//!
//! A replica's records are the primary's, except for writes that wait in its logs. Its strays are
//! therefore bounded by those writes and by the space lost to fragmentation and long chains.

use std::sync::atomic::Ordering;

use nicol_core::ids::{Key, TxnId, Version};

use super::heap::Heap;
use super::writer::{Stray, Writer};
use super::{BlockRef, Found, Geometry, RemoteTable};

impl Geometry {
    /// Returns true if a value of `new` bytes needs another block than the record has. `old` is the
    /// length of its value, `None` if there is no record. If so, the primary must reserve the block
    /// ([`RemoteTable::reserve`]) before the write commits.
    pub fn takes_block(&self, old: Option<usize>, new: usize) -> bool {
        let cost = |len: usize| if len <= self.inline() { 0 } else { Heap::cost(len as u32) };
        cost(new) > 0 && cost(new) != old.map_or(0, cost)
    }
}

impl RemoteTable {
    /// Reserves space for a new value of `len` bytes for `txn`, which holds the lock of `key`.
    /// Returns whether there is space; if not, nothing has changed. Also false if `txn` no longer
    /// holds the lock, because it has ended. May be repeated.
    ///
    /// Allocates the block at once, if the value needs one. Allocates no host memory unless the
    /// heap must merge free neighbours.
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

    /// Takes the block that was reserved for the holder of `key`, if any. The requests of one
    /// transaction arrive in order, so the holder sees its own reservation.
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

    /// Keeps a record of a replica as a stray.
    pub(super) fn keep_stray(&self, writer: &mut Writer, key: Key, version: Version, value: &[u8]) {
        let stray = Stray { version, value: value.to_vec() };
        let fresh = writer.strays.insert(key, stray).is_none();
        assert!(fresh, "a stray is taken out before its key is written");
        self.strayed.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes the stray of `key`, if there is one.
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

    /// Strays of this replica.
    pub fn strayed(&self) -> u64 {
        self.strayed.load(Ordering::Relaxed)
    }
}
