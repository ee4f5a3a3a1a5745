//! How commands are run: those of plans, and those that scripts call.

use std::cell::RefCell;

use super::news::NO_RECEIVERS;
use super::plan::{Arg, Kind, Op, Plan, PlanBuilder};
use super::work::{Commands, Scripted, Stop, Work};
use crate::acl::selector::Denied;
use crate::acl::user::User;
use crate::commands::errors::OUT_OF_MEMORY;
use crate::commands::number::database;
use crate::commands::spec::{Action, Admin, Spec};
use crate::commands::{TABLE, lookup, rights, type_of};
use crate::connection::encode::Reply;
use crate::scripts::caller::Caller;
use crate::scripts::meter::BYTES_PER_INSTRUCTION;

/// What transactions need of the commands.
pub static COMMANDS: Commands = Commands { types: type_of, call, may_call };

/// Records that a transaction finds out about one by one. Behind them a script whose command finds
/// no record goes on as if there were none, to learn what else it will ask for: so a transaction
/// of thousands of keys that nobody declared needs few rounds, of which a store runs
/// 64 at most. What such a run writes and answers is forgotten.
const ASKED_ONE_BY_ONE: usize = 16;

const UNKNOWN: &[u8] = b"ERR Unknown Redis command called from script";
const ARITY: &[u8] = b"ERR Wrong number of args calling Redis command from script";
const NOT_ALLOWED: &[u8] = b"ERR This Redis command is not allowed from script";
const ONLY_READS: &[u8] = b"ERR Write commands are not allowed from read-only scripts.";
const NO_COMMAND: &[u8] = b"ERR The user executing the script can't run this command or subcommand";
const NO_KEY: &[u8] = b"ERR The user executing the script can't access at least one of the keys \
                        mentioned in the command arguments";
const NO_CHANNEL: &[u8] =
    b"ERR The user executing the script can't publish to the channel mentioned in the command";

