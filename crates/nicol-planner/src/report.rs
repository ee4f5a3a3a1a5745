//! A plan as text and as JSON: `nicol.plan/1`.

use std::fmt::{self, Display, Formatter};

use serde_json::{Value, json};

use super::advice::{Advice, Gain};
use super::description::gigabytes;
use super::{Effect, Ground, Mix, Plan, Regret, WORTH};

/// The schema's name, first in every object.
pub const SCHEMA: &str = "nicol.plan/1";
/// Resources of a mix that are shown: the fullest.
const SHOWN: usize = 5;
/// Advice's number where it is none of the five.
fn numbered(number: u8) -> String {
    if number == 0 { "together".into() } else { format!("advice {number}") }
}

/// Grounds of a bound that are shown: the weightiest.
const GROUNDS: usize = 4;

/// A plan with what its bounds stand on: what `nicol plan` prints.
pub struct Report<'a> {
    plan: &'a Plan,
    /// By alternative, and last the mix's.
    grounds: Vec<Vec<Ground>>,
}

impl Plan {
    /// With what its bounds stand on.
    ///
    /// # Errors
    /// As [`Plan::grounds`].
    pub fn report(&self) -> anyhow::Result<Report<'_>> {
        Ok(Report { plan: self, grounds: self.grounds()? })
    }
}

impl Plan {
    /// Gbps of `mops` requests, if the description says what one is for.
    fn gbps(&self, mops: f64) -> Option<f64> {
        self.description.bytes.map(|bytes| mops * bytes as f64 * 8.0 / 1e3)
    }

    fn json(&self, grounds: &[Vec<Ground>]) -> Value {
        let alternatives: Vec<Value> = self
            .ranked
            .iter()
            .enumerate()
            .map(|(rank, at)| {
                let one = &self.candidates[*at];
                json!({
                    "rank": rank + 1,
                    "alternative": one.name,
                    "summary": self.description.alternatives[*at].summary,
                    "throughput_mops": rounded_rate(one.mops),
                    "bandwidth_gbps": self.gbps(one.mops).map(rounded),
                    "binds": one.binds.name(),
                    "latency_us": rounded(one.latency_us),
                    "host_cores": rounded(one.host_cores),
                    "network_bytes": rounded(one.network_bytes),
                    "simulated_mops": one.simulated.map(|found| rounded_rate(found.0)),
                    "simulated_latency_us": one.simulated.map(|found| rounded(found.1)),
                    "grounds": grounds[*at].iter().map(ground_json).collect::<Vec<_>>(),
                })
            })
            .collect();
        let left_out = self.left_out.iter().map(|at| self.candidates[*at].name.as_str());
        let switches = self.switches.iter().map(|one| {
            json!({
                "from": one.from,
                "to": one.to,
                "throughput_mops": rounded_rate(one.mops),
                "under_way": rounded(one.under_way),
            })
        });
        let switches: Vec<Value> = switches.collect();
        let advice: Vec<Value> = self.advice.iter().map(advice_json).collect();
        json!({
            "schema": SCHEMA,
            "name": self.description.name,
            "hardware": self.description.hardware,
            "clients": self.description.clients,
            "criteria": self.description.criteria.iter().map(|one| one.name()).collect::<Vec<_>>(),
            "alternatives": alternatives,
            "left_out": left_out.collect::<Vec<_>>(),
            "recommended": "greedy",
            "best_is_more_by": self.regret().map(|regret| rounded(regret.more)),
            "grounds": grounds[grounds.len() - 1].iter().map(ground_json).collect::<Vec<_>>(),
            "greedy": self.mix_json(&self.greedy),
            "best": self.mix_json(&self.best),
            "switch_points": switches,
            "advice": advice,
        })
    }

    fn mix_json(&self, mix: &Mix) -> Value {
        let total = mix.total();
        let mut parts = Vec::new();
        for (at, mops) in mix.mops.iter().enumerate() {
            let simulated = mix.simulated.as_ref().map(|found| rounded_rate(found[at]));
            parts.push(json!({
                "alternative": self.candidates[at].name,
                "throughput_mops": rounded_rate(*mops),
                "share": rounded(mops / total.max(f64::MIN_POSITIVE)),
                "simulated_mops": simulated,
            }));
        }
        let taken =
            mix.taken.iter().map(|(resource, share)| (resource.name().to_owned(), rounded(*share)));
        json!({
            "throughput_mops": rounded_rate(total),
            "bandwidth_gbps": self.gbps(total).map(rounded),
            "host_cores": rounded(mix.host_cores),
            "network_bytes": rounded(mix.network_bytes),
            "latency_us": rounded(mix.latency_us),
            "parts": parts,
            "resources": taken.collect::<serde_json::Map<_, _>>(),
        })
    }
}

