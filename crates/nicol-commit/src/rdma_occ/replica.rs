//! A shard's records at one node: most in hash tables that other nodes read, lock and write
//! one-sidedly, those of ordered tables in a B+ tree, which only this node's engines touch.
//! [Xenic21 5.2: B+ trees for TPC-C's local tables]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nicol_core::ids::{Key, NodeId, TxnId, Version};
use nicol_core::memory::{Copies, Region};
use nicol_core::txn::{Abort, RangeVersion};
use nicol_store::host_table::{Applied, Lookup};
use nicol_store::ordered::WriteCounters;
use nicol_store::remote_table::{Busy, Found, LockRefused, RemoteTable};

use super::shape::Shape;
use crate::replica::{self, ShardTable, shard_table};
use crate::tables::ByTable;

/// The records that a node holds of a shard.
pub type Replica = replica::Replica<RemoteTable>;

shard_table!(RemoteTable {
    /// They stand in one region, and so do the copies.
    fn copies<'a>(tables: impl Iterator<Item = &'a Self> + Clone, pages: Copies) -> Vec<Self> {
        let first = tables.clone().next();
        let region = first.map(|table| Arc::new(table.region().copy_in(pages)));
        tables.zip(region.iter().cycle()).map(|(table, region)| table.copy_within(region)).collect()
    }

    fn check(&self) -> Vec<String> {
        Self::check(self)
    }
});

impl Replica {
    /// Empty tables of these shapes, for so many records each, in one region.
    pub(super) fn empty(shapes: &ByTable<Shape>) -> Self {
        let end = shapes.iter().map(|shape| shape.geometry.end()).max().unwrap_or_default();
        let region = Arc::new(Region::new(end));
        let table = |shape: &Shape| RemoteTable::within(&region, shape.geometry, shape.records);
        Self::new(shapes.map(table))
    }

    /// The region of all its tables.
    pub(super) fn region(&self) -> &Arc<Region> {
        self.tables.first().region()
    }
}

/// The replica that transactions read and write: its records, and the locks on those of ordered
/// tables, which no header word holds.
#[derive(Debug)]
pub(super) struct Primary {
    pub(super) replica: Replica,
    write_counters: WriteCounters,
    /// Records of ordered tables that were deleted.
    deletions: AtomicU64,
}

/// Deletions after which a primary's trees forget those that they remembered the last time. What is
/// forgotten aborts the insertions that are under way; what is not takes some 40 bytes.
const DELETIONS_REMEMBERED: u64 = 1 << 14;

impl Primary {
    pub(super) fn new(replica: Replica) -> Self {
        Self { replica, write_counters: WriteCounters::default(), deletions: AtomicU64::new(0) }
    }

    /// Locks `key` for `txn`, perhaps again; returns what the lock protects.
    pub(super) fn lock(&self, key: Key, txn: TxnId) -> Result<Lookup, Abort> {
        if key.is_ordered() {
            return match self.write_counters.try_lock(key, txn) {
                true => Ok(self.replica.ordered.tree().state_of(key)),
                false => Err(Abort::LockConflict { key }),
            };
        }
        match self.replica.tables.of(key).lock(key, txn) {
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
            self.write_counters.unlock(key, txn);
        } else {
            self.replica.tables.of(key).unlock(key, txn);
        }
    }

    /// True if there is space for an insertion of `key`.
    pub(super) fn has_capacity(&self, key: Key) -> bool {
        key.is_ordered() || self.replica.tables.of(key).has_capacity()
    }

    /// Looks `key` up; a value found is appended to `into`.
    pub(super) fn get(&self, key: Key, into: &mut Vec<u8>) -> Result<Found, Busy> {
        if !key.is_ordered() {
            return self.replica.tables.of(key).get(key, into);
        }
        // Before the record: the holder of the lock may already have told its client that it has
        // committed, and install only now.
        let locked = self.write_counters.is_locked(key);
        let Lookup { version, present } = self.replica.ordered.tree().get_exact(key, into);
        Ok(Found { version, present, locked })
    }

    /// True if a key that `txn` has locked is as it was `read`.
    pub(super) fn is_locked_as_read(&self, key: Key, txn: TxnId, read: Lookup) -> bool {
        if key.is_ordered() {
            return self.replica.ordered.tree().state_of(key) == read;
        }
        // Granted again, since the transaction holds it: the lock tells what it protects.
        self.lock(key, txn) == Ok(read)
    }

