//! Schedulers in front of an engine, or of the coordinators of a node: what may be set in them.

use anyhow::{Result, ensure};
use nicol_schedule::{
    Completion, Kind, Planes, Policy, Ranking, RpcPath, Sabotage, ScheduleConfig, WORKERS_MAX,
};

use crate::config::BenchConfig;
use crate::family::Counters;
use crate::hardware;
use crate::refused::{Unfit, refuse};
use crate::settings::{Setting, micros, numbers, words};

/// The names of the schedulers.
pub const SCHEDULERS: [(&str, Kind); 6] = [
    ("alnico", Kind::Alnico),
    ("alnico-cpu-2", Kind::AlnicoCpu2),
    ("alnico-cpu-n", Kind::AlnicoCpuN),
    ("static-partition", Kind::StaticPartition),
    ("strife", Kind::Strife),
    ("round-robin", Kind::RoundRobin),
];

/// Ways to break a scheduler on purpose, so that a run can show that a request which is lost or
/// mixed up is noticed.
pub(super) const SABOTAGES: [(&str, Sabotage); 5] = [
    ("refuses_silently", Sabotage::RefusesSilently),
    ("drops_when_full", Sabotage::DropsWhenFull),
    ("loses_queue", Sabotage::LosesQueue),
    ("drops_before_vectors", Sabotage::DropsBeforeVectors),
    ("executes_old_data", Sabotage::ExecutesOldData),
];

/// The settings of a scheduler, wherever it stands.
pub(super) fn settings() -> Vec<Setting<ScheduleConfig>> {
    type It = ScheduleConfig;
    let most = WORKERS_MAX as u64 - 1;
    vec![
        Setting::new(
            "rpc",
            words([("two-writes", RpcPath::TwoWrites), ("one-message", RpcPath::OneMessage)]),
            |to: &mut It| &mut to.path,
        )
        .help("how a request reaches alnico: data to the host and vector to the card, or both through it")
        .then(|to| of(|kind| kind == Kind::Alnico, to)),
        Setting::new(
            "ranking",
            words([("artifact", Ranking::Artifact), ("improved", Ranking::Improved)]),
            |to: &mut It| &mut to.ranking,
        )
        .help("how alnico breaks ties, and when its counters take effect")
        .then(weighs),
        Setting::new("planes", words([("1", Planes::One), ("2", Planes::Two)]), |to: &mut It| {
            &mut to.planes
        })
        .help("2: alnico tells reads from writes")
        .then(weighs),
        Setting::new(
            "completion",
            words([("reply", Completion::Reply), ("slot", Completion::Slot)]),
            |to: &mut It| &mut to.completion,
        )
        .help("when alnico learns that a request is done")
        .then(counts),
        Setting::new(
            "publish",
            words([
                ("always", Policy::Always),
                ("on-change", Policy::OnChange),
                ("never", Policy::Never),
            ]),
            |to: &mut It| &mut to.policy,
        )
        .help("which vectors alnico's software publishes; never: the shortest queue alone")
        .then(weighs),
        Setting::new("feedback_us", micros(1..=10_000_000), |to: &mut It| &mut to.feedback)
            .help("how often alnico's software computes vectors")
            .then(weighs),
        Setting::new("window", numbers(1..=1 << 20), |to: &mut It| &mut to.window)
            .help("aborts that a worker remembers, on which alnico's vectors rest")
            .then(weighs),
        Setting::new("reserved", numbers(0..=most), |to: &mut It| &mut to.reserved)
            .help("workers reserved for long transactions (TPC-C: Delivery)")
            .then(|to| of(|kind| !kind.batches(), to)),
        Setting::new("at_a_time", numbers(1..=64), |to: &mut It| &mut to.at_a_time)
            .help("requests that a worker executes at a time"),
        Setting::new("batch", numbers(1..=1 << 20), |to: &mut It| &mut to.batch)
            .help("most requests of a batch of strife")
            .then(batches),
        Setting::new("batch_us", micros(1..=1 << 30), |to: &mut It| &mut to.batch_time)
            .help("the time after which a batch of strife is closed")
            .then(batches),
    ]
}

/// That the scheduler compares requests by their features.
fn weighs(schedule: &mut ScheduleConfig) -> Result<(), Unfit> {
    of(Kind::weighs_features, schedule)
}

/// That the scheduler gathers requests in batches.
fn batches(schedule: &mut ScheduleConfig) -> Result<(), Unfit> {
    of(Kind::batches, schedule)
}

/// That it counts for something when a request is done. A batch of Strife ends with its requests,
/// whatever counts.
fn counts(schedule: &mut ScheduleConfig) -> Result<(), Unfit> {
    of(|kind| kind.weighs_features() || kind.batches(), schedule)
}

/// That the scheduler is one of those that have a setting; one that it does not have is an error,
/// not ignored.
fn of(have: fn(Kind) -> bool, schedule: &ScheduleConfig) -> Result<(), Unfit> {
    if have(schedule.kind) {
        return Ok(());
    }
    let having = SCHEDULERS.iter().filter(|(_, kind)| have(*kind));
    let names: Vec<&str> = having.map(|(name, _)| *name).collect();
    Err(Unfit::new(format!("that is a setting of {}", names.join(", ")), "leave it out"))
}

/// A setting of the scheduler, as one of a system that may have one.
pub(super) fn of_scheduler<C: 'static>(
    setting: Setting<ScheduleConfig>,
    part: fn(&mut C) -> &mut Option<ScheduleConfig>,
) -> Setting<C> {
    let key = setting.name;
    setting.within(move |config| part(config).as_mut().ok_or_else(|| without_scheduler(key)))
}

/// The setting that names the scheduler; `None`: there is none.
pub(super) fn scheduler<C: 'static>(
    get: fn(&C) -> Option<Option<Kind>>,
    set: fn(&mut C, Option<Kind>),
) -> Setting<C> {
    let kinds = SCHEDULERS.map(|(name, kind)| (name, Some(kind)));
    let values = words([("none", None)].into_iter().chain(kinds));
    Setting::derived("scheduler", values, get, set).first()
}

/// Checks that every server has as many host cores as the scheduler takes and one that executes,
/// and not more than it knows.
///
/// # Errors
/// If not: the flag, and what to give.
pub(super) fn check_cores(schedule: &ScheduleConfig, config: &BenchConfig) -> Result<()> {
    let busy = schedule.dispatchers() + schedule.reserved;
    for cores in hardware::host_cores(config)? {
        ensure!(
            (busy + 1..=WORKERS_MAX).contains(&cores),
            refuse(
                "host_engines",
                cores,
                format!("{busy} of a node schedule or are reserved"),
                format!("give {} to {WORKERS_MAX}", busy + 1)
            )
        );
    }
    Ok(())
}

/// The warning of a run whose scheduler weighs features, and that has ended before it could: what
/// is compared then is the shortest queue.
pub(super) fn without_feedback(counters: &Counters) -> Vec<String> {
    let epochs = counters.get("schedule").and_then(|group| group.get("feedback_epochs"));
    let warning = "the run has ended before its first feedback epoch: no vector was published, and \
                   requests went to the shortest queue; give more `seconds`, or a shorter `feedback_us`";
    if epochs == Some(&0) { vec![warning.to_owned()] } else { Vec::new() }
}

/// Why a scheduler's setting means nothing without one.
fn without_scheduler(key: &str) -> Unfit {
    let why = match key {
        "timeout_us" => "clients are on the cores, and wait for no answer that may not come",
        _ => "nobody schedules",
    };
    Unfit::new(why, format!("give `scheduler=NAME` as well, or leave {key} out"))
}
