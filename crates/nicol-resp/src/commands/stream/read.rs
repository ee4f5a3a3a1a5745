//! Commands that read the entries of streams, for a group or not, and wait for some.
//!
//! A command that may wait is planned with an argument of its own at the end, in which its first
//! attempt leaves what `$` meant: the front keeps it for the attempts that follow.

use std::borrow::Cow;

use xxhash_rust::xxh3::xxh3_64;

use super::groups::{Groups, Pending};
use super::id::{Id, parse_first, parse_last};
use super::value::Stream;
use super::{TYPE, integer, is, no_group};
use crate::commands::errors::SYNTAX;
use crate::commands::number::{NOT_AN_INTEGER, parse_i64};
use crate::commands::spec::Spec;
use crate::connection::blocked::Turn;
use crate::connection::encode::Reply;
use crate::connection::parse::Command;
use crate::transactions::plan::{Arg, PlanBuilder};
use crate::transactions::planner::Planner;
use crate::transactions::work::{Found, Stop, Work};

pub fn xlen<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key] = args else { return Err(Stop::Malformed) };
    let found = work.typed(key, &TYPE)?;
    let stream = Stream::parse(work.value(found).unwrap_or_default())?;
    reply.integer(stream.length as i64);
    Ok(())
}

/// XRANGE and, with `BACK`, XREVRANGE.
pub fn xrange<'t, const BACK: bool>(
    work: &mut Work<'t>,
    args: &[Arg<'t>],
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    let [key, one, other, options @ ..] = args else { return Err(Stop::Malformed) };
    let [first, last] = if BACK { [other, one] } else { [one, other] };
    let (first, last) = (parse_first(first.bytes)?, parse_last(last.bytes)?);
    let mut count = usize::MAX;
    for option in options.chunks(2) {
        match option {
            [name, number] if is(name, b"count") => {
                count = usize::try_from(integer(number)?).unwrap_or(0);
            }
            _ => return Err(Stop::Error(SYNTAX)),
        }
    }
    let found = work.typed(key, &TYPE)?;
    if !work.is_present(found) {
        reply.array(0);
        return Ok(());
    }
    if count == 0 {
        reply.null_array();
        return Ok(());
    }
    let value = work.contents(found);
    let stream = Stream::parse(&value)?;
    let (mut len, mut body) = (0, Vec::new());
    let mut part = reply.beside(&mut body);
    let mut entries = stream.range(first, last);
    while len < count {
        let next = if BACK { entries.next_back() } else { entries.next() };
        let Some(entry) = next else { break };
        entry?.answer(&mut part)?;
        len += 1;
    }
    work.spend(body.len())?;
    reply.array(len);
    reply.replies(&body);
    Ok(())
}

/// What the last argument of a planned XREAD says. Layout: entries of each stream at most, or 0 (8
/// bytes, little-endian), flags (1), whether an attempt was made before (1), and the ids that `$`
/// meant then.
const IDS_AT: usize = 10;
const NO_ACK: u8 = 1;
const WAITS: u8 = 2;
const GROUP: u8 = 4;

/// What an XREAD or XREADGROUP asks for.
#[derive(Debug)]
struct Asked<'a> {
    waits: Option<u64>,
    count: u64,
    no_ack: bool,
    group: Option<[&'a [u8]; 2]>,
    /// The place of the first stream, and how many there are.
    streams: (usize, usize),
}

impl<'a> Asked<'a> {
    fn parse<const FOR_GROUP: bool>(command: &Command<'a>) -> Result<Self, Vec<u8>> {
        let (mut at, len) = (1, command.len());
        let mut asked = Self { waits: None, count: 0, no_ack: false, group: None, streams: (0, 0) };
        while at < len {
            let more = len - at - 1;
            let next = || command.arg(at + 1);
            match (command.arg(at).to_ascii_lowercase().as_slice(), more) {
                (b"block", 1..) => asked.waits = Some(timeout(next())?),
                (b"count", 1..) => {
                    let count = parse_i64(next()).ok_or(NOT_AN_INTEGER)?;
                    asked.count = u64::try_from(count).unwrap_or(0);
                }
                (b"streams", 1..) => {
                    if more % 2 != 0 {
                        return Err(UNBALANCED.to_vec());
                    }
                    asked.streams = (at + 1, more / 2);
                    break;
                }
                (b"group", 2..) if !FOR_GROUP => return Err(only_for_groups("GROUP")),
                (b"group", 2..) => {
                    asked.group = Some([next(), command.arg(at + 2)]);
                    at += 1;
                }
                (b"noack", _) if !FOR_GROUP => return Err(only_for_groups("NOACK")),
                (b"noack", _) => {
                    asked.no_ack = true;
                    at -= 1;
                }
                _ => return Err(SYNTAX.to_vec()),
            }
            at += 2;
        }
        match asked {
            Self { streams: (0, _), .. } => Err(SYNTAX.to_vec()),
            Self { group: None, .. } if FOR_GROUP => {
                Err(b"ERR Missing GROUP option for XREADGROUP".to_vec())
            }
            asked => Ok(asked),
        }
    }
}

