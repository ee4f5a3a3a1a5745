//! The quick loop's tests: runs each test binary unless it has passed before and nothing that it
//! is made of, runs or reads has changed since.

use std::collections::BTreeSet;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};

use super::test_binaries::{self, Binary};
use super::test_counts::Counts;

/// One line per test binary that has passed: its fingerprint.
const PASSED: &str = "xtask-passed-tests";

/// Builds all tests, and runs those that might not pass as before. Returns what they counted, and
/// how many binaries were left out.
pub(super) fn run(root: &Path, target: &Path, cargo: Command) -> Result<(Counts, usize)> {
    let binaries = test_binaries::build(cargo)?;
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
        let (counted, has_passed) = binary.run(root)?;
        counts += counted;
        if has_passed {
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
