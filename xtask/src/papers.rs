//! `cargo xtask papers`: every step tag and every deviation, with where it stands.

use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result};

/// What a tag begins with, behind a comment's slashes.
const TAGS: [&str; 4] = ["[Xenic21", "AMB-", "DEVIATION", "[FaRM"];

/// Prints the list.
pub fn run(root: &Path) -> Result<()> {
    let mut out = io::stdout().lock();
    for path in crate::rust_files(&root.join("crates"))? {
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let shown = path.strip_prefix(root).unwrap_or(&path).display();
        for (number, line) in text.lines().enumerate() {
            let Some((_, comment)) = line.split_once("//") else { continue };
            if TAGS.iter().any(|tag| comment.contains(tag)) {
                let comment = comment.trim_start_matches(['/', '!', ' ']);
                writeln!(out, "{shown}:{}: {comment}", number + 1)?;
            }
        }
    }
    Ok(())
}
