//! The paths of a card whose inside is modelled, alone and together: C4.
//!
//! Requesters are machines of the study's clients, but for bandwidth, where they are the plain
//! NIC's.

use std::sync::Arc;

use nicol_core::engine::DoorbellBatch;
use nicol_core::units::Nanos;
use nicol_core::view::ViewError;

use super::CheckLine;
use super::paths::{Flow, Load, Measured, Path, Verb};
use crate::{Profile, Utilization};

/// The hardware that the study compares, and its clients. [OffPath23 2.4]
struct Testbed {
    snic: Arc<Profile>,
    rnic: Arc<Profile>,
    client: Arc<Profile>,
}

/// Bytes of small requests, and of larger ones that the network does not bind.
const SMALL: usize = 64;
const SIZES: [usize; 3] = [16, SMALL, 128];
/// Bytes of requests that the network or PCIe binds. [OffPath23 3.1, 3.3]
const PAGE: usize = 4 << 10;
const LARGE: usize = 256 << 10;
const HUGE: [usize; 2] = [8 << 20, 10 << 20];
/// Machines that saturate a card. [OffPath23 4.1]
const MACHINES: usize = 6;
const SATURATING: usize = 5;

type Lines = Result<Vec<CheckLine>, ViewError>;

impl Testbed {
    /// Around `profile`, which is its off-path card or its plain one.
    fn of(profile: &Arc<Profile>) -> Option<Self> {
        let other = |name| Profile::load(name).ok().map(Arc::new);
        let off_path = profile.off_path.is_some();
        let snic = if off_path { profile.clone() } else { other("bluefield2")? };
        let rnic = if off_path { other("connectx6")? } else { profile.clone() };
        Some(Self { snic, rnic, client: other("connectx4")? })
    }

    fn alone_ns(&self, target: &Arc<Profile>, path: Path, verb: Verb, bytes: usize) -> Found {
        let load = Load::new(target, &self.client, vec![Flow::alone(path, verb, bytes)]);
        Ok(load.run()?.flows[0].mean_ns)
    }

    fn peak(&self, target: &Arc<Profile>, path: Path, verb: Verb, bytes: usize) -> Found {
        let flow = Flow::of(path, verb, bytes, MACHINES, 16);
        Ok(Load::new(target, &self.client, vec![flow]).run()?.mops())
    }

    /// Flows of the plain NIC's machines.
    fn wide(&self, target: &Arc<Profile>, flows: Vec<Flow>) -> Result<Measured, ViewError> {
        Load::new(target, &self.rnic, flows).run()
    }
}

type Found = Result<f64, ViewError>;

fn line(
    id: &'static str,
    what: String,
    published: (f64, f64),
    found: f64,
    unit: &'static str,
) -> CheckLine {
    CheckLine::new(id, what, published, found, unit)
}

fn exact(
    id: &'static str,
    what: &str,
    published: f64,
    found: f64,
    unit: &'static str,
) -> CheckLine {
    line(id, what.to_owned(), (published, published), found, unit)
}

/// By how many percent `found` is above `base`.
fn above(found: f64, base: f64) -> f64 {
    (found / base - 1.0) * 100.0
}

/// The line of a machine that asks: five of them saturate a card's units. [OffPath23 4.1]
pub(super) fn requester(profile: &Arc<Profile>) -> Lines {
    let Ok(target) = Profile::load("bluefield2").map(Arc::new) else { return Ok(Vec::new()) };
    let of = |machines| Flow::of(Path::ToHost, Verb::Read, 0, machines, 16);
    let rate =
        |machines| -> Found { Ok(Load::new(&target, profile, vec![of(machines)]).run()?.mops()) };
    let needed = rate(MACHINES)? / rate(1)?;
    Ok(vec![exact("C4.19", "machines that saturate one endpoint's units", 5.0, needed, "machines")])
}

