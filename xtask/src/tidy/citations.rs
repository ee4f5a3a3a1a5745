//! Every cited id of an ambiguity (`AMB-01`) or a calibration number (`C1.02`) has an entry, and no
//! other list is cited: an id of a capital letter, a hyphen and two digits leads nowhere.

use std::collections::BTreeSet;

use super::Finding;

const RULE: &str = "unknown id";
/// The lists, from the project's root on.
pub(super) const AMBIGUITIES: &str = "docs/research/ambiguities.md";
pub(super) const CALIBRATION: &str = "docs/research/calibration.md";

/// The ids that the two lists define: headings of the first, first cells of rows of the second.
pub(super) fn defined(ambiguities: &str, calibration: &str) -> BTreeSet<String> {
    let headings = ambiguities.lines().filter_map(|line| line.strip_prefix("### "));
    let rows = calibration.lines().filter_map(|line| line.strip_prefix("| "));
    let ids = headings.chain(rows).filter_map(|entry| {
        let first = entry.split([' ', '|']).next()?;
        (cited(first).next().map(|(_, id)| id) == Some(first)).then(|| first.to_owned())
    });
    ids.collect()
}

/// Checks that each id in `text` is one of `known`, and that no id of another list is cited.
pub(super) fn check(path: &str, text: &str, known: &BTreeSet<String>) -> Vec<Finding> {
    let unknown = cited(text).filter(|(_, id)| !known.contains(*id));
    let unknown = unknown.map(|(at, id)| {
        let list = if id.starts_with('A') { AMBIGUITIES } else { CALIBRATION };
        Finding::new(path, line_of(text, at), RULE, format!("{id} has no entry in {list}"))
    });
    unknown.chain(foreign(path, text)).collect()
}

/// Finds ids of lists that are not in the repository.
fn foreign(path: &str, text: &str) -> impl Iterator<Item = Finding> {
    words(text, foreign_len).map(move |(at, id)| {
        let remedy = format!("{id} leads nowhere: say it in words, or cite a paper or an AMB id");
        Finding::new(path, line_of(text, at), "foreign id", remedy)
    })
}

/// The ids that stand in `text` as words of their own, with their offsets.
fn cited(text: &str) -> impl Iterator<Item = (usize, &str)> {
    words(text, id_len)
}

/// What in `text` has the length that `len` finds and stands as a word of its own, with its offset.
fn words(text: &str, len: impl Fn(&[u8]) -> Option<usize>) -> impl Iterator<Item = (usize, &str)> {
    let bytes = text.as_bytes();
    let starts = (0..bytes.len()).filter(|&at| at == 0 || !is_word(bytes[at - 1]));
    starts.filter_map(move |at| {
        let len = len(&bytes[at..])?;
        let whole = bytes.get(at + len).is_none_or(|next| !is_word(*next));
        whole.then(|| (at, &text[at..at + len]))
    })
}

fn line_of(text: &str, at: usize) -> usize {
    1 + text[..at].bytes().filter(|byte| *byte == b'\n').count()
}

/// The length of a foreign id that `bytes` begin with: a capital letter, `-` and two digits.
fn foreign_len(bytes: &[u8]) -> Option<usize> {
    let id = bytes.get(..4)?;
    let digits = id[2..].iter().all(u8::is_ascii_digit);
    (id[0].is_ascii_uppercase() && id[1] == b'-' && digits).then_some(4)
}

/// The length of the id that `bytes` begin with: `AMB-` and two digits, perhaps a small letter; or
/// `C`, a digit, a point and two digits.
fn id_len(bytes: &[u8]) -> Option<usize> {
    let digits = |at: usize, count: usize| {
        bytes.get(at..at + count).is_some_and(|part| part.iter().all(u8::is_ascii_digit))
    };
    if bytes.starts_with(b"AMB-") && digits(4, 2) {
        return Some(6 + usize::from(bytes.get(6).is_some_and(u8::is_ascii_lowercase)));
    }
    (bytes.starts_with(b"C") && digits(1, 1) && bytes.get(2) == Some(&b'.') && digits(3, 2))
        .then_some(5)
}

const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

#[cfg(test)]
mod tests {
    use super::*;

    // Put together here, so that this file cites nothing itself.
    fn amb(number: &str) -> String {
        format!("AMB-{number}")
    }

    fn calibration(number: &str) -> String {
        format!("C{number}")
    }

    fn known() -> BTreeSet<String> {
        let ambiguities = format!("# List\n\n### {}\n\ntext\n### {}\n", amb("01"), amb("14b"));
        let rows = format!("| id | value |\n|---|---|\n| {} | 24 cores |\n", calibration("1.01"));
        defined(&ambiguities, &rows)
    }

    #[test]
    fn a_list_defines_headings_and_first_cells_only() {
        let expected = [amb("01"), amb("14b"), calibration("1.01")];
        assert_eq!(known().into_iter().collect::<Vec<_>>(), expected);
        let elsewhere = format!("see {}\n| value | {} |\n", amb("02"), calibration("1.02"));
        assert!(defined(&elsewhere, &elsewhere).is_empty());
    }

    #[test]
    fn an_id_without_an_entry_is_found() {
        for id in [amb("02"), amb("14"), amb("14c"), calibration("1.02"), calibration("9.01")] {
            let text = format!("first line\n/// As in ({id}), or so.\n");
            let found = check("a.rs", &text, &known());
            let lines: Vec<_> = found.iter().map(|finding| finding.line).collect();
            assert_eq!(lines, [2], "{id}: {found:?}");
            assert!(found[0].remedy.starts_with(&id), "{found:?}");
        }
    }

    #[test]
    fn entries_and_other_words_pass() {
        let ids = format!("{}, {} and \"{}\"", amb("01"), amb("14b"), calibration("1.01"));
        assert_eq!(check("a.rs", &ids, &known()), []);
        for word in ["PAMB-02", "AMB-2", "AMB-022", "C1", "C1.2", "C11.02", "C1.022", "xC1.02"] {
            assert_eq!(check("a.rs", word, &known()), [], "{word}");
        }
    }

    #[test]
    fn ids_of_lists_outside_the_repository_are_refused() {
        for letter in ["A", "B", "M", "O", "P", "X"] {
            let id = format!("{letter}-13");
            for text in [format!("first\n//! | step ({id}) |\n"), format!("\n[V-C, {id}]")] {
                let found = check("a.rs", &text, &known());
                let lines: Vec<_> = found.iter().map(|finding| finding.line).collect();
                assert_eq!(lines, [2], "{id}: {found:?}");
                assert!(found[0].remedy.starts_with(&id), "{found:?}");
            }
        }
    }

    #[test]
    fn ids_with_a_list_and_other_words_are_not_foreign() {
        let ids = [amb("01"), calibration("1.01"), "UTF-16".to_owned(), "RFC-20".to_owned()];
        for word in ids.iter().map(String::as_str).chain(["V-C", "YCSB A-F", "a-13", "8-16"]) {
            assert_eq!(check("a.rs", word, &known()), [], "{word}");
        }
        let longer = format!("{}-{}", "A", "013");
        assert_eq!(check("a.rs", &longer, &known()), [], "three digits are another word");
    }
}
