//! `cargo xtask papers`: every step tag and every deviation, with where it stands.

use std::io::{self, Write};
use std::path::Path;

use anyhow::Result;

/// Prints the list: a line for each tag, deviations again at the end.
pub fn run(root: &Path) -> Result<()> {
    let mut tags = Vec::new();
    for path in crate::rust_files(&root.join("crates"))? {
        let shown = crate::shown(root, &path);
        let text = crate::read(&path)?;
        tags.extend(find(&text).into_iter().map(|tag| (format!("{shown}:{}", tag.line), tag)));
    }
    let mut out = io::stdout().lock();
    for (place, tag) in &tags {
        writeln!(out, "{place}: {}", tag.words)?;
    }
    let deviations = tags.iter().filter(|(_, tag)| tag.deviation);
    writeln!(out, "\n{} tags; deviations:", tags.len())?;
    for (place, tag) in deviations {
        writeln!(out, "{place}: {}", tag.words)?;
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
struct Tag {
    line: usize,
    deviation: bool,
    words: String,
}

/// The comments of `text` that name a paper's step, an ambiguity, or a deviation.
fn find(text: &str) -> Vec<Tag> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let Some((_, comment)) = line.split_once("//") else { continue };
        let words = comment.trim_start_matches(['/', '!', ' ']);
        let deviation = words.contains("DEVIATION");
        if deviation || words.contains("AMB-") || cites_paper(words) {
            found.push(Tag { line: number + 1, deviation, words: words.to_owned() });
        }
    }
    found
}

/// Does `words` hold a tag like `[Xenic21 ...]` or `[FaRM15 ...]`: a name, then two digits of a
/// year?
fn cites_paper(words: &str) -> bool {
    words.split('[').skip(1).any(|tag| {
        let name = tag.split([' ', ']', ',']).next().unwrap_or_default();
        let letters = name.trim_end_matches(|last: char| last.is_ascii_digit());
        let capital = name.starts_with(|first: char| first.is_ascii_uppercase());
        capital && name.len() == letters.len() + 2 && letters.chars().all(char::is_alphabetic)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_deviations_and_ambiguities_are_found() {
        let text = "// [Xenic21 4.2 step 4] VALIDATE.\nlet a = b[Key12];\n\
                    //! DEVIATION [FaRM15 step 5]: no.\n/// AMB-37: idempotent.\n// plain [link]\n\
                    /// [`Fabric`] and [C1.04] are no papers.\n";
        let found = find(text);
        let lines: Vec<usize> = found.iter().map(|tag| tag.line).collect();
        assert_eq!(lines, [1, 3, 4]);
        assert_eq!(found[0].words, "[Xenic21 4.2 step 4] VALIDATE.");
        assert!(found[1].deviation);
        assert!(!found[2].deviation);
    }
}
