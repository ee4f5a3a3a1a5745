//! Commands about the server as a whole: its end, what it keeps, its copies, its memory.

use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::commands::errors::{SYNTAX, arity_error, unknown_subcommand};
use crate::commands::spec::Whole;
use crate::config::COMPATIBLE_VERSION;
use crate::connection::parse::Command;
use crate::connection::session::{After, Session};
use crate::shared::Shared;
use crate::transactions::record::{DATABASES, Database};

/// What SAVE and its relatives answer where a crash loses everything.
const NOT_KEPT: &[u8] =
    b"ERR this server keeps nothing on disk: start it with --log-device file:DIR";
/// What they answer where the latest writes may not be on the disk.
const NOT_SYNCED: &[u8] = b"ERR this store's model answers writes before they are on the disk, \
                            and nobody can wait for that: choose another model (nicol systems)";
const NO_DEBUG: &[u8] = b"ERR DEBUG command not allowed: this server has no commands to debug it";
/// This is no replica of another server, and never becomes one.
const NO_REPLICATION: &[u8] = b"ERR copies of this store are kept by its own nodes: it follows no \
                                other server, and none follows it";

/// Answers `command` into `out`.
pub fn answer(
    whole: Whole,
    session: &Session,
    shared: &Shared,
    command: &Command<'_>,
    out: &mut Vec<u8>,
) -> After {
    match whole {
        Whole::BgRewriteAof => {
            save(session, shared, "Background append only file rewriting started", out);
        }
        Whole::BgSave => bgsave(session, shared, command, out),
        Whole::Debug => session.reply(out).error(NO_DEBUG),
        Whole::LastSave => lastsave(session, shared, out),
        Whole::Lolwut => lolwut(session, shared, out),
        Whole::Memory => memory(session, shared, command, out),
        Whole::Module => module(session, command, out),
        Whole::ReplicaOf => replicaof(session, command, out),
        Whole::Replicate => session.reply(out).error(NO_REPLICATION),
        Whole::Role => role(session, out),
        Whole::Save => save(session, shared, "OK", out),
        Whole::Shutdown => return shutdown(session, shared, command, out),
    }
    After::Go
}

/// SHUTDOWN [NOSAVE | SAVE] [NOW] [FORCE] [ABORT]: as SIGTERM. The client gets no reply.
///
/// What has been acknowledged is as durable as the server's settings say, before and after it.
fn shutdown(session: &Session, shared: &Shared, command: &Command<'_>, out: &mut Vec<u8>) -> After {
    let mut reply = session.reply(out);
    let words: Vec<_> = command.args(1).map(<[u8]>::to_ascii_lowercase).collect();
    let is = |word: &Vec<u8>, text: &str| word.as_slice() == text.as_bytes();
    let has = |text| words.iter().any(|word| is(word, text));
    let known = ["save", "nosave", "now", "force", "abort"];
    let all_known = words.iter().all(|word| known.iter().any(|text| is(word, text)));
    if !all_known || has("save") && has("nosave") || has("abort") && words.len() > 1 {
        reply.error(SYNTAX);
        return After::Go;
    }
    if has("abort") {
        reply.error(b"ERR No shutdown in progress.");
        return After::Go;
    }
    match &shared.info.shutdown {
        Some(end) => {
            end();
            After::Close
        }
        None => {
            reply.error(b"ERR this server is ended by the program that runs it");
            After::Go
        }
    }
}

/// Why what has been acknowledged so far may not be on the disk.
fn unsaved(shared: &Shared) -> Option<&'static [u8]> {
    match &shared.info.persistence {
        Some(kept) if kept.synced => None,
        Some(_) => Some(NOT_SYNCED),
        None => Some(NOT_KEPT),
    }
}

/// SAVE, BGSAVE and BGREWRITEAOF, which answer `done`: every write was on the disk when it was
/// answered.
fn save(session: &Session, shared: &Shared, done: &str, out: &mut Vec<u8>) {
    match unsaved(shared) {
        None => session.reply(out).status(done),
        Some(why) => session.reply(out).error(why),
    }
}

/// BGSAVE [SCHEDULE].
fn bgsave(session: &Session, shared: &Shared, command: &Command<'_>, out: &mut Vec<u8>) {
    match command.len() {
        1 => {}
        2 if command.arg(1).eq_ignore_ascii_case(b"schedule") => {}
        _ => return session.reply(out).error(SYNTAX),
    }
    save(session, shared, "Background saving started", out);
}

/// LASTSAVE: now where every write is on the disk when it is answered, else the server's start.
fn lastsave(session: &Session, shared: &Shared, out: &mut Vec<u8>) {
    let since = match unsaved(shared) {
        None => SystemTime::now(),
        Some(_) => SystemTime::now() - shared.started.elapsed(),
    };
    let seconds = since.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    session.reply(out).integer(seconds as i64);
}

/// ROLE: a master. Its copies are no servers of their own, and so none is listed.
fn role(session: &Session, out: &mut Vec<u8>) {
    let mut reply = session.reply(out);
    reply.array(3);
    reply.bulk(b"master");
    reply.integer(0);
    reply.array(0);
}

