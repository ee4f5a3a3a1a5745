//! Logs in host memory: rings of records, appended by DMA, by one-sided WRITEs or by the host, and
//! applied and zeroed by the host's workers.
//!
//! A record is a head word (length and record number), its kind, the body of a LOG or COMMIT as it
//! came over the wire, padding, and a foot word that repeats the head. Writes land in ascending
//! order, so a reader that sees the foot sees the record; the reader zeroes what it has applied, so
//! what lies beyond the tail never looks like a record.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nicol_core::engine::SpareBuffers;
use nicol_core::ids::{Key, ShardId, TxnId, Version};
use nicol_core::memory::{Region, WORD};
use nicol_core::units::Bytes;
use nicol_core::wire::{Malformed, Reader};
use nicol_kit::Item;

use crate::writes::{Change, WriteOf, WritesHead};

/// Bytes of a record besides its body: head, kind and foot.
const FRAMING: u64 = 3 * WORD as u64;
/// Length field of a record that only skips to the start of the ring.
const SKIP: u32 = u32::MAX;
/// Words behind the ring that its reader writes: how far it has looked, how far it has applied.
const PROGRESS_WORDS: u64 = 2;

/// The kind of a record's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordKind {
    /// A backup's LOG.
    Log,
    /// A primary's COMMIT.
    Commit,
    /// A message of the baselines, or the last part of one.
    Message,
    /// A part of a message, of which more follows.
    Part,
    /// What a backup has been told of transactions that it has logged.
    Decisions,
}

/// Bytes of a record with a body of `body` bytes.
pub(super) const fn record_len(body: usize) -> u64 {
    FRAMING + body.next_multiple_of(WORD) as u64
}

const fn head_word(number: u32, len: u32) -> u64 {
    (number as u64) << 32 | len as u64
}

const fn next_number(number: u32) -> u32 {
    if number == u32::MAX { 1 } else { number + 1 }
}

/// A log's memory, shared by its writer and its reader.
#[derive(Debug)]
pub struct LogMemory {
    region: Arc<Region>,
    size: u64,
    /// Where its writer begins again, unless a record is longer.
    lap: u64,
    reserved: AtomicU64,
    /// Bytes whose records are in the tables, freed or not.
    in_tables: AtomicU64,
}

impl LogMemory {
    /// A log of `capacity` bytes of host memory.
    pub fn new(capacity: Bytes) -> Self {
        Self::with_laps(capacity, capacity)
    }

    /// The same, whose writer begins again after each `lap` of bytes. What is behind takes memory
    /// only while records stand there that are longer.
    pub fn with_laps(capacity: Bytes, lap: Bytes) -> Self {
        let size = capacity.0.next_multiple_of(WORD as u64);
        Self {
            lap: lap.0.next_multiple_of(WORD as u64).min(size),
            region: Arc::new(Region::new(Bytes(size + PROGRESS_WORDS * WORD as u64))),
            size,
            reserved: AtomicU64::new(0),
            in_tables: AtomicU64::new(0),
        }
    }

    /// Bytes of the ring.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Bytes after which its writer begins again: so much memory it takes.
    pub fn lap(&self) -> u64 {
        self.lap
    }

    /// Bytes of the largest body that a record may have: half the ring, so that one always fits.
    pub fn body_max(&self) -> usize {
        (self.size / 2 - FRAMING) as usize
    }

