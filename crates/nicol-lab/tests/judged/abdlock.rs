//! ABDLOCK, by verbs and in software: linearizable under faults and crashes in both worlds, and no
//! lock stays held.

use nicol_bench::bench::{BenchConfig, Length};
use nicol_bench::workloads::WorkloadSpec;
use nicol_core::faults::{CrashScope, FaultPlan};
use nicol_core::units::Nanos;

use crate::support::{crash, few_records, held, short};

const SYSTEMS: [&str; 2] = ["abdlock", "abdlock-software"];
const WORLDS: [&str; 3] = ["liquidio3", "connectx5", "connectx5-40g"];

/// Few blocks, so that operations meet.
fn config(system: &str, on: &str, seed: u64) -> BenchConfig {
    let spec = few_records(4);
    BenchConfig {
        settings: vec!["timeout_us=500".to_owned()],
        client_nodes: 2,
        ..short(system, spec, on, seed)
    }
}

#[test]
fn blocks_are_linearizable_under_lost_messages_and_crashes() {
    for system in SYSTEMS {
        let (mut unknown, mut conflicts, mut committed) = (0, 0, 0);
        for seed in 0..24 {
            let families = if seed % 3 == 0 { "messages" } else { "messages,crashes" };
            let mut config = config(system, WORLDS[seed as usize % 3], seed);
            config.faults = families.parse().unwrap();
            config.client_nodes = if seed % 4 == 0 { 0 } else { 2 };
            let report = held(&config);
            unknown += report.unknown;
            conflicts += report.abort_reasons["conflict"];
            committed += report.committed;
        }
        let seen = unknown > 0 && conflicts > 0 && committed > 5_000;
        assert!(seen, "{system}: {unknown} unknown, {conflicts} conflicts, {committed} committed");
    }
}

#[test]
fn blocks_are_linearizable_on_threads_whose_engines_crash() {
    for system in SYSTEMS {
        let mut committed = 0;
        // On a busy machine an engine may crash before the others have begun.
        let mut seeds = 0..40;
        while seeds.start < 4 || committed <= 50 {
            let seed = seeds
                .next()
                .unwrap_or_else(|| panic!("{system}: {committed} committed in forty runs"));
            let families = ["crashes", "messages,crashes"][seed as usize % 2];
            let mut config = config(system, "threads", seed);
            config.faults = families.parse().unwrap();
            config.threads = Some(1 + seed as usize % 3);
            committed += held(&config).committed;
        }
    }
}

/// AMB-54: a third replica that grants its lock in time is written, too, or released.
#[test]
fn every_replica_that_is_locked_is_written_or_a_quorum() {
    let verbs = ["locked", "quorum"].map(|write_to| {
        for seed in 0..6 {
            let mut config = config("abdlock", WORLDS[seed as usize % 3], seed);
            config.settings.push(format!("write_to={write_to}"));
            config.faults.messages = true;
            held(&config);
        }
        let mut calm = config("abdlock", "connectx5-40g", 1);
        calm.settings.push(format!("write_to={write_to}"));
        (calm.client_nodes, calm.clients) = (1, Some(1));
        held(&calm).verbs_per_txn
    });
    // CAS of three, READ of two, WRITE of three or two, CAS of three.
    assert!((10.9..11.1).contains(&verbs[0]) && (9.9..10.1).contains(&verbs[1]), "{verbs:?}");
}

/// To learn what may be reached is no attempt to lock: nobody backs off for it.
#[test]
fn a_long_back_off_does_not_delay_the_first_attempt() {
    for backoff in ["backoff_us=1", "backoff_us=1000"] {
        let mut config = config("abdlock", "connectx5-40g", 1);
        config.settings.push(backoff.to_owned());
        (config.client_nodes, config.clients) = (1, Some(1));
        config.length = Some(Length::Time(Nanos::from_micros(500)));
        config.warmup = Some(Nanos::ZERO);
        let report = held(&config);
        assert!(report.committed > 20, "{backoff}: {}", report.committed);
    }
}

/// What a dead client has locked its servers release, and others go on.
#[test]
fn locks_of_a_client_that_dies_are_released() {
    for (seed, on) in (0..6).zip(WORLDS.into_iter().cycle()) {
        let mut config = config("abdlock", on, seed);
        config.settings = Vec::new();
        config.length = Some(Length::Time(Nanos::from_millis(60)));
        // Node 3 is the first of the client nodes.
        let crash = crash(CrashScope::Node, 3, 200 + 3 * seed, None);
        config.fault_plan = Some(FaultPlan { crashes: vec![crash], ..FaultPlan::none() });
        let report = held(&config);
        assert!(report.committed > 5_000, "{on}: {}", report.committed);
    }
}

/// A card gives up on a CAS of the lock that has taken effect, and on the release after it, before
/// a cut of the network has healed.
#[test]
fn a_lock_is_released_although_the_card_gave_up_on_its_release() {
    for seed in [62, 73, 77] {
        let spec = WorkloadSpec { records: Some(40), ..WorkloadSpec::named("ycsb") };
        let config = BenchConfig {
            workload: spec,
            faults: "messages,crashes".parse().unwrap(),
            client_nodes: 0,
            clients: Some(8),
            length: Some(Length::Transactions(2_000)),
            ..config("abdlock", "connectx5", seed)
        };
        held(&config);
    }
}
