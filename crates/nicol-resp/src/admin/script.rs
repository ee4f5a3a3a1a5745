//! SCRIPT.

use crate::commands::errors::{arity_error, unknown_subcommand};
use crate::connection::parse::Command;
use crate::connection::session::Session;
use crate::scripts::machine;
use crate::scripts::registry::hex;
use crate::shared::Shared;

const HELP: [&str; 15] = [
    "SCRIPT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "DEBUG (YES|SYNC|NO)",
    "    Refused but for NO: a script is a transaction, and does not stop in its midst.",
    "EXISTS <sha1> [<sha1> ...]",
    "    Return which scripts are known.",
    "FLUSH [ASYNC|SYNC]",
    "    Forget all scripts.",
    "KILL",
    "    Answer that no script runs: each ends by its limit.",
    "LOAD <script>",
    "    Keep a script for EVALSHA.",
    "HELP",
    "    Prints this help.",
    "A script ends with an error and without effect after 5,000,000 instructions, 250 ms or 16 MB",
    "of memory.",
];

/// SCRIPT.
pub fn answer(session: &Session, shared: &Shared, command: &Command<'_>, out: &mut Vec<u8>) {
    let mut reply = session.reply(out);
    let name = command.arg(1).to_ascii_lowercase();
    match (&name[..], command.len()) {
        (b"load", 3) => match shared.scripts.learn(command.arg(2), true, machine::check) {
            Ok(script) => reply.bulk(hex(&script.sha).as_bytes()),
            Err(text) => reply.error(&text),
        },
        (b"exists", 3..) => {
            reply.array(command.len() - 2);
            for sha in command.args(2) {
                reply.integer(shared.scripts.find(sha).is_some().into());
            }
        }
        (b"flush", 2) => {
            shared.scripts.flush();
            reply.status("OK");
        }
        (b"flush", 3) => {
            let modes = [&b"sync"[..], b"async"];
            match modes.iter().any(|mode| command.arg(2).eq_ignore_ascii_case(mode)) {
                true => {
                    shared.scripts.flush();
                    reply.status("OK");
                }
                false => reply.error(b"ERR SCRIPT FLUSH only support SYNC|ASYNC option"),
            }
        }
        (b"flush", _) => reply.error(b"ERR SCRIPT FLUSH only support SYNC|ASYNC option"),
        (b"kill", 2) => reply.error(b"NOTBUSY No scripts in execution right now."),
        (b"debug", 3) => match command.arg(2).to_ascii_lowercase().as_slice() {
            b"no" => reply.status("OK"),
            b"yes" | b"sync" => reply.error(
                b"ERR there is no debugger: a script is a transaction, and does not stop in its \
                  midst",
            ),
            _ => reply.error(b"ERR Use SCRIPT DEBUG YES/SYNC/NO"),
        },
        (b"help", 2) => reply.lines(&HELP),
        (b"load" | b"exists" | b"kill" | b"debug" | b"help", _) => {
            let name = String::from_utf8_lossy(&name);
            reply.error(&arity_error(&format!("script|{name}")));
        }
        _ => reply.error(&unknown_subcommand(command)),
    }
}
