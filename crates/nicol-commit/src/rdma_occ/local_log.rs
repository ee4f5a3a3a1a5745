//! A host engine's own log: what it backs up for itself, and for others by RPC.
//!
//! LOGs that wait for space are appended in the order in which they came, and no later LOG before
//! them. So one that its coordinator has asked for again meanwhile stands before the one that is
//! acknowledged, and before all that later transactions write (as in Xenic's `log_writer`). What
//! the engine logs for itself need not stand in line: what it overwrites has been acknowledged.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use nicol_core::exec::Signal;
use nicol_core::fabric::{Fabric, Work};
use nicol_kit::{LinePlace, WaitingLine};

use super::reach::Reach;
use crate::log::{LogMemory, RecordKind, Tail};

/// The writer's end of it.
pub(super) struct LocalLog<F: Fabric> {
    fabric: F,
    reach: Rc<Reach<F>>,
    memory: Arc<LogMemory>,
    tail: Cell<Tail>,
    staging: RefCell<Vec<u8>>,
    /// LOGs that wait for space.
    line: WaitingLine,
    /// The turn of the next one.
    turn: Signal,
}

impl<F: Fabric> LocalLog<F> {
    pub(super) fn new(fabric: F, reach: Rc<Reach<F>>, memory: Arc<LogMemory>) -> Self {
        let tail = Cell::new(Tail::new(memory.size()));
        let (line, turn) = (WaitingLine::default(), fabric.signal());
        Self { fabric, reach, memory, tail, staging: RefCell::default(), line, turn }
    }

    /// Bytes of its ring.
    pub(super) fn size(&self) -> u64 {
        self.memory.size()
    }

    /// True if there is space for records with bodies of these lengths.
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

    /// Appends a record if there is space for it, and none waits.
    pub(super) fn try_append(&self, body: &[u8]) -> bool {
        self.line.is_empty() && self.append_if_it_fits(body)
    }

    fn append_if_it_fits(&self, body: &[u8]) -> bool {
        let fits = self.has_space(std::iter::once(body.len()));
        if fits {
            self.append(body);
        }
        fits
    }

    /// Takes the next place in the line of records that wait, for one that found no space.
    pub(super) fn queue(&self) -> LinePlace {
        self.line.join()
    }

    /// Appends a record once there is space for it, behind all that were in line before it.
    pub(super) async fn append_in_line(&self, place: LinePlace, body: &[u8]) {
        while !self.line.is_first(&place) {
            self.turn.wait().await;
        }
        while !self.append_if_it_fits(body) {
            self.reach.wait_to_retry().await;
        }
        self.line.leave(place);
        self.turn.notify();
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        if let Err(error) = self.memory.region().write(offset, bytes) {
            panic!("a log's own access failed: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use nicol_core::engine::Start;
    use nicol_core::ids::{EngineId, NodeId};
    use nicol_core::records::Empty;
    use nicol_core::system::{Sequential, load_nodes};
    use nicol_core::units::{Bytes, Nanos};
    use nicol_core::view::View;
    use nicol_sim::{Profile, RunEnd, SimCluster, SimConfig};

    use super::*;
    use crate::log::LogReader;
    use crate::rdma_occ::RdmaOccConfig;
    use crate::rdma_occ::node::Node;

    /// A log with space for two records and a half, and what is read of it.
    struct Full {
        node: Arc<Node>,
        memory: Arc<LogMemory>,
        read: Arc<Mutex<Vec<u8>>>,
    }

    impl Start for Full {
        fn start<F: Fabric>(&self, fabric: &F) {
            if fabric.here() != EngineId::host(NodeId(0), 0) {
                return;
            }
            let reach = Rc::new(Reach::new(fabric.clone(), self.node.clone()));
            let log = Rc::new(LocalLog::new(fabric.clone(), reach, self.memory.clone()));
            assert!((0..2).all(|_| log.try_append(&[0; 40])));
            for body in [&[1; 72][..], &[2; 8]] {
                let (log, place) = (log.clone(), log.queue());
                fabric.spawn(async move { log.append_in_line(place, body).await });
            }
            assert!(log.has_space(std::iter::once(8)) && !log.try_append(&[4; 8]), "others wait");
            let (fabric, read) = (fabric.clone(), self.read.clone());
            let mut reader = LogReader::new(self.memory.clone());
            fabric.clone().spawn(async move {
                loop {
                    fabric.sleep_until(fabric.now() + Nanos::from_micros(50)).await;
                    reader.read(1);
                    read.lock().unwrap().extend(reader.records().map(|(_, body)| body[0]));
                    reader.applied();
                    assert!(!log.try_append(&[4; 8]) || log.line.is_empty());
                }
            });
        }
    }

    #[test]
    fn a_log_waits_behind_those_that_wait_even_if_it_would_fit() {
        let view = View::new(2, 1, 1, 1).unwrap();
        let config = RdmaOccConfig::fasst(64, 8);
        let nodes =
            load_nodes::<Node>(&view, &config, &Empty { capacity_per_shard: 64 }, &Sequential)
                .unwrap();
        let (memory, read) = (Arc::new(LogMemory::new(Bytes(192))), Arc::default());
        let full = Full { node: nodes[0].clone(), memory, read: Arc::clone(&read) };
        let profile = Arc::new(Profile::load("connectx5").unwrap());
        let cluster = SimCluster::new(SimConfig::new(view, profile, 1));
        cluster.start(Arc::new(full));
        let done = || read.lock().unwrap().len() >= 4;
        assert_eq!(cluster.run_until(&mut |_| done(), Nanos::from_millis(10)), RunEnd::Done);
        assert_eq!(read.lock().unwrap()[..4], [0, 0, 1, 2]);
    }
}
