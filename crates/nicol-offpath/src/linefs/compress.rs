//! Compression of chunks: LZ4, in blocks that are packed one by one so that a core serves others in
//! between.

use nicol_core::fabric::{Local, Work};
use nicol_core::wire::Malformed;

/// Bytes of a block before it is packed.
pub(super) const BLOCK: usize = 64 << 10;
/// Bytes before each packed block: its lengths, packed and not.
const HEADER: usize = 8;

/// The cost of packing, or unpacking, on a core of the SoC: for each unpacked byte, and for each
/// sequence (a run of literals and a match) of the packed form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Picoseconds of a byte.
    pub byte_ps: u64,
    /// Nanoseconds of a sequence.
    pub sequence_ns: u64,
}

impl Cost {
    /// Measured of this library on a server core of 2.6 GHz (`examples/compression.rs`: text at
    /// 0.49 GB/s, zeros at 22 GB/s, random bytes at 18 GB/s, hence 50 ps a byte and 18 ns a
    /// sequence), times 2.6 for a core of the SoC, as `nic_slowdown_permille` of bluefield2:
    /// assumed.
    pub const COMPRESSION: Self = Self { byte_ps: 130, sequence_ns: 47 };
    /// The same of unpacking: 3.1 GB/s of text, 50 GB/s of what is not compressed.
    pub const DECOMPRESSION: Self = Self { byte_ps: 50, sequence_ns: 7 };

    /// The same of a host's core, as it was measured.
    pub const HOST_COMPRESSION: Self = Self { byte_ps: 50, sequence_ns: 18 };
    /// The same of unpacking.
    pub const HOST_DECOMPRESSION: Self = Self { byte_ps: 20, sequence_ns: 3 };

    const fn of(self, bytes: usize, sequences: u64) -> Work {
        let bytes = (bytes as u64 * self.byte_ps).div_ceil(1_000);
        Work::Given { nanos: bytes + self.sequence_ns * sequences }
    }
}

/// Bytes that `raw` bytes take at most once they are packed.
pub(super) const fn packed_max(raw: u64) -> u64 {
    raw + raw.div_ceil(BLOCK as u64) * HEADER as u64
}

/// A chunk that is packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// Its blocks, each behind its lengths.
    pub bytes: Vec<u8>,
    /// Sequences of all blocks.
    pub sequences: u64,
}

/// Packs `raw`, and charges it to this core.
pub async fn pack<F: Local>(fabric: &F, raw: &[u8], cost: Cost) -> Packed {
    let mut packed = Packed { bytes: Vec::with_capacity(raw.len() / 2), sequences: 0 };
    for block in raw.chunks(BLOCK) {
        let sequences = pack_block(block, &mut packed.bytes);
        packed.sequences += sequences;
        fabric.work(cost.of(block.len(), sequences));
        fabric.yield_now().await;
    }
    packed
}

/// Unpacks what [`pack`] has made of `len` bytes, and charges it to this core.
///
/// # Errors
/// If the bytes are not that.
pub async fn unpack<F: Local>(
    fabric: &F,
    mut packed: &[u8],
    len: usize,
    cost: Cost,
) -> Result<Vec<u8>, Malformed> {
    let mut raw = Vec::new();
    while !packed.is_empty() {
        let before = raw.len();
        let (sequences, rest) = unpack_block(packed, len - before, &mut raw)?;
        fabric.work(cost.of(raw.len() - before, sequences));
        fabric.yield_now().await;
        packed = rest;
    }
    if raw.len() == len { Ok(raw) } else { Err(Malformed { what: "the length of a chunk" }) }
}

/// Unpacks the result of [`pack`] of `len` bytes without any charge: for traces.
///
/// Errors: the bytes are not that.
pub(super) fn unpacked(mut packed: &[u8], len: usize) -> Result<Vec<u8>, Malformed> {
    let mut raw = Vec::new();
    while !packed.is_empty() {
        (_, packed) = unpack_block(packed, len - raw.len(), &mut raw)?;
    }
    Ok(raw)
}

