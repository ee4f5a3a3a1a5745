//! Where the keys of a command stand.

use std::iter::StepBy;
use std::ops::RangeInclusive;

/// First key, last key (-1: the last argument), step; zeros without keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyPlaces {
    pub first: i64,
    pub last: i64,
    pub step: i64,
}

impl KeyPlaces {
    pub const NONE: Self = Self { first: 0, last: 0, step: 0 };
    pub const ONE: Self = Self { first: 1, last: 1, step: 1 };
    pub const ALL: Self = Self { first: 1, last: -1, step: 1 };

    /// The places of the keys in a command of `len` arguments, the name included.
    pub fn of(self, len: usize) -> StepBy<RangeInclusive<usize>> {
        let Self { first, last, step } = self;
        let last = if last < 0 { len as i64 + last } else { last.min(len as i64 - 1) };
        // Without keys the range is empty.
        (first.max(1) as usize..=last.max(0) as usize).step_by(step.max(1) as usize)
    }

    /// The number of keys in a command of `len` arguments, which must have its arity.
    pub fn count(self, len: usize) -> usize {
        match self {
            Self { first: 1, last: -1, step } => (len - 1).div_ceil(step as usize),
            Self { first, last, .. } if first > 0 => (last - first + 1) as usize,
            _ => 0,
        }
    }

    /// Whether the argument at `place` is a key.
    pub fn has(self, place: usize) -> bool {
        let (Self { first, last, step }, place) = (self, place as i64);
        first > 0
            && place >= first
            && (last < 0 || place <= last)
            && (step == 1 || (place - first) % step == 0)
    }
}