fn ground_json(ground: &Ground) -> Value {
    let (slope, switched) = match ground.effect {
        Effect::Slope(slope) => (Some(rounded(slope)), None),
        Effect::Switched(mops) => (None, Some(rounded_rate(mops))),
    };
    json!({
        "value": ground.key,
        "source": ground.source,
        "evidence": ground.evidence.letter(),
        "percent_per_percent": slope,
        "switched_mops": switched,
        "measured_to_bytes": ground.measured_to,
    })
}

fn advice_json(advice: &Advice) -> Value {
    let gain = advice.gain.map(|gain| {
        json!({
            "throughput_mops": gain.mops.map(rounded_rate),
            "latency_us": gain.latency_us.map(rounded),
        })
    });
    json!({
        "advice": advice.number,
        "alternative": advice.alternative,
        "text": advice.text,
        "evidence": advice.evidence.letter(),
        "gain": gain,
    })
}

/// The gain of an advice, in words.
fn gained(gain: &Gain) -> String {
    let [[now, then], [us, then_us]] = [gain.mops, gain.latency_us];
    let rates = format!(
        "{} instead of {} M req/s, {then_us:.1} instead of {us:.1} us",
        rate(then),
        rate(now)
    );
    match (gain.pays(), then * WORTH < now) {
        (true, _) => format!(" ({rates})"),
        (false, false) => format!(" (no higher rate here: {rates})"),
        (false, true) => format!(" (a lower rate here: {rates})"),
    }
}

/// A rate in millions of requests a second: three digits at least, of however slow requests.
pub(super) fn rate(mops: f64) -> String {
    match mops {
        small if small > 0.0 && small < 1e-4 => format!("{small:.2e}"),
        small if small > 0.0 && small < 0.1 => {
            let digits = 2 + (-small.log10()).ceil() as usize;
            format!("{small:.digits$}")
        }
        mops => format!("{mops:.3}"),
    }
}

/// A rate in millions of requests a second: four digits at least.
fn rounded_rate(mops: f64) -> Value {
    match mops {
        small if small > 0.0 && small < 1.0 => {
            let scale = 10_f64.powi(4 + (-small.log10()).floor().min(290.0) as i32);
            json!((small * scale).round() / scale)
        }
        mops => rounded(mops),
    }
}

fn rounded(value: f64) -> Value {
    json!((value * 1e3).round() / 1e3)
}

impl Report<'_> {
    /// As one JSON object.
    pub fn json(&self) -> Value {
        self.plan.json(&self.grounds)
    }
}

impl Display for Report<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let plan = self.plan;
        plan.write_bounds(f)?;
        plan.write_grounds(f, &self.grounds)?;
        plan.write_advice(f)
    }
}

impl Plan {
    /// Alternatives, mixes and switch points.
    fn write_bounds(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let criteria: Vec<_> = self.description.criteria.iter().map(|one| one.name()).collect();
        writeln!(
            f,
            "{} on {}, ranked by {}",
            self.description.name,
            self.description.hardware,
            criteria.join(", then ")
        )?;
        let simulated = self.candidates.iter().any(|one| one.simulated.is_some());
        let head = if simulated { "  simulated" } else { "" };
        writeln!(
            f,
            "\n  #  alternative       M req/s    us  host cores  B on net  binds{head:>36}"
        )?;
        for (rank, at) in self.ranked.iter().enumerate() {
            let one = &self.candidates[*at];
            write!(
                f,
                "{:3}  {:16} {:>8} {:5.1} {:11.1} {:9.0}  {:24}",
                rank + 1,
                one.name,
                rate(one.mops),
                one.latency_us,
                one.host_cores,
                one.network_bytes,
                one.binds.name()
            )?;
            if let Some((mops, us)) = one.simulated {
                write!(f, " {:>8} M, {us:.1} us", rate(mops))?;
            }
            writeln!(f)?;
        }
        self.write_mix(f, "greedy", &self.greedy)?;
        for at in &self.left_out {
            let (one, better) =
                (&self.candidates[*at].name, self.description.kept_bytes(&self.built()));
            writeln!(
                f,
                "{one} is left out: the SoC's memory does not hold the {} that it keeps beside the {} of \
                 better ones.",
                gigabytes(self.description.kept_bytes(&[*at])),
                gigabytes(better)
            )?;
        }
        if let Some(Regret { exhausted, first, more }) = self.regret() {
            self.write_mix(f, "best by rate", &self.best)?;
            writeln!(
                f,
                "The greedy mix is recommended: it follows the criteria. The best by rate gives {:.0} % more, since \
                 {first} exhausts {}, of which others make more; what that rests on stands below.",
                more * 1e2,
                exhausted.name()
            )?;
        }
        for one in &self.switches {
            writeln!(
                f,
                "From {} M req/s on ({:.0} under way), requests queue at {} for so long that {} answers sooner.",
                rate(one.mops),
                one.under_way,
                one.from,
                one.to
            )?;
        }
        Ok(())
    }

