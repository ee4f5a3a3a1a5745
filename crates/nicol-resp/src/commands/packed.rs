//! Collections in one value: their elements, one behind the other. A page of a large collection
//! holds some of its elements in the same way (`sequence.rs`).
//!
//! Layout: the format (1 byte: 1, packed), the number of elements (4, little-endian), then each
//! element: its length (LEB128) and its bytes. A collection is never empty: its key would be
//! absent.
//!
//! Cost: a command reads the elements one by one, and one that changes any writes them all anew.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::transactions::work::Stop;

/// The format of a value whose elements stand in it. Others can follow.
const PACKED: u8 = 1;
const HEAD: usize = 5;

/// Elements that are looked up in one command before an index of all is made.
const INDEXED: usize = 8;

/// The number of elements of `value`; 0 if it is empty.
pub fn count(value: &[u8]) -> Result<usize, Stop> {
    Ok(head(value)?.0)
}

/// The elements of `value`, in order; none if it is empty.
pub fn elements(value: &[u8]) -> Result<Vec<&[u8]>, Stop> {
    let (count, mut rest) = head(value)?;
    // Each takes a byte at least: a wrong count asks for no more memory than there are bytes.
    let mut all = Vec::with_capacity(count.min(rest.len()));
    for _ in 0..count {
        let (element, behind) = split(rest).ok_or(Stop::Malformed)?;
        all.push(element);
        rest = behind;
    }
    if rest.is_empty() { Ok(all) } else { Err(Stop::Malformed) }
}

/// The value of these elements; empty if there are none.
pub fn pack<T: AsRef<[u8]>>(elements: &[T]) -> Vec<u8> {
    if elements.is_empty() {
        return Vec::new();
    }
    let bytes: usize = elements.iter().map(|element| element.as_ref().len() + 2).sum();
    let mut value = Vec::with_capacity(HEAD + bytes);
    value.push(PACKED);
    value.extend_from_slice(&(elements.len() as u32).to_le_bytes());
    for element in elements {
        let (len, bytes) = length(element.as_ref());
        value.extend_from_slice(&len[..bytes]);
        value.extend_from_slice(element.as_ref());
    }
    value
}

/// How the length of an element is written, and in how many bytes.
fn length(element: &[u8]) -> ([u8; 5], usize) {
    let (mut bytes, mut used, mut len) = ([0; 5], 0, element.len());
    while len >= 0x80 {
        bytes[used] = len as u8 | 0x80;
        len >>= 7;
        used += 1;
    }
    bytes[used] = len as u8;
    (bytes, used + 1)
}

/// Bytes that `element` takes among others.
pub fn size(element: &[u8]) -> usize {
    length(element).1 + element.len()
}

/// The elements of `value` from `place` on.
pub fn from(value: &[u8], place: usize) -> Result<impl Iterator<Item = &[u8]>, Stop> {
    let mut rest = &value[offset(value, place)?..];
    Ok(std::iter::from_fn(move || {
        let (element, behind) = split(rest)?;
        rest = behind;
        Some(element)
    }))
}

/// Where the element at `place` begins, or all end.
fn offset(value: &[u8], place: usize) -> Result<usize, Stop> {
    let (count, mut rest) = head(value)?;
    if place >= count {
        return if place == count { Ok(value.len()) } else { Err(Stop::Malformed) };
    }
    for _ in 0..place {
        rest = split(rest).ok_or(Stop::Malformed)?.1;
    }
    Ok(value.len() - rest.len())
}

fn set_count(value: &mut [u8], count: usize) {
    value[1..HEAD].copy_from_slice(&(count as u32).to_le_bytes());
}

/// Adds an element before that at `place`, or behind all.
pub fn insert(value: &mut Vec<u8>, place: usize, element: &[u8]) -> Result<(), Stop> {
    if value.is_empty() {
        *value = pack(&[element]);
        return Ok(());
    }
    let (at, old, (len, bytes)) = (offset(value, place)?, value.len(), length(element));
    let (head, end) = (at + bytes, at + bytes + element.len());
    value.resize(old + end - at, 0);
    value.copy_within(at..old, end);
    value[at..head].copy_from_slice(&len[..bytes]);
    value[head..end].copy_from_slice(element);
    let count = count(value)?;
    set_count(value, count + 1);
    Ok(())
}

