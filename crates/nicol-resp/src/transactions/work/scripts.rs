//! What scripts need of a transaction beside what their commands do: records that no plan names.

use std::time::Instant;

use nicol_core::ids::Key;
use nicol_core::txn::KEYS_MAX;

use super::{Commands, Stop, Work};
use crate::scripts::arena::Arena;
use crate::scripts::meter::{INSTRUCTIONS_MAX, TIME_MAX};
use crate::transactions::plan::{Arg, Plan};
use crate::transactions::record;

const TOO_MANY_KEYS: &[u8] =
    b"ERR the script touches too many keys (limit 16384): it had no effect";
const _: () = assert!(KEYS_MAX == 16_384, "as the text says");

impl<'t> Work<'t> {
    /// The plan that is run.
    pub fn plan(&self) -> Plan<'t> {
        self.plan
    }

    /// What it needs of the commands.
    pub fn commands(&self) -> &'static Commands {
        self.commands
    }

    /// Where scripts keep the arguments of their commands.
    pub fn arena(&self) -> &'t Arena {
        self.arena
    }

    /// How many records have been asked for.
    pub fn asked(&self) -> usize {
        self.asked.len()
    }

    /// Whether the records of these keys are there, locked where they are to be written. Those that
    /// are not have been asked for.
    ///
    /// # Errors
    /// There are too many.
    pub fn has_records(&mut self, args: &[Arg<'t>]) -> Result<bool, Stop> {
        let before = self.asked.len();
        for arg in args {
            let Some(row) = arg.row else { continue };
            let entry = self.txn.find(row).map(|entry| self.txn.entries()[entry]);
            if entry.is_some_and(|entry| entry.fetched && (entry.write || !arg.writes)) {
                continue;
            }
            if entry.is_none() && self.txn.entries().len() + self.asked.len() >= KEYS_MAX {
                return Err(Stop::Spent(TOO_MANY_KEYS));
            }
            self.asked.push((row, arg.writes));
        }
        Ok(self.asked.len() == before)
    }

    /// Records of the transaction that its plan does not name.
    pub fn undeclared(&self) -> usize {
        let (mut cursor, mut args, mut rows) = (self.plan.cursor(), Vec::new(), Vec::new());
        for _ in 0..self.plan.commands {
            if cursor.command(&mut args).is_ok() {
                rows.extend(args.iter().filter_map(|arg| arg.row));
            }
        }
        rows.sort_unstable();
        rows.dedup();
        self.txn.entries().len().saturating_sub(rows.len())
    }

    /// Takes records that are not there for absent from now on. What is done counts for nothing:
    /// the run only tells which records it will need.
    pub fn guess(&mut self) {
        self.guessed = Some(Vec::new());
    }

    /// Whether it takes records that are not there for absent.
    pub fn guesses(&self) -> bool {
        self.guessed.is_some()
    }

    /// Bytes that a command reads to look up a key.
    pub fn bytes_of(&self, key: &Arg<'t>) -> usize {
        let entry = key.row.and_then(|row| self.txn.find(row));
        let entry = entry.filter(|entry| self.txn.entries()[*entry].fetched);
        entry.and_then(|entry| self.txn.value(entry)).map_or(0, <[u8]>::len)
    }

    /// A script publishes: nobody waits for the number of receivers.
    pub fn publish_silently(&mut self, sharded: bool, args: &[Arg<'_>; 2]) -> Result<(), Stop> {
        let [channel, message] = args;
        self.spend(channel.bytes.len() + message.bytes.len())?;
        self.news.publish(sharded, usize::MAX, channel.bytes, message.bytes);
        Ok(())
    }

    /// A script lets a key of `row` expire at `deadline`.
    pub fn note_expiry(&mut self, deadline: i64, row: Key) {
        self.news.expires(deadline, row);
    }

    /// What the scripts of the transaction have left, and until when.
    pub fn script_budget(&mut self) -> (u64, Instant) {
        let begin = || (INSTRUCTIONS_MAX, Instant::now() + TIME_MAX);
        *self.script_budget.get_or_insert_with(begin)
    }

    /// A script has left so many instructions.
    pub fn leave_budget(&mut self, left: u64) {
        if let Some(budget) = &mut self.script_budget {
            budget.0 = left;
        }
    }

    /// The entry of a row.
    pub(super) fn entry_of(&mut self, row: Key) -> Result<usize, Stop> {
        let own = self.txn.entries().len();
        if let Some(entry) = self.txn.find(row).filter(|at| self.txn.entries()[*at].fetched) {
            return Ok(entry);
        }
        let Some(guessed) = &mut self.guessed else { return Err(Stop::Malformed) };
        let place = guessed.iter().position(|known| *known == row).unwrap_or_else(|| {
            guessed.push(row);
            self.heads.push(None);
            guessed.len() - 1
        });
        Ok(own + place)
    }

    /// The record of an entry.
    pub(super) fn record(&self, entry: usize) -> Option<&'t [u8]> {
        if entry < self.txn.entries().len() { self.txn.value(entry) } else { None }
    }

    /// The row of an entry.
    pub(super) fn row_of(&self, entry: usize) -> Result<Key, record::Malformed> {
        let own = self.txn.entries();
        let guessed = || self.guessed.as_ref()?.get(entry - own.len()).copied();
        own.get(entry).map(|entry| entry.key).or_else(guessed).ok_or(record::Malformed)
    }

    /// Whether an entry may be written.
    pub(super) fn is_written(&self, entry: usize) -> bool {
        self.guesses() || self.txn.entries()[entry].write
    }
}
