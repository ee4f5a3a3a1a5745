//! Streams: entries of fields, each with an id behind all before it, and groups of consumers that
//! share them.
//!
//! `id` reads ids, `node` keeps entries in listpacks as Redis does, `value` makes a stream of them,
//! `groups` keeps the groups. The commands: `write` adds and removes entries, `read` reads them,
//! `group` is about groups, `claim` about what their consumers have pending, `info` tells of both.

mod claim;
mod group;
pub mod groups;
pub mod id;
mod info;
pub mod node;
mod read;
pub mod value;
mod write;

use self::id::Id;
use self::value::Stream;
use super::key_places::KeyPlaces;
use super::kind::Type;
use super::number::{NOT_AN_INTEGER, parse_i64};
use super::spec::{GROW, Plan, READ, REMOVE, Run, SLOW_READ, SLOW_WRITE, Spec, WRITE, as_sent};
use crate::connection::encode::Reply;
use crate::transactions::plan::Arg;
use crate::transactions::sizes::Sizes;
use crate::transactions::work::{Found, Stop, Work};

pub const TYPE: Type = Type { name: "stream", number: 5, encoding };

/// Flags of commands that may wait.
const WAITS: &[&str] = &["readonly", "blocking"];
const WAITS_AND_WRITES: &[&str] = &["write", "blocking"];
/// The key behind a subcommand.
const SECOND: KeyPlaces = KeyPlaces { first: 2, last: 2, ..KeyPlaces::ONE };

pub const COMMANDS: &[Spec] = &[
    stream("xack", -4, REMOVE, claim::xack, "Acknowledge entries that a group has pending"),
    stream("xadd", -5, WRITE, write::xadd, "Add an entry to a stream"),
    stream(
        "xautoclaim",
        -6,
        REMOVE,
        claim::xautoclaim,
        "Give a consumer pending entries of others, the first ones that are idle",
    ),
    stream("xclaim", -6, REMOVE, claim::xclaim, "Give a consumer pending entries of others"),
    stream("xdel", -3, REMOVE, write::xdel, "Delete entries of a stream"),
    placed(
        "xgroup",
        -2,
        (GROW, SECOND),
        (group::plan_xgroup, group::xgroup),
        "Create, change and delete groups of consumers",
    ),
    placed("xinfo", -2, (SLOW_READ, SECOND), (info::plan, info::xinfo), "Tell about a stream"),
    stream("xlen", 2, READ, read::xlen, "Get the number of entries of a stream"),
    stream("xpending", -3, SLOW_READ, claim::xpending, "List what a group has pending"),
    stream("xrange", -4, SLOW_READ, read::xrange::<false>, "Get the entries between two ids"),
    placed(
        "xread",
        -4,
        (WAITS, KeyPlaces::STREAMS),
        (read::plan::<false>, read::xread),
        "Get the entries behind ids of several streams, or wait for some",
    ),
    placed(
        "xreadgroup",
        -7,
        (WAITS_AND_WRITES, KeyPlaces::STREAMS),
        (read::plan::<true>, read::xread),
        "Get entries for a consumer of a group, or wait for some",
    ),
    stream(
        "xrevrange",
        -4,
        SLOW_READ,
        read::xrange::<true>,
        "Get the entries between two ids, the last one first",
    ),
    stream("xsetid", -3, WRITE, write::xsetid, "Set the last id of a stream"),
    stream("xtrim", -4, SLOW_WRITE, write::xtrim, "Delete the first entries of a stream"),
];

const fn stream(
    name: &'static str,
    arity: i32,
    flags: &'static [&'static str],
    run: Run,
    summary: &'static str,
) -> Spec {
    placed(name, arity, (flags, KeyPlaces::ONE), (as_sent, run), summary)
}

const fn placed(
    name: &'static str,
    arity: i32,
    of: (&'static [&'static str], KeyPlaces),
    how: (Plan, Run),
    summary: &'static str,
) -> Spec {
    Spec::data("stream", name, arity, of, how, summary)
}

fn encoding(_: &[u8], _: &Sizes) -> &'static [u8] {
    b"stream"
}

fn integer(arg: &Arg<'_>) -> Result<i64, Stop> {
    parse_i64(arg.bytes).ok_or(Stop::Error(NOT_AN_INTEGER))
}

fn ids(args: &[Arg<'_>]) -> Result<Vec<Id>, Stop> {
    args.iter().map(|arg| Ok(Id::parse(arg.bytes, 0)?)).collect()
}

/// Whether `arg` is `word`, in lower case, in any case.
fn is(arg: &Arg<'_>, word: &[u8]) -> bool {
    arg.bytes.eq_ignore_ascii_case(word)
}

/// Stores a changed stream and tells of it.
fn store(
    work: &mut Work<'_>,
    found: Found,
    stream: &Stream<'_>,
    events: &[&str],
) -> Result<(), Stop> {
    work.put(found, stream.pack())?;
    work.announce(found, events);
    Ok(())
}

/// Answers that a group, or its key, is not there.
fn no_group(key: &[u8], group: &[u8], behind: &str, reply: &mut Reply<'_>) {
    let parts = [b"NOGROUP No such key '", key, b"' or consumer group '", group, b"'"];
    reply.error(&[parts.concat(), behind.into()].concat());
}
