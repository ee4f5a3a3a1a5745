//! Sorted sets: members with scores under one key, ordered by score and then by member.
//!
//! `range.rs` has the commands over ranges, `combine.rs` those over several sets.

mod combine;
mod range;
mod scored;

pub use self::scored::{Member, Scored, order, pack, parse};
use super::draw;
use super::float::{NOT_A_FLOAT, format_double, parse_double};
use super::key_places::KeyPlaces;
use super::kind::Type;
use super::list::{pop_count, several};
use super::number::{NOT_AN_INTEGER, parse_i64};
use super::packed::{count, elements};
use super::scan;
use super::spec::{
    GROW, Plan, READ, REMOVE, Run, SLOW_READ, SLOW_WRITE, Spec, WRITE, as_sent, into_first,
    with_seed,
};
use crate::commands::errors::SYNTAX;
use crate::connection::encode::Reply;
use crate::transactions::plan::Arg;
use crate::transactions::sizes::Sizes;
use crate::transactions::work::{Found, Stop, Work};

pub const TYPE: Type = Type { name: "zset", number: 3, encoding };

const NOT_POSITIVE: &[u8] = b"ERR value is out of range, must be positive";

const COUNTED: (&[&str], KeyPlaces) = (SLOW_READ, KeyPlaces::counted(1));
const STORE: (&[&str], KeyPlaces) = (GROW, KeyPlaces::ONE.and_counted(2));

pub const COMMANDS: &[Spec] = &[
    zset("zadd", -4, WRITE, zadd, "Add members to a sorted set, or move their scores"),
    zset("zcard", 2, READ, zcard, "Get the number of members of a sorted set"),
    zset("zcount", 4, READ, range::zcount, "Count the members in a range of scores"),
    planned("zdiff", -3, COUNTED, (as_sent, combine::zdiff), "Get what only the first set has"),
    planned("zdiffstore", -4, STORE, (into_first, combine::zdiffstore), "Store a difference"),
    zset("zincrby", 4, WRITE, zincrby, "Increment the score of a member"),
    planned("zinter", -3, COUNTED, (as_sent, combine::zinter), "Get what all sorted sets have"),
    planned("zintercard", -3, COUNTED, (as_sent, combine::zintercard), "Count what all sets have"),
    planned("zinterstore", -4, STORE, (into_first, combine::zinterstore), "Store an intersection"),
    zset("zlexcount", 4, READ, range::zlexcount, "Count the members in a range of names"),
    planned(
        "zmpop",
        -4,
        (SLOW_WRITE, KeyPlaces::counted(1)),
        (as_sent, zmpop),
        "Pop members of sorted sets",
    ),
    zset("zmscore", -3, READ, zmscore, "Get the scores of members"),
    zset("zpopmax", -2, REMOVE, zpop::<false>, "Remove and get the members of highest score"),
    zset("zpopmin", -2, REMOVE, zpop::<true>, "Remove and get the members of lowest score"),
    planned(
        "zrandmember",
        -2,
        (SLOW_READ, KeyPlaces::ONE),
        (with_seed, zrandmember),
        "Get members of a sorted set at random",
    ),
    zset("zrange", -4, SLOW_READ, range::zrange, "Get the members of a range"),
    zset("zrangebylex", -4, SLOW_READ, range::zrangebylex, "Get a range of names"),
    zset("zrangebyscore", -4, SLOW_READ, range::zrangebyscore, "Get a range of scores"),
    planned(
        "zrangestore",
        -5,
        (GROW, KeyPlaces::TWO),
        (into_first, range::zrangestore),
        "Store the members of a range",
    ),
    zset("zrank", 3, READ, zrank::<false>, "Get the place of a member by ascending score"),
    zset("zrem", -3, REMOVE, zrem, "Remove members of a sorted set"),
    zset("zremrangebylex", 4, SLOW_WRITE, range::zremrangebylex, "Remove a range of names"),
    zset("zremrangebyrank", 4, SLOW_WRITE, range::zremrangebyrank, "Remove a range of places"),
    zset("zremrangebyscore", 4, SLOW_WRITE, range::zremrangebyscore, "Remove a range of scores"),
    zset("zrevrange", -4, SLOW_READ, range::zrevrange, "Get a range of places, from the last"),
    zset("zrevrangebylex", -4, SLOW_READ, range::zrevrangebylex, "Get a range of names, reversed"),
    zset("zrevrangebyscore", -4, SLOW_READ, range::zrevrangebyscore, "Get scores, reversed"),
    zset("zrevrank", 3, READ, zrank::<true>, "Get the place of a member by descending score"),
    zset("zscan", -3, SLOW_READ, zscan, "Iterate over the members of a sorted set"),
    zset("zscore", 3, READ, zscore, "Get the score of a member"),
    planned("zunion", -3, COUNTED, (as_sent, combine::zunion), "Get what any sorted set has"),
    planned("zunionstore", -4, STORE, (into_first, combine::zunionstore), "Store a union"),
];

