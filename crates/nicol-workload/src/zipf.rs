//! Zipfian numbers in portable arithmetic.
//!
//! [`Zipf`] draws the exact distribution over the records that there are, [`Permutation`] says
//! which record has which rank. [`ScrambledZipf`] is YCSB's own generator, which is another
//! distribution: it draws ranks over ten billion items, approximately, and hashes them into the
//! records.
//!
//! Only IEEE additions, multiplications and divisions and the `libm` crate's software functions
//! decide, so a seed draws the same numbers on every machine.

use nicol_core::rng::Stream;

/// A skew in thousandths: `Theta(990)` is YCSB's 0.99.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Theta(pub u16);

impl Theta {
    /// The largest skew: beyond it nearly every draw is 0.
    pub const MAX: Self = Self(5_000);

    /// The exponent. A division of two exact integers: the same bits everywhere.
    fn exponent(self) -> f64 {
        f64::from(self.0) / 1_000.0
    }
}

/// Draws ranks in `0..items`, rank `i` with a probability proportional to `1 / (i + 1)^theta`.
///
/// The probabilities are exact for every rank, up to the rounding of floats: rejection-inversion
/// (Hörmann and Derflinger, "Rejection-inversion to generate variates from monotone discrete
/// distributions", 1996). A draw takes constant time, and fewer than 1.2 tries on average.
#[derive(Clone, Debug)]
pub struct Zipf {
    items: u64,
    exponent: f64,
    /// The integral of the density up to the first rank, less that rank's own weight.
    first: f64,
    /// The integral up to the last rank.
    last: f64,
    /// A number that is nearer than this below its rank is accepted without a look at the density.
    squeeze: f64,
}

