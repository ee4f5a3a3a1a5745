//! A transaction as the coordinator and the workload share it: keys, values, results, in buffers
//! that are reused from one transaction to the next.

mod key_index;
mod procedures;
mod scan;

use std::ops::Range;

use self::key_index::KeyIndex;
use crate::fabric::FabricError;
use crate::ids::{Key, ShardId, TxnId, Version};
use crate::wire::append;
pub use procedures::{Execute, Procedures, RequestKeys, Scheduling};
pub use scan::{Collector, KeyRange, RangeVersion, SCANS_MAX, Scan, VersionRange};

/// Keys that one transaction may touch.
pub const KEYS_MAX: usize = 16_384;
/// Bytes of the largest value: 64 MB, and what may stand before it in a record.
pub const VALUE_MAX: usize = (64 << 20) + (4 << 10);
/// Bytes of all values and arguments of one transaction.
pub const TXN_BYTES_MAX: usize = 4 << 20;

/// A registered procedure: the execution logic of a transaction, known by number on every node so
/// that it can be shipped. [Xenic21 4.2.2]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcedureId(pub u16);

/// The decision of an execution round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The write set is complete: commit.
    Commit,
    /// Keys were added: read (and lock) them, then execute again. [Xenic21 4.2.2]
    More,
    /// The application refuses (for example: insufficient funds). Nothing is written.
    Refuse,
}

/// A span of the transaction's arena.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Span {
    start: u32,
    len: u32,
}

/// One key of the transaction.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub key: Key,
    /// Whether it is in the write set (and so locked by EXECUTE).
    pub write: bool,
    /// Whether `version`, `present` and the value read are known yet.
    pub fetched: bool,
    /// Whether the record existed when read.
    pub present: bool,
    /// The version read; for an absent record, its segment's floor.
    pub version: Version,
    /// True if it was read under a [`RangeVersion`], which validates it.
    pub range_checked: bool,
    /// True if it was executed elsewhere, so that its values are not known here.
    pub remote: bool,
    /// Does execution write it without looking at what was there? Then a system may leave the read
    /// out.
    pub blind: bool,
    /// Is it a new record of which nobody else knows yet? See [`Txn::insert`].
    pub insert: bool,
    /// Has the system taken it as the coordinator's own, and left out lock and read? See
    /// [`Txn::own_inserts`].
    pub own: bool,
    read: Span,
    update: Option<Update>,
}

/// The effect of a write on its record.
#[derive(Clone, Copy, Debug)]
enum Update {
    Put(Span),
    Delete,
}

/// A write of the transaction, as it is logged and installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write<'a> {
    pub key: Key,
    /// The version that the write installs: the version read plus one, unless the system has chosen
    /// [another](Txn::install_at).
    pub version: Version,
    /// The new value; `None` deletes the record.
    pub value: Option<&'a [u8]>,
}

/// A transaction in reusable buffers: no allocation once they have grown to the workload's size.
#[derive(Clone, Debug, Default)]
pub struct Txn {
    /// Its id, given by the coordinator at each attempt.
    pub id: TxnId,
    pub procedure: ProcedureId,
    /// May the execution logic run on NIC cores? [Xenic21 4.3.3: user annotation]
    pub ship: bool,
    /// True if it must run on the host that has all its keys, because its procedure scans ordered
    /// tables.
    pub local: bool,
    /// The procedure's result for the client (opaque to the protocol).
    pub output: Vec<u8>,
    installs: Option<Version>,
    entries: Vec<Entry>,
    keys: KeyIndex,
    /// The entry whose key is added next, if this round of the procedure is like the one before.
    expected: usize,
    arena: Vec<u8>,
    args: Span,
    scans: Vec<Scan>,
    /// Indices of the entries that the scans found, scan after scan.
    found: Vec<u32>,
    range_versions: Vec<RangeVersion>,
}

