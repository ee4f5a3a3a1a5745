//! Loads on the paths of a card: from other machines to the host (1) and to the SoC (2), between
//! the two by RDMA (3) and by DMA (3*), alone and together. [OffPath23 2.3, 3, 4]

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nicol_core::engine::{DoorbellBatch, Start};
use nicol_core::fabric::{Fabric, OneSided, Timeout};
use nicol_core::ids::{EngineId, NodeId, RKey, Side};
use nicol_core::memory::{Access, Region};
use nicol_core::units::{Bytes, Nanos};
use nicol_core::view::{View, ViewError};

use super::probe::{Echo, EchoServer};
use crate::{Profile, SimCluster, SimConfig, SimReport, Utilization};

/// The node whose card is measured.
const TARGET: NodeId = NodeId(0);

/// A way that requests take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// (1): from other machines to the host.
    ToHost,
    /// (2): from other machines to the SoC.
    ToSoc,
    /// (3), S2H: from the SoC to its own host, by RDMA.
    SocToHost,
    /// (3), H2S: from the host to its own SoC, by RDMA.
    HostToSoc,
    /// (3*): from the SoC to its own host, by DMA.
    Dma,
}

impl Path {
    pub const fn name(self) -> &'static str {
        match self {
            Self::ToHost => "1",
            Self::ToSoc => "2",
            Self::SocToHost => "3-s2h",
            Self::HostToSoc => "3-h2s",
            Self::Dma => "3*",
        }
    }

    const fn requester(self) -> Side {
        match self {
            Self::SocToHost | Self::Dma => Side::Nic,
            _ => Side::Host,
        }
    }

    /// The side whose memory is accessed.
    const fn responder(self) -> Side {
        match self {
            Self::ToSoc | Self::HostToSoc => Side::Nic,
            _ => Side::Host,
        }
    }

    const fn is_within(self) -> bool {
        matches!(self, Self::SocToHost | Self::HostToSoc | Self::Dma)
    }
}

/// The verb that a load posts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// A one-sided READ, or a DMA read.
    Read,
    /// A one-sided WRITE, or a DMA write.
    Write,
    /// A message and its echo. [OffPath23 3]
    Send,
}

impl Verb {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "READ",
            Self::Write => "WRITE",
            Self::Send => "SEND",
        }
    }
}

/// Requests of one kind on one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    pub path: Path,
    pub verb: Verb,
    pub bytes: usize,
    /// Machines that ask, where the path begins at other machines.
    pub machines: usize,
    /// Cores of each that ask.
    pub cores: usize,
    /// Workers of each core.
    pub workers: usize,
    /// Requests that a worker posts together, and waits for.
    pub batch: usize,
}

impl Flow {
    /// One request at a time, from one core.
    pub const fn alone(path: Path, verb: Verb, bytes: usize) -> Self {
        Self { path, verb, bytes, machines: 1, cores: 1, workers: 1, batch: 1 }
    }

    /// As many requests as `machines` of 24 cores (8 of a SoC) have in flight with `workers` each.
    pub const fn of(path: Path, verb: Verb, bytes: usize, machines: usize, workers: usize) -> Self {
        Self { path, verb, bytes, machines, cores: 24, workers, batch: 1 }
    }
}

/// Flows at the same time.
#[derive(Clone, Debug)]
pub struct Load {
    /// The hardware whose card is measured.
    pub target: Arc<Profile>,
    /// The hardware of the machines that ask.
    pub client: Arc<Profile>,
    pub flows: Vec<Flow>,
    /// Addresses are drawn from so many bytes. [OffPath23 3.2, figure 7]
    pub range: u64,
    /// Requests of a doorbell. [OffPath23 3.3]
    pub doorbell_batch: DoorbellBatch,
    /// Run before it is measured.
    pub warmup: Nanos,
    /// The measured time.
    pub window: Nanos,
}

/// Addresses within 16 MB: more than every bank of a memory sees.
pub const RANGE: u64 = 16 << 20;

impl Load {
    /// These flows, on all addresses, without doorbell batching, for long enough.
    pub fn new(target: &Arc<Profile>, client: &Arc<Profile>, flows: Vec<Flow>) -> Self {
        // What is in flight passes 100 Gbps three times, so that the first burst is over.
        let in_flight: u64 = flows.iter().map(Flow::in_flight_bytes).sum();
        let alone = flows.iter().all(|flow| (flow.cores, flow.workers, flow.batch) == (1, 1, 1));
        let batched = flows.iter().any(|flow| flow.batch > 1);
        let window = if alone || batched { 400_000 } else { 80_000 }.max(in_flight * 8 / 100 * 3);
        Self {
            target: target.clone(),
            client: client.clone(),
            flows,
            range: RANGE,
            doorbell_batch: DoorbellBatch::UpTo(1),
            warmup: Nanos(window),
            window: Nanos(window),
        }
    }

