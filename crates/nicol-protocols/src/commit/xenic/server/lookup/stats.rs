//! What lookups on the NIC cost: hits, reads by DMA, objects and bytes read. [Xenic21 4.1.4]

use std::sync::atomic::{AtomicU64, Ordering};

use nicol_core::commit::LookupStats;

/// What is counted.
#[derive(Clone, Copy, Debug)]
pub(super) enum Count {
    Lookups,
    Hits,
    NegativeHits,
    FirstReads,
    Reads,
    Objects,
    Bytes,
    SecondReads,
    OverflowReads,
    HeaderReads,
    Retries,
    Torn,
    Asked,
}

const COUNTS: usize = Count::Asked as usize + 1;

/// One NIC core's counters: it alone adds to them, others read.
#[derive(Debug, Default)]
pub(in crate::commit::xenic) struct LookupCounters([AtomicU64; COUNTS]);

impl LookupCounters {
    pub(super) fn add(&self, count: Count, amount: u64) {
        let cell = &self.0[count as usize];
        cell.store(cell.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
    }

    pub(in crate::commit::xenic) fn read(&self) -> LookupStats {
        let at = |count: Count| self.0[count as usize].load(Ordering::Relaxed);
        LookupStats {
            lookups: at(Count::Lookups),
            hits: at(Count::Hits),
            negative_hits: at(Count::NegativeHits),
            first_reads: at(Count::FirstReads),
            dma_reads: at(Count::Reads),
            objects_read: at(Count::Objects),
            bytes_read: at(Count::Bytes),
            second_reads: at(Count::SecondReads),
            overflow_reads: at(Count::OverflowReads),
            header_reads: at(Count::HeaderReads),
            retries: at(Count::Retries),
            torn: at(Count::Torn),
            asked: at(Count::Asked),
            doublings: 0,
        }
    }
}
