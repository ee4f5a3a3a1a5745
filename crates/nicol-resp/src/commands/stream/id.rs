//! The ids of a stream's entries: a time in milliseconds and a number within it.

use crate::commands::number::push_i64;
use crate::connection::encode::Reply;

/// The error of what is no id.
pub const INVALID: &[u8] = b"ERR Invalid stream ID specified as stream command argument";

/// The id of an entry. They are ordered by time, and then by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    pub ms: u64,
    pub seq: u64,
}

impl Id {
    /// Bytes of an id in a value.
    pub const LEN: usize = 16;
    pub const ZERO: Self = Self { ms: 0, seq: 0 };
    pub const MAX: Self = Self { ms: u64::MAX, seq: u64::MAX };

    /// The next one; `None` behind the last.
    pub fn next(self) -> Option<Self> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(Self { seq, ..self }),
            None => Some(Self { ms: self.ms.checked_add(1)?, seq: 0 }),
        }
    }

    /// The one before; `None` before the first.
    fn previous(self) -> Option<Self> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(Self { seq, ..self }),
            None => Some(Self { ms: self.ms.checked_sub(1)?, seq: u64::MAX }),
        }
    }

    /// As it stands in a value and in Redis' files: big-endian, so that bytes are ordered as ids.
    pub fn bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&self.ms.to_be_bytes());
        bytes[8..].copy_from_slice(&self.seq.to_be_bytes());
        bytes
    }

    /// The reverse of [`Id::bytes`].
    pub fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        let number = u128::from_be_bytes(bytes);
        Self { ms: (number >> 64) as u64, seq: number as u64 }
    }

    /// Reads an id; without a number it has `missing`. Errors: [`INVALID`].
    pub fn parse(text: &[u8], missing: u64) -> Result<Self, &'static [u8]> {
        match AddId::parse(text, missing) {
            Ok(AddId::Whole(id)) => Ok(id),
            _ => Err(INVALID),
        }
    }

    /// Reads an id, or `-` and `+` for the ends. Errors: [`INVALID`].
    pub fn parse_any(text: &[u8], missing: u64) -> Result<Self, &'static [u8]> {
        match text {
            b"-" => Ok(Self::ZERO),
            b"+" => Ok(Self::MAX),
            text => Self::parse(text, missing),
        }
    }

    /// Answers it.
    pub fn answer(self, reply: &mut Reply<'_>) {
        reply.bulk(&self.text());
    }

    /// As clients write it.
    pub fn text(self) -> Vec<u8> {
        let mut text = Vec::with_capacity(24);
        push_u64(&mut text, self.ms);
        text.push(b'-');
        push_u64(&mut text, self.seq);
        text
    }
}

/// Reads the first id of a range, which `(` excludes. Errors: the text that a command answers.
pub fn parse_first(text: &[u8]) -> Result<Id, &'static [u8]> {
    match text {
        [b'(', rest @ ..] if !rest.is_empty() => {
            Id::parse(rest, 0)?.next().ok_or(b"ERR invalid start ID for the interval")
        }
        text => Id::parse_any(text, 0),
    }
}

/// Reads the last id of a range, which `(` excludes. Errors: the text that a command answers.
pub fn parse_last(text: &[u8]) -> Result<Id, &'static [u8]> {
    match text {
        [b'(', rest @ ..] if !rest.is_empty() => {
            Id::parse(rest, u64::MAX)?.previous().ok_or(b"ERR invalid end ID for the interval")
        }
        text => Id::parse_any(text, u64::MAX),
    }
}

/// The id that a new entry is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddId {
    /// `*`: the time of the transaction.
    Now,
    /// `ms-*`: the next number at a time.
    At(u64),
    Whole(Id),
}

impl AddId {
    /// Reads an id of which the number may be a `*`; without one it is `missing`. Errors:
    /// [`INVALID`].
    pub fn parse(text: &[u8], missing: u64) -> Result<Self, &'static [u8]> {
        // As Redis, whose buffer is as long.
        let text = if text.len() > 127 { return Err(INVALID) } else { text };
        let dash = text.iter().position(|byte| *byte == b'-');
        let (ms, seq) = text.split_at(dash.unwrap_or(text.len()));
        let ms = parse_u64(ms).ok_or(INVALID)?;
        match seq {
            [] => Ok(Self::Whole(Id { ms, seq: missing })),
            b"-*" => Ok(Self::At(ms)),
            seq => {
                let seq = parse_u64(&seq[1..]).ok_or(INVALID)?;
                Ok(Self::Whole(Id { ms, seq }))
            }
        }
    }
}

/// Reads a number as Redis does: one that is not in the shortest form is read as C does, spaces
/// and a sign before it included.
fn parse_u64(text: &[u8]) -> Option<u64> {
    if let Some(number) = crate::commands::number::parse_i64(text) {
        return u64::try_from(number).ok();
    }
    let is_space = |byte: &&u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let text = &text[text.iter().take_while(is_space).count()..];
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let number = digits.iter().try_fold(0_u64, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })?;
    Some(if negative { number.wrapping_neg() } else { number })
}

/// Appends `number` in decimal.
fn push_u64(out: &mut Vec<u8>, number: u64) {
    match i64::try_from(number) {
        Ok(number) => push_i64(out, number),
        Err(_) => out.extend_from_slice(number.to_string().as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_redis_reads_them() {
        let id = |ms, seq| Ok(Id { ms, seq });
        assert_eq!(Id::parse(b"5", 7), id(5, 7));
        assert_eq!(Id::parse(b"5-3", 7), id(5, 3));
        assert_eq!(Id::parse(b"01- +2", 7), id(1, 2));
        assert_eq!(Id::parse(b"18446744073709551615-0", 7), id(u64::MAX, 0));
        assert_eq!(AddId::parse(b"5-*", 0), Ok(AddId::At(5)));
        for text in [&b""[..], b"-", b"+", b"5-*", b"x", b"5-", b"5--1", b"18446744073709551616"] {
            assert_eq!(Id::parse(text, 0), Err(INVALID), "{}", String::from_utf8_lossy(text));
        }
        assert_eq!(parse_first(b"(5-3"), id(5, 4));
        assert_eq!(parse_last(b"(5-0"), id(4, u64::MAX));
        assert_eq!(parse_last(b"5"), id(5, u64::MAX));
        assert_eq!((parse_first(b"-"), parse_last(b"+")), (Ok(Id::ZERO), Ok(Id::MAX)));
        assert!(parse_last(b"(0-0").is_err() && parse_first(b"(-").is_err());
        assert!(parse_first(&[b"(", &Id::MAX.text()[..]].concat()).is_err());
        let all = [Id::ZERO, Id { ms: 1, seq: u64::MAX }, Id::MAX];
        assert!(all.iter().all(|id| Id::from_bytes(id.bytes()) == *id));
    }
}
