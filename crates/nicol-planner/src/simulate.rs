//! The simulator's answer: requests of alternatives as steps on the real fabric.

mod server;

use std::iter;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};
use nicol_core::engine::{DoorbellBatch, Start};
use nicol_core::fabric::{Fabric, FabricError, OneSided, Timeout, Work};
use nicol_core::ids::{EngineId, NodeId, RKey, Side};
use nicol_core::memory::{Access, Region};
use nicol_core::units::{Bytes, Nanos};
use nicol_core::view::{NodeSpec, Role, View};
use nicol_sim::checks::paths::Verb;
use nicol_sim::{Profile, SimCluster, SimConfig};

use super::description::{Alternative, BYTES_UNDER_WAY, Description, Mitigations, Step, Way};
use server::{Asked, Server};

/// The node whose card is planned for, and the first of the others.
const TARGET: NodeId = NodeId(0);
/// Machines that ask at least, of 24 cores each, and at most.
const MACHINES: usize = 6;
const MACHINES_MAX: u64 = 32;
/// Addresses of what has no range of its own.
const RANGE: u64 = 16 << 20;
/// Requests of an alternative that a core has under way at most, and their bytes if it has several;
/// what all cores together have at least.
const WORKERS_MAX: u64 = 16;
const UNDER_WAY_MIN: u64 = 64;
/// Groups of requests that share doorbells which a core has under way at least: the card has the
/// next one to fetch while others wait for their answers.
const GROUPS_MIN: u64 = 6;
/// Requests of a window at least.
const REQUESTS_MIN: u64 = 200;
/// The number of times, at least, that a window has all requests which compute for themselves on
/// all cores: what a core computes in one round ends at once.
const BURSTS: u64 = 32;
/// Of larger requests, which wait for their transfers, a window need not have so many.
const BURST_BYTES: u64 = 64 << 10;
/// The difference, at most, between two windows of a steady rate.
const STEADY: f64 = 0.02;
/// Share of a step's operations by which more may begin than end.
const PILED_UP: f64 = 0.05;
/// Windows that the time of a run is enough for, if its requests compute for long.
const WINDOWS: u64 = 4;
/// Simulated time that a window takes at least, and a run at most beside what its requests compute.
const SPAN_MIN: Nanos = Nanos::from_micros(200);
const SPAN_MAX: Nanos = Nanos::from_secs(20);

/// The result of a simulated run.
#[derive(Clone, Debug, PartialEq)]
pub struct Simulated {
    /// Requests a second, in millions, by alternative.
    pub mops: Vec<f64>,
    /// Mean time of one, in microseconds, by alternative.
    pub latency_us: Vec<f64>,
}

/// Whether clients wait for answers, or send at a rate.
#[derive(Clone, Debug, PartialEq)]
pub enum Arrival {
    /// One at a time, of one alternative.
    Alone(usize),
    /// As many as there are workers, of one alternative.
    Saturated(usize),
    /// In shares of all requests that are proportional to these rates, as many as there are
    /// workers.
    Mixed(Vec<f64>),
}

