//! What commands cost: how often each ran and how long it took; `slow_log` keeps the slowest.
//!
//! Times go from when a command was submitted, its pipeline read, to when its answer was written
//! to the client's buffer: commands of one group are answered together, and each took as long as
//! the group. Commands that need no record are timed alone.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::clock::unix_seconds;
use crate::slow_log::SlowLog;

/// Spikes that LATENCY remembers.
const SPIKES: usize = 160;
/// Longest time that is told apart, in microseconds: an hour.
const LONGEST_US: u64 = 3_600_000_000;
/// Samples of the number of commands, and the time between two.
const RATE_SAMPLES: usize = 8;
const RATE_EVERY: Duration = Duration::from_millis(250);

/// One command of the table.
#[derive(Clone, Debug)]
pub struct CommandStats {
    pub calls: u64,
    pub total: Duration,
    /// Refused before they ran: wrong arguments, no right.
    pub rejected: u64,
    /// Answered with an error instead of being executed.
    pub failed: u64,
    /// Microseconds.
    pub times: Histogram<u64>,
}

impl CommandStats {
    fn new() -> Self {
        let times = Histogram::new_with_bounds(1, LONGEST_US, 2);
        let times = times.expect("the bounds and the digits are a histogram's");
        Self { calls: 0, total: Duration::ZERO, rejected: 0, failed: 0, times }
    }

    fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.total += other.total;
        self.rejected += other.rejected;
        self.failed += other.failed;
        self.times.add(&other.times).expect("all have the same bounds");
    }
}

/// Codes of errors that are told apart. Scripts choose them, so there may be any number.
const CODES_MAX: usize = 128;
/// Bytes of an error in which its code ends.
const CODE_BYTES: usize = 32;

/// The errors that clients were answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Errors {
    /// How many.
    pub all: u64,
    /// By their codes, of which the first [`CODES_MAX`] are kept.
    pub by_code: BTreeMap<Vec<u8>, u64>,
}

impl Errors {
    fn add(&mut self, code: &[u8], errors: u64) {
        self.all += errors;
        if let Some(known) = self.by_code.get_mut(code) {
            *known += errors;
        } else if self.by_code.len() < CODES_MAX {
            self.by_code.insert(code.to_vec(), errors);
        }
    }
}

/// The code of an error: its first word, ERR if that is too long.
pub fn code_of(error: &[u8]) -> &[u8] {
    let text = error.strip_prefix(b"-").unwrap_or(error);
    let end = text.iter().take(CODE_BYTES).position(|byte| *byte == b' ');
    end.map_or(b"ERR", |end| &text[..end])
}

/// The commands of one front, by their numbers: a subcommand that the front answers has its own.
#[derive(Debug, Default)]
pub struct FrontStats {
    commands: BTreeMap<usize, CommandStats>,
    errors: Errors,
}

impl FrontStats {
    /// So many calls of a command have been answered, each after `time`.
    pub fn called(&mut self, (place, calls): (usize, usize), time: Duration) {
        let stats = self.command(place);
        stats.calls += calls as u64;
        stats.total += time * calls as u32;
        stats.times.saturating_record_n((time.as_micros() as u64).max(1), calls as u64);
    }

    /// So many calls are a part of another command, whose time has theirs.
    pub fn called_within(&mut self, (place, calls): (usize, usize)) {
        self.command(place).calls += calls as u64;
    }

    pub fn rejected(&mut self, (place, calls): (usize, usize)) {
        self.command(place).rejected += calls as u64;
    }

    pub fn failed(&mut self, (place, calls): (usize, usize)) {
        self.command(place).failed += calls as u64;
    }

    /// So many errors with this code were answered.
    pub fn errors(&mut self, code: &[u8], errors: usize) {
        self.errors.add(code, errors as u64);
    }

    fn command(&mut self, place: usize) -> &mut CommandStats {
        self.commands.entry(place).or_insert_with(CommandStats::new)
    }
}

/// Commands that took longer than LATENCY's threshold.
#[derive(Debug, Default)]
pub struct Spikes {
    /// When, in seconds of Unix time, and how long in milliseconds; the newest last.
    kept: Mutex<VecDeque<(u64, u64)>>,
    /// The longest since the last reset, in milliseconds.
    pub max_ms: AtomicU64,
    /// Milliseconds from which on it is one; 0: none is.
    pub threshold_ms: AtomicU64,
}

impl Spikes {
    /// A command took so long. Of one second the longest is kept, as in Redis.
    pub fn note(&self, took: Duration) {
        let (threshold, millis) =
            (self.threshold_ms.load(Ordering::Relaxed), took.as_millis() as u64);
        if threshold == 0 || millis < threshold {
            return;
        }
        self.max_ms.fetch_max(millis, Ordering::Relaxed);
        let (now, mut kept) = (unix_seconds(), self.kept());
        match kept.back_mut() {
            Some((at, longest)) if *at == now => *longest = millis.max(*longest),
            _ => kept.push_back((now, millis)),
        }
        if kept.len() > SPIKES {
            kept.pop_front();
        }
    }

