//! Lists: elements in order, taken and added at both ends.

use super::key_places::KeyPlaces;
use super::kind::Type;
use super::number::{NOT_AN_INTEGER, parse_i64};
use super::sequence::Sequence;
use super::spec::{GROW, READ, REMOVE, Run, SLOW_READ, SLOW_WRITE, Spec, WRITE, as_sent};
use crate::commands::errors::SYNTAX;
use crate::connection::encode::Reply;
use crate::transactions::plan::Arg;
use crate::transactions::sizes::Sizes;
use crate::transactions::work::{Found, Stop, Work};

pub const TYPE: Type = Type { name: "list", number: 1, encoding };

pub const COMMANDS: &[Spec] = &[
    list("lindex", 3, SLOW_READ, lindex, "Get an element of a list by its place"),
    list("linsert", 5, GROW, linsert, "Insert an element before or after another one"),
    list("llen", 2, READ, llen, "Get the number of elements of a list"),
    placed("lmove", 5, (GROW, KeyPlaces::TWO), lmove, "Move an end of a list to another list"),
    placed("lmpop", -4, (SLOW_WRITE, KeyPlaces::counted(1)), lmpop, "Pop elements of lists"),
    list("lpop", -2, REMOVE, pop::<true>, "Remove and get the first elements of a list"),
    list("lpos", -3, SLOW_READ, lpos, "Get the places of an element in a list"),
    list("lpush", -3, WRITE, push::<true, false>, "Add elements before the first one of a list"),
    list("lpushx", -3, WRITE, push::<true, true>, "Add elements before those of a list, if any"),
    list("lrange", 4, SLOW_READ, lrange, "Get a part of a list"),
    list("lrem", 4, SLOW_WRITE, lrem, "Remove elements that are equal to another one"),
    list("lset", 4, GROW, lset, "Set an element of a list by its place"),
    list("ltrim", 4, SLOW_WRITE, ltrim, "Keep a part of a list"),
    list("rpop", -2, REMOVE, pop::<false>, "Remove and get the last elements of a list"),
    placed(
        "rpoplpush",
        3,
        (GROW, KeyPlaces::TWO),
        rpoplpush,
        "Move the last element of a list to the start of another one",
    ),
    list("rpush", -3, WRITE, push::<false, false>, "Add elements behind the last one of a list"),
    list("rpushx", -3, WRITE, push::<false, true>, "Add elements behind those of a list, if any"),
];

const fn list(
    name: &'static str,
    arity: i32,
    flags: &'static [&'static str],
    run: Run,
    summary: &'static str,
) -> Spec {
    placed(name, arity, (flags, KeyPlaces::ONE), run, summary)
}

const fn placed(
    name: &'static str,
    arity: i32,
    of: (&'static [&'static str], KeyPlaces),
    run: Run,
    summary: &'static str,
) -> Spec {
    Spec::data("list", name, arity, of, (as_sent, run), summary)
}

const NO_KEY: &[u8] = b"ERR no such key";
const NOT_POSITIVE: &[u8] = b"ERR value is out of range, must be positive";

fn encoding(_: &[u8], _: &Sizes) -> &'static [u8] {
    b"quicklist"
}

/// Reads an end of a list: whether it is the first element's.
fn end(word: &Arg<'_>) -> Result<bool, Stop> {
    match word.bytes.to_ascii_lowercase().as_slice() {
        b"left" => Ok(true),
        b"right" => Ok(false),
        _ => Err(Stop::Error(SYNTAX)),
    }
}

fn integer(arg: &Arg<'_>) -> Result<i64, Stop> {
    parse_i64(arg.bytes).ok_or(Stop::Error(NOT_AN_INTEGER))
}

/// The place of index `index`, where a negative one counts from the end.
fn place(index: i64, len: usize) -> Option<usize> {
    let index = if index < 0 { index.checked_add(len as i64)? } else { index };
    usize::try_from(index).ok().filter(|place| *place < len)
}

/// The places from `first` to `last` among `len`, where negative ones count from the end.
pub fn range(first: i64, last: i64, len: usize) -> std::ops::Range<usize> {
    let len = len as i64;
    let from_end = |at: i64| if at < 0 { at.saturating_add(len) } else { at };
    let (first, last) = (from_end(first).max(0), from_end(last).min(len - 1));
    if first > last { 0..0 } else { first as usize..last as usize + 1 }
}