/// Removes the elements at `places`; the value is empty behind the last one.
pub fn remove(value: &mut Vec<u8>, places: Range<usize>) -> Result<(), Stop> {
    let left = count(value)?.checked_sub(places.len()).ok_or(Stop::Malformed)?;
    if left == 0 {
        value.clear();
        return Ok(());
    }
    let (from, to) = (offset(value, places.start)?, offset(value, places.end)?);
    value.drain(from..to);
    set_count(value, left);
    Ok(())
}

/// Takes the elements from `place` on, of which there are some, as there are before it.
pub fn split_off(value: &mut Vec<u8>, place: usize) -> Result<Vec<u8>, Stop> {
    let (at, behind) = (offset(value, place)?, count(value)? - place);
    let mut other = vec![PACKED; HEAD];
    other.extend_from_slice(&value[at..]);
    set_count(&mut other, behind);
    value.truncate(at);
    set_count(value, place);
    Ok(other)
}

/// The place before which about half of the bytes stand, and behind which the others do. There are
/// two elements at least.
pub fn middle(value: &[u8]) -> Result<usize, Stop> {
    let (count, bytes) = head(value)?;
    let (mut before, mut place) = (0, 0);
    for element in from(value, 0)? {
        // It stands on the side on which less is.
        let size = size(element);
        if 2 * before + size > bytes.len() {
            break;
        }
        before += size;
        place += 1;
    }
    Ok(place.clamp(1, count - 1))
}

/// The values one behind the other, as one.
pub fn join<'a>(values: impl Iterator<Item = &'a [u8]>) -> Result<Vec<u8>, Stop> {
    let (mut all, mut sum) = (vec![PACKED; HEAD], 0);
    for value in values {
        let (count, elements) = head(value)?;
        all.extend_from_slice(elements);
        sum += count;
    }
    set_count(&mut all, sum);
    Ok(if sum == 0 { Vec::new() } else { all })
}

fn head(value: &[u8]) -> Result<(usize, &[u8]), Stop> {
    match value {
        [] => Ok((0, value)),
        [PACKED, a, b, c, d, rest @ ..] => {
            Ok((u32::from_le_bytes([*a, *b, *c, *d]) as usize, rest))
        }
        _ => Err(Stop::Malformed),
    }
}

fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (mut len, mut shift, mut at) = (0_usize, 0, 0);
    loop {
        let byte = *bytes.get(at)?;
        at += 1;
        len |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            return bytes[at..].split_at_checked(len);
        }
        if shift > 28 {
            return None;
        }
    }
}

/// Rows of `W` elements told apart by the first one, in the order in which they were added.
#[derive(Clone, Debug)]
pub struct Rows<'a, const W: usize> {
    /// A row that was removed leaves a gap.
    rows: Vec<Option<[&'a [u8]; W]>>,
    len: usize,
    /// Where each row stands, if many are looked up.
    index: Option<BTreeMap<&'a [u8], usize>>,
}

