//! Hashes: fields with values under one key.

use super::draw;
use super::key_places::KeyPlaces;
use super::kind::Type;
use super::long_double::{LongDouble, NotFinite};
use super::number::{NOT_AN_INTEGER, parse_i64, push_i64};
use super::packed::{Rows, count, elements};
use super::scan;
use super::spec::{Plan, READ, REMOVE, Run, SLOW_READ, Spec, WRITE, as_sent, with_seed};
use crate::commands::errors::SYNTAX;
use crate::connection::encode::Reply;
use crate::transactions::plan::Arg;
use crate::transactions::sizes::Sizes;
use crate::transactions::work::{Found, Stop, Work};

pub const TYPE: Type = Type { name: "hash", number: 4, encoding };

pub const COMMANDS: &[Spec] = &[
    hash("hdel", -3, REMOVE, hdel, "Delete fields of a hash"),
    hash("hexists", 3, READ, hexists, "Determine whether a field of a hash exists"),
    hash("hget", 3, READ, hget, "Get the value of a field of a hash"),
    hash("hgetall", 2, SLOW_READ, hgetall, "Get all fields and values of a hash"),
    hash("hincrby", 4, WRITE, hincrby, "Increment the integer value of a field by a number"),
    hash("hincrbyfloat", 4, WRITE, hincrbyfloat, "Add to the decimal value of a field"),
    hash("hkeys", 2, SLOW_READ, side::<0>, "Get all fields of a hash"),
    hash("hlen", 2, READ, hlen, "Get the number of fields of a hash"),
    hash("hmget", -3, READ, hmget, "Get the values of fields of a hash"),
    hash("hmset", -4, WRITE, hmset, "Set fields of a hash to values"),
    planned("hrandfield", -2, SLOW_READ, (with_seed, hrandfield), "Get fields at random"),
    hash("hscan", -3, SLOW_READ, hscan, "Iterate over the fields and values of a hash"),
    hash("hset", -4, WRITE, hset, "Set fields of a hash to values"),
    hash("hsetnx", 4, WRITE, hsetnx, "Set a field of a hash, only if it does not exist"),
    hash("hstrlen", 3, READ, hstrlen, "Get the length of the value of a field"),
    hash("hvals", 2, SLOW_READ, side::<1>, "Get all values of a hash"),
];

const fn hash(
    name: &'static str,
    arity: i32,
    flags: &'static [&'static str],
    run: Run,
    summary: &'static str,
) -> Spec {
    planned(name, arity, flags, (as_sent, run), summary)
}

const fn planned(
    name: &'static str,
    arity: i32,
    flags: &'static [&'static str],
    how: (Plan, Run),
    summary: &'static str,
) -> Spec {
    Spec::data("hash", name, arity, (flags, KeyPlaces::ONE), how, summary)
}

fn encoding(value: &[u8], sizes: &Sizes) -> &'static [u8] {
    let elements = elements(value).unwrap_or_default();
    let short = elements.iter().all(|element| element.len() <= sizes.hash_bytes());
    if short && elements.len() <= 2 * sizes.hash_fields() { b"listpack" } else { b"hashtable" }
}

/// The value of a field of a hash.
pub fn field_of(value: &[u8], name: &[u8]) -> Result<Option<Vec<u8>>, Stop> {
    Ok(Rows::<2>::parse(value, 1)?.get(name).map(|row| row[1].to_vec()))
}

fn hset<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let wrong = b"ERR wrong number of arguments for 'hset' command";
    let added = set_all(work, args, wrong)?;
    reply.integer(added as i64);
    Ok(())
}

fn hmset<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    set_all(work, args, b"ERR wrong number of arguments for 'hmset' command")?;
    reply.status("OK");
    Ok(())
}

/// Sets fields; the number of those that are new.
fn set_all<'t>(work: &mut Work<'t>, args: &[Arg<'t>], wrong: &'static [u8]) -> Result<usize, Stop> {
    let (key, pairs) = args.split_first().ok_or(Stop::Malformed)?;
    let (pairs, []) = pairs.as_chunks::<2>() else { return Err(Stop::Error(wrong)) };
    let found = work.typed(key, &TYPE)?;
    let old = work.contents(found);
    let mut rows = Rows::parse(&old, pairs.len())?;
    let before = rows.len();
    for [field, value] in pairs {
        rows.set([field.bytes, value.bytes]);
    }
    let added = rows.len() - before;
    work.put(found, rows.pack())?;
    Ok(added)
}

