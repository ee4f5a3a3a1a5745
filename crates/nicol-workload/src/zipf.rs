//! Zipfian numbers as YCSB draws them, in portable arithmetic.
//!
//! The generator is Gray et al., "Quickly Generating Billion-Record Synthetic Databases" (SIGMOD
//! '94, section 3.2), which YCSB uses. Only IEEE additions, multiplications and divisions and the
//! `libm` crate's software `pow` and `log` decide, so a seed draws the same numbers on every
//! machine: what is faster is asked first, multiplications where the exponent is whole or nearly
//! (as for 0.99, 0.9, 0.8 and 0.5), else the machine's own `pow`, and counts where no rounding
//! could make another rank.

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

/// Draws ranks in `0..items`, rank `i` with a probability that falls as `1 / (i + 1)^theta`.
///
/// Ranks 0 and 1 have their exact probabilities; the others come from a continuous approximation.
#[derive(Clone, Debug)]
pub struct Zipf {
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

impl Zipf {
    /// A generator of ranks in `0..items`. Costs a few thousand `pow`s, whatever `items` is.
    ///
    /// # Panics
    /// If `items` is 0 or above 2^52 (where a float no longer counts), or `theta` above its limit.
    pub fn new(items: u64, theta: Theta) -> Self {
        assert!(items > 0, "a range must not be empty");
        assert!(items <= 1 << 52, "a float counts exactly up to 2^52 items");
        assert!(theta.0 <= Theta::MAX.0, "theta is at most {}", Theta::MAX.exponent());
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

    /// The number of items.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// Draws a rank.
    pub fn draw(&self, random: &mut Stream) -> u64 {
        // 53 random bits as a number in [0, 1): the conversion and the scaling are exact.
        self.rank((random.bits() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64))
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

/// YCSB's scrambled Zipfian: ranks over ten billion items, hashed into `0..items`, so that the hot
/// items are spread over the key space and do not depend on the number of items.
#[derive(Clone, Debug)]
pub struct ScrambledZipf {
    items: u64,
    ranks: Zipf,
}

impl ScrambledZipf {
    /// YCSB's number of ranks.
    const RANKS: u64 = 10_000_000_000;

    /// A generator of items in `0..items`.
    ///
    /// # Panics
    /// If `items` is 0 or `theta` above its limit.
    pub fn new(items: u64, theta: Theta) -> Self {
        assert!(items > 0, "a range must not be empty");
        Self { items, ranks: Zipf::new(Self::RANKS, theta) }
    }

    /// The number of items.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// Draws an item.
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
            let zipf = Zipf::new(items, Theta(theta));
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
        let at = |theta| Zipf::new(1_000_000, Theta(theta));
        for step in 1..100 {
            let u = f64::from(step) / 100.0;
            let (below, one, above) = (at(999).rank(u), at(1_000).rank(u), at(1_001).rank(u));
            assert!(above <= one, "more skew draws lower ranks");
            assert!(one <= below, "more skew draws lower ranks");
            assert!(below - above <= 2 + below / 10, "u {u}: {below} {one} {above}");
        }
    }

    #[test]
    fn frequencies_follow_the_power_law() {
        const DRAWS: u64 = 200_000;
        for theta in [0, 500, 990, 1_000, 1_200] {
            let zipf = Zipf::new(1_000, Theta(theta));
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
                let zipf = Zipf::new(items, Theta(theta));
                let mut random = stream();
                assert!((0..500).all(|_| zipf.draw(&mut random) < items));
                assert!(zipf.rank(1.0 - f64::EPSILON) == items - 1);
                assert_eq!(zipf.rank(0.0), 0);
            }
        }
    }
}
