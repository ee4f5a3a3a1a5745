//! Latencies: C1.07 to C1.09, C1.18, C1.19, C3.01.

use std::sync::Arc;

use nicol_core::ids::Side;
use nicol_core::units::{Bytes, Picos};
use nicol_core::view::ViewError;

use super::CheckLine;
use super::measure::{Action, FULL_VECTOR, dma_latency, round_trip, transfer};
use crate::profile::{Published, Sourced};
use crate::{Profile, ProfileError};

/// C1.18, C1.19: one request, and one full vector, at a time.
pub(super) fn dma(profile: &Arc<Profile>) -> Result<Vec<CheckLine>, ViewError> {
    let mut lines = Vec::new();
    for (action, what, published) in
        [(Action::DmaRead, "read", 1_295.0), (Action::DmaWrite, "write", 570.0)]
    {
        for requests in [1, FULL_VECTOR] {
            let found = dma_latency(profile, action, requests, 64)?;
            let text = format!("submission of a DMA {what} vector of {requests}");
            lines.push(CheckLine::new("C1.18", text, (190.0, 190.0), found.submit_ns, "ns"));
            let text = format!("completion of a DMA {what} vector of {requests}");
            let published = (published, published);
            let line = CheckLine::new("C1.19", text, published, found.complete_ns, "ns");
            lines.push(line.note("one vector at a time, with what polling adds"));
        }
    }
    Ok(lines)
}

const REQUEST: usize = 256;

/// C1.09: the orderings of the latency matrix; RDMA is the built-in ConnectX-5.
pub(super) fn on_path_orderings(profile: &Arc<Profile>) -> Result<Vec<CheckLine>, ViewError> {
    let row = |source| -> Result<[f64; 4], ViewError> {
        Ok([
            round_trip(profile, Action::Echo(Side::Nic), source, REQUEST)?,
            round_trip(profile, Action::Read(Side::Host), source, REQUEST)?,
            round_trip(profile, Action::Write(Side::Host), source, REQUEST)?,
            round_trip(profile, Action::Echo(Side::Host), source, REQUEST)?,
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
        let read = round_trip(&rdma, Action::Read(Side::Host), Side::Host, REQUEST)?;
        let write = round_trip(&rdma, Action::Write(Side::Host), Side::Host, REQUEST)?;
        let two_sided = round_trip(&rdma, Action::Echo(Side::Host), Side::Host, REQUEST)?;
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

/// What a NIC that has cores of its own saves, in nanoseconds: round trips of 256 B from such a
/// core to another node's. [Xenic21 4.3.4]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Offload {
    /// To the other NIC, which answers from its own memory.
    pub served_ns: f64,
    /// The same, from its host's memory.
    pub fetched_ns: f64,
    /// To the other host: an RPC.
    pub host_rpc_ns: f64,
}

impl Offload {
    /// Is a request served sooner on the NIC than on the host, even if it needs the host's memory?
    pub fn saves_latency(&self) -> bool {
        self.served_ns < self.host_rpc_ns && self.fetched_ns < self.host_rpc_ns
    }
}

/// Measures what offloading saves on `profile`; `None` if its NICs have no cores of their own.
/// [Xenic21 4.3.4]
///
/// # Errors
/// If the profile has no engine on a side.
pub fn offload(profile: &Arc<Profile>) -> Result<Option<Offload>, ViewError> {
    if !profile.cores.nic_is_separate.value {
        return Ok(None);
    }
    let from_nic = |action| round_trip(profile, action, Side::Nic, REQUEST);
    let served_ns = from_nic(Action::Echo(Side::Nic))?;
    let fetched_ns = if profile.off_path.is_some() {
        // A READ verb of the other host would pass the other NIC's cores by.
        served_ns + transfer(profile, Action::DmaRead, REQUEST)?
    } else {
        from_nic(Action::Read(Side::Host))?
    };
    Ok(Some(Offload { served_ns, fetched_ns, host_rpc_ns: from_nic(Action::Echo(Side::Host))? }))
}

/// C1.07, C1.08: WRITEs to the two memories of a node whose NIC cores are off the path, and to that
/// of its host from these cores. [Xenic21 3.1]
pub(super) fn off_path(
    profile: &Arc<Profile>,
    published: &Published,
) -> Result<Vec<CheckLine>, ViewError> {
    const NOTE: &str = "writes of 256 B, one at a time; the size and the other node's card are not \
                        published";
    let to_host = round_trip(profile, Action::Write(Side::Host), Side::Host, REQUEST)?;
    let to_nic = round_trip(profile, Action::Write(Side::Nic), Side::Host, REQUEST)?;
    let to_own_host = transfer(profile, Action::DmaWrite, REQUEST)?;
    let measured = [
        (Some(&published.host_write), "WRITE to a host from another node", to_host),
        (published.nic_write.as_ref(), "WRITE to NIC cores from another node", to_nic),
        (Some(&published.own_host_write), "WRITE of a NIC core to its own host", to_own_host),
    ];
    let line = |(published, what, found_ns): (Option<&Sourced<Picos>>, &str, f64)| {
        let published = published?;
        let published_us = published.value.0 as f64 / 1e6;
        let range = (published_us, published_us);
        let line = CheckLine::new(published.source.clone(), what, range, found_ns / 1e3, "us");
        Some(line.note(NOTE))
    };
    let mut lines: Vec<_> = measured.into_iter().filter_map(line).collect();
    let what = "a NIC core reaches its own host later than another node's host does";
    let source = published.own_host_write.source.clone();
    lines.push(CheckLine::ordering(source, what, to_own_host > to_host));
    Ok(lines)
}

/// C3.01 on this profile's link, and the orderings among verbs.
pub(super) fn verbs(profile: &Arc<Profile>) -> Result<Vec<CheckLine>, ViewError> {
    let read = round_trip(profile, Action::Read(Side::Host), Side::Host, 512)?;
    let slow = nicol_core::units::BitsPerSec::from_gbps(40).transfer_time(Bytes(512)).0 as f64;
    let here = profile.link.rate.value.transfer_time(Bytes(512)).0 as f64;
    let what = "READ of 512 B at 40 Gbps through a switch";
    let measured = (read + slow - here) / 1e3;
    let mut lines = vec![
        CheckLine::new("C3.01", what, (3.2, 3.2), measured, "us")
            .note("measured on this profile's link, plus what 512 B take longer at 40 Gbps"),
    ];
    let two_sided = round_trip(profile, Action::Echo(Side::Host), Side::Host, REQUEST)?;
    let one_sided = [Action::Read(Side::Host), Action::Write(Side::Host)];
    for action in one_sided {
        let time = round_trip(profile, action, Side::Host, REQUEST)?;
        let what = format!("{action:?} is below two-sided RDMA");
        lines.push(CheckLine::ordering("C1.09", what, time < two_sided).assumed());
    }
    Ok(lines)
}
