//! Interactive transactions: procedures that read, write and scan while they run, at the memory
//! that the cores of one node share.
//!
//! They declare no keys and make no rounds: an operation costs what the engine's protocol takes for
//! it. A procedure is written against [`Interactive`] and returns at the first error; its caller,
//! which began the transaction, then ends it.

use crate::ids::{Key, Version};
use crate::txn::{Abort, KeyRange};

/// An observation of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// True if there is a record.
    pub present: bool,
    /// Its version; of an absent record a floor, as in [`Read`](crate::history::Read::version).
    pub version: Version,
}

/// A transaction that is open at an engine.
///
/// After an error only its end is of use. What it reads may be inconsistent until it has committed,
/// if the engine is optimistic: a procedure must refuse what makes no sense, and the refusal only
/// counts if what was read is still valid.
pub trait Interactive {
    /// Says what will be read soon, so that the cache misses of these keys may overlap. What is
    /// read later is the same without it.
    fn will_read(&self, _keys: impl Iterator<Item = Key>) {}

    /// Reads `key` into `value`, which is overwritten; its own writes included.
    ///
    /// # Errors
    /// Of the protocol: the transaction must abort.
    #[expect(async_fn_in_trait, reason = "futures stay on the polling thread that made them")]
    async fn read(&mut self, key: Key, value: &mut Vec<u8>) -> Result<Seen, Abort>;

    /// The same of a key that will be written, so that an engine with locks takes the right one.
    ///
    /// # Errors
    /// Of the protocol: the transaction must abort.
    #[expect(async_fn_in_trait, reason = "futures stay on the polling thread that made them")]
    async fn read_for_update(&mut self, key: Key, value: &mut Vec<u8>) -> Result<Seen, Abort>;

    /// Writes `value` to `key`, whether or not there is a record.
    ///
    /// # Errors
    /// Of the protocol, or [`Abort::NoResources`] if the table has no space for it.
    #[expect(async_fn_in_trait, reason = "futures stay on the polling thread that made them")]
    async fn write(&mut self, key: Key, value: &[u8]) -> Result<(), Abort>;

    /// Makes the record of `key`; returns false, and nothing happens, if there is one already.
    ///
    /// # Errors
    /// Of the protocol, or [`Abort::NoResources`] if the table has no space for it.
    #[expect(async_fn_in_trait, reason = "futures stay on the polling thread that made them")]
    async fn insert(&mut self, key: Key, value: &[u8]) -> Result<bool, Abort>;

    /// Removes the record of `key`, if there is one.
    ///
    /// # Errors
    /// Of the protocol: the transaction must abort.
    #[expect(async_fn_in_trait, reason = "futures stay on the polling thread that made them")]
    async fn delete(&mut self, key: Key) -> Result<(), Abort>;

    /// Calls `each` with the records of `range` in its order, up to its limit. Own writes to the
    /// range are not among them: a procedure scans before it writes.
    ///
    /// # Errors
    /// Of the protocol: the transaction must abort.
    #[expect(async_fn_in_trait, reason = "futures stay on the polling thread that made them")]
    async fn scan(
        &mut self,
        range: KeyRange,
        each: &mut dyn FnMut(Key, Version, &[u8]),
    ) -> Result<(), Abort>;
}
