//! Unions, intersections and differences of sorted sets, and of sets, whose members have score 1.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::scored::{self, Member};
use super::{SYNTAX, TYPE, answer};
use crate::commands::float::parse_double;
use crate::commands::number::{NOT_AN_INTEGER, parse_i64};
use crate::commands::{packed, set};
use crate::connection::encode::Reply;
use crate::transactions::plan::Arg;
use crate::transactions::work::{Stop, WRONG_TYPE, Work};

/// What becomes of several sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Diff,
    Inter,
    Union,
}

/// What becomes of the scores of one member in several sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn of(self, one: f64, other: f64) -> f64 {
        match self {
            // Of infinities of both signs.
            Self::Sum if (one + other).is_nan() => 0.0,
            Self::Sum => one + other,
            Self::Min => one.min(other),
            Self::Max => one.max(other),
        }
    }
}

/// Where the result goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Into {
    Reply,
    Key,
    Count,
}

/// The options behind the keys.
#[derive(Debug)]
struct Options {
    weights: Vec<f64>,
    aggregate: Aggregate,
    with_scores: bool,
    limit: usize,
}

impl Options {
    fn parse(mut rest: &[Arg<'_>], keys: usize, how: How, into: Into) -> Result<Self, Stop> {
        let (aggregate, weights) = (Aggregate::Sum, vec![1.0; keys]);
        let mut options = Self { weights, aggregate, with_scores: false, limit: 0 };
        let scores_matter = how != How::Diff && into != Into::Count;
        while let [option, behind @ ..] = rest {
            let taken = match option.bytes.to_ascii_lowercase().as_slice() {
                b"weights" if scores_matter && behind.len() >= keys => {
                    for (weight, text) in options.weights.iter_mut().zip(behind) {
                        let given = parse_double(text.bytes);
                        *weight = given.ok_or(&b"ERR weight value is not a float"[..])?;
                    }
                    keys
                }
                b"aggregate" if scores_matter && !behind.is_empty() => {
                    options.aggregate = match behind[0].bytes.to_ascii_lowercase().as_slice() {
                        b"sum" => Aggregate::Sum,
                        b"min" => Aggregate::Min,
                        b"max" => Aggregate::Max,
                        _ => return Err(Stop::Error(SYNTAX)),
                    };
                    1
                }
                b"withscores" if into == Into::Reply => {
                    options.with_scores = true;
                    0
                }
                b"limit" if into == Into::Count && !behind.is_empty() => {
                    let limit = parse_i64(behind[0].bytes);
                    let limit = limit.and_then(|limit| usize::try_from(limit).ok());
                    options.limit = limit.ok_or(&b"ERR LIMIT can't be negative"[..])?;
                    1
                }
                _ => return Err(Stop::Error(SYNTAX)),
            };
            rest = &behind[taken..];
        }
        Ok(options)
    }
}

/// The members of a source, in order.
fn source<'a>(value: &'a [u8], is_set: bool) -> Result<Vec<Member<'a>>, Stop> {
    match is_set {
        false => scored::parse(value),
        true => Ok(packed::elements(value)?.into_iter().map(|member| (1.0, member)).collect()),
    }
}

fn weighted(score: f64, weight: f64) -> f64 {
    let score = score * weight;
    if score.is_nan() { 0.0 } else { score }
}

/// The members that result, in order.
fn combine<'a>(how: How, sources: &[Vec<Member<'a>>], options: &Options) -> Vec<Member<'a>> {
    let mut order: Vec<usize> = (0..sources.len()).collect();
    if how != How::Diff {
        // As in Redis, since the sum of several numbers depends on their order.
        order.sort_by_key(|source| sources[*source].len());
    }
    let mut all: BTreeMap<&[u8], (f64, usize)> = BTreeMap::new();
    for (place, source) in order.into_iter().enumerate() {
        for &(score, member) in &sources[source] {
            let score = weighted(score, options.weights[source]);
            match all.get_mut(member) {
                Some((current, seen)) => {
                    *current = options.aggregate.of(*current, score);
                    *seen += 1;
                }
                None if how == How::Union || place == 0 => _ = all.insert(member, (score, 1)),
                None => {}
            }
        }
    }
    let taken = |seen: usize| match how {
        How::Union => true,
        How::Inter => seen == sources.len(),
        How::Diff => seen == 1,
    };
    let taken = all.into_iter().filter(|(_, (_, seen))| taken(*seen));
    let mut members: Vec<Member<'a>> = taken.map(|(member, (score, _))| (score, member)).collect();
    members.sort_by(scored::order);
    members
}