    /// Runs it.
    ///
    /// # Errors
    /// If the hardware has fewer cores than a flow asks for.
    pub fn run(&self) -> Result<Measured, ViewError> {
        let others: usize = self.flows.iter().map(Flow::others).sum();
        let cores = self.flows.iter().map(|flow| flow.cores).max().unwrap_or(1).max(24);
        let fits = |side| self.target.engines(side).min(self.client.engines(side)).min(cores);
        let view = View::new(1 + others.max(1), 1, fits(Side::Host), fits(Side::Nic))?;
        let mut profiles = vec![self.client.clone(); view.nodes()];
        profiles[0] = self.target.clone();
        let mut config = SimConfig::mixed(view, profiles, 1);
        config.tuning.aggregation = false;
        config.tuning.doorbell_batch = self.doorbell_batch;
        let cluster = SimCluster::new(config);
        let probe = Arc::new(Probe::new(self));
        cluster.start(Arc::new(Flows(probe.clone())));
        cluster.run_until(&mut |_| false, self.warmup);
        let (before, first) = (probe.counts(), cluster.report());
        cluster.run_until(&mut |_| false, self.warmup + self.window);
        let (after, last) = (probe.counts(), cluster.report());
        let flows = self.flows.iter().zip(before.iter().zip(&after));
        let flows = flows.map(|(flow, (before, after))| Rate::of(flow, *before, *after));
        Ok(Measured { flows: flows.collect(), window: self.window, first, last })
    }
}

impl Flow {
    /// Bytes of all requests at one time.
    fn in_flight_bytes(&self) -> u64 {
        (self.others().max(1) * self.cores * self.workers * self.batch * self.bytes) as u64
    }

    /// The number of other machines that ask.
    fn others(&self) -> usize {
        if self.path.is_within() { 0 } else { self.machines }
    }
}

/// The result of a flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Requests in a second, in millions.
    pub mops: f64,
    pub gbps: f64,
    /// Mean time of one; no number if none has ended.
    pub mean_ns: f64,
}

impl Rate {
    fn of(flow: &Flow, before: Count, after: Count) -> Self {
        let finished = (after.finished - before.finished) as f64;
        // From one completion to another: few of large requests fit into the window.
        let span = (after.last_ns - before.last_ns).max(1);
        let mops = finished * 1e3 / span as f64;
        let mean_ns = (after.waited_ns - before.waited_ns) as f64 / finished;
        Self { mops, gbps: mops * flow.bytes as f64 * 8.0 / 1e3, mean_ns }
    }
}

/// The result of a load.
#[derive(Clone, Debug)]
pub struct Measured {
    pub flows: Vec<Rate>,
    window: Nanos,
    first: SimReport,
    last: SimReport,
}

impl Measured {
    /// Requests of all flows in a second, in millions.
    pub fn mops(&self) -> f64 {
        self.flows.iter().map(|flow| flow.mops).sum()
    }

    /// Data of all flows.
    pub fn gbps(&self) -> f64 {
        self.flows.iter().map(|flow| flow.gbps).sum()
    }

    /// PCIe packets of the target in a second, in millions: with data and without, of PCIe1 and of
    /// PCIe0. [OffPath23 3.3]
    pub fn packets(&self) -> [f64; 4] {
        let of = |report: &SimReport| {
            let found = report.packets.iter().find(|(node, _)| *node == TARGET);
            let packets = found.map(|(_, packets)| *packets).unwrap_or_default();
            [packets.inner_data, packets.inner_control, packets.outer_data, packets.outer_control]
        };
        let (first, last) = (of(&self.first), of(&self.last));
        std::array::from_fn(|at| (last[at] - first[at]) as f64 * 1e3 / self.window.0 as f64)
    }

    /// The time that all cores spent on verbs in the measured time, in nanoseconds.
    pub fn posting_ns(&self) -> f64 {
        let report = self.last.since(&self.first);
        let on_verbs = report.spent.iter().filter(|spent| spent.on == "verbs");
        on_verbs.map(|spent| spent.time.0 as f64).sum()
    }

    /// The utilization of each resource of every node in the measured time.
    pub fn resources(&self) -> Vec<Utilization> {
        self.last.since(&self.first).resources
    }

