//! DrTM-KV broken on purpose, for the checkers' negative tests: a client before the true one, which
//! gets wrongly (`front.rs`), and a service before the server, which spoils what is asked of it and
//! what puts leave (`server.rs`). The steps know nothing of it.

pub(super) mod front;
pub(super) mod server;

use super::layout::HEADER;

/// Ways to break the protocol on purpose, so that a sweep can show that its checkers see it.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    None,
    /// A get takes what an entry points to for its key's.
    TrustsExtents,
    /// A search ends with the first bucket of a chain.
    IgnoresChains,
    /// A put is acknowledged before it is made.
    AcknowledgesEarly,
    /// Some puts are acknowledged and not made.
    LosesPuts,
    /// A put takes an extent that nobody gets back.
    KeepsExtents,
    /// A put leaves the old value in the cache.
    KeepsCached,
    /// A put takes the key's old place out of its bucket, and writes the new one a little later: a
    /// READ of the bucket meanwhile has half of the change.
    TearsBuckets,
    /// Copies of the index name the old value for a while after a put, and it can still be read.
    LeavesOldCopies,
}

/// The value in an extent, whatever else it holds.
fn unverified(extent: &[u8]) -> &[u8] {
    let len = extent.get(4..8).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
    let value = extent.get(HEADER as usize..).unwrap_or_default();
    value.get(..len.unwrap_or_default() as usize).unwrap_or(value)
}
