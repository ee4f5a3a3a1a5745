//! `cargo xtask ci`: exactly what the gate runs, in its order.

mod determinism;
mod test_counts;
mod unchanged;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};

pub use test_counts::pass;

use crate::cargo::{command, target};
use crate::finish;
use crate::instructions::{self, Counts};

/// How much to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Everything.
    Full,
    /// What needs no release build, and of the tests those that a change may have touched.
    Quick,
}

/// The seed sweeps: every system on many seeds of the workloads that are hardest on a protocol,
/// under message faults and under crashes; then every workload on a few.
const SWEEPS: [&[&str]; 15] = [
    &["smallbank", "--on", WORLDS, "--seeds", "0..40"],
    &["churn", "--on", WORLDS, "--seeds", "0..40"],
    &["smallbank", "--on", WORLDS, "--faults", "messages,crashes", "--seeds", "0..20"],
    &["churn", "--on", WORLDS, "--faults", "messages,crashes", "--seeds", "0..20"],
    &["all", "--on", WORLDS, "--seeds", "4..6"],
    &["all", "--on", "liquidio3", "--seeds", "7..9"],
    // Real threads.
    &["smallbank", "--on", "threads", "--faults", "messages,crashes", "--seeds", "0..4"],
    &["churn", "--on", "threads", "--seeds", "0..4"],
    // What needs a log device.
    &["churn", "--on", "minos-snic", "--seeds", "0..20", "--system", MINOS],
    &[
        "ycsb",
        "--on",
        "minos-snic",
        "--faults",
        "messages,crashes",
        "--seeds",
        "0..20",
        "--system",
        MINOS,
    ],
    // What reads by verbs, on cards that execute them, and on a card with cores beside the path.
    &[
        "ycsb",
        "--on",
        CARDS,
        "--faults",
        "messages,crashes",
        "--seeds",
        "0..30",
        "--system",
        READERS,
    ],
    // Clients on nodes of their own.
    &[
        "ycsb",
        "--records",
        "16",
        "--on",
        "connectx5-40g",
        "--client-nodes",
        "2",
        "--faults",
        "messages,crashes",
        "--seeds",
        "0..20",
        "--system",
        APART,
    ],
    &[
        "ycsb",
        "--on",
        "bluefield2",
        "--nodes",
        "3",
        "--replicas",
        "3",
        "--client-nodes",
        "2",
        "--faults",
        "messages,crashes",
        "--seeds",
        "0..5",
        "--system",
        CHAINS,
    ],
    // The cores of one server.
    &[
        "smallbank,churn-ordered",
        "--on",
        "innova2",
        "--set",
        "epoch_us=20",
        "--seeds",
        "0..10",
        "--system",
        "silo,tictoc,cicada,2pl",
    ],
    // Scans where others insert and delete, with leaves that come and go, and stalls between steps.
    &[
        "churn-ordered",
        "--on",
        "innova2",
        "--records",
        "8",
        "--host-engines",
        "4",
        "--scan-first",
        "true",
        "--both-tables",
        "true",
        "--set",
        "epoch_us=1",
        "--set",
        "stall_us=3",
        "--seeds",
        "0..100",
        "--system",
        "silo,tictoc,cicada,2pl",
    ],
];
const APART: &str = "drtm-kv:rnic,drtm-kv:a1,drtm-kv:a2,drtm-kv:a3,drtm-kv:a4,drtm-kv:a5,\
                     drtm-kv:a4+a5,pilaf,prism-kv,prism-rs,abdlock";
const CHAINS: &str = "linefs:a1,linefs:a2,linefs:a3,linefs:a2+a3";
const CARDS: &str = "bluefield2,connectx5-40g";
const READERS: &str = "drtm-kv:rnic,drtm-kv:a1,drtm-kv:a2,drtm-kv:a3,drtm-kv:a4,drtm-kv:a5,\
                       drtm-kv:a4+a5,pilaf,prism-kv";
const WORLDS: &str = "liquidio3,connectx5";
const MINOS: &str = "minos-b:synch,minos-b:strict,minos-b:renf,minos-b:event,minos-b:scope,\
                     minos-o:synch,minos-o:strict,minos-o:renf,minos-o:event,minos-o:scope";

/// What to do with the golden tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tables {
    /// Fail if one differs.
    Compare,
    /// Write them anew.
    Bless,
}

