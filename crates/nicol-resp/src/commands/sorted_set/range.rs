//! Ranges of a sorted set: by place, by score, by name.

use std::ops::Range;

use super::scored::{self, Member};
use super::{SYNTAX, TYPE, answer, integer, members};
use crate::commands::float::parse_bound;
use crate::commands::list::range as places;
use crate::connection::encode::Reply;
use crate::transactions::plan::Arg;
use crate::transactions::work::{Stop, Work};

/// What a range is told in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Place,
    Score,
    Name,
}

/// A bound of a range; what is equal to one that is exclusive lies outside.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bound<T> {
    at: T,
    exclusive: bool,
}

impl<T: PartialOrd> Bound<T> {
    /// Whether what stands at `other` lies above a lower bound.
    fn is_below(&self, other: &T) -> bool {
        if self.exclusive { *other > self.at } else { *other >= self.at }
    }

    /// Whether what stands at `other` lies below an upper bound.
    fn is_above(&self, other: &T) -> bool {
        if self.exclusive { *other < self.at } else { *other <= self.at }
    }
}

/// A name, or what is before or behind all names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Name<'t> {
    First,
    Is(&'t [u8]),
    Last,
}

/// A range as it was asked for.
#[derive(Clone, Copy, Debug)]
enum Asked<'t> {
    Places(i64, i64),
    Scores(Bound<f64>, Bound<f64>),
    Names(Bound<Name<'t>>, Bound<Name<'t>>),
}

impl<'t> Asked<'t> {
    fn parse(by: By, low: &Arg<'t>, high: &Arg<'t>) -> Result<Self, Stop> {
        match by {
            By::Place => Ok(Self::Places(integer(low)?, integer(high)?)),
            By::Score => Self::scores(low, high),
            By::Name => Self::names(low, high),
        }
    }

    fn scores(low: &Arg<'t>, high: &Arg<'t>) -> Result<Self, Stop> {
        let bound = |arg: &Arg<'_>| {
            let text = arg.bytes.strip_prefix(b"(");
            let at = parse_bound(text.unwrap_or(arg.bytes));
            let at = at.ok_or(&b"ERR min or max is not a float"[..])?;
            Ok::<_, Stop>(Bound { at, exclusive: text.is_some() })
        };
        Ok(Self::Scores(bound(low)?, bound(high)?))
    }

    fn names(low: &Arg<'t>, high: &Arg<'t>) -> Result<Self, Stop> {
        let bound = |arg: &Arg<'t>| {
            let (at, exclusive) = match arg.bytes {
                b"-" => (Name::First, false),
                b"+" => (Name::Last, false),
                [b'(', name @ ..] => (Name::Is(name), true),
                [b'[', name @ ..] => (Name::Is(name), false),
                _ => {
                    return Err(Stop::Error(b"ERR min or max not valid string range item"));
                }
            };
            Ok(Bound { at, exclusive })
        };
        Ok(Self::Names(bound(low)?, bound(high)?))
    }

    /// The places of its members among `members`, or among them in reverse.
    fn find(&self, members: &[Member<'_>], reversed: bool) -> Range<usize> {
        let between = |low: &dyn Fn(&Member<'_>) -> bool, high: &dyn Fn(&Member<'_>) -> bool| {
            let first = members.partition_point(|member| !low(member));
            let last = members.partition_point(high);
            first..last.max(first)
        };
        match self {
            Self::Places(first, last) if reversed => {
                let Range { start, end } = places(*first, *last, members.len());
                members.len() - end..members.len() - start
            }
            Self::Places(first, last) => places(*first, *last, members.len()),
            Self::Scores(low, high) => {
                between(&|(score, _)| low.is_below(score), &|(score, _)| high.is_above(score))
            }
            Self::Names(low, high) => named(members, (low, high), reversed),
        }
    }
}

