//! XGROUP: groups and their consumers, created, changed and deleted.

use super::groups::{Group, Groups};
use super::id::Id;
use super::value::Stream;
use super::{TYPE, integer, is, store};
use crate::commands::errors::{arity_error, unknown_subcommand, wrong_subcommand};
use crate::commands::spec::{Spec, takes};
use crate::connection::encode::{Protocol, Reply};
use crate::connection::parse::Command;
use crate::transactions::plan::{Arg, PlanBuilder};
use crate::transactions::planner::Planner;
use crate::transactions::work::{Stop, Work};

const NO_KEY: &[u8] =
    b"ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use \
      the MKSTREAM option to create an empty stream automatically.";

const HELP: [&str; 15] = [
    "XGROUP <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CREATE <key> <groupname> <id|$> [option]",
    "    Create a new consumer group. Options are:",
    "    * MKSTREAM",
    "      Create the empty stream if it does not exist.",
    "    * ENTRIESREAD entries_read",
    "      Set the group's entries_read counter (internal use).",
    "CREATECONSUMER <key> <groupname> <consumer>",
    "    Create a new consumer in the specified group.",
    "DELCONSUMER <key> <groupname> <consumer>",
    "    Remove the specified consumer.",
    "DESTROY <key> <groupname>",
    "    Remove the specified group.",
    "SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]",
    "    Set the current group ID and entries_read counter.",
];

/// Subcommands with their numbers of arguments, the two words of the name included.
const SUBCOMMANDS: [(&str, i32); 5] =
    [("create", -5), ("setid", -5), ("destroy", 4), ("createconsumer", 5), ("delconsumer", 5)];

/// Adds a command with subcommands about a key to a plan: the key, the subcommand, which is one of
/// `known`, and the arguments behind; or the lines of HELP.
pub fn plan_subcommand(
    (planner, plan): (&Planner<'_>, &mut PlanBuilder),
    spec: &'static Spec,
    command: &Command<'_>,
    known: &[(&str, i32)],
    help: &[&str],
) -> Result<(), Vec<u8>> {
    let name = command.arg(1).to_ascii_lowercase();
    let name = String::from_utf8_lossy(&name);
    let arity = |arity| match takes(arity, command.len()) {
        true => Ok(()),
        false => Err(arity_error(&format!("{}|{name}", spec.name))),
    };
    if name == "help" {
        arity(2)?;
        let mut lines = Vec::new();
        Reply::new(&mut lines, Protocol::Resp2).lines(help);
        plan.literal(&lines);
        return Ok(());
    }
    let place = known.iter().position(|(known, _)| *known == name);
    let place = place.ok_or_else(|| unknown_subcommand(command))?;
    arity(known[place].1)?;
    spec.begin(plan);
    planner.key(plan, command.arg(2));
    plan.plain(command.arg(1));
    command.args(3).for_each(|arg| plan.plain(arg));
    Ok(())
}

pub fn plan_xgroup(
    planner: &Planner<'_>,
    plan: &mut PlanBuilder,
    spec: &'static Spec,
    command: &Command<'_>,
) -> Result<(), Vec<u8>> {
    let help = [&HELP[..], &["HELP", "    Print this help."]].concat();
    check(command)?;
    plan_subcommand((planner, plan), spec, command, &SUBCOMMANDS, &help)
}

/// Refuses options that a subcommand does not take.
fn check(command: &Command<'_>) -> Result<(), Vec<u8>> {
    let name = command.arg(1).to_ascii_lowercase();
    let (creates, sets) = (name == b"create", name == b"setid");
    if !creates && !sets || command.len() < 5 {
        return Ok(());
    }
    let mut at = 5;
    while at < command.len() {
        let option = command.arg(at);
        if creates && option.eq_ignore_ascii_case(b"mkstream") {
            at += 1;
        } else if option.eq_ignore_ascii_case(b"entriesread") && at + 1 < command.len() {
            let number = Arg { row: None, writes: false, bytes: command.arg(at + 1) };
            entries_read(&number)?;
            at += 2;
        } else {
            return Err(wrong_subcommand(command));
        }
    }
    let takes = if creates { command.len() <= 8 } else { matches!(command.len(), 5 | 7) };
    if takes { Ok(()) } else { Err(wrong_subcommand(command)) }
}

/// Reads how many entries a group has read. Errors: the text that the command answers.
fn entries_read(number: &Arg<'_>) -> Result<Option<u64>, Vec<u8>> {
    match integer(number) {
        Ok(-1) => Ok(None),
        Ok(number @ 0..) => Ok(Some(number as u64)),
        Ok(_) => Err(b"ERR value for ENTRIESREAD must be positive or -1".to_vec()),
        Err(_) => Err(crate::commands::number::NOT_AN_INTEGER.to_vec()),
    }
}

/// What CREATE and SETID are given behind the group.
#[derive(Debug)]
struct Given<'a> {
    id: &'a [u8],
    creates_stream: bool,
    read: Option<u64>,
}

