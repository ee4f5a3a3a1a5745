//! Runs a system of any family in its world.

use anyhow::{Result, bail};

use crate::built::{self, Build};
use crate::config::BenchConfig;
use crate::family::Family;
use crate::refused::refuse;
use crate::report::BenchRun;
use crate::system::System;

/// Runs a benchmark of a family's system.
pub(crate) fn run<Y: Family>(system: &System, config: &BenchConfig) -> Result<BenchRun> {
    run_built(system, config, built::build::<Y>)
}

fn run_built(system: &System, config: &BenchConfig, build: Build) -> Result<BenchRun> {
    if config.rate == Some(0) {
        bail!(refuse("rate", 0, "", "an open loop needs at least one transaction per second"));
    }
    if config.is_live() {
        return crate::live::run(config, build);
    }
    crate::simulated::run(system, config, build)
}
