//! The engines in the simulated world, judged by the checkers.

#[expect(dead_code, reason = "tests of the commit family look at more")]
#[path = "../../../nicol-commit/tests/it/cluster.rs"]
mod cluster;
mod engines;
