//! Exit codes of the command: scripts depend on them.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Output};

/// A file of this test run; `name` is used by one test only.
fn file(name: &str, text: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, text).unwrap();
    path
}

fn nicol(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nicol"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("NICOL_")) {
        command.env_remove(name);
    }
    command.args(args).output().unwrap()
}

/// Runs `nicol` and returns what it printed, if it ended with `code`.
fn ends(code: i32, args: &[&str]) -> String {
    let output = nicol(args);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "nicol {}: {told}", args.join(" "));
    assert!(!told.contains("panicked"), "{told}");
    assert!(code < 2 || !told.is_empty(), "nicol {} fails without a word", args.join(" "));
    String::from_utf8(output.stdout).unwrap()
}

/// A committed transaction that reads version `read` of key 7 and writes version `write`.
fn update(id: u64, (start, end): (u64, u64), read: u64, write: u64) -> String {
    format!(
        r#"{{"client":{id},"id":{id},"start_ns":{start},"end_ns":{end},"end":"committed","reads":[{{"key":7,"version":{read},"present":true}}],"writes":[{{"key":7,"version":{write},"deleted":false}}]}}"#
    )
}

fn history(name: &str, updates: [String; 2]) -> PathBuf {
    file(name, &format!("{{\"schema\":\"nicol.history/1\"}}\n{}\n", updates.join("\n")))
}

#[test]
fn a_wrong_history_is_never_exit_0() {
    let good = history("good.jsonl", [update(1, (0, 10), 1, 2), update(2, (20, 30), 2, 3)]);
    let verdict = ends(0, &["check", good.to_str().unwrap(), "--format", "json"]);
    assert!(verdict.contains("\"serializable\": true"), "{verdict}");
    // A lost update: both read version 1 and both say that they installed version 2.
    let lost = history("lost.jsonl", [update(1, (0, 10), 1, 2), update(2, (5, 15), 1, 2)]);
    // Serializable, but not strictly: the second starts after the first ended and does not see it.
    let late = history("late.jsonl", [update(1, (0, 10), 2, 3), update(2, (20, 30), 1, 2)]);
    for bad in [lost, late] {
        for format in ["json", "csv", "table"] {
            let verdict = ends(1, &["check", bad.to_str().unwrap(), "--format", format]);
            assert!(format != "json" || verdict.contains("\"serializable\": false"), "{verdict}");
        }
    }
}

#[test]
fn a_sweep_that_witnessed_too_little_fails() {
    let few = ["sweep", "smallbank", "--on", "liquidio3", "--seeds", "0..1", "--transactions", "3"];
    ends(0, &few);
    let printed = ends(1, &[&few[..], &["--require-coverage", "--format", "json"]].concat());
    assert!(printed.contains("never_seen"), "{printed}");
}

#[test]
fn bad_usage_is_exit_2() {
    for args in [
        &["--no-such-flag"][..],
        &["no-such-command"],
        &["check"],
        &["bench", "no-such-workload"],
        &["bench", "smallbank", "--system", "no-such-system"],
        &["bench", "smallbank", "--set", "no_such_key=1"],
        &["bench", "smallbank", "--set", "log_bytes=1"],
        &["bench", "smallbank", "--threads", "0"],
        &["bench", "smallbank", "--transactions", "0"],
        &["bench", "smallbank", "--nodes", "0"],
        &["bench", "smallbank", "--nodes", "65"],
        &["bench", "smallbank", "--clients", "99999999999"],
        &["sweep", "smallbank", "--seeds", "9..3"],
        &["sweep", "smallbank", "--on", "no-such-profile"],
        &["serve", "--replicas", "9"],
        &["serve", "--threads", "0"],
    ] {
        ends(2, args);
    }
}

#[test]
fn a_failing_environment_is_exit_3() {
    ends(3, &["check", "/no/such/history.jsonl"]);
    let other = file("other.jsonl", "{\"schema\":\"something.else/1\"}\n");
    ends(3, &["check", other.to_str().unwrap()]);
    let out = ["--transactions", "10", "--on", "liquidio3", "--history", "/no/such/folder/h.jsonl"];
    ends(3, &[&["bench", "smallbank"][..], &out].concat());
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    ends(3, &["serve", "--listen", &address, "--records", "1000"]);
}
