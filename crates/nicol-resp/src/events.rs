//! Events that an operator acts on, logged at most once a second for each kind.
//!
//! A client can cause any number of them: one line tells how many there were and of whom the last
//! one was.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time between two lines of one kind.
const EVERY: Duration = Duration::from_secs(1);

/// A kind of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A password or a user was wrong, or was not judged since too many wait.
    LoginRefused,
    /// A user may not run a command, or touch its keys.
    CommandDenied,
    /// A connection was refused: there are as many as may be.
    ClientRefused,
    /// A client was closed because it does not read its replies.
    SlowClient,
    /// A client was closed because the buffers of all take too much memory.
    ClientEvicted,
    ClientKilled,
    UnknownOutcome,
    /// A request was not well formed.
    ProtocolError,
}

const KINDS: usize = Event::ProtocolError as usize + 1;

#[derive(Debug, Default)]
struct Seen {
    /// Since the last line.
    count: u64,
    /// Of the last one.
    detail: String,
    logged: Option<Instant>,
}

/// The events that have no line yet.
#[derive(Debug, Default)]
pub struct Events(Mutex<[Seen; KINDS]>);

impl Events {
    /// Notes an event. The first of its kind within a second is logged at once.
    pub fn note(&self, event: Event, detail: &dyn std::fmt::Display) {
        let mut all = self.all();
        let seen = &mut all[event as usize];
        seen.count += 1;
        seen.detail = detail.to_string();
        if let Some((count, detail)) = seen.take(Instant::now()) {
            drop(all);
            log(event, count, &detail);
        }
    }

    /// Logs what waits for its line. A front calls it several times a second.
    pub fn report(&self, now: Instant) {
        const ALL: [Event; KINDS] = [
            Event::LoginRefused,
            Event::CommandDenied,
            Event::ClientRefused,
            Event::SlowClient,
            Event::ClientEvicted,
            Event::ClientKilled,
            Event::UnknownOutcome,
            Event::ProtocolError,
        ];
        for event in ALL {
            let taken = self.all()[event as usize].take(now);
            if let Some((count, detail)) = taken {
                log(event, count, &detail);
            }
        }
    }

    fn all(&self) -> MutexGuard<'_, [Seen; KINDS]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    /// The content of a line, if one is due.
    fn take(&mut self, now: Instant) -> Option<(u64, String)> {
        let early = self.logged.is_some_and(|at| now.saturating_duration_since(at) < EVERY);
        if self.count == 0 || early {
            return None;
        }
        self.logged = Some(now);
        Some((std::mem::take(&mut self.count), std::mem::take(&mut self.detail)))
    }
}

fn log(event: Event, count: u64, last: &str) {
    match event {
        Event::LoginRefused => tracing::warn!(count, last, "login refused"),
        Event::CommandDenied => tracing::warn!(count, last, "command refused by its user's rights"),
        Event::ClientRefused => tracing::warn!(count, last, "connection refused: too many clients"),
        Event::SlowClient => tracing::warn!(count, last, "client closed: it reads no replies"),
        Event::ClientEvicted => {
            tracing::warn!(count, last, "client closed: the clients' buffers take too much memory");
        }
        Event::ClientKilled => tracing::info!(count, last, "client closed by CLIENT KILL"),
        Event::UnknownOutcome => tracing::warn!(count, last, "transaction with unknown outcome"),
        Event::ProtocolError => tracing::info!(count, last, "malformed request"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_has_one_line_a_second_that_counts_all() {
        let (mut seen, begun) = (Seen::default(), Instant::now());
        let mut lines = Vec::new();
        for millis in 0..2_500 {
            seen.count += 1;
            seen.detail = millis.to_string();
            lines.extend(seen.take(begun + Duration::from_millis(millis)));
        }
        assert_eq!(
            lines,
            [(1, "0".to_owned()), (1_000, "1000".to_owned()), (1_000, "2000".to_owned())]
        );
        assert_eq!(seen.take(begun + Duration::from_millis(2_999)), None);
        assert_eq!(seen.take(begun + Duration::from_millis(3_000)), Some((499, "2499".to_owned())));
        assert_eq!(seen.take(begun + Duration::from_secs(10)), None);
    }
}
