//! MINOS: replication on the host and offloaded, each with five persistency models.

pub(crate) mod experiments;
mod settings;
mod trials;

use nicol_core::history::Persistency;
use nicol_protocols::minos::{Node, Sabotage};

use crate::families::key_value::system;
use crate::system::{Needs, System};

/// The systems of the family: MINOS-B, MINOS-O, and the five models of each.
pub(crate) static SYSTEMS: &[System] = &[
    minos("minos-b:synch", BASELINE),
    minos("minos-b:strict", BASELINE),
    minos("minos-b:renf", BASELINE),
    minos("minos-b:event", BASELINE),
    minos("minos-b:scope", BASELINE),
    minos("minos-o:synch", OFFLOADED),
    minos("minos-o:strict", OFFLOADED),
    minos("minos-o:renf", OFFLOADED),
    minos("minos-o:event", OFFLOADED),
    minos("minos-o:scope", OFFLOADED),
];

const BASELINE: &str = "MINOS, HPCA '24, section III";
const OFFLOADED: &str = "MINOS, HPCA '24, section V";

const fn minos(name: &'static str, source: &'static str) -> System {
    System {
        replication: "every node holds every record",
        survives: "message faults, partitions, stalls; stops after a crash",
        needs: Needs {
            log_device: true,
            coherent: true,
            ..system::<Node>("replicate", name, source).needs
        },
        sabotages: || SABOTAGES.iter().map(|(name, _)| *name).collect(),
        trials: trials::trials,
        mirrors_engines: true,
        ..system::<Node>("replicate", name, source)
    }
}

/// Ways to break it on purpose.
const SABOTAGES: [(&str, Sabotage); 5] = [
    ("reads_through_locks", Sabotage::ReadsThroughLocks),
    ("releases_early", Sabotage::ReleasesEarly),
    ("forgets_follower", Sabotage::ForgetsFollower),
    ("applies_obsolete", Sabotage::AppliesObsolete),
    ("skips_spins", Sabotage::SkipsSpins),
];

/// The model and the place that a system's name says: `minos-o:renf`.
fn parts(system: &str) -> (Persistency, bool) {
    let (place, model) = system.split_once(':').unwrap_or((system, ""));
    let named = Persistency::ALL.into_iter().find(|known| known.name() == model);
    let model = named.unwrap_or_else(|| panic!("{system}: the registry names the model"));
    (model, place == "minos-o")
}
