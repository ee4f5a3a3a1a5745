//! Floating point numbers as Redis reads and prints them.

/// Redis' error for an argument that is no floating point number.
pub const NOT_A_FLOAT: &[u8] = b"ERR value is not a valid float";

/// Reads a number. `None`: it is none, or none that a double holds.
pub fn parse_double(text: &[u8]) -> Option<f64> {
    let number: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    let named = text.iter().any(|byte| matches!(byte, b'i' | b'I'));
    let digits = || text.iter().take_while(|byte| !matches!(byte, b'e' | b'E'));
    let vanished = number == 0.0 && digits().any(|byte| matches!(byte, b'1'..=b'9'));
    (!number.is_nan() && (number.is_finite() || named) && !vanished).then_some(number)
}

/// Reads the bound of a range of scores as C does: spaces before it and an empty one, which is 0,
/// are taken, but not spaces alone, and one that no double holds is infinite.
pub fn parse_bound(text: &[u8]) -> Option<f64> {
    let given = text;
    let text = given.trim_ascii_start();
    if given.is_empty() {
        return Some(0.0);
    }
    let number: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (!number.is_nan()).then_some(number)
}

/// Digits that tell every double apart from all others.
const DIGITS: usize = 17;

/// Prints a number with 17 digits and without zeros at the end, as `%.17g` does in C.
pub fn format_double(number: f64) -> String {
    format_digits(number, DIGITS)
}

/// As [`format_double`], with at most so many digits, at least one.
pub fn format_digits(number: f64, digits: usize) -> String {
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let text = format!("{number:.*e}", digits - 1);
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..digits as i32).contains(&exponent) {
        let places = (digits as i32 - 1 - exponent) as usize;
        return without_zeros(&format!("{number:.places$}")).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", without_zeros(mantissa), exponent.abs())
}

fn without_zeros(text: &str) -> &str {
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_are_printed_as_in_c() {
        let cases = [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-2.5, "-2.5"),
            (0.1, "0.10000000000000001"),
            (3.3, "3.2999999999999998"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (1.5e300, "1.5000000000000001e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1.0000000000000001e-05"),
            (123_456_789.123, "123456789.123"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (number, text) in cases {
            assert_eq!(format_double(number), text);
        }
    }

    #[test]
    fn doubles_are_read_as_redis_reads_them() {
        for text in ["1", "-1.5", "+2", ".5", "5.", "1e3", "inf", "-Infinity", "0e-999"] {
            assert!(parse_double(text.as_bytes()).is_some(), "{text}");
        }
        for text in ["", " 1", "1 ", "x", "nan", "1e400", "1e-400", "1.2.3", "--1"] {
            assert_eq!(parse_double(text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse_bound(b""), Some(0.0));
        assert_eq!(parse_bound(b" 1"), Some(1.0));
        assert_eq!(parse_bound(b"1e400"), Some(f64::INFINITY));
        assert_eq!(parse_bound(b"nan"), None);
        assert_eq!(parse_bound(b"1x"), None);
    }
}