const fn zset(
    name: &'static str,
    arity: i32,
    flags: &'static [&'static str],
    run: Run,
    summary: &'static str,
) -> Spec {
    planned(name, arity, (flags, KeyPlaces::ONE), (as_sent, run), summary)
}

const fn planned(
    name: &'static str,
    arity: i32,
    of: (&'static [&'static str], KeyPlaces),
    how: (Plan, Run),
    summary: &'static str,
) -> Spec {
    Spec::data("sorted-set", name, arity, of, how, summary)
}

fn encoding(value: &[u8], sizes: &Sizes) -> &'static [u8] {
    let elements = elements(value).unwrap_or_default();
    let short = elements.iter().all(|element| element.len() <= sizes.zset_bytes());
    if short && elements.len() <= 2 * sizes.zset_members() { b"listpack" } else { b"skiplist" }
}

fn integer(arg: &Arg<'_>) -> Result<i64, Stop> {
    parse_i64(arg.bytes).ok_or(Stop::Error(NOT_AN_INTEGER))
}

/// The members of a sorted set, to be read.
pub fn members<'w>(work: &'w Work<'_>, found: Found) -> Result<Vec<Member<'w>>, Stop> {
    scored::parse(work.value(found).unwrap_or_default())
}

/// The options of ZADD.
#[derive(Clone, Copy, Debug, Default)]
pub struct Adding {
    pub new_only: bool,
    pub present_only: bool,
    greater: bool,
    less: bool,
    /// The reply counts the members whose score has changed, too.
    pub changed: bool,
    increments: bool,
}

impl Adding {
    /// Reads the options; also the scores and members behind them.
    fn parse<'a, 't>(mut args: &'a [Arg<'t>]) -> Result<(Self, &'a [Arg<'t>]), Stop> {
        let mut adding = Self::default();
        while let [option, rest @ ..] = args {
            match option.bytes.to_ascii_lowercase().as_slice() {
                b"nx" => adding.new_only = true,
                b"xx" => adding.present_only = true,
                b"gt" => adding.greater = true,
                b"lt" => adding.less = true,
                b"ch" => adding.changed = true,
                b"incr" => adding.increments = true,
                _ => break,
            }
            args = rest;
        }
        if args.is_empty() || !args.len().is_multiple_of(2) {
            return Err(Stop::Error(SYNTAX));
        }
        let Self { new_only, present_only, greater, less, increments, .. } = adding;
        if new_only && present_only {
            return Err(Stop::Error(b"ERR XX and NX options at the same time are not compatible"));
        }
        if u8::from(greater) + u8::from(less) + u8::from(new_only) > 1 {
            return Err(Stop::Error(
                b"ERR GT, LT, and/or NX options at the same time are not compatible",
            ));
        }
        if increments && args.len() > 2 {
            return Err(Stop::Error(b"ERR INCR option supports a single increment-element pair"));
        }
        Ok((adding, args))
    }

    /// The score that a member gets which had `current`; `None`: it stays as it is.
    fn score(self, current: Option<f64>, given: f64) -> Result<Option<f64>, Stop> {
        let Some(current) = current else { return Ok((!self.present_only).then_some(given)) };
        if self.new_only {
            return Ok(None);
        }
        let score = if self.increments { current + given } else { given };
        if score.is_nan() {
            return Err(Stop::Error(b"ERR resulting score is not a number (NaN)"));
        }
        let refused = self.less && score >= current || self.greater && score <= current;
        Ok((!refused).then_some(score))
    }
}

fn zadd<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let (key, args) = args.split_first().ok_or(Stop::Malformed)?;
    let (adding, pairs) = Adding::parse(args)?;
    add(work, key, adding, pairs, reply)
}

fn zincrby<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let (key, pair) = args.split_first().ok_or(Stop::Malformed)?;
    let adding = Adding { increments: true, ..Adding::default() };
    add(work, key, adding, pair, reply)
}