/// Reads the number of keys, the keys and the options, and answers or stores what they make.
fn run<'t>(
    work: &mut Work<'t>,
    args: &[Arg<'t>],
    (how, none, into): (How, &'static [u8], Into),
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    let (to, args) = match into {
        Into::Key => {
            args.split_first().map(|(to, args)| (Some(to), args)).ok_or(Stop::Malformed)?
        }
        Into::Reply | Into::Count => (None, args),
    };
    let (number, args) = args.split_first().ok_or(Stop::Malformed)?;
    let number = parse_i64(number.bytes).ok_or(NOT_AN_INTEGER)?;
    if number < 1 {
        return Err(Stop::Error(none));
    }
    let split = usize::try_from(number).ok().and_then(|number| args.split_at_checked(number));
    let (keys, options) = split.ok_or(SYNTAX)?;
    let mut values: Vec<(Cow<'t, [u8]>, bool)> = Vec::with_capacity(keys.len());
    for key in keys {
        let found = work.find(key)?;
        let is_set = work.is_of(found, &set::TYPE);
        if !is_set && !work.is_of(found, &TYPE) {
            return Err(Stop::Error(WRONG_TYPE));
        }
        work.spend(work.len(found))?;
        values.push((work.contents(found), is_set));
    }
    let options = Options::parse(options, keys.len(), how, into)?;
    let mut sources = Vec::with_capacity(values.len());
    for (value, is_set) in &values {
        sources.push(source(value, *is_set)?);
    }
    let members = combine(how, &sources, &options);
    match (to, into) {
        (Some(to), _) => {
            reply.integer(members.len() as i64);
            let to = work.find(to)?;
            work.put_new(to, &TYPE, scored::pack(&members))
        }
        (None, Into::Count) => {
            let most = if options.limit == 0 { usize::MAX } else { options.limit };
            reply.integer(members.len().min(most) as i64);
            Ok(())
        }
        (None, _) => answer(work, members.into_iter(), options.with_scores, reply),
    }
}

macro_rules! commands {
    ($($name:ident: $how:ident, $into:ident;)*) => {$(
        pub fn $name<'t>(
            work: &mut Work<'t>,
            args: &[Arg<'t>],
            reply: &mut Reply<'_>,
        ) -> Result<(), Stop> {
            let none = concat!(
                "ERR at least 1 input key is needed for '",
                stringify!($name),
                "' command"
            );
            run(work, args, (How::$how, none.as_bytes(), Into::$into), reply)
        }
    )*};
}

commands! {
    zdiff: Diff, Reply;
    zdiffstore: Diff, Key;
    zinter: Inter, Reply;
    zintercard: Inter, Count;
    zinterstore: Inter, Key;
    zunion: Union, Reply;
    zunionstore: Union, Key;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_weighed_and_aggregated() {
        let one = vec![(1.0, &b"a"[..]), (2.0, b"b")];
        let other = vec![(f64::NEG_INFINITY, &b"b"[..]), (5.0, b"c")];
        let sources = [one, other];
        let with = |aggregate, weights: [f64; 2]| Options {
            weights: weights.to_vec(),
            aggregate,
            with_scores: false,
            limit: 0,
        };
        let sum = with(Aggregate::Sum, [2.0, 0.0]);
        assert_eq!(
            combine(How::Union, &sources, &sum),
            [(0.0, &b"c"[..]), (2.0, b"a"), (4.0, b"b")]
        );
        let max = with(Aggregate::Max, [1.0, 1.0]);
        assert_eq!(combine(How::Inter, &sources, &max), [(2.0, &b"b"[..])]);
        let min = with(Aggregate::Min, [1.0, 1.0]);
        assert_eq!(combine(How::Inter, &sources, &min), [(f64::NEG_INFINITY, &b"b"[..])]);
        assert_eq!(combine(How::Diff, &sources, &min), [(1.0, &b"a"[..])]);
        assert_eq!(Aggregate::Sum.of(f64::INFINITY, f64::NEG_INFINITY), 0.0);
    }
}
