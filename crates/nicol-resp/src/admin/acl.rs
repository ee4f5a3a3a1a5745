//! ACL.

use std::sync::Arc;
use std::time::Instant;

use super::client::line;
use crate::acl::file;
use crate::acl::log::{Entry, Reason, Refusal};
use crate::acl::selector::{Denied, Selector};
use crate::acl::user::User;
use crate::commands::errors::{arity_error, unknown_command};
use crate::commands::lookup;
use crate::commands::number::parse_i64;
use crate::commands::rights::{self, CATEGORIES, Categories, NUMBERS};
use crate::commands::spec::takes;
use crate::connection::encode::Reply;
use crate::connection::parse::Command;
use crate::connection::session::{After, Session};
use crate::pubsub::Scope;
use crate::shared::Shared;

/// The subcommands with their arities.
const SUBCOMMANDS: [(&str, i32); 13] = [
    ("cat", -2),
    ("deluser", -3),
    ("dryrun", -4),
    ("genpass", -2),
    ("getuser", 3),
    ("help", 2),
    ("list", 2),
    ("load", 2),
    ("log", -2),
    ("save", 2),
    ("setuser", -3),
    ("users", 2),
    ("whoami", 2),
];

const HELP: [&str; 14] = [
    "ACL <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CAT [<category>]",
    "DELUSER <username> [<username> ...]",
    "DRYRUN <username> <command> [<arg> ...]",
    "GENPASS [<bits>]",
    "GETUSER <username>",
    "LIST",
    "LOAD",
    "LOG [<count> | RESET]",
    "SAVE",
    "SETUSER <username> <attribute> [<attribute> ...]",
    "USERS",
    "WHOAMI",
    "HELP",
];

const NO_FILE: &[u8] =
    b"ERR This Redis instance is not configured to use an ACL file. You may want \
                         to specify users via the ACL SETUSER command and then issue a CONFIG \
                         REWRITE (assuming you have a Redis configuration file set) in order to \
                         store users in the Redis configuration.";
const BAD_NAME: &[u8] = b"ERR Usernames can't contain spaces or null characters";
const BAD_BITS: &[u8] = b"ERR ACL GENPASS argument must be the number of bits for the output \
                          password, a positive number up to 4096";

/// Bits of a password from ACL GENPASS, unless others are asked for, and the most.
const GENPASS_BITS: i64 = 256;
const GENPASS_BITS_MAX: i64 = 4_096;
/// Entries that ACL LOG answers unless others are asked for.
const LOG_ENTRIES: usize = 10;

/// ACL.
pub fn answer(
    session: &mut Session,
    shared: &Shared,
    command: &Command<'_>,
    out: &mut Vec<u8>,
) -> After {
    let asked = command.arg(1).to_ascii_lowercase();
    // One that does not exist was refused before.
    let known = SUBCOMMANDS.iter().find(|(name, _)| name.as_bytes() == asked);
    let mut reply = session.reply(out);
    match known {
        Some((name, arity)) if !takes(*arity, command.len()) => {
            reply.error(&arity_error(&format!("acl|{name}")));
            return After::Go;
        }
        _ => {}
    }
    match asked.as_slice() {
        b"cat" => cat(command, &mut reply),
        b"deluser" => return delete(session, shared, command, out),
        b"dryrun" => dry_run(shared, command, &mut reply),
        b"genpass" => generate(command, &mut reply),
        b"getuser" => match shared.users.get(command.arg(2)) {
            Some(user) => describe(&user, &mut reply),
            None => reply.null(),
        },
        b"list" => {
            let all = shared.users.named();
            reply.array(all.len());
            all.values().for_each(|user| reply.bulk(&user.describe()));
        }
        b"load" => return load(session, shared, out),
        b"log" => log(shared, command, &mut reply),
        b"save" => save(shared, &mut reply),
        b"setuser" => return set(session, shared, command, out),
        b"users" => {
            let all = shared.users.named();
            reply.array(all.len());
            all.keys().for_each(|name| reply.bulk(name));
        }
        b"whoami" => reply.bulk(&session.user.name),
        _ => reply.lines(&HELP),
    }
    After::Go
}

