//! Commands that the front answers itself.

use std::time::{SystemTime, UNIX_EPOCH};

use super::admin::{self, COMPATIBLE_VERSION};
use super::commands::Local;
use super::encode::{Protocol, Reply};
use super::number::{NOT_AN_INTEGER, parse_i64};
use super::parse::Command;
use super::session::{After, Multi, Session};
use super::shared::Shared;
use super::translate::arity_error;

const NOT_AN_INT: &[u8] =
    b"ERR value is out of range, value must between -2147483648 and 2147483647";
const WRONG_PASSWORD: &[u8] = b"WRONGPASS invalid username-password pair or user is disabled.";
const NO_PASSWORD: &[u8] = b"ERR AUTH <password> called without any password configured for the \
                             default user. Are you sure your configuration is correct?";
const HELLO_NO_AUTH: &[u8] = b"NOAUTH HELLO must be called with the client already authenticated, \
                               otherwise the HELLO AUTH <user> <pass> option can be used to \
                               authenticate the client and select the RESP protocol version at the \
                               same time";

/// Answers `command` into `out`.
pub fn run(
    local: Local,
    session: &mut Session,
    shared: &Shared,
    command: &Command<'_>,
    out: &mut Vec<u8>,
) -> After {
    let mut reply = session.reply(out);
    match local {
        Local::Auth => return auth(session, shared, command, out),
        Local::Client => return admin::client(session, shared, command, out),
        Local::Cluster => reply.error(b"ERR This instance has cluster support disabled"),
        Local::Command => admin::command(session, command, out),
        Local::Config => admin::config(session, shared, command, out),
        Local::DbSize => reply.integer(shared.key_count() as i64),
        Local::Discard => discard(session, out),
        Local::Echo => reply.bulk(command.arg(1)),
        Local::EvalSha => reply.error(b"NOSCRIPT No matching script. Please use EVAL."),
        Local::Exec => return exec(session, out),
        Local::Hello => return hello(session, shared, command, out),
        Local::Info => admin::info(session, shared, command, out),
        Local::Multi if session.multi.is_some() => {
            reply.error(b"ERR MULTI calls can not be nested");
        }
        Local::Multi => {
            session.multi = Some(Multi::default());
            session.reply(out).status("OK");
        }
        Local::Ping => match command.len() {
            1 => reply.status("PONG"),
            2 => reply.bulk(command.arg(1)),
            _ => reply.error(&arity_error("ping")),
        },
        Local::Quit => {
            reply.status("OK");
            return After::Close;
        }
        Local::Reset => {
            session.reset(shared);
            session.reply(out).status("RESET");
        }
        Local::Select => match parse_i64(command.arg(1)) {
            Some(0) => reply.status("OK"),
            Some(number) if i32::try_from(number).is_ok() => {
                reply.error(b"ERR DB index is out of range");
            }
            Some(_) => reply.error(NOT_AN_INT),
            None => reply.error(NOT_AN_INTEGER),
        },
        Local::Time => time(&mut reply),
        Local::Unwatch => {
            if session.multi.is_none() {
                session.watches.clear();
            }
            session.reply(out).status("OK");
        }
        Local::NoList => reply.error(b"ERR not supported: this store does not list its keys"),
        // A commit has been replicated at every backup before it is answered.
        Local::Wait => match (parse_i64(command.arg(1)), parse_i64(command.arg(2))) {
            (Some(_), Some(timeout)) if timeout >= 0 => {
                reply.integer(shared.info.replicas as i64 - 1);
            }
            (Some(_), Some(_)) => reply.error(b"ERR timeout is negative"),
            (Some(_), None) => reply.error(b"ERR timeout is not an integer or out of range"),
            (None, _) => reply.error(NOT_AN_INTEGER),
        },
        Local::Watch if session.multi.is_some() => {
            reply.error(b"ERR WATCH inside MULTI is not allowed");
        }
        Local::Watch => return After::Watch,
    }
    After::Go
}

fn time(reply: &mut Reply<'_>) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    reply.array(2);
    reply.bulk(now.as_secs().to_string().as_bytes());
    reply.bulk(now.subsec_micros().to_string().as_bytes());
}

