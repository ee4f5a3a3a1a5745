//! The specification's random values: non-uniform numbers, last names, texts. (2.1.6, 4.3.2)

use nicol_core::rng::Stream;

use super::key::NAMES;

/// A number in `low..=high`, uniformly.
pub(super) fn within(random: &mut Stream, low: u64, high: u64) -> u64 {
    low + random.below(high - low + 1)
}

/// NURand(A, x, y) with its constant C: some numbers are drawn more often. (2.1.6)
#[derive(Clone, Copy, Debug)]
pub(super) struct NonUniform {
    a: u64,
    c: u64,
}

impl NonUniform {
    /// Last names when the database is loaded.
    pub(super) const LAST_NAME_LOAD: Self = Self { a: 255, c: 123 };
    /// Last names in transactions.
    pub(super) const LAST_NAME_RUN: Self = Self { a: 255, c: 209 };
    pub(super) const CUSTOMER: Self = Self { a: 1_023, c: 259 };
    pub(super) const ITEM: Self = Self { a: 8_191, c: 7_911 };

    /// A number in `low..=high`.
    pub(super) fn draw(self, random: &mut Stream, low: u64, high: u64) -> u64 {
        let bits = within(random, 0, self.a) | within(random, low, high);
        (bits + self.c) % (high - low + 1) + low
    }
}

const _: () = {
    let delta = NonUniform::LAST_NAME_RUN.c.abs_diff(NonUniform::LAST_NAME_LOAD.c);
    assert!(delta >= 65, "2.1.6.1: C-Run must differ enough from C-Load");
    assert!(delta <= 119, "2.1.6.1");
    assert!(delta != 96, "2.1.6.1");
    assert!(delta != 112, "2.1.6.1");
};

const SYLLABLES: [&str; 10] =
    ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];

/// Writes last name `number` into `to`, the rest zeros: three syllables, by digit. (4.3.2.3)
pub(super) fn last_name(number: u16, to: &mut [u8]) {
    assert!(number < NAMES, "last names are numbered from 0 to 999");
    to.fill(0);
    let mut end = 0;
    for digit in [number / 100, number / 10 % 10, number % 10] {
        let syllable = SYLLABLES[usize::from(digit)].as_bytes();
        to[end..end + syllable.len()].copy_from_slice(syllable);
        end += syllable.len();
    }
}

/// 64 letters, so that six random bits give one. The specification requires at least 26 and digits.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 -";

/// Fills `to` with random letters up to a random length, at least `shortest`; the rest is zeros.
pub(super) fn letters(random: &mut Stream, shortest: usize, to: &mut [u8]) {
    let len = within(random, shortest as u64, to.len() as u64) as usize;
    let (text, rest) = to.split_at_mut(len);
    for chunk in text.chunks_mut(10) {
        let mut bits = random.bits();
        for letter in chunk {
            *letter = LETTERS[(bits % 64) as usize];
            bits /= 64;
        }
    }
    rest.fill(0);
}

/// Fills `to` with random digits.
pub(super) fn digits(random: &mut Stream, to: &mut [u8]) {
    for digit in to {
        *digit = b'0' + random.below(10) as u8;
    }
}

/// Fills a data column, one in ten with the word "ORIGINAL" somewhere. (4.3.3.1)
pub(super) fn data(random: &mut Stream, shortest: usize, to: &mut [u8]) {
    letters(random, shortest, to);
    if random.below(10) == 0 {
        let at = random.below((shortest - super::row::ORIGINAL.len() + 1) as u64) as usize;
        to[at..at + super::row::ORIGINAL.len()].copy_from_slice(super::row::ORIGINAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicol_core::rng::Purpose;

    #[test]
    fn last_names_are_those_of_the_specification() {
        let name = |number| {
            let mut bytes = [0; 16];
            last_name(number, &mut bytes);
            String::from_utf8(bytes.to_vec()).unwrap().trim_end_matches('\0').to_owned()
        };
        assert_eq!(name(371), "PRICALLYOUGHT");
        assert_eq!(name(40), "BARPRESBAR");
        assert_eq!(name(999), "EINGEINGEING");
    }

    #[test]
    fn non_uniform_numbers_stay_in_range_and_are_not_uniform() {
        let mut random = Stream::new(1, Purpose::Test, 0);
        let mut counts = vec![0_u32; 3_001];
        for _ in 0..300_000 {
            counts[NonUniform::CUSTOMER.draw(&mut random, 1, 3_000) as usize] += 1;
        }
        assert_eq!(counts[0], 0);
        // The coldest customers need ten low bits of 0: (1/4)^10, not once in these draws.
        let drawn = counts.iter().filter(|count| **count > 0).count();
        assert!((2_500..3_000).contains(&drawn), "{drawn}");
        // All ten low bits are set with a chance of (3/4)^10 = 5.6 %, a third of it in the hottest.
        let hottest = *counts.iter().max().unwrap();
        assert!((5_000..6_500).contains(&hottest), "{hottest}");
    }

    #[test]
    fn texts_have_their_lengths() {
        let mut random = Stream::new(1, Purpose::Test, 0);
        let mut originals = 0;
        for _ in 0..1_000 {
            let mut text = [0xff; 50];
            data(&mut random, 26, &mut text);
            let len = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
            assert!(len >= 26);
            assert!(text[len..].iter().all(|byte| *byte == 0));
            originals += u32::from(text.windows(8).any(|word| word == b"ORIGINAL"));
        }
        assert!((60..140).contains(&originals), "{originals}");
    }
}
