//! What `docs/research/reports.md` says of reports is what they are.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

const PAGE: &str = include_str!("../../../docs/research/reports.md");

/// Groups whose names are a system's, a workload's or a figure's.
const OPEN: [&str; 6] =
    ["abort_reasons", "paths", "counters", "befell", "check.awaiting_recovery", "kept"];
/// Printed after crashes only, of which tests of crashes look at the values.
const AFTER_CRASHES: [&str; 5] = [
    "check.awaiting_recovery.*",
    "check.read_back",
    "check.acknowledged_lost",
    "milestones.views.*",
    "milestones.inherited.*",
];

/// Runs `nicol`, which must hold, and reads the object that it prints.
fn printed(args: &str) -> Value {
    let words: Vec<_> = args.split(' ').chain(["--format", "json"]).collect();
    let output = Command::new(env!("CARGO_BIN_EXE_nicol")).args(words).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "nicol {args}: {told}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The fields of `value`, with dots between an object's and those in it; `open`: groups of which
/// only the name is taken.
fn fields(prefix: &str, value: &Value, open: &[&str], into: &mut BTreeSet<String>) {
    if open.contains(&prefix) && !value.is_null() {
        into.insert(format!("{prefix}.*"));
        return;
    }
    match value {
        Value::Object(object) => {
            for (name, field) in object {
                let path = match prefix {
                    "" => name.clone(),
                    "check" if name.starts_with("leaked_") => "check.leaked_*".to_owned(),
                    _ => format!("{prefix}.{name}"),
                };
                fields(&path, field, open, into);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            items.iter().for_each(|item| fields(prefix, item, open, into));
        }
        _ => {
            into.insert(prefix.to_owned());
        }
    }
}

/// The names in backquotes of `cell`.
fn names(cell: &str) -> BTreeSet<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The rows of the table below `heading`, cell by cell.
fn table(heading: &str) -> Vec<Vec<&'static str>> {
    let (_, section) = PAGE.split_once(heading).expect("the page has the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let lines = section.lines().filter(|line| line.starts_with('|')).skip(2);
    lines.map(|line| line.trim_matches('|').split('|').collect()).collect()
}

#[test]
fn every_field_of_a_bench_report_is_documented_and_every_documented_field_printed() {
    let mut found = BTreeSet::new();
    let small = "--seconds 0.0002 --warmup 0 --clients 2";
    for run in [
        format!("bench smallbank --records 100 --on liquidio3 --steps {small}"),
        format!("bench ycsb --records 100 --system prism-kv --on connectx5-40g {small}"),
        format!("bench ycsb --records 100 --system minos-b:synch --on minos-snic {small}"),
        format!("bench smallbank --records 100 --on liquidio3 --faults slow {small}"),
        "bench smallbank --records 100 --transactions 200 --threads 4 --client-nodes 1".to_owned(),
    ] {
        fields("", &printed(&run), &OPEN, &mut found);
    }
    let documented: BTreeSet<String> =
        table("## Fields of `nicol bench").iter().flat_map(|row| names(row[0])).collect();
    let missing: Vec<_> = found.difference(&documented).collect();
    assert!(missing.is_empty(), "not in the page: {missing:?}");
    let unseen: Vec<_> = documented
        .difference(&found)
        .filter(|name| !AFTER_CRASHES.contains(&name.as_str()))
        .collect();
    assert!(unseen.is_empty(), "in the page and in no report: {unseen:?}");
}

#[test]
fn every_field_of_the_laboratory_is_documented_and_every_documented_field_printed() {
    let commands = [
        ("lab run ID", "lab run xenic-fig2 --quick"),
        ("lab run`, several", "lab run xenic-fig2 xenic-fig4 --quick"),
        ("lab list", "lab list"),
        ("lab show ID", "lab show xenic-fig2"),
    ];
    let rows = table("## Fields of `nicol lab`");
    assert_eq!(rows.len(), commands.len());
    for (row, (name, command)) in rows.iter().zip(commands) {
        assert!(row[0].contains(name), "{row:?}");
        let report = printed(command);
        assert_eq!(names(row[1]).first().map(String::as_str), report["schema"].as_str());
        let mut found = BTreeSet::new();
        let open: &[&str] = if name == "lab run ID" { &["rows"] } else { &OPEN };
        fields("", &report, open, &mut found);
        let mut documented = names(row[2]);
        // Nothing is kept of what has not run.
        documented.remove("kept.*");
        found.remove("kept");
        assert_eq!(found, documented, "{command}");
    }
}
