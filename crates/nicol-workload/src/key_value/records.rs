//! The records of a workload of single operations: their keys, and what their values look like.

use nicol_core::ids::{Key, TableId};
use xxhash_rust::xxh3::xxh3_64;

use super::content::Content;
use crate::counter::{emit, parse};
use crate::placement::mix;
use crate::ycsb::{KEY_BYTES, KeyForm, Scatter, byte_key};

/// The only table.
pub(super) const TABLE: TableId = TableId(1);
/// The last key of the table: no scan goes beyond it.
pub(super) const LAST: Key = Key::new(TABLE, (1 << Key::ROW_BITS) - 1);
/// Bits of the rows over which records are scattered that are scanned.
const SCATTER_BITS: u32 = 40;

/// A record that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) key: Key,
    pub(super) number: u64,
}

/// How the numbers of records become keys and values.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordForm {
    keys: KeyForm,
    value_bytes: usize,
    content: Content,
    /// Where records that are scanned stand.
    scatter: Option<Scatter>,
}

impl RecordForm {
    /// Numbers as keys, scattered if they are scanned; or byte strings, of which the store has a
    /// hash as the key and the string in front of the value.
    pub(super) fn new(keys: KeyForm, value_bytes: usize, scanned: bool) -> Self {
        let scatter = scanned.then_some(Scatter::new(SCATTER_BITS));
        Self { keys, value_bytes, content: Content::default(), scatter }
    }

    /// The same, with this in its values.
    pub(super) fn with_content(self, content: Content) -> Self {
        Self { content, ..self }
    }

    /// Bytes of a stored value.
    pub(super) fn stored_bytes(&self) -> usize {
        self.prefix_bytes() + self.value_bytes
    }

    fn prefix_bytes(&self) -> usize {
        match self.keys {
            KeyForm::Number => 0,
            KeyForm::Bytes => KEY_BYTES,
        }
    }

    pub(super) fn record(&self, number: u64) -> Record {
        let row = match self.keys {
            KeyForm::Number => self.scatter.map_or(number, |scatter| scatter.apply(number)),
            KeyForm::Bytes => row_of(&byte_key(number)),
        };
        Record { key: Key::new(TABLE, row), number }
    }

    /// Writes the value of `record` that names `writer` over `value`.
    pub(super) fn write(&self, value: &mut [u8], record: Record, writer: u64) {
        let (prefix, value) = value.split_at_mut(self.prefix_bytes());
        if self.keys == KeyForm::Bytes {
            prefix.copy_from_slice(&byte_key(record.number));
        }
        match self.content {
            Content::Repeated => emit(value, record.key.row(), writer),
            content => {
                let (number, rest) = value.split_at_mut(size_of::<u64>());
                number.copy_from_slice(&writer.to_le_bytes());
                content.fill(seed_of(record.key, writer), rest);
            }
        }
    }

    /// Was `value` ever written to the record with this key?
    pub(super) fn is_whole(&self, key: Key, value: &[u8]) -> bool {
        let Some((prefix, rest)) = value.split_at_checked(self.prefix_bytes()) else {
            return false;
        };
        let is_named = self.keys == KeyForm::Number || row_of(prefix) == key.row();
        let holds = || match (self.content, rest.split_first_chunk()) {
            (Content::Repeated, _) => parse(rest, key.row()).is_some(),
            (content, Some((writer, rest))) => {
                content.is_of(seed_of(key, u64::from_le_bytes(*writer)), rest)
            }
            (_, None) => false,
        };
        is_named && rest.len() == self.value_bytes && holds()
    }

    /// Two of the first `count` records that would be one in the store, as their byte strings have
    /// the same hash.
    ///
    /// Cost: with byte strings, time and 16 bytes a record.
    pub(super) fn collision(&self, count: u64) -> Option<[u64; 2]> {
        if self.keys == KeyForm::Number {
            return None;
        }
        let mut rows: Vec<(u64, u64)> =
            (0..count).map(|number| (row_of(&byte_key(number)), number)).collect();
        rows.sort_unstable();
        let same = rows.windows(2).find(|pair| pair[0].0 == pair[1].0);
        same.map(|pair| [pair[0].1, pair[1].1])
    }
}

/// The seed of a value's content.
fn seed_of(key: Key, writer: u64) -> u64 {
    mix(key.row() ^ writer.rotate_left(32))
}

/// The row of a byte-string key: the first bits of its hash.
fn row_of(key: &[u8]) -> u64 {
    xxh3_64(key) >> (u64::BITS - Key::ROW_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_whole_under_its_own_key_only() {
        let contents = [Content::Repeated, Content::Text, Content::Random];
        for (keys, content) in [KeyForm::Number, KeyForm::Bytes]
            .into_iter()
            .flat_map(|keys| contents.map(|one| (keys, one)))
        {
            let form = RecordForm::new(keys, 40, false).with_content(content);
            let (one, other) = (form.record(3), form.record(4));
            let mut value = vec![0; form.stored_bytes()];
            form.write(&mut value, one, 77);
            assert!(form.is_whole(one.key, &value));
            assert!(!form.is_whole(other.key, &value));
            assert!(!form.is_whole(one.key, &value[1..]));
            for at in [0, value.len() - 1] {
                value[at] ^= 1;
                assert!(!form.is_whole(one.key, &value), "{keys:?} {at}");
                value[at] ^= 1;
            }
        }
    }

    #[test]
    fn byte_strings_are_hashed_and_stored_before_the_value() {
        let form = RecordForm::new(KeyForm::Bytes, 8, false);
        assert_eq!(form.stored_bytes(), KEY_BYTES + 8);
        let record = form.record(0);
        let mut value = vec![0; form.stored_bytes()];
        form.write(&mut value, record, 5);
        assert_eq!(&value[..KEY_BYTES], b"user6284781860667377211");
        assert_eq!(record.key.row(), row_of(&value[..KEY_BYTES]));
        assert_eq!(form.collision(50_000), None);
    }
}
