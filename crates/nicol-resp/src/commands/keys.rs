//! Commands over keys of any type.

use super::key_places::KeyPlaces;
use super::number::database;
use super::object;
use super::sequence;
use super::spec::{Admin, GROW, READ, REMOVE, Run, SLOW_READ, SLOW_WRITE, Spec, Whole, as_sent};
use super::string;
use super::usage;
use crate::commands::errors::SYNTAX;
use crate::connection::encode::Reply;
use crate::connection::parse::Command;
use crate::transactions::plan::{Arg, PlanBuilder};
use crate::transactions::planner::Planner;
use crate::transactions::work::{Stop, Work};

const SAME_OBJECT: &[u8] = b"ERR source and destination objects are the same";

pub const COMMANDS: &[Spec] = &[
    Spec::data(
        "generic",
        "copy",
        -3,
        (GROW, KeyPlaces::TWO),
        (plan_copy, copy),
        "Copy a key, to another database if asked",
    ),
    generic("del", -2, (SLOW_WRITE, KeyPlaces::ALL), del, "Delete keys").single(2),
    generic("exists", -2, (READ, KeyPlaces::ALL), exists, "Count the keys that exist").single(2),
    Spec::data(
        "server",
        "memory",
        -2,
        (SLOW_READ, KeyPlaces { first: 2, last: 2, ..KeyPlaces::ONE }),
        (usage::plan, usage::run),
        "Tell what the memory is used for",
    )
    .except("usage", Admin::Server(Whole::Memory)),
    Spec::data(
        "generic",
        "move",
        3,
        (REMOVE, KeyPlaces::ONE),
        (plan_move, move_key),
        "Move a key to another database",
    ),
    Spec::data(
        "generic",
        "object",
        -2,
        (SLOW_READ, KeyPlaces { first: 2, last: 2, ..KeyPlaces::ONE }),
        (object::plan, object::run),
        "Tell how the value of a key is kept",
    ),
    generic("rename", 3, (SLOW_WRITE, KeyPlaces::TWO), rename, "Rename a key"),
    generic(
        "renamenx",
        3,
        (REMOVE, KeyPlaces::TWO),
        rename_nx,
        "Rename a key, if the new one is free",
    ),
    generic("touch", -2, (READ, KeyPlaces::ALL), exists, "Count the keys that exist").single(2),
    generic("type", 2, (READ, KeyPlaces::ONE), type_of, "Determine the type of the value of a key"),
    generic("unlink", -2, (REMOVE, KeyPlaces::ALL), del, "Delete keys").single(2),
];

const fn generic(
    name: &'static str,
    arity: i32,
    of: (&'static [&'static str], KeyPlaces),
    run: Run,
    summary: &'static str,
) -> Spec {
    Spec::data("generic", name, arity, of, (as_sent, run), summary)
}

fn del<'t>(work: &mut Work<'t>, keys: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let mut count = 0;
    for key in keys {
        let found = work.find(key)?;
        if work.is_present(found) {
            count += 1;
            work.change(found, None)?;
        }
    }
    reply.integer(count);
    Ok(())
}

fn exists<'t>(work: &mut Work<'t>, keys: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let mut count = 0;
    for key in keys {
        let found = work.find(key)?;
        count += i64::from(work.is_present(found));
    }
    reply.integer(count);
    Ok(())
}

fn type_of<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key] = args else { return Err(Stop::Malformed) };
    let found = work.find(key)?;
    reply.status(work.type_of(found)?.map_or("none", |kind| kind.name));
    Ok(())
}

fn rename<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    moved(work, args, true)?;
    reply.status("OK");
    Ok(())
}

fn rename_nx<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let done = moved(work, args, false)?;
    reply.integer(i64::from(done));
    Ok(())
}

fn plan_move(
    planner: &Planner<'_>,
    plan: &mut PlanBuilder,
    spec: &'static Spec,
    command: &Command<'_>,
) -> Result<(), Vec<u8>> {
    let (key, to) = (command.arg(1), database(command.arg(2))?);
    if to == planner.database() {
        return Err(SAME_OBJECT.to_vec());
    }
    spec.begin(plan);
    planner.key(plan, key);
    planner.within(to).key(plan, key);
    Ok(())
}

fn move_key<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [from, to] = args else { return Err(Stop::Malformed) };
    let (from, to) = (work.find(from)?, work.find(to)?);
    let moves = work.is_present(from) && !work.is_present(to);
    if moves {
        work.rename(from, to)?;
    }
    reply.integer(i64::from(moves));
    Ok(())
}

fn plan_copy(
    planner: &Planner<'_>,
    plan: &mut PlanBuilder,
    spec: &'static Spec,
    command: &Command<'_>,
) -> Result<(), Vec<u8>> {
    let (from, to) = (command.arg(1), command.arg(2));
    let (mut replaces, mut target, mut at) = (false, planner.database(), 3);
    while at < command.len() {
        match command.arg(at).to_ascii_lowercase().as_slice() {
            b"replace" => replaces = true,
            b"db" if at + 1 < command.len() => {
                at += 1;
                target = database(command.arg(at))?;
            }
            _ => return Err(SYNTAX.to_vec()),
        }
        at += 1;
    }
    if from == to && target == planner.database() {
        return Err(SAME_OBJECT.to_vec());
    }
    spec.begin(plan);
    planner.key(plan, from);
    planner.within(target).key(plan, to);
    plan.plain(&[u8::from(replaces)]);
    Ok(())
}

fn copy<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [from, to, replaces] = args else { return Err(Stop::Malformed) };
    let (from, to) = (work.find(from)?, work.find(to)?);
    let copies = work.is_present(from) && (replaces.bytes == [1] || !work.is_present(to));
    if copies {
        let value = match work.type_of(from)? {
            Some(kind) if kind.number == string::TYPE.number => work.contents(from),
            _ => sequence::copy(work, from, to)?,
        };
        work.copy(from, to, value)?;
    }
    reply.integer(i64::from(copies));
    Ok(())
}

/// Renames a key, if the new one is absent or may be overwritten.
fn moved<'t>(work: &mut Work<'t>, args: &[Arg<'t>], overwrites: bool) -> Result<bool, Stop> {
    let [from, to] = args else { return Err(Stop::Malformed) };
    let (from, to) = (work.find(from)?, work.find(to)?);
    if !work.is_present(from) {
        return Err(Stop::Error(b"ERR no such key"));
    }
    if !overwrites && work.is_present(to) {
        return Ok(false);
    }
    if from != to {
        work.rename(from, to)?;
    }
    Ok(true)
}
