//! A type has an owner: its inherent `impl` blocks stand in few files, so that its fields can be
//! private to one of them, or to one folder.
//!
//! A type is a name with the module that defines it, re-exports followed. Implementations of traits
//! and tests are free.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::modules::{Crate, Names, Target, from_root, resolve};

const RULE: &str = "owner";

/// Files that may hold an `impl` of one type.
const FILES_MAX: usize = 3;

/// Checks every crate.
pub(super) fn check<'a>(crates: impl Iterator<Item = &'a Crate<'a>>) -> Vec<Finding> {
    crates.flat_map(spread).collect()
}

/// One finding for each type of a crate whose `impl` stands in too many files, where the type is
/// defined.
fn spread(files: &Crate<'_>) -> Vec<Finding> {
    let mut places: BTreeMap<(Names, String), BTreeSet<&str>> = BTreeMap::new();
    for (name, module) in files {
        for path in implemented(&module.code) {
            let owner = owner(files, name, &path);
            places.entry(owner).or_default().insert(module.file);
        }
    }
    places.retain(|_, places| places.len() > FILES_MAX);
    let finding = |((module, name), places): ((Names, String), BTreeSet<&str>)| {
        let here = &files[&module];
        let places: Vec<&str> = places.into_iter().collect();
        let remedy = format!(
            "{name} has an `impl` in {} files, at most {FILES_MAX}: give each part of its state a \
             type with a file of its own ({})",
            places.len(),
            places.join(", ")
        );
        Finding::new(here.file, here.line_of(&name), RULE, remedy)
    };
    places.into_iter().map(finding).collect()
}

/// The module that defines the type which `path` means in `module`, and its name there. A type that
/// no import names is one of the nearest module above that has it, else `module`'s own.
fn owner(files: &Crate<'_>, module: &Names, path: &str) -> (Names, String) {
    if let Some(path) = from_root(module, path)
        && let Some(Target::Item(owner, name)) = resolve(files, &path, 0)
        && files[&owner].defines(&name)
    {
        return (owner, name);
    }
    let name = path.rsplit("::").next().unwrap_or(path).to_owned();
    let mut above = (0..=module.len()).rev().map(|length| &module[..length]);
    let owner = above.find(|above| files.get(*above).is_some_and(|file| file.defines(&name)));
    (owner.unwrap_or(module).to_vec(), name)
}

/// The types of the inherent `impl` blocks in `code`, as they are written, without their arguments.
fn implemented(code: &str) -> Vec<String> {
    let blocks = code.match_indices("impl").filter(|(at, word)| {
        let before = code[..*at].trim_end();
        let before = before.strip_suffix("unsafe").unwrap_or(before).trim_end();
        let begins = before.is_empty() || before.ends_with(['{', '}', ';', ']']);
        begins && code[at + word.len()..].starts_with([' ', '<', '\n'])
    });
    blocks.filter_map(|(at, word)| inherent(&code[at + word.len()..])).collect()
}

/// The type of the `impl` whose header follows, unless it implements a trait.
fn inherent(behind: &str) -> Option<String> {
    let header = &behind[..behind.find('{')?];
    let header = without_arguments(header);
    let mut words = header.split_whitespace().take_while(|word| *word != "where");
    let named = words.by_ref().find(|word| *word != "dyn")?;
    let is_path = named.chars().all(|char| char.is_alphanumeric() || "_:".contains(char));
    (is_path && !words.any(|word| word == "for")).then(|| named.to_owned())
}

/// `header` with a blank for everything in angle brackets.
fn without_arguments(header: &str) -> String {
    let (mut depth, mut before, mut kept) = (0_usize, ' ', String::new());
    for char in header.chars() {
        match char {
            '<' => depth += 1,
            '>' if before != '-' => depth = depth.saturating_sub(1),
            char if depth == 0 => kept.push(char),
            _ => {}
        }
        if char == '<' {
            kept.push(' ');
        }
        before = char;
    }
    kept
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

    /// A type with an `impl` in its own file and in two more.
    const HALL: [(&str, &str); 4] = [
        ("crates/x/src/lib.rs", "mod hall;\nmod yard;\n"),
        ("crates/x/src/hall/mod.rs", "mod a;\npub struct Hall;\nimpl Hall {}\n"),
        ("crates/x/src/hall/a.rs", "use super::Hall;\nimpl Hall {}\n"),
        ("crates/x/src/yard.rs", "pub use crate::hall::Hall as Room;\nimpl Room {}\n"),
    ];

    fn hall_and(path: &str, text: &str) -> Vec<(String, usize)> {
        let mut files = HALL.to_vec();
        files.push((path, text));
        found(&files)
    }

    #[test]
    fn an_impl_in_a_fourth_file_is_found() {
        assert_eq!(found(&HALL), []);
        for fourth in [
            "use crate::hall::Hall;\nimpl Hall {}\n",
            "use crate::{hall::{self, Hall}};\nunsafe impl<'a, T: Fn() -> u8> Hall<'a, T> {}\n",
            "use crate::yard::Room;\nimpl<const N: usize> Room<N>\nwhere\n    Room<N>: Sized,\n{\n}\n",
            "use crate::hall;\nfn f() {}\nimpl hall::Hall {}\n",
            "impl crate::yard::Room {}\n",
            "mod inner {\n    impl super::super::hall::Hall {}\n}\nuse crate::hall::Hall;\nimpl Hall {}",
        ] {
            let found = hall_and("crates/x/src/cellar.rs", fourth);
            assert_eq!(found, [("crates/x/src/hall/mod.rs".to_owned(), 2)], "{fourth}");
        }
    }

    #[test]
    fn traits_tests_and_other_types_are_free() {
        for fourth in [
            "use crate::hall::Hall;\nimpl Door for Hall {}\nimpl<T> From<T> for Hall {}\n",
            "use crate::hall::Hall;\n#[cfg(test)]\nmod tests { impl Hall {} }\n",
            "use crate::hall::Hall;\nfn f(hall: impl Into<Hall>) -> impl Fn(Hall) {}\n",
            "pub struct Hall;\nimpl Hall {}\n",
            "// impl Hall {}\nconst TEXT: &str = \"impl Hall {}\";\n",
        ] {
            assert_eq!(hall_and("crates/x/src/cellar.rs", fourth), [], "{fourth}");
        }
        let elsewhere = "pub struct Hall;\nimpl Hall {}\n";
        assert_eq!(hall_and("crates/y/src/cellar.rs", elsewhere), []);
        assert_eq!(hall_and("crates/x/tests/it/src.rs", "use x::Hall;\nimpl Hall {}\n"), []);
    }

    #[test]
    fn the_name_alone_is_no_type() {
        let own = "pub struct Steps;\nimpl Steps {}\n";
        let paths = ["a", "b", "c", "d", "e"].map(|name| format!("crates/x/src/{name}.rs"));
        let mut files: Vec<(&str, &str)> = paths.iter().map(|path| (&**path, own)).collect();
        files.push(("crates/x/src/lib.rs", ""));
        assert_eq!(found(&files), []);
    }
}