/// Milliseconds that a client waits; 0: forever.
fn timeout(text: &[u8]) -> Result<u64, Vec<u8>> {
    let millis = parse_i64(text).ok_or(b"ERR timeout is not an integer or out of range")?;
    u64::try_from(millis).map_err(|_| b"ERR timeout is negative".to_vec())
}

fn only_for_groups(option: &str) -> Vec<u8> {
    format!("ERR The {option} option is only supported by XREADGROUP. You called XREAD instead.")
        .into()
}

/// Adds an XREAD or XREADGROUP to a plan: the keys, the ids, the group and the consumer, and the
/// last argument.
pub fn plan<const FOR_GROUP: bool>(
    planner: &Planner<'_>,
    plan: &mut PlanBuilder,
    spec: &'static Spec,
    command: &Command<'_>,
) -> Result<(), Vec<u8>> {
    let asked = Asked::parse::<FOR_GROUP>(command)?;
    let (first, count) = asked.streams;
    spec.begin(plan);
    (first..first + count).for_each(|place| planner.key(plan, command.arg(place)));
    (first + count..command.len()).for_each(|place| plan.plain(command.arg(place)));
    asked.group.iter().flatten().for_each(|name| plan.plain(name));
    let mut last = asked.count.to_le_bytes().to_vec();
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    let [no_ack, waits] = [flag(asked.no_ack, NO_ACK), flag(asked.waits.is_some(), WAITS)];
    last.extend([no_ack | waits | flag(FOR_GROUP, GROUP), 0]);
    last.resize(IDS_AT + count * Id::LEN, 0);
    plan.plain(&last);
    if let Some(millis) = asked.waits {
        let turn = asked.group.map_or(Turn::Each, |[group, _]| Turn::One(xxh3_64(group)));
        plan.waits(millis, turn);
    }
    Ok(())
}

/// A planned XREAD or XREADGROUP.
#[derive(Clone, Copy, Debug)]
struct Reading<'t, 'a> {
    keys: &'a [Arg<'t>],
    ids: &'a [Arg<'t>],
    group: Option<[&'t [u8]; 2]>,
    last: &'t [u8],
    count: usize,
    flags: u8,
    /// It was tried before, and has waited.
    again: bool,
}

/// Where the reading of a stream begins: behind an id, or behind what the group has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Id(Id),
    New,
}

/// Streams that a command has changed and not stored yet, and the events of that.
type Changed = Vec<(Found, Vec<u8>, bool)>;

