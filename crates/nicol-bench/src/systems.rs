//! The systems of all families, by name, and which workloads each runs.

pub use crate::system::{Needs, ServeConfig, Served, System};
use anyhow::{Result, anyhow};
use nicol_core::names::did_you_mean;

use crate::families;
use crate::workloads::{WORKLOADS, WorkloadSpec};

/// Every system, family by family.
pub fn all() -> impl Iterator<Item = &'static System> {
    families::SYSTEMS.iter().copied().flatten()
}

/// The system of this name. The error names those that there are.
pub fn find(name: &str) -> Result<&'static System> {
    all().find(|system| system.name == name).ok_or_else(|| {
        let of_name =
            |system: &&System| system.name.split_once(':').is_some_and(|(of, _)| of == name);
        let kinds: Vec<_> = all().filter(of_name).map(|system| system.name).collect();
        let meant = match kinds.as_slice() {
            [] => did_you_mean(name, all().map(|system| system.name)),
            kinds => format!(" (give one of {})", kinds.join(", ")),
        };
        anyhow!("unknown system '{name}'{meant}: 'nicol systems' lists what there is")
    })
}

/// A system and a workload, and whether the one runs the other.
#[derive(Clone, Debug)]
pub struct Pairing {
    pub system: &'static System,
    pub workload: &'static str,
    /// Why not, in words.
    pub refusal: Option<String>,
}

/// All pairs of a system and a workload, at the workload's defaults, system by system: whether the
/// system runs it.
pub fn matrix() -> impl Iterator<Item = Pairing> {
    all().flat_map(|system| {
        WORKLOADS.iter().map(move |&(workload, _)| {
            let refusal = (system.accepts)(system, &WorkloadSpec::named(workload)).err();
            Pairing { system, workload, refusal }
        })
    })
}
