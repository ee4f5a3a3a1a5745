//! When a client issues its next operation, and how long it backs off.

use nicol_core::units::Nanos;

/// How operations arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// A client issues the next operation when its last one ended.
    Closed,
    /// Operations are due at a fixed rate, whether or not earlier ones have ended. Latency is
    /// measured from the due time, so a slow system cannot hide its queueing.
    Open {
        /// Operations per second of all clients together.
        per_second: u64,
    },
}

/// When the operations of one client are due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    load: Load,
    begin: Nanos,
    clients: u64,
    next: u64,
}

impl Schedule {
    /// The schedule of `client` out of `clients`; their due times interleave evenly.
    pub(super) fn new(load: Load, begin: Nanos, client: u32, clients: u32) -> Self {
        assert!(client < clients, "clients are numbered from 0");
        if let Load::Open { per_second } = load {
            assert!(per_second > 0, "an open loop has a rate");
        }
        Self { load, begin, clients: u64::from(clients), next: u64::from(client) }
    }

    /// The due time of the next operation, `now` at the earliest. Does not advance.
    pub(super) fn due(&self, now: Nanos) -> Nanos {
        match self.load {
            Load::Closed => now.max(self.begin),
            // From the start every time, not step by step: no rounding error adds up.
            Load::Open { per_second } => self.begin.saturating_add(offset(self.next, per_second)),
        }
    }

    /// Advances to the next operation.
    pub(super) fn advance(&mut self) {
        self.next = self.next.saturating_add(self.clients);
    }

    /// Operations that are due from the next one on and before `end`; none in a closed loop.
    pub(super) fn due_before(&self, end: Nanos) -> u64 {
        let Load::Open { per_second } = self.load else { return 0 };
        let span = u128::from(end.since(self.begin).0);
        // The first turn not before `end`: the smallest n with n * 10^9 / rate >= span.
        let turns = (span * u128::from(per_second)).div_ceil(1_000_000_000);
        let turns = u64::try_from(turns).unwrap_or(u64::MAX);
        turns.saturating_sub(self.next).div_ceil(self.clients)
    }
}

fn offset(turn: u64, per_second: u64) -> Nanos {
    let nanos = u128::from(turn) * 1_000_000_000 / u128::from(per_second);
    Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// How an aborted operation is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Attempts at one operation, the first included; then it counts as failed.
    pub attempts_max: u32,
    /// Attempts that a table, log or limit may refuse. A full one seldom empties before a retry,
    /// and one that is too small never does.
    pub full_max: u32,
    /// The longest wait before the second attempt. If the first attempt took longer, its duration
    /// is used, since the conflicting operation takes about as long. The bound doubles with each
    /// further attempt.
    pub first: Nanos,
    /// The longest wait before any attempt.
    pub longest: Nanos,
    /// While most attempts abort, do some of an engine's clients wait for the others?
    pub adaptive_window: bool,
}

impl Retry {
    /// The wait after `attempts` aborted attempts, the last of which `took` so long: uniform from
    /// 1 ns to the current longest, by the 64 bits of `random`.
    pub(super) fn wait(&self, attempts: u32, took: Nanos, random: u64) -> Nanos {
        let doublings = attempts.saturating_sub(1).min(63);
        let grown = u128::from(self.first.max(took).0) << doublings;
        let bound = grown.min(u128::from(self.longest.0)).max(1);
        Nanos(((u128::from(random) * bound) >> 64) as u64 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: Load = Load::Open { per_second: 3 };

    #[test]
    fn an_open_loop_keeps_its_rate_without_drift() {
        let begin = Nanos::from_secs(1);
        let mut schedule = Schedule::new(OPEN, begin, 1, 2);
        let mut due = Vec::new();
        for _ in 0..4 {
            due.push(schedule.due(Nanos::MAX).0);
            schedule.advance();
        }
        assert_eq!(due, [1_333_333_333, 2_000_000_000, 2_666_666_666, 3_333_333_333]);
    }

    #[test]
    fn what_is_due_before_an_end_is_counted_exactly() {
        for (client, clients) in [(0, 1), (0, 3), (2, 3)] {
            for end in [0, 5, 1_000_000_000, 1_333_333_333, 1_333_333_334, 9_000_000_000] {
                let mut schedule = Schedule::new(OPEN, Nanos::from_secs(1), client, clients);
                let counted = schedule.due_before(Nanos(end));
                let mut issued = 0;
                while schedule.due(Nanos::ZERO) < Nanos(end) {
                    issued += 1;
                    schedule.advance();
                }
                // Rounding a turn down to whole nanoseconds may move it over the end.
                assert!(counted.abs_diff(issued) <= 1, "{client}/{clients} {end}");
            }
        }
    }

    #[test]
    fn waits_grow_and_stay_bounded() {
        let retry = Retry {
            attempts_max: 9,
            full_max: 9,
            first: Nanos(100),
            longest: Nanos(1_000),
            adaptive_window: false,
        };
        let longest =
            [1, 2, 3, 4, 5, 200].map(|attempts| retry.wait(attempts, Nanos(1), u64::MAX).0);
        assert_eq!(longest, [100, 200, 400, 800, 1_000, 1_000]);
        assert_eq!(retry.wait(5, Nanos(1), 0), Nanos(1));
        assert_eq!(retry.wait(1, Nanos(1), u64::MAX / 2), Nanos(50));
        let slow = [1, 2, 3].map(|attempts| retry.wait(attempts, Nanos(300), u64::MAX).0);
        assert_eq!(slow, [300, 600, 1_000], "a slow attempt waits longer");
    }
}
