//! Rates: C1.10 to C1.17.

use std::sync::Arc;

use nicol_core::cluster::LayoutError;
use nicol_core::ids::Side;
use nicol_core::units::Nanos;

use super::probe::{Action, Probe};
use super::{CheckLine, cluster};
use crate::{Profile, SimConfig, SimReport};

const WARMUP: Nanos = Nanos::from_micros(150);
const WINDOW: Nanos = Nanos::from_micros(250);

/// 80 B of UDP payload are 48 B after the frame's and the message's header.
const ECHO_BODY: usize = 48;

/// C1.10, C1.11: five servers call a sixth, one message to a packet.
pub(super) fn rpcs(profile: &Arc<Profile>) -> Result<Vec<CheckLine>, LayoutError> {
    const NOTE: &str = "each client core has one call with each server core, so packets carry one \
                        message; clients are NIC cores";
    let mut lines = Vec::new();
    for (line, side, nic, published) in
        [("C1.10", Side::Host, 24, 23.0), ("C1.11", Side::Nic, 16, 71.8)]
    {
        let config = cluster(profile, 6, 16, nic)?;
        let servers = config.layout.engines(side);
        let probe = Probe::new(Action::Echo(side), Side::Nic, servers, ECHO_BODY);
        let found = probe.measure(config, WARMUP, WINDOW);
        let what = format!("{side:?} echo RPC, 16 threads").to_lowercase();
        let published = (published, published);
        lines.push(CheckLine::new(line, what, published, found.mops, "M/s").note(NOTE));
    }
    Ok(lines)
}

/// Runs the load of C1.11 for `span` of virtual time.
pub(super) fn echo_load(profile: &Arc<Profile>, span: Nanos) -> Result<SimReport, LayoutError> {
    let probe = Probe::new(Action::Echo(Side::Nic), Side::Nic, 16, ECHO_BODY);
    let (_, cluster) = probe.run(cluster(profile, 6, 16, 16)?, Nanos::ZERO, span);
    Ok(cluster.report())
}

fn unbatched(mut config: SimConfig) -> SimConfig {
    config.tuning.aggregation = false;
    config.tuning.dma_vector = 1;
    config.tuning.doorbell_batch = 1;
    config
}

/// C1.12 to C1.14: one server writes to another.
pub(super) fn remote_writes(profile: &Arc<Profile>) -> Result<Vec<CheckLine>, LayoutError> {
    let mut lines = Vec::new();
    for (side, memory, gain) in [(Side::Nic, "NIC", 22.2), (Side::Host, "host", 7.0)] {
        let mut highest = 0f64;
        for size in [16, 64, 256] {
            let config = unbatched(cluster(profile, 2, 16, 24)?);
            let probe = Probe::new(Action::Write(side), Side::Host, 16, size);
            let mops = probe.measure(config, WARMUP, WINDOW).mops;
            highest = highest.max(mops);
            let what = format!("unbatched write of {size} B to {memory} memory");
            let line = CheckLine::new("C1.12", what, (9.0, 10.4), mops, "M/s");
            lines.push(line.note("one host writes; its packet queue to the NIC binds"));
        }
        let mut rates = Vec::new();
        for size in [16, 32, 64, 128, 256] {
            rates.push((size, batched(profile, side, size)?));
        }
        let best = rates.iter().fold(0f64, |best, (_, (mops, _))| best.max(*mops));
        let what = format!("batching gain of writes to {memory} memory");
        let line = CheckLine::new("C1.13", what, (gain, gain), best / highest, "times");
        lines.push(line.note(
            "five hosts write: an operation of 45 B or more at this rate exceeds one host's \
             PCIe 3.0 x8",
        ));
        for (size, (mops, binds)) in rates {
            if side == Side::Host {
                lines.push(host_write_limit(size, mops, binds));
            }
        }
    }
    Ok(lines)
}