/// Executes one command; an error that it answers stands in place of its reply, and is counted.
pub fn command<'t>(
    work: &mut Work<'t>,
    plan: &Plan<'t>,
    (op, args): (Op, &[Arg<'t>]),
    output: &mut Vec<u8>,
) -> Result<(), Stop> {
    let start = output.len();
    perform(work, plan, (op, args), output)?;
    if output.get(start) == Some(&b'-') {
        // What is wrong with a literal's command was found when it was planned.
        let planned = match (op, args) {
            (Op::LITERAL, [_, place]) => place.bytes.first_chunk().copied().map(u16::from_le_bytes),
            _ => None,
        };
        planned.into_iter().for_each(|place| work.tally().called(place));
        let place = planned.or(op.place().map(|place| place as u16));
        work.tally().failed(place, &output[start..]);
    }
    Ok(())
}

/// The place of EXEC in the table.
pub fn exec() -> Option<u16> {
    lookup(b"exec").map(|spec| spec.number)
}

fn perform<'t>(
    work: &mut Work<'t>,
    plan: &Plan<'t>,
    (op, args): (Op, &[Arg<'t>]),
    output: &mut Vec<u8>,
) -> Result<(), Stop> {
    let start = output.len();
    let spec = op.place().and_then(|place| TABLE.get(place));
    work.begin(
        plan.tells
            && spec
                .is_some_and(|spec| ["getdel", "getex", "getset", "pfmerge"].contains(&spec.name)),
    );
    let mut reply = Reply::new(output, plan.protocol);
    let done = match (op, args) {
        (Op::LITERAL, [text, ..]) => {
            work.spend(text.bytes.len())?;
            output.extend_from_slice(text.bytes);
            Ok(())
        }
        (Op::LIST, [row]) => work.list(row, &mut reply),
        (Op::EMPTY, [row]) => work.empty(row).map(|keys| reply.integer(keys)),
        (Op::EVICT, [row, only]) => {
            work.evict(row, only.bytes == [1]).map(|keys| reply.integer(keys))
        }
        (Op::PURGE, [row]) => work.purge(row).map(|next| reply.integer(next)),
        (_, args) => match spec.map(|spec| (spec.name, spec.action)) {
            Some((name, Action::Data(_, run))) => {
                run(work, args, &mut reply).map(|()| work.tell(name, args))
            }
            Some((_, Action::Admin(Admin::Publish { sharded }, _))) => {
                work.publish(sharded, start, args)?;
                output.extend_from_slice(NO_RECEIVERS);
                Ok(())
            }
            Some((_, Action::Admin(..))) | None => Err(Stop::Malformed),
        },
    };
    if done == Err(Stop::More) {
        // Those behind it may ask for more; then all run again.
        output.truncate(start);
        return Ok(());
    }
    if let Err(Stop::Error(text)) = done {
        output.truncate(start);
        Reply::new(output, plan.protocol).error(text);
        return Ok(());
    }
    done
}

/// Runs the command that a script calls.
fn call<'t>(
    work: &mut Work<'t>,
    caller: &mut Caller<'t>,
    output: &mut Vec<u8>,
) -> Result<(), Stop> {
    let spec = match checked(caller) {
        Ok(spec) => spec,
        Err(text) => {
            let known = lookup(caller.words.command().arg(0)).map(|spec| spec.number);
            work.tally().rejected(known, text);
            return Err(Stop::Error(text));
        }
    };
    work.tally().called(spec.number);
    let start = output.len();
    let done = match spec.action {
        Action::Admin(admin, _) => answer(work, caller, (admin, spec), output),
        Action::Data(..) => execute(work, caller, spec, output),
    };
    // A SELECT is shown in the database that it has chosen, as by Redis.
    if caller.is_watched {
        work.show(caller.database, caller.words.command().args(0))?;
    }
    match done {
        Err(Stop::Error(text)) => work.tally().failed(Some(spec.number), text),
        Ok(()) if output.get(start) == Some(&b'-') => {
            work.tally().failed(Some(spec.number), &output[start..]);
        }
        _ => {}
    }
    done
}

/// The command of a script, if a script, this one and its user may have it run.
fn checked(caller: &Caller<'_>) -> Result<&'static Spec, &'static [u8]> {
    let command = caller.words.command();
    let spec = lookup(command.arg(0)).ok_or(UNKNOWN)?;
    let no_subcommand = rights::has_subcommands(spec)
        && command.len() > 1
        && rights::subcommand(spec, command.arg(1)).is_none();
    if no_subcommand {
        return Err(UNKNOWN);
    }
    if !spec.accepts(command.len()) {
        return Err(ARITY);
    }
    if spec.flags.contains(&"noscript") {
        return Err(NOT_ALLOWED);
    }
    match allowed(caller, spec) {
        Err(Denied::Command) => return Err(NO_COMMAND),
        Err(Denied::Key(_)) => return Err(NO_KEY),
        Err(Denied::Channel(_)) => return Err(NO_CHANNEL),
        Ok(()) => {}
    }
    let spreads = spec.writes() || ["pfcount", "publish", "spublish"].contains(&spec.name);
    if caller.only_reads && spreads {
        return Err(ONLY_READS);
    }
    if caller.spares && spec.may_grow() {
        return Err(OUT_OF_MEMORY);
    }
    Ok(spec)
}

fn may_call(caller: &Caller<'_>) -> Result<bool, &'static [u8]> {
    let command = caller.words.command();
    let known = lookup(command.arg(0)).filter(|spec| spec.accepts(command.len()));
    let spec = known.ok_or(&b"ERR Invalid command passed to redis.acl_check_cmd()"[..])?;
    Ok(allowed(caller, spec).is_ok())
}

thread_local! {
    /// The user of the last script that had not all rights, and these.
    static USER: RefCell<(Vec<u8>, User)> = RefCell::new((Vec::new(), User::new(b"")));
}

/// Whether the rights of the script's user allow its command, one of `spec`.
fn allowed(caller: &Caller<'_>, spec: &Spec) -> Result<(), Denied> {
    if caller.rights.is_empty() {
        return Ok(());
    }
    let words: Vec<_> = caller.words.command().args(0).collect();
    USER.with_borrow_mut(|(known, user)| {
        if known != caller.rights {
            let rules: Vec<_> = caller.rights.split(|byte| *byte == b' ').collect();
            *user = User::new(b"");
            // The front has written them: if they cannot be read, nothing is allowed.
            user.apply(&rules).map_err(|_| Denied::Command)?;
            *known = caller.rights.to_vec();
        }
        user.check(spec, &words)
    })
}

/// Runs a command of a script over records.
fn execute<'t>(
    work: &mut Work<'t>,
    caller: &mut Caller<'t>,
    spec: &'static Spec,
    output: &mut Vec<u8>,
) -> Result<(), Stop> {
    caller.commands += 1;
    let (whole, mut builder, mut expiring) = (work.plan(), PlanBuilder::new(), Vec::new());
    spec.plan(&caller.planner(whole.now), &mut builder, &caller.words.command());
    if builder.is_alone() {
        let text = "command is not allowed with BLOCK option from scripts";
        Reply::new(output, caller.version).error(format!("ERR {} {text}", spec.name).as_bytes());
        return Ok(());
    }
    builder.take_expiring(&mut expiring);
    let planned = builder.finish(Kind::Batch, caller.version, whole.bounds, &[], whole.now);
    let mut plan = Plan::parse(caller.kept.keep(planned.request().args.clone()))?;
    plan.tells = whole.tells;
    let (mut cursor, mut args) = (plan.cursor(), Vec::new());
    let op = cursor.command(&mut args)?;
    if !work.has_records(&args)? {
        lack(work)?;
    }
    let bytes: usize = args.iter().map(|arg| arg.bytes.len() + work.bytes_of(arg)).sum();
    if !caller.meter.charge(bytes as u64 / BYTES_PER_INSTRUCTION) {
        return Ok(());
    }
    let asked = work.asked();
    perform(work, &plan, (op, &args), output)?;
    if work.asked() > asked {
        lack(work)?;
    }
    expiring.into_iter().for_each(|(deadline, row)| work.note_expiry(deadline, row));
    Ok(())
}

/// A record is not there that has been asked for: the run ends, or goes on with a guess.
fn lack(work: &mut Work<'_>) -> Result<(), Stop> {
    if !work.guesses() {
        if work.undeclared() < ASKED_ONE_BY_ONE {
            return Err(Stop::More);
        }
        work.guess();
    }
    Ok(())
}

/// Answers a command of a script that needs no record.
fn answer<'t>(
    work: &mut Work<'t>,
    caller: &mut Caller<'t>,
    (admin, spec): (Admin, &Spec),
    output: &mut Vec<u8>,
) -> Result<(), Stop> {
    let command = caller.words.command();
    let mut reply = Reply::new(output, caller.version);
    match admin {
        Admin::Publish { sharded } => {
            let bytes = [command.arg(1), command.arg(2)];
            let sent = bytes.map(|bytes| Arg { row: None, writes: false, bytes });
            // Nobody knows yet who will get it.
            work.publish_silently(sharded, &sent)?;
            reply.integer(0);
        }
        Admin::Ping if command.len() == 1 => reply.status("PONG"),
        Admin::Ping if command.len() == 2 => reply.bulk(command.arg(1)),
        Admin::Echo => reply.bulk(command.arg(1)),
        Admin::Select => match database(command.arg(1)) {
            Ok(database) => {
                caller.database = database;
                reply.status("OK");
            }
            Err(text) => reply.error(text),
        },
        Admin::Time => {
            let now = work.now();
            reply.array(2);
            reply.bulk((now / 1_000).to_string().as_bytes());
            reply.bulk((now % 1_000 * 1_000).to_string().as_bytes());
        }
        Admin::Cluster => reply.error(b"ERR This instance has cluster support disabled"),
        Admin::Ping => reply.error(ARITY),
        Admin::DbSize
        | Admin::FlushAll
        | Admin::FlushDb
        | Admin::Keys
        | Admin::RandomKey
        | Admin::Scan => {
            let name = spec.name.to_uppercase();
            let text = format!("ERR {name} is not allowed from script: it is no transaction");
            reply.error(text.as_bytes());
        }
        _ => reply.error(NOT_ALLOWED),
    }
    Ok(())
}
