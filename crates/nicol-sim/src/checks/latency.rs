//! Latencies: C1.07 to C1.09, C1.18, C1.19, C2.04, C3.01 to C3.05, C3.07 to C3.11.

use std::sync::Arc;

use nicol_core::chain::{PAPER_FLAGS, SCRATCH_BYTES};
use nicol_core::ids::Side;
use nicol_core::memory::{CHAINS_MAX, SWAP_WORDS_MAX, WORD};
use nicol_core::units::{BitsPerSec, Bytes, Picos};
use nicol_core::view::ViewError;

use super::CheckLine;
use super::measure::{Action, FULL_VECTOR, PRIMITIVES, dma_latency, round_trip, transfer};
use crate::profile::{NullRpc, Published, Sourced};
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
    let mut with_pcie = host.iter().chain(&nic[1..]);
    let mut lines = vec![
        order(
            "NIC RPC from the NIC is below everything that crosses PCIe",
            with_pcie.all(|time| *time > nic[0]),
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
        lines.push(order(
            "every operation from the NIC, a host RPC included, is below two-sided RDMA",
            nic.iter().all(|time| *time < two_sided),
        ));
    }
    Ok(lines)
}

/// The time that cores of its own save a NIC, in nanoseconds: round trips of 256 B from such a core
/// to another node's. [Xenic21 4.3.4]
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
    /// Whether a request is served sooner on the NIC than on the host, even if it needs the host's
    /// memory.
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
    let read = round_trip(profile, Action::Read(Side::Host), Side::Host, 512)?;
    let rpc = round_trip(profile, Action::Echo(Side::Host), Side::Host, 512)?;
    let what = "a READ of 512 B is faster than a two-sided RPC";
    let line = CheckLine::ordering("C3.02", what, read < rpc).assumed();
    lines.push(line.note("the times are published for a card without cores"));
    Ok(lines)
}

/// Bytes of a slot, which takes a request or a part of one. (C2.06)
const SLOT_BYTES: usize = 2_048;
/// Ports of the server's card. (C2.02)
const PORTS: u64 = 2;

/// C2.04: RPCs between hosts that do nothing.
pub(super) fn null_rpcs(
    profile: &Arc<Profile>,
    published: &NullRpc,
) -> Result<Vec<CheckLine>, ViewError> {
    const NOTE: &str = "one RPC at a time, its payload one way, over one of the two ports; 4 KB take two \
                        slots of 2 KB, one after the other";
    const STEEP: &str = "4 KB took exactly twice as long as 2 KB: two slots (C2.06), which are modelled. From 512 \
                         B to 2 KB each further byte took 1.8 ns; a port of 25 Gbps takes 0.3 ns, PCIe 3.0 \
                         x8 0.1 ns at each end, copies less";
    let sizes = [
        (128_usize, &published.of_128),
        (512, &published.of_512),
        (2_048, &published.of_2048),
        (4_096, &published.of_4096),
    ];
    let mut lines = Vec::new();
    for (bytes, measured) in sizes {
        // The reply has no payload: that of a small request.
        let echo = |bytes| round_trip(profile, Action::Echo(Side::Host), Side::Host, bytes);
        let slots = bytes.div_ceil(SLOT_BYTES);
        let bytes_each = bytes / slots;
        // A message takes one port; the link's rate is that of both.
        let time = |rate: BitsPerSec| rate.transfer_time(Bytes(bytes_each as u64)).0 as f64;
        let port =
            time(BitsPerSec(profile.link.rate.value.0 / PORTS)) - time(profile.link.rate.value);
        let rpc_us = slots as f64 * ((echo(bytes_each)? + echo(16)?) / 2.0 + port) / 1e3;
        let us = measured.value.0 as f64 / 1e6;
        let what = format!("null RPC with a payload of {bytes} B");
        let line = CheckLine::new(measured.source.clone(), what, (us, us), rpc_us, "us").assumed();
        lines.push(if bytes < SLOT_BYTES { line.note(NOTE) } else { line.contradicted(STEEP) });
    }
    Ok(lines)
}