    /// The utilization of each resource of the target, by its name.
    pub fn busy(&self) -> Vec<(String, f64)> {
        let named =
            |line: &Utilization| Some((line.name.strip_prefix("n0.")?.to_owned(), line.busy()));
        self.resources().iter().filter_map(named).collect()
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    finished: u64,
    waited_ns: u64,
    last_ns: u64,
}

#[derive(Debug, Default)]
struct Counter {
    finished: AtomicU64,
    waited_ns: AtomicU64,
    /// When the last one did.
    last_ns: AtomicU64,
}

/// The flows as what runs on the engines.
#[derive(Debug)]
struct Probe {
    flows: Vec<Flow>,
    range: u64,
    /// Memory of the host and of the SoC, and their keys.
    regions: [Arc<Region>; 2],
    keys: [AtomicU64; 2],
    counters: Vec<Counter>,
}

const fn place(side: Side) -> usize {
    match side {
        Side::Host => 0,
        Side::Nic => 1,
    }
}

impl Probe {
    fn new(load: &Load) -> Self {
        let largest = load.flows.iter().map(|flow| flow.bytes).max().unwrap_or(0) as u64;
        let size = Bytes(load.range.max(largest) + 64);
        Self {
            flows: load.flows.clone(),
            range: load.range,
            regions: [Arc::new(Region::new(size)), Arc::new(Region::new(size))],
            keys: Default::default(),
            counters: load.flows.iter().map(|_| Counter::default()).collect(),
        }
    }

    fn counts(&self) -> Vec<Count> {
        let load = |counter: &Counter| Count {
            finished: counter.finished.load(Ordering::Relaxed),
            waited_ns: counter.waited_ns.load(Ordering::Relaxed),
            last_ns: counter.last_ns.load(Ordering::Relaxed),
        };
        self.counters.iter().map(load).collect()
    }

    /// Posts one request; `draw` is anything random.
    fn post<F: Fabric>(&self, fabric: &F, flow: &Flow, draw: u64, bytes: &[u8]) -> F::Completion {
        let (path, len) = (flow.path, flow.bytes as u32);
        let side = path.responder();
        let rkey = RKey(self.keys[place(side)].load(Ordering::Relaxed) as u32);
        let lines = (self.range.saturating_sub(flow.bytes as u64) / 64).max(1);
        let offset = draw % lines * 64;
        match (path, flow.verb) {
            (_, Verb::Send) => {
                let cores = fabric.view().engines(TARGET, side) as u64;
                let to = EngineId { node: TARGET, side, core: (draw % cores) as u8 };
                fabric.call(to, &Echo(bytes), Timeout::Never)
            }
            (Path::Dma, Verb::Read) => fabric.dma_read(&self.regions[0], offset, flow.bytes),
            (Path::Dma, Verb::Write) => fabric.dma_write(&self.regions[0], offset, bytes),
            (_, Verb::Read) => fabric.one_sided(TARGET, OneSided::Read { rkey, offset, len }),
            (_, Verb::Write) => fabric.one_sided(TARGET, OneSided::Write { rkey, offset, bytes }),
        }
    }

    /// The flows of which `here` is a requester.
    fn flows_of(&self, here: EngineId) -> Vec<usize> {
        let mut first = 1;
        let mut asked = Vec::new();
        for (number, flow) in self.flows.iter().enumerate() {
            let others = flow.others();
            let machines = first..first + others;
            first += others;
            let node = usize::from(here.node.0);
            let mine = if flow.path.is_within() { node == 0 } else { machines.contains(&node) };
            if mine && here.side == flow.path.requester() && usize::from(here.core) < flow.cores {
                asked.push(number);
            }
        }
        asked
    }
}

/// The flows, as every engine of the cluster starts them.
#[derive(Debug)]
struct Flows(Arc<Probe>);

impl Start for Flows {
    fn start<F: Fabric>(&self, fabric: &F) {
        let (probe, here) = (&self.0, fabric.here());
        fabric.serve(Rc::new(EchoServer(fabric.clone())));
        if here.node == TARGET && here.core == 0 {
            let side = place(here.side);
            let rkey = fabric.register(&probe.regions[side], Access::ReadWrite);
            probe.keys[side].store(u64::from(rkey.0), Ordering::Relaxed);
        }
        for number in probe.flows_of(here) {
            for _ in 0..probe.flows[number].workers {
                fabric.spawn(work(fabric.clone(), probe.clone(), number));
            }
        }
    }
}

/// Posts requests of a flow, a batch at a time, for ever.
async fn work<F: Fabric>(fabric: F, probe: Arc<Probe>, number: usize) {
    let flow = probe.flows[number];
    let counter = &probe.counters[number];
    let bytes = vec![0; flow.bytes];
    // Every engine has registered its memory before this runs on.
    fabric.yield_now().await;
    let mut posted = Vec::with_capacity(flow.batch);
    loop {
        let began = fabric.now();
        posted.extend((0..flow.batch).map(|_| probe.post(&fabric, &flow, fabric.random(), &bytes)));
        for request in posted.drain(..) {
            let done = request.await.map(drop);
            assert_eq!(done, Ok(()), "a measurement meets no faults");
            counter.finished.fetch_add(1, Ordering::Relaxed);
            counter.waited_ns.fetch_add(fabric.now().since(began).0, Ordering::Relaxed);
            counter.last_ns.store(fabric.now().0, Ordering::Relaxed);
        }
    }
}