    fn write_grounds(&self, f: &mut Formatter<'_>, grounds: &[Vec<Ground>]) -> fmt::Result {
        writeln!(
            f,
            "\nBounds stand on (percent for 1 % more of a value; E: published, A: assumed, H: a suspected mechanism; \
             otherwise: without the mechanism or limit):"
        )?;
        let names = self.candidates.iter().map(|one| one.name.as_str());
        for (name, grounds) in names.chain(["recommended"]).zip(grounds) {
            let shown = grounds.iter().take(GROUNDS).map(ground_text);
            let more = grounds.len().saturating_sub(GROUNDS);
            let more = if more > 0 { format!("; {more} more") } else { String::new() };
            writeln!(f, "  {name:16} {}{more}", shown.collect::<Vec<_>>().join("; "))?;
        }
        Ok(())
    }

    fn write_advice(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if !self.advice.is_empty() {
            writeln!(f, "\nAdvice of the study (E: shown, H: a hypothesis):")?;
        }
        for one in &self.advice {
            let about = one.alternative.as_ref().map_or(String::new(), |name| format!(", {name}"));
            writeln!(
                f,
                "  {} [{}]{about}: {}{}",
                numbered(one.number),
                one.evidence.letter(),
                one.text,
                one.gain.as_ref().map_or_else(String::new, gained)
            )?;
        }
        Ok(())
    }
}

/// A ground in words.
fn ground_text(ground: &Ground) -> String {
    let Ground { key, source, .. } = ground;
    let letter = ground.evidence.letter();
    let effect = match ground.effect {
        Effect::Slope(slope) => format!("{slope:+.2}"),
        Effect::Switched(mops) => format!("otherwise {} M req/s", rate(mops)),
    };
    let source = if source == "assumed" { String::new() } else { format!(" ({source})") };
    let beyond = ground
        .measured_to
        .map_or_else(String::new, |bytes| format!(", published up to {bytes} B only"));
    format!("[{letter}] {key}{source} {effect}{beyond}")
}

impl Plan {
    fn write_mix(&self, f: &mut Formatter<'_>, name: &str, mix: &Mix) -> fmt::Result {
        let total = mix.total();
        write!(f, "\nTogether ({name}): {} M req/s", rate(total))?;
        if let Some(gbps) = self.gbps(total) {
            write!(f, ", {gbps:.1} Gbps")?;
        }
        if let Some(found) = &mix.simulated {
            write!(f, " (simulated {} M req/s)", rate(found.iter().sum()))?;
        }
        writeln!(f)?;
        for (one, mops) in self.candidates.iter().zip(&mix.mops).filter(|(_, mops)| **mops > 0.0) {
            writeln!(
                f,
                "  {:16} {:>8} M req/s, {:5.1} % of requests",
                one.name,
                rate(*mops),
                mops / total * 1e2
            )?;
        }
        writeln!(
            f,
            "  on the mean {:.1} us, {:.0} B on net; {:.1} host cores",
            mix.latency_us, mix.network_bytes, mix.host_cores
        )?;
        let full = mix
            .taken
            .iter()
            .take(SHOWN)
            .map(|(one, share)| format!("{} {:.0} %", one.name(), share * 1e2));
        writeln!(f, "  taken: {}", full.collect::<Vec<_>>().join(", "))
    }
}
