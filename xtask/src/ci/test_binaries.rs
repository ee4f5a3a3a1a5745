//! The test binaries of the workspace, as cargo builds them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::test_counts::{Counts, counted};

/// A test binary as cargo has built it.
pub(super) struct Binary {
    pub(super) path: PathBuf,
    /// The folder of its package, in which cargo starts it.
    pub(super) folder: PathBuf,
    /// The package's programs, which its tests may start.
    pub(super) programs: Vec<PathBuf>,
}

impl Binary {
    /// Runs its tests, as cargo does, and returns what they counted, and whether they have passed.
    pub(super) fn run(&self, root: &Path) -> Result<(Counts, bool)> {
        println!("   Running {}", crate::shown(root, &self.path));
        let mut tests = Command::new(&self.path);
        tests.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        let (counts, status) = counted(&mut tests)?;
        Ok((counts, status.success()))
    }
}

/// Builds all tests.
pub(super) fn build(mut cargo: Command) -> Result<Vec<Binary>> {
    let output = cargo
        .args(["test", "--workspace", "--no-run", "--message-format", "json-render-diagnostics"])
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo test --no-run")?;
    ensure!(output.status.success(), "cargo test --no-run: {}", output.status);
    binaries(&String::from_utf8_lossy(&output.stdout))
}

/// Runs the tests of all `binaries`, also if some fail.
pub(super) fn run<'a>(root: &Path, binaries: impl Iterator<Item = &'a Binary>) -> Result<Counts> {
    let (mut counts, mut failed) = (Counts::default(), Vec::new());
    for binary in binaries {
        let (counted, has_passed) = binary.run(root)?;
        counts += counted;
        if !has_passed {
            failed.push(crate::shown(root, &binary.path));
        }
    }
    if !failed.is_empty() {
        println!("{counts}");
    }
    ensure!(failed.is_empty(), "tests failed in {}", failed.join(", "));
    Ok(counts)
}

/// The test binaries in what cargo tells of a build, a JSON object per line.
fn binaries(told: &str) -> Result<Vec<Binary>> {
    let (mut tests, mut programs) = (Vec::new(), Vec::new());
    for line in told.lines().filter(|line| line.starts_with('{')) {
        let message: serde_json::Value =
            serde_json::from_str(line).context("cargo test prints JSON")?;
        let Some(path) = message["executable"].as_str().map(PathBuf::from) else { continue };
        let manifest = message["manifest_path"].as_str().context("an artifact has a manifest")?;
        let folder = Path::new(manifest).parent().context("a manifest lies in a folder")?;
        if message["profile"]["test"].as_bool() == Some(true) {
            tests.push((path, folder.to_owned()));
        } else {
            programs.push((path, folder.to_owned()));
        }
    }
    ensure!(!tests.is_empty(), "cargo test --no-run built no test");
    let of = |folder: &Path| {
        let own = programs.iter().filter(|(_, of)| of == folder);
        own.map(|(path, _)| path.clone()).collect()
    };
    let binary = |(path, folder): (PathBuf, PathBuf)| {
        let programs = of(&folder);
        Binary { path, folder, programs }
    };
    Ok(tests.into_iter().map(binary).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_and_programs_are_distinguished() {
        let told = concat!(
            "{\"executable\":\"/t/nicol\",\"manifest_path\":\"/a/Cargo.toml\",\"profile\":{\"test\":false}}\n",
            "{\"executable\":\"/t/cli\",\"manifest_path\":\"/a/Cargo.toml\",\"profile\":{\"test\":true}}\n",
            "{\"executable\":\"/t/b\",\"manifest_path\":\"/b/Cargo.toml\",\"profile\":{\"test\":true}}\n",
            "{\"executable\":null,\"manifest_path\":\"/b/Cargo.toml\",\"profile\":{\"test\":false}}\n",
            "not JSON\n",
        );
        let found = binaries(told).unwrap();
        let paths: Vec<_> = found.iter().map(|binary| binary.path.to_str().unwrap()).collect();
        assert_eq!(paths, ["/t/cli", "/t/b"]);
        assert_eq!(found[0].programs, [PathBuf::from("/t/nicol")]);
        assert!(found[1].programs.is_empty());
        assert!(binaries("").is_err(), "a build without tests is not a pass");
    }
}
