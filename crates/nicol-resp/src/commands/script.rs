//! Scripts and functions: what the front makes of EVAL, FCALL, FUNCTION; SCRIPT is in
//! `crate::admin`, and how they run in `crate::scripts`.

use super::key_places::KeyPlaces;
use super::number::{NOT_AN_INTEGER, parse_i64};
use super::spec::{Admin, InMulti, Plan, Run, Spec};
use crate::commands::errors::{OUT_OF_MEMORY, arity_error, unknown_subcommand, wrong_subcommand};
use crate::connection::encode::{Protocol, Reply};
use crate::connection::parse::Command;
use crate::scripts::functions::{self, Deed};
use crate::scripts::head::{Head, LIBRARIES, NOTHING, libraries_row, nothing_row};
use crate::scripts::registry::Script;
use crate::scripts::{Flags, eval, machine};
use crate::transactions::plan::{Op, PlanBuilder};
use crate::transactions::planner::Planner;

const RUNS: &[&str] = &["noscript", "stale", "skip_monitor", "no_mandatory_keys"];
const READS: &[&str] = &["readonly", "noscript", "stale", "skip_monitor", "no_mandatory_keys"];
const CONTAINER: &[&str] = &["noscript"];

const GROUP: &str = "scripting";

pub const COMMANDS: &[Spec] = &[
    runs("eval", RUNS, (plan_eval::<false>, eval), "Execute a script"),
    runs("eval_ro", READS, (plan_eval::<true>, eval), "Execute a script that only reads"),
    runs("evalsha", RUNS, (plan_evalsha::<false>, eval), "Execute a script by its digest"),
    runs(
        "evalsha_ro",
        READS,
        (plan_evalsha::<true>, eval),
        "Execute a script that only reads by its digest",
    ),
    runs("fcall", RUNS, (plan_fcall::<false>, functions::fcall), "Call a function"),
    runs(
        "fcall_ro",
        READS,
        (plan_fcall::<true>, functions::fcall),
        "Call a function that only reads",
    ),
    Spec::data(
        GROUP,
        "function",
        -2,
        (CONTAINER, KeyPlaces::NONE),
        (plan_function, functions::function),
        "Load, list and delete libraries of functions",
    ),
    Spec::admin(
        GROUP,
        "script",
        -2,
        CONTAINER,
        (Admin::Script, InMulti::Queued),
        "Load, find and forget scripts",
    ),
];

const fn runs(
    name: &'static str,
    flags: &'static [&'static str],
    (plan, run): (Plan, Run),
    summary: &'static str,
) -> Spec {
    Spec::data(GROUP, name, -3, (flags, KeyPlaces::counted(2)), (plan, run), summary)
}

const NO_SCRIPT: &[u8] = b"NOSCRIPT No matching script. Please use EVAL.";
const NO_SCRIPTING: &[u8] = b"ERR This Redis command is not allowed from script";

/// How many keys a script has. `wrong` is the error of what is no number.
fn key_count(command: &Command<'_>, wrong: &[u8]) -> Result<usize, Vec<u8>> {
    let count = parse_i64(command.arg(2)).ok_or(wrong)?;
    if count > (command.len() - 3) as i64 {
        return Err(b"ERR Number of keys can't be greater than number of args".to_vec());
    }
    let negative = b"ERR Number of keys can't be negative";
    usize::try_from(count).map_err(|_| negative.to_vec())
}

fn plan_eval<const READS: bool>(
    planner: &Planner<'_>,
    plan: &mut PlanBuilder,
    spec: &'static Spec,
    command: &Command<'_>,
) -> Result<(), Vec<u8>> {
    let (scripts, rights) = planner.scripting().ok_or(NO_SCRIPTING)?;
    let keys = key_count(command, NOT_AN_INTEGER)?;
    let script = scripts.learn(command.arg(1), false, machine::check)?;
    plan_script(planner, plan, spec, (command, keys), (&script, rights, READS));
    Ok(())
}

fn plan_evalsha<const READS: bool>(
    planner: &Planner<'_>,
    plan: &mut PlanBuilder,
    spec: &'static Spec,
    command: &Command<'_>,
) -> Result<(), Vec<u8>> {
    let (scripts, rights) = planner.scripting().ok_or(NO_SCRIPTING)?;
    let keys = key_count(command, NOT_AN_INTEGER)?;
    let script = scripts.find(command.arg(1)).ok_or(NO_SCRIPT)?;
    plan_script(planner, plan, spec, (command, keys), (&script, rights, READS));
    Ok(())
}

