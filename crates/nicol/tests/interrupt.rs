//! What a command that is interrupted tells, and how it ends.
#![cfg(target_os = "linux")]

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

/// The exit code of whoever a signal ended.
fn exit_code(name: &str) -> i32 {
    if name == "INT" { 130 } else { 143 }
}

/// No wait of these tests takes as long, unless something is broken.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A sweep that takes much longer than the test; it has its handler of signals when this returns.
fn sweep(flags: &[&str]) -> Child {
    let child = Command::new(env!("CARGO_BIN_EXE_nicol"))
        .args(["sweep", "smallbank", "--on", "liquidio3", "--jobs", "2"])
        .args(flags)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    catches_signals(&child);
    child
}

/// Waits until it has its handlers of signals.
fn catches_signals(child: &Child) {
    let status = format!("/proc/{}/status", child.id());
    let caught = || {
        let status = fs::read_to_string(&status).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap()
    };
    // Bit 1 is SIGINT, which is 2, and bit 14 SIGTERM.
    let started = Instant::now();
    while caught() >> 1 & caught() >> 14 & 1 == 0 {
        assert!(started.elapsed() < TIMEOUT, "no handler of signals");
        sleep(Duration::from_millis(5));
    }
}

/// Waits until it has spent so much time on a core, however busy the machine is.
fn works_for(child: &Child, time: Duration) {
    let tasks = format!("/proc/{}/task", child.id());
    let spent = || -> u64 {
        let tasks = fs::read_dir(&tasks).unwrap();
        let stats = tasks
            .filter_map(|task| fs::read_to_string(task.unwrap().path().join("schedstat")).ok());
        stats.map(|stat| stat.split(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    };
    let started = Instant::now();
    while Duration::from_nanos(spent()) < time {
        assert!(started.elapsed() < TIMEOUT, "it does not work");
        sleep(Duration::from_millis(5));
    }
}

fn signal(child: &Child, name: &str) {
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
}

/// Interrupts a sweep of many short runs and returns what it printed, and told.
fn interrupted(format: &str, name: &str) -> (String, String) {
    let runs = ["--seeds", "0..20000", "--transactions", "3", "--format", format];
    let child = sweep(&runs);
    // A run takes a millisecond of a core.
    works_for(&child, Duration::from_millis(500));
    signal(&child, name);
    let output = child.wait_with_output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(exit_code(name)), "{told}");
    assert!(!told.contains("panicked"), "{told}");
    (String::from_utf8(output.stdout).unwrap(), told)
}

#[test]
fn an_interrupted_sweep_reports_what_was_done() {
    for name in ["INT", "TERM"] {
        let (printed, told) = interrupted("json", name);
        let report: Value = serde_json::from_str(&printed).unwrap();
        assert_eq!(report["interrupted"], true, "{printed}");
        assert_eq!(report["planned_runs"], 20_000, "{printed}");
        let runs = report["runs"].as_u64().unwrap();
        assert!((1..20_000).contains(&runs), "{printed}");
        assert_eq!(report["parts"][0]["runs"], runs, "{printed}");
        assert!(report["committed"].as_u64().unwrap() > 0, "{printed}");
        assert!(told.contains("interrupted"), "{told}");
    }
}

#[test]
fn every_format_says_that_it_is_not_the_whole() {
    let (table, _) = interrupted("table", "INT");
    assert!(table.contains("of 20000: INTERRUPTED"), "{table}");
    let (csv, _) = interrupted("csv", "INT");
    let (names, values) = csv.split_once('\n').unwrap();
    let at = names.split(',').position(|name| name == "interrupted").unwrap();
    assert_eq!(values.split(',').nth(at), Some("true"), "{csv}");
}

#[test]
fn a_second_interrupt_does_not_wait() {
    let mut child = sweep(&["--seeds", "0..1", "--transactions", "100000000"]);
    let started = Instant::now();
    let mut signals = 0;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        assert!(started.elapsed() < TIMEOUT, "it waits for its run");
        // A signal that follows its like too closely is none.
        signal(&child, "INT");
        signals += 1;
        sleep(Duration::from_millis(200));
    };
    assert!(signals >= 2, "the first one ended it");
    let output = child.wait_with_output().unwrap();
    assert_eq!(status.code(), Some(exit_code("INT")));
    assert!(output.stdout.is_empty(), "a report of what?");
}

/// A server whose start takes a good part of a second, and that then serves nobody.
#[test]
fn a_server_that_is_starting_ends_at_once() {
    for name in ["INT", "TERM"] {
        let child = Command::new(env!("CARGO_BIN_EXE_nicol"))
            .args(["serve", "--listen", "127.0.0.1:0", "--nodes", "100", "--records", "100000"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        catches_signals(&child);
        signal(&child, name);
        let output = child.wait_with_output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{told}");
        assert!(told.contains("while it started") && !told.contains("serving"), "{told}");
    }
}

#[test]
fn an_interrupted_run_says_what_becomes_of_it() {
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("interrupted-lab");
    let out = out.to_str().unwrap();
    let long = ["lab", "run", "xenic-table2", "--out", out];
    let bench = ["bench", "smallbank", "--on", "liquidio3", "--seconds", "1"];
    for (args, code, words) in [(&long[..], 130, out), (&bench[..], 143, "reports nothing")] {
        let mut run = Command::new(env!("CARGO_BIN_EXE_nicol"))
            .args(args)
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        catches_signals(&run);
        signal(&run, if code == 130 { "INT" } else { "TERM" });
        let mut told = String::new();
        run.stderr.take().unwrap().read_to_string(&mut told).unwrap();
        assert_eq!(run.wait().unwrap().code(), Some(code), "{told}");
        assert!(told.contains("interrupted: ") && told.contains(words), "{told}");
    }
}
