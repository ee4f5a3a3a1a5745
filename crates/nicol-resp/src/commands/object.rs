//! OBJECT: what Redis tells of a value besides the value.

use super::errors::{arity_error, unknown_subcommand};
use super::spec::Spec;
use crate::connection::encode::{Protocol, Reply};
use crate::connection::parse::Command;
use crate::transactions::plan::{Arg, PlanBuilder};
use crate::transactions::planner::Planner;
use crate::transactions::work::{Stop, Work};

const HELP: [&str; 7] = [
    "OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "ENCODING <key>",
    "    Return how Redis would hold the value once it is set: int, embstr or raw.",
    "REFCOUNT <key>",
    "    Return 1: no two keys share a value.",
    "HELP",
    "    Prints this help.",
];

// Redis' words, but that it tracks idle times without a policy, too.
const NO_FREQUENCY: &[u8] = b"ERR An LFU maxmemory policy is not selected, access frequency not \
                              tracked. Please note that when switching between policies at runtime \
                              LRU and LFU data will take some time to adjust.";
const NO_IDLE_TIME: &[u8] = b"ERR An LRU maxmemory policy is not selected, idle time not tracked. \
                              Please note that when switching between policies at runtime LRU and \
                              LFU data will take some time to adjust.";
const NOT_TO_SCRIPTS: &[u8] = b"ERR OBJECT FREQ and IDLETIME are not answered to scripts";

/// Subcommands about a key. A plan holds the place of one here.
const QUESTIONS: [&[u8]; 4] = [b"encoding", b"freq", b"idletime", b"refcount"];

/// Adds an OBJECT to a plan: its question by its place, or the lines of HELP.
pub fn plan(
    planner: &Planner<'_>,
    plan: &mut PlanBuilder,
    spec: &'static Spec,
    command: &Command<'_>,
) -> Result<(), Vec<u8>> {
    let name = command.arg(1).to_ascii_lowercase();
    let question = QUESTIONS.iter().position(|known| *known == name);
    let wanted = match (&*name, question) {
        (b"help", _) => 2,
        (_, Some(_)) => 3,
        (_, None) => return Err(unknown_subcommand(command)),
    };
    if command.len() != wanted {
        let name = String::from_utf8_lossy(&name);
        return Err(arity_error(&format!("object|{name}")));
    }
    match question {
        Some(question) => {
            spec.begin(plan);
            let key = command.arg(2);
            planner.key(plan, key);
            plan.plain(&[question as u8]);
            plan.plain(&told(planner, question, key));
        }
        None => {
            let mut lines = Vec::new();
            Reply::new(&mut lines, Protocol::Resp2).lines(&HELP);
            plan.literal(&lines);
        }
    }
    Ok(())
}

/// What the front knows of the accesses to a key: a number, or nothing where it is not kept.
fn told(planner: &Planner<'_>, question: usize, key: &[u8]) -> Vec<u8> {
    let Some(accesses) = planner.accesses() else { return vec![UNKNOWN] };
    let row = planner.row(key);
    let number = match QUESTIONS[question] {
        b"freq" => accesses.frequency(row).map(u64::from),
        b"idletime" => accesses.idle(row).map(|idle| idle.as_secs()),
        _ => None,
    };
    number.map_or(Vec::new(), |number| number.to_le_bytes().to_vec())
}

/// Stands for a number that nobody knows where the command is read.
const UNKNOWN: u8 = 0;

pub fn run<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key, question, number] = args else { return Err(Stop::Malformed) };
    let &[question @ 0..4] = question.bytes else { return Err(Stop::Malformed) };
    let found = work.find(key)?;
    match (work.type_of(found)?, question) {
        (None, _) => reply.null(),
        (Some(kind), 0) => {
            reply.bulk((kind.encoding)(work.value(found).unwrap_or_default(), &work.sizes()));
        }
        (Some(_), 1 | 2) => match (number.bytes.first_chunk(), number.bytes) {
            (Some(number), _) => reply.integer(u64::from_le_bytes(*number) as i64),
            (None, [UNKNOWN]) => return Err(Stop::Error(NOT_TO_SCRIPTS)),
            (None, _) if question == 1 => return Err(Stop::Error(NO_FREQUENCY)),
            (None, _) => return Err(Stop::Error(NO_IDLE_TIME)),
        },
        (Some(_), _) => reply.integer(1),
    }
    Ok(())
}
