//! What objects in Redis' files are made of: lengths and strings.

use super::lzf::expand;
use super::packs::{Elements, listpack};
use crate::commands::float::parse_double;
use crate::commands::number::parse_i64;

/// What stands behind the two highest bits of a length: a string that is none, but a number or
/// shortened.
const INT_8: u8 = 0xc0;
const INT_16: u8 = 0xc1;
const INT_32: u8 = 0xc2;
const SHORTENED: u8 = 0xc3;
/// Nodes of a quicklist: one element, or a listpack.
const PLAIN: usize = 1;
const PACKED: usize = 2;

/// Appends a length of 32 bits at most.
pub fn write_length(out: &mut Vec<u8>, len: usize) {
    match len {
        0..0x40 => out.push(len as u8),
        0x40..0x4000 => out.extend_from_slice(&(len as u16 | 0x4000).to_be_bytes()),
        // No value is longer.
        _ => {
            out.push(0x80);
            out.extend_from_slice(&(len as u32).to_be_bytes());
        }
    }
}

/// Appends a string, as a number if it is one.
pub fn write_string(out: &mut Vec<u8>, bytes: &[u8]) {
    match parse_i64(bytes) {
        Some(number) if i8::try_from(number).is_ok() => out.extend([INT_8, number as u8]),
        Some(number) if i16::try_from(number).is_ok() => {
            out.push(INT_16);
            out.extend_from_slice(&(number as i16).to_le_bytes());
        }
        Some(number) if i32::try_from(number).is_ok() => {
            out.push(INT_32);
            out.extend_from_slice(&(number as i32).to_le_bytes());
        }
        _ => {
            write_length(out, bytes.len());
            out.extend_from_slice(bytes);
        }
    }
}

/// Reads an object.
pub struct Reader<'a> {
    rest: &'a [u8],
    max: usize,
}

impl<'a> Reader<'a> {
    /// Reads `bytes`, whose strings have `max` bytes at most.
    pub fn new(bytes: &'a [u8], max: usize) -> Self {
        Self { rest: bytes, max }
    }

    /// Whether all was read.
    pub fn is_over(&self) -> bool {
        self.rest.is_empty()
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, behind) = self.rest.split_at_checked(len)?;
        self.rest = behind;
        Some(taken)
    }

    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub fn length(&mut self) -> Option<usize> {
        usize::try_from(self.number()?).ok()
    }

    /// A number as lengths are written.
    pub fn number(&mut self) -> Option<u64> {
        let [code] = self.array()?;
        Some(match code {
            0..0x40 => code.into(),
            0x40..0x80 => u64::from(code & 63) << 8 | u64::from(self.array::<1>()?[0]),
            0x80 => u32::from_be_bytes(self.array()?).into(),
            0x81 => u64::from_be_bytes(self.array()?),
            _ => return None,
        })
    }

    pub fn string(&mut self) -> Option<Vec<u8>> {
        let number = match *self.rest.first()? {
            INT_8 => i64::from(i8::from_le_bytes([self.array::<2>()?[1]])),
            INT_16 => {
                let [_, low, high] = self.array()?;
                i16::from_le_bytes([low, high]).into()
            }
            INT_32 => {
                let [_, a, b, c, d] = self.array()?;
                i32::from_le_bytes([a, b, c, d]).into()
            }
            SHORTENED => {
                self.take(1)?;
                let (short, len) = (self.length()?, self.length()?);
                let bytes = self.take(short)?;
                return if len <= self.max { expand(bytes, len) } else { None };
            }
            _ => {
                let len = self.length()?;
                return self.take(len).map(<[u8]>::to_vec);
            }
        };
        Some(number.to_string().into())
    }

    /// A number of rows and rows of `width` strings.
    pub fn strings(&mut self, width: usize) -> Option<Elements> {
        let count = self.length()?.checked_mul(width)?;
        let mut all = Vec::with_capacity(count.min(self.rest.len()));
        for _ in 0..count {
            all.push(self.string()?);
        }
        Some(all)
    }

    pub fn quicklist(&mut self) -> Option<Elements> {
        let mut all = Vec::new();
        for _ in 0..self.length()? {
            match self.length()? {
                PLAIN => all.push(self.string()?),
                PACKED => all.extend(listpack(&self.string()?)?),
                _ => return None,
            }
        }
        Some(all)
    }

    pub fn scored(&mut self, score: fn(&mut Self) -> Option<f64>) -> Option<Vec<(f64, Vec<u8>)>> {
        let count = self.length()?;
        let mut all = Vec::with_capacity(count.min(self.rest.len()));
        for _ in 0..count {
            let member = self.string()?;
            all.push((score(self)?, member));
        }
        Some(all)
    }

    pub fn score(&mut self) -> Option<f64> {
        self.array().map(f64::from_le_bytes)
    }

    /// A score as a text with its length before it.
    pub fn decimal(&mut self) -> Option<f64> {
        match self.array::<1>()? {
            [255] => Some(f64::NEG_INFINITY),
            [254] => Some(f64::INFINITY),
            [253] => None,
            [len] => parse_double(self.take(len.into())?),
        }
    }
}
