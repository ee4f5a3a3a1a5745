//! Families of faults: what a user names on the command line, and how a seed draws from each.

use std::fmt;
use std::str::FromStr;

use super::{FAULTY_SPAN, FaultPlan};
use crate::rng::{Purpose, Stream};

/// Which families of faults a plan draws from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultFamilies {
    /// Lost, doubled, late and damaged frames; partitions and stalls as well.
    pub messages: bool,
    /// Crashes of nodes, hosts, NICs and of everything, with restarts.
    pub crashes: bool,
    /// Engines that stand still.
    pub stalls: bool,
    /// Cuts of the network, some of which cost nodes their leases.
    pub partitions: bool,
    /// Engines that stand still for longer than a lease.
    pub pauses: bool,
    /// Engines that are 2 to 100 times slower than the others.
    pub slow: bool,
}

/// A name that is no family of faults.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{name}' is no family of faults: give none, or a list with commas of {}",
    FaultFamilies::NAMES.join(", ")
)]
pub struct UnknownFamily {
    /// The request.
    pub name: String,
}

impl FaultFamilies {
    pub const NAMES: [&'static str; 6] =
        ["messages", "crashes", "stalls", "partitions", "pauses", "slow"];
    pub const NONE: Self = Self {
        messages: false,
        crashes: false,
        stalls: false,
        partitions: false,
        pauses: false,
        slow: false,
    };
    pub const MESSAGES: Self = Self { messages: true, ..Self::NONE };

    /// True if any family is on.
    pub fn any(self) -> bool {
        self != Self::NONE
    }

    /// The plan of `seed`. The message faults of a seed are those of [`FaultPlan::messages`],
    /// whatever else is on: every other family draws from a stream of its own.
    pub fn draw(self, seed: u64) -> FaultPlan {
        let mut plan = match self.messages {
            true => FaultPlan::messages(seed),
            false if self.any() => FaultPlan { quiet_after: FAULTY_SPAN, ..FaultPlan::none() },
            false => FaultPlan::none(),
        };
        let stream = |family| Stream::new(seed, Purpose::FaultFamilies, family);
        if self.crashes {
            plan.add_crashes(&mut stream(0));
        }
        if self.stalls {
            plan.add_stalls(&mut stream(1));
        }
        if self.partitions {
            plan.add_partitions(&mut stream(2));
            plan.add_long_cut(&mut stream(3));
        }
        if self.pauses {
            plan.add_pauses(&mut stream(4));
        }
        if self.slow {
            plan.add_slow(&mut stream(5));
        }
        plan
    }

    const fn switches(&mut self) -> [&mut bool; 6] {
        let Self { messages, crashes, stalls, partitions, pauses, slow } = self;
        [messages, crashes, stalls, partitions, pauses, slow]
    }
}

/// The names of the families with commas, or `none`.
impl fmt::Display for FaultFamilies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut copy = *self;
        let on: Vec<_> = Self::NAMES.into_iter().zip(copy.switches()).collect();
        let on: Vec<_> = on.into_iter().filter(|(_, on)| **on).map(|(name, _)| name).collect();
        f.write_str(&if on.is_empty() { "none".to_owned() } else { on.join(",") })
    }
}

/// `none`, or a list of names with commas.
impl FromStr for FaultFamilies {
    type Err = UnknownFamily;

