//! What of the study's advice applies to a plan, and on what it stands. [OffPath23 table 3]

use nicol_core::ids::Side;
use nicol_sim::Profile;
use nicol_sim::checks::paths::Verb;

use super::{Description, Mix, Resource, Step, Way};

/// What a claim of the study stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Shown.
    Shown,
    /// Supported by a hypothesis only.
    Hypothesis,
}

impl Evidence {
    /// The study's letter.
    pub const fn letter(self) -> &'static str {
        match self {
            Self::Shown => "E",
            Self::Hypothesis => "H",
        }
    }
}

/// A piece of advice that applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// Its number, 1 to 5; 0: to use paths together.
    pub number: u8,
    /// The alternative that it is about; none if it is about all.
    pub alternative: Option<String>,
    /// What to do, and why here.
    pub text: String,
    /// What it stands on.
    pub evidence: Evidence,
}

/// The advice for the steps of `description`'s alternatives, and for the `recommended` mix.
pub(super) fn advise(
    description: &Description,
    profile: &Profile,
    recommended: &Mix,
) -> Vec<Advice> {
    let mut advice = Vec::new();
    for alternative in &description.alternatives {
        let mut found: Vec<(u8, String, Evidence)> = Vec::new();
        for step in &alternative.steps {
            of_step(description, profile, step, &mut found);
        }
        found.sort_by_key(|one| one.0);
        found.dedup_by(|a, b| a.0 == b.0);
        advice.extend(found.into_iter().map(|(number, text, evidence)| Advice {
            number,
            alternative: Some(alternative.name.clone()),
            text,
            evidence,
        }));
    }
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
        });
    }
    advice
}

fn of_step(
    description: &Description,
    profile: &Profile,
    step: &Step,
    found: &mut Vec<(u8, String, Evidence)>,
) {
    let Step::Operation { way, verb, bytes, range, .. } = *step else { return };
    let Some(card) = &profile.card else { return };
    let (suspected, mitigated) = (&card.suspected, &description.mitigations);
    let piece = mitigated.segment.map_or(bytes, |most| most.min(bytes));
    if let (Way::Inbound(Side::Nic), Some(range), Some(memory)) = (way, range, &card.memory)
        && verb != Verb::Send
    {
        let rows = range.div_ceil(memory.interleave.value.0) * mitigated.replicate_hot.max(1);
        let slow =
            if verb == Verb::Read { memory.bank_read.value } else { memory.bank_write.value };
        let end = card.endpoint(Side::Nic);
        let fast =
            if verb == Verb::Read { end.read_interval.value } else { end.write_interval.value };
        let needed = slow.0.div_ceil(fast.0.max(1));
        if rows < needed {
            let text = format!(
                "{} within {range} B of the SoC's memory meet in {rows} bank(s), which have no DDIO: \
                 spread hot records over {needed} rows, for instance with copies (replicate_hot)",
                verb.name()
            );
            found.push((1, text, Evidence::Shown));
        }
    }
    let large = |limit: u64| piece > limit;
    if way == Way::Inbound(Side::Nic) && verb == Verb::Read && large(suspected.read_beyond.value.0)
    {
        let limit = suspected.read_beyond.value.0 >> 20;
        let text =
            format!("READs of the SoC above {limit} MiB block NIC cores: cut them (segment)");
        found.push((2, text, Evidence::Hypothesis));
    }
    let limit = match way {
        Way::Within(Side::Nic) => Some(suspected.soc_beyond.value.0),
        Way::Within(Side::Host) => Some(suspected.host_beyond.value.0),
        Way::Dma => card.dma.as_ref().map(|dma| dma.stalls_beyond.value.0),
        _ => None,
    };
    if let Some(limit) = limit.filter(|limit| large(*limit)) {
        let text = format!(
            "transfers of {piece} B between SoC and host collapse above {limit} B: cut them (segment), \
             into 256 KiB for instance"
        );
        found.push((3, text, Evidence::Hypothesis));
    }
    let asks = match way {
        Way::Within(side) | Way::Outbound(side) => Some(side),
        _ => None,
    };
    if asks == Some(Side::Nic) && mitigated.doorbell_batch <= 1 {
        let text = "the SoC posts over slow MMIO: batch its doorbells (doorbell_batch)".to_owned();
        found.push((4, text, Evidence::Shown));
    }
    if way == Way::Within(Side::Host) && mitigated.doorbell_batch > 1 {
        let text =
            "small batches of doorbells cost the host's requests throughput: the plan batches \
                    those of the SoC only"
                .to_owned();
        found.push((4, text, Evidence::Shown));
    }
    if way == Way::Within(Side::Nic) && card.dma.is_some() {
        let text =
            "DMA (3*) instead of RDMA passes PCIe1 not at all: use it where its engine is not \
                    what binds"
                .to_owned();
        found.push((5, text, Evidence::Shown));
    }
}
