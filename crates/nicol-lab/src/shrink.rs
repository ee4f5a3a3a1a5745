//! Shrinking: the smallest plan of faults, and the fewest operations, under which a run still
//! fails.

use nicol_core::faults::{Crash, FaultPlan};
use nicol_core::units::Nanos;

/// Plans that are tried at most.
const TRIES_MAX: usize = 400;
/// Spans are not halved below this.
const SPAN_MIN: u64 = 1_000;

/// The smallest plan found under which `still_fails` holds, as it does under `plan`: faults are
/// taken away one by one, then rates, spans and delays are halved, for as long as that succeeds.
///
/// Cost: a run of `still_fails` for each plan that is tried, at most 400.
pub fn shrink(plan: FaultPlan, mut still_fails: impl FnMut(&FaultPlan) -> bool) -> FaultPlan {
    let mut smallest = plan;
    let mut tries = 0;
    loop {
        let mut candidates = smaller(&smallest).into_iter();
        let found = candidates.find(|candidate| {
            tries += 1;
            tries <= TRIES_MAX && still_fails(candidate)
        });
        match found {
            Some(found) => smallest = found,
            None => return smallest,
        }
    }
}

/// The fewest operations found under which `still_fails` holds, as it does for `count`: a half,
/// then a quarter, then an eighth of them is left out, each for as long as that succeeds.
///
/// Cost: a run of `still_fails` for each number that is tried, about two per bit of `count`.
pub fn fewest(count: u64, mut still_fails: impl FnMut(u64) -> bool) -> u64 {
    let mut fewest = count;
    for part in [2, 4, 8] {
        loop {
            let fewer = fewest - fewest.div_ceil(part);
            if fewer == 0 || !still_fails(fewer) {
                break;
            }
            fewest = fewer;
        }
    }
    fewest
}

/// Plans with one thing less, those that take most away first.
fn smaller(plan: &FaultPlan) -> Vec<FaultPlan> {
    let mut candidates = Vec::new();
    let mut add = |change: &dyn Fn(&mut FaultPlan)| {
        let mut candidate = plan.clone();
        change(&mut candidate);
        if candidate != *plan {
            candidates.push(candidate);
        }
    };
    for change in WHOLE_FAMILIES {
        add(&change);
    }
    for index in 0..plan.crashes.len() {
        add(&|plan| {
            plan.crashes.remove(index);
        });
    }
    for index in 0..plan.partitions.len() {
        add(&|plan| {
            plan.partitions.remove(index);
        });
    }
    for index in 0..plan.stalls.len() {
        add(&|plan| {
            plan.stalls.remove(index);
        });
    }
    for index in 0..plan.slow.len() {
        add(&|plan| {
            plan.slow.remove(index);
        });
    }
    for index in 0..plan.crashes.len() {
        add(&|plan| plan.crashes[index].restart_after = None);
    }
    for rate in RATES {
        add(&|plan| *rate(plan) /= 2);
    }
    for span in SPANS {
        add(&|plan| halve(span(plan)));
    }
    for index in 0..plan.stalls.len() {
        add(&|plan| halve(&mut plan.stalls[index].span));
    }
    for index in 0..plan.slow.len() {
        add(&|plan| halve(&mut plan.slow[index].span));
        add(&|plan| {
            let factor = &mut plan.slow[index].factor;
            *factor = (*factor / 2).max(2);
        });
    }
    for index in 0..plan.partitions.len() {
        add(&|plan| {
            let cut = &mut plan.partitions[index];
            let mut span = cut.until.since(cut.from);
            halve(&mut span);
            cut.until = cut.from + span;
        });
    }
    for index in 0..plan.crashes.len() {
        add(&|plan| plan.crashes[index].restart_after.iter_mut().for_each(halve));
    }
    candidates
}