/// The lines of the plain NIC alone. [OffPath23 2.1, 3.1]
fn plain(bed: &Testbed) -> Lines {
    let rnic = &bed.rnic;
    let read = bed.alone_ns(rnic, Path::ToHost, Verb::Read, SMALL)?;
    let echoes = bed.peak(rnic, Path::ToHost, Verb::Send, SMALL)?;
    let packets = bed.peak(rnic, Path::ToHost, Verb::Read, 0)?;
    let (mut lines, page) = (Vec::new(), |verb| Flow::of(Path::ToHost, verb, PAGE, 1, 4));
    lines.push(exact("C4.03", "echoes of 24 host cores", 87.0, echoes, "M/s"));
    lines.push(line("C4.03", "packets of the NIC, 0 B".into(), (195.0, 215.0), packets, "M/s"));
    lines.push(exact("C4.04", "READ of 64 B", 2.0, read / 1e3, "us"));
    let large = |bytes| Flow { cores: 4, ..Flow::of(Path::ToHost, Verb::Read, bytes, 1, 2) };
    let (at_16k, at_256k) =
        (bed.wide(rnic, vec![large(16 << 10)])?, bed.wide(rnic, vec![large(LARGE)])?);
    let what = "4 cores saturate the network with 16 KB";
    lines.push(CheckLine::ordering("C4.23", what, at_16k.gbps() > 0.95 * at_256k.gbps()));
    let both = bed.wide(rnic, vec![page(Verb::Read), page(Verb::Write)])?.gbps();
    let what = "READs and WRITEs of 4 KB together (published for the off-path card)";
    lines.push(exact("C4.08", what, 364.0, both, "Gbps"));
    Ok(lines)
}

/// Paths (1) and (2) one request at a time. [OffPath23 3.1, 3.2]
fn latencies(bed: &Testbed) -> Lines {
    // The sum of an echo's parts is 2 to 3 us: two ways of a verb (C4.04), two posts (C4.07), and
    // the cores at both ends (C4.03, C4.22).
    const ECHO: &str = "contradicts C4.04 with C4.03 and C4.07 (AMB-55): two passes of 300 ns are 6 to 9 % of \
                        an echo of 7 to 10 us, and its published parts add up to a third of that; by these \
                        the switch adds more than the weaker cores of the SoC do";
    let mut lines = Vec::new();
    let snic = &bed.snic;
    let (read, write, send) = ((15.0, 30.0), (15.0, 21.0), (6.0, 9.0));
    for (verb, more) in [(Verb::Read, read), (Verb::Write, write), (Verb::Send, send)] {
        for bytes in [SMALL, 256] {
            let rnic = bed.alone_ns(&bed.rnic, Path::ToHost, verb, bytes)?;
            let host = bed.alone_ns(snic, Path::ToHost, verb, bytes)?;
            let soc = bed.alone_ns(snic, Path::ToSoc, verb, bytes)?;
            let name = verb.name();
            if (verb, bytes) == (Verb::Read, SMALL) {
                lines.push(exact(
                    "C4.04",
                    "READ of 64 B through the switch",
                    2.6,
                    host / 1e3,
                    "us",
                ));
                let pass = (host - rnic) / 2.0;
                lines.push(exact("C4.04", "one pass through the switch", 300.0, pass, "ns"));
            }
            let what = format!("{name} of {bytes} B, latency above the plain NIC's");
            let above_rnic = line("C4.05", what, more, above(host, rnic), "%");
            lines.push(match verb {
                Verb::Send => above_rnic.contradicted(ECHO),
                _ => above_rnic,
            });
            let what = format!("{name} of {bytes} B to the SoC");
            lines.extend(match verb {
                Verb::Read => vec![
                    line(
                        "C4.09",
                        format!("{what}, below the host's"),
                        (0.0, 14.0),
                        -above(soc, host),
                        "%",
                    ),
                    line(
                        "C4.09",
                        format!("{what}, above the plain NIC's"),
                        (4.0, 15.0),
                        above(soc, rnic),
                        "%",
                    ),
                ],
                Verb::Write => vec![line(
                    "C4.09",
                    format!("{what}, of the host's"),
                    (1.0, 1.0),
                    soc / host,
                    "times",
                )],
                Verb::Send => vec![
                    line(
                        "C4.09",
                        format!("{what}, above the host's"),
                        (21.0, 30.0),
                        above(soc, host),
                        "%",
                    )
                    .contradicted(ECHO),
                ],
            });
        }
    }
    Ok(lines)
}