impl<'a, const W: usize> Rows<'a, W> {
    /// The rows of `value`, of which so many will be looked up.
    pub fn parse(value: &'a [u8], lookups: usize) -> Result<Self, Stop> {
        let elements = elements(value)?;
        let (rows, rest) = elements.as_chunks::<W>();
        if !rest.is_empty() {
            return Err(Stop::Malformed);
        }
        let place = |(place, row): (usize, &[&'a [u8]; W])| (row[0], place);
        let index = (lookups >= INDEXED).then(|| rows.iter().enumerate().map(place).collect());
        Ok(Self { len: rows.len(), rows: rows.iter().copied().map(Some).collect(), index })
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.len
    }

    fn place(&self, name: &[u8]) -> Option<usize> {
        match &self.index {
            Some(index) => index.get(name).copied(),
            None => self.rows.iter().position(|row| row.is_some_and(|row| row[0] == name)),
        }
    }

    /// The row that `name` begins.
    pub fn get(&self, name: &[u8]) -> Option<[&'a [u8]; W]> {
        self.rows[self.place(name)?]
    }

    /// Whether there is a row that `name` begins.
    pub fn has(&self, name: &[u8]) -> bool {
        self.place(name).is_some()
    }

    /// Adds a row, or replaces that of the same name; whether it is new.
    pub fn set(&mut self, row: [&'a [u8]; W]) -> bool {
        if let Some(place) = self.place(row[0]) {
            self.rows[place] = Some(row);
            return false;
        }
        if let Some(index) = &mut self.index {
            index.insert(row[0], self.rows.len());
        }
        self.rows.push(Some(row));
        self.len += 1;
        true
    }

    /// Removes a row; whether there was one.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        let Some(place) = self.place(name) else { return false };
        if let Some(index) = &mut self.index {
            index.remove(name);
        }
        self.rows[place] = None;
        self.len -= 1;
        true
    }

    /// The rows, in order.
    pub fn iter(&self) -> impl Iterator<Item = [&'a [u8]; W]> + use<'_, 'a, W> {
        self.rows.iter().flatten().copied()
    }

    /// The value of these rows; empty if there are none.
    pub fn pack(&self) -> Vec<u8> {
        let rows: Vec<_> = self.iter().collect();
        pack(rows.as_flattened())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_come_back_as_they_were_packed() {
        let long = [7; 300];
        let all: [&[u8]; 4] = [b"", b"a", &long, b"\r\n"];
        let value = pack(&all);
        assert_eq!(elements(&value), Ok(all.to_vec()));
        assert_eq!(count(&value), Ok(4));
        assert_eq!(elements(&[]), Ok(Vec::new()));
        assert!(pack::<&[u8]>(&[]).is_empty());
        for cut in 1..value.len() {
            assert_eq!(elements(&value[..cut]), Err(Stop::Malformed), "cut at {cut}");
        }
        assert_eq!(elements(&[&value[..], b"x"].concat()), Err(Stop::Malformed));
        assert_eq!(elements(&[2, 0, 0, 0, 0]), Err(Stop::Malformed), "another format");
    }

    #[test]
    fn a_value_is_changed_in_place_as_if_it_were_packed_anew() {
        let long = [7; 300];
        let mut all: Vec<&[u8]> = vec![b"", b"a", &long, b"c"];
        let mut value = pack(&all);
        for (place, element) in [(0, &b"first"[..]), (5, b"last"), (3, &long)] {
            all.insert(place, element);
            insert(&mut value, place, element).unwrap();
            assert_eq!(value, pack(&all));
        }
        assert_eq!(from(&value, 2).unwrap().collect::<Vec<_>>(), all[2..]);
        let mut front = value.clone();
        let behind = split_off(&mut front, 3).unwrap();
        assert_eq!((&front, &behind), (&pack(&all[..3]), &pack(&all[3..])));
        assert_eq!(join([&front[..], &behind].into_iter()), Ok(value.clone()));
        assert_eq!([middle(&value), middle(&behind)], [Ok(4), Ok(1)], "by bytes");
        all.drain(1..3);
        remove(&mut value, 1..3).unwrap();
        assert_eq!(value, pack(&all));
        remove(&mut value, 0..all.len()).unwrap();
        assert!(value.is_empty() && insert(&mut value, 0, b"a").is_ok());
        assert_eq!(value, pack(&[b"a"]));
        assert_eq!(remove(&mut value, 0..2), Err(Stop::Malformed));
    }

    #[test]
    fn rows_are_the_same_with_and_without_an_index() {
        let value = pack(&[&b"a"[..], b"1", b"b", b"2", b"c", b"3"]);
        for lookups in [0, INDEXED] {
            let mut rows = Rows::<2>::parse(&value, lookups).unwrap();
            assert!(!rows.set([b"b", b"20"]) && rows.set([b"d", b"4"]));
            assert!(rows.remove(b"a") && !rows.remove(b"a") && !rows.has(b"a"));
            assert!(rows.set([b"a", b"5"]));
            let expected = [&b"b"[..], b"20", b"c", b"3", b"d", b"4", b"a", b"5"];
            assert_eq!(rows.pack(), pack(&expected));
            assert_eq!((rows.len(), rows.get(b"c")), (4, Some([&b"c"[..], b"3"])));
        }
        assert!(Rows::<2>::parse(&pack(&[b"odd"]), 0).is_err());
    }
}
