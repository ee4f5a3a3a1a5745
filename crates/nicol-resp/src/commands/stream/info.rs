//! XINFO: what a stream, its groups and their consumers are like.

use super::group::{named, plan_subcommand};
use super::groups::{Group, Groups};
use super::value::Stream;
use super::{TYPE, integer, is};
use crate::commands::errors::wrong_subcommand_of;
use crate::commands::spec::Spec;
use crate::connection::encode::Reply;
use crate::connection::parse::Command;
use crate::transactions::plan::{Arg, PlanBuilder};
use crate::transactions::planner::Planner;
use crate::transactions::work::{Stop, Work};

const HELP: [&str; 9] = [
    "XINFO <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CONSUMERS <key> <groupname>",
    "    Show consumers of <groupname>.",
    "GROUPS <key>",
    "    Show the stream consumer groups.",
    "STREAM <key> [FULL [COUNT <count>]",
    "    Show information about the stream.",
    "HELP",
    "    Print this help.",
];

const SUBCOMMANDS: [(&str, i32); 3] = [("consumers", 4), ("groups", 3), ("stream", -3)];

/// Entries of each list of XINFO STREAM FULL, if nothing else is asked for.
const FULL_COUNT: i64 = 10;

/// Adds an XINFO to a plan.
pub fn plan(
    planner: &Planner<'_>,
    plan: &mut PlanBuilder,
    spec: &'static Spec,
    command: &Command<'_>,
) -> Result<(), Vec<u8>> {
    plan_subcommand((planner, plan), spec, command, &SUBCOMMANDS, &HELP)
}

pub fn xinfo<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key, word, rest @ ..] = args else { return Err(Stop::Malformed) };
    let subcommand = named(&SUBCOMMANDS, word)?;
    let found = work.typed(key, &TYPE)?;
    let value = work.value(found).ok_or(&b"ERR no such key"[..])?;
    let stream = Stream::parse(value)?;
    let bytes = stream.group_bytes();
    let groups = Groups::parse(&bytes)?;
    let mut body = Vec::new();
    let mut part = reply.beside(&mut body);
    match (subcommand, rest) {
        ("stream", options) => {
            let full = match options {
                [] => None,
                [full] if is(full, b"full") => Some(FULL_COUNT),
                [full, name, count] if is(full, b"full") && is(name, b"count") => {
                    Some(integer(count)?).map(|count| if count < 0 { FULL_COUNT } else { count })
                }
                _ => {
                    reply.error(&wrong_subcommand_of(b"xinfo", word.bytes));
                    return Ok(());
                }
            };
            about_stream(&stream, &groups, full, &mut part)?;
        }
        ("groups", _) => {
            part.array(groups.0.len());
            for (name, group) in &groups.0 {
                about_group(&stream, name, group, &mut part)?;
            }
        }
        (_, [name]) => {
            let Some(group) = groups.0.get(name.bytes) else {
                let parts = [
                    b"NOGROUP No such consumer group '",
                    name.bytes,
                    b"' for key name '",
                    key.bytes,
                    b"'",
                ];
                reply.error(&parts.concat());
                return Ok(());
            };
            about_consumers(group, work.now(), &mut part);
        }
        _ => return Err(Stop::Malformed),
    }
    work.spend(body.len())?;
    reply.replies(&body);
    Ok(())
}

