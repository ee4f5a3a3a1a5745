//! One seed, one result: in two processes, in release and in debug.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// The runs that are repeated: the on-path NIC as it is, and verbs under message faults.
const RUNS: [&[&str]; 2] = [
    &["--on", "liquidio3", "--seed", "7", "--transactions", "20000"],
    &["--on", "connectx5", "--seed", "11", "--transactions", "5000", "--faults", "messages"],
];

/// What all runs have in common.
const BENCH: [&str; 10] = [
    "bench",
    "smallbank",
    "--system",
    "xenic",
    "--nodes",
    "3",
    "--replicas",
    "3",
    "--format",
    "json",
];

/// Fields that depend on the wall clock or the allocator; everything else must be the same.
const WALL: [&str; 5] =
    ["wall_s", "events_per_wall_s", "simulated_to_wall", "memory", "start_us_per_node"];

/// Makes each run twice with `release` and once with `debug`, and compares the reports.
pub(super) fn check(release: &Path, debug: &Path) -> Result<()> {
    for run in RUNS {
        let first = report(release, run)?;
        let again = report(release, run)?;
        same(&first, &again).context("two processes of the release build disagree")?;
        let debug = report(debug, run)?;
        same(&first, &debug).context("the release and the debug build disagree")?;
        println!("{}: trace digest {}", run.join(" "), first["trace_digest"]);
    }
    Ok(())
}

fn report(nicol: &Path, run: &[&str]) -> Result<Value> {
    let output = Command::new(nicol)
        .args(BENCH)
        .args(run)
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {}", nicol.display()))?;
    let shown = format!("nicol {} {}", BENCH.join(" "), run.join(" "));
    ensure!(output.status.success(), "{shown}: {}", output.status);
    let text = String::from_utf8(output.stdout).context("a report is text")?;
    comparable(&text).with_context(|| shown)
}

/// The report without what depends on the wall clock. Refuses one that could not tell two runs
/// apart.
fn comparable(text: &str) -> Result<Value> {
    let mut report: Value = serde_json::from_str(text).context("the report is not JSON")?;
    let Some(fields) = report.as_object_mut() else { bail!("the report is not an object") };
    for name in WALL {
        fields.remove(name);
    }
    let digest = report["trace_digest"].as_str().unwrap_or_default();
    ensure!(!digest.is_empty(), "the report has no trace_digest");
    let committed = report["committed"].as_u64().unwrap_or_default();
    ensure!(committed > 0, "nothing was committed: the comparison would mean nothing");
    Ok(report)
}

/// Fails with the first field that differs.
fn same(first: &Value, second: &Value) -> Result<()> {
    match difference("", first, second) {
        None => Ok(()),
        Some(difference) => bail!("one seed gave two reports: {difference}"),
    }
}

fn difference(path: &str, first: &Value, second: &Value) -> Option<String> {
    match (first, second) {
        (Value::Object(one), Value::Object(two)) => {
            let names = one.keys().chain(two.keys().filter(|name| !one.contains_key(*name)));
            let mut names = names.map(|name| (format!("{path}.{name}"), name));
            names.find_map(|(path, name)| difference(&path, &first[name], &second[name]))
        }
        (Value::Array(one), Value::Array(two)) if one.len() == two.len() => {
            let mut pairs = one.iter().zip(two).enumerate();
            pairs.find_map(|(at, (one, two))| difference(&format!("{path}[{at}]"), one, two))
        }
        (one, two) => (one != two).then(|| format!("{path}: {one} and {two}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(digest: &str, wall: &str) -> String {
        format!(
            r#"{{"committed": 5, "wall_s": {wall}, "trace_digest": "{digest}",
                "latency_us": {{"p50": 1.5}}, "resources": [{{"name": "nic", "utilization": 0.5}}]}}"#
        )
    }

    #[test]
    fn only_the_wall_clock_may_differ() {
        let first = comparable(&report("ab", "1.5")).expect("a good report");
        let second = comparable(&report("ab", "2.5")).expect("a good report");
        assert!(same(&first, &second).is_ok());
        let third = comparable(&report("cd", "1.5")).expect("a good report");
        let error = same(&first, &third).expect_err("the digests differ").to_string();
        assert!(error.contains(".trace_digest: \"ab\" and \"cd\""), "{error}");
    }

    #[test]
    fn nested_and_missing_fields_are_compared() {
        let first = comparable(&report("ab", "1")).expect("a good report");
        let mut second = first.clone();
        second["resources"][0]["utilization"] = Value::from(0.25);
        let error = same(&first, &second).expect_err("utilizations differ").to_string();
        assert!(error.contains(".resources[0].utilization"), "{error}");
        let mut third = first.clone();
        third["more"] = Value::from(1);
        assert!(same(&first, &third).is_err());
        assert!(same(&third, &first).is_err());
    }

    #[test]
    fn a_report_that_tells_nothing_is_refused() {
        assert!(comparable("{}").is_err());
        assert!(comparable(&report("", "1")).is_err());
        assert!(
            comparable(&report("ab", "1").replace("\"committed\": 5", "\"committed\": 0")).is_err()
        );
        assert!(comparable("not JSON").is_err());
    }
}
