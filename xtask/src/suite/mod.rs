//! `cargo xtask redis-suite DIR`: the test suite of Redis, which the user supplies, against a
//! redis-server and against `nicol serve`, both as external servers.
//!
//! Nothing of the suite is here. `client.tcl` runs a unit of it and goes on after what fails. A
//! test counts for Nicol only if it passes there and on the redis-server; what either server makes
//! the suite skip does not count as passed.

mod outcome;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::server::Server;
use crate::{cargo, finish};
use outcome::{Outcomes, Told, Verdict};

/// What is served by an external server, by what it tests.
const UNITS: [&str; 31] = [
    "type/string",
    "type/incr",
    "expire",
    "multi",
    "protocol",
    "keyspace",
    "introspection",
    "introspection-2",
    "type/hash",
    "type/list",
    "type/set",
    "type/zset",
    "type/stream",
    "type/stream-cgroups",
    "pubsub",
    "scripting",
    "functions",
    "scan",
    "sort",
    "bitops",
    "bitfield",
    "geo",
    "hyperloglog",
    "slowlog",
    "latency-monitor",
    "tracking",
    "pause",
    "dump",
    "info-command",
    "other",
    "querybuf",
];

/// A test that says nothing for so long hangs. Those that pass take less than half of it.
const SILENCE: Duration = Duration::from_secs(30);
/// Tests of a unit that may hang before the rest of it is given up.
const HANGS_MAX: usize = 5;

/// What is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The folder with the suite's `tests/`.
    suite: PathBuf,
    units: Vec<String>,
    /// The program to test; `None`: the release build of this tree.
    nicol: Option<PathBuf>,
    /// Whether each failure is printed.
    failures: bool,
}

impl Extent {
    /// From words such as `redis-7.0.15 --unit type/hash --failures`.
    ///
    /// # Errors
    /// No folder, or an unknown flag.
    pub fn parse(words: &[&str]) -> Result<Self> {
        let (mut suite, mut units, mut nicol, mut failures) = (None, Vec::new(), None, false);
        let mut words = words.iter().copied();
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} wants a value"));
            match word {
                "--unit" => units.push(value()?.trim_start_matches("unit/").to_owned()),
                "--nicol" => nicol = Some(PathBuf::from(value()?)),
                "--failures" => failures = true,
                _ if word.starts_with('-') => {
                    bail!("unknown flag {word}: --unit NAME, --nicol PROGRAM or --failures")
                }
                _ => suite = Some(PathBuf::from(word)),
            }
        }
        let suite = suite.context("name the folder that has Redis' tests/")?;
        if units.is_empty() {
            units = UNITS.map(str::to_owned).to_vec();
        }
        Ok(Self { suite, units, nicol, failures })
    }
}

/// Runs every unit against both servers, and prints a line for each unit and one for all.
///
/// # Errors
/// The suite, tclsh or redis-server is missing.
pub fn run(root: &Path, extent: &Extent) -> Result<()> {
    let helper = extent.suite.join("tests/test_helper.tcl");
    ensure!(helper.is_file(), "{} is not there: DIR is a source tree of Redis", helper.display());
    for unit in &extent.units {
        let file = extent.suite.join(format!("tests/unit/{unit}.tcl"));
        ensure!(file.is_file(), "--unit {unit}: {} is not there", file.display());
    }
    let nicol = match &extent.nicol {
        Some(program) => program.clone(),
        None => {
            finish(cargo::command(root).args(["build", "--release", "--bin", "nicol"]))?;
            cargo::target(root)?.join("release/nicol")
        }
    };
    let (mut redis_passed, mut both_passed) = (0, 0);
    println!("unit                  redis-server  nicol, of these");
    for unit in &extent.units {
        let redis = || Server::redis()?.context("no redis-server: apt-get install redis-server");
        let theirs = outcomes(&extent.suite, unit, redis)?;
        let ours = outcomes(&extent.suite, unit, || Server::nicol(&nicol))?;
        let passed = theirs.passed();
        let both = passed.iter().filter(|test| ours.of(test) == Some(&Verdict::Passed)).count();
        println!("{unit:<20}  {:>12}  {both:>5}  {}", passed.len(), percent(both, passed.len()));
        (redis_passed, both_passed) = (redis_passed + passed.len(), both_passed + both);
        if extent.failures {
            for test in passed {
                match ours.of(&test) {
                    Some(Verdict::Passed) => {}
                    Some(verdict) => println!("    {test}: {verdict}"),
                    None => println!("    {test}: not reached"),
                }
            }
            ours.outside().iter().for_each(|error| println!("    between tests: {error}"));
        }
    }
    let share = percent(both_passed, redis_passed);
    println!("{:<20}  {redis_passed:>12}  {both_passed:>5}  {share}", "all");
    Ok(())
}