impl Txn {
    /// Empties it for the next transaction, keeping the buffers.
    pub fn reset(&mut self, procedure: ProcedureId, args: &[u8]) {
        self.id = TxnId(0);
        self.procedure = procedure;
        self.ship = false;
        self.output.clear();
        self.installs = None;
        self.entries.clear();
        self.keys.rebuild(&self.entries);
        self.expected = 0;
        self.arena.clear();
        self.args = self.keep(args);
        self.local = false;
        self.forget_scans();
    }

    /// Makes it equal to `other`, in its own buffers.
    pub fn copy_from(&mut self, other: &Self) {
        self.id = other.id;
        self.procedure = other.procedure;
        self.ship = other.ship;
        self.output.clone_from(&other.output);
        self.installs = other.installs;
        self.entries.clone_from(&other.entries);
        self.keys.copy_from(&other.keys);
        self.expected = other.expected;
        self.arena.clone_from(&other.arena);
        self.args = other.args;
        self.scans.clone_from(&other.scans);
        self.found.clone_from(&other.found);
        self.range_versions.clone_from(&other.range_versions);
        self.local = other.local;
    }

    /// Forgets what was read and written but keeps procedure, arguments and the initial keys in
    /// the first `initial` entries: a retry of the same transaction.
    pub fn rewind(&mut self, initial: usize) {
        self.id = TxnId(0);
        self.output.clear();
        self.installs = None;
        self.entries.truncate(initial);
        self.keys.rebuild(&self.entries);
        self.expected = 0;
        self.arena.truncate((self.args.start + self.args.len) as usize);
        for entry in &mut self.entries {
            let Entry { blind, insert, .. } = *entry;
            *entry = Entry { blind, insert, ..Entry::new(entry.key, entry.write) };
        }
        self.forget_scans();
    }

    /// Records what a shipped execution read and wrote at `index`, without the values.
    pub fn executed_remotely(&mut self, index: usize, version: Version, present: bool) {
        let entry = &mut self.entries[index];
        entry.fetched = true;
        entry.present = present;
        entry.version = version;
        entry.remote = true;
        entry.read = Span::default();
    }

    /// The arguments (the external state of [Xenic21 4.2.2]).
    pub fn args(&self) -> &[u8] {
        self.slice(self.args)
    }

    /// Adds `key` to the read set; returns its index. A key already present keeps its index.
    pub fn read(&mut self, key: Key) -> usize {
        self.add(key, false)
    }

    /// Adds `key` to the write set (read as well, and locked); returns its index.
    ///
    /// A key that was already fetched as a plain read is marked for a further round that locks it.
    pub fn write(&mut self, key: Key) -> usize {
        self.add(key, true)
    }

    /// Adds `key` to the write set, to be written whatever was there: its execution puts a value
    /// and neither reads nor deletes. Returns its index. A key already present is only marked as
    /// written.
    pub fn overwrite(&mut self, key: Key) -> usize {
        let is_new = self.find(key).is_none();
        let index = self.add(key, true);
        self.entries[index].blind |= is_new;
        index
    }

    /// Adds `key` to the write set as a new record, of which no other transaction knows before
    /// this one has committed: the key has never had a record, and it follows from a record that
    /// this one has locked, such as a counter. Returns its index. A key already present is only
    /// marked as written. No range that has such records is read in a later round.
    pub fn insert(&mut self, key: Key) -> usize {
        let before = self.entries.len();
        let index = self.add(key, true);
        self.entries[index].insert |= self.entries.len() > before;
        index
    }

    /// Takes the inserts that are `mine` as the coordinator's own: absent at version 0, without
    /// lock or read. Returns true if nothing else is left to fetch, so that execution goes on at
    /// once.
    pub fn own_inserts(&mut self, mine: impl Fn(&Entry) -> bool) -> bool {
        let mut owned = false;
        for entry in &mut self.entries {
            if entry.insert && !entry.fetched && mine(entry) {
                *entry = Entry { fetched: true, own: true, ..*entry };
                owned = true;
            }
        }
        let is_left = |entry: &Entry| !entry.fetched;
        owned && !self.entries.iter().any(is_left) && self.scans.iter().all(Scan::is_done)
    }

