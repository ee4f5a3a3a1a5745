//! What lookups on the NIC cost: hits, reads by DMA, objects and bytes read. [Xenic21 4.1.4]

use std::sync::atomic::{AtomicU64, Ordering};

/// What is counted.
#[derive(Clone, Copy, Debug)]
pub(super) enum Count {
    /// Keys looked up.
    Lookups,
    /// Answered by the index at once, negative entries included; the others missed.
    Hits,
    /// Hits of a negative entry: there is no such record.
    NegativeHits,
    /// Searches that one DMA read answered.
    FirstReads,
    /// DMA reads of all kinds.
    Reads,
    /// Slots read, those of overflow pages included, and values out of line.
    Objects,
    /// Bytes read.
    Bytes,
    /// Second, adjacent reads: the hint d_i + k was too low.
    SecondReads,
    /// Overflow pages read.
    OverflowReads,
    /// Segment headers read: to prove a key absent, to find its overflow or where it went.
    HeaderReads,
    /// Searches begun again, since the host was moving or replacing what was read.
    Retries,
    /// Reads of slots that were torn: the host wrote a slot while it was read, and the key was in
    /// no other (AMB-03).
    Torn,
    /// Keys of ordered tables that the host was asked for.
    Asked,
}

/// The names of what is counted, in the order of [`Count`].
const NAMES: [&str; Count::Asked as usize + 1] = [
    "keys",
    "hits",
    "negative_hits",
    "first_reads",
    "dma_reads",
    "objects_read",
    "bytes_read",
    "second_reads",
    "overflow_reads",
    "header_reads",
    "retries",
    "torn_reads",
    "asked",
];

/// One NIC core's counters: it alone adds to them, others read.
#[derive(Debug, Default)]
pub(in crate::xenic) struct LookupCounters([AtomicU64; NAMES.len()]);

impl LookupCounters {
    pub(super) fn add(&self, count: Count, amount: u64) {
        let cell = &self.0[count as usize];
        cell.store(cell.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
    }

    /// The sums of several cores' counters, with their names.
    pub(in crate::xenic) fn sums(cores: &[Self]) -> impl Iterator<Item = (&'static str, u64)> {
        NAMES.into_iter().enumerate().map(|(index, name)| {
            let of = |core: &Self| core.0[index].load(Ordering::Relaxed);
            (name, cores.iter().map(of).sum())
        })
    }
}
