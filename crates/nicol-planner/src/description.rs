//! A description of alternatives, as `nicol plan` reads it: TOML, checked, with errors that name
//! the line.

mod criteria;
mod placement;
mod quantities;
mod raw;

use std::ops::Range;
use std::path::Path;

use anyhow::Context as _;
use nicol_core::ids::Side;
use nicol_sim::Profile;
use nicol_sim::checks::paths::Verb;
use toml::Spanned;

use criteria::CRITERIA;
pub use criteria::Criterion;
pub use placement::{Kept, NO_INSIDE, gigabytes};
use quantities::percent_below;
use raw::{Raw, RawAlternative, RawMitigations, RawStep, remedy};

/// Why a description cannot be planned with: its file and line, what is wrong, what to write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {what}")]
pub struct Wrong {
    pub file: String,
    /// Line of the text, from 1.
    pub line: usize,
    /// The error, and the remedy.
    pub what: String,
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
    pub fn name(self) -> &'static str {
        WAYS.iter().find(|(_, one)| *one == self).map_or("", |(name, _)| *name)
    }
}

/// One thing that a request takes, after what stands before it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// An operation on a path.
    Operation {
        way: Way,
        verb: Verb,
        /// Bytes of its data; of a SEND, those of the request.
        bytes: u64,
        /// Bytes of a SEND's reply.
        reply: u64,
        /// The number of operations; a fraction is that share of requests.
        count: f64,
        /// Bytes that its addresses are drawn from, if they are few.
        range: Option<u64>,
    },
    /// Computation on a core of this side, in nanoseconds.
    Compute { side: Side, ns: u64 },
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

    /// Bytes of a piece, and how many of them there are, if READs and WRITEs are cut into `segment`
    /// bytes. A SEND is one message, whatever its size.
    pub(super) fn cut(&self, segment: Option<u64>) -> (u64, u64) {
        match *self {
            Self::Operation { verb, bytes, .. } => {
                let segment = segment.filter(|_| verb != Verb::Send);
                let piece = segment.map_or(bytes, |most| most.min(bytes));
                (piece, bytes.div_ceil(piece))
            }
            Self::Compute { .. } => (0, 1),
        }
    }

    /// Its operations of a request if transfers are cut into `segment` bytes.
    fn pieces(&self, segment: u64) -> f64 {
        match *self {
            Self::Operation { count, .. } => count * self.cut(Some(segment)).1 as f64,
            Self::Compute { .. } => 0.0,
        }
    }

    /// Bytes that it moves for a request, on the mean.
    pub fn total_bytes(&self) -> f64 {
        match *self {
            Self::Operation { bytes, reply, count, .. } => (bytes + reply) as f64 * count,
            Self::Compute { .. } => 0.0,
        }
    }
}

/// One way to build a function.
#[derive(Clone, Debug, PartialEq)]
pub struct Alternative {
    pub name: String,
    pub summary: String,
    /// The share of all requests that it can take at most.
    pub share_max: f64,
    /// Names of what it keeps in the SoC's memory.
    pub keeps: Vec<String>,
    /// The steps of a request.
    pub steps: Vec<Step>,
}

/// Bytes that a core has under way at most if it has several requests at a time.
pub(super) const BYTES_UNDER_WAY: u64 = 1 << 20;

impl Alternative {
    /// Requests that a core takes together to share `doorbell_batch` doorbells: those that the SoC
    /// begins. A receiver of SENDs has what comes in a round.
    pub(super) fn group(&self, doorbell_batch: u64) -> u64 {
        let bytes: f64 = self.steps.iter().map(Step::total_bytes).sum();
        match self.steps[0].own_side() {
            Some(Side::Nic) => doorbell_batch.min(BYTES_UNDER_WAY / bytes.max(1.0) as u64).max(1),
            _ => 1,
        }
    }

    /// Nanoseconds that cores compute for a request, on the mean: the receiver of a SEND for each.
    pub(super) fn computed_ns(&self) -> u64 {
        let (mut sum, mut received) = (0.0, 1.0);
        for step in &self.steps {
            match *step {
                Step::Compute { ns, .. } => sum += ns as f64 * received,
                Step::Operation { way: Way::Inbound(_), verb, count, .. } => {
                    received = if verb == Verb::Send { count } else { 1.0 };
                }
                Step::Operation { .. } => {}
            }
        }
        sum as u64
    }
}

