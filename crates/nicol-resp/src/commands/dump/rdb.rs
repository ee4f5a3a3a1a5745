//! Objects as they stand in Redis' files: a type, then lengths and strings.

use super::lzf::expand;
use super::packs::{Elements, intset, listpack, ziplist};
use super::streams::{self, Form};
use crate::commands::float::parse_double;
use crate::commands::kind::Type;
use crate::commands::number::parse_i64;
use crate::commands::packed::{elements, pack};
use crate::commands::{hash, list, set, sorted_set, stream, string};
use crate::transactions::work::Stop;

/// Types of objects.
mod of {
    pub const STRING: u8 = 0;
    pub const LIST: u8 = 1;
    pub const SET: u8 = 2;
    /// With scores as texts.
    pub const SORTED_SET_1: u8 = 3;
    pub const HASH: u8 = 4;
    pub const SORTED_SET: u8 = 5;
    pub const LIST_ZIPLIST: u8 = 10;
    pub const SET_INTSET: u8 = 11;
    pub const SORTED_SET_ZIPLIST: u8 = 12;
    pub const HASH_ZIPLIST: u8 = 13;
    pub const LIST_QUICKLIST: u8 = 14;
    pub const HASH_LISTPACK: u8 = 16;
    pub const SORTED_SET_LISTPACK: u8 = 17;
    pub const LIST_QUICKLIST_2: u8 = 18;
    pub const STREAM: u8 = 15;
    pub const STREAM_COUNTED: u8 = 19;
    pub const SET_LISTPACK: u8 = 20;
    pub const STREAM_ACTIVE: u8 = 21;
}

/// What stands behind the two highest bits of a length: a string that is none, but a number or
/// shortened.
const INT_8: u8 = 0xc0;
const INT_16: u8 = 0xc1;
const INT_32: u8 = 0xc2;
const SHORTENED: u8 = 0xc3;
/// Nodes of a quicklist: one element, or a listpack.
const PLAIN: usize = 1;
const PACKED: usize = 2;

/// The object of a value of type `kind`. Redis reads it whatever the form that it would choose.
pub fn write(kind: &Type, value: &[u8]) -> Result<Vec<u8>, Stop> {
    let mut out = Vec::with_capacity(value.len() + 16);
    let all = |out: &mut Vec<u8>, width: usize| {
        let all = elements(value)?;
        write_length(out, all.len() / width);
        all.iter().for_each(|element| write_string(out, element));
        Ok::<_, Stop>(())
    };
    match kind.number {
        number if number == string::TYPE.number => {
            out.push(of::STRING);
            write_string(&mut out, value);
        }
        number if number == list::TYPE.number => {
            out.push(of::LIST);
            all(&mut out, 1)?;
        }
        number if number == set::TYPE.number => {
            out.push(of::SET);
            all(&mut out, 1)?;
        }
        number if number == hash::TYPE.number => {
            out.push(of::HASH);
            all(&mut out, 2)?;
        }
        number if number == sorted_set::TYPE.number => {
            out.push(of::SORTED_SET);
            let members = sorted_set::parse(value)?;
            write_length(&mut out, members.len());
            // From the greatest on, as Redis: it then inserts each at the head.
            for (score, member) in members.iter().rev() {
                write_string(&mut out, member);
                out.extend_from_slice(&score.to_le_bytes());
            }
        }
        number if number == stream::TYPE.number => {
            out.push(of::STREAM_COUNTED);
            streams::write(&mut out, value)?;
        }
        _ => return Err(Stop::Malformed),
    }
    Ok(out)
}

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

/// The type and the value of an object, whose strings have `max` bytes at most. `None`: it is not
/// in the format, or of a type that there is not.
pub fn read(object: &[u8], max: usize) -> Option<(&'static Type, Vec<u8>)> {
    let (kind, body) = object.split_first()?;
    let mut from = Reader { rest: body, max };
    let read = match *kind {
        of::STRING => (&string::TYPE, from.string()?),
        of::LIST => (&list::TYPE, list_of(from.strings(1)?)?),
        of::LIST_ZIPLIST => (&list::TYPE, list_of(ziplist(&from.string()?)?)?),
        of::LIST_QUICKLIST => {
            let nodes = from.strings(1)?;
            let packs: Option<Vec<_>> = nodes.iter().map(|node| ziplist(node)).collect();
            (&list::TYPE, list_of(packs?.concat())?)
        }
        of::LIST_QUICKLIST_2 => (&list::TYPE, list_of(from.quicklist()?)?),
        of::SET => (&set::TYPE, set_of(from.strings(1)?)?),
        of::SET_INTSET => (&set::TYPE, set_of(intset(&from.string()?)?)?),
        of::SET_LISTPACK => (&set::TYPE, set_of(listpack(&from.string()?)?)?),
        of::HASH => (&hash::TYPE, hash_of(from.strings(2)?)?),
        of::HASH_ZIPLIST => (&hash::TYPE, hash_of(ziplist(&from.string()?)?)?),
        of::HASH_LISTPACK => (&hash::TYPE, hash_of(listpack(&from.string()?)?)?),
        of::SORTED_SET => (&sorted_set::TYPE, sorted_set_of(from.scored(Reader::score)?)?),
        of::SORTED_SET_1 => (&sorted_set::TYPE, sorted_set_of(from.scored(Reader::decimal)?)?),
        of::SORTED_SET_ZIPLIST => {
            (&sorted_set::TYPE, sorted_set_of(paired(ziplist(&from.string()?)?)?)?)
        }
        of::SORTED_SET_LISTPACK => {
            (&sorted_set::TYPE, sorted_set_of(paired(listpack(&from.string()?)?)?)?)
        }
        of::STREAM => (&stream::TYPE, streams::read(&mut from, Form::First)?),
        of::STREAM_COUNTED => (&stream::TYPE, streams::read(&mut from, Form::Counted)?),
        of::STREAM_ACTIVE => (&stream::TYPE, streams::read(&mut from, Form::Active)?),
        _ => return None,
    };
    from.rest.is_empty().then_some(read)
}

