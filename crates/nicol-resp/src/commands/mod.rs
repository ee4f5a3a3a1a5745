//! The table of commands, made of one list per type of value and one of the others.
//!
//! COMMAND with its subcommands, the errors of arity and of unknown commands, the places of keys
//! and what may be queued or run by a store of single operations all come from it. A new type of
//! value is a file beside `string.rs` and a line in [`TYPES`].

mod admin;
mod bitfield;
mod bitmap;
mod blocking;
mod deadlines;
mod draw;
pub mod dump;
pub mod errors;
pub mod expiry;
pub mod float;
mod geo;
pub mod glob;
mod hash;
mod hyperloglog;
pub mod key_flags;
pub mod key_places;
mod keys;
pub mod kind;
mod lcs;
mod list;
mod listpack;
mod long_double;
pub mod number;
mod object;
mod packed;
mod pubsub;
pub mod rights;
pub mod scan;
mod script;
mod sequence;
mod set;
pub mod sort;
mod sorted_set;
pub mod spec;
mod stream;
mod string;
mod usage;

use self::kind::Type;
use self::spec::Spec;
use crate::transactions::plan::Op;

/// The types of value, each with its commands.
pub const TYPES: &[(&Type, &[Spec])] = &[
    (&string::TYPE, string::COMMANDS),
    (&list::TYPE, list::COMMANDS),
    (&set::TYPE, set::COMMANDS),
    (&sorted_set::TYPE, sorted_set::COMMANDS),
    (&hash::TYPE, hash::COMMANDS),
    (&stream::TYPE, stream::COMMANDS),
];

/// Commands that belong to no type of value.
const OTHERS: [&[Spec]; 13] = [
    bitfield::COMMANDS,
    bitmap::COMMANDS,
    blocking::COMMANDS,
    dump::COMMANDS,
    geo::COMMANDS,
    hyperloglog::COMMANDS,
    keys::COMMANDS,
    lcs::COMMANDS,
    sort::COMMANDS,
    deadlines::COMMANDS,
    pubsub::COMMANDS,
    script::COMMANDS,
    admin::COMMANDS,
];

/// The keys of `words`, a request for `spec`, that the table of commands does not tell of: the
/// places of those that are written, and whether some are read whose names nobody knows yet.
pub fn unnamed_keys(spec: &Spec, words: &[&[u8]]) -> (Vec<usize>, bool) {
    let word = |place| words[place];
    match spec.name {
        "georadius" | "georadiusbymember" => (geo::stored(spec, words.len(), word), false),
        "sort" => sort::places(words.len(), word),
        "sort_ro" => (Vec::new(), sort::places(words.len(), word).1),
        _ => (Vec::new(), false),
    }
}

/// The type with `number`; `None` if a record is malformed or of a later version.
pub fn type_of(number: u8) -> Option<&'static Type> {
    TYPES.iter().map(|(kind, _)| *kind).find(|kind| kind.number == number)
}

/// The command of `name` in any case. Cost: a binary search over numbers.
pub fn lookup(name: &[u8]) -> Option<&'static Spec> {
    let mut lower = [0; NAME_MAX];
    lower.get_mut(..name.len())?.copy_from_slice(name);
    lower.make_ascii_lowercase();
    let found = NAMES.binary_search(&halves(lower));
    // A name with zeros behind it is another one.
    found.ok().map(|index| &TABLE[index]).filter(|spec| spec.name.len() == name.len())
}

/// Commands that tell something of a key without an access to its value: they leave its time of
/// access as it is, as in Redis.
const QUIET: [&str; 7] = ["exists", "expiretime", "object", "pexpiretime", "pttl", "ttl", "type"];

/// Whether the keys of a command count as accessed.
pub fn touches(op: Op) -> bool {
    op.place().is_some_and(|place| TOUCHES[place])
}

static TOUCHES: [bool; COMMANDS] = {
    let mut touches = [true; COMMANDS];
    let mut index = 0;
    while index < COMMANDS {
        let mut quiet = 0;
        while quiet < QUIET.len() {
            touches[index] &= is_behind(QUIET[quiet], TABLE[index].name)
                || is_behind(TABLE[index].name, QUIET[quiet]);
            quiet += 1;
        }
        index += 1;
    }
    touches
};

pub const COMMANDS: usize = {
    let (mut count, mut list) = (0, 0);
    while list < TYPES.len() + OTHERS.len() {
        count += commands(list).len();
        list += 1;
    }
    count
};

/// Every command, sorted by name and numbered in this order.
pub static TABLE: [Spec; COMMANDS] = {
    let mut table = [OTHERS[0][0]; COMMANDS];
    let (mut list, mut filled) = (0, 0);
    while list < TYPES.len() + OTHERS.len() {
        let mut next = 0;
        while next < commands(list).len() {
            let spec = commands(list)[next];
            let mut at = filled;
            while at > 0 && is_behind(table[at - 1].name, spec.name) {
                table[at] = table[at - 1];
                at -= 1;
            }
            table[at] = spec;
            filled += 1;
            next += 1;
        }
        list += 1;
    }
    let mut number = 0;
    while number < COMMANDS {
        table[number].number = number as u16;
        number += 1;
    }
    table
};

const fn commands(list: usize) -> &'static [Spec] {
    if list < TYPES.len() { TYPES[list].1 } else { OTHERS[list - TYPES.len()] }
}

/// Bytes of the longest name.
const NAME_MAX: usize = 32;

/// A name as two numbers: they compare as the names do.
const fn padded(name: &str) -> [u128; 2] {
    let (mut padded, name) = ([0; NAME_MAX], name.as_bytes());
    let mut at = 0;
    while at < name.len() {
        padded[at] = name[at];
        at += 1;
    }
    halves(padded)
}

const fn halves(name: [u8; NAME_MAX]) -> [u128; 2] {
    let (halves, _) = name.as_chunks::<16>();
    [u128::from_be_bytes(halves[0]), u128::from_be_bytes(halves[1])]
}

/// Whether one name comes behind another.
const fn is_behind(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at < one.len() && (at == other.len() || one[at] > other[at])
}

static NAMES: [[u128; 2]; COMMANDS] = {
    let mut names = [[0; 2]; COMMANDS];
    let mut index = 0;
    while index < names.len() {
        names[index] = padded(TABLE[index].name);
        index += 1;
    }
    names
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_found_in_any_case() {
        assert!(TABLE.windows(2).all(|pair| pair[0].name < pair[1].name));
        for spec in &TABLE {
            let found = lookup(spec.name.to_ascii_uppercase().as_bytes()).unwrap();
            assert_eq!(found.name, spec.name);
        }
        assert!(lookup(b"nosuch").is_none());
        assert!(lookup(b"get\0").is_none() && lookup(b"GeT").is_some());
        assert!(lookup(b"a name that is longer than any command").is_none());
    }

    #[test]
    fn numbers_of_types_fit_their_bits_and_differ() {
        for (place, (one, _)) in TYPES.iter().enumerate() {
            assert!(one.number < 32);
            assert!(TYPES[..place].iter().all(|(other, _)| other.number != one.number));
        }
    }
}