/// The mitigations that the study advises, each on or off. [OffPath23 3.2, 3.3]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mitigations {
    /// Advice 1: copies of hot records, at addresses of their own; 1 is none.
    pub replicate_hot: u64,
    /// Advice 2 and 3: larger transfers are cut into pieces of so many bytes.
    pub segment: Option<u64>,
    /// Advice 4: requests of a doorbell of the SoC.
    pub doorbell_batch: u64,
}

/// A description: hardware, limits, mitigations and alternatives.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    pub name: String,
    /// The profile of the card.
    pub hardware: String,
    /// The profile of the machines that ask.
    pub clients: String,
    /// Bytes that a request is for, to tell its bandwidth.
    pub bytes: Option<u64>,
    /// By what to rank, the most important first.
    pub criteria: Vec<Criterion>,
    pub host_cores: Option<u64>,
    pub soc_cores: Option<u64>,
    /// The bytes that alternatives keep in the SoC's memory, at most the hardware's.
    pub soc_memory: Vec<Kept>,
    pub mitigations: Mitigations,
    /// The alternatives, one at least.
    pub alternatives: Vec<Alternative>,
}

/// The profiles that are meant where a description names none.
const HARDWARE: &str = "bluefield2";
const CLIENTS: &str = "connectx4";
/// Bytes of one operation at most, as much as a profile's limits were measured for.
const BYTES_MAX: u64 = 64 << 20;
const BYTES_RANGE: &str = "1B to 64MiB";
/// Of a request: what it may move with as many operations as a step may have.
const REQUEST_BYTES_MAX: u64 = BYTES_MAX * COUNT_MAX as u64;
/// The least and the largest `count` of a step. A simulated run sees too little of a step that is
/// rarer than one request in a thousand.
const COUNT_MIN: f64 = 1e-3;
const COUNT_MAX: f64 = 1e3;
/// The least share of requests, for the same reason.
const SHARE_MIN: f64 = 1e-3;
/// The error that rounding to decimals may leave in a sum of shares.
const ROUNDED: f64 = 1e-9;
/// Operations of a step at most once its transfers are cut: the simulator makes each of them.
const PIECES_MAX: u64 = 16_384;
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

    fn size(&self, key: &str, written: &Spanned<String>) -> Result<u64, Wrong> {
        let text = written.get_ref();
        quantities::size(text).ok_or_else(|| {
            let what = format!(
                "{key} = {text:?}: write a size with its unit, such as \"64B\" or \"256KiB\""
            );
            self.wrong(&written.span(), what)
        })
    }

    /// A size of at least `least` and at most `most` bytes; `range` says both.
    fn size_within(
        &self,
        key: &str,
        written: &Spanned<String>,
        (least, most): (u64, u64),
        range: &str,
    ) -> Result<u64, Wrong> {
        match self.size(key, written)? {
            size if (least..=most).contains(&size) => Ok(size),
            _ => Err(self.wrong(&written.span(), format!("{key}: give {range}"))),
        }
    }

    /// A time of a step, in whole nanoseconds.
    fn time(&self, written: &Spanned<String>) -> Result<u64, Wrong> {
        let text = written.get_ref();
        let what = match quantities::time(text) {
            Some(ns) if (0.5..=1e9).contains(&ns) => return Ok(ns.round() as u64),
            Some(ns) if (0.0..0.5).contains(&ns) => {
                "give 1ns or more; leave out a step that takes no time"
            }
            _ => "write a time up to 1000ms with its unit, such as \"200ns\"",
        };
        Err(self.wrong(&written.span(), format!("time = {text:?}: {what}")))
    }

    fn step(&self, raw: &Spanned<RawStep>) -> Result<Step, Wrong> {
        const SIDES: [(&str, Side); 2] = [("host", Side::Host), ("soc", Side::Nic)];
        const VERBS: [(&str, Verb); 3] =
            [("READ", Verb::Read), ("WRITE", Verb::Write), ("SEND", Verb::Send)];
        let (at, step) = (raw.span(), raw.get_ref());
        let (path, verb, bytes) = match (&step.path, &step.core) {
            (None, Some(core)) => {
                let side = self.one_of("core", core, &SIDES)?;
                let sizes = [&step.verb, &step.bytes, &step.reply, &step.range];
                let operation = sizes.iter().any(|key| key.is_some()) || step.count.is_some();
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
        let len = self.size_within("bytes", bytes, (1, BYTES_MAX), BYTES_RANGE)?;
        let reply = match &step.reply {
            None => len,
            Some(reply) if operation == Verb::Send => {
                self.size_within("reply", reply, (0, BYTES_MAX), "0B to 64MiB")?
            }
            Some(reply) => {
                return Err(self.wrong(&reply.span(), "only a SEND has a `reply`: leave it out"));
            }
        };
        let count = step.count.as_ref().map_or(1.0, |count| *count.get_ref());
        if !(COUNT_MIN..=COUNT_MAX).contains(&count) {
            let place = step.count.as_ref().map_or(at, Spanned::span);
            return Err(self.wrong(&place, "count: give a number from 0.001 up to 1000"));
        }
        if let Some(range) = step.range.as_ref().filter(|_| operation == Verb::Send) {
            return Err(self.wrong(&range.span(), "a SEND has no addresses: leave `range` out"));
        }
        let range = |range| self.size_within("range", range, (1, u64::MAX), "1B or more");
        let range = step.range.as_ref().map(range).transpose()?;
        Ok(Step::Operation { way, verb: operation, bytes: len, reply, count, range })
    }

    fn alternative(&self, raw: &Spanned<RawAlternative>) -> Result<Alternative, Wrong> {
        let (at, raw) = (raw.span(), raw.get_ref());
        let share_max = raw.share_max.as_ref().map_or(1.0, |share| *share.get_ref());
        if !(SHARE_MIN..=1.0).contains(&share_max) {
            let place = raw.share_max.as_ref().map_or(at, Spanned::span);
            return Err(self.wrong(&place, "share_max: give a share from 0.001 up to 1"));
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
        let name = self.name(&raw.name)?;
        let keeps = raw.keeps.iter().flatten().map(|kept| kept.get_ref().clone()).collect();
        Ok(Alternative { name, summary: raw.summary.clone(), share_max, keeps, steps })
    }

    fn name(&self, written: &Spanned<String>) -> Result<String, Wrong> {
        match written.get_ref().trim() {
            "" => {
                Err(self.wrong(&written.span(), "name = \"\": give it one, to find it in the plan"))
            }
            name if name.chars().any(char::is_control) => {
                let what =
                    format!("name = {name:?}: write it in one line, in characters that print");
                Err(self.wrong(&written.span(), what))
            }
            name => Ok(name.to_owned()),
        }
    }

    /// The profile that `key` names, else the usual one.
    fn profile(
        &self,
        key: &str,
        written: Option<&Spanned<String>>,
        usual: &str,
    ) -> Result<Profile, Wrong> {
        let name = written.map_or(usual, |written| written.get_ref().as_str());
        let place = written.map_or(0..0, Spanned::span);
        let wrong = |what: String| self.wrong(&place, format!("{key} = {name:?}: {what}"));
        let profile = Profile::load(name).map_err(|error| wrong(format!("{error:#}")))?;
        if key == "hardware" && profile.card.is_none() {
            return Err(wrong(NO_INSIDE.to_owned()));
        }
        if key == "clients" && !profile.verbs.present.value {
            let what = "machines that ask need a card with verbs, such as connectx4";
            return Err(wrong(what.to_owned()));
        }
        Ok(profile)
    }

    /// The number of cores that may be used, of those that the hardware has.
    fn cores(
        &self,
        key: &str,
        written: Option<&Spanned<u64>>,
        there: usize,
    ) -> Result<Option<u64>, Wrong> {
        let Some(written) = written else { return Ok(None) };
        match *written.get_ref() {
            cores if (1..=there as u64).contains(&cores) => Ok(Some(cores)),
            cores => {
                let what = format!(
                    "{key} = {cores}: the hardware has {there}; give 1 to {there}, or leave the line \
                     out to use all"
                );
                Err(self.wrong(&written.span(), what))
            }
        }
    }

    fn criteria(
        &self,
        raw: Option<&Spanned<Vec<Spanned<String>>>>,
    ) -> Result<Vec<Criterion>, Wrong> {
        let Some(raw) = raw else { return Ok(vec![Criterion::Throughput]) };
        let mut ranked = Vec::new();
        for criterion in raw.get_ref() {
            let found = self.one_of("criteria", criterion, &CRITERIA)?;
            if ranked.contains(&found) {
                let what = format!("criteria: {} is there twice; leave one out", found.name());
                return Err(self.wrong(&criterion.span(), what));
            }
            ranked.push(found);
        }
        if ranked.is_empty() {
            let what = "criteria = []: give one at least, or leave the line out for throughput";
            return Err(self.wrong(&raw.span(), what));
        }
        Ok(ranked)
    }

    /// Checks that the machine or side which the steps before have reached can make `step`.
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

    fn mitigations<'s>(
        &self,
        raw: Option<&RawMitigations>,
        steps: impl Iterator<Item = &'s Step>,
    ) -> Result<Mitigations, Wrong> {
        let none = RawMitigations::default();
        let raw = raw.unwrap_or(&none);
        let count = |written: &Option<Spanned<u64>>, key: &str| match written {
            None => Ok(1),
            Some(count) if (1..=1_024).contains(count.get_ref()) => Ok(*count.get_ref()),
            Some(count) => Err(self.wrong(&count.span(), format!("{key}: give 1 to 1024"))),
        };
        let segment = raw.segment.as_ref().map(|written| {
            let bytes = self.size_within("segment", written, (64, u64::MAX), "64B or more")?;
            let most = steps.map(|step| step.pieces(bytes)).fold(0.0, f64::max);
            match most <= PIECES_MAX as f64 {
                true => Ok(bytes),
                false => {
                    let what = format!(
                        "segment: a step would come to {most:.0} operations, and may to {PIECES_MAX}: \
                         give a larger one"
                    );
                    Err(self.wrong(&written.span(), what))
                }
            }
        });
        Ok(Mitigations {
            replicate_hot: count(&raw.replicate_hot, "replicate_hot")?,
            segment: segment.transpose()?,
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
        let bytes =
            std::fs::read(path).with_context(|| format!("cannot read the description {file:?}"))?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
            let what = "this is no text: save the description as UTF-8".to_owned();
            Wrong { file: file.clone(), line, what }
        })?;
        Ok(Self::parse(&file, &text)?)
    }

    /// Reads a description; `file` names it in errors.
    ///
    /// # Errors
    /// What is wrong with it, with its line.
    pub fn parse(file: &str, text: &str) -> Result<Self, Wrong> {
        let place = Text { file, text };
        let raw: Raw = toml::from_str(text).map_err(|error| {
            let message = error.message().trim().replace('\n', "; ");
            let what = format!("{message}{}", remedy(&message));
            place.wrong(&error.span().unwrap_or(0..0), what)
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
        let shares: f64 = alternatives.iter().map(|one| one.share_max).sum();
        let last = raw.alternative.iter().rev().find_map(|one| one.get_ref().share_max.as_ref());
        if let Some(last) = last.filter(|_| shares < 1.0 - ROUNDED) {
            let what = format!(
                "share_max: all alternatives together take {} % of requests at most; nobody is left for \
                 the others: raise one, or leave it out",
                percent_below(shares)
            );
            return Err(place.wrong(&last.span(), what));
        }
        let hardware = place.profile("hardware", raw.hardware.as_ref(), HARDWARE)?;
        place.profile("clients", raw.clients.as_ref(), CLIENTS)?;
        let host_cores = raw.limits.as_ref().and_then(|limits| limits.host_cores.as_ref());
        let soc_cores = raw.limits.as_ref().and_then(|limits| limits.soc_cores.as_ref());
        let cores = |key, written: Option<&Spanned<u64>>, side| {
            place.cores(key, written, hardware.engines(side))
        };
        let named = |written: &Option<Spanned<String>>, usual: &str| {
            written.as_ref().map_or_else(|| usual.to_owned(), |written| written.get_ref().clone())
        };
        let bytes =
            |bytes| place.size_within("bytes", bytes, (1, REQUEST_BYTES_MAX), "1B to 62GiB");
        let steps = alternatives.iter().flat_map(|one| &one.steps);
        let read = Self {
            name: place.name(&raw.name)?,
            bytes: raw.bytes.as_ref().map(bytes).transpose()?,
            criteria: place.criteria(raw.criteria.as_ref())?,
            host_cores: cores("host_cores", host_cores, Side::Host)?,
            soc_cores: cores("soc_cores", soc_cores, Side::Nic)?,
            soc_memory: place.soc_memory(raw.soc_memory.as_ref(), &raw.alternative)?,
            hardware: named(&raw.hardware, HARDWARE),
            clients: named(&raw.clients, CLIENTS),
            mitigations: place.mitigations(raw.mitigations.as_ref(), steps)?,
            alternatives,
        };
        place.check_soc(&raw, &hardware, &read)?;
        Ok(read)
    }
}

#[cfg(test)]
mod tests;
