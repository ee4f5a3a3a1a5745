//! A plan as text and as JSON: `nicol.plan/1`.

use std::fmt::{self, Display, Formatter};

use serde_json::{Value, json};

use super::{Mix, Plan};

/// The schema's name, first in every object.
pub const SCHEMA: &str = "nicol.plan/1";
/// Resources of a mix that are shown: the fullest.
const SHOWN: usize = 5;
/// Advice's number where it is none of the five.
fn numbered(number: u8) -> String {
    if number == 0 { "together".into() } else { format!("advice {number}") }
}

impl Plan {
    /// Gbps of `mops` requests, if the description says what one is for.
    fn gbps(&self, mops: f64) -> Option<f64> {
        self.description.bytes.map(|bytes| mops * bytes as f64 * 8.0 / 1e3)
    }

    /// As one JSON object.
    pub fn json(&self) -> Value {
        let alternatives: Vec<Value> = self
            .ranked
            .iter()
            .enumerate()
            .map(|(rank, at)| {
                let one = &self.candidates[*at];
                json!({
                    "rank": rank + 1,
                    "alternative": one.name,
                    "throughput_mops": rounded(one.mops),
                    "bandwidth_gbps": self.gbps(one.mops).map(rounded),
                    "binds": one.binds.name(),
                    "latency_us": rounded(one.latency_us),
                    "host_cores": rounded(one.host_cores),
                    "network_bytes": rounded(one.network_bytes),
                    "simulated_mops": one.simulated.map(|found| rounded(found.0)),
                    "simulated_latency_us": one.simulated.map(|found| rounded(found.1)),
                })
            })
            .collect();
        let switches = self.switches.iter().map(|one| {
            json!({
                "from": one.from,
                "to": one.to,
                "throughput_mops": rounded(one.mops),
                "under_way": rounded(one.under_way),
            })
        });
        let switches: Vec<Value> = switches.collect();
        let advice: Vec<Value> = self
            .advice
            .iter()
            .map(|one| {
                json!({
                    "advice": one.number,
                    "alternative": one.alternative,
                    "text": one.text,
                    "evidence": one.evidence.letter(),
                })
            })
            .collect();
        json!({
            "schema": SCHEMA,
            "name": self.description.name,
            "hardware": self.description.hardware,
            "criteria": self.description.criteria.iter().map(|one| one.name()).collect::<Vec<_>>(),
            "alternatives": alternatives,
            "recommended": if self.takes_greedy { "greedy" } else { "best" },
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
            let simulated = mix.simulated.as_ref().map(|found| rounded(found[at]));
            parts.push(json!({
                "alternative": self.candidates[at].name,
                "throughput_mops": rounded(*mops),
                "share": rounded(mops / total.max(f64::MIN_POSITIVE)),
                "simulated_mops": simulated,
            }));
        }
        let taken =
            mix.taken.iter().map(|(resource, share)| (resource.name().to_owned(), rounded(*share)));
        json!({
            "throughput_mops": rounded(total),
            "bandwidth_gbps": self.gbps(total).map(rounded),
            "parts": parts,
            "resources": taken.collect::<serde_json::Map<_, _>>(),
        })
    }
}

fn rounded(value: f64) -> Value {
    json!((value * 1e3).round() / 1e3)
}

impl Display for Plan {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
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
                "{:3}  {:16} {:8.3} {:5.1} {:11.1} {:9.0}  {:24}",
                rank + 1,
                one.name,
                one.mops,
                one.latency_us,
                one.host_cores,
                one.network_bytes,
                one.binds.name()
            )?;
            if let Some((mops, us)) = one.simulated {
                write!(f, " {mops:8.3} M, {us:.1} us")?;
            }
            writeln!(f)?;
        }
        self.write_mix(f, "greedy", &self.greedy)?;
        if !self.takes_greedy {
            self.write_mix(f, "best", &self.best)?;
            writeln!(
                f,
                "The best mix is recommended: the greedy one takes a resource that the next needs more."
            )?;
        }
        for one in &self.switches {
            writeln!(
                f,
                "From {:.3} M req/s ({:.0} under way) on {} queues so long that {} answers sooner.",
                one.mops, one.under_way, one.from, one.to
            )?;
        }
        if !self.advice.is_empty() {
            writeln!(f, "\nAdvice of the study (E: shown, H: a hypothesis):")?;
        }
        for one in &self.advice {
            let about = one.alternative.as_ref().map_or(String::new(), |name| format!(", {name}"));
            writeln!(
                f,
                "  {} [{}]{about}: {}",
                numbered(one.number),
                one.evidence.letter(),
                one.text
            )?;
        }
        Ok(())
    }
}

impl Plan {
    fn write_mix(&self, f: &mut Formatter<'_>, name: &str, mix: &Mix) -> fmt::Result {
        let total = mix.total();
        write!(f, "\nTogether ({name}): {total:.3} M req/s")?;
        if let Some(gbps) = self.gbps(total) {
            write!(f, ", {gbps:.1} Gbps")?;
        }
        if let Some(found) = &mix.simulated {
            write!(f, " (simulated {:.3} M req/s)", found.iter().sum::<f64>())?;
        }
        writeln!(f)?;
        for (one, mops) in self.candidates.iter().zip(&mix.mops).filter(|(_, mops)| **mops > 0.0) {
            writeln!(
                f,
                "  {:16} {mops:8.3} M req/s, {:5.1} % of requests",
                one.name,
                mops / total * 1e2
            )?;
        }
        let full = mix
            .taken
            .iter()
            .take(SHOWN)
            .map(|(one, share)| format!("{} {:.0} %", one.name(), share * 1e2));
        writeln!(f, "  taken: {}", full.collect::<Vec<_>>().join(", "))
    }
}