/// Peak rates of paths (1) and (2), alone and together. [OffPath23 3.1, 3.2, 4.1]
fn peaks(bed: &Testbed) -> Lines {
    const LINK: &str =
        "at sizes that the network does not bind: at 256 B it bounds the plain NIC's WRITEs";
    let mut lines = Vec::new();
    let less = [(Verb::Read, (19.0, 26.0)), (Verb::Write, (15.0, 22.0)), (Verb::Send, (3.0, 36.0))];
    let gain = [1.45, 1.50, 3.3];
    for ((verb, less), gain) in less.into_iter().zip(gain) {
        let name = verb.name();
        let mut best = 0f64;
        for bytes in SIZES {
            let [rnic, host] =
                [&bed.rnic, &bed.snic].map(|nic| bed.peak(nic, Path::ToHost, verb, bytes));
            let (rnic, host, soc) = (rnic?, host?, bed.peak(&bed.snic, Path::ToSoc, verb, bytes)?);
            let what = format!("{name} of {bytes} B, rate below the plain NIC's");
            lines.push(line("C4.06", what, less, -above(host, rnic), "%").note(LINK));
            let what = format!("{name} of {bytes} B to the SoC, of the host's");
            lines.push(match verb {
                Verb::Send => line("C4.10", what, (0.0, 64.0), soc / host * 1e2, "%"),
                _ => line("C4.10", what, (1.08, 1.48), soc / host, "times"),
            });
            if (verb, bytes) == (Verb::Send, SMALL) {
                lines.push(exact("C4.22", "echoes of 8 SoC cores", 21.6, soc, "M/s"));
            }
            let both =
                [Path::ToHost, Path::ToSoc].map(|path| Flow::of(path, verb, bytes, SATURATING, 16));
            let both = Load::new(&bed.snic, &bed.client, both.to_vec()).run()?.mops();
            best = best.max(both / host.min(soc));
        }
        let what = format!("{name} to both, of the lower: most of {SIZES:?} B");
        lines.push(line("C4.19", what, (gain, gain), best, "times"));
    }
    let zero = |path, machines| Flow::of(path, Verb::Read, 0, machines, 16);
    let run = |flows| -> Found { Ok(Load::new(&bed.snic, &bed.client, flows).run()?.mops()) };
    let (host, soc) =
        (run(vec![zero(Path::ToHost, MACHINES)])?, run(vec![zero(Path::ToSoc, MACHINES)])?);
    let both = run(vec![zero(Path::ToHost, SATURATING), zero(Path::ToSoc, SATURATING)])?;
    lines.push(line(
        "C4.19",
        "0 B to both, above the host alone".into(),
        (4.0, 13.0),
        above(both, host),
        "%",
    ));
    lines.push(line(
        "C4.19",
        "0 B to both, above the SoC alone".into(),
        (5.0, 10.0),
        above(both, soc),
        "%",
    ));
    lines.push(exact("C4.19", "0 B, the sum of both alone", 352.0, host + soc, "M/s"));
    lines.push(exact("C4.19", "0 B to both", 195.0, both, "M/s"));
    Ok(lines)
}

/// The bytes of a small range, and of a large transfer. [OffPath23 3.2, 3.3]
fn addresses_and_sizes(bed: &Testbed) -> Lines {
    let mut lines = Vec::new();
    for (verb, published) in [(Verb::Write, [77.9, 22.7]), (Verb::Read, [85.0, 50.0])] {
        for (range, published) in [48 << 10, 1_536].into_iter().zip(published) {
            let flow = Flow::of(Path::ToSoc, verb, SMALL, MACHINES, 16);
            let load = Load { range, ..Load::new(&bed.snic, &bed.client, vec![flow]) };
            let what = format!("{} of 64 B to the SoC within {range} B", verb.name());
            lines.push(line("C4.11", what, (published, published), load.run()?.mops(), "M/s"));
        }
    }
    let huge = |path, verb, bytes| -> Found {
        let flow = Flow { cores: 1, ..Flow::of(path, verb, bytes, 1, 3) };
        Ok(bed.wide(&bed.snic, vec![flow])?.gbps())
    };
    let [below, beyond] = HUGE;
    let (before, after) =
        (huge(Path::ToSoc, Verb::Read, below)?, huge(Path::ToSoc, Verb::Read, beyond)?);
    let what = "READs of the SoC collapse above 9 MB, WRITEs and READs of the host do not";
    let others =
        huge(Path::ToSoc, Verb::Write, beyond)?.min(huge(Path::ToHost, Verb::Read, beyond)?);
    let collapse = before > 180.0 && after < 0.6 * before && others > 180.0;
    lines.push(CheckLine::ordering("C4.12", what, collapse));
    for verb in [Verb::Read, Verb::Write] {
        for (path, what) in [(Path::SocToHost, "the SoC"), (Path::HostToSoc, "the host")] {
            let what = format!("large {}s within the node by {what}", verb.name());
            lines.push(line("C4.15", what, (100.0, 100.0), huge(path, verb, beyond)?, "Gbps"));
        }
        let (soc, host) =
            (huge(Path::SocToHost, verb, below)?, huge(Path::HostToSoc, verb, below)?);
        let what = match verb {
            Verb::Read => "READs that the SoC asks for collapse earlier",
            _ => "WRITEs that the SoC asks for collapse earlier",
        };
        lines.push(CheckLine::ordering("C4.15", what, soc < 0.7 * host));
    }
    for (verb, what) in [
        (Verb::Write, "DMA writes do not saturate PCIe from 16 KB to 1 MB"),
        (Verb::Read, "DMA reads do not saturate PCIe from 16 KB to 1 MB"),
    ] {
        let mut most: f64 = 0.0;
        for bytes in [16 << 10, 64 << 10, 512 << 10, 1 << 20] {
            most = most.max(huge(Path::Dma, verb, bytes)?);
        }
        // RDMA, which saturates it, moves 204 Gbps (C4.15).
        lines.push(CheckLine::ordering("C4.18", what, most < 0.9 * 204.0));
    }
    let drops = |verb| -> Result<bool, ViewError> {
        Ok(huge(Path::Dma, verb, 2 << 20)? < 0.7 * huge(Path::Dma, verb, 1 << 20)?)
    };
    let both = drops(Verb::Read)? && drops(Verb::Write)?;
    lines.push(CheckLine::ordering("C4.18", "DMA reads and writes drop above 1 MB", both));
    Ok(lines)
}

