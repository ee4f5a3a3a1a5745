//! Benchmarks on this machine's threads.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use nicol_core::engine::Loss;
use nicol_core::faults::{FaultPlan, LONG_CUT};
use nicol_core::history::History;
use nicol_core::ids::NodeId;
use nicol_core::units::Nanos;
use nicol_core::view::{Role, View};
use nicol_rt::{Clock, LiveCluster, LiveConfig, LiveReport, LogDevice, Views};
use nicol_workload::driver::{RunControl, RunPlan};

use crate::befell::befell;
use crate::binding::Resource;
use crate::built::Build;
use crate::cluster::{Cluster, Loaded};
use crate::config::{BenchConfig, Length};
use crate::judge::{judge, judge_read_back};
use crate::measured::{Measured, waits_in_words};
use crate::observer::Observer;
use crate::refused::refuse;
use crate::report::{BenchRun, Check};
use crate::toll::Toll;
use crate::{hardware, memory, settings, summary};

/// Measured time where the user says nothing.
const SPAN: Nanos = Nanos::from_secs(10);
/// Transactions of the second, recorded run that the serializability checker judges.
const RECORDED: u64 = 200_000;
/// When that run ends at the latest.
const RECORDED_SPAN: Nanos = Nanos::from_secs(10);
/// Time for which messages are lost, doubled, late and damaged: most of the time of a sweep's run,
/// which takes some ten times as long as on modelled hardware.
const FAULTY: Nanos = Nanos::from_millis(200);
/// The factor by which crashes and restarts come later than their plan says, for the same reason.
const SLOWER: u64 = 10;
/// Time that a system whose survivors cannot go on runs for after a crash.
const AFTER_CRASH: Duration = Duration::from_millis(250);
/// Time that the clients of a run under faults may take beyond what a run of its length takes on a
/// busy machine. Clients that have not ended by then never will.
const STUCK_AFTER: Duration = Duration::from_secs(60);
/// The most that a transaction takes on a busy machine, in the mean.
const PER_TRANSACTION: Duration = Duration::from_millis(10);
/// Time for which no operation or attempt may begin or end while clients wait in a run without
/// faults, beyond what settings make them wait. On a busy machine it takes seconds at most.
pub(crate) const SILENCE: Nanos = Nanos::from_secs(30);
/// Interval at which the driver looks whether any client makes progress.
const LOOK: Duration = Duration::from_millis(100);
/// Interval at which the driver looks whether the clients are done.
const POLL: Duration = Duration::from_millis(2);
/// Time that the cluster has to become quiet after the last client.
const SETTLE: Duration = Duration::from_secs(10);

/// Runs a benchmark on threads: a measured run without a history, whose memory and invariants are
/// audited, and then a shorter recorded one for the serializability checker, since recording costs
/// the very time that is measured.
pub(crate) fn run(config: &BenchConfig, build: Build) -> Result<BenchRun> {
    ensure!(
        !settings::change_engines(&config.settings),
        "`aggregation`, `dma_vector`, `dma_async`, `doorbell_batch`: only simulated worlds have them"
    );
    let clients = config.clients_per_node();
    ensure!(clients > 0, refuse("clients", 0, "", "give at least 1 per node"));
    let length = config.length.unwrap_or(Length::Time(SPAN));
    let warmup = config.warmup.unwrap_or(match length {
        Length::Time(span) => span / 10,
        Length::Transactions(_) => Nanos::ZERO,
    });
    // Nobody measures speed under faults: one run is enough, and its history is judged.
    let plan = config.plan(length, warmup, clients, config.is_faulty());
    let built = build(config, None)?;
    let halves = hardware::live_halves(built.halves());
    let view = hardware::live_view(config)?.with_halves(halves);
    let view = view.with_succession(built.succession());
    memory::refuse_engines_beyond_machine(view.engine_ids().count() as u64)?;
    let loaded = built.load(config, &view, plan, clients)?;
    let measured = drive(config, &view, &loaded)?;
    let Loaded { cluster, engines } = loaded;
    let (mut check, mut history) = judge(&cluster, &measured);
    if let Some(media) = &measured.media {
        judge_read_back(&cluster, media, &history, &mut check);
    }
    let mut report = summary::report(config, &cluster, None, &measured, check);
    let decisions = cluster.decisions();
    // The second cluster takes as much memory as the first one, which goes before.
    drop((cluster, engines));
    // Where one run is stuck, the other would be.
    if !config.is_faulty() && config.recorded_run && measured.stuck.is_none() {
        history = record(config, build, (&view, clients), &mut report.check)?;
    }
    if config.turn.is_some() {
        report.warnings.push("times are turns of the thread: they mean nothing".to_owned());
    }
    report.warnings.extend(config.unjudged());
    report.memory = memory::finish(report.memory);
    Ok(BenchRun { report, history, decisions })
}

