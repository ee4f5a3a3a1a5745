//! Log lines of `serve` and `bench` on standard error: what an operator acts on. Nothing is logged
//! for each request.

use std::io;

use tracing_subscriber::filter::LevelFilter;

use crate::cli::{LogArgs, LogFormat, LogLevel};

/// Logs from now on as `args` say: without `--log`, nothing.
pub fn begin(args: &LogArgs) {
    let level = match args.log.unwrap_or(LogLevel::Off) {
        LogLevel::Off => return,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
    };
    let lines =
        tracing_subscriber::fmt().with_max_level(level).with_writer(io::stderr).with_ansi(false);
    match args.log_format.unwrap_or_default() {
        LogFormat::Text => lines.init(),
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
}
