//! The steps of a protocol know no planted fault by name.
//!
//! `Sabotage`, and a field of that name, may stand in a system's `broken.rs` (or a file of the
//! folder `broken`), in tests, and where a module hands the type on. A `config.rs` holds the
//! choice, and names none but `Sabotage::None`.
//!
//! Nor do steps ask much: a fault is planted before a step wherever that can show it, so that the
//! questions that steps ask their `Hooks` have a limit.

use super::Finding;
use super::arrows::{FAMILIES, SCHEDULE};
use crate::source::Source;

const RULE: &str = "planted fault";

/// Questions that steps ask, of all systems together, at most. It may fall and not rise.
const QUESTIONS_MAX: usize = 29;

/// The findings in a file of which not only tests compile.
pub(super) fn check(path: &str, source: &Source<'_>) -> Vec<Finding> {
    let inside = path.strip_prefix("crates/").and_then(|path| path.split_once("/src/"));
    let Some((krate, inside)) = inside else { return Vec::new() };
    if krate != SCHEDULE && !FAMILIES.contains(&krate) {
        return Vec::new();
    }
    if inside.split('/').any(|part| part == "broken" || part == "broken.rs") {
        return Vec::new();
    }
    let is_config = inside.rsplit('/').next() == Some("config.rs");
    let mut found = Vec::new();
    for name in ["Sabotage", "sabotage"] {
        let places = source.words(name).into_iter().filter(|at| !source.is_test(*at));
        found.extend(places.filter(|at| {
            let behind = &source.code[at + name.len()..];
            if is_config { names_a_fault(behind) } else { !is_handed_on(&source.code[..*at]) }
        }));
    }
    let remedy = "a step knows no planted fault by name: it asks the `Hooks` of its system's \
                  broken.rs about what it decides, or what spoils it stands before it";
    found.into_iter().map(|at| Finding::new(path, source.line(at), RULE, remedy)).collect()
}

/// A finding if the steps of all systems together ask too many questions.
pub(super) fn check_questions(sources: &[(&str, &Source<'_>)]) -> Option<Finding> {
    let mut asked = 0;
    let mut last = None;
    for (path, source) in sources.iter().filter(|(path, _)| path.starts_with("crates/")) {
        for at in source.words("hooks").into_iter().filter(|at| is_asked(&source.code[*at..])) {
            asked += usize::from(!source.is_test(at));
            last = Some((*path, source.line(at)));
        }
    }
    let (path, line) = last.filter(|_| asked > QUESTIONS_MAX)?;
    let remedy = format!(
        "steps ask {asked} questions that only planted faults answer otherwise, and          {QUESTIONS_MAX} are allowed: plant the fault before the step, in what comes to it or in          what it is handed (decision 0017)"
    );
    Some(Finding::new(path, line, RULE, remedy))
}

/// Is a method of these hooks called?
fn is_asked(hooks: &str) -> bool {
    let hooks = hooks.strip_prefix("hooks").unwrap_or(hooks);
    let hooks = hooks.strip_prefix("()").unwrap_or(hooks).trim_start();
    let Some(question) = hooks.strip_prefix('.') else { return false };
    let question = question.trim_start();
    question.trim_start_matches(|next: char| next.is_alphanumeric() || next == '_').starts_with('(')
}

/// Does a variant follow, and not the one that breaks nothing?
fn names_a_fault(behind: &str) -> bool {
    let Some(variant) = behind.trim_start().strip_prefix("::") else { return false };
    let variant = variant.trim_start();
    let end = variant.find(|next: char| !next.is_alphanumeric() && next != '_');
    &variant[..end.unwrap_or(variant.len())] != "None"
}

/// Is the name that follows part of a `pub use`?
fn is_handed_on(before: &str) -> bool {
    let statement = before.rfind([';', '}', ']']).map_or(0, |end| end + 1);
    before[statement..].trim_start().starts_with("pub use ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let findings = check(&format!("crates/nicol-{path}"), &Source::new(text));
        findings.iter().for_each(|finding| assert_eq!(finding.rule, RULE));
        findings.into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_step_names_no_planted_fault() {
        let bad = [
            "use super::broken::Sabotage;",
            "use super::config::{Reads, Sabotage};",
            "if config.sabotage == fault {}",
            "if worker.sabotage() != Sabotage::SkipsValidation {}",
            "match node.config().sabotage {}",
            "let sabotage = 1;",
            "#[cfg(test)]\nmod tests {}\nfn f(sabotage: Sabotage) {}",
        ];
        for text in bad {
            assert!(!lines("minos/src/local.rs", text).is_empty(), "{text}");
        }
        assert_eq!(lines("minos/src/local.rs", "fn f() {}\nlet a = Sabotage::None;\n"), [2]);
    }

    #[test]
    fn what_plants_faults_may_name_them() {
        let text = "match sabotage { Sabotage::NoLocks => {} }";
        for path in
            ["minos/src/broken.rs", "minos/src/broken/steps.rs", "commit/src/xenic/broken.rs"]
        {
            assert!(lines(path, text).is_empty(), "{path}");
        }
        assert_eq!(lines("minos/src/unbroken.rs", text), [1, 1]);
        let fine = [
            "if hooks.skips_validation() {} // Sabotage::NoLocks is its name",
            "mod broken;\n#[doc(hidden)]\npub use broken::Sabotage;",
            "pub use broken::Sabotage;\npub use config::{\n    Config,\n};",
            "#[cfg(test)]\nmod tests { fn t() { config.sabotage = Sabotage::NoLocks; } }",
        ];
        for text in fine {
            assert!(lines("minos/src/lib.rs", text).is_empty(), "{text}");
        }
        let elsewhere = check("crates/nicol-rt/src/a.rs", &Source::new("Sabotage::NoLocks"));
        assert!(elsewhere.is_empty());
    }

    #[test]
    fn questions_of_steps_are_counted_and_have_a_limit() {
        let asked = ["if hooks.validates() {}", "config.hooks().is_late(x);", "hooks\n    .x();"];
        asked.iter().for_each(|text| assert!(is_asked(&text[text.find("hooks").unwrap()..])));
        let not = ["hooks: Hooks", "hooks,", "hooks()", "hooks.0", "hooks: config.hooks()"];
        not.iter().for_each(|text| assert!(!is_asked(text), "{text}"));
        let step = format!("fn f() {{}}\n{}", "hooks.validates();\n".repeat(QUESTIONS_MAX));
        let (step, test) = (Source::new(&step), "#[cfg(test)]\nmod t { fn f() { hooks.f(); } }");
        let (one, test) = (Source::new("fn f() { self.hooks().g() }"), Source::new(test));
        assert!(check_questions(&[("crates/a.rs", &step), ("crates/b.rs", &test)]).is_none());
        let found = check_questions(&[("crates/a.rs", &step), ("crates/b.rs", &one)]).unwrap();
        assert_eq!((found.path.as_str(), found.line), ("crates/b.rs", 1));
    }

    #[test]
    fn a_configuration_holds_the_choice_and_names_none() {
        let holds = "use super::broken::Sabotage;\npub sabotage: Sabotage,\n\
                     sabotage: Sabotage::None,\nHooks::new(self.sabotage)\n";
        assert!(lines("minos/src/config.rs", holds).is_empty());
        let names = "fn f() {}\nif self.sabotage == Sabotage::StealsLocks {}\n";
        assert_eq!(lines("minos/src/config.rs", names), [2]);
        assert_eq!(lines("minos/src/config.rs", "use super::broken::Sabotage::*;"), [1]);
    }
}
