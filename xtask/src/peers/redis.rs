//! `cargo xtask peers redis`: Smallbank on Nicol's threads beside Smallbank on a redis-server with
//! WATCH/MULTI/EXEC, by turns: transactions per second, and their ratio.
//!
//! Nicol keeps three copies and runs its clients in its own process; Redis keeps one copy, and its
//! clients come over the loopback. Where redis-server is absent, this says so and runs nothing.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::server::Server;
use crate::{cargo, finish};

/// Customers of the bank, of both.
const CUSTOMERS: &str = "100000";
/// Connections of the clients of Redis, a thread each.
const CONNECTIONS: &str = "64";
/// Seconds of a run, of both.
const SECONDS: &str = "5";

/// Runs both `times` times, by turns, and prints a line for each turn and one for all.
pub fn run(root: &Path, times: u64) -> Result<()> {
    ensure!(times > 0, "TIMES is 0: give at least 1");
    let Some(server) = Server::redis()? else {
        println!("no redis-server, so nothing is compared: apt-get install redis-server");
        return Ok(());
    };
    let built = ["build", "--release", "-p", "nicol", "--bin", "nicol"];
    finish(cargo::command(root).args(built))?;
    let built = ["build", "--release", "-p", "nicol-resp", "--example", "redis_smallbank"];
    finish(cargo::command(root).args(built))?;
    let release = cargo::target(root)?.join("release");
    let mut ratios = Vec::new();
    for turn in 1..=times {
        let mut redis = Command::new(release.join("examples/redis_smallbank"));
        redis.args([&server.address(), CONNECTIONS, CUSTOMERS, SECONDS]);
        let redis = throughput(&mut redis)?;
        let mut nicol = Command::new(release.join("nicol"));
        nicol.args(["bench", "smallbank", "--records", CUSTOMERS, "--no-recorded-run"]);
        nicol.args(["--seconds", SECONDS, "--format", "json"]);
        let nicol = throughput(&mut nicol)?;
        println!(
            "turn {turn}: Nicol {nicol:.0} transactions a second in 3 copies, Redis {redis:.0} in one: \
             {:.2} times",
            nicol / redis
        );
        ratios.push(nicol / redis);
    }
    ratios.sort_by(f64::total_cmp);
    let [least, most] = [ratios[0], ratios[ratios.len() - 1]];
    println!("{times} turns: {least:.2} to {most:.2} times, median {:.2}", median(&ratios));
    Ok(())
}

/// The middle of what is sorted, or the mean of the two that are there.
fn median(sorted: &[f64]) -> f64 {
    let last = sorted.len() - 1;
    f64::midpoint(sorted[last / 2], sorted[last.div_ceil(2)])
}

/// The transactions per second that a program's JSON object tells.
fn throughput(command: &mut Command) -> Result<f64> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {errors}");
    let told = String::from_utf8_lossy(&output.stdout);
    let told: Value = serde_json::from_str(told.trim()).context("what the program prints")?;
    told["throughput_per_s"].as_f64().with_context(|| format!("throughput_per_s in {told}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        assert_eq!(median(&[2.0]).to_bits(), 2.0_f64.to_bits());
        assert_eq!(median(&[1.0, 2.0]).to_bits(), 1.5_f64.to_bits());
        assert_eq!(median(&[1.0, 2.0, 9.0]).to_bits(), 2.0_f64.to_bits());
    }
}
