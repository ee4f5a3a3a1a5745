//! Profiles stay calibrated on the published component measurements.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use nicol_core::engine::DoorbellBatch;
use nicol_sim::checks::paths::Path;
use nicol_sim::checks::{CheckLine, posting};
use nicol_sim::{Profile, checks};

/// The lines of every built-in profile, measured once.
fn lines_of(name: &str) -> &'static [CheckLine] {
    static ALL: OnceLock<BTreeMap<&'static str, Vec<CheckLine>>> = OnceLock::new();
    let measure = |name| (name, checks::run(&Arc::new(Profile::load(name).unwrap())).unwrap());
    &ALL.get_or_init(|| Profile::list().into_iter().map(measure).collect())[name]
}

#[test]
fn profiles_reproduce_the_component_measurements() {
    for (name, expected) in [
        ("liquidio3", 24),
        ("connectx5", 11),
        ("connectx5-25g", 21),
        ("connectx5-40g", 21),
        ("bluefield1", 5),
        ("bluefield1-25g", 1),
        ("innova2", 4),
        ("stingray", 4),
        ("bluefield2", 85),
        ("connectx4", 1),
        ("connectx6", 5),
        ("minos-b-cluster", 5),
        ("minos-snic", 15),
    ] {
        let lines = lines_of(name);
        assert!(lines.len() >= expected, "{name} has {} lines", lines.len());
        for line in lines {
            // The published crossover contradicts C1.03 and C1.17, long RPCs the rate of any link
            // and bus, and the share of the switch in an echo what an echo consists of; the lines'
            // notes say how.
            let echo = ["C4.05", "C4.09"].contains(&&*line.line) && line.what.starts_with("SEND");
            let explained =
                (["C1.14", "C2.04"].contains(&&*line.line) || echo) && !line.note.is_empty();
            assert!(line.holds(), "{name}: {line:?}");
            assert!(!line.contradicted || explained, "{name}: {line:?}");
            // Nothing but this is known to rest on a fit alone.
            assert_eq!(line.fitted, line.line == "C4.20", "{name}: {line:?}");
            assert!(!line.fitted || line.note.contains("cause is unknown"), "{name}: {line:?}");
        }
    }
}

/// The last column of the tables in `docs/research/calibration.md`, by the row's id.
fn held_by() -> BTreeMap<&'static str, &'static str> {
    let document = include_str!("../../../../docs/research/calibration.md");
    let rows = document.lines().filter_map(|line| line.strip_prefix("| C"));
    let row = |row: &'static str| {
        let cells = row.trim_end_matches([' ', '|']);
        (cells.split_once(" | ").unwrap().0, cells.rsplit_once(" | ").unwrap().1)
    };
    rows.map(row).collect()
}

#[test]
fn the_list_of_published_numbers_names_the_profiles_that_are_held_to_each() {
    let documented = held_by();
    assert!(documented.len() > 60, "{} rows", documented.len());
    let mut checked = BTreeMap::<String, BTreeSet<&str>>::new();
    for name in Profile::list() {
        for line in lines_of(name) {
            if let Some(id) = line.line.strip_prefix('C') {
                checked.entry(id.into()).or_default().insert(name);
            }
        }
    }
    for (id, column) in &documented {
        let names = checked.remove(*id).unwrap_or_default();
        let names = names.into_iter().collect::<Vec<_>>().join(", ");
        if names.is_empty() {
            assert!(["given", "not used"].contains(column), "C{id}: no check of {column}");
        } else {
            assert_eq!(*column, names, "C{id}: the last column of docs/research/calibration.md");
        }
    }
    assert!(
        checked.is_empty(),
        "checks without a row in docs/research/calibration.md: {checked:?}"
    );
}

#[test]
fn a_profile_cites_no_number_that_the_list_calls_unused() {
    let documented = held_by();
    for name in Profile::list() {
        for value in Profile::load(name).unwrap().stated() {
            let Some(id) = value.source.strip_prefix('C') else { continue };
            let column = documented.get(id).unwrap_or_else(|| panic!("{name}: C{id} has no row"));
            assert_ne!(*column, "not used", "{name}: {} cites C{id}", value.key);
        }
    }
}

