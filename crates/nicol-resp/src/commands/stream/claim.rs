//! What the consumers of a group have pending: acknowledged, listed, and given to others.

use super::groups::{Group, Groups, Pending};
use super::id::{Id, parse_first, parse_last};
use super::value::Stream;
use super::{TYPE, ids, integer, is, no_group, store};
use crate::commands::errors::SYNTAX;
use crate::commands::number::parse_i64;
use crate::connection::encode::Reply;
use crate::transactions::plan::Arg;
use crate::transactions::work::{Stop, Work};

pub fn xack<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key, group, rest @ ..] = args else { return Err(Stop::Malformed) };
    let found = work.typed(key, &TYPE)?;
    let old = work.contents(found);
    let mut stream = Stream::parse(&old)?;
    let bytes = stream.group_bytes();
    let mut groups = Groups::parse(&bytes)?;
    let mut acknowledged = 0;
    if let Some(group) = groups.0.get_mut(group.bytes) {
        for id in ids(rest)? {
            acknowledged += i64::from(group.pending.remove(&id).is_some());
        }
    }
    if acknowledged > 0 {
        stream.set_groups(groups.pack());
        store(work, found, &stream, &[])?;
    }
    reply.integer(acknowledged);
    Ok(())
}

/// What a long XPENDING asks for.
#[derive(Debug)]
struct Listed<'t> {
    idle: i64,
    first: Id,
    last: Id,
    count: usize,
    consumer: Option<&'t [u8]>,
}

impl<'t> Listed<'t> {
    fn parse(args: &[Arg<'t>]) -> Result<Self, Stop> {
        let (idle, args) = match args {
            [name, idle, rest @ ..] if is(name, b"idle") => {
                let idle = integer(idle)?;
                if rest.len() < 3 {
                    return Err(Stop::Error(SYNTAX));
                }
                (idle, rest)
            }
            args => (0, args),
        };
        let [first, last, count, consumer @ ..] = args else { return Err(Stop::Error(SYNTAX)) };
        let count = usize::try_from(integer(count)?).unwrap_or(0);
        let (first, last) = (parse_first(first.bytes)?, parse_last(last.bytes)?);
        Ok(Self { idle, first, last, count, consumer: consumer.first().map(|name| name.bytes) })
    }
}

pub fn xpending<'t>(
    work: &mut Work<'t>,
    args: &[Arg<'t>],
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    let [key, name, rest @ ..] = args else { return Err(Stop::Malformed) };
    let listed = match rest.len() {
        0 => None,
        3..=6 => Some(Listed::parse(rest)?),
        _ => return Err(Stop::Error(SYNTAX)),
    };
    let found = work.typed(key, &TYPE)?;
    let bytes = Stream::parse(work.value(found).unwrap_or_default())?.group_bytes();
    let groups = Groups::parse(&bytes)?;
    let Some(group) = groups.0.get(name.bytes) else {
        no_group(key.bytes, name.bytes, "", reply);
        return Ok(());
    };
    let mut body = Vec::new();
    let mut part = reply.beside(&mut body);
    match listed {
        None => summary(group, &mut part),
        Some(listed) => list(group, &listed, work.now(), &mut part),
    }
    work.spend(body.len())?;
    reply.replies(&body);
    Ok(())
}

fn summary(group: &Group<'_>, reply: &mut Reply<'_>) {
    let ends = group.pending.first_key_value().zip(group.pending.last_key_value());
    reply.array(4);
    reply.integer(group.pending.len() as i64);
    let Some(((first, _), (last, _))) = ends else {
        reply.null();
        reply.null();
        reply.null_array();
        return;
    };
    first.answer(reply);
    last.answer(reply);
    let counts = group.consumers.keys().map(|name| (name, group.pending_of(name).count()));
    let counts: Vec<_> = counts.filter(|(_, count)| *count > 0).collect();
    reply.array(counts.len());
    for (name, count) in counts {
        reply.array(2);
        reply.bulk(name);
        reply.bulk(count.to_string().as_bytes());
    }
}

fn list(group: &Group<'_>, listed: &Listed<'_>, now: i64, reply: &mut Reply<'_>) {
    if listed.first > listed.last {
        reply.array(0);
        return;
    }
    let all = group.pending.range(listed.first..=listed.last);
    let chosen: Vec<_> = all
        .filter(|(_, pending)| listed.consumer.is_none_or(|name| name == pending.consumer))
        .filter(|(_, pending)| listed.idle == 0 || now.wrapping_sub(pending.since) >= listed.idle)
        .take(listed.count)
        .collect();
    reply.array(chosen.len());
    for (id, pending) in chosen {
        reply.array(4);
        id.answer(reply);
        reply.bulk(pending.consumer);
        reply.integer(now.saturating_sub(pending.since).max(0));
        reply.integer(pending.count as i64);
    }
}

/// How pending entries are given to a consumer.
#[derive(Debug)]
struct Claim<'t> {
    consumer: &'t [u8],
    /// Entries that were delivered later stay where they are.
    idle: i64,
    now: i64,
    /// When they are said to have been delivered.
    since: i64,
    /// How often they are said to have been.
    count: Option<u64>,
    /// Also what nobody has pending.
    forced: bool,
    /// Only the ids are answered, and no delivery is counted.
    ids_only: bool,
}

