//! Strings, which are also integers and decimals: SET, GET, INCR and their kin.

use std::borrow::Cow;

use super::expiry::{Expiry, Timing, Unit};
use super::key_places::KeyPlaces;
use super::kind::{STRING, Type};
use super::long_double::{LongDouble, NotFinite};
use super::number::{NOT_AN_INTEGER, parse_i64, push_i64};
use super::spec::{GROW, Plan, READ, REMOVE, Run, SLOW_READ, Spec, WRITE, as_sent};
use crate::connection::encode::Reply;
use crate::connection::parse::Command;
use crate::transactions::plan::{Arg, PlanBuilder};
use crate::transactions::planner::Planner;
use crate::transactions::sizes::Sizes;
use crate::transactions::work::{Stop, Work};

pub const TYPE: Type = Type { name: "string", number: STRING, encoding };

pub const COMMANDS: &[Spec] = &[
    string("append", 3, (WRITE, KeyPlaces::ONE), append, "Append a value to a key"),
    counter("decr", 2, step::<-1, false>, "Decrement the integer value of a key by one"),
    counter("decrby", 3, step::<-1, true>, "Decrement the integer value of a key by a number"),
    string("get", 2, (READ, KeyPlaces::ONE), get, "Get the value of a key").single(2),
    string(
        "getdel",
        2,
        (REMOVE, KeyPlaces::ONE),
        get_del,
        "Get the value of a key and delete the key",
    ),
    planned(
        "getex",
        -2,
        (REMOVE, KeyPlaces::ONE),
        (plan_get_ex, get_ex),
        "Get the value of a key and move its deadline",
    ),
    string("getrange", 4, (SLOW_READ, KeyPlaces::ONE), get_range, "Get a part of a value"),
    string("getset", 3, (WRITE, KeyPlaces::ONE), get_set, "Set a key and return its old value"),
    counter("incr", 2, step::<1, false>, "Increment the integer value of a key by one"),
    counter("incrby", 3, step::<1, true>, "Increment the integer value of a key by a number"),
    string(
        "incrbyfloat",
        3,
        (WRITE, KeyPlaces::ONE),
        add_float,
        "Add to the decimal value of a key",
    ),
    string("mget", -2, (READ, KeyPlaces::ALL), mget, "Get the values of keys"),
    string("mset", -3, (GROW, KeyPlaces::PAIRS), mset, "Set keys to values"),
    string(
        "msetnx",
        -3,
        (GROW, KeyPlaces::PAIRS),
        mset_nx,
        "Set keys, only if none of them exists",
    ),
    planned(
        "psetex",
        4,
        (GROW, KeyPlaces::ONE),
        (plan_set_ex::<false>, set),
        "Set a key that expires, in milliseconds",
    ),
    planned("set", -3, (GROW, KeyPlaces::ONE), (plan_set, set), "Set the value of a key").single(3),
    planned(
        "setex",
        4,
        (GROW, KeyPlaces::ONE),
        (plan_set_ex::<true>, set),
        "Set a key that expires, in seconds",
    ),
    string("setnx", 3, (WRITE, KeyPlaces::ONE), set_nx, "Set a key, only if it does not exist"),
    string("setrange", 4, (GROW, KeyPlaces::ONE), set_range, "Overwrite a part of a value"),
    string("strlen", 2, (READ, KeyPlaces::ONE), str_len, "Get the length of the value of a key"),
    string("substr", 4, (SLOW_READ, KeyPlaces::ONE), get_range, "Get a part of a value"),
];

const fn string(
    name: &'static str,
    arity: i32,
    of: (&'static [&'static str], KeyPlaces),
    run: Run,
    summary: &'static str,
) -> Spec {
    planned(name, arity, of, (as_sent, run), summary)
}

const fn counter(name: &'static str, arity: i32, plan: Plan, summary: &'static str) -> Spec {
    planned(name, arity, (WRITE, KeyPlaces::ONE), (plan, add), summary)
}

const fn planned(
    name: &'static str,
    arity: i32,
    of: (&'static [&'static str], KeyPlaces),
    how: (Plan, Run),
    summary: &'static str,
) -> Spec {
    Spec::data("string", name, arity, of, how, summary)
}

/// SET stores only if the key is absent.
const SET_NX: u8 = 1;
/// SET stores only if the key is present.
const SET_XX: u8 = 2;
/// SET answers the old value.
const SET_GET: u8 = 4;