/// Runs requests of `description`'s alternatives.
///
/// # Errors
/// If the profiles have too few cores, or no request ends in the time of a run.
pub fn run(
    target: &Arc<Profile>,
    client: &Arc<Profile>,
    description: &Description,
    arrival: &Arrival,
) -> Result<Simulated> {
    let alone = matches!(arrival, Arrival::Alone(_));
    let machines = if alone { 1 } else { machines(target, client) };
    let config = configured(target, client, description, machines)?;
    let largest =
        description.alternatives.iter().flat_map(|one| &one.steps).map(|step| match step {
            Step::Operation { bytes, .. } => *bytes,
            Step::Compute { .. } => 0,
        });
    let largest = largest.max().unwrap_or(0);
    let requests = Arc::new(Requests::new(description, arrival.clone(), machines, largest));
    let view = config.view.clone();
    let cluster = SimCluster::new(config);
    cluster.start(Arc::new(Started(requests.clone())));
    let under_way = if alone { 1 } else { requests.under_way(&view) };
    let groups = (0..description.alternatives.len()).map(|at| requests.group(at));
    let slack = 2 * groups.max().unwrap_or(1);
    let most = REQUESTS_MIN.max(2 * under_way);
    let most = if alone { most } else { most.max(BURSTS * requests.computing(&view)) };
    let span_max =
        SPAN_MAX + Nanos(requests.computed_ns().saturating_mul(most * WINDOWS).min(u64::MAX / 4));
    let window = || {
        let (began, before, done) = (cluster.now(), requests.counts(), requests.done());
        let least = began + SPAN_MIN;
        let ends = |now| now >= least && requests.done() >= done + most;
        cluster.run_until(&mut { ends }, span_max + SPAN_MIN);
        let span = cluster.now().since(began).0.max(1) as f64;
        let found = before.iter().zip(requests.counts()).map(|(before, after)| {
            let done = (after.0 - before.0) as f64;
            (done * 1e3 / span, (after.1 - before.1) as f64 / done.max(1.0) / 1e3)
        });
        let (mops, latency_us) = found.unzip();
        Simulated { mops, latency_us }
    };
    // What is under way at first is over before the first of two windows that agree.
    let rate = |of: &Simulated| of.mops.iter().sum::<f64>();
    let (first, mut found) = (window(), window());
    if rate(&found) == 0.0 {
        // There was time for one only.
        found = first;
    }
    while cluster.now() < span_max {
        let steps = requests.steps();
        let before = std::mem::replace(&mut found, window());
        if cluster.now() >= span_max && rate(&before) > 0.0 {
            // One that was cut off tells less than the whole one before it.
            found = before;
            break;
        }
        let same = (rate(&found) / rate(&before) - 1.0).abs() < STEADY;
        if same && !piles_up(&steps, &requests.steps(), slack) {
            break;
        }
    }
    ensure!(
        rate(&found) > 0.0,
        "--simulate: no request of {} ended in {} s of simulated time: describe a smaller one, or plan \
         without --simulate",
        requests.names(),
        span_max.0 / 1_000_000_000
    );
    Ok(found)
}

/// The node, and the machines beside it.
fn configured(
    target: &Arc<Profile>,
    client: &Arc<Profile>,
    description: &Description,
    machines: usize,
) -> Result<SimConfig> {
    let limit = |side, asked: Option<u64>| {
        let there = target.engines(side);
        asked.map_or(there, |asked| there.min(asked.max(1) as usize))
    };
    let spec =
        |host_engines, nic_engines| NodeSpec { role: Role::Server, host_engines, nic_engines };
    let planned =
        spec(limit(Side::Host, description.host_cores), limit(Side::Nic, description.soc_cores));
    let asking = spec(client.engines(Side::Host), client.engines(Side::Nic));
    let specs: Vec<_> = iter::once(planned).chain(iter::repeat_n(asking, machines)).collect();
    let view = View::of(&specs, 1)?;
    let mut profiles = vec![client.clone(); view.nodes()];
    profiles[0] = target.clone();
    let mut config = SimConfig::mixed(view, profiles, 1);
    config.tuning.aggregation = false;
    // Advice 4: batches cost the host's requests throughput.
    let batch = description.mitigations.doorbell_batch.max(1) as usize;
    config.tuning.doorbell_batch = DoorbellBatch::OfNic(batch);
    config.tuning.dma_vector = config.tuning.dma_vector.min(batch);
    Ok(config)
}

/// Machines that ask: so many that their links carry half as much again as the node's, which else
/// would not bind.
fn machines(target: &Profile, client: &Profile) -> usize {
    let needed = (3 * target.link.rate.value.0).div_ceil(2 * client.link.rate.value.0.max(1));
    MACHINES.max(needed.min(MACHINES_MAX) as usize)
}