fn push<'t, const FRONT: bool, const PRESENT: bool>(
    work: &mut Work<'t>,
    args: &[Arg<'t>],
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    let (key, added) = args.split_first().ok_or(Stop::Malformed)?;
    let found = work.typed(key, &TYPE)?;
    if PRESENT && !work.is_present(found) {
        reply.integer(0);
        return Ok(());
    }
    let mut list = Sequence::open(work, found);
    let mut len = list.len()?;
    let place = |len: usize| if FRONT { 0 } else { len };
    list.prepare(work, place(len), added.iter().map(|arg| arg.bytes.len()).sum())?;
    for arg in added {
        list.insert(work, place(len), arg.bytes)?;
        len += 1;
    }
    reply.integer(len as i64);
    list.store(work)
}

fn pop<'t, const FRONT: bool>(
    work: &mut Work<'t>,
    args: &[Arg<'t>],
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    let (key, wanted) = args.split_first().ok_or(Stop::Malformed)?;
    let wanted = match wanted {
        [] => None,
        [wanted] => {
            let wanted = parse_i64(wanted.bytes).and_then(|wanted| usize::try_from(wanted).ok());
            Some(wanted.ok_or(NOT_POSITIVE)?)
        }
        _ if FRONT => {
            return Err(Stop::Error(b"ERR wrong number of arguments for 'lpop' command"));
        }
        _ => return Err(Stop::Error(b"ERR wrong number of arguments for 'rpop' command")),
    };
    let found = work.typed(key, &TYPE)?;
    match (work.is_present(found), wanted) {
        (false, None) => reply.null(),
        (false, Some(_)) => reply.null_array(),
        (true, None) => {
            let popped = take(work, found, FRONT, 1)?;
            popped.iter().for_each(|element| reply.bulk(element));
        }
        (true, Some(wanted)) => answer(&take(work, found, FRONT, wanted)?, reply),
    }
    Ok(())
}

fn answer(elements: &[Vec<u8>], reply: &mut Reply<'_>) {
    reply.array(elements.len());
    elements.iter().for_each(|element| reply.bulk(element));
}

/// Removes up to `wanted` elements from an end of a list, the outermost first.
pub fn take(
    work: &mut Work<'_>,
    found: Found,
    front: bool,
    wanted: usize,
) -> Result<Vec<Vec<u8>>, Stop> {
    let mut list = Sequence::open(work, found);
    let len = list.len()?;
    let wanted = wanted.min(len);
    if wanted == 0 {
        return Ok(Vec::new());
    }
    let (gone, kept) = match front {
        true => (0..wanted, wanted..len),
        false => (len - wanted..len, 0..len - wanted),
    };
    let mut popped = list.part(work, gone)?;
    if !front {
        popped.reverse();
    }
    work.spend(popped.iter().map(Vec::len).sum())?;
    list.keep(work, kept)?;
    list.store(work)?;
    Ok(popped)
}

fn llen<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key] = args else { return Err(Stop::Malformed) };
    let found = work.typed(key, &TYPE)?;
    reply.integer(Sequence::open(work, found).len()? as i64);
    Ok(())
}

fn lindex<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key, index] = args else { return Err(Stop::Malformed) };
    let found = work.typed(key, &TYPE)?;
    if !work.is_present(found) {
        reply.null();
        return Ok(());
    }
    let list = Sequence::open(work, found);
    match place(integer(index)?, list.len()?) {
        None => reply.null(),
        Some(place) => {
            let mut bytes = 0;
            list.visit(work, place..place + 1, |element| {
                bytes = element.len();
                reply.bulk(element);
            })?;
            work.spend(bytes)?;
        }
    }
    Ok(())
}

fn lset<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key, index, element] = args else { return Err(Stop::Malformed) };
    let found = work.typed(key, &TYPE)?;
    if !work.is_present(found) {
        return Err(Stop::Error(NO_KEY));
    }
    let mut list = Sequence::open(work, found);
    let place = place(integer(index)?, list.len()?).ok_or(&b"ERR index out of range"[..])?;
    list.prepare(work, place, element.bytes.len())?;
    list.set(work, place, element.bytes)?;
    reply.status("OK");
    list.store(work)
}

fn linsert<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key, side, pivot, element] = args else { return Err(Stop::Malformed) };
    let behind = match side.bytes.to_ascii_lowercase().as_slice() {
        b"before" => 0,
        b"after" => 1,
        _ => return Err(Stop::Error(SYNTAX)),
    };
    let found = work.typed(key, &TYPE)?;
    let mut list = Sequence::open(work, found);
    let len = list.len()?;
    let Some(&place) = list.search(work, 0..len, pivot.bytes, 1)?.first() else {
        reply.integer(if work.is_present(found) { -1 } else { 0 });
        return Ok(());
    };
    list.prepare(work, place + behind, element.bytes.len())?;
    list.insert(work, place + behind, element.bytes)?;
    reply.integer(len as i64 + 1);
    list.store(work)
}