    /// Is what was `read` of `key` still current, and the key not locked? `scratch` takes its
    /// value.
    pub(super) fn validate(
        &self,
        key: Key,
        read: Lookup,
        heeds_locks: bool,
        scratch: &mut Vec<u8>,
    ) -> Result<(), Abort> {
        let (locked, as_read) = if key.is_ordered() {
            // In this order: a writer that unlocks in between has installed before.
            let locked = self.write_counters.is_locked(key);
            (locked, self.replica.ordered.tree().state_of(key) == read)
        } else {
            scratch.clear();
            match self.replica.tables.of(key).get(key, scratch) {
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
            return self.replica.tables.of(key).install(key, txn, version, value);
        }
        let applied = self.replica.ordered.apply(key, version, value);
        assert!(applied == Applied::Changed, "a COMMIT moves the version forward");
        // Between the two, the lock tells that the counts differ.
        self.write_counters.install(key);
        self.write_counters.unlock(key, txn);
        if value.is_none() {
            let deletions = self.deletions.fetch_add(1, Ordering::Relaxed) + 1;
            if deletions.is_multiple_of(DELETIONS_REMEMBERED) {
                self.replica.ordered.tree().forget_old_deletions();
            }
        }
    }

    /// True if the range scanned under `version` by `txn` is current, and not locked by others.
    pub(super) fn is_range_current(&self, version: RangeVersion, txn: TxnId) -> bool {
        self.write_counters.is_current(version, txn)
    }

    /// The transaction that `key` was locked for through [`Primary::lock`].
    pub(super) fn transaction_of(&self, key: Key) -> Option<TxnId> {
        if key.is_ordered() {
            return self.write_counters.holder(key);
        }
        self.replica.tables.of(key).holder(key)
    }

    /// The node whose transaction holds `key`.
    pub(super) fn holder_of(&self, key: Key) -> Option<NodeId> {
        if key.is_ordered() {
            return self.write_counters.holder(key)?.engine().map(|engine| engine.node);
        }
        self.replica.tables.of(key).owner_of(key).map(|engine| engine.node)
    }

    /// Calls `each` with every key that is locked, and the node whose transaction holds it.
    pub(super) fn for_each_locked(&self, each: &mut dyn FnMut(Key, NodeId)) {
        for table in self.replica.tables.iter() {
            table.for_each_locked(&mut |key, engine| each(key, engine.node));
        }
        self.write_counters.for_each_locked(&mut |key, txn| {
            if let Some(engine) = txn.engine() {
                each(key, engine.node);
            }
        });
    }

    /// Records that transactions hold locked.
    pub(super) fn locked_count(&self) -> usize {
        let hashed: usize = self.replica.tables.iter().map(RemoteTable::locked_count).sum();
        hashed + self.write_counters.locked_count()
    }
}

#[cfg(test)]
mod tests {
    use nicol_core::ids::{EngineId, Incarnation, NodeId, TableId};
    use nicol_core::txn::{KeyRange, ProcedureId, Txn};
    use nicol_core::units::Bytes;
    use nicol_store::remote_table::{Design, Geometry, TableConfig};

    use super::*;

    fn primary() -> Primary {
        let design = Design::Chained { bucket: 8 };
        let table =
            TableConfig { design, slots: 64, overflow_slots: 64, inline: 16, heap: Bytes(0) };
        let table = RemoteTable::new(Geometry::new(table), 64);
        let replica = Replica::new(ByTable::alone(table));
        [hashed(), ordered(2), ordered(4)].iter().for_each(|key| replica.load(*key, b"loaded"));
        Primary::new(replica)
    }

    fn hashed() -> Key {
        Key::new(TableId(1), 7)
    }

    fn ordered(row: u64) -> Key {
        Key::partitioned(TableId::ORDERED, 0, row)
    }

    fn txn(number: u64) -> TxnId {
        TxnId::new(EngineId::host(NodeId(0), 0), Incarnation::FIRST, number)
    }

    fn read(primary: &Primary, key: Key) -> Lookup {
        let found = primary.get(key, &mut Vec::new()).unwrap();
        Lookup { version: found.version, present: found.present }
    }

    fn scanned(primary: &Primary, txn: &mut Txn) -> Vec<Key> {
        txn.reset(ProcedureId(0), &[]);
        let range = KeyRange { first: ordered(0), last: ordered(9), backward: false, limit: 9 };
        let scan = txn.scan(range);
        assert!(primary.replica.ordered.scan_for(txn, scan).0);
        txn.entries().iter().map(|entry| entry.key).collect()
    }

