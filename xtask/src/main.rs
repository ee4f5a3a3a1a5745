//! The project's own tasks:
//! `cargo xtask book | ci [--quick] | churn [SECONDS] | explore [FLAGS] | golden [--bless] |
//! histories | instructions [--check | --bless] | tidy | papers | miri [--once] |
//! peers [redis] [TIMES] | plans | redis-suite DIR [FLAGS] | restarts [FLAGS] | rtl [--quick] |
//! tlc [--quick]`.
#![forbid(unsafe_code)]

mod book;
mod cargo;
mod ci;
mod instructions;
mod miri;
mod papers;
mod peers;
mod restarts;
mod rtl;
mod server;
mod source;
mod suite;
mod tidy;
mod tlc;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};

use instructions::Counts;

const USAGE: &str = "\
usage: cargo xtask TASK

  book         the documents as one book in target/book, by mdBook, installed where absent
  ci           everything that the gate (.ci/run) checks, in its order
  ci --quick   the same without the release build and what needs it, and without the tests that
               passed before and are unchanged since
  churn [SECONDS]  values of random sizes and lives under --max-memory, and sizes that drift, for
               SECONDS (1200) each, in release: resident memory stays within the limit
  explore      every order of messages, persists and crashes of concurrent writes of MINOS, as far as
               a bound of states for each model and place, and what is broken on purpose
               [--quick] [--states N] [--only WORDS]
  golden       runs every experiment in its quick form and compares it with its golden table
  golden --bless  writes the golden tables anew; say in the commit what moved, and why
  instructions  counts what a transaction executes, live and simulated, with callgrind, and shows
               how it stands against the blessed counts
  instructions --check  counts Smallbank's alone and fails if they have grown, as the gate does
  instructions --bless  writes the counts to xtask/instructions.toml; say in the commit what moved
  histories    every checker against trying every order, on 100,000 tiny histories and more each
  tidy         the rules that neither the compiler nor clippy knows
  papers       every step tag and every deviation from a paper, with its place
  miri         the tests of shared memory, interpreted: races and stale reads that x86 hides
  miri --once  the same with one order of threads instead of several
  peers [TIMES]  the simulator beside SimGrid, on one message pattern, TIMES (3) times in turns, where
               libsimgrid-dev is installed
  peers redis [TIMES]  Smallbank on Nicol's threads beside a redis-server's, TIMES (3) times by turns,
               where redis-server is installed
  plans        the planner's closed form against the simulator, for 200 drawn descriptions, and
               planning at run time on a load that changes
  restarts     rounds of load, kill -9, harm to files and a start, and the same simulated
               [--rounds 200] [--seed 17] [--seeds 1000..2000]
  redis-suite DIR [--unit NAME]... [--nicol PROGRAM] [--failures]
               Redis' own test suite, whose source is in DIR, against a redis-server and against
               Nicol: how many tests of each unit pass, and with --failures which do not, and why
  rtl          AlNiCo's scheduler in hardware: a million decisions under Verilator against the Rust
               model, and Yosys' estimate, where these are installed
  rtl --quick  20,000 decisions, no estimate
  tlc          the TLA+ specification of MINOS, checked by TLC, where there is a Java: every model
               on the host and offloaded, and what is broken on purpose
  tlc --quick  one model and two things that are broken, as the gate does";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str]) -> Result<()> {
    match words {
        ["book"] => book::run(&root()?),
        ["ci"] => ci::run(&root()?, ci::Extent::Full),
        ["ci", "--quick"] => ci::run(&root()?, ci::Extent::Quick),
        ["churn"] => churn(&root()?, 1_200),
        ["churn", seconds] => churn(&root()?, seconds.parse().context("SECONDS is a number")?),
        ["explore", flags @ ..] => explore(&root()?, flags),
        ["golden"] => ci::golden(&root()?, ci::Tables::Compare),
        ["golden", "--bless"] => ci::golden(&root()?, ci::Tables::Bless),
        ["instructions"] => ci::instructions(&root()?, Counts::Show),
        ["instructions", "--check"] => ci::instructions(&root()?, Counts::Check),
        ["instructions", "--bless"] => ci::instructions(&root()?, Counts::Bless),
        ["histories"] => histories(&root()?),
        ["tidy"] => tidy::run(&root()?),
        ["rtl"] => rtl::run(&root()?, rtl::Form::Whole),
        ["rtl", "--quick"] => rtl::run(&root()?, rtl::Form::Quick),
        ["tlc"] => tlc::run(&root()?, tlc::Form::Whole),
        ["tlc", "--quick"] => tlc::run(&root()?, tlc::Form::Quick),
        ["miri"] => miri::run(&root()?, false),
        ["miri", "--once"] => miri::run(&root()?, true),
        ["papers"] => papers::run(&root()?),
        ["peers"] => peers::run(&root()?, 3),
        ["peers", "redis"] => peers::redis::run(&root()?, 3),
        ["peers", "redis", times] => {
            peers::redis::run(&root()?, times.parse().context("TIMES is a number")?)
        }
        ["peers", times] => peers::run(&root()?, times.parse().context("TIMES is a number")?),
        ["plans"] => plans(&root()?),
        ["redis-suite", words @ ..] => suite::run(&root()?, &suite::Extent::parse(words)?),
        ["restarts", flags @ ..] => restarts::run(&root()?, &restarts::Extent::parse(flags)?),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            Ok(())
        }
        _ => bail!("unknown task '{}'\n{USAGE}", words.join(" ")),
    }
}

