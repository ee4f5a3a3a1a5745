//! Rules about the text of files.

use super::Finding;
use crate::source::Source;

/// Lines of a source file at most; a test file may be longer.
const LINES_MAX: usize = 600;
const TEST_LINES_MAX: usize = 700;
/// Columns of a comment at most, as rustfmt has it for code.
const COLUMNS_MAX: usize = 100;

/// Crates in which nothing may be ambient: time, threads, hash seeds, environment, printing.
const PURE: [&str; 11] = [
    "nicol-core",
    "nicol-store",
    "nicol-kit",
    "nicol-schedule",
    "nicol-commit",
    "nicol-engines",
    "nicol-minos",
    "nicol-offpath",
    "nicol-prism",
    "nicol-sim",
    "nicol-workload",
];

/// Places that may hold `unsafe`.
const UNSAFE: [&str; 4] = [
    "crates/nicol-core/src/memory/",
    "crates/nicol-core/src/memory.rs",
    "crates/nicol-store/",
    "crates/nicol-rt/",
];
/// Crates that hold such a place, and therefore need not forbid `unsafe` as a whole.
const UNSAFE_CRATES: [&str; 3] = ["crates/nicol-core/", "crates/nicol-store/", "crates/nicol-rt/"];

const BANNED_NAMES: [&str; 6] = ["util", "utils", "common", "helper", "helpers", "misc"];

const UNFINISHED: [&str; 3] = ["todo!", "unimplemented!", "dbg!"];

/// What may not stand in a pure crate, and what to use instead.
const AMBIENT: [(&str, &str); 14] = [
    ("Instant", "time comes from Fabric::now"),
    ("SystemTime", "time comes from Fabric::now"),
    ("thread::spawn", "tasks come from Fabric::spawn"),
    ("thread::scope", "tasks come from Fabric::spawn"),
    ("thread::Builder", "tasks come from Fabric::spawn"),
    ("thread::sleep", "wait with Fabric::sleep_until"),
    ("println!", "a library returns what is to be said"),
    ("eprintln!", "a library returns what is to be said"),
    ("print!", "a library returns what is to be said"),
    ("eprint!", "a library returns what is to be said"),
    ("RandomState", "iteration order may not depend on a hash seed: use BTreeMap"),
    ("thread_rng", "randomness comes from Fabric::random or a seeded Stream"),
    ("getrandom", "randomness comes from Fabric::random or a seeded Stream"),
    ("env::var", "settings come in a config struct"),
];

/// The rules for a Rust file. `test_module`: only tests compile the whole file.
pub(super) fn check(path: &str, source: &Source<'_>, test_module: bool) -> Vec<Finding> {
    let apart = ["/tests/", "/examples/", "/benches/"].iter().any(|part| path.contains(part));
    let test = test_module || apart;
    let mut findings: Vec<Finding> = size(path, source, test).into_iter().collect();
    findings.extend(comment_widths(path, source));
    findings.extend(names(path, source));
    findings.extend(unsafe_code(path, source));
    findings.extend(attributes(path, source));
    for word in UNFINISHED {
        for at in source.words(word) {
            let remedy = format!("{word} is not finished work: write it, or leave it out");
            findings.push(Finding::new(path, source.line(at), "unfinished", remedy));
        }
    }
    let pure = PURE.iter().any(|krate| path.starts_with(&format!("crates/{krate}/src/")));
    if pure && !test {
        findings.extend(ambient(path, source));
    }
    if !test {
        findings.extend(flags(path, source));
        findings.extend(tests_never_run(path, source));
    }
    findings
}

/// Where a test build does not look (decision 0030).
const NOT_IN_TEST_BUILDS: [&str; 3] = [
    "crates/nicol-bench/src/families/",
    "crates/nicol-bench/src/bench.rs",
    "crates/nicol-bench/src/systems.rs",
];

fn tests_never_run(path: &str, source: &Source<'_>) -> Option<Finding> {
    let at = source.text.find("#[cfg(test)]")?;
    let remedy = "no test build of nicol-bench has this file: test it in nicol-bench/tests";
    let found = || Finding::new(path, source.line(at), "test that never runs", remedy);
    NOT_IN_TEST_BUILDS.iter().any(|folder| path.starts_with(folder)).then(found)
}

