//! The component measurements themselves, each a function of a profile: the checks compare them
//! with what was published, and experiments print them as the papers' figures.

use std::sync::Arc;

use nicol_core::engine::DoorbellBatch;
use nicol_core::ids::{EngineId, NodeId, Side};
use nicol_core::units::Nanos;
use nicol_core::view::ViewError;

use super::cluster;
use super::probe::Probe;
pub use super::probe::{Action, ChainProbe};
use crate::{Profile, SimConfig, Spending, Utilization};

/// The primitives of figure 1 and the verbs that they are compared with. [PRISM21 4.3]
pub const PRIMITIVES: [(&str, ChainProbe, Action); 5] = [
    ("READ", ChainProbe::Read, Action::Read(Side::Host)),
    ("indirect READ", ChainProbe::IndirectRead, Action::Read(Side::Host)),
    ("WRITE", ChainProbe::Write, Action::Write(Side::Host)),
    ("ALLOCATE", ChainProbe::Allocate, Action::Write(Side::Host)),
    ("CAS", ChainProbe::CompareSwap, Action::CompareSwap),
];

/// Run before a rate is measured: queues fill and batches form.
pub(super) const WARMUP: Nanos = Nanos::from_micros(150);
/// Over which a rate is measured.
pub(super) const WINDOW: Nanos = Nanos::from_micros(250);
/// The same for one operation at a time.
const ALONE_WARMUP: Nanos = Nanos::from_micros(20);
const ALONE_WINDOW: Nanos = Nanos::from_micros(400);

/// Requests of a full DMA vector, C1.16.
pub const FULL_VECTOR: usize = 15;

/// Cores that issue DMAs, each with a queue of its own, C1.16.
const DMA_CORES: usize = 8;

/// A rate, and how busy everything was while it was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Rate {
    /// Millions of operations per second.
    pub mops: f64,
    /// The resources of every node.
    pub resources: Vec<Utilization>,
}

impl Rate {
    /// The resource of the target that was busiest: `dma`, `pcie`, `network` or `cores`.
    pub fn busiest(&self) -> &'static str {
        let busy = |name: &str| {
            self.resources.iter().find(|line| line.name == name).map_or(0.0, Utilization::busy)
        };
        let network = busy("n0.link_in").max(busy("n0.link_out"));
        let pcie = busy("n0.pcie_to_host").max(busy("n0.pcie_to_nic"));
        let shares = [
            ("dma", busy("n0.dma_queues")),
            ("pcie", pcie),
            ("network", network),
            ("cores", busy("n0.nic_cores")),
        ];
        shares.into_iter().fold(("", 0.0), |most, one| if one.1 > most.1 { one } else { most }).0
    }
}

/// Time of the two parts of a DMA vector, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DmaLatency {
    /// The core's time to submit the vector.
    pub submit_ns: f64,
    /// From the end of that to the completion status, as polling sees it.
    pub complete_ns: f64,
}

/// The mean time of one operation of `size` bytes at a time from an engine of `source`, in
/// nanoseconds. [Xenic21 3.2]
///
/// # Errors
/// If the profile has no engine on a side that the operation needs.
pub fn round_trip(
    profile: &Arc<Profile>,
    action: Action,
    source: Side,
    size: usize,
) -> Result<f64, ViewError> {
    let probe = Probe::new(action, source, 1, size);
    Ok(probe.measure(cluster(profile, 2, 1, 1)?, ALONE_WARMUP, ALONE_WINDOW).mean_ns)
}

/// The rate of writes from one host to `memory` of another node, with every batch of one: frames,
/// DMA vectors and doorbells. [Xenic21 3.4]
///
/// # Errors
/// If the profile has too few cores.
pub fn unbatched_writes(
    profile: &Arc<Profile>,
    memory: Side,
    size: usize,
) -> Result<Rate, ViewError> {
    let mut config = cluster(profile, 2, 16, 24)?;
    config.tuning.aggregation = false;
    config.tuning.dma_vector = 1;
    config.tuning.doorbell_batch = DoorbellBatch::UpTo(1);
    Ok(rate(&Probe::new(Action::Write(memory), Side::Host, 16, size), config))
}

/// The rate of writes from five hosts to `memory` of a sixth node, batched wherever there is a
/// boundary. [Xenic21 3.4]
///
/// # Errors
/// If the profile has too few cores.
pub fn batched_writes(
    profile: &Arc<Profile>,
    memory: Side,
    size: usize,
) -> Result<Rate, ViewError> {
    let config = cluster(profile, 6, 24, 24)?;
    Ok(rate(&Probe::new(Action::Write(memory), Side::Host, 64, size), config))
}

/// The rate of WRITE verbs in doorbell batches from `requesters` cores of one host. [Xenic21 3.4]
///
/// # Errors
/// If the profile has too few cores.
pub fn verb_writes(
    profile: &Arc<Profile>,
    requesters: usize,
    size: usize,
) -> Result<Rate, ViewError> {
    let config = cluster(profile, 2, requesters, 1)?;
    Ok(rate(&Probe::new(Action::Write(Side::Host), Side::Host, 256, size), config))
}