impl<'t, 'a> Reading<'t, 'a> {
    fn parse(args: &'a [Arg<'t>]) -> Option<Self> {
        let (last, rest) = args.split_last()?;
        let (numbers, _) = last.bytes.split_first_chunk::<IDS_AT>()?;
        let [flags, again] = [numbers[8], numbers[9]];
        let count = u64::from_le_bytes(*numbers.first_chunk()?);
        let count = usize::try_from(count).ok().filter(|count| *count > 0).unwrap_or(usize::MAX);
        let (rest, group) = match (flags & GROUP, rest) {
            (0, rest) => (rest, None),
            (_, [rest @ .., group, consumer]) => (rest, Some([group.bytes, consumer.bytes])),
            _ => return None,
        };
        let (keys, ids) = rest.split_at_checked(rest.len() / 2)?;
        let whole = last.bytes.len() == IDS_AT + keys.len() * Id::LEN && keys.len() == ids.len();
        let reading = Self { keys, ids, group, last: last.bytes, count, flags, again: again != 0 };
        whole.then_some(reading)
    }

    /// What `$` meant at the first attempt for the stream in this place.
    fn settled(&self, place: usize) -> Option<Id> {
        let ids = self.last[IDS_AT..].as_chunks::<{ Id::LEN }>().0;
        ids.get(place).map(|id| Id::from_bytes(*id))
    }

    /// The last argument for attempts after this one.
    fn settle(&self, starts: &[(Found, From)]) -> Vec<u8> {
        let mut last = self.last[..IDS_AT].to_vec();
        last[IDS_AT - 1] = 1;
        for (_, from) in starts {
            let id = if let From::Id(id) = from { *id } else { Id::MAX };
            last.extend_from_slice(&id.bytes());
        }
        last
    }

    /// Finds the streams and where to begin in each; `None`: an error was answered.
    fn starts(
        &self,
        work: &mut Work<'t>,
        reply: &mut Reply<'_>,
    ) -> Result<Option<Vec<(Found, From)>>, Stop> {
        let mut starts = Vec::new();
        for (place, (key, id)) in self.keys.iter().zip(self.ids).enumerate() {
            let found = match self.group {
                Some(_) if self.again => work.find(key)?,
                _ => work.typed(key, &TYPE)?,
            };
            if let Some([group, _]) = self.group
                && !self.has_group(work, (found, key.bytes), group, reply)?
            {
                return Ok(None);
            }
            let from = match (id.bytes, self.group) {
                (b"$", Some(_)) => return Err(Stop::Error(DOLLAR)),
                (b"$", None) if self.again => From::Id(self.settled(place).ok_or(Stop::Malformed)?),
                (b"$", None) => {
                    From::Id(Stream::parse(work.value(found).unwrap_or_default())?.last)
                }
                (b">", None) => return Err(Stop::Error(GREATER)),
                (b">", Some(_)) => From::New,
                (text, group) => match Id::parse(text, 0)? {
                    Id::MAX if group.is_some() => From::New,
                    id => From::Id(id),
                },
            };
            starts.push((found, from));
        }
        Ok(Some(starts))
    }

    /// Whether a stream has the group; if not, answers so.
    fn has_group(
        &self,
        work: &Work<'t>,
        (found, key): (Found, &[u8]),
        group: &[u8],
        reply: &mut Reply<'_>,
    ) -> Result<bool, Stop> {
        let is_stream = work.is_of(found, &TYPE);
        let value = work.value(found).filter(|_| is_stream);
        let bytes = Stream::parse(value.unwrap_or_default())?.group_bytes();
        let has = Groups::parse(&bytes)?.0.contains_key(group);
        match (has, value) {
            (true, _) => {}
            (false, None) if self.again => {
                reply.error(b"UNBLOCKED the stream key no longer exists");
            }
            (false, Some(_)) if self.again => reply
                .error(b"NOGROUP the consumer group this client was blocked on no longer exists"),
            (false, _) => no_group(key, group, " in XREADGROUP with GROUP option", reply),
        }
        Ok(has)
    }

    /// Writes the entries of one stream behind its key; whether there are any for the client.
    fn read(
        &self,
        value: &[u8],
        from: From,
        reply: &mut Reply<'_>,
        name: &[u8],
    ) -> Result<bool, Stop> {
        let stream = Stream::parse(value)?;
        let From::Id(id) = from else { return Err(Stop::Malformed) };
        if !stream.has_behind(id)? {
            return Ok(false);
        }
        reply.bulk(name);
        let (mut len, mut body) = (0, Vec::new());
        let mut part = reply.beside(&mut body);
        for entry in stream.range(id.next().unwrap_or(Id::MAX), Id::MAX).take(self.count) {
            entry?.answer(&mut part)?;
            len += 1;
        }
        reply.array(len);
        reply.replies(&body);
        Ok(true)
    }
}

/// Redis says the same of an XREADGROUP.
const UNBALANCED: &[u8] =
    b"ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified.";
const DOLLAR: &[u8] =
    b"ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of \
      this consumer by specifying a proper ID, or use the > ID to get new messages. The $ ID would \
      just return an empty result set.";
const GREATER: &[u8] =
    b"ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> \
      <consumer> option.";

