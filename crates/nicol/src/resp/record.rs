//! What a Nicol record of the RESP table holds: every RESP key of its row, with its value.
//!
//! A row is a 56-bit hash of a RESP key. Two keys of the same row share a record and are told
//! apart by their bytes, so that a collision costs time and is never wrong.
//!
//! Layout, repeated: key length (2 bytes, little-endian), value length (4), key, value.

use nicol_core::ids::{Key, TableId};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The table of the RESP keys.
pub const TABLE: TableId = TableId(0);

/// Bytes of the two lengths before a key.
pub const HEADER_LEN: usize = 6;

/// A record that is not in the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// The Nicol key of the RESP key `bytes`.
pub fn row(hash_seed: u64, bytes: &[u8]) -> Key {
    Key::new(TABLE, xxh3_64_with_seed(bytes, hash_seed) >> (64 - Key::ROW_BITS))
}

/// The pairs of `record`, each checked before it is handed out.
pub fn pairs(record: &[u8]) -> Pairs<'_> {
    Pairs(record)
}

/// The value of `key` in `record`.
pub fn find<'a>(record: &'a [u8], key: &[u8]) -> Result<Option<&'a [u8]>, Malformed> {
    for pair in pairs(record) {
        let (found, value) = pair?;
        if found == key {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

/// Appends a pair to the record at the end of `out`.
///
/// # Panics
/// If the key is longer than 16 bits can say or the value than 32 bits can.
pub fn push(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    assert!(key.len() <= usize::from(u16::MAX), "keys are limited before they are stored");
    assert!(value.len() <= u32::MAX as usize, "values are limited before they are stored");
    out.extend_from_slice(&(key.len() as u16).to_le_bytes());
    out.extend_from_slice(&(value.len() as u32).to_le_bytes());
    out.extend_from_slice(key);
    out.extend_from_slice(value);
}

/// The iterator of [`pairs`].
#[derive(Clone, Debug)]
pub struct Pairs<'a>(&'a [u8]);

impl<'a> Iterator for Pairs<'a> {
    type Item = Result<(&'a [u8], &'a [u8]), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let pair = split(self.0);
        match pair {
            Some((_, _, rest)) => self.0 = rest,
            None => self.0 = &[],
        }
        Some(pair.map(|(key, value, _)| (key, value)).ok_or(Malformed))
    }
}

fn split(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (key_len, rest) = bytes.split_first_chunk::<2>()?;
    let (value_len, rest) = rest.split_first_chunk::<4>()?;
    let (key, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*key_len)))?;
    let (value, rest) = rest.split_at_checked(u32::from_le_bytes(*value_len) as usize)?;
    Some((key, value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colliding_keys_share_a_record_and_stay_apart() {
        let mut record = Vec::new();
        push(&mut record, b"one", b"1");
        push(&mut record, b"two", b"");
        assert_eq!(find(&record, b"one"), Ok(Some(&b"1"[..])));
        assert_eq!(find(&record, b"two"), Ok(Some(&b""[..])));
        assert_eq!(find(&record, b"three"), Ok(None));
        for cut in 1..record.len() {
            // The only other boundary is the one between the two pairs.
            let whole = pairs(&record[..cut]).all(|pair| pair.is_ok());
            assert_eq!(whole, cut == HEADER_LEN + 4, "cut at {cut}");
        }
    }
}