/// The rate of batched writes, and what was busiest at the target.
fn batched(
    profile: &Arc<Profile>,
    side: Side,
    size: usize,
) -> Result<(f64, &'static str), LayoutError> {
    let config = cluster(profile, 6, 24, 24)?;
    let probe = Probe::new(Action::Write(side), Side::Host, 64, size);
    let (found, cluster) = probe.run(config, WARMUP, WINDOW);
    let busy = |name: &str| {
        let resources = cluster.report().resources;
        resources.iter().find(|line| line.name == name).map_or(0.0, |line| line.busy)
    };
    let network = busy("n0.link_in").max(busy("n0.link_out"));
    let pcie = busy("n0.pcie_to_host").max(busy("n0.pcie_to_nic"));
    let shares = [
        ("dma", busy("n0.dma_queues")),
        ("pcie", pcie),
        ("network", network),
        ("cores", busy("n0.nic_cores")),
    ];
    let (binds, _) =
        shares.into_iter().fold(("", 0.0), |most, one| if one.1 > most.1 { one } else { most });
    Ok((found.mops, binds))
}

fn host_write_limit(size: usize, mops: f64, binds: &str) -> CheckLine {
    let expected = if size < 64 { "dma" } else { "network" };
    let what = format!(
        "batched write of {size} B to host memory ({mops:.1} M/s): {expected} binds; here {binds}"
    );
    CheckLine::ordering("C1.14", what, binds == expected).note(
        "from 64 B on the published limit, 100 Gbps of network, lies above two other published \
         ones: 8 x 8.7 M/s of DMA (C1.17, AMB-25) and 63 Gbps of PCIe 3.0 x8 (C1.03)",
    )
}

/// C1.16, C1.17: eight NIC cores, a DMA queue each.
pub(super) fn dma(profile: &Arc<Profile>) -> Result<Vec<CheckLine>, LayoutError> {
    let mut lines = Vec::new();
    for (action, what) in [(Action::DmaRead, "reads"), (Action::DmaWrite, "writes")] {
        let mut rates = [0.0; 2];
        for (rate, vector) in rates.iter_mut().zip([1, 15]) {
            let mut config = cluster(profile, 1, 1, 8)?;
            config.tuning.dma_vector = vector;
            let probe = Probe::new(action, Side::Nic, 60, 64);
            *rate = probe.measure(config, WARMUP, WINDOW).mops / 8.0;
        }
        let text = format!("DMA {what} of 64 B in full vectors, per queue");
        lines.push(CheckLine::new("C1.17", text, (8.7, 8.7), rates[1], "M/s"));
        let text = format!("vectors raise the rate of DMA {what}");
        lines.push(CheckLine::ordering("C1.16", text, rates[1] > rates[0]).assumed());
    }
    Ok(lines)
}

/// C1.15: one requester, doorbell batches of up to 64; AMB-42: several together exceed it.
pub(super) fn verbs(profile: &Arc<Profile>) -> Result<Vec<CheckLine>, LayoutError> {
    let mut lines = Vec::new();
    let mut alone = 0.0;
    for size in [16, 64, 256] {
        let probe = Probe::new(Action::Write(Side::Host), Side::Host, 256, size);
        alone = probe.measure(cluster(profile, 2, 1, 1)?, WARMUP, WINDOW).mops;
        let what = format!("WRITE of {size} B, doorbell batches up to 64, one requester");
        lines.push(CheckLine::new("C1.15", what, (13.5, 15.0), alone, "M/s"));
    }
    let probe = Probe::new(Action::Write(Side::Host), Side::Host, 256, 16);
    let together = probe.measure(cluster(profile, 2, 8, 1)?, WARMUP, WINDOW).mops;
    let what = format!("eight requesters exceed one ({together:.1} M/s)");
    let line = CheckLine::ordering("AMB-42", what, together > 4.0 * alone);
    lines.push(line.assumed().note("one requester is not the card's limit"));
    Ok(lines)
}