    /// Those that are kept, the newest last. Held for moments only.
    pub fn kept(&self) -> MutexGuard<'_, VecDeque<(u64, u64)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets all; whether there was one.
    pub fn reset(&self) -> bool {
        self.max_ms.store(0, Ordering::Relaxed);
        let mut kept = self.kept();
        let any = !kept.is_empty();
        kept.clear();
        any
    }
}

/// Commands a second, over the last two seconds.
#[derive(Debug, Default)]
pub struct Rate(Mutex<VecDeque<(Instant, u64)>>);

impl Rate {
    /// So many commands had been processed at `now`. Called several times a second.
    pub fn sample(&self, now: Instant, commands: u64) {
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let early = |(at, _): &(Instant, u64)| now.saturating_duration_since(*at) < RATE_EVERY / 2;
        if samples.back().is_some_and(early) {
            return;
        }
        samples.push_back((now, commands));
        if samples.len() > RATE_SAMPLES {
            samples.pop_front();
        }
    }

    pub fn per_second(&self) -> u64 {
        let samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some((from, first)), Some((to, last))) = (samples.front(), samples.back()) else {
            return 0;
        };
        let time = to.saturating_duration_since(*from).as_secs_f64();
        if time > 0.0 { ((last - first) as f64 / time).round() as u64 } else { 0 }
    }
}

/// The cost of commands, of all fronts.
#[derive(Debug)]
pub struct Stats {
    fronts: Vec<Mutex<FrontStats>>,
    pub slow: SlowLog,
    pub spikes: Spikes,
    pub rate: Rate,
}

impl Stats {
    pub fn new(fronts: usize) -> Self {
        let fronts = (0..fronts).map(|_| Mutex::default()).collect();
        Self { fronts, slow: SlowLog::default(), spikes: Spikes::default(), rate: Rate::default() }
    }

    /// The commands of one front: its own thread's, so that the lock is free.
    pub fn of(&self, front: usize) -> MutexGuard<'_, FrontStats> {
        self.fronts[front].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// By the numbers of the commands.
    pub fn commands(&self) -> BTreeMap<usize, CommandStats> {
        let mut all = BTreeMap::new();
        for front in 0..self.fronts.len() {
            for (place, stats) in &self.of(front).commands {
                let sum = all.entry(*place).or_insert_with(CommandStats::new);
                sum.add(stats);
            }
        }
        all
    }

    /// The errors of all fronts.
    pub fn errors(&self) -> Errors {
        let mut all = Errors::default();
        for front in 0..self.fronts.len() {
            let Errors { all: errors, by_code } = self.of(front).errors.clone();
            by_code.iter().for_each(|(code, errors)| all.add(code, *errors));
            // With those whose code was not kept.
            all.all += errors - by_code.values().sum::<u64>();
        }
        all
    }

    /// CONFIG RESETSTAT.
    pub fn reset(&self) {
        (0..self.fronts.len()).for_each(|front| *self.of(front) = FrontStats::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_of_an_error_is_its_first_word() {
        assert_eq!(code_of(b"-WRONGTYPE Operation\r\n"), b"WRONGTYPE");
        assert_eq!(code_of(b"NOAUTH Authentication required."), b"NOAUTH");
        assert_eq!(code_of(b"-ERROR\r\n"), b"ERR", "no word ends");
        assert_eq!(code_of(&[b'x'; 40]), b"ERR");
    }

    #[test]
    fn codes_are_bounded_and_errors_are_all_counted() {
        let stats = Stats::new(2);
        for number in 0..2 * CODES_MAX {
            stats.of(number % 2).errors(format!("E{}", number / 2).as_bytes(), 3);
        }
        let errors = stats.errors();
        assert_eq!((errors.all, errors.by_code.len()), (6 * CODES_MAX as u64, CODES_MAX));
        stats.of(0).errors(b"MORE", 1);
        assert_eq!(stats.errors().all, errors.all + 1);
        assert!(!stats.errors().by_code.contains_key(&b"MORE"[..]));
    }

    #[test]
    fn the_rate_is_that_of_the_last_two_seconds() {
        let (rate, begun) = (Rate::default(), Instant::now());
        assert_eq!(rate.per_second(), 0);
        for number in 0..100_u64 {
            let commands = if number < 50 { 0 } else { (number - 50) * 250 };
            rate.sample(begun + number as u32 * RATE_EVERY, commands);
        }
        assert_eq!(rate.per_second(), 1_000);
    }
}
