//! Collections in one value: their elements, one behind the other.
//!
//! Layout: the format (1 byte: 1, packed), the number of elements (4, little-endian), then each
//! element: its length (LEB128) and its bytes. A collection is never empty: its key would be
//! absent.
//!
//! Cost: a command reads the elements one by one, and one that changes any writes them all anew.

use std::collections::BTreeMap;

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
        let element = element.as_ref();
        let mut len = element.len();
        while len >= 0x80 {
            value.push(len as u8 | 0x80);
            len >>= 7;
        }
        value.push(len as u8);
        value.extend_from_slice(element);
    }
    value
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