#[test]
fn one_host_has_one_packet_cost() {
    let costs = |name: &str| {
        let profile = Profile::load(name).unwrap();
        assert_eq!(profile.cores.host.source, "C1.06", "{name}: another host");
        let core = &profile.host_core;
        let costs = [&core.packet_received, &core.packet_sent, &core.message_received];
        costs.map(|cost| cost.value)
    };
    assert_eq!(costs("liquidio3"), costs("connectx5"));
    let echo = lines_of("connectx5").iter().find(|line| line.line == "C1.10").unwrap();
    assert!(echo.is_close(), "{echo:?}");
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
        assert!(short.iter().all(|found| [line, "C3.02"].contains(&&*found.line)), "{short:?}");
        assert!(short.iter().filter(|found| !found.holds()).count() >= 2, "{short:?}");
    }
    let wide = lines("bluefield1:off_path.latency=1us");
    let missed: Vec<_> = wide.iter().filter(|line| !line.holds()).map(|line| &line.what).collect();
    assert_eq!(missed.len(), 2, "both ways to or from the NIC cores, and no other: {missed:?}");
}

#[test]
fn a_message_that_costs_its_receiver_s_software_no_time_is_noticed() {
    let soon = "receive_queue=0ns:two_sided.completion=0ns:two_sided.polling=0ns";
    let profile = Profile::load(&format!("connectx5:two_sided.{soon}")).unwrap();
    let lines = checks::run(&Arc::new(profile)).unwrap();
    let missed: Vec<_> = lines.iter().filter(|line| !line.holds()).map(|line| &line.line).collect();
    assert_eq!(missed, ["C3.02", "C3.02"], "{lines:?}");
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

#[test]
fn the_testbeds_of_prism_are_not_held_to_what_was_measured_in_another() {
    for name in ["connectx5-25g", "connectx5-40g", "bluefield1-25g"] {
        let lines = checks::run(&Arc::new(Profile::load(name).unwrap())).unwrap();
        assert!(lines.iter().all(|line| line.line.starts_with("C3.")), "{name}: {lines:?}");
    }
}

#[test]
fn wrong_queues_persists_and_copies_of_minos_are_noticed() {
    let missed = |change: &str| -> Vec<_> {
        let profile = Profile::load(&format!("minos-snic:{change}")).unwrap();
        let lines = checks::run(&Arc::new(profile)).unwrap();
        let missed = lines.into_iter().filter(|line| !line.holds());
        missed.map(|line| line.line.into_owned()).collect()
    };
    assert_eq!(missed("persist.per_kib=2us"), ["C5.02", "C5.06"]);
    assert_eq!(missed("nic_queues.volatile_per_kib=600ns"), ["C5.02"]);
    assert_eq!(missed("nic_queues.durable_per_kib=600ns"), ["C5.02"]);
    assert_eq!(missed("nic_core.synchronize=42ns"), ["C5.03"]);
    assert_eq!(missed("pcie.to_nic_latency=900ns"), ["C5.04"]);
    assert_eq!(missed("nic_core.copy=160Gbps"), ["C5.05"]);
}

#[test]
fn software_that_executes_chains_too_slowly_is_noticed() {
    let missed = |profile: &str| -> Vec<_> {
        let lines = checks::run(&Arc::new(Profile::load(profile).unwrap())).unwrap();
        let missed = lines.into_iter().filter(|line| !line.holds());
        missed.map(|line| line.line.into_owned()).collect()
    };
    assert_eq!(missed("connectx5-40g:work.chain_operation=1us"), ["C3.04"; 5]);
    for other in ["off_path.latency=400ns", "cores.nic=16", "cores.nic_slowdown_permille=3260"] {
        let lines = missed(&format!("bluefield1-25g:{other}"));
        assert!(lines.iter().any(|line| line == "C3.05"), "{other}: {lines:?}");
    }
    assert_eq!(missed("connectx5-40g:link.latency=400ns"), ["C3.08"]);
    assert_eq!(missed("connectx5-25g:cores.nic=12"), ["C3.11"]);
    assert_eq!(missed("connectx5-25g:link.rate=40Gbps"), ["C3.11"]);
    // A READ that is late by little, and an RPC that is: only what relates them notices.
    assert_eq!(missed("connectx5-40g:verbs.read_latency=710ns"), ["C3.02"]);
    assert_eq!(missed("connectx5-40g:two_sided.scheduling=250ns"), ["C3.02"]);
    // A WRITE that is acknowledged on arrival, and a READ's time for it no longer.
    let early = missed("connectx5-25g:verbs.write_latency=0ns");
    assert_eq!(early, ["C3.03", "C3.04", "C3.04"], "WRITE, and software's WRITE and ALLOCATE");
    // The NIC of section 4.2 is published as a model only: nothing holds it but the verbs.
    assert_eq!(missed("connectx5-40g:verbs.chains=true").len(), 0);
}

/// Whether some line of `row` fails under a changed profile.
fn misses(profile: &str, row: &str) -> bool {
    let lines = checks::run_row(&Arc::new(Profile::load(profile).unwrap()), row).unwrap();
    assert!(!lines.is_empty(), "{profile} is not held to {row}");
    lines.iter().any(|line| !line.holds())
}

#[test]
fn a_row_alone_is_measured_as_among_all() {
    let profile = Arc::new(Profile::load("bluefield2").unwrap());
    for row in ["C4.06", "C4.20", "C4.21"] {
        let alone = checks::run_row(&profile, row).unwrap();
        let among = lines_of("bluefield2").iter().filter(|line| line.line == row);
        assert_eq!(format!("{alone:?}"), format!("{:?}", among.collect::<Vec<_>>()), "{row}");
    }
    assert_eq!(checks::run_row(&profile, "C1.01").unwrap().len(), 0);
}

#[test]
fn each_mechanism_that_the_study_suspects_matters_to_what_it_measured() {
    for (switched_off, row) in [
        ("reserved_units=0", "C4.19"),
        ("switch_stalls=false", "C4.06"),
        ("near_memory=false", "C4.11"),
        ("few_channels=false", "C4.11"),
        ("head_of_line=false", "C4.12"),
        ("weak_dma=false", "C4.18"),
    ] {
        let profile = format!("bluefield2:card.suspected.{switched_off}");
        assert!(misses(&profile, row), "{profile}: {row} holds");
    }
}

#[test]
fn a_wrong_part_of_an_off_path_card_is_noticed() {
    for (change, row) in [
        ("card.switch.pass=450ns", "C4.04"),
        ("card.memory.bank_write=20ns", "C4.11"),
        ("card.soc.tlp_payload=256B", "C4.16"),
        ("card.soc.chain_start=0ns", "C4.17"),
        ("card.switch.within_interval=0ns", "C4.20"),
        ("link.rate=150Gbps", "C4.08"),
    ] {
        let profile = format!("bluefield2:{change}");
        assert!(misses(&profile, row), "{profile}: {row} holds");
    }
}

/// [OffPath23 advice 4]: few requests that come together have a doorbell each, and many share one
/// from the SoC but not from its host, whose requests the card fetches more slowly than cores post
/// them.
#[test]
fn adaptive_doorbells_are_as_good_as_the_better_rule_at_every_load() {
    let load = |name| Arc::new(Profile::load(name).unwrap());
    let (snic, client) = (load("bluefield2"), load("connectx4"));
    let (mut shared, mut single) = (0, 0);
    for path in [Path::SocToHost, Path::HostToSoc] {
        for batch in [2, 3, 4, 8, 16, 48] {
            let mops = |doorbells| posting(&snic, &client, path, batch, doorbells).unwrap().mops;
            let (alone, together) = (mops(DoorbellBatch::UpTo(1)), mops(DoorbellBatch::UpTo(64)));
            let adaptive = mops(DoorbellBatch::Adaptive);
            let told = format!("{path:?} {batch}: {alone} alone, {together} together, {adaptive}");
            assert!(adaptive > alone.max(together) * 0.98, "{told}");
            shared += u32::from(together > alone * 1.02);
            single += u32::from(alone > together * 1.02);
        }
    }
    assert!(shared >= 3 && single >= 6, "{shared} loads are for sharing, {single} against");
}

#[test]
fn every_line_can_fail() {
    for name in Profile::list() {
        for line in lines_of(name).iter().filter(|line| line.holds() && !line.contradicted) {
            assert!(line.can_fail(), "{name}: {line:?}");
        }
    }
}

#[test]
fn lines_without_a_run_say_so() {
    for name in Profile::list() {
        for line in lines_of(name) {
            assert_eq!(line.arithmetic, line.line == "C4.21", "{name}: {line:?}");
            assert!(!line.arithmetic || line.note.contains("without a run"), "{name}: {line:?}");
        }
    }
}
