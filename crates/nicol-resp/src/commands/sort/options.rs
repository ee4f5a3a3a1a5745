//! The options of SORT, and the patterns of keys in them.

use nicol_core::ids::Key;

use crate::commands::errors::SYNTAX;
use crate::commands::number::{NOT_AN_INTEGER, parse_i64};
use crate::commands::spec::Spec;
use crate::connection::parse::Command;
use crate::transactions::plan::{Arg, PlanBuilder};
use crate::transactions::planner::Planner;
use crate::transactions::record::{Database, row};
use crate::transactions::work::Stop;

/// The name of a key, with an asterisk for an element, and perhaps of a field of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern<'a>(&'a [u8]);

impl<'a> Pattern<'a> {
    /// The element itself.
    pub const ITSELF: Self = Self(b"#");

    /// The key, and the field if there is one, that it names for `element`; `None`: it names none.
    pub fn of(self, element: &[u8]) -> Option<(Vec<u8>, Option<&'a [u8]>)> {
        let star = self.0.iter().position(|byte| *byte == b'*')?;
        let behind = &self.0[star + 1..];
        let arrow = behind.windows(2).position(|pair| pair == b"->");
        let field = arrow.map(|at| &behind[at + 2..]).filter(|field| !field.is_empty());
        let end = match (field, arrow) {
            (Some(_), Some(at)) => at,
            _ => behind.len(),
        };
        Some(([&self.0[..star], element, &behind[..end]].concat(), field))
    }
}

/// Set in the number of the database if a script asks.
const FOR_SCRIPT: u8 = 0x80;

/// What SORT is asked.
#[derive(Clone, Debug)]
pub struct Options<'t> {
    pub alpha: bool,
    pub descending: bool,
    /// The elements are not sorted: BY names a pattern without an asterisk.
    pub keeps_order: bool,
    pub by: Option<Pattern<'t>>,
    pub get: Vec<Pattern<'t>>,
    pub store: Option<Arg<'t>>,
    /// A script asks.
    pub is_for_script: bool,
    limit: (i64, i64),
    database: Database,
    hash_seed: u64,
}

/// Whether an argument is `word`, in any case.
fn is(arg: &[u8], word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}

impl<'t> Options<'t> {
    /// Reads what [`plan`] has written behind the key.
    pub fn parse(args: &[Arg<'t>]) -> Result<Self, Stop> {
        let [place, rest @ ..] = args else { return Err(Stop::Malformed) };
        let mut args = rest;
        let (database, seed) = place.bytes.split_first_chunk::<1>().ok_or(Stop::Malformed)?;
        let mut options = Self {
            alpha: false,
            descending: false,
            keeps_order: false,
            by: None,
            get: Vec::new(),
            store: None,
            is_for_script: database[0] & FOR_SCRIPT != 0,
            limit: (0, -1),
            database: Database::new((database[0] & !FOR_SCRIPT).into()).ok_or(Stop::Malformed)?,
            hash_seed: u64::from_le_bytes(seed.try_into().map_err(|_| Stop::Malformed)?),
        };
        while let [word, rest @ ..] = args {
            args = rest;
            match (word.bytes, rest) {
                (word, _) if is(word, "asc") => options.descending = false,
                (word, _) if is(word, "desc") => options.descending = true,
                (word, _) if is(word, "alpha") => options.alpha = true,
                (word, [start, count, rest @ ..]) if is(word, "limit") => {
                    let number = |arg: &Arg<'_>| parse_i64(arg.bytes).ok_or(NOT_AN_INTEGER);
                    (options.limit, args) = ((number(start)?, number(count)?), rest);
                }
                // Only SORT has a key to be written.
                (word, [key, rest @ ..]) if is(word, "store") && key.row.is_some() => {
                    (options.store, args) = (Some(*key), rest);
                }
                (word, [pattern, rest @ ..]) if is(word, "by") => {
                    options.keeps_order |= !pattern.bytes.contains(&b'*');
                    (options.by, args) = (Some(Pattern(pattern.bytes)), rest);
                }
                (word, [pattern, rest @ ..]) if is(word, "get") => {
                    options.get.push(Pattern(pattern.bytes));
                    args = rest;
                }
                _ => return Err(Stop::Error(SYNTAX)),
            }
        }
        Ok(options)
    }

    /// The places of `len` elements that LIMIT leaves.
    pub fn range(&self, len: usize) -> std::ops::Range<usize> {
        let clamp = |number: i64, least: i64| number.clamp(least, len as i64);
        let (start, count) = (clamp(self.limit.0, 0) as usize, clamp(self.limit.1, -1));
        let end = if count < 0 { len } else { (start + count as usize).min(len) };
        start..end
    }

    /// The record of a key.
    pub fn row(&self, key: &[u8]) -> Key {
        row(self.database, self.hash_seed, key)
    }
}

/// The places of the keys of STORE in the arguments of a SORT, and whether it has patterns.
pub fn places<'a>(len: usize, arg: impl Fn(usize) -> &'a [u8]) -> (Vec<usize>, bool) {
    let (mut stored, mut patterns, mut at) = (Vec::new(), false, 2);
    while at < len {
        let has_value = at + 1 < len;
        at += match arg(at) {
            word if is(word, "limit") => 3,
            word if has_value && is(word, "store") => {
                stored.push(at + 1);
                2
            }
            word if has_value && is(word, "by") => {
                patterns |= arg(at + 1).contains(&b'*');
                2
            }
            word if has_value && is(word, "get") => {
                patterns = true;
                2
            }
            _ => 1,
        };
    }
    (stored, patterns)
}

/// The key, the database with the seed of the rows' hash and whether a script asks, and the
/// options; only the key of STORE is written.
pub fn plan(
    planner: &Planner<'_>,
    plan: &mut PlanBuilder,
    spec: &'static Spec,
    command: &Command<'_>,
) -> Result<(), Vec<u8>> {
    spec.begin(plan);
    planner.source(plan, command.arg(1));
    let mut place = planner.row_seed();
    if planner.scripting().is_none() {
        place[0] |= FOR_SCRIPT;
    }
    plan.plain(&place);
    let (stored, _) = places(command.len(), |place| command.arg(place));
    for place in 2..command.len() {
        match spec.writes() && stored.contains(&place) {
            true => planner.key(plan, command.arg(place)),
            false => plan.plain(command.arg(place)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_names_a_key_and_perhaps_a_field() {
        let of = |pattern: &'static str| {
            let (key, field) = Pattern(pattern.as_bytes()).of(b"7")?;
            Some((String::from_utf8(key).unwrap(), field))
        };
        let key = |key: &str, field| Some((key.to_owned(), field));
        assert_eq!(of("w_*"), key("w_7", None));
        assert_eq!(of("w_*_x->f"), key("w_7_x", Some(&b"f"[..])));
        assert_eq!(of("w_*->"), key("w_7->", None));
        assert_eq!(of("a->b*"), key("a->b7", None));
        assert_eq!(of("w_*->*"), key("w_7", Some(&b"*"[..])));
        assert_eq!((of("none"), of("#")), (None, None));
    }
}
