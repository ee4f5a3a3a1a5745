//! The planner against the simulator and against itself.

use super::*;

const EXAMPLES: [&str; 4] = [
    include_str!("../../../../docs/plans/drtm-kv.toml"),
    include_str!("../../../../docs/plans/linefs.toml"),
    include_str!("../../../../docs/plans/xenic-shipping.toml"),
    include_str!("../../../../docs/plans/prism-kv.toml"),
];

fn read(text: &str) -> Description {
    Description::parse("example.toml", text).unwrap()
}

#[test]
fn bounds_in_closed_form_are_those_of_the_simulator() {
    for example in &EXAMPLES[..2] {
        let plan = plan(&read(example), true).unwrap();
        for one in &plan.candidates {
            let (mops, us) = one.simulated.unwrap();
            let name = &one.name;
            assert!((one.mops / mops - 1.0).abs() < 0.15, "{name}: {} and {mops} M/s", one.mops);
            assert!(
                (one.latency_us / us - 1.0).abs() < 0.15,
                "{name}: {} and {us} us",
                one.latency_us
            );
        }
        let mix = plan.recommended();
        let found: f64 = mix.simulated.as_ref().map_or(mix.total(), |found| found.iter().sum());
        assert!((mix.total() / found - 1.0).abs() < 0.15, "{} and {found}", mix.total());
    }
}

#[test]
fn every_example_is_planned_and_says_what_binds() {
    for example in EXAMPLES {
        let plan = plan(&read(example), false).unwrap();
        let mix = plan.recommended();
        let (resource, share) = mix.taken[0];
        assert!(
            (share - 1.0).abs() < 1e-6,
            "{}: {} {share}",
            plan.description.name,
            resource.name()
        );
        let (text, json) = (plan.to_string(), plan.json());
        assert!(text.contains(resource.name()), "{text}");
        assert_eq!(json["schema"], "nicol.plan/1");
        assert_eq!(json["alternatives"].as_array().unwrap().len(), plan.candidates.len());
        let svg = picture(&plan);
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n") && svg.contains("PCIe1"));
        assert!(mix.total() >= plan.greedy.total() * (1.0 - 1e-9));
    }
}

#[test]
fn each_piece_of_advice_appears_where_it_applies_and_goes_with_its_remedy() {
    let advised = |steps: &str, mitigations: &str| -> Vec<u8> {
        let text = format!(
            "name = \"x\"\n{mitigations}\n[[alternative]]\nname = \"a\"\nsteps = [{steps}]"
        );
        plan(&read(&text), false).unwrap().advice.iter().map(|one| one.number).collect()
    };
    for (number, steps, remedy) in [
        (
            1,
            r#"{ path = "2", verb = "WRITE", bytes = "64B", range = "1536B" }"#,
            "replicate_hot = 8",
        ),
        (2, r#"{ path = "2", verb = "READ", bytes = "16MiB" }"#, "segment = \"1MiB\""),
        (3, r#"{ path = "3*", verb = "READ", bytes = "16MiB" }"#, "segment = \"256KiB\""),
        (4, r#"{ path = "3-s2h", verb = "READ", bytes = "64B" }"#, "doorbell_batch = 32"),
    ] {
        let before = advised(steps, "");
        assert!(before.contains(&number), "{steps}: {before:?}");
        let after = advised(steps, &format!("[mitigations]\n{remedy}"));
        assert!(!after.contains(&number), "{steps} with {remedy}: {after:?}");
    }
    let dma = advised(r#"{ path = "3-s2h", verb = "READ", bytes = "4KiB" }"#, "");
    assert!(
        dma.contains(&5)
            && !advised(r#"{ path = "1", verb = "READ", bytes = "4KiB" }"#, "").contains(&5)
    );
}

#[test]
fn hardware_without_cores_beside_the_path_is_refused_with_a_remedy() {
    let text = EXAMPLES[0].replace("hardware = \"bluefield2\"", "hardware = \"connectx6\"");
    let error = plan(&read(&text), false).unwrap_err().to_string();
    assert!(error.contains("connectx6") && error.contains("choose bluefield2"), "{error}");
}
