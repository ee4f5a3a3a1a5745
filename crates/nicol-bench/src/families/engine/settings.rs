//! What may be set in an engine.

use anyhow::{Result, ensure};
use nicol_core::units::{Bytes, Nanos};
use nicol_engines::{EngineConfig, Sabotage, Waiting};
use nicol_rt::LogDevice;
use nicol_schedule::{FeatureMap, ScheduleConfig};

use crate::config::BenchConfig;
use crate::families::scheduling::{self, check_cores, of_scheduler, scheduler};
use crate::memory;
use crate::refused::{Unfit, refuse};
use crate::settings::{
    BREAKS, Setting, Settings, Sizes, SystemConfig, broken, micros, numbers, numbers_as, switch,
    value_of, words,
};

/// Ways to break an engine on purpose, so that a sweep can show that its checkers see it.
const SABOTAGES: [(&str, Sabotage); 12] = [
    ("skips_validation", Sabotage::SkipsValidation),
    ("tears_reads", Sabotage::TearsReads),
    ("ignores_locks", Sabotage::IgnoresLocks),
    ("forgets_leaves", Sabotage::ForgetsLeaves),
    ("wrong_epoch", Sabotage::WrongEpoch),
    ("frees_early", Sabotage::FreesEarly),
    ("always_waits", Sabotage::AlwaysWaits),
    ("forgets_readers", Sabotage::ForgetsReaders),
    ("forgets_seen", Sabotage::ForgetsSeen),
    ("keeps_locks", Sabotage::KeepsLocks),
    ("acknowledges_early", Sabotage::AcknowledgesEarly),
    ("claims_early", Sabotage::ClaimsEarly),
];

/// The names of some ways to break an engine, and of those to break a scheduler in front of it.
pub(super) fn names_of(sabotages: &[Sabotage]) -> Vec<&'static str> {
    let among = |(_, sabotage): &&(&str, Sabotage)| sabotages.contains(sabotage);
    let engines = SABOTAGES.iter().filter(among).map(|(name, _)| *name);
    engines.chain(scheduling::SABOTAGES.iter().map(|(name, _)| *name)).collect()
}

/// Whether an engine or the scheduler before it is broken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Broken {
    Engine(Sabotage),
    Scheduler(nicol_schedule::Sabotage),
}

/// Breaks the engine, or the scheduler in front of it.
fn break_one(config: &mut EngineConfig, broken: Broken) {
    match broken {
        Broken::Engine(sabotage) => config.sabotage = sabotage,
        Broken::Scheduler(sabotage) => config.schedule_sabotage = sabotage,
    }
    break_scheduler(config);
}

/// Whichever of the two settings comes first.
fn break_scheduler(config: &mut EngineConfig) {
    if let Some(schedule) = &mut config.schedule {
        schedule.sabotage = config.schedule_sabotage;
    }
}

impl Settings for EngineConfig {
    fn table() -> Vec<Setting<Self>> {
        let mut table = of_engine();
        table.push(
            scheduler(
                |config: &Self| Some(config.schedule.as_ref().map(|schedule| schedule.kind)),
                |to, kind| {
                    to.schedule = kind.map(ScheduleConfig::published);
                    break_scheduler(to);
                },
            )
            .help("what decides which core (worker) executes a request; none: clients are on the cores"),
        );
        let own = [
            Setting::new("padding", numbers(0..=1 << 16), |to: &mut ScheduleConfig| {
                &mut to.padding
            })
            .help("bytes of a request beyond its own, as null RPCs have them"),
            Setting::new("timeout_us", micros(1..=1 << 32), |to: &mut ScheduleConfig| {
                &mut to.timeout
            })
            .help("how long a client waits for the answer to a request, batch and epoch apart"),
        ];
        let settings = scheduling::settings().into_iter().chain(own);
        table.extend(settings.map(|row| of_scheduler(row, |to: &mut Self| &mut to.schedule)));
        table
    }