impl Zipf {
    /// A generator of ranks in `0..items`. Costs the same whatever `items` is.
    ///
    /// # Panics
    /// If `items` is 0 or above 2^52 (where a float no longer counts), or `theta` above its limit.
    pub fn new(items: u64, theta: Theta) -> Self {
        check(items, theta);
        let exponent = theta.exponent();
        let mut zipf = Self { items, exponent, first: 0.0, last: 0.0, squeeze: 0.0 };
        zipf.first = zipf.integral(1.5) - 1.0;
        zipf.last = zipf.integral(items as f64 + 0.5);
        zipf.squeeze = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    pub fn items(&self) -> u64 {
        self.items
    }

    pub fn draw(&self, random: &mut Stream) -> u64 {
        loop {
            let u = self.last + uniform(random) * (self.first - self.last);
            let x = self.inverse(u);
            // Rank 1 is the hottest here; rounding may leave the range by one.
            let rank = ((x + 0.5) as u64).clamp(1, self.items);
            let k = rank as f64;
            if k - x <= self.squeeze || u >= self.integral(k + 0.5) - self.density(k) {
                return rank - 1;
            }
        }
    }

    /// `x^-theta`.
    fn density(&self, x: f64) -> f64 {
        libm::exp(-self.exponent * libm::log(x))
    }

    /// The integral of the density from 1 to `x`: `(x^(1 - theta) - 1) / (1 - theta)`.
    fn integral(&self, x: f64) -> f64 {
        let log = libm::log(x);
        let power = (1.0 - self.exponent) * log;
        // Its limit where the power vanishes, as for a theta of 1.
        let share =
            if power.abs() > SMALL { libm::expm1(power) / power } else { 1.0 + power / 2.0 };
        share * log
    }

    /// The `x` up to which the integral of the density is `integral`.
    fn inverse(&self, integral: f64) -> f64 {
        // Rounding must not leave the logarithm's domain.
        let power = (integral * (1.0 - self.exponent)).max(-1.0);
        let share =
            if power.abs() > SMALL { libm::log1p(power) / power } else { 1.0 - power / 2.0 };
        libm::exp(share * integral)
    }
}

/// Below it, the first two terms of a series are exact to a float's precision.
const SMALL: f64 = 1e-8;

fn check(items: u64, theta: Theta) {
    assert!(items > 0, "a range must not be empty");
    assert!(items <= 1 << 52, "a float counts exactly up to 2^52 items");
    assert!(theta.0 <= Theta::MAX.0, "theta is at most {}", Theta::MAX.exponent());
}

/// 53 random bits as a number in [0, 1): the conversion and the scaling are exact.
fn uniform(random: &mut Stream) -> f64 {
    (random.bits() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
}

/// A seeded bijection of `0..items`, which scatters neighbours: it says which item has which rank.
///
/// Rounds of a multiplication and a shift permute the next power of two; numbers beyond `items`
/// are permuted again. Fewer than two walks on average, no memory.
#[derive(Clone, Copy, Debug)]
pub struct Permutation {
    items: u64,
    bits: u32,
    keys: [u64; Self::ROUNDS],
}

impl Permutation {
    const ROUNDS: usize = 4;

    /// The permutation of `0..items` that `seed` names.
    ///
    /// # Panics
    /// If `items` is 0 or above 2^62.
    pub fn new(items: u64, seed: u64) -> Self {
        assert!((1..=1 << 62).contains(&items), "a permutation is of 1 to 2^62 items");
        let bits = u64::BITS - (items - 1).leading_zeros();
        let keys = std::array::from_fn(|round| fnv64(seed ^ ((round as u64 + 1) << 56)));
        Self { items, bits, keys }
    }

    /// The item of `rank`.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn item(&self, rank: u64) -> u64 {
        assert!(rank < self.items, "rank {rank} of {} items", self.items);
        let mut item = self.mixed(rank);
        while item >= self.items {
            item = self.mixed(item);
        }
        item
    }

    /// Each step is a bijection of the numbers of `bits` bits.
    fn mixed(&self, number: u64) -> u64 {
        let mask = (1_u64 << self.bits) - 1;
        let half = self.bits.div_ceil(2);
        self.keys.iter().fold(number, |number, key| {
            let number = (number ^ (key >> 1)) & mask;
            let number = number.wrapping_mul(key | 1) & mask;
            number ^ (number >> half)
        })
    }
}

/// YCSB's `ZipfianGenerator`: Gray et al., "Quickly Generating Billion-Record Synthetic Databases"
/// (SIGMOD '94, section 3.2).
///
/// Ranks 0 and 1 have their exact probabilities; the others come from a continuous approximation.
/// What is faster than `libm`'s `pow` is asked first, multiplications where the exponent is whole
/// or nearly (as for 0.99, 0.9, 0.8 and 0.5), else the machine's own `pow`, and counts where no
/// rounding could make another rank.
#[derive(Clone, Debug)]
struct GrayZipf {
    items: u64,
    zeta_n: f64,
    /// Up to here in units of `1 / zeta_n` lies rank 1: `1 + 0.5^theta`.
    two: f64,
    curve: Curve,
}

/// The continuous part of the inverse distribution.
#[derive(Clone, Copy, Debug)]
enum Curve {
    /// `items * (eta * u - eta + 1)^alpha`. [Gray94 figure 2]
    Power { eta: f64, alpha: f64, whole: Option<Whole> },
    /// Its limit for a theta of 1: `items * (2 / items)^((1 - u) / span)`.
    Exponential { span: f64 },
}

/// An exponent's whole neighbour, whose powers are close to its own.
#[derive(Clone, Copy, Debug)]
struct Whole {
    exponent: i32,
    /// By what they differ at most, as a share of the power: what the exponents' difference makes
    /// of a power that is at least `1 / items`, and the roundings of the multiplications.
    error: f64,
}

impl Whole {
    /// Exponents at most: beyond, multiplications take longer than `pow`.
    const MAX: f64 = 1_024.0;
    /// Errors at most: with larger ones more draws would have to be repeated by `pow`.
    const ERROR_MAX: f64 = 1e-12;

    fn near(alpha: f64, items: u64) -> Option<Self> {
        let whole = alpha.round();
        if whole.abs() > Self::MAX {
            return None;
        }
        let apart = (alpha - whole).abs() * (items as f64).ln() / alpha.abs();
        let error = POW_ERROR + 2.0 * apart + 2.0 * whole.abs() * f64::EPSILON;
        (error < Self::ERROR_MAX).then_some(Self { exponent: whole as i32, error })
    }
}

impl GrayZipf {
    /// A generator of ranks in `0..items`. Costs a few thousand `pow`s, whatever `items` is.
    ///
    /// # Panics
    /// If `items` is 0 or above 2^52 (where a float no longer counts), or `theta` above its limit.
    fn new(items: u64, theta: Theta) -> Self {
        check(items, theta);
        let exponent = theta.exponent();
        let zeta_n = zeta(items, exponent);
        let two = 1.0 + libm::pow(0.5, exponent);
        // With one or two items every draw ends before the curve; any finite value does.
        let span = if items > 2 { 1.0 - two / zeta_n } else { 1.0 };
        let curve = if theta.0 == 1_000 {
            Curve::Exponential { span }
        } else {
            let step = 1.0 - exponent;
            let eta = (1.0 - libm::pow(2.0 / items as f64, step)) / span;
            let alpha = 1.0 / step;
            Curve::Power { eta, alpha, whole: Whole::near(alpha, items) }
        };
        Self { items, zeta_n, two, curve }
    }