fn size(path: &str, source: &Source<'_>, test: bool) -> Option<Finding> {
    let (lines, most) =
        (source.text.lines().count(), if test { TEST_LINES_MAX } else { LINES_MAX });
    let remedy = format!("{lines} lines, at most {most}: split it by concept");
    (lines > most).then(|| Finding::new(path, most + 1, "file size", remedy))
}

/// Rustfmt leaves comments as they are. Rows of tables, what is fenced and single words cannot be
/// broken.
fn comment_widths(path: &str, source: &Source<'_>) -> Vec<Finding> {
    let mut fenced = false;
    let mut findings = Vec::new();
    for (number, line) in source.text.lines().enumerate() {
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            fenced = false;
            continue;
        };
        let words = comment.trim_start_matches(['/', '!']).trim();
        fenced ^= words.starts_with("```");
        let breaks = !fenced && !words.starts_with('|') && words.contains(' ');
        let columns = line.chars().count();
        if breaks && columns > COLUMNS_MAX {
            let remedy = format!("{columns} columns, at most {COLUMNS_MAX}: wrap it");
            findings.push(Finding::new(path, number + 1, "comment width", remedy));
        }
    }
    findings
}

fn names(path: &str, source: &Source<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |line, name: &str| {
        let remedy = format!("nothing is called {name}: code lives with the concept it serves");
        findings.push(Finding::new(path, line, "banned name", remedy));
    };
    for part in path.split('/') {
        let stem = part.trim_end_matches(".rs");
        if BANNED_NAMES.contains(&stem) {
            find(1, stem);
        }
    }
    for at in source.words("mod") {
        let name = source.code[at + "mod".len()..].trim_start();
        let end = name.find(|next: char| !next.is_alphanumeric() && next != '_');
        let name = &name[..end.unwrap_or(name.len())];
        // A module in a file of its own is found by that file's path.
        let inline = source.code[at..]
            .find(['{', ';'])
            .is_some_and(|stop| source.code.as_bytes()[at + stop] == b'{');
        if inline && BANNED_NAMES.contains(&name) {
            find(source.line(at), name);
        }
    }
    findings
}

fn unsafe_code(path: &str, source: &Source<'_>) -> Vec<Finding> {
    let rule = "unsafe";
    let mut findings = Vec::new();
    if !UNSAFE.iter().any(|place| path.starts_with(place)) {
        for at in source.words("unsafe") {
            let remedy = "lives in nicol-core::memory, nicol-store and nicol-rt only";
            findings.push(Finding::new(path, source.line(at), rule, remedy));
        }
    }
    let crate_root = path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs");
    let may = UNSAFE_CRATES.iter().any(|krate| path.starts_with(krate));
    if crate_root && !may && !source.code.contains("#![forbid(unsafe_code)]") {
        findings.push(Finding::new(path, 1, rule, "the crate says #![forbid(unsafe_code)]"));
    }
    findings
}

/// Lint exceptions and ignored tests say why.
fn attributes(path: &str, source: &Source<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (range, content) in source.attributes() {
        let (code, text) = (&source.code[content.clone()], &source.text[content]);
        let within = |word: &str| {
            code.match_indices(word).any(|(at, _)| {
                !code[..at].ends_with(|last: char| last.is_alphanumeric() || last == '_')
            })
        };
        let line = source.line(range.start);
        let exception = within("allow(") || within("expect(");
        if exception && !says(text, "reason") {
            let remedy = "give the exception its reason = \"...\"";
            findings.push(Finding::new(path, line, "lint exception", remedy));
        }
        let name = code.trim();
        let ignored =
            name == "ignore" || name.starts_with("ignore ") || name.starts_with("ignore=");
        if ignored && !says(text, "ignore") {
            let remedy = "say why: #[ignore = \"...\"], or make the test fast and sure";
            findings.push(Finding::new(path, line, "ignored test", remedy));
        }
    }
    findings
}

/// Does `text` hold `name = "words"`?
fn says(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(at, _)| {
        let value = text[at + name.len()..].trim_start().strip_prefix('=').map(str::trim_start);
        value.and_then(|value| value.strip_prefix('"')).is_some_and(|words| {
            words.split('"').next().is_some_and(|words| !words.trim().is_empty())
        })
    })
}

