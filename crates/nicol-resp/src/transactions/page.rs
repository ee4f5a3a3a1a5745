//! Pages of large collections: their names and records.
//!
//! A page is a pair of a record, as a RESP key is, in a table of its own: nothing that goes over
//! keys sees it. Its name is the object's id and a number within the object; its row is a hash of
//! the name. What is to be freed stands in a grave: a pair in another table, whose deadline has
//! always come, so that the active expiry of a front, also one that is started anew, works it off.

use nicol_core::ids::{Key, TableId, Version};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use super::record::DATABASES;

/// The format of a value whose elements stand in pages.
const PAGED: u8 = 2;

/// Where a page, or what is to be freed, is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    Page,
    Grave,
}

impl Place {
    /// The tables stand behind those of the databases.
    const fn table(self) -> TableId {
        match self {
            Self::Page => TableId(DATABASES as u8),
            Self::Grave => TableId(DATABASES as u8 + 1),
        }
    }

    /// Whether `row` is a record of graves.
    pub fn is_grave(row: Key) -> bool {
        row.table() == Self::Grave.table()
    }

    /// The deadline of its pairs. That of a grave has come: it is found and purged.
    pub fn deadline(self) -> Option<i64> {
        (self == Self::Grave).then_some(0)
    }
}

/// The id of an object. No two have the same, whenever they were there: it is a hash of 128 bits
/// of what no two creations share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectId(u128);

impl ObjectId {
    /// The id of the object that a transaction at time `now` creates as its `number`th one, for a
    /// key of the record `row`, which has had `version` until then. Versions of a record are never
    /// used twice by one store; the time tells stores apart that were read back.
    pub fn new(row: Key, version: Version, now: i64, number: usize) -> Self {
        let words = [row.0, version.0, now as u64, number as u64];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        Self(xxh3_128(&bytes))
    }
}

/// The name of a page or a grave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PageName {
    pub object: ObjectId,
    /// Each page of an object has a number that none of it had before.
    pub number: u64,
}

impl PageName {
    const LEN: usize = 24;

    /// What stands for the key in its pair.
    pub fn bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..16].copy_from_slice(&self.object.0.to_le_bytes());
        bytes[16..].copy_from_slice(&self.number.to_le_bytes());
        bytes
    }

    /// Reads [`PageName::bytes`].
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (object, number) = bytes.split_first_chunk::<16>()?;
        let number = u64::from_le_bytes(number.try_into().ok()?);
        Some(Self { object: ObjectId(u128::from_le_bytes(*object)), number })
    }

    /// Its record.
    pub fn row(self, place: Place) -> Key {
        Key::new(place.table(), xxh3_64(&self.bytes()) >> (64 - Key::ROW_BITS))
    }
}

/// A page and all that it leads to: with depth 1 it has elements, above that it has pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subtree {
    pub page: u64,
    pub depth: u8,
}

impl Subtree {
    const LEN: usize = 9;

    /// Appends it to a grave.
    pub fn emit(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.page.to_le_bytes());
        out.push(self.depth);
    }

    /// The subtrees of a grave.
    pub fn parse_all(bytes: &[u8]) -> Vec<Self> {
        let parse = |bytes: &[u8; Self::LEN]| {
            let (page, depth) = (bytes.first_chunk::<8>(), bytes[8]);
            Self { page: page.map_or(0, |page| u64::from_le_bytes(*page)), depth }
        };
        bytes.as_chunks::<{ Self::LEN }>().0.iter().map(parse).collect()
    }
}

/// What the value of a key holds whose elements stand in pages.
///
/// Layout, numbers little-endian: the format (1 byte: 2), the object's id (16), the number of the
/// next page (8), the topmost page (8), its depth (1), the number of elements (8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Root {
    pub object: ObjectId,
    /// The number that the next new page gets.
    pub next: u64,
    pub top: Subtree,
    /// Elements of all pages.
    pub count: u64,
}

impl Root {
    /// Bytes of its layout.
    pub const LEN: usize = 42;
    /// The number of the grave of a whole object.
    const GRAVE: u64 = u64::MAX;

    /// Reads a value of a type that has elements; `None` if they stand in it.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LEN] = value.try_into().ok()?;
        let word =
            |at: usize| bytes[at..].first_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word));
        let id = bytes[1..].first_chunk::<16>()?;
        (bytes[0] == PAGED).then(|| Self {
            object: ObjectId(u128::from_le_bytes(*id)),
            next: word(17),
            top: Subtree { page: word(25), depth: bytes[33] },
            count: word(34),
        })
    }

    /// The value.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::LEN);
        out.push(PAGED);
        out.extend_from_slice(&self.object.0.to_le_bytes());
        out.extend_from_slice(&self.next.to_le_bytes());
        self.top.emit(&mut out);
        out.extend_from_slice(&self.count.to_le_bytes());
        out
    }

    /// The name of the page with this number.
    pub fn name(&self, number: u64) -> PageName {
        PageName { object: self.object, number }
    }

    /// The name of a new page.
    pub fn new_name(&mut self) -> PageName {
        self.next += 1;
        self.name(self.next - 1)
    }

    /// The grave of the whole object.
    pub fn grave(&self) -> PageName {
        self.name(Self::GRAVE)
    }
}

/// The pages below a page with pages, each with the number of elements that it leads to.
///
/// Layout: of each its number and that of its elements (8 bytes each, little-endian).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Child {
    pub page: u64,
    pub count: u64,
}

impl Child {
    pub const LEN: usize = 16;

    /// The children in the page `bytes`; what is behind the last whole one is ignored.
    pub fn all(bytes: &[u8]) -> impl DoubleEndedIterator<Item = Self> + ExactSizeIterator + '_ {
        bytes.as_chunks::<{ Self::LEN }>().0.iter().map(|bytes| {
            let [page, count] = [0, 8].map(|at| {
                bytes[at..].first_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word))
            });
            Self { page, count }
        })
    }

    pub fn bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&self.page.to_le_bytes());
        bytes[8..].copy_from_slice(&self.count.to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_roots_come_back_as_they_were_written() {
        let object = ObjectId::new(Key(7), Version(3), 1, 0);
        let root = Root { object, next: 9, top: Subtree { page: 4, depth: 2 }, count: 1 << 40 };
        assert_eq!(Root::parse(&root.emit()), Some(root));
        assert_eq!(Root::parse(&root.emit()[1..]), None);
        assert_eq!(Root::parse(&[&[1], &root.emit()[1..]].concat()), None, "another format");
        assert_eq!(PageName::parse(&root.grave().bytes()), Some(root.grave()));
        let others = [(8, 3, 1, 0), (7, 4, 1, 0), (7, 3, 2, 0), (7, 3, 1, 1)];
        for (row, version, now, number) in others {
            assert_ne!(ObjectId::new(Key(row), Version(version), now, number), object);
        }
        let child = Child { page: 5, count: 77 };
        assert_eq!(Child::all(&child.bytes()).collect::<Vec<_>>(), [child]);
    }
}
