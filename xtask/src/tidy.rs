//! `cargo xtask tidy`: rules that the compiler does not know.

use std::fmt;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// Lines of a source file at most; a test file may be longer.
const LINES_MAX: usize = 600;
const TEST_LINES_MAX: usize = 700;

/// The project's crates that each crate may depend on.
const ARROWS: [(&str, &[&str]); 9] = [
    ("nicol-core", &[]),
    ("nicol-store", &["nicol-core"]),
    ("nicol-protocols", &["nicol-core", "nicol-store"]),
    ("nicol-sim", &["nicol-core"]),
    ("nicol-rt", &["nicol-core"]),
    ("nicol-workload", &["nicol-core"]),
    ("nicol-check", &["nicol-core"]),
    (
        "nicol-lab",
        &[
            "nicol-core",
            "nicol-store",
            "nicol-protocols",
            "nicol-sim",
            "nicol-rt",
            "nicol-workload",
            "nicol-check",
        ],
    ),
    (
        "nicol",
        &[
            "nicol-core",
            "nicol-store",
            "nicol-protocols",
            "nicol-sim",
            "nicol-rt",
            "nicol-workload",
            "nicol-check",
            "nicol-lab",
        ],
    ),
];

/// Crates in which nothing may be ambient: time, threads, hash seeds, printing.
const PURE: [&str; 5] =
    ["nicol-core", "nicol-store", "nicol-protocols", "nicol-sim", "nicol-workload"];

/// Crates that may hold `unsafe`, each use with its reason.
const UNSAFE: [&str; 3] = ["nicol-core/src/memory", "nicol-store", "nicol-rt"];

const BANNED_NAMES: [&str; 5] = ["util", "utils", "common", "helpers", "misc"];

/// A rule that a line of code breaks.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    place: String,
    rule: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.rule)
    }
}

/// Checks the whole project.
pub fn run(root: &Path) -> Result<()> {
    let mut findings = Vec::new();
    for (krate, allowed) in ARROWS {
        let path = root.join("crates").join(krate).join("Cargo.toml");
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        findings.extend(check_arrows(krate, allowed, &text));
        for folder in ["src", "tests", "examples"] {
            for file in crate::rust_files(&root.join("crates").join(krate).join(folder))? {
                let text = std::fs::read_to_string(&file)
                    .with_context(|| format!("cannot read {}", file.display()))?;
                let shown = file.strip_prefix(root.join("crates")).unwrap_or(&file);
                findings.extend(check_file(&shown.display().to_string(), &text));
            }
        }
    }
    for finding in &findings {
        eprintln!("{finding}");
    }
    match findings.len() {
        0 => Ok(()),
        count => bail!("{count} findings"),
    }
}

fn check_arrows(krate: &str, allowed: &[&str], manifest: &str) -> Vec<Finding> {
    let mut section = "";
    let mut findings = Vec::new();
    for (number, line) in manifest.lines().enumerate() {
        if line.starts_with('[') {
            section = line;
        }
        let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
        let ours = name == "nicol" || name.starts_with("nicol-");
        if section == "[dependencies]" && ours && !allowed.contains(&name) {
            findings.push(Finding {
                place: format!("{krate}/Cargo.toml:{}", number + 1),
                rule: format!("{krate} may not depend on {name}: move what both need to core"),
            });
        }
    }
    findings
}

/// What may not stand in a line of a pure crate, and what to use instead.
const AMBIENT: [(&str, &str); 8] = [
    ("Instant::now", "time comes from Fabric::now"),
    ("SystemTime", "time comes from Fabric::now"),
    ("thread::spawn", "tasks come from Fabric::spawn"),
    ("println!", "a library does not print"),
    ("eprintln!", "a library does not print"),
    ("HashMap::new", "use BTreeMap, or ids::IdMap where nothing iterates"),
    ("HashSet::new", "use BTreeSet"),
    ("RandomState", "iteration order may not depend on a hash seed"),
];

fn check_file(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |line: usize, rule: String| {
        findings.push(Finding { place: format!("crates/{path}:{line}"), rule });
    };
    let test = path.contains("/tests") || path.contains("/examples/");
    let (lines, most) = (text.lines().count(), if test { TEST_LINES_MAX } else { LINES_MAX });
    if lines > most {
        find(lines, format!("a file has at most {most} lines: split it by concept"));
    }
    let stem = Path::new(path).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    if BANNED_NAMES.contains(&stem) {
        find(1, format!("no module is called {stem}: code lives with the concept it serves"));
    }
    let pure = PURE.iter().any(|krate| path.starts_with(&format!("{krate}/src")));
    let unsafe_allowed = UNSAFE.iter().any(|place| path.starts_with(place));
    let mut in_tests = test;
    for (number, line) in text.lines().enumerate() {
        in_tests |= line.trim() == "#[cfg(test)]";
        let code = line.split("//").next().unwrap_or_default();
        for word in ["todo!", "unimplemented!", "dbg!"] {
            if code.contains(word) {
                find(number + 1, format!("{word} is not finished work"));
            }
        }
        if code.contains("#[ignore]") {
            find(number + 1, "an ignored test needs a reason: #[ignore = \"...\"]".to_owned());
        }
        if code.contains("unsafe ") && !code.contains('"') && !unsafe_allowed {
            find(number + 1, "unsafe lives in core::memory, store and rt only".to_owned());
        }
        for (word, instead) in AMBIENT {
            if pure && !in_tests && code.contains(word) {
                find(number + 1, format!("{word}: {instead}"));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(path: &str, text: &str) -> Vec<String> {
        check_file(path, text).into_iter().map(|finding| finding.rule).collect()
    }

    #[test]
    fn good_code_passes() {
        let text = "//! Fine.\nfn f() {}\n#[cfg(test)]\nmod tests { fn t() { println!() } }\n";
        assert_eq!(rules("nicol-core/src/fine.rs", text), [""; 0]);
    }

    #[test]
    fn every_rule_bites() {
        let cases = [
            ("nicol-core/src/a.rs", "let now = Instant::now();"),
            ("nicol-sim/src/a.rs", "let map = HashMap::new();"),
            ("nicol/src/a.rs", "fn f() { todo!() }"),
            ("nicol/src/a.rs", "fn f() { unsafe { g() } }"),
            ("nicol/src/utils.rs", "//! Things."),
            ("nicol/tests/a.rs", "#[ignore]"),
        ];
        for (path, text) in cases {
            assert_eq!(rules(path, text).len(), 1, "{path}: {text}");
        }
        assert_eq!(rules("nicol/src/long.rs", &"\n".repeat(LINES_MAX + 1)).len(), 1);
    }

    #[test]
    fn arrows_point_one_way() {
        let manifest = "[dependencies]\nnicol-core.workspace = true\nnicol-sim.workspace = true\n\
                        [dev-dependencies]\nnicol-rt.workspace = true\n";
        let findings = check_arrows("nicol-rt", &["nicol-core"], manifest);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].rule.contains("nicol-sim"), "{findings:?}");
    }
}
