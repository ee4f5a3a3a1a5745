//! Schedulers in front of an engine, or of the coordinators of a node: what may be set in them.

use anyhow::{Context, Result, bail, ensure};
use nicol_core::units::Nanos;
use nicol_schedule::{
    Completion, Kind, Planes, Policy, Ranking, RpcPath, Sabotage, ScheduleConfig, WORKERS_MAX,
};

use crate::config::BenchConfig;
use crate::family::Counters;
use crate::hardware;
use crate::settings::number;

/// Who may schedule.
pub(super) const SCHEDULERS: [(&str, Kind); 6] = [
    ("alnico", Kind::Alnico),
    ("alnico-cpu-2", Kind::AlnicoCpu2),
    ("alnico-cpu-n", Kind::AlnicoCpuN),
    ("static-partition", Kind::StaticPartition),
    ("strife", Kind::Strife),
    ("round-robin", Kind::RoundRobin),
];

/// Ways to break a scheduler on purpose, so that a run can show that a lost request is noticed.
pub(super) const SABOTAGES: [(&str, Sabotage); 4] = [
    ("refuses_silently", Sabotage::RefusesSilently),
    ("drops_when_full", Sabotage::DropsWhenFull),
    ("loses_queue", Sabotage::LosesQueue),
    ("drops_before_vectors", Sabotage::DropsBeforeVectors),
];

/// Is `key` a setting of schedulers of this kind?
fn has_setting(kind: Kind, key: &str) -> bool {
    match key {
        "ranking" | "planes" | "publish" | "feedback_us" | "window" => kind.weighs_features(),
        // A batch of Strife ends with its requests, whatever counts.
        "completion" => kind.weighs_features() || kind.batches(),
        "rpc" => kind == Kind::Alnico,
        "batch" | "batch_us" => kind.batches(),
        "reserved" => !kind.batches(),
        _ => true,
    }
}

/// Changes a setting of a scheduler. One that it does not have is an error, not ignored.
pub(super) fn set_schedule(schedule: &mut ScheduleConfig, key: &str, value: &str) -> Result<()> {
    if !has_setting(schedule.kind, key) {
        let having = SCHEDULERS.iter().filter(|(_, kind)| has_setting(*kind, key));
        let names: Vec<&str> = having.map(|(name, _)| *name).collect();
        bail!("that is a setting of {}: leave it out", names.join(", "));
    }
    match (key, value) {
        ("rpc", "two-writes") => schedule.path = RpcPath::TwoWrites,
        ("rpc", "one-message") => schedule.path = RpcPath::OneMessage,
        ("rpc", _) => bail!("'{value}': choose two-writes or one-message"),
        ("ranking", "artifact") => schedule.ranking = Ranking::Artifact,
        ("ranking", "improved") => schedule.ranking = Ranking::Improved,
        ("ranking", _) => bail!("'{value}': choose artifact or improved"),
        ("planes", "1") => schedule.planes = Planes::One,
        ("planes", "2") => schedule.planes = Planes::Two,
        ("planes", _) => bail!("'{value}': choose 1 or 2"),
        ("completion", "reply") => schedule.completion = Completion::Reply,
        ("completion", "slot") => schedule.completion = Completion::Slot,
        ("completion", _) => bail!("'{value}': choose reply or slot"),
        ("publish", "always") => schedule.policy = Policy::Always,
        ("publish", "on-change") => schedule.policy = Policy::OnChange,
        ("publish", "never") => schedule.policy = Policy::Never,
        ("publish", _) => bail!("'{value}': choose always, on-change or never"),
        ("feedback_us", _) => {
            schedule.feedback = Nanos::from_micros(number(value, 1, 10_000_000)?);
        }
        ("window", _) => schedule.window = number(value, 1, 1 << 20)? as usize,
        ("reserved", _) => schedule.reserved = number(value, 0, WORKERS_MAX as u64 - 1)? as usize,
        ("padding", _) => schedule.padding = number(value, 0, 1 << 16)? as u32,
        ("at_a_time", _) => schedule.at_a_time = number(value, 1, 64)? as usize,
        ("batch", _) => schedule.batch = number(value, 1, 1 << 20)? as usize,
        ("batch_us", _) => schedule.batch_time = Nanos::from_micros(number(value, 1, 1 << 30)?),
        _ => schedule.timeout = Nanos::from_micros(number(value, 1, 1 << 32)?),
    }
    Ok(())
}

/// Has every server as many host cores as the scheduler takes and one that executes, and not more
/// than it knows?
///
/// # Errors
/// If not: the flag, and what to give.
pub(super) fn check_cores(schedule: &ScheduleConfig, config: &BenchConfig) -> Result<()> {
    let busy = schedule.dispatchers() + schedule.reserved;
    for cores in hardware::host_cores(config)? {
        ensure!(
            (busy + 1..=WORKERS_MAX).contains(&cores),
            "--host-engines {cores}: {busy} of a node schedule or are reserved; give {} to {WORKERS_MAX}",
            busy + 1
        );
    }
    Ok(())
}

/// The warning of a run whose scheduler weighs features, and that has ended before it could: what
/// is compared then is the shortest queue.
pub(super) fn without_feedback(counters: &Counters) -> Vec<String> {
    let epochs = counters.get("schedule").and_then(|group| group.get("feedback_epochs"));
    let warning = "the run has ended before its first feedback epoch: no vector was published, and \
                   requests went to the shortest queue; run it for longer (--seconds), or --set \
                   feedback_us=N";
    if epochs == Some(&0) { vec![warning.to_owned()] } else { Vec::new() }
}

/// Why a scheduler's setting means nothing without one.
pub(super) fn without_scheduler(key: &str) -> String {
    let why = match key {
        "timeout_us" => "clients are on the cores, and wait for no answer that may not come",
        _ => "nobody schedules",
    };
    format!("{why}: set scheduler=NAME before {key}, or leave {key} out")
}

/// The configuration of the scheduler that is called `name`; `None` of `none`.
pub(super) fn scheduler(name: &str) -> Result<Option<ScheduleConfig>> {
    if name == "none" {
        return Ok(None);
    }
    let found = SCHEDULERS.iter().find(|(known, _)| *known == name);
    let names = SCHEDULERS.map(|(name, _)| name).join(", ");
    let (_, kind) = found.with_context(|| format!("'{name}': choose none or one of {names}"))?;
    Ok(Some(ScheduleConfig::published(*kind)))
}
