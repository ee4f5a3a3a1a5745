//! Sets: members under one key, each once.

use super::draw;
use super::key_places::KeyPlaces;
use super::kind::Type;
use super::number::parse_i64;
use super::packed::{Rows, count, elements, pack};
use super::scan;
use super::spec::{
    GROW, Plan, READ, REMOVE, Run, SLOW_READ, Spec, WRITE, as_sent, into_first, with_seed,
};
use crate::commands::errors::SYNTAX;
use crate::connection::encode::Reply;
use crate::transactions::plan::Arg;
use crate::transactions::sizes::Sizes;
use crate::transactions::work::{Stop, Work};

pub const TYPE: Type = Type { name: "set", number: 2, encoding };

const COUNTED: (&[&str], KeyPlaces) = (SLOW_READ, KeyPlaces::counted(1));
const ALL: (&[&str], KeyPlaces) = (SLOW_READ, KeyPlaces::ALL);
const STORE: (&[&str], KeyPlaces) = (GROW, KeyPlaces::ALL);

pub const COMMANDS: &[Spec] = &[
    set("sadd", -3, WRITE, sadd, "Add members to a set"),
    set("scard", 2, READ, scard, "Get the number of members of a set"),
    planned("sdiff", -2, ALL, (as_sent, answer::<DIFF>), "Get what only the first set has"),
    planned("sdiffstore", -3, STORE, (into_first, store::<DIFF>), "Store what only one set has"),
    planned("sinter", -2, ALL, (as_sent, answer::<INTER>), "Get what all sets have"),
    planned("sintercard", -3, COUNTED, (as_sent, sintercard), "Count what all sets have"),
    planned("sinterstore", -3, STORE, (into_first, store::<INTER>), "Store what all sets have"),
    set("sismember", 3, READ, sismember, "Determine whether a set has a member"),
    set("smembers", 2, SLOW_READ, smembers, "Get all members of a set"),
    set("smismember", -3, READ, smismember, "Determine which members a set has"),
    planned("smove", 4, (REMOVE, KeyPlaces::TWO), (as_sent, smove), "Move a member to another set"),
    planned("spop", -2, (REMOVE, KeyPlaces::ONE), (with_seed, spop), "Remove members at random"),
    planned(
        "srandmember",
        -2,
        (SLOW_READ, KeyPlaces::ONE),
        (with_seed, srandmember),
        "Get members of a set at random",
    ),
    set("srem", -3, REMOVE, srem, "Remove members of a set"),
    set("sscan", -3, SLOW_READ, sscan, "Iterate over the members of a set"),
    planned("sunion", -2, ALL, (as_sent, answer::<UNION>), "Get what any set has"),
    planned("sunionstore", -3, STORE, (into_first, store::<UNION>), "Store what any set has"),
];

const fn set(
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
    Spec::data("set", name, arity, of, how, summary)
}

const NOT_POSITIVE: &[u8] = b"ERR value is out of range, must be positive";

/// What the commands over several sets are generic over.
const DIFF: u8 = 0;
const INTER: u8 = 1;
const UNION: u8 = 2;

fn encoding(value: &[u8], sizes: &Sizes) -> &'static [u8] {
    let members = elements(value).unwrap_or_default();
    let integers =
        members.len() <= sizes.set_integers() && members.iter().all(|one| parse_i64(one).is_some());
    if integers { b"intset" } else { b"hashtable" }
}

fn sadd<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let (key, members) = args.split_first().ok_or(Stop::Malformed)?;
    let found = work.typed(key, &TYPE)?;
    let old = work.contents(found);
    let mut rows = Rows::parse(&old, members.len())?;
    let added = members.iter().filter(|member| rows.set([member.bytes])).count();
    if added > 0 {
        work.put(found, rows.pack())?;
    }
    reply.integer(added as i64);
    Ok(())
}

fn srem<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let (key, members) = args.split_first().ok_or(Stop::Malformed)?;
    let found = work.typed(key, &TYPE)?;
    let old = work.contents(found);
    let mut rows = Rows::<1>::parse(&old, members.len())?;
    let removed = members.iter().filter(|member| rows.remove(member.bytes)).count();
    if removed > 0 {
        work.put(found, rows.pack())?;
    }
    reply.integer(removed as i64);
    Ok(())
}

