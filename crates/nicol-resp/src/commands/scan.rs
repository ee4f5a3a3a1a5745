//! HSCAN, SSCAN and ZSCAN: the elements of a collection, some at a time.
//!
//! The cursor is a place in the order of the elements' hashes: what is in the collection from the
//! first call to the last is answered, and once, whatever is added and removed meanwhile.

use xxhash_rust::xxh3::xxh3_64;

use super::glob::matches;
use super::number::{NOT_AN_INTEGER, parse_i64};
use crate::commands::errors::SYNTAX;
use crate::connection::encode::Reply;
use crate::transactions::plan::Arg;
use crate::transactions::work::Stop;

/// Elements up to which a collection is answered as a whole, as Redis does.
const WHOLE: usize = 128;
/// Elements of an answer if the client does not say.
pub const COUNT: usize = 10;
/// Cursors have 48 bits, as every client can hold.
const CURSOR_SHIFT: u32 = 16;

/// Reads a cursor as `strtoul` does, but for spaces: nothing is 0, and a minus counts from 2^64.
pub fn cursor(text: &[u8]) -> Result<u64, &'static [u8]> {
    let (negative, digits) = match text {
        [] => return Ok(0),
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let number = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'));
    let number: Option<u64> = number.and_then(|digits| digits.parse().ok());
    let number = number.ok_or(&b"ERR invalid cursor"[..])?;
    Ok(if negative { number.wrapping_neg() } else { number })
}

/// The options of a scan.
#[derive(Clone, Copy, Debug)]
pub struct Options<'t> {
    pub pattern: Option<&'t [u8]>,
    pub count: usize,
}

/// Reads MATCH and COUNT.
pub fn options<'t>(args: &[Arg<'t>]) -> Result<Options<'t>, Stop> {
    let mut options = Options { pattern: None, count: COUNT };
    for pair in args.chunks(2) {
        let [name, value] = pair else { return Err(Stop::Error(SYNTAX)) };
        match name.bytes.to_ascii_lowercase().as_slice() {
            b"count" => {
                let count = parse_i64(value.bytes).ok_or(NOT_AN_INTEGER)?;
                options.count =
                    usize::try_from(count).ok().filter(|count| *count > 0).ok_or(SYNTAX)?;
            }
            b"match" => options.pattern = Some(value.bytes),
            _ => return Err(Stop::Error(SYNTAX)),
        }
    }
    Ok(options)
}

/// The rows that a call with `cursor` answers, and the next cursor: 0 after the last one.
pub fn step<'a, const W: usize>(
    rows: impl Iterator<Item = [&'a [u8]; W]>,
    cursor: u64,
    options: Options<'_>,
) -> (u64, Vec<[&'a [u8]; W]>) {
    let mut rows: Vec<_> = rows.map(|row| (xxh3_64(row[0]) >> CURSOR_SHIFT, row)).collect();
    let mut next = 0;
    if rows.len() > WHOLE {
        rows.retain(|(hash, _)| *hash >= cursor);
        rows.sort_unstable();
        let end = rows.get(options.count - 1).map_or(u64::MAX, |(hash, _)| *hash);
        let behind = rows.partition_point(|(hash, _)| *hash <= end);
        next = rows.get(behind).map_or(0, |(hash, _)| *hash);
        rows.truncate(behind);
    }
    let taken = |row: &[&[u8]; W]| options.pattern.is_none_or(|pattern| matches(pattern, row[0]));
    (next, rows.into_iter().map(|(_, row)| row).filter(taken).collect())
}

/// Answers the next cursor and elements.
pub fn answer(next: u64, elements: &[&[u8]], reply: &mut Reply<'_>) {
    reply.array(2);
    reply.bulk(next.to_string().as_bytes());
    reply.array(elements.len());
    elements.iter().for_each(|element| reply.bulk(element));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_answers_once_what_stays() {
        let name = |number: usize| number.to_string().into_bytes();
        let stay: Vec<_> = (0..300).map(name).collect();
        let (mut next, mut seen, mut round) = (0, Vec::new(), 0);
        loop {
            let others: Vec<_> =
                (0..200).map(|number| name(1_000 + number * (round + 1))).collect();
            let rows = stay.iter().chain(&others).map(|name| [&name[..]]);
            let (cursor, rows) = step(rows, next, Options { pattern: None, count: 10 });
            assert!(rows.len() <= 11, "{}", rows.len());
            seen.extend(rows.into_iter().map(|[name]| name.to_vec()));
            (next, round) = (cursor, round + 1);
            if cursor == 0 {
                break;
            }
        }
        for name in &stay {
            assert_eq!(seen.iter().filter(|seen| *seen == name).count(), 1);
        }
        assert!(round > 30, "{round}");
    }
}