fn rate(probe: &Probe, config: SimConfig) -> Rate {
    let (found, cluster) = probe.run(config, WARMUP, WINDOW);
    let resources = cluster.report().since(&found.before).resources;
    Rate { mops: found.mops, resources }
}

/// The rate of DMAs per queue in vectors of `vector` requests, in millions per second: eight NIC
/// cores work, with a queue each. [Xenic21 3.5]
///
/// # Errors
/// If the profile has too few cores.
pub fn dma_rate(
    profile: &Arc<Profile>,
    action: Action,
    vector: usize,
    size: usize,
) -> Result<Rate, ViewError> {
    let mut config = cluster(profile, 1, 1, DMA_CORES)?;
    let cores = config.view.engines_most(Side::Nic);
    config.tuning.dma_vector = vector;
    let probe = Probe::new(action, Side::Nic, 60, size);
    let all = rate(&probe, config);
    Ok(Rate { mops: all.mops / cores as f64, ..all })
}

/// The mean time of one transfer of `size` bytes at a time between a NIC core and its own host's
/// memory, in nanoseconds. [Xenic21 3.1]
///
/// # Errors
/// If the profile has no NIC core.
pub fn transfer(profile: &Arc<Profile>, action: Action, size: usize) -> Result<f64, ViewError> {
    let probe = Probe::new(action, Side::Nic, 1, size);
    Ok(probe.measure(cluster(profile, 1, 1, 1)?, ALONE_WARMUP, ALONE_WINDOW).mean_ns)
}

/// The latency of one DMA vector of `requests` at a time. [Xenic21 3.5]
///
/// # Errors
/// If the profile has no NIC core.
pub fn dma_latency(
    profile: &Arc<Profile>,
    action: Action,
    requests: usize,
    size: usize,
) -> Result<DmaLatency, ViewError> {
    let mut probe = Probe::new(action, Side::Nic, requests, size);
    probe.period = Nanos::from_micros(4);
    let (found, cluster) = probe.run(cluster(profile, 1, 1, 1)?, ALONE_WARMUP, ALONE_WINDOW);
    let report = cluster.report();
    let spent = |name: &str| {
        let on_it = |spent: &&Spending| spent.side == Side::Nic && spent.on == name;
        report.spent.iter().find(on_it).map_or(0.0, |spent| spent.time.0 as f64)
    };
    let nic = cluster.engine(EngineId::nic(NodeId(0), 0));
    let vectors = nic.map_or(1.0, |engine| engine.stats().dma_vectors as f64);
    let submit_ns = spent("dma submit") / vectors;
    let complete_ns = found.mean_ns - submit_ns - spent("dma complete") / vectors;
    Ok(DmaLatency { submit_ns, complete_ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_dma_engine_transfers_occupy_the_card() {
        for (name, by_verbs) in [("bluefield1", true), ("stingray", true), ("liquidio3", false)] {
            let profile = Arc::new(Profile::load(name).unwrap());
            for action in [Action::DmaRead, Action::DmaWrite] {
                let probe = Probe::new(action, Side::Nic, 30, 64);
                let (_, cluster) = probe.run(cluster(&profile, 1, 1, 1).unwrap(), WARMUP, WINDOW);
                let report = cluster.report();
                let busy = |resource: &str| {
                    let lines = report.resources.iter();
                    lines.filter(|line| line.name == resource).map(Utilization::busy).sum::<f64>()
                };
                assert_eq!(busy("n0.verb_card") > 0.0, by_verbs, "{name}");
                assert_eq!(busy("n0.dma_queues") > 0.0, !by_verbs, "{name}");
                let pcie = busy("n0.pcie_to_nic").max(busy("n0.pcie_to_host"));
                assert!(pcie > 0.0, "{name}: {action:?} crosses PCIe to the host");
            }
        }
    }

    #[test]
    fn a_core_that_waits_for_its_dmas_has_one_under_way() {
        let profile = Arc::new(Profile::load("liquidio3").unwrap());
        let mops = |asynchronous| {
            let mut config = cluster(&profile, 1, 1, 1).unwrap();
            config.tuning.dma_vector = 1;
            config.tuning.dma_async = asynchronous;
            Probe::new(Action::DmaRead, Side::Nic, 60, 64).measure(config, WARMUP, WINDOW).mops
        };
        let dma = &profile.dma;
        let alone = dma.submit.value + dma.read_latency.value + dma.completed.value;
        let expected = 1e6 / alone.0 as f64;
        // A round submits many at once, so that the window's ends cut off some or let some in.
        assert!((mops(false) / expected - 1.0).abs() < 0.1, "{} of {expected}", mops(false));
        assert!(mops(true) > 4.0 * expected);
    }
}