    /// Bytes ever reserved, where the writer is of this node.
    pub(super) fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Acquire)
    }

    /// Notes what the writer has reserved.
    pub(super) fn reserve(&self, reserved: u64) {
        self.reserved.store(reserved, Ordering::Release);
    }

    /// Bytes that the worker has applied.
    pub(super) fn applied(&self) -> u64 {
        self.load(applied_offset(self.size))
    }

    /// True once every record is applied that this node's writer has reserved.
    pub fn is_settled(&self) -> bool {
        self.applied() == self.reserved()
    }

    /// True once every record is applied that its reader has seen.
    pub(super) fn has_applied_what_it_saw(&self) -> bool {
        self.load(seen_offset(self.size)) == self.applied()
    }

    /// True once all contiguous records are applied. Remote-written rings only.
    pub(super) fn is_idle(&self) -> bool {
        let applied = self.applied();
        self.load(seen_offset(self.size)) == applied && self.load(applied % self.size) == 0
    }

    /// Is everything in the tables that has landed without a gap, freed or not? For a ring that
    /// others write. What stands behind may be torn, if its writer `is_gone`: nobody reads it.
    pub(super) fn is_in_tables(&self, is_gone: impl FnOnce() -> bool) -> bool {
        let end = self.in_tables.load(Ordering::Acquire);
        self.load(seen_offset(self.size)) == end
            && (self.load(end % self.size) == 0 || !self.is_whole(end % self.size) && is_gone())
    }

    /// True once the record that begins at `offset` has landed as a whole.
    fn is_whole(&self, offset: u64) -> bool {
        let head = self.load(offset);
        let foot = offset + record_len(head as u32 as usize) - WORD as u64;
        head as u32 == SKIP || foot < self.size && self.load(foot) == head
    }

    pub(super) fn region(&self) -> &Arc<Region> {
        &self.region
    }

    #[inline]
    fn load(&self, offset: u64) -> u64 {
        match self.region.load(offset) {
            Ok(word) => word,
            Err(error) => panic!("a log's own access failed: {error}"),
        }
    }

    #[inline]
    fn store(&self, offset: u64, word: u64) {
        if let Err(error) = self.region.store(offset, word) {
            panic!("a log's own access failed: {error}");
        }
    }
}

/// Where the reader of a ring of `size` bytes says up to where it has looked: written before a
/// record is zeroed. The word of [`applied_offset`] is the next one.
pub(super) const fn seen_offset(size: u64) -> u64 {
    size
}

/// Where the reader of a ring of `size` bytes says up to where its space is free again.
pub(super) const fn applied_offset(size: u64) -> u64 {
    size + WORD as u64
}

/// A writer's place in a ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tail {
    size: u64,
    lap: u64,
    at: u64,
    number: u32,
}

impl Tail {
    /// The start of a ring of `size` bytes.
    pub(super) const fn new(size: u64) -> Self {
        Self { size, lap: size, at: 0, number: 1 }
    }

    /// The start of the ring in `memory`.
    pub(super) const fn of(memory: &LogMemory) -> Self {
        Self { lap: memory.lap, ..Self::new(memory.size) }
    }

    /// Bytes of the ring.
    pub(super) const fn size(&self) -> u64 {
        self.size
    }

    /// Bytes ever reserved; the position in the ring is this modulo its size.
    pub(super) const fn at(&self) -> u64 {
        self.at
    }

    /// Passes a record with this body, and what it skips.
    pub(super) const fn pass(&mut self, body: usize) {
        self.at += self.needed(body);
    }

    /// Bytes that a record with this body takes from here on, with what it skips.
    #[inline]
    pub(super) const fn needed(&self, body: usize) -> u64 {
        self.skipped(body) + record_len(body)
    }

    /// Bytes up to the end of the ring if a record with this body does not stand before it, or
    /// belongs into the next lap; else 0.
    #[inline]
    const fn skipped(&self, body: usize) -> u64 {
        let (len, offset) = (record_len(body), self.at % self.size);
        let end = if len <= self.lap { self.lap } else { self.size };
        if offset + len <= end { 0 } else { self.size - offset }
    }

    /// Passes the end of the ring if a record with this body does not fit before it, or the lap is
    /// over: the word that says so to the reader, and where it belongs.
    #[inline]
    pub(super) fn skip(&mut self, body: usize) -> Option<(u64, u64)> {
        let skipped = self.skipped(body);
        if skipped == 0 {
            return None;
        }
        let slot = (self.at % self.size, head_word(self.number, SKIP));
        self.at += skipped;
        self.number = next_number(self.number);
        Some(slot)
    }

    /// The next record, for which there is space before the ring's end, of a body of so many bytes.
    #[inline]
    pub(super) fn next(&mut self, kind: RecordKind, body: usize) -> Framed {
        let (head, len) = (head_word(self.number, body as u32), record_len(body));
        let lead = u128::from(head) | (kind as u128) << 64;
        let offset = self.at % self.size;
        assert!(offset + len <= self.size, "a record lies inside its log");
        self.at += len;
        self.number = next_number(self.number);
        Framed { offset, lead: lead.to_le_bytes(), foot: head.to_le_bytes() }
    }