/// Adds members; `pairs` are scores and members.
fn add<'t>(
    work: &mut Work<'t>,
    key: &Arg<'t>,
    adding: Adding,
    pairs: &[Arg<'t>],
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    let mut given = Vec::with_capacity(pairs.len() / 2);
    for [score, member] in pairs.as_chunks::<2>().0 {
        given.push((parse_double(score.bytes).ok_or(NOT_A_FLOAT)?, member.bytes));
    }
    add_all(work, key, adding, given, reply)
}

/// Adds members behind their scores, and answers how many.
pub fn add_all<'t>(
    work: &mut Work<'t>,
    key: &Arg<'t>,
    adding: Adding,
    given: Vec<Member<'t>>,
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    let found = work.typed(key, &TYPE)?;
    let old = work.contents(found);
    let mut set = Scored::new(scored::parse(&old)?, given.len());
    let (mut added, mut moved, mut result) = (0, 0, None);
    for (score, member) in given {
        let current = set.score(member);
        result = adding.score(current, score)?;
        if let Some(score) = result
            && current != Some(score)
        {
            *(if current.is_none() { &mut added } else { &mut moved }) += 1;
            set.set(member, score);
        }
    }
    match (adding.increments, result) {
        (true, Some(score)) => reply.double(score),
        (true, None) => reply.null(),
        (false, _) => reply.integer(if adding.changed { added + moved } else { added }),
    }
    if added + moved > 0 { work.put(found, scored::pack(&set.finish())) } else { Ok(()) }
}

fn zrem<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let (key, names) = args.split_first().ok_or(Stop::Malformed)?;
    let found = work.typed(key, &TYPE)?;
    let old = work.contents(found);
    let mut set = Scored::new(scored::parse(&old)?, names.len());
    let removed = names.iter().filter(|name| set.remove(name.bytes)).count();
    reply.integer(removed as i64);
    if removed > 0 { work.put(found, scored::pack(&set.finish())) } else { Ok(()) }
}

fn zcard<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key] = args else { return Err(Stop::Malformed) };
    let found = work.typed(key, &TYPE)?;
    reply.integer((count(work.value(found).unwrap_or_default())? / 2) as i64);
    Ok(())
}

fn zscore<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key, name] = args else { return Err(Stop::Malformed) };
    let found = work.typed(key, &TYPE)?;
    let members = members(work, found)?;
    match members.iter().find(|(_, member)| *member == name.bytes) {
        Some((score, _)) => reply.double(*score),
        None => reply.null(),
    }
    Ok(())
}

fn zmscore<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let (key, names) = args.split_first().ok_or(Stop::Malformed)?;
    let found = work.typed(key, &TYPE)?;
    let set = Scored::new(members(work, found)?, names.len());
    reply.array(names.len());
    for name in names {
        match set.score(name.bytes) {
            Some(score) => reply.double(score),
            None => reply.null(),
        }
    }
    Ok(())
}

fn zrank<'t, const REVERSED: bool>(
    work: &mut Work<'t>,
    args: &[Arg<'t>],
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    let [key, name] = args else { return Err(Stop::Malformed) };
    let found = work.typed(key, &TYPE)?;
    let members = members(work, found)?;
    match members.iter().position(|(_, member)| *member == name.bytes) {
        Some(place) if REVERSED => reply.integer((members.len() - 1 - place) as i64),
        Some(place) => reply.integer(place as i64),
        None => reply.null(),
    }
    Ok(())
}

/// Removes up to `wanted` members of lowest or of highest score, and returns them, these first.
fn take(
    work: &mut Work<'_>,
    found: Found,
    lowest: bool,
    wanted: usize,
) -> Result<Vec<(f64, Vec<u8>)>, Stop> {
    let old = work.contents(found);
    let all = scored::parse(&old)?;
    let wanted = wanted.min(all.len());
    let (left, right) = all.split_at(if lowest { wanted } else { all.len() - wanted });
    let owned = |(score, member): &Member<'_>| (*score, member.to_vec());
    let (popped, rest): (Vec<_>, _) = match lowest {
        true => (left.iter().map(owned).collect(), right),
        false => (right.iter().rev().map(owned).collect(), left),
    };
    if wanted > 0 {
        work.spend(popped.iter().map(|(_, member)| member.len()).sum())?;
        work.put(found, scored::pack(rest))?;
    }
    Ok(popped)
}

