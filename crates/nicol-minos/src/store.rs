//! The records of a node, which its engines share.

use std::hash::Hasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nicol_core::fabric::HasDoorbell;
use nicol_core::ids::{IdHasher, IdMap, Key};
use nicol_core::memory::Doorbell;
use nicol_core::units::Bytes;

use super::record::Record;
use super::timestamp::Timestamp;
use super::value::Value;

/// Stripes of the table: several for each core of any node that is modelled, so that engines on
/// threads seldom meet in one.
const STRIPES: usize = 64;

/// Records by key, striped over short mutexes that are never held across an await (decision 0005).
/// A record of which nobody has heard is like one that was never written.
#[derive(Debug)]
pub struct Store {
    stripes: Box<[Mutex<IdMap<Key, Record>>]>,
    /// Read locks that are taken.
    locked: AtomicU64,
    /// Bytes of all values.
    value_bytes: AtomicU64,
    records: AtomicU64,
    /// The highest version of all records that were forgotten.
    forgotten: AtomicU64,
}

/// Bytes of a record besides its value: its entry, and as much for the free entries of its table
/// and what the allocator keeps.
const RECORD_BYTES: u64 = 2 * size_of::<(Key, Record)>() as u64;

/// Entries from which on the table of a stripe becomes smaller again.
const SHRINKS: usize = 1 << 10;

impl Store {
    pub(super) fn new() -> Self {
        let stripes = (0..STRIPES).map(|_| Mutex::default());
        let [locked, value_bytes, records, forgotten] = Default::default();
        Self { stripes: stripes.collect(), locked, value_bytes, records, forgotten }
    }

    /// Makes room for so many records.
    pub(super) fn reserve(&self, records: u64) {
        for stripe in &self.stripes {
            let mut stripe = stripe.lock().unwrap_or_else(PoisonError::into_inner);
            stripe.reserve((records / STRIPES as u64) as usize);
        }
    }

    /// The memory of its records.
    pub(super) fn bytes(&self) -> Bytes {
        let records = self.records.load(Ordering::Relaxed);
        Bytes(self.value_bytes.load(Ordering::Relaxed) + records * RECORD_BYTES)
    }

    fn stripe(&self, key: Key) -> MutexGuard<'_, IdMap<Key, Record>> {
        // The lower bits of rows that are numbered are spread evenly.
        let place = (key.0 ^ key.0 >> 32) as usize % STRIPES;
        self.stripes[place].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a record as it is.
    pub(super) fn insert(&self, key: Key, record: Record) {
        let bytes = record.value_bytes();
        let before = self.stripe(key).insert(key, record);
        assert!(before.is_none(), "a record is taken once");
        self.value_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.records.fetch_add(1, Ordering::Relaxed);
    }

    /// Looks at a record.
    pub(super) fn look<T>(&self, key: Key, look: impl FnOnce(&Record) -> T) -> T {
        match self.stripe(key).get(&key) {
            Some(record) => look(record),
            None => look(&Record::default()),
        }
    }

    /// Changes a record, and wakes all tasks that wait for a change of it.
    pub(super) fn change<T>(&self, key: Key, change: impl FnOnce(&mut Record) -> T) -> T {
        let mut stripe = self.stripe(key);
        let record = self.record_in(&mut stripe, key);
        let (before, bytes) = (record.rd_lock.is_some(), record.value_bytes());
        let result = change(record);
        // Wraps where a value has become shorter, and so does the sum.
        let more = record.value_bytes().wrapping_sub(bytes);
        if more != 0 {
            self.value_bytes.fetch_add(more, Ordering::Relaxed);
        }
        match (before, record.rd_lock.is_some()) {
            (false, true) => _ = self.locked.fetch_add(1, Ordering::Relaxed),
            (true, false) => _ = self.locked.fetch_sub(1, Ordering::Relaxed),
            _ => {}
        }
        if let Some(bell) = &record.bell {
            bell.ring();
        }
        result
    }

    /// Wakes all tasks that wait for a change of `key`.
    pub(super) fn wake(&self, key: Key) {
        self.change(key, |_| ());
    }

    /// The result of `take` on a record. If that is `None`, the bell that the next change rings,
    /// and how often it has rung so far; it wakes nobody.
    pub(super) fn take_or_watch<T>(
        &self,
        key: Key,
        take: impl FnOnce(&mut Record) -> Option<T>,
    ) -> Result<T, (Arc<dyn HasDoorbell>, u64)> {
        let mut stripe = self.stripe(key);
        let record = self.record_in(&mut stripe, key);
        if let Some(taken) = take(record) {
            return Ok(taken);
        }
        Err(watch(record))
    }

    /// As [`Self::take_or_watch`], for what leaves the record as it is. A record that does not
    /// exist is not made for it, or reads of absent keys would fill the memory.
    pub(super) fn look_or_watch<T>(
        &self,
        key: Key,
        look: impl FnOnce(&Record) -> Option<T>,
    ) -> Result<T, (Arc<dyn HasDoorbell>, u64)> {
        let mut stripe = self.stripe(key);
        let seen = match stripe.get(&key) {
            Some(record) => look(record),
            None => look(&Record::default()),
        };
        seen.ok_or_else(|| watch(self.record_in(&mut stripe, key)))
    }