fn cat(command: &Command<'_>, reply: &mut Reply<'_>) {
    if command.len() == 2 {
        reply.array(CATEGORIES.len());
        CATEGORIES.iter().for_each(|name| reply.bulk(name.as_bytes()));
    } else if command.len() > 3 {
        reply.error(&arity_error("acl|cat"));
    } else if let Some(category) = Categories::named(command.arg(2)) {
        let in_it = |number: &usize| rights::categories(*number).meets(category);
        let numbers: Vec<_> = (0..NUMBERS).filter(in_it).collect();
        reply.array(numbers.len());
        numbers.iter().for_each(|number| reply.bulk(rights::name(*number).as_bytes()));
    } else {
        reply.error(&[b"ERR Unknown category '", command.arg(2), b"'"].concat());
    }
}

fn set(session: &Session, shared: &Shared, command: &Command<'_>, out: &mut Vec<u8>) -> After {
    let (name, mut reply) = (command.arg(2), session.reply(out));
    if name.is_empty() || name.iter().any(|byte| byte.is_ascii_whitespace() || *byte == 0) {
        reply.error(BAD_NAME);
        return After::Go;
    }
    let rules: Vec<_> = command.args(3).collect();
    match shared.users.set(name, &rules) {
        Ok(()) => {
            reply.status("OK");
            close_listeners(session, shared, name)
        }
        Err(refused) => {
            let text = refused.text("Error in ACL SETUSER modifier");
            reply.error(&[b"ERR ", text.as_slice()].concat());
            After::Go
        }
    }
}

/// Closes the clients of a user that listen to what it may not listen to any more.
fn close_listeners(session: &Session, shared: &Shared, name: &[u8]) -> After {
    let (mut after, Some(user)) = (After::Go, shared.users.get(name)) else { return After::Go };
    for client in shared.clients.all().values() {
        let denied = client.listens() && client.user() == name && {
            let subscriptions = shared.pubsub.of(client.id);
            let denies = |scope: &Scope| {
                let is_pattern = *scope == Scope::Patterns;
                let mut names = subscriptions.of(*scope).iter();
                names.any(|name| !user.allows_channel(name, is_pattern))
            };
            Scope::ALL.iter().any(denies)
        };
        match denied {
            true if client.id == session.client.id => after = After::Close,
            true => client.kill(),
            false => {}
        }
    }
    after
}

fn delete(session: &Session, shared: &Shared, command: &Command<'_>, out: &mut Vec<u8>) -> After {
    let mut reply = session.reply(out);
    if command.args(2).any(|name| name == crate::acl::names::DEFAULT) {
        reply.error(b"ERR The 'default' user cannot be removed");
        return After::Go;
    }
    let removed: Vec<_> = command.args(2).filter(|name| shared.users.remove(name)).collect();
    reply.integer(removed.len() as i64);
    let names: Vec<_> = removed.iter().map(|name| name.to_vec()).collect();
    close(session, shared, &names)
}

/// Closes the clients of users that are gone or have become others.
fn close(session: &Session, shared: &Shared, users: &[Vec<u8>]) -> After {
    let mut after = After::Go;
    for client in shared.clients.all().values() {
        match users.contains(&client.user()) {
            true if client.id == session.client.id => after = After::Close,
            true => client.kill(),
            false => {}
        }
    }
    after
}

fn load(session: &Session, shared: &Shared, out: &mut Vec<u8>) -> After {
    let mut reply = session.reply(out);
    let Some(path) = shared.users.file() else {
        reply.error(NO_FILE);
        return After::Go;
    };
    match file::load(path) {
        Ok(new) => {
            reply.status("OK");
            let changed = shared.users.replace(new);
            close(session, shared, &changed)
        }
        Err(error) => {
            let text = format!("ERR {error}. The users are as they were before.");
            reply.error(text.as_bytes());
            After::Go
        }
    }
}

fn save(shared: &Shared, reply: &mut Reply<'_>) {
    let Some(path) = shared.users.file() else {
        reply.error(NO_FILE);
        return;
    };
    match file::save(path, &shared.users.named()) {
        Ok(()) => reply.status("OK"),
        Err(error) => {
            let text = format!("ERR the users are not saved in {}: {error}", path.display());
            reply.error(text.as_bytes());
        }
    }
}

/// A password of random hexadecimal digits.
fn generate(command: &Command<'_>, reply: &mut Reply<'_>) {
    let asked = if command.len() == 3 { parse_i64(command.arg(2)) } else { Some(GENPASS_BITS) };
    let Some(bits) = asked.filter(|bits| (1..=GENPASS_BITS_MAX).contains(bits)) else {
        reply.error(BAD_BITS);
        return;
    };
    let digits = (bits as usize).div_ceil(4);
    let mut random = vec![0; digits.div_ceil(2)];
    if let Err(error) = getrandom::fill(&mut random) {
        reply.error(format!("ERR the system gives no random numbers: {error}").as_bytes());
        return;
    }
    let text: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    reply.bulk(&text.as_bytes()[..digits]);
}