/// The places of the members between two names.
///
/// Where scores differ names stand in no order, and Redis answers the first run of members within
/// the range, or the last one from behind; so does this.
fn named(
    members: &[Member<'_>],
    (low, high): (&Bound<Name<'_>>, &Bound<Name<'_>>),
    reversed: bool,
) -> Range<usize> {
    let above = |member: &Member<'_>| low.is_below(&Name::Is(member.1));
    let below = |member: &Member<'_>| high.is_above(&Name::Is(member.1));
    let empty = low.at > high.at || low.at == high.at && (low.exclusive || high.exclusive);
    let reaches = members.last().is_some_and(above) && members.first().is_some_and(below);
    if empty || !reaches {
        return 0..0;
    }
    match reversed {
        false => {
            let start = members.iter().position(above).unwrap_or(members.len());
            start..start + members[start..].iter().take_while(|member| below(member)).count()
        }
        true => {
            let end = members.iter().rposition(below).map_or(0, |last| last + 1);
            end - members[..end].iter().rev().take_while(|member| above(member)).count()..end
        }
    }
}

/// A command that reads a range.
#[derive(Clone, Copy, Debug)]
struct Reading<'t> {
    asked: Asked<'t>,
    reversed: bool,
    with_scores: bool,
    offset: i64,
    /// Negative: all.
    limit: i64,
}

impl<'t> Reading<'t> {
    /// Reads what follows the key: two bounds and options. What `by` and `reversed` leave open is
    /// an option.
    fn parse(
        args: &[Arg<'t>],
        by: Option<By>,
        reversed: Option<bool>,
        stores: bool,
    ) -> Result<Self, Stop> {
        let [first, last, options @ ..] = args else { return Err(Stop::Malformed) };
        let (mut said, mut rev, mut with_scores) = (by, reversed, false);
        let (mut offset, mut limit, mut rest) = (0, -1, options);
        while let [option, behind @ ..] = rest {
            rest = behind;
            match (option.bytes.to_ascii_lowercase().as_slice(), behind) {
                (b"withscores", _) if !stores => with_scores = true,
                (b"limit", [from, most, behind @ ..]) => {
                    (offset, limit, rest) = (integer(from)?, integer(most)?, behind);
                }
                (b"rev", _) if rev.is_none() => rev = Some(true),
                (b"bylex", _) if said.is_none() => said = Some(By::Name),
                (b"byscore", _) if said.is_none() => said = Some(By::Score),
                _ => return Err(Stop::Error(SYNTAX)),
            }
        }
        let (by, reversed) = (said.unwrap_or(By::Place), rev.unwrap_or(false));
        if limit != -1 && by == By::Place {
            return Err(Stop::Error(
                b"ERR syntax error, LIMIT is only supported in combination with either BYSCORE or \
                  BYLEX",
            ));
        }
        if with_scores && by == By::Name {
            return Err(Stop::Error(
                b"ERR syntax error, WITHSCORES not supported in combination with BYLEX",
            ));
        }
        let swapped = reversed && by != By::Place;
        let (low, high) = if swapped { (last, first) } else { (first, last) };
        let asked = Asked::parse(by, low, high)?;
        Ok(Self { asked, reversed, with_scores, offset, limit })
    }

    /// The members in the order in which they are answered.
    fn select<'a>(&self, members: &[Member<'a>]) -> Vec<Member<'a>> {
        let Ok(offset) = usize::try_from(self.offset) else { return Vec::new() };
        let most = usize::try_from(self.limit).unwrap_or(usize::MAX);
        let part = &members[self.asked.find(members, self.reversed)];
        match self.reversed {
            true => part.iter().rev().skip(offset).take(most).copied().collect(),
            false => part.iter().skip(offset).take(most).copied().collect(),
        }
    }

    fn run<'w>(
        self,
        work: &mut Work<'w>,
        key: &Arg<'w>,
        reply: &mut Reply<'_>,
    ) -> Result<(), Stop> {
        let found = work.typed(key, &TYPE)?;
        let selected = self.select(&members(work, found)?);
        answer(work, selected.into_iter(), self.with_scores, reply)
    }
}

