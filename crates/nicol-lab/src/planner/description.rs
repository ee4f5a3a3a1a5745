//! A description of alternatives, as `nicol plan` reads it: TOML, checked, with errors that name the
//! line.

use std::ops::Range;
use std::path::Path;

use anyhow::Context as _;
use nicol_core::ids::Side;
use nicol_sim::checks::paths::Verb;
use serde::Deserialize;
use toml::Spanned;

/// Why a description cannot be planned with: its file and line, what is wrong, what to write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {what}")]
pub struct Wrong {
    /// The file's name.
    pub file: String,
    /// Line of the text, from 1.
    pub line: usize,
    /// What is wrong, and the remedy.
    pub what: String,
}

/// By what alternatives are ranked. [OffPath23 4.2]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Criterion {
    /// More requests a second.
    Throughput,
    /// A shorter time of one request.
    Latency,
    /// Less time of host cores.
    HostCpu,
    /// Fewer bytes on the network.
    Network,
}

/// Their names, in the order of error messages.
const CRITERIA: [(&str, Criterion); 4] = [
    ("throughput", Criterion::Throughput),
    ("latency", Criterion::Latency),
    ("host_cpu", Criterion::HostCpu),
    ("network", Criterion::Network),
];

impl Criterion {
    /// Its name in descriptions.
    pub fn name(self) -> &'static str {
        CRITERIA.iter().find(|(_, one)| *one == self).map_or("", |(name, _)| *name)
    }
}

/// The way of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// (1), (2): another machine asks this side of the node.
    Inbound(Side),
    /// (1), (2) the other way: this side of the node asks another machine.
    Outbound(Side),
    /// (3): this side of the node asks the other by RDMA.
    Within(Side),
    /// (3*): the SoC moves data from or to its host by DMA.
    Dma,
}

/// The names of ways in descriptions.
const WAYS: [(&str, Way); 7] = [
    ("1", Way::Inbound(Side::Host)),
    ("2", Way::Inbound(Side::Nic)),
    ("1-out", Way::Outbound(Side::Host)),
    ("2-out", Way::Outbound(Side::Nic)),
    ("3-s2h", Way::Within(Side::Nic)),
    ("3-h2s", Way::Within(Side::Host)),
    ("3*", Way::Dma),
];

impl Way {
    /// Its name in descriptions.
    pub fn name(self) -> &'static str {
        WAYS.iter().find(|(_, one)| *one == self).map_or("", |(name, _)| *name)
    }
}

/// One thing that a request takes, after what stands before it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// An operation on a path.
    Operation {
        /// Which way it takes.
        way: Way,
        /// What it asks.
        verb: Verb,
        /// Bytes of its data; of a SEND, those of the request.
        bytes: u64,
        /// Bytes of a SEND's reply.
        reply: u64,
        /// How many of them; a fraction is that share of requests.
        count: f64,
        /// Bytes that its addresses are drawn from, if they are few.
        range: Option<u64>,
    },
    /// Computation on a core of this side, in nanoseconds.
    Compute {
        /// Whose core.
        side: Side,
        /// How long.
        ns: u64,
    },
}

impl Step {
    /// The side of the node that takes it; none if another machine does.
    pub const fn own_side(&self) -> Option<Side> {
        match *self {
            Self::Compute { side, .. } => Some(side),
            Self::Operation { way: Way::Outbound(side) | Way::Within(side), .. } => Some(side),
            Self::Operation { way: Way::Dma, .. } => Some(Side::Nic),
            Self::Operation { way: Way::Inbound(_), .. } => None,
        }
    }
}

/// One way to build a function.
#[derive(Clone, Debug, PartialEq)]
pub struct Alternative {
    /// Its name.
    pub name: String,
    /// One sentence.
    pub summary: String,
    /// The share of all requests that it can take at most.
    pub share_max: f64,
    /// What a request takes.
    pub steps: Vec<Step>,
}

