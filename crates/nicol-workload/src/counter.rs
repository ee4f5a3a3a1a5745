//! Records that count their increments: what YCSB-T and Retwis read, modify and audit.
//!
//! A value is a counter and a filler that is computed from the row and the counter. A value that is
//! torn between two versions, or stored under the wrong key, is therefore detected.

use std::ops::Range;

use nicol_core::ids::{Key, ShardId, TableId};
use nicol_core::records::Records;
use nicol_core::txn::{Txn, Verdict};
use nicol_core::view::ShardMap;

use crate::placement::{Violations, holds, mix, records_at_most};

/// Bytes of the smallest value: the counter alone.
const VALUE_BYTES_MIN: usize = field::COUNTER.end;
/// Bytes of the largest value: it is built on the stack.
pub(crate) const VALUE_BYTES_MAX: usize = 1_024;
/// Bytes of a value that most runs do not exceed: a stack of the largest takes longer to clear.
const VALUE_BYTES_USUAL: usize = 128;

mod field {
    use super::Range;
    pub const COUNTER: Range<usize> = 0..8;
}

/// The filler's byte of `row` at `counter`.
fn filler(row: u64, counter: u64) -> u8 {
    mix(row ^ counter.rotate_left(32)) as u8
}

/// Writes the value of `row` at `counter` over `value`.
pub(crate) fn emit(value: &mut [u8], row: u64, counter: u64) {
    value.fill(filler(row, counter));
    value[field::COUNTER].copy_from_slice(&counter.to_le_bytes());
}

/// The counter of `row`'s `value`; `None` if the value is not one that was ever written to it.
pub(crate) fn parse(value: &[u8], row: u64) -> Option<u64> {
    let (counter, rest) = value.split_first_chunk::<8>()?;
    let counter = u64::from_le_bytes(*counter);
    let expected = filler(row, counter);
    // Eight bytes at a time: whoever checks every value that is read must not take longer than who
    // reads.
    let (words, bytes) = rest.as_chunks::<8>();
    let differ = words.iter().fold(0, |differ, word| {
        differ | u64::from_le_bytes(*word) ^ u64::from_le_bytes([expected; 8])
    });
    (differ == 0 && bytes.iter().all(|byte| *byte == expected)).then_some(counter)
}

/// The counted records of one table, or of several of the same size with successive numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CountedTable {
    table: TableId,
    tables: u8,
    nodes: u16,
    total: u64,
    value_bytes: usize,
}

impl CountedTable {
    /// So many records for each of `nodes` nodes.
    ///
    /// # Panics
    /// If a value is smaller than its counter or larger than it may be.
    pub(crate) fn new(
        table: TableId,
        nodes: u16,
        records_per_node: u64,
        value_bytes: usize,
    ) -> Self {
        let sizes = VALUE_BYTES_MIN..=VALUE_BYTES_MAX;
        assert!(sizes.contains(&value_bytes), "values are {sizes:?} bytes");
        let total = records_per_node * u64::from(nodes);
        Self { table, tables: 1, nodes, total, value_bytes }
    }

    /// The same records in so many tables.
    ///
    /// # Panics
    /// If that is none, or does not divide them.
    pub(crate) fn split_in(self, tables: u8) -> Self {
        assert!(tables > 0 && self.total.is_multiple_of(tables.into()), "tables are equally large");
        Self { tables, ..self }
    }

