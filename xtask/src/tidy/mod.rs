//! `cargo xtask tidy`: the rules of the project that neither the compiler nor clippy knows.
//!
//! Every finding names its place, its rule and the remedy. Each rule is a function from a file's
//! path and text to findings, so that its tests need no files.

mod arrows;
mod citations;
mod docs;
mod links;
mod modules;
mod owners;
mod planted;
mod profiles;
mod rings;
mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::source::Source;

/// A place that breaks a rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    line: usize,
    rule: &'static str,
    remedy: String,
}

impl Finding {
    fn new(path: &str, line: usize, rule: &'static str, remedy: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, rule, remedy: remedy.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.rule, self.remedy)
    }
}

/// Checks the whole project.
pub fn run(root: &Path) -> Result<()> {
    let mut findings = manifests(root)?;
    findings.extend(rust(root)?);
    for path in crate::files(&root.join("profiles"), |path| has_extension(path, &["toml"]))? {
        findings.extend(profiles::check(&crate::shown(root, &path), &crate::read(&path)?));
    }
    let texts = |path: &Path| {
        has_extension(path, &["rs", "toml", "md", "json", "sh", "py", "sv", "cpp", "tla"])
            || path.ends_with(".ci/run")
    };
    let list = |name: &str| crate::read(&root.join(name));
    let ids = citations::defined(&list(citations::AMBIGUITIES)?, &list(citations::CALIBRATION)?);
    let pages = pages(root)?;
    findings.extend(links::check(&pages, |path| root.join(path).exists()));
    for path in crate::files(root, texts)? {
        let (shown, text) = (crate::shown(root, &path), crate::read(&path)?);
        findings.extend(links::decisions(&shown, &text, &pages));
        findings.extend(rules::machine_paths(&shown, &text));
        findings.extend(rules::conflict_markers(&shown, &text));
        findings.extend(citations::check(&shown, &text, &ids));
    }
    findings.extend(committed(root)?);
    findings.sort();
    findings.dedup();
    for finding in &findings {
        eprintln!("{finding}");
    }
    match findings.len() {
        0 => Ok(()),
        count => bail!("{count} findings"),
    }
}

fn has_extension(path: &Path, wanted: &[&str]) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| wanted.contains(&extension))
}

/// The text of every Markdown file, by its path.
fn pages(root: &Path) -> Result<BTreeMap<String, String>> {
    let files = crate::files(root, |path| has_extension(path, &["md"]))?;
    files.iter().map(|path| Ok((crate::shown(root, path), crate::read(path)?))).collect()
}

/// The files that are committed, or will be with the next commit. A copy of the project without
/// git has none.
fn committed(root: &Path) -> Result<Vec<Finding>> {
    let git = Command::new("git").args(["ls-files", "-z"]).current_dir(root).output();
    let Some(git) = git.ok().filter(|git| git.status.success()) else { return Ok(Vec::new()) };
    let names = String::from_utf8(git.stdout).context("git ls-files")?;
    let mut findings = Vec::new();
    for name in names.split_terminator('\0') {
        // One that was deleted, and not yet for git, is no finding.
        if let Ok(content) = std::fs::read(root.join(name)) {
            findings.extend(rules::binary(name, &content));
        }
    }
    Ok(findings)
}

/// The manifests of every crate that is there, so that a new crate cannot go unnoticed.
fn manifests(root: &Path) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for path in crate::files(root, |path| path.ends_with("Cargo.toml"))? {
        let shown = crate::shown(root, &path);
        if shown != "Cargo.toml" {
            let folder = path.parent().and_then(Path::file_name).and_then(|name| name.to_str());
            let krate = folder.with_context(|| format!("{shown} lies in no folder"))?;
            findings.extend(arrows::check(krate, &shown, &crate::read(&path)?));
        }
    }
    Ok(findings)
}

fn rust(root: &Path) -> Result<Vec<Finding>> {
    let mut texts = Vec::new();
    for path in crate::rust_files(root)? {
        texts.push((crate::shown(root, &path), crate::read(&path)?));
    }
    let sources: Vec<(&str, Source<'_>)> =
        texts.iter().map(|(path, text)| (path.as_str(), Source::new(text))).collect();
    let tests: BTreeSet<String> =
        sources.iter().flat_map(|(path, source)| test_modules(path, source)).collect();
    let is_test = |path: &str| {
        tests.iter().any(|module| {
            path.strip_prefix(module.as_str())
                .is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        })
    };
    let shipped: Vec<(&str, &Source<'_>)> = sources
        .iter()
        .filter(|(path, _)| !is_test(path))
        .map(|(path, source)| (*path, source))
        .collect();
    let crates = modules::crates(&shipped);
    let mut findings = rings::check(crates.values());
    findings.extend(owners::check(crates.values()));
    findings.extend(docs::check(&shipped));
    findings.extend(shipped.iter().flat_map(|(path, source)| planted::check(path, source)));
    findings.extend(planted::check_questions(&shipped));
    findings.extend(
        sources.iter().flat_map(|(path, source)| rules::check(path, source, is_test(path))),
    );
    Ok(findings)
}

/// The modules in files of their own that `path` declares for tests only, as paths without `.rs`.
fn test_modules(path: &str, source: &Source<'_>) -> Vec<String> {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    let folder = match file.trim_end_matches(".rs") {
        "lib" | "main" | "mod" => folder.to_owned(),
        stem => format!("{folder}/{stem}"),
    };
    source.test_modules().iter().map(|module| format!("{folder}/{module}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_names_place_rule_and_remedy() {
        let finding = Finding::new("crates/a/src/b.rs", 7, "ambient", "use Fabric::now");
        assert_eq!(finding.to_string(), "crates/a/src/b.rs:7: ambient: use Fabric::now");
    }

    #[test]
    fn a_test_module_lies_beside_what_declares_it() {
        let source = Source::new("#[cfg(test)]\nmod double;\nmod real;\n");
        assert_eq!(test_modules("crates/a/src/lib.rs", &source), ["crates/a/src/double"]);
        assert_eq!(test_modules("crates/a/src/b.rs", &source), ["crates/a/src/b/double"]);
    }

    #[test]
    fn the_project_itself_is_tidy() {
        let root = crate::root().expect("cargo says where xtask lies");
        run(&root).expect("`cargo xtask tidy` prints what is wrong");
    }
}
