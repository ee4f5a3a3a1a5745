//! The host-memory log: the NIC appends by DMA, the host's workers apply and zero. [Xenic21 4.2]
//!
//! One log per NIC core, a ring of records. A record is a head word (length and record number), the
//! body of a LOG or COMMIT as it came over the wire, padding, and a foot word that repeats the
//! head. PCIe writes land in ascending order, so a reader that sees the foot sees the record; the
//! reader zeroes what it has applied, so what lies beyond the tail never looks like a record.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nicol_core::exec::Signal;
use nicol_core::fabric::{Fabric, FabricError};
use nicol_core::ids::Key;
use nicol_core::memory::{Region, WORD};
use nicol_core::units::Bytes;

/// Bytes of a record besides its body: head, kind and foot.
const FRAMING: u64 = 3 * WORD as u64;
/// Length field of a record that only skips to the start of the ring.
const SKIP: u32 = u32::MAX;

/// What a record's body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordKind {
    /// A backup's LOG.
    Log,
    /// A primary's COMMIT.
    Commit,
}

const fn record_len(body: usize) -> u64 {
    FRAMING + body.next_multiple_of(WORD) as u64
}

const fn head_word(number: u32, len: u32) -> u64 {
    (number as u64) << 32 | len as u64
}

/// A log's memory, shared by its writer and its reader.
#[derive(Debug)]
pub struct LogMemory {
    region: Arc<Region>,
    reserved: AtomicU64,
    applied: AtomicU64,
}

impl LogMemory {
    /// A log of `capacity` bytes of host memory.
    pub fn new(capacity: Bytes) -> Self {
        let words = capacity.0.next_multiple_of(WORD as u64);
        Self {
            region: Arc::new(Region::new(Bytes(words))),
            reserved: AtomicU64::new(0),
            applied: AtomicU64::new(0),
        }
    }

    /// Bytes of the largest body that a record may have: half the ring, so that one always fits.
    pub fn body_max(&self) -> usize {
        (self.region.size().0 / 2 - FRAMING) as usize
    }

    /// Bytes ever reserved by the writer.
    pub(super) fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Acquire)
    }

    /// Bytes that the worker has applied.
    pub(super) fn applied(&self) -> u64 {
        self.applied.load(Ordering::Acquire)
    }

    /// Has everything been applied?
    pub fn is_settled(&self) -> bool {
        self.applied() == self.reserved()
    }

    pub(super) fn region(&self) -> &Arc<Region> {
        &self.region
    }
}

/// The NIC's end of a log.
pub(super) struct LogWriter<F: Fabric> {
    fabric: F,
    memory: Arc<LogMemory>,
    /// Bytes ever reserved; the ring position is this modulo its size.
    tail: Cell<u64>,
    /// Bytes that the host has applied.
    applied: Cell<u64>,
    number: Cell<u32>,
    space: Signal,
    pins: RefCell<VecDeque<(u64, Key)>>,
    staging: RefCell<Vec<u8>>,
}

/// Where a record ends; once the host has applied up to there, its pins may go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position(u64);

impl<F: Fabric> LogWriter<F> {
    pub(super) fn new(fabric: F, memory: Arc<LogMemory>) -> Self {
        Self {
            space: fabric.signal(),
            fabric,
            memory,
            tail: Cell::new(0),
            applied: Cell::new(0),
            number: Cell::new(1),
            pins: RefCell::default(),
            staging: RefCell::default(),
        }
    }

    /// Appends a record and returns where it ends and the DMA that carries it, which resolves when
    /// the record is durable. Waits while the log is full.
    pub(super) async fn append(
        &self,
        kind: RecordKind,
        body: &[u8],
    ) -> Result<(Position, F::Completion), FabricError> {
        let len = record_len(body.len());
        if body.len() > self.memory.body_max() {
            return Err(FabricError::NoResources);
        }
        let size = self.memory.region.size().0;
        loop {
            let to_end = size - self.tail.get() % size;
            let needed = if len <= to_end { len } else { to_end + len };
            if self.tail.get() + needed - self.applied.get() <= size {
                break;
            }
            // Back-pressure: the workers' log acks make room.
            self.space.wait().await;
        }
        let landing = self.write(kind, body, len);
        Ok((Position(self.tail.get()), landing))
    }

