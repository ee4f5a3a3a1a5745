//! When the clients of a simulated run work that may lose nodes: in bursts, one at each instant at
//! which something happens, and one when the last recovery is over. All the time would be far more
//! operations than can be judged: a lease lasts as long as a thousand transactions.

use nicol_core::faults::FaultPlan;
use nicol_core::units::Nanos;
use nicol_sim::view_service::{LEASE, RENEWAL};

/// Bursts that are closer are one.
const APART: Nanos = Nanos::from_micros(40);
/// By how much a burst comes before its fault, which so strikes among open transactions: at least,
/// and by so much more at most.
const BEFORE: (u64, u64) = (4_000, 36_000);
/// The time from the end of a lost node's lease to the last burst, in which survivors learn the
/// view and recover: tens of microseconds, and the longest wait between two attempts.
const RECOVERS: Nanos = Nanos::from_millis(2);

/// The instants, in their order.
pub(crate) fn starts(plan: &FaultPlan) -> Vec<Nanos> {
    let outlasts = |span: Nanos| span >= LEASE;
    let mut strikes = Vec::new();
    let mut ends = Vec::new();
    // A side that stops at `from` is given up when its lease has ended.
    let mut loss = |from: Nanos, until: Nanos| {
        let given_up = from.saturating_add(LEASE);
        strikes.extend([from, given_up, until]);
        ends.push(given_up.max(until.saturating_add(RENEWAL)));
    };
    for crash in &plan.crashes {
        loss(crash.at, crash.restarts_at().unwrap_or(crash.at));
    }
    for cut in plan.partitions.iter().filter(|cut| outlasts(cut.until.since(cut.from))) {
        loss(cut.from, cut.until);
    }
    for stall in plan.stalls.iter().filter(|stall| outlasts(stall.span)) {
        loss(stall.from, stall.from.saturating_add(stall.span));
    }
    let short_cuts = plan.partitions.iter().map(|cut| (cut.from, cut.until));
    let short_stalls = plan.stalls.iter().map(|stall| (stall.from, stall.from + stall.span));
    for (from, until) in short_cuts.chain(short_stalls) {
        strikes.push(from);
        ends.push(until);
    }
    let (least, more) = BEFORE;
    // By the instant itself, so that each plan has several and a replay has the same.
    let before = |at: Nanos| Nanos(at.0.saturating_sub(least + at.0 % more));
    let mut starts: Vec<Nanos> = strikes.into_iter().map(before).collect();
    starts.push(Nanos::ZERO);
    starts.sort_unstable();
    starts.dedup_by(|later, earlier| later.since(*earlier) < APART);
    let last = ends.into_iter().max().unwrap_or_default() + RENEWAL + RECOVERS;
    starts.push(last.max(starts[starts.len() - 1]));
    starts
}

#[cfg(test)]
mod tests {
    use nicol_core::faults::FaultFamilies;

    use super::*;

    #[test]
    fn every_fault_strikes_a_load_and_the_last_burst_comes_behind_the_last_recovery() {
        let families: FaultFamilies = "messages,crashes,partitions,pauses".parse().unwrap();
        for seed in 0..100 {
            let plan = families.draw(seed);
            let starts = starts(&plan);
            assert!(starts.is_sorted() && starts[0] == Nanos::ZERO, "seed {seed}");
            let last = starts[starts.len() - 1];
            for crash in &plan.crashes {
                let lead = starts.iter().filter(|from| **from <= crash.at).max().unwrap();
                assert!(crash.at.since(*lead).0 <= BEFORE.0 + BEFORE.1 + APART.0, "{starts:?}");
                let restart = crash.restarts_at().unwrap_or(crash.at);
                assert!(last > crash.at + LEASE + RENEWAL && last > restart + RENEWAL);
            }
            for stall in &plan.stalls {
                assert!(last > stall.from + stall.span);
            }
        }
    }
}
