//! A record of the store holds every RESP key of its row, with its value.
//!
//! A row is a 56-bit hash of a RESP key. Two keys of the same row share a record and are told
//! apart by their bytes, so that a collision costs time and is never wrong.
//!
//! Layout, repeated, numbers little-endian: key length (2 bytes: the length in its 10 lowest bits,
//! the number of the value's type in the next 5, and in the highest whether the pair expires),
//! value length (4), the deadline if it expires (8; milliseconds of Unix time), key, value.

use nicol_core::ids::{Key, TableId};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Databases that SELECT takes. Each is a table of its own: database n is table n.
pub const DATABASES: usize = 16;

/// The number of a database, below [`DATABASES`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Database(u8);

impl Database {
    /// The database of this number; `None` if there is none.
    pub fn new(number: i64) -> Option<Self> {
        let number = u8::try_from(number).ok()?;
        (usize::from(number) < DATABASES).then_some(Self(number))
    }

    /// The database of a record; `None` if it is no record of RESP keys.
    pub fn of(row: Key) -> Option<Self> {
        Self::new(row.table().0.into())
    }

    /// Its number, as SELECT takes it.
    pub fn number(self) -> u8 {
        self.0
    }

    /// Its place in an array with a place for each database.
    pub fn place(self) -> usize {
        self.0.into()
    }
}

/// Bytes of the two lengths and the deadline before a key.
pub const HEADER_LEN: usize = 14;
/// Set in a key's length if the pair expires.
const EXPIRES: u16 = 1 << 15;
/// Where the type stands in a key's length.
const KIND_SHIFT: u32 = 10;
const KINDS: u8 = 32;
const KEY_LEN: u16 = (1 << KIND_SHIFT) - 1;

/// A RESP key and what belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair<'a> {
    pub key: &'a [u8],
    /// The number of the value's type.
    pub kind: u8,
    pub value: &'a [u8],
    /// From when on it is absent, in milliseconds of Unix time; `None`: it stays.
    pub expires: Option<i64>,
}

impl Pair<'_> {
    /// Whether it is absent at `now`.
    pub fn is_over(&self, now: i64) -> bool {
        self.expires.is_some_and(|deadline| deadline <= now)
    }
}

/// A record that is not in the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// The Nicol key of the RESP key `bytes` in `database`.
pub fn row(database: Database, hash_seed: u64, bytes: &[u8]) -> Key {
    let hash = xxh3_64_with_seed(bytes, hash_seed) >> (64 - Key::ROW_BITS);
    Key::new(TableId(database.0), hash)
}

/// The pairs of `record`, each checked before it is handed out.
pub fn pairs(record: &[u8]) -> Pairs<'_> {
    Pairs(record)
}

/// The pair of `key` in `record`, whether or not it is over.
pub fn find<'a>(record: &'a [u8], key: &[u8]) -> Result<Option<Pair<'a>>, Malformed> {
    for pair in pairs(record) {
        let pair = pair?;
        if pair.key == key {
            return Ok(Some(pair));
        }
    }
    Ok(None)
}

/// Keys that `record` holds, those too whose time is over.
pub fn key_count(record: &[u8]) -> usize {
    pairs(record).filter(Result::is_ok).count()
}

/// When the first of the keys in `record` that expire does, in milliseconds of Unix time.
pub fn first_deadline(record: &[u8]) -> Option<i64> {
    pairs(record).filter_map(|pair| pair.ok()?.expires).min()
}

/// Appends a pair to the record at the end of `out`.
///
/// # Panics
/// If the key is longer than 10 bits can say, the type's number than 5, or the value than 32.
pub fn push(out: &mut Vec<u8>, Pair { key, kind, value, expires }: Pair<'_>) {
    assert!(kind < KINDS, "a type's number fits its bits");
    assert!(key.len() <= usize::from(KEY_LEN), "keys are limited before they are stored");
    assert!(value.len() <= u32::MAX as usize, "values are limited before they are stored");
    let flag = if expires.is_some() { EXPIRES } else { 0 };
    out.extend_from_slice(&(key.len() as u16 | u16::from(kind) << KIND_SHIFT | flag).to_le_bytes());
    out.extend_from_slice(&(value.len() as u32).to_le_bytes());
    if let Some(deadline) = expires {
        out.extend_from_slice(&deadline.to_le_bytes());
    }
    out.extend_from_slice(key);
    out.extend_from_slice(value);
}

/// The iterator of [`pairs`].
#[derive(Clone, Debug)]
pub struct Pairs<'a>(&'a [u8]);

impl<'a> Iterator for Pairs<'a> {
    type Item = Result<Pair<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let pair = split(self.0);
        self.0 = pair.map_or(&[], |(_, rest)| rest);
        Some(pair.map(|(pair, _)| pair).ok_or(Malformed))
    }
}

fn split(bytes: &[u8]) -> Option<(Pair<'_>, &[u8])> {
    let (key_len, rest) = bytes.split_first_chunk::<2>()?;
    let (value_len, mut rest) = rest.split_first_chunk::<4>()?;
    let key_len = u16::from_le_bytes(*key_len);
    let mut expires = None;
    if key_len & EXPIRES != 0 {
        let (deadline, behind) = rest.split_first_chunk::<8>()?;
        (expires, rest) = (Some(i64::from_le_bytes(*deadline)), behind);
    }
    let (key, rest) = rest.split_at_checked(usize::from(key_len & KEY_LEN))?;
    let (value, rest) = rest.split_at_checked(u32::from_le_bytes(*value_len) as usize)?;
    let kind = ((key_len & !EXPIRES) >> KIND_SHIFT) as u8;
    Some((Pair { key, kind, value, expires }, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colliding_keys_share_a_record_and_stay_apart() {
        let mut record = Vec::new();
        let (one, two) = (pair(b"one", b"1", Some(1_000)), pair(b"two", b"", None));
        push(&mut record, one);
        let boundary = record.len();
        push(&mut record, two);
        assert_eq!(find(&record, b"one"), Ok(Some(one)));
        assert_eq!(find(&record, b"two"), Ok(Some(two)));
        assert_eq!(find(&record, b"three"), Ok(None));
        assert_eq!(
            (first_deadline(&record), first_deadline(&record[boundary..])),
            (Some(1_000), None)
        );
        for cut in 1..record.len() {
            let whole = pairs(&record[..cut]).all(|pair| pair.is_ok());
            assert_eq!(whole, cut == boundary, "cut at {cut}");
        }
        assert!(!one.is_over(999) && one.is_over(1_000));
        assert!(!two.is_over(i64::MAX));
    }

    fn pair<'a>(key: &'a [u8], value: &'a [u8], expires: Option<i64>) -> Pair<'a> {
        Pair { key, kind: 3, value, expires }
    }
}
