//! The horizon: which timestamps are over, for protocols that keep several versions of a record.
//!
//! A version that was overwritten at a timestamp up to the [horizon](Horizon::move_on) is read by
//! nobody, so its memory is used again at once. [Cicada17 3.8, min_rts] Epochs tell that too, but
//! last long: until one is over, as many versions are in use as were written in it, and what is
//! used again is in no cache any more.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::Line;

/// The announcement of a core that runs no transaction.
const IDLE: u64 = u64::MAX;

/// The announcements of one core to the others.
#[derive(Debug)]
struct Core {
    /// No transaction of the core has an earlier timestamp.
    oldest: AtomicU64,
    /// Transactions up to this timestamp had ended when the core's oldest one began.
    seen: AtomicU64,
}

/// The timestamps with which a transaction begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    /// Its timestamp.
    pub timestamp: u64,
    /// Transactions up to this timestamp had ended.
    pub seen: u64,
}

/// Which timestamps are over.
#[derive(Debug)]
pub struct Horizon {
    cores: Box<[Line<Core>]>,
    ends: Line<Ends>,
}

#[derive(Debug, Default)]
struct Ends {
    /// Nobody begins at a timestamp that is not later.
    barred: AtomicU64,
    /// Transactions up to this timestamp have ended, and none begins.
    ended: AtomicU64,
}

impl Horizon {
    pub(super) fn new(cores: usize) -> Self {
        let core = || Line(Core { oldest: AtomicU64::new(IDLE), seen: AtomicU64::new(IDLE) });
        Self { cores: (0..cores).map(|_| core()).collect(), ends: Line::default() }
    }

    /// A transaction of `core` begins, which runs no other; `later` takes a timestamp that is later
    /// than the given one, and than those that the core has taken before. The last one is the
    /// transaction's: as long as it runs, nothing is over that it may read.
    pub fn begin(&self, core: usize, mut later: impl FnMut(u64) -> u64) -> Begun {
        let Line(own) = &self.cores[core];
        self.see(own);
        let mut timestamp = later(0);
        loop {
            own.oldest.store(timestamp, Ordering::Release);
            // Whoever moves on either sees what is announced, or is seen here. It pairs with those
            // in `move_on`.
            fence(Ordering::SeqCst);
            // What had ended before the announcement may be less than what others go by who have
            // not seen that.
            let seen = self.see(own);
            let barred = self.ends.0.barred.load(Ordering::SeqCst);
            if timestamp > barred {
                return Begun { timestamp, seen };
            }
            timestamp = later(barred);
        }
    }

    /// Announces what has ended.
    fn see(&self, own: &Core) -> u64 {
        let ended = self.ended();
        // Between the two others go on, which seldom shows.
        #[cfg(test)]
        std::thread::yield_now();
        own.seen.store(ended, Ordering::Release);
        ended
    }

    /// A transaction begins at `timestamp` on a core that runs older ones, by which everybody goes:
    /// none of them is over, so neither is this one's.
    pub fn begin_beside(&self, timestamp: u64) -> Begun {
        Begun { timestamp, seen: self.ended() }
    }

    /// The oldest transaction of `core` has ended; this one is the oldest now.
    pub fn go_by(&self, core: usize, oldest: Begun) {
        let Line(own) = &self.cores[core];
        own.oldest.store(oldest.timestamp, Ordering::Release);
        own.seen.store(oldest.seen, Ordering::Release);
    }

    /// `core` runs no transaction any more.
    pub fn end(&self, core: usize) {
        let Line(own) = &self.cores[core];
        own.oldest.store(IDLE, Ordering::Release);
        own.seen.store(IDLE, Ordering::Release);
    }

    /// Transactions up to this timestamp have ended, and none begins any more.
    pub fn ended(&self) -> u64 {
        self.ends.0.ended.load(Ordering::SeqCst)
    }

    /// What `core` goes by: transactions up to this timestamp had ended when its oldest one began.
    /// Whoever is under way at the same time has a horizon that is not later.
    pub fn seen(&self, core: usize) -> u64 {
        self.cores[core].0.seen.load(Ordering::Relaxed)
    }

    /// Moves on what has ended, and returns the horizon: transactions up to this timestamp had
    /// ended when the oldest of those began that are under way.
    ///
    /// Cost: two looks at what every core has announced, and a write that all of them see.
    pub fn move_on(&self) -> u64 {
        let candidate = match self.least(|core| &core.oldest) {
            IDLE => self.ended(),
            oldest => oldest.saturating_sub(1),
        };
        self.ends.0.barred.fetch_max(candidate, Ordering::SeqCst);
        // Who has announced nothing yet finds it barred; who has, is seen in the second look.
        fence(Ordering::SeqCst);
        let ended = candidate.min(self.least(|core| &core.oldest).saturating_sub(1));
        let ended = self.ends.0.ended.fetch_max(ended, Ordering::SeqCst).max(ended);
        // Who is not seen here finds what was written by those that have ended.
        fence(Ordering::SeqCst);
        self.least(|core| &core.seen).min(ended)
    }

