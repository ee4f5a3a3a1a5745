//! The ways that a Xenic transaction may take: who takes which, what each saves, and that each
//! keeps every promise. [Xenic21 4.2.2 to 4.2.4, 5.7]

use nicol_core::units::Nanos;
use nicol_lab::bench::{BenchConfig, Length, run};
use nicol_lab::report::BenchReport;
use nicol_lab::workloads::WorkloadSpec;

fn config(workload: &str, records: u64, settings: &[&str], seed: u64) -> BenchConfig {
    let spec = WorkloadSpec {
        name: workload.to_owned(),
        records: Some(records),
        ..WorkloadSpec::default()
    };
    BenchConfig {
        settings: settings.iter().map(|&setting| setting.to_owned()).collect(),
        host_engines: Some(2),
        nic_engines: Some(2),
        clients: Some(8),
        length: Some(Length::Transactions(1_000)),
        warmup: Some(Nanos::ZERO),
        ..BenchConfig::new("xenic", spec, "liquidio3", seed)
    }
}

fn held(config: &BenchConfig) -> BenchReport {
    let report = run(config).unwrap().report;
    let (seed, settings) = (config.seed, &config.settings);
    assert!(report.check.held(), "seed {seed}, {settings:?}: {:#?}", report.check.violations);
    report
}

#[test]
fn a_way_that_is_switched_off_is_taken_by_nobody() {
    for (setting, paths) in [
        ("multi_hop=off", &["multi_hop"][..]),
        ("combined_ops=off", &["multi_hop"]),
        ("execute_at=host", &["multi_hop"]),
        ("execute_at=nic", &["local_write", "local_read"]),
        ("local_paths=off", &["local_write", "local_read"]),
    ] {
        let report = held(&config("smallbank", 500, &[setting], 2));
        for (&path, &count) in &report.paths {
            assert_eq!(count == 0, paths.contains(&path), "{setting}: {path} {count}");
        }
    }
}

/// One client per node, so that hardly anything waits.
#[test]
fn a_multi_hop_transaction_saves_messages_and_time() {
    let measure = |multi_hop: &str| {
        let mut config = config("smallbank", 500, &["local_paths=off", multi_hop], 3);
        config.clients = Some(1);
        let report = held(&config);
        (report.messages_per_txn, report.latency_us.p50)
    };
    let (with, without) = (measure("multi_hop=on"), measure("multi_hop=off"));
    assert!(with.0 < without.0 && with.1 < without.1, "{with:?} against {without:?}");
}

#[test]
fn separate_requests_cost_messages() {
    let messages = |combined: &str| {
        let settings = ["multi_hop=off", "local_paths=off", combined];
        held(&config("smallbank", 500, &settings, 4)).messages_per_txn
    };
    let (combined, separate) = (messages("combined_ops=on"), messages("combined_ops=off"));
    assert!(combined + 1.0 < separate, "{combined} against {separate}");
}

/// Shipping leaves one exchange between a host and its NIC: the writes' exchange is saved.
#[test]
fn execution_on_the_nic_leaves_one_crossing_of_pcie() {
    let messages = |place: &str| {
        let mut config = config("ycsb-t", 500, &["local_paths=off", "multi_hop=off", place], 7);
        (config.nodes, config.replicas, config.clients) = (1, 1, Some(1));
        config.workload.read_percent = Some(0);
        held(&config).messages_per_txn
    };
    let saved = messages("execute_at=host") - messages("execute_at=nic");
    assert!((saved - 2.0).abs() < 0.01, "{saved}");
}

#[test]
fn a_printed_local_read_crosses_nothing_and_a_strict_one_crosses_pcie_once() {
    for (setting, messages) in [("local_read=paper", 0.0), ("local_read=strict", 2.0)] {
        let mut config = config("ycsb-t", 500, &[setting], 5);
        (config.nodes, config.replicas) = (1, 1);
        config.workload.read_percent = Some(100);
        let report = held(&config);
        assert_eq!(report.paths["local_read"], report.committed);
        assert_eq!(report.messages_per_txn, messages, "{setting}");
        assert_eq!(report.dma_per_txn, 0.0, "{setting}");
    }
}

/// A request and its reply: the ack of the log record before needs no frame of its own.
#[test]
fn log_acks_travel_with_requests() {
    let mut config = config("ycsb-t", 500, &[], 8);
    (config.nodes, config.replicas, config.clients) = (1, 1, Some(1));
    config.workload.read_percent = Some(0);
    let report = held(&config);
    assert_eq!(report.paths["local_write"], report.committed);
    let (messages, frames) = (report.messages_per_txn, report.frames_per_txn);
    assert!(messages > 2.9, "every record is acknowledged: {messages}");
    assert!(frames < 2.1, "hardly any ack travels alone: {frames}");
}

#[test]
fn a_report_warns_of_settings_that_are_not_serializable() {
    let warnings = |setting: &str| {
        let mut config = config("ycsb-t", 500, &[setting], 6);
        config.length = Some(Length::Transactions(50));
        run(&config).unwrap().report.warnings
    };
    assert_eq!(warnings("faithful=fixed"), [""; 0]);
    assert_eq!(warnings("local_read=paper").len(), 1);
    assert_eq!(warnings("faithful=paper").len(), 2);
}

/// [Xenic21 4.3.4]
#[test]
fn a_report_warns_of_hardware_on_which_offloading_gains_nothing() {
    let warnings = |system: &str, on: &str| {
        let mut config = config("ycsb-t", 500, &[], 6);
        config.length = Some(Length::Transactions(50));
        (config.system, config.on) = (system.into(), on.into());
        run(&config).unwrap().report.warnings
    };
    assert_eq!(warnings("xenic", "liquidio3"), [""; 0]);
    let slow = warnings("xenic", "liquidio3:dma.read_latency=9us");
    assert!(slow.len() == 1 && slow[0].contains("saves no latency"), "{slow:?}");
    for (off_path, own_memory, host_memory, host_rpc) in
        [("bluefield1", "9.1", "15.3", "7.0"), ("stingray", "13.9", "23.1", "12.9")]
    {
        let found = warnings("xenic", off_path);
        let figures = format!(
            "on {off_path} the NIC saves no latency: it answers in {own_memory} us from its own memory \
             and in {host_memory} us from the host's, a host RPC takes {host_rpc} us"
        );
        assert_eq!(found, [figures]);
        assert_eq!(warnings("drtm-h", off_path), [""; 0], "it leaves the NIC cores alone");
    }
    let none = warnings("xenic", "connectx5");
    assert!(none.len() == 1 && none[0].contains("has no NIC cores"), "{none:?}");
    assert_eq!(warnings("drtm-h", "connectx5"), [""; 0]);
}
