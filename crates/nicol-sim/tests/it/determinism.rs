//! One seed, one run: in this process, on other threads, in another process.

use std::process::Command;
use std::sync::Arc;
use std::thread;

use nicol_core::units::Nanos;
use nicol_sim::{Profile, checks};

/// Set in the process that prints the digest for the one that compares.
const CHILD: &str = "NICOL_SIM_PRINTS_DIGEST";

fn digest() -> u64 {
    let profile = Arc::new(Profile::load("liquidio3").unwrap());
    let report = checks::echo_load(&profile, Nanos::from_micros(60)).unwrap();
    assert!(report.stats.messages_received > 1_000, "the load was a load");
    report.digest
}

#[test]
fn another_process_and_other_threads_give_the_same_digest() {
    let mine = digest();
    if std::env::var_os(CHILD).is_some() {
        println!("digest={mine:016x};");
        return;
    }
    let threads: Vec<_> = (0..3).map(|_| thread::spawn(digest)).collect();
    for thread in threads {
        assert_eq!(thread.join().unwrap(), mine);
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "determinism::another_process_and_other_threads_give_the_same_digest"])
        .arg("--nocapture")
        .env(CHILD, "1")
        .output()
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains(&format!("digest={mine:016x};")), "{printed}");
}
