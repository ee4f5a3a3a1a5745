//! Clusters whose nodes differ: in what they are for, and in their hardware; and large ones.

use nicol_bench::bench::{BenchConfig, BenchRun, Length, run};
use nicol_bench::memory::Resident;
use nicol_bench::workloads::WorkloadSpec;
use nicol_core::faults::FaultFamilies;
use nicol_core::units::Nanos;

/// Three servers, and two nodes for clients alone.
fn apart(system: &str, workload: &str, on: &str) -> BenchConfig {
    let mut spec = WorkloadSpec::named(workload);
    spec.shrink();
    BenchConfig {
        client_nodes: 2,
        host_engines: Some(2),
        nic_engines: Some(1),
        clients: Some(6),
        length: Some(Length::Transactions(600)),
        warmup: Some(Nanos::ZERO),
        ..BenchConfig::new(system, spec, on, 3)
    }
}

fn held(config: &BenchConfig) -> BenchRun {
    let ran = run(config).unwrap();
    let (system, on, violations) = (&config.system, &config.on, &ran.report.check.violations);
    assert!(ran.report.check.held(), "{system} on {on}: {violations:#?}");
    ran
}

#[test]
fn clients_run_on_nodes_that_hold_no_shard() {
    for (system, workload, on) in [
        ("xenic", "smallbank", "liquidio3"),
        ("xenic", "churn", "liquidio3"),
        ("farm", "smallbank", "connectx5"),
        ("drtm-h", "ycsb-t", "connectx5"),
        ("drtm-r", "retwis", "connectx5"),
    ] {
        let config = apart(system, workload, on);
        let report = held(&config).report;
        assert!(report.committed > 300, "{system} under {workload}: {}", report.committed);
        // Every client is on the last two nodes; clients of a server would be more.
        assert_eq!((report.nodes, report.client_nodes, report.clients_per_node), (3, 2, 6));
        let history = held(&BenchConfig { clients: Some(1), ..config }).history;
        let clients: std::collections::BTreeSet<_> =
            history.operations.iter().map(|operation| operation.client).collect();
        assert_eq!(clients.len(), 2, "{system}: one client on each of two nodes");
    }
}

#[test]
fn clients_run_on_threads_apart_from_the_shards() {
    for system in ["xenic", "fasst"] {
        let mut config = apart(system, "smallbank", "threads");
        (config.host_engines, config.threads) = (Some(1), Some(2));
        assert!(held(&config).report.committed > 300, "{system}");
        // Frames between nodes are lost, doubled and late.
        config.faults = FaultFamilies::MESSAGES;
        held(&config);
    }
}

#[test]
fn servers_and_clients_may_have_different_hardware() {
    let mut config = apart("xenic", "smallbank", "server=liquidio3,client=connectx5");
    config.faults = FaultFamilies::MESSAGES;
    let report = held(&config).report;
    assert_eq!(report.profile.as_deref(), Some("server=liquidio3,client=connectx5"));
    held(&apart("drtm-h", "smallbank", "0-2=connectx5,client=liquidio3"));
}

#[test]
fn transactions_that_need_their_own_node_s_trees_are_refused_in_words() {
    for workload in ["churn-ordered", "tpcc"] {
        let refused = run(&apart("xenic", workload, "liquidio3")).err().unwrap().to_string();
        assert!(refused.starts_with("`client_nodes` 2") && refused.contains(workload), "{refused}");
    }
}

/// 1,024 nodes with an engine on either side and a client each take less than 4 GB.
fn a_thousand_nodes_run(system: &str, settings: &[&str]) {
    let before = Resident::read().map(|resident| resident.now);
    let config = BenchConfig {
        nodes: 1_024,
        host_engines: Some(1),
        nic_engines: Some(1),
        clients: Some(1),
        length: Some(Length::Transactions(1_024)),
        warmup: Some(Nanos::ZERO),
        settings: settings.iter().map(|&setting| setting.to_owned()).collect(),
        ..BenchConfig::new(
            system,
            WorkloadSpec { records: Some(20), ..WorkloadSpec::named("smallbank") },
            "liquidio3",
            1,
        )
    };
    let report = held(&config).report;
    assert!(report.committed > 900, "{}", report.committed);
    let grown =
        Resident::read().zip(before).map(|(after, before)| after.peak.saturating_sub(before));
    assert!(grown.is_none_or(|grown| grown < 4 << 30), "{grown:?} bytes");
}

#[test]
fn a_thousand_nodes_start_run_and_settle() {
    a_thousand_nodes_run("xenic", &["log_bytes=8192", "index_objects=64"]);
}

/// Its host engines write logs at one another, of which a thousand nodes could have a million.
#[test]
fn a_thousand_nodes_of_an_rdma_system_have_only_the_logs_that_they_use() {
    a_thousand_nodes_run("farm", &[]);
}