fn ambient(path: &str, source: &Source<'_>) -> Vec<Finding> {
    let rule = "ambient";
    let mut findings = Vec::new();
    for (word, instead) in AMBIENT {
        for at in source.words(word).into_iter().filter(|at| !source.is_test(*at)) {
            let remedy = format!("{word} may not stand here: {instead}");
            findings.push(Finding::new(path, source.line(at), rule, remedy));
        }
    }
    for (name, parameters) in [("HashMap", 3), ("HashSet", 2)] {
        for at in source.words(name).into_iter().filter(|at| !source.is_test(*at)) {
            if has_default_hasher(&source.code[at + name.len()..], parameters) {
                let remedy = format!(
                    "{name} with the default hasher iterates by a random seed: use BTreeMap or \
                     BTreeSet, or ids::IdMap where nothing iterates"
                );
                findings.push(Finding::new(path, source.line(at), rule, remedy));
            }
        }
    }
    findings
}

/// Does what follows `HashMap` leave the hasher out? An import alone does no harm.
fn has_default_hasher(rest: &str, parameters: usize) -> bool {
    let rest = rest.trim_start();
    let path = rest.strip_prefix("::").map(str::trim_start);
    if let Some(method) = path.filter(|path| !path.starts_with('<')) {
        return !method.starts_with("with_hasher")
            && !method.starts_with("with_capacity_and_hasher");
    }
    let Some(generics) = path.unwrap_or(rest).strip_prefix('<') else {
        // Renamed, it could no longer be followed.
        return rest.starts_with("as ");
    };
    let (mut depth, mut given) = (0_usize, 1);
    for next in generics.chars() {
        match next {
            '<' | '(' | '[' => depth += 1,
            '>' if depth == 0 => break,
            '>' | ')' | ']' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => given += 1,
            _ => {}
        }
    }
    given < parameters
}

/// The laboratory names fields, which the command writes as flags and a program as arguments.
fn flags(path: &str, source: &Source<'_>) -> Vec<Finding> {
    let of_laboratory = ["crates/nicol-bench/src/", "crates/nicol-lab/src/"];
    if !of_laboratory.iter().any(|folder| path.starts_with(folder)) {
        return Vec::new();
    }
    let is_flag =
        |at: usize| source.text[at + 2..].starts_with(|one: char| one.is_ascii_lowercase());
    let literals = source.literals().into_iter().filter(|literal| !source.is_test(literal.start));
    let found = literals.flat_map(|literal| {
        let dashes = source.text[literal.clone()].match_indices("--");
        dashes.map(|(at, _)| literal.start + at).filter(|at| is_flag(*at)).collect::<Vec<_>>()
    });
    let remedy = "name the field between backticks, as nicol_bench::refused says";
    found.map(|at| Finding::new(path, source.line(at), "flag", remedy)).collect()
}

/// Paths of one person's machine, in any text file.
pub(super) fn machine_paths(path: &str, text: &str) -> Vec<Finding> {
    // In two parts, so that this file passes its own rule.
    let roots = ["home/", "root/", "Users/", "work/", "tmp/"].map(|folder| format!("/{folder}"));
    let mut findings = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let found = roots.iter().find(|root| {
            line.match_indices(root.as_str()).any(|(at, _)| {
                !line[..at]
                    .ends_with(|last: char| last.is_alphanumeric() || "._-~/}".contains(last))
            })
        });
        if let Some(root) = found {
            let remedy = format!(
                "{root}... exists on one machine: give a path in the project, or use \
                 env::temp_dir"
            );
            findings.push(Finding::new(path, number + 1, "machine path", remedy));
        }
    }
    findings
}

/// A file that is no text: as git has it, one with a zero byte.
pub(super) fn binary(path: &str, content: &[u8]) -> Option<Finding> {
    let remedy = "only text is committed: take the file out with git rm --cached";
    content.contains(&0).then(|| Finding::new(path, 1, "binary", remedy))
}

