//! The README's test command, and how many tests it ran.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// How many tests passed and failed. Prints as the gate's last line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    passed: u64,
    failed: u64,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

impl Counts {
    /// Adds one of cargo's `test result:` lines; other lines count nothing.
    fn add(&mut self, line: &str) {
        let Some(result) = line.strip_prefix("test result:") else { return };
        let number = |word: &str| -> u64 {
            let parts = result.split([';', '.']);
            let mut counts =
                parts.filter_map(|part| part.trim().strip_suffix(word)?.trim().parse().ok());
            counts.next().unwrap_or(0)
        };
        self.passed += number("passed");
        self.failed += number("failed");
    }
}

/// Runs `cargo test --workspace`, showing what it says as it comes. If tests fail, the counts are
/// the last line here, too.
pub(super) fn run(mut cargo: Command) -> Result<Counts> {
    let mut child = cargo
        .args(["test", "--workspace", "--no-fail-fast"])
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start cargo test")?;
    let said = child.stdout.take().context("the output is piped")?;
    let mut counts = Counts::default();
    for line in BufReader::new(said).split(b'\n') {
        let line = line.context("reading what cargo test says")?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        counts.add(&line);
    }
    let status = child.wait().context("waiting for cargo test")?;
    if !status.success() {
        println!("{counts}");
    }
    ensure!(status.success(), "cargo test --workspace: {status}");
    ensure!(counts.failed == 0, "{} tests failed", counts.failed);
    ensure!(counts.passed > 0, "no test ran");
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_summed_up() {
        let text = "test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured\n\
                    test a::passed ... ok\n\
                    test result: FAILED. 3 passed; 2 failed; 1 ignored; 0 measured\n";
        let mut counts = Counts::default();
        text.lines().for_each(|line| counts.add(line));
        assert_eq!(counts, Counts { passed: 15, failed: 2 });
        assert_eq!(counts.to_string(), "15 passed, 2 failed");
    }
}
