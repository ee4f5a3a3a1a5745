//! `cargo xtask miri`: the tests of shared memory, interpreted.
//!
//! Miri looks for undefined behaviour and data races, lets a thread be interrupted at any access, and
//! lets an atomic load return an old value where its ordering allows that: what x86 never shows.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::finish;

/// The toolchain that has Miri; the project's own is a stable one.
const TOOLCHAIN: &str = "nightly";

/// Interpretations of each test, each with another order of threads and other stale loads.
const SEEDS: &str = "-Zmiri-many-seeds=0..4";

/// The crates whose memory several threads share.
const CRATES: [&str; 4] = ["-p", "nicol-core", "-p", "nicol-store"];

/// Runs the tests of the crates that share memory; `once` with one interpretation instead of several.
pub fn run(root: &Path, once: bool) -> Result<()> {
    provide()?;
    let mut miri = rustup(&["run", TOOLCHAIN, "cargo", "miri", "test", "--lib"]);
    miri.args(CRATES).current_dir(root);
    if !once {
        let flags = std::env::var("MIRIFLAGS").unwrap_or_default();
        miri.env("MIRIFLAGS", format!("{SEEDS} {flags}"));
    }
    finish(&mut miri)
}

/// Installs the toolchain and its components where they are missing.
fn provide() -> Result<()> {
    let found = rustup(&["run", TOOLCHAIN, "cargo", "miri", "--version"]).output();
    let found = found.context("rustup is needed to find Miri's toolchain")?;
    if found.status.success() {
        return Ok(());
    }
    eprintln!("xtask: installing {TOOLCHAIN} with Miri");
    let mut install = rustup(&["toolchain", "install", TOOLCHAIN, "--profile", "minimal"]);
    finish(install.args(["--component", "miri,rust-src"]))
}

/// A rustup that does not inherit which toolchain runs this task.
fn rustup(args: &[&str]) -> Command {
    let mut command = Command::new("rustup");
    command.args(args);
    for inherited in ["RUSTUP_TOOLCHAIN", "CARGO", "RUSTC", "RUSTDOC"] {
        command.env_remove(inherited);
    }
    command
}
