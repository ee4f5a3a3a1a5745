//! Listpacks: the form in which Redis keeps small collections and the entries of streams.
//!
//! Layout: bytes of the whole (4, little-endian), elements (2; 65,535: uncounted), each element
//! and, to be read backwards, its length; a byte of ones.

use super::number::parse_i64;

/// Bytes before the first element.
pub const HEAD: usize = 6;
/// The byte behind the last element.
const END: u8 = 0xff;

/// An element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element<'a> {
    Number(i64),
    Text(&'a [u8]),
}

impl<'a> Element<'a> {
    /// An element of `bytes`: a number, if they are one.
    pub fn of(bytes: &'a [u8]) -> Self {
        parse_i64(bytes).map_or(Self::Text(bytes), Self::Number)
    }

    /// The number, if it is one.
    pub fn number(self) -> Option<i64> {
        match self {
            Self::Number(number) => Some(number),
            Self::Text(_) => None,
        }
    }

    /// Its bytes.
    pub fn to_vec(self) -> Vec<u8> {
        match self {
            Self::Number(number) => number.to_string().into_bytes(),
            Self::Text(bytes) => bytes.to_vec(),
        }
    }

    /// Appends the element with its length behind it.
    pub fn push(self, out: &mut Vec<u8>) {
        let start = out.len();
        match self {
            Self::Number(number) => push_number(out, number),
            Self::Text(bytes) => {
                match bytes.len() {
                    len @ 0..64 => out.push(0x80 | len as u8),
                    len @ 64..4096 => out.extend([0xe0 | (len >> 8) as u8, len as u8]),
                    len => {
                        out.push(0xf0);
                        out.extend_from_slice(&(len as u32).to_le_bytes());
                    }
                }
                out.extend_from_slice(bytes);
            }
        }
        push_back(out, out.len() - start);
    }
}

fn push_number(out: &mut Vec<u8>, number: i64) {
    match number {
        0..=127 => out.push(number as u8),
        -4096..=4095 => {
            let bits = (number & 0x1fff) as u16;
            out.extend([0xc0 | (bits >> 8) as u8, bits as u8]);
        }
        -0x8000..=0x7fff => {
            out.push(0xf1);
            out.extend_from_slice(&(number as i16).to_le_bytes());
        }
        -0x80_0000..=0x7f_ffff => {
            out.push(0xf2);
            out.extend_from_slice(&(number as i32).to_le_bytes()[..3]);
        }
        -0x8000_0000..=0x7fff_ffff => {
            out.push(0xf3);
            out.extend_from_slice(&(number as i32).to_le_bytes());
        }
        _ => {
            out.push(0xf4);
            out.extend_from_slice(&number.to_le_bytes());
        }
    }
}

/// Bytes of the length behind an element of `len` bytes.
fn back_len(len: usize) -> usize {
    match len {
        0..=127 => 1,
        128..16_383 => 2,
        16_383..2_097_151 => 3,
        2_097_151..268_435_455 => 4,
        _ => 5,
    }
}

/// Appends the length of an element so that it is read backwards: 7 bits a byte, the highest ones
/// first, a mark in all but the first byte.
fn push_back(out: &mut Vec<u8>, len: usize) {
    let bytes = back_len(len);
    for place in (0..bytes).rev() {
        let mark = if place + 1 == bytes { 0 } else { 0x80 };
        out.push((len >> (7 * place)) as u8 & 0x7f | mark);
    }
}

/// Reads the elements of a listpack from a place on.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// At the element that begins at `at` of a whole listpack.
    pub fn at(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    /// Where the next element begins.
    pub fn place(&self) -> usize {
        self.at
    }

    /// Whether there is no further element and nothing behind the listpack.
    pub fn is_over(&self) -> bool {
        self.bytes.get(self.at..) == Some(&[END])
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(len)?)?;
        self.at += len;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    /// The next element. `None`: there is none, or it is not in the format.
    pub fn next(&mut self) -> Option<Element<'a>> {
        let before = self.at;
        let [code] = self.array()?;
        let element = match code {
            0..=0x7f => Element::Number(code.into()),
            0x80..=0xbf => Element::Text(self.take(usize::from(code & 63))?),
            0xc0..=0xdf => {
                let [low] = self.array()?;
                let number = i64::from(code & 31) << 8 | i64::from(low);
                Element::Number(if number >= 1 << 12 { number - (1 << 13) } else { number })
            }
            0xe0..=0xef => {
                let [low] = self.array()?;
                Element::Text(self.take(usize::from(code & 15) << 8 | usize::from(low))?)
            }
            0xf0 => {
                let len = u32::from_le_bytes(self.array()?) as usize;
                Element::Text(self.take(len)?)
            }
            0xf1 => Element::Number(i16::from_le_bytes(self.array()?).into()),
            0xf2 => {
                let [a, b, c] = self.array()?;
                Element::Number((i32::from_le_bytes([0, a, b, c]) >> 8).into())
            }
            0xf3 => Element::Number(i32::from_le_bytes(self.array()?).into()),
            0xf4 => Element::Number(i64::from_le_bytes(self.array()?)),
            _ => return None,
        };
        self.take(back_len(self.at - before))?;
        Some(element)
    }

    /// The next element, which is a number.
    pub fn number(&mut self) -> Option<i64> {
        self.next()?.number()
    }
}

/// The elements that the head of a listpack counts; `None` if it says another length than it has.
pub fn counted(bytes: &[u8]) -> Option<usize> {
    let (total, rest) = bytes.split_first_chunk::<4>()?;
    let count = u16::from_le_bytes(*rest.first_chunk()?);
    (u32::from_le_bytes(*total) as usize == bytes.len()).then_some(count.into())
}

/// A listpack without elements.
pub fn empty() -> Vec<u8> {
    vec![HEAD as u8 + 1, 0, 0, 0, 0, 0, END]
}

/// Puts `elements`, so many of them and as [`Element::push`] writes them, in place of the bytes
/// `from..to` of a listpack, which held `before` elements.
pub fn splice(pack: &mut Vec<u8>, (from, to): (usize, usize), change: (usize, usize), new: &[u8]) {
    let (before, elements) = change;
    pack.splice(from..to, new.iter().copied());
    let count = usize::from(u16::from_le_bytes([pack[4], pack[5]]));
    let total = (pack.len() as u32).to_le_bytes();
    pack[..4].copy_from_slice(&total);
    if count != usize::from(u16::MAX) {
        let count = (count + elements).saturating_sub(before).min(usize::from(u16::MAX));
        pack[4..6].copy_from_slice(&(count as u16).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_come_back_whatever_their_size() {
        let texts = [0, 63, 64, 127, 130, 4_095, 4_096, 20_000].map(|len| vec![b'x'; len]);
        let numbers = [0, 127, 128, -1, -4_096, 4_095, -4_097, 32_767, -32_769, 1 << 23, -1 << 40];
        let texts = texts.iter().map(|text| Element::of(text));
        let all: Vec<_> = texts.chain(numbers.map(Element::Number)).collect();
        let mut pack = empty();
        for element in &all {
            let (mut new, end) = (Vec::new(), pack.len() - 1);
            element.push(&mut new);
            splice(&mut pack, (end, end), (0, 1), &new);
        }
        assert_eq!(counted(&pack), Some(all.len()));
        let mut cursor = Cursor::at(&pack, HEAD);
        assert!(all.iter().all(|element| cursor.next() == Some(*element)));
        assert!(cursor.is_over() && cursor.next().is_none());
        assert_eq!(Element::of(b"-7"), Element::Number(-7));
        assert_eq!(Element::of(b"07"), Element::Text(b"07"));
    }
}
