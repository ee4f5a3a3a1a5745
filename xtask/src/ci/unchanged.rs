//! The quick loop's tests: runs each test binary unless it has passed before and nothing that it
//! is made of, runs or reads has changed since.

use std::collections::BTreeSet;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};

use super::test_counts::{Counts, counted};

/// One line per test binary that has passed: its fingerprint.
const PASSED: &str = "xtask-passed-tests";

/// A test binary as cargo has built it.
struct Binary {
    path: PathBuf,
    /// The folder of its package, in which cargo starts it.
    folder: PathBuf,
    /// The package's programs, which its tests may start.
    programs: Vec<PathBuf>,
}

/// Builds all tests, and runs those that might not pass as before. Returns what they counted, and
/// how many binaries were left out.
pub(super) fn run(root: &Path, target: &Path, mut cargo: Command) -> Result<(Counts, usize)> {
    let output = cargo
        .args(["test", "--workspace", "--no-run", "--message-format", "json-render-diagnostics"])
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo test --no-run")?;
    ensure!(output.status.success(), "cargo test --no-run: {}", output.status);
    let binaries = binaries(&String::from_utf8_lossy(&output.stdout))?;
    let list = target.join(PASSED);
    let mut passed: BTreeSet<u64> = fs::read_to_string(&list)
        .unwrap_or_default()
        .lines()
        .filter_map(|line| u64::from_str_radix(line, 16).ok())
        .collect();
    let data = data(root)?;
    let (mut counts, mut left_out, mut failed) = (Counts::default(), 0, Vec::new());
    for binary in &binaries {
        let print = fingerprint(binary, &data)?;
        if passed.contains(&print) {
            left_out += 1;
            continue;
        }
        println!("   Running {}", crate::shown(root, &binary.path));
        let mut tests = Command::new(&binary.path);
        tests.current_dir(&binary.folder).env("CARGO_MANIFEST_DIR", &binary.folder);
        let (counted, status) = counted(&mut tests)?;
        counts += counted;
        if status.success() {
            passed.insert(print);
            let lines: Vec<String> = passed.iter().map(|print| format!("{print:016x}")).collect();
            fs::write(&list, lines.join("\n"))
                .with_context(|| format!("cannot write {}", list.display()))?;
        } else {
            failed.push(crate::shown(root, &binary.path));
        }
    }
    if !failed.is_empty() {
        println!("{counts}");
    }
    ensure!(failed.is_empty(), "tests failed in {}", failed.join(", "));
    Ok((counts, left_out))
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

/// The project's files that tests may read: all that are neither compiled nor prose.
fn data(root: &Path) -> Result<Vec<PathBuf>> {
    let left_out = ["rs", "md"];
    crate::files(root, |path| {
        path.extension().is_none_or(|extension| left_out.iter().all(|out| extension != *out))
    })
}

/// Changes when the binary, a program of its package or a data file does. Tests of the project's
/// tasks read the sources as well: they depend on everything, and xtask has no fingerprint that
/// stays.
fn fingerprint(binary: &Binary, data: &[PathBuf]) -> Result<u64> {
    let mut hasher = DefaultHasher::new();
    if binary.folder.ends_with("xtask") {
        SystemTime::now().hash(&mut hasher);
    }
    for path in [&binary.path].into_iter().chain(&binary.programs).chain(data) {
        let stamp = fs::metadata(path)
            .and_then(|found| Ok((found.len(), found.modified()?)))
            .with_context(|| format!("cannot look at {}", path.display()))?;
        (path, stamp).hash(&mut hasher);
    }
    Ok(hasher.finish())
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

    #[test]
    fn a_change_of_anything_changes_the_fingerprint() {
        let folder = std::env::temp_dir().join(format!("xtask-unchanged-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let [path, program, file] = ["test", "program", "table.json"].map(|name| folder.join(name));
        for path in [&path, &program, &file] {
            fs::write(path, "a").unwrap();
        }
        let binary = Binary { path, folder: folder.clone(), programs: vec![program] };
        let print = || fingerprint(&binary, std::slice::from_ref(&file)).unwrap();
        let before = print();
        assert_eq!(print(), before);
        for path in [&binary.path, &binary.programs[0], &file] {
            let before = print();
            fs::write(path, "another text").unwrap();
            assert_ne!(print(), before, "{}", path.display());
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