fn discard(session: &mut Session, out: &mut Vec<u8>) {
    if session.multi.take().is_none() {
        session.reply(out).error(b"ERR DISCARD without MULTI");
        return;
    }
    session.watches.clear();
    session.reply(out).status("OK");
}

fn exec(session: &mut Session, out: &mut Vec<u8>) -> After {
    match &session.multi {
        None => session.reply(out).error(b"ERR EXEC without MULTI"),
        Some(multi) if multi.failed => {
            session.multi = None;
            session.watches.clear();
            let text = b"EXECABORT Transaction discarded because of previous errors.";
            session.reply(out).error(text);
        }
        Some(_) => return After::Exec,
    }
    After::Go
}

fn auth(session: &mut Session, shared: &Shared, command: &Command<'_>, out: &mut Vec<u8>) -> After {
    if command.len() > 3 {
        session.reply(out).error(b"ERR syntax error");
        return After::Go;
    }
    if command.len() == 2 && shared.config.password.is_none() {
        session.reply(out).error(NO_PASSWORD);
        return After::Go;
    }
    let user = if command.len() == 3 { command.arg(1) } else { b"default" };
    let (right, wait) = login(session, shared, user, command.arg(command.len() - 1));
    match right {
        true => session.reply(out).status("OK"),
        false => session.reply(out).error(WRONG_PASSWORD),
    }
    wait
}

/// Judges a user and a password; the only user is `default`.
fn login(session: &mut Session, shared: &Shared, user: &[u8], password: &[u8]) -> (bool, After) {
    let (right, wait) = match &shared.config.password {
        Some(expected) => shared.login(session.client.peer.ip(), expected, password),
        // As in Redis, the user without a password accepts any.
        None => (true, None),
    };
    let right = right && user == b"default";
    session.authenticated |= right;
    if !right {
        tracing::warn!(peer = %session.client.peer, "login refused");
    }
    (right, wait.map_or(After::Go, After::Wait))
}

fn hello(
    session: &mut Session,
    shared: &Shared,
    command: &Command<'_>,
    out: &mut Vec<u8>,
) -> After {
    let mut protocol = session.protocol;
    if command.len() > 1 {
        let Some(number) = parse_i64(command.arg(1)) else {
            let text = b"ERR Protocol version is not an integer or out of range";
            session.reply(out).error(text);
            return After::Go;
        };
        let known = u8::try_from(number).ok().and_then(Protocol::from_number);
        let Some(known) = known else {
            session.reply(out).error(b"NOPROTO unsupported protocol version");
            return After::Go;
        };
        protocol = known;
    }
    let (mut index, mut wait, mut name) = (2, After::Go, None);
    while index < command.len() {
        let more = command.len() - 1 - index;
        match command.arg(index).to_ascii_uppercase().as_slice() {
            b"AUTH" if more >= 2 => {
                let (user, password) = (command.arg(index + 1), command.arg(index + 2));
                let (right, waits) = login(session, shared, user, password);
                wait = waits;
                if !right {
                    session.reply(out).error(WRONG_PASSWORD);
                    return wait;
                }
                index += 3;
            }
            b"SETNAME" if more >= 1 => {
                name = Some(command.arg(index + 1));
                index += 2;
            }
            _ => {
                let mut text = b"ERR Syntax error in HELLO option '".to_vec();
                text.extend_from_slice(command.arg(index));
                text.push(b'\'');
                session.reply(out).error(&text);
                return wait;
            }
        }
    }
    if !session.authenticated {
        session.reply(out).error(HELLO_NO_AUTH);
        return wait;
    }
    if let Some(name) = name
        && let Err(text) = admin::set_name(session, name)
    {
        session.reply(out).error(text);
        return wait;
    }
    session.protocol = protocol;
    greet(session, out);
    wait
}

fn greet(session: &Session, out: &mut Vec<u8>) {
    let mut reply = session.reply(out);
    reply.map(7);
    // Clients choose their behaviour by these two: what they talk to answers like that Redis.
    for (name, value) in [("server", "redis"), ("version", COMPATIBLE_VERSION)] {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"proto");
    reply.integer(i64::from(session.protocol.number()));
    reply.bulk(b"id");
    reply.integer(session.id as i64);
    for (name, value) in [("mode", "standalone"), ("role", "master")] {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"modules");
    reply.array(0);
}
