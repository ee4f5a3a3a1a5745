//! What of the study's advice applies to a plan, on what it stands, and what following it gives
//! here. [OffPath23 table 3]

use nicol_core::ids::Side;
use nicol_sim::Profile;
use nicol_sim::checks::paths::Verb;
use nicol_sim::profile::Card;

use super::description::Mitigations;
use super::{Alternative, Description, Mix, Resource, Step, WORTH, Way, candidate, closed_form};

/// The evidence for a claim or a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Shown by the study, or published.
    Shown,
    /// Supported by a hypothesis only.
    Hypothesis,
    /// No source gives it: the profile says why it was chosen.
    Assumed,
}

impl Evidence {
    /// The study's letter; A for what is assumed.
    pub const fn letter(self) -> &'static str {
        match self {
            Self::Shown => "E",
            Self::Hypothesis => "H",
            Self::Assumed => "A",
        }
    }
}

/// A piece of advice that applies.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// Its number, 1 to 5; 0: to use paths together.
    pub number: u8,
    /// The alternative that it is about; none if it is about all.
    pub alternative: Option<String>,
    /// The change to make, and the reason for it here.
    pub text: String,
    pub evidence: Evidence,
    /// The gain of following it, if it names a change.
    pub gain: Option<Gain>,
}

/// The alternative as it is described, and as it would be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gain {
    /// Requests a second of the alternative alone, in millions.
    pub mops: [f64; 2],
    /// Time of one request alone, in microseconds.
    pub latency_us: [f64; 2],
}

impl Gain {
    /// Whether it raises the rate by a percent or more.
    pub fn pays(&self) -> bool {
        self.mops[1] >= self.mops[0] * WORTH
    }
}

/// Advice for a step, before it is known what it gives.
struct Found {
    number: u8,
    text: String,
    evidence: Evidence,
    remedy: Option<Remedy>,
}

/// The change to a description by which the gain of an advice is measured.
#[derive(Clone, Copy)]
enum Remedy {
    /// Switch a mitigation on.
    Mitigate(Mitigations),
    /// Let the steps of one way take another.
    Go(Way, Way),
}

/// The advice for the steps of `description`'s alternatives, and for the `recommended` mix.
pub(super) fn advise(
    description: &Description,
    profile: &Profile,
    client: &Profile,
    recommended: &Mix,
) -> Vec<Advice> {
    let mut advice = Vec::new();
    for alternative in &description.alternatives {
        let mut found: Vec<Found> = Vec::new();
        for step in &alternative.steps {
            of_step(description, profile, step, &mut found);
        }
        found.sort_by_key(|one| one.number);
        found.dedup_by(|a, b| a.number == b.number);
        advice.extend(found.into_iter().map(|one| {
            let gain = one
                .remedy
                .and_then(|remedy| gain(description, (profile, client), alternative, remedy));
            Advice {
                number: one.number,
                alternative: Some(alternative.name.clone()),
                text: one.text,
                evidence: one.evidence,
                gain,
            }
        }));
    }
    advice.extend(of_mix(description, profile, recommended));
    advice
}

/// The gain of `remedy` for `alternative`, which is planned alone, without and with it.
fn gain(
    description: &Description,
    (profile, client): (&Profile, &Profile),
    alternative: &Alternative,
    remedy: Remedy,
) -> Option<Gain> {
    let mut alone = Description { alternatives: vec![alternative.clone()], ..description.clone() };
    let bound = |description: &Description| {
        let (demands, programme) = closed_form(description, profile, client)?;
        Some(candidate(&alternative.name, &demands[0], programme.alone(0)))
    };
    let before = bound(&alone)?;
    match remedy {
        Remedy::Mitigate(mitigations) => alone.mitigations = mitigations,
        Remedy::Go(from, to) => {
            for step in &mut alone.alternatives[0].steps {
                if let Step::Operation { way, .. } = step
                    && *way == from
                {
                    *way = to;
                }
            }
        }
    }
    let after = bound(&alone)?;
    Some(Gain {
        mops: [before.mops, after.mops],
        latency_us: [before.latency_us, after.latency_us],
    })
}

/// Advice about paths that are used together.
fn of_mix(description: &Description, profile: &Profile, recommended: &Mix) -> Vec<Advice> {
    let mut advice = Vec::new();
    let used = |side: Side| {
        let parts = description.alternatives.iter().zip(&recommended.mops);
        parts.filter(|(_, mops)| **mops > 0.0).any(|(alternative, _)| {
            let inbound = |step: &Step| {
                matches!(step, Step::Operation { way: Way::Inbound(to), .. } if *to == side)
            };
            alternative.steps.iter().any(inbound)
        })
    };
    if used(Side::Host) && used(Side::Nic) {
        advice.push(Advice {
            number: 0,
            alternative: None,
            text: "paths 1 and 2 together use units that each alone leaves idle".into(),
            evidence: Evidence::Hypothesis,
            gain: None,
        });
    }
    let within =
        description.alternatives.iter().zip(&recommended.mops).filter(|(_, mops)| **mops > 0.0);
    let gbps: f64 = within
        .flat_map(|(alternative, mops)| alternative.steps.iter().map(move |step| (step, mops)))
        .map(|(step, mops)| match step {
            Step::Operation { way: Way::Within(_), bytes, count, .. } => {
                mops * count * *bytes as f64 * 8.0 / 1e3
            }
            _ => 0.0,
        })
        .sum();
    let spare = (profile.pcie.rate.value.0.saturating_sub(profile.link.rate.value.0)) as f64 / 1e9;
    let network = [Resource::LinkIn, Resource::LinkOut];
    let saturated =
        recommended.taken.iter().any(|(one, share)| network.contains(one) && *share > 0.9);
    if saturated && gbps > spare {
        advice.push(Advice {
            number: 0,
            alternative: None,
            text: format!(
                "{gbps:.0} Gbps between SoC and host beside a network that is full: keep path 3 below \
                 P - N = {spare:.0} Gbps"
            ),
            evidence: Evidence::Shown,
            gain: None,
        });
    }
    advice
}

