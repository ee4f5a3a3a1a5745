//! The forms in which Redis packs small collections: ziplists, listpacks and sets of integers.

use crate::commands::listpack::{Cursor, HEAD, counted};
use crate::commands::number::push_i64;

/// The elements of a pack, as texts.
pub type Elements = Vec<Vec<u8>>;

/// The byte behind the last element of a ziplist.
const END: u8 = 0xff;

fn text(number: i64) -> Vec<u8> {
    let mut text = Vec::new();
    push_i64(&mut text, number);
    text
}

/// Takes `len` bytes off `rest`.
fn take<'a>(rest: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, behind) = rest.split_at_checked(len)?;
    *rest = behind;
    Some(taken)
}

fn byte(rest: &mut &[u8]) -> Option<u8> {
    take(rest, 1).map(|taken| taken[0])
}

/// The signed number of `len` bytes, little-endian, 8 at most.
fn signed(rest: &mut &[u8], len: usize) -> Option<i64> {
    let bytes = take(rest, len)?;
    let number = bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
    let unused = 64 - 8 * len as u32;
    Some((number << unused) as i64 >> unused)
}

fn unsigned(rest: &mut &[u8], len: usize) -> Option<usize> {
    let bytes = take(rest, len)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte)))
}

/// The elements of a ziplist. `None`: it is not in the format.
pub fn ziplist(bytes: &[u8]) -> Option<Elements> {
    let (mut rest, mut all) = (bytes, Vec::new());
    let total = unsigned(&mut rest, 4)?;
    let (_tail, count) = (unsigned(&mut rest, 4)?, unsigned(&mut rest, 2)?);
    while *rest.first()? != END {
        // The length of the element before it.
        if byte(&mut rest)? == 0xfe {
            take(&mut rest, 4)?;
        }
        let code = byte(&mut rest)?;
        all.push(match code >> 6 {
            0 => take(&mut rest, usize::from(code & 63))?.to_vec(),
            1 => {
                let len = usize::from(code & 63) << 8 | usize::from(byte(&mut rest)?);
                take(&mut rest, len)?.to_vec()
            }
            2 => {
                let len = take(&mut rest, 4)?;
                let len = len.iter().fold(0, |len, byte| len << 8 | usize::from(*byte));
                take(&mut rest, len)?.to_vec()
            }
            _ => text(match code {
                0xc0 => signed(&mut rest, 2)?,
                0xd0 => signed(&mut rest, 4)?,
                0xe0 => signed(&mut rest, 8)?,
                0xf0 => signed(&mut rest, 3)?,
                0xfe => signed(&mut rest, 1)?,
                0xf1..=0xfd => i64::from(code & 15) - 1,
                _ => return None,
            }),
        });
    }
    ends(rest, total == bytes.len(), count, all)
}

/// The elements of a listpack. `None`: it is not in the format.
pub fn listpack(bytes: &[u8]) -> Option<Elements> {
    let (count, mut cursor) = (counted(bytes)?, Cursor::at(bytes, HEAD));
    let mut all = Vec::new();
    while !cursor.is_over() {
        all.push(cursor.next()?.to_vec());
    }
    // A number of two bytes may be too small for the elements.
    (count == all.len() || count == usize::from(u16::MAX)).then_some(all)
}

/// The elements, if the pack ends here and is as long as it says.
fn ends(rest: &[u8], whole: bool, count: usize, all: Elements) -> Option<Elements> {
    // A number of two bytes may be too small for the elements.
    let counted = count == all.len() || count == usize::from(u16::MAX);
    (rest == [END] && whole && counted).then_some(all)
}

/// The elements of a set of integers. `None`: it is not in the format.
pub fn intset(bytes: &[u8]) -> Option<Elements> {
    let mut rest = bytes;
    let (width, count) = (unsigned(&mut rest, 4)?, unsigned(&mut rest, 4)?);
    if !matches!(width, 2 | 4 | 8) || rest.len() != width.checked_mul(count)? {
        return None;
    }
    (0..count).map(|_| signed(&mut rest, width).map(text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_of_redis_documentation_are_read_and_cut_ones_refused() {
        let two: &[u8] = &[15, 0, 0, 0, 12, 0, 0, 0, 2, 0, 0, 0xf3, 2, 0xf6, END];
        assert_eq!(ziplist(two), Some(vec![b"2".to_vec(), b"5".to_vec()]));
        let mut three = two[..14].to_vec();
        three.extend_from_slice(&[2, 11]);
        three.extend_from_slice(b"Hello World\xff");
        (three[0], three[4], three[8]) = (28, 14, 3);
        assert_eq!(ziplist(&three).unwrap()[2], b"Hello World");
        let list: &[u8] =
            &[20, 0, 0, 0, 4, 0, 7, 1, 0x82, b'a', b'b', 3, 0xdf, 0xfe, 2, 0xf1, 0, 0x80, 3, END];
        let texts = [&b"7"[..], b"ab", b"-2", b"-32768"];
        assert_eq!(listpack(list), Some(texts.map(<[u8]>::to_vec).to_vec()));
        let ints = [2, 0, 0, 0, 2, 0, 0, 0, 5, 0, 0xff, 0xff];
        assert_eq!(intset(&ints), Some(vec![b"5".to_vec(), b"-1".to_vec()]));
        for cut in 0..list.len() {
            let (ziplisted, listpacked) = (&three[..cut], &list[..cut]);
            assert_eq!((ziplist(ziplisted), listpack(listpacked)), (None, None), "cut at {cut}");
        }
        assert!((0..ints.len()).all(|cut| intset(&ints[..cut]).is_none()));
    }
}