    fn least(&self, of: impl Fn(&Core) -> &AtomicU64) -> u64 {
        let announced = self.cores.iter().map(|Line(core)| of(core).load(Ordering::SeqCst));
        announced.min().unwrap_or(IDLE)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::thread;

    use nicol_core::rng::test_steps;

    use super::*;

    #[test]
    fn what_is_over_waits_for_whoever_has_begun_before() {
        let horizon = Horizon::new(3);
        let begin = |core, at: u64| horizon.begin(core, |than| at.max(than + 1)).timestamp;
        assert_eq!((begin(0, 10), begin(1, 20)), (10, 20));
        // Both began when nothing had ended.
        assert_eq!((horizon.move_on(), horizon.ended()), (0, 9));
        horizon.end(0);
        assert_eq!((horizon.move_on(), horizon.ended()), (0, 19));
        assert_eq!((begin(0, 30), horizon.seen(0)), (30, 19));
        assert_eq!(horizon.move_on(), 0);
        horizon.end(1);
        assert_eq!((horizon.move_on(), horizon.ended()), (19, 29));
        // Nobody begins at what is over.
        assert_eq!((begin(2, 5), horizon.seen(2)), (30, 29));
        horizon.end(0);
        horizon.end(2);
        assert_eq!(horizon.move_on(), 29);
        assert_eq!(begin(0, 5), 30);
    }

    const CORES: usize = 3;
    const SLOTS: usize = 64;
    const NONE: usize = usize::MAX;
    const FREED: u64 = u64::MAX;

    /// Versions of one record, newest first: when each was written, and the next older one.
    struct Chain {
        head: AtomicU64,
        slots: Vec<(AtomicU64, AtomicU64)>,
        horizon: Horizon,
    }

    impl Chain {
        fn wts(&self, slot: usize) -> u64 {
            let wts = self.slots[slot].0.load(Ordering::Acquire);
            assert_ne!(wts, FREED, "what is freed nobody finds");
            wts
        }

        fn next(&self, slot: usize) -> usize {
            self.slots[slot].1.load(Ordering::SeqCst) as usize
        }

        /// The newest version that is not later.
        fn visible(&self, at: u64) -> usize {
            let mut slot = self.head.load(Ordering::SeqCst) as usize;
            while self.wts(slot) > at {
                slot = self.next(slot);
            }
            slot
        }

        fn free_older(&self, core: usize, horizon: u64, free: &mut Vec<usize>) {
            let kept = self.visible(self.horizon.seen(core));
            if self.wts(kept) > horizon {
                return;
            }
            let mut slot = self.slots[kept].1.swap(NONE as u64, Ordering::SeqCst) as usize;
            while slot != NONE {
                let next = self.slots[slot].1.swap(NONE as u64, Ordering::SeqCst) as usize;
                self.slots[slot].0.store(FREED, Ordering::Relaxed);
                free.push(slot);
                slot = next;
            }
        }

        /// Transactions that read the record, and then write it if nobody has done so later.
        fn run(&self, core: usize) {
            let own = 1 + SLOTS * core..1 + SLOTS * (core + 1);
            let (mut free, mut newest) = (own.collect::<Vec<_>>(), 0);
            let mut overwritten = VecDeque::new();
            for turn in 0..test_steps(200_000) {
                // Clocks that go apart for a while.
                let ahead = if turn / 64 % 3 == core as u64 { 1_000 } else { 0 };
                let Begun { timestamp: at, .. } = self.horizon.begin(core, |than| {
                    let next = than.max(newest).max(turn + ahead) / CORES as u64 + 1;
                    newest = next * CORES as u64 + core as u64;
                    newest
                });
                let seen = self.visible(at);
                let written = self.wts(seen);
                if turn % 8 == core as u64 {
                    thread::yield_now();
                }
                let head = self.head.load(Ordering::SeqCst);
                if head == seen as u64 && !free.is_empty() {
                    let new = free.swap_remove(turn as usize % free.len());
                    self.slots[new].0.store(at, Ordering::Relaxed);
                    self.slots[new].1.store(head, Ordering::Release);
                    let order = (Ordering::SeqCst, Ordering::SeqCst);
                    match self.head.compare_exchange(head, new as u64, order.0, order.1) {
                        Ok(_) => overwritten.push_back(at),
                        Err(_) => free.push(new),
                    }
                }
                assert_eq!(self.wts(seen), written, "what it has found stays as it is");
                if turn % 4 == 0 {
                    let horizon = self.horizon.move_on();
                    while overwritten.pop_front_if(|at| *at <= horizon).is_some() {
                        self.free_older(core, horizon, &mut free);
                    }
                }
                self.horizon.end(core);
            }
        }
    }

    #[test]
    fn no_version_is_freed_that_somebody_may_find() {
        let slot = |number| (AtomicU64::new(if number == 0 { 0 } else { FREED }), NONE as u64);
        let slots = (0..=CORES * SLOTS).map(slot).map(|(wts, next)| (wts, AtomicU64::new(next)));
        let (head, horizon) = (AtomicU64::new(0), Horizon::new(CORES));
        let chain = Chain { head, slots: slots.collect(), horizon };
        thread::scope(|scope| {
            (0..CORES).for_each(|core| {
                let chain = &chain;
                scope.spawn(move || chain.run(core));
            });
        });
        let head = chain.head.load(Ordering::SeqCst) as usize;
        assert!(chain.wts(head) > 0, "the record was written");
    }
}