    fn write(&self, kind: RecordKind, body: &[u8], len: u64) -> F::Completion {
        let size = self.memory.region.size().0;
        let to_end = size - self.tail.get() % size;
        if len > to_end {
            self.skip(to_end);
        }
        let number = self.number.get();
        self.number.set(number.wrapping_add(1).max(1));
        let mut staging = self.staging.borrow_mut();
        staging.clear();
        staging.extend_from_slice(&head_word(number, body.len() as u32).to_le_bytes());
        staging.extend_from_slice(&(kind as u64).to_le_bytes());
        staging.extend_from_slice(body);
        staging.resize(len as usize - WORD, 0);
        staging.extend_from_slice(&head_word(number, body.len() as u32).to_le_bytes());
        assert!(staging.len() as u64 == len, "a record fills its reservation");
        let offset = self.tail.get() % size;
        self.reserve(len);
        self.fabric.dma_write_durable(&self.memory.region, offset, &staging)
    }

    fn reserve(&self, len: u64) {
        self.tail.set(self.tail.get() + len);
        self.memory.reserved.store(self.tail.get(), Ordering::Release);
    }

    /// Marks the rest of the ring as skipped.
    fn skip(&self, to_end: u64) {
        let number = self.number.get();
        self.number.set(number.wrapping_add(1).max(1));
        let offset = self.tail.get() % self.memory.region.size().0;
        self.reserve(to_end);
        let word = head_word(number, SKIP).to_le_bytes();
        // The completion is not awaited: the record behind it lands later on the same queue.
        drop(self.fabric.dma_write(&self.memory.region, offset, &word));
    }

    /// Remembers that `key` is pinned until the record at `position` has been applied.
    pub(super) fn pin(&self, position: Position, key: Key) {
        self.pins.borrow_mut().push_back((position.0, key));
    }

    /// Takes a log ack: frees space and hands out the keys to unpin. Acks are cumulative.
    pub(super) fn acknowledge(&self, applied: u64, mut unpin: impl FnMut(Key)) {
        if applied <= self.applied.get() || applied > self.tail.get() {
            return;
        }
        self.applied.set(applied);
        self.pins.borrow_mut().retain(|&(position, key)| {
            if position <= applied {
                unpin(key);
            }
            position > applied
        });
        self.space.notify();
    }
}

/// The host's end of a log.
pub(super) struct LogReader {
    memory: Arc<LogMemory>,
    position: u64,
    number: u32,
    body: Vec<u8>,
}

impl LogReader {
    pub(super) fn new(memory: Arc<LogMemory>) -> Self {
        Self { memory, position: 0, number: 1, body: Vec::new() }
    }

    /// Notes that everything read so far has been applied; returns how many bytes that are.
    pub(super) fn applied(&self) -> u64 {
        self.memory.applied.store(self.position, Ordering::Release);
        self.position
    }

    /// Reads the next record into its buffer, if it has landed completely; zeroes and passes it.
    pub(super) fn next(&mut self) -> Option<(RecordKind, &[u8])> {
        loop {
            let region = &self.memory.region;
            let size = region.size().0;
            let offset = self.position % size;
            let head = region.load(offset).ok()?;
            if (head >> 32) as u32 != self.number {
                return None;
            }
            if head as u32 == SKIP {
                self.pass(offset, WORD as u64, size - offset);
                continue;
            }
            let len = record_len(head as u32 as usize);
            let foot = region.load(offset + len - WORD as u64).ok()?;
            if foot != head {
                return None;
            }
            let kind = match region.load(offset + WORD as u64).ok()? {
                0 => RecordKind::Log,
                _ => RecordKind::Commit,
            };
            self.body.resize(head as u32 as usize, 0);
            region.read(offset + 2 * WORD as u64, &mut self.body).ok()?;
            self.pass(offset, len, len);
            return Some((kind, &self.body));
        }
    }

    /// Zeroes `used` bytes at `offset` and moves on by `len`.
    fn pass(&mut self, offset: u64, used: u64, len: u64) {
        let zeroed = self.memory.region.zero(offset, used);
        assert!(zeroed.is_ok(), "a record lies inside its log");
        self.position += len;
        self.number = self.number.wrapping_add(1).max(1);
    }
}
