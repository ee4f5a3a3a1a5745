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

/// The commands of one front, by their numbers: a subcommand that the front answers has its own.
#[derive(Debug, Default)]
pub struct FrontStats(BTreeMap<usize, CommandStats>);

impl FrontStats {
    /// So many calls of a command have been answered, each after `time`.
    pub fn called(&mut self, (place, calls): (usize, usize), time: Duration) {
        let stats = self.0.entry(place).or_insert_with(CommandStats::new);
        stats.calls += calls as u64;
        stats.total += time * calls as u32;
        stats.times.saturating_record_n((time.as_micros() as u64).max(1), calls as u64);
    }

    pub fn rejected(&mut self, place: usize) {
        self.0.entry(place).or_insert_with(CommandStats::new).rejected += 1;
    }

    pub fn failed(&mut self, (place, calls): (usize, usize)) {
        self.0.entry(place).or_insert_with(CommandStats::new).failed += calls as u64;
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
            for (place, stats) in &self.of(front).0 {
                let sum = all.entry(*place).or_insert_with(CommandStats::new);
                sum.add(stats);
            }
        }
        all
    }

    /// CONFIG RESETSTAT.
    pub fn reset(&self) {
        (0..self.fronts.len()).for_each(|front| self.of(front).0.clear());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
