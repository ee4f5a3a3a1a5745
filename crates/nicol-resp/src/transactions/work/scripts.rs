//! What scripts need of a transaction beside what their commands do: records that no plan names.

use std::time::Instant;

use nicol_core::ids::Key;
use nicol_core::txn::KEYS_MAX;

use super::{Commands, Stop, Work};
use crate::scripts::arena::Arena;
use crate::scripts::meter::{INSTRUCTIONS_MAX, TIME_MAX};
use crate::transactions::plan::{Arg, Plan};

const TOO_MANY_KEYS: &[u8] =
    b"ERR the script touches too many keys (limit 16384): it had no effect";
const _: () = assert!(KEYS_MAX == 16_384, "as the text says");

/// A transaction as scripts need it.
pub trait Scripted<'t> {
    /// The plan that is run.
    fn plan(&self) -> Plan<'t>;

    /// What it needs of the commands.
    fn commands(&self) -> &'static Commands;

    /// Where scripts keep the arguments of their commands.
    fn arena(&self) -> &'t Arena;

    /// How many records have been asked for.
    fn asked(&self) -> usize;

    /// Whether the records of these keys are there, locked where they are to be written. Those that
    /// are not have been asked for.
    ///
    /// # Errors
    /// There are too many.
    fn has_records(&mut self, args: &[Arg<'t>]) -> Result<bool, Stop>;

    /// Records of the transaction that its plan does not name.
    fn undeclared(&self) -> usize;

    /// Takes records that are not there for absent from now on. What is done counts for nothing:
    /// the run only tells which records it will need.
    fn guess(&mut self);

    /// Whether it takes records that are not there for absent.
    fn guesses(&self) -> bool;

    /// Bytes that a command reads to look up a key.
    fn bytes_of(&self, key: &Arg<'t>) -> usize;

    /// A script publishes: nobody waits for the number of receivers.
    fn publish_silently(&mut self, sharded: bool, args: &[Arg<'_>; 2]) -> Result<(), Stop>;

    /// A script lets a key of `row` expire at `deadline`.
    fn note_expiry(&mut self, deadline: i64, row: Key);

    /// What the scripts of the transaction have left, and until when.
    fn script_budget(&mut self) -> (u64, Instant);

    /// A script has left so many instructions.
    fn leave_budget(&mut self, left: u64);
}

impl<'t> Scripted<'t> for Work<'t> {
    fn plan(&self) -> Plan<'t> {
        self.plan
    }

    fn commands(&self) -> &'static Commands {
        self.commands
    }

    fn arena(&self) -> &'t Arena {
        self.arena
    }

    fn asked(&self) -> usize {
        self.asked.len()
    }

    fn has_records(&mut self, args: &[Arg<'t>]) -> Result<bool, Stop> {
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

    fn undeclared(&self) -> usize {
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

    fn guess(&mut self) {
        self.rows.guess();
    }

    fn guesses(&self) -> bool {
        self.rows.guesses()
    }

    fn bytes_of(&self, key: &Arg<'t>) -> usize {
        let entry = key.row.and_then(|row| self.txn.find(row));
        let entry = entry.filter(|entry| self.txn.entries()[*entry].fetched);
        entry.and_then(|entry| self.txn.value(entry)).map_or(0, <[u8]>::len)
    }

    fn publish_silently(&mut self, sharded: bool, args: &[Arg<'_>; 2]) -> Result<(), Stop> {
        let [channel, message] = args;
        self.spend(channel.bytes.len() + message.bytes.len())?;
        self.news.publish(sharded, usize::MAX, channel.bytes, message.bytes);
        Ok(())
    }

    fn note_expiry(&mut self, deadline: i64, row: Key) {
        self.news.expires(deadline, row);
    }

    fn script_budget(&mut self) -> (u64, Instant) {
        let begin = || (INSTRUCTIONS_MAX, Instant::now() + TIME_MAX);
        *self.script_budget.get_or_insert_with(begin)
    }

    fn leave_budget(&mut self, left: u64) {
        if let Some(budget) = &mut self.script_budget {
            budget.0 = left;
        }
    }
}