    /// Without a scheduler clients are on the server's cores.
    fn allow_clients_apart(settings: &[String]) -> bool {
        value_of(settings, "scheduler").is_some_and(|name| name != "none")
    }
}

/// The settings of the engine itself.
fn of_engine() -> Vec<Setting<EngineConfig>> {
    type It = EngineConfig;
    let engines = SABOTAGES.map(|(name, one)| (name, Broken::Engine(one)));
    let schedulers = scheduling::SABOTAGES.map(|(name, one)| (name, Broken::Scheduler(one)));
    let mebibytes = numbers_as(0..=16_384, |mb| Some(Bytes(mb << 20)), |bytes| Some(bytes.0 >> 20));
    vec![
        Setting::derived(
            "sabotage",
            words(engines.into_iter().chain(schedulers)),
            |_| None,
            break_one,
        )
        .help(BREAKS)
        .hidden(),
        Setting::new("epoch_us", micros(1..=10_000_000), |to: &mut It| &mut to.epoch)
            .help("how often the epoch moves on, and deleted records are freed"),
        Setting::new("reserve_mb", mebibytes, |to: &mut It| &mut to.reserve).help(
            "MiB for further records, and half as much for ordered tables, taken before the run",
        ),
        Setting::new("log", switch(), |to: &mut It| &mut to.log)
            .help("log transactions, and answer them when their epoch is durable (group commit)"),
        Setting::new("spins", numbers(1..=1_000_000), |to: &mut It| &mut to.spins)
            .help("looks at a locked record before a transaction aborts"),
        Setting::new("stall_us", micros(0..=1_000_000), |to: &mut It| &mut to.stall)
            .help("the longest of the stalls that some steps suffer, for tests"),
        Setting::new(
            "waiting",
            words([("no-wait", Waiting::NoWait), ("wait-die", Waiting::WaitDie)]),
            |to: &mut It| &mut to.waiting,
        )
        .help("2pl: what a transaction does at a held lock: abort, or wait if it is older"),
    ]
}

impl SystemConfig for EngineConfig {
    fn published(_system: &str, sizes: &Sizes<'_>) -> Self {
        Self::published(sizes.value_bytes, FeatureMap::of(sizes.source))
    }

    fn check(&self, config: &BenchConfig) -> Result<()> {
        let clients = config.client_nodes;
        let reserved = self.reserve.0 + self.reserve.0 / 2;
        memory::refuse_places_beyond_machine(reserved, &["reserve_mb"])?;
        ensure!(
            self.log || config.log_device == LogDevice::Memory,
            refuse("log_device", "", "nothing is logged", "give `log=on`, or leave it out")
        );
        ensure!(
            value_of(&config.settings, "waiting").is_none() || config.system == "2pl",
            Unfit::new(
                format!("{} holds no locks while it executes", config.system),
                "leave it out, or choose the `system` 2pl"
            )
            .of_setting("waiting", "")
        );
        let Some(schedule) = &self.schedule else {
            ensure!(
                clients == 0,
                refuse(
                    "client_nodes",
                    clients,
                    "without a scheduler clients are on the cores",
                    "leave it out, or give `scheduler=NAME`"
                )
            );
            return Ok(());
        };
        ensure!(
            clients > 0,
            Unfit::new("requests come from nodes for clients", "give `client_nodes` 1 or more")
                .of_setting("scheduler", "")
        );
        check_cores(schedule, config)
    }

    fn longest_wait(&self) -> Nanos {
        Self::longest_wait(self)
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = broken(&SABOTAGES, self.sabotage);
        warnings.extend(broken(&scheduling::SABOTAGES, self.schedule_sabotage));
        if self.schedule.is_none() && self.schedule_sabotage != nicol_schedule::Sabotage::None {
            warnings.push("no scheduler is there to be broken: set scheduler=NAME".to_owned());
        }
        warnings
    }
}