/// Bandwidth and PCIe packets. [OffPath23 3.1 to 3.3]
fn bandwidth(bed: &Testbed) -> Lines {
    let mut lines = Vec::new();
    let page = |path, verb| Flow::of(path, verb, PAGE, 1, 4);
    let two = |path, first, second| -> Found {
        Ok(bed.wide(&bed.snic, vec![page(path, first), page(path, second)])?.gbps())
    };
    for (path, to) in [(Path::ToHost, "the host"), (Path::ToSoc, "the SoC")] {
        let same = two(path, Verb::Read, Verb::Read)?;
        lines.push(line("C4.08", format!("READs of 4 KB to {to}"), (190.0, 190.0), same, "Gbps"));
        let both = two(path, Verb::Read, Verb::Write)?;
        lines.push(line(
            "C4.08",
            format!("READs and WRITEs of 4 KB to {to}"),
            (364.0, 364.0),
            both,
            "Gbps",
        ));
    }
    let large = |path, verb| {
        let flow = Flow { cores: 8, ..Flow::of(path, verb, LARGE, 1, 2) };
        bed.wide(&bed.snic, vec![flow])
    };
    let host = large(Path::ToHost, Verb::Read)?;
    lines.push(exact("C4.13", "READs of 256 KB to the host", 191.0, host.gbps(), "Gbps"));
    lines.push(exact("C4.13", "their PCIe packets with data", 46.7, host.packets()[2], "M/s"));
    let soc = large(Path::ToSoc, Verb::Read)?;
    for (what, published, found, data) in
        [("host", 512.0, &host, host.packets()[2]), ("SoC", 128.0, &soc, soc.packets()[0])]
    {
        let what = format!("data of a PCIe packet to the {what}");
        lines.push(line("C4.12", what, (published, published), found.gbps() * 125.0 / data, "B"));
    }
    let own = large(Path::SocToHost, Verb::Read)?;
    lines.push(exact("C4.15", "one way between SoC and host", 204.0, own.gbps(), "Gbps"));
    let [inner, inner_control, outer, outer_control] = own.packets();
    let at_200 = (inner + outer) * 200.0 / own.gbps();
    lines.push(exact("C4.16", "PCIe packets with data, at 200 Gbps", 293.0, at_200, "M/s"));
    let all = inner + inner_control + outer + outer_control;
    lines.push(exact("C4.16", "all PCIe packets", 320.0, all, "M/s"));
    let dma = two(Path::Dma, Verb::Read, Verb::Write)?;
    lines.push(exact("C4.18", "DMA reads and writes of 4 KB", 178.0, dma, "Gbps"));
    Ok(lines)
}