/// C3.01 to C3.03 on this profile's link; in PRISM's testbeds what two READs take beyond an RPC,
/// too.
pub(super) fn verbs(profile: &Arc<Profile>) -> Result<Vec<CheckLine>, ViewError> {
    const NOTE: &str = "measured on this profile's link, plus what the bytes take longer there";
    let time_of_512 = |rate: BitsPerSec| rate.transfer_time(Bytes(512)).0 as f64;
    const SWITCH_NS: f64 = 600.0;
    let here = time_of_512(profile.link.rate.value);
    let slower = |gbps| time_of_512(BitsPerSec::from_gbps(gbps)) - here;
    let switch = 2.0 * profile.link.latency.value.0 as f64 / 1e3;
    let read = round_trip(profile, Action::Read(Side::Host), Side::Host, 512)?;
    let rpc = round_trip(profile, Action::Echo(Side::Host), Side::Host, 512)?;
    // A READ carries its bytes one way, an echo both.
    let read_us = (read + slower(40) - switch + SWITCH_NS) / 1e3;
    let rpc_us = (rpc + 2.0 * slower(40) - switch + SWITCH_NS) / 1e3;
    // A WRITE carries its bytes one way, too, and a CAS hardly any.
    let direct_us = (read + slower(25) - switch) / 1e3;
    let write = round_trip(profile, Action::Write(Side::Host), Side::Host, 512)?;
    let write_us = (write + slower(25) - switch) / 1e3;
    let swap_us = (round_trip(profile, Action::CompareSwap, Side::Host, 512)? - switch) / 1e3;
    let line = |id, what: &str, published, measured, unit| {
        CheckLine::new(id, what, (published, published), measured, unit).note(NOTE)
    };
    let mut lines = vec![
        line("C3.01", "READ of 512 B at 40 Gbps through a switch", 3.2, read_us, "us"),
        line("C3.02", "two-sided RPC of 512 B at 40 Gbps through a switch", 5.6, rpc_us, "us"),
        line("C3.02", "by how much the READ is faster", 43.0, (1.0 - read_us / rpc_us) * 1e2, "%"),
        line("C3.03", "READ of 512 B at 25 Gbps without a switch", 2.5, direct_us, "us"),
        line("C3.03", "WRITE of 512 B at 25 Gbps without a switch", 2.5, write_us, "us"),
        line("C3.03", "CAS at 25 Gbps without a switch", 2.5, swap_us, "us"),
    ];
    if profile.verbs.chains.is_some() {
        let what = "by how much two READs one after the other are slower";
        lines.push(line("C3.02", what, 0.8, 2.0 * read_us - rpc_us, "us"));
    }
    Ok(lines)
}

/// Latency of a link beyond that of any cable within a rack.
const CABLE: Picos = Picos(50_000);

/// C3.07, C3.08: what networks add to a READ of 512 B, this profile's switch among them.
pub(super) fn networks(profile: &Arc<Profile>) -> Result<Vec<CheckLine>, ViewError> {
    let read_at = |latency: Picos| {
        let mut there = Profile::clone(profile);
        there.link.latency.value = latency;
        round_trip(&Arc::new(there), Action::Read(Side::Host), Side::Host, 512)
    };
    let none = read_at(Picos(0))?;
    let own = profile.link.latency.value;
    let mut networks = vec![
        ("C3.07", "what a rack's switch adds to a READ", 0.6, Picos(300_000)),
        ("C3.07", "what three tiers of switches add to a READ", 3.0, Picos(1_500_000)),
        ("C3.07", "what the network of a data centre adds to a READ", 24.0, Picos(12_000_000)),
    ];
    if own > CABLE {
        networks.push(("C3.08", "what the switch adds to a READ", 0.6, own));
    }
    let line = |(id, what, us, latency): (&'static str, &str, f64, Picos)| {
        let added = (read_at(latency)? - none) / 1e3;
        Ok(CheckLine::new(id, what, (us, us), added, "us"))
    };
    networks.into_iter().map(line).collect()
}

