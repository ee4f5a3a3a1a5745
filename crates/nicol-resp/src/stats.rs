//! What commands cost: how often each ran, how long it took, and the slowest ones.
//!
//! Times go from when a command was submitted, its pipeline read, to when its answer was written
//! to the client's buffer: commands of one group are answered together, and each took as long as
//! the group. Commands that need no record are timed alone.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hdrhistogram::Histogram;

use crate::commands::TABLE;

/// Arguments of a command that the slow log keeps, and bytes of one, as in Redis.
const SLOW_ARGUMENTS: usize = 32;
const SLOW_BYTES: usize = 128;
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

/// The commands of one front, by their place in the table.
#[derive(Debug, Default)]
pub struct FrontStats(BTreeMap<usize, CommandStats>);

impl FrontStats {
    /// A command has been answered after `time`.
    pub fn called(&mut self, place: usize, time: Duration) {
        let stats = self.0.entry(place).or_insert_with(CommandStats::new);
        stats.calls += 1;
        stats.total += time;
        stats.times.saturating_record((time.as_micros() as u64).max(1));
    }

    pub fn rejected(&mut self, place: usize) {
        self.0.entry(place).or_insert_with(CommandStats::new).rejected += 1;
    }

    pub fn failed(&mut self, place: usize) {
        self.0.entry(place).or_insert_with(CommandStats::new).failed += 1;
    }
}

/// A command that took long.
#[derive(Clone, Debug)]
pub struct Slow {
    pub id: u64,
    /// Seconds of Unix time.
    pub at: u64,
    pub took: Duration,
    pub args: Vec<Vec<u8>>,
    pub peer: String,
    pub name: Vec<u8>,
}

/// The slowest commands: those that took longer than a threshold, the newest first.
#[derive(Debug)]
pub struct SlowLog {
    entries: Mutex<VecDeque<Slow>>,
    next: AtomicU64,
    /// Microseconds from which on a command is slow; negative: none is.
    pub threshold_us: AtomicI64,
    /// Entries that are kept.
    pub max: AtomicU64,
}

impl Default for SlowLog {
    fn default() -> Self {
        Self {
            entries: Mutex::default(),
            next: AtomicU64::new(0),
            threshold_us: AtomicI64::new(10_000),
            max: AtomicU64::new(128),
        }
    }
}

impl SlowLog {
    pub fn is_slow(&self, took: Duration) -> bool {
        let threshold = self.threshold_us.load(Ordering::Relaxed);
        u128::try_from(threshold).is_ok_and(|threshold| took.as_micros() >= threshold)
    }

    /// Keeps a slow command; its arguments are cut as Redis cuts them.
    pub fn add<'a>(
        &self,
        took: Duration,
        args: impl ExactSizeIterator<Item = &'a [u8]>,
        (peer, name): (String, Vec<u8>),
    ) {
        let (count, mut kept) = (args.len(), Vec::new());
        for (place, arg) in args.take(SLOW_ARGUMENTS).enumerate() {
            if place + 1 == SLOW_ARGUMENTS && count > SLOW_ARGUMENTS {
                let more = count - place;
                kept.push(format!("... ({more} more arguments)").into_bytes());
            } else if arg.len() > SLOW_BYTES {
                let more = arg.len() - SLOW_BYTES;
                kept.push(
                    [&arg[..SLOW_BYTES], format!("... ({more} more bytes)").as_bytes()].concat(),
                );
            } else {
                kept.push(arg.to_vec());
            }
        }
        let max = self.max.load(Ordering::Relaxed) as usize;
        let mut entries = self.entries();
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        entries.push_front(Slow { id, at: unix_seconds(), took, args: kept, peer, name });
        entries.truncate(max);
    }

    /// Those that are kept, the newest first. Held for moments only.
    pub fn entries(&self) -> MutexGuard<'_, VecDeque<Slow>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// By the names of the commands.
    pub fn commands(&self) -> BTreeMap<&'static str, CommandStats> {
        let mut all = BTreeMap::new();
        for front in 0..self.fronts.len() {
            for (place, stats) in &self.of(front).0 {
                let sum = all.entry(TABLE[*place].name).or_insert_with(CommandStats::new);
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

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slow_log_keeps_the_newest_with_cut_arguments() {
        let log = SlowLog::default();
        assert!(
            log.is_slow(Duration::from_millis(10)) && !log.is_slow(Duration::from_micros(9_999))
        );
        log.max.store(2, Ordering::Relaxed);
        let long = [b'v'; 200];
        for number in 0..3_u8 {
            let args: Vec<&[u8]> = (0..40).map(|_| &long[..usize::from(number) + 127]).collect();
            log.add(Duration::from_secs(1), args.into_iter(), (String::new(), Vec::new()));
        }
        let entries = log.entries();
        assert_eq!(entries.iter().map(|entry| entry.id).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(entries[0].args.len(), SLOW_ARGUMENTS);
        assert!(entries[0].args[0].ends_with(b"v... (1 more bytes)"));
        assert_eq!(entries[0].args[31], b"... (9 more arguments)");
        assert_eq!(entries[1].args[0].len(), SLOW_BYTES);
        log.threshold_us.store(-1, Ordering::Relaxed);
        assert!(!log.is_slow(Duration::from_secs(9)));
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
