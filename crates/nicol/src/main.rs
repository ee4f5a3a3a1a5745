//! The `nicol` command.
#![forbid(unsafe_code)]

mod bench;
mod check;
mod cli;
mod decisions;
mod doctor;
mod flags;
mod interrupt;
mod kept;
mod lab;
mod limits;
mod log;
mod museum;
mod output;
mod plan;
mod profiles;
mod serve;
mod span;
mod sweep;
mod systems;
mod trace;

use std::io::ErrorKind;
use std::process::ExitCode;

use anyhow::Result;
use clap::CommandFactory;

use cli::{Cli, Command, LogArgs};

/// A simulation takes a seventh less time on it than on the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How a command ended, as its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Done, and every check held.
    Held,
    Failed,
    /// No check failed, and at least one could not be decided.
    Undecided,
    /// Interrupted before all was done; what was done held. The exit code says by what.
    Interrupted(u8),
}

/// An error in what the user asked for, as opposed to one of the environment.
#[derive(Debug, thiserror::Error)]
#[error("{}", flags::told(.0))]
pub struct Usage(pub anyhow::Error);

/// Whose error it is that a run could not be made: a flag's that does not fit, unless the world or
/// the system says that it failed itself.
fn blame(error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<nicol_rt::LiveError>() {
        Ok(environment) => environment.into(),
        Err(other) => environment_or_usage(other),
    }
}

/// Whose error it is that a command cannot begin: the system's, if it says so, or else a flag's.
fn environment_or_usage(error: anyhow::Error) -> anyhow::Error {
    let of_system = |cause: &(dyn std::error::Error + 'static)| {
        // What is read and makes no sense is the user's.
        let content = [ErrorKind::InvalidData, ErrorKind::UnexpectedEof];
        let cause = cause.downcast_ref::<std::io::Error>();
        cause.is_some_and(|cause| !content.contains(&cause.kind()))
    };
    if error.chain().any(of_system) { error } else { Usage(error).into() }
}

fn main() -> ExitCode {
    // Bad flags end here with exit code 2 and clap's explanation.
    let cli = cli::parse();
    match run(&cli.command) {
        Ok(End::Held) => ExitCode::SUCCESS,
        Ok(End::Failed) => ExitCode::from(1),
        Ok(End::Undecided) => ExitCode::from(4),
        Ok(End::Interrupted(code)) => ExitCode::from(code),
        Err(error) => {
            let code = if error.is::<Usage>() { 2 } else { 3 };
            output::tell(&format!("error: {}", flags::told(&error)));
            ExitCode::from(code)
        }
    }
}

/// Runs a command that logs, and logs how it ends.
fn logged(args: &LogArgs, run: impl FnOnce() -> Result<End>) -> Result<End> {
    log::begin(args);
    let ended = run();
    match &ended {
        Ok(end) => tracing::info!(?end, "ended"),
        Err(error) => tracing::error!(cause = flags::told(error), "ended by an error"),
    }
    ended
}

fn run(command: &Command) -> Result<End> {
    match command {
        Command::Bench(args) => logged(&args.log, || bench::run(args)),
        Command::Sweep(args) => sweep::run(args),
        Command::Museum(args) => museum::run(args),
        Command::Check(args) => check::run(args),
        Command::Trace(args) => trace::run(args),
        Command::Lab(args) => lab::run(args),
        Command::Plan(args) => plan::run(args),
        Command::Decisions(args) => decisions::run(args),
        Command::Systems(args) => systems::run(args).map(|()| End::Held),
        Command::Profiles(args) => profiles::run(args),
        Command::Doctor(args) => doctor::run(args).map(|()| End::Held),
        Command::Serve(args) => logged(&args.log, || serve::run(args)),
        Command::Help { words } => {
            let page = cli::explain(Cli::command(), words).map_err(Usage)?;
            output::print(&page).map(|()| End::Held)
        }
        Command::Completions { shell } => {
            let mut command = Cli::command();
            // It panics where it cannot write, so it writes to memory.
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut command, "nicol", &mut script);
            output::print(&String::from_utf8_lossy(&script)).map(|()| End::Held)
        }
    }
}
