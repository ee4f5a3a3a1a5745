//! Benchmarks in the simulated world.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, ensure};
use nicol_core::engine::Loss;
use nicol_core::faults::{CrashScope, FaultPlan, Partition};
use nicol_core::trace::{Limits, Sink};
use nicol_core::units::Nanos;
use nicol_core::view::Succession;
use nicol_rt::LogDevice;
use nicol_sim::view_service::LEASE;
use nicol_sim::{RunEnd, SimCluster, SimConfig};
use nicol_workload::driver::{Bursts, Load, RunControl, RunPlan};

use crate::befell::befell;
use crate::built::Build;
use crate::bursts;
use crate::cluster::{Cluster, Loaded};
use crate::config::{BenchConfig, Length};
use crate::hardware::Hardware;
use crate::judge::{judge, judge_read_back};
use crate::measured::{Measured, Simulated, waits_in_words};
use crate::observer::Observer;
use crate::refused::refuse;
use crate::report::BenchRun;
use crate::summary;
use crate::system::System;
use crate::toll::Toll;
use crate::trace::{self, StepCost};
use crate::window::Window;

/// Measured time where the user says nothing.
const SPAN: Nanos = Nanos::from_millis(10);
/// Simulated time beyond the one asked for after which a run that has not ended is stuck.
const LIMIT: Nanos = Nanos::from_secs(3_600);
/// The same under message faults, which end early: a client that waits then retries for ever.
const LIMIT_WITH_FAULTS: Nanos = Nanos::from_secs(60);
/// Simulated time after which a run with crashes is stuck: a thousand leases.
const LIMIT_WITH_CRASHES: Nanos = Nanos::from_secs(10);
/// Simulated time in which no operation or attempt of any client begins or ends, after which a run
/// whose messages all arrive is stuck, beyond what settings make operations wait
/// ([`SystemConfig::longest_wait`](crate::settings::SystemConfig::longest_wait)). It is far more
/// than an attempt takes: microseconds, some milliseconds for the largest chunk of a file log, a
/// second at most for a wait for buffers. How many attempts follow one another is bounded by the
/// driver, and each is a sign of life.
const SILENCE: Nanos = Nanos::from_secs(10);
/// Simulated time that a system whose survivors cannot go on runs for after a crash: twice a lease,
/// and some.
const AFTER_CRASH: Nanos = Nanos::from_millis(25);
/// Simulated time that the cluster has to become quiet after the last client.
const SETTLE: Nanos = Nanos::from_secs(10);

/// Runs a benchmark on a profile.
pub(crate) fn run(system: &System, config: &BenchConfig, build: Build) -> Result<BenchRun> {
    ensure!(
        config.log_device == LogDevice::Memory,
        refuse(
            "log_device",
            "",
            "a simulated world has its profile's",
            "leave it out, or run `on` threads"
        )
    );
    ensure!(
        config.lease.is_none(),
        refuse("lease_ms", "", "a simulated lease is 10 ms", "leave it out, or run `on` threads")
    );
    ensure!(
        config.turn.is_none(),
        refuse("turn_us", "", "only `on` threads has a clock of its own", "leave it out")
    );
    let mut hardware = Hardware::of(config, system)?;
    let clients = config.clients_per_node();
    ensure!(clients > 0, refuse("clients", 0, "", "give at least 1 per node"));
    let length = config.length.unwrap_or(Length::Time(SPAN));
    let warmup = config.warmup.unwrap_or(match length {
        Length::Time(span) => span / 10,
        Length::Transactions(_) => Nanos::ZERO,
    });
    let plan = config.plan(length, warmup, clients, config.recorded_run);
    let built = build(config, Some(hardware.profiles[0].cores.nic_memory.value))?;
    let halves = hardware.halves(built.halves());
    hardware.view = hardware.view.with_halves(halves).with_succession(built.succession());
    let loaded = built.load(config, &hardware.view, plan, clients)?;
    let profile = hardware.name(config);
    let measured = simulate(config, hardware, &loaded);
    let cluster = &loaded.cluster;
    let (mut check, history) = judge(cluster, &measured);
    if let Some(media) = &measured.media {
        judge_read_back(cluster, media, &history, &mut check);
    }
    let mut report = summary::report(config, cluster, Some(&profile), &measured, check);
    let (steps, cut) = measured.steps;
    report.steps = steps;
    report.warnings.extend(cut.map(steps_cut));
    report.warnings.extend(config.unjudged());
    Ok(BenchRun { report, history, decisions: cluster.decisions() })
}

/// The longest time of a run, and the longest silence of its clients. Runs that lose messages or
/// nodes wait for time-outs and for what their plan says, so they are bounded as a whole only.
struct Bounds {
    limit: Nanos,
    silence: Option<Nanos>,
}