    /// Puts the next record into `record`; returns its offset in the ring.
    pub(super) fn frame(&mut self, kind: RecordKind, body: &[u8], record: &mut Vec<u8>) -> u64 {
        let framed = self.next(kind, body.len());
        record.reserve(record_len(body.len()) as usize);
        let padding = body.len().next_multiple_of(WORD) - body.len();
        for part in [&framed.lead[..], body, &[0; WORD][..padding], &framed.foot] {
            record.extend_from_slice(part);
        }
        framed.offset
    }
}

/// Where a record stands in its ring, and what stands around its body.
pub(super) struct Framed {
    pub(super) offset: u64,
    /// Head and kind.
    lead: [u8; 2 * WORD],
    foot: [u8; WORD],
}

impl Framed {
    /// The record in its parts, of which the body is filled up to whole words.
    #[inline]
    pub(super) fn parts<'a>(&'a self, body: &'a [u8]) -> [&'a [u8]; 3] {
        [&self.lead, body, &self.foot]
    }
}

/// The host's end of a log.
pub(super) struct LogReader {
    memory: Arc<LogMemory>,
    position: u64,
    number: u32,
    /// What was read last: bodies one behind the other, and where each ends. The buffer keeps its
    /// length, so that it is not zeroed before every read.
    bodies: Vec<u8>,
    records: Vec<(RecordKind, usize)>,
    /// The position behind each of them.
    ends: Vec<u64>,
}

impl LogReader {
    pub(super) fn new(memory: Arc<LogMemory>) -> Self {
        let (bodies, records, ends) = (Vec::new(), Vec::new(), Vec::new());
        Self { memory, position: 0, number: 1, bodies, records, ends }
    }

    /// Notes that everything read so far has been applied; returns how many bytes that are.
    pub(super) fn applied(&self) -> u64 {
        self.free(self.position);
        self.position
    }

    /// Bytes that have been read so far.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Notes that everything read so far is in the tables.
    pub(super) fn note_in_tables(&self) {
        self.memory.in_tables.store(self.position, Ordering::Release);
    }

    /// Frees what has been read up to `position`.
    pub(super) fn free(&self, position: u64) {
        self.memory.store(applied_offset(self.memory.size), position);
    }

    /// Reads the next records that have landed completely, `most` of them at most, in place of
    /// those read before; zeroes and passes them. Returns how many there were.
    pub(super) fn read(&mut self, most: usize) -> usize {
        self.records.clear();
        self.ends.clear();
        while self.records.len() < most && self.read_one().is_some() {}
        self.records.len()
    }

    /// Gives a large buffer back: there is nothing to read.
    pub(super) fn rest(&mut self) {
        if !SpareBuffers::keeps(&self.bodies) {
            self.records.clear();
            self.bodies = Vec::new();
        }
    }

    /// The records read last, in the order of the log.
    pub(super) fn records(&self) -> impl ExactSizeIterator<Item = (RecordKind, &[u8])> {
        let mut start = 0;
        self.records.iter().map(move |&(kind, end)| {
            let body = &self.bodies[start..end];
            start = end;
            (kind, body)
        })
    }

    /// The position in the log behind each of them.
    pub(super) fn ends(&self) -> &[u64] {
        &self.ends
    }

    #[inline]
    fn read_one(&mut self) -> Option<()> {
        let Self { memory, position, number, bodies, records, ends } = self;
        loop {
            let region = &memory.region;
            let size = memory.size;
            let offset = *position % size;
            let head = region.load(offset).ok()?;
            if (head >> 32) as u32 != *number {
                return None;
            }
            if head as u32 == SKIP {
                let mark = region.words(offset, WORD as u64).ok()?;
                Self::step(position, number, memory, size - offset);
                mark.zero();
                continue;
            }
            let len = record_len(head as u32 as usize);
            let record = region.words(offset, len).ok()?;
            if record.load(record.len() - 1) != head {
                return None;
            }
            let kind = match record.load(1) {
                0 => RecordKind::Log,
                1 => RecordKind::Commit,
                2 => RecordKind::Message,
                4 => RecordKind::Decisions,
                _ => RecordKind::Part,
            };
            let start = records.last().map_or(0, |&(_, end)| end);
            let end = start + head as u32 as usize;
            if bodies.len() < end {
                bodies.resize(end, 0);
            }
            record.read(2, &mut bodies[start..end]);
            records.push((kind, end));
            Self::step(position, number, memory, len);
            if offset + len <= memory.lap {
                record.zero();
            } else {
                region.release(offset, len).ok()?;
            }
            ends.push(*position);
            return Some(());
        }
    }

