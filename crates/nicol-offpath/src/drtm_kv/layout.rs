//! Buckets and extents, byte by byte. All words are little-endian.

use nicol_core::ids::Key;
use nicol_core::wire::Malformed;

/// Bytes of a bucket. [OffPath23 5.2]
pub(super) const BUCKET: u64 = 64;
/// Entries of a bucket: word 0 is the next bucket's number and one more, words 1 to 6 are entries,
/// word 7 says which of their values the SoC keeps.
pub(super) const ENTRIES: u64 = 3;
/// Bits of word 7 for an entry: the slot that the SoC keeps its value in, and one more.
const KEPT_BITS: u64 = 21;
/// Values that clients READ of the SoC at most.
pub(super) const KEPT_MAX: u64 = (1 << KEPT_BITS) - 1;
const _: () = assert!(ENTRIES * KEPT_BITS <= 64, "a word says it of every entry");
/// The offset of word 7.
pub(super) const KEPT: u64 = 56;
/// The offset of its version in an extent.
pub(super) const VERSION: u64 = 16;
/// Bytes of a row of memory: what is in one is in one bank. [C4.11]
const ROW: u64 = 2 << 10;
/// From one copy of so many bytes to the next: the same offset in two of them is in different
/// banks.
pub(super) const fn copy_stride(bytes: u64) -> u64 {
    bytes.next_multiple_of(16 * ROW) + ROW
}

/// Word 7 with `slot` for an entry.
pub(super) const fn with_kept(word: u64, entry: u64, slot: u32) -> u64 {
    let at = entry * KEPT_BITS;
    word & !(KEPT_MAX << at) | (slot as u64 + 1) << at
}

/// The slot of an entry.
fn kept(word: u64, entry: u64) -> Option<u32> {
    (word >> (entry * KEPT_BITS) & KEPT_MAX).checked_sub(1).map(|slot| slot as u32)
}

/// Bytes of an extent before its value: CRC and length, key, version.
pub(super) const HEADER: u64 = 24;
const _: () = assert!(8 + ENTRIES * 16 <= BUCKET, "a bucket holds its entries");

/// The address of a value: its extent and its version, in one word of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ValueAddress {
    pub(super) extent: u32,
    /// The value's version, from 1.
    pub(super) version: u32,
}

impl ValueAddress {
    /// The address of the key's next value, in `extent`. Versions wrap after 2^32: no reader has an
    /// address that is so old.
    pub(super) const fn next(self, extent: u32) -> Self {
        let version = match self.version.checked_add(1) {
            Some(version) => version,
            None => 1,
        };
        Self { extent, version }
    }

    pub(super) const fn word(self) -> u64 {
        (self.extent as u64) << 32 | self.version as u64
    }

    /// `None`: no value was ever there.
    pub(super) const fn of(word: u64) -> Option<Self> {
        let (extent, version) = ((word >> 32) as u32, word as u32);
        if version == 0 { None } else { Some(Self { extent, version }) }
    }

    /// The offset of the extent, where extents have so many bytes.
    pub(super) const fn offset(self, extent_bytes: u64) -> u64 {
        self.extent as u64 * extent_bytes
    }
}

/// Bytes of an extent for values of so many.
pub(super) const fn extent_bytes(value_bytes: u64) -> u64 {
    HEADER + value_bytes.next_multiple_of(8)
}

/// The content of an index entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) address: ValueAddress,
    /// The slot in which the SoC keeps the value, if that has the same version.
    pub(super) kept: Option<u32>,
}

/// A bucket as it was read: the entry of `key`, or the next bucket of the chain.
pub(super) fn search(bucket: &[u8], key: Key) -> Result<(Option<Entry>, Option<u64>), Malformed> {
    let word = |at: usize| -> Result<u64, Malformed> {
        let bytes = bucket.get(at * 8..at * 8 + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map(u64::from_le_bytes).ok_or(Malformed { what: "a bucket" })
    };
    for entry in 0..ENTRIES as usize {
        // A key may be zero; the address of a value is not.
        let address = ValueAddress::of(word(2 + 2 * entry)?);
        if let Some(address) =
            address.filter(|_| matches!(word(1 + 2 * entry), Ok(of) if of == key.0))
        {
            let kept = kept(word(KEPT as usize / 8)?, entry as u64);
            return Ok((Some(Entry { address, kept }), None));
        }
    }
    Ok((None, word(0)?.checked_sub(1)))
}

/// An extent with the value of `key`.
pub(super) fn emit(key: Key, version: u32, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER as usize + value.len());
    bytes.extend([0; 4]);
    bytes.extend((value.len() as u32).to_le_bytes());
    bytes.extend(key.0.to_le_bytes());
    bytes.extend(u64::from(version).to_le_bytes());
    bytes.extend(value);
    let crc = crc32c::crc32c(&bytes[4..]);
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Why the extent that was read at an address does not hold the value that the address names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    /// It is of another key or version.
    Other,
    /// Its header is the one that was meant, and the rest is not what was written with it.
    Torn,
}

