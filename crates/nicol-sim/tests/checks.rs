//! Profiles stay calibrated on the published component measurements.

use std::sync::Arc;

use nicol_sim::{Profile, checks};

#[test]
fn profiles_reproduce_the_component_measurements() {
    for (name, expected) in
        [("liquidio3", 24), ("connectx5", 5), ("bluefield1", 4), ("stingray", 3)]
    {
        let profile = Arc::new(Profile::load(name).unwrap());
        let lines = checks::run(&profile).unwrap();
        assert!(lines.len() >= expected, "{name} has {} lines", lines.len());
        for line in &lines {
            // The published crossover contradicts C1.03 and C1.17; the line's note says how.
            let explained = line.line == "C1.14" && !line.note.is_empty();
            assert!(line.holds(), "{name}: {line:?}");
            assert!(!line.contradicted || explained, "{name}: {line:?}");
        }
    }
}

#[test]
fn a_wrong_cost_is_noticed() {
    let mut profile = Profile::load("liquidio3").unwrap();
    profile.nic_core.packet_received.value.0 *= 2;
    let lines = checks::run(&Arc::new(profile)).unwrap();
    let echo = lines.iter().find(|line| line.line == "C1.11").unwrap();
    assert!(!echo.is_close() && !echo.holds(), "{echo:?}");
}

#[test]
fn a_wrong_speed_of_nic_cores_is_noticed() {
    let missed = |change: &str| -> Vec<_> {
        let profile = Profile::load(&format!("liquidio3:{change}")).unwrap();
        let lines = checks::run(&Arc::new(profile)).unwrap();
        let cores = ["C1.20", "C1.21", "C1.23", "C1.24"];
        let of_cores = lines.into_iter().filter(|line| cores.contains(&&*line.line));
        of_cores.filter(|line| !line.holds()).map(|line| line.line.into_owned()).collect()
    };
    assert_eq!(missed("cores.nic_slowdown_permille=2040"), ["C1.20", "C1.21", "C1.24"]);
    assert_eq!(missed("nic_core.copy=160Gbps"), ["C1.23"]);
}

#[test]
fn a_way_to_the_host_without_the_nic_cores_detour_is_noticed() {
    let lines = |profile: &str| checks::run(&Arc::new(Profile::load(profile).unwrap())).unwrap();
    for (profile, line) in [("bluefield1", "C1.07"), ("stingray", "C1.08")] {
        let short = lines(&format!("{profile}:off_path.latency=0ns:verbs.card_latency=0ns"));
        assert!(short.iter().all(|found| found.line == line), "{short:?}");
        assert!(short.iter().filter(|found| !found.holds()).count() >= 2, "{short:?}");
    }
    let wide = lines("bluefield1:off_path.latency=1us");
    let missed: Vec<_> = wide.iter().filter(|line| !line.holds()).map(|line| &line.what).collect();
    assert_eq!(missed.len(), 2, "both ways to or from the NIC cores, and no other: {missed:?}");
}

#[test]
fn the_digest_of_a_load_is_the_same_again() {
    let profile = Arc::new(Profile::load("liquidio3").unwrap());
    let run = || checks::echo_load(&profile, nicol_core::units::Nanos::from_micros(100)).unwrap();
    assert_eq!(run(), run());
}

#[test]
fn offloading_saves_latency_only_where_the_nic_and_its_way_to_the_host_are_fast() {
    let offload = |profile: &str| checks::offload(&Arc::new(Profile::load(profile).unwrap()));
    assert!(offload("liquidio3").unwrap().unwrap().saves_latency());
    let off_path = "liquidio3:cores.on_path=false:nic_core.packet_received=9us";
    for slow in ["liquidio3:dma.read_latency=9us", off_path] {
        let found = offload(slow).unwrap().unwrap();
        assert!(!found.saves_latency(), "{slow}: {found:?}");
    }
    for off_path in ["bluefield1", "stingray"] {
        // Slower to answer than the host is, and far slower to fetch from it. [Xenic21 3.1, 4.3.4]
        let found = offload(off_path).unwrap().unwrap();
        assert!(!found.saves_latency() && found.served_ns > found.host_rpc_ns, "{found:?}");
        assert!(found.fetched_ns > found.served_ns + 5_000.0, "{off_path}: {found:?}");
    }
    assert_eq!(offload("connectx5").unwrap(), None, "it has no cores of its own");
}
