//! What a server's memory looks like: entries of the hash table, and extents.
//!
//! ```text
//! region   0: entries of 32 bytes   behind them: extents of equal size
//! entry    extent 8 | bytes of the key 4, of the value 4 | CRC of the extent 4, 0 4 | CRC of the entry 4, 0 4
//! extent   key | value
//! ```

use nicol_core::wire::{Malformed, Reader};

/// Bytes of an entry.
pub(super) const ENTRY: u64 = 32;
/// Bytes of it that its CRC covers.
pub(super) const CHECKED: usize = 24;
/// Bytes of an extent for items of so many at most.
pub(super) const fn extent_bytes(item_bytes: u64) -> u64 {
    item_bytes.next_multiple_of(64)
}

/// The extent of an entry that has held an item and does not any more: searches go on.
const DELETED: u64 = 1;

/// The content of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// It has never held an item.
    Unused,
    /// Its item was removed.
    Deleted,
    /// Its item is there.
    Item(Extent),
}

/// The place of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) at: u64,
    pub(super) key: u32,
    pub(super) value: u32,
    /// CRC of key and value.
    pub(super) crc: u32,
}

impl Extent {
    /// Bytes of its key and value.
    pub(super) const fn len(&self) -> u32 {
        self.key + self.value
    }
}

impl Entry {
    /// Parses what a READ has brought; an error if it is torn.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(bytes);
        let at = from.u64()?;
        let (key, value, crc) = (from.u32()?, from.u32()?, from.u32()?);
        let (_, own) = (from.u32()?, from.u32()?);
        if at == 0 && own == 0 {
            return Ok(Self::Unused);
        }
        if own != crc32c::crc32c(&bytes[..CHECKED]) {
            return Err(Malformed { what: "an entry's CRC" });
        }
        Ok(match at {
            DELETED => Self::Deleted,
            _ => Self::Item(Extent { at, key, value, crc }),
        })
    }

    /// The entry as it stands in the index.
    pub(super) fn emit(&self) -> [u8; ENTRY as usize] {
        let mut bytes = [0; ENTRY as usize];
        let (at, key, value, crc) = match *self {
            Self::Unused => return bytes,
            Self::Deleted => (DELETED, 0, 0, 0),
            Self::Item(Extent { at, key, value, crc }) => (at, key, value, crc),
        };
        bytes[..8].copy_from_slice(&at.to_le_bytes());
        bytes[8..12].copy_from_slice(&key.to_le_bytes());
        bytes[12..16].copy_from_slice(&value.to_le_bytes());
        bytes[16..20].copy_from_slice(&crc.to_le_bytes());
        let own = crc32c::crc32c(&bytes[..CHECKED]);
        bytes[24..28].copy_from_slice(&own.to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_survive_the_way_and_every_torn_one_is_noticed() {
        let extent = Extent { at: 4096, key: 8, value: 512, crc: 77 };
        for entry in [Entry::Unused, Entry::Deleted, Entry::Item(extent)] {
            assert_eq!(Entry::parse(&entry.emit()), Ok(entry));
        }
        let (old, new) = (
            Entry::Item(extent).emit(),
            Entry::Item(Extent { at: 8192, key: 8, value: 256, crc: 78 }).emit(),
        );
        for words in 1..4 {
            let torn = [&new[..words * 8], &old[words * 8..]].concat();
            assert!(Entry::parse(&torn).is_err(), "{words} new words");
        }
    }
}