fn lrange<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key, first, last] = args else { return Err(Stop::Malformed) };
    let (first, last) = (integer(first)?, integer(last)?);
    let found = work.typed(key, &TYPE)?;
    let list = Sequence::open(work, found);
    let part = range(first, last, list.len()?);
    reply.array(part.len());
    let mut bytes = 0;
    list.visit(work, part, |element| {
        bytes += element.len();
        reply.bulk(element);
    })?;
    work.spend(bytes)
}

fn ltrim<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key, first, last] = args else { return Err(Stop::Malformed) };
    let (first, last) = (integer(first)?, integer(last)?);
    let found = work.typed(key, &TYPE)?;
    let mut list = Sequence::open(work, found);
    let kept = range(first, last, list.len()?);
    list.keep(work, kept)?;
    reply.status("OK");
    list.store(work)
}

fn lrem<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key, wanted, element] = args else { return Err(Stop::Malformed) };
    let wanted = integer(wanted)?;
    let found = work.typed(key, &TYPE)?;
    let mut list = Sequence::open(work, found);
    let len = list.len()?;
    let most = if wanted == 0 { usize::MAX } else { wanted.unsigned_abs() as usize };
    let mut gone = match wanted < 0 {
        false => list.search(work, 0..len, element.bytes, most)?,
        true => list.search(work, 0..len, element.bytes, usize::MAX)?,
    };
    if wanted < 0 {
        gone.drain(..gone.len().saturating_sub(most));
    }
    reply.integer(gone.len() as i64);
    if gone.is_empty() {
        return Ok(());
    }
    list.prepare(work, gone[0], 0)?;
    // From the last one on: those before it keep their places.
    for place in gone.into_iter().rev() {
        list.remove(work, place)?;
    }
    list.store(work)
}

/// The options of LPOS.
struct Positions {
    rank: i64,
    count: Option<usize>,
    most: usize,
}

fn positions(args: &[Arg<'_>]) -> Result<Positions, Stop> {
    const ZERO: &[u8] = b"ERR RANK can't be zero: use 1 to start from the first match, 2 from the \
                          second ... or use negative to start from the end of the list";
    let mut options = Positions { rank: 1, count: None, most: 0 };
    for pair in args.chunks(2) {
        let [name, value] = pair else { return Err(Stop::Error(SYNTAX)) };
        let size = |text| {
            let size = parse_i64(value.bytes).and_then(|size| usize::try_from(size).ok());
            size.ok_or(Stop::Error(text))
        };
        match name.bytes.to_ascii_lowercase().as_slice() {
            b"rank" => options.rank = integer(value)?,
            b"count" => options.count = Some(size(b"ERR COUNT can't be negative")?),
            b"maxlen" => options.most = size(b"ERR MAXLEN can't be negative")?,
            _ => return Err(Stop::Error(SYNTAX)),
        }
        if options.rank == 0 {
            return Err(Stop::Error(ZERO));
        }
    }
    // Its magnitude is no integer; Redis takes it without an error, too.
    if options.rank == i64::MIN {
        options.rank = -1;
    }
    Ok(options)
}

fn lpos<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key, element, options @ ..] = args else { return Err(Stop::Malformed) };
    let Positions { rank, count, most } = positions(options)?;
    let found = work.typed(key, &TYPE)?;
    let list = Sequence::open(work, found);
    let len = list.len()?;
    let most = if most == 0 { len } else { most.min(len) };
    let skipped = usize::try_from(rank.unsigned_abs() - 1).unwrap_or(usize::MAX);
    let wanted = match count {
        None => 1,
        Some(0) => usize::MAX,
        Some(count) => count,
    };
    let looked = skipped.saturating_add(wanted);
    let all = match rank > 0 {
        true => list.search(work, 0..most, element.bytes, looked)?,
        false => {
            let mut all = list.search(work, len - most..len, element.bytes, usize::MAX)?;
            all.reverse();
            all
        }
    };
    let places: Vec<_> = all.into_iter().skip(skipped).take(wanted).collect();
    match (count, places.first()) {
        (None, None) => reply.null(),
        (None, Some(place)) => reply.integer(*place as i64),
        (Some(_), _) => {
            reply.array(places.len());
            places.iter().for_each(|place| reply.integer(*place as i64));
        }
    }
    Ok(())
}