/// Appends a block, packed if that makes it shorter; how many sequences it has.
fn pack_block(block: &[u8], to: &mut Vec<u8>) -> u64 {
    let packed = lz4_flex::block::compress(block);
    let sequences = sequences(&packed);
    let shorter = packed.len() < block.len();
    let bytes = if shorter { &packed[..] } else { block };
    to.extend((bytes.len() as u32).to_le_bytes());
    to.extend((block.len() as u32).to_le_bytes());
    to.extend(bytes);
    sequences
}

/// Takes the first block of `packed`, which has at most `most` bytes.
fn unpack_block<'a>(
    packed: &'a [u8],
    most: usize,
    to: &mut Vec<u8>,
) -> Result<(u64, &'a [u8]), Malformed> {
    const WRONG: Malformed = Malformed { what: "a packed block" };
    let word = |at: usize| -> Option<usize> {
        let bytes = packed.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_le_bytes(bytes) as usize)
    };
    let (len, raw) = word(0).zip(word(4)).ok_or(WRONG)?;
    if raw > most.min(BLOCK) {
        return Err(WRONG);
    }
    let bytes = packed.get(HEADER..HEADER + len).ok_or(WRONG)?;
    let rest = &packed[HEADER + len..];
    if len == raw {
        to.extend(bytes);
        return Ok((1, rest));
    }
    let found = lz4_flex::block::decompress(bytes, raw).map_err(|_| WRONG)?;
    if found.len() != raw {
        return Err(WRONG);
    }
    to.extend(found);
    Ok((sequences(bytes), rest))
}

/// Sequences of an LZ4 block: a token, literals, and but for the last one a match.
fn sequences(block: &[u8]) -> u64 {
    let (mut at, mut count) = (0, 0);
    let longer = |nibble: u8, at: &mut usize| -> usize {
        let mut length = usize::from(nibble);
        let mut goes_on = nibble == 15;
        while goes_on {
            let more = block.get(*at).copied().unwrap_or_default();
            *at += 1;
            length += usize::from(more);
            goes_on = more == 255;
        }
        length
    };
    while let Some(&token) = block.get(at) {
        at += 1;
        count += 1;
        at += longer(token >> 4, &mut at);
        if at >= block.len() {
            break;
        }
        at += 2;
        let _matched = longer(token & 15, &mut at);
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(raw: &[u8]) -> (usize, u64) {
        let (mut packed, mut found) = (Vec::new(), Vec::new());
        let sequences = pack_block(raw, &mut packed);
        let (again, rest) = unpack_block(&packed, raw.len(), &mut found).unwrap();
        assert!(found == raw && rest.is_empty());
        assert!(packed.len() as u64 <= packed_max(raw.len() as u64));
        assert!(again == sequences || packed.len() == HEADER + raw.len());
        (packed.len(), sequences)
    }

    #[test]
    fn blocks_survive_packing_and_count_their_sequences() {
        let zeros = vec![0; BLOCK];
        let (len, sequences) = round_trip(&zeros);
        assert!(len < 300 && sequences <= 2, "{len} {sequences}");
        let noise: Vec<u8> = (0..BLOCK as u64)
            .map(|at| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29) >> 13) as u8)
            .collect();
        round_trip(&noise);
        let text = b"a replica of a file ".repeat(50);
        let (len, sequences) = round_trip(&text);
        assert!(len < 100 && sequences >= 2, "{len} {sequences}");
        round_trip(b"x");
    }

    #[test]
    fn what_is_no_packed_block_is_refused() {
        let mut packed = Vec::new();
        pack_block(&b"a replica of a file ".repeat(9), &mut packed);
        for len in 0..packed.len() {
            assert!(unpack_block(&packed[..len], BLOCK, &mut Vec::new()).is_err(), "{len}");
        }
        assert!(unpack_block(&packed, 179, &mut Vec::new()).is_err(), "more than there may be");
    }
}
