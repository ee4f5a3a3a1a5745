//! The checker of serializability against recorded histories that something was changed in.
//!
//! The table of kinds and verdicts: `cargo test -p nicol-lab --test mutations -- --nocapture`.

mod harmless;
mod victims;
mod wrong;

use nicol_bench::bench::{BenchConfig, Length, run};
use nicol_bench::workloads::WorkloadSpec;
use nicol_check::history_file::validate;
use nicol_check::serializability;
use nicol_core::history::History;
use nicol_core::rng::{Purpose, Stream};
use nicol_core::units::Nanos;

/// Changes a history at a place that a number picks; false if it has no such place.
pub type Change = fn(&mut History, usize) -> bool;
/// A kind of change: what it does.
pub type Kind = (&'static str, Change);

/// Changes of each kind to each history.
const TIMES: usize = 4;

/// What a run's clients saw, under message faults.
fn recorded(system: &str, workload: &str, seed: u64) -> History {
    let mut spec = WorkloadSpec { name: workload.to_owned(), ..WorkloadSpec::default() };
    spec.shrink();
    let config = BenchConfig {
        host_engines: Some(2),
        nic_engines: Some(1),
        clients: Some(4),
        length: Some(Length::Transactions(300)),
        warmup: Some(Nanos::ZERO),
        ..BenchConfig::new(system, spec, "liquidio3", seed)
    };
    let ran = run(&config).unwrap();
    assert!(
        ran.report.check.held(),
        "{system} under {workload}: {:?}",
        ran.report.check.violations
    );
    ran.history
}

/// How changes of one kind were judged.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    accepted: u64,
    refused: u64,
}

/// Judges changes of a kind to all histories.
fn judge(change: Change, histories: &[History], random: &mut Stream) -> Row {
    let mut row = Row::default();
    for original in histories {
        for _ in 0..TIMES {
            let mut history = original.clone();
            let pick = random.below(history.operations.len() as u64) as usize;
            if !change(&mut history, pick) || validate(&history).is_err() {
                continue;
            }
            match serializability::check(&history).held() {
                true => row.accepted += 1,
                false => row.refused += 1,
            }
        }
    }
    row
}

#[test]
fn every_wrong_change_is_refused_and_every_harmless_one_accepted() {
    let runs = [
        ("xenic", "smallbank"),
        ("xenic", "churn-ordered"),
        ("farm", "churn"),
        ("farm", "ycsb-t"),
        ("drtm-h", "churn-ordered"),
    ];
    let histories: Vec<History> = runs
        .into_iter()
        .zip(1..)
        .map(|((system, workload), seed)| recorded(system, workload, seed))
        .collect();
    let mut random = Stream::new(1, Purpose::Test, 0);
    let wrong = wrong::KINDS.map(|(name, change)| (name, change, true));
    let harmless = harmless::KINDS.map(|(name, change)| (name, change, false));
    let mut failed = Vec::new();
    for (name, change, is_wrong) in wrong.into_iter().chain(harmless) {
        let row = judge(change, &histories, &mut random);
        let what = if is_wrong { "wrong" } else { "harmless" };
        println!("| {name} | {what} | {} refused | {} accepted |", row.refused, row.accepted);
        let (right, other) =
            if is_wrong { (row.refused, row.accepted) } else { (row.accepted, row.refused) };
        if right < 2 || other > 0 {
            failed.push((name, row));
        }
    }
    assert!(failed.is_empty(), "judged wrongly, or too rarely: {failed:#?}");
}
