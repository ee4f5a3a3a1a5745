//! What these tests have in common.

use std::panic;

use nicol_lab::bench::{BenchConfig, BenchRun, run};
use nicol_lab::report::BenchReport;

/// Runs `config`, and expects every check to hold.
pub fn held(config: &BenchConfig) -> BenchReport {
    held_run(config).report
}

/// The same, with the history.
pub fn held_run(config: &BenchConfig) -> BenchRun {
    let ran = run(config).unwrap();
    let check = &ran.report.check;
    assert!(check.held(), "{config:?}: {:#?}", check.violations);
    assert_ne!(check.held_promise, Some(false), "{config:?}");
    ran
}

/// Runs a protocol that is broken on purpose: does a check notice it? What breaks a table may end in
/// an assertion, as in a sweep.
pub fn is_noticed(config: &BenchConfig) -> bool {
    let ran = panic::catch_unwind(|| run(config).unwrap().report);
    ran.map_or(true, |report| {
        assert_eq!(report.warnings.len(), 1, "a broken protocol warns");
        !report.check.held()
    })
}
