//! Settings of the commit family that depend on others, or on the world.

use nicol_bench::families::commit::{BuiltWorkload, build};
use nicol_bench::settings::{EngineSettings, Settings, Sizes, SystemConfig, apply};
use nicol_bench::workloads::WorkloadSpec;
use nicol_commit::rdma_occ::RdmaOccConfig;
use nicol_commit::xenic::XenicConfig;
use nicol_core::units::{Bytes, Nanos};
use nicol_store::host_table::Growth;

#[test]
fn on_threads_a_phase_waits_for_half_a_second() {
    let spec = WorkloadSpec::named("smallbank");
    let BuiltWorkload { workload, value_bytes } = build(&spec, 3).unwrap();
    for (live, millis) in [(true, 500), (false, 20)] {
        let sizes = Sizes { source: &*workload, value_bytes, nic_memory: None, live };
        let expected = Nanos::from_millis(millis);
        assert_eq!(XenicConfig::published("xenic", &sizes).timeout, expected);
        for system in ["farm", "fasst", "drtm-r", "drtm-h"] {
            assert_eq!(RdmaOccConfig::published(system, &sizes).timeout, expected, "{system}");
        }
        let rows = XenicConfig::table();
        let row = rows.iter().find(|row| row.name == "timeout_us").unwrap();
        let help = row.default.unwrap();
        assert!(help.contains(&format!("{millis}000")), "help tells both");
    }
}

#[test]
fn the_limit_of_a_table_holds_whatever_is_said_of_growth() {
    let spec = WorkloadSpec::named("smallbank");
    let BuiltWorkload { workload, value_bytes } = build(&spec, 3).unwrap();
    let sizes = Sizes { source: &*workload, value_bytes, nic_memory: None, live: false };
    let set = |pairs: [&str; 2]| {
        let mut config = XenicConfig::published("xenic", &sizes);
        apply(&pairs.map(str::to_owned), &mut config, &mut EngineSettings::default())?;
        Ok::<_, anyhow::Error>(config.growth)
    };
    let limited = Growth::Doubling { memory_max: Bytes(5_000) };
    for [one, other] in [["growth=on", "table_bytes=5000"], ["growth=off", "table_bytes=5000"]] {
        for pairs in [[one, other], [other, one]] {
            match one {
                "growth=on" => assert_eq!(set(pairs).unwrap(), limited, "{pairs:?}"),
                _ => {
                    assert!(set(pairs).is_err(), "{pairs:?}: growth is off, and the limit ignored")
                }
            }
        }
    }
}