const TOO_LONG: &[u8] = b"ERR string exceeds maximum allowed size (proto-max-bulk-len)";
const NOT_A_FLOAT: &[u8] = b"ERR value is not a valid float";
const TOO_LARGE: &[u8] = b"ERR increment would produce NaN or Infinity";

/// Bytes of the longest string that Redis holds in one piece with its head.
const EMBEDDED_MAX: usize = 44;

/// How Redis holds `value` once it is set.
fn encoding(value: &[u8], _: &Sizes) -> &'static [u8] {
    match parse_i64(value) {
        Some(_) => b"int",
        None if value.len() <= EMBEDDED_MAX => b"embstr",
        None => b"raw",
    }
}

fn plan_set(
    planner: &Planner<'_>,
    plan: &mut PlanBuilder,
    spec: &'static Spec,
    command: &Command<'_>,
) -> Result<(), Vec<u8>> {
    let (mut flags, mut timing) = (0, Timing::default());
    let mut index = 3;
    while index < command.len() {
        let option = command.arg(index).to_ascii_uppercase();
        match option.as_slice() {
            b"NX" if flags & SET_XX == 0 => flags |= SET_NX,
            b"XX" if flags & SET_NX == 0 => flags |= SET_XX,
            b"GET" => flags |= SET_GET,
            b"KEEPTTL" => timing.without(Expiry::Keep)?,
            option => index += timing.with(option, command, index)?,
        }
        index += 1;
    }
    let expiry = timing.read(|| planner.now(), "set", Expiry::Never)?;
    spec.begin(plan);
    planner.key(plan, command.arg(1));
    plan.plain(command.arg(2));
    planner.deadline(plan, &[flags], expiry, command.arg(1));
    Ok(())
}

fn plan_set_ex<const SECONDS: bool>(
    planner: &Planner<'_>,
    plan: &mut PlanBuilder,
    spec: &'static Spec,
    command: &Command<'_>,
) -> Result<(), Vec<u8>> {
    let unit = Unit { seconds: SECONDS, absolute: false };
    let expiry = unit.read(command.arg(2), false, planner.now(), spec.name)?;
    spec.begin(plan);
    planner.key(plan, command.arg(1));
    plan.plain(command.arg(3));
    planner.deadline(plan, &[0], expiry, command.arg(1));
    Ok(())
}

fn set<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key, value, how] = args else { return Err(Stop::Malformed) };
    let (&flags, expiry) = how.bytes.split_first().ok_or(Stop::Malformed)?;
    let expiry = Expiry::parse(expiry).ok_or(Stop::Malformed)?;
    let gets = flags & SET_GET != 0;
    let found = if gets { work.typed(key, &TYPE)? } else { work.find(key)? };
    let present = work.is_present(found);
    let refused = (flags & SET_NX != 0 && present) || (flags & SET_XX != 0 && !present);
    if !refused {
        work.spend_on_value(value.bytes.len())?;
    }
    match (gets, refused) {
        (true, _) => work.answer(found, reply)?,
        (false, true) => reply.null(),
        (false, false) => reply.status("OK"),
    }
    if !refused {
        let expires = expiry.deadline(work.now(), work.expires(found));
        work.overwrite(found, &TYPE, Cow::Borrowed(value.bytes), expires)?;
    }
    Ok(())
}

fn set_nx<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key, value] = args else { return Err(Stop::Malformed) };
    let found = work.find(key)?;
    let absent = !work.is_present(found);
    if absent {
        work.spend_on_value(value.bytes.len())?;
        work.overwrite(found, &TYPE, Cow::Borrowed(value.bytes), None)?;
    }
    reply.integer(i64::from(absent));
    Ok(())
}

fn get<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key] = args else { return Err(Stop::Malformed) };
    let found = work.typed(key, &TYPE)?;
    work.answer(found, reply)
}

fn get_set<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key, value] = args else { return Err(Stop::Malformed) };
    let found = work.typed(key, &TYPE)?;
    work.spend_on_value(value.bytes.len())?;
    work.answer(found, reply)?;
    work.replace(found, Some(Cow::Borrowed(value.bytes)), None)
}

fn get_del<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key] = args else { return Err(Stop::Malformed) };
    let found = work.typed(key, &TYPE)?;
    work.answer(found, reply)?;
    if work.is_present(found) {
        work.change(found, None)?;
    }
    Ok(())
}

