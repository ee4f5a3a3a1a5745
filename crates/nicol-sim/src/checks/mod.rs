//! Component checks: the micro-benchmarks that profiles are calibrated on, rerun on a profile.

mod card;
mod cores;
mod latency;
pub mod measure;
pub mod paths;
mod probe;
mod replication;
mod throughput;

use std::borrow::Cow;
use std::sync::Arc;

pub use card::{Posting, posting};
pub use latency::{Offload, offload};
use nicol_core::view::{View, ViewError};

use nicol_core::units::Nanos;

use crate::profile::OneSidedBy;
use crate::{Profile, SimConfig, SimReport};

/// One published measurement beside the model's.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckLine {
    /// The line of the calibration list.
    pub line: Cow<'static, str>,
    pub what: String,
    /// The lowest and the highest published value. An ordering is published as 1.
    pub published: (f64, f64),
    /// The model's value; 1 for an ordering that holds, 0 for one that does not.
    pub measured: f64,
    pub unit: &'static str,
    /// The distance from the published range, as a share of its nearest end; 0 within, infinite for
    /// what is no number.
    pub relative_error: f64,
    /// Whether the model's value rests mainly on assumed numbers.
    pub assumed: bool,
    /// Whether a number of the profile was fitted to this line, by a mechanism that no publication
    /// shows.
    pub fitted: bool,
    /// Whether the published value contradicts other published ones. The note says which.
    pub contradicted: bool,
    /// Whether the value follows from the profile by arithmetic alone, without a run. The note says
    /// which lines measure the same.
    pub arithmetic: bool,
    /// The way of the measurement, and what explains a difference.
    pub note: &'static str,
}

/// The largest relative error of a calibrated line.
pub const TOLERANCE: f64 = 0.10;

impl CheckLine {
    fn new(
        line: impl Into<Cow<'static, str>>,
        what: impl Into<String>,
        published: (f64, f64),
        measured: f64,
        unit: &'static str,
    ) -> Self {
        let (low, high) = published;
        let relative_error = if measured < low {
            (measured - low) / low
        } else if measured > high {
            (measured - high) / high
        } else if measured.is_nan() {
            // Of nothing that has ended, such as the ratio of two rates of 0.
            f64::INFINITY
        } else {
            0.0
        };
        let what = what.into();
        Self {
            line: line.into(),
            what,
            published,
            measured,
            unit,
            relative_error,
            assumed: false,
            fitted: false,
            contradicted: false,
            arithmetic: false,
            note: "",
        }
    }

    /// Does an end of a published range state a direction, such as "1.08 to 1.48 times": above 1?
    /// Beyond such an end nothing is tolerated, or the direction could be lost.
    fn directions(&self) -> (bool, bool) {
        let (low, high) = self.published;
        let neutral = match self.unit {
            "times" => 1.0,
            "%" => 0.0,
            _ => return (false, false),
        };
        (low < high && low >= neutral, low < high && high <= neutral)
    }

    fn ordering(line: impl Into<Cow<'static, str>>, what: impl Into<String>, holds: bool) -> Self {
        Self::new(line, what, (1.0, 1.0), f64::from(u8::from(holds)), "holds")
    }

    fn assumed(mut self) -> Self {
        self.assumed = true;
        self
    }

    fn note(mut self, note: &'static str) -> Self {
        self.note = note;
        self
    }

    fn fitted(mut self, note: &'static str) -> Self {
        self.fitted = true;
        self.note(note)
    }

    fn contradicted(mut self, note: &'static str) -> Self {
        self.contradicted = true;
        self.note(note)
    }

    /// Whether it is within [`TOLERANCE`], or contradicted by other published values.
    pub fn holds(&self) -> bool {
        self.is_close() || self.contradicted
    }

    fn arithmetic(mut self, note: &'static str) -> Self {
        self.arithmetic = true;
        self.note(note)
    }

    /// Whether it is within [`TOLERANCE`] of a published value, or of an end of a range that states
    /// no direction.
    pub fn is_close(&self) -> bool {
        let ((low, high), (from_low, to_high)) = (self.published, self.directions());
        let lost = from_low && self.measured < low || to_high && self.measured > high;
        self.relative_error.abs() <= TOLERANCE && !lost
    }

    /// Can it fail? A published value must be missed if the model's moves by 30 % one way or the
    /// other. A range, in which the model's may move, must be missed where there is no effect at
    /// all, or by 30 % beyond its end where no effect is one of its ends.
    pub fn can_fail(&self) -> bool {
        const MOVED: f64 = 0.3;
        let missed = |measured: f64| {
            !Self::new(self.line.clone(), "", self.published, measured, self.unit).is_close()
        };
        let (low, high) = self.published;
        if low == high {
            return missed(self.measured * (1.0 - MOVED)) || missed(self.measured * (1.0 + MOVED));
        }
        let neutral = match self.unit {
            "times" => 1.0,
            "%" => 0.0,
            _ => low * (1.0 - MOVED),
        };
        missed(neutral) || low == neutral && missed(high * (1.0 + MOVED))
    }
}