    /// Adds `key` as [`Txn::own_inserts`] leaves it, in another copy of the transaction; `None` if
    /// the key is there already.
    pub fn add_own(&mut self, key: Key) -> Option<usize> {
        if self.find(key).is_some() || self.entries.len() == KEYS_MAX {
            return None;
        }
        let index = self.add(key, true);
        let entry = self.entries[index];
        self.entries[index] = Entry { fetched: true, insert: true, own: true, ..entry };
        Some(index)
    }

    /// All writes install this version, which the system has chosen: it is above what each record
    /// has, or had when a later write overtook this one.
    pub fn install_at(&mut self, version: Version) {
        self.installs = Some(version);
    }

    /// All keys, in the order they were added.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// True if none of its keys is to be written.
    pub fn declares_no_write(&self) -> bool {
        self.entries.iter().all(|entry| !entry.write)
    }

    /// The index of `key`, if it is in either set.
    #[inline]
    pub fn find(&self, key: Key) -> Option<usize> {
        self.keys.find(&self.entries, key)
    }

    /// The value read at `index`, `None` if the record was absent.
    ///
    /// # Panics
    /// If it has not been fetched yet.
    pub fn value(&self, index: usize) -> Option<&[u8]> {
        let entry = &self.entries[index];
        assert!(entry.fetched, "a value is read after EXECUTE fetched it");
        entry.present.then(|| self.slice(entry.read))
    }

    /// Records what EXECUTE returned for the key at `index`.
    #[inline]
    pub fn fetched(&mut self, index: usize, version: Version, value: Option<&[u8]>) {
        let read = self.keep(value.unwrap_or_default());
        let at = read.start as usize..(read.start + read.len) as usize;
        self.fetched_at(index, version, value.map(|_| at));
    }

    /// The buffer of its values, for whoever reads without a copy in between: a value is appended
    /// to it and noted by [`Txn::fetched_at`].
    #[inline]
    pub const fn values(&mut self) -> &mut Vec<u8> {
        &mut self.arena
    }

    /// Records what EXECUTE returned for the key at `index`: the value that stands there in
    /// [`Txn::values`], or that there is none.
    #[inline]
    pub fn fetched_at(&mut self, index: usize, version: Version, value: Option<Range<usize>>) {
        assert!(self.arena.len() <= u32::MAX as usize, "the arena is indexed by 32 bits");
        let present = value.is_some();
        let at = value.unwrap_or_default();
        let read = Span { start: at.start as u32, len: at.len() as u32 };
        let entry = &mut self.entries[index];
        *entry = Entry { fetched: true, present, version, remote: false, read, ..*entry };
    }

    /// Sets the new value of the write-set key at `index`.
    ///
    /// # Panics
    /// If the key is not in the write set.
    #[inline]
    pub fn put(&mut self, index: usize, value: &[u8]) {
        assert!(self.entries[index].write, "only a write-set key is locked");
        let span = self.keep(value);
        self.entries[index].update = Some(Update::Put(span));
    }

    /// Deletes the record of the write-set key at `index` (nothing happens if it was absent).
    ///
    /// # Panics
    /// If the key is not in the write set.
    pub fn delete(&mut self, index: usize) {
        assert!(self.entries[index].write, "only a write-set key is locked");
        self.entries[index].update = Some(Update::Delete);
    }