    fn draw(&self, random: &mut Stream) -> u64 {
        self.rank(uniform(random))
    }

    fn rank(&self, u: f64) -> u64 {
        let scaled = u * self.zeta_n;
        if scaled < 1.0 || self.items == 1 {
            return 0;
        }
        if scaled < self.two || self.items == 2 {
            return 1;
        }
        let items = self.items as f64;
        let (base, exponent, whole) = match self.curve {
            Curve::Power { eta, alpha, whole } => (eta * u - eta + 1.0, alpha, whole),
            Curve::Exponential { span } => (2.0 / items, (1.0 - u) / span, None),
        };
        let (share, error) = match whole {
            Some(Whole { exponent, error }) => (base.powi(exponent), error),
            None => (base.powf(exponent), POW_ERROR),
        };
        // Ranks are below 2^52, where signed numbers are the same: they are faster to convert.
        let (roughly, error) = (items * share, items * error);
        let mut rank = roughly as i64;
        let beyond = roughly - rank as f64;
        if beyond < error || beyond > 1.0 - error {
            rank = (items * libm::pow(base, exponent)) as i64;
        }
        // A share that rounds to 1 is the last rank.
        (rank as u64).min(self.items - 1)
    }
}

/// By what two implementations of `pow` may differ where the power is below 1: 64 times what either
/// is known to round by.
const POW_ERROR: f64 = 64.0 * f64::EPSILON;

/// Terms summed one by one before the Euler-Maclaurin formula takes over. Its error here is below
/// `f'''''(4096) / 30240`, about 1e-20: far below a float's precision.
const EXACT_TERMS: u64 = 4_096;

/// The generalised harmonic number: the sum of `1 / i^theta` for `i` in `1..=items`.
fn zeta(items: u64, theta: f64) -> f64 {
    let term = |i: f64| libm::pow(i, -theta);
    if items <= EXACT_TERMS {
        return (1..=items).map(|i| term(i as f64)).sum();
    }
    let head: f64 = (1..EXACT_TERMS).map(|i| term(i as f64)).sum();
    let (low, high) = (EXACT_TERMS as f64, items as f64);
    let integral = if theta == 1.0 {
        libm::log(high / low)
    } else {
        (libm::pow(high, 1.0 - theta) - libm::pow(low, 1.0 - theta)) / (1.0 - theta)
    };
    let first = |i: f64| -theta * term(i) / i;
    let third = |i: f64| -theta * (theta + 1.0) * (theta + 2.0) * term(i) / (i * i * i);
    head + integral + (term(low) + term(high)) / 2.0 + (first(high) - first(low)) / 12.0
        - (third(high) - third(low)) / 720.0
}

/// YCSB's `ScrambledZipfianGenerator`: ranks over ten billion items, or another number, hashed into
/// `0..items`.
///
/// It is flatter than a Zipfian distribution of the items: at 0.99 the hottest of 1,000 gets 3.9 %
/// of the draws, where [`Zipf`] gives it 12.9 %; at 0.5 all get nearly the same.
#[derive(Clone, Debug)]
pub struct ScrambledZipf {
    items: u64,
    ranks: GrayZipf,
}

impl ScrambledZipf {
    /// YCSB's number of ranks.
    pub const RANKS: u64 = 10_000_000_000;

    /// A generator of items in `0..items`, of `ranks` ranks.
    ///
    /// # Panics
    /// If `items` or `ranks` is 0, `ranks` above 2^52, or `theta` above its limit.
    pub fn new(items: u64, ranks: u64, theta: Theta) -> Self {
        assert!(items > 0, "a range must not be empty");
        Self { items, ranks: GrayZipf::new(ranks, theta) }
    }

    pub fn items(&self) -> u64 {
        self.items
    }

