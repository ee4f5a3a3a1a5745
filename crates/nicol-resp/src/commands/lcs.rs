//! LCS: the longest sequence of bytes that two strings share.

use super::key_places::KeyPlaces;
use super::number::{NOT_AN_INTEGER, parse_i64};
use super::spec::{SLOW_READ, Spec, as_sent};
use super::string;
use crate::commands::errors::SYNTAX;
use crate::connection::encode::Reply;
use crate::transactions::plan::Arg;
use crate::transactions::work::{Stop, Work};

pub const COMMANDS: &[Spec] = &[Spec::data(
    "string",
    "lcs",
    -3,
    (SLOW_READ, KeyPlaces::TWO),
    (as_sent, lcs),
    "Find the longest sequence of bytes that two strings share",
)];

/// Products of lengths that are compared: each costs 4 bytes and some nanoseconds, for which other
/// clients wait.
const CELLS_MAX: usize = 4_000_000;

/// The words of Redis, which refuses what it has no memory for.
const TOO_LONG: &[u8] = b"ERR Insufficient memory, failed allocating transient memory for LCS";
const NOT_STRINGS: &[u8] = b"ERR The specified keys must contain string values";
const BOTH: &[u8] = b"ERR If you want both the length and indexes, please just use IDX.";

#[derive(Debug, Default)]
struct Options {
    len: bool,
    indexes: bool,
    with_lengths: bool,
    least: usize,
}

impl Options {
    fn parse(args: &[Arg<'_>]) -> Result<Self, Stop> {
        let (mut options, mut args) = (Self::default(), args.iter());
        while let Some(arg) = args.next() {
            match arg.bytes.to_ascii_lowercase().as_slice() {
                b"len" => options.len = true,
                b"idx" => options.indexes = true,
                b"withmatchlen" => options.with_lengths = true,
                b"minmatchlen" => {
                    let least =
                        parse_i64(args.next().ok_or(SYNTAX)?.bytes).ok_or(NOT_AN_INTEGER)?;
                    options.least = usize::try_from(least).unwrap_or(0);
                }
                _ => return Err(Stop::Error(SYNTAX)),
            }
        }
        if options.len && options.indexes { Err(Stop::Error(BOTH)) } else { Ok(options) }
    }
}

/// Bytes that stand in both strings one behind the other: where they begin in each, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Match {
    one: usize,
    other: usize,
    len: usize,
}

/// The matches of which a longest sequence consists, the last one first, and its length.
fn longest(one: &[u8], other: &[u8]) -> (Vec<Match>, usize) {
    let width = other.len() + 1;
    // The length for each pair of prefixes.
    let mut lengths = vec![0_u32; (one.len() + 1) * width];
    for (i, byte) in one.iter().enumerate() {
        for (j, its) in other.iter().enumerate() {
            let at = (i + 1) * width + j + 1;
            lengths[at] = match byte == its {
                true => lengths[at - width - 1] + 1,
                false => lengths[at - width].max(lengths[at - 1]),
            };
        }
    }
    let (mut i, mut j) = (one.len(), other.len());
    let mut matches: Vec<Match> = Vec::new();
    while i > 0 && j > 0 {
        if one[i - 1] == other[j - 1] {
            match matches.last_mut() {
                Some(last) if (last.one, last.other) == (i, j) => {
                    *last = Match { one: i - 1, other: j - 1, len: last.len + 1 };
                }
                _ => matches.push(Match { one: i - 1, other: j - 1, len: 1 }),
            }
            (i, j) = (i - 1, j - 1);
        } else if lengths[(i - 1) * width + j] > lengths[i * width + j - 1] {
            i -= 1;
        } else {
            j -= 1;
        }
    }
    (matches, lengths[one.len() * width + other.len()] as usize)
}

fn lcs<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [one, other, options @ ..] = args else { return Err(Stop::Malformed) };
    let [one, other] = [work.find(one)?, work.find(other)?];
    if ![one, other].iter().all(|found| work.is_of(*found, &string::TYPE)) {
        return Err(Stop::Error(NOT_STRINGS));
    }
    let options = Options::parse(options)?;
    let [one, other] = [work.contents(one), work.contents(other)];
    if one.len() * other.len() > CELLS_MAX {
        return Err(Stop::Error(TOO_LONG));
    }
    let (mut matches, len) = longest(&one, &other);
    if options.indexes {
        matches.retain(|found| found.len >= options.least);
        work.spend(64 * matches.len())?;
        reply.map(2);
        reply.bulk(b"matches");
        reply.array(matches.len());
        for Match { one, other, len } in matches {
            reply.array(2 + usize::from(options.with_lengths));
            for first in [one, other] {
                reply.array(2);
                reply.integer(first as i64);
                reply.integer((first + len - 1) as i64);
            }
            if options.with_lengths {
                reply.integer(len as i64);
            }
        }
        reply.bulk(b"len");
        reply.integer(len as i64);
    } else if options.len {
        reply.integer(len as i64);
    } else {
        work.spend(len)?;
        let parts = matches.iter().rev().map(|found| &one[found.one..found.one + found.len]);
        reply.bulk(&parts.collect::<Vec<_>>().concat());
    }
    Ok(())
}
