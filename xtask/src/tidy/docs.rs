//! What a crate shows at its root has doc comments.
//!
//! The compiler's `missing_docs` asks for one on every public field and variant, of private modules
//! as well, and gets comments that repeat names. This rule asks for what a reader of a crate meets
//! first: each item that the crate re-exports, and each of its public modules' own.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use crate::source::Source;

/// How an item begins behind `pub`.
const ITEMS: [&str; 8] = ["struct", "enum", "trait", "union", "type", "const", "static", "fn"];
/// What may stand between `pub` and `fn`.
const QUALIFIERS: [&str; 3] = ["const", "async", "unsafe"];

/// Findings in the crates that these files are of.
pub(super) fn check(files: &[(&str, &Source<'_>)]) -> Vec<Finding> {
    let mut crates: BTreeMap<&str, Vec<(&str, &Source<'_>)>> = BTreeMap::new();
    for (path, source) in files {
        if let Some((krate, _)) = path.split_once("/src/") {
            crates.entry(krate).or_default().push((path, source));
        }
    }
    crates.into_iter().flat_map(|(krate, files)| of_crate(krate, &files)).collect()
}

fn of_crate(krate: &str, files: &[(&str, &Source<'_>)]) -> Vec<Finding> {
    let root = format!("{krate}/src/lib.rs");
    let Some((_, lib)) = files.iter().find(|(path, _)| *path == root) else { return Vec::new() };
    let shown: BTreeSet<&str> = files.iter().flat_map(|(_, source)| reexports(source)).collect();
    let modules =
        lib.text.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
    let open: Vec<String> = modules
        .flat_map(|name| [format!("{krate}/src/{name}.rs"), format!("{krate}/src/{name}/mod.rs")])
        .collect();
    let mut findings = Vec::new();
    for (path, source) in files {
        for (line, name) in bare_items(source) {
            if open.iter().any(|open| open == path) || shown.contains(name) {
                let remedy =
                    format!("{name} is shown at the root of its crate: say what it is for");
                findings.push(Finding::new(path, line, "missing docs", remedy));
            }
        }
    }
    findings
}

/// The names behind `pub use` in a file.
fn reexports<'s>(source: &Source<'s>) -> Vec<&'s str> {
    let mut names = Vec::new();
    for (at, _) in source.text.match_indices("\npub use ") {
        let item = source.text[at..].split(';').next().unwrap_or_default();
        names.extend(item.split(|one: char| !one.is_alphanumeric() && one != '_'));
    }
    names
}

/// Public items of a file that have no doc comment: the line, and the name.
fn bare_items<'s>(source: &Source<'s>) -> Vec<(usize, &'s str)> {
    let mut found = Vec::new();
    let (mut at, mut has_docs, mut is_attribute) = (0, false, false);
    for (number, line) in source.text.lines().enumerate() {
        let here = at;
        at += line.len() + 1;
        if line.starts_with("///") {
            has_docs = true;
            continue;
        }
        // An attribute, or the lines that it goes on over, stand between.
        is_attribute = line.starts_with("#[") || is_attribute && !line.starts_with("pub ");
        if is_attribute || line.starts_with("//") {
            continue;
        }
        if let Some(name) = item(line)
            && !has_docs
            && !source.is_test(here)
        {
            found.push((number + 1, name));
        }
        has_docs = false;
    }
    found
}

/// The name of the public item that begins in a line.
fn item(line: &str) -> Option<&str> {
    let mut words =
        line.strip_prefix("pub ")?.split(|one: char| !one.is_alphanumeric() && one != '_');
    let mut word = words.next()?;
    while QUALIFIERS.contains(&word) {
        let next = words.next()?;
        if !QUALIFIERS.contains(&next) && next != "fn" {
            return Some(next);
        }
        word = next;
    }
    if ITEMS.contains(&word) { words.next() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<(String, usize)> {
        let sources: Vec<_> = files.iter().map(|(path, text)| (*path, Source::new(text))).collect();
        let files: Vec<_> = sources.iter().map(|(path, source)| (*path, source)).collect();
        check(&files).into_iter().map(|finding| (finding.path, finding.line)).collect()
    }

    #[test]
    fn what_a_root_shows_has_docs_and_a_field_needs_none() {
        let lib = "//! A crate.\n\nmod a;\npub mod b;\n\npub use a::{Shown, shown};\n";
        let a = "//! A.\n\n#[derive(\n    Clone,\n)]\npub struct Shown {\n    pub field: u8,\n}\n\
                 \npub const fn shown() {}\npub fn other() {}\n";
        let b =
            "//! B.\n\npub const LEAST: u8 = 1;\n/// More.\n#[must_use]\npub async fn more() {}\n";
        let all =
            [("crates/x/src/lib.rs", lib), ("crates/x/src/a.rs", a), ("crates/x/src/b.rs", b)];
        let a = "crates/x/src/a.rs".to_owned();
        let expected = [(a.clone(), 6), (a, 10), ("crates/x/src/b.rs".to_owned(), 3)];
        assert_eq!(found(&all), expected);
        assert_eq!(found(&[("crates/y/src/main.rs", "pub fn a() {}\n")]), []);
    }
}
