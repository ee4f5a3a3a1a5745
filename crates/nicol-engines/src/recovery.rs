//! What the logs of a node that has ended say. [Silo13 4.10]
//!
//! A chunk is what one core has persisted at a time: a header, then records.
//!
//! | field | bytes | what |
//! |---|---|---|
//! | core | 4 | whose chunk it is |
//! | length | 4 | bytes of its records |
//! | complete | 8 | the core's log is complete up to this epoch; 0: the chunk does not say |
//!
//! A record is a transaction: its length without this field (4), its epoch (8), its id (8), then of
//! each write the key (8), the version that it installs (8), the bytes of its value (4; all ones:
//! it deletes), and the value. All numbers are little-endian.

use nicol_core::ids::{Key, TxnId, Version};
use nicol_core::wire::{Malformed, Reader, Writer};
use nicol_kit::Recovered;

use super::sets::Sets;

/// Bytes of a chunk before its records.
pub(super) const CHUNK_HEADER: usize = 16;
/// Bytes of a record before its writes, and of a write before its value.
const RECORD_HEADER: usize = 20;
const WRITE_HEADER: usize = 20;
/// The length of the value of a write that deletes.
const DELETES: u32 = u32::MAX;

/// The header of a core's chunk.
pub(super) fn chunk_header(core: usize, complete: u64, bytes: usize) -> [u8; CHUNK_HEADER] {
    let mut header = [0; CHUNK_HEADER];
    header[..4].copy_from_slice(&(core as u32).to_le_bytes());
    header[4..8].copy_from_slice(&(bytes as u32).to_le_bytes());
    header[8..].copy_from_slice(&complete.to_le_bytes());
    header
}

/// Bytes of the record of a transaction.
pub(super) fn record_bytes(sets: &Sets) -> usize {
    let of = |write| WRITE_HEADER + sets.value(write).map_or(0, <[u8]>::len);
    RECORD_HEADER + sets.writes.iter().map(of).sum::<usize>()
}

/// Appends the record of a transaction.
pub(super) fn emit_record(epoch: u64, id: TxnId, sets: &Sets, to: &mut Vec<u8>) {
    let mut to = Writer::new(to);
    to.u32((record_bytes(sets) - size_of::<u32>()) as u32);
    to.u64(epoch);
    to.u64(id.0);
    for write in &sets.writes {
        to.u64(write.key.0);
        to.u64(write.version.get().0);
        let value = sets.value(write);
        to.u32(value.map_or(DELETES, |value| value.len() as u32));
        to.bytes(value.unwrap_or_default());
    }
}

/// Cuts `records` behind as many whole ones as have `most` bytes, one of which has no more.
pub(super) fn whole_records(records: &[u8], most: usize) -> (&[u8], &[u8]) {
    let mut end = 0;
    while let Some(length) = records[end..].first_chunk() {
        let next = end + size_of::<u32>() + u32::from_le_bytes(*length) as usize;
        if next > most {
            break;
        }
        end = next;
    }
    records.split_at(end)
}

/// The logs of a node's cores, as its device holds them.
#[derive(Debug)]
pub struct Logs<'a> {
    /// By core: its log is complete up to this epoch.
    complete: Vec<u64>,
    chunks: Vec<&'a [u8]>,
}

impl<'a> Logs<'a> {
    /// None yet, of a node with so many cores.
    pub fn new(cores: usize) -> Self {
        Self { complete: vec![0; cores], chunks: Vec::new() }
    }

    /// Takes a chunk that is whole. Of those of one core, none may be missing before it.
    ///
    /// # Errors
    /// If it is none.
    pub fn note(&mut self, chunk: &'a [u8]) -> Result<(), Malformed> {
        let from = &mut Reader::new(chunk);
        let (core, bytes, complete) = (from.u32()?, from.u32()?, from.u64()?);
        let of_core = self.complete.get_mut(core as usize);
        let of_core = of_core.ok_or(Malformed { what: "a core that the node has not" })?;
        *of_core = complete.max(*of_core);
        self.chunks.push(from.bytes(bytes as usize)?);
        from.finish()
    }

    /// Every transaction up to this epoch is there; what is later was not acknowledged.
    pub fn durable(&self) -> u64 {
        self.complete.iter().copied().min().unwrap_or_default()
    }

