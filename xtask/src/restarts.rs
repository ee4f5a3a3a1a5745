//! `cargo xtask restarts`: stores that are killed, harmed and started again, many times over.
//!
//! The gate runs a few rounds of both forms with the other tests. Here is how many a change to logs
//! or recovery deserves.

use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use crate::{cargo, ci};

/// How much is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Rounds of load on a `nicol serve`, `kill -9` at any instant, harm to its files, and a start;
    /// and a tenth as many of each system of MINOS.
    pub rounds: u64,
    /// The seed of those rounds.
    pub seed: u64,
    /// Seeds of simulated clusters whose media lose what was not synced.
    pub seeds: Range<u64>,
}

impl Extent {
    /// From words such as `--rounds 50 --seed 3 --seeds 0..200`.
    pub fn parse(words: &[&str]) -> Result<Self> {
        let mut extent = Self { rounds: 200, seed: 17, seeds: 1_000..2_000 };
        for pair in words.chunks(2) {
            let [flag, value] = pair else { bail!("{} wants a value", pair[0]) };
            let number = |text: &str| {
                text.parse::<u64>().with_context(|| format!("{flag} {value}: give numbers"))
            };
            match *flag {
                "--rounds" => extent.rounds = number(value)?,
                "--seed" => extent.seed = number(value)?,
                "--seeds" => {
                    let (from, to) =
                        value.split_once("..").with_context(|| format!("{flag} FROM..TO"))?;
                    extent.seeds = number(from)?..number(to)?;
                }
                _ => bail!("unknown flag {flag}: --rounds N, --seed N or --seeds FROM..TO"),
            }
        }
        ensure!(extent.rounds >= 1, "--rounds: give at least 1");
        ensure!(extent.seeds.start < extent.seeds.end, "--seeds FROM..TO: give at least one");
        Ok(extent)
    }
}

/// Runs both forms; what each has seen is printed.
pub fn run(root: &Path, extent: &Extent) -> Result<()> {
    let Extent { rounds, seed, seeds } = extent;
    for (package, target, test) in [
        ("nicol", "restarts", "a_server_that_is_killed_200_times_has_everything_acknowledged"),
        ("nicol", "damage", "every_damage_to_every_file_is_made_up_for_or_refused_by_name"),
        ("nicol", "minos", "what_a_model_promises_is_there_after_200_kills"),
        (
            "nicol-commit",
            "it",
            "restart::a_new_cluster_has_everything_acknowledged_over_1000_seeds",
        ),
    ] {
        let mut cargo = cargo::command(root);
        cargo.args(["test", "-p", package, "--test", target, "--"]);
        cargo.args(["--exact", test, "--ignored", "--nocapture"]);
        cargo.env("NICOL_RESTART_ROUNDS", rounds.to_string());
        cargo.env("NICOL_RESTART_SEED", seed.to_string());
        cargo.env("NICOL_RESTART_SEEDS", format!("{}..{}", seeds.start, seeds.end));
        ci::pass(&mut cargo, 1)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_and_seeds_are_flags() {
        let long = Extent { rounds: 200, seed: 17, seeds: 1_000..2_000 };
        assert_eq!(Extent::parse(&[]).unwrap(), long);
        let words = ["--seeds", "0..20", "--rounds", "5", "--seed", "4"];
        let short = Extent { rounds: 5, seed: 4, seeds: 0..20 };
        assert_eq!(Extent::parse(&words).unwrap(), short);
        for wrong in [&["--rounds"][..], &["--rounds", "0"], &["--seeds", "4"], &["--all", "1"]] {
            assert!(Extent::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