fn plan_script(
    planner: &Planner<'_>,
    plan: &mut PlanBuilder,
    spec: &Spec,
    (command, keys): (&Command<'_>, usize),
    (script, rights, only_reads): (&Script, &[u8], bool),
) {
    let head = Head::of(planner, script.flags, only_reads);
    let reads = only_reads || script.flags.only_reads();
    plan.begin(Op::command(spec.number), !reads);
    plan.plain(&head.emit());
    plan.plain(&script.sha);
    plan.plain(&script.text);
    plan_rest(planner, plan, (command, keys), rights);
    if keys == 0 {
        plan.source(nothing_row(), NOTHING);
    }
    plan.script(!reads);
}

/// Adds what the commands of all scripts have: the rights of the user, the keys, the arguments.
fn plan_rest(
    planner: &Planner<'_>,
    plan: &mut PlanBuilder,
    (command, keys): (&Command<'_>, usize),
    rights: &[u8],
) {
    plan.plain(rights);
    plan.plain(&(keys as u32).to_le_bytes());
    command.args(3).take(keys).for_each(|key| planner.key(plan, key));
    command.args(3 + keys).for_each(|arg| plan.plain(arg));
}

fn plan_fcall<const READS: bool>(
    planner: &Planner<'_>,
    plan: &mut PlanBuilder,
    spec: &'static Spec,
    command: &Command<'_>,
) -> Result<(), Vec<u8>> {
    let (_, rights) = planner.scripting().ok_or(NO_SCRIPTING)?;
    let keys = key_count(command, b"ERR Bad number of keys provided")?;
    plan.begin(Op::command(spec.number), !READS);
    plan.plain(&Head::of(planner, Flags::default(), READS).emit());
    plan.plain(command.arg(1));
    plan.source(libraries_row(), LIBRARIES);
    plan_rest(planner, plan, (command, keys), rights);
    plan.script(!READS);
    Ok(())
}

fn plan_function(
    planner: &Planner<'_>,
    plan: &mut PlanBuilder,
    spec: &'static Spec,
    command: &Command<'_>,
) -> Result<(), Vec<u8>> {
    let name = command.arg(1).to_ascii_lowercase();
    let (deed, given) = match (&name[..], command.len()) {
        (b"load", 3..) => load(command)?,
        (b"delete", 3) => (Deed::Delete, command.arg(2)),
        (b"list", _) => list(command)?,
        (b"flush", 2) => (Deed::Flush, &b""[..]),
        (b"flush", 3) => {
            let modes = [&b"sync"[..], b"async"];
            if !modes.iter().any(|mode| command.arg(2).eq_ignore_ascii_case(mode)) {
                return Err(b"ERR FUNCTION FLUSH only supports SYNC|ASYNC option".to_vec());
            }
            (Deed::Flush, &b""[..])
        }
        (b"flush", _) => return Err(wrong_subcommand(command)),
        (b"dump", 2) => (Deed::Dump, &b""[..]),
        (b"restore", 3) => (Deed::Append, command.arg(2)),
        (b"restore", 4) => (policy(command.arg(3))?, command.arg(2)),
        (b"restore", 5..) => return Err(wrong_subcommand(command)),
        (b"stats", 2) => (Deed::Stats, &b""[..]),
        (b"kill", 2) => {
            plan.literal(b"-NOTBUSY No scripts in execution right now.\r\n");
            return Ok(());
        }
        (b"help", 2) => {
            let mut lines = Vec::new();
            Reply::new(&mut lines, Protocol::Resp2).lines(&FUNCTION_HELP);
            plan.literal(&lines);
            return Ok(());
        }
        (b"load" | b"delete" | b"dump" | b"restore" | b"stats" | b"kill" | b"help", _) => {
            let name = String::from_utf8_lossy(&name);
            return Err(arity_error(&format!("function|{name}")));
        }
        _ => return Err(unknown_subcommand(command)),
    };
    if planner.spares && matches!(&name[..], b"load" | b"restore") {
        return Err(OUT_OF_MEMORY.to_vec());
    }
    plan.begin(Op::command(spec.number), deed.writes());
    plan.plain(&Head::of(planner, Flags::default(), false).emit());
    plan.plain(&[deed as u8]);
    plan.key(libraries_row(), LIBRARIES);
    plan.plain(given);
    plan.script(deed.writes());
    Ok(())
}

fn load<'a>(command: &Command<'a>) -> Result<(Deed, &'a [u8]), Vec<u8>> {
    let (mut deed, last) = (Deed::Load, command.len() - 1);
    for option in (2..last).map(|place| command.arg(place)) {
        if !option.eq_ignore_ascii_case(b"replace") {
            return Err([b"ERR Unknown option given: ", option].concat());
        }
        deed = Deed::LoadInPlace;
    }
    Ok((deed, command.arg(last)))
}

fn list<'a>(command: &Command<'a>) -> Result<(Deed, &'a [u8]), Vec<u8>> {
    let (mut deed, mut pattern, mut at) = (Deed::List, None, 2);
    while at < command.len() {
        let option = command.arg(at);
        if deed == Deed::List && option.eq_ignore_ascii_case(b"withcode") {
            deed = Deed::ListWithCode;
        } else if pattern.is_none() && option.eq_ignore_ascii_case(b"libraryname") {
            at += 1;
            if at == command.len() {
                return Err(b"ERR library name argument was not given".to_vec());
            }
            pattern = Some(command.arg(at));
        } else {
            return Err([b"ERR Unknown argument ", option].concat());
        }
        at += 1;
    }
    Ok((deed, pattern.unwrap_or(b"*")))
}

fn policy(text: &[u8]) -> Result<Deed, Vec<u8>> {
    let policies = [
        (&b"append"[..], Deed::Append),
        (b"replace", Deed::Replace),
        (b"flush", Deed::FlushAndRestore),
    ];
    let named = policies.iter().find(|(name, _)| text.eq_ignore_ascii_case(name));
    let wrong = b"ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.";
    named.map(|(_, deed)| *deed).ok_or(wrong.to_vec())
}

const FUNCTION_HELP: [&str; 20] = [
    "FUNCTION <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "LOAD [REPLACE] <FUNCTION CODE>",
    "    Load a library: the code's first line names it.",
    "DELETE <LIBRARY NAME>",
    "    Delete a library.",
    "LIST [LIBRARYNAME PATTERN] [WITHCODE]",
    "    List libraries and their functions.",
    "STATS",
    "    Return how many libraries and functions there are.",
    "KILL",
    "    Answer that no function runs: each ends by its limit.",
    "FLUSH [ASYNC|SYNC]",
    "    Delete all libraries.",
    "DUMP",
    "    Return all libraries in Redis' format.",
    "RESTORE <PAYLOAD> [FLUSH|APPEND|REPLACE]",
    "    Load the libraries of a payload: in place of all, besides the others, or in place of those",
    "    of the same names.",
    "HELP",
    "    Prints this help.",
];