fn record(
    config: &BenchConfig,
    build: Build,
    (view, clients): (&View, usize),
    check: &mut Check,
) -> Result<History> {
    let recorded = match config.length {
        Some(Length::Transactions(count)) => count.min(RECORDED),
        _ => RECORDED,
    };
    let plan = config.plan(Length::Transactions(recorded), Nanos::ZERO, clients, true);
    let plan = RunPlan { stop_at: RECORDED_SPAN, ..plan };
    // A workload that hands out new records does so from the start.
    let loaded = build(config, None)?.load(config, view, plan, clients)?;
    let untraced = BenchConfig { trace: None, ..config.clone() };
    let measured = drive(&untraced, view, &loaded)?;
    let (mut second, history) = judge(&loaded.cluster, &measured);
    if let Some(media) = &measured.media {
        judge_read_back(&loaded.cluster, media, &history, &mut second);
    }
    check.add(second);
    Ok(history)
}

/// The faults of a run. A plan that was drawn is stretched to the time that runs take here; one
/// that was given holds as it is.
fn planned(config: &BenchConfig, goes_on: bool, returns: bool) -> FaultPlan {
    let mut plan = config.drawn_faults(returns);
    if config.fault_plan.is_none() {
        stretch(&mut plan, config.live_lease());
    }
    for crash in &mut plan.crashes {
        // Others meet silence where a node was, for as long as the run goes on.
        crash.restart_after = crash.restart_after.filter(|_| goes_on);
    }
    plan
}

fn stretch(plan: &mut FaultPlan, lease: Nanos) {
    // Spans are drawn for the simulated lease.
    let longer = lease.0 / nicol_sim::view_service::LEASE.0;
    plan.quiet_after = plan.quiet_after.max(FAULTY);
    for cut in &mut plan.partitions {
        let span = cut.until.since(cut.from);
        if span >= LONG_CUT {
            cut.until = cut.from + span * longer;
            plan.quiet_after = plan.quiet_after.max(cut.until);
        }
    }
    for stall in plan.stalls.iter_mut().filter(|stall| stall.span >= LONG_CUT) {
        stall.span = stall.span * longer;
        plan.quiet_after = plan.quiet_after.max(stall.from + stall.span);
    }
    for crash in &mut plan.crashes {
        crash.at = crash.at * SLOWER;
        crash.restart_after = crash.restart_after.map(|after| after * SLOWER);
    }
}

/// Whether a node may be given up under this plan.
fn gives_up(plan: &FaultPlan, lease: Nanos) -> bool {
    let outlasts = plan.stalls.iter().any(|stall| stall.span >= lease);
    !plan.crashes.is_empty() || !plan.partitions.is_empty() || outlasts
}

/// The time after which the clients of a run under faults are stuck.
fn longest(config: &BenchConfig) -> Duration {
    let span = match config.length.unwrap_or(Length::Time(SPAN)) {
        Length::Time(span) => Duration::from_nanos(span.0),
        Length::Transactions(count) => {
            PER_TRANSACTION.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX))
        }
    };
    span.saturating_add(STUCK_AFTER)
}

/// Looks whether clients give signs of life.
struct Watch {
    limit: Duration,
    looked: Instant,
    /// The time of the last progress, by the clients' clock, and the time since.
    sign: Option<Nanos>,
    silent: Duration,
}

impl Watch {
    fn new(limit: Duration) -> Self {
        Self { limit, looked: Instant::now(), sign: None, silent: Duration::ZERO }
    }