pub fn lmove<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [from, to, from_end, to_end] = args else { return Err(Stop::Malformed) };
    let ends = (end(from_end)?, end(to_end)?);
    moved(work, [from, to], ends, reply)
}

pub fn rpoplpush<'t>(
    work: &mut Work<'t>,
    args: &[Arg<'t>],
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    let [from, to] = args else { return Err(Stop::Malformed) };
    moved(work, [from, to], (false, true), reply)
}

/// Moves an element from an end of one list to an end of another.
fn moved<'t>(
    work: &mut Work<'t>,
    [from, to]: [&Arg<'t>; 2],
    (from_front, to_front): (bool, bool),
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    let from = work.typed(from, &TYPE)?;
    if !work.is_present(from) {
        reply.null();
        return Ok(());
    }
    // There is an element, and it cannot go there.
    let to = work.typed(to, &TYPE).inspect_err(|_| work.end_wait())?;
    let mut source = Sequence::open(work, from);
    let last = source.len()?.checked_sub(1).ok_or(Stop::Malformed)?;
    let place = if from_front { 0 } else { last };
    let element = source.part(work, place..place + 1)?.pop().ok_or(Stop::Malformed)?;
    if from == to {
        reply.bulk(&element);
        let end = if to_front { 0 } else { last };
        source.prepare(work, end, element.len())?;
        source.prepare(work, place, element.len())?;
        if from_front != to_front {
            source.remove(work, place)?;
            source.insert(work, end, &element)?;
        }
        return source.store(work);
    }
    let mut target = Sequence::open(work, to);
    let end = if to_front { 0 } else { target.len()? };
    target.prepare(work, end, 2 * element.len())?;
    source.prepare(work, place, element.len())?;
    source.remove(work, place)?;
    source.store(work)?;
    target.insert(work, end, &element)?;
    reply.bulk(&element);
    target.store(work)
}

/// What a command that pops from the first of several keys says: behind the number of keys and the
/// keys stand an end and perhaps a COUNT.
pub type Several<'a, 't> = (&'a [Arg<'t>], &'a Arg<'t>, &'a [Arg<'t>]);

/// The keys, the end and the rest of such a command.
pub fn several<'a, 't>(args: &'a [Arg<'t>]) -> Result<Several<'a, 't>, Stop> {
    let (number, args) = args.split_first().ok_or(Stop::Malformed)?;
    let number = parse_i64(number.bytes).filter(|number| *number > 0);
    let number = number.ok_or(&b"ERR numkeys should be greater than 0"[..])?;
    let split = usize::try_from(number).ok().and_then(|number| args.split_at_checked(number));
    let Some((keys, [word, options @ ..])) = split else { return Err(Stop::Error(SYNTAX)) };
    Ok((keys, word, options))
}

/// Reads the COUNT of such a command.
pub fn pop_count(options: &[Arg<'_>]) -> Result<usize, Stop> {
    match options {
        [] => Ok(1),
        [name, count] if name.bytes.eq_ignore_ascii_case(b"count") => {
            let count = parse_i64(count.bytes).filter(|count| *count > 0);
            Ok(count.ok_or(&b"ERR count should be greater than 0"[..])? as usize)
        }
        _ => Err(Stop::Error(SYNTAX)),
    }
}

pub fn lmpop<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let (keys, word, options) = several(args)?;
    let (front, count) = (end(word)?, pop_count(options)?);
    for key in keys {
        let found = work.typed(key, &TYPE)?;
        if work.is_present(found) {
            let popped = take(work, found, front, count)?;
            reply.array(2);
            reply.bulk(key.bytes);
            answer(&popped, reply);
            return Ok(());
        }
    }
    reply.null_array();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{place, range};

    #[test]
    fn places_count_from_both_ends() {
        assert_eq!([0, 2, -1, -3].map(|index| place(index, 3)), [0, 2, 2, 0].map(Some));
        assert_eq!([3, -4, i64::MIN, i64::MAX].map(|index| place(index, 3)), [None; 4]);
        assert_eq!((range(0, -1, 3), range(-2, 9, 3), range(2, 1, 3)), (0..3, 1..3, 0..0));
        assert_eq!((range(-9, 0, 3), range(-1, -2, 3), range(0, 0, 0)), (0..1, 0..0, 0..0));
        assert_eq!(range(i64::MIN, i64::MAX, 3), 0..3);
    }
}