    /// Moves on by `len` bytes and says so, before they are zeroed: an engine that finds zeros must
    /// also find that the bytes were read.
    #[inline]
    fn step(position: &mut u64, number: &mut u32, memory: &LogMemory, len: u64) {
        *position += len;
        *number = next_number(*number);
        memory.store(seen_offset(memory.size), *position);
    }
}

/// A record's body: the writes of a transaction, which are checked as they are taken.
#[derive(Clone, Copy)]
pub(super) struct Logged<'a> {
    pub(super) txn: TxnId,
    pub(super) shard: ShardId,
    /// Writes that have not been taken.
    left: u16,
    rest: Reader<'a>,
}

#[cold]
fn corrupted(malformed: Malformed) -> ! {
    panic!("a log record that was valid when written cannot be parsed any more: {malformed}")
}

/// Parses a record's body. Panics if it cannot be parsed, then or when its writes are taken: it
/// could before it was logged, so memory is corrupted, and the node must stop.
#[inline]
pub(super) fn logged(body: &[u8]) -> Logged<'_> {
    let mut rest = Reader::new(body);
    let parsed = WritesHead::parse(&mut rest);
    let WritesHead { txn, part, .. } = parsed.unwrap_or_else(|malformed| corrupted(malformed));
    Logged { txn, shard: part.shard, left: part.keys, rest }
}

impl<'a> Iterator for Logged<'a> {
    type Item = (Key, Version, Change<'a>);

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let taken = match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                WriteOf::parse(&mut self.rest).map(Some)
            }
            None => self.rest.finish().map(|()| None),
        };
        taken.unwrap_or_else(|malformed| corrupted(malformed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a record as a NIC's DMA does.
    fn append(memory: &LogMemory, tail: &mut Tail, body: &[u8]) {
        if let Some((offset, word)) = tail.skip(body.len()) {
            memory.store(offset, word);
        }
        let mut record = Vec::new();
        let offset = tail.frame(RecordKind::Commit, body, &mut record);
        memory.region().write(offset, &record).unwrap();
        memory.reserve(tail.at());
    }

    #[test]
    fn what_was_appended_is_read_in_order_and_in_batches_around_the_ring() {
        let memory = Arc::new(LogMemory::new(Bytes(1_000)));
        let (mut tail, mut reader) = (Tail::new(memory.size()), LogReader::new(memory.clone()));
        let mut next = 0_u8;
        for round in 0..500_usize {
            let first = next;
            let records = round % 5;
            for _ in 0..records {
                append(&memory, &mut tail, &vec![next; usize::from(next) % 90]);
                next = next.wrapping_add(1);
            }
            let (most, mut expected) = (3, first);
            while expected != next {
                assert!((1..=most).contains(&reader.read(most)), "round {round}");
                for (kind, body) in reader.records() {
                    assert_eq!(kind, RecordKind::Commit);
                    assert_eq!(body, vec![expected; usize::from(expected) % 90]);
                    expected = expected.wrapping_add(1);
                }
            }
            assert_eq!((reader.read(most), reader.records().count()), (0, 0));
            assert_eq!((reader.applied(), memory.is_settled()), (tail.at(), true));
        }
    }

    #[test]
    fn a_record_whose_foot_has_not_landed_is_not_read() {
        let memory = Arc::new(LogMemory::new(Bytes(1_000)));
        let (mut tail, mut reader) = (Tail::new(memory.size()), LogReader::new(memory.clone()));
        append(&memory, &mut tail, b"whole");
        let mut record = Vec::new();
        let offset = tail.frame(RecordKind::Log, b"half of it", &mut record);
        let foot = record.split_off(record.len() - WORD);
        memory.region().write(offset, &record).unwrap();
        assert_eq!(reader.read(9), 1);
        assert_eq!(reader.read(9), 0);
        memory.region().write(offset + record.len() as u64, &foot).unwrap();
        assert_eq!(reader.read(9), 1);
        assert_eq!(reader.records().next(), Some((RecordKind::Log, &b"half of it"[..])));
    }
}
