//! SORT and SORT_RO: the elements of a list, set or sorted set in another order.
//!
//! BY and GET read keys that no argument names: their names are made of the elements. The procedure
//! asks for their records ([`Work::peek`]) and is run again with them, all in one transaction.

mod options;

use std::cmp::Ordering;

use self::options::{Options, Pattern, plan};
use super::float::parse_bound;
use super::key_places::KeyPlaces;
use super::packed::{elements, pack};
use super::sequence::Sequence;
use super::spec::{GROW, Run, SLOW_READ, Spec};
use super::{hash, list, set, sorted_set, string};
use crate::connection::encode::Reply;
use crate::transactions::plan::Arg;
use crate::transactions::work::{Peek, Stop, WRONG_TYPE, Work};

pub use options::places;

const NO_SCORE: &[u8] = b"ERR One or more scores can't be converted into double";

pub const COMMANDS: &[Spec] = &[
    sorts("sort", GROW, "Sort the elements of a list, set or sorted set"),
    sorts("sort_ro", SLOW_READ, "Sort elements, without storing them"),
];

const fn sorts(name: &'static str, flags: &'static [&'static str], summary: &'static str) -> Spec {
    let how = (plan as super::spec::Plan, sort as Run);
    Spec::data("generic", name, -2, (flags, KeyPlaces::ONE), how, summary)
}

/// What an element is sorted by.
#[derive(Clone, Debug)]
struct Weighed {
    element: Vec<u8>,
    weight: Option<Vec<u8>>,
    score: f64,
}

fn sort<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key, args @ ..] = args else { return Err(Stop::Malformed) };
    let mut options = Options::parse(args)?;
    let found = work.find(key)?;
    let kind = work.type_of(found)?.map(|kind| kind.number);
    let value = match kind == Some(list::TYPE.number) {
        true => Sequence::open(work, found).whole(work)?,
        false => work.contents(found),
    };
    let mut all = match kind {
        None => Vec::new(),
        Some(kind) if kind == list::TYPE.number => elements(&value)?,
        Some(kind) if kind == set::TYPE.number => {
            // As Redis: what is stored, or seen by a script, must not depend on a set's order.
            if options.keeps_order && (options.store.is_some() || options.is_for_script) {
                (options.keeps_order, options.alpha, options.by) = (false, true, None);
            }
            elements(&value)?
        }
        Some(kind) if kind == sorted_set::TYPE.number => {
            sorted_set::parse(&value)?.into_iter().map(|(_, member)| member).collect()
        }
        Some(_) => return Err(Stop::Error(WRONG_TYPE)),
    };
    let range = options.range(all.len());
    let sorted: Vec<Vec<u8>> = if options.keeps_order {
        if options.descending && kind != Some(set::TYPE.number) {
            all.reverse();
        }
        all[range].iter().map(|element| element.to_vec()).collect()
    } else {
        let mut weighed = weigh(work, &options, &all)?;
        weighed.sort_by(|one, other| order(&options, one, other));
        weighed[range].iter().map(|weighed| weighed.element.clone()).collect()
    };
    let answers = answers(work, &options, &sorted)?;
    match options.store {
        None => {
            for answer in &answers {
                work.spend(answer.as_ref().map_or(0, Vec::len))?;
            }
            reply.array(answers.len());
            answers.iter().for_each(|answer| reply.bulk_or_null(answer.as_deref()));
        }
        Some(into) => {
            let stored: Vec<_> = answers.into_iter().map(Option::unwrap_or_default).collect();
            let into = work.find(&into)?;
            work.put_new(into, &list::TYPE, pack(&stored))?;
            reply.integer(stored.len() as i64);
        }
    }
    Ok(())
}

/// The elements with what they are sorted by.
fn weigh(work: &mut Work<'_>, options: &Options<'_>, all: &[&[u8]]) -> Result<Vec<Weighed>, Stop> {
    let weights = match options.by {
        None => all.iter().map(|element| Some(element.to_vec())).collect(),
        Some(pattern) => read(work, options, &[pattern], all.iter().copied())?,
    };
    let mut weighed = Vec::with_capacity(all.len());
    for (element, weight) in all.iter().zip(weights) {
        let score = match &weight {
            Some(text) if !options.alpha => number(text)?,
            _ => 0.0,
        };
        weighed.push(Weighed { element: element.to_vec(), weight, score });
    }
    Ok(weighed)
}

fn number(text: &[u8]) -> Result<f64, Stop> {
    let finite = parse_bound(text).filter(|number| {
        let named = text.iter().any(|byte| matches!(byte, b'i' | b'I'));
        number.is_finite() || named
    });
    finite.ok_or(Stop::Error(NO_SCORE))
}

fn order(options: &Options<'_>, one: &Weighed, other: &Weighed) -> Ordering {
    // An element without a weight comes before the others.
    let order = match options.alpha {
        true => one.weight.cmp(&other.weight),
        false => {
            let scores = one.score.partial_cmp(&other.score).unwrap_or(Ordering::Equal);
            scores.then_with(|| one.element.cmp(&other.element))
        }
    };
    if options.descending { order.reverse() } else { order }
}

/// What is answered for these elements.
fn answers(
    work: &mut Work<'_>,
    options: &Options<'_>,
    sorted: &[Vec<u8>],
) -> Result<Vec<Option<Vec<u8>>>, Stop> {
    match options.get.is_empty() {
        true => Ok(sorted.iter().cloned().map(Some).collect()),
        false => read(work, options, &options.get, sorted.iter().map(Vec::as_slice)),
    }
}

/// For each element, what each pattern names; `None` if it is absent.
fn read<'e>(
    work: &mut Work<'_>,
    options: &Options<'_>,
    patterns: &[Pattern<'_>],
    elements: impl Iterator<Item = &'e [u8]>,
) -> Result<Vec<Option<Vec<u8>>>, Stop> {
    let (mut found, mut asked) = (Vec::new(), false);
    for element in elements {
        for pattern in patterns {
            let Some((key, field)) = pattern.of(element) else {
                found.push((*pattern == Pattern::ITSELF).then(|| element.to_vec()));
                continue;
            };
            let row = options.row(&key);
            match work.peek(row, &key)? {
                Peek::Absent => found.push(None),
                Peek::Asked => asked = true,
                Peek::Value(kind, value) => found.push(match field {
                    None => (kind == string::TYPE.number).then_some(value),
                    Some(field) if kind == hash::TYPE.number => hash::field_of(&value, field)?,
                    Some(_) => None,
                }),
            }
        }
    }
    if asked { Err(Stop::More) } else { Ok(found) }
}
