//! What each client is doing, so that a run that gets stuck can tell who waits, for what, and since
//! when.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use nicol_core::units::Nanos;

/// Instead of a kind: no operation is under way.
const NONE: u32 = u32::MAX;

/// The activity of a client. Its engine writes it; whoever watches the run reads it, at any time.
#[derive(Debug)]
pub(super) struct Progress {
    client: AtomicU32,
    /// The kind of the operation under way, or [`NONE`].
    kind: AtomicU32,
    /// Attempts at it that have begun.
    attempts: AtomicU32,
    /// When it was due.
    since: AtomicU64,
    /// When an operation or an attempt last began or ended.
    sign: AtomicU64,
}

/// A client that has an operation under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Its name in the history.
    pub client: u32,
    /// The operation's kind, by name.
    pub kind: &'static str,
    /// When it was due.
    pub since: Nanos,
    /// Attempts at it that have begun.
    pub attempts: u32,
    /// When the client last gave a sign of life: an operation or an attempt began or ended.
    pub last_sign: Nanos,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { client, kind, since, attempts, last_sign } = self;
        write!(f, "client {client} for {kind}, due at {since}")?;
        match attempts {
            0 => write!(f, ", before its first attempt, since {last_sign}"),
            _ => write!(f, ", in attempt {attempts}, since {last_sign}"),
        }
    }
}

impl Progress {
    pub(super) fn new(client: u32) -> Self {
        Self {
            client: AtomicU32::new(client),
            kind: AtomicU32::new(NONE),
            attempts: AtomicU32::new(0),
            since: AtomicU64::new(0),
            sign: AtomicU64::new(0),
        }
    }

    /// The client has another name in the history from now on.
    pub(super) fn rename(&self, client: u32) {
        self.client.store(client, Ordering::Relaxed);
    }

    /// An operation of `kind`, due at `start`, begins `now`.
    pub(super) fn begin(&self, kind: usize, start: Nanos, now: Nanos) {
        self.attempts.store(0, Ordering::Relaxed);
        self.since.store(start.0, Ordering::Relaxed);
        self.sign.store(now.0, Ordering::Relaxed);
        self.kind.store(kind as u32, Ordering::Relaxed);
    }

    /// An attempt at it begins `now`.
    pub(super) fn attempt(&self, now: Nanos) {
        // Nobody else writes it.
        self.attempts.store(self.attempts.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.sign.store(now.0, Ordering::Relaxed);
    }

    /// The attempt ends `now`.
    pub(super) fn attempted(&self, now: Nanos) {
        self.sign.store(now.0, Ordering::Relaxed);
    }

    /// The operation has ended.
    pub(super) fn end(&self) {
        self.kind.store(NONE, Ordering::Relaxed);
    }

    /// When it last gave a sign of life.
    pub(super) fn last_sign(&self) -> Nanos {
        Nanos(self.sign.load(Ordering::Relaxed))
    }

    /// The operation that it waits for, of `kinds`, if an operation is under way.
    pub(super) fn waiting(&self, kinds: &'static [&'static str]) -> Option<Waiting> {
        let kind = kinds.get(self.kind.load(Ordering::Relaxed) as usize)?;
        Some(Waiting {
            client: self.client.load(Ordering::Relaxed),
            kind,
            since: Nanos(self.since.load(Ordering::Relaxed)),
            attempts: self.attempts.load(Ordering::Relaxed),
            last_sign: self.last_sign(),
        })
    }
}