fn read<'t>(
    work: &mut Work<'t>,
    args: &[Arg<'t>],
    (by, reversed): (Option<By>, Option<bool>),
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    let (key, args) = args.split_first().ok_or(Stop::Malformed)?;
    Reading::parse(args, by, reversed, false)?.run(work, key, reply)
}

pub fn zrange<'t>(
    work: &mut Work<'t>,
    args: &[Arg<'t>],
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    read(work, args, (None, None), reply)
}

pub fn zrevrange<'t>(
    work: &mut Work<'t>,
    args: &[Arg<'t>],
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    read(work, args, (Some(By::Place), Some(true)), reply)
}

pub fn zrangebyscore<'t>(
    work: &mut Work<'t>,
    args: &[Arg<'t>],
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    read(work, args, (Some(By::Score), Some(false)), reply)
}

pub fn zrevrangebyscore<'t>(
    work: &mut Work<'t>,
    args: &[Arg<'t>],
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    read(work, args, (Some(By::Score), Some(true)), reply)
}

pub fn zrangebylex<'t>(
    work: &mut Work<'t>,
    args: &[Arg<'t>],
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    read(work, args, (Some(By::Name), Some(false)), reply)
}

pub fn zrevrangebylex<'t>(
    work: &mut Work<'t>,
    args: &[Arg<'t>],
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    read(work, args, (Some(By::Name), Some(true)), reply)
}

pub fn zrangestore<'t>(
    work: &mut Work<'t>,
    args: &[Arg<'t>],
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    let [to, from, args @ ..] = args else { return Err(Stop::Malformed) };
    let reading = Reading::parse(args, None, None, true)?;
    let from = work.typed(from, &TYPE)?;
    let old = work.contents(from);
    let mut selected = reading.select(&scored::parse(&old)?);
    selected.sort_by(scored::order);
    reply.integer(selected.len() as i64);
    let to = work.find(to)?;
    work.put_new(to, &TYPE, scored::pack(&selected))
}

fn counted<'t>(
    work: &mut Work<'t>,
    args: &[Arg<'t>],
    by: By,
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    let [key, low, high] = args else { return Err(Stop::Malformed) };
    let asked = Asked::parse(by, low, high)?;
    let found = work.typed(key, &TYPE)?;
    reply.integer(asked.find(&members(work, found)?, false).len() as i64);
    Ok(())
}

pub fn zcount<'t>(
    work: &mut Work<'t>,
    args: &[Arg<'t>],
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    counted(work, args, By::Score, reply)
}

pub fn zlexcount<'t>(
    work: &mut Work<'t>,
    args: &[Arg<'t>],
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    counted(work, args, By::Name, reply)
}

fn removed<'t>(
    work: &mut Work<'t>,
    args: &[Arg<'t>],
    by: By,
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    let [key, low, high] = args else { return Err(Stop::Malformed) };
    let asked = Asked::parse(by, low, high)?;
    let found = work.typed(key, &TYPE)?;
    let old = work.contents(found);
    let mut members = scored::parse(&old)?;
    let places = asked.find(&members, false);
    reply.integer(places.len() as i64);
    if places.is_empty() {
        return Ok(());
    }
    members.drain(places);
    work.put(found, scored::pack(&members))
}

pub fn zremrangebyrank<'t>(
    work: &mut Work<'t>,
    args: &[Arg<'t>],
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    removed(work, args, By::Place, reply)
}

pub fn zremrangebyscore<'t>(
    work: &mut Work<'t>,
    args: &[Arg<'t>],
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    removed(work, args, By::Score, reply)
}

pub fn zremrangebylex<'t>(
    work: &mut Work<'t>,
    args: &[Arg<'t>],
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    removed(work, args, By::Name, reply)
}
