//! MINOS: linearizable under message faults in every model, on the host and offloaded, and what the
//! paper prints otherwise is caught.

use nicol_bench::bench::{BenchConfig, Length, run};
use nicol_bench::workloads::WorkloadSpec;

use crate::support::{each_minos, few_records, held, short};

const MODELS: [&str; 5] = ["synch", "strict", "renf", "event", "scope"];
const PLACES: [&str; 2] = ["minos-b", "minos-o"];

/// Few records, so that operations meet.
fn config(system: &str, on: &str, seed: u64) -> BenchConfig {
    let spec = few_records(2);
    short(system, spec, on, seed)
}

#[test]
fn every_model_is_linearizable_on_the_host_and_offloaded() {
    for place in PLACES {
        for model in MODELS {
            let report = held(&config(&format!("{place}:{model}"), "minos-snic", 1));
            assert_eq!((report.failed, report.unknown), (0, 0), "{place}:{model}");
            assert!(report.committed >= 600);
        }
    }
}

#[test]
fn every_model_is_linearizable_under_message_faults() {
    let (mut committed, mut unknown) = (0, 0);
    for seed in 0..40 {
        let place = PLACES[seed as usize % 2];
        let model = MODELS[seed as usize / 2 % 5];
        let mut config = config(&format!("{place}:{model}"), "minos-snic", seed);
        config.faults.messages = true;
        if seed % 3 == 0 {
            config.settings.push("timeout_us=1000".to_owned());
        }
        let report = held(&config);
        committed += report.committed;
        unknown += report.unknown;
    }
    assert!(committed > 20_000 && unknown > 0, "{committed} {unknown}");
}

/// Each optimisation between MINOS-B and MINOS-O is a value, and so is the size of the queues.
#[test]
fn every_point_between_the_two_is_linearizable() {
    for (seed, settings) in [
        "combined=off",
        "combined=off,broadcast=on",
        "combined=off,batching=on",
        "combined=off,batching=on,broadcast=on",
        "combined=on,batching=off,broadcast=off",
        "combined=on,batching=on,broadcast=off",
        "combined=on,batching=off,broadcast=on",
        "queue_entries=1",
        "queue_entries=unlimited",
    ]
    .iter()
    .enumerate()
    {
        for place in PLACES {
            let model = MODELS[seed % 5];
            let mut config = config(&format!("{place}:{model}"), "minos-snic", seed as u64);
            config.settings = settings.split(',').map(str::to_owned).collect();
            let report = held(&config);
            assert_eq!((report.failed, report.unknown), (0, 0), "{place}:{model} {settings}");
        }
    }
}

/// Records come and go; and a system without a SmartNIC's hardware runs on the testbed of MINOS-B.
/// Of many records some are read and never written: they are no difference between replicas.
#[test]
fn records_are_inserted_and_removed() {
    for (seed, place) in PLACES.into_iter().enumerate() {
        for records in [6, 200] {
            let mut config = config(&format!("{place}:synch"), "minos-b-cluster", seed as u64);
            config.workload =
                WorkloadSpec { records: Some(records), ..WorkloadSpec::named("churn") };
            config.nic_engines = Some(1);
            held(&config);
        }
    }
}

/// A seed of so many in which `erratum`, as printed, is caught.
fn caught(system: &str, on: &str, erratum: &str, seeds: u64) -> Option<u64> {
    (0..seeds).find(|&seed| {
        let mut config = config(system, on, seed);
        config.faults.messages = seed % 2 == 1;
        config.settings = vec!["timeout_us=500".to_owned()];
        held(&config);
        config.settings.push(format!("faithful={erratum}"));
        !run(&config).unwrap().report.check.held()
    })
}

/// AMB-15: two concurrent writes of one node get one timestamp, and replicas diverge.
#[test]
fn timestamps_as_printed_are_caught() {
    assert!(caught("minos-b:synch", "minos-snic", "timestamps", 40).is_some());
}

/// AMB-16: global timestamps go back, and a spin waits for ever.
#[test]
fn global_timestamps_as_printed_are_caught() {
    assert!(caught("minos-b:synch", "minos-snic", "global_timestamps", 40).is_some());
}

/// AMB-19: a write that waits in the vFIFO is acknowledged, and a later one gets an older
/// timestamp. The way to the host is made long, so that updates wait for it.
#[test]
fn a_volatile_timestamp_that_is_set_at_the_drain_is_caught() {
    let slow = "minos-snic:dma.write_latency=20us";
    assert!(caught("minos-o:event", slow, "queued", 40).is_some());
}

/// A SmartNIC with more writes waiting for its queues than it can hold rejects some, of its host
/// and of the network; whoever sent one sends it again, and no client notices.
#[test]
fn a_write_that_is_rejected_is_sent_again() {
    for batching in ["on", "off"] {
        let mut config = config("minos-o:synch", "minos-snic", 3);
        config.workload.records = Some(2_000);
        config.settings = vec!["queue_entries=1".to_owned(), format!("batching={batching}")];
        config.clients = Some(400);
        config.length = Some(Length::Transactions(3_600));
        let report = held(&config);
        assert!(report.counters["smartnic"]["rejected"] > 0, "{:?}", report.counters);
        assert_eq!((report.aborted, report.failed), (0, 0), "{:?}", report.abort_reasons);
    }
}

/// With `when_full=reject` five entries are enough for that, and for all clients in the end.
#[test]
fn a_full_queue_rejects_where_it_may_not_let_wait() {
    each_minos(1, |system, seed| {
        let mut config = config(system, "minos-snic:dma.write_latency=20us", seed);
        config.settings = vec!["when_full=reject".to_owned()];
        (config.clients, config.length) = (Some(20), Some(Length::Transactions(1_200)));
        let report = held(&config);
        let rejected = report.counters["smartnic"]["rejected"];
        assert_eq!(rejected > 0, system.starts_with("minos-o"), "{system}: {rejected}");
        assert_eq!((report.aborted, report.failed, report.unknown), (0, 0, 0), "{system}");
    });
}

/// Hosts, NICs and nodes crash between the rounds of engines that are threads, and return.
#[test]
fn every_model_survives_crashes_on_threads() {
    let (mut crashes, mut runs, mut committing) = (0, 0, 0);
    each_minos(2, |system, seed| {
        let mut config = config(system, "threads", seed);
        config.workload.records = Some(20);
        config.threads = Some(2);
        config.faults = ["crashes", "messages,crashes"][seed as usize % 2].parse().unwrap();
        let report = held(&config);
        crashes += config.drawn_faults(true).crashes.len();
        runs += 1;
        committing += usize::from(report.committed > 0);
    });
    assert!(crashes >= 10, "{crashes}");
    // On a machine that is busy with other work a crash may come before anything is committed.
    assert!(2 * committing > runs, "{committing} of {runs} runs have committed anything");
}

/// The same code with real threads, whose engines share a node's records.
#[test]
fn every_model_is_linearizable_on_threads() {
    for place in PLACES {
        for (seed, model) in MODELS.into_iter().enumerate() {
            let mut config = config(&format!("{place}:{model}"), "threads", seed as u64);
            config.threads = Some(1 + seed % 2);
            config.faults.messages = seed % 2 == 1;
            let report = held(&config);
            assert!(report.committed + report.unknown >= 600, "{place}:{model}");
        }
    }
}