fn plan_get_ex(
    planner: &Planner<'_>,
    plan: &mut PlanBuilder,
    spec: &'static Spec,
    command: &Command<'_>,
) -> Result<(), Vec<u8>> {
    let mut timing = Timing::default();
    let mut index = 2;
    while index < command.len() {
        let option = command.arg(index).to_ascii_uppercase();
        match option.as_slice() {
            b"PERSIST" => timing.without(Expiry::Never)?,
            option => index += timing.with(option, command, index)?,
        }
        index += 1;
    }
    let key = command.arg(1);
    spec.begin(plan);
    planner.key(plan, key);
    match timing.read(|| planner.now(), "getex", Expiry::Keep) {
        Ok(expiry) => planner.deadline(plan, &[], expiry, key),
        // As in Redis, an absent key is answered before the time is judged.
        Err(text) => {
            planner.deadline(plan, &[], Expiry::Keep, key);
            plan.plain(&text);
        }
    }
    Ok(())
}

/// A third argument is what is wrong with the time, if the key is there.
fn get_ex<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key, expiry, wrong @ ..] = args else { return Err(Stop::Malformed) };
    let expiry = Expiry::parse(expiry.bytes).ok_or(Stop::Malformed)?;
    let found = work.typed(key, &TYPE)?;
    if let Some(text) = wrong.first().filter(|_| work.is_present(found)) {
        reply.error(text.bytes);
        return Ok(());
    }
    work.answer(found, reply)?;
    let current = work.expires(found);
    let deadline = expiry.deadline(work.now(), current);
    if work.is_present(found) && deadline != current {
        work.move_deadline(found, deadline)?;
    }
    Ok(())
}

fn append<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key, tail] = args else { return Err(Stop::Malformed) };
    let (found, tail) = (work.typed(key, &TYPE)?, tail.bytes);
    let len = work.len(found);
    if len + tail.len() > work.value_max() {
        return Err(Stop::Error(TOO_LONG));
    }
    // Only the first change of a value copies it; the budget counts that copy once.
    work.spend_on_value(if work.is_owned(found) { tail.len() } else { len + tail.len() })?;
    let mut value = work.take(found);
    value.extend_from_slice(tail);
    reply.integer(value.len() as i64);
    work.change(found, Some(Cow::Owned(value)))
}

fn str_len<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key] = args else { return Err(Stop::Malformed) };
    let found = work.typed(key, &TYPE)?;
    reply.integer(work.len(found) as i64);
    Ok(())
}

/// The bytes from `first` to `last` of a value of `len` bytes, where negative positions count from
/// its end.
fn range(first: i64, last: i64, len: usize) -> std::ops::Range<usize> {
    let len = len as i64;
    if first < 0 && last < 0 && first > last {
        return 0..0;
    }
    let from_start = |at: i64| if at < 0 { at.saturating_add(len).max(0) } else { at };
    let (first, last) = (from_start(first), from_start(last).min(len - 1));
    if first > last { 0..0 } else { first as usize..last as usize + 1 }
}

fn get_range<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key, first, last] = args else { return Err(Stop::Malformed) };
    let [Some(first), Some(last)] = [first, last].map(|bound| parse_i64(bound.bytes)) else {
        return Err(Stop::Error(NOT_AN_INTEGER));
    };
    let found = work.typed(key, &TYPE)?;
    let range = range(first, last, work.len(found));
    work.spend_on_value(range.len())?;
    reply.bulk(&work.value(found).unwrap_or_default()[range]);
    Ok(())
}

fn set_range<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key, offset, patch] = args else { return Err(Stop::Malformed) };
    let (offset, patch) = (parse_i64(offset.bytes).ok_or(NOT_AN_INTEGER)?, patch.bytes);
    let offset = usize::try_from(offset).map_err(|_| &b"ERR offset is out of range"[..])?;
    let found = work.typed(key, &TYPE)?;
    let len = work.len(found);
    if patch.is_empty() {
        reply.integer(len as i64);
        return Ok(());
    }
    let end = offset.saturating_add(patch.len());
    if end > work.value_max() {
        return Err(Stop::Error(TOO_LONG));
    }
    work.spend_on_value(end.max(len))?;
    let mut value = work.take(found);
    value.resize(end.max(len), 0);
    value[end - patch.len()..end].copy_from_slice(patch);
    reply.integer(value.len() as i64);
    work.change(found, Some(Cow::Owned(value)))
}

