//! A shard's records at one node: most in the hash table that other nodes read, lock and write
//! one-sidedly, those of ordered tables in a B+ tree, which only this node's engines touch.
//! [Xenic21 5.2: B+ trees for TPC-C's local tables]

use nicol_core::ids::{Key, TxnId, Version};
use nicol_core::txn::{Abort, Guard};
use nicol_store::host_table::{Applied, Lookup};
use nicol_store::ordered::{OrderedTable, WriteGuards};
use nicol_store::remote_table::{Busy, Found, LockRefused, RemoteTable};

/// See the module.
#[derive(Debug)]
pub struct Replica {
    pub(super) table: RemoteTable,
    pub(super) ordered: OrderedTable,
}

impl Replica {
    /// An empty one, with this table.
    pub(super) fn new(table: RemoteTable) -> Self {
        Self { table, ordered: OrderedTable::default() }
    }

    /// One of its own with the same records. Of a replica that nobody else uses.
    pub(super) fn copy(&self) -> Self {
        Self { table: self.table.copy(), ordered: self.ordered.copy() }
    }

    /// Begins to load where keys are at home: see [`RemoteTable::touch`].
    pub(super) fn touch(&self, keys: &[Key]) {
        self.table.touch(keys.iter().copied().filter(|key| !key.is_ordered()));
    }

    /// Loads an initial record.
    pub(super) fn load(&self, key: Key, value: &[u8]) {
        if key.is_ordered() {
            self.ordered.load(key, value);
        } else {
            self.table.load(key, value);
        }
    }

    /// Applies a logged write. AMB-37: version-guarded and idempotent, since the logs have no order
    /// among them.
    pub(super) fn apply(&self, key: Key, version: Version, value: Option<&[u8]>) {
        if key.is_ordered() {
            self.ordered.apply(key, version, value);
        } else {
            self.table.apply(key, version, value);
        }
    }

    /// Calls `each` with every record.
    pub(super) fn for_each(&self, each: &mut dyn FnMut(Key, &[u8])) {
        self.table.for_each(&mut |key, _, value| each(key, value));
        self.ordered.tree().for_each(&mut |key, _, value| each(key, value));
    }

    /// Records.
    pub(super) fn len(&self) -> u64 {
        self.table.len() + self.ordered.tree().len()
    }

    /// A digest of all records, wherever they stand.
    pub(super) fn digest(&self) -> u64 {
        self.table.digest().wrapping_add(self.ordered.tree().digest())
    }

    pub(super) fn forget_old_deletions(&self) {
        self.table.forget_old_deletions();
        self.ordered.tree().forget_old_deletions();
    }

    /// Checks every structural invariant; one line for each breach.
    pub(super) fn check(&self) -> Vec<String> {
        let mut lines = self.table.check();
        lines.extend(self.ordered.tree().check());
        lines
    }
}

/// The replica that transactions read and write: its records, and the locks on those of ordered
/// tables, which no header word holds.
#[derive(Debug)]
pub(super) struct Primary {
    pub(super) replica: Replica,
    guards: WriteGuards,
}

impl Primary {
    pub(super) fn new(replica: Replica) -> Self {
        Self { replica, guards: WriteGuards::default() }
    }

    /// Locks `key` for `txn`, perhaps again; returns what the lock protects.
    pub(super) fn lock(&self, key: Key, txn: TxnId) -> Result<Lookup, Abort> {
        if key.is_ordered() {
            return match self.guards.try_lock(key, txn) {
                true => Ok(self.replica.ordered.tree().state_of(key)),
                false => Err(Abort::LockConflict { key }),
            };
        }
        match self.replica.table.lock(key, txn) {
            Ok(granted) => {
                Ok(Lookup { version: granted.unlocked.version(), present: granted.present })
            }
            Err(LockRefused::Held { .. }) => Err(Abort::LockConflict { key }),
            Err(LockRefused::Full) => Err(Abort::NoResources),
        }
    }

    /// Unlocks `key` if `txn` holds it.
    pub(super) fn unlock(&self, key: Key, txn: TxnId) {
        if key.is_ordered() {
            self.guards.unlock(key, txn);
        } else {
            self.replica.table.unlock(key, txn);
        }
    }

    /// Is there room for an insertion of `key`?
    pub(super) fn has_room(&self, key: Key) -> bool {
        key.is_ordered() || self.replica.table.has_room()
    }

    /// Looks `key` up; a value found is appended to `into`.
    pub(super) fn get(&self, key: Key, into: &mut Vec<u8>) -> Result<Found, Busy> {
        if !key.is_ordered() {
            return self.replica.table.get(key, into);
        }
        // Before the record: whoever held the lock then may have told its client already that it
        // has committed, and install only now.
        let locked = self.guards.is_locked(key);
        let Lookup { version, present } = self.replica.ordered.get(key, into);
        Ok(Found { version, present, locked })
    }

    /// Is a key that `txn` has locked as it was `read`?
    pub(super) fn is_locked_as_read(&self, key: Key, txn: TxnId, read: Lookup) -> bool {
        if key.is_ordered() {
            return self.replica.ordered.tree().is_as_read(key, read);
        }
        // Granted again, since the transaction holds it: the lock tells what it protects.
        self.lock(key, txn) == Ok(read)
    }

    /// Is what was `read` of `key` still current, and nobody's to write? `scratch` takes its value.
    pub(super) fn validate(
        &self,
        key: Key,
        read: Lookup,
        heeds_locks: bool,
        scratch: &mut Vec<u8>,
    ) -> Result<(), Abort> {
        let (locked, as_read) = if key.is_ordered() {
            // In this order: a writer that unlocks in between has installed before.
            let locked = self.guards.is_locked(key);
            (locked, self.replica.ordered.tree().is_as_read(key, read))
        } else {
            scratch.clear();
            match self.replica.table.get(key, scratch) {
                Ok(now) => (now.locked, (now.version, now.present) == (read.version, read.present)),
                // Someone who holds the lock is writing.
                Err(Busy) => return Err(Abort::ValidateLocked { key }),
            }
        };
        match (locked && heeds_locks, as_read) {
            (true, _) => Err(Abort::ValidateLocked { key }),
            (false, true) => Ok(()),
            (false, false) => Err(Abort::Stale { key }),
        }
    }

    /// Installs a write of `txn` and unlocks the key.
    pub(super) fn install(&self, key: Key, txn: TxnId, version: Version, value: Option<&[u8]>) {
        if !key.is_ordered() {
            return self.replica.table.install(key, txn, version, value);
        }
        let applied = self.replica.ordered.apply(key, version, value);
        assert!(applied == Applied::Changed, "a COMMIT moves the version forward");
        // Between the two, the lock tells that the counts differ.
        self.guards.install(key);
        self.guards.unlock(key, txn);
    }

    /// Is what `txn` has scanned under `guard` current, and nobody's to write?
    pub(super) fn is_guard_current(&self, guard: Guard, txn: TxnId) -> bool {
        self.guards.is_current(guard, txn)
    }

    /// Records that transactions hold locked.
    pub(super) fn locked_count(&self) -> usize {
        self.replica.table.locked_count() + self.guards.locked_count()
    }
}