/// Holds the checkers against exhaustive searches, in release, and prints how many histories were
/// right.
fn histories(root: &Path) -> Result<()> {
    let mut cargo = cargo::command(root);
    cargo.args(["test", "--release", "-p", "nicol-check"]);
    cargo.args(["--test", "agreement", "--test", "exhaustive"]);
    ci::pass(cargo.args(["--", "--include-ignored", "--nocapture"]), 5)
}

/// Runs the long form of `crates/nicol/tests/churn.rs`.
fn churn(root: &Path, seconds: u64) -> Result<()> {
    let mut cargo = cargo::command(root);
    cargo.args(["test", "--release", "-p", "nicol", "--test", "churn", "--"]);
    cargo.args(["--exact", "long_churn_stays_within_the_limit", "--ignored", "--nocapture"]);
    cargo.env("NICOL_CHURN_SECONDS", seconds.to_string());
    ci::pass(&mut cargo, 1)
}

/// Explores MINOS: `crates/nicol-minos/examples/explore`. The quick form is built as tests are,
/// with the whole workspace: the features of one package alone would build what it needs a second
/// time.
fn explore(root: &Path, flags: &[&str]) -> Result<()> {
    let mut build = cargo::command(root);
    build.args(["build", "--quiet", "--workspace", "--example", "explore"]);
    let mut profile = "debug";
    if !flags.contains(&"--quick") {
        build.arg("--release");
        profile = "release";
    }
    finish(&mut build)?;
    let example = cargo::target(root)?.join(profile).join("examples/explore");
    finish(Command::new(example.with_extension(std::env::consts::EXE_EXTENSION)).args(flags))
}

/// Holds the planner's bounds of drawn descriptions against the simulator's, and planning at run
/// time against the better fixed way on a load that changes.
fn plans(root: &Path) -> Result<()> {
    for (package, of, which) in [
        ("nicol-planner", &["--lib"][..], "tests::"),
        ("nicol-lab", &["--test", "judged"], "planned::"),
    ] {
        let mut cargo = cargo::command(root);
        cargo.args(["test", "-p", package]).args(of);
        ci::pass(cargo.args(["--", "--ignored", "--nocapture", which]), 1)?;
    }
    Ok(())
}

/// The project's folder, as cargo says when it runs this. What it said when it compiled this may be
/// another clone's folder, if the two share a target folder.
fn root() -> Result<PathBuf> {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").context("run this as `cargo xtask`")?;
    Path::new(&here).parent().map(Path::to_owned).context("xtask lies in the workspace")
}

/// Files below `folder` that `wanted` accepts, in a fixed order. Build output, version control and
/// other hidden folders are left out, except those that belong to the project.
fn files(folder: &Path, wanted: impl Fn(&Path) -> bool) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        let entries = std::fs::read_dir(&folder)
            .with_context(|| format!("cannot list {}", folder.display()))?;
        for entry in entries {
            let entry = entry.with_context(|| format!("listing {}", folder.display()))?;
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            let hidden = name.starts_with('.') && !matches!(&*name, ".ci" | ".cargo");
            if path.is_dir() {
                if !hidden && name != "target" {
                    open.push(path);
                }
            } else if wanted(&path) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The project's Rust files, in a fixed order.
fn rust_files(root: &Path) -> Result<Vec<PathBuf>> {
    files(root, |path| path.extension().is_some_and(|extension| extension == "rs"))
}

/// Runs a command whose failure is this task's.
fn finish(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

/// A file's text.
fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// `path` as it is shown: from the project's root on, with `/`.
fn shown(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().replace('\\', "/")
}