impl Bounds {
    fn of(config: &BenchConfig, faults: &FaultPlan, longest_wait: Nanos) -> Self {
        let limit = match (gives_up(faults), config.is_faulty()) {
            (true, _) => LIMIT_WITH_CRASHES,
            (false, true) => LIMIT_WITH_FAULTS,
            (false, false) => LIMIT,
        };
        let waits = faults.stalls.iter().map(|stall| stall.span).chain([longest_wait]);
        let silence = waits.fold(SILENCE, Nanos::saturating_add);
        let span = match config.length {
            Some(Length::Time(span)) => span,
            Some(Length::Transactions(_)) | None => Nanos::ZERO,
        };
        let silence = (!faults.touches_messages()).then_some(silence);
        Self { limit: limit.saturating_add(span), silence }
    }
}

/// Looks whether clients give signs of life.
struct Watch<'a> {
    run: &'a RunControl,
    silence: Nanos,
    look_at: Nanos,
}

impl Watch<'_> {
    /// Whether some client waits and none has made progress for too long.
    ///
    /// Cost: looks at every client once in the time that they may be silent, else a comparison.
    fn is_silent(&mut self, now: Nanos) -> bool {
        if now < self.look_at {
            return false;
        }
        // While nobody has anything under way, no sign is missing.
        let last = self.run.last_sign().unwrap_or(now);
        self.look_at = last.saturating_add(self.silence);
        now >= self.look_at
    }
}

/// Runs until every client has ended. If one never does, returns which clients wait. A system whose
/// survivors cannot go on runs for a while after a crash, in which it must not answer wrongly. What
/// has not ended is then stopped: attempts under way end as unknown.
fn run_clients(
    world: &SimCluster,
    cluster: &Cluster,
    bounds: &Bounds,
    (window, observer): (&mut Window<'_>, &mut Observer<'_>),
) -> Option<String> {
    let run = &*cluster.run;
    let mut watch = bounds.silence.map(|silence| Watch { run, silence, look_at: silence });
    let (mut stop_at, mut silent) = (None, false);
    let stops = !cluster.goes_on();
    let mut ended = |now: Nanos| {
        window.pass(now);
        observer.pass(now, |epoch| world.view_after(epoch));
        if stops && !cluster.is_whole() {
            stop_at.get_or_insert(now + AFTER_CRASH);
        }
        silent = watch.as_mut().is_some_and(|watch| watch.is_silent(now));
        silent || run.finished() || stop_at.is_some_and(|at| now >= at)
    };
    let ran = world.run_until(&mut ended, bounds.limit);
    let why = match ran {
        RunEnd::Done if silent && !run.finished() => {
            let silence = bounds.silence.unwrap_or_default();
            format!("no operation or attempt has begun or ended for {silence}")
        }
        RunEnd::Done => {
            if !run.finished() {
                for node in cluster.view.node_ids() {
                    world.crash(Loss { node, host: true, nic: true });
                }
            }
            return None;
        }
        RunEnd::Idle => "nothing is left that could happen".to_owned(),
        RunEnd::Limit => "the run has not ended in time".to_owned(),
    };
    Some(waits_in_words(&format!("{why} (it is {})", world.now()), &run.waiting()))
}

/// Whether a node may be given up under this plan.
fn gives_up(plan: &FaultPlan) -> bool {
    let outlasts = plan.stalls.iter().any(|stall| stall.span >= LEASE);
    !plan.crashes.is_empty() || !plan.partitions.is_empty() || outlasts
}

/// Whether a crash of everything is the first fault that takes a node down.
fn is_whole_until_all(plan: &FaultPlan) -> bool {
    let first = plan.crashes.iter().min_by_key(|crash| crash.at);
    let short = |cut: &Partition| cut.until.since(cut.from) < LEASE;
    first.is_some_and(|crash| crash.scope == CrashScope::All)
        && plan.partitions.iter().all(short)
        && plan.stalls.iter().all(|stall| stall.span < LEASE)
}

/// Lets a closed load of so many operations last until the nodes that `plan` takes are lost, and
/// the others have recovered.
fn spread_load(plan: &FaultPlan, cluster: &Cluster) {
    let run = cluster.run.plan();
    if let (Some(each), Load::Closed) = (run.operations_per_client, run.load) {
        let operations = each * u64::from(run.clients);
        cluster.run.work_in(Bursts::new(&bursts::starts(plan), operations));
    }
}

/// Events of a run whose steps are told.
const STEP_EVENTS: u64 = 10_000_000;

/// Records the measured time.
fn steps_sink(plan: &RunPlan) -> Arc<Sink> {
    Sink::new(Limits { events: STEP_EVENTS, window: plan.warmup_until..plan.stop_at })
}

