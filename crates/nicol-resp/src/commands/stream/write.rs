//! Commands that add entries to a stream and delete them.

use super::id::{AddId, Id};
use super::value::{Bound, Stream, Trim};
use super::{TYPE, ids, integer, is, store};
use crate::commands::errors::SYNTAX;
use crate::connection::encode::Reply;
use crate::transactions::plan::Arg;
use crate::transactions::sizes::Sizes;
use crate::transactions::work::{Stop, Work};

const TWO_STRATEGIES: &[u8] =
    b"ERR syntax error, MAXLEN and MINID options at the same time are not compatible";
const NO_STRATEGY: &[u8] =
    b"ERR syntax error, LIMIT cannot be used without specifying a trimming strategy";
const NOTHING_TO_TRIM: &[u8] = b"ERR syntax error, XTRIM must be called with a trimming strategy";
const EXACT_LIMIT: &[u8] = b"ERR syntax error, LIMIT cannot be used without the special ~ option";
const NOT_GREATER: &[u8] =
    b"ERR The ID specified in XADD is equal or smaller than the target stream top item";
const EXHAUSTED: &[u8] =
    b"ERR The stream has exhausted the last possible ID, unable to add more items";

/// Options of XADD and XTRIM.
#[derive(Debug, Default)]
struct Options {
    to: Option<Bound>,
    roughly: bool,
    limit: Option<u64>,
    must_exist: bool,
    /// Of an XADD: its id, and the place of its first field.
    id: Option<(AddId, usize)>,
}

impl Options {
    /// Reads the arguments behind the key; with `ADD`, up to the id.
    fn parse<const ADD: bool>(args: &[Arg<'_>]) -> Result<Self, Stop> {
        let (mut options, mut at) = (Self::default(), 0);
        while let Some(arg) = args.get(at) {
            let next = args.get(at + 1);
            match next {
                _ if ADD && arg.bytes == b"*" => {
                    options.id = Some((AddId::Now, at + 1));
                    break;
                }
                Some(_) if is(arg, b"maxlen") || is(arg, b"minid") => {
                    at += options.strategy(is(arg, b"minid"), &args[at + 1..])?;
                }
                Some(next) if is(arg, b"limit") => {
                    let limit = u64::try_from(integer(next)?);
                    options.limit =
                        Some(limit.map_err(|_| &b"ERR The LIMIT argument must be >= 0."[..])?);
                    at += 1;
                }
                _ if ADD && is(arg, b"nomkstream") => options.must_exist = true,
                _ if ADD => {
                    options.id = Some((AddId::parse(arg.bytes, 0)?, at + 1));
                    break;
                }
                _ => return Err(Stop::Error(SYNTAX)),
            }
            at += 1;
        }
        Ok(options)
    }

    /// Reads a strategy behind its name; returns how many arguments it has.
    fn strategy(&mut self, by_id: bool, args: &[Arg<'_>]) -> Result<usize, Stop> {
        if self.to.is_some() {
            return Err(Stop::Error(TWO_STRATEGIES));
        }
        let signed = args.len() > 1 && matches!(args[0].bytes, b"~" | b"=");
        self.roughly = signed && args[0].bytes == b"~";
        let bound = args.get(usize::from(signed)).ok_or(SYNTAX)?;
        self.to = Some(match by_id {
            true => Bound::First(Id::parse(bound.bytes, 0)?),
            false => {
                let length = u64::try_from(integer(bound)?);
                Bound::Length(length.map_err(|_| &b"ERR The MAXLEN argument must be >= 0."[..])?)
            }
        });
        Ok(1 + usize::from(signed))
    }

    /// What is to be trimmed: of an XTRIM, something.
    fn trim<const ADD: bool>(&self, sizes: &Sizes) -> Result<Option<Trim>, Stop> {
        let Some(to) = self.to else {
            let limited = self.limit.is_some_and(|limit| limit > 0);
            return match limited {
                true => Err(Stop::Error(NO_STRATEGY)),
                false if !ADD => Err(Stop::Error(NOTHING_TO_TRIM)),
                false if self.limit.is_some() => Err(Stop::Error(EXACT_LIMIT)),
                false => Ok(None),
            };
        };
        let most = match self.limit {
            Some(_) if !self.roughly => return Err(Stop::Error(EXACT_LIMIT)),
            Some(limit) => limit,
            None if self.roughly => trimmed_at_once(sizes),
            None => 0,
        };
        Ok(Some(Trim { to, roughly: self.roughly, most }))
    }
}

/// Entries that a trim without LIMIT deletes at most if it need not be exact: of a hundred nodes.
fn trimmed_at_once(sizes: &Sizes) -> u64 {
    match sizes.node_entries() {
        usize::MAX => 10_000,
        entries => (100 * entries as u64).min(1_000_000),
    }
}

pub fn xadd<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let (key, rest) = args.split_first().ok_or(Stop::Malformed)?;
    let options = Options::parse::<true>(rest)?;
    let trim = options.trim::<true>(&work.sizes())?;
    let fields = options.id.map_or(&[][..], |(_, at)| &rest[at..]);
    let (pairs, odd) = fields.as_chunks::<2>();
    let Some((id, _)) = options.id.filter(|_| !pairs.is_empty() && odd.is_empty()) else {
        return Err(Stop::Error(b"ERR wrong number of arguments for 'xadd' command"));
    };
    if id == AddId::Whole(Id::ZERO) {
        return Err(Stop::Error(b"ERR The ID specified in XADD must be greater than 0-0"));
    }
    let found = work.typed(key, &TYPE)?;
    if options.must_exist && !work.is_present(found) {
        reply.null();
        return Ok(());
    }
    let old = work.contents(found);
    let mut stream = Stream::parse(&old)?;
    let last = stream.last;
    let next = last.next().ok_or(EXHAUSTED)?;
    let id = match id {
        AddId::Now => next.max(Id { ms: u64::try_from(work.now()).unwrap_or(0), seq: 0 }),
        AddId::At(ms) if ms == last.ms => next,
        AddId::At(ms) => Id { ms, seq: 0 },
        AddId::Whole(id) => id,
    };
    // A number behind the last one of its time is another time.
    let moved = matches!(options.id, Some((AddId::At(ms), _)) if ms != id.ms);
    if id <= last || moved {
        return Err(Stop::Error(NOT_GREATER));
    }
    let pairs: Vec<_> = pairs.iter().map(|pair| pair.each_ref().map(|arg| arg.bytes)).collect();
    stream.append(id, &pairs, &work.sizes())?;
    let trimmed = trim.map_or(Ok(0), |trim| stream.trim(trim))?;
    let events: &[&str] = if trimmed > 0 { &["xadd", "xtrim"] } else { &["xadd"] };
    store(work, found, &stream, events)?;
    id.answer(reply);
    Ok(())
}

pub fn xtrim<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let (key, rest) = args.split_first().ok_or(Stop::Malformed)?;
    let trim =
        Options::parse::<false>(rest)?.trim::<false>(&work.sizes())?.ok_or(Stop::Malformed)?;
    let found = work.typed(key, &TYPE)?;
    let mut trimmed = 0;
    if work.is_present(found) {
        let old = work.contents(found);
        let mut stream = Stream::parse(&old)?;
        trimmed = stream.trim(trim)?;
        if trimmed > 0 {
            store(work, found, &stream, &["xtrim"])?;
        }
    }
    reply.integer(trimmed as i64);
    Ok(())
}

