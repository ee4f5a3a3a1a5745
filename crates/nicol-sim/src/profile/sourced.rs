//! One value of a profile: a quantity with its unit, and where it comes from.

use std::fmt;

use nicol_core::units::{BitsPerSec, Bytes, Picos};
use serde::Deserialize;

/// A quantity and its origin.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "RawSourced", bound = "T: Quantity")]
pub struct Sourced<T> {
    pub value: T,
    /// A line of the calibration list, a paper, a data sheet, or `assumed`.
    pub source: String,
    /// Why, where the source does not say it.
    pub reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSourced {
    value: RawValue,
    source: String,
    reason: Option<String>,
}

/// A value as TOML has it.
#[derive(Clone, Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "a value is true, false, a count from 0 on, or a number with its unit in quotes"
)]
pub enum RawValue {
    Flag(bool),
    Count(u64),
    /// A number with its unit, or a word.
    Text(String),
}

impl fmt::Display for RawValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => flag.fmt(f),
            Self::Count(count) => count.fmt(f),
            Self::Text(text) => write!(f, "\"{text}\""),
        }
    }
}

/// The highest count: more than any hardware has of anything, and few enough for a model to hold
/// one of each in memory.
const COUNT_MAX: u64 = 65_536;

/// A type of a profile's values.
pub trait Quantity: Sized {
    /// The form in which it is written, for error messages.
    const SHAPE: &'static str;

    /// Reads it; `None` if it is not written so.
    fn read(raw: &RawValue) -> Option<Self>;
}

impl<T: Quantity> TryFrom<RawSourced> for Sourced<T> {
    type Error = String;

    fn try_from(raw: RawSourced) -> Result<Self, String> {
        let Some(value) = T::read(&raw.value) else {
            return Err(format!("cannot read {}: write {}", raw.value, T::SHAPE));
        };
        if raw.source.trim().is_empty() {
            return Err("no source: name where the value comes from, or \"assumed\"".into());
        }
        let reasoned = raw.reason.as_ref().is_some_and(|reason| !reason.trim().is_empty());
        if raw.source == "assumed" && !reasoned {
            return Err("an assumed value needs its reasoning: add reason = \"...\"".into());
        }
        Ok(Self { value, source: raw.source, reason: raw.reason })
    }
}

impl Quantity for bool {
    const SHAPE: &'static str = "true or false";

    fn read(raw: &RawValue) -> Option<Self> {
        match raw {
            RawValue::Flag(flag) => Some(*flag),
            _ => None,
        }
    }
}

impl Quantity for u64 {
    const SHAPE: &'static str = "a whole number such as 24, of 65536 at most";

    fn read(raw: &RawValue) -> Option<Self> {
        match raw {
            RawValue::Count(count) if *count <= COUNT_MAX => Some(*count),
            _ => None,
        }
    }
}

impl Quantity for Picos {
    const SHAPE: &'static str = "a time with its unit such as \"190ns\", \"1.3us\" or \"80ps\"";

    fn read(raw: &RawValue) -> Option<Self> {
        scaled(raw, &[("ps", 1), ("ns", 1_000), ("us", 1_000_000), ("ms", 1_000_000_000)]).map(Self)
    }
}

impl Quantity for Bytes {
    const SHAPE: &'static str = "a size with its unit such as \"64B\", \"4KiB\" or \"16GB\"";

    fn read(raw: &RawValue) -> Option<Self> {
        scaled(raw, &[("KiB", 1 << 10), ("MiB", 1 << 20), ("GB", 1_000_000_000), ("B", 1)])
            .map(Self)
    }
}

impl Quantity for BitsPerSec {
    const SHAPE: &'static str = "a rate above zero with its unit such as \"100Gbps\"";

    fn read(raw: &RawValue) -> Option<Self> {
        let rate = scaled(raw, &[("Gbps", 1_000_000_000), ("Mbps", 1_000_000)])?;
        (rate > 0).then_some(Self(rate))
    }
}

/// Reads a decimal number with one of `units`; `None` if a fraction of the smallest is left.
fn scaled(raw: &RawValue, units: &[(&str, u64)]) -> Option<u64> {
    let RawValue::Text(text) = raw else { return None };
    let (number, scale) =
        units.iter().find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, *scale)))?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let mut value = whole.parse::<u64>().ok()?.checked_mul(scale)?;
    let mut place = scale;
    for digit in fraction.bytes() {
        if !place.is_multiple_of(10) {
            return None;
        }
        place /= 10;
        value = value.checked_add(u64::from(digit - b'0') * place)?;
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> RawValue {
        RawValue::Text(text.into())
    }

    #[test]
    fn units_are_read_exactly_or_not_at_all() {
        assert_eq!(Picos::read(&text("1.295us")), Some(Picos(1_295_000)));
        assert_eq!(Picos::read(&text("80ps")), Some(Picos(80)));
        assert_eq!(Bytes::read(&text("2KiB")), Some(Bytes(2_048)));
        assert_eq!(BitsPerSec::read(&text("63.015Gbps")), Some(BitsPerSec(63_015_000_000)));
        for bad in ["190", "ns", "-1ns", "1.5ps", "1e3ns", "1.2.3us", "99999999999999999999ns"] {
            assert_eq!(Picos::read(&text(bad)), None, "{bad}");
        }
        assert_eq!(BitsPerSec::read(&text("0Gbps")), None);
        assert_eq!(Picos::read(&RawValue::Count(190)), None);
    }
}