/// What a merge left behind, in any text file.
pub(super) fn conflict_markers(path: &str, text: &str) -> Vec<Finding> {
    let is_marker = |line: &str| {
        ['<', '|', '>'].iter().any(|&mark| {
            let rest = line.trim_start_matches(mark);
            line.len() - rest.len() == 7 && rest.starts_with(' ')
        })
    };
    let numbered = text.lines().enumerate().filter(|(_, line)| is_marker(line));
    let remedy = "a merge was not finished here: keep what belongs, and remove the marker";
    numbered.map(|(number, _)| Finding::new(path, number + 1, "conflict marker", remedy)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<(usize, &'static str)> {
        let findings = check(path, &Source::new(text), false);
        findings.into_iter().map(|finding| (finding.line, finding.rule)).collect()
    }

    #[test]
    fn what_no_test_build_has_holds_no_tests() {
        let text = "fn f() {}\n#[cfg(test)]\nmod tests {}\n";
        let rule = [(2, "test that never runs")];
        for file in ["families/minos/mod.rs", "systems.rs", "bench.rs"] {
            assert_eq!(found(&format!("crates/nicol-bench/src/{file}"), text), rule, "{file}");
        }
        assert_eq!(found("crates/nicol-bench/src/live.rs", text), []);
    }

    #[test]
    fn good_code_passes() {
        let good = [
            "//! Fine.\nfn f() {}\n#[cfg(test)]\nmod tests { fn t() { println!() } }\n",
            "// Instant::now, todo!() and unsafe are only words here\n",
            "const WORDS: &str = \"unsafe todo! HashMap::new Instant\";\n",
            "use std::collections::{BTreeMap, HashMap};\ntype A = HashMap<K, V<X, Y>, Fixed>;\n",
            "let map: HashMap<u8, (u8, u8), H> = HashMap::with_hasher(H);\n",
            "#[expect(clippy::vec_box, reason = \"the boxes travel\")]\nfn f() {}\n",
            "#[ignore = \"takes a minute\"]\nfn f() {}\n",
            "value.expect(\"a message\");\nunsafe_code_free();\n",
        ];
        for text in good {
            assert_eq!(found("crates/nicol-core/src/fine.rs", text), [], "{text}");
        }
    }

    #[test]
    fn nothing_is_ambient_in_pure_crates() {
        let bad = [
            "let now = Instant::now();",
            "use std::time::Instant as Clock;",
            "let now = SystemTime::now();",
            "std::thread::spawn(f);",
            "println!();",
            "let map = HashMap::new();",
            "let map: HashMap<Key, Vec<(u8, u8)>> = x;",
            "let set = x.collect::<HashSet<_>>();",
            "let map = HashMap::<u8, u8>::new();",
            "use std::collections::HashMap as Map;",
            "std::env::var(\"HOME\");",
        ];
        for line in bad {
            let text = format!("fn f() {{}}\n{line}\n");
            assert_eq!(found("crates/nicol-sim/src/a.rs", &text), [(2, "ambient")], "{line}");
            assert_eq!(found("crates/nicol-lab/src/a.rs", &text), [], "{line}");
            assert_eq!(found("crates/nicol-sim/tests/a.rs", &text), [], "{line}");
        }
        let after = "#[cfg(test)]\nmod tests {}\nfn f() { Instant::now(); }\n";
        assert_eq!(found("crates/nicol-sim/src/a.rs", after), [(3, "ambient")]);
    }

    #[test]
    fn unsafe_stays_in_its_three_places() {
        let text = "fn f() { unsafe { g() } }\n";
        assert_eq!(found("crates/nicol-sim/src/a.rs", text), [(1, "unsafe")]);
        assert_eq!(found("crates/nicol-core/src/wire/a.rs", text), [(1, "unsafe")]);
        assert_eq!(found("crates/nicol-store-two/src/a.rs", text), [(1, "unsafe")]);
        let allowed = ["nicol-core/src/memory/a.rs", "nicol-store/src/a.rs", "nicol-rt/tests/a.rs"];
        for path in allowed {
            assert_eq!(found(&format!("crates/{path}"), text), [], "{path}");
        }
        assert_eq!(found("crates/nicol/src/main.rs", "fn main() {}\n"), [(1, "unsafe")]);
        assert_eq!(found("crates/nicol-rt/src/lib.rs", "fn f() {}\n"), []);
    }

    #[test]
    fn exceptions_and_ignored_tests_say_why() {
        let bad = [
            ("#![allow(warnings)]", "lint exception"),
            ("#[expect(dead_code)]", "lint exception"),
            ("#[expect(dead_code, reason = \"\")]", "lint exception"),
            ("#[cfg_attr(test, allow(dead_code))]", "lint exception"),
            ("#[expect(\n    dead_code,\n)]", "lint exception"),
            ("#[ignore]", "ignored test"),
            ("#[ignore = \"\"]", "ignored test"),
        ];
        for (text, rule) in bad {
            assert_eq!(found("crates/nicol/src/a.rs", text), [(1, rule)], "{text}");
        }
    }

    #[test]
    fn unfinished_work_and_banned_names_are_found() {
        for word in UNFINISHED {
            let text = format!("fn f() {{\n    {word}()\n}}\n");
            assert_eq!(found("crates/nicol/tests/a.rs", &text), [(2, "unfinished")]);
        }
        for path in ["nicol/src/utils.rs", "nicol/src/helpers/a.rs", "nicol/tests/common/mod.rs"] {
            assert_eq!(found(&format!("crates/{path}"), ""), [(1, "banned name")], "{path}");
        }
        let inline = "fn f() {}\npub(crate) mod util {\n}\nmod fine;\n";
        assert_eq!(found("crates/nicol/src/a.rs", inline), [(2, "banned name")]);
    }

    #[test]
    fn files_have_a_size() {
        let text = "\n".repeat(LINES_MAX);
        assert_eq!(found("crates/nicol/src/a.rs", &text), []);
        let text = "\n".repeat(LINES_MAX + 1);
        assert_eq!(found("crates/nicol/src/a.rs", &text), [(LINES_MAX + 1, "file size")]);
        assert_eq!(found("crates/nicol/tests/a.rs", &text), []);
        let text = "\n".repeat(TEST_LINES_MAX + 1);
        assert_eq!(found("crates/nicol/tests/a.rs", &text), [(TEST_LINES_MAX + 1, "file size")]);
    }

    #[test]
    fn the_laboratory_names_no_flags() {
        let text =
            "/// --nodes\nfn f() { g(\"--nodes {nodes}\"); } // --set\nlet a = \"a -- b\";\n";
        assert_eq!(found("crates/nicol-lab/src/a.rs", text), [(2, "flag")]);
        assert_eq!(found("crates/nicol/src/a.rs", text), []);
        let text = "fn f() {\n    g(\"give one \\\n         or --all\");\n}\n";
        assert_eq!(found("crates/nicol-lab/src/a.rs", text), [(3, "flag")]);
        let text = "#[cfg(test)]\nmod tests {\n    const A: &str = \"--nodes\";\n}\n";
        assert_eq!(found("crates/nicol-lab/src/a.rs", text), []);
    }

    #[test]
    fn comments_have_a_width() {
        let words = |columns: usize| "a ".repeat(columns / 2);
        let path = "crates/nicol/src/a.rs";
        for (text, lines) in [
            (format!("//! {}\n//!  {}.", words(96), words(96)), &[(2, "comment width")][..]),
            (format!("    /// {}", words(96)), &[(1, "comment width")]),
            (format!("/// | {} |\n/// ```\n/// {0}\n/// ```\n", words(120)), &[]),
            (format!("// https://{}", "a".repeat(120)), &[]),
            (format!("let text = \"{}\";", words(120)), &[]),
        ] {
            assert_eq!(found(path, &text), lines, "{text}");
        }
    }

    #[test]
    fn what_a_merge_left_is_found() {
        let text =
            ["a", "<<<<<<< HEAD", "b", "||||||| base", "=======", ">>>>>>> theirs"].join("\n");
        let found: Vec<_> =
            conflict_markers("a.md", &text).iter().map(|found| found.line).collect();
        assert_eq!(found, [2, 4, 6]);
        assert_eq!(conflict_markers("a.md", "| a | b |\n> quoted\n    <<<<<<< no\n"), []);
    }

    #[test]
    fn packages_are_binary_and_text_of_any_script_is_not() {
        assert_eq!(binary("a.whl", b"PK\x03\x04\x14\0").unwrap().rule, "binary");
        assert_eq!(binary("a.md", "caf\u{e9} \u{65e5}\n\t".as_bytes()), None);
    }

    #[test]
    fn machine_paths_are_found_and_relative_ones_are_not() {
        let path = format!("fine\nsee /{}me/file\n", "home/");
        assert_eq!(machine_paths("a.md", &path).len(), 1);
        assert_eq!(machine_paths("a.md", &path)[0].line, 2);
        let fine = "crates/work/a, ./tmp/x, $HOME/root/x, ~/work/y";
        assert_eq!(machine_paths("a.md", fine), []);
    }
}