fn zpop<'t, const LOWEST: bool>(
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
        _ => return Err(Stop::Error(SYNTAX)),
    };
    let found = work.typed(key, &TYPE)?;
    let popped = take(work, found, LOWEST, wanted.unwrap_or(1))?;
    match wanted {
        Some(_) => reply.pairs(popped.len()),
        None => reply.array(popped.len() * 2),
    }
    for (score, member) in popped {
        if wanted.is_some() {
            reply.pair();
        }
        reply.bulk(&member);
        reply.double(score);
    }
    Ok(())
}

/// Pops the member of lowest or highest score of the first of several sorted sets that is there.
pub fn first_set<'t, const LOWEST: bool>(
    work: &mut Work<'t>,
    keys: &[Arg<'t>],
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    for key in keys {
        let found = work.typed(key, &TYPE)?;
        if work.is_present(found) {
            reply.array(3);
            reply.bulk(key.bytes);
            for (score, member) in take(work, found, LOWEST, 1)? {
                reply.bulk(&member);
                reply.double(score);
            }
            return Ok(());
        }
    }
    reply.null_array();
    Ok(())
}

pub fn zmpop<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let (keys, word, options) = several(args)?;
    let lowest = match word.bytes.to_ascii_lowercase().as_slice() {
        b"min" => true,
        b"max" => false,
        _ => return Err(Stop::Error(SYNTAX)),
    };
    let count = pop_count(options)?;
    for key in keys {
        let found = work.typed(key, &TYPE)?;
        if work.is_present(found) {
            let popped = take(work, found, lowest, count)?;
            reply.array(2);
            reply.bulk(key.bytes);
            reply.array(popped.len());
            for (score, member) in popped {
                reply.array(2);
                reply.bulk(&member);
                reply.double(score);
            }
            return Ok(());
        }
    }
    reply.null_array();
    Ok(())
}

fn zrandmember<'t>(
    work: &mut Work<'t>,
    args: &[Arg<'t>],
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    let (key, args) = args.split_first().ok_or(Stop::Malformed)?;
    let (seed, options) = args.split_last().ok_or(Stop::Malformed)?;
    let mut random = draw::stream(seed)?;
    let Some(wanted) = options.first() else {
        let found = work.typed(key, &TYPE)?;
        let members = members(work, found)?;
        let drawn = random.pick(&members).map(|(_, member)| *member);
        work.spend(drawn.map_or(0, <[u8]>::len))?;
        reply.bulk_or_null(drawn);
        return Ok(());
    };
    let with_scores =
        matches!(options, [_, word] if word.bytes.eq_ignore_ascii_case(b"withscores"));
    let wanted = draw::count(wanted.bytes, with_scores)?;
    if options.len() > 1 && !with_scores {
        return Err(Stop::Error(SYNTAX));
    }
    let found = work.typed(key, &TYPE)?;
    let members = members(work, found)?;
    let places = draw::places(&mut random, members.len(), wanted, work)?;
    answer(work, places.into_iter().map(|place| members[place]), with_scores, reply)
}

/// Answers members, with their scores if asked.
fn answer<'a>(
    work: &Work<'_>,
    members: impl ExactSizeIterator<Item = Member<'a>>,
    with_scores: bool,
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    match with_scores {
        true => reply.pairs(members.len()),
        false => reply.array(members.len()),
    }
    for (score, member) in members {
        work.spend(member.len())?;
        if with_scores {
            reply.pair();
        }
        reply.bulk(member);
        if with_scores {
            reply.double(score);
        }
    }
    Ok(())
}

/// A score as ZSCAN answers it: a whole number of moderate size in full.
fn scan_text(score: f64) -> String {
    let whole = score as i64;
    let in_full = whole as f64 == score && whole.unsigned_abs() <= i64::MAX as u64 / 2;
    if in_full { whole.to_string() } else { format_double(score) }
}

fn zscan<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key, cursor, options @ ..] = args else { return Err(Stop::Malformed) };
    let cursor = scan::cursor(cursor.bytes)?;
    let found = work.typed(key, &TYPE)?;
    work.spend(work.len(found))?;
    let members = members(work, found)?;
    let scores: Vec<_> = members.iter().map(|(score, _)| scan_text(*score)).collect();
    let rows = members.iter().zip(&scores).map(|((_, member), text)| [*member, text.as_bytes()]);
    let (next, rows) = match work.is_present(found) {
        true => scan::step(rows, cursor, scan::options(options)?),
        false => (0, Vec::new()),
    };
    scan::answer(next, rows.as_flattened(), reply);
    Ok(())
}
