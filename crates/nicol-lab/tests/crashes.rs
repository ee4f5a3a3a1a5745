//! Systems under crashes at any instant: every client ends, what they were told is right, and the
//! same seed crashes the same way.

use nicol_bench::bench::{BenchConfig, Length, run};
use nicol_bench::report::BenchReport;
use nicol_bench::toll::Toll;
use nicol_bench::workloads::WorkloadSpec;
use nicol_core::faults::{Crash, CrashScope, FaultFamilies, FaultPlan, Partition};
use nicol_core::ids::NodeId;
use nicol_core::units::Nanos;
use nicol_core::view::NodeSet;

fn config(system: &str, workload: &str, on: &str, seed: u64) -> BenchConfig {
    let mut spec = WorkloadSpec { name: workload.to_owned(), ..WorkloadSpec::default() };
    spec.shrink();
    BenchConfig {
        settings: vec!["timeout_us=500".to_owned()],
        host_engines: Some(2),
        nic_engines: Some(2),
        clients: Some(8),
        length: Some(Length::Transactions(500)),
        warmup: Some(Nanos::ZERO),
        ..BenchConfig::new(system, spec, on, seed)
    }
}

fn held(config: &BenchConfig) -> BenchReport {
    let report = run(config).unwrap().report;
    let (system, seed) = (&config.system, config.seed);
    assert!(report.check.held(), "{system}, seed {seed}: {:#?}", report.check.violations);
    report
}

#[test]
fn no_system_answers_wrongly_under_crashes_and_messages_that_are_lost() {
    let both = FaultFamilies { crashes: true, ..FaultFamilies::MESSAGES };
    for (system, on) in [("xenic", "liquidio3"), ("farm", "connectx5"), ("fasst", "connectx5")] {
        let mut unknown = 0;
        for seed in 0..12 {
            let workload = ["smallbank", "churn"][seed as usize % 2];
            let report = held(&BenchConfig { faults: both, ..config(system, workload, on, seed) });
            unknown += report.unknown;
        }
        assert!(unknown > 20, "{system}: crashes cut attempts off, which are unknown: {unknown}");
    }
}

#[test]
fn a_load_outlasts_its_crashes_where_survivors_recover() {
    let families = ["messages,crashes", "crashes,partitions", "crashes,pauses"];
    let (mut must, mut felt) = (0, 0);
    for seed in 0..18 {
        let workload = ["smallbank", "churn"][seed as usize % 2];
        let (nodes, replicas) = [(3, 2), (5, 3)][seed as usize / 2 % 2];
        let faults = families[seed as usize % 3].parse().unwrap();
        let config = config("xenic", workload, "liquidio3", seed);
        let settings = [&config.settings[..], &["recovery=prepared".to_owned()]].concat();
        let length = Some(Length::Transactions(2_000));
        let report = held(&BenchConfig { nodes, replicas, faults, settings, length, ..config });
        if report.toll == Toll::Beyond {
            continue;
        }
        assert_eq!((report.toll, report.invalid()), (Toll::Recovered, None), "seed {seed}");
        must += 1;
        felt += u64::from(report.befell["primary_lost"].felt > 0);
    }
    assert!(must >= 14 && felt * 4 >= must * 3, "{felt} of {must} lost a primary in use");
}

#[test]
fn no_system_answers_wrongly_when_engines_crash_on_threads() {
    for system in ["xenic", "farm", "drtm-h"] {
        let (mut unknown, mut committed) = (0, 0);
        for seed in 0..6 {
            let workload = ["smallbank", "churn"][seed as usize / 2 % 2];
            let families = ["crashes", "messages,crashes"][seed as usize % 2];
            let config = BenchConfig {
                faults: families.parse().unwrap(),
                threads: Some(1 + seed as usize % 3),
                ..config(system, workload, "threads", seed)
            };
            let report = held(&config);
            assert_eq!(report.trace_digest, None, "a live run");
            (unknown, committed) = (unknown + report.unknown, committed + report.committed);
        }
        assert!(unknown > 10 && committed > 100, "{system}: {unknown} and {committed}");
    }
}

