//! Numbers as Redis reads and writes them.

use crate::transactions::record::Database;

/// Redis' error for a value or an argument that is not an integer of 64 bits.
pub const NOT_AN_INTEGER: &[u8] = b"ERR value is not an integer or out of range";

/// Reads a signed decimal number exactly as Redis does: no plus sign, no spaces, no leading
/// zeros, no minus zero.
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut magnitude: u64 = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        // 19 digits stay below 10^19, which is below 2^64.
        magnitude = magnitude * 10 + u64::from(digit - b'0');
    }
    match negative {
        true if magnitude <= i64::MIN.unsigned_abs() => Some((magnitude as i64).wrapping_neg()),
        false => i64::try_from(magnitude).ok(),
        true => None,
    }
}

/// Reads the number of a database. Errors: the text that the command answers.
pub fn database(text: &[u8]) -> Result<Database, &'static [u8]> {
    let number = parse_i64(text).ok_or(NOT_AN_INTEGER)?;
    if i32::try_from(number).is_err() {
        return Err(b"ERR value is out of range, value must between -2147483648 and 2147483647");
    }
    Database::new(number).ok_or(b"ERR DB index is out of range")
}

/// Appends `number` in decimal.
pub fn push_i64(out: &mut Vec<u8>, number: i64) {
    // 19 digits of the largest magnitude, and the sign.
    let mut text = [0; 20];
    let mut at = text.len();
    let mut rest = number.unsigned_abs();
    loop {
        at -= 1;
        text[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        at -= 1;
        text[at] = b'-';
    }
    out.extend_from_slice(&text[at..]);
}

/// A decimal number with 17 places, as INCRBYFLOAT prints them: exact, unlike a binary fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decimal(i128);

/// Places of a [`Decimal`].
const PLACES: i32 = 17;
/// One in units of its last place.
const ONE: i128 = 10_i128.pow(PLACES as u32);
/// Numbers are below this in magnitude.
const BOUND: i128 = ONE * 10_i128.pow(20);

/// Why a text is not read as a [`Decimal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotADecimal {
    /// It is no number.
    Malformed,
    /// It is a number as large as no decimal, or infinite.
    TooLarge,
}

impl Decimal {
    pub const ZERO: Self = Self(0);

    /// Reads digits with a point and an exponent, both optional. Places beyond the last are
    /// dropped.
    pub fn parse(text: &[u8]) -> Result<Self, NotADecimal> {
        use NotADecimal::{Malformed, TooLarge};
        let (negative, text) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        if [&b"inf"[..], b"infinity"].iter().any(|word| text.eq_ignore_ascii_case(word)) {
            return Err(TooLarge);
        }
        let at = text.iter().position(|byte| matches!(byte, b'e' | b'E'));
        let (mantissa, exponent) = match at {
            Some(at) => (&text[..at], exponent(&text[at + 1..]).ok_or(Malformed)?),
            None => (text, 0),
        };
        let point = mantissa.iter().position(|byte| *byte == b'.').unwrap_or(mantissa.len());
        let (whole, fraction) = mantissa.split_at(point);
        let digits = || whole.iter().chain(fraction.iter().skip(1));
        if digits().count() == 0 {
            return Err(Malformed);
        }
        // The place of the first digit, counted from the last place that is kept.
        let whole = i64::try_from(whole.len()).map_err(|_| TooLarge)?;
        let mut place = whole + i64::from(exponent + PLACES) - 1;
        let mut number = Some(0_i128);
        for digit in digits() {
            if !digit.is_ascii_digit() {
                return Err(Malformed);
            }
            let digit = i128::from(digit - b'0');
            if digit > 0 && place >= 0 {
                let unit = u32::try_from(place).ok().and_then(|place| 10_i128.checked_pow(place));
                let added = unit.and_then(|unit| digit.checked_mul(unit));
                number = number.and_then(|number| number.checked_add(added?));
            }
            place -= 1;
        }
        let number = number.filter(|number| *number < BOUND).ok_or(TooLarge)?;
        Ok(Self(if negative { -number } else { number }))
    }

    /// The sum, if it is not too large.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        let sum = self.0.checked_add(other.0)?;
        (sum.abs() < BOUND).then_some(Self(sum))
    }
}

fn exponent(text: &[u8]) -> Option<i32> {
    let text = std::str::from_utf8(text).ok()?;
    let exponent: i32 = text.parse().ok()?;
    // What Redis' floating point numbers take.
    (-4_951..=4_932).contains(&exponent).then_some(exponent)
}

/// Without zeros at the end.
impl std::fmt::Display for Decimal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let (whole, fraction) = (self.0.abs() / ONE, self.0.abs() % ONE);
        let text = format!("{fraction:017}");
        match text.trim_end_matches('0') {
            "" => write!(f, "{sign}{whole}"),
            places => write!(f, "{sign}{whole}.{places}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_strictly_as_redis_reads_them() {
        for number in [0, 1, -1, 10, i64::MAX, i64::MIN, i64::MAX - 1, i64::MIN + 1] {
            let mut text = Vec::new();
            push_i64(&mut text, number);
            assert_eq!(text, number.to_string().as_bytes());
            assert_eq!(parse_i64(&text), Some(number));
        }
        let bad = ["", "-", "+1", " 1", "1 ", "01", "-0", "00", "1a", "9223372036854775808"];
        for text in bad.iter().chain(&["-9223372036854775809", "99999999999999999999"]) {
            assert_eq!(parse_i64(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn decimals_are_exact() {
        let sums = [
            ("10.50", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("0.1", "0.2", "0.3"),
            ("-1", "1", "0"),
            ("1.5", "-3", "-1.5"),
            (".5", "5.", "5.5"),
            ("1e-17", "+1", "1.00000000000000001"),
            ("1e-18", "0", "0"),
            ("99999999999999999999", "0", "99999999999999999999"),
        ];
        for (one, other, expected) in sums {
            let [one, other] = [one, other].map(|text| Decimal::parse(text.as_bytes()).unwrap());
            assert_eq!(one.checked_add(other).unwrap().to_string(), expected);
        }
        let bad =
            ["", "-", ".", "e5", "1e", "1e5000", " 1", "1 ", "abc", "1.2.3", "nan", "1e-5000"];
        for text in bad.iter().chain(&["1e400x", "1000000000000000000000000000000000000000000x"]) {
            assert_eq!(Decimal::parse(text.as_bytes()), Err(NotADecimal::Malformed), "{text}");
        }
        for text in ["100000000000000000000", "1e20", "1e308", "-1e4931", "inf", "-Infinity"] {
            assert_eq!(Decimal::parse(text.as_bytes()), Err(NotADecimal::TooLarge), "{text}");
        }
        assert_eq!(Decimal::parse(b"1e-4000"), Ok(Decimal::ZERO));
        let most = Decimal::parse(b"99999999999999999999").unwrap();
        assert_eq!(most.checked_add(most), None);
    }
}
