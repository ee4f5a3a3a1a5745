//! The cargo that runs these tasks, and where it puts what it builds.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// A command of that cargo, which rustup chose by rust-toolchain.toml, in the project's root.
///
/// What cargo says of the package that it runs, this one, is not handed on: build scripts of others
/// look at these variables, and would be run again whenever cargo is called from elsewhere.
pub fn command(root: &Path) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    command.current_dir(root);
    for (name, _) in std::env::vars_os() {
        let own = name.to_str().is_some_and(|name| {
            name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
        });
        if own {
            command.env_remove(name);
        }
    }
    command
}

/// Where cargo puts what it builds: asked, since configuration and environment may move it.
pub fn target(root: &Path) -> Result<PathBuf> {
    let output = command(root)
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata: {}", output.status);
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).context("cargo metadata prints JSON")?;
    match metadata["target_directory"].as_str() {
        Some(target) => Ok(PathBuf::from(target)),
        None => bail!("cargo metadata names no target_directory"),
    }
}