    /// Whether some client waits and none has made progress for too long. Time in which this thread
    /// stood still counts as one look: the others may have stood still as well.
    fn is_silent(&mut self, run: &RunControl) -> bool {
        let since = self.looked.elapsed();
        if since >= LOOK {
            self.looked += since;
            let sign = run.last_sign();
            let goes_on = sign.is_none() || sign != self.sign;
            self.sign = sign;
            self.silent = if goes_on { Duration::ZERO } else { self.silent + since.min(2 * LOOK) };
        }
        self.silent >= self.limit
    }
}

/// The condition under which a run counts as stuck.
enum Bound {
    /// It has not ended by then. Under faults clients wait for time-outs and for what the plan
    /// says.
    End(Duration),
    /// Its clients have made no progress for so long.
    Silence(Duration),
}

impl Bound {
    fn of(config: &BenchConfig, cluster: &Cluster) -> Self {
        if config.is_faulty() {
            return Self::End(longest(config));
        }
        let silence = config.silence.unwrap_or(SILENCE);
        Self::Silence(Duration::from_nanos((silence + cluster.outline.longest_wait).0))
    }
}

/// Runs until every client has ended. If one never does, returns which clients wait. A system whose
/// survivors cannot go on runs for a while after a crash, in which it must not answer wrongly. What
/// has not ended is then stopped: attempts under way end as unknown.
fn run_clients(
    world: &LiveCluster,
    cluster: &Cluster,
    bound: &Bound,
    observer: &mut Observer<'_>,
) -> Result<Option<String>> {
    let (deadline, mut watch) = match *bound {
        Bound::End(limit) => (Instant::now().checked_add(limit), None),
        Bound::Silence(limit) => (None, Some(Watch::new(limit))),
    };
    let mut silent = false;
    let is_over = |at: Option<Instant>| at.is_some_and(|at| Instant::now() >= at);
    let mut stop_at = None;
    let launched = Instant::now();
    let ended = || {
        let now = Nanos(launched.elapsed().as_nanos() as u64);
        observer.pass(now, |epoch| world.view_after(epoch));
        if !cluster.goes_on() && !cluster.is_whole() {
            stop_at.get_or_insert_with(|| Instant::now() + AFTER_CRASH);
        }
        silent = watch.as_mut().is_some_and(|watch| watch.is_silent(&cluster.run));
        cluster.run.finished() || silent || is_over(stop_at) || is_over(deadline)
    };
    world.run_until(ended, POLL)?;
    if cluster.run.finished() {
        return Ok(None);
    }
    let why = match bound {
        Bound::Silence(limit) if silent => {
            format!("no operation or attempt has begun or ended for {} s", limit.as_secs_f64())
        }
        _ => "the run has not ended in time".to_owned(),
    };
    let stuck = (!is_over(stop_at)).then(|| waits_in_words(&why, &cluster.run.waiting()));
    let crash = |node| Loss { node, host: true, nic: true };
    world.crash(&cluster.view.node_ids().map(crash).collect::<Vec<_>>())?;
    Ok(stuck)
}

/// The CPU time of threads that ran engines of servers; `None` if clients ran there, too, or the
/// operating system does not tell it.
fn server_cpu(view: &View, nodes: &[Vec<NodeId>], cpu: &[Option<Duration>]) -> Option<Duration> {
    let serves = |node: &NodeId| view.role(*node) == Some(Role::Server);
    let has_clients = view.nodes_of(Role::Client).next().is_some();
    let apart = |nodes: &Vec<NodeId>| nodes.iter().all(serves) || !nodes.iter().any(serves);
    if !has_clients || !nodes.iter().all(apart) {
        return None;
    }
    let mut servers = nodes.iter().zip(cpu).filter(|(nodes, _)| nodes.iter().all(serves));
    servers.try_fold(Duration::ZERO, |sum, (_, cpu)| Some(sum + (*cpu)?))
}

/// How busy a thread was.
fn thread((number, busy): (usize, &f64)) -> Resource {
    Resource { name: format!("thread {number}"), utilization: *busy, busiest: *busy }
}

