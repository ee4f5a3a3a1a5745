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
}