/// XINFO STREAM; with `full`, FULL and the entries of each list, 0 for all.
fn about_stream(
    stream: &Stream<'_>,
    groups: &Groups<'_>,
    full: Option<i64>,
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    reply.map(if full.is_some() { 9 } else { 10 });
    let numbers = [
        ("length", stream.length),
        ("radix-tree-keys", stream.nodes.len() as u64),
        ("radix-tree-nodes", stream.tree_nodes()),
    ];
    let mut number = |name: &str, number: u64| {
        reply.bulk(name.as_bytes());
        reply.integer(number as i64);
    };
    numbers.into_iter().for_each(|(name, value)| number(name, value));
    reply.bulk(b"last-generated-id");
    stream.last.answer(reply);
    reply.bulk(b"max-deleted-entry-id");
    stream.max_deleted.answer(reply);
    reply.bulk(b"entries-added");
    reply.integer(stream.added as i64);
    reply.bulk(b"recorded-first-entry-id");
    stream.first()?.answer(reply);
    let Some(count) = full else {
        reply.bulk(b"groups");
        reply.integer(groups.0.len() as i64);
        for (name, entry) in
            [("first-entry", stream.first_entry()?), ("last-entry", stream.last_entry()?)]
        {
            reply.bulk(name.as_bytes());
            match entry {
                Some(entry) => entry.answer(reply)?,
                None => reply.null(),
            }
        }
        return Ok(());
    };
    let count = usize::try_from(count).ok().filter(|count| *count > 0).unwrap_or(usize::MAX);
    reply.bulk(b"entries");
    let length = usize::try_from(stream.length).unwrap_or(usize::MAX);
    reply.array(length.min(count));
    for entry in stream.range(super::Id::ZERO, super::Id::MAX).take(count) {
        entry?.answer(reply)?;
    }
    reply.bulk(b"groups");
    reply.array(groups.0.len());
    for (name, group) in &groups.0 {
        full_group(stream, (name, group), count, reply)?;
    }
    Ok(())
}

fn full_group(
    stream: &Stream<'_>,
    (name, group): (&[u8], &Group<'_>),
    count: usize,
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    reply.map(7);
    head(stream, name, group, reply)?;
    reply.bulk(b"pel-count");
    reply.integer(group.pending.len() as i64);
    reply.bulk(b"pending");
    reply.array(group.pending.len().min(count));
    for (id, pending) in group.pending.iter().take(count) {
        reply.array(4);
        id.answer(reply);
        reply.bulk(pending.consumer);
        reply.integer(pending.since);
        reply.integer(pending.count as i64);
    }
    reply.bulk(b"consumers");
    reply.array(group.consumers.len());
    for (name, seen) in &group.consumers {
        let pending: Vec<_> = group.pending_of(name).collect();
        reply.map(4);
        reply.bulk(b"name");
        reply.bulk(name);
        reply.bulk(b"seen-time");
        reply.integer(*seen);
        reply.bulk(b"pel-count");
        reply.integer(pending.len() as i64);
        reply.bulk(b"pending");
        reply.array(pending.len().min(count));
        for (id, pending) in pending.into_iter().take(count) {
            reply.array(3);
            id.answer(reply);
            reply.integer(pending.since);
            reply.integer(pending.count as i64);
        }
    }
    Ok(())
}

/// The name, the last id, the entries read and the lag of a group in XINFO STREAM FULL.
fn head(
    stream: &Stream<'_>,
    name: &[u8],
    group: &Group<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    reply.bulk(b"name");
    reply.bulk(name);
    reply.bulk(b"last-delivered-id");
    group.last.answer(reply);
    reads(stream, group, reply)
}

fn reads(stream: &Stream<'_>, group: &Group<'_>, reply: &mut Reply<'_>) -> Result<(), Stop> {
    let numbers =
        [("entries-read", group.read.map(|read| read as i64)), ("lag", group.lag(stream)?)];
    for (name, number) in numbers {
        reply.bulk(name.as_bytes());
        match number {
            Some(number) => reply.integer(number),
            None => reply.null(),
        }
    }
    Ok(())
}

fn about_group(
    stream: &Stream<'_>,
    name: &[u8],
    group: &Group<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    reply.map(6);
    reply.bulk(b"name");
    reply.bulk(name);
    for (name, count) in [("consumers", group.consumers.len()), ("pending", group.pending.len())] {
        reply.bulk(name.as_bytes());
        reply.integer(count as i64);
    }
    reply.bulk(b"last-delivered-id");
    group.last.answer(reply);
    reads(stream, group, reply)
}

fn about_consumers(group: &Group<'_>, now: i64, reply: &mut Reply<'_>) {
    reply.array(group.consumers.len());
    for (name, seen) in &group.consumers {
        reply.map(3);
        reply.bulk(b"name");
        reply.bulk(name);
        reply.bulk(b"pending");
        reply.integer(group.pending_of(name).count() as i64);
        reply.bulk(b"idle");
        reply.integer(now.saturating_sub(*seen).max(0));
    }
}
