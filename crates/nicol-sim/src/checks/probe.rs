//! The load of a component measurement: echo calls, one-sided operations or DMAs in a closed loop,
//! through the same engines and calls that protocols use.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nicol_core::chain::{Chain, ChainResults, Data, Primitive, Target};
use nicol_core::engine::Start;
use nicol_core::fabric::{Delivery, Fabric, FabricError, Message, OneSided, Service, Timeout};
use nicol_core::ids::{EngineId, FreeListKey, NodeId, RKey, Side};
use nicol_core::memory::{Access, Buffers, Compare, MaskedSwap, Region};
use nicol_core::units::{Bytes, Nanos};
use nicol_core::wire::{Malformed, Writer};

use crate::{SimCluster, SimConfig, SimReport};

/// The node that operations go to.
const TARGET: NodeId = NodeId(0);
/// Size of the memory that operations touch.
const MEMORY: u64 = 1 << 20;

/// One operation of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A call to an engine of this side of the target, echoed.
    Echo(Side),
    /// A one-sided WRITE to memory of this side of the target.
    Write(Side),
    /// A one-sided READ of memory of this side of the target.
    Read(Side),
    /// A chain of one primitive on host memory of the target. [PRISM21 4.3]
    Chain(ChainProbe),
    /// A compare-and-swap verb on a word of host memory of the target.
    CompareSwap,
    /// A DMA read of host memory by a NIC engine of the target.
    DmaRead,
    /// A DMA write of host memory by a NIC engine of the target.
    DmaWrite,
}

/// The primitives that are measured one by one. [PRISM21 4.3, figure 1]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainProbe {
    Read,
    /// A READ of what a pointer points to.
    IndirectRead,
    Write,
    /// An ALLOCATE with data.
    Allocate,
    /// An enhanced compare-and-swap of 16 bytes.
    CompareSwap,
}

/// Where a pointer to the data stands, and where data begins that primitives read and write.
const POINTER: u64 = 0;
const DATA: u64 = 64;
/// Memory of the buffers that ALLOCATEs pop, behind all else.
const BUFFERS: u64 = 1 << 20;

/// The engines of a measurement, and how much each has under way.
#[derive(Clone, Debug)]
pub(super) struct Probe {
    pub(super) action: Action,
    /// The side of the sources whose engines work.
    pub(super) source: Side,
    /// Operations that each engine keeps in flight; echoes keep one with each server core.
    pub(super) in_flight: usize,
    pub(super) size: usize,
    /// Operations start together at multiples of this; zero: as soon as the last one ended.
    pub(super) period: Nanos,
    region: Arc<Region>,
    rkey: Arc<AtomicU64>,
    list: Arc<AtomicU64>,
    finished: Arc<AtomicU64>,
    waited_ns: Arc<AtomicU64>,
}

/// The result of a measurement.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// Operations in a second, in millions.
    pub(super) mops: f64,
    /// Mean time of one, in nanoseconds; no number if none has ended.
    pub(super) mean_ns: f64,
    /// The cluster's account at the end of the warm-up.
    pub(super) before: SimReport,
}

impl Probe {
    pub(super) fn new(action: Action, source: Side, in_flight: usize, size: usize) -> Self {
        let (rkey, list, finished, waited_ns) = Default::default();
        let buffers = if action == Action::Chain(ChainProbe::Allocate) { BUFFERS } else { 0 };
        let region = Arc::new(Region::new(Bytes(MEMORY + buffers)));
        let period = Nanos::ZERO;
        Self { action, source, in_flight, size, period, region, rkey, list, finished, waited_ns }
    }

    /// Runs the load for `warmup` and then measures over `window`.
    pub(super) fn measure(&self, config: SimConfig, warmup: Nanos, window: Nanos) -> Found {
        self.run(config, warmup, window).0
    }

    /// Like [`Probe::measure`], and leaves the cluster to be looked at.
    pub(super) fn run(
        &self,
        config: SimConfig,
        warmup: Nanos,
        window: Nanos,
    ) -> (Found, SimCluster) {
        let cluster = SimCluster::new(config);
        cluster.start(Arc::new(self.clone()));
        let counts =
            || (self.finished.load(Ordering::Relaxed), self.waited_ns.load(Ordering::Relaxed));
        cluster.run_until(&mut |_| false, warmup);
        let (before, first) = (counts(), cluster.report());
        cluster.run_until(&mut |_| false, warmup + window);
        let after = counts();
        let finished = (after.0 - before.0) as f64;
        let mops = finished * 1e3 / window.0 as f64;
        let mean_ns = (after.1 - before.1) as f64 / finished;
        (Found { mops, mean_ns, before: first }, cluster)
    }

    fn is_dma(&self) -> bool {
        matches!(self.action, Action::DmaRead | Action::DmaWrite)
    }

    /// The side whose memory is touched.
    fn memory(&self) -> Side {
        match self.action {
            Action::Write(side) | Action::Read(side) => side,
            _ => Side::Host,
        }
    }

