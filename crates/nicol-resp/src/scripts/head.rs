//! What a script or function travels with besides its keys and arguments.

use nicol_core::ids::{Key, TableId};

use super::flags::Flags;
use crate::config::Limits;
use crate::transactions::planner::Planner;
use crate::transactions::record::Database;

/// The table of records that are the front's own: no database has them, so no command of clients
/// names them and no walk meets them. It is the last one whose records are placed by their hash.
const OWN: TableId = TableId(0x7f);

/// The name of the record that holds the libraries of functions.
pub const LIBRARIES: &[u8] = b"libraries";

/// The record of the libraries.
pub const fn libraries_row() -> Key {
    Key::new(OWN, 0)
}

/// A record that is never there. A script without keys reads it: what has a record is run by the
/// engines, not by the front, and reads of one record are no conflict.
pub const fn nothing_row() -> Key {
    Key::new(OWN, 1)
}

/// The name of the key in [`nothing_row`].
pub const NOTHING: &[u8] = b"nothing";

/// The first argument of a script in a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// EVAL_RO and its like: commands that write are refused.
    pub only_reads: bool,
    /// More memory is in use than CONFIG SET allows: commands that may grow are refused.
    pub spares: bool,
    /// Someone sees the commands that it calls.
    pub is_watched: bool,
    pub flags: Flags,
    pub database: Database,
    /// The seed of the rows' hash.
    pub hash_seed: u64,
    /// What is drawn begins with it.
    pub seed: u64,
    /// Keys of a command, bytes of a key, of a value, of a command.
    pub limits: [u32; 4],
}

impl Head {
    const LEN: usize = 35;

    /// For scripts that `planner` plans.
    pub fn of(planner: &Planner<'_>, flags: Flags, only_reads: bool) -> Self {
        let Limits { transaction_keys, key_bytes, value_bytes, transaction_bytes, .. } =
            *planner.limits();
        let limits = [transaction_keys, key_bytes, value_bytes, transaction_bytes];
        Self {
            only_reads,
            spares: planner.spares,
            is_watched: planner.is_watched,
            flags,
            database: planner.database(),
            hash_seed: planner.hash_seed(),
            seed: planner.draw(),
            limits: limits.map(|limit| u32::try_from(limit).unwrap_or(u32::MAX)),
        }
    }

    /// In the layout that [`Head::parse`] reads.
    pub fn emit(&self) -> Vec<u8> {
        let flags = [self.only_reads, self.spares, self.is_watched];
        let kind = flags.iter().rev().fold(0, |kind, flag| kind << 1 | u8::from(*flag));
        let mut bytes = vec![kind, self.flags.bits(), self.database.number()];
        bytes.extend(self.hash_seed.to_le_bytes());
        bytes.extend(self.seed.to_le_bytes());
        self.limits.iter().for_each(|limit| bytes.extend(limit.to_le_bytes()));
        bytes
    }

    /// `None`: it is not in the layout.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let [kind, flags, database, rest @ ..] = <&[u8; Self::LEN]>::try_from(bytes).ok()?;
        let (words, rest) = rest.as_chunks::<8>();
        let (second, rest) = (&words[2..], rest);
        let limits = [second.as_flattened(), rest].concat();
        let limits = <[[u8; 4]; 4]>::try_from(limits.as_chunks::<4>().0).ok()?;
        Some(Self {
            only_reads: kind & 1 != 0,
            spares: kind & 2 != 0,
            is_watched: kind & 4 != 0,
            flags: Flags::from_bits(*flags),
            database: Database::new((*database).into())?,
            hash_seed: u64::from_le_bytes(words[0]),
            seed: u64::from_le_bytes(words[1]),
            limits: limits.map(u32::from_le_bytes),
        })
    }

    /// The limits of the commands that the script runs.
    pub fn limits(&self) -> Limits {
        let [transaction_keys, key_bytes, value_bytes, transaction_bytes] =
            self.limits.map(|limit| limit as usize);
        Limits { transaction_keys, key_bytes, value_bytes, transaction_bytes, ..Limits::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_it_was_written() {
        let mut flags = Flags::declared();
        flags.add(b"no-writes");
        let head = Head {
            only_reads: true,
            spares: true,
            is_watched: true,
            flags,
            database: Database::new(7).unwrap(),
            hash_seed: 1 << 60,
            seed: 99,
            limits: [1, 2, 3, u32::MAX],
        };
        let bytes = head.emit();
        assert_eq!(Head::parse(&bytes), Some(head));
        assert_eq!(Head::parse(&bytes[1..]), None);
        assert_eq!(Database::of(libraries_row()), None, "it belongs to no database");
    }
}