fn hsetnx<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key, field, value] = args else { return Err(Stop::Malformed) };
    let found = work.typed(key, &TYPE)?;
    let old = work.contents(found);
    let mut rows = Rows::parse(&old, 1)?;
    let is_new = !rows.has(field.bytes);
    if is_new {
        rows.set([field.bytes, value.bytes]);
        work.put(found, rows.pack())?;
    }
    reply.integer(i64::from(is_new));
    Ok(())
}

fn hdel<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let (key, fields) = args.split_first().ok_or(Stop::Malformed)?;
    let found = work.typed(key, &TYPE)?;
    let old = work.contents(found);
    let mut rows = Rows::<2>::parse(&old, fields.len())?;
    let removed = fields.iter().filter(|field| rows.remove(field.bytes)).count();
    if removed > 0 {
        work.put(found, rows.pack())?;
    }
    reply.integer(removed as i64);
    Ok(())
}

/// The value of a field.
fn field<'w>(work: &'w Work<'_>, found: Found, name: &[u8]) -> Result<Option<&'w [u8]>, Stop> {
    let rows = Rows::<2>::parse(work.value(found).unwrap_or_default(), 1)?;
    Ok(rows.get(name).map(|[_, value]| value))
}

fn hget<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key, name] = args else { return Err(Stop::Malformed) };
    let found = work.typed(key, &TYPE)?;
    let value = field(work, found, name.bytes)?;
    work.spend(value.map_or(0, <[u8]>::len))?;
    reply.bulk_or_null(value);
    Ok(())
}

fn hexists<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key, name] = args else { return Err(Stop::Malformed) };
    let found = work.typed(key, &TYPE)?;
    reply.integer(i64::from(field(work, found, name.bytes)?.is_some()));
    Ok(())
}

fn hstrlen<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key, name] = args else { return Err(Stop::Malformed) };
    let found = work.typed(key, &TYPE)?;
    reply.integer(field(work, found, name.bytes)?.map_or(0, <[u8]>::len) as i64);
    Ok(())
}

fn hlen<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key] = args else { return Err(Stop::Malformed) };
    let found = work.typed(key, &TYPE)?;
    reply.integer((count(work.value(found).unwrap_or_default())? / 2) as i64);
    Ok(())
}

fn hmget<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let (key, fields) = args.split_first().ok_or(Stop::Malformed)?;
    let found = work.typed(key, &TYPE)?;
    let rows = Rows::<2>::parse(work.value(found).unwrap_or_default(), fields.len())?;
    reply.array(fields.len());
    for name in fields {
        let value = rows.get(name.bytes).map(|[_, value]| value);
        work.spend(value.map_or(0, <[u8]>::len))?;
        reply.bulk_or_null(value);
    }
    Ok(())
}

fn hgetall<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key] = args else { return Err(Stop::Malformed) };
    let found = work.typed(key, &TYPE)?;
    work.spend(work.len(found))?;
    let elements = elements(work.value(found).unwrap_or_default())?;
    reply.map(elements.len() / 2);
    elements.iter().for_each(|element| reply.bulk(element));
    Ok(())
}

/// HKEYS and HVALS.
fn side<'t, const SIDE: usize>(
    work: &mut Work<'t>,
    args: &[Arg<'t>],
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    let [key] = args else { return Err(Stop::Malformed) };
    let found = work.typed(key, &TYPE)?;
    work.spend(work.len(found))?;
    let elements = elements(work.value(found).unwrap_or_default())?;
    reply.array(elements.len() / 2);
    elements.as_chunks::<2>().0.iter().for_each(|row| reply.bulk(row[SIDE]));
    Ok(())
}

