//! What a history consists of: operations, the initial load, crashes.

use super::Promise;

/// A record's key: a number, or a string of bytes. Numbers come before strings.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// A 64-bit key.
    Number(u64),
    /// A key of any length.
    Bytes(Box<[u8]>),
}

impl From<crate::ids::Key> for Key {
    fn from(key: crate::ids::Key) -> Self {
        Self::Number(key.0)
    }
}

/// The result of a read of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    pub key: Key,
    /// Did the record exist?
    pub present: bool,
    /// The version read, where the system exports it. For an absent record it is a floor: the read
    /// saw the newest write with a version at or below it, which must be a deletion or none, and
    /// every later write has a higher version.
    pub version: Option<u64>,
    /// A 64-bit hash of the value read ([`digest`]), where the client knows the value.
    pub digest: Option<u64>,
}

/// The effect of a write on its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It stores a value.
    Put {
        /// A 64-bit hash of the value ([`digest`]), where the client knows the value.
        digest: Option<u64>,
    },
    /// It removes the record.
    Delete,
    /// The client cannot tell whether and what it writes: only in an operation of unknown outcome,
    /// and without a version.
    Unknown,
}

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    pub key: Key,
    pub effect: Effect,
    /// The version that it installs, where the client knows it. Versions of a key only grow, over
    /// deletions too; the first may be 1.
    pub version: Option<u64>,
}

/// A range that was read, and what was found there.
///
/// A scan returns the records of the range in the order of their keys, at most `limit` of them.
/// With fewer than `limit` it says that every other key of the range is absent; with `limit` it
/// says so of the keys up to the last one that it returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// The lowest key of the range.
    pub first: Key,
    /// The highest key of the range, which belongs to it.
    pub last: Key,
    /// Was the range read from its highest key downwards?
    pub backward: bool,
    /// Records asked for at most.
    pub limit: Option<u32>,
    /// The records returned, in the order of the scan; each present.
    pub found: Vec<Read>,
}

/// The reads and writes of a transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Txn {
    /// The keys read one by one. What its scans found may be listed here again.
    pub reads: Vec<Read>,
    pub scans: Vec<Scan>,
    /// The writes, in their order. All of them take effect at one instant, or none.
    pub writes: Vec<Write>,
    /// True if it may have written keys that its client does not know. Only if its outcome is
    /// unknown.
    pub writes_more: bool,
}

/// A client's request and its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Txn(Txn),
    /// A read of one key.
    Get {
        key: Key,
        /// The result; `None` unless the operation ended well.
        found: Option<Found>,
    },
    /// A write of one key.
    Put {
        /// The write; its effect is [`Effect::Put`].
        write: Write,
        /// The scope that a later [`Action::Persist`] makes durable.
        scope: Option<u64>,
    },
    /// A deletion of one key.
    Delete {
        /// The write; its effect is [`Effect::Delete`].
        write: Write,
        /// The scope that a later [`Action::Persist`] makes durable.
        scope: Option<u64>,
    },
    /// A read of a range.
    Scan(Scan),
    /// A request to make writes durable: those of a scope, or all of the client's so far.
    Persist {
        scope: Option<u64>,
    },
}

/// The result of an [`Action::Get`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// See [`Read::present`].
    pub present: bool,
    /// See [`Read::version`].
    pub version: Option<u64>,
    /// See [`Read::digest`].
    pub digest: Option<u64>,
}

/// How an operation ended, as its client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It took effect between invocation and response. A transaction has committed.
    Ok,
    /// It had no effect, and never will have: it is recorded so that a checker can prove that. A
    /// transaction has aborted.
    Failed,
    /// It took effect at some instant after its invocation, or never.
    Unknown,
}

/// One operation at its client's edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The client. Its operations do not overlap.
    pub client: u32,
    /// The operation's number among its client's: later ones have higher numbers.
    pub sequence: u64,
    /// The operation's id, unique in the history.
    pub id: u64,
    /// When the client asked, by the history's clock.
    pub invoked: u64,
    /// When the client learnt the end; `None` if it never did, in which case the outcome is unknown
    /// and this is the client's last operation.
    pub responded: Option<u64>,
    pub end: End,
    /// The request and its result.
    pub action: Action,
}

impl Operation {
    /// The transaction, if it is one.
    pub fn txn(&self) -> Option<&Txn> {
        match &self.action {
            Action::Txn(txn) => Some(txn),
            _ => None,
        }
    }
}

/// A record that was there before the first operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    pub key: Key,
    pub version: u64,
    /// A 64-bit hash of its value ([`digest`]), if known.
    pub digest: Option<u64>,
}

/// The records before the first operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Initial {
    /// Unknown: a key may be present at version 1, or absent. Only in histories that were converted
    /// from `nicol.history/1`.
    #[default]
    Untold,
    /// These records; every other key that an operation names or a scan covers was absent. Records
    /// that no operation names and no scan covers may be left out.
    Listed(Vec<Loaded>),
}

/// A crash of everything that serves, and what was found after the restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crash {
    /// When, by the history's clock.
    pub at: u64,
    /// The state after recovery and before the first operation that follows: these keys, as they
    /// were read. Keys that are not listed were not looked at.
    pub recovered: Vec<Read>,
}

/// The clients' requests and their results.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The promise of the system: which checker judges it.
    pub promise: Promise,
    /// The records before the first operation.
    pub initial: Initial,
    /// The operations, in any order.
    pub operations: Vec<Operation>,
    /// The crashes, in the order of time.
    pub crashes: Vec<Crash>,
}

/// The hash of a value that the driver records. Any 64-bit hash would do, as long as one history
/// uses one. Four words go side by side, since a product takes as long as several.
pub fn digest(value: &[u8]) -> u64 {
    use std::hash::Hasher;

    let mut lanes = [1, 2, 3, 4].map(|lane| {
        let mut hash = crate::ids::IdHasher::default();
        hash.write_u64(lane);
        hash
    });
    let (words, rest) = value.as_chunks();
    let (rows, words) = words.as_chunks::<4>();
    for row in rows {
        for (lane, word) in lanes.iter_mut().zip(row) {
            lane.write_u64(u64::from_le_bytes(*word));
        }
    }
    let mut hash = crate::ids::IdHasher::default();
    // The length tells a value from the same one with zeros behind it.
    hash.write_u64(value.len() as u64 + 1);
    lanes.iter().for_each(|lane| hash.write_u64(lane.finish()));
    hash.write(words.as_flattened());
    hash.write(rest);
    hash.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_tells_values_apart_by_every_byte_and_by_length() {
        let value: Vec<u8> = (0..100).collect();
        for at in 0..value.len() {
            let mut other = value.clone();
            other[at] ^= 1;
            assert_ne!(digest(&value), digest(&other), "byte {at}");
            assert_ne!(digest(&value), digest(&value[..at]), "length {at}");
        }
        assert_ne!(digest(&[0; 8]), digest(&[0; 16]));
        assert_ne!(digest(&[]), digest(&[0]));
    }

    #[test]
    fn numbers_come_before_strings() {
        assert!(Key::Number(u64::MAX) < Key::Bytes(Box::default()));
        assert_eq!(size_of::<Key>(), 16, "a numeric key costs no more than a pointer and a length");
    }
}
