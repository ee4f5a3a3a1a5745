//! Where the keys of a command stand.

use std::ops::Range;

use super::number::parse_i64;

/// First key, last key (-1: the last argument), step; zeros without keys. Further keys may follow
/// their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyPlaces {
    pub first: i64,
    pub last: i64,
    pub step: i64,
    /// The place of the number of further keys, which stand behind it; 0: there are none.
    pub counted: usize,
    /// The keys are the first half of what stands behind the word STREAMS.
    pub streams: bool,
}

impl KeyPlaces {
    pub const NONE: Self = Self { first: 0, last: 0, step: 0, counted: 0, streams: false };
    pub const ONE: Self = Self { first: 1, last: 1, step: 1, ..Self::NONE };
    pub const TWO: Self = Self { last: 2, ..Self::ONE };
    pub const ALL: Self = Self { last: -1, ..Self::ONE };
    pub const PAIRS: Self = Self { step: 2, ..Self::ALL };
    /// Those of XREAD and XREADGROUP.
    pub const STREAMS: Self = Self { streams: true, ..Self::NONE };

    /// Keys behind their number, which stands at `place`.
    pub const fn counted(place: usize) -> Self {
        Self { counted: place, ..Self::NONE }
    }

    /// The same, and further keys behind their number, which stands at `place`.
    pub const fn and_counted(self, place: usize) -> Self {
        Self { counted: place, ..self }
    }

    /// The places of the keys in a command of `len` arguments, the name included. A number of keys
    /// that is wrong counts as 0: the command answers what is wrong with it.
    pub fn of<'a>(self, len: usize, arg: impl Fn(usize) -> &'a [u8]) -> Places {
        let Self { first, last, step, counted, streams } = self;
        if streams {
            return Places { fixed: behind_streams(len, arg), step: 1, counted: 0..0 };
        }
        let last = if last < 0 { len as i64 + last } else { last.min(len as i64 - 1) };
        let fixed = match first {
            0 => 0..0,
            first => first as usize..(last + 1).max(first) as usize,
        };
        let number = if counted == 0 { None } else { parse_i64(arg(counted)) };
        let behind = |number: usize| counted + 1..counted + 1 + number;
        let number = number.and_then(|number| usize::try_from(number).ok());
        let counted = number.filter(|number| *number < len.saturating_sub(counted)).map(behind);
        Places { fixed, step: step.max(1) as usize, counted: counted.unwrap_or(0..0) }
    }

    /// At least the number of keys in a command of `len` arguments, which must have its arity.
    pub fn count(self, len: usize) -> usize {
        match self {
            Self { counted: 1.., .. } | Self { streams: true, .. } => len,
            Self { first: 1, last: -1, step, .. } => (len - 1).div_ceil(step as usize),
            Self { first, last: ..0, .. } if first > 0 => len,
            Self { first, last, .. } if first > 0 => (last - first + 1) as usize,
            _ => 0,
        }
    }
}

/// The places of the first half of the arguments behind STREAMS; none if an option before it is
/// wrong: the command answers what is.
fn behind_streams<'a>(len: usize, arg: impl Fn(usize) -> &'a [u8]) -> Range<usize> {
    let mut at = 1;
    while at < len {
        at += match arg(at).to_ascii_lowercase().as_slice() {
            b"streams" => {
                let behind = len - at - 1;
                let keys = if behind.is_multiple_of(2) { behind / 2 } else { 0 };
                return at + 1..at + 1 + keys;
            }
            b"block" | b"count" => 2,
            b"group" => 3,
            b"noack" => 1,
            _ => break,
        };
    }
    0..0
}

/// The places of the keys of one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    fixed: Range<usize>,
    step: usize,
    counted: Range<usize>,
}

impl Places {
    /// Whether the argument at `place` is a key.
    pub fn has(&self, place: usize) -> bool {
        self.counted.contains(&place)
            || self.fixed.contains(&place) && (place - self.fixed.start).is_multiple_of(self.step)
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + use<> {
        self.fixed.clone().step_by(self.step).chain(self.counted.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stand_where_the_table_and_their_number_say() {
        let places = |keys: KeyPlaces, words: &[&'static str]| -> Vec<usize> {
            let places = keys.of(words.len(), |place| words[place].as_bytes());
            let all = places.iter().collect();
            assert_eq!(all, (0..words.len() + 2).filter(|at| places.has(*at)).collect::<Vec<_>>());
            all
        };
        assert_eq!(places(KeyPlaces::PAIRS, &["mset", "a", "1", "b", "2"]), [1, 3]);
        assert_eq!(places(KeyPlaces::ALL, &["del", "a", "b"]), [1, 2]);
        let stored = KeyPlaces::ONE.and_counted(2);
        assert_eq!(places(stored, &["zunionstore", "d", "2", "a", "b", "weights"]), [1, 3, 4]);
        for wrong in ["3", "-1", "x", "0"] {
            assert_eq!(places(stored, &["zunionstore", "d", wrong, "a", "b"]), [1], "{wrong}");
        }
        assert_eq!(places(KeyPlaces::counted(1), &["lmpop", "1", "a", "left"]), [2]);
        assert_eq!(places(KeyPlaces::NONE, &["ping", "a"]), [0; 0]);
        let read = &["xread", "count", "streams", "streams", "a", "b", "0", "0"];
        assert_eq!(places(KeyPlaces::STREAMS, read), [4, 5]);
        for wrong in [&["xread", "x", "streams", "a", "0"][..], &["xread", "streams", "a"]] {
            assert_eq!(places(KeyPlaces::STREAMS, wrong), [0; 0]);
        }
    }
}
