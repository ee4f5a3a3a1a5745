//! Commands that read or change a key's deadline.

use super::expiry::{Expiry, IF_ANY, IF_EARLIER, IF_LATER, IF_NONE, Unit, conditions};
use super::key_places::KeyPlaces;
use super::spec::{Plan, READ, REMOVE, Run, Spec, as_sent};
use crate::connection::encode::Reply;
use crate::connection::parse::Command;
use crate::transactions::plan::{Arg, PlanBuilder};
use crate::transactions::planner::Planner;
use crate::transactions::work::{Stop, Work};

const SECONDS: Unit = Unit { seconds: true, absolute: false };
const MILLIS: Unit = Unit { seconds: false, absolute: false };
const UNIX: Unit = Unit { seconds: true, absolute: true };
const UNIX_MILLIS: Unit = Unit { seconds: false, absolute: true };

pub const COMMANDS: &[Spec] = &[
    expiring("expire", plan_expire::<0>, "Let a key expire after so many seconds"),
    expiring("expireat", plan_expire::<1>, "Let a key expire at a Unix time"),
    told("expiretime", ttl::<1>, "Return the Unix time at which a key expires"),
    persisted(),
    expiring("pexpire", plan_expire::<2>, "Let a key expire after so many milliseconds"),
    expiring("pexpireat", plan_expire::<3>, "Let a key expire at a Unix time in milliseconds"),
    told("pexpiretime", ttl::<3>, "Return the Unix time at which a key expires, in ms"),
    told("pttl", ttl::<2>, "Return the milliseconds until a key expires"),
    told("ttl", ttl::<0>, "Return the seconds until a key expires"),
];

/// The units by the number that commands are generic over.
const UNITS: [Unit; 4] = [SECONDS, UNIX, MILLIS, UNIX_MILLIS];

const fn expiring(name: &'static str, plan: Plan, summary: &'static str) -> Spec {
    Spec::data("generic", name, -3, (REMOVE, KeyPlaces::ONE), (plan, expire), summary)
}

const fn told(name: &'static str, run: Run, summary: &'static str) -> Spec {
    Spec::data("generic", name, 2, (READ, KeyPlaces::ONE), (as_sent, run), summary)
}

const fn persisted() -> Spec {
    let summary = "Let a key not expire";
    Spec::data("generic", "persist", 2, (REMOVE, KeyPlaces::ONE), (as_sent, persist), summary)
}

fn plan_expire<const UNIT: usize>(
    planner: &Planner<'_>,
    plan: &mut PlanBuilder,
    spec: &'static Spec,
    command: &Command<'_>,
) -> Result<(), Vec<u8>> {
    let conditions = conditions(command.args(3))?;
    let expiry = UNITS[UNIT].read(command.arg(2), true, planner.now(), spec.name)?;
    spec.begin(plan);
    planner.key(plan, command.arg(1));
    planner.deadline(plan, &[conditions], expiry, command.arg(1));
    Ok(())
}

/// EXPIRE and its kin; behind the key stand the conditions and an expiry.
fn expire<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key, how] = args else { return Err(Stop::Malformed) };
    let (&flags, expiry) = how.bytes.split_first().ok_or(Stop::Malformed)?;
    let expiry = Expiry::parse(expiry).ok_or(Stop::Malformed)?;
    let found = work.find(key)?;
    let current = work.expires(found);
    let deadline = expiry.deadline(work.now(), current).ok_or(Stop::Malformed)?;
    let set = |flag: u8| flags & flag != 0;
    let refused = !work.is_present(found)
        || set(IF_NONE) && current.is_some()
        || set(IF_ANY) && current.is_none()
        // No deadline is later than any.
        || set(IF_LATER) && current.is_none_or(|current| deadline <= current)
        || set(IF_EARLIER) && current.is_some_and(|current| deadline >= current);
    if !refused {
        work.move_deadline(found, Some(deadline))?;
    }
    reply.integer(i64::from(!refused));
    Ok(())
}

/// TTL and its kin.
fn ttl<'t, const UNIT: usize>(
    work: &mut Work<'t>,
    args: &[Arg<'t>],
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    let [key] = args else { return Err(Stop::Malformed) };
    let found = work.find(key)?;
    reply.integer(match (work.is_present(found), work.expires(found)) {
        (false, _) => -2,
        (true, None) => -1,
        (true, Some(deadline)) => {
            let time = if UNITS[UNIT].absolute { deadline } else { deadline - work.now() };
            // Rounded as Redis rounds, not down.
            if UNITS[UNIT].seconds { time.saturating_add(500) / 1_000 } else { time }
        }
    });
    Ok(())
}

fn persist<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key] = args else { return Err(Stop::Malformed) };
    let found = work.find(key)?;
    let had = work.expires(found).is_some();
    if had {
        work.move_deadline(found, None)?;
    }
    reply.integer(i64::from(had));
    Ok(())
}
