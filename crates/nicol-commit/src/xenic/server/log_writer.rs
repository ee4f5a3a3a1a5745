//! The NIC's end of a log: it appends records to host memory by DMA. [Xenic21 4.2]
//!
//! Records are appended in the order in which they came, also where they wait for space. So a LOG
//! that waits, and that its coordinator has asked for again meanwhile, stands before the one that
//! is acknowledged, and is applied before all that later transactions write.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;

use nicol_core::exec::Signal;
use nicol_core::fabric::{Fabric, FabricError};
use nicol_core::ids::Key;
use nicol_kit::WaitingLine;

use crate::log::{LogMemory, RecordKind, Tail};

/// The NIC's end of a log.
pub(super) struct LogWriter<F: Fabric> {
    fabric: F,
    memory: Arc<LogMemory>,
    tail: Cell<Tail>,
    /// Bytes that the host has applied.
    applied: Cell<u64>,
    /// Records that wait for space.
    line: WaitingLine,
    /// Space, or the turn of the next record.
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
            tail: Cell::new(Tail::of(&memory)),
            memory,
            applied: Cell::new(0),
            line: WaitingLine::default(),
            pins: RefCell::default(),
        }
    }

    /// Appends a record for which there is space: where it ends, and the DMA that carries it, which
    /// resolves when the record is durable.
    ///
    /// # Panics
    /// If it must wait: see [`LogWriter::appends_now`].
    #[inline]
    pub(super) fn append_now(&self, kind: RecordKind, body: &[u8]) -> (Position, F::Completion) {
        assert!(self.appends_now(body), "a record is appended where there is space for it");
        self.write(kind, body)
    }

    /// Can a record with this body be appended without waiting?
    #[inline]
    pub(super) fn appends_now(&self, body: &[u8]) -> bool {
        self.line.is_empty() && self.has_space(body)
    }

    /// Appends a record as [`LogWriter::append_now`] does. Waits while the log is full, behind all
    /// that waits already.
    ///
    /// Errors: it never fits; or it is not `admitted` any more when there is space for it.
    pub(super) async fn append(
        &self,
        kind: RecordKind,
        body: &[u8],
        admitted: impl Fn() -> bool,
    ) -> Result<(Position, F::Completion), FabricError> {
        if body.len() > self.memory.body_max() {
            return Err(FabricError::NoResources);
        }
        let place = self.line.join();
        while !self.line.is_first(&place) || !self.has_space(body) {
            // Back-pressure: the workers' log acks make space.
            self.space.wait().await;
        }
        let appended = match admitted() {
            true => Ok(self.write(kind, body)),
            false => Err(FabricError::Unreachable),
        };
        self.line.leave(place);
        if !self.line.is_empty() {
            self.space.notify();
        }
        appended
    }

    /// Is there space for a record with this body?
    #[inline]
    fn has_space(&self, body: &[u8]) -> bool {
        let tail = self.tail.get();
        let taken = tail.at() + tail.needed(body.len()) - self.applied.get();
        body.len() <= self.memory.body_max() && taken <= self.memory.size()
    }

    #[inline]
    fn write(&self, kind: RecordKind, body: &[u8]) -> (Position, F::Completion) {
        let mut tail = self.tail.get();
        if let Some((offset, word)) = tail.skip(body.len()) {
            self.memory.reserve(tail.at());
            // The completion is not awaited: the record behind it lands later on the same queue.
            drop(self.fabric.dma_write(self.memory.region(), offset, &word.to_le_bytes()));
        }
        let record = tail.next(kind, body.len());
        self.memory.reserve(tail.at());
        self.tail.set(tail);
        let parts = record.parts(body);
        let landing = self.fabric.dma_write_durable(self.memory.region(), record.offset, &parts);
        (Position(tail.at()), landing)
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

#[cfg(test)]
mod tests {
    use std::rc::Rc;
    use std::sync::Mutex;

    use nicol_core::engine::Start;
    use nicol_core::ids::{EngineId, NodeId};
    use nicol_core::units::{Bytes, Nanos};
    use nicol_core::view::View;
    use nicol_sim::{Profile, RunEnd, SimCluster, SimConfig};

    use super::*;

    /// A log with space for two records and a half, and where the records end that waited for
    /// more.
    struct Full {
        memory: Arc<LogMemory>,
        ends: Arc<Mutex<Vec<(usize, u64)>>>,
    }

    impl Start for Full {
        fn start<F: Fabric>(&self, fabric: &F) {
            if fabric.here() != EngineId::nic(NodeId(0), 0) {
                return;
            }
            let log = Rc::new(LogWriter::new(fabric.clone(), self.memory.clone()));
            for _ in 0..2 {
                drop(log.append_now(RecordKind::Log, &[0; 40]));
            }
            for body in [&[1; 72][..], &[2; 8]] {
                let (log, ends) = (log.clone(), self.ends.clone());
                fabric.spawn(async move {
                    let (Position(end), _) =
                        log.append(RecordKind::Log, body, || true).await.unwrap();
                    ends.lock().unwrap().push((body.len(), end));
                });
            }
            let overruled = Rc::new(Cell::new(false));
            let (refusing, later) = (log.clone(), overruled.clone());
            fabric.spawn(async move {
                let appended = refusing.append(RecordKind::Log, &[3; 8], || !later.get()).await;
                assert!(matches!(appended, Err(FabricError::Unreachable)), "it waited too long");
            });
            let applying = fabric.clone();
            fabric.spawn(async move {
                overruled.set(true);
                assert!(log.has_space(&[4; 8]) && !log.appends_now(&[4; 8]), "others wait");
                log.acknowledge(128, |_| ());
                while !log.line.is_empty() {
                    applying.yield_now().await;
                }
                log.acknowledge(log.tail.get().at(), |_| ());
                assert!(log.appends_now(&[4; 8]));
            });
        }
    }

    #[test]
    fn a_record_waits_behind_those_that_wait_and_is_not_appended_if_it_is_overruled_then() {
        let ends = Arc::new(Mutex::new(Vec::new()));
        let full = Full { memory: Arc::new(LogMemory::new(Bytes(192))), ends: ends.clone() };
        let view = View::new(2, 1, 1, 1).unwrap();
        let profile = Arc::new(Profile::load("liquidio3").unwrap());
        let cluster = SimCluster::new(SimConfig::new(view, profile, 1));
        cluster.start(Arc::new(full));
        let done = || ends.lock().unwrap().len() == 2;
        assert_eq!(cluster.run_until(&mut |_| done(), Nanos::from_millis(10)), RunEnd::Done);
        let ends = ends.lock().unwrap();
        assert!(ends.is_sorted_by_key(|(_, end)| *end), "{ends:?}");
        assert_eq!(ends.iter().map(|(len, _)| *len).collect::<Vec<_>>(), [72, 8]);
    }
}
