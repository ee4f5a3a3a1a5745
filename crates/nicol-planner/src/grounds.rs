//! On what bounds stand: which values of the profile move them, and where these come from.
//! [OffPath23 table 3]
//!
//! Each value of the profile is changed by itself and the closed form computed anew, so that what
//! is listed is what the bound depends on, and not what somebody took it to depend on. Values are
//! raised: of a second resource that binds as well, more of it moves nothing and is not shown. What
//! is used for larger transfers than it was published for is lowered, since a reader has to know.

use anyhow::Result;
use nicol_sim::profile::{Measured, Stated};
use nicol_sim::{Profile, ProfileError};

use super::{Alternative, Description, Evidence, Plan, Step, Way, closed_form};

/// A value of the profile that a bound depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct Ground {
    pub key: String,
    /// The source: a line of the calibration list, a paper, a data sheet, or `assumed`.
    pub source: String,
    /// The evidence that this source is.
    pub evidence: Evidence,
    pub effect: Effect,
    /// The largest size for which it was published, in bytes, if the bound uses it beyond.
    pub measured_to: Option<u64>,
}

/// The effect of a value of the profile on a bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effect {
    /// Percent of the rate for one percent more of the value.
    Slope(f64),
    /// Requests a second, in millions, with the mechanism switched the other way, or without the
    /// limit.
    Switched(f64),
}

impl Effect {
    /// Of a bound of `mops` that becomes `changed` when `value` becomes `more` times as much; none
    /// if that is nothing to speak of.
    fn of(mops: f64, changed: f64, more: Option<f64>) -> Option<Self> {
        let moved = changed / mops - 1.0;
        match more {
            Some(more) => Some(Self::Slope(moved / (more - 1.0))).filter(Self::counts),
            None => (moved.abs() >= SWITCHED).then_some(Self::Switched(changed)),
        }
    }

    fn counts(&self) -> bool {
        matches!(self, Self::Slope(slope) if slope.abs() >= SLOPE)
    }

    /// The size of the effect, to sort by: mechanisms first.
    fn weight(&self) -> f64 {
        match self {
            Self::Slope(slope) => slope.abs(),
            Self::Switched(_) => f64::INFINITY,
        }
    }
}

/// Slopes below this are left out.
const SLOPE: f64 = 0.05;
/// Mechanisms that move a rate by less than this share are left out.
const SWITCHED: f64 = 0.01;

impl Plan {
    /// On what each alternative's bound stands, in the order of the description, and last on what
    /// the recommended mix does; what moves it most comes first.
    ///
    /// Costs as many evaluations of the closed form as the profile has values.
    ///
    /// # Errors
    /// A profile that cannot be read any more.
    pub fn grounds(&self) -> Result<Vec<Vec<Ground>>> {
        let description = &self.description;
        let profile = Profile::load(&description.hardware)?;
        let client = Profile::load(&description.clients)?;
        let before = self.rates(&profile, &client);
        let mut grounds: Vec<Vec<Ground>> = vec![Vec::new(); before.len()];
        for stated in profile.stated() {
            let all = &description.alternatives;
            let lowered = beyond(stated, &profile, description, all).is_some();
            let Some((written, more)) = changed(stated, lowered) else { continue };
            let spec = format!("{}:{}={written}", description.hardware, stated.key);
            let changed = match Profile::load(&spec) {
                Ok(changed) => changed,
                // Some values cannot be changed by themselves.
                Err(ProfileError::Invalid { .. }) => continue,
                Err(error) => return Err(error.into()),
            };
            let after = self.rates(&changed, &client);
            for (at, (mops, changed)) in before.iter().zip(after).enumerate() {
                let Some(effect) = Effect::of(*mops, changed, more) else { continue };
                let parts = description.alternatives.get(at).map(std::slice::from_ref);
                let parts = parts.unwrap_or(&description.alternatives);
                grounds[at].push(Ground {
                    key: stated.key.clone(),
                    source: stated.source.clone(),
                    evidence: evidence(stated),
                    effect,
                    measured_to: beyond(stated, &profile, description, parts),
                });
            }
        }
        for one in &mut grounds {
            one.sort_by(|a, b| b.effect.weight().total_cmp(&a.effect.weight()));
        }
        Ok(grounds)
    }

    /// Requests a second in millions: of each alternative alone, and of the recommended mix.
    fn rates(&self, profile: &Profile, client: &Profile) -> Vec<f64> {
        let Some((_, programme)) = closed_form(&self.description, profile, client) else {
            return vec![f64::NAN; self.candidates.len() + 1];
        };
        let alone = (0..self.candidates.len()).map(|at| programme.alone(at).0);
        let mix = programme.greedy(&self.built());
        alone.chain([mix.iter().sum()]).map(|rate| rate * 1e6).collect()
    }
}

/// The value with a percent more, or less if it is `lowered`, as a profile has it, and how many
/// times as much that is; a mechanism switched, and a limit of sizes lifted. None of nothing, and
/// of other switches.
fn changed(stated: &Stated, lowered: bool) -> Option<(String, Option<f64>)> {
    let (before, write): (u64, fn(u64) -> String) = match stated.value {
        Measured::Flag(flag) => {
            return stated.key.starts_with(SUSPECTED).then(|| ((!flag).to_string(), None));
        }
        Measured::Size(_) if stated.key.ends_with(LIMIT) => {
            return Some((UNLIMITED.to_owned(), None));
        }
        Measured::Count(count) => (count, |count| count.to_string()),
        Measured::Time(time) => (time.0, |picos| format!("{picos}ps")),
        Measured::Size(size) => (size.0, |bytes| format!("{bytes}B")),
        Measured::Rate(rate) => (rate.0, |bits| format!("{}.{:09}Gbps", bits / GIGA, bits % GIGA)),
    };
    let percent = before.div_ceil(100);
    let after = if lowered { before - percent } else { before + percent };
    (before > 0).then(|| (write(after), Some(after as f64 / before as f64)))
}

const GIGA: u64 = 1_000_000_000;
/// The section of mechanisms that the study suspects.
const SUSPECTED: &str = "card.suspected.";

/// The end of keys whose values are limits of sizes.
const LIMIT: &str = "_beyond";
/// More than a description can have.
const UNLIMITED: &str = "1000GB";

fn evidence(stated: &Stated) -> Evidence {
    match (stated.value, stated.source.as_str()) {
        (Measured::Flag(_), _) => Evidence::Hypothesis,
        (_, "assumed") => Evidence::Assumed,
        _ => Evidence::Shown,
    }
}

/// The largest size for which a rate of the DMA engine was published, if `parts` move more at once.
fn beyond(
    stated: &Stated,
    profile: &Profile,
    description: &Description,
    parts: &[Alternative],
) -> Option<u64> {
    let rates = ["card.dma.large", "card.dma.both"];
    let engine = profile.card.as_ref()?.dma.as_ref()?;
    if !rates.contains(&stated.key.as_str()) {
        return None;
    }
    let limit = engine.measured_to.value.0;
    let segment = description.mitigations.segment.unwrap_or(u64::MAX);
    let larger = |step: &Step| match step {
        Step::Operation { way: Way::Dma, bytes, .. } => (*bytes).min(segment) > limit,
        _ => false,
    };
    parts.iter().flat_map(|one| &one.steps).any(larger).then_some(limit)
}
