//! Runs a program under callgrind and reads what it executed.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs, process};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// Instructions that were executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Executed {
    /// In the program itself: the same on machines of one architecture.
    pub own: u64,
    /// In the libraries that the machine brings, which moves with them: copies of memory,
    /// logarithms.
    pub libraries: u64,
}

/// Is valgrind there?
pub(super) fn is_installed() -> Result<bool> {
    match Command::new("valgrind").arg("--version").stdout(Stdio::null()).status() {
        Ok(status) => Ok(status.success()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).context("cannot start valgrind"),
    }
}

/// Runs `program`, which prints a report as JSON; counts what it executes within functions whose
/// name begins with `within`, on any thread.
pub(super) fn run(program: &Path, args: &[String], within: &str) -> Result<(Executed, Value)> {
    let out = OutFile::new();
    let shown = format!("valgrind of {} {}", program.display(), args.join(" "));
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--dump-line=no", "--compress-strings=no", "--compress-pos=no"])
        .arg(format!("--toggle-collect={within}*"))
        .arg(format!("--callgrind-out-file={}", out.0.display()))
        .arg(program)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {shown}"))?;
    if !output.status.success() {
        bail!("{shown}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    let report = serde_json::from_slice(&output.stdout).context("the report is not JSON")?;
    let text = fs::read_to_string(&out.0).with_context(|| format!("{shown} left no counts"))?;
    let executed = read(&text, program).with_context(|| shown.clone())?;
    ensure!(executed.own > 0, "{shown}: nothing was executed within '{within}': was it renamed?");
    Ok((executed, report))
}

/// Sums up the costs of a file in callgrind's format, whose totals must agree.
fn read(text: &str, program: &Path) -> Result<Executed> {
    let (mut executed, mut own, mut inclusive) = (Executed::default(), false, false);
    let mut total = None;
    for line in text.lines() {
        if let Some(object) = line.strip_prefix("ob=") {
            own = Path::new(object) == program;
        } else if line.starts_with("calls=") {
            // The next line is what the callee took, which its own lines tell as well.
            inclusive = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit()) {
            let cost = line.split_ascii_whitespace().nth(1).unwrap_or("0");
            let cost: u64 = cost.parse().with_context(|| format!("no count: {line}"))?;
            let place = if own { &mut executed.own } else { &mut executed.libraries };
            *place += if inclusive { 0 } else { cost };
            inclusive = false;
        } else if let Some(stated) = line.strip_prefix("totals: ") {
            total = Some(stated.trim().parse::<u64>().context("callgrind's totals")?);
        }
    }
    let sum = executed.own + executed.libraries;
    ensure!(total == Some(sum), "the lines add up to {sum}, callgrind says {total:?}");
    Ok(executed)
}

/// A file for callgrind's counts, which goes with this.
struct OutFile(PathBuf);

impl OutFile {
    fn new() -> Self {
        Self(env::temp_dir().join(format!("nicol-callgrind-{}", process::id())))
    }
}

impl Drop for OutFile {
    fn drop(&mut self) {
        // It may never have been written.
        fs::remove_file(&self.0).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
version: 1
positions: line
events: Ir
summary: 46

ob=/bin/nicol
fl=a.rs
fn=a::b
0 7
cob=/lib/libc.so.6
cfn=memcpy
calls=3 0
0 30
0 4
fn=a::c
0 5

ob=/lib/libc.so.6
fn=memcpy
0 30

totals: 46
";

    #[test]
    fn what_a_callee_took_counts_once_and_where_it_is() {
        let executed = read(TEXT, Path::new("/bin/nicol")).unwrap();
        assert_eq!(executed, Executed { own: 16, libraries: 30 });
    }

    #[test]
    fn counts_that_do_not_add_up_are_refused() {
        let program = Path::new("/bin/nicol");
        assert!(read(&TEXT.replace("totals: 46", "totals: 47"), program).is_err());
        assert!(read(&TEXT.replace("0 7", "0 x"), program).is_err());
        assert!(read("", program).is_err());
    }
}