    #[test]
    fn records_of_either_kind_are_locked_validated_and_installed_alike() {
        let primary = primary();
        let validate = |key, read| primary.validate(key, read, true, &mut Vec::new());
        for key in [hashed(), ordered(4), ordered(5), Key::new(TableId(1), 8)] {
            let before = read(&primary, key);
            assert_eq!(primary.lock(key, txn(1)).unwrap().present, before.present);
            assert_eq!(primary.lock(key, txn(2)), Err(Abort::LockConflict { key }));
            assert!(primary.is_locked_as_read(key, txn(1), before));
            assert!(primary.get(key, &mut Vec::new()).unwrap().locked);
            assert_eq!(validate(key, before), Err(Abort::ValidateLocked { key }));
            assert_eq!(primary.locked_count(), 1);
            primary.unlock(key, txn(2));
            assert_eq!(primary.locked_count(), 1, "another transaction unlocks nothing");
            primary.install(key, txn(1), before.version.next(), Some(b"new"));
            assert_eq!(primary.locked_count(), 0);
            assert_eq!(validate(key, before), Err(Abort::Stale { key }));
            let after = read(&primary, key);
            assert_eq!(after, Lookup { version: before.version.next(), present: true });
            assert_eq!(validate(key, after), Ok(()));
            primary.lock(key, txn(3)).unwrap();
            assert!(!primary.is_locked_as_read(key, txn(3), before));
            primary.install(key, txn(3), after.version.next(), None);
            assert_eq!(validate(key, after), Err(Abort::Stale { key }), "it is gone");
        }
        assert_eq!(primary.replica.check(), Vec::<String>::new());
    }

    #[test]
    fn a_scan_is_not_current_beside_a_lock_or_behind_a_phantom() {
        let (primary, mut scan) = (primary(), Txn::default());
        assert_eq!(scanned(&primary, &mut scan), [ordered(2), ordered(4)]);
        let current = |scan: &Txn| primary.is_range_current(scan.range_versions()[0], txn(1));
        assert!(current(&scan));
        let absent = primary.lock(ordered(3), txn(1)).unwrap();
        assert!(current(&scan), "the lock is its own");
        primary.unlock(ordered(3), txn(1));
        primary.lock(ordered(3), txn(2)).unwrap();
        assert!(!current(&scan), "somebody is about to insert");
        primary.install(ordered(3), txn(2), absent.version.next(), Some(b"phantom"));
        assert!(!current(&scan), "a record has come");
        assert_eq!(scanned(&primary, &mut scan), [2, 3, 4].map(ordered));
        assert!(current(&scan));
        primary.lock(ordered(2), txn(2)).unwrap();
        primary.install(ordered(2), txn(2), Version(2), None);
        assert!(!current(&scan), "a record has gone");
    }

    #[test]
    fn what_was_read_before_deletions_were_forgotten_is_not_inserted_over() {
        let primary = primary();
        let (absent, other) = (ordered(5), ordered(6));
        let write = |key, value| {
            let version = primary.lock(key, txn(1)).unwrap().version.next();
            primary.install(key, txn(1), version, value);
        };
        let before = read(&primary, absent);
        write(absent, Some(b"came"));
        write(absent, None);
        for _ in 0..2 * DELETIONS_REMEMBERED {
            write(other, Some(b"came"));
            write(other, None);
        }
        assert_eq!(primary.replica.ordered.tree().len(), 2);
        primary.lock(absent, txn(2)).unwrap();
        assert!(!primary.is_locked_as_read(absent, txn(2), before), "it was there meanwhile");
        assert!(primary.is_locked_as_read(absent, txn(2), read(&primary, absent)));
    }

    #[test]
    fn a_backup_that_has_applied_every_write_is_equal() {
        let primary = primary();
        let backup = primary.replica.copy_in(Copies::Own);
        let writes: [(Key, u64, Option<&[u8]>); 3] =
            [(hashed(), 2, Some(b"a")), (ordered(2), 2, None), (ordered(4), 2, Some(b"b"))];
        for (key, version, value) in writes {
            primary.lock(key, txn(1)).unwrap();
            primary.install(key, txn(1), Version(version), value);
            assert_ne!(backup.digest(), primary.replica.digest());
        }
        // Logs have no common order, and a record may come again.
        for (key, version, value) in writes.into_iter().rev().chain(writes) {
            backup.apply(key, Version(version), value);
        }
        assert_eq!(backup.digest(), primary.replica.digest());
        assert_eq!((backup.len(), backup.check()), (2, Vec::new()));
    }
}
