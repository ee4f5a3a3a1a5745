//! Streams as they stand in Redis' files: nodes, numbers, and groups with what they have pending.

use std::collections::BTreeMap;

use super::elements::{Reader, write_length, write_string};
use crate::commands::stream::groups::{Group, Groups, Pending};
use crate::commands::stream::id::Id;
use crate::commands::stream::node::Node;
use crate::commands::stream::value::Stream;
use crate::transactions::work::Stop;

/// How a stream is written: at first, from Redis 7.0 on with counts and the ids of what was first
/// and last deleted, and from 7.2 on with when a consumer got something last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    First,
    Counted,
    Active,
}

/// Appends the stream of `value` in the form of Redis 7.0.
pub fn write(out: &mut Vec<u8>, value: &[u8]) -> Result<(), Stop> {
    let stream = Stream::parse(value)?;
    write_length(out, stream.nodes.len());
    for node in &stream.nodes {
        write_string(out, &node.first.bytes());
        write_string(out, &node.pack);
    }
    write_number(out, stream.length);
    for id in [stream.last, stream.first()?, stream.max_deleted] {
        write_id(out, id);
    }
    write_number(out, stream.added);
    let bytes = stream.group_bytes();
    let groups = Groups::parse(&bytes)?;
    write_length(out, groups.0.len());
    for (name, group) in &groups.0 {
        write_string(out, name);
        write_id(out, group.last);
        write_number(out, group.read.unwrap_or(u64::MAX));
        write_length(out, group.pending.len());
        for (id, pending) in &group.pending {
            out.extend_from_slice(&id.bytes());
            out.extend_from_slice(&pending.since.to_le_bytes());
            write_number(out, pending.count);
        }
        write_length(out, group.consumers.len());
        for (name, seen) in &group.consumers {
            write_string(out, name);
            out.extend_from_slice(&seen.to_le_bytes());
            write_length(out, group.pending_of(name).count());
            group.pending_of(name).for_each(|(id, _)| out.extend_from_slice(&id.bytes()));
        }
    }
    Ok(())
}

fn write_id(out: &mut Vec<u8>, id: Id) {
    write_number(out, id.ms);
    write_number(out, id.seq);
}

fn write_number(out: &mut Vec<u8>, number: u64) {
    match u32::try_from(number) {
        Ok(number) => write_length(out, number as usize),
        Err(_) => {
            out.push(0x81);
            out.extend_from_slice(&number.to_be_bytes());
        }
    }
}

/// The value of a stream in this form. `None`: it is not in the format.
pub fn read(from: &mut Reader<'_>, form: Form) -> Option<Vec<u8>> {
    let mut stream = Stream::default();
    for _ in 0..from.length()? {
        let first = Id::from_bytes(from.string()?.try_into().ok()?);
        stream.nodes.push(Node::checked(first, from.string()?)?);
    }
    stream.length = from.number()?;
    stream.last = id(from)?;
    stream.added = stream.length;
    if form >= Form::Counted {
        // The first id is that of the first entry.
        id(from)?;
        stream.max_deleted = id(from)?;
        stream.added = from.number()?;
    }
    let live: u64 = stream.nodes.iter().map(|node| node.live().ok()).sum::<Option<u64>>()?;
    let ends = stream.nodes.iter().map(|node| {
        let entries = node.entries().ok()?;
        Some((node.first, entries.last()?.id))
    });
    let ends: Vec<_> = ends.collect::<Option<_>>()?;
    let ascending = ends.windows(2).all(|pair| pair[0].1 < pair[1].0);
    let behind = ends.last().is_none_or(|(_, last)| *last <= stream.last);
    if live != stream.length || stream.added < live || !ascending || !behind {
        return None;
    }
    let mut owned = BTreeMap::new();
    for _ in 0..from.length()? {
        let name = from.string()?;
        if owned.insert(name, read_group(from, form, &stream)?).is_some() {
            return None;
        }
    }
    let mut groups = Groups::default();
    for (name, group) in &owned {
        groups.0.insert(name, group.lent()?);
    }
    stream.set_groups(groups.pack());
    Some(stream.pack())
}

fn id(from: &mut Reader<'_>) -> Option<Id> {
    Some(Id { ms: from.number()?, seq: from.number()? })
}

/// A group whose names are not borrowed.
struct Owned {
    last: Id,
    read: Option<u64>,
    /// When each consumer was seen, and what it has pending.
    consumers: BTreeMap<Vec<u8>, (i64, Vec<Id>)>,
    pending: BTreeMap<Id, (i64, u64)>,
}

impl Owned {
    /// The group; `None` if what is pending is not of one consumer each.
    fn lent(&self) -> Option<Group<'_>> {
        let mut group = Group { last: self.last, read: self.read, ..Group::default() };
        for (consumer, (seen, ids)) in &self.consumers {
            group.consumers.insert(consumer, *seen);
            for id in ids {
                let (since, count) = *self.pending.get(id)?;
                let pending = Pending { consumer, since, count };
                if group.pending.insert(*id, pending).is_some() {
                    return None;
                }
            }
        }
        (group.pending.len() == self.pending.len()).then_some(group)
    }
}

fn read_group(from: &mut Reader<'_>, form: Form, stream: &Stream<'_>) -> Option<Owned> {
    let last = id(from)?;
    let read = match form {
        Form::First => stream.added_up_to(last).ok()?,
        _ => Some(from.number()?).filter(|read| i64::try_from(*read).is_ok()),
    };
    let (mut pending, mut consumers) = (BTreeMap::new(), BTreeMap::new());
    for _ in 0..from.length()? {
        let id = Id::from_bytes(from.array()?);
        let (since, count) = (i64::from_le_bytes(from.array()?), from.number()?);
        pending.insert(id, (since, count));
    }
    for _ in 0..from.length()? {
        let name = from.string()?;
        let seen = i64::from_le_bytes(from.array()?);
        if form >= Form::Active {
            from.array::<8>()?;
        }
        let mut ids = Vec::new();
        for _ in 0..from.length()? {
            ids.push(Id::from_bytes(from.array()?));
        }
        if consumers.insert(name, (seen, ids)).is_some() {
            return None;
        }
    }
    Some(Owned { last, read, consumers, pending })
}
