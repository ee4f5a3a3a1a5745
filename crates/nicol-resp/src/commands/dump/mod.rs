//! DUMP and RESTORE: values in the format in which Redis moves them between its servers.
//!
//! A payload is an object as in Redis' files (`rdb`), the version of that format (2 bytes) and a
//! checksum of all before it (8 bytes, little-endian).

mod crc64;
mod elements;
mod lzf;
mod packs;
mod rdb;
mod streams;

use self::crc64::crc64;
use self::elements::{Reader, write_string};
use super::expiry::Expiry;
use super::key_places::KeyPlaces;
use super::list;
use super::number::{NOT_AN_INTEGER, parse_i64};
use super::sequence::Sequence;
use super::spec::{GROW, Run, SLOW_READ, Spec, as_sent};
use crate::commands::errors::SYNTAX;
use crate::connection::encode::Reply;
use crate::connection::parse::Command;
use crate::transactions::plan::{Arg, PlanBuilder};
use crate::transactions::planner::Planner;
use crate::transactions::work::{Stop, Work};

pub const COMMANDS: &[Spec] = &[
    Spec::data(
        "generic",
        "dump",
        2,
        (SLOW_READ, KeyPlaces::ONE),
        (as_sent, dump as Run),
        "Return a value in Redis' format",
    ),
    Spec::data(
        "generic",
        "restore",
        -4,
        (GROW, KeyPlaces::ONE),
        (plan_restore, restore as Run),
        "Create a key from a value in Redis' format",
    ),
];

/// The version of the format that is written: that of Redis 7.0.
const VERSION: u16 = 10;
/// The newest that is read, as far as its objects are of known types: that of Redis 7.4.
const NEWEST: u16 = 12;
/// Bytes of the version and the checksum.
const TAIL: usize = 10;

const WRONG_TAIL: &[u8] = b"ERR DUMP payload version or checksum are wrong";
const BAD_DATA: &[u8] = b"ERR Bad data format";
const BUSY: &[u8] = b"BUSYKEY Target key name already exists.";

const REPLACE: u8 = 1;

fn dump<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key] = args else { return Err(Stop::Malformed) };
    let found = work.find(key)?;
    let Some(kind) = work.type_of(found)? else {
        reply.null();
        return Ok(());
    };
    let value = match kind.number == list::TYPE.number {
        true => Sequence::open(work, found).whole(work)?,
        false => work.contents(found),
    };
    let mut payload = rdb::write(kind, &value)?;
    payload.extend_from_slice(&VERSION.to_le_bytes());
    let checksum = crc64(&payload);
    payload.extend_from_slice(&checksum.to_le_bytes());
    work.spend_on_value(payload.len())?;
    reply.bulk(&payload);
    Ok(())
}

fn plan_restore(
    planner: &Planner<'_>,
    plan: &mut PlanBuilder,
    spec: &'static Spec,
    command: &Command<'_>,
) -> Result<(), Vec<u8>> {
    let (mut flags, mut absolute, mut at) = (0, false, 4);
    while at < command.len() {
        let number = (at + 1 < command.len()).then(|| command.arg(at + 1));
        match (command.arg(at).to_ascii_lowercase().as_slice(), number) {
            (b"replace", _) => flags |= REPLACE,
            (b"absttl", _) => absolute = true,
            // Neither is kept; what is given is checked.
            (b"idletime", Some(number)) => {
                check(number, i64::MAX, "ERR Invalid IDLETIME value, must be >= 0")?;
                at += 1;
            }
            (b"freq", Some(number)) => {
                check(number, 255, "ERR Invalid FREQ value, must be >= 0 and <= 255")?;
                at += 1;
            }
            _ => return Err(SYNTAX.to_vec()),
        }
        at += 1;
    }
    let ttl = check(command.arg(2), i64::MAX, "ERR Invalid TTL value, must be >= 0")?;
    let expiry = match ttl {
        0 => Expiry::Never,
        deadline if absolute => Expiry::At(deadline),
        span => Expiry::In(span),
    };
    spec.begin(plan);
    planner.key(plan, command.arg(1));
    planner.deadline(plan, &[flags], expiry, command.arg(1));
    plan.plain(command.arg(3));
    Ok(())
}

/// Reads a number from 0 to `most`. Errors: `text` if it is another one.
fn check(number: &[u8], most: i64, text: &str) -> Result<i64, Vec<u8>> {
    let number = parse_i64(number).ok_or(NOT_AN_INTEGER)?;
    if (0..=most).contains(&number) { Ok(number) } else { Err(text.into()) }
}

fn restore<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key, how, payload] = args else { return Err(Stop::Malformed) };
    let (&flags, expiry) = how.bytes.split_first().ok_or(Stop::Malformed)?;
    let expiry = Expiry::parse(expiry).ok_or(Stop::Malformed)?;
    let found = work.find(key)?;
    if flags & REPLACE == 0 && work.is_present(found) {
        return Err(Stop::Error(BUSY));
    }
    let object = object(payload.bytes).ok_or(WRONG_TAIL)?;
    let (kind, value) = rdb::read(object, work.value_max()).ok_or(BAD_DATA)?;
    work.put_whole(found, kind, value, expiry.deadline(work.now(), None))?;
    reply.status("OK");
    Ok(())
}

/// The object of a payload whose version is known and whose checksum is right.
fn object(payload: &[u8]) -> Option<&[u8]> {
    let (object, tail) = payload.split_at_checked(payload.len().checked_sub(TAIL)?)?;
    let (version, checksum) = tail.split_first_chunk::<2>()?;
    let checksum = u64::from_le_bytes(checksum.try_into().ok()?);
    let known = u16::from_le_bytes(*version) <= NEWEST;
    (known && checksum == crc64(&payload[..payload.len() - 8])).then_some(object)
}

/// What begins a library in a payload.
const LIBRARY: u8 = 0xf5;

/// The payload of libraries, of which these are the codes.
pub fn payload_of(codes: &[&[u8]]) -> Vec<u8> {
    let mut payload = Vec::new();
    for code in codes {
        payload.push(LIBRARY);
        write_string(&mut payload, code);
    }
    payload.extend_from_slice(&VERSION.to_le_bytes());
    let checksum = crc64(&payload);
    payload.extend_from_slice(&checksum.to_le_bytes());
    payload
}

/// The codes of the libraries in a payload.
///
/// # Errors
/// The text that the command answers.
pub fn libraries_of(payload: &[u8]) -> Result<Vec<Vec<u8>>, &'static [u8]> {
    let object = object(payload).ok_or(WRONG_TAIL)?;
    let (mut reader, mut codes) = (Reader::new(object, usize::MAX), Vec::new());
    while !reader.is_over() {
        if reader.array() != Some([LIBRARY]) {
            return Err(b"ERR given type is not a function");
        }
        codes.push(reader.string().ok_or(&b"ERR Failed loading library data"[..])?);
    }
    Ok(codes)
}
