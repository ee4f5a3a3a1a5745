//! Shared locks, and validation of what a host has read. [Xenic21 4.2.3, 4.2.4]

use std::sync::atomic::Ordering;

use nicol_core::ids::{Key, TxnId, Version};

use super::{LockRefused, NicIndex};
use crate::host_table::SlotHash;

impl NicIndex {
    /// Takes a shared lock on `key`. Until as many [`NicIndex::unlock_shared`] have followed, no
    /// transaction can lock it. Refused while a transaction holds it.
    pub fn lock_shared(&self, hash: SlotHash, key: Key) -> Result<(), LockRefused> {
        let (mut stripe, entry) = self.open(hash);
        let Some(index) = stripe.find_or_add(entry, hash, key) else {
            return Err(LockRefused::Full);
        };
        let object = stripe.object(index);
        if let Some(holder) = object.holder() {
            return Err(LockRefused::Held(holder));
        }
        object.readers += 1;
        self.locked.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Releases one shared lock.
    ///
    /// # Panics
    /// If `key` has no shared lock.
    pub fn unlock_shared(&self, hash: SlotHash, key: Key) {
        let (mut stripe, entry) = self.open(hash);
        let index = stripe.find(entry, hash, key);
        assert!(index.is_some(), "a key that is being read stays in the index");
        let Some(index) = index else { return };
        let object = stripe.object(index);
        assert!(object.readers > 0, "a key is unshared as often as it was shared");
        object.readers -= 1;
        self.locked.fetch_sub(1, Ordering::Relaxed);
        if object.known().is_none() && object.readers == 0 {
            stripe.remove(index);
        }
        stripe.evict();
    }

    /// Returns whether the version that the host table held of `key` is still current, for `txn`;
    /// `None` if the index cannot tell. `version` is that of the record or, if it was not
    /// `present`, the floor of its segment. A key that another transaction has locked is not
    /// current.
    ///
    /// A key that the index does not know has not been installed since, unless its object was
    /// evicted meanwhile. Later versions of a record exceed `version`. An absent key, however, may
    /// have been inserted below the floor, if the host applied a later deletion first.
    ///
    /// Raises a negative entry to `version`, and gives one to a locked key, so that a later insert
    /// exceeds the version at which the caller saw the key absent.
    pub fn is_current(
        &self,
        hash: SlotHash,
        key: Key,
        txn: TxnId,
        (version, present): (Version, bool),
    ) -> Option<bool> {
        let (mut stripe, number) = self.open(hash);
        let entry = stripe.entry(number);
        let (floor, evicted) = (entry.floor, entry.evicted);
        if !present && floor > version {
            return Some(false);
        }
        if let Some(index) = stripe.find(number, hash, key) {
            let object = stripe.object(index);
            if object.holder().is_some_and(|holder| holder != txn) {
                return Some(false);
            }
            match object.known() {
                Some((now, is_present)) if present => return Some(is_present && now == version),
                Some((_, true)) => return Some(false),
                Some((now, false)) => {
                    object.set_known(version.max(now), false);
                    return Some(now <= version);
                }
                // It is locked. Others that look it up must not see a floor that has risen since.
                None if !present && evicted == Version(0) => {
                    object.set_known(version, false);
                    return Some(true);
                }
                None => {}
            }
        }
        let bound = if present { version } else { Version(0) };
        (evicted <= bound).then_some(true)
    }

    /// Confirms for `txn` that a key of an ordered table is absent at `version`, after an equal
    /// range version has shown that it is. Version 0: the key never had a record. Returns false if
    /// other transactions have locked it since, or may have seen it absent at a later version.
    ///
    /// Raises the key's version to `version`, so that a later insert exceeds the version at which
    /// the caller saw it absent. A lookup that is waiting for the host must ask again.
    pub fn confirm_absent_at(
        &self,
        hash: SlotHash,
        key: Key,
        txn: TxnId,
        version: Version,
    ) -> bool {
        let (mut stripe, number) = self.open(hash);
        // The floor is that of keys that may have been deleted. So is what was evicted: the key may
        // have been seen absent at a later version, of which nothing else is left.
        let entry = stripe.entry(number);
        let (floor, evicted) = (entry.floor, entry.evicted);
        if version > Version(0) && floor > version {
            return false;
        }
        let forgotten = version > Version(0) && evicted > version;
        let Some(index) = stripe.find(number, hash, key) else {
            stripe.forget_absent(number, version);
            return !forgotten;
        };
        let object = stripe.object(index);
        if object.holder().is_some_and(|holder| holder != txn) {
            return false;
        }
        match object.known() {
            Some((_, true)) => false,
            Some((now, false)) => {
                object.set_known(version.max(now), false);
                now <= version
            }
            None if forgotten => false,
            None => {
                object.set_known(version, false);
                true
            }
        }
    }
}
