//! Binary fractions of 64 bits, as INCRBYFLOAT of Redis computes with them on x86: the extended
//! format of the 8087, rounded to nearest, ties to even. Its sums and texts are exactly those.

use std::cmp::Ordering;

/// A finite number: `mantissa` times two to the `exponent`. The mantissa has its highest bit set,
/// but for numbers below the least exponent and for zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongDouble {
    is_negative: bool,
    mantissa: u64,
    exponent: i32,
}

/// The exponents of the lowest bit of a mantissa.
const LEAST: i32 = -16_445;
const MOST: i32 = 16_383 - 63;
/// Redis reads no longer texts.
const TEXT_MAX: usize = 5 * 1_024 - 1;
/// Places that are written.
const PLACES: u32 = 17;
/// Decimal exponents beyond which a number is certainly infinite, or zero.
const DECIMAL_MAX: i64 = 5_000;

/// Why a text is not a [`LongDouble`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotFinite {
    /// It is no number, or too large or too small for one.
    Malformed,
    /// It says so.
    Infinite,
}

impl LongDouble {
    pub const ZERO: Self = Self { is_negative: false, mantissa: 0, exponent: LEAST };

    /// Reads digits with a point and an exponent, both optional, or an infinity.
    ///
    /// Cost: proportional to the square of the digits and of the exponent, of which there are 5,000
    /// at most.
    pub fn parse(text: &[u8]) -> Result<Self, NotFinite> {
        let (is_negative, digits) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        if [&b"inf"[..], b"infinity"].iter().any(|word| digits.eq_ignore_ascii_case(word)) {
            return Err(NotFinite::Infinite);
        }
        if text.len() > TEXT_MAX {
            return Err(NotFinite::Malformed);
        }
        let (digits, exponent) = decimal(digits).ok_or(NotFinite::Malformed)?;
        let magnitude = Big::of_digits(&digits);
        if magnitude.is_zero() {
            return Ok(Self { is_negative, ..Self::ZERO });
        }
        // The place of the first digit says whether the rest matters.
        let first = exponent + digits.len() as i64;
        if !(-DECIMAL_MAX..=DECIMAL_MAX).contains(&first) {
            return Err(NotFinite::Malformed);
        }
        let power = Big::power_of_ten(exponent.unsigned_abs() as u32);
        let number = match exponent >= 0 {
            true => magnitude.times(&power).rounded(),
            false => magnitude.divided(&power),
        };
        let number = number.filter(|number| number.mantissa != 0).ok_or(NotFinite::Malformed)?;
        Ok(Self { is_negative, ..number })
    }

    /// The sum, if it is finite.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        /// Bits below a mantissa that a sum keeps before it is rounded.
        const BELOW: u32 = 62;
        let larger = self.exponent > other.exponent
            || self.exponent == other.exponent && self.mantissa >= other.mantissa;
        let (high, low) = if larger { (self, other) } else { (other, self) };
        if low.mantissa == 0 || high.mantissa == 0 {
            return Some(match (self.mantissa, other.mantissa) {
                (0, 0) => Self { is_negative: self.is_negative && other.is_negative, ..self },
                (0, _) => other,
                _ => self,
            });
        }
        let apart = high.exponent.abs_diff(low.exponent);
        let wide = u128::from(high.mantissa) << BELOW;
        let narrow = u128::from(low.mantissa) << BELOW;
        let narrow = match apart {
            0..128 => narrow >> apart | u128::from(narrow << (127 - apart) << 1 != 0),
            _ => 1,
        };
        let (is_negative, sum) = match (high.is_negative == low.is_negative, wide.cmp(&narrow)) {
            (true, _) => (high.is_negative, wide + narrow),
            (false, Ordering::Less) => (low.is_negative, narrow - wide),
            (false, Ordering::Equal) => return Some(Self::ZERO),
            (false, Ordering::Greater) => (high.is_negative, wide - narrow),
        };
        let sum = Self::round(sum, false, high.exponent - BELOW as i32)?;
        Some(Self { is_negative, ..sum })
    }

    /// The number next to `bits` times two to the `exponent`, and to a little more if `more`.
    /// `None`: it is infinite.
    fn round(bits: u128, more: bool, exponent: i32) -> Option<Self> {
        let len = (u128::BITS - bits.leading_zeros()) as i32;
        let shift = (len - u64::BITS as i32).max(LEAST - exponent);
        let (mantissa, exponent) = match shift {
            ..=0 => (bits << -shift, exponent + shift),
            1..128 => {
                let (kept, half) = (bits >> shift, 1 << (shift - 1));
                let rest = bits & ((half << 1) - 1);
                let up = rest > half || rest == half && (more || kept & 1 == 1);
                (kept + u128::from(up), exponent + shift)
            }
            _ => (0, LEAST),
        };
        let (mantissa, exponent) = match mantissa >> u64::BITS {
            0 => (mantissa as u64, exponent),
            _ => ((mantissa >> 1) as u64, exponent + 1),
        };
        (exponent <= MOST).then_some(Self { is_negative: false, mantissa, exponent })
    }
}