/// XREAD and XREADGROUP.
pub fn xread<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let reading = Reading::parse(args).ok_or(Stop::Malformed)?;
    let Some(starts) = reading.starts(work, reply)? else { return Ok(()) };
    let (mut served, mut body) = (0, Vec::new());
    let mut changed = Changed::new();
    for (key, &(found, from)) in reading.keys.iter().zip(&starts) {
        // Redis looks each up a second time, and counts it.
        work.find(key)?;
        let mut one = Vec::new();
        let mut part = reply.beside(&mut one);
        let was = changed.iter().rfind(|(changed, ..)| *changed == found);
        let value = match was {
            Some((_, value, _)) => Cow::Owned(value.clone()),
            None => work.contents(found),
        };
        let before = changed.len();
        let serves = match reading.group {
            None => reading.read(&value, from, &mut part, key.bytes)?,
            Some(names) => {
                let delivery = Delivery { now: work.now(), names, reading: &reading, from };
                let new = delivery.serve(&value, &mut part, key.bytes)?;
                changed.extend(new.map(|(value, created)| (found, value, created)));
                changed.len() > before
            }
        };
        if serves {
            served += 1;
            reply.beside(&mut body).key_value();
            body.append(&mut one);
        }
    }
    work.spend(body.len())?;
    let told: Vec<_> = changed.iter().map(|(found, _, created)| (*found, *created)).collect();
    work.put_all(changed.into_iter().map(|(found, value, _)| (found, value)).collect())?;
    for (found, created) in told {
        work.announce(found, if created { &["xgroup-createconsumer"] } else { &[] });
    }
    if served > 0 {
        reply.key_values(served);
        reply.replies(&body);
        return Ok(());
    }
    if reading.flags & WAITS != 0 {
        work.settle(&reading.settle(&starts));
    }
    reply.null_array();
    Ok(())
}

/// The delivery of entries to a consumer of a group.
#[derive(Clone, Copy, Debug)]
struct Delivery<'t, 'a> {
    now: i64,
    /// The group and the consumer.
    names: [&'t [u8]; 2],
    reading: &'a Reading<'t, 'a>,
    from: From,
}

impl Delivery<'_, '_> {
    /// Writes the entries for the consumer behind the key, if there are any: the new value of the
    /// stream, and whether the consumer is new.
    fn serve(
        &self,
        value: &[u8],
        reply: &mut Reply<'_>,
        key: &[u8],
    ) -> Result<Option<(Vec<u8>, bool)>, Stop> {
        let mut stream = Stream::parse(value)?;
        let bytes = stream.group_bytes();
        let mut groups = Groups::parse(&bytes)?;
        let [group, consumer] = self.names;
        let group = groups.0.get_mut(group).ok_or(Stop::Malformed)?;
        let serves = match self.from {
            From::Id(_) => true,
            From::New => stream.has_behind(group.last)?,
        };
        if !serves {
            return Ok(None);
        }
        let created = group.consumers.insert(consumer, self.now).is_none();
        let (mut len, mut body) = (0, Vec::new());
        let mut part = reply.beside(&mut body);
        match self.from {
            From::Id(id) => {
                let pending: Vec<_> = group.pending_of(consumer).map(|(id, _)| id).collect();
                let behind = pending.into_iter().filter(|pending| *pending > id);
                for id in behind.take(self.reading.count) {
                    match stream.entry(id)? {
                        Some(entry) => {
                            entry.answer(&mut part)?;
                            if let Some(pending) = group.pending.get_mut(&id) {
                                (pending.since, pending.count) = (self.now, pending.count + 1);
                            }
                        }
                        None => {
                            part.array(2);
                            id.answer(&mut part);
                            part.null_array();
                        }
                    }
                    len += 1;
                }
            }
            From::New => {
                let behind = group.last.next().unwrap_or(Id::MAX);
                for entry in stream.range(behind, Id::MAX).take(self.reading.count) {
                    let entry = entry?;
                    entry.answer(&mut part)?;
                    group.advance(&stream, entry.id)?;
                    if self.reading.flags & NO_ACK == 0 {
                        let pending = Pending { consumer, since: self.now, count: 1 };
                        group.pending.insert(entry.id, pending);
                    }
                    len += 1;
                }
            }
        }
        reply.bulk(key);
        reply.array(len);
        reply.replies(&body);
        stream.set_groups(groups.pack());
        Ok(Some((stream.pack(), created)))
    }
}