const WHOLE_FAMILIES: [fn(&mut FaultPlan); 9] = [
    |plan| plan.crashes.clear(),
    |plan| plan.partitions.clear(),
    |plan| plan.stalls.clear(),
    |plan| plan.slow.clear(),
    |plan| plan.loss = 0,
    |plan| plan.duplicate = 0,
    |plan| plan.reorder = 0,
    |plan| plan.tail = 0,
    |plan| plan.corrupt = 0,
];

const RATES: [fn(&mut FaultPlan) -> &mut u32; 5] = [
    |plan| &mut plan.loss,
    |plan| &mut plan.duplicate,
    |plan| &mut plan.reorder,
    |plan| &mut plan.tail,
    |plan| &mut plan.corrupt,
];

const SPANS: [fn(&mut FaultPlan) -> &mut Nanos; 3] =
    [|plan| &mut plan.quiet_after, |plan| &mut plan.reorder_span, |plan| &mut plan.tail_max];

fn halve(span: &mut Nanos) {
    // A plan that never becomes quiet does not get shorter by being halved.
    if *span != Nanos::MAX && span.0 / 2 >= SPAN_MIN {
        *span = *span / 2;
    }
}

/// The number of faults of a plan, which shrinking reduces.
pub fn faults_of(plan: &FaultPlan) -> usize {
    let rates = [plan.loss, plan.duplicate, plan.reorder, plan.tail, plan.corrupt];
    let lists = [plan.crashes.len(), plan.partitions.len(), plan.stalls.len(), plan.slow.len()];
    let restarts = |crash: &&Crash| crash.restart_after.is_some();
    lists.iter().sum::<usize>()
        + rates.iter().filter(|rate| **rate > 0).count()
        + plan.crashes.iter().filter(restarts).count()
}

#[cfg(test)]
mod tests {
    use nicol_core::faults::{CrashScope, FaultFamilies};

    use super::*;

    fn everything(seed: u64) -> FaultPlan {
        FaultFamilies::NAMES.join(",").parse::<FaultFamilies>().unwrap().draw(seed)
    }

    #[test]
    fn a_failure_that_needs_one_crash_and_loss_shrinks_to_these() {
        let fails = |plan: &FaultPlan| {
            plan.loss >= 1_000 && plan.crashes.iter().any(|crash| crash.scope == CrashScope::Nic)
        };
        let plans = (0..100).map(everything).filter(fails);
        let mut shrunk = 0;
        for plan in plans {
            let small = shrink(plan.clone(), fails);
            assert!(fails(&small), "what is left still fails");
            assert_eq!((small.crashes.len(), faults_of(&small)), (1, 2), "{small:?}");
            assert!((1_000..2_000).contains(&small.loss), "a rate is halved as far as it goes");
            assert!(
                plan.crashes.contains(&Crash {
                    restart_after: plan
                        .crashes
                        .iter()
                        .find(|crash| crash.at == small.crashes[0].at)
                        .and_then(|crash| crash.restart_after),
                    ..small.crashes[0]
                })
            );
            shrunk += 1;
        }
        assert!(shrunk > 10, "{shrunk}");
    }

    #[test]
    fn a_failure_that_needs_no_fault_shrinks_to_none_and_one_that_needs_all_stays() {
        let plan = everything(7);
        assert_eq!(faults_of(&shrink(plan.clone(), |_| true)), 0);
        assert_eq!(shrink(plan.clone(), |candidate| *candidate == plan), plan);
    }

    #[test]
    fn a_failure_that_needs_some_operations_keeps_few_more() {
        for needed in [1, 2, 7, 37, 400, 999, 1_000] {
            let few = fewest(1_000, |count| count >= needed);
            assert!((needed..=needed + needed / 7).contains(&few), "{few} for {needed}");
        }
        assert_eq!(fewest(0, |_| true), 0);
    }

    #[test]
    fn shrinking_ends_whatever_the_run_says() {
        let mut tries = 0;
        let _small = shrink(everything(3), |_| {
            tries += 1;
            tries % 2 == 0
        });
        assert!(tries <= TRIES_MAX);
    }
}
