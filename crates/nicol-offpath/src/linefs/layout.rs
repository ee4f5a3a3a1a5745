//! Chunks, byte by byte: writes one after the other. All words are little-endian.

use nicol_core::ids::Key;
use nicol_core::units::Bytes;
use nicol_core::wire::{Malformed, Reader};

/// Bytes of a write before its content: key, version, length, kind.
const HEADER: usize = 24;
/// The kind of a write that removes its block.
const REMOVES: u32 = 1;

/// Bytes of a write of so many.
pub(super) const fn record_bytes(len: usize) -> u64 {
    (HEADER + len.next_multiple_of(8)) as u64
}

/// Bytes of the longest write that a chunk has space for.
pub const fn payload_max(chunk: Bytes) -> u64 {
    chunk.0.saturating_sub(HEADER as u64) / 8 * 8
}

/// A write in a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record<'a> {
    pub(super) key: Key,
    pub(super) version: u64,
    /// The new content of the block; `None`: it is removed.
    pub(super) value: Option<&'a [u8]>,
}

impl Record<'_> {
    /// Appends it to a chunk.
    pub(super) fn emit(&self, chunk: &mut Vec<u8>) {
        let value = self.value.unwrap_or_default();
        chunk.extend(self.key.0.to_le_bytes());
        chunk.extend(self.version.to_le_bytes());
        chunk.extend((value.len() as u32).to_le_bytes());
        let kind = if self.value.is_some() { 0 } else { REMOVES };
        chunk.extend(kind.to_le_bytes());
        chunk.extend(value);
        chunk.resize(chunk.len().next_multiple_of(8), 0);
    }
}

/// The writes of a chunk, in their order; all of it is checked.
pub(super) fn records(chunk: &[u8]) -> Result<Vec<Record<'_>>, Malformed> {
    let mut from = Reader::new(chunk);
    let mut found = Vec::new();
    while !from.rest().is_empty() {
        let (key, version) = (Key(from.u64()?), from.u64()?);
        let (len, kind) = (from.u32()? as usize, from.u32()?);
        let bytes = from.bytes(len)?;
        let _padding = from.bytes(len.next_multiple_of(8) - len)?;
        if kind > REMOVES || kind == REMOVES && len > 0 || version == 0 {
            return Err(Malformed { what: "a write in a chunk" });
        }
        found.push(Record { key, version, value: (kind != REMOVES).then_some(bytes) });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_survive_the_way_and_what_is_none_is_refused() {
        let mut chunk = Vec::new();
        let first = Record { key: Key(7), version: 3, value: Some(b"a block") };
        let second = Record { key: Key(8), version: 1, value: None };
        first.emit(&mut chunk);
        assert_eq!(chunk.len() as u64, record_bytes(7));
        second.emit(&mut chunk);
        assert_eq!(records(&chunk), Ok(vec![first, second]));
        for len in (0..chunk.len()).filter(|len| *len > 0 && *len != 32) {
            assert!(records(&chunk[..len]).is_err(), "{len}");
        }
        chunk[20] = 2;
        assert!(records(&chunk).is_err(), "no such kind");
        assert_eq!(payload_max(Bytes(1_000)), 976);
    }
}
