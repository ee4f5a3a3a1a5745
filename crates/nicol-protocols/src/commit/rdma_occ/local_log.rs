//! A host engine's own log: what it backs up for itself, and for others by RPC.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use nicol_core::fabric::{Fabric, Work};

use super::reach::Reach;
use crate::commit::log::{LogMemory, RecordKind, Tail};

/// The writer's end of it.
pub(super) struct LocalLog<F: Fabric> {
    fabric: F,
    reach: Rc<Reach<F>>,
    memory: Arc<LogMemory>,
    tail: Cell<Tail>,
    staging: RefCell<Vec<u8>>,
}

impl<F: Fabric> LocalLog<F> {
    pub(super) fn new(fabric: F, reach: Rc<Reach<F>>, memory: Arc<LogMemory>) -> Self {
        let tail = Cell::new(Tail::new(memory.size()));
        Self { fabric, reach, memory, tail, staging: RefCell::default() }
    }

    /// Bytes of its ring.
    pub(super) fn size(&self) -> u64 {
        self.memory.size()
    }

    /// Is there space for records with bodies of these lengths?
    pub(super) fn has_space(&self, bodies: impl Iterator<Item = usize>) -> bool {
        let mut tail = self.tail.get();
        bodies.for_each(|body| tail.pass(body));
        tail.at() - self.memory.applied() <= self.memory.size()
    }

    /// Appends a record that there is space for.
    pub(super) fn append(&self, body: &[u8]) {
        self.fabric.work(Work::Copy { bytes: body.len() as u32 });
        let mut tail = self.tail.get();
        let region = self.memory.region();
        if let Some((offset, word)) = tail.skip(body.len()) {
            self.write(offset, &word.to_le_bytes());
        }
        let mut staging = self.staging.borrow_mut();
        staging.clear();
        let offset = tail.frame(RecordKind::Log, body, &mut staging);
        self.write(offset, &staging);
        self.tail.set(tail);
        region.doorbell().ring();
    }

    /// Appends a record if there is space for it.
    pub(super) fn try_append(&self, body: &[u8]) -> bool {
        let fits = self.has_space(std::iter::once(body.len()));
        if fits {
            self.append(body);
        }
        fits
    }

    /// Appends a record once there is space for it.
    pub(super) async fn append_in_time(&self, body: &[u8]) {
        while !self.try_append(body) {
            self.reach.wait_to_retry().await;
        }
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        if let Err(error) = self.memory.region().write(offset, bytes) {
            panic!("a log's own access failed: {error}");
        }
    }
}
