//! Rates: C1.10 to C1.17.

use std::sync::Arc;

use nicol_core::ids::Side;
use nicol_core::units::Nanos;
use nicol_core::view::ViewError;

use super::measure::{
    Action, FULL_VECTOR, Rate, WARMUP, WINDOW, batched_writes, dma_rate, unbatched_writes,
    verb_writes,
};
use super::probe::Probe;
use super::{CheckLine, cluster};
use crate::{Profile, SimReport};

/// 80 B of UDP payload are 48 B after the frame's and the message's header.
const ECHO_BODY: usize = 48;

/// C1.10, C1.11: five servers call a sixth, one message to a packet.
pub(super) fn rpcs(profile: &Arc<Profile>) -> Result<Vec<CheckLine>, ViewError> {
    const NOTE: &str = "each client core has one call with each server core, so packets carry one \
                        message; clients are NIC cores";
    let mut lines = Vec::new();
    for (line, side, nic, published) in
        [("C1.10", Side::Host, 24, 23.0), ("C1.11", Side::Nic, 16, 71.8)]
    {
        let config = cluster(profile, 6, 16, nic)?;
        let servers = config.view.engines_most(side);
        let probe = Probe::new(Action::Echo(side), Side::Nic, servers, ECHO_BODY);
        let found = probe.measure(config, WARMUP, WINDOW);
        let what = format!("{side:?} echo RPC, 16 threads").to_lowercase();
        let published = (published, published);
        lines.push(CheckLine::new(line, what, published, found.mops, "M/s").note(NOTE));
    }
    Ok(lines)
}

/// Runs the load of C1.11 for `span` of virtual time.
pub(super) fn echo_load(profile: &Arc<Profile>, span: Nanos) -> Result<SimReport, ViewError> {
    let probe = Probe::new(Action::Echo(Side::Nic), Side::Nic, 16, ECHO_BODY);
    let (_, cluster) = probe.run(cluster(profile, 6, 16, 16)?, Nanos::ZERO, span);
    Ok(cluster.report())
}

/// C1.12 to C1.14: one server writes to another.
pub(super) fn remote_writes(profile: &Arc<Profile>) -> Result<Vec<CheckLine>, ViewError> {
    let mut lines = Vec::new();
    for (side, memory, gain) in [(Side::Nic, "NIC", 22.2), (Side::Host, "host", 7.0)] {
        let mut highest = 0f64;
        for size in [16, 64, 256] {
            let mops = unbatched_writes(profile, side, size)?.mops;
            highest = highest.max(mops);
            let what = format!("unbatched write of {size} B to {memory} memory");
            let line = CheckLine::new("C1.12", what, (9.0, 10.4), mops, "M/s");
            lines.push(line.note("one host writes; its packet queue to the NIC binds"));
        }
        let mut rates = Vec::new();
        for size in [16, 32, 64, 128, 256] {
            rates.push((size, batched_writes(profile, side, size)?));
        }
        let best = rates.iter().fold(0f64, |best, (_, rate)| best.max(rate.mops));
        let what = format!("batching gain of writes to {memory} memory");
        let line = CheckLine::new("C1.13", what, (gain, gain), best / highest, "times");
        lines.push(line.note(
            "five hosts write: an operation of 45 B or more at this rate exceeds one host's \
             PCIe 3.0 x8",
        ));
        for (size, rate) in rates {
            if side == Side::Host {
                lines.push(host_write_limit(size, &rate));
            }
        }
    }
    Ok(lines)
}

fn host_write_limit(size: usize, rate: &Rate) -> CheckLine {
    let (mops, binds) = (rate.mops, rate.busiest());
    let expected = if size < 64 { "dma" } else { "network" };
    let what = format!(
        "batched write of {size} B to host memory ({mops:.1} M/s): {expected} binds; here {binds}"
    );
    let line = CheckLine::ordering("C1.14", what, binds == expected);
    if size < 64 {
        return line;
    }
    line.contradicted(
        "from 64 B on the published limit, 100 Gbps of network, lies above two other published \
         ones: 8 x 8.7 M/s of DMA (C1.17, AMB-25) and 63 Gbps of PCIe 3.0 x8 (C1.03)",
    )
}

/// C1.16, C1.17: eight NIC cores, a DMA queue each.
pub(super) fn dma(profile: &Arc<Profile>) -> Result<Vec<CheckLine>, ViewError> {
    let mut lines = Vec::new();
    for (action, what) in [(Action::DmaRead, "reads"), (Action::DmaWrite, "writes")] {
        let single = dma_rate(profile, action, 1, 64)?.mops;
        let full = dma_rate(profile, action, FULL_VECTOR, 64)?.mops;
        let text = format!("DMA {what} of 64 B in full vectors, per queue");
        lines.push(CheckLine::new("C1.17", text, (8.7, 8.7), full, "M/s"));
        let text = format!("vectors raise the rate of DMA {what}");
        lines.push(CheckLine::ordering("C1.16", text, full > single).assumed());
    }
    Ok(lines)
}

/// C1.10 behind the card with verbs: echoes of one message to a packet, received and sent by 16
/// host cores. (decision 0080)
pub(super) fn two_sided(profile: &Arc<Profile>) -> Result<Vec<CheckLine>, ViewError> {
    let config = cluster(profile, 6, 16, 1)?;
    let servers = config.view.engines_most(Side::Host);
    let probe = Probe::new(Action::Echo(Side::Host), Side::Host, servers, ECHO_BODY);
    let found = probe.measure(config, WARMUP, WINDOW);
    let line =
        CheckLine::new("C1.10", "host echo RPC, 16 threads", (23.0, 23.0), found.mops, "M/s");
    let note = "measured on this host behind the other card: what a packet costs its cores is held";
    Ok(vec![line.note(note)])
}

/// C1.15: one requester, doorbell batches of up to 64; AMB-42: several together exceed it.
pub(super) fn verbs(profile: &Arc<Profile>) -> Result<Vec<CheckLine>, ViewError> {
    let mut lines = Vec::new();
    let mut alone = 0.0;
    for size in [16, 64, 256] {
        alone = verb_writes(profile, 1, size)?.mops;
        let what = format!("WRITE of {size} B, doorbell batches up to 64, one requester");
        lines.push(CheckLine::new("C1.15", what, (13.5, 15.0), alone, "M/s"));
    }
    let together = verb_writes(profile, 8, 16)?.mops;
    let what = format!("eight requesters exceed one ({together:.1} M/s)");
    let line = CheckLine::ordering("AMB-42", what, together > 4.0 * alone);
    lines.push(line.assumed().note("one requester is not the card's limit"));
    Ok(lines)
}
