//! Latencies: C1.09, C1.18, C1.19, C3.01.

use std::sync::Arc;

use nicol_core::cluster::LayoutError;
use nicol_core::ids::{EngineId, NodeId, Side};
use nicol_core::units::{Bytes, Nanos};

use super::probe::{Action, Probe};
use super::{CheckLine, cluster};
use crate::{Profile, ProfileError};

const WARMUP: Nanos = Nanos::from_micros(20);
const WINDOW: Nanos = Nanos::from_micros(400);

/// The mean time of one operation at a time.
fn alone(
    profile: &Arc<Profile>,
    action: Action,
    source: Side,
    size: usize,
) -> Result<f64, LayoutError> {
    let probe = Probe::new(action, source, 1, size);
    Ok(probe.measure(cluster(profile, 2, 1, 1)?, WARMUP, WINDOW).mean_ns)
}

/// C1.18, C1.19: one request, and one full vector, at a time.
pub(super) fn dma(profile: &Arc<Profile>) -> Result<Vec<CheckLine>, LayoutError> {
    let mut lines = Vec::new();
    for (action, what, published) in
        [(Action::DmaRead, "read", 1_295.0), (Action::DmaWrite, "write", 570.0)]
    {
        for requests in [1, 15] {
            let config = cluster(profile, 1, 1, 1)?;
            let mut probe = Probe::new(action, Side::Nic, requests, 64);
            probe.period = Nanos::from_micros(4);
            let (found, cluster) = probe.run(config, WARMUP, WINDOW);
            let spent = |name: &str| {
                let spent = cluster.report().spent;
                spent.iter().find(|(on, _)| *on == name).map_or(0.0, |(_, span)| span.0 as f64)
            };
            let nic = cluster.engine(EngineId::nic(NodeId(0), 0));
            let vectors = nic.map_or(1.0, |engine| engine.stats().dma_vectors as f64);
            let submit = spent("dma submit") / vectors;
            let text = format!("submission of a DMA {what} vector of {requests}");
            lines.push(CheckLine::new("C1.18", text, (190.0, 190.0), submit, "ns"));
            let completion = found.mean_ns - submit - spent("dma complete") / vectors;
            let text = format!("completion of a DMA {what} vector of {requests}");
            let published = (published, published);
            let line = CheckLine::new("C1.19", text, published, completion, "ns");
            lines.push(line.note("one vector at a time, with what polling adds"));
        }
    }
    Ok(lines)
}

const REQUEST: usize = 256;

/// C1.09: the orderings of the latency matrix; RDMA is the built-in ConnectX-5.
pub(super) fn on_path_orderings(profile: &Arc<Profile>) -> Result<Vec<CheckLine>, LayoutError> {
    let row = |source| -> Result<[f64; 4], LayoutError> {
        Ok([
            alone(profile, Action::Echo(Side::Nic), source, REQUEST)?,
            alone(profile, Action::Read(Side::Host), source, REQUEST)?,
            alone(profile, Action::Write(Side::Host), source, REQUEST)?,
            alone(profile, Action::Echo(Side::Host), source, REQUEST)?,
        ])
    };
    let host = row(Side::Host)?;
    let nic = row(Side::Nic)?;
    let order = |what: &str, holds| CheckLine::ordering("C1.09", what, holds).assumed();
    let with_pcie = host.iter().chain(&nic[1..]);
    let mut lines = vec![
        order(
            "NIC RPC from the NIC is below everything that crosses PCIe",
            with_pcie.fold(f64::MAX, |least, time| least.min(*time)) > nic[0],
        ),
        order(
            "host RPC is the highest of each source",
            [host, nic].iter().all(|row| row[..3].iter().all(|time| *time < row[3])),
        ),
    ];
    let rdma: Result<Profile, ProfileError> = Profile::load("connectx5");
    if let Ok(rdma) = rdma {
        let rdma = Arc::new(rdma);
        let read = alone(&rdma, Action::Read(Side::Host), Side::Host, REQUEST)?;
        let write = alone(&rdma, Action::Write(Side::Host), Side::Host, REQUEST)?;
        let two_sided = alone(&rdma, Action::Echo(Side::Host), Side::Host, REQUEST)?;
        lines.push(order(
            "RDMA READ and WRITE are below those of the LiquidIO from the host",
            read < host[1] && write < host[2],
        ));
        lines.push(
            order(
                "NIC RPC, read and write from the NIC are below two-sided RDMA",
                nic[..3].iter().all(|time| *time < two_sided),
            )
            .note("a host RPC from the NIC is the highest of its source and is not meant"),
        );
    }
    Ok(lines)
}

/// C3.01 on this profile's link, and the orderings among verbs.
pub(super) fn verbs(profile: &Arc<Profile>) -> Result<Vec<CheckLine>, LayoutError> {
    let read = alone(profile, Action::Read(Side::Host), Side::Host, 512)?;
    let slow = nicol_core::units::BitsPerSec::from_gbps(40).transfer_time(Bytes(512)).0 as f64;
    let here = profile.link.rate.value.transfer_time(Bytes(512)).0 as f64;
    let what = "READ of 512 B at 40 Gbps through a switch";
    let measured = (read + slow - here) / 1e3;
    let mut lines = vec![
        CheckLine::new("C3.01", what, (3.2, 3.2), measured, "us")
            .note("measured on this profile's link, plus what 512 B take longer at 40 Gbps"),
    ];
    let two_sided = alone(profile, Action::Echo(Side::Host), Side::Host, REQUEST)?;
    let one_sided = [Action::Read(Side::Host), Action::Write(Side::Host)];
    for action in one_sided {
        let time = alone(profile, action, Side::Host, REQUEST)?;
        let what = format!("{action:?} is below two-sided RDMA");
        lines.push(CheckLine::ordering("C1.09", what, time < two_sided).assumed());
    }
    Ok(lines)
}
