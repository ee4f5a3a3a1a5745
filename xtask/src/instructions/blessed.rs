//! The file of blessed counts, and how far a count may be above its own.

use std::collections::BTreeMap;
use std::env::consts::ARCH;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::Cost;

/// Where the counts lie, from the project's folder.
const FILE: &str = "xtask/instructions.toml";
/// A count may be so much above the blessed one, in percent.
const GROWTH_MAX: f64 = 5.0;
const PREAMBLE: &str = "\
# Instructions per transaction, and per GET and PUT of PRISM-KV, by `cargo xtask instructions --bless`: in
# nicol itself, and in the machine's libraries, which are compared only where glibc is the same. Say in the
# commit what moved.
";

/// Counts by run, and the machine that they are of.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Blessed {
    arch: String,
    glibc: String,
    costs: BTreeMap<String, Cost>,
}

/// How a count stands against the blessed one.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verdict {
    /// Within bounds; what has changed, in percent.
    Held(f64),
    /// So far below it that it should be blessed anew, in percent.
    Fell(f64),
    /// Too far above it, in words.
    Grew(String),
    /// It cannot be compared on this machine, in words.
    Unknown(String),
    /// No count of it is blessed.
    Missing,
}

impl Blessed {
    /// None yet, for this machine.
    pub fn here() -> Self {
        Self { arch: ARCH.to_owned(), glibc: glibc(), costs: BTreeMap::new() }
    }

    /// Those of the project in `root`; without any, if there is no file.
    pub fn load(root: &Path) -> Result<Self> {
        let path = root.join(FILE);
        if !path.exists() {
            return Ok(Self::default());
        }
        let text = fs::read_to_string(&path).with_context(|| FILE)?;
        Self::parse(&text).with_context(|| FILE)
    }

    fn parse(text: &str) -> Result<Self> {
        let table: toml::Table = text.parse().context("not TOML")?;
        let word = |name: &str| -> Result<String> {
            let word = table.get(name).and_then(toml::Value::as_str);
            Ok(word.with_context(|| format!("no {name}"))?.to_owned())
        };
        let mut blessed = Self { arch: word("arch")?, glibc: word("glibc")?, ..Self::default() };
        for (run, cost) in table.iter().filter(|(_, value)| value.is_table()) {
            let number = |name: &str| -> Result<f64> {
                let value = cost.get(name).and_then(toml::Value::as_integer);
                Ok(value.with_context(|| format!("[{run}] has no {name}"))? as f64)
            };
            let cost = Cost { own: number("own")?, libraries: number("libraries")?, events: None };
            blessed.costs.insert(run.clone(), cost);
        }
        Ok(blessed)
    }

    pub fn set(&mut self, run: &str, cost: Cost) {
        self.costs.insert(run.to_owned(), cost);
    }

    pub fn save(&self, root: &Path) -> Result<()> {
        fs::write(root.join(FILE), self.text()).with_context(|| FILE)
    }

    fn text(&self) -> String {
        let mut text = format!("{PREAMBLE}arch = \"{}\"\nglibc = \"{}\"\n", self.arch, self.glibc);
        for (run, cost) in &self.costs {
            let Cost { own, libraries, .. } = cost;
            let line = format!("\n[{run}]\nown = {own:.0}\nlibraries = {libraries:.0}\n");
            text.write_str(&line).expect("a string takes everything");
        }
        text
    }

    /// Compares the `cost` of `run` on this machine.
    pub fn compare(&self, run: &str, cost: &Cost) -> Verdict {
        self.compare_on(ARCH, &glibc(), run, cost)
    }

    fn compare_on(&self, arch: &str, glibc: &str, run: &str, cost: &Cost) -> Verdict {
        let Some(blessed) = self.costs.get(run) else { return Verdict::Missing };
        if self.arch != arch {
            return Verdict::Unknown(format!("the blessed count is of {}", self.arch));
        }
        let mut counts = vec![("in nicol itself", blessed.own, cost.own)];
        if self.glibc == glibc {
            counts.push(("with libraries", blessed.total(), cost.total()));
        }
        let growth = |before: f64, after: f64| (after / before.max(1.0) - 1.0) * 100.0;
        let grown = counts.iter().find(|(_, before, after)| growth(*before, *after) > GROWTH_MAX);
        if let Some((what, before, after)) = grown {
            return Verdict::Grew(format!(
                "{after:.0} instructions per transaction {what}, {:+.1} % from the blessed \
                 {before:.0}",
                growth(*before, *after)
            ));
        }
        let (_, before, after) = counts[counts.len() - 1];
        let grown = growth(before, after);
        if grown < -GROWTH_MAX { Verdict::Fell(grown) } else { Verdict::Held(grown) }
    }
}

/// The version of the machine's C library; empty if it does not say.
fn glibc() -> String {
    let Ok(output) = Command::new("getconf").arg("GNU_LIBC_VERSION").output() else {
        return String::new();
    };
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().strip_prefix("glibc ").unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(own: f64, libraries: f64) -> Cost {
        Cost { own, libraries, events: None }
    }

    fn blessed() -> Blessed {
        let mut blessed =
            Blessed { arch: "x86_64".to_owned(), glibc: "2.36".to_owned(), costs: BTreeMap::new() };
        blessed.set("smallbank-live", cost(1_000.0, 100.0));
        blessed
    }

    fn verdict(arch: &str, glibc: &str, cost: Cost) -> Verdict {
        blessed().compare_on(arch, glibc, "smallbank-live", &cost)
    }

    #[test]
    fn what_is_written_is_read_back() {
        assert_eq!(Blessed::parse(&blessed().text()).unwrap(), blessed());
        assert!(Blessed::parse("arch = \"x\"\nglibc = \"1\"\n[a]\nown = 1\n").is_err());
    }

    #[test]
    fn growth_beyond_five_percent_is_refused_wherever_it_comes_from() {
        let held = |cost| matches!(verdict("x86_64", "2.36", cost), Verdict::Held(_));
        assert!(held(cost(1_049.0, 100.0)));
        assert!(held(cost(1_000.0, 154.0)));
        assert!(!held(cost(1_051.0, 49.0)), "libraries do not make up for it");
        assert!(!held(cost(1_000.0, 156.0)));
        let Verdict::Grew(words) = verdict("x86_64", "2.36", cost(1_100.0, 100.0)) else {
            panic!("ten percent were not seen")
        };
        assert!(words.contains("+10.0 %"), "{words}");
    }

    #[test]
    fn another_machine_is_held_to_what_is_the_same_there() {
        assert_eq!(verdict("x86_64", "2.40", cost(1_000.0, 900.0)), Verdict::Held(0.0));
        assert!(matches!(verdict("x86_64", "2.40", cost(1_060.0, 0.0)), Verdict::Grew(_)));
        assert!(matches!(verdict("aarch64", "2.36", cost(9e9, 0.0)), Verdict::Unknown(_)));
        let missing = blessed().compare_on("x86_64", "2.36", "tpcc-live", &cost(1.0, 0.0));
        assert_eq!(missing, Verdict::Missing);
        let none = Blessed::default().compare_on("x86_64", "2.36", "tpcc-live", &cost(1.0, 0.0));
        assert_eq!(none, Verdict::Missing);
    }

    #[test]
    fn a_great_fall_asks_for_a_blessing() {
        assert!(matches!(verdict("x86_64", "2.36", cost(900.0, 100.0)), Verdict::Fell(_)));
        assert!(matches!(verdict("x86_64", "2.36", cost(970.0, 100.0)), Verdict::Held(_)));
    }
}
