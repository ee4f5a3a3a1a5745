//! Units as types: time, size and rate. A bare integer is a count.

use std::fmt;
use std::ops::{Add, AddAssign, Div, Mul, Sub};

use serde::{Deserialize, Serialize};

/// Time in whole nanoseconds: an instant since the world's start, or a span.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The start of the world, or no time at all.
    pub const ZERO: Self = Self(0);
    /// Later than anything: "never".
    pub const MAX: Self = Self(u64::MAX);

    /// A span of whole microseconds.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros * 1_000)
    }

    /// A span of whole milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000_000)
    }

    /// A span of whole seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs * 1_000_000_000)
    }

    /// The span from `earlier` to `self`, zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// The sum, or [`Nanos::MAX`].
    pub const fn saturating_add(self, span: Self) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// Seconds as a float, for reports only: no simulated decision may use it.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Microseconds as a float, for reports only.
    pub fn as_micros_f64(self) -> f64 {
        self.0 as f64 / 1e3
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sub for Nanos {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl Mul<u64> for Nanos {
    type Output = Self;
    fn mul(self, count: u64) -> Self {
        Self(self.0 * count)
    }
}

impl Div<u64> for Nanos {
    type Output = Self;
    fn div(self, count: u64) -> Self {
        Self(self.0 / count)
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0..1_000 => write!(f, "{} ns", self.0),
            1_000..1_000_000 => write!(f, "{:.3} us", self.0 as f64 / 1e3),
            1_000_000..1_000_000_000 => write!(f, "{:.3} ms", self.0 as f64 / 1e6),
            _ => write!(f, "{:.3} s", self.0 as f64 / 1e9),
        }
    }
}

/// Time in picoseconds: what a resource's occupancy is summed in, so that a byte on a 100 Gbps
/// link (80 ps) is not rounded away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Picos(pub u64);

impl Picos {
    /// The same span from nanoseconds.
    pub const fn from_nanos(nanos: Nanos) -> Self {
        Self(nanos.0 * 1_000)
    }

    /// Whole nanoseconds, rounded up: an event never happens before its cause is finished.
    pub const fn to_nanos_up(self) -> Nanos {
        Nanos(self.0.div_ceil(1_000))
    }
}

impl Add for Picos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Picos {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Mul<u64> for Picos {
    type Output = Self;
    fn mul(self, count: u64) -> Self {
        Self(self.0 * count)
    }
}

/// A size or an offset in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

impl Add for Bytes {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

/// A rate in bits per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BitsPerSec(pub u64);

impl BitsPerSec {
    /// A rate of whole gigabits per second (10^9).
    pub const fn from_gbps(gbps: u64) -> Self {
        Self(gbps * 1_000_000_000)
    }

    /// The time that `size` occupies the link, rounded up to a picosecond.
    pub const fn occupancy(self, size: Bytes) -> Picos {
        let pico_bits = size.0 as u128 * 8 * 1_000_000_000_000;
        Picos(pico_bits.div_ceil(self.0 as u128) as u64)
    }

    /// The time that `size` occupies the link, rounded up to a nanosecond.
    pub const fn transfer_time(self, size: Bytes) -> Nanos {
        self.occupancy(size).to_nanos_up()
    }
}

const _: () = assert!(BitsPerSec::from_gbps(25).transfer_time(Bytes(1_500)).0 == 480);
const _: () = assert!(BitsPerSec::from_gbps(100).occupancy(Bytes(1)).0 == 80);