impl<'t> Claim<'t> {
    /// Gives the entry to the consumer, if it may, and answers it; a new consumer comes to be with
    /// that. An entry that is there no longer is no longer pending either.
    fn take(
        &self,
        stream: &Stream<'_>,
        group: &mut Group<'t>,
        id: Id,
        reply: &mut Reply<'_>,
    ) -> Result<Taken, Stop> {
        let Some(entry) = stream.entry(id)? else {
            let was = group.pending.remove(&id);
            return Ok(if was.is_some() { Taken::Gone } else { Taken::Not });
        };
        let count = match group.pending.get(&id) {
            Some(pending) if self.idle > 0 && self.now - pending.since < self.idle => {
                return Ok(Taken::Not);
            }
            Some(pending) => pending.count,
            None if self.forced => 1,
            None => return Ok(Taken::Not),
        };
        let count = self.count.unwrap_or(count + u64::from(!self.ids_only));
        let pending = Pending { consumer: self.consumer, since: self.since, count };
        group.pending.insert(id, pending);
        group.consumers.insert(self.consumer, self.now);
        match self.ids_only {
            true => id.answer(reply),
            false => entry.answer(reply)?,
        }
        Ok(Taken::Yes)
    }
}

/// What became of an entry that was to be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    Yes,
    /// It was pending and had been deleted.
    Gone,
    Not,
}

/// Reads the least idle time. Errors: `text`.
fn least_idle(arg: &Arg<'_>, text: &'static [u8]) -> Result<i64, Stop> {
    Ok(parse_i64(arg.bytes).ok_or(text)?.max(0))
}

/// Reads the options of XCLAIM; `None`: an error was answered. Also what the last id of the group
/// is at least.
fn options<'t>(
    args: &[Arg<'t>],
    claim: &mut Claim<'t>,
    reply: &mut Reply<'_>,
) -> Result<Option<Id>, Stop> {
    let (mut last, mut since, mut args) = (Id::ZERO, None, args.iter());
    let number = |arg: &Arg<'_>, text: &'static [u8]| parse_i64(arg.bytes).ok_or(Stop::Error(text));
    while let Some(option) = args.next() {
        let value = || args.clone().next();
        let mut has_value = true;
        match (option.bytes.to_ascii_lowercase().as_slice(), value()) {
            (b"force", _) => (claim.forced, has_value) = (true, false),
            (b"justid", _) => (claim.ids_only, has_value) = (true, false),
            (b"idle", Some(value)) => {
                let idle = number(value, b"ERR Invalid IDLE option argument for XCLAIM")?;
                since = Some(claim.now.wrapping_sub(idle));
            }
            (b"time", Some(value)) => {
                since = Some(number(value, b"ERR Invalid TIME option argument for XCLAIM")?);
            }
            (b"retrycount", Some(value)) => {
                let count = number(value, b"ERR Invalid RETRYCOUNT option argument for XCLAIM")?;
                claim.count = u64::try_from(count).ok();
            }
            (b"lastid", Some(value)) => last = Id::parse(value.bytes, 0)?,
            _ => {
                let text = [b"ERR Unrecognized XCLAIM option '", option.bytes, b"'"];
                reply.error(&text.concat());
                return Ok(None);
            }
        }
        if has_value {
            args.next();
        }
    }
    // As Redis: a time that cannot be is now.
    claim.since = since.filter(|since| (0..=claim.now).contains(since)).unwrap_or(claim.now);
    Ok(Some(last))
}

