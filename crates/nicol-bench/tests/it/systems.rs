//! The registry.

use nicol_bench::systems::{Needs, Pairing, all, find, matrix};
use nicol_bench::workloads::WORKLOADS;

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
        let system = {
            let mut system = *find("xenic").unwrap();
            system.needs = Needs { nic_cores, card, ..Needs::NONE };
            system
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
    assert!(error.contains("did you mean 'xenic'") && error.contains("nicol systems"), "{error}");
}