    pub fn draw(&self, random: &mut Stream) -> u64 {
        fnv64(self.ranks.draw(random)) % self.items
    }
}

/// YCSB's `Utils.fnvhash64`: FNV-1a over the eight bytes from the lowest, as Java's absolute value.
pub(crate) fn fnv64(value: u64) -> u64 {
    let hash = value.to_le_bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(1_099_511_628_211)
    });
    (hash as i64).unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicol_core::rng::Purpose;

    fn stream() -> Stream {
        Stream::new(7, Purpose::Test, 0)
    }

    #[test]
    fn what_is_fast_draws_what_the_portable_pow_draws() {
        let thetas = [990, 900, 800, 500, 1_200, 1_010, 950];
        let sizes = [10_000_000_000, 1 << 40, 1 << 46];
        let whole = sizes.into_iter().flat_map(|items| thetas.map(|theta| (items, theta)));
        let other = [(1_000, 500), (1 << 52, 1_200), (77, 1_000), (1_000_000, 870), (1_000, 999)];
        for (items, theta) in whole.chain(other) {
            let zipf = GrayZipf::new(items, Theta(theta));
            let mut random = stream();
            let exactly = |u: f64| {
                let share = match zipf.curve {
                    Curve::Power { eta, alpha, .. } => libm::pow(eta * u - eta + 1.0, alpha),
                    Curve::Exponential { span } => libm::pow(2.0 / items as f64, (1.0 - u) / span),
                };
                ((items as f64 * share) as u64).min(items - 1)
            };
            for _ in 0..20_000 {
                let u = (random.bits() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64);
                if u * zipf.zeta_n >= zipf.two {
                    assert_eq!(zipf.rank(u), exactly(u), "{items} items, {u}");
                }
            }
        }
    }

    #[test]
    fn zeta_agrees_with_ycsb_and_with_the_plain_sum() {
        // The constant in YCSB's ScrambledZipfianGenerator, for ten billion items at 0.99.
        assert!((zeta(10_000_000_000, 0.99) - 26.469_028_201_783_02).abs() < 1e-6);
        for theta in [0.0, 0.5, 0.99, 1.0, 1.4] {
            let plain: f64 = (1..=50_000).map(|i| f64::from(i).powf(-theta)).sum();
            assert!((zeta(50_000, theta) - plain).abs() < plain * 1e-11, "theta {theta}");
        }
    }

    #[test]
    fn the_two_curves_meet_around_a_theta_of_one() {
        let at = |theta| GrayZipf::new(1_000_000, Theta(theta));
        for step in 1..100 {
            let u = f64::from(step) / 100.0;
            let (below, one, above) = (at(999).rank(u), at(1_000).rank(u), at(1_001).rank(u));
            assert!(above <= one, "more skew draws lower ranks");
            assert!(one <= below, "more skew draws lower ranks");
            assert!(below - above <= 2 + below / 10, "u {u}: {below} {one} {above}");
        }
    }

    /// The exact probabilities of the ranks of `items`.
    fn exact(items: u64, theta: f64) -> Vec<f64> {
        let weights: Vec<f64> = (1..=items).map(|i| (i as f64).powf(-theta)).collect();
        let all: f64 = weights.iter().sum();
        weights.into_iter().map(|weight| weight / all).collect()
    }

    /// Half the sum of what shares of the draws differ from the probabilities, in classes of at
    /// least `LEAST` expected draws, so that chance alone stays far below a hundredth.
    fn total_variation(counts: &[u64], exact: &[f64], draws: u64) -> f64 {
        const LEAST: f64 = 40_000.0;
        let (mut sum, mut seen, mut expected) = (0.0, 0_u64, 0.0);
        for (rank, (count, share)) in counts.iter().zip(exact).enumerate() {
            seen += count;
            expected += share * draws as f64;
            if expected >= LEAST || rank + 1 == counts.len() {
                sum += (seen as f64 - expected).abs() / draws as f64;
                (seen, expected) = (0, 0.0);
            }
        }
        sum / 2.0
    }

    /// Total variation from the exact distribution, and by how much the first ten ranks differ.
    fn distance(items: u64, theta: u16, draw: impl Fn(&mut Stream) -> u64) -> (f64, Vec<f64>) {
        let draws = 1_000_000;
        let mut random = stream();
        let mut counts = vec![0_u64; items as usize];
        (0..draws).for_each(|_| counts[draw(&mut random) as usize] += 1);
        let exact = exact(items, f64::from(theta) / 1_000.0);
        let first = counts.iter().zip(&exact).take(10);
        let first = first.map(|(count, share)| *count as f64 / (share * draws as f64) - 1.0);
        (total_variation(&counts, &exact, draws), first.collect())
    }

    #[test]
    fn every_skew_and_size_has_the_exact_distribution() {
        for items in [10, 1_000, 100_000, 1_000_000] {
            for theta in [0, 10, 500, 900, 990, 1_000, 1_010, 1_200, 1_500] {
                let zipf = Zipf::new(items, Theta(theta));
                let (apart, first) = distance(items, theta, |random| zipf.draw(random));
                assert!(apart < 0.01, "{items} items, {theta}: total variation {apart}");
                let share = exact(items, f64::from(theta) / 1_000.0);
                for (rank, (off, share)) in first.iter().zip(share).enumerate() {
                    // Five standard deviations of what a rank so rare is counted.
                    let chance = 5.0 / (share * 1_000_000.0).sqrt();
                    assert!(off.abs() < 0.03_f64.max(chance), "{items}, {theta}, {rank}: {off}");
                }
            }
        }
    }

    #[test]
    fn ycsbs_generators_are_seen_to_be_other_distributions() {
        let scrambled = ScrambledZipf::new(1_000, ScrambledZipf::RANKS, Theta(990));
        let (apart, first) = distance(1_000, 990, |random| scrambled.draw(random));
        assert!(apart > 0.1 && first[0] < -0.5, "scrambled: {apart}, {first:?}");
        let gray = GrayZipf::new(1_000, Theta(990));
        let (apart, first) = distance(1_000, 990, |random| gray.draw(random));
        assert!(apart > 0.01 && first.iter().any(|off| off.abs() > 0.03), "{apart}, {first:?}");
    }

    #[test]
    fn a_permutation_is_a_bijection_that_its_seed_chooses() {
        for items in (1..200).chain([1_000, 1_024, 65_537]) {
            for seed in 0..3 {
                let permutation = Permutation::new(items, seed);
                let mut seen = vec![false; items as usize];
                (0..items).for_each(|rank| seen[permutation.item(rank) as usize] = true);
                assert!(seen.iter().all(|seen| *seen), "{items} items, seed {seed}");
            }
        }
        let first = |seed| (0..10).map(|rank| Permutation::new(100_000, seed).item(rank)).max();
        assert!((1..20).all(|seed| first(seed) != first(0)), "seeds give other items");
    }

    #[test]
    fn the_hottest_items_are_scattered_over_all() {
        // Of ten equal ranges each gets about a tenth of the hottest thousand.
        for seed in 0..20 {
            let permutation = Permutation::new(100_000, seed);
            let mut ranges = [0_u32; 10];
            (0..1_000).for_each(|rank| ranges[(permutation.item(rank) / 10_000) as usize] += 1);
            assert!(ranges.iter().all(|count| (60..=145).contains(count)), "{seed}: {ranges:?}");
        }
    }

    #[test]
    fn frequencies_follow_the_power_law() {
        const DRAWS: u64 = 200_000;
        for theta in [0, 500, 990, 1_000, 1_200] {
            let zipf = GrayZipf::new(1_000, Theta(theta));
            let mut random = stream();
            let mut counts = vec![0_u64; 1_000];
            (0..DRAWS).for_each(|_| counts[zipf.draw(&mut random) as usize] += 1);
            let exponent = f64::from(theta) / 1_000.0;
            // Single ranks at the head, decades behind: the approximation is only good in bulk.
            for range in [0..1, 1..2, 2..10, 10..100, 100..1_000] {
                let seen: u64 = counts[range.clone()].iter().sum();
                let share: f64 = range.clone().map(|i| (i as f64 + 1.0).powf(-exponent)).sum();
                let expected = DRAWS as f64 * share / zipf.zeta_n;
                let slack = expected * 0.09 + 5.0 * expected.sqrt();
                assert!(
                    (seen as f64 - expected).abs() < slack,
                    "{theta} {range:?}: {seen} {expected}"
                );
            }
        }
    }

    #[test]
    fn tiny_ranges_stay_in_range() {
        for items in 1..6 {
            for theta in [0, 500, 1_000, 2_000] {
                let exact = Zipf::new(items, Theta(theta));
                let zipf = GrayZipf::new(items, Theta(theta));
                let mut random = stream();
                assert!((0..500).all(|_| exact.draw(&mut random) < items));
                assert!((0..500).all(|_| zipf.draw(&mut random) < items));
                assert!(zipf.rank(1.0 - f64::EPSILON) == items - 1);
                assert_eq!(zipf.rank(0.0), 0);
            }
        }
    }
}