/// Reruns every component measurement that `profile` has the hardware for.
///
/// # Errors
/// If the profile has fewer cores than a measurement used.
pub fn run(profile: &Arc<Profile>) -> Result<Vec<CheckLine>, ViewError> {
    measured(profile, |_| true)
}

/// The lines of one published row, such as `C4.19`; none if `profile` is not held to it. Of a card
/// whose inside is modelled only the measurements around that row are made.
///
/// # Errors
/// As [`run`].
pub fn run_row(profile: &Arc<Profile>, row: &str) -> Result<Vec<CheckLine>, ViewError> {
    let mut lines = measured(profile, |other| other == row)?;
    lines.retain(|line| line.line == row);
    Ok(lines)
}

fn measured(
    profile: &Arc<Profile>,
    wanted: impl Fn(&str) -> bool,
) -> Result<Vec<CheckLine>, ViewError> {
    let mut lines = Vec::new();
    if profile.cores.nic_is_separate.value && profile.cores.on_path.value {
        lines.extend(cores::steps(profile)?);
        lines.extend(throughput::rpcs(profile)?);
        lines.extend(throughput::remote_writes(profile)?);
        lines.extend(throughput::dma(profile)?);
        lines.extend(latency::dma(profile)?);
        lines.extend(latency::on_path_orderings(profile)?);
    }
    if profile.verbs.asks_only.as_ref().is_some_and(|asks| asks.value) {
        return card::requester(profile);
    }
    if profile.card.is_some() {
        return card::lines(profile, wanted);
    }
    let chains_by = profile.capabilities().chains_by;
    if profile.verbs.present.value && profile.off_path.is_none() {
        // PRISM's testbeds, which say who executes chains, are not held to another's rates
        // (AMB-32).
        if profile.verbs.chains.is_none() {
            lines.extend(throughput::verbs(profile)?);
            lines.extend(throughput::two_sided(profile)?);
            lines.extend(latency::verb_orderings(profile)?);
        }
        lines.extend(latency::verbs(profile)?);
        if profile.verbs.chains.is_some() {
            lines.extend(latency::networks(profile)?);
            lines.extend(latency::limits(profile));
        }
        if chains_by == OneSidedBy::HostCores {
            lines.extend(latency::software_chains(profile)?);
        }
    }
    if profile.off_path.is_some() && chains_by == OneSidedBy::NicCores {
        lines.extend(latency::card_cores(profile)?);
    }
    if profile.persist.channels.is_some() || profile.persist.is_by_core() {
        lines.extend(replication::lines(profile)?);
    }
    if let Some(published) = &profile.null_rpc {
        lines.extend(latency::null_rpcs(profile, published)?);
    }
    if let Some(published) = &profile.published {
        lines.extend(latency::off_path(profile, published)?);
    }
    Ok(lines)
}

/// A load to time the simulator with: the NIC echo of C1.11 for `span` of virtual time.
///
/// # Errors
/// If the profile has fewer cores than the measurement used.
pub fn echo_load(profile: &Arc<Profile>, span: Nanos) -> Result<SimReport, ViewError> {
    throughput::echo_load(profile, span)
}

/// A fault-free cluster of `nodes`, with at most the profile's cores.
fn cluster(
    profile: &Arc<Profile>,
    nodes: usize,
    host: usize,
    nic: usize,
) -> Result<SimConfig, ViewError> {
    use nicol_core::ids::Side::{Host, Nic};
    let (host, nic) = (host.min(profile.engines(Host)), nic.min(profile.engines(Nic)));
    Ok(SimConfig::new(View::new(nodes, 1, host, nic)?, profile.clone(), 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_of_a_range_that_states_a_direction_is_no_other_direction_s() {
        let holds = |published, measured, unit| {
            CheckLine::new("C4.10", "of the host's", published, measured, unit).holds()
        };
        assert!(holds((1.08, 1.48), 1.1, "times") && holds((1.08, 1.48), 1.6, "times"));
        assert!(!holds((1.08, 1.48), 1.07, "times") && !holds((1.08, 1.48), 1.0, "times"));
        assert!(holds((15.0, 30.0), 32.0, "%") && !holds((15.0, 30.0), 14.0, "%"));
        assert!(holds((2.0, 4.0), 1.9, "us") && holds((43.0, 43.0), 40.0, "%"));
    }

    #[test]
    fn what_was_not_measured_does_not_hold() {
        for measured in [f64::NAN, f64::INFINITY, 0.0, 2.4] {
            let line = CheckLine::new("C1.13", "a gain", (1.0, 2.0), measured, "times");
            assert!(!line.holds(), "{measured}: {}", line.relative_error);
        }
        assert!(CheckLine::new("C1.13", "a gain", (1.0, 2.0), 2.1, "times").holds());
        // On such a network nothing ends within the window.
        let profile = Arc::new(Profile::load("liquidio3:link.latency=1ms").unwrap());
        let lines = latency::on_path_orderings(&profile).unwrap();
        let held: Vec<_> = lines.iter().filter(|line| line.holds()).collect();
        assert!(held.is_empty(), "{held:#?}");
    }
}