/// Advice for a step of an alternative.
fn of_step(description: &Description, profile: &Profile, step: &Step, found: &mut Vec<Found>) {
    let Step::Operation { way, verb, bytes, .. } = *step else { return };
    let Some(card) = &profile.card else { return };
    let (suspected, mitigated) = (&card.suspected, description.mitigations);
    let piece = mitigated.segment.map_or(bytes, |most| most.min(bytes));
    // Pieces, and how a description has them.
    let pieces = |limit: u64| {
        let segment = limit.min(SEGMENT);
        let written = match segment {
            _ if segment.is_multiple_of(1 << 10) => format!("{}KiB", segment >> 10),
            _ => format!("{segment}B"),
        };
        let remedy = Remedy::Mitigate(Mitigations { segment: Some(segment), ..mitigated });
        (format!("cut them, for instance with segment = \"{written}\""), Some(remedy))
    };
    found.extend(of_addresses(step, card, mitigated));
    let mut say = |number, text, evidence, remedy| {
        found.push(Found { number, text, evidence, remedy });
    };
    let large = |limit: u64| piece > limit;
    let beyond = suspected.read_beyond.value.0;
    if way == Way::Inbound(Side::Nic) && verb == Verb::Read && large(beyond) {
        let (cut, remedy) = pieces(beyond);
        let text = format!("READs of the SoC above {beyond} B block NIC cores: {cut}");
        say(2, text, Evidence::Hypothesis, remedy);
    }
    let limit = match way {
        Way::Within(Side::Nic) => Some(suspected.soc_beyond.value.0),
        Way::Within(Side::Host) => Some(suspected.host_beyond.value.0),
        Way::Dma => card.dma.as_ref().map(|dma| dma.stalls_beyond.value.0),
        _ => None,
    };
    if let Some(limit) = limit.filter(|limit| large(*limit)) {
        let (cut, remedy) = pieces(limit);
        let text =
            format!("transfers of {piece} B between SoC and host collapse above {limit} B: {cut}");
        say(3, text, Evidence::Hypothesis, remedy);
    }
    let asks = match way {
        Way::Within(side) | Way::Outbound(side) => Some(side),
        _ => None,
    };
    if asks == Some(Side::Nic) && mitigated.doorbell_batch <= 1 {
        let text = format!(
            "the SoC posts over slow MMIO: batch its doorbells, for instance with doorbell_batch = {BATCH}"
        );
        let remedy = Remedy::Mitigate(Mitigations { doorbell_batch: BATCH, ..mitigated });
        say(4, text, Evidence::Shown, Some(remedy));
    }
    if way == Way::Within(Side::Host) && mitigated.doorbell_batch > 1 {
        let text =
            "small batches of doorbells cost the host's requests throughput: the plan batches \
                    those of the SoC only"
                .to_owned();
        say(4, text, Evidence::Shown, None);
    }
    if way == Way::Within(Side::Nic) && card.dma.is_some() {
        let text = "DMA (3*) instead of RDMA (3) passes PCIe1 not at all".to_owned();
        say(5, text, Evidence::Shown, Some(Remedy::Go(way, Way::Dma)));
    }
}

/// Advice 1, if `step` takes addresses of the SoC's memory that are close together.
fn of_addresses(step: &Step, card: &Card, mitigated: Mitigations) -> Option<Found> {
    let Step::Operation { way: Way::Inbound(Side::Nic), verb, range: Some(range), .. } = *step
    else {
        return None;
    };
    let memory = card.memory.as_ref().filter(|_| verb != Verb::Send)?;
    let times = card.memory_times(Side::Nic);
    let (slow, fast) = match verb {
        Verb::Read => (memory.bank_read.value, times.read_interval),
        _ => (memory.bank_write.value, times.write_interval),
    };
    let needed = slow.0.div_ceil(fast.0.max(1));
    let rows = range.div_ceil(memory.interleave.value.0);
    let banks = rows * mitigated.replicate_hot.max(1);
    let replicate_hot = needed.div_ceil(rows);
    (banks < needed).then(|| Found {
        number: 1,
        text: format!(
            "{} within {range} B of the SoC's memory meet in {banks} bank(s), which have no DDIO: \
             spread hot records over {needed} rows, for instance with replicate_hot = {replicate_hot}",
            verb.name(),
        ),
        evidence: Evidence::Shown,
        remedy: Some(Remedy::Mitigate(Mitigations { replicate_hot, ..mitigated })),
    })
}

/// A size of pieces below every limit of the study, which large transfers are cut into.
const SEGMENT: u64 = 256 << 10;
/// Requests that share a doorbell where the study's gain is great. [OffPath23 figure 10b]
const BATCH: u64 = 32;
