//! What is evicted once the memory is used up: the policy, and what it knows of the keys.
//!
//! The fronts do it (`transactions/evictor.rs`), each for the transactions of its own clients that
//! the store has refused.

pub mod accesses;
pub mod policy;

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

use nicol_core::ids::Key;

use self::accesses::{Accesses, Counting};
use self::policy::{Order, Policy};

/// Keys that are looked at for each that is evicted, as Redis has it.
pub const SAMPLES: u32 = 5;
/// The most that Redis allows.
pub const SAMPLES_MAX: u32 = 64;

/// The settings, which CONFIG SET changes, and the accesses.
#[derive(Debug)]
pub struct Eviction {
    policy: AtomicU8,
    pub samples: AtomicU32,
    /// See [`Counting`].
    pub lfu_log_factor: AtomicU32,
    pub lfu_decay_minutes: AtomicU32,
    accesses: Accesses,
}

impl Eviction {
    /// Of a store whose memory has this limit.
    pub fn new(policy: Policy, samples: u32, limit: Option<u64>) -> Self {
        Self {
            policy: AtomicU8::new(policy.number()),
            samples: AtomicU32::new(samples),
            lfu_log_factor: AtomicU32::new(10),
            lfu_decay_minutes: AtomicU32::new(1),
            accesses: Accesses::new(limit),
        }
    }

    pub fn policy(&self) -> Policy {
        Policy::of_number(self.policy.load(Ordering::Relaxed))
    }

    /// Chooses another policy. Times of access and counts stand in the same place: where one takes
    /// the place of the other, all keys begin anew.
    pub fn choose(&self, policy: Policy) {
        let before = self.policy.swap(policy.number(), Ordering::Relaxed);
        if Policy::of_number(before).counts_accesses() != policy.counts_accesses() {
            self.accesses.clear();
        }
    }

    /// It is so long since the start.
    pub fn tick(&self, elapsed: Duration) {
        self.accesses.tick(elapsed);
    }

    /// Notes that `rows` are accessed, if the policy asks for it; `draw` gives numbers that nobody
    /// foresees.
    pub fn touch<'k>(&self, rows: impl Iterator<Item = &'k Key>, mut draw: impl FnMut() -> u32) {
        match self.policy().order {
            Some(Order::Lru) => rows.for_each(|row| self.accesses.touch(*row)),
            Some(Order::Lfu) => {
                let counting = self.counting();
                rows.for_each(|row| self.accesses.count(*row, draw(), counting));
            }
            // Nobody asks, and a few keys would take the memory of many.
            Some(Order::Random | Order::Ttl) | None => {}
        }
    }

    /// `row` has been evicted.
    pub fn evicted(&self, row: Key) {
        if self.policy().counts_accesses() {
            self.accesses.forget(row);
        }
    }

    /// How soon `row` goes: of two the one with the higher number is evicted first.
    pub fn badness(&self, row: Key, order: Order) -> u64 {
        match order {
            Order::Lru => self.accesses.idle(row).as_millis() as u64,
            Order::Lfu => u64::from(u8::MAX - self.accesses.frequency(row, self.counting())),
            Order::Random | Order::Ttl => 0,
        }
    }

    /// How often `row` is accessed; `None`: the policy does not ask.
    pub fn frequency(&self, row: Key) -> Option<u8> {
        let counts = self.policy().counts_accesses();
        counts.then(|| self.accesses.frequency(row, self.counting()))
    }

    /// Since when `row` has not been accessed; `None`: the policy does not ask.
    pub fn idle(&self, row: Key) -> Option<Duration> {
        (self.policy().order == Some(Order::Lru)).then(|| self.accesses.idle(row))
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> u64 {
        self.accesses.bytes()
    }

    fn counting(&self) -> Counting {
        Counting {
            log_factor: self.lfu_log_factor.load(Ordering::Relaxed),
            decay_minutes: self.lfu_decay_minutes.load(Ordering::Relaxed),
        }
    }
}