/// Whether ever more requests wait for a step, so that fewer of it end than begin. Then the
/// measured rate is not one that lasts.
fn piles_up(before: &[(u64, u64)], after: &[(u64, u64)], slack: u64) -> bool {
    before.iter().zip(after).any(|(before, after)| {
        let (begun, ended) = (after.0 - before.0, after.1 - before.1);
        begun as f64 > ended as f64 * (1.0 + PILED_UP) + slack as f64
    })
}

/// Steps of a request, and the machine or side that takes them.
#[derive(Debug)]
struct Requests {
    alternatives: Vec<Alternative>,
    mitigations: Mitigations,
    arrival: Arrival,
    own: [Arc<Region>; 2],
    keys: [AtomicU64; 2],
    /// Memory of each other machine, and its key.
    others: Vec<(Arc<Region>, AtomicU64)>,
    done: Vec<[AtomicU64; 2]>,
    /// Of each step, how often it was due so far, in millionths, and how many of its operations
    /// have ended.
    due: Vec<Vec<[AtomicU64; 2]>>,
    /// By core of the SoC: operations that have left the node so far, for receivers of SENDs.
    left: Vec<AtomicU64>,
}

/// An operation of a request: the places of its alternative and of the step.
type Place = (usize, usize);

const fn place(side: Side) -> usize {
    match side {
        Side::Host => 0,
        Side::Nic => 1,
    }
}

impl Requests {
    fn new(description: &Description, arrival: Arrival, machines: usize, largest: u64) -> Self {
        let region = || Arc::new(Region::new(Bytes(RANGE + largest)));
        Self {
            alternatives: description.alternatives.clone(),
            mitigations: description.mitigations,
            arrival,
            own: [region(), region()],
            keys: Default::default(),
            others: (0..machines).map(|_| (region(), AtomicU64::default())).collect(),
            done: description.alternatives.iter().map(|_| Default::default()).collect(),
            due: description
                .alternatives
                .iter()
                .map(|one| one.steps.iter().map(|_| Default::default()).collect())
                .collect(),
            left: (0..=u8::MAX).map(|_| AtomicU64::default()).collect(),
        }
    }

    /// Requests of an alternative that a core takes together.
    fn group(&self, at: usize) -> u64 {
        match self.arrival {
            Arrival::Alone(_) => 1,
            _ => self.alternatives[at].group(self.mitigations.doorbell_batch),
        }
    }

    fn counts(&self) -> Vec<(u64, u64)> {
        let of = |done: &[AtomicU64; 2]| {
            (done[0].load(Ordering::Relaxed), done[1].load(Ordering::Relaxed))
        };
        self.done.iter().map(of).collect()
    }

    /// Operations of each step that have begun, and that have ended.
    fn steps(&self) -> Vec<(u64, u64)> {
        let of = |[due, ended]: &[AtomicU64; 2]| {
            (due.load(Ordering::Relaxed) / 1_000_000, ended.load(Ordering::Relaxed))
        };
        self.due.iter().flatten().map(of).collect()
    }

    /// Requests that were answered.
    fn done(&self) -> u64 {
        self.done.iter().map(|done| done[0].load(Ordering::Relaxed)).sum()
    }

    fn asked(&self) -> impl Iterator<Item = &Alternative> {
        let weights = self.weights();
        let all = self.alternatives.iter().zip(weights);
        all.filter(|(_, weight)| *weight > 0.0).map(|(one, _)| one)
    }