fn percent(part: usize, whole: usize) -> String {
    if whole == 0 { "-".into() } else { format!("{:.1} %", 100.0 * part as f64 / whole as f64) }
}

/// What became of the tests of a unit. One that hangs is left out in another attempt, on another
/// server.
fn outcomes(suite: &Path, unit: &str, start: impl Fn() -> Result<Server>) -> Result<Outcomes> {
    let mut hung = Vec::new();
    loop {
        let mut server = start()?;
        let mut outcomes = attempt(suite, unit, &server, &hung)?;
        for test in &hung {
            outcomes.add_hung(test);
        }
        if !server.is_up() {
            outcomes.add_outside("the server has ended");
            return Ok(outcomes);
        }
        match outcomes.under_way() {
            Some(test) if hung.len() < HANGS_MAX => hung.push(test.to_owned()),
            _ => return Ok(outcomes),
        }
    }
}

/// Runs a unit until it is done, has ended, or is silent for too long.
fn attempt(suite: &Path, unit: &str, server: &Server, skipped: &[String]) -> Result<Outcomes> {
    let client = concat!(env!("CARGO_MANIFEST_DIR"), "/src/suite/client.tcl");
    let mut command = Command::new("tclsh");
    command.arg(client).arg(format!("unit/{unit}")).arg(server.port().to_string()).args(skipped);
    command.current_dir(suite).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut process = command.spawn().context("cannot start tclsh: apt-get install tcl")?;
    let told = process.stdout.take().context("its output is piped")?;
    let (lines, received) = mpsc::channel();
    let reader = thread::spawn(move || {
        for line in BufReader::new(told).split(b'\n').map_while(Result::ok) {
            if lines.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                break;
            }
        }
    });
    let mut outcomes = Outcomes::default();
    loop {
        match received.recv_timeout(SILENCE) {
            Ok(line) => {
                if let Some(told) = Told::parse(&line) {
                    outcomes.add(told);
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                process.kill()?;
                break;
            }
        }
    }
    process.wait()?;
    drop(received);
    reader.join().ok().context("the reader of tclsh's output has panicked")?;
    Ok(outcomes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_and_a_folder_are_told_apart() {
        let words = ["suite", "--unit", "unit/type/hash", "--failures"];
        let extent = Extent::parse(&words).unwrap();
        assert_eq!(extent.units, ["type/hash"]);
        assert!(extent.failures && extent.suite == Path::new("suite"));
        assert_eq!(Extent::parse(&["suite"]).unwrap().units.len(), UNITS.len());
        for wrong in [&["--failures"][..], &["suite", "--unit"], &["suite", "--what"]] {
            assert!(Extent::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_folder_without_a_suite_is_refused_by_name() {
        let extent = Extent::parse(&["/nowhere"]).unwrap();
        let error = run(Path::new("."), &extent).unwrap_err().to_string();
        assert!(error.starts_with("/nowhere/tests/test_helper.tcl is not there"), "{error}");
    }
}
