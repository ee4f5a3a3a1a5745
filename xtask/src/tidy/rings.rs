//! No files of a crate import each other in a ring.
//!
//! An import, or a path that stands in the code (`crate::cli::Format`), is followed through
//! re-exports to the file that defines the name. What a module and its own children take from one
//! another is no ring: a child is a part of its parent.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use crate::source::Source;

const RULE: &str = "ring of files";

/// The names that lead from a crate to a module or an item.
type Names = Vec<String>;

/// One file of a crate.
struct Module<'a> {
    file: &'a str,
    /// Its code without tests.
    code: String,
    /// What it imports.
    imports: Vec<Import>,
    /// By the name under which it has something, for others or for its children: what that is.
    handed_on: BTreeMap<String, Names>,
}

struct Import {
    /// The path from the crate's root.
    path: Names,
    /// The name that it has here.
    name: String,
    /// The line that says so.
    line: usize,
}

/// The files of one crate, by the names that lead to them.
type Crate<'a> = BTreeMap<Names, Module<'a>>;

/// Checks all files of the project, each with its path from the root.
pub(super) fn check(sources: &[(&str, &Source<'_>)]) -> Vec<Finding> {
    let mut crates: BTreeMap<&str, Crate<'_>> = BTreeMap::new();
    for (file, source) in sources {
        let Some((folder, inside)) = file.split_once("/src/") else { continue };
        let module = module_of(inside);
        let read = Module::read(file, &module, source);
        crates.entry(folder).or_default().insert(module, read);
    }
    crates.values().flat_map(rings).collect()
}

/// The names that lead to the file at `inside` of a crate's `src`.
fn module_of(inside: &str) -> Names {
    let mut names: Names = inside.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if ["lib", "main", "mod"].contains(&names.last().map_or("", String::as_str)) {
        names.pop();
    }
    names
}

impl<'a> Module<'a> {
    fn read(file: &'a str, module: &Names, source: &Source<'_>) -> Self {
        let code: String = source
            .code
            .char_indices()
            .map(|(at, char)| if source.is_test(at) && char != '\n' { ' ' } else { char })
            .collect();
        let (mut imports, mut handed_on) = (Vec::new(), BTreeMap::new());
        for (at, _) in code.match_indices("use ") {
            let line_begin = code[..at].rfind('\n').map_or(0, |newline| newline + 1);
            let before = code[line_begin..at].trim();
            if !(before.is_empty() || before.starts_with("pub")) {
                continue;
            }
            let Some(end) = code[at..].find(';') else { continue };
            for leaf in leaves(&code[at + "use ".len()..at + end]) {
                let (path, alias) = leaf.split_once(" as ").unwrap_or((&leaf, ""));
                let Some(path) = from_root(module, path.trim()) else { continue };
                let alias = alias.trim();
                let last = path.last().map_or("", String::as_str);
                let name = if alias.is_empty() { last } else { alias }.to_owned();
                // A child may take what its parent imports for itself.
                handed_on.insert(name.clone(), path.clone());
                imports.push(Import { path, name, line: source.line(at) });
            }
        }
        imports.extend(named_in_place(module, &code).map(|(path, at)| {
            let name = path.last().cloned().unwrap_or_default();
            Import { path, name, line: source.line(at) }
        }));
        Self { file, code, imports, handed_on }
    }

    /// Does it define `name` itself?
    fn defines(&self, name: &str) -> bool {
        let kinds = ["fn", "struct", "enum", "trait", "const", "static", "type", "union"];
        kinds.iter().any(|kind| {
            let words = format!("{kind} {name}");
            self.code.match_indices(&words).any(|(at, _)| {
                let next = self.code[at + words.len()..].chars().next();
                !next.is_some_and(|next| next.is_alphanumeric() || next == '_')
            })
        })
    }
}

/// The paths that begin with `crate::` or `super::` and stand in the code itself
/// (`crate::cli::Format`), with their offsets. Paths of imports are among them up to their first
/// brace, which does no harm.
fn named_in_place(module: &Names, code: &str) -> impl Iterator<Item = (Names, usize)> {
    let starts = ["crate::", "super::"].into_iter().flat_map(|from| code.match_indices(from));
    starts.filter_map(|(at, _)| {
        let before = code[..at].trim_end();
        let is_path = |char: char| char.is_alphanumeric() || char == '_' || char == ':';
        // The rest of a longer path, a macro's own crate, or where an item may be seen from.
        if code[..at].ends_with([':', '$']) || before.ends_with("(in") {
            return None;
        }
        let end = code[at..].find(|char| !is_path(char)).map_or(code.len(), |len| at + len);
        let path = from_root(module, code[at..end].trim_end_matches(':'))?;
        Some((path, at))
    })
}

/// The paths of a use tree, one for each leaf.
fn leaves(tree: &str) -> Vec<String> {
    let tree = tree.split_whitespace().collect::<Vec<_>>().join(" ");
    let Some((before, inside)) = tree.split_once('{') else { return vec![tree] };
    let inside = inside.trim_end().strip_suffix('}').unwrap_or(inside);
    let (mut parts, mut depth) = (vec![String::new()], 0_usize);
    for char in inside.chars() {
        depth += usize::from(char == '{');
        depth = depth.saturating_sub(usize::from(char == '}'));
        match char {
            ',' if depth == 0 => parts.push(String::new()),
            char => parts.last_mut().into_iter().for_each(|part| part.push(char)),
        }
    }
    let parts = parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty());
    parts.flat_map(leaves).map(|leaf| format!("{}{leaf}", before.trim())).collect()
}

/// The path from the crate's root that `path` means in `module`; `None` if it leads elsewhere.
fn from_root(module: &Names, path: &str) -> Option<Names> {
    let mut names = path.split("::").map(str::trim);
    let mut from = match names.next()? {
        "crate" => Names::new(),
        "self" => module.clone(),
        "super" => module[..module.len().checked_sub(1)?].to_vec(),
        // A child, or another crate: who resolves it finds no file of another crate.
        name => [module.clone(), vec![name.to_owned()]].concat(),
    };
    for name in names {
        match name {
            "super" => {
                from.pop()?;
            }
            "self" => {}
            name => from.push(name.to_owned()),
        }
    }
    Some(from)
}

/// What a path leads to.
enum Target {
    /// A file as a module.
    Module(Names),
    /// An item of a file.
    Item(Names),
}

fn resolve(files: &Crate<'_>, path: &Names, depth: usize) -> Option<Target> {
    let length = (0..=path.len()).rev().find(|&length| files.contains_key(&path[..length]))?;
    let (module, rest) = (path[..length].to_vec(), &path[length..]);
    let Some(name) = rest.first() else { return Some(Target::Module(module)) };
    let here = &files[&module];
    if module.is_empty() && !here.defines(name) && !here.handed_on.contains_key(name) {
        return None;
    }
    match here.handed_on.get(name) {
        Some(on) if !here.defines(name) && depth < files.len() => {
            resolve(files, &[on.clone(), rest[1..].to_vec()].concat(), depth + 1)
        }
        _ => Some(Target::Item(module)),
    }
}

/// The files that each file takes something from, and the line of its first import of each.
fn arrows<'f>(files: &'f Crate<'_>) -> BTreeMap<&'f Names, BTreeMap<Names, usize>> {
    let mut arrows = BTreeMap::new();
    for (name, module) in files {
        let mut taken = BTreeMap::new();
        for Import { path, name: here, line } in &module.imports {
            let found = match resolve(files, path, 0) {
                Some(Target::Item(other)) => vec![other],
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
        if let Some(Target::Item(file) | Target::Module(file)) = resolve(files, &path, 0) {
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

    fn found(files: &[(&str, &str)]) -> Vec<(String, usize)> {
        let sources: Vec<(&str, Source<'_>)> =
            files.iter().map(|(path, text)| (*path, Source::new(text))).collect();
        let sources: Vec<(&str, &Source<'_>)> =
            sources.iter().map(|(path, source)| (*path, source)).collect();
        check(&sources).into_iter().map(|finding| (finding.path, finding.line)).collect()
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