/// What the study advises, if switched on. [OffPath23 3.2, 3.3]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mitigations {
    /// Advice 1: copies of hot records, at addresses of their own; 1 is none.
    pub replicate_hot: u64,
    /// Advice 2 and 3: larger transfers are cut into pieces of so many bytes.
    pub segment: Option<u64>,
    /// Advice 4: requests of a doorbell, where that helps.
    pub doorbell_batch: u64,
}

/// What is to be planned.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    /// Its name.
    pub name: String,
    /// The profile of the card.
    pub hardware: String,
    /// The profile of the machines that ask.
    pub clients: String,
    /// Bytes that a request is for, to tell its bandwidth.
    pub bytes: Option<u64>,
    /// By what to rank, the most important first.
    pub criteria: Vec<Criterion>,
    /// Host cores that may be used.
    pub host_cores: Option<u64>,
    /// SoC cores that may be used.
    pub soc_cores: Option<u64>,
    /// What the study advises.
    pub mitigations: Mitigations,
    /// The alternatives, one at least.
    pub alternatives: Vec<Alternative>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    name: String,
    hardware: Option<String>,
    clients: Option<String>,
    bytes: Option<Spanned<String>>,
    criteria: Option<Vec<Spanned<String>>>,
    limits: Option<RawLimits>,
    mitigations: Option<RawMitigations>,
    #[serde(default)]
    alternative: Vec<Spanned<RawAlternative>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLimits {
    host_cores: Option<u64>,
    soc_cores: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMitigations {
    replicate_hot: Option<Spanned<u64>>,
    segment: Option<Spanned<String>>,
    doorbell_batch: Option<Spanned<u64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawAlternative {
    name: Spanned<String>,
    #[serde(default)]
    summary: String,
    share_max: Option<Spanned<f64>>,
    steps: Vec<Spanned<RawStep>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawStep {
    path: Option<Spanned<String>>,
    verb: Option<Spanned<String>>,
    bytes: Option<Spanned<String>>,
    reply: Option<Spanned<String>>,
    count: Option<Spanned<f64>>,
    range: Option<Spanned<String>>,
    core: Option<Spanned<String>>,
    time: Option<Spanned<String>>,
}

/// Bytes of one operation at most, as much as a profile's limits were measured for.
const BYTES_MAX: u64 = 64 << 20;
/// Steps and alternatives at most: a person wrote them.
const STEPS_MAX: usize = 32;
const ALTERNATIVES_MAX: usize = 16;

/// The text of a description, and where it stands.
struct Text<'a> {
    file: &'a str,
    text: &'a str,
}

impl Text<'_> {
    fn wrong(&self, at: &Range<usize>, what: impl Into<String>) -> Wrong {
        let before = &self.text.as_bytes()[..at.start.min(self.text.len())];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        Wrong { file: self.file.into(), line, what: what.into() }
    }

    fn one_of<T: Copy>(
        &self,
        key: &str,
        written: &Spanned<String>,
        known: &[(&str, T)],
    ) -> Result<T, Wrong> {
        let found = known.iter().find(|(name, _)| *name == written.get_ref().as_str());
        found.map(|(_, value)| *value).ok_or_else(|| {
            let names: Vec<_> = known.iter().map(|(name, _)| *name).collect();
            let what =
                format!("{key} = {:?}: choose one of {}", written.get_ref(), names.join(", "));
            self.wrong(&written.span(), what)
        })
    }

    /// A size such as "64B", "256KiB", "16MiB", or KB and MB.
    fn size(&self, key: &str, written: &Spanned<String>) -> Result<u64, Wrong> {
        const UNITS: [(&str, u64); 6] = [
            ("KiB", 1 << 10),
            ("MiB", 1 << 20),
            ("GiB", 1 << 30),
            ("KB", 1_000),
            ("MB", 1_000_000),
            ("B", 1),
        ];
        let text = written.get_ref();
        let parsed = UNITS.iter().find_map(|(unit, scale)| {
            text.strip_suffix(unit)?.trim().parse::<u64>().ok()?.checked_mul(*scale)
        });
        parsed.ok_or_else(|| {
            let what = format!(
                "{key} = {text:?}: write a size with its unit, such as \"64B\" or \"256KiB\""
            );
            self.wrong(&written.span(), what)
        })
    }

    /// A time such as "200ns", "1.5us".
    fn time(&self, written: &Spanned<String>) -> Result<u64, Wrong> {
        let text = written.get_ref();
        let units = [("ns", 1.0), ("us", 1e3), ("ms", 1e6)];
        let parsed = units.iter().find_map(|(unit, scale)| {
            Some(text.strip_suffix(unit)?.trim().parse::<f64>().ok()? * scale)
        });
        match parsed {
            Some(ns) if (0.0..=1e9).contains(&ns) => Ok(ns.round() as u64),
            _ => {
                let what = format!(
                    "time = {text:?}: write a time up to 1000ms with its unit, such as \"200ns\""
                );
                Err(self.wrong(&written.span(), what))
            }
        }
    }

    fn step(&self, raw: &Spanned<RawStep>) -> Result<Step, Wrong> {
        const SIDES: [(&str, Side); 2] = [("host", Side::Host), ("soc", Side::Nic)];
        const VERBS: [(&str, Verb); 3] =
            [("READ", Verb::Read), ("WRITE", Verb::Write), ("SEND", Verb::Send)];
        let (at, step) = (raw.span(), raw.get_ref());
        let (path, verb, bytes) = match (&step.path, &step.core) {
            (None, Some(core)) => {
                let side = self.one_of("core", core, &SIDES)?;
                let operation = step.verb.is_some() || step.bytes.is_some() || step.count.is_some();
                let time = step.time.as_ref().filter(|_| !operation).ok_or_else(|| {
                    self.wrong(&at, "a step on a core has `core` and `time`, and nothing else")
                })?;
                return Ok(Step::Compute { side, ns: self.time(time)? });
            }
            (Some(path), None) if step.time.is_none() => match (&step.verb, &step.bytes) {
                (Some(verb), Some(bytes)) => (path, verb, bytes),
                _ => {
                    return Err(
                        self.wrong(&at, "a step on a path needs `path`, `verb` and `bytes`")
                    );
                }
            },
            _ => {
                let what =
                    "give a step either a `path` with `verb` and `bytes`, or a `core` with `time`";
                return Err(self.wrong(&at, what));
            }
        };
        let way = self.one_of("path", path, &WAYS)?;
        let operation = self.one_of("verb", verb, &VERBS)?;
        if operation == Verb::Send && !matches!(way, Way::Inbound(_)) {
            let what = "verb = \"SEND\" is for paths 1 and 2: elsewhere write READ or WRITE";
            return Err(self.wrong(&verb.span(), what));
        }
        let len = self.size("bytes", bytes)?;
        if len == 0 || len > BYTES_MAX {
            return Err(self.wrong(&bytes.span(), "bytes: give 1B to 64MiB"));
        }
        let reply = match &step.reply {
            None => len,
            Some(reply) if operation == Verb::Send => self.size("reply", reply)?,
            Some(reply) => {
                return Err(self.wrong(&reply.span(), "only a SEND has a `reply`: leave it out"));
            }
        };
        let count = step.count.as_ref().map_or(1.0, |count| *count.get_ref());
        if !(count > 0.0 && count <= 1_000.0) {
            let place = step.count.as_ref().map_or(at, Spanned::span);
            return Err(self.wrong(&place, "count: give a number above 0, up to 1000"));
        }
        let range = step.range.as_ref().map(|range| self.size("range", range)).transpose()?;
        if let (Some(0), Some(range)) = (range, &step.range) {
            return Err(self.wrong(&range.span(), "range: give 1B or more"));
        }
        Ok(Step::Operation { way, verb: operation, bytes: len, reply, count, range })
    }

    fn alternative(&self, raw: &Spanned<RawAlternative>) -> Result<Alternative, Wrong> {
        let (at, raw) = (raw.span(), raw.get_ref());
        let share_max = raw.share_max.as_ref().map_or(1.0, |share| *share.get_ref());
        if !(share_max > 0.0 && share_max <= 1.0) {
            let place = raw.share_max.as_ref().map_or(at, Spanned::span);
            return Err(self.wrong(&place, "share_max: give a share above 0, up to 1"));
        }
        if raw.steps.is_empty() || raw.steps.len() > STEPS_MAX {
            return Err(self.wrong(&at, format!("steps: give 1 to {STEPS_MAX} of them")));
        }
        let mut steps: Vec<Step> = Vec::new();
        for written in &raw.steps {
            let step = self.step(written)?;
            self.check_taker(&steps, step, &written.span())?;
            steps.push(step);
        }
        let name = raw.name.get_ref().clone();
        Ok(Alternative { name, summary: raw.summary.clone(), share_max, steps })
    }

    /// Is `step` one that whoever has come so far can take?
    fn check_taker(&self, before: &[Step], step: Step, at: &Range<usize>) -> Result<(), Wrong> {
        let taker = before.iter().rev().find_map(|step| match *step {
            Step::Operation { way: Way::Inbound(side), verb: Verb::Send, .. } => Some(Some(side)),
            Step::Operation { way: Way::Inbound(_), .. } => Some(None),
            _ => None,
        });
        // Without another machine's request before, a side of the node has begun.
        let begun = before.first().and_then(Step::own_side);
        let taker = taker.unwrap_or_else(|| begun.or_else(|| step.own_side()));
        match (step.own_side(), taker) {
            (None, _) if before.first().is_some_and(|first| first.own_side().is_some()) => {
                let what = "another machine asks in the middle of what the node began: describe it as \
                            an alternative of its own";
                Err(self.wrong(at, what))
            }
            (None, _) => Ok(()),
            (Some(own), Some(taker)) if own == taker => Ok(()),
            (Some(_), Some(Side::Host)) => {
                Err(self.wrong(at, "the host has the request here: give a step of the host's"))
            }
            (Some(_), Some(Side::Nic)) => {
                Err(self.wrong(at, "the SoC has the request here: give a step of the SoC's"))
            }
            (Some(_), None) => {
                let what = "another machine has the request here: SEND it to path 1 or 2 before the \
                            node takes a step";
                Err(self.wrong(at, what))
            }
        }
    }

    fn mitigations(&self, raw: &RawMitigations) -> Result<Mitigations, Wrong> {
        let count = |written: &Option<Spanned<u64>>, key: &str| match written {
            None => Ok(1),
            Some(count) if (1..=1_024).contains(count.get_ref()) => Ok(*count.get_ref()),
            Some(count) => Err(self.wrong(&count.span(), format!("{key}: give 1 to 1024"))),
        };
        let segment = match &raw.segment {
            None => None,
            Some(written) => match self.size("segment", written)? {
                0..64 => return Err(self.wrong(&written.span(), "segment: give 64B or more")),
                bytes => Some(bytes),
            },
        };
        Ok(Mitigations {
            replicate_hot: count(&raw.replicate_hot, "replicate_hot")?,
            segment,
            doorbell_batch: count(&raw.doorbell_batch, "doorbell_batch")?,
        })
    }
}

impl Description {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// A file that cannot be read, or what is wrong with it, with its line.
    pub fn load(path: &Path) -> anyhow::Result<Self> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the description {file:?}"))?;
        Ok(Self::parse(&file, &text)?)
    }

    /// Reads a description; `file` names it in errors.
    ///
    /// # Errors
    /// What is wrong with it, with its line.
    pub fn parse(file: &str, text: &str) -> Result<Self, Wrong> {
        let place = Text { file, text };
        let raw: Raw = toml::from_str(text).map_err(|error| {
            place.wrong(&error.span().unwrap_or(0..0), error.message().trim().replace('\n', "; "))
        })?;
        if raw.alternative.is_empty() || raw.alternative.len() > ALTERNATIVES_MAX {
            let what = format!("give 1 to {ALTERNATIVES_MAX} [[alternative]] tables");
            return Err(place.wrong(&(0..0), what));
        }
        let mut alternatives: Vec<Alternative> = Vec::new();
        for one in &raw.alternative {
            let parsed = place.alternative(one)?;
            if alternatives.iter().any(|other| other.name == parsed.name) {
                let what = format!("name = {:?}: another alternative is called so", parsed.name);
                return Err(place.wrong(&one.get_ref().name.span(), what));
            }
            alternatives.push(parsed);
        }
        let criteria = raw.criteria.unwrap_or_default();
        let mut ranked = Vec::new();
        for criterion in &criteria {
            ranked.push(place.one_of("criteria", criterion, &CRITERIA)?);
        }
        if ranked.is_empty() {
            ranked.push(Criterion::Throughput);
        }
        let limits = raw.limits.unwrap_or_default();
        Ok(Self {
            name: raw.name,
            hardware: raw.hardware.unwrap_or_else(|| "bluefield2".into()),
            clients: raw.clients.unwrap_or_else(|| "connectx4".into()),
            bytes: raw.bytes.as_ref().map(|bytes| place.size("bytes", bytes)).transpose()?,
            criteria: ranked,
            host_cores: limits.host_cores,
            soc_cores: limits.soc_cores,
            mitigations: place.mitigations(&raw.mitigations.unwrap_or_default())?,
            alternatives,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
name = "two ways"
criteria = ["latency", "throughput"]
[[alternative]]
name = "a1"
steps = [
  { path = "1", verb = "READ", bytes = "64B", count = 2 },
]
[[alternative]]
name = "a2"
share_max = 0.5
steps = [
  { path = "2", verb = "SEND", bytes = "16B", reply = "64B" },
  { core = "soc", time = "150ns" },
  { path = "3*", verb = "READ", bytes = "64B" },
]
"#;

    #[test]
    fn a_description_is_read_with_its_defaults() {
        let read = Description::parse("x.toml", GOOD).unwrap();
        assert_eq!((read.hardware.as_str(), read.alternatives.len()), ("bluefield2", 2));
        assert_eq!(read.criteria, [Criterion::Latency, Criterion::Throughput]);
        let compute = Step::Compute { side: Side::Nic, ns: 150 };
        assert_eq!(read.alternatives[1].steps[1], compute);
        assert_eq!(read.mitigations.doorbell_batch, 1);
    }

    #[test]
    fn a_wrong_description_is_refused_with_its_line_and_the_remedy() {
        for (from, to, line, remedy) in [
            ("path = \"1\"", "path = \"4\"", 7, "choose one of 1, 2, 1-out"),
            (
                "\"READ\", bytes = \"64B\", count",
                "\"FETCH\", bytes = \"64B\", count",
                7,
                "READ, WRITE, SEND",
            ),
            ("\"64B\", count", "\"64\", count", 7, "a size with its unit"),
            ("count = 2", "count = 0", 7, "above 0"),
            ("count = 2", "cuont = 2", 7, "unknown field `cuont`"),
            ("share_max = 0.5", "share_max = 1.5", 11, "up to 1"),
            ("time = \"150ns\"", "time = \"150\"", 14, "with its unit"),
            ("\"latency\"", "\"speed\"", 3, "throughput, latency"),
            ("name = \"a2\"", "name = \"a1\"", 10, "another alternative"),
            (
                "path = \"3*\", verb = \"READ\"",
                "path = \"3*\", verb = \"SEND\"",
                15,
                "READ or WRITE",
            ),
            ("\"soc\", time", "\"soc\", count = 1, time", 14, "nothing else"),
            ("core = \"soc\"", "core = \"host\"", 14, "a step of the SoC's"),
            (
                "verb = \"SEND\", bytes = \"16B\", reply = \"64B\"",
                "verb = \"READ\", bytes = \"16B\"",
                14,
                "SEND it to path",
            ),
        ] {
            let text = GOOD.replace(from, to);
            assert_ne!(text, GOOD, "{from}");
            let wrong = Description::parse("x.toml", &text).unwrap_err();
            assert_eq!(wrong.line, line, "{to}: {wrong}");
            assert!(wrong.to_string().starts_with("x.toml:"), "{wrong}");
            assert!(wrong.what.contains(remedy), "{to}: {wrong}");
        }
        let none = Description::parse("x.toml", "name = \"x\"").unwrap_err();
        assert!(none.what.contains("[[alternative]]"), "{none}");
    }
}
