//! What a report warns of, and settings that are refused.

use nicol_bench::bench::{BenchConfig, Length, run};
use nicol_bench::workloads::WorkloadSpec;
use nicol_core::units::Nanos;

fn warnings(system: &str, on: &str, settings: &[&str]) -> Vec<String> {
    let spec = WorkloadSpec { records: Some(500), ..WorkloadSpec::named("ycsb-t") };
    let config = BenchConfig {
        settings: settings.iter().map(|&setting| setting.to_owned()).collect(),
        host_engines: Some(2),
        nic_engines: Some(2),
        clients: Some(8),
        length: Some(Length::Transactions(50)),
        warmup: Some(Nanos::ZERO),
        ..BenchConfig::new(system, spec, on, 6)
    };
    run(&config).unwrap().report.warnings
}

#[test]
fn what_has_no_room_for_its_records_is_refused_in_words() {
    let refused = |system: &str, on, setting: &str| {
        let spec = WorkloadSpec { records: Some(100), ..WorkloadSpec::named("ycsb") };
        let settings = vec![setting.to_owned()];
        let config = BenchConfig { settings, ..BenchConfig::new(system, spec, on, 6) };
        format!("{:#}", run(&config).err().expect("there is no room"))
    };
    for (system, on, setting) in [
        ("prism-kv", "connectx5-40g", "entries=1"),
        ("pilaf", "connectx5-40g", "entries=1"),
        ("pilaf", "connectx5-40g", "extents=1"),
        ("drtm-kv:a1", "bluefield2", "extents=1"),
        ("drtm-kv:a1", "bluefield2", "spare_buckets=0"),
    ] {
        let error = refused(system, on, setting);
        let (name, _) = setting.split_once('=').unwrap();
        assert!(error.contains("is left for a record") && error.contains(name), "{error}");
    }
    for (system, on, setting) in [
        ("prism-kv", "connectx5-40g", "entries=4294967296"),
        ("pilaf", "connectx5-40g", "extents=4294967296"),
        ("drtm-kv:a1", "bluefield2", "buckets=4294967296"),
        ("drtm-kv:a4", "bluefield2", "spare_buckets=4294967296"),
        ("drtm-kv:a5", "bluefield2", "extents=4294967295"),
    ] {
        let error = refused(system, on, setting);
        let (name, _) = setting.split_once('=').unwrap();
        assert!(error.contains("GB") && error.contains("give fewer"), "{error}");
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn a_report_warns_of_settings_that_are_not_serializable() {
    let warnings = |setting| warnings("xenic", "liquidio3", &[setting]);
    assert_eq!(warnings("faithful=fixed"), [""; 0]);
    assert_eq!(warnings("local_read=paper").len(), 1);
    assert_eq!(warnings("faithful=paper").len(), 2);
}

/// [Xenic21 4.3.4]
#[test]
fn a_report_warns_of_hardware_on_which_offloading_gains_nothing() {
    let warnings = |system, on| warnings(system, on, &[]);
    assert_eq!(warnings("xenic", "liquidio3"), [""; 0]);
    let slow = warnings("xenic", "liquidio3:dma.read_latency=9us");
    assert!(slow.len() == 1 && slow[0].contains("saves no latency"), "{slow:?}");
    for (off_path, own_memory, host_memory, host_rpc) in
        [("bluefield1", "9.9", "16.1", "8.2"), ("stingray", "14.7", "23.9", "14.1")]
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

#[test]
fn minos_with_records_on_some_nodes_is_not_run_where_nodes_come_back() {
    let refusal = |faults: &str, settings: &[&str]| {
        let config = BenchConfig {
            settings: settings.iter().map(|&setting| setting.to_owned()).collect(),
            nodes: 4,
            replicas: 3,
            host_engines: Some(1),
            nic_engines: Some(1),
            clients: Some(2),
            length: Some(Length::Transactions(20)),
            warmup: Some(Nanos::ZERO),
            faults: faults.parse().unwrap(),
            ..BenchConfig::new("minos-b:event", WorkloadSpec::named("ycsb"), "minos-snic", 1)
        };
        run(&config).err().map(|error| format!("{error:#}"))
    };
    for faults in ["crashes", "messages,stalls", "partitions"] {
        let why = refusal(faults, &["sharded=on"]).unwrap_or_default();
        assert!(why.contains("`sharded=on`: with crashes, stalls or partitions"), "{why}");
        assert_eq!(refusal(faults, &[]), None);
    }
    assert_eq!(refusal("messages", &["sharded=on"]), None);
}

/// Each of these would change nothing where it is refused, and does something where it is not.
#[test]
fn settings_that_would_change_nothing_are_refused_in_words() {
    let refused = |system: &str, on: &str, settings: &[&str]| {
        let spec = WorkloadSpec { records: Some(100), ..WorkloadSpec::named("ycsb") };
        let config = BenchConfig {
            settings: settings.iter().map(ToString::to_string).collect(),
            nodes: if system.starts_with("linefs") { 3 } else { 1 },
            replicas: if system.starts_with("linefs") { 3 } else { 1 },
            host_engines: Some(1),
            nic_engines: Some(1),
            clients: Some(2),
            length: Some(Length::Transactions(40)),
            warmup: Some(Nanos::ZERO),
            ..BenchConfig::new(system, spec, on, 6)
        };
        run(&config).err().map(|error| format!("{error:#}"))
    };
    let offpath = "bluefield2";
    for (system, on, setting, beside, taken_by) in [
        ("drtm-kv:a2", offpath, "doorbell_batch=8", None, "drtm-kv:a4"),
        ("drtm-kv:a3", offpath, "doorbell_batch=8", None, "drtm-kv:a1"),
        ("drtm-kv:a5", offpath, "doorbell_batch=8", None, "drtm-kv:a4+a5"),
        ("drtm-kv:a1", offpath, "copies=1", None, "drtm-kv:a4"),
        ("drtm-kv:a5", offpath, "copies=4", None, "drtm-kv:a4+a5"),
        ("drtm-kv:a1", offpath, "cached=5", None, "drtm-kv:a5"),
        ("drtm-kv:a4", offpath, "cached=5", None, "drtm-kv:a4+a5"),
        ("drtm-kv:a4", offpath, "asks_permille=5", None, "drtm-kv:a4+a5"),
        ("drtm-kv:a4", offpath, "kept_by=send", None, "drtm-kv:a5"),
        ("linefs:a2", offpath, "a3_permille=500", None, "linefs:a2+a3"),
        ("linefs:a3", offpath, "compress_ps=0", None, "linefs:a2"),
        ("prism-kv", "connectx5-40g", "refill_us=9", Some("watermark=off"), ""),
        ("prism-rs", "connectx5-40g", "refill_us=9", Some("watermark=off"), ""),
    ] {
        let settings: Vec<&str> = std::iter::once(setting).chain(beside).collect();
        let error = refused(system, on, &settings).unwrap_or_default();
        assert!(error.contains(setting) && error.contains("leave it out"), "{system}: {error}");
        if taken_by.is_empty() {
            assert_eq!(refused(system, on, &[setting, "watermark=5"]), None, "{system}");
        } else {
            assert_eq!(refused(taken_by, on, &settings), None);
        }
    }
    for settings in [&["doorbell_batch=8", "cached=5"][..], &["copies=4", "kept_by=read"]] {
        assert_eq!(refused("drtm-kv:a5", offpath, settings), None, "clients READ then");
    }
}

#[test]
fn what_needs_a_soc_is_refused_on_servers_without_one() {
    let run = |system: &str, on: &str| {
        let spec = WorkloadSpec { records: Some(100), ..WorkloadSpec::named("ycsb") };
        let config = BenchConfig {
            nodes: 1,
            client_nodes: 1,
            replicas: 1,
            host_engines: Some(1),
            clients: Some(2),
            length: Some(Length::Transactions(40)),
            warmup: Some(Nanos::ZERO),
            ..BenchConfig::new(system, spec, on, 6)
        };
        run(&config).err().map(|error| format!("{error:#}"))
    };
    for system in ["drtm-kv:a2", "drtm-kv:a4", "drtm-kv:a5", "drtm-kv:a4+a5", "linefs:a1"] {
        for on in ["connectx6", "server=connectx6,client=bluefield2", "liquidio3"] {
            let error = run(system, on).unwrap_or_default();
            assert!(error.contains("SoC") && error.contains("bluefield2"), "{system}: {error}");
        }
    }
    assert_eq!(run("drtm-kv:a4", "server=bluefield2,client=connectx4"), None);
    assert_eq!(run("drtm-kv:a1", "connectx6"), None, "nothing of it is on the card");
}