    /// The write at `index`, if execution decided on one.
    #[inline]
    pub fn update(&self, index: usize) -> Option<Write<'_>> {
        let entry = &self.entries[index];
        let value = match entry.update? {
            Update::Put(span) => Some(self.slice(span)),
            Update::Delete if entry.present => None,
            Update::Delete => return None,
        };
        let version = self.installs.unwrap_or(entry.version.next());
        Some(Write { key: entry.key, version, value })
    }

    /// True if execution has decided on a write.
    #[inline]
    pub fn has_updates(&self) -> bool {
        self.entries.iter().any(Entry::is_updated)
    }

    /// Every write that execution decided on.
    pub fn updates(&self) -> impl Iterator<Item = Write<'_>> {
        (0..self.entries.len()).filter_map(|index| self.update(index))
    }

    #[inline]
    fn add(&mut self, key: Key, write: bool) -> usize {
        let expected = self.expected;
        match self.entries.get(expected) {
            Some(entry) if entry.key == key && (entry.write || !write) => {
                self.expected = expected + 1;
                expected
            }
            _ => self.add_unexpected(key, write),
        }
    }

    /// Adds `key`, or finds it, where it does not stand as it was added in the round before.
    fn add_unexpected(&mut self, key: Key, write: bool) -> usize {
        let Some(index) = self.find(key) else {
            assert!(self.entries.len() < KEYS_MAX, "a transaction touches at most {KEYS_MAX} keys");
            self.entries.push(Entry::new(key, write));
            self.keys.added(&self.entries);
            self.expected = self.entries.len();
            return self.entries.len() - 1;
        };
        self.expected = index + 1;
        let entry = &mut self.entries[index];
        if write && !entry.write {
            *entry = Entry::new(key, true);
        }
        index
    }

    /// A procedure runs from its start again: the keys that it adds are mostly those of the round
    /// before, in their order.
    pub(crate) fn begin_round(&mut self) {
        self.expected = 0;
    }

    #[inline]
    fn keep(&mut self, bytes: &[u8]) -> Span {
        let start = self.arena.len();
        assert!(start + bytes.len() <= u32::MAX as usize, "the arena is indexed by 32 bits");
        append(&mut self.arena, bytes);
        Span { start: start as u32, len: bytes.len() as u32 }
    }

    #[inline]
    fn slice(&self, span: Span) -> &[u8] {
        &self.arena[span.start as usize..(span.start + span.len) as usize]
    }
}

impl Entry {
    /// True if execution has decided on a write of it.
    #[inline]
    pub const fn is_updated(&self) -> bool {
        match self.update {
            None => false,
            Some(Update::Put(_)) => true,
            Some(Update::Delete) => self.present,
        }
    }

    #[inline]
    fn new(key: Key, write: bool) -> Self {
        Self {
            key,
            write,
            fetched: false,
            present: false,
            version: Version(0),
            range_checked: false,
            remote: false,
            blind: false,
            insert: false,
            own: false,
            read: Span::default(),
            update: None,
        }
    }
}

/// Why a transaction did not commit. Nothing of it is visible; it may be retried if the reason is
/// [retryable](Abort::retryable).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abort {
    /// EXECUTE found `key` locked by another transaction.
    LockConflict {
        key: Key,
    },
    /// VALIDATE found another version of `key` than was read.
    Stale {
        key: Key,
    },
    /// VALIDATE found `key` locked by another transaction.
    ValidateLocked {
        key: Key,
    },
    Refused,
    /// A table, log or limit is full.
    NoResources,
    /// The fabric failed before the commit point.
    Fabric(FabricError),
    /// The node that holds the primary of `shard` has crashed, and no view has moved the shard: no
    /// node serves it.
    ShardUnavailable {
        shard: ShardId,
    },
    /// `key` is locked by a transaction that a crashed node has left undecided: only a recovery may
    /// release it.
    AwaitsRecovery {
        key: Key,
    },
}

impl Abort {
    /// Every reason's name, in the order of reports.
    pub const NAMES: [&str; 8] = [
        "lock_conflict",
        "stale",
        "validate_locked",
        "refused",
        "no_resources",
        "fabric",
        "shard_unavailable",
        "awaits_recovery",
    ];
    /// How many of [`Abort::NAMES`], from the first on, need no crash.
    pub const WITHOUT_CRASHES: usize = 6;