/// The value in an extent, if it is whole, of `key`, and of `version`.
pub(super) fn verify(extent: &[u8], key: Key, version: u32) -> Result<&[u8], Unfit> {
    let word = |at: usize| extent.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
    let first = word(0).ok_or(Unfit::Other)?;
    let (crc, len) = (first as u32, (first >> 32) as usize);
    let end = (HEADER as usize).checked_add(len).filter(|end| *end <= extent.len());
    if (word(8), word(16)) != (Some(key.0), Some(u64::from(version))) {
        return Err(Unfit::Other);
    }
    let whole = end.and_then(|end| extent.get(4..end)).ok_or(Unfit::Torn)?;
    if crc32c::crc32c(whole) != crc {
        return Err(Unfit::Torn);
    }
    Ok(&extent[HEADER as usize..HEADER as usize + len])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_extent_and_one_of_another_key_or_version_are_refused() {
        let extent = emit(Key(7), 3, b"a value of some bytes");
        assert_eq!(verify(&extent, Key(7), 3), Ok(&b"a value of some bytes"[..]));
        assert_eq!(verify(&extent, Key(8), 3), Err(Unfit::Other));
        assert_eq!(verify(&extent, Key(7), 4), Err(Unfit::Other));
        let other = emit(Key(7), 3, b"A VALUE OF SOME BYTES");
        for cut in (8..extent.len()).step_by(8).filter(|cut| extent[*cut..] != other[*cut..]) {
            let torn = [&extent[..cut], &other[cut..]].concat();
            assert_eq!(verify(&torn, Key(7), 3), Err(Unfit::Torn), "{cut}");
        }
        for len in 0..extent.len() {
            assert!(verify(&extent[..len], Key(7), 3).is_err(), "{len}");
        }
    }

    /// A card reads the 64 bytes of a bucket at one instant; threads read it word by word.
    /// Whichever words of it are from before a put and whichever from after, a search finds the old
    /// address or the new one, since a put changes one word. Had it moved the entry, some mixtures
    /// would lose the key.
    #[test]
    fn a_torn_bucket_leads_to_the_old_place_or_the_new_one() {
        let (old, new) =
            (ValueAddress { extent: 5, version: 2 }, ValueAddress { extent: 9, version: 3 });
        let other = ValueAddress { extent: 1, version: 1 };
        let before = [0, 0, 0, 77, old.word(), 78, other.word(), 0_u64];
        let put = {
            let mut words = before;
            words[4] = new.word();
            words
        };
        let moved = [0, 77, new.word(), 78, other.word(), 0, 0, 0_u64];
        let found = |after: &[u64; 8], mixture: usize| {
            let words =
                (0..8).map(|at| if mixture >> at & 1 == 1 { after[at] } else { before[at] });
            let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
            search(&bytes, Key(77)).unwrap().0.map(|entry| entry.address)
        };
        for mixture in 0..256 {
            let found = found(&put, mixture);
            assert!(found == Some(old) || found == Some(new), "{mixture:08b}: {found:?}");
        }
        let lost =
            (0..256).filter(|mixture| ![Some(old), Some(new)].contains(&found(&moved, *mixture)));
        assert!(lost.count() > 50, "a bucket whose entries move can be torn");
    }

    #[test]
    fn a_bucket_is_searched_by_key_and_leads_on() {
        let mut words = [0u64; 8];
        let address = ValueAddress { extent: 5, version: 2 };
        (words[0], words[3], words[4]) = (10, 77, address.word());
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(search(&bytes, Key(77)), Ok((Some(Entry { address, kept: None }), None)));
        assert_eq!(search(&bytes, Key(0)), Ok((None, Some(9))));
        assert!(search(&bytes[..63], Key(78)).is_ok() && search(&bytes[..40], Key(78)).is_err());
        words[7] = with_kept(with_kept(with_kept(0, 0, 6), 1, 0), 2, KEPT_MAX as u32 - 1);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(search(&bytes, Key(77)), Ok((Some(Entry { address, kept: Some(0) }), None)));
        assert_eq!(kept(words[7], 2), Some(KEPT_MAX as u32 - 1));
        assert_eq!(with_kept(words[7], 1, 5), with_kept(with_kept(words[7], 1, 9), 1, 5));
    }
}
