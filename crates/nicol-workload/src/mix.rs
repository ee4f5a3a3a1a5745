//! Transaction mixes: the shares of a workload's transaction types.

use nicol_core::rng::Stream;

/// Transaction types with their shares in percent.
#[derive(Debug)]
pub(crate) struct TransactionMix<T, const N: usize>([(u64, T); N]);

impl<T: Copy, const N: usize> TransactionMix<T, N> {
    /// The share of each type.
    ///
    /// # Panics
    /// If the shares do not sum to 100; in a constant, that is a compile error.
    pub(crate) const fn new(types: [(u64, T); N]) -> Self {
        let (mut sum, mut index) = (0, 0);
        while index < N {
            sum += types[index].0;
            index += 1;
        }
        assert!(sum == 100, "shares are percent");
        Self(types)
    }

    pub(crate) fn draw(&self, random: &mut Stream) -> T {
        let mut ticket = random.below(100);
        for (share, drawn) in self.0 {
            if ticket < share {
                return drawn;
            }
            ticket -= share;
        }
        panic!("a ticket is below the sum of all shares");
    }
}

#[cfg(test)]
mod tests {
    use nicol_core::rng::Purpose;

    use super::*;

    #[test]
    fn types_are_drawn_by_their_shares() {
        const SHARES: TransactionMix<usize, 4> =
            TransactionMix::new([(0, 3), (10, 1), (89, 2), (1, 0)]);
        let mut random = Stream::new(1, Purpose::Test, 0);
        let mut drawn = [0; 4];
        for _ in 0..10_000 {
            drawn[SHARES.draw(&mut random)] += 1;
        }
        let expected = [60..140, 900..1_100, 8_800..9_000, 0..1];
        for (count, range) in drawn.iter().zip(expected) {
            assert!(range.contains(count), "{drawn:?}");
        }
    }
}