/// With 17 places, rounded, without zeros at the end.
impl std::fmt::Display for LongDouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let one = 10_u128.pow(PLACES);
        if self.exponent >= 0 {
            let sign = if self.is_negative { "-" } else { "" };
            let whole = Big::of(self.mantissa).shifted(self.exponent as usize);
            return write!(f, "{sign}{}", whole.decimal());
        }
        let (units, shift) = (u128::from(self.mantissa) * one, self.exponent.unsigned_abs());
        let units = match shift {
            1..128 => {
                let (kept, half) = (units >> shift, 1 << (shift - 1));
                let rest = units & ((half << 1) - 1);
                kept + u128::from(rest > half || rest == half && kept & 1 == 1)
            }
            _ => 0,
        };
        let sign = if self.is_negative { "-" } else { "" };
        let (whole, fraction) = (units / one, format!("{:017}", units % one));
        match fraction.trim_end_matches('0') {
            // Redis writes no sign before a zero.
            "" if whole == 0 => f.write_str("0"),
            "" => write!(f, "{sign}{whole}"),
            places => write!(f, "{sign}{whole}.{places}"),
        }
    }
}

/// The digits of a number without zeros before them, and the exponent of ten of the last one.
fn decimal(text: &[u8]) -> Option<(Vec<u8>, i64)> {
    let at = text.iter().position(|byte| matches!(byte, b'e' | b'E'));
    let (mantissa, exponent) = match at {
        Some(at) => (&text[..at], exponent(&text[at + 1..])?),
        None => (text, 0),
    };
    let point = mantissa.iter().position(|byte| *byte == b'.');
    let (whole, fraction) = match point {
        Some(point) => (&mantissa[..point], &mantissa[point + 1..]),
        None => (mantissa, &[][..]),
    };
    let mut digits = [whole, fraction].concat();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    digits.drain(..zeros);
    Some((digits, exponent - fraction.len() as i64))
}

