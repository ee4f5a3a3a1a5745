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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_system_runs_a_workload_and_every_workload_runs_on_a_system() {
        let runs: Vec<Pairing> = matrix().filter(|pairing| pairing.refusal.is_none()).collect();
        for system in all() {
            assert!(runs.iter().any(|pairing| pairing.system.name == system.name));
        }
        for (workload, _) in WORKLOADS {
            assert!(runs.iter().any(|pairing| pairing.workload == workload), "{workload}");
        }
    }

    #[test]
    fn where_a_system_runs_follows_from_what_it_needs() {
        let on = |nic_cores, card| {
            let system = System {
                needs: Needs { nic_cores, card, ..Needs::NONE },
                ..*find("xenic").unwrap()
            };
            let known = ["threads", "bluefield1", "connectx5", "liquidio3", "stingray"];
            let mut worlds = system.worlds().unwrap();
            worlds.retain(|world| known.contains(world));
            worlds.join(" ")
        };
        assert_eq!(on(false, false), "threads bluefield1 connectx5 liquidio3 stingray");
        assert_eq!(on(true, false), "bluefield1 liquidio3 stingray");
        assert_eq!(on(false, true), "bluefield1 connectx5 stingray");
        assert_eq!(on(true, true), "bluefield1 stingray");
    }

    #[test]
    fn an_unknown_system_is_refused_with_the_nearest_name() {
        let error = find("xeinc").err().unwrap().to_string();
        assert!(
            error.contains("did you mean 'xenic'") && error.contains("nicol systems"),
            "{error}"
        );
    }
}