impl<'a> Given<'a> {
    fn parse(args: &[Arg<'a>]) -> Option<Self> {
        let (id, options) = args.split_first()?;
        let mut given = Self { id: id.bytes, creates_stream: false, read: None };
        let mut options = options.iter();
        while let Some(option) = options.next() {
            match is(option, b"mkstream") {
                true => given.creates_stream = true,
                false => given.read = entries_read(options.next()?).ok()?,
            }
        }
        Some(given)
    }
}

/// The subcommand that `word` names.
pub fn named(known: &[(&'static str, i32)], word: &Arg<'_>) -> Result<&'static str, Stop> {
    let found = known.iter().find(|(name, _)| is(word, name.as_bytes()));
    found.map(|(name, _)| *name).ok_or(Stop::Malformed)
}

/// XGROUP.
pub fn xgroup<'t>(
    work: &mut Work<'t>,
    args: &[Arg<'t>],
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    let [key, word, name, rest @ ..] = args else { return Err(Stop::Malformed) };
    let subcommand = named(&SUBCOMMANDS, word)?;
    let found = work.typed(key, &TYPE)?;
    let given = match subcommand {
        "create" | "setid" => Some(Given::parse(rest).ok_or(Stop::Malformed)?),
        _ => None,
    };
    let creates_stream = given.as_ref().is_some_and(|given| given.creates_stream);
    if !work.is_present(found) && !creates_stream {
        return Err(Stop::Error(NO_KEY));
    }
    let old = work.contents(found);
    let mut stream = Stream::parse(&old)?;
    let bytes = stream.group_bytes();
    let mut groups = Groups::parse(&bytes)?;
    if matches!(subcommand, "setid" | "createconsumer" | "delconsumer")
        && !groups.0.contains_key(name.bytes)
    {
        let parts =
            [b"NOGROUP No such consumer group '", name.bytes, b"' for key name '", key.bytes, b"'"];
        reply.error(&parts.concat());
        return Ok(());
    }
    let (mut done, mut answer) = (None, 0);
    match (subcommand, given, rest) {
        ("create", Some(given), _) => {
            let last = if given.id == b"$" { stream.last } else { Id::parse(given.id, 0)? };
            if groups.0.contains_key(name.bytes) {
                return Err(Stop::Error(b"BUSYGROUP Consumer Group name already exists"));
            }
            let group = Group { last, read: given.read, ..Group::default() };
            groups.0.insert(name.bytes, group);
            done = Some("xgroup-create");
        }
        ("setid", Some(given), _) => {
            let last = if given.id == b"$" { stream.last } else { Id::parse_any(given.id, 0)? };
            let group = groups.0.get_mut(name.bytes).ok_or(Stop::Malformed)?;
            (group.last, group.read) = (last, given.read);
            done = Some("xgroup-setid");
        }
        ("destroy", ..) => {
            if groups.0.remove(name.bytes).is_some() {
                (done, answer) = (Some("xgroup-destroy"), 1);
            }
        }
        (_, _, [consumer]) => {
            let group = groups.0.get_mut(name.bytes).ok_or(Stop::Malformed)?;
            if subcommand == "delconsumer" {
                answer = group.pending_of(consumer.bytes).count() as i64;
                if group.consumers.remove(consumer.bytes).is_some() {
                    group.pending.retain(|_, pending| pending.consumer != consumer.bytes);
                    done = Some("xgroup-delconsumer");
                }
            } else if !group.consumers.contains_key(consumer.bytes) {
                group.consumers.insert(consumer.bytes, work.now());
                (done, answer) = (Some("xgroup-createconsumer"), 1);
            }
        }
        _ => return Err(Stop::Malformed),
    }
    if let Some(event) = done {
        stream.set_groups(groups.pack());
        store(work, found, &stream, &[event])?;
    }
    match subcommand {
        "create" | "setid" => reply.status("OK"),
        _ => reply.integer(answer),
    }
    Ok(())
}
