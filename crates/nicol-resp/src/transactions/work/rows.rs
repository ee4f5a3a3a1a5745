//! The entries of a transaction by their rows, with those that are only taken for absent.

use nicol_core::ids::Key;
use nicol_core::txn::Txn;

use super::Stop;
use crate::transactions::record;

/// The records of a transaction.
#[derive(Debug)]
pub(super) struct Rows<'t> {
    txn: &'t Txn,
    /// Rows that are taken for absent, since their records have been asked for: their entries are
    /// behind those of the transaction. `None`: a run that lacks a record ends.
    guessed: Option<Vec<Key>>,
}

impl<'t> Rows<'t> {
    pub(super) fn new(txn: &'t Txn) -> Self {
        Self { txn, guessed: None }
    }

    /// Takes records that are not there for absent from now on.
    pub(super) fn guess(&mut self) {
        self.guessed = Some(Vec::new());
    }

    /// Whether it does.
    pub(super) fn guesses(&self) -> bool {
        self.guessed.is_some()
    }

    /// The entry of a row.
    pub(super) fn entry(&mut self, row: Key) -> Result<usize, Stop> {
        let own = self.txn.entries();
        if let Some(entry) = self.txn.find(row).filter(|entry| own[*entry].fetched) {
            return Ok(entry);
        }
        let Some(guessed) = &mut self.guessed else { return Err(Stop::Malformed) };
        let place = guessed.iter().position(|known| *known == row).unwrap_or_else(|| {
            guessed.push(row);
            guessed.len() - 1
        });
        Ok(own.len() + place)
    }

    /// The record of an entry.
    pub(super) fn record(&self, entry: usize) -> Option<&'t [u8]> {
        if entry < self.txn.entries().len() { self.txn.value(entry) } else { None }
    }

    /// The row of an entry.
    pub(super) fn row(&self, entry: usize) -> Result<Key, record::Malformed> {
        let own = self.txn.entries();
        let guessed = || self.guessed.as_ref()?.get(entry - own.len()).copied();
        own.get(entry).map(|entry| entry.key).or_else(guessed).ok_or(record::Malformed)
    }

    /// Whether an entry may be written.
    pub(super) fn is_written(&self, entry: usize) -> bool {
        self.guesses() || self.txn.entries()[entry].write
    }
}
