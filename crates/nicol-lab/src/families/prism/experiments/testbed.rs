//! The testbeds of the end-to-end figures, and what executes chains in them. [PRISM21 4.1, 4.2, 5]

use std::sync::Arc;

use anyhow::{Result, ensure};
use nicol_core::ids::Side;
use nicol_sim::Profile;

use super::SWITCHED;
use crate::experiments::{Context, Table, digest};
use nicol_bench::refused::refuse;

/// The executor of chains at servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Executor {
    /// Dedicated cores of the host: the prototype. [PRISM21 4.1]
    Software,
    /// The card. [PRISM21 4.2]
    Asic,
    /// The cores of a BlueField. [PRISM21 4.1, 4.3]
    BlueField,
}

impl Executor {
    pub(super) const EVERY: [Self; 3] = [Self::Software, Self::Asic, Self::BlueField];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Software => "software",
            Self::Asic => "asic",
            Self::BlueField => "bluefield",
        }
    }
}

/// The nodes of a run: a profile of all, or one of servers and one of clients.
#[derive(Clone, Debug)]
pub(super) struct Testbed {
    /// As `--on` takes it.
    pub(super) name: String,
    profiles: Vec<Arc<Profile>>,
}

impl Testbed {
    /// The profile that the options name, or the applications' testbed.
    pub(super) fn new(context: &Context<'_>) -> Result<Self> {
        let name = base(context).to_owned();
        Ok(Self { profiles: vec![Arc::new(Profile::load(&name)?)], name })
    }

    /// The same network, with servers whose chains `executor` executes.
    pub(super) fn with(context: &Context<'_>, executor: Executor) -> Result<Self> {
        let base = base(context);
        let clients = Arc::new(Profile::load(base)?);
        ensure!(
            clients.verbs.present.value && clients.verbs.chains.is_some(),
            refuse(
                "profile",
                base,
                "this figure compares who executes chains",
                format!("choose a profile whose verbs.chains says that, such as {SWITCHED}")
            )
        );
        let on = |name: String| -> Result<Self> {
            Ok(Self { profiles: vec![Arc::new(Profile::load(&name)?)], name })
        };
        match executor {
            Executor::Software => on(executing(base, &clients, false)),
            Executor::Asic => on(executing(base, &clients, true)),
            Executor::BlueField => {
                let link = &clients.link;
                let latency = link.latency.value.to_nanos_up().0;
                let rate = link.rate.value.0 / 1_000_000;
                let server =
                    format!("bluefield1-25g:link.latency={latency}ns:link.rate={rate}Mbps");
                let profiles = vec![Arc::new(Profile::load(&server)?), clients.clone()];
                let name = format!("server={server},client={base}");
                Ok(Self { name, profiles })
            }
        }
    }

    /// Engines that every node has.
    pub(super) fn engines(&self, side: Side) -> usize {
        self.profiles.iter().map(|profile| profile.engines(side)).min().unwrap_or_default()
    }

    /// A hash that differs from every other testbed's, by which a run is found again.
    pub(super) fn digest(&self) -> u64 {
        digest(&format!("{:?}", self.profiles))
    }

    /// Says in `table` what it assumes.
    pub(super) fn assume(&self, table: &mut Table) {
        self.profiles.iter().for_each(|profile| table.ran_on(profile));
    }
}

/// The name of `profile`, which is called `base`, with a card that executes chains or does not.
fn executing(base: &str, profile: &Profile, card: bool) -> String {
    match &profile.verbs.chains {
        Some(chains) if chains.value == card => base.to_owned(),
        _ => format!("{base}:verbs.chains={card}"),
    }
}

fn base<'c>(context: &Context<'c>) -> &'c str {
    context.options.profile.as_deref().unwrap_or(SWITCHED)
}
