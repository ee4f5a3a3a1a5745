//! Commands that wait until there is something to pop: BLPOP and its kin.
//!
//! Each is the pop as it is, planned with the time that its client waits for. If the pop finds
//! nothing, the front keeps the client and runs the plan again when a key of it has changed
//! (`connection/blocked.rs`). In a MULTI nothing waits.

use super::float::parse_double;
use super::key_places::KeyPlaces;
use super::list;
use super::sorted_set;
use super::spec::{Plan, Run, Spec};
use crate::commands::errors::SYNTAX;
use crate::connection::blocked::Turn;
use crate::connection::encode::Reply;
use crate::connection::parse::Command;
use crate::transactions::plan::{Arg, PlanBuilder};
use crate::transactions::planner::Planner;
use crate::transactions::work::{Stop, Work};

/// Flags of a command that may wait.
const BLOCKING: &[&str] = &["write", "noscript", "blocking"];
const BLOCKING_GROW: &[&str] = &["write", "denyoom", "noscript", "blocking"];
const BLOCKING_FAST: &[&str] = &["write", "noscript", "fast", "blocking"];

/// All arguments but the last one.
const BUT_LAST: KeyPlaces = KeyPlaces { last: -2, ..KeyPlaces::ONE };

pub const COMMANDS: &[Spec] = &[
    blocking(
        "list",
        ("blmove", 6),
        (BLOCKING_GROW, KeyPlaces::TWO),
        (plan_blmove, list::lmove),
        "Move an end of a list to another list, or wait for one",
    ),
    blocking(
        "list",
        ("blmpop", -5),
        (BLOCKING, KeyPlaces::counted(2)),
        (timed_first::<false>, list::lmpop),
        "Pop elements of lists, or wait for one",
    ),
    blocking(
        "list",
        ("blpop", -3),
        (BLOCKING, BUT_LAST),
        (timed_last, first_list::<true>),
        "Remove and get the first element of a list, or wait for one",
    ),
    blocking(
        "list",
        ("brpop", -3),
        (BLOCKING, BUT_LAST),
        (timed_last, first_list::<false>),
        "Remove and get the last element of a list, or wait for one",
    ),
    blocking(
        "list",
        ("brpoplpush", 4),
        (BLOCKING_GROW, KeyPlaces::TWO),
        (timed_last, list::rpoplpush),
        "Move the last element of a list to another list, or wait for one",
    ),
    blocking(
        "sorted-set",
        ("bzmpop", -5),
        (BLOCKING, KeyPlaces::counted(2)),
        (timed_first::<true>, sorted_set::zmpop),
        "Pop members of sorted sets, or wait for one",
    ),
    blocking(
        "sorted-set",
        ("bzpopmax", -3),
        (BLOCKING_FAST, BUT_LAST),
        (timed_last, sorted_set::first_set::<false>),
        "Remove and get the member of highest score, or wait for one",
    ),
    blocking(
        "sorted-set",
        ("bzpopmin", -3),
        (BLOCKING_FAST, BUT_LAST),
        (timed_last, sorted_set::first_set::<true>),
        "Remove and get the member of lowest score, or wait for one",
    ),
];

const fn blocking(
    group: &'static str,
    (name, arity): (&'static str, i32),
    of: (&'static [&'static str], KeyPlaces),
    how: (Plan, Run),
    summary: &'static str,
) -> Spec {
    Spec::data(group, name, arity, of, how, summary)
}

/// Milliseconds that `text`, in seconds, says; 0: forever.
fn timeout(text: &[u8]) -> Result<u64, Vec<u8>> {
    let seconds = parse_double(text).filter(|seconds| seconds.is_finite());
    let seconds = seconds.ok_or(b"ERR timeout is not a float or out of range")?;
    if seconds < 0.0 {
        return Err(b"ERR timeout is negative".to_vec());
    }
    let millis = (seconds * 1_000.0).ceil();
    if millis > i64::MAX as f64 {
        return Err(b"ERR timeout is out of range".to_vec());
    }
    Ok(millis as u64)
}