fn describe(user: &Arc<User>, reply: &mut Reply<'_>) {
    reply.map(6);
    reply.bulk(b"flags");
    let flags = user.flags();
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"passwords");
    reply.array(user.passwords().len());
    user.passwords().iter().for_each(|hash| reply.bulk(hash.to_string().as_bytes()));
    let (root, others) = user.selectors();
    describe_selector(root, reply);
    reply.bulk(b"selectors");
    reply.array(others.len());
    for selector in others {
        reply.map(3);
        describe_selector(selector, reply);
    }
}

fn describe_selector(selector: &Selector, reply: &mut Reply<'_>) {
    reply.bulk(b"commands");
    reply.bulk(selector.commands_text().as_bytes());
    reply.bulk(b"keys");
    reply.bulk(&selector.keys_text());
    reply.bulk(b"channels");
    reply.bulk(&selector.channels_text());
}

fn dry_run(shared: &Shared, command: &Command<'_>, reply: &mut Reply<'_>) {
    let (name, words) = (command.arg(2), command.args(3).collect::<Vec<_>>());
    let Some(user) = shared.users.get(name) else {
        reply.error(&[b"ERR User '", name, b"' not found"].concat());
        return;
    };
    let Some(spec) = lookup(words[0]) else {
        reply.error(&[b"ERR Command '", words[0], b"' not found"].concat());
        return;
    };
    if !spec.accepts(words.len()) {
        reply.error(&arity_error(spec.name));
        return;
    }
    match user.check(spec, &words) {
        Ok(()) => reply.status("OK"),
        Err(Denied::Command) => {
            let name = rights::name(rights::number(spec, &words));
            let text = format!("This user has no permissions to run the '{name}' command");
            reply.bulk(text.as_bytes());
        }
        Err(Denied::Key(place)) => {
            let text = b"This user has no permissions to access the '";
            reply.bulk(&[text, words[place], b"' key"].concat());
        }
        Err(Denied::Channel(place)) => {
            let text = b"This user has no permissions to access the '";
            reply.bulk(&[text, words[place], b"' channel"].concat());
        }
    }
}

fn log(shared: &Shared, command: &Command<'_>, reply: &mut Reply<'_>) {
    let mut entries = shared.users.log.entries();
    let count = match command.len() {
        2 => LOG_ENTRIES,
        3 if command.arg(2).eq_ignore_ascii_case(b"reset") => {
            entries.clear();
            reply.status("OK");
            return;
        }
        3 => match parse_i64(command.arg(2)) {
            Some(count) => usize::try_from(count).unwrap_or(0),
            None => {
                reply.error(crate::commands::number::NOT_AN_INTEGER);
                return;
            }
        },
        _ => {
            reply.error(&unknown_command(command));
            return;
        }
    };
    let now = Instant::now();
    reply.array(entries.len().min(count));
    entries.iter().take(count).for_each(|entry| tell(entry, now, reply));
}

fn tell(entry: &Entry, now: Instant, reply: &mut Reply<'_>) {
    let Refusal { reason, in_multi, object, user } = &entry.refusal;
    let age = now.saturating_duration_since(entry.last).as_secs_f64();
    reply.map(7);
    reply.bulk(b"count");
    reply.integer(entry.count as i64);
    for (name, value) in [
        ("reason", reason.name().as_bytes()),
        ("context", if *in_multi { b"multi" } else { b"toplevel" }),
        ("object", object),
        ("username", user),
    ] {
        reply.bulk(name.as_bytes());
        reply.bulk(value);
    }
    reply.bulk(b"age-seconds");
    reply.double(age);
    reply.bulk(b"client-info");
    reply.bulk(entry.client.as_bytes());
}

/// Notes that `user` was refused `object`.
pub fn note_refusal(
    session: &Session,
    shared: &Shared,
    reason: Reason,
    object: &[u8],
    user: &[u8],
) {
    let in_multi = session.multi.is_some();
    let refusal = Refusal { reason, in_multi, object: object.to_vec(), user: user.to_vec() };
    shared.users.log.note(refusal, line(session, shared), Instant::now());
}