/// Between SoC and host, by RDMA and DMA; doorbell batching. [OffPath23 3.3]
fn within(bed: &Testbed) -> Lines {
    let mut lines = Vec::new();
    let snic = &bed.snic;
    for verb in [Verb::Read, Verb::Write] {
        let h2s = bed.alone_ns(snic, Path::HostToSoc, verb, SMALL)?;
        let soc = bed.alone_ns(snic, Path::ToSoc, verb, SMALL)?;
        let what = format!(
            "{} of 64 B of the SoC by its host, above that by another machine",
            verb.name()
        );
        lines.push(line("C4.14", what, (4.0, 17.0), above(h2s, soc), "%"));
    }
    let s2h = bed.alone_ns(snic, Path::SocToHost, Verb::Read, SMALL)?;
    let dma = bed.alone_ns(snic, Path::Dma, Verb::Read, SMALL)?;
    lines.push(exact("C4.18", "RDMA READ of 64 B by the SoC", 2.6, s2h / 1e3, "us"));
    lines.push(exact("C4.18", "DMA read of 64 B by the SoC", 1.9, dma / 1e3, "us"));
    for (path, what, published) in [(Path::SocToHost, "SoC", 29.0), (Path::HostToSoc, "host", 51.2)]
    {
        for verb in [Verb::Read, Verb::Write] {
            let what = format!("small {}s that the {what} posts", verb.name());
            let found = bed.peak(snic, path, verb, SMALL)?;
            lines.push(line("C4.14", what, (published, published), found, "M/s"));
        }
    }
    for bytes in [SMALL, 512, 1_024, 2_048] {
        for (verb, what) in [(Verb::Write, "writes"), (Verb::Read, "reads")] {
            let rdma = bed.peak(snic, Path::SocToHost, verb, bytes)?;
            let dma = bed.peak(snic, Path::Dma, verb, bytes)?;
            let what = format!("DMA {what} of {bytes} B, of RDMA's");
            lines.push(line("C4.18", what, (47.0, 59.0), dma / rdma * 1e2, "%"));
        }
    }
    lines.extend(doorbells(bed)?);
    Ok(lines)
}

/// The work of one core that posts READs of 64 B.
#[derive(Clone, Debug, PartialEq)]
pub struct Posting {
    /// Millions of them a second.
    pub mops: f64,
    /// The core's time to post one and to poll its completion.
    pub core_ns: f64,
    /// The utilization of the resources of every node meanwhile.
    pub resources: Vec<Utilization>,
}

/// READs of 64 B of one core, `batch` at a time, that share doorbells as `doorbells` says.
/// [OffPath23 3.3, figure 10]
///
/// # Errors
/// If the hardware has no such core.
pub fn posting(
    target: &Arc<Profile>,
    client: &Arc<Profile>,
    path: Path,
    batch: usize,
    doorbells: DoorbellBatch,
) -> Result<Posting, ViewError> {
    let workers = if batch == 1 { 32 } else { 3 };
    let flow = Flow { batch, workers, ..Flow::alone(path, Verb::Read, SMALL) };
    let span = Nanos::from_micros(400);
    let load = Load::new(target, client, vec![flow]);
    let load = Load { doorbell_batch: doorbells, warmup: span, window: span, ..load };
    let measured = load.run()?;
    let mops = measured.mops();
    let posted = mops * span.0 as f64 / 1e3;
    let core_ns = measured.posting_ns() / posted.max(1.0);
    Ok(Posting { mops, core_ns, resources: measured.resources() })
}

fn batched(bed: &Testbed, target: &Arc<Profile>, path: Path, batch: usize) -> Found {
    Ok(posting(target, &bed.client, path, batch, DoorbellBatch::UpTo(batch))?.mops)
}

fn doorbells(bed: &Testbed) -> Lines {
    const NOTE: &str =
        "one core: 4.6 times what 8 cores post would exceed what the host's memory serves";
    let mut lines = Vec::new();
    let paths = [("the plain NIC", &bed.rnic, Path::ToHost), ("the SoC", &bed.snic, Path::ToSoc)];
    for (to, target, path) in paths {
        let alone = batched(bed, target, path, 1)?;
        for batch in [16, 80] {
            let gain = above(batched(bed, target, path, batch)?, alone);
            let what = format!("doorbells of {batch} READs to {to}");
            lines.push(line("C4.17", what, (2.0, 30.0), gain, "%"));
        }
    }
    let alone = batched(bed, &bed.snic, Path::SocToHost, 1)?;
    for (batch, published) in [(16, 2.7), (80, 4.6)] {
        let gain = batched(bed, &bed.snic, Path::SocToHost, batch)? / alone;
        let what = format!("doorbells of {batch} READs of the SoC");
        lines.push(line("C4.17", what, (published, published), gain, "times").note(NOTE));
    }
    let alone = batched(bed, &bed.snic, Path::HostToSoc, 1)?;
    for (batch, published) in [(16, 9.0), (32, 7.0), (48, 6.0)] {
        let loss = -above(batched(bed, &bed.snic, Path::HostToSoc, batch)?, alone);
        let what = format!("doorbells of {batch} READs of the host to its SoC lose");
        lines.push(line("C4.17", what, (published, published), loss, "%").note(NOTE));
    }
    Ok(lines)
}

