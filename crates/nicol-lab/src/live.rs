//! Benchmarks on this machine's threads.

use anyhow::{Result, bail};

use crate::bench::{BenchConfig, BenchRun};

pub(crate) fn run(_config: &BenchConfig) -> Result<BenchRun> {
    bail!("the live world is not linked yet")
}