#[test]
fn a_backup_leads_the_shard_of_a_lost_node_on_threads_once_its_lease_has_ended() {
    let at = Nanos::from_millis(100);
    let crash = Crash { scope: CrashScope::Node, node: 1, at, restart_after: None };
    let report = held(&BenchConfig {
        settings: vec!["recovery=prepared".to_owned()],
        fault_plan: Some(FaultPlan { crashes: vec![crash], ..FaultPlan::none() }),
        lease: Some(Nanos::from_millis(100)),
        threads: Some(2),
        length: Some(Length::Time(Nanos::from_millis(900))),
        ..config("xenic", "smallbank", "threads", 7)
    });
    let [view] = &report.milestones.views[..] else { panic!("{:?}", report.milestones) };
    let [shard] = &report.milestones.inherited[..] else { panic!("{:?}", report.milestones) };
    assert_eq!((&view.without[..], shard.shard, shard.by), (&[1][..], 1, 2));
    // Its last lease began up to a renewal before the crash.
    assert!(view.at_ns > (at + Nanos::from_millis(85)).0, "{view:?}");
    assert!(shard.at_ns >= view.at_ns, "{shard:?}");
    // Those who meet the lost shard fail until it is led again, and not for ever.
    assert!(
        report.failed * 5 < report.committed,
        "{} failed, {} committed",
        report.failed,
        report.committed
    );
}

#[test]
fn a_crash_of_everything_ends_every_client_with_its_attempt_unknown() {
    let at = Nanos::from_micros(60);
    let crash = Crash { scope: CrashScope::All, node: 0, at, restart_after: None };
    let plan = FaultPlan { crashes: vec![crash], ..FaultPlan::none() };
    for system in ["xenic", "drtm-h"] {
        let (mut committed, mut unknown) = (0, 0);
        // On a busy machine no attempt may be under way at one of these instants.
        for at in [40, 80, 160].map(Nanos::from_millis) {
            let later = Crash { at, ..crash };
            let live = BenchConfig {
                fault_plan: Some(FaultPlan { crashes: vec![later], ..FaultPlan::none() }),
                threads: Some(2),
                length: Some(Length::Transactions(1_000_000)),
                ..config(system, "smallbank", "threads", 1)
            };
            // Calls of a busy machine may time out before the crash, so that there is no most of
            // them.
            let live = held(&live);
            (committed, unknown) = (committed + live.committed, unknown + live.unknown);
        }
        assert!(committed > 0 && unknown > 0, "{system}: {committed} and {unknown}");
        let plan = Some(plan.clone());
        let config =
            BenchConfig { fault_plan: plan, ..config(system, "smallbank", "liquidio3", 1) };
        let (first, second) = (held(&config), held(&config));
        // Of 24 clients; those between two attempts end without one.
        assert!(first.committed > 0 && (4..=24).contains(&first.unknown), "{first:#?}");
        assert_eq!(first.trace_digest, second.trace_digest, "{system}");
    }
}

/// Node 1 loses one half for good, or for a while.
fn halved(scope: CrashScope, restart_after: Option<Nanos>) -> Option<FaultPlan> {
    let at = Nanos::from_micros(60);
    let crash = Crash { scope, node: 1, at, restart_after };
    Some(FaultPlan { crashes: vec![crash], ..FaultPlan::none() })
}

#[test]
fn a_node_that_loses_half_is_given_up_as_a_whole() {
    let after = [None, Some(Nanos::from_micros(15)), Some(Nanos::from_millis(30))];
    for (system, on) in [("xenic", "liquidio3"), ("farm", "liquidio3"), ("prism-tx", "liquidio3")] {
        for scope in [CrashScope::Host, CrashScope::Nic] {
            for restart_after in after {
                let fault_plan = halved(scope, restart_after);
                let mut config = config(system, "smallbank", on, 1);
                config.settings.retain(|_| system != "prism-tx");
                let report = held(&BenchConfig { fault_plan, ..config });
                let refused = report.abort_reasons.get("shard_unavailable").copied();
                assert!(refused > Some(0), "{system}, {scope:?}: {:?}", report.abort_reasons);
            }
        }
    }
}

