//! What stops a cluster: its launcher, a panic, or a failed log device.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::config::LiveError;

#[derive(Debug, Default)]
pub(crate) struct Control {
    stop: AtomicBool,
    failures: Mutex<Failures>,
    stopped: Condvar,
}

#[derive(Debug, Default)]
struct Failures {
    panicked: Option<String>,
    log: Option<String>,
}

impl Control {
    fn lock(&self) -> MutexGuard<'_, Failures> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if the cluster is to stop.
    #[inline]
    pub(crate) fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// As [`Control::stops`], for a thread that has raised its flag and is about to sleep.
    pub(crate) fn stops_before_sleep(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Stops the cluster. Threads that sleep are to be woken afterwards.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        let _held = self.lock();
        self.stopped.notify_all();
    }

    /// Waits until the cluster stops, `until` at the latest; true if it stops.
    pub(crate) fn wait_until(&self, until: Instant) -> bool {
        let mut failures = self.lock();
        while !self.stops() {
            let left = until.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                return false;
            }
            let waited = self.stopped.wait_timeout(failures, left);
            failures = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// A thread has panicked.
    pub(crate) fn fail(&self, cause: &(dyn Any + Send)) {
        self.lock().panicked.get_or_insert(panic_text(cause));
        self.stop();
    }

    /// The log device of a node has failed.
    pub(crate) fn fail_log(&self, node: usize, error: &std::io::Error) {
        self.lock().log.get_or_insert_with(|| format!("node {node}: {error}"));
    }

    pub(crate) fn check(&self) -> Result<(), LiveError> {
        let failures = self.lock();
        match (&failures.log, &failures.panicked) {
            (Some(text), _) => Err(LiveError::LogDevice(text.clone())),
            (None, Some(text)) => Err(LiveError::Panicked(text.clone())),
            (None, None) => Ok(()),
        }
    }
}

/// The message of a caught panic.
pub fn panic_text(cause: &(dyn Any + Send)) -> String {
    cause
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| cause.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "no message".to_owned())
}
