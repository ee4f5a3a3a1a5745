//! Puts a run's parts into a report.

use nicol_core::ids::Side;
use nicol_core::units::Nanos;
use nicol_sim::Spending;
use nicol_workload::driver::{Counts, KindResult, Latencies, RunPlan, RunResult};

use crate::binding::Binding;
use crate::cluster::Cluster;
use crate::config::{BenchConfig, THREADS};
use crate::family::Addition;
use crate::measured::Measured;
use crate::memory;
use crate::report::{BenchReport, Check, CoreTime, Deferred, Kind, Latency, SCHEMA};

/// The report of a run.
pub(crate) fn report(
    config: &BenchConfig,
    cluster: &Cluster,
    profile: Option<&str>,
    measured: &Measured,
    check: Check,
) -> BenchReport {
    let result = cluster.run.result();
    let whole = result.whole;
    let committed_ever = whole.committed.max(1) as f64;
    let throughput = result.throughput_per_s();
    let (stats, simulated) = (&measured.stats, measured.simulated.as_ref());
    let server_cpu = measured.server_cpu.map(|cpu| cpu.as_secs_f64() / committed_ever);
    let mut counters = cluster.counters();
    let Addition { fields, lines, warnings } = cluster.judge.report(&counters);
    BenchReport {
        schema: SCHEMA,
        workload: cluster.outline.name.to_owned(),
        system: config.system.clone(),
        world: if profile.is_some() { "simulated" } else { THREADS },
        profile: profile.map(str::to_owned),
        warnings: [&cluster.outline.warnings[..], &warnings[..], overload(&result).as_slice()]
            .concat(),
        nodes: config.nodes,
        client_nodes: config.client_nodes,
        start_us_per_node: measured.started_s * 1e6 / cluster.view.nodes() as f64,
        replicas: config.replicas,
        host_engines: cluster.view.engines_most(Side::Host),
        nic_engines: cluster.view.engines_most(Side::Nic),
        clients_per_node: cluster.clients_per_node,
        load: if config.rate.is_some() { "open" } else { "closed" },
        rate_per_s: config.rate,
        seed: config.seed,
        faults: faults(config),
        befell: measured.befell.clone(),
        toll: measured.toll,
        milestones: measured.membership.0.clone(),
        planned: planned(cluster.run.plan()),
        done: whole.committed + whole.refused,
        log_device: profile.map_or(config.log_device.name(), |_| "profile"),
        committed: result.kinds.iter().map(|kind| kind.committed_in_window).sum(),
        due_committed: result.window.committed,
        // A refusal is its operation's last attempt, and counts below.
        aborted: result.window.aborted() - result.window.refused,
        unknown: result.window.unknown,
        refused: result.window.refused,
        failed: result.window.failed,
        abort_reasons: cluster.judge.aborts().iter().copied().zip(result.window.aborts).collect(),
        paths: counters.remove("paths").unwrap_or_default(),
        counters,
        throughput_per_s: throughput,
        throughput_per_node_per_s: throughput / config.nodes as f64,
        latency_us: latency(&result.latency()),
        kinds: kinds(&result),
        messages_per_txn: stats.messages_sent as f64 / committed_ever,
        bytes_per_txn: stats.frame_bytes_sent as f64 / committed_ever,
        frames_per_txn: stats.frames_sent as f64 / committed_ever,
        dma_per_txn: (stats.dma_reads + stats.dma_writes) as f64 / committed_ever,
        verbs_per_txn: stats.verbs as f64 / committed_ever,
        binding: Binding::of(&measured.resources, aborts_per_commit(&result)),
        resources: measured.resources.clone(),
        core_time: core_time(&measured.core_time, committed_ever),
        steps: Vec::new(),
        server_cpu_us: server_cpu.map(|seconds| seconds * 1e6),
        per_server_cpu_s: server_cpu.map(f64::recip),
        memory: memory::finish(cluster.memory),
        check,
        fields,
        lines,
        trace_digest: simulated.map(|simulated| format!("{:016x}", simulated.digest)),
        events: simulated.map(|simulated| simulated.events),
        simulated_s: simulated.map(|simulated| simulated.time.as_secs_f64()),
        wall_s: measured.wall_s,
        events_per_wall_s: simulated.map(|simulated| simulated.events as f64 / measured.wall_s),
        simulated_to_wall: simulated
            .map(|simulated| simulated.time.as_secs_f64() / measured.wall_s),
    }
}

/// The families of faults, or that they were given one by one.
fn faults(config: &BenchConfig) -> String {
    config.fault_plan.as_ref().map_or_else(|| config.faults.to_string(), |_| "plan".to_owned())
}

fn planned(plan: &RunPlan) -> Option<u64> {
    plan.operations_per_client.map(|each| each * u64::from(plan.clients))
}

/// The warning of an open loop in which many transactions that were due were not begun: what the
/// others took says little then.
fn overload(result: &RunResult) -> Option<String> {
    let (overdue, due) = (result.overdue, result.whole.issued + result.overdue);
    (overdue > due / 100).then(|| {
        format!(
            "overloaded: {overdue} of {due} transactions that were due had not begun at the end; latency \
             is that of transactions that began in the measured time"
        )
    })
}

/// Aborted attempts to a commit, of the operations that were due in the measured time.
fn aborts_per_commit(result: &RunResult) -> f64 {
    let Counts { committed, refused, .. } = result.window;
    (result.window.aborted() - refused) as f64 / committed.max(1) as f64
}

fn core_time(spent: &[Spending], transactions: f64) -> Vec<CoreTime> {
    let used = spent.iter().filter(|spent| spent.time > Nanos::ZERO);
    let time = |spent: &Spending| CoreTime {
        side: spent.side.name(),
        on: spent.on,
        ns_per_txn: spent.time.0 as f64 / transactions,
    };
    used.map(time).collect()
}

fn kinds(result: &RunResult) -> Vec<Kind> {
    let deferred = |answers: &Latencies| {
        let answers = answers.histogram();
        Deferred { answered: answers.len(), answer_us: latency(&answers) }
    };
    let kind = |kind: &KindResult| Kind {
        name: kind.name,
        committed: kind.committed_in_window,
        latency_us: latency(&kind.latency.histogram()),
        deferred: (!kind.answers.is_empty()).then(|| deferred(&kind.answers)),
    };
    result.kinds.iter().map(kind).collect()
}

fn latency(histogram: &hdrhistogram::Histogram<u64>) -> Latency {
    let is_empty = histogram.is_empty();
    let us = |nanos: f64| if is_empty { f64::NAN } else { nanos / 1e3 };
    let at = |quantile: f64| us(histogram.value_at_quantile(quantile) as f64);
    Latency {
        p50: at(0.5),
        p90: at(0.9),
        p95: at(0.95),
        p99: at(0.99),
        p999: at(0.999),
        p9999: at(0.9999),
        max: us(histogram.max() as f64),
        mean: us(histogram.mean()),
    }
}

#[cfg(test)]
mod tests {
    use nicol_core::units::Nanos;
    use nicol_workload::driver::Latencies;
    use serde_json::Value;

    #[test]
    fn no_samples_have_no_percentiles() {
        let mut latencies = Latencies::default();
        let json = |latencies: &Latencies| {
            let told = serde_json::to_value(super::latency(&latencies.histogram())).unwrap();
            told.as_object().unwrap().values().cloned().collect::<Vec<_>>()
        };
        assert_eq!(json(&latencies), vec![Value::Null; 8]);
        latencies.record(Nanos(1_000));
        assert_eq!(json(&latencies), vec![Value::from(1.0); 8]);
    }
}
