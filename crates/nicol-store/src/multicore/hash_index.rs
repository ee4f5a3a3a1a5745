//! The index of unordered tables: chains of records that name the next one themselves.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU32, Ordering};

use nicol_core::ids::Key;

use super::SPREAD;
use super::arena::{PLACES, Place};
use super::prefetch::prefetch;
use super::range_index::Insertion;
use super::record::Record;

/// Set in a head while its chain is changed.
const LOCKED: u32 = 1 << 31;

const _: () = assert!(PLACES <= LOCKED as usize, "a head has room for a place and the lock");

/// Heads of chains. A lookup takes no lock: a record that was removed keeps the link to its next
/// one until no transaction can read it any more.
#[derive(Debug)]
pub(super) struct HashIndex {
    heads: Box<[AtomicU32]>,
    shift: u32,
}

/// The head of a chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head<'a>(&'a AtomicU32);

impl Head<'_> {
    /// The first record of the chain.
    #[inline]
    pub(super) fn first(self) -> Place {
        Place(self.0.load(Ordering::Acquire) & !LOCKED)
    }
}

impl HashIndex {
    /// An index for about `records` records.
    pub(super) fn new(records: u64) -> Self {
        let heads = records.max(16).next_power_of_two();
        Self {
            heads: (0..heads).map(|_| AtomicU32::new(0)).collect(),
            shift: 64 - heads.trailing_zeros(),
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        (self.heads.len() * size_of::<AtomicU32>()) as u64
    }

    /// Calls `each` with every record. Requires that no other thread changes the index.
    pub(super) fn for_each<'s>(
        &self,
        each: &mut dyn FnMut(Place),
        record: impl Fn(Place) -> Record<'s>,
    ) {
        for head in &self.heads {
            let mut place = Head(head).first();
            while place.is_some() {
                each(place);
                place = record(place).next();
            }
        }
    }

    fn head(&self, key: Key) -> &AtomicU32 {
        let mixed = (key.0 ^ key.0 >> 29).wrapping_mul(SPREAD);
        &self.heads[(mixed >> self.shift) as usize]
    }

    fn search<'s>(
        mut place: Place,
        key: Key,
        record: impl Fn(Place) -> Record<'s>,
    ) -> Option<Place> {
        while place.is_some() {
            let found = record(place);
            if found.key() == key {
                return Some(place);
            }
            place = found.next();
        }
        None
    }

    /// Asks for the head of the chain in which `key` would be; returns it.
    #[inline]
    pub(super) fn prefetch(&self, key: Key) -> Head<'_> {
        let head = self.head(key);
        prefetch(head);
        Head(head)
    }

    /// The record of `key`.
    pub(super) fn find<'s>(&self, key: Key, record: impl Fn(Place) -> Record<'s>) -> Option<Place> {
        Self::search(Head(self.head(key)).first(), key, record)
    }

    /// The same, of a chain that nobody was changing.
    pub(super) fn find_settled<'s>(
        &self,
        key: Key,
        record: impl Fn(Place) -> Record<'s>,
    ) -> Option<Place> {
        let head = self.head(key);
        let first = loop {
            let first = head.load(Ordering::Acquire);
            if first & LOCKED == 0 {
                break Place(first);
            }
            spin_loop();
        };
        Self::search(first, key, record)
    }

    /// Adds the record of `key` at `place`, which `begin` begins, unless there is one already. No
    /// other of this key is added or taken out meanwhile.
    pub(super) fn insert<'s>(
        &self,
        (key, place): (Key, Place),
        record: impl Fn(Place) -> Record<'s>,
        begin: impl FnOnce() -> Option<()>,
    ) -> Insertion {
        let head = Held::new(self.head(key));
        if let Some(found) = Self::search(head.first, key, &record) {
            return Insertion::Exists(found);
        }
        if begin().is_none() {
            return Insertion::Full;
        }
        record(place).set_next(head.first);
        head.change(place);
        Insertion::Done(None)
    }

    /// Takes the record of `key` at `place` out, if it is there.
    pub(super) fn remove<'s>(
        &self,
        key: Key,
        place: Place,
        record: impl Fn(Place) -> Record<'s>,
    ) -> bool {
        let head = Held::new(self.head(key));
        let (mut before, mut at) = (None, head.first);
        while at.is_some() && at != place {
            (before, at) = (Some(at), record(at).next());
        }
        if !at.is_some() {
            return false;
        }
        let next = record(at).next();
        match before {
            Some(before) => record(before).set_next(next),
            None => head.change(next),
        }
        true
    }
}

/// A chain that this thread has locked.
struct Held<'a> {
    head: &'a AtomicU32,
    first: Place,
    last: std::cell::Cell<Place>,
}

impl<'a> Held<'a> {
    fn new(head: &'a AtomicU32) -> Self {
        loop {
            let seen = head.load(Ordering::Relaxed);
            let free = seen & LOCKED == 0;
            let taken = free
                && head
                    .compare_exchange_weak(
                        seen,
                        seen | LOCKED,
                        // Who was not seen to lock sees what was there before that look.
                        Ordering::SeqCst,
                        Ordering::Relaxed,
                    )
                    .is_ok();
            if taken {
                let first = Place(seen);
                return Self { head, first, last: first.into() };
            }
            spin_loop();
        }
    }

    /// Makes `first` the first one once the chain is let go of.
    fn change(&self, first: Place) {
        self.last.set(first);
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.head.store(self.last.get().0, Ordering::Release);
    }
}
