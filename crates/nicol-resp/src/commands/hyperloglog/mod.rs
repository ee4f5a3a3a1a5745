//! HyperLogLog: PFADD, PFCOUNT and PFMERGE, over strings in the format of Redis, so that values of
//! the one can be used in the other.
//!
//! Cost: a command that changes a value reads and writes all of its 16,384 registers.

mod debug;
mod sketch;

use std::borrow::Cow;

use self::sketch::Sketch;
use super::key_places::KeyPlaces;
use super::spec::{GROW, Plan, Run, SLOW_READ, Spec, WRITE, as_sent, into_first};
use super::string::TYPE;
use crate::connection::encode::Reply;
use crate::transactions::plan::Arg;
use crate::transactions::work::{Found, Stop, Work};

const NOT_ONE: &[u8] = b"WRONGTYPE Key is not a valid HyperLogLog string value.";

pub const COMMANDS: &[Spec] = &[
    sketches("pfadd", -2, (WRITE, KeyPlaces::ONE), (as_sent, pfadd), "Add elements to a sketch"),
    sketches(
        "pfcount",
        -2,
        (SLOW_READ, KeyPlaces::ALL),
        (as_sent, pfcount),
        "Estimate how many elements sketches have seen",
    ),
    sketches(
        "pfmerge",
        -2,
        (GROW, KeyPlaces::ALL),
        (into_first, pfmerge),
        "Merge sketches into another one",
    ),
    sketches(
        "pfdebug",
        3,
        (&["write", "denyoom", "admin"], KeyPlaces { first: 2, last: 2, ..KeyPlaces::ONE }),
        (as_sent, debug::pfdebug),
        "Tell how a sketch is kept",
    ),
    sketches(
        "pfselftest",
        1,
        (&["admin"], KeyPlaces::NONE),
        (debug::plan_selftest, debug::pfselftest),
        "Test the arithmetic of sketches",
    ),
];

const fn sketches(
    name: &'static str,
    arity: i32,
    of: (&'static [&'static str], KeyPlaces),
    how: (Plan, Run),
    summary: &'static str,
) -> Spec {
    Spec::data("hyperloglog", name, arity, of, how, summary)
}

/// The sketch of a key; `None` if the key is absent.
fn sketch<'t>(work: &mut Work<'t>, key: &Arg<'t>) -> Result<(Found, Option<Sketch>), Stop> {
    let found = work.typed(key, &TYPE)?;
    let Some(value) = work.value(found) else { return Ok((found, None)) };
    if !Sketch::is_one(value) {
        return Err(Stop::Error(NOT_ONE));
    }
    let sketch = Sketch::parse(value).ok_or(b"INVALIDOBJ Corrupted HLL object detected".as_slice());
    Ok((found, Some(sketch?)))
}

fn put(work: &mut Work<'_>, found: Found, sketch: &Sketch) -> Result<(), Stop> {
    let value = sketch.format(&work.sizes());
    work.store(found, Cow::Owned(value))
}

fn pfadd<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key, elements @ ..] = args else { return Err(Stop::Malformed) };
    let (found, old) = sketch(work, key)?;
    let (is_new, mut sketch) = (old.is_none(), old.unwrap_or_default());
    let mut changed = false;
    for element in elements {
        changed |= sketch.add(element.bytes);
    }
    if changed || is_new {
        put(work, found, &sketch)?;
    }
    reply.integer(i64::from(changed || is_new));
    Ok(())
}

fn pfcount<'t>(work: &mut Work<'t>, keys: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let mut all = Sketch::default();
    for key in keys {
        if let (_, Some(sketch)) = sketch(work, key)? {
            all.merge(&sketch);
        }
    }
    reply.integer(all.count() as i64);
    Ok(())
}

fn pfmerge<'t>(work: &mut Work<'t>, keys: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [into, sources @ ..] = keys else { return Err(Stop::Malformed) };
    let (found, old) = sketch(work, into)?;
    let mut all = old.unwrap_or_default();
    for source in sources {
        if let (_, Some(sketch)) = sketch(work, source)? {
            all.merge(&sketch);
        }
    }
    put(work, found, &all)?;
    reply.status("OK");
    Ok(())
}
