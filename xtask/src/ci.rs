//! `cargo xtask ci`: exactly what the gate runs.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

/// One run of the simulator, repeated for the determinism check.
const REPEATED: [&str; 15] = [
    "bench",
    "smallbank",
    "--system",
    "xenic",
    "--on",
    "liquidio3",
    "--nodes",
    "3",
    "--seed",
    "7",
    "--transactions",
    "5000",
    "--records=5000",
    "--format",
    "json",
];

/// Lines of a report that depend on the wall clock.
const WALL: [&str; 3] = ["\"wall_s\"", "\"events_per_wall_s\"", "\"simulated_to_wall\""];

/// Runs every step; the first that fails ends the run.
pub fn run(root: &Path) -> Result<()> {
    step("format", || cargo(root, &["fmt", "--all", "--check"]))?;
    step("lints", || {
        cargo(root, &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])
    })?;
    step("tidy", || crate::tidy::run(root))?;
    step("docs", || {
        let mut doc = Command::new(env!("CARGO"));
        doc.args(["doc", "--no-deps", "--workspace"]).env("RUSTDOCFLAGS", "-D warnings");
        finish(doc.current_dir(root))
    })?;
    step("build", || cargo(root, &["build", "--release", "--bin", "nicol"]))?;
    step("seed sweeps", || {
        for workload in ["smallbank", "churn"] {
            let on = ["--on", "liquidio3,connectx5", "--seeds", "0..40", "--format", "json"];
            finish(nicol(root, "release").args(["sweep", workload]).args(on))?;
        }
        Ok(())
    })?;
    step("determinism", || determinism(root))?;
    let mut counts = (0, 0);
    step("tests", || {
        counts = tests(root)?;
        Ok(())
    })?;
    let (passed, failed) = counts;
    println!("{passed} passed, {failed} failed");
    ensure!(failed == 0, "{failed} tests failed");
    Ok(())
}

fn step(name: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    println!("== {name}");
    let started = Instant::now();
    work().with_context(|| format!("step '{name}' failed"))?;
    println!("== {name}: {:.1} s", started.elapsed().as_secs_f64());
    Ok(())
}

fn cargo(root: &Path, args: &[&str]) -> Result<()> {
    finish(Command::new(env!("CARGO")).args(args).current_dir(root))
}

fn finish(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

fn nicol(root: &Path, profile: &str) -> Command {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root.join("target"), |target| root.join(target));
    Command::new(target.join(profile).join("nicol"))
}

/// The same seed in two processes, and in a debug build: the same bytes but for the wall clock.
fn determinism(root: &Path) -> Result<()> {
    cargo(root, &["build", "--bin", "nicol"])?;
    let mut first = None;
    for profile in ["release", "release", "debug"] {
        let report = report(&mut nicol(root, profile))?;
        match &first {
            None => first = Some(report),
            Some(first) if *first == report => {}
            Some(first) => {
                let differing = first.lines().zip(report.lines()).find(|(a, b)| a != b);
                bail!("the same seed gave two reports; first difference: {differing:?}");
            }
        }
    }
    Ok(())
}

fn report(nicol: &mut Command) -> Result<String> {
    let output = nicol
        .args(REPEATED)
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {nicol:?}"))?;
    ensure!(output.status.success(), "{nicol:?}: {}", output.status);
    let text = String::from_utf8(output.stdout).context("a report is text")?;
    ensure!(text.contains("\"trace_digest\""), "the report has no trace digest");
    let kept = text.lines().filter(|line| !WALL.iter().any(|name| line.contains(name)));
    // The last field before a dropped one keeps its comma either way.
    Ok(kept.collect::<Vec<_>>().join("\n"))
}

/// The README's test command; returns how many tests passed and failed.
fn tests(root: &Path) -> Result<(u64, u64)> {
    let output = Command::new(env!("CARGO"))
        .args(["test", "--workspace", "--no-fail-fast"])
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo test")?;
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}");
    let counts = count(&text);
    ensure!(output.status.success(), "cargo test: {}", output.status);
    ensure!(counts.0 > 0, "no test ran");
    Ok(counts)
}

/// Sums up cargo's `test result:` lines.
fn count(text: &str) -> (u64, u64) {
    let number = |line: &str, word: &str| {
        let words: Vec<&str> = line.split([' ', ';', '.']).collect();
        let at = words.iter().position(|found| *found == word)?;
        words.get(at.checked_sub(1)?)?.parse::<u64>().ok()
    };
    text.lines().filter(|line| line.starts_with("test result:")).fold((0, 0), |sum, line| {
        let passed = number(line, "passed").unwrap_or(0);
        (sum.0 + passed, sum.1 + number(line, "failed").unwrap_or(0))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_summed_up() {
        let text = "test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured\nnoise\n\
                    test result: FAILED. 3 passed; 2 failed; 1 ignored; 0 measured\n";
        assert_eq!(count(text), (15, 2));
    }
}