fn scard<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key] = args else { return Err(Stop::Malformed) };
    let found = work.typed(key, &TYPE)?;
    reply.integer(count(work.value(found).unwrap_or_default())? as i64);
    Ok(())
}

fn sismember<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key, member] = args else { return Err(Stop::Malformed) };
    let found = work.typed(key, &TYPE)?;
    let rows = Rows::<1>::parse(work.value(found).unwrap_or_default(), 1)?;
    reply.integer(i64::from(rows.has(member.bytes)));
    Ok(())
}

fn smismember<'t>(
    work: &mut Work<'t>,
    args: &[Arg<'t>],
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    let (key, members) = args.split_first().ok_or(Stop::Malformed)?;
    let found = work.typed(key, &TYPE)?;
    let rows = Rows::<1>::parse(work.value(found).unwrap_or_default(), members.len())?;
    reply.array(members.len());
    members.iter().for_each(|member| reply.integer(i64::from(rows.has(member.bytes))));
    Ok(())
}

fn smembers<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key] = args else { return Err(Stop::Malformed) };
    let found = work.typed(key, &TYPE)?;
    work.spend(work.len(found))?;
    let members = elements(work.value(found).unwrap_or_default())?;
    reply.set(members.len());
    members.iter().for_each(|member| reply.bulk(member));
    Ok(())
}

fn smove<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [from, to, member] = args else { return Err(Stop::Malformed) };
    let from = work.find(from)?;
    if !work.is_present(from) {
        reply.integer(0);
        return Ok(());
    }
    let (from, to) = (work.typed(&args[0], &TYPE)?, work.typed(to, &TYPE)?);
    let old = work.contents(from);
    let mut rows = Rows::<1>::parse(&old, 1)?;
    let moved = match from == to {
        true => rows.has(member.bytes),
        false => rows.remove(member.bytes),
    };
    if moved && from != to {
        let other = work.contents(to);
        let mut others = Rows::parse(&other, 1)?;
        match others.set([member.bytes]) {
            true => work.put_both([(from, rows.pack()), (to, others.pack())])?,
            false => work.put(from, rows.pack())?,
        }
    }
    reply.integer(i64::from(moved));
    Ok(())
}

fn spop<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let (key, args) = args.split_first().ok_or(Stop::Malformed)?;
    let (seed, options) = args.split_last().ok_or(Stop::Malformed)?;
    let mut random = draw::stream(seed)?;
    let wanted = match options {
        [] => None,
        [wanted] => {
            let wanted = parse_i64(wanted.bytes).and_then(|wanted| usize::try_from(wanted).ok());
            Some(wanted.ok_or(NOT_POSITIVE)?)
        }
        _ => return Err(Stop::Error(SYNTAX)),
    };
    let found = work.typed(key, &TYPE)?;
    let old = work.contents(found);
    let members = elements(&old)?;
    let drawn = draw::distinct(&mut random, members.len(), wanted.unwrap_or(1));
    match (wanted, drawn.first()) {
        (None, None) => reply.null(),
        (None, Some(place)) => reply.bulk(members[*place]),
        (Some(_), _) => {
            reply.set(drawn.len());
            drawn.iter().for_each(|place| reply.bulk(members[*place]));
        }
    }
    if drawn.is_empty() {
        return Ok(());
    }
    work.spend(old.len())?;
    let mut stays = vec![true; members.len()];
    drawn.iter().for_each(|place| stays[*place] = false);
    let left: Vec<_> = members.iter().zip(stays).filter(|(_, stays)| *stays).collect();
    let left: Vec<_> = left.into_iter().map(|(member, _)| member).collect();
    work.put(found, pack(&left))
}

fn srandmember<'t>(
    work: &mut Work<'t>,
    args: &[Arg<'t>],
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    let (key, args) = args.split_first().ok_or(Stop::Malformed)?;
    let (seed, options) = args.split_last().ok_or(Stop::Malformed)?;
    let mut random = draw::stream(seed)?;
    let wanted = match options {
        [] => None,
        [wanted] => Some(draw::count(wanted.bytes, false)?),
        _ => return Err(Stop::Error(SYNTAX)),
    };
    let found = work.typed(key, &TYPE)?;
    let members = elements(work.value(found).unwrap_or_default())?;
    let Some(wanted) = wanted else {
        let drawn = random.pick(&members).copied();
        work.spend(drawn.map_or(0, <[u8]>::len))?;
        reply.bulk_or_null(drawn);
        return Ok(());
    };
    let places = draw::places(&mut random, members.len(), wanted, work)?;
    reply.array(places.len());
    for place in places {
        work.spend(members[place].len())?;
        reply.bulk(members[place]);
    }
    Ok(())
}

