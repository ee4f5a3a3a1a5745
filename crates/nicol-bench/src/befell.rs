//! What happened to a run: which faults its plan holds, which of them began while clients worked,
//! and which changed something. A run in which nothing struck shows nothing.

use std::collections::BTreeMap;

use nicol_core::faults::{FaultCounts, FaultPlan};
use nicol_core::units::Nanos;
use serde::Serialize;

/// Faults of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Befell {
    /// Those in the plan; a chance that frames have counts as one.
    pub drawn: u64,
    /// Those that began before the last client ended.
    pub begun: u64,
    /// The things that they changed: frames, verbs or rounds.
    pub felt: u64,
}

/// The faults of a run by kind; kinds of which its plan holds none are left out.
pub type ByKind = BTreeMap<&'static str, Befell>;

/// What `plan` did to a run whose last client ended at `ended`, and in which faults struck as
/// `counts` says. `primaries_lost`: nodes that lead shards, those that the plan may take, that
/// were lost, and that were lost while transactions held locks there.
pub(crate) fn befell(
    plan: &FaultPlan,
    ended: Nanos,
    counts: &FaultCounts,
    primaries_lost: Befell,
) -> ByKind {
    let chance = |per_million: u32, felt| {
        let drawn = u64::from(per_million > 0);
        Befell { drawn, begun: drawn * u64::from(plan.quiet_after > Nanos::ZERO), felt }
    };
    let last = ended.min(plan.quiet_after);
    let timed = |starts: &mut dyn Iterator<Item = Nanos>, last: Nanos, felt| {
        let starts: Vec<Nanos> = starts.collect();
        let begun = starts.iter().filter(|from| **from < last).count() as u64;
        Befell { drawn: starts.len() as u64, begun, felt }
    };
    let mut cuts = plan.partitions.iter().map(|cut| cut.from);
    let slow = plan.slow.iter().map(|slow| slow.from);
    let mut stalls = plan.stalls.iter().map(|stall| stall.from).chain(slow);
    let mut crashes = plan.crashes.iter().map(|crash| crash.at);
    let all = [
        ("lost", chance(plan.loss, counts.lost)),
        ("duplicated", chance(plan.duplicate, counts.duplicated)),
        ("reordered", chance(plan.reorder, counts.reordered)),
        ("delayed", chance(plan.tail, counts.delayed)),
        ("corrupted", chance(plan.corrupt, counts.corrupted)),
        ("cut", timed(&mut cuts, last, counts.cut)),
        ("stalled", timed(&mut stalls, last, counts.stalled)),
        // A crash of everything ends the last client.
        ("crashed", timed(&mut crashes, ended + Nanos(1), counts.dead)),
        ("primary_lost", primaries_lost),
    ];
    all.into_iter().filter(|(_, one)| one.drawn > 0).collect()
}

#[cfg(test)]
mod tests {
    use nicol_core::faults::{Crash, CrashScope, FaultFamilies, Stall};

    use super::*;

    #[test]
    fn a_fault_behind_the_load_has_not_begun() {
        let at = |at| Crash { scope: CrashScope::Node, node: 0, at, restart_after: None };
        let stall = Stall { engine: 0, from: Nanos(30), span: Nanos(5) };
        let plan = FaultPlan {
            loss: 7,
            crashes: vec![at(Nanos(10)), at(Nanos(90))],
            stalls: vec![stall],
            quiet_after: Nanos(30),
            ..FaultPlan::none()
        };
        let counts = FaultCounts { lost: 3, dead: 2, ..FaultCounts::default() };
        let told = befell(&plan, Nanos(50), &counts, Befell::default());
        assert_eq!(told["crashed"], Befell { drawn: 2, begun: 1, felt: 2 });
        assert_eq!(told["stalled"], Befell { drawn: 1, begun: 0, felt: 0 });
        assert_eq!(told["lost"], Befell { drawn: 1, begun: 1, felt: 3 });
        assert_eq!(told.len(), 3, "{told:?}");
    }

    #[test]
    fn every_family_is_of_a_kind_that_is_told() {
        for name in FaultFamilies::NAMES {
            let families = name.parse::<FaultFamilies>().unwrap();
            let (counts, none, end) = (FaultCounts::default(), Befell::default(), Nanos(1 << 60));
            let told = |seed| befell(&families.draw(seed), end, &counts, none);
            assert!((0..20).any(|seed| !told(seed).is_empty()), "{name}");
        }
    }
}
