//! The choice of items that a transaction accesses.

use nicol_core::rng::Stream;

use crate::zipf::{Permutation, ScrambledZipf, Theta, Zipf};

/// A share in parts per million: `PartsPerMillion::percent(4)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PartsPerMillion(pub u32);

impl PartsPerMillion {
    pub const ALL: Self = Self(1_000_000);

    /// `percent` hundredths.
    pub const fn percent(percent: u32) -> Self {
        Self(percent * 10_000)
    }

    /// This share of `count`, rounded up.
    pub const fn of(self, count: u64) -> u64 {
        (count as u128 * self.0 as u128).div_ceil(1_000_000) as u64
    }
}

/// How the popularity of items is distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    Uniform,
    /// Zipfian; low items are hot.
    Zipfian(Theta),
    /// Zipfian, with hot items anywhere: a seeded permutation says which item has which rank. The
    /// same items are hot whatever the seed of the run.
    ScatteredZipfian(Theta),
    /// YCSB's scrambled generator: ranks over `ranks` items, hashed into the items.
    ScrambledZipfian {
        /// The skew of the ranks.
        theta: Theta,
        /// How many ranks: [`ScrambledZipf::RANKS`] in YCSB.
        ranks: u64,
    },
    /// The first `hot_items` (a share) of the items get the share `hot_draws` of the draws.
    Hotspot {
        /// The share of items that are hot.
        hot_items: PartsPerMillion,
        /// The share of draws that go to them.
        hot_draws: PartsPerMillion,
    },
}

/// Draws items in `0..items` by a [`Distribution`].
#[derive(Clone, Debug)]
pub struct Chooser {
    items: u64,
    method: Method,
}

#[derive(Clone, Debug)]
enum Method {
    Uniform,
    Zipfian(Zipf),
    Scattered(Zipf, Permutation),
    Scrambled(ScrambledZipf),
    Hotspot { hot: u64, hot_draws: PartsPerMillion },
}

/// The seed of every run's permutation: systems and runs that are compared have the same hot items.
const SEED: u64 = 0x006e_6963_6f6c;

impl Chooser {
    /// A chooser among `items`.
    ///
    /// # Panics
    /// If `items` is 0, or a share is above one million.
    pub fn new(items: u64, distribution: Distribution) -> Self {
        assert!(items > 0, "a range must not be empty");
        let method = match distribution {
            Distribution::Uniform => Method::Uniform,
            Distribution::Zipfian(theta) => Method::Zipfian(Zipf::new(items, theta)),
            Distribution::ScatteredZipfian(theta) => {
                Method::Scattered(Zipf::new(items, theta), Permutation::new(items, SEED))
            }
            Distribution::ScrambledZipfian { theta, ranks } => {
                Method::Scrambled(ScrambledZipf::new(items, ranks, theta))
            }
            Distribution::Hotspot { hot_items, hot_draws } => {
                assert!(hot_items <= PartsPerMillion::ALL, "a share is at most one");
                assert!(hot_draws <= PartsPerMillion::ALL, "a share is at most one");
                Method::Hotspot { hot: hot_items.of(items), hot_draws }
            }
        };
        Self { items, method }
    }

    pub fn items(&self) -> u64 {
        self.items
    }

    pub fn draw(&self, random: &mut Stream) -> u64 {
        match &self.method {
            Method::Uniform => random.below(self.items),
            Method::Zipfian(zipf) => zipf.draw(random),
            Method::Scattered(zipf, permutation) => permutation.item(zipf.draw(random)),
            Method::Scrambled(zipf) => zipf.draw(random),
            Method::Hotspot { hot, hot_draws } => {
                let is_hot = random.bernoulli(hot_draws.0);
                // With no hot or no cold items there is only one range to draw from.
                if (is_hot && *hot > 0) || *hot == self.items {
                    random.below(*hot)
                } else {
                    hot + random.below(self.items - hot)
                }
            }
        }
    }

