//! Interrupts (SIGINT, which is Ctrl-C) and requests to end (SIGTERM): commands end well, or in
//! words.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::{process, thread};

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

use crate::output;

/// The exit code of a command that a signal ended before it was done: the shell's, which is 130 for
/// SIGINT and 143 for SIGTERM (decision 0011).
const fn exit_code(signal: i32) -> i32 {
    128 + signal
}

/// The first signal that came.
pub struct Asked {
    /// True once there was one.
    pub flag: Arc<AtomicBool>,
    /// Which; 0 before.
    signal: Arc<AtomicUsize>,
}

impl Asked {
    /// The exit code of a command that the signal kept from being done.
    pub fn exit_code(&self) -> u8 {
        exit_code(self.signal.load(Ordering::SeqCst) as i32) as u8
    }
}

/// A start during which a signal ends the process at once, with exit code 0: to be ended by one is
/// a server's ordinary end (decision 0011).
pub struct Starting(Handle);

impl Starting {
    /// Begins it; `words` are told if it is ended.
    ///
    /// # Errors
    /// If the system refuses the handlers.
    pub fn begin(words: &'static str) -> Result<Self> {
        Ok(Self(end_at_signal(words.to_owned(), |_| 0)?))
    }

    /// From here on a signal raises the [`flag`] and no more.
    pub fn end(self) {
        self.0.close();
    }
}

/// Sends this process the signal that asks it to end.
pub fn ask_to_end() {
    if signal_hook::low_level::raise(SIGTERM).is_err() {
        tracing::error!("the system has not sent this process a SIGTERM");
    }
}

/// A flag that the first signal raises. A second one ends the process at once.
///
/// # Errors
/// If the system refuses the handlers.
pub fn flag() -> Result<Asked> {
    let (flag, which) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first signal finds the flag down, and a reader that sees it up knows
        // the signal.
        let code = exit_code(signal);
        signal_hook::flag::register_conditional_shutdown(signal, code, flag.clone())
            .and_then(|_| signal_hook::flag::register_usize(signal, which.clone(), signal as usize))
            .and_then(|_| signal_hook::flag::register(signal, flag.clone()))
            .context("the handler of signals")?;
    }
    Ok(Asked { flag, signal: which })
}

/// Ends the process with `words` at a signal, instead of without any.
///
/// # Errors
/// If the system refuses the handlers.
pub fn end_with(words: String) -> Result<()> {
    end_at_signal(words, exit_code).map(|_for_ever| ())
}

fn end_at_signal(words: String, code: fn(i32) -> i32) -> Result<Handle> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("the handler of signals")?;
    let handle = signals.handle();
    thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            output::tell(&words);
            process::exit(code(signal));
        }
    });
    Ok(handle)
}