/// INCR and its kin: the signed step follows the key.
fn step<const SIGN: i64, const GIVEN: bool>(
    planner: &Planner<'_>,
    plan: &mut PlanBuilder,
    spec: &'static Spec,
    command: &Command<'_>,
) -> Result<(), Vec<u8>> {
    let step = if GIVEN { parse_i64(command.arg(2)).ok_or(NOT_AN_INTEGER)? } else { 1 };
    let step = step.checked_mul(SIGN).ok_or(b"ERR decrement would overflow")?;
    let mut text = Vec::with_capacity(20);
    push_i64(&mut text, step);
    spec.begin(plan);
    planner.key(plan, command.arg(1));
    plan.plain(&text);
    Ok(())
}

fn add<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key, step] = args else { return Err(Stop::Malformed) };
    let found = work.typed(key, &TYPE)?;
    let step = parse_i64(step.bytes).ok_or(Stop::Malformed)?;
    let current = work.value(found).map_or(Some(0), parse_i64).ok_or(NOT_AN_INTEGER)?;
    let sum = current.checked_add(step).ok_or(&b"ERR increment or decrement would overflow"[..])?;
    let mut text = Vec::with_capacity(20);
    push_i64(&mut text, sum);
    work.store(found, Cow::Owned(text))?;
    reply.integer(sum);
    Ok(())
}

fn add_float<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key, amount] = args else { return Err(Stop::Malformed) };
    let found = work.typed(key, &TYPE)?;
    let current = work.value(found).map_or(Ok(LongDouble::ZERO), LongDouble::parse);
    let sum = match (current, LongDouble::parse(amount.bytes)) {
        (Ok(current), Ok(amount)) => current.checked_add(amount),
        (Err(NotFinite::Malformed), _) | (_, Err(NotFinite::Malformed)) => {
            return Err(Stop::Error(NOT_A_FLOAT));
        }
        (Err(NotFinite::Infinite), _) | (_, Err(NotFinite::Infinite)) => None,
    };
    let text = sum.ok_or(TOO_LARGE)?.to_string().into_bytes();
    reply.bulk(&text);
    work.store(found, Cow::Owned(text))
}

/// A key with a value of another type answers null.
fn mget<'t>(work: &mut Work<'t>, keys: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    reply.array(keys.len());
    for key in keys {
        let found = work.find(key)?;
        match work.is_of(found, &TYPE) {
            true => work.answer(found, reply)?,
            false => reply.null(),
        }
    }
    Ok(())
}

fn mset<'t>(work: &mut Work<'t>, pairs: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    set_all(work, pairs)?;
    reply.status("OK");
    Ok(())
}

fn mset_nx<'t>(work: &mut Work<'t>, pairs: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    for pair in pairs.chunks(2) {
        let found = work.find(&pair[0])?;
        if work.is_present(found) {
            reply.integer(0);
            return Ok(());
        }
    }
    set_all(work, pairs)?;
    reply.integer(1);
    Ok(())
}

fn set_all<'t>(work: &mut Work<'t>, pairs: &[Arg<'t>]) -> Result<(), Stop> {
    let (pairs, []) = pairs.as_chunks::<2>() else { return Err(Stop::Malformed) };
    pairs.iter().flatten().try_for_each(|arg| work.spend_on_value(arg.bytes.len()))?;
    for [key, value] in pairs {
        let found = work.find(key)?;
        work.overwrite(found, &TYPE, Cow::Borrowed(value.bytes), None)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Sizes, encoding, range};

    #[test]
    fn encodings_are_those_of_redis() {
        let told = |value: &[u8]| encoding(value, &Sizes::default());
        let embedded = ["", "007", "-0", "9223372036854775808", "1.5"];
        assert!(embedded.iter().all(|text| told(text.as_bytes()) == b"embstr"));
        let numbers = ["0", "-5", "9223372036854775807", "-9223372036854775808"];
        assert!(numbers.iter().all(|text| told(text.as_bytes()) == b"int"));
        assert_eq!(told(&[b'x'; 44]), b"embstr");
        assert_eq!(told(&[b'x'; 45]), b"raw");
    }

    #[test]
    fn ranges_are_cut_to_the_value() {
        let cases = [
            ((0, -1), 0..5),
            ((1, 3), 1..4),
            ((-3, -2), 2..4),
            ((-100, 100), 0..5),
            ((4, 2), 0..0),
            ((5, 9), 0..0),
            ((-1, -2), 0..0),
            ((i64::MIN, i64::MAX), 0..5),
            ((i64::MAX, i64::MIN), 0..0),
        ];
        for ((first, last), expected) in cases {
            assert_eq!(range(first, last, 5), expected, "{first} {last}");
        }
        assert_eq!(range(0, -1, 0), 0..0);
    }
}
