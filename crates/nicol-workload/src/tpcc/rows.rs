//! The rows that a procedure works on.
//!
//! A procedure is written as straight-line code and runs from its start in every round. A row that
//! has not been fetched yet is added to the transaction, and [`Rows::complete`] ends the round if
//! there was one. [Xenic21 4.2.2]

use nicol_core::ids::Key;
use nicol_core::txn::{KEYS_MAX, KeyRange, SCANS_MAX, Txn, Verdict, VersionRange};

use super::row::{parse, stock};
pub(super) use super::step::{Step, Stop};

pub(super) struct Rows<'t> {
    txn: &'t mut Txn,
    missing: bool,
}

/// Runs `logic` on `txn`.
pub(super) fn run(txn: &mut Txn, logic: fn(&mut Rows<'_>) -> Step<()>) -> Verdict {
    match logic(&mut Rows { txn, missing: false }) {
        Ok(()) => Verdict::Commit,
        Err(Stop::More) => Verdict::More,
        Err(Stop::Refuse) => Verdict::Refuse,
    }
}

impl Rows<'_> {
    pub(super) fn args(&self) -> &[u8] {
        self.txn.args()
    }

    /// The index of a row that is read.
    pub(super) fn read(&mut self, key: Key) -> Step<usize> {
        self.add(key, Txn::read)
    }

    /// The index of a row that is read and written.
    pub(super) fn write(&mut self, key: Key) -> Step<usize> {
        self.add(key, Txn::write)
    }

    /// The index of a new row of which nobody knows before this transaction has committed.
    pub(super) fn insert(&mut self, key: Key) -> Step<usize> {
        self.add(key, Txn::insert)
    }

    fn add(&mut self, key: Key, add: fn(&mut Txn, Key) -> usize) -> Step<usize> {
        if self.txn.entries().len() >= KEYS_MAX {
            return Err(Stop::Refuse);
        }
        let index = add(self.txn, key);
        self.missing |= !self.txn.entries()[index].fetched;
        Ok(index)
    }

    /// The index of a scan; its finds are among the rows.
    pub(super) fn scan(&mut self, range: KeyRange) -> Step<usize> {
        let one_unit = VersionRange::of(range.first) == VersionRange::of(range.last);
        if self.txn.scans().len() >= SCANS_MAX || !one_unit {
            return Err(Stop::Refuse);
        }
        let scan = self.txn.scan(range);
        self.missing |= !self.txn.scans()[scan].is_done();
        Ok(scan)
    }

    /// The result of a scan, as indices of rows.
    pub(super) fn found(&self, scan: usize) -> Step<&[u32]> {
        self.txn.found(scan).ok_or(Stop::More)
    }

    /// The key that a scan has found first.
    pub(super) fn first_found(&self, scan: usize) -> Step<Option<Key>> {
        Ok(self.found(scan)?.first().map(|&index| self.key(index as usize)))
    }

    /// Continues if every row so far has been fetched.
    pub(super) fn complete(&self) -> Step<()> {
        if self.missing { Err(Stop::More) } else { Ok(()) }
    }

    /// The row at `index` as this transaction has it, with what it has put there; `None` if there
    /// is none.
    pub(super) fn find<const LEN: usize>(&self, index: usize) -> Step<Option<&[u8; LEN]>> {
        let value = match self.txn.update(index) {
            Some(write) => write.value,
            None => self.txn.value(index),
        };
        value.map(|value| parse(value).ok_or(Stop::Refuse)).transpose()
    }

    /// The row at `index`, which must be there.
    pub(super) fn row<const LEN: usize>(&self, index: usize) -> Step<&[u8; LEN]> {
        self.find(index)?.ok_or(Stop::Refuse)
    }

    /// The STOCK row at `index`, which must be there: its numbers, and its texts behind them if it
    /// is whole.
    pub(super) fn stock(&self, index: usize) -> Step<&[u8]> {
        match self.row::<{ stock::LEN }>(index) {
            Ok(numbers) => Ok(numbers),
            Err(_) => Ok(self.row::<{ stock::WHOLE }>(index)?),
        }
    }

    /// The value at `index`, of any size, which must be there.
    pub(super) fn value(&self, index: usize) -> Step<&[u8]> {
        self.txn.value(index).ok_or(Stop::Refuse)
    }

    /// The number of rows.
    pub(super) fn len(&self) -> usize {
        self.txn.entries().len()
    }

    /// The key of the row at `index`.
    pub(super) fn key(&self, index: usize) -> Key {
        self.txn.entries()[index].key
    }

    pub(super) fn put(&mut self, index: usize, row: &[u8]) {
        self.txn.put(index, row);
    }

    pub(super) fn delete(&mut self, index: usize) {
        self.txn.delete(index);
    }

    /// Appends to the output. The audit sums up its first eight bytes.
    pub(super) fn output(&mut self, bytes: &[u8]) {
        self.txn.output.extend_from_slice(bytes);
    }
}
