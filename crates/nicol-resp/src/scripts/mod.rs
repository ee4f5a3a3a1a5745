//! Scripts and functions: EVAL, FCALL and what belongs to them.
//!
//! A script is one command of a transaction. The front plans it (`commands/script.rs`): its text,
//! its keys and arguments, and a [`head`] with the seed of what it draws and the limits of its
//! commands. The engines run it as they run every command, on the thread's [`machine`]. What it
//! calls runs on the records of the transaction ([`run`]), so that scripts, MULTI and plain
//! commands are strictly serializable together, and it may touch keys that nobody has declared: a
//! command that finds no record ends the run, and the procedure runs again from its start when the
//! record is there.
//!
//! A run may be repeated, on this thread or another one, so it depends on nothing but its
//! transaction: time stands still, what it draws follows from the seed, and the machine is as new
//! ([`machine`]). It ends with an error and without effect where it takes more than its budget
//! ([`meter`]): the engine's thread, which renews leases and serves all other clients, waits for no
//! script longer than that.
//!
//! [`registry`] has the scripts that EVALSHA finds, a cache of the server. Libraries of functions
//! ([`functions`]) are a record of the store: as durable as every record, and the same on every
//! node.

pub mod arena;
pub mod caller;
mod convert;
pub mod flags;
pub mod functions;
pub mod head;
mod libraries;
mod library;
pub mod machine;
pub mod meter;
mod raise;
mod random;
pub mod registry;
mod run;
pub mod sent;
pub mod shebang;

use self::caller::Caller;
pub use self::flags::Flags;
use self::head::Head;
use self::machine::{Machine, Task};
use self::run::Run;
use crate::connection::encode::Reply;
use crate::transactions::plan::Arg;
use crate::transactions::work::{Scripted, Stop, Work};

/// The error of a script that writes, or may, where only reads are allowed.
const WRITES: &[u8] = b"ERR Can not execute a script with write flag using *_ro command.";
const SPARES: &[u8] = b"OOM allow-oom flag is not set on the script, can not run it when used \
                        memory > 'maxmemory'";
const NO_MEMORY: &[u8] = b"ERR the script takes too much memory (limit 16 MB): it had no effect";

/// Runs a script. Its arguments in a plan: the head, the digest, the text, the rights of its user
/// or nothing if these are all, how many keys it has (4 bytes); then the keys and its arguments.
pub fn eval<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [head, sha, text, rest @ ..] = args else { return Err(Stop::Malformed) };
    let head = Head::parse(head.bytes).ok_or(Stop::Malformed)?;
    let sha = sha.bytes.try_into().map_err(|_| Stop::Malformed)?;
    if head.only_reads && head.flags.says_it_writes() {
        return Err(Stop::Error(WRITES));
    }
    on_machine(work, head, |machine, work| {
        perform(
            machine,
            work,
            (head, head.flags),
            (Task::Script { sha, text: text.bytes }, rest),
            reply,
        )
    })
}

/// Does something with the thread's machine, on the budget of the transaction.
fn on_machine<'t, R>(
    work: &mut Work<'t>,
    head: Head,
    act: impl FnOnce(&mut Machine, &mut Work<'t>) -> mlua::Result<Result<R, Stop>>,
) -> Result<R, Stop> {
    let done = machine::with(|machine| {
        machine.begin(work.script_budget(), head.seed)?;
        let done = act(machine, work);
        work.leave_budget(machine.meter().left());
        machine.end()?;
        done
    });
    match done.and_then(|done| done) {
        Ok(done) => done,
        Err(_) => Err(Stop::Spent(NO_MEMORY)),
    }
}

/// Runs `task`, of which `rest` says the rights, the keys and the arguments.
fn perform<'t>(
    machine: &mut Machine,
    work: &mut Work<'t>,
    (head, flags): (Head, Flags),
    (task, rest): (Task<'_>, &[Arg<'t>]),
    reply: &mut Reply<'_>,
) -> mlua::Result<Result<(), Stop>> {
    let [rights, keys, rest @ ..] = rest else { return Ok(Err(Stop::Malformed)) };
    if head.spares && flags.says_it_grows() {
        return Ok(Err(Stop::Error(SPARES)));
    }
    let keys = keys.bytes.first_chunk().map(|count| u32::from_le_bytes(*count) as usize);
    let Some((keys, args)) = keys.and_then(|keys| rest.split_at_checked(keys)) else {
        return Ok(Err(Stop::Malformed));
    };
    let args: Vec<_> = args.iter().filter(|arg| arg.row.is_none()).collect();
    let args: Vec<_> = args.into_iter().map(|arg| arg.bytes).collect();
    let keys: Vec<_> = keys.iter().map(|arg| arg.bytes).collect();
    let start = reply.written();
    let tools = (machine.meter().clone(), work.arena().end());
    let mut run = Run::new(work, Caller::new(head, rights.bytes, flags, tools));
    let done = machine.run(&mut run, task, [&keys, &args], reply)?;
    if run.caller.is_counted {
        work.tally().is_counted();
    }
    if let Err(why) = done.and_then(|()| work.spend(reply.written() - start)) {
        reply.truncate(start);
        return Ok(Err(why));
    }
    Ok(Ok(()))
}
