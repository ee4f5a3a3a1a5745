//! Interrupts (SIGINT, which is Ctrl-C) and requests to end (SIGTERM): commands end well, or in words.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::{process, thread};

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::output;

/// The exit code of a command that was interrupted before it was done, by either signal: 128 and the
/// number of SIGINT.
pub const INTERRUPTED: u8 = 130;

/// A flag that the first signal raises. A second one ends the process at once.
///
/// # Errors
/// If the system refuses the handlers.
pub fn flag() -> Result<Arc<AtomicBool>> {
    let asked = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first signal finds the flag down, and raises it.
        signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED.into(), asked.clone())
            .and_then(|_| signal_hook::flag::register(signal, asked.clone()))
            .context("the handler of signals")?;
    }
    Ok(asked)
}

/// Ends the process with `words` at a signal, instead of without any. The exit code is the shell's: 128
/// and the number of the signal.
///
/// # Errors
/// If the system refuses the handlers.
pub fn end_with(words: String) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("the handler of signals")?;
    thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            output::tell(&words);
            process::exit(128 + signal);
        }
    });
    Ok(())
}
