//! Seeded randomness: one independent stream per source, so that adding a source shifts no other.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng};

/// The purpose of a stream of randomness. Each purpose of each owner has its own stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Message, stall and crash faults.
    Faults,
    /// The workload's choices of one client.
    Workload,
    /// A protocol's own choices (back-off jitter) on one engine.
    Protocol,
    Regions,
    /// Data loaded before the run.
    Load,
    /// Choices of a test.
    Test,
    /// The variation of a sweep, from seed to seed.
    Variation,
    /// The crashes, stalls and partitions that a plan draws family by family.
    FaultFamilies,
    /// The part of unsynced log writes that a crash leaves.
    Medium,
}

/// Steps of a test with threads: `count`, or few under Miri, which interprets.
pub const fn test_steps(count: u64) -> u64 {
    if cfg!(miri) { count.div_ceil(500) } else { count }
}

/// A deterministic, portable stream of random numbers (ChaCha8).
#[derive(Clone, Debug)]
pub struct Stream(ChaCha8Rng);

impl Stream {
    /// The stream of `purpose` for `owner` under `seed`.
    pub fn new(seed: u64, purpose: Purpose, owner: u32) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream((purpose as u64) << 32 | u64::from(owner));
        Self(rng)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number in `0..bound`, without modulo bias worth measuring (64-bit multiply-shift).
    ///
    /// # Panics
    /// If `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "a range must not be empty");
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// True with a chance of `per_million` in a million.
    pub fn bernoulli(&mut self, per_million: u32) -> bool {
        self.below(1_000_000) < u64::from(per_million)
    }

    /// One of `items`, or `None` if there are none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        if items.is_empty() {
            return None;
        }
        items.get(self.below(items.len() as u64) as usize)
    }
}