fn sscan<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key, cursor, options @ ..] = args else { return Err(Stop::Malformed) };
    let cursor = scan::cursor(cursor.bytes)?;
    let found = work.typed(key, &TYPE)?;
    work.spend(work.len(found))?;
    let rows = Rows::<1>::parse(work.value(found).unwrap_or_default(), 0)?;
    let (next, rows) = match work.is_present(found) {
        true => scan::step(rows.iter(), cursor, scan::options(options)?),
        false => (0, Vec::new()),
    };
    scan::answer(next, rows.as_flattened(), reply);
    Ok(())
}

/// The value of the difference, the intersection or the union of the sets at `keys`.
fn combined<'t>(work: &mut Work<'t>, how: u8, keys: &[Arg<'t>]) -> Result<Vec<u8>, Stop> {
    let mut values = Vec::with_capacity(keys.len());
    for key in keys {
        let found = work.typed(key, &TYPE)?;
        work.spend(work.len(found))?;
        values.push(work.contents(found));
    }
    let mut sets = Vec::with_capacity(values.len());
    for value in &values {
        sets.push(Rows::<1>::parse(value, usize::MAX)?);
    }
    let (first, others) = sets.split_first().ok_or(Stop::Malformed)?;
    let taken: Vec<_> = match how {
        UNION => {
            let mut all = first.clone();
            for row in others.iter().flat_map(Rows::iter) {
                all.set(row);
            }
            return Ok(all.pack());
        }
        INTER => first.iter().filter(|[one]| others.iter().all(|set| set.has(one))).collect(),
        _ => first.iter().filter(|[one]| !others.iter().any(|set| set.has(one))).collect(),
    };
    Ok(pack(taken.as_flattened()))
}

/// SDIFF, SINTER and SUNION.
fn answer<'t, const HOW: u8>(
    work: &mut Work<'t>,
    keys: &[Arg<'t>],
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    let value = combined(work, HOW, keys)?;
    work.spend(value.len())?;
    let members = elements(&value)?;
    reply.set(members.len());
    members.iter().for_each(|member| reply.bulk(member));
    Ok(())
}

/// SDIFFSTORE, SINTERSTORE and SUNIONSTORE.
fn store<'t, const HOW: u8>(
    work: &mut Work<'t>,
    args: &[Arg<'t>],
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    let (to, keys) = args.split_first().ok_or(Stop::Malformed)?;
    let value = combined(work, HOW, keys)?;
    reply.integer(count(&value)? as i64);
    let to = work.find(to)?;
    work.put_new(to, &TYPE, value)
}

fn sintercard<'t>(
    work: &mut Work<'t>,
    args: &[Arg<'t>],
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    let (number, args) = args.split_first().ok_or(Stop::Malformed)?;
    let number = parse_i64(number.bytes).filter(|number| *number > 0);
    let number = number.ok_or(&b"ERR numkeys should be greater than 0"[..])?;
    let split = usize::try_from(number).ok().and_then(|number| args.split_at_checked(number));
    let (keys, mut options) =
        split.ok_or(&b"ERR Number of keys can't be greater than number of args"[..])?;
    let mut limit = 0;
    while let [name, value, rest @ ..] = options
        && name.bytes.eq_ignore_ascii_case(b"limit")
    {
        let given = parse_i64(value.bytes).and_then(|limit| usize::try_from(limit).ok());
        limit = given.ok_or(&b"ERR LIMIT can't be negative"[..])?;
        options = rest;
    }
    if !options.is_empty() {
        return Err(Stop::Error(SYNTAX));
    }
    let count = count(&combined(work, INTER, keys)?)?;
    reply.integer(if limit > 0 { count.min(limit) } else { count } as i64);
    Ok(())
}