    /// Draws an item for which `taken` is false.
    ///
    /// After `REDRAWS_MAX` draws it walks up from the last one, so that a heavy skew cannot delay
    /// it for ever. At least one item must not be taken.
    // For each key of a transaction: as a call it costs some 40 instructions more.
    #[inline]
    pub fn draw_untaken(&self, random: &mut Stream, taken: impl Fn(u64) -> bool) -> u64 {
        let mut item = self.draw(random);
        for _ in 1..Self::REDRAWS_MAX {
            if !taken(item) {
                return item;
            }
            item = self.draw(random);
        }
        for _ in 0..self.items {
            if !taken(item) {
                return item;
            }
            item = (item + 1) % self.items;
        }
        panic!("every one of {} items is taken", self.items);
    }

    /// Draws before [`Self::draw_untaken`] walks: at a theta of 0.99 the hottest of a million items
    /// has 7 %, so ten keys are nearly always found within these.
    const REDRAWS_MAX: u32 = 32;
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicol_core::rng::Purpose;

    const SCRAMBLED: Distribution =
        Distribution::ScrambledZipfian { theta: Theta(990), ranks: ScrambledZipf::RANKS };

    fn draws(distribution: Distribution) -> Vec<u64> {
        let chooser = Chooser::new(1_000_000, distribution);
        let mut random = Stream::new(42, Purpose::Test, 3);
        (0..8).map(|_| chooser.draw(&mut random)).collect()
    }

    #[test]
    fn golden_vectors() {
        // Computed apart from the code, from the stream's bits and the published formulas.
        let hotspot = Distribution::Hotspot {
            hot_items: PartsPerMillion::percent(4),
            hot_draws: PartsPerMillion::percent(90),
        };
        assert_eq!(
            draws(Distribution::Uniform),
            [808729, 754608, 287694, 199894, 578963, 177303, 591091, 379024]
        );
        assert_eq!(
            draws(Distribution::Zipfian(Theta(990))),
            [9, 22, 19494, 65915, 306, 89966, 256, 5402]
        );
        assert_eq!(
            draws(Distribution::Zipfian(Theta(500))),
            [36808, 60485, 507675, 640400, 177624, 677040, 167556, 385951]
        );
        assert_eq!(
            draws(Distribution::Zipfian(Theta(1_000))),
            [8, 18, 15831, 56106, 237, 77695, 199, 4245]
        );
        assert_eq!(
            draws(SCRAMBLED),
            [469283, 213329, 154584, 400374, 34971, 46997, 307804, 539348]
        );
        assert_eq!(draws(hotspot), [30184, 7995, 7092, 15160, 33941, 11653, 5333, 19232]);
    }

    #[test]
    fn a_hotspot_gets_its_share_of_draws() {
        let distribution = Distribution::Hotspot {
            hot_items: PartsPerMillion::percent(4),
            hot_draws: PartsPerMillion::percent(90),
        };
        let chooser = Chooser::new(10_000, distribution);
        let mut random = Stream::new(1, Purpose::Test, 0);
        let hot = (0..100_000).filter(|_| chooser.draw(&mut random) < 400).count();
        assert!(hot.abs_diff(90_000) < 500, "{hot} of 100000 draws were hot");
    }

    #[test]
    fn uniform_and_scattered_reach_everything() {
        for distribution in [Distribution::Uniform, Distribution::ScatteredZipfian(Theta(0))] {
            let chooser = Chooser::new(64, distribution);
            let mut random = Stream::new(1, Purpose::Test, 0);
            let mut counts = [0_u32; 64];
            (0..64_000).for_each(|_| counts[chooser.draw(&mut random) as usize] += 1);
            assert!(counts.iter().all(|count| (800..1_250).contains(count)), "{counts:?}");
        }
    }

    #[test]
    fn an_untaken_item_is_found_however_skewed() {
        let chooser = Chooser::new(4, Distribution::Zipfian(Theta(5_000)));
        let mut random = Stream::new(1, Purpose::Test, 0);
        assert!((0..100).all(|_| chooser.draw_untaken(&mut random, |item| item != 3) == 3));
    }
}