    /// The reason's index into [`Abort::NAMES`].
    pub const fn index(&self) -> usize {
        match self {
            Self::LockConflict { .. } => 0,
            Self::Stale { .. } => 1,
            Self::ValidateLocked { .. } => 2,
            Self::Refused => 3,
            Self::NoResources => 4,
            Self::Fabric(_) => 5,
            Self::ShardUnavailable { .. } => 6,
            Self::AwaitsRecovery { .. } => 7,
        }
    }

    pub const fn name(&self) -> &'static str {
        Self::NAMES[self.index()]
    }

    /// Would the same transaction, tried again later, have a fair chance?
    pub const fn retryable(&self) -> bool {
        !matches!(self, Self::Refused | Self::ShardUnavailable { .. } | Self::AwaitsRecovery { .. })
    }
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Committed: replicated at every backup, visible to every later transaction.
    Committed,
    /// Not committed, and never will be.
    Aborted(Abort),
    /// A fault after the commit point's first message: it may or may not take effect.
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, Stream};

    /// The index of every key, by a look at all entries.
    fn indices_hold(txn: &Txn) -> bool {
        let found = |at: usize| txn.find(txn.entries()[at].key) == Some(at);
        (0..txn.entries().len()).all(found)
    }

    #[test]
    fn keys_are_found_however_many_and_whatever_was_added_before() {
        let mut random = Stream::new(1, Purpose::Test, 0);
        let mut txn = Txn::default();
        for round in 0..40 {
            txn.reset(ProcedureId(0), &[]);
            let initial = random.below(40) as usize;
            let keys = if round == 0 { KEYS_MAX } else { 1 + random.below(300) as usize };
            for number in 0..keys {
                // Neighbouring keys, as rows of a table are, and a few that meet again.
                let key =
                    Key(random.below(3) << 40
                        | (number as u64 - random.below(2).min(number as u64)));
                let expected = txn.entries().iter().position(|entry| entry.key == key);
                assert_eq!(txn.find(key), expected);
                let index = if number % 2 == 0 { txn.read(key) } else { txn.write(key) };
                assert_eq!(index, expected.unwrap_or(txn.entries().len() - 1));
            }
            assert!(indices_hold(&txn));
            let before: Vec<Key> = txn.entries().iter().map(|entry| entry.key).collect();
            // Another round adds them again, mostly in their order.
            txn.begin_round();
            for at in 0..before.len() {
                let at =
                    if random.below(4) == 0 { random.below(at as u64 + 1) as usize } else { at };
                assert_eq!(txn.read(before[at]), at);
            }
            assert_eq!(txn.entries().len(), before.len());
            txn.rewind(initial.min(before.len()));
            assert!(indices_hold(&txn));
            assert!(before[txn.entries().len()..].iter().all(|key| txn.find(*key).is_none()));
            let mut copy = Txn::default();
            copy.copy_from(&txn);
            assert!(indices_hold(&copy));
            assert_eq!(copy.write(Key(u64::MAX)), txn.entries().len());
            assert!(indices_hold(&copy));
        }
    }

    #[test]
    fn a_value_that_is_appended_is_what_was_read() {
        let mut txn = Txn::default();
        txn.reset(ProcedureId(0), b"arguments");
        let (one, two) = (txn.read(Key(1)), txn.write(Key(2)));
        let start = txn.values().len();
        txn.values().extend_from_slice(b"value");
        let end = txn.values().len();
        txn.fetched_at(one, Version(7), Some(start..end));
        txn.fetched_at(two, Version(8), None);
        txn.put(two, b"new");
        assert_eq!((txn.value(one), txn.value(two)), (Some(&b"value"[..]), None));
        assert_eq!((txn.entries()[one].version, txn.entries()[two].present), (Version(7), false));
        assert_eq!(txn.update(two).and_then(|write| write.value), Some(&b"new"[..]));
        assert_eq!(txn.args(), b"arguments");
    }
}