/// Builds the release and runs every experiment's quick form against its golden table.
pub fn golden(root: &Path, tables: Tables) -> Result<()> {
    cargo(root, &["build", "--release", "--bin", "nicol"])?;
    run_experiments(root, &target(root)?, tables)
}

/// Builds the release and counts what its transactions execute.
pub fn instructions(root: &Path, counts: Counts) -> Result<()> {
    cargo(root, &["build", "--release", "--bin", "nicol"])?;
    instructions::run(root, &binary(&target(root)?, "release"), counts)
}

fn run_experiments(root: &Path, target: &Path, tables: Tables) -> Result<()> {
    let mut nicol = Command::new(binary(target, "release"));
    nicol.args(["lab", "run", "--all", "--quick", "--golden"]);
    nicol.arg(root.join("crates/nicol-lab/golden"));
    if tables == Tables::Bless {
        nicol.arg("--bless");
    }
    finish(&mut nicol)
}

/// Runs every step; the first that fails ends the run. The last line printed sums the tests up.
pub fn run(root: &Path, extent: Extent) -> Result<()> {
    let started = Instant::now();
    step("format", || cargo(root, &["fmt", "--all", "--check"]))?;
    step("lints", || {
        cargo(root, &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])
    })?;
    step("tidy", || crate::tidy::run(root))?;
    step("docs", || {
        let mut doc = command(root);
        finish(doc.args(["doc", "--no-deps", "--workspace"]).env("RUSTDOCFLAGS", "-D warnings"))
    })?;
    if extent == Extent::Full {
        step("book", || crate::book::run(root))?;
        let target = target(root)?;
        step("release build", || cargo(root, &["build", "--release", "--bin", "nicol"]))?;
        step("seed sweeps", || {
            for sweep in SWEEPS {
                let mut nicol = Command::new(binary(&target, "release"));
                nicol.arg("sweep").args(sweep);
                if !sweep.contains(&"--system") {
                    nicol.args(["--system", "all"]);
                }
                finish(nicol.stdout(Stdio::null()))?;
            }
            Ok(())
        })?;
        step("museum", || {
            let mut nicol = Command::new(binary(&target, "release"));
            finish(nicol.arg("museum").stdout(Stdio::null()))
        })?;
        step("exploration", || crate::explore(root, &["--quick"]))?;
        step("TLA+", || crate::tlc::run(root, crate::tlc::Form::Quick))?;
        step("golden tables", || run_experiments(root, &target, Tables::Compare))?;
        step("instructions", || {
            instructions::run(root, &binary(&target, "release"), Counts::Check)
        })?;
        step("determinism", || {
            // With what tests need, as `crate::explore` builds it: else dependencies have other
            // features, and everything is compiled once more.
            cargo(root, &["build", "--workspace", "--bin", "nicol", "--example", "explore"])?;
            determinism::check(&binary(&target, "release"), &binary(&target, "debug"))
        })?;
    }
    let counts = match extent {
        Extent::Full => step("tests", || test_counts::run(command(root)))?,
        Extent::Quick => step("tests", || {
            let (counts, left_out) = unchanged::run(root, &target(root)?, command(root))?;
            println!("== left out: {left_out} test binaries that have passed as they are");
            Ok(counts)
        })?,
    };
    println!("== all steps: {:.1} s", started.elapsed().as_secs_f64());
    if extent == Extent::Quick {
        println!(
            "== left out: book, release build, seed sweeps, museum, exploration, TLA+, golden tables, \
             instructions, determinism, examples in documentation (cargo xtask ci)"
        );
    }
    println!("{counts}");
    Ok(())
}

/// Runs a step and prints its time, also if it fails.
fn step<T>(name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    println!("== {name}");
    let started = Instant::now();
    let done = work();
    let verdict = if done.is_ok() { "" } else { "FAILED after " };
    println!("== {name}: {verdict}{:.1} s", started.elapsed().as_secs_f64());
    done.with_context(|| format!("step '{name}' failed"))
}

fn cargo(root: &Path, args: &[&str]) -> Result<()> {
    finish(command(root).args(args))
}

fn binary(target: &Path, profile: &str) -> PathBuf {
    target.join(profile).join("nicol").with_extension(std::env::consts::EXE_EXTENSION)
}