    fn from_str(text: &str) -> Result<Self, UnknownFamily> {
        let mut families = Self::NONE;
        if text == "none" {
            return Ok(families);
        }
        for name in text.split(',').map(str::trim) {
            let Some(index) = Self::NAMES.iter().position(|known| *known == name) else {
                return Err(UnknownFamily { name: name.to_owned() });
            };
            *families.switches()[index] = true;
        }
        Ok(families)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::{CrashScope, LONG_CUT, Partition, Spared, Stall};
    use crate::ids::NodeId;
    use crate::units::Nanos;

    const CRASHES: FaultFamilies = FaultFamilies { crashes: true, ..FaultFamilies::NONE };

    #[test]
    fn a_list_is_parsed_and_printed_and_an_unknown_name_is_refused_in_words() {
        for text in
            ["none", "messages", "crashes", "messages,crashes", "stalls,partitions", "pauses,slow"]
        {
            assert_eq!(text.parse::<FaultFamilies>().unwrap().to_string(), text);
        }
        let refused = "messages,crashs".parse::<FaultFamilies>().unwrap_err().to_string();
        assert!(refused.contains("'crashs'") && refused.contains("crashes"), "{refused}");
        assert!(
            "".parse::<FaultFamilies>().is_err()
                && "none,crashes".parse::<FaultFamilies>().is_err()
        );
    }

    #[test]
    fn families_do_not_shift_one_another() {
        for seed in 0..50 {
            let messages = FaultFamilies::MESSAGES.draw(seed);
            assert_eq!(messages, FaultPlan::messages(seed));
            let both = FaultFamilies { crashes: true, ..FaultFamilies::MESSAGES }.draw(seed);
            assert_eq!(both.crashes, CRASHES.draw(seed).crashes);
            assert_eq!(FaultPlan { crashes: Vec::new(), ..both }, messages);
        }
        assert_eq!(FaultFamilies::NONE.draw(1), FaultPlan::none());
    }

    #[test]
    fn crashes_of_every_scope_are_drawn_on_every_scale() {
        let plans: Vec<_> = (0..400).map(|seed| CRASHES.draw(seed)).collect();
        let crashes: Vec<_> = plans.iter().flat_map(|plan| plan.crashes.clone()).collect();
        let has = |plan: &&FaultPlan, scope| plan.crashes.iter().any(|c| c.scope == scope);
        let with = |scope| plans.iter().filter(move |plan| has(plan, scope));
        for scope in [CrashScope::Node, CrashScope::Host, CrashScope::Nic] {
            assert!((170..290).contains(&with(scope).count()), "{scope:?}");
        }
        assert!((25..75).contains(&with(CrashScope::All).count()), "one plan in eight");
        let alone = |plan: &FaultPlan| plan.crashes.iter().all(|c| c.scope == CrashScope::All);
        assert!(with(CrashScope::All).all(alone));
        let early = crashes.iter().filter(|crash| crash.at < Nanos::from_millis(1)).count();
        assert!(early * 5 > crashes.len() && early < crashes.len(), "{early}");
        let forever = crashes.iter().filter(|crash| crash.restart_after.is_none()).count();
        assert!(forever * 8 > crashes.len() && forever * 2 < crashes.len(), "{forever}");
        assert!(plans.iter().all(|plan| !plan.crashes.is_empty()), "every seed has one");
    }

    #[test]
    fn no_more_nodes_are_lost_than_shards_have_backups() {
        let all = FaultFamilies { partitions: true, pauses: true, ..CRASHES };
        let mut lost = [0; 3];
        for seed in 0..400 {
            let drawn = all.draw(seed);
            let takes_all = drawn.crashes.iter().any(|crash| crash.scope == CrashScope::All);
            for (nodes, holding, backups) in [(3, 3, 1), (5, 5, 2), (5, 3, 2)] {
                let spared = Spared { nodes, holding, backups, engines: Some(4) };
                let plan = drawn.clone().sparing(&spared);
                if takes_all {
                    assert_eq!(plan, drawn, "that is meant");
                    continue;
                }
                assert_eq!(plan.crashes.len(), drawn.crashes.len());
                let long = |cut: &&Partition| cut.until.since(cut.from) >= LONG_CUT;
                let is_lost = |node: &NodeId| {
                    let of = |stall: &Stall| stall.engine as usize / 4 == node.index();
                    plan.crashes.iter().any(|crash| crash.hits(*node, nodes))
                        || plan.partitions.iter().filter(long).any(|cut| cut.side.contains(*node))
                        || plan.stalls.iter().any(of)
                };
                let taken = (0..holding as u16).map(NodeId).filter(is_lost).count();
                assert!(taken <= backups, "seed {seed}: {taken} of {nodes}");
                lost[taken] += 1;
            }
            let no_backup = Spared { nodes: 3, holding: 3, backups: 0, engines: Some(4) };
            assert_eq!(drawn.clone().sparing(&no_backup), drawn);
        }
        assert!(lost[1] > 300 && lost[2] > 300, "{lost:?}");
    }

    #[test]
    fn every_pause_outlasts_a_lease_and_the_plan_lasts_as_long() {
        let pauses = FaultFamilies { pauses: true, ..FaultFamilies::NONE };
        for seed in 0..200 {
            let plan = pauses.draw(seed);
            assert_eq!(plan.ensure_possible(), Ok(()));
            assert!(!plan.stalls.is_empty());
            for stall in &plan.stalls {
                assert!(stall.span >= crate::faults::LONG_CUT, "seed {seed}");
                assert!(stall.from + stall.span <= plan.quiet_after, "seed {seed}");
            }
        }
    }

    #[test]
    fn a_plan_survives_a_file() {
        for seed in 0..20 {
            let all =
                "messages,crashes,stalls,partitions,pauses,slow".parse::<FaultFamilies>().unwrap();
            let plan = all.draw(seed);
            let text = serde_json::to_string(&plan).unwrap();
            assert_eq!(serde_json::from_str::<FaultPlan>(&text).unwrap(), plan);
        }
        let one = r#"{"crashes": [{"scope": "nic", "node": 4, "at_ns": 7}]}"#;
        let plan: FaultPlan = serde_json::from_str(one).unwrap();
        assert!(plan.crashes[0].hits(NodeId(1), 3) && !plan.crashes[0].hits(NodeId(2), 3));
        assert_eq!(plan.quiet_after, Nanos::MAX);
        assert!(serde_json::from_str::<FaultPlan>(r#"{"crash": []}"#).is_err());
    }
}