    /// Sets the pointer and posts the buffers.
    fn prepare_chains<F: Fabric>(&self, fabric: &F, rkey: RKey) {
        let size = (self.size as u64).next_multiple_of(64);
        let count = ((self.region.size().0 - MEMORY) / size) as u32;
        let buffers = Buffers { rkey, first: MEMORY, size, count, in_use: 0 };
        let pointed = self.region.store(POINTER, DATA);
        match pointed.and_then(|()| fabric.register_buffers(buffers)) {
            Ok(list) => self.list.store(u64::from(list.0), Ordering::Relaxed),
            Err(error) => panic!("the pointer and the buffers lie in the region: {error}"),
        }
    }

    async fn once<F: Fabric>(
        &self,
        fabric: &F,
        task: usize,
        bytes: &[u8],
    ) -> Result<(), FabricError> {
        let rkey = RKey(self.rkey.load(Ordering::Relaxed) as u32);
        let slots = MEMORY / 256;
        let mine = task as u64 * 37 + u64::from(fabric.here().core);
        let offset = mine % slots * 256;
        let len = self.size as u32;
        match self.action {
            Action::Echo(side) => {
                let cores = fabric.view().engines(TARGET, side);
                let core = ((task + usize::from(fabric.here().core)) % cores) as u8;
                let to = EngineId { node: TARGET, side, core };
                fabric.call(to, &Echo(bytes), Timeout::Never).await.map(drop)
            }
            Action::Write(_) => {
                fabric.one_sided(TARGET, OneSided::Write { rkey, offset, bytes }).await.map(drop)
            }
            Action::Read(_) => {
                fabric.one_sided(TARGET, OneSided::Read { rkey, offset, len }).await.map(drop)
            }
            Action::CompareSwap => {
                let swap = OneSided::CompareSwap { rkey, offset: DATA, expected: 0, new: 0 };
                fabric.one_sided(TARGET, swap).await.map(drop)
            }
            Action::Chain(probed) => {
                let list = FreeListKey(self.list.load(Ordering::Relaxed) as u32);
                let mut chain = Chain::default();
                chain.push(primitive(probed, list, bytes).under(rkey));
                let done = fabric.one_sided(TARGET, OneSided::Chain(&chain)).await?;
                let results = ChainResults::parse(done.as_ref());
                let refused = results.map_err(|_| FabricError::Malformed)?.refused();
                refused.map_or(Ok(()), |(_, error)| Err(error))
            }
            Action::DmaRead => fabric.dma_read(&self.region, offset, self.size).await.map(drop),
            Action::DmaWrite => fabric.dma_write(&self.region, offset, bytes).await.map(drop),
        }
    }
}

impl Start for Probe {
    fn start<F: Fabric>(&self, fabric: &F) {
        let here = fabric.here();
        fabric.serve(Rc::new(EchoServer(fabric.clone())));
        if here == (EngineId { node: TARGET, side: self.memory(), core: 0 }) {
            let rkey = fabric.register(&self.region, Access::ReadWrite);
            self.rkey.store(u64::from(rkey.0), Ordering::Relaxed);
            if matches!(self.action, Action::Chain(_)) {
                self.prepare_chains(fabric, rkey);
            }
        }
        if here.side != self.source || (here.node == TARGET) != self.is_dma() {
            return;
        }
        for task in 0..self.in_flight {
            let (fabric, probe) = (fabric.clone(), self.clone());
            fabric.clone().spawn(async move {
                let bytes = vec![0; probe.size];
                loop {
                    if let Some(periods) = fabric.now().0.checked_div(probe.period.0) {
                        fabric.sleep_until(probe.period * (periods + 1)).await;
                    }
                    let began = fabric.now();
                    let done = probe.once(&fabric, task, &bytes).await;
                    assert_eq!(done, Ok(()), "a measurement meets no faults");
                    let waited = fabric.now().since(began);
                    probe.waited_ns.fetch_add(waited.0, Ordering::Relaxed);
                    probe.finished.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    }
}

/// The primitive that `probed` stands for, on so many bytes.
fn primitive(probed: ChainProbe, list: FreeListKey, bytes: &[u8]) -> Primitive<'_> {
    let len = bytes.len() as u32;
    match probed {
        ChainProbe::Read => Primitive::Read { from: Target::At(DATA), len },
        ChainProbe::IndirectRead => Primitive::Read { from: Target::Indirect(POINTER), len },
        ChainProbe::Write => Primitive::Write { to: Target::At(DATA), data: Data::Inline(bytes) },
        ChainProbe::Allocate => Primitive::Allocate { list, data: bytes },
        ChainProbe::CompareSwap => {
            let swap = MaskedSwap::new(Compare::Equal, [0; 2], [0; 2]);
            Primitive::compare_swap(Target::At(DATA), swap)
        }
    }
}

pub(super) struct Echo<'a>(pub(super) &'a [u8]);

impl Message for Echo<'_> {
    const KIND: u16 = 1;

    fn emit(&self, to: &mut Writer<'_>) {
        to.bytes(self.0);
    }
}

pub(super) struct EchoServer<F: Fabric>(pub(super) F);

impl<F: Fabric> Service for EchoServer<F> {
    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        if let Some(to) = delivery.reply_to {
            self.0.reply(to, &Echo(delivery.body));
        }
        Ok(())
    }
}
