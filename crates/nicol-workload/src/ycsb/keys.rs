//! The keys of YCSB's records.

use crate::zipf::fnv64;

/// The form of the keys of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyForm {
    /// Numbers of 8 bytes.
    #[default]
    Number,
    /// Strings of [`KEY_BYTES`] bytes, as YCSB's: `user` and the decimal digits of a hash.
    Bytes,
}

/// Bytes of a byte-string key.
pub const KEY_BYTES: usize = PREFIX.len() + DIGITS;
const PREFIX: &[u8] = b"user";
/// Digits of the largest 63-bit number.
const DIGITS: usize = 19;

/// The byte-string key of record number `record`: `user` and 19 digits. Like YCSB's with
/// `zeropadding=19` and hashed insertion order.
pub fn byte_key(record: u64) -> [u8; KEY_BYTES] {
    let mut key = [b'0'; KEY_BYTES];
    key[..PREFIX.len()].copy_from_slice(PREFIX);
    let mut hash = fnv64(record);
    for digit in key[PREFIX.len()..].iter_mut().rev() {
        *digit = b'0' + (hash % 10) as u8;
        hash /= 10;
    }
    key
}

/// A bijection of the numbers below `2^bits` that scatters neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scatter {
    bits: u32,
}

/// An odd number near 2^40 divided by the golden ratio; multiplying by it is a bijection modulo any
/// power of two.
const FACTOR: u64 = 0x9e_3779_b97f;
/// Its inverse modulo 2^64.
const INVERSE: u64 = inverse(FACTOR);

const fn inverse(odd: u64) -> u64 {
    // Newton's iteration: each step doubles the number of correct low bits, from 3 on.
    let (mut inverse, mut step) = (odd, 0);
    while step < 5 {
        inverse = inverse.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(inverse)));
        step += 1;
    }
    inverse
}

const _: () = assert!(FACTOR.wrapping_mul(INVERSE) == 1);

impl Scatter {
    /// A bijection of the numbers below `2^bits`.
    ///
    /// # Panics
    /// Unless there are 1 to 63 bits.
    pub(crate) const fn new(bits: u32) -> Self {
        assert!(0 < bits && bits < 64, "1 to 63 bits");
        Self { bits }
    }

    const fn mask(self) -> u64 {
        (1 << self.bits) - 1
    }

    /// Where `number` goes.
    pub(crate) const fn apply(self, number: u64) -> u64 {
        number.wrapping_mul(FACTOR) & self.mask()
    }

    /// The number that goes to `row`.
    pub(crate) const fn undo(self, row: u64) -> u64 {
        row.wrapping_mul(INVERSE) & self.mask()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn byte_keys_are_ycsbs_and_distinct() {
        // FNV-1a of eight zero bytes, computed apart: 0xa8c7f832281a39c5, as Java's absolute value.
        assert_eq!(&byte_key(0), b"user6284781860667377211");
        let keys: BTreeSet<_> = (0..50_000).map(byte_key).collect();
        assert_eq!(keys.len(), 50_000);
    }

    #[test]
    fn scattering_is_a_bijection_that_leaves_no_neighbours() {
        for bits in [1, 8, 12] {
            let scatter = Scatter::new(bits);
            let rows: BTreeSet<_> = (0..1 << bits).map(|number| scatter.apply(number)).collect();
            assert_eq!(rows.len(), 1 << bits);
            assert!((0..1 << bits).all(|number| scatter.undo(scatter.apply(number)) == number));
        }
        let scatter = Scatter::new(40);
        let far = (0..1_000)
            .all(|number| scatter.apply(number).abs_diff(scatter.apply(number + 1)) > 1 << 32);
        assert!(far, "records that follow one another are inserted far apart");
    }
}
