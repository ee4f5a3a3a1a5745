//! How many tests have run.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::ops::AddAssign;
use std::process::{Command, ExitStatus, Stdio};

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

impl Counts {
    /// Refuses a run in which no test passed, or one failed.
    pub(super) fn ensure_passed(self) -> Result<Self> {
        ensure!(self.failed == 0, "{} tests failed", self.failed);
        ensure!(self.passed > 0, "no test ran");
        Ok(self)
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

/// Runs the examples in the documentation.
pub(super) fn examples(mut cargo: Command) -> Result<Counts> {
    let tests = cargo.args(["test", "--workspace", "--doc", "--no-fail-fast"]);
    let (counts, status) = counted(tests)?;
    ensure!(status.success(), "cargo test --workspace --doc: {status}");
    Ok(counts)
}

/// Runs `tests`, showing what they say as it comes, and counts them.
pub(super) fn counted(tests: &mut Command) -> Result<(Counts, ExitStatus)> {
    let mut child =
        tests.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot start {tests:?}"))?;
    let said = child.stdout.take().context("the output is piped")?;
    let mut counts = Counts::default();
    for line in BufReader::new(said).split(b'\n') {
        let line = line.context("reading what tests say")?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        counts.add(&line);
    }
    Ok((counts, child.wait().context("waiting for tests")?))
}

/// Runs `tests`, of which at least `least` must be there, and pass: a filter that finds none, since
/// the test has another name now, is no pass.
pub fn pass(tests: &mut Command, least: u64) -> Result<()> {
    let (counts, status) = counted(tests)?;
    ensure!(status.success(), "{tests:?}: {status}");
    let passed = counts.passed;
    ensure!(passed >= least, "{tests:?}: {passed} tests ran, and there should be {least}");
    Ok(())
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

    #[test]
    #[cfg(unix)]
    fn tests_that_are_not_there_do_not_pass() {
        let says = |passed: u64, code: u8| {
            let words = format!("echo 'test result: ok. {passed} passed; 0 failed'; exit {code}");
            let mut shell = Command::new("sh");
            shell.args(["-c", &words]);
            shell
        };
        assert!(pass(&mut says(1, 0), 1).is_ok());
        assert!(pass(&mut says(0, 0), 1).is_err());
        assert!(pass(&mut says(1, 0), 2).is_err());
        assert!(pass(&mut says(1, 1), 1).is_err());
    }
}
