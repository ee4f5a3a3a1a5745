//! Every value of a hardware profile has an origin.

use toml::de::{DeTable, DeValue};

use super::Finding;
use super::arrows::line_of;

const RULE: &str = "profile value";

/// Fields that describe the profile itself.
const DESCRIPTION: [&str; 2] = ["name", "summary"];

/// Checks that each value is `{ value, source }`, with a `reason` where it is assumed.
pub(super) fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    match DeTable::parse(text) {
        Err(error) => findings.push(Finding::new(path, 1, RULE, error.to_string())),
        Ok(profile) => {
            walk(profile.get_ref(), true, &mut |line_at, remedy| {
                findings.push(Finding::new(path, line_of(text, line_at), RULE, remedy));
            });
        }
    }
    findings
}

fn walk(table: &DeTable<'_>, top: bool, find: &mut impl FnMut(usize, String)) {
    for (name, value) in table {
        let (at, name) = (name.span().start, name.get_ref());
        match value.get_ref() {
            DeValue::String(_) if top && DESCRIPTION.contains(&&**name) => {}
            DeValue::Table(sourced) if sourced.contains_key("value") => {
                if let Some(missing) = missing(sourced) {
                    find(at, format!("{name} needs {missing}"));
                }
            }
            DeValue::Table(section) if !section.contains_key("source") => {
                walk(section, false, find)
            }
            _ => find(at, format!("{name} needs {{ value = ..., source = ... }}")),
        }
    }
}

/// What a sourced value lacks.
fn missing(sourced: &DeTable<'_>) -> Option<&'static str> {
    let text = |name: &str| {
        let value = sourced.get(name)?.get_ref().as_str()?.trim();
        (!value.is_empty()).then_some(value)
    };
    match text("source") {
        None => Some("a source: a paper, a data sheet, a measured run, or \"assumed\""),
        Some("assumed") if text("reason").is_none() => Some("the reason why it is assumed"),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        check("p.toml", text).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn sourced_values_pass() {
        let text = "name = \"x\"\nsummary = \"y\"\n[dma]\nqueues = { value = 8, source = \"C1\" }\n\
                    poll = { value = \"1ns\", source = \"assumed\", reason = \"a guess\" }\n";
        assert_eq!(lines(text), [0; 0]);
    }

    #[test]
    fn values_without_an_origin_are_found() {
        let bad = [
            "queues = 8",
            "queues = { value = 8 }",
            "queues = { value = 8, source = \"\" }",
            "queues = { source = \"C1\" }",
            "queues = { value = 8, source = \"assumed\" }",
            "queues = { value = 8, source = \"assumed\", reason = \" \" }",
            "name = \"only the top level has a name\"",
            "queues = [",
        ];
        for line in bad {
            assert_eq!(lines(&format!("[dma]\n{line}\n")).len(), 1, "{line}");
        }
        assert_eq!(lines("[dma]\n\nqueues = 8\n"), [3]);
    }
}