/// The keys, and then the time.
fn timed_last(
    planner: &Planner<'_>,
    plan: &mut PlanBuilder,
    spec: &'static Spec,
    command: &Command<'_>,
) -> Result<(), Vec<u8>> {
    let last = command.len() - 1;
    let millis = timeout(command.arg(last))?;
    spec.begin(plan);
    (1..last).for_each(|place| planner.key(plan, command.arg(place)));
    plan.waits(millis, Turn::ONE);
    Ok(())
}

/// Looks at what a pop from several keys says: with `SCORES`, from sorted sets.
fn check_several<const SCORES: bool>(command: &Command<'_>) -> Result<(), Stop> {
    let plain = |bytes| Arg { row: None, writes: false, bytes };
    let args: Vec<_> = command.args(2).map(plain).collect();
    let (_, word, options) = list::several(&args)?;
    let words = if SCORES { [&b"min"[..], b"max"] } else { [&b"left"[..], b"right"] };
    if !words.iter().any(|known| word.bytes.eq_ignore_ascii_case(known)) {
        return Err(Stop::Error(SYNTAX));
    }
    list::pop_count(options).map(|_| ())
}

/// The time, and then what the pop says, which Redis looks at before the time.
fn timed_first<const SCORES: bool>(
    planner: &Planner<'_>,
    plan: &mut PlanBuilder,
    spec: &'static Spec,
    command: &Command<'_>,
) -> Result<(), Vec<u8>> {
    if let Err(Stop::Error(text)) = check_several::<SCORES>(command) {
        return Err(text.to_vec());
    }
    let millis = timeout(command.arg(1))?;
    spec.begin(plan);
    let places = spec.keys.of(command.len(), |place| command.arg(place));
    for (index, arg) in command.args(2).enumerate() {
        match places.has(index + 2) {
            true => planner.key(plan, arg),
            false => plan.plain(arg),
        }
    }
    plan.waits(millis, Turn::ONE);
    Ok(())
}

fn plan_blmove(
    planner: &Planner<'_>,
    plan: &mut PlanBuilder,
    spec: &'static Spec,
    command: &Command<'_>,
) -> Result<(), Vec<u8>> {
    let ends = [command.arg(3), command.arg(4)];
    let is_end =
        |word: &&[u8]| word.eq_ignore_ascii_case(b"left") || word.eq_ignore_ascii_case(b"right");
    if !ends.iter().all(is_end) {
        return Err(SYNTAX.to_vec());
    }
    let millis = timeout(command.arg(5))?;
    spec.begin(plan);
    planner.key(plan, command.arg(1));
    planner.key(plan, command.arg(2));
    ends.into_iter().for_each(|word| plan.plain(word));
    plan.waits(millis, Turn::ONE);
    Ok(())
}

/// Pops an element of the first of several lists that is there.
fn first_list<'t, const FRONT: bool>(
    work: &mut Work<'t>,
    keys: &[Arg<'t>],
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    for key in keys {
        let found = work.typed(key, &list::TYPE)?;
        if work.is_present(found) {
            reply.array(2);
            reply.bulk(key.bytes);
            let popped = list::take(work, found, FRONT, 1)?;
            popped.iter().for_each(|element| reply.bulk(element));
            return Ok(());
        }
    }
    reply.null_array();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::timeout;

    #[test]
    fn times_are_seconds_with_fractions() {
        assert_eq!(timeout(b"0"), Ok(0));
        assert_eq!(timeout(b"0.0001"), Ok(1));
        assert_eq!(timeout(b"1.5"), Ok(1_500));
        for (text, error) in [("x", "not a float"), ("-1", "negative"), ("1e300", "of range")] {
            let found = String::from_utf8(timeout(text.as_bytes()).unwrap_err()).unwrap();
            assert!(found.contains(error), "{found}");
        }
    }
}