/// An exponent; one beyond all numbers is as good as any other such.
fn exponent(text: &[u8]) -> Option<i64> {
    const BEYOND: i64 = 1_000_000;
    let (sign, digits) = match text {
        [b'-', rest @ ..] => (-1, rest),
        [b'+', rest @ ..] => (1, rest),
        rest => (1, rest),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |sum: i64, digit: &u8| (sum * 10 + i64::from(digit - b'0')).min(BEYOND);
    Some(sign * digits.iter().fold(0, add))
}

/// A whole number of any size: limbs of 32 bits, the lowest first, none of them zeros at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Big(Vec<u32>);

impl Big {
    fn of(number: u64) -> Self {
        Self(vec![number as u32, (number >> 32) as u32]).trimmed()
    }

    fn of_digits(digits: &[u8]) -> Self {
        let mut all = Self(Vec::new());
        digits.iter().for_each(|digit| all.scale(10, u32::from(digit - b'0')));
        all
    }

    fn power_of_ten(exponent: u32) -> Self {
        let mut power = Self(vec![1]);
        (0..exponent).for_each(|_| power.scale(10, 0));
        power
    }

    fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    fn trimmed(mut self) -> Self {
        while self.0.pop_if(|limb| *limb == 0).is_some() {}
        self
    }

    /// Multiplies it and adds.
    fn scale(&mut self, factor: u32, add: u32) {
        let mut carry = u64::from(add);
        for limb in &mut self.0 {
            carry += u64::from(*limb) * u64::from(factor);
            *limb = carry as u32;
            carry >>= 32;
        }
        if carry > 0 {
            self.0.push(carry as u32);
        }
    }

    /// Divides it; the rest.
    fn reduce(&mut self, divisor: u32) -> u32 {
        let mut rest = 0;
        for limb in self.0.iter_mut().rev() {
            let part = u64::from(rest) << 32 | u64::from(*limb);
            *limb = (part / u64::from(divisor)) as u32;
            rest = (part % u64::from(divisor)) as u32;
        }
        while self.0.pop_if(|limb| *limb == 0).is_some() {}
        rest
    }

    fn times(&self, other: &Self) -> Self {
        let mut product = vec![0_u32; self.0.len() + other.0.len()];
        for (at, limb) in self.0.iter().enumerate() {
            let mut carry = 0;
            for (place, factor) in other.0.iter().enumerate() {
                carry += u64::from(*limb) * u64::from(*factor) + u64::from(product[at + place]);
                product[at + place] = carry as u32;
                carry >>= 32;
            }
            product[at + other.0.len()] = carry as u32;
        }
        Self(product).trimmed()
    }

    fn shifted(&self, bits: usize) -> Self {
        let (limbs, bits) = (bits / 32, bits % 32);
        let mut all = vec![0; limbs];
        all.extend_from_slice(&self.0);
        let mut shifted = Self(all);
        shifted.scale(1 << bits, 0);
        shifted
    }

    /// How many bits it has.
    fn bits(&self) -> usize {
        self.0.last().map_or(0, |limb| 32 * self.0.len() - limb.leading_zeros() as usize)
    }

    fn bit(&self, place: usize) -> bool {
        self.0.get(place / 32).is_some_and(|limb| limb >> (place % 32) & 1 == 1)
    }

    fn is_at_least(&self, other: &Self) -> bool {
        match self.0.len().cmp(&other.0.len()) {
            Ordering::Equal => self.0.iter().rev().cmp(other.0.iter().rev()) != Ordering::Less,
            longer => longer == Ordering::Greater,
        }
    }

    /// Takes `other`, which is no more, away.
    fn take(&mut self, other: &Self) {
        let mut borrow = 0;
        for (place, limb) in self.0.iter_mut().enumerate() {
            let less = i64::from(other.0.get(place).copied().unwrap_or(0)) + borrow;
            let left = i64::from(*limb) - less;
            *limb = left as u32;
            borrow = i64::from(left < 0);
        }
        while self.0.pop_if(|limb| *limb == 0).is_some() {}
    }

    /// The number next to it.
    fn rounded(&self) -> Option<LongDouble> {
        let cut = self.bits().saturating_sub(100);
        let kept = (cut..self.bits()).rev().fold(0, |all, at| all << 1 | u128::from(self.bit(at)));
        let more = (0..cut).any(|at| self.bit(at));
        LongDouble::round(kept, more, cut as i32)
    }

    /// The number next to its quotient.
    fn divided(&self, divisor: &Self) -> Option<LongDouble> {
        /// Bits of the quotient, or one more: what is behind them is more than nothing, or nothing.
        const QUOTIENT: i64 = 100;
        let shift = QUOTIENT + divisor.bits() as i64 - self.bits() as i64;
        let (mut rest, divisor) = match shift >= 0 {
            true => (self.shifted(shift as usize), divisor.clone()),
            false => (self.clone(), divisor.shifted(shift.unsigned_abs() as usize)),
        };
        let mut quotient = 0_u128;
        for place in (0..=QUOTIENT as usize).rev() {
            let part = divisor.shifted(place);
            quotient <<= 1;
            if rest.is_at_least(&part) {
                rest.take(&part);
                quotient |= 1;
            }
        }
        LongDouble::round(quotient, !rest.is_zero(), -shift as i32)
    }

    fn decimal(mut self) -> String {
        let mut parts = Vec::new();
        while !self.is_zero() {
            parts.push(self.reduce(1_000_000_000));
        }
        let last = parts.pop().unwrap_or(0).to_string();
        parts.iter().rev().fold(last, |text, part| format!("{text}{part:09}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(one: &str, other: &str) -> String {
        let [one, other] = [one, other].map(|text| LongDouble::parse(text.as_bytes()).unwrap());
        one.checked_add(other).map_or("inf".into(), |sum| sum.to_string())
    }

    #[test]
    fn sums_are_those_of_the_8087() {
        // As redis-server 7.0.15 on x86-64 answers.
        let sums = [
            ("10.50", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("0.1", "0.2", "0.3"),
            ("1.5", "-3", "-1.5"),
            (".5", "5.", "5.5"),
            ("1e-18", "0", "0"),
            ("1e20", "0.1", "100000000000000000000"),
            ("18446744073709551615", "1", "18446744073709551616"),
            ("18446744073709551616", "1", "18446744073709551616"),
            ("18446744073709551616", "3", "18446744073709551620"),
        ];
        for (one, other, expected) in sums {
            assert_eq!(sum(one, other), expected, "{one} + {other}");
            assert_eq!(sum(other, one), expected, "{other} + {one}");
        }
    }

    #[test]
    fn what_is_no_finite_number_is_told_apart() {
        let bad =
            ["", "-", ".", "e5", "1e", " 1", "1 ", "abc", "1.2.3", "nan", "1e5000", "1e-5000"];
        for text in bad {
            assert_eq!(LongDouble::parse(text.as_bytes()), Err(NotFinite::Malformed), "{text}");
        }
        for text in ["inf", "-Infinity", "+INF"] {
            assert_eq!(LongDouble::parse(text.as_bytes()), Err(NotFinite::Infinite), "{text}");
        }
        assert_eq!(sum("1.18e4932", "1.18e4932"), "inf");
        assert!(LongDouble::parse(&[b'9'; TEXT_MAX + 1]).is_err());
        assert!(LongDouble::parse(b"1.2e4932").is_err());
        assert!(LongDouble::parse(b"1.1e4932").is_ok());
        assert!(LongDouble::parse(b"1e-4950").is_ok(), "a number below the least exponent");
    }
}
