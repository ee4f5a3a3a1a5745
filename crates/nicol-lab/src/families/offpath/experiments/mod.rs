//! The figures of the off-path study, a file to a group. [OffPath23]

mod about;
mod breakdown;
mod files;
mod key_values;
mod paths;
mod sizes;

use std::sync::Arc;

use anyhow::{Result, ensure};
use nicol_core::ids::Side;
use nicol_sim::Profile;

use crate::experiments::{Context, Experiment, Table};
pub(crate) use about::about;
use nicol_bench::refused::refuse;

/// The card, the plain NIC beside which it is measured, and the clients. [OffPath23 2.4]
const SNIC: &str = "bluefield2";
const RNIC: &str = "connectx6";
const CLIENT: &str = "connectx4";

/// The part of a system's name after the colon, which rows have.
fn alternative_of(system: &str) -> &str {
    system.split_once(':').map_or(system, |(_, alternative)| alternative)
}

/// Every experiment, in the order of the paper.
pub(crate) fn all() -> impl Iterator<Item = &'static Experiment> {
    // Figures 3, 5, 7 to 12, 13, 15, 17 and 18.
    let [three, five, ten, twelve] = &paths::ALL;
    let [seven, eight, nine, eleven] = &sizes::ALL;
    let measured = [three, five, seven, eight, nine, ten, eleven, twelve];
    let files = [&breakdown::BREAKDOWN].into_iter().chain(&files::ALL);
    measured.into_iter().chain(files).chain(&key_values::ALL)
}

/// The study's hardware, as the profiles of its three kinds of machines.
struct Testbed {
    snic: Arc<Profile>,
    rnic: Arc<Profile>,
    client: Arc<Profile>,
}

impl Testbed {
    /// With the card that the options name instead, if they name one.
    ///
    /// Errors: a profile that does not exist, or whose card has no cores beside the path.
    fn of(context: &Context<'_>) -> Result<Self> {
        let name = context.options.profile.as_deref().unwrap_or(SNIC);
        let snic = Profile::load(name)?;
        let inside = snic.card.as_ref().is_some_and(|card| card.soc.is_some());
        ensure!(
            inside && snic.engines(Side::Nic) > 0,
            refuse(
                "profile",
                name,
                "this figure measures the paths of an off-path card, which need [card.soc]",
                format!("choose {SNIC} or one like it")
            )
        );
        let load = |name| Profile::load(name).map(Arc::new);
        Ok(Self { snic: Arc::new(snic), rnic: load(RNIC)?, client: load(CLIENT)? })
    }

    /// Says on what an experiment ran.
    fn told(&self, table: &mut Table) {
        [&self.snic, &self.rnic, &self.client].into_iter().for_each(|one| table.ran_on(one));
    }
}