fn drive(
    config: &BenchConfig,
    view: &View,
    Loaded { cluster, engines }: &Loaded,
) -> Result<Measured> {
    let planned = || planned(config, cluster.goes_on(), cluster.returns());
    let faults = config.is_faulty().then(planned);
    let live = LiveConfig {
        threads: config.threads,
        clock: config.turn.map_or(Clock::Machine, Clock::Turns),
        // Runs under faults are not measured and stand beside one another, as in a sweep: they must
        // not be pinned to the same cores, nor spin on those that the others wait for.
        pin: !config.is_faulty(),
        spin: !config.is_faulty(),
        seed: config.seed,
        log: config.log_device.clone(),
        // Without crashes or cuts nobody needs views or leases.
        views: match &faults {
            Some(plan) if cluster.goes_on() && gives_up(plan, config.live_lease()) => {
                Views::Service
            }
            _ => Views::Frames,
        },
        faults,
        lease: config.live_lease(),
        trace: config.trace.clone(),
        ..LiveConfig::new(view.clone())
    };
    let started = Instant::now();
    let world = LiveCluster::launch(&live, engines.clone())?;
    let started_s = started.elapsed().as_secs_f64();
    let mut observer = Observer::new(cluster);
    let stuck = run_clients(&world, cluster, &Bound::of(config, cluster), &mut observer)?;
    let wall_s = started.elapsed().as_secs_f64();
    // Where survivors cannot go on, work of theirs may wait for the dead.
    let waits = || stuck.is_some() || !cluster.goes_on() && !cluster.is_whole();
    // What a crash has left is excused by the view that tells of it only.
    let at_rest = || {
        let look = || cluster.is_settled() || waits();
        world.when_views_are_current(look).unwrap_or(false)
    };
    let deadline = Instant::now() + SETTLE;
    world.run_until(|| at_rest() || Instant::now() > deadline, POLL)?;
    let settled = stuck.is_none() && at_rest() && cluster.run.finished();
    // Logs of nodes that went one after the other tell of different times.
    let at_once = live.faults.as_ref().is_none_or(|plan| plan.crashes.is_empty());
    let told = settled && at_once && cluster.run.plan().record;
    let media = (told && config.log_device != LogDevice::Memory).then(|| {
        let of = |node| (node, world.medium_writes(node));
        cluster.view.nodes_of(Role::Server).map(of).collect()
    });
    let LiveReport { busy, cpu, nodes, stats, faults, .. } = world.stop()?;
    let ended = Nanos((wall_s * 1e9) as u64);
    let plan = live.faults.as_ref();
    let primaries_lost = cluster.primaries_lost(plan, config.live_lease());
    let befell = plan.map(|plan| befell(plan, ended, &faults, primaries_lost)).unwrap_or_default();
    // Its clients do not work for as long as a recovery takes.
    let toll = if primaries_lost.drawn > 0 { Toll::Unserved } else { Toll::Nothing };
    let server_cpu = server_cpu(view, &nodes, &cpu);
    Ok(Measured {
        stats,
        resources: busy.iter().enumerate().map(thread).collect(),
        core_time: Vec::new(),
        steps: Default::default(),
        server_cpu,
        settled,
        stuck,
        simulated: None,
        media,
        befell,
        toll,
        membership: observer.end(),
        started_s,
        wall_s,
    })
}

#[cfg(test)]
mod tests {
    use nicol_core::faults::FaultFamilies;

    use super::*;
    use crate::workloads::WorkloadSpec;

    #[test]
    fn a_plan_that_was_given_heals_when_it_says_and_a_drawn_one_lasts_longer() {
        let on = |plan: Option<FaultPlan>| BenchConfig {
            fault_plan: plan,
            faults: FaultFamilies::MESSAGES,
            ..BenchConfig::new("xenic", WorkloadSpec::named("smallbank"), "threads", 1)
        };
        let quiet_after = Nanos::from_millis(1);
        let given = FaultPlan { loss: 1_000_000, quiet_after, ..FaultPlan::none() };
        assert_eq!(planned(&on(Some(given.clone())), true, false), given);
        assert_eq!(planned(&on(None), true, false).quiet_after, FAULTY);
    }
}