/// Requests of the host to its SoC, or DMAs, beside those of other machines. [OffPath23 4.1]
fn beside(bed: &Testbed) -> Lines {
    const NOTE: &str = "fitted: what a request within the node (5.8 ns) or a DMA (3.6 ns) takes of the host's \
                        memory controller comes from this line, and its cause is unknown: shared units \
                        alone lose less, PCIe packets three to six times as much (decision 0035). \
                        Five machines with 8 requests a core under way, the host or SoC with 8: the study \
                        does not say how many";
    let mut lines = Vec::new();
    let drops = [(Verb::Read, (7.0, 15.0)), (Verb::Write, (4.0, 27.0)), (Verb::Send, (9.0, 14.0))];
    let run = |flows: Vec<Flow>| -> Found {
        Ok(Load::new(&bed.snic, &bed.client, flows).run()?.flows[0].mops)
    };
    let most = |verb| Flow::of(Path::ToHost, verb, SMALL, SATURATING, 8);
    for (verb, published) in drops {
        let own = Flow::of(Path::HostToSoc, verb, SMALL, 0, 8);
        let loss = -above(run(vec![most(verb), own])?, run(vec![most(verb)])?);
        let what = format!("{} to the host, lost beside those of the host to its SoC", verb.name());
        lines.push(line("C4.20", what, published, loss, "%").fitted(NOTE));
    }
    let dma = Flow::of(Path::Dma, Verb::Read, SMALL, 0, 8);
    let loss = -above(run(vec![most(Verb::Read), dma])?, run(vec![most(Verb::Read)])?);
    lines.push(
        line("C4.20", "READs to the host, lost beside DMA".into(), (5.0, 6.0), loss, "%")
            .fitted(NOTE),
    );
    Ok(lines)
}

/// The bounds that follow from the rates of the network and of PCIe. [OffPath23 4.1]
fn bounds(profile: &Profile) -> Vec<CheckLine> {
    const NOTE: &str = "arithmetic of the nominal rates, without a run: PCIe carries 252 of 256 Gbps in \
                        128b/130b. C4.08 measures the first, C4.15 the second; nobody has measured the \
                        others";
    let (n, p) = (profile.link.rate.value.0 as f64 / 1e9, profile.pcie.rate.value.0 as f64 / 1e9);
    let bound =
        |what, published, found| exact("C4.21", what, published, found, "Gbps").arithmetic(NOTE);
    vec![
        bound("paths to host and SoC, both directions", 400.0, 2.0 * n),
        bound("between SoC and host", 256.0, p),
        bound(
            "path to the host in both directions beside that between SoC and host",
            456.0,
            2.0 * n + p - n,
        ),
        bound("what is left for SoC to host", 56.0, p - n),
    ]
}

/// A group of measurements, and the rows of the study that it is held to.
type Part = (fn(&Testbed) -> Lines, &'static [&'static str]);

const PARTS: [Part; 6] = [
    (latencies, &["C4.04", "C4.05", "C4.07", "C4.09"]),
    (peaks, &["C4.06", "C4.10", "C4.19", "C4.22"]),
    (addresses_and_sizes, &["C4.11", "C4.12", "C4.15", "C4.18"]),
    (bandwidth, &["C4.08", "C4.12", "C4.13", "C4.15", "C4.16", "C4.18"]),
    (within, &["C4.14", "C4.17", "C4.18"]),
    (beside, &["C4.20"]),
];

/// Every line of the off-path study that `profile` is held to. Parts without a `wanted` row are
/// not measured.
pub(super) fn lines(profile: &Arc<Profile>, wanted: impl Fn(&str) -> bool) -> Lines {
    let Some(bed) = Testbed::of(profile) else { return Ok(Vec::new()) };
    if profile.off_path.is_none() {
        return plain(&bed);
    }
    let mut lines = Vec::new();
    for (part, rows) in PARTS {
        if rows.iter().any(|row| wanted(row)) {
            let found = part(&bed)?;
            debug_assert!(found.iter().all(|line| rows.contains(&&*line.line)), "{found:?}");
            lines.extend(found);
        }
    }
    lines.extend(bounds(profile));
    Ok(lines)
}
