//! GEORADIUS and GEORADIUSBYMEMBER: the older forms of GEOSEARCH and GEOSEARCHSTORE.

use super::search::{self, Form};
use crate::commands::errors::SYNTAX;
use crate::commands::spec::Spec;
use crate::config::ARGUMENTS_MAX;
use crate::connection::encode::Reply;
use crate::connection::parse::Command;
use crate::transactions::plan::{Arg, Op, PlanBuilder};
use crate::transactions::planner::Planner;
use crate::transactions::work::{Stop, Work};

/// Where the options begin: behind the key, the centre, the radius and its unit.
fn options_at(name: &str) -> usize {
    if name.starts_with("georadiusbymember") { 5 } else { 6 }
}

/// The places of the keys that `words`, a request for `spec`, stores into: behind STORE and
/// STOREDIST. Of several the last counts.
pub fn stored<'a>(spec: &Spec, len: usize, word: impl Fn(usize) -> &'a [u8]) -> Vec<usize> {
    let (mut stored, mut at) = (Vec::new(), options_at(spec.name));
    while spec.writes() && at < len {
        let stores = [&b"store"[..], b"storedist"].iter().any(|s| word(at).eq_ignore_ascii_case(s));
        at += 1;
        if stores && at < len {
            stored.push(at);
            at += 1;
        }
    }
    stored
}

/// The key that is stored into, if there is one; the key; then the words of a GEOSEARCH.
pub fn plan(
    planner: &Planner<'_>,
    plan: &mut PlanBuilder,
    spec: &'static Spec,
    command: &Command<'_>,
) -> Result<(), Vec<u8>> {
    // Two words more stand in the plan.
    if command.len() > ARGUMENTS_MAX - 2 {
        return Err(SYNTAX.to_vec());
    }
    let options = options_at(spec.name);
    let stored = stored(spec, command.len(), |place| command.arg(place));
    plan.begin(Op::command(spec.number), !stored.is_empty());
    if let Some(place) = stored.last() {
        planner.key(plan, command.arg(*place));
    }
    planner.source(plan, command.arg(1));
    let (radius, centre) = (options - 2, 2..options - 2);
    plan.plain(if centre.len() == 1 { b"frommember" } else { b"fromlonlat" });
    centre.for_each(|place| plan.plain(command.arg(place)));
    plan.plain(b"byradius");
    plan.plain(command.arg(radius));
    plan.plain(command.arg(radius + 1));
    for place in options..command.len() {
        let is_key = stored.contains(&place);
        let is_store = stored.contains(&(place + 1)) && command.arg(place).len() == "store".len();
        if !is_key && !is_store {
            plan.plain(command.arg(place));
        }
    }
    Ok(())
}

pub fn run<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    match args {
        [to, from, args @ ..] if to.writes => {
            search::store(work, (to, from), args, Form::StoringRadius, reply)
        }
        [key, args @ ..] => search::find(work, key, args, Form::Radius, reply),
        [] => Err(Stop::Malformed),
    }
}