pub fn xclaim<'t>(
    work: &mut Work<'t>,
    args: &[Arg<'t>],
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    let [key, name, consumer, idle, rest @ ..] = args else { return Err(Stop::Malformed) };
    let found = work.typed(key, &TYPE)?;
    let old = work.contents(found);
    let mut stream = Stream::parse(&old)?;
    let bytes = stream.group_bytes();
    let mut groups = Groups::parse(&bytes)?;
    let Some(group) = groups.0.get_mut(name.bytes) else {
        no_group(key.bytes, name.bytes, "", reply);
        return Ok(());
    };
    let idle = least_idle(idle, b"ERR Invalid min-idle-time argument for XCLAIM")?;
    let now = work.now();
    let mut claim = Claim {
        consumer: consumer.bytes,
        idle,
        now,
        since: now,
        count: None,
        forced: false,
        ids_only: false,
    };
    let ids: Vec<_> = rest.iter().map_while(|arg| Id::parse(arg.bytes, 0).ok()).collect();
    let Some(last) = options(&rest[ids.len()..], &mut claim, reply)? else { return Ok(()) };
    let moved = last > group.last;
    group.last = group.last.max(last);
    let (consumers, pending) = (group.consumers.len(), group.pending.len());
    let (mut taken, mut body) = (0, Vec::new());
    let mut part = reply.beside(&mut body);
    for id in ids {
        taken += usize::from(claim.take(&stream, group, id, &mut part)? == Taken::Yes);
    }
    work.spend(body.len())?;
    let created = group.consumers.len() > consumers;
    if moved || taken > 0 || group.pending.len() != pending {
        stream.set_groups(groups.pack());
        store(work, found, &stream, if created { &["xgroup-createconsumer"] } else { &[] })?;
    }
    reply.array(taken);
    reply.replies(&body);
    Ok(())
}

/// Entries that XAUTOCLAIM looks at for each that it may claim.
const ATTEMPTS: usize = 10;
const COUNT_MAX: i64 = i64::MAX / 16;

/// Reads the options of XAUTOCLAIM: how many entries to claim, and whether to answer ids only.
fn auto_options(args: &[Arg<'_>]) -> Result<(usize, bool), Stop> {
    let (mut count, mut ids_only, mut args) = (100, false, args.iter());
    while let Some(option) = args.next() {
        if is(option, b"justid") {
            ids_only = true;
            continue;
        }
        let value = args.next().filter(|_| is(option, b"count")).ok_or(SYNTAX)?;
        let number = parse_i64(value.bytes).filter(|number| (1..=COUNT_MAX).contains(number));
        count = number.ok_or(&b"ERR COUNT must be > 0"[..])? as usize;
    }
    Ok((count, ids_only))
}

pub fn xautoclaim<'t>(
    work: &mut Work<'t>,
    args: &[Arg<'t>],
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    let [key, name, consumer, idle, start, rest @ ..] = args else { return Err(Stop::Malformed) };
    let idle = least_idle(idle, b"ERR Invalid min-idle-time argument for XAUTOCLAIM")?;
    let start = parse_first(start.bytes)?;
    let (mut count, ids_only) = auto_options(rest)?;
    let found = work.typed(key, &TYPE)?;
    let old = work.contents(found);
    let mut stream = Stream::parse(&old)?;
    let bytes = stream.group_bytes();
    let mut groups = Groups::parse(&bytes)?;
    let Some(group) = groups.0.get_mut(name.bytes) else {
        no_group(key.bytes, name.bytes, "", reply);
        return Ok(());
    };
    let now = work.now();
    let (consumer, forced) = (consumer.bytes, false);
    let claim = Claim { consumer, idle, now, since: now, count: None, forced, ids_only };
    let consumers = group.consumers.len();
    let mut attempts = count.saturating_mul(ATTEMPTS);
    let mut pending =
        group.pending.range(start..).map(|(id, _)| *id).collect::<Vec<_>>().into_iter();
    let (mut taken, mut gone, mut body) = (0, Vec::new(), Vec::new());
    let mut part = reply.beside(&mut body);
    while attempts > 0 && count > 0 {
        let Some(id) = pending.next() else { break };
        attempts -= 1;
        match claim.take(&stream, group, id, &mut part)? {
            Taken::Yes => taken += 1,
            Taken::Gone => gone.push(id),
            Taken::Not => continue,
        }
        count -= 1;
    }
    let next = pending.next().unwrap_or(Id::ZERO);
    work.spend(body.len())?;
    let created = group.consumers.len() > consumers;
    if taken > 0 || !gone.is_empty() {
        stream.set_groups(groups.pack());
        store(work, found, &stream, if created { &["xgroup-createconsumer"] } else { &[] })?;
    }
    reply.array(3);
    next.answer(reply);
    reply.array(taken);
    reply.replies(&body);
    reply.array(gone.len());
    gone.into_iter().for_each(|id| id.answer(reply));
    Ok(())
}
