//! The flags of log lines.

use clap::{Args, ValueEnum};

/// What is logged, and how.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct LogArgs {
    /// Log lines on standard error, from this level on. error: what ends the process, such as a
    /// file that cannot be written. warn: repaired logs, refused logins, tables that cannot be
    /// saved. info: the start, the address, what was read back, shortened logs, the end and its
    /// cause. debug: the whole configuration [default: off].
    #[arg(long, value_enum, value_name = "LEVEL", env = "NICOL_LOG")]
    pub log: Option<LogLevel>,
    /// How log lines are printed [default: text].
    #[arg(long, value_enum, value_name = "FORMAT", env = "NICOL_LOG_FORMAT")]
    pub log_format: Option<LogFormat>,
}

/// From which level on lines are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// No lines.
    Off,
    /// What ends the process.
    Error,
    /// What someone should look at.
    Warn,
    /// What the process does.
    Info,
    /// How it is configured.
    Debug,
}

/// The form of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Time, level, words and fields.
    #[default]
    Text,
    /// One JSON object.
    Json,
}