    fn names(&self) -> String {
        self.asked().map(|one| one.name.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// The computing time of a request of the slowest of them.
    fn computed_ns(&self) -> u64 {
        self.asked().map(Alternative::computed_ns).max().unwrap_or(0)
    }

    /// Bytes that a request of an alternative moves.
    fn bytes(&self, at: usize) -> f64 {
        self.alternatives[at].steps.iter().map(Step::total_bytes).sum()
    }

    /// Groups of requests of an alternative that each of `cores` keeps under way.
    fn workers(&self, at: usize, cores: usize) -> u64 {
        let by_bytes =
            (BYTES_UNDER_WAY as f64 / self.bytes(at).max(1.0)).ceil().min(WORKERS_MAX as f64);
        let requests = (by_bytes as u64).max(UNDER_WAY_MIN.div_ceil(cores as u64));
        match self.group(at) {
            1 => requests,
            group => requests.div_ceil(group).max(GROUPS_MIN),
        }
    }

    /// Requests of all engines of `view` that are under way at a time.
    fn under_way(&self, view: &View) -> u64 {
        let of = |here: EngineId| -> u64 {
            let cores = beside(view, here);
            self.begun_by(here)
                .iter()
                .map(|&(at, _)| self.workers(at, cores) * self.group(at))
                .sum()
        };
        view.engine_ids().map(of).sum()
    }

    /// The share of each alternative in the requests.
    fn weights(&self) -> Vec<f64> {
        match &self.arrival {
            Arrival::Alone(at) | Arrival::Saturated(at) => {
                (0..self.alternatives.len()).map(|one| f64::from(u8::from(one == *at))).collect()
            }
            Arrival::Mixed(rates) => rates.clone(),
        }
    }

    /// Requests under way that cores of the node itself begin and compute for.
    fn computing(&self, view: &View) -> u64 {
        let of = |here: EngineId| -> u64 {
            let cores = beside(view, here);
            let begun = self.begun_by(here).into_iter().map(|(at, _)| at);
            let computed = begun.filter(|&at| {
                self.alternatives[at].computed_ns() > 0 && self.bytes(at) <= BURST_BYTES as f64
            });
            computed.map(|at| self.workers(at, cores) * self.group(at)).sum()
        };
        view.engine_ids().filter(|here| here.node == TARGET).map(of).sum()
    }

    /// The alternatives that `here` begins, each with its weight.
    fn begun_by(&self, here: EngineId) -> Vec<(usize, f64)> {
        let weights = self.weights();
        let mine = |at: &usize| match self.alternatives[*at].steps[0].own_side() {
            None => here.node != TARGET && here.side == Side::Host,
            Some(side) => here.node == TARGET && here.side == side,
        };
        let at = (0..self.alternatives.len()).filter(mine);
        at.map(|at| (at, weights[at])).filter(|(_, weight)| *weight > 0.0).collect()
    }

    /// An address of an access, within its range or, with copies, one of several such ranges.
    fn address(&self, draw: u64, bytes: u64, range: Option<u64>) -> u64 {
        let copies = self.mitigations.replicate_hot.max(1);
        let within = range.unwrap_or(RANGE).min(RANGE);
        let line = (draw % (within / 64).max(1)) * 64;
        let row = within.next_multiple_of(64 << 10);
        let copy = if range.is_some() { draw / 65_536 % copies } else { 0 };
        // Copies lie in rows of their own: 2 KB further each time.
        let at = line + copy * (row + (2 << 10));
        if at + bytes <= RANGE { at } else { at % (RANGE - bytes.min(RANGE) + 64) / 64 * 64 }
    }

    /// Takes the steps of `group` requests from `first` on, up to what another engine takes: each
    /// step for all of them, and then the next.
    async fn take<F: Fabric>(
        &self,
        fabric: &F,
        (alternative, first): Place,
        group: u64,
    ) -> Result<(), FabricError> {
        let steps = &self.alternatives[alternative].steps;
        let mut at = first;
        while let Some(step) = steps.get(at) {
            // Steps after a SEND, as far as the node takes them, are the receiver's.
            let nested = at > 0 && first == 0 && self.is_nested(alternative, at);
            if !nested {
                self.repeat(fabric, (alternative, at), step, group).await?;
            }
            at += 1;
            if first > 0 && steps.get(at).is_some_and(|_| !self.is_nested(alternative, at)) {
                break;
            }
        }
        Ok(())
    }

    /// Whether the receiver of an earlier SEND takes the step at `at`.
    fn is_nested(&self, alternative: usize, at: usize) -> bool {
        let steps = &self.alternatives[alternative].steps;
        let inbound = |step: &Step| matches!(step, Step::Operation { way: Way::Inbound(_), .. });
        let sends = |step: &Step| {
            matches!(step, Step::Operation { way: Way::Inbound(_), verb: Verb::Send, .. })
        };
        !inbound(&steps[at])
            && steps[..at].iter().rev().find(|step| inbound(step)).is_some_and(sends)
    }

    /// The number of times that a request takes the step at `at`, which counts `count`: of a count
    /// of 2.5, every other request takes it three times.
    fn times(&self, alternative: usize, at: usize, count: f64) -> u64 {
        let millionths = (count * 1e6).round() as u64;
        let before = self.due[alternative][at][0].fetch_add(millionths, Ordering::Relaxed);
        (before + millionths) / 1_000_000 - before / 1_000_000
    }

    /// A step of `group` requests as often as it counts. Of the operations of each turn the engine
    /// makes batches, as of all that a round posts.
    async fn repeat<F: Fabric>(
        &self,
        fabric: &F,
        (alternative, at): Place,
        step: &Step,
        group: u64,
    ) -> Result<(), FabricError> {
        let ended = &self.due[alternative][at][1];
        let (bytes, count) = match *step {
            Step::Operation { count, .. } => {
                let (piece, pieces) = step.cut(self.mitigations.segment);
                (piece, count * pieces as f64)
            }
            Step::Compute { side, ns } => {
                debug_assert!(fabric.here().side == side, "the side that the description names");
                for _ in 0..group {
                    let _once = self.times(alternative, at, 1.0);
                    // Named work has the profile's costs; what a description asks for is its own.
                    fabric.work(Work::Given { nanos: ns });
                    fabric.yield_now().await;
                    ended.fetch_add(1, Ordering::Relaxed);
                }
                return Ok(());
            }
        };
        let mut left: Vec<u64> = (0..group).map(|_| self.times(alternative, at, count)).collect();
        while left.iter().any(|times| *times > 0) {
            let mut machine = None;
            let mut posted = Vec::new();
            for times in left.iter_mut().filter(|times| **times > 0) {
                *times -= 1;
                let draw = fabric.random();
                let machine = *machine.get_or_insert_with(|| self.machine(fabric, draw, group));
                posted.push(self.begin(fabric, (alternative, at), bytes, (draw, machine)));
            }
            for one in posted {
                one.await.map(drop)?;
                ended.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// The machine that an operation goes to which leaves the node. To all of them in turn: else
    /// the link of one would bind. What shares a doorbell goes to one.
    fn machine<F: Fabric>(&self, fabric: &F, draw: u64, group: u64) -> usize {
        let (here, batch) = (fabric.here(), self.mitigations.doorbell_batch.max(1));
        let turn = if group == 1 && batch > 1 && here.side == Side::Nic {
            self.left[usize::from(here.core)].fetch_add(1, Ordering::Relaxed) / batch
        } else {
            draw >> 32
        };
        turn as usize % self.others.len()
    }

    /// Posts an operation of `bytes`, or sends its message.
    fn begin<F: Fabric>(
        &self,
        fabric: &F,
        (alternative, at): Place,
        bytes: u64,
        (draw, machine): (u64, usize),
    ) -> F::Completion {
        let Step::Operation { way, verb, range, .. } = self.alternatives[alternative].steps[at]
        else {
            unreachable!("a computation is no operation")
        };
        let offset = self.address(draw, bytes, range);
        let key = |side: Side| RKey(self.keys[place(side)].load(Ordering::Relaxed) as u32);
        let one = |rkey| (rkey, offset, bytes);
        match way {
            Way::Inbound(side) if verb == Verb::Send => {
                let cores = fabric.view().engines(TARGET, side) as u64;
                let to = EngineId { node: TARGET, side, core: (draw % cores) as u8 };
                let asked = Asked { alternative: alternative as u8, step: at as u8, bytes };
                fabric.call(to, &asked, Timeout::Never)
            }
            Way::Inbound(side) => post(fabric, TARGET, verb, one(key(side))),
            Way::Outbound(_) => {
                let rkey = RKey(self.others[machine].1.load(Ordering::Relaxed) as u32);
                post(fabric, NodeId(1 + machine as u16), verb, one(rkey))
            }
            Way::Within(side) => post(fabric, TARGET, verb, one(key(side.other()))),
            Way::Dma if verb == Verb::Read => fabric.dma_read(&self.own[0], offset, bytes as usize),
            Way::Dma => fabric.dma_write(&self.own[0], offset, &vec![0; bytes as usize]),
        }
    }
}

fn post<F: Fabric>(
    fabric: &F,
    node: NodeId,
    verb: Verb,
    (rkey, offset, len): (RKey, u64, u64),
) -> F::Completion {
    match verb {
        Verb::Read => fabric.one_sided(node, OneSided::Read { rkey, offset, len: len as u32 }),
        _ => {
            fabric.one_sided(node, OneSided::Write { rkey, offset, bytes: &vec![0; len as usize] })
        }
    }
}

/// Cores that begin what `here` begins, itself included.
fn beside(view: &View, here: EngineId) -> usize {
    match here.node == TARGET {
        true => view.engines(TARGET, here.side),
        false => (view.nodes() - 1) * view.engines(here.node, here.side),
    }
}

#[derive(Debug)]
struct Started(Arc<Requests>);

impl Start for Started {
    fn start<F: Fabric>(&self, fabric: &F) {
        let (requests, here) = (&self.0, fabric.here());
        fabric.serve(Rc::new(Server { fabric: fabric.clone(), requests: requests.clone() }));
        if here.core == 0 && here.node == TARGET {
            let side = place(here.side);
            let rkey = fabric.register(&requests.own[side], Access::ReadWrite);
            requests.keys[side].store(u64::from(rkey.0), Ordering::Relaxed);
        } else if here.core == 0 && here.side == Side::Host {
            let (region, key) = &requests.others[here.node.index() - 1];
            let rkey = fabric.register(region, Access::ReadWrite);
            key.store(u64::from(rkey.0), Ordering::Relaxed);
        }
        let (begun, everywhere) = (requests.begun_by(here), beside(fabric.view(), here));
        let alone = matches!(requests.arrival, Arrival::Alone(_));
        for (at, rate) in begun {
            let workers = match alone {
                true => u64::from(here.core == 0 && here.node.0 <= 1),
                false => requests.workers(at, everywhere),
            };
            // In a mix each asks at its part of the rate, since else the fastest would take the
            // most; and each alternative has its own, since else those that wait for a slow one
            // would ask for no fast one.
            let paced = matches!(requests.arrival, Arrival::Mixed(_));
            let begins = everywhere as u64 * workers * requests.group(at);
            let every = if paced { begins as f64 * 1e3 / rate } else { 0.0 };
            for _ in 0..workers {
                fabric.spawn(work(fabric.clone(), requests.clone(), at, every as u64));
            }
        }
    }
}

/// Asks for an alternative for ever: every so often, or as soon as it was answered.
async fn work<F: Fabric>(fabric: F, requests: Arc<Requests>, alternative: usize, every_ns: u64) {
    let alone = matches!(requests.arrival, Arrival::Alone(_));
    // Not all at once: they would reach one resource after the other together.
    let mut next = fabric.now() + Nanos(fabric.random() % every_ns.max(SPAN_MIN.0));
    if !alone {
        fabric.sleep_until(next).await;
    }
    loop {
        if every_ns > 0 {
            next += Nanos(every_ns);
            fabric.sleep_until(next).await;
        }
        let began = fabric.now();
        let group = requests.group(alternative);
        let done = requests.take(&fabric, (alternative, 0), group).await;
        assert_eq!(done, Ok(()), "a plan meets no faults");
        let [finished, waited] = &requests.done[alternative];
        finished.fetch_add(group, Ordering::Relaxed);
        waited.fetch_add(fabric.now().since(began).0 * group, Ordering::Relaxed);
    }
}