/// REPLICAOF and SLAVEOF: NO ONE is what it is already.
fn replicaof(session: &Session, command: &Command<'_>, out: &mut Vec<u8>) {
    let no_one =
        command.arg(1).eq_ignore_ascii_case(b"no") && command.arg(2).eq_ignore_ascii_case(b"one");
    match no_one {
        true => session.reply(out).status("OK"),
        false => session.reply(out).error(NO_REPLICATION),
    }
}

/// MODULE: there are none.
fn module(session: &Session, command: &Command<'_>, out: &mut Vec<u8>) {
    let mut reply = session.reply(out);
    match command.arg(1).to_ascii_lowercase().as_slice() {
        b"list" if command.len() == 2 => reply.array(0),
        b"help" if command.len() == 2 => reply.lines(&[
            "MODULE <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
            "LIST",
            "    Return an empty list: this server loads no modules.",
            "HELP",
            "    Print this help.",
        ]),
        _ => reply.error(b"ERR this server loads no modules"),
    }
}

/// LOLWUT [VERSION number].
fn lolwut(session: &Session, shared: &Shared, out: &mut Vec<u8>) {
    let art = "  ____\n /o  o\\   a NIC's cores\n<  ><  >  do the work\n \\____/\n";
    let version = &shared.info.version;
    let text = format!("{art}\nNicol ver. {version}, Redis ver. {COMPATIBLE_VERSION}\n");
    session.reply(out).verbatim_as(b"txt", text.as_bytes());
}

/// MEMORY, but for USAGE, which reads a record.
fn memory(session: &Session, shared: &Shared, command: &Command<'_>, out: &mut Vec<u8>) {
    let mut reply = session.reply(out);
    let name = command.arg(1).to_ascii_lowercase();
    if command.len() != 2 {
        let name = String::from_utf8_lossy(&name).into_owned();
        return reply.error(&arity_error(&format!("memory|{name}")));
    }
    match name.as_slice() {
        b"doctor" => reply.verbatim_as(b"txt", doctor(shared).as_bytes()),
        b"help" => reply.lines(&[
            "MEMORY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
            "DOCTOR",
            "    Say what is remarkable about the memory in use.",
            "MALLOC-STATS",
            "    There are none: the store has an allocator of its own, and INFO its numbers.",
            "PURGE",
            "    Return OK: free memory goes back to the system by itself.",
            "STATS",
            "    Return the memory in use by part.",
            "USAGE <key> [SAMPLES <count>]",
            "    Return the bytes of a key and its value in one copy.",
            "HELP",
            "    Print this help.",
        ]),
        b"malloc-stats" => {
            reply.verbatim_as(b"txt", b"Stats not supported for the current allocator");
        }
        b"purge" => reply.status("OK"),
        b"stats" => {
            let lines = statistics(shared);
            reply.map(lines.len());
            for (name, number) in lines {
                reply.bulk(name.as_bytes());
                reply.integer(number as i64);
            }
        }
        _ => reply.error(&unknown_subcommand(command)),
    }
}

/// The names of Redis where they fit; the store's own parts behind them.
fn statistics(shared: &Shared) -> Vec<(String, u64)> {
    let store = shared.backend.memory();
    let databases = (0..DATABASES).filter_map(|number| Database::new(number as i64));
    let keys: u64 = databases.map(|database| shared.keyspace.keys(database)).sum();
    let used = shared.used_memory().unwrap_or(0);
    let dataset = store.used().0;
    let clients = shared.client_bytes.load(Ordering::Relaxed);
    let mut lines = vec![
        ("total.allocated".to_owned(), used),
        ("startup.allocated".to_owned(), shared.info.process_bytes),
        ("clients.normal".to_owned(), clients),
        ("lua.caches".to_owned(), shared.scripts.counts().1 as u64),
        ("keys.count".to_owned(), keys),
        ("keys.bytes-per-key".to_owned(), dataset / keys.max(1)),
        ("dataset.bytes".to_owned(), dataset),
    ];
    lines.extend(store.parts.into_iter().map(|(part, bytes)| (part.to_owned(), bytes.0)));
    lines
}

fn doctor(shared: &Shared) -> String {
    let (used, resident) = (shared.used_memory(), (shared.info.resident)());
    let near = |limit: u64| used.is_some_and(|used| used > limit / 10 * 9);
    match (shared.max_memory(), used, resident) {
        (Some(limit), ..) if near(limit) => format!(
            "More than 90 % of maxmemory ({limit} bytes) is in use: delete keys, or start the \
             server with more --max-memory.\n"
        ),
        (_, Some(used), Some(resident)) if resident > used / 2 * 3 => format!(
            "The process has {resident} bytes in memory, half as much again as the {used} that \
             are counted: free memory is not back with the system yet.\n"
        ),
        _ => "Nothing is remarkable about the memory in use.\n".to_owned(),
    }
}