fn hincrby<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key, name, step] = args else { return Err(Stop::Malformed) };
    let step = parse_i64(step.bytes).ok_or(NOT_AN_INTEGER)?;
    let found = work.typed(key, &TYPE)?;
    let current = field(work, found, name.bytes)?.map_or(Some(0), parse_i64);
    let current = current.ok_or(&b"ERR hash value is not an integer"[..])?;
    let sum = current.checked_add(step).ok_or(&b"ERR increment or decrement would overflow"[..])?;
    let mut text = Vec::with_capacity(20);
    push_i64(&mut text, sum);
    set_field(work, found, [name.bytes, &text])?;
    reply.integer(sum);
    Ok(())
}

fn hincrbyfloat<'t>(
    work: &mut Work<'t>,
    args: &[Arg<'t>],
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    let [key, name, amount] = args else { return Err(Stop::Malformed) };
    let too_large = &b"ERR increment would produce NaN or Infinity"[..];
    let amount = match LongDouble::parse(amount.bytes) {
        Ok(amount) => Some(amount),
        Err(NotFinite::Infinite) => {
            return Err(Stop::Error(b"ERR value is NaN or Infinity"));
        }
        Err(NotFinite::Malformed) => {
            return Err(Stop::Error(b"ERR value is not a valid float"));
        }
    };
    let found = work.typed(key, &TYPE)?;
    let value = field(work, found, name.bytes)?;
    let current = match value.map_or(Ok(LongDouble::ZERO), LongDouble::parse) {
        Ok(current) => Some(current),
        Err(NotFinite::Infinite) => None,
        Err(NotFinite::Malformed) => return Err(Stop::Error(b"ERR hash value is not a float")),
    };
    let sum = current.zip(amount).and_then(|(current, amount)| current.checked_add(amount));
    let text = sum.ok_or(too_large)?.to_string().into_bytes();
    set_field(work, found, [name.bytes, &text])?;
    reply.bulk(&text);
    Ok(())
}

fn set_field(work: &mut Work<'_>, found: Found, row: [&[u8]; 2]) -> Result<(), Stop> {
    let old = work.contents(found);
    let mut rows = Rows::parse(&old, 1)?;
    rows.set(row);
    work.put(found, rows.pack())
}

fn hrandfield<'t>(
    work: &mut Work<'t>,
    args: &[Arg<'t>],
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    let (key, args) = args.split_first().ok_or(Stop::Malformed)?;
    let (seed, options) = args.split_last().ok_or(Stop::Malformed)?;
    let mut random = draw::stream(seed)?;
    let Some(wanted) = options.first() else {
        let found = work.typed(key, &TYPE)?;
        let elements = elements(work.value(found).unwrap_or_default())?;
        let drawn = random.pick(elements.as_chunks::<2>().0).map(|row| row[0]);
        work.spend(drawn.map_or(0, <[u8]>::len))?;
        reply.bulk_or_null(drawn);
        return Ok(());
    };
    let with_values =
        matches!(options, [_, word] if word.bytes.eq_ignore_ascii_case(b"withvalues"));
    let wanted = draw::count(wanted.bytes, with_values)?;
    if options.len() > 1 && !with_values {
        return Err(Stop::Error(SYNTAX));
    }
    let found = work.typed(key, &TYPE)?;
    let elements = elements(work.value(found).unwrap_or_default())?;
    let rows = elements.as_chunks::<2>().0;
    let places = draw::places(&mut random, rows.len(), wanted, work)?;
    match with_values {
        true => reply.pairs(places.len()),
        false => reply.array(places.len()),
    }
    for place in places {
        let [name, value] = rows[place];
        work.spend(name.len() + value.len())?;
        if with_values {
            reply.pair();
        }
        reply.bulk(name);
        if with_values {
            reply.bulk(value);
        }
    }
    Ok(())
}

fn hscan<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key, cursor, options @ ..] = args else { return Err(Stop::Malformed) };
    let cursor = scan::cursor(cursor.bytes)?;
    let found = work.typed(key, &TYPE)?;
    work.spend(work.len(found))?;
    let rows = Rows::<2>::parse(work.value(found).unwrap_or_default(), 0)?;
    let (next, rows) = match work.is_present(found) {
        true => scan::step(rows.iter(), cursor, scan::options(options)?),
        false => (0, Vec::new()),
    };
    scan::answer(next, rows.as_flattened(), reply);
    Ok(())
}
