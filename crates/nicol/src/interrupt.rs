//! Interrupts (SIGINT, which is Ctrl-C) and requests to end (SIGTERM), for commands that end well.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};

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
