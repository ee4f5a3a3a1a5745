//! Values in memory, which replicas of one process may share.

use std::ops::Deref;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use nicol_core::history::digest;
use nicol_core::ids::Key;

use super::timestamp::Timestamp;

/// A value, which nobody changes. Clones are the same memory.
#[derive(Clone, Debug)]
pub struct Value(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    bytes: Box<[u8]>,
    /// Once somebody has asked: replicas are compared by their digests, and most of their values
    /// are the same memory.
    digest: OnceLock<u64>,
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        Self(Arc::new(Shared { bytes: bytes.into(), digest: OnceLock::new() }))
    }
}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Value {}

impl Value {
    /// The digest of its bytes.
    pub(super) fn digest(&self) -> u64 {
        *self.0.digest.get_or_init(|| digest(self))
    }
}

/// Places for values: more than a shard has writes under way at a time in the paper's runs.
const RECENT: usize = 64;

/// The values that a shard's replicas were sent last. Where all replicas are modelled by one
/// process, each would else keep a copy of every value that is written: most of the memory of a
/// simulation, and of its cache misses.
#[derive(Debug)]
pub(super) struct Recent(Mutex<[Option<(Key, Timestamp, Value)>; RECENT]>);

impl Default for Recent {
    fn default() -> Self {
        Self(Mutex::new([const { None }; RECENT]))
    }
}

impl Recent {
    /// The value of a write that has come as `bytes`: another replica's memory if that has just had
    /// the very same, else a copy, for those that follow.
    pub(super) fn share(&self, key: Key, ts: Timestamp, bytes: &[u8]) -> Value {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = &mut places[(key.0 ^ ts.bits()) as usize % RECENT];
        match place {
            Some((had, at, value)) if (*had, *at) == (key, ts) && **value == *bytes => {
                value.clone()
            }
            _ => {
                let value = Value::from(bytes);
                *place = Some((key, ts, value.clone()));
                value
            }
        }
    }

    /// Offers the value of a write that has got its timestamp, so that those who receive it may
    /// share it.
    pub(super) fn offer(&self, key: Key, ts: Timestamp, value: &Value) {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        places[(key.0 ^ ts.bits()) as usize % RECENT] = Some((key, ts, value.clone()));
    }
}

#[cfg(test)]
mod tests {
    use nicol_core::ids::{Incarnation, NodeId};

    use super::*;

    #[test]
    fn the_same_bytes_of_one_write_are_one_memory_and_no_others_are() {
        let recent = Recent::default();
        let ts = |version| Timestamp::new(version, NodeId(1), Incarnation::FIRST);
        let is_shared = |one: &Value, other: &Value| Arc::ptr_eq(&one.0, &other.0);
        let sent = Value::from(&b"bytes"[..]);
        recent.offer(Key(1), ts(1), &sent);
        assert!(is_shared(&recent.share(Key(1), ts(1), b"bytes"), &sent));
        // Damaged on the way: what has come counts.
        let damaged = recent.share(Key(1), ts(1), b"byte5");
        assert_eq!(*damaged, *b"byte5");
        for (key, ts) in [(Key(1), ts(2)), (Key(2), ts(1)), (Key(1), ts(1))] {
            let other = recent.share(key, ts, b"bytes");
            assert!(*other == *b"bytes" && !is_shared(&other, &sent), "{key:?} {ts:?}");
            assert_eq!(other.digest(), sent.digest());
        }
    }
}
