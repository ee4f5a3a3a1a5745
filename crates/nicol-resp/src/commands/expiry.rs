//! Keys that expire: their options and deadlines.
//!
//! Time is the front's: a transaction carries the time at which it was submitted, so that its
//! commands agree. A key whose deadline has come is absent for every command from then on; its
//! memory is freed when its record is next written, or by the active expiry of the front.

use super::number::{NOT_AN_INTEGER, parse_i64};
use crate::commands::errors::SYNTAX;
use crate::connection::parse::Command;

/// EXPIRE only if the key has no deadline.
pub const IF_NONE: u8 = 1;
/// EXPIRE only if the key has a deadline.
pub const IF_ANY: u8 = 2;
/// EXPIRE only if the new deadline is later.
pub const IF_LATER: u8 = 4;
/// EXPIRE only if the new deadline is earlier.
pub const IF_EARLIER: u8 = 8;

/// What a command makes of its key's deadline. Times are milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    Never,
    /// It stays as it is.
    Keep,
    /// So long after the transaction was submitted.
    In(i64),
    /// At this Unix time.
    At(i64),
}

impl Expiry {
    /// Appends it to an argument.
    pub fn emit(self, out: &mut Vec<u8>) {
        let (tag, time) = match self {
            Self::Never => (0, 0),
            Self::Keep => (1, 0),
            Self::In(span) => (2, span),
            Self::At(deadline) => (3, deadline),
        };
        out.push(tag);
        out.extend_from_slice(&time.to_le_bytes());
    }

    /// Reads what [`Expiry::emit`] wrote, to the end of `bytes`.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (tag, time) = bytes.split_first()?;
        let time = i64::from_le_bytes(time.try_into().ok()?);
        Some(match tag {
            0 => Self::Never,
            1 => Self::Keep,
            2 => Self::In(time),
            3 => Self::At(time),
            _ => return None,
        })
    }

    /// The deadline of a key whose deadline was `current`.
    pub fn deadline(self, now: i64, current: Option<i64>) -> Option<i64> {
        match self {
            Self::Never => None,
            Self::Keep => current,
            Self::In(span) => Some(now.saturating_add(span)),
            Self::At(deadline) => Some(deadline),
        }
    }
}

/// How a command tells a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// In seconds, not milliseconds.
    pub seconds: bool,
    /// As Unix time, not from now on.
    pub absolute: bool,
}

impl Unit {
    /// The unit of an option of SET and GETEX.
    pub fn of_option(option: &[u8]) -> Option<Self> {
        let (seconds, absolute) = match option {
            b"EX" => (true, false),
            b"PX" => (false, false),
            b"EXAT" => (true, true),
            b"PXAT" => (false, true),
            _ => return None,
        };
        Some(Self { seconds, absolute })
    }

    /// Reads a time in this unit. `command`, in lower case, is quoted in errors; only EXPIRE and
    /// its kin may be `past`.
    pub fn read(self, text: &[u8], past: bool, now: i64, command: &str) -> Result<Expiry, Vec<u8>> {
        let time = parse_i64(text).ok_or(NOT_AN_INTEGER)?;
        let scaled = time.checked_mul(if self.seconds { 1_000 } else { 1 });
        let fits = |time: &i64| self.absolute || *time <= i64::MAX - now;
        match scaled.filter(fits).filter(|time| past || *time > 0) {
            Some(time) if self.absolute => Ok(Expiry::At(time)),
            Some(time) => Ok(Expiry::In(time)),
            None => Err(format!("ERR invalid expire time in '{command}' command").into()),
        }
    }
}

/// Reads the conditions of EXPIRE and its kin.
pub fn conditions<'a>(options: impl Iterator<Item = &'a [u8]>) -> Result<u8, Vec<u8>> {
    let mut flags = 0;
    for option in options {
        flags |= match option.to_ascii_uppercase().as_slice() {
            b"NX" => IF_NONE,
            b"XX" => IF_ANY,
            b"GT" => IF_LATER,
            b"LT" => IF_EARLIER,
            _ => {
                let mut text = b"ERR Unsupported option ".to_vec();
                text.extend(option.iter().take_while(|byte| **byte != 0).take(128));
                return Err(text);
            }
        };
    }
    if flags & IF_NONE != 0 && flags != IF_NONE {
        return Err(b"ERR NX and XX, GT or LT options at the same time are not compatible".to_vec());
    }
    if flags & IF_LATER != 0 && flags & IF_EARLIER != 0 {
        return Err(b"ERR GT and LT options at the same time are not compatible".to_vec());
    }
    Ok(flags)
}

/// What the options of SET and GETEX say of a deadline. The same one may be said again.
#[derive(Debug, Default)]
pub enum Timing<'a> {
    #[default]
    Unsaid,
    /// KEEPTTL or PERSIST.
    Without(Expiry),
    With(Unit, &'a [u8]),
}

impl<'a> Timing<'a> {
    pub fn without(&mut self, expiry: Expiry) -> Result<(), &'static [u8]> {
        match self {
            Self::With(..) => Err(SYNTAX),
            _ => {
                *self = Self::Without(expiry);
                Ok(())
            }
        }
    }

    /// Takes an option with the time that follows it; the number of arguments that follow.
    pub fn with(
        &mut self,
        option: &[u8],
        command: &Command<'a>,
        index: usize,
    ) -> Result<usize, &'static [u8]> {
        let unit = Unit::of_option(option).ok_or(SYNTAX)?;
        match self {
            Self::Without(_) => return Err(SYNTAX),
            Self::With(said, _) if *said != unit => return Err(SYNTAX),
            _ if index + 1 == command.len() => return Err(SYNTAX),
            _ => *self = Self::With(unit, command.arg(index + 1)),
        }
        Ok(1)
    }

    pub fn read(
        &self,
        now: impl FnOnce() -> i64,
        command: &str,
        unsaid: Expiry,
    ) -> Result<Expiry, Vec<u8>> {
        match *self {
            Self::Unsaid => Ok(unsaid),
            Self::Without(expiry) => Ok(expiry),
            Self::With(unit, text) => unit.read(text, false, now(), command),
        }
    }
}
