//! What sweeps vary besides faults.

use nicol_bench::families::commit::WAYS;
use nicol_bench::systems;
use nicol_bench::workloads::WorkloadSpec;

#[test]
fn every_other_way_is_drawn_in_about_one_of_eight_runs_where_the_system_has_it() {
    let spec = WorkloadSpec::named("smallbank");
    let of_xenic = ["combined_ops", "homes_per_hint", "locks_until", "recovery"];
    for (name, has) in [("xenic", &of_xenic[..]), ("farm", &["log_content", "log_acks"])] {
        let system = systems::find(name).unwrap();
        let drawn: Vec<String> =
            (0..800).flat_map(|seed| (system.variation)(system, &spec, seed)).collect();
        for (way, values) in WAYS {
            let of_way = drawn.iter().filter_map(|setting| setting.split_once('='));
            let of_way: Vec<_> = of_way.filter(|(key, _)| *key == way).collect();
            let expected = if has.contains(&way) { 60..=140 } else { 0..=0 };
            assert!(expected.contains(&of_way.len()), "{name}: {way} {} times", of_way.len());
            for value in values.iter().filter(|_| has.contains(&way)) {
                assert!(of_way.iter().any(|(_, drawn)| drawn == value), "{name}: {way}={value}");
            }
        }
    }
}
