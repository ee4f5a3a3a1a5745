//! `cargo xtask book`: the documents as one book in `target/book`, by a pinned mdBook. That its
//! links lead somewhere is `tidy`'s to check.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::cargo::{command, target};
use crate::finish;

const VERSION: &str = "0.5.4";

/// Builds the book. Installs mdBook into the target folder where it is absent, once; without the
/// registry that is impossible, and the book is left out in words.
pub fn run(root: &Path) -> Result<()> {
    let tools = target(root)?.join(format!("mdbook-{VERSION}"));
    let mdbook = tools.join("bin/mdbook").with_extension(std::env::consts::EXE_EXTENSION);
    if !mdbook.exists() {
        let mut install = command(root);
        // A debug build takes half as long, and renders this book as fast as anyone can look.
        install.args(["install", "mdbook", "--debug", "--locked", "--no-default-features"]);
        install.args(["--quiet", "--version", VERSION, "--root"]).arg(&tools);
        if let Err(error) = finish(&mut install) {
            println!("== book: left out, mdBook {VERSION} cannot be installed: {error:#}");
            return Ok(());
        }
    }
    finish(Command::new(mdbook).arg("build").current_dir(root))
}