    /// The record of `key`, which is made if there is none.
    fn record_in<'s>(&self, stripe: &'s mut IdMap<Key, Record>, key: Key) -> &'s mut Record {
        stripe.entry(key).or_insert_with(|| {
            self.records.fetch_add(1, Ordering::Relaxed);
            Record { issued: self.forgotten(), ..Record::default() }
        })
    }

    /// The highest version of all records that were forgotten; 0: none was.
    pub(super) fn forgotten(&self) -> u64 {
        self.forgotten.load(Ordering::Relaxed)
    }

    /// Gives no new record a version up to this one.
    pub(super) fn pass_forgotten(&self, version: u64) {
        self.forgotten.fetch_max(version, Ordering::Relaxed);
    }

    /// One more write of `key` is coordinated or followed here. It wakes nobody.
    pub(super) fn enter(&self, key: Key) {
        let mut stripe = self.stripe(key);
        self.record_in(&mut stripe, key).open += 1;
    }

    /// One less.
    pub(super) fn leave(&self, key: Key) {
        if let Some(record) = self.stripe(key).get_mut(&key) {
            record.open = record.open.saturating_sub(1);
        }
    }

    /// Forgets the record of `key`, deleted at `ts`, if it `may`.
    pub(super) fn forget(&self, key: Key, ts: Timestamp, may: impl FnOnce(&Record) -> bool) {
        let mut stripe = self.stripe(key);
        let Some(record) = stripe.get(&key).filter(|record| may(record)) else { return };
        assert!(record.value.is_none(), "a value is not forgotten");
        self.pass_forgotten(ts.version().max(record.issued));
        stripe.remove(&key);
        self.records.fetch_sub(1, Ordering::Relaxed);
        if stripe.capacity() > SHRINKS && stripe.len() < stripe.capacity() / 4 {
            let twice = 2 * stripe.len();
            stripe.shrink_to(twice);
        }
    }

    /// The deletions whose records are here, in the order of their keys.
    pub(super) fn deletions(&self) -> Vec<(Key, Timestamp)> {
        let deleted =
            |record: &Record| record.value.is_none() && record.value_ts != Timestamp::NONE;
        let keys = self.keys(deleted).into_iter();
        keys.map(|key| (key, self.look(key, |record| record.value_ts))).collect()
    }

    /// Read locks that are taken.
    pub(super) fn rd_locks(&self) -> u64 {
        self.locked.load(Ordering::Relaxed)
    }

    /// Write locks that are taken. Goes over every record.
    pub(super) fn wr_locks(&self) -> u64 {
        let mut locks = 0;
        self.for_each(|_, record| locks += u64::from(record.wr_lock));
        locks
    }

    /// Calls `each` with every record.
    pub(super) fn for_each(&self, mut each: impl FnMut(Key, &Record)) {
        for stripe in &self.stripes {
            let stripe = stripe.lock().unwrap_or_else(PoisonError::into_inner);
            stripe.iter().for_each(|(key, record)| each(*key, record));
        }
    }

    /// The keys of the records of which `wanted` is true, in their order.
    pub(super) fn keys(&self, wanted: impl Fn(&Record) -> bool) -> Vec<Key> {
        let mut keys = Vec::new();
        self.for_each(|key, record| {
            if wanted(record) {
                keys.push(key);
            }
        });
        keys.sort_unstable();
        keys
    }

    /// Keeps the values and resets the rest: the lives of all engines that worked on the records
    /// are over.
    pub(super) fn keep_values(&self) {
        for stripe in &self.stripes {
            let mut stripe = stripe.lock().unwrap_or_else(PoisonError::into_inner);
            stripe.values_mut().for_each(Record::keep_value);
        }
        self.locked.store(0, Ordering::Relaxed);
    }

    /// Forgets everything: the crash of the memory that it is in.
    pub(super) fn lose(&self) {
        for stripe in &self.stripes {
            stripe.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
        for count in [&self.locked, &self.value_bytes, &self.records, &self.forgotten] {
            count.store(0, Ordering::Relaxed);
        }
    }
}

/// The bell that the next change of a record rings, and how often it has rung.
fn watch(record: &mut Record) -> (Arc<dyn HasDoorbell>, u64) {
    let bell: Arc<Doorbell> = record.bell.get_or_insert_default().clone();
    let rings = bell.rings();
    (bell, rings)
}

/// A hash of a record's state, of which those of a shard add up to its digest.
pub(super) fn digest_of(key: Key, record: &Record) -> u64 {
    let value = record.value.as_ref().map_or(0, Value::digest);
    let mut hasher = IdHasher::default();
    [key.0, record.value_ts.bits(), value].iter().for_each(|part| hasher.write_u64(*part));
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn to_look_for_a_record_that_is_not_there_takes_no_memory() {
        let store = Store::new();
        for key in (0..100).map(Key) {
            let absent = store.look_or_watch(key, |record| Some(record.value.is_none()));
            assert!(matches!(absent, Ok(true)));
        }
        assert_eq!(store.bytes(), Bytes(0));
        // Who waits for a change needs a bell there.
        let Err((bell, rings)) = store.look_or_watch(Key(7), |_| None::<()>) else {
            panic!("there is nothing to take")
        };
        store.wake(Key(7));
        assert!(bell.doorbell().rings() > rings && store.bytes() == Bytes(RECORD_BYTES));
    }
}