    /// Records of the whole cluster.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    pub(crate) fn tables(&self) -> impl Iterator<Item = TableId> {
        (self.table.0..self.table.0 + self.tables).map(TableId)
    }

    /// Records of a table.
    pub(crate) fn per_table(&self) -> u64 {
        self.total / u64::from(self.tables)
    }

    /// The key of `row` of the table at position `table`.
    pub(crate) fn key(&self, table: u8, row: u64) -> Key {
        Key::new(TableId(self.table.0 + table), row)
    }

    fn keys(&self) -> impl Iterator<Item = Key> {
        let rows = self.per_table();
        self.tables().flat_map(move |table| (0..rows).map(move |row| Key::new(table, row)))
    }

    /// Records of one shard, at most.
    pub(crate) fn per_shard(&self) -> u64 {
        records_at_most(self.total, self.nodes)
    }

    /// See [`nicol_core::records::RecordSource::value_lengths`].
    pub(crate) fn value_lengths(&self) -> Vec<(u32, u64)> {
        vec![(self.value_bytes as u32, self.per_shard())]
    }

    /// Yields every record of `shard`, at a counter of 0.
    pub(crate) fn load(
        &self,
        shards: &dyn ShardMap,
        shard: ShardId,
        each: &mut dyn FnMut(Key, &[u8]),
    ) {
        let mut value = [0; VALUE_BYTES_MAX];
        let value = &mut value[..self.value_bytes];
        for key in self.keys().filter(|key| holds(shards, shard, *key)) {
            emit(value, key.row(), 0);
            each(key, value);
        }
    }

    /// Compares the sum of all counters with the committed increments.
    pub(crate) fn audit(&self, state: &mut dyn Records, totals: &[i128]) -> Vec<String> {
        self.audit_values(state, Some(totals.iter().sum()))
    }

    /// Looks whether every record holds a value that may have been written to it, and compares the
    /// sum of all counters with the increments, if these are known.
    pub(crate) fn audit_values(
        &self,
        state: &mut dyn Records,
        increments: Option<i128>,
    ) -> Vec<String> {
        let mut violations = Violations::default();
        let mut sum = 0_i128;
        let mut found = 0_u64;
        state.for_each(&mut |key, value| {
            found += 1;
            let row = key.row();
            match parse(value, row).filter(|_| value.len() == self.value_bytes) {
                Some(counter) => sum += i128::from(counter),
                None => violations.add(|| format!("record {key:?} holds a torn or foreign value")),
            }
        });
        if found != self.total {
            violations.add(|| format!("there are {found} records instead of {}", self.total));
            for key in self.keys().filter(|key| state.read(*key).is_none()) {
                violations.add(|| format!("record {key:?} is lost"));
            }
        }
        if let Some(committed) = increments.filter(|committed| *committed != sum) {
            violations.add(|| format!("counters sum to {sum}, increments committed: {committed}"));
        }
        violations.into_lines()
    }
}

/// Increments every write-set record and outputs the number of increments. Refuses if a record is
/// missing or its value torn, which no correct system shows.
pub(crate) fn increment(txn: &mut Txn) -> Verdict {
    let mut increments = 0_i64;
    for index in 0..txn.entries().len() {
        match increment_of(txn, index) {
            Some(made) => increments += made,
            None => return Verdict::Refuse,
        }
    }
    txn.output.extend_from_slice(&increments.to_le_bytes());
    Verdict::Commit
}

/// The arguments of [`increment_or_overwrite`]: what counters become, and the bytes of a value.
pub(crate) fn overwriting(counter: u32, value_bytes: usize) -> [u8; 8] {
    let mut args = [0; 8];
    args[..4].copy_from_slice(&counter.to_le_bytes());
    args[4..].copy_from_slice(&(value_bytes as u32).to_le_bytes());
    args
}

/// Sets the records that are written blind, and increments the others of the write set. Refuses as
/// [`increment`] does.
pub(crate) fn increment_or_overwrite(txn: &mut Txn) -> Verdict {
    let Some(args) = txn.args().first_chunk::<8>() else { return Verdict::Refuse };
    let [a, b, c, d, len @ ..] = *args;
    let (counter, len) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes(len) as usize);
    let mut value = [0; VALUE_BYTES_MAX];
    let Some(value) = value.get_mut(..len) else { return Verdict::Refuse };
    for index in 0..txn.entries().len() {
        let entry = txn.entries()[index];
        if entry.blind {
            emit(value, entry.key.row(), counter.into());
            txn.put(index, value);
        } else if increment_of(txn, index).is_none() {
            return Verdict::Refuse;
        }
    }
    Verdict::Commit
}

/// Increments the record at `index` if it is in the write set; returns the number of increments.
/// `None` if the record is missing or its value torn.
pub(crate) fn increment_of(txn: &mut Txn, index: usize) -> Option<i64> {
    let entry = txn.entries()[index];
    let found = entry.fetched.then(|| txn.value(index)).flatten()?;
    let counter = parse(found, entry.key.row())?;
    if !entry.write {
        return Some(0);
    }
    let (row, counter, len) = (entry.key.row(), counter.checked_add(1)?, found.len());
    if len <= VALUE_BYTES_USUAL {
        put_counter::<VALUE_BYTES_USUAL>(txn, index, (row, counter), len);
    } else {
        put_counter::<VALUE_BYTES_MAX>(txn, index, (row, counter), len);
    }
    Some(1)
}

/// Writes the value of `row` at `counter`, which has `len` of at most `MOST` bytes.
fn put_counter<const MOST: usize>(
    txn: &mut Txn,
    index: usize,
    (row, counter): (u64, u64),
    len: usize,
) {
    let mut value = [0; MOST];
    emit(&mut value[..len], row, counter);
    txn.put(index, &value[..len]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_known_by_its_filler() {
        let mut value = [0; 64];
        emit(&mut value, 5, 9);
        assert_eq!(parse(&value, 5), Some(9));
        assert_eq!(parse(&value, 6), None, "under another key");
        assert_eq!(parse(&value[..7], 5), None, "too short");
        value[0] = 10;
        assert_eq!(parse(&value, 5), None, "a newer counter before an older filler");
    }
}
