//! What lookups on the NIC cost: hits, reads by DMA, objects and bytes read. [Xenic21 4.1.4]

use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is counted.
#[derive(Clone, Copy, Debug)]
pub(super) enum Count {
    Lookups,
    Hits,
    Reads,
    Objects,
    Bytes,
    SecondReads,
    OverflowReads,
    HeaderReads,
    Retries,
}

const COUNTS: usize = Count::Retries as usize + 1;

/// One NIC core's counters: it alone adds to them, others read.
#[derive(Debug, Default)]
pub(super) struct LookupCounters([AtomicU64; COUNTS]);

impl LookupCounters {
    pub(super) fn add(&self, count: Count, amount: u64) {
        let cell = &self.0[count as usize];
        cell.store(cell.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> LookupStats {
        let at = |count: Count| self.0[count as usize].load(Ordering::Relaxed);
        LookupStats {
            lookups: at(Count::Lookups),
            hits: at(Count::Hits),
            dma_reads: at(Count::Reads),
            objects_read: at(Count::Objects),
            bytes_read: at(Count::Bytes),
            second_reads: at(Count::SecondReads),
            overflow_reads: at(Count::OverflowReads),
            header_reads: at(Count::HeaderReads),
            retries: at(Count::Retries),
        }
    }
}

/// What a node's NIC has spent on lookups so far; subtract two to measure what lies between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LookupStats {
    /// Keys looked up.
    pub lookups: u64,
    /// Answered by the index at once, negative entries included; the others missed.
    pub hits: u64,
    /// DMA reads of all kinds.
    pub dma_reads: u64,
    /// Slots read, those of overflow pages included, and values out of line.
    pub objects_read: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Second, adjacent reads: the hint d_i + k was too low.
    pub second_reads: u64,
    /// Overflow pages read.
    pub overflow_reads: u64,
    /// Segment headers read: to prove a key absent, to find its overflow or where it went.
    pub header_reads: u64,
    /// Searches begun again, since the host was moving or replacing what was read.
    pub retries: u64,
}

impl AddAssign for LookupStats {
    fn add_assign(&mut self, other: Self) {
        self.lookups += other.lookups;
        self.hits += other.hits;
        self.dma_reads += other.dma_reads;
        self.objects_read += other.objects_read;
        self.bytes_read += other.bytes_read;
        self.second_reads += other.second_reads;
        self.overflow_reads += other.overflow_reads;
        self.header_reads += other.header_reads;
        self.retries += other.retries;
    }
}
