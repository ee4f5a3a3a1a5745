//! Links between documents lead somewhere, every page is in the book, and a decision that is cited
//! by its number has a page.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;

const RULE: &str = "link";
/// The book's table of contents; its pages lie below the same folder.
const SUMMARY: &str = "docs/SUMMARY.md";
const DECISIONS: &str = "docs/decisions/";

/// The findings in `pages` (path and text of each Markdown file), where `exists` knows every file
/// of the project.
pub(super) fn check(
    pages: &BTreeMap<String, String>,
    exists: impl Fn(&str) -> bool,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut listed = BTreeSet::new();
    for (page, text) in pages {
        let included = pages.values().any(|other| other.contains(&format!("/{page}}}}}")));
        for (line, target) in links(text) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = if file.is_empty() { page.clone() } else { resolved(page, file) };
            if page == SUMMARY {
                listed.insert(path.clone());
            }
            let headings = pages.get(&path).map(|text| anchors(text));
            let remedy = if included {
                format!(
                    "{target}: a page that the book includes has no links of its own: name the path"
                )
            } else if !exists(&path) {
                format!("{target}: there is no {path}")
            } else if anchor.is_empty() || headings.is_some_and(|found| found.contains(anchor)) {
                continue;
            } else {
                format!("{target}: {path} has no heading for #{anchor}")
            };
            findings.push(Finding::new(page, line, RULE, remedy));
        }
        for (line, file) in includes(text) {
            if !exists(&resolved(page, file)) {
                findings.push(Finding::new(page, line, RULE, format!("{file}: no such file")));
            }
        }
    }
    let unlisted = pages
        .keys()
        .filter(|page| page.starts_with("docs/") && *page != SUMMARY && !listed.contains(*page));
    findings.extend(unlisted.map(|page| {
        Finding::new(page, 1, "book", format!("it is not in {SUMMARY}: list it, or delete it"))
    }));
    findings
}

/// The decisions that `text` cites by numbers without a page in `pages`.
pub(super) fn decisions(path: &str, text: &str, pages: &BTreeMap<String, String>) -> Vec<Finding> {
    let has_page = |number: &str| {
        let begin = format!("{DECISIONS}{number}-");
        pages.range(begin.clone()..).next().is_some_and(|(page, _)| page.starts_with(&begin))
    };
    let mut findings = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let lower = line.to_lowercase();
        for (cited, _) in lower.match_indices("decision") {
            let rest =
                lower[cited..].trim_start_matches("decisions").trim_start_matches("decision");
            for word in
                rest.split([' ', ',', ';']).filter(|word| !word.is_empty() && *word != "and")
            {
                let number = word.trim_matches(|letter: char| !letter.is_ascii_digit());
                if number.len() != 4 || !number.starts_with('0') {
                    break;
                }
                if !has_page(number) {
                    let remedy = format!("decision {number} has no page in {DECISIONS}");
                    findings.push(Finding::new(path, at + 1, RULE, remedy));
                }
            }
        }
    }
    findings
}

/// The relative links of a page with their lines; what is fenced or in code is none.
fn links(text: &str) -> Vec<(usize, &str)> {
    prose(text).flat_map(|(at, line)| line_links(line).map(move |link| (at, link))).collect()
}

/// The lines of a page outside of fences, numbered from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((at + 1, line))
    })
}

fn line_links(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("](").filter_map(|(at, _)| {
        let in_code = line[..at].matches('`').count() % 2 == 1;
        let rest = &line[at + 2..];
        let target = &rest[..rest.find(')')?];
        let elsewhere = target.contains("://") || target.starts_with("mailto:");
        (!in_code && !elsewhere).then_some(target)
    })
}

fn includes(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().filter_map(|(at, line)| {
        let file = line.trim().strip_prefix("{{#include ")?.strip_suffix("}}")?;
        Some((at + 1, file))
    })
}

/// `target` as seen from the folder of `page`.
fn resolved(page: &str, target: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// The anchors that GitHub and mdBook make of a page's headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter(|(_, line)| line.starts_with('#'));
    let headings = headings.map(|(_, line)| line.trim_start_matches('#').trim().to_lowercase());
    let anchor = |heading: String| {
        let kept = heading.chars().filter(|next| next.is_alphanumeric() || " -_".contains(*next));
        kept.map(|next| if next == ' ' { '-' } else { next }).collect()
    };
    headings.map(anchor).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(of: &[(&str, &str)]) -> BTreeMap<String, String> {
        of.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
    }

    fn found(of: &[(&str, &str)]) -> Vec<String> {
        let pages = pages(of);
        let findings = check(&pages, |path| pages.contains_key(path) || path == "docs/a.toml");
        findings.iter().map(|finding| format!("{}:{}", finding.path, finding.line)).collect()
    }

    const CONTENTS: (&str, &str) = ("docs/SUMMARY.md", "- [A](use/a.md)\n- [B](b.md)\n");

    #[test]
    fn links_that_lead_somewhere_pass() {
        let a = "# A page\n[b](../b.md) [up](#a-page) [toml](../a.toml) [web](https://x.y)\n\
                 `[no](link)`\n```text\n[no](link)\n```\n";
        let b = "## What `it` is, in short\n[a](use/a.md#a-page) [b](#what-it-is-in-short)\n";
        assert_eq!(found(&[CONTENTS, ("docs/use/a.md", a), ("docs/b.md", b)]), [""; 0]);
    }

    #[test]
    fn broken_links_and_pages_outside_the_book_are_found() {
        let b = ("docs/b.md", "# B\n");
        for a in ["[c](c.md)", "[b](b.md)", "[b](../b.md#c)", "[a](#c)", "{{#include c.md}}"] {
            assert_eq!(found(&[CONTENTS, b, ("docs/use/a.md", a)]), ["docs/use/a.md:1"], "{a}");
        }
        assert_eq!(found(&[CONTENTS, b]), ["docs/SUMMARY.md:1"]);
        let new = found(&[CONTENTS, b, ("docs/use/a.md", ""), ("docs/new.md", "")]);
        assert_eq!(new, ["docs/new.md:1"]);
    }

    #[test]
    fn a_page_that_the_book_includes_has_no_links() {
        let map = ("MAP.md", "[b](docs/b.md)");
        let b = ("docs/b.md", "# B\n");
        assert_eq!(found(&[CONTENTS, map, b, ("docs/use/a.md", "# A\n")]), [""; 0]);
        let included = ("docs/use/a.md", "{{#include ../../MAP.md}}\n");
        assert_eq!(found(&[CONTENTS, map, b, included]), ["MAP.md:1"]);
    }

    #[test]
    fn decisions_without_a_page_are_found() {
        let pages = pages(&[("docs/decisions/0017-a.md", ""), ("docs/decisions/0020-b.md", "")]);
        let missing = format!("{}{}", "00", 18);
        for fine in ["(decision 0017)", "Decisions 0017, 0020.", "decisions of 0018", "a decision"]
        {
            assert_eq!(decisions("a.rs", fine, &pages), [], "{fine}");
        }
        for bad in ["\ndecision NNNN", "\n// decisions 0017 and NNNN, too", "\nDecision NNNN."] {
            let lines: Vec<_> = decisions("a.rs", &bad.replace("NNNN", &missing), &pages)
                .iter()
                .map(|finding| finding.line)
                .collect();
            assert_eq!(lines, [2], "{bad}");
        }
    }
}