/// No collection is empty.
fn list_of(all: Elements) -> Option<Vec<u8>> {
    (!all.is_empty()).then(|| pack(&all))
}

/// Whether there is one, and none is there twice.
fn are_distinct<'a>(names: impl Iterator<Item = &'a Vec<u8>>) -> bool {
    let mut names: Vec<_> = names.collect();
    names.sort_unstable();
    !names.is_empty() && names.windows(2).all(|pair| pair[0] != pair[1])
}

fn set_of(all: Elements) -> Option<Vec<u8>> {
    are_distinct(all.iter()).then(|| pack(&all))
}

fn hash_of(all: Elements) -> Option<Vec<u8>> {
    let whole = all.len().is_multiple_of(2) && are_distinct(all.iter().step_by(2));
    whole.then(|| pack(&all))
}

fn sorted_set_of(all: Vec<(f64, Vec<u8>)>) -> Option<Vec<u8>> {
    let numbers = all.iter().all(|(score, _)| !score.is_nan());
    if !numbers || !are_distinct(all.iter().map(|(_, member)| member)) {
        return None;
    }
    let mut members: Vec<_> = all.iter().map(|(score, member)| (*score, &member[..])).collect();
    members.sort_by(sorted_set::order);
    Some(sorted_set::pack(&members))
}

/// Members, each with its score behind it.
fn paired(all: Elements) -> Option<Vec<(f64, Vec<u8>)>> {
    let (pairs, rest) = all.as_chunks::<2>();
    let pair = |[member, score]: &[Vec<u8>; 2]| Some((parse_double(score)?, member.clone()));
    if rest.is_empty() { pairs.iter().map(pair).collect() } else { None }
}

/// Reads an object.
pub struct Reader<'a> {
    rest: &'a [u8],
    max: usize,
}

impl<'a> Reader<'a> {
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
    fn strings(&mut self, width: usize) -> Option<Elements> {
        let count = self.length()?.checked_mul(width)?;
        let mut all = Vec::with_capacity(count.min(self.rest.len()));
        for _ in 0..count {
            all.push(self.string()?);
        }
        Some(all)
    }

    fn quicklist(&mut self) -> Option<Elements> {
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

    fn scored(&mut self, score: fn(&mut Self) -> Option<f64>) -> Option<Vec<(f64, Vec<u8>)>> {
        let count = self.length()?;
        let mut all = Vec::with_capacity(count.min(self.rest.len()));
        for _ in 0..count {
            let member = self.string()?;
            all.push((score(self)?, member));
        }
        Some(all)
    }

    fn score(&mut self) -> Option<f64> {
        self.array().map(f64::from_le_bytes)
    }

    /// A score as a text with its length before it.
    fn decimal(&mut self) -> Option<f64> {
        match self.array::<1>()? {
            [255] => Some(f64::NEG_INFINITY),
            [254] => Some(f64::INFINITY),
            [253] => None,
            [len] => parse_double(self.take(len.into())?),
        }
    }
}

#[cfg(test)]
mod tests {
    use nicol_core::rng::{Purpose, Stream};

    use super::*;

    const MAX: usize = 1 << 20;

    #[test]
    fn values_come_back_and_damaged_objects_are_never_taken_for_longer_ones() {
        let long = vec![b'x'; 20_000];
        let texts = [&b"a"[..], b"-7", b"300", b"70000", b"5000000000", b"", &long, b"01"];
        let scores = [&b"m"[..], &1.5_f64.to_le_bytes(), b"n", &2.0_f64.to_le_bytes()];
        let values = [
            (&string::TYPE, b"10".to_vec()),
            (&string::TYPE, Vec::new()),
            (&list::TYPE, pack(&texts)),
            (&set::TYPE, pack(&texts)),
            (&hash::TYPE, pack(&texts)),
            (&sorted_set::TYPE, pack(&scores)),
        ];
        let mut random = Stream::new(3, Purpose::Test, 0);
        for (kind, value) in values {
            let object = write(kind, &value).unwrap();
            let (found, read_back) = read(&object, MAX).unwrap();
            assert_eq!((found.name, &read_back), (kind.name, &value));
            for _ in 0..2_000 {
                let mut damaged = object.clone();
                let at = random.below(damaged.len() as u64) as usize;
                damaged[at] = random.bits() as u8;
                damaged.truncate(damaged.len() - random.below(3) as usize);
                if let Some((kind, value)) = read(&damaged, MAX) {
                    assert!(value.len() < 3 * object.len() + 64 || kind.number == 0);
                }
            }
        }
        assert!(read(&[of::LIST, 0], MAX).is_none(), "no list is empty");
        assert!(read(&[of::SET, 2, 1, b'a', 1, b'a'], MAX).is_none(), "a member twice");
        assert!(read(&[of::SORTED_SET_1, 1, 1, b'a', 2, b'1', b'5'], MAX).is_some());
    }
}
