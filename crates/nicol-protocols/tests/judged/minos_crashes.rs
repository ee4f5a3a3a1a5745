//! MINOS under crashes: what each model keeps when everything goes down, and what survivors and nodes
//! that come back agree on.

use std::sync::atomic::AtomicBool;

use nicol_core::faults::{Crash, CrashScope, FaultPlan};
use nicol_core::units::Nanos;
use nicol_lab::bench::{BenchConfig, Length, run};
use nicol_lab::workloads::WorkloadSpec;
use nicol_lab::{museum, systems};

use crate::support::{crash, few_records, held, short};

const MODELS: [&str; 5] = ["synch", "strict", "renf", "event", "scope"];
const PLACES: [&str; 2] = ["minos-b", "minos-o"];

fn config(system: &str, seed: u64, crashes: Vec<Crash>) -> BenchConfig {
    let spec = few_records(2);
    BenchConfig {
        fault_plan: Some(FaultPlan { crashes, ..FaultPlan::none() }),
        ..short(system, spec, "minos-snic", seed)
    }
}

/// Every system, on so many seeds each.
fn each(seeds: u64, mut run: impl FnMut(&str, u64)) {
    for place in PLACES {
        for model in MODELS {
            (0..seeds).for_each(|seed| run(&format!("{place}:{model}"), seed));
        }
    }
}

#[test]
fn every_model_keeps_what_it_promises_when_everything_crashes() {
    let mut committed = 0;
    each(12, |system, seed| {
        let at = 10 + seed * 37 % 160;
        let config = config(system, seed, vec![crash(CrashScope::All, 0, at, Some(20))]);
        committed += held(&config).committed;
    });
    assert!(committed > 5_000, "{committed}");
}

#[test]
fn survivors_go_on_without_a_node_that_stays_away() {
    let mut committed = 0;
    each(4, |system, seed| {
        let at = 10 + seed * 53 % 160;
        let config = config(system, seed, vec![crash(CrashScope::Node, seed as u16, at, None)]);
        committed += held(&config).committed;
    });
    assert!(committed > 10_000, "{committed}");
}

#[test]
fn a_node_that_comes_back_has_what_the_others_have() {
    each(4, |system, seed| {
        let at = 10 + seed * 53 % 160;
        let back = vec![crash(CrashScope::Node, seed as u16, at, Some(30))];
        let mut config = config(system, seed, back);
        config.length = Some(Length::Time(Nanos::from_millis(14)));
        config.clients = Some(1);
        held(&config);
    });
}

#[test]
fn crashes_as_a_sweep_draws_them_are_survived() {
    each(4, |system, seed| {
        let mut config = config(system, 100 + seed, Vec::new());
        config.fault_plan = None;
        config.faults = ["crashes", "messages,crashes"][seed as usize % 2].parse().unwrap();
        held(&config);
    });
}

/// Runs of a sweep that got stuck, three of them with replicas that differed. A node that recovered
/// waited for its copy of a record to become durable, which it only persisted once that was unlocked; and
/// nobody replayed what its log alone had of a coordinator that died after its return.
#[test]
fn what_a_node_that_comes_back_has_copied_or_logged_is_completed() {
    for (system, seed) in [
        ("minos-b:synch", 34),
        ("minos-b:event", 68),
        ("minos-b:scope", 68),
        ("minos-o:synch", 68),
        ("minos-o:renf", 32),
        ("minos-o:renf", 89),
        ("minos-o:event", 45),
    ] {
        let spec = WorkloadSpec { records: Some(40), ..WorkloadSpec::named("ycsb") };
        held(&BenchConfig {
            nodes: 3,
            replicas: 3,
            clients: Some(8),
            length: Some(Length::Transactions(2_000)),
            faults: "messages,crashes".parse().unwrap(),
            settings: vec!["timeout_us=500".to_owned()],
            ..short(system, spec, "minos-snic", seed)
        });
    }
}

#[test]
fn every_broken_minos_is_caught_within_200_seeds() {
    for name in ["minos-b:synch", "minos-o:synch"] {
        let system = systems::find(name).unwrap();
        let seen = museum::visit(&[system], &(0..200), 1, &AtomicBool::new(false), &|| ()).unwrap();
        for exhibit in seen {
            assert!(exhibit.held(), "{exhibit:?}");
        }
    }
}

/// AMB-18: a scope's write that was obsolete, and what made it so is not durable.
#[test]
fn a_scope_as_printed_loses_what_it_has_promised() {
    let caught = (0..200).find(|&seed| {
        let at = 20 + seed * 37 % 200;
        let crashes = vec![crash(CrashScope::All, 0, at, Some(20))];
        let mut config = config("minos-b:scope", seed, crashes);
        config.workload.records = Some(1);
        config.workload.value_bytes = Some(1_000);
        config.on = "minos-snic:persist.per_kib=200us:persist.by_core=false".to_owned();
        config.settings = vec!["scope_writes=1".to_owned()];
        held(&config);
        config.settings.push("faithful=scopes".to_owned());
        !run(&config).unwrap().report.check.held()
    });
    assert!(caught.is_some());
}
