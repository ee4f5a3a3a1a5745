//! No files of a crate import each other in a ring.
//!
//! An import, or a path that stands in the code (`crate::cli::Format`), is followed through
//! re-exports to the file that defines the name. What a module and its own children take from one
//! another is no ring: a child is a part of its parent.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::modules::{Crate, Import, Module, Names, Target, resolve};

const RULE: &str = "ring of files";

/// Checks every crate.
pub(super) fn check<'a>(crates: impl Iterator<Item = &'a Crate<'a>>) -> Vec<Finding> {
    crates.flat_map(rings).collect()
}

/// The files that each file takes something from, and the line of its first import of each.
fn arrows<'f>(files: &'f Crate<'_>) -> BTreeMap<&'f Names, BTreeMap<Names, usize>> {
    let mut arrows = BTreeMap::new();
    for (name, module) in files {
        let mut taken = BTreeMap::new();
        for Import { path, name: here, line } in &module.imports {
            let found = match resolve(files, path, 0) {
                Some(Target::Item(other, _)) => vec![other],
                Some(Target::Module(other)) => through(files, module, &other, here),
                None => Vec::new(),
            };
            for other in found {
                if !other.starts_with(name) && !name.starts_with(&other) {
                    taken.entry(other).or_insert(*line);
                }
            }
        }
        arrows.insert(name, taken);
    }
    arrows
}

/// What `module` takes from the imported module `other`, which it calls `name`, by the names that
/// it writes behind it.
fn through(files: &Crate<'_>, module: &Module<'_>, other: &Names, name: &str) -> Vec<Names> {
    if name.is_empty() {
        return Vec::new();
    }
    let mut found = Vec::new();
    let prefix = format!("{name}::");
    for (at, _) in module.code.match_indices(&prefix) {
        let rest = &module.code[at + prefix.len()..];
        let end = rest.find(|char: char| !char.is_alphanumeric() && char != '_');
        let path = [other.clone(), vec![rest[..end.unwrap_or(rest.len())].to_owned()]].concat();
        if let Some(Target::Item(file, _) | Target::Module(file)) = resolve(files, &path, 0) {
            found.push(file);
        }
    }
    found
}

/// One finding for each ring of a crate, at its first file.
fn rings(files: &Crate<'_>) -> Vec<Finding> {
    let arrows = arrows(files);
    let reached: BTreeMap<&Names, BTreeSet<&Names>> =
        arrows.keys().map(|from| (*from, reached_from(&arrows, from))).collect();
    let (mut findings, mut told) = (Vec::new(), BTreeSet::new());
    for (from, to) in &reached {
        if !to.contains(*from) || told.contains(*from) {
            continue;
        }
        let ring: Vec<&Names> =
            to.iter().copied().filter(|other| reached[other].contains(*from)).collect();
        told.extend(ring.iter().copied());
        let names: Vec<&str> = ring.iter().map(|name| files[*name].file).collect();
        let line = arrows[from].iter().find(|(other, _)| ring.contains(other));
        let remedy = format!(
            "{} import each other: move what two of them need to a file of its own, or what starts \
             the others to one above them",
            names.join(", ")
        );
        findings.push(Finding::new(
            files[*from].file,
            line.map_or(1, |(_, line)| *line),
            RULE,
            remedy,
        ));
    }
    findings
}

