//! Benchmarks on this machine's threads.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use nicol_core::commit::CommitNode;
use nicol_core::faults::FaultPlan;
use nicol_core::units::Nanos;
use nicol_core::view::View;
use nicol_rt::{LiveCluster, LiveConfig, LiveReport};
use nicol_workload::driver::RunPlan;

use crate::bench::{self, BenchConfig, BenchRun, Built, Cluster, Length, Measured};
use crate::memory;
use crate::report::Resource;
use crate::settings::{self, SystemConfig};

/// Measured time where the user says nothing.
const SPAN: Nanos = Nanos::from_secs(10);
/// Transactions of the second, recorded run that the serializability checker judges.
const RECORDED: u64 = 200_000;
/// When that run ends at the latest.
const RECORDED_SPAN: Nanos = Nanos::from_secs(10);
/// How long messages are lost, doubled, late and damaged: most of the time that a run of a sweep
/// takes, which is some ten times what it takes on modelled hardware.
const FAULTY: Nanos = Nanos::from_millis(200);
/// How often the driver looks whether the clients are done.
const POLL: Duration = Duration::from_millis(2);
/// How long the cluster has to become quiet after the last client.
const SETTLE: Duration = Duration::from_secs(10);

/// Runs a benchmark on threads: a measured run without a history, whose memory and invariants are
/// audited, and then a shorter recorded one for the serializability checker, since recording costs
/// the very time that is measured.
pub(crate) fn run<N: CommitNode<Config: SystemConfig>>(
    config: &BenchConfig,
    built: &Built<N::Config>,
) -> Result<BenchRun> {
    ensure!(
        !settings::change_engines(&config.settings),
        "--set aggregation, dma_vector, dma_async, doorbell_batch: only simulated worlds have them"
    );
    let (host, nic) = (config.host_engines.unwrap_or(1), config.nic_engines.unwrap_or(1));
    let view = View::new(config.nodes, config.replicas, host, nic).map_err(bench::refused_view)?;
    let clients = config.clients_per_node();
    ensure!(clients > 0, "--clients 0: give at least 1 per node");
    let length = config.length.unwrap_or(Length::Time(SPAN));
    let warmup = config.warmup.unwrap_or(match length {
        Length::Time(span) => span / 10,
        Length::Transactions(_) => Nanos::ZERO,
    });
    // Nobody measures speed under faults: one run is enough, and its history is judged.
    let plan = config.plan(length, warmup, clients, config.faults);
    let cluster = Arc::new(config.cluster::<N>(&view, built, plan, clients)?);
    let measured = drive(config, &view, &cluster)?;
    let (check, mut history) = bench::judge(&cluster, measured.settled);
    let mut report = bench::report(config, built, &cluster, None, &measured, check);
    // The second cluster takes as much memory as the first one, which goes before.
    drop(cluster);
    if !config.faults {
        history = record::<N>(config, &view, built, clients, &mut report.check)?;
    }
    report.memory = memory::finish(report.memory);
    Ok(BenchRun { report, history })
}

fn record<N: CommitNode>(
    config: &BenchConfig,
    view: &View,
    built: &Built<N::Config>,
    clients: usize,
    check: &mut crate::report::Check,
) -> Result<Vec<nicol_core::history::first::Event>> {
    let recorded = match config.length {
        Some(Length::Transactions(count)) => count.min(RECORDED),
        _ => RECORDED,
    };
    let plan = config.plan(Length::Transactions(recorded), Nanos::ZERO, clients, true);
    let plan = RunPlan { stop_at: RECORDED_SPAN, ..plan };
    let cluster = Arc::new(config.cluster::<N>(view, built, plan, clients)?);
    let measured = drive(config, view, &cluster)?;
    let (second, history) = bench::judge(&cluster, measured.settled);
    check.serializable = second.serializable;
    check.checked_transactions = second.checked_transactions;
    check.invariants &= second.invariants;
    check.replicas_converge &= second.replicas_converge;
    check.leaked_locks += second.leaked_locks;
    check.violations.extend(second.violations);
    Ok(history)
}

fn drive<N: CommitNode>(
    config: &BenchConfig,
    view: &View,
    cluster: &Arc<Cluster<N>>,
) -> Result<Measured> {
    let live = LiveConfig {
        view: view.clone(),
        threads: config.threads,
        // Runs under faults are not measured and stand beside one another, as in a sweep: they must
        // not be pinned to the same cores, nor spin on those that the others wait for.
        pin: !config.faults,
        spin: !config.faults,
        seed: config.seed,
        log: config.log_device.clone(),
        faults: config
            .faults
            .then(|| FaultPlan { quiet_after: FAULTY, ..FaultPlan::messages(config.seed) }),
    };
    let started = Instant::now();
    let world = LiveCluster::launch(&live, cluster)?;
    world.run_until(|| cluster.run.finished(), POLL)?;
    let wall_s = started.elapsed().as_secs_f64();
    let deadline = Instant::now() + SETTLE;
    world.run_until(|| cluster.is_settled() || Instant::now() > deadline, POLL)?;
    let settled = cluster.is_settled();
    let LiveReport { busy, stats, .. } = world.stop()?;
    let thread = |(number, busy): (usize, &f64)| Resource {
        name: format!("thread {number}"),
        utilization: *busy,
    };
    let resources = busy.iter().enumerate().map(thread).collect();
    Ok(Measured { stats, resources, core_time: Vec::new(), settled, simulated: None, wall_s })
}