#[test]
fn cores_of_a_nic_that_nobody_uses_cost_nothing_when_they_crash() {
    for system in ["farm", "drtm-h", "fasst"] {
        for restart_after in [None, Some(Nanos::from_micros(200))] {
            let fault_plan = halved(CrashScope::Nic, restart_after);
            let config = config(system, "smallbank", "connectx5", 1);
            let report = held(&BenchConfig { fault_plan, ..config });
            let outcomes = (report.committed + report.refused, report.unknown);
            assert_eq!(outcomes, (504, 0), "{system}");
            let refused = report.abort_reasons.get("shard_unavailable").copied();
            assert_eq!(refused.unwrap_or_default(), 0, "{system}");
        }
        let gone = halved(CrashScope::Host, None);
        let config = config(system, "smallbank", "connectx5", 1);
        let report = held(&BenchConfig { fault_plan: gone, ..config });
        assert!(report.abort_reasons["shard_unavailable"] > 0, "{system}");
    }
}

/// Node 1 is cut off for longer than a lease; then everything heals.
#[test]
fn a_node_that_is_cut_off_for_longer_than_its_lease_is_given_up() {
    let side = [NodeId(1)].into_iter().collect::<NodeSet>();
    let (from, until) = (Nanos::from_micros(60), Nanos::from_millis(16));
    for one_way in [false, true] {
        let cut = Partition { from, until, side: side.clone(), one_way };
        let plan = FaultPlan { partitions: vec![cut], ..FaultPlan::none() };
        for (system, on) in
            [("xenic", "liquidio3"), ("farm", "connectx5"), ("prism-tx", "connectx5")]
        {
            let mut config = config(system, "smallbank", on, 1);
            config.settings.retain(|_| system != "prism-tx");
            let report = held(&BenchConfig { fault_plan: Some(plan.clone()), ..config });
            let refused = report.abort_reasons.get("shard_unavailable").copied();
            assert!(refused > Some(0), "{system}: {:?}", report.abort_reasons);
        }
    }
}

#[test]
fn a_cut_of_a_given_plan_that_parts_nobody_is_told() {
    let (from, until) = (Nanos::ZERO, Nanos::from_micros(9));
    for (side, vain) in
        [(vec![1], false), (vec![7, 9], true), (vec![], true), (vec![0, 1, 2], true)]
    {
        let side = side.into_iter().map(NodeId).collect();
        let cut = Partition { from, until, side, one_way: false };
        let plan = FaultPlan { partitions: vec![cut], ..FaultPlan::none() };
        let config = config("xenic", "smallbank", "liquidio3", 1);
        let warnings = held(&BenchConfig { fault_plan: Some(plan), ..config }).warnings;
        assert_eq!(warnings.iter().any(|told| told.contains("parts nobody")), vain, "{warnings:?}");
    }
}

/// Xenic over a log device that takes a while, until everything crashes.
fn read_back(seed: u64, syncs_nothing: bool) -> BenchReport {
    let at = Nanos::from_micros(40 + seed % 16 * 10);
    let crash = Crash { scope: CrashScope::All, node: 0, at, restart_after: None };
    let fault_plan = Some(FaultPlan { crashes: vec![crash], ..FaultPlan::none() });
    let workload = ["smallbank", "churn"][seed as usize % 2];
    let on = "liquidio3:persist.latency=5us:persist.per_kib=1us";
    let length = Some(Length::Transactions(5_000));
    let config = config("xenic", workload, on, seed);
    run(&BenchConfig { fault_plan, syncs_nothing, length, ..config }).unwrap().report
}

#[test]
fn what_was_acknowledged_is_read_back_after_a_crash_of_everything() {
    let mut committed = 0;
    for seed in 0..16 {
        let report = read_back(seed, false);
        assert!(report.check.held(), "seed {seed}: {:#?}", report.check.violations);
        assert!(report.check.read_back > Some(0), "seed {seed}");
        committed += report.committed;
    }
    assert!(committed > 100, "{committed}");
}

#[test]
fn a_log_device_that_does_not_sync_what_it_acknowledges_is_caught() {
    let is_read_back = |line: &String| line.starts_with("read back: ");
    assert!((0..16).any(|seed| read_back(seed, true).check.violations.iter().any(is_read_back)));
}