/// The costs of steps by transaction that has committed in the measured time, and from when on they
/// are missing.
fn told_steps(sink: &Sink, cluster: &Cluster) -> (Vec<StepCost>, Option<Nanos>) {
    let recorded = sink.take();
    let result = cluster.run.result();
    let committed = result.kinds.iter().map(|kind| kind.committed_in_window).sum();
    (trace::steps(&recorded, committed), recorded.full_at)
}

/// Whether nothing is left to do, or what is left waits for the dead of a system whose survivors
/// cannot go on.
fn becomes_quiet(world: &SimCluster, cluster: &Cluster) -> bool {
    let limit = world.now().saturating_add(SETTLE);
    let waits = !cluster.goes_on() && !cluster.is_whole();
    loop {
        // A task that waits for a timer does not keep the world from settling: ask the memory
        // first. What is under way may lock once more, for a node whose loss only the next view
        // tells.
        let waited = world.run_until(&mut |_| waits || cluster.is_settled(), limit);
        let settled = world.settle(limit);
        if waits || cluster.is_settled() || waited != RunEnd::Done || settled == RunEnd::Limit {
            return waits || settled != RunEnd::Limit && cluster.is_settled();
        }
    }
}

/// The warning that steps are told of a part of the measured time only.
fn steps_cut(at: Nanos) -> String {
    format!(
        "steps are told up to {:.6} s only, and by all transactions: there was no room for more events; measure \
         for a shorter time",
        at.as_secs_f64()
    )
}

/// Runs the simulation. `cargo xtask instructions` counts what is executed in here, by this name.
#[inline(never)]
fn simulate(
    config: &BenchConfig,
    hardware: Hardware,
    Loaded { cluster, engines }: &Loaded,
) -> Measured {
    let mut sim = SimConfig::mixed(hardware.view, hardware.profiles, config.seed);
    sim.faults = config.drawn_faults(cluster.returns());
    let steps = config.steps.then(|| steps_sink(cluster.run.plan()));
    sim.trace = steps.clone().or_else(|| config.trace.clone());
    sim.syncs_nothing = config.syncs_nothing;
    // Without crashes, cuts or pauses nobody needs views or leases, and no figure moves.
    sim.view_service = cluster.goes_on() && gives_up(&sim.faults);
    if !cluster.goes_on() {
        // Others meet silence where a node was, for as long as the run goes on.
        sim.faults.crashes.iter_mut().for_each(|crash| crash.restart_after = None);
    }
    cluster.expect_back(&sim.faults);
    // Elsewhere a lost shard is refused, or its node does its part of the load when it comes back.
    if sim.view_service && cluster.view.succession() == Succession::Backups {
        spread_load(&sim.faults, cluster);
    }
    let memory_is_durable = sim.profiles.iter().any(|profile| !profile.capabilities().log_device);
    cluster.outline.engine.apply(&mut sim.tuning);
    let bounds = Bounds::of(config, &sim.faults, cluster.outline.longest_wait);
    let plan = sim.faults.clone();
    let started = Instant::now();
    let world = SimCluster::new(sim);
    world.start(engines.clone());
    let started_s = started.elapsed().as_secs_f64();
    let mut window = Window::of(&world, cluster);
    let mut observer = Observer::new(cluster);
    let stuck = run_clients(&world, cluster, &bounds, (&mut window, &mut observer));
    let measured_until = world.now();
    let resources = window.resources();
    // The measured figures end with the clients; what follows only empties logs and queues.
    let report = world.report();
    let lost = cluster.primaries_lost(Some(&plan), LEASE);
    let befell = befell(&plan, measured_until, &report.faults, lost);
    let quiet = stuck.is_none() && becomes_quiet(&world, cluster);
    observer.pass(world.now(), |epoch| world.view_after(epoch));
    // Logs of nodes that went one after the other tell of different times.
    let at_once = is_whole_until_all(&plan) && cluster.survivors().next().is_none();
    let media = (at_once && !memory_is_durable).then(|| {
        let of = |node| (node, world.medium_writes(node));
        cluster.view.node_ids().map(of).collect()
    });
    let mut measured = Measured {
        media,
        steps: Default::default(),
        stats: report.stats,
        resources,
        core_time: report.spent,
        server_cpu: None,
        settled: quiet,
        stuck,
        simulated: Some(Simulated {
            time: report.simulated,
            events: world.report().events,
            digest: world.report().digest,
        }),
        befell,
        toll: Toll::of(&plan, &cluster.view, LEASE),
        membership: observer.end(),
        started_s,
        wall_s: started.elapsed().as_secs_f64(),
    };
    if let Some(sink) = steps {
        // What engines still keep is handed over when they end.
        drop(world);
        measured.steps = told_steps(&sink, cluster);
    }
    measured
}