/// C3.09 to C3.11: what a card keeps for chains, the widest compare-and-swap, the flags of a
/// header, and the testbed's machines.
pub(super) fn limits(profile: &Arc<Profile>) -> Vec<CheckLine> {
    const CARD_MEMORY: usize = 256 << 10;
    let scratch = SCRATCH_BYTES as f64;
    let held = (CARD_MEMORY / SCRATCH_BYTES) as f64;
    let swap = (SWAP_WORDS_MAX * WORD) as f64;
    let cores = profile.cores.nic.value as f64;
    let memory = profile.cores.nic_memory.value.0 as f64 / 1e9;
    let line = |id, what: &str, published: f64, found, unit| {
        CheckLine::new(id, what, (published, published), found, unit)
    };
    let mut lines = vec![
        line("C3.09", "scratch of a chain", 32.0, scratch, "B"),
        line("C3.09", "chains whose scratch fits 256 KB of a card", 8_192.0, held, "chains"),
        line("C3.09", "chains under way at most", 8_192.0, f64::from(CHAINS_MAX), "chains"),
        line("C3.10", "the widest compare-and-swap", 32.0, swap, "B"),
        line("C3.10", "flags of a header", 5.0, f64::from(PAPER_FLAGS), "flags"),
        line("C3.11", "cores that execute chains", 16.0, cores, "cores"),
        line("C3.11", "memory of a machine", 96.0, memory, "GB"),
    ];
    if profile.link.latency.value <= CABLE {
        let gbps = profile.link.rate.value.0 as f64 / 1e9;
        lines.push(line("C3.11", "link between two machines", 25.0, gbps, "Gbps"));
    }
    lines
}

/// C1.09: the orderings among verbs and messages.
pub(super) fn verb_orderings(profile: &Arc<Profile>) -> Result<Vec<CheckLine>, ViewError> {
    let mut lines = Vec::new();
    let two_sided = round_trip(profile, Action::Echo(Side::Host), Side::Host, REQUEST)?;
    let one_sided = [Action::Read(Side::Host), Action::Write(Side::Host)];
    for action in one_sided {
        let time = round_trip(profile, action, Side::Host, REQUEST)?;
        let what = format!("{action:?} is below two-sided RDMA");
        lines.push(CheckLine::ordering("C1.09", what, time < two_sided).assumed());
    }
    Ok(lines)
}

/// C3.04: what software on host cores adds, primitive by primitive, to the verb of its kind.
pub(super) fn software_chains(profile: &Arc<Profile>) -> Result<Vec<CheckLine>, ViewError> {
    const NOTE: &str = "beyond the verb of its kind: READ, WRITE or CAS";
    let mut lines = Vec::new();
    for (name, primitive, verb) in PRIMITIVES {
        let verb = round_trip(profile, verb, Side::Host, 512)?;
        let software = round_trip(profile, Action::Chain(primitive), Side::Host, 512)?;
        let what = format!("what software adds: {name}, 512 B");
        let line = CheckLine::new("C3.04", what, (2.5, 2.8), (software - verb) / 1e3, "us");
        lines.push(line.note(NOTE));
    }
    Ok(lines)
}

/// C3.05: how long a core of the card takes to reach its host's memory; how many there are; and at
/// what clock, if they differ from the ARM cores of C1.20, at 2.2 GHz, by nothing else.
pub(super) fn card_cores(profile: &Arc<Profile>) -> Result<Vec<CheckLine>, ViewError> {
    let read_us = transfer(profile, Action::DmaRead, 8)? / 1e3;
    let what = "a core of the card reads a word of its host's memory";
    let cores = profile.cores.nic.value as f64;
    let clock = 2_200.0 * 3_260.0 / profile.cores.nic_slowdown_permille.value as f64;
    Ok(vec![
        CheckLine::new("C3.05", what, (3.0, 3.0), read_us, "us"),
        CheckLine::new("C3.05", "cores of the card", (8.0, 8.0), cores, "cores"),
        CheckLine::new("C3.05", "the clock of the card's cores", (800.0, 800.0), clock, "MHz")
            .note("C1.20's ARM cores take 3.26 times a Xeon's time at 2.2 GHz"),
    ])
}