pub fn xdel<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let (key, rest) = args.split_first().ok_or(Stop::Malformed)?;
    let found = work.typed(key, &TYPE)?;
    let mut deleted = 0;
    if work.is_present(found) {
        let old = work.contents(found);
        let mut stream = Stream::parse(&old)?;
        for id in ids(rest)? {
            deleted += i64::from(stream.delete(id)?);
        }
        if deleted > 0 {
            store(work, found, &stream, &["xdel"])?;
        }
    }
    reply.integer(deleted);
    Ok(())
}

pub fn xsetid<'t>(
    work: &mut Work<'t>,
    args: &[Arg<'t>],
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    let [key, last, rest @ ..] = args else { return Err(Stop::Malformed) };
    let last = Id::parse(last.bytes, 0)?;
    let (mut added, mut deleted) = (None, Id::ZERO);
    for option in rest.chunks(2) {
        match option {
            [name, count] if is(name, b"entriesadded") => {
                let count = u64::try_from(integer(count)?);
                added = Some(count.map_err(|_| &b"ERR entries_added must be positive"[..])?);
            }
            [name, id] if is(name, b"maxdeletedid") => {
                deleted = Id::parse(id.bytes, 0)?;
                if last < deleted {
                    return Err(Stop::Error(
                        b"ERR The ID specified in XSETID is smaller than the provided \
                          max_deleted_entry_id",
                    ));
                }
            }
            _ => return Err(Stop::Error(SYNTAX)),
        }
    }
    let found = work.typed(key, &TYPE)?;
    if !work.is_present(found) {
        return Err(Stop::Error(b"ERR no such key"));
    }
    let old = work.contents(found);
    let mut stream = Stream::parse(&old)?;
    if stream.last_entry()?.is_some_and(|entry| last < entry.id) {
        return Err(Stop::Error(
            b"ERR The ID specified in XSETID is smaller than the target stream top item",
        ));
    }
    if stream.length > 0 && added.is_some_and(|added| added < stream.length) {
        return Err(Stop::Error(
            b"ERR The entries_added specified in XSETID is smaller than the target stream length",
        ));
    }
    if last < stream.max_deleted {
        return Err(Stop::Error(
            b"ERR The ID specified in XSETID is smaller than current max_deleted_entry_id",
        ));
    }
    stream.last = last;
    stream.added = added.unwrap_or(stream.added);
    if deleted != Id::ZERO {
        stream.max_deleted = deleted;
    }
    store(work, found, &stream, &["xsetid"])?;
    reply.status("OK");
    Ok(())
}
