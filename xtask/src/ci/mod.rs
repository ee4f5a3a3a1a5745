//! `cargo xtask ci`: exactly what the gate runs, in its order.

mod determinism;
mod sweeps;
mod test_binaries;
mod test_counts;
mod unchanged;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use sweeps::Worlds;
use test_binaries::Binary;
use test_counts::Counts as Counted;
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

/// Runs every step, and prints what each takes. After one has failed no other begins. The last
/// line printed sums the tests up.
pub fn run(root: &Path, extent: Extent) -> Result<()> {
    let started = Instant::now();
    let steps = Steps::default();
    steps.run("format", || cargo(root, &["fmt", "--all", "--check"]))?;
    steps.run("tidy", || crate::tidy::run(root))?;
    let counts = match extent {
        Extent::Full => full(root, &steps)?,
        Extent::Quick => {
            lints_and_docs(root, &steps)?;
            steps.run("tests", || {
                let (counts, left_out) = unchanged::run(root, &target(root)?, command(root))?;
                println!("== left out: {left_out} test binaries that have passed as they are");
                Ok(counts)
            })?
        }
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

/// Crates whose tests run threads by the wall clock, and want the machine for themselves. Time in
/// all others is virtual.
const ON_THREADS: [&str; 6] =
    ["nicol", "nicol-bench", "nicol-lab", "nicol-resp", "nicol-rt", "xtask"];

/// Everything behind the text rules, in two lanes: what debug builds need, and what the release
/// build and virtual time need. Cargo compiles for them side by side, and neither lane leaves a
/// core idle where a crate or a long run is all that is left of the other. Whatever goes by the
/// wall clock comes behind both, and alone.
fn full(root: &Path, steps: &Steps) -> Result<Counted> {
    let target = target(root)?;
    let [release, debug] = ["release", "debug"].map(|profile| binary(&target, profile));
    let (mut counts, binaries) = thread::scope(|scope| {
        let debugging = scope.spawn(|| debugged(root, steps));
        let released = released(root, &target, steps);
        match (debugging.join().expect("a lane does not panic"), released) {
            (Err(one), Err(other)) => bail!("{one:#}; {other:#}"),
            (debugged, released) => released.and(debugged),
        }
    })?;
    steps.run("determinism", || determinism::check(&release, &debug))?;
    steps.run("seed sweeps on threads", || sweeps::run(&release, Worlds::Threads))?;
    let rest = binaries.iter().filter(|binary| !is_virtual(binary));
    counts += steps.run("tests on threads", || test_binaries::run(root, rest))?;
    counts += steps.run("examples in documentation", || test_counts::examples(command(root)))?;
    counts.ensure_passed()
}

/// The tests' build, and those of them that may share the machine; all test binaries.
fn debugged(root: &Path, steps: &Steps) -> Result<(Counted, Vec<Binary>)> {
    lints_and_docs(root, steps)?;
    steps.run("book", || crate::book::run(root))?;
    let binaries = steps.run("test build", || test_binaries::build(command(root)))?;
    steps.run("exploration", || crate::explore(root, &["--quick"]))?;
    let virtual_time = binaries.iter().filter(|binary| is_virtual(binary));
    let counts = steps.run("tests by virtual time", || test_binaries::run(root, virtual_time))?;
    Ok((counts, binaries))
}

fn is_virtual(binary: &Binary) -> bool {
    !ON_THREADS.iter().any(|krate| binary.folder.ends_with(krate))
}

fn lints_and_docs(root: &Path, steps: &Steps) -> Result<()> {
    steps.run("lints", || {
        cargo(root, &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])
    })?;
    steps.run("docs", || {
        let mut doc = command(root);
        finish(doc.args(["doc", "--no-deps", "--workspace"]).env("RUSTDOCFLAGS", "-D warnings"))
    })
}

/// The release build, and what it is run for by virtual time.
fn released(root: &Path, target: &Path, steps: &Steps) -> Result<()> {
    let nicol = binary(target, "release");
    steps.run("release build", || cargo(root, &["build", "--release", "--bin", "nicol"]))?;
    steps.run("instructions", || instructions::run(root, &nicol, Counts::Check))?;
    steps.run("TLA+", || crate::tlc::run(root, crate::tlc::Form::Quick))?;
    steps.run("seed sweeps", || sweeps::run(&nicol, Worlds::Simulated))?;
    steps.run("museum", || finish(Command::new(&nicol).arg("museum").stdout(Stdio::null())))?;
    steps.run("golden tables", || run_experiments(root, target, Tables::Compare))
}

/// The steps of a run, of which none begins once one has failed.
#[derive(Default)]
struct Steps {
    failed: AtomicBool,
}

impl Steps {
    /// Runs a step and prints its time, also if it fails.
    fn run<T>(&self, name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        ensure!(!self.failed.load(Ordering::Relaxed), "step '{name}' did not begin");
        println!("== {name}");
        let started = Instant::now();
        let done = work();
        let verdict = if done.is_ok() { "" } else { "FAILED after " };
        println!("== {name}: {verdict}{:.1} s", started.elapsed().as_secs_f64());
        self.failed.fetch_or(done.is_err(), Ordering::Relaxed);
        done.with_context(|| format!("step '{name}' failed"))
    }
}

fn cargo(root: &Path, args: &[&str]) -> Result<()> {
    finish(command(root).args(args))
}

fn binary(target: &Path, profile: &str) -> PathBuf {
    target.join(profile).join("nicol").with_extension(std::env::consts::EXE_EXTENSION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_step_begins_after_one_has_failed() {
        let steps = Steps::default();
        assert_eq!(steps.run("first", || Ok(1)).unwrap(), 1);
        let error = steps.run("second", || -> Result<()> { bail!("no") }).unwrap_err();
        assert_eq!(format!("{error:#}"), "step 'second' failed: no");
        let mut began = false;
        let third = steps.run("third", || {
            began = true;
            Ok(())
        });
        assert!(third.is_err() && !began);
    }
}
