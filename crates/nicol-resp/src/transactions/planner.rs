//! From a client's command to a command of a plan: sizes checked, keys hashed, options read.
//!
//! What is wrong with a command becomes a literal error in its place, as in Redis, where an EXEC
//! goes on after a command that failed.

use nicol_core::ids::Key;
use xxhash_rust::xxh3::xxh3_64;

use super::plan::PlanBuilder;
use super::record::{self, Database};
use crate::clock::Clock;
use crate::commands::errors::arity_error;
use crate::commands::expiry::Expiry;
use crate::commands::key_places::KeyPlaces;
use crate::config::{LARGE_BYTES, LARGE_BYTES_MAX, Limits};
use crate::connection::parse::Command;
use crate::eviction::Eviction;
use crate::scripts::registry::Scripts;

/// Arguments of a command whose sizes are looked at one by one only if one of them is long.
const SMALL_COMMAND: usize = 8;

/// Adds commands to plans.
#[derive(Clone, Copy, Debug)]
pub struct Planner<'a> {
    database: Database,
    hash_seed: u64,
    limits: &'a Limits,
    clock: Clock,
    /// What a command that draws begins with: another one for each command.
    pub seed: u64,
    /// More memory is in use than CONFIG SET allows.
    pub spares: bool,
    /// Someone sees every command, those of scripts too.
    pub is_watched: bool,
    /// The scripts that a command may name, and the rights that they have.
    scripting: Option<(&'a Scripts, &'a [u8])>,
    /// What is known of accesses to keys; `None`: a script asks.
    accesses: Option<&'a Eviction>,
}

impl<'a> Planner<'a> {
    /// For keys of `database`, with the seed of the rows' hash, limits, and the clock by which keys
    /// expire.
    pub fn new(database: Database, hash_seed: u64, limits: &'a Limits, clock: Clock) -> Self {
        let (scripting, accesses) = (None, None);
        Self {
            database,
            hash_seed,
            limits,
            clock,
            seed: 0,
            spares: false,
            is_watched: false,
            scripting,
            accesses,
        }
    }

    /// Milliseconds of Unix time. Most commands do not ask.
    pub fn now(&self) -> i64 {
        self.clock.unix_ms()
    }

    /// The same, with a seed for what commands draw.
    pub fn seeded(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// The same for commands that ask how keys are accessed.
    pub fn with_accesses(self, accesses: &'a Eviction) -> Self {
        Self { accesses: Some(accesses), ..self }
    }

    /// What is known of accesses to keys.
    pub fn accesses(&self) -> Option<&'a Eviction> {
        self.accesses
    }

    /// The same for commands that may name `scripts`, of a user with these rights.
    pub fn scripted(self, scripts: &'a Scripts, rights: &'a [u8]) -> Self {
        Self { scripting: Some((scripts, rights)), ..self }
    }

    /// The scripts that a command may name and the rights that they have; `None`: it is called
    /// by one.
    pub fn scripting(&self) -> Option<(&'a Scripts, &'a [u8])> {
        self.scripting
    }

    pub fn limits(&self) -> &'a Limits {
        self.limits
    }

    pub fn hash_seed(&self) -> u64 {
        self.hash_seed
    }

    /// The same for keys of another database.
    pub fn within(self, database: Database) -> Self {
        Self { database, ..self }
    }

    /// A number that nobody foresees, another one for each command.
    pub fn draw(&self) -> u64 {
        xxh3_64(&self.seed.to_le_bytes())
    }

    pub fn database(&self) -> Database {
        self.database
    }

    /// What tells the records of keys that no argument names: the database (1 byte) and the seed of
    /// the rows' hash (8).
    pub fn row_seed(&self) -> [u8; 9] {
        let mut bytes = [self.database.number(); 9];
        bytes[1..].copy_from_slice(&self.hash_seed.to_le_bytes());
        bytes
    }

    /// The record of `key`.
    pub fn row(&self, key: &[u8]) -> Key {
        record::row(self.database, self.hash_seed, key)
    }

    /// The records of the keys of `command`, each once.
    pub fn rows(&self, keys: KeyPlaces, command: &Command<'_>) -> Vec<Key> {
        let places = keys.of(command.len(), |place| command.arg(place));
        let mut rows: Vec<_> = places.iter().map(|place| self.row(command.arg(place))).collect();
        rows.sort_unstable();
        rows.dedup();
        rows
    }

    /// Adds a key to the current command of `plan`.
    pub fn key(&self, plan: &mut PlanBuilder, key: &[u8]) {
        plan.key(self.row(key), key);
    }

    /// Adds a key that the current command of `plan` reads, though it writes another.
    pub fn source(&self, plan: &mut PlanBuilder, key: &[u8]) {
        plan.source(self.row(key), key);
    }

    /// Adds the last argument of a command that moves the deadline of `key`.
    pub fn deadline(&self, plan: &mut PlanBuilder, flags: &[u8], expiry: Expiry, key: &[u8]) {
        // Enough for flags and an expiry: it does not grow.
        let mut how = Vec::with_capacity(16);
        how.extend_from_slice(flags);
        expiry.emit(&mut how);
        plan.plain(&how);
        if let Expiry::In(_) | Expiry::At(_) = expiry
            && let Some(deadline) = expiry.deadline(self.now(), None)
        {
            plan.expires(deadline, self.row(key));
        }
    }

    /// Checks the sizes of `command`. Errors: the text that it answers.
    pub fn check(&self, name: &str, keys: KeyPlaces, command: &Command<'_>) -> Result<(), Vec<u8>> {
        if keys.step == 2 && command.len().is_multiple_of(2) {
            return Err(arity_error(name));
        }
        // Most are so short that no limit matters, wherever their keys stand.
        let least = self.limits.key_bytes.min(self.limits.value_bytes);
        let is_small = command.len() <= SMALL_COMMAND
            && command.args(1).all(|arg| arg.len() <= least)
            && SMALL_COMMAND * least <= self.limits.transaction_bytes
            && SMALL_COMMAND <= self.limits.transaction_keys;
        if is_small {
            return Ok(());
        }
        let max = self.limits.transaction_keys;
        if keys.count(command.len()) > max && self.rows(keys, command).len() > max {
            return Err(format!("ERR too many keys (limit {max} keys)").into());
        }
        let places = keys.of(command.len(), |place| command.arg(place));
        let Limits { key_bytes, value_bytes, transaction_bytes, .. } = *self.limits;
        for (index, arg) in command.args(1).enumerate() {
            let (what, max) = match places.has(index + 1) {
                true => ("key", key_bytes),
                false => ("value", value_bytes),
            };
            if arg.len() > max {
                return Err(format!("ERR {what} is too large (limit {max} bytes)").into());
            }
        }
        let large =
            command.args(1).map(<[u8]>::len).filter(|len| *len > LARGE_BYTES).sum::<usize>();
        if command.bytes() - large > transaction_bytes || large > LARGE_BYTES_MAX {
            return Err(
                format!("ERR command is too large (limit {transaction_bytes} bytes)").into()
            );
        }
        Ok(())
    }
}