    /// Applies the writes of the transactions of durable epochs to what was loaded; returns how
    /// many transactions.
    ///
    /// # Errors
    /// If a chunk holds what is no record.
    pub fn apply(&self, to: &mut Recovered) -> Result<u64, Malformed> {
        let (durable, mut transactions) = (self.durable(), 0);
        for chunk in &self.chunks {
            let chunk = &mut Reader::new(chunk);
            while !chunk.rest().is_empty() {
                let length = chunk.u32()?;
                let record = &mut Reader::new(chunk.bytes(length as usize)?);
                let (epoch, _id) = (record.u64()?, record.u64()?);
                if epoch > durable {
                    continue;
                }
                transactions += 1;
                while !record.rest().is_empty() {
                    let (key, version) = (Key(record.u64()?), Version(record.u64()?));
                    let bytes = record.u32()?;
                    let value = match bytes {
                        DELETES => None,
                        bytes => Some(record.bytes(bytes as usize)?),
                    };
                    to.apply(key, version, value);
                }
            }
        }
        Ok(transactions)
    }
}

#[cfg(test)]
mod tests {
    use nicol_store::multicore::Place;

    use super::*;

    /// A chunk of `core`, complete up to `complete`, with a transaction in each of `epochs` that
    /// writes its epoch to key 7 under a version that is as high, and deletes key 8.
    fn chunk(core: usize, complete: u64, epochs: &[u64]) -> Vec<u8> {
        let mut records = Vec::new();
        for &epoch in epochs {
            let mut sets = Sets::default();
            sets.write(Place(1), Key(7), Some(&epoch.to_le_bytes()));
            sets.write(Place(2), Key(8), None);
            sets.writes.iter().for_each(|write| write.version.set(Version(epoch)));
            let before = records.len();
            emit_record(epoch, TxnId(epoch), &sets, &mut records);
            assert_eq!(records.len() - before, record_bytes(&sets));
        }
        let header = chunk_header(core, complete, records.len());
        header.into_iter().chain(records).collect()
    }

    fn recover(chunks: &[Vec<u8>]) -> Result<(u64, u64, Recovered), Malformed> {
        let mut logs = Logs::new(2);
        chunks.iter().try_for_each(|chunk| logs.note(chunk))?;
        let mut recovered = Recovered::default();
        let transactions = logs.apply(&mut recovered)?;
        Ok((logs.durable(), transactions, recovered))
    }

    #[test]
    fn transactions_of_epochs_that_every_core_has_completed_are_taken_and_no_others() {
        let chunks = [chunk(0, 4, &[3, 4]), chunk(0, 0, &[5]), chunk(1, 5, &[2, 5])];
        let (durable, transactions, recovered) = recover(&chunks).unwrap();
        assert_eq!((durable, transactions), (4, 3));
        let newest = 4_u64.to_le_bytes();
        assert_eq!(recovered.get(Key(7)), Some((Version(4), Some(&newest[..]))));
        assert_eq!(recovered.get(Key(8)), Some((Version(4), None)));
        // A core that has said nothing has completed nothing.
        assert_eq!(recover(&chunks[..2]).unwrap().0, 0);
        assert_eq!(recover(&chunks[..2]).unwrap().1, 0);
    }

    #[test]
    fn what_is_no_chunk_is_refused() {
        assert!(recover(&[chunk(2, 4, &[3])]).is_err(), "a third core");
        let whole = chunk(0, 4, &[3]);
        assert!(recover(&[whole[..whole.len() - 1].to_vec()]).is_err());
        let other = chunk(1, 4, &[3]);
        let mut longer = whole.clone();
        longer[CHUNK_HEADER] += 1;
        assert!(recover(&[longer, other.clone()]).is_err(), "a record beyond its chunk");
        let mut shorter = whole;
        shorter[CHUNK_HEADER] -= 1;
        assert!(recover(&[shorter, other]).is_err(), "a write beyond its record");
    }

    #[test]
    fn records_are_cut_between_each_other() {
        let records = &chunk(0, 0, &[1, 2, 3])[CHUNK_HEADER..];
        let one = records.len() / 3;
        assert_eq!(whole_records(records, records.len()), (records, &[][..]));
        assert_eq!(whole_records(records, 2 * one + 1).0.len(), 2 * one);
        assert_eq!(whole_records(&[], 8), (&[][..], &[][..]));
    }
}
