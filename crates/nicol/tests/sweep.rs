//! What a sweep tells that has found something, or nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, id};

use serde_json::Value;

fn nicol(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_nicol")).args(words).output().unwrap()
}

/// A sweep of what is broken, with more flags.
fn broken(more: &[&str]) -> (Value, Output) {
    broken_on("liquidio3", more)
}

fn broken_on(worlds: &str, more: &[&str]) -> (Value, Output) {
    let words = ["sweep", "churn", "--on", worlds, "--seeds", "0..8", "--format", "json"];
    let words = words.iter().chain(&["--transactions", "300", "--set", "faithful=paper"]);
    let output = nicol(&words.chain(more).copied().collect::<Vec<_>>());
    let told = String::from_utf8_lossy(&output.stderr);
    let report = serde_json::from_slice(&output.stdout);
    let report: Value = report.unwrap_or_else(|error| panic!("{error}: {told}"));
    assert!(!report["failures"].as_array().unwrap().is_empty(), "{told}");
    (report, output)
}

/// An empty folder of this test's own.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("nicol-sweep-{name}-{}", id()));
    drop(fs::remove_dir_all(&folder));
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn plans(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// What a shell would run.
fn repeats(replay: &str) -> Output {
    let words: Vec<&str> = replay.split(' ').collect();
    assert_eq!(words[0], "nicol");
    nicol(&words[1..])
}

#[test]
fn a_shrunk_plan_fails_again() {
    let folder = folder("shrunk");
    let (report, output) = broken(&["--shrink", folder.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let failures = report["failures"].as_array().unwrap();
    assert_eq!(plans(&folder).len(), failures.len());
    for failure in failures {
        let replay = failure["replay"].as_str().unwrap();
        assert!(replay.contains("--fault-plan"), "{replay}");
        assert_eq!(repeats(replay).status.code(), Some(1), "{replay}");
    }
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_plan_that_cannot_be_written_does_not_hide_what_was_found() {
    let folder = folder("unwritten");
    let (report, _) = broken(&["--shrink", folder.to_str().unwrap()]);
    // A folder stands where each file would.
    for plan in plans(&folder) {
        fs::remove_file(&plan).unwrap();
        fs::create_dir(&plan).unwrap();
    }
    let (again, output) = broken(&["--shrink", folder.to_str().unwrap()]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("--shrink: cannot write"), "{told}");
    let [found, again] = [&report, &again].map(|report| report["failures"].as_array().unwrap());
    assert_eq!(found.len(), again.len());
    let replay = again[0]["replay"].as_str().unwrap();
    assert!(!replay.contains("--fault-plan"), "{replay}");
    assert_eq!(repeats(replay).status.code(), Some(1), "{replay}");
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_run_that_cannot_be_made_does_not_hide_what_was_found() {
    // That card has one core of a NIC, and a sweep takes two.
    let (report, output) = broken_on("liquidio3,innova2", &["--jobs", "1"]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("--nic-engines") && told.contains("replay with"), "{told}");
    assert_eq!((&report["runs"], &report["planned_runs"]), (&8.into(), &16.into()));
}

#[test]
fn a_sweep_of_nothing_is_refused() {
    let words = ["sweep", "all", "--system", "silo", "--client-nodes", "2", "--on", "threads"];
    let output = nicol(&[&words[..], &["--seeds", "0..1"]].concat());
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("nothing to run"), "{told}");
}

#[test]
fn a_field_that_a_plan_of_faults_does_not_have_is_named_as_the_file_has_it() {
    let plan = folder("wrong_plan").with_extension("json");
    fs::write(&plan, r#"{"stalls": [{"engine": 0, "from": 1}]}"#).unwrap();
    let on = ["bench", "smallbank", "--on", "liquidio3", "--fault-plan", plan.to_str().unwrap()];
    let output = nicol(&on);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && told.contains("unknown field 'from'"), "{told}");
}
