//! The NIC's end of a log: it appends records to host memory by DMA. [Xenic21 4.2]

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;

use nicol_core::exec::Signal;
use nicol_core::fabric::{Fabric, FabricError};
use nicol_core::ids::Key;

use crate::commit::log::{LogMemory, RecordKind, Tail};

/// The NIC's end of a log.
pub(super) struct LogWriter<F: Fabric> {
    fabric: F,
    memory: Arc<LogMemory>,
    tail: Cell<Tail>,
    /// Bytes that the host has applied.
    applied: Cell<u64>,
    space: Signal,
    pins: RefCell<VecDeque<(u64, Key)>>,
}

/// Where a record ends; once the host has applied up to there, its pins may go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position(u64);

impl<F: Fabric> LogWriter<F> {
    pub(super) fn new(fabric: F, memory: Arc<LogMemory>) -> Self {
        Self {
            space: fabric.signal(),
            fabric,
            tail: Cell::new(Tail::new(memory.size())),
            memory,
            applied: Cell::new(0),
            pins: RefCell::default(),
        }
    }

    /// Appends a record for which there is space: where it ends, and the DMA that carries it, which
    /// resolves when the record is durable.
    ///
    /// # Panics
    /// If there is no space: see [`LogWriter::has_space`].
    #[inline]
    pub(super) fn append_now(&self, kind: RecordKind, body: &[u8]) -> (Position, F::Completion) {
        assert!(self.has_space(body), "a record is appended where there is space for it");
        let landing = self.write(kind, body);
        (Position(self.tail.get().at()), landing)
    }

    /// Appends a record as [`LogWriter::append_now`] does. Waits while the log is full.
    pub(super) async fn append(
        &self,
        kind: RecordKind,
        body: &[u8],
    ) -> Result<(Position, F::Completion), FabricError> {
        if body.len() > self.memory.body_max() {
            return Err(FabricError::NoResources);
        }
        while !self.has_space(body) {
            // Back-pressure: the workers' log acks make space.
            self.space.wait().await;
        }
        Ok(self.append_now(kind, body))
    }

    /// Is there space for a record with this body?
    #[inline]
    pub(super) fn has_space(&self, body: &[u8]) -> bool {
        let tail = self.tail.get();
        let taken = tail.at() + tail.needed(body.len()) - self.applied.get();
        body.len() <= self.memory.body_max() && taken <= self.memory.size()
    }

    #[inline]
    fn write(&self, kind: RecordKind, body: &[u8]) -> F::Completion {
        let mut tail = self.tail.get();
        if let Some((offset, word)) = tail.skip(body.len()) {
            self.memory.reserve(tail.at());
            // The completion is not awaited: the record behind it lands later on the same queue.
            drop(self.fabric.dma_write(self.memory.region(), offset, &word.to_le_bytes()));
        }
        let record = tail.next(kind, body.len());
        self.memory.reserve(tail.at());
        self.tail.set(tail);
        self.fabric.dma_write_durable(self.memory.region(), record.offset, &record.parts(body))
    }

    /// Remembers that `key` is pinned until the record at `position` has been applied.
    ///
    /// # Panics
    /// If a later record's key was pinned before: keys are pinned right after their record is
    /// appended.
    pub(super) fn pin(&self, position: Position, key: Key) {
        let mut pins = self.pins.borrow_mut();
        assert!(pins.back().is_none_or(|last| last.0 <= position.0), "pins are in the log's order");
        pins.push_back((position.0, key));
    }

    /// Takes a log ack: frees space and hands out the keys to unpin. Acks are cumulative.
    pub(super) fn acknowledge(&self, applied: u64, mut unpin: impl FnMut(Key)) {
        if applied <= self.applied.get() || applied > self.tail.get().at() {
            return;
        }
        self.applied.set(applied);
        let mut pins = self.pins.borrow_mut();
        while let Some((_, key)) = pins.pop_front_if(|&mut (position, _)| position <= applied) {
            unpin(key);
        }
        drop(pins);
        self.space.notify();
    }
}