/// Every file that one follows to from `from`, itself only if it is in a ring.
fn reached_from<'f>(
    arrows: &'f BTreeMap<&'f Names, BTreeMap<Names, usize>>,
    from: &Names,
) -> BTreeSet<&'f Names> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(next) = open.pop() {
        for other in arrows.get(next).into_iter().flat_map(BTreeMap::keys) {
            if reached.insert(other) {
                open.push(other);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source;
    use crate::tidy::modules::crates;

    fn found(files: &[(&str, &str)]) -> Vec<(String, usize)> {
        let sources: Vec<(&str, Source<'_>)> =
            files.iter().map(|(path, text)| (*path, Source::new(text))).collect();
        let sources: Vec<(&str, &Source<'_>)> =
            sources.iter().map(|(path, source)| (*path, source)).collect();
        let crates = crates(&sources);
        check(crates.values()).into_iter().map(|finding| (finding.path, finding.line)).collect()
    }

    #[test]
    fn files_that_import_each_other_are_a_ring() {
        let a = ("crates/x/src/a.rs", "use std::fmt;\nuse crate::b::B;\npub struct A;\n");
        let b = ("crates/x/src/b.rs", "use super::a::A;\npub struct B;\n");
        assert_eq!(found(&[a, b]), [("crates/x/src/a.rs".to_owned(), 2)]);
        let alone = ("crates/x/src/b.rs", "pub struct B;\n");
        assert_eq!(found(&[a, alone]), []);
        let test =
            ("crates/x/src/b.rs", "pub struct B;\n#[cfg(test)]\nmod t { use crate::a::A; }\n");
        assert_eq!(found(&[a, test]), []);
    }

    #[test]
    fn a_ring_is_found_behind_re_exports_aliases_and_modules() {
        let facade = ("crates/x/src/a/mod.rs", "mod one;\npub use one::A;\n");
        let one = ("crates/x/src/a/one.rs", "use crate::b::{self, C as D};\npub struct A;\n");
        for b in ["use crate::a::A;\npub struct C;\n", "use crate::a;\npub struct C(a::A);\n"] {
            let files = [facade, one, ("crates/x/src/b.rs", b)];
            assert_eq!(found(&files).len(), 1, "{b}");
        }
        let by_module = ("crates/x/src/a/one.rs", "use crate::b;\npub struct A(b::C);\n");
        let b = ("crates/x/src/b.rs", "use crate::a::A;\npub struct C;\n");
        assert_eq!(found(&[facade, by_module, b]).len(), 1);
        let three = [
            ("crates/x/src/a.rs", "use crate::b::B;\npub struct A;\n"),
            ("crates/x/src/b.rs", "use crate::c::C;\npub struct B;\n"),
            ("crates/x/src/c.rs", "use crate::a::A;\npub struct C;\n"),
        ];
        assert_eq!(found(&three).len(), 1);
    }

    #[test]
    fn a_ring_is_found_behind_a_module_s_other_name() {
        let a = ("crates/x/src/a.rs", "use crate::b::B;\npub struct A;\n");
        for b in ["use crate::a as other;\n", "use crate::a::{self as other};\n"] {
            let b = format!("{b}pub struct B(other::A);\n");
            assert_eq!(found(&[a, ("crates/x/src/b.rs", &b)]).len(), 1, "{b}");
        }
    }

    #[test]
    fn a_ring_is_found_behind_what_a_parent_imports_for_itself() {
        let parent = ("crates/x/src/a.rs", "mod child;\nuse crate::b::B;\npub use child::C;\n");
        let child = ("crates/x/src/a/child.rs", "use super::B;\npub struct C(B);\n");
        let b = ("crates/x/src/b.rs", "use crate::a::child::C;\npub struct B;\n");
        assert_eq!(found(&[parent, child, b]).len(), 1);
        let alone = ("crates/x/src/b.rs", "pub struct B;\n");
        assert_eq!(found(&[parent, child, alone]), []);
    }

    #[test]
    fn a_path_in_the_code_counts_as_an_import() {
        let a = ("crates/x/src/a.rs", "pub struct A;\npub fn f(_: crate::b::B) {}\n");
        for b in ["use crate::a::A;\npub struct B;\n", "pub struct B(super::a::A);\n"] {
            assert_eq!(found(&[a, ("crates/x/src/b.rs", b)]).len(), 1, "{b}");
        }
        let seen = ("crates/x/src/a.rs", "pub struct A;\npub(in crate::b) fn f() {}\n");
        let b = ("crates/x/src/b.rs", "use crate::a::A;\npub struct B;\n");
        assert_eq!(found(&[seen, b]), [], "who may see an item is no import");
    }

    #[test]
    fn a_child_is_a_part_of_its_parent() {
        let parent = ("crates/x/src/a.rs", "mod child;\nuse child::B;\npub struct A;\n");
        let child = ("crates/x/src/a/child.rs", "use super::A;\npub struct B;\n");
        assert_eq!(found(&[parent, child]), []);
    }
}
