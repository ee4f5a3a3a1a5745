//! AUTH and HELLO.

use std::time::Instant;

use super::acl::note_refusal;
use super::client::set_name;
use crate::acl::log::Reason;
use crate::commands::errors::SYNTAX;
use crate::commands::number::parse_i64;
use crate::config::COMPATIBLE_VERSION;
use crate::connection::encode::Protocol;
use crate::connection::parse::Command;
use crate::connection::session::{After, Session};
use crate::events::Event;
use crate::logins::Judged;
use crate::shared::{Shared, count};

const WRONG_PASSWORD: &[u8] = b"WRONGPASS invalid username-password pair or user is disabled.";
const TOO_MANY: &[u8] =
    b"ERR too many wrong passwords from this address: try again in some seconds";
const NO_PASSWORD: &[u8] = b"ERR AUTH <password> called without any password configured for the \
                             default user. Are you sure your configuration is correct?";
const HELLO_NO_AUTH: &[u8] = b"NOAUTH HELLO must be called with the client already authenticated, \
                               otherwise the HELLO AUTH <user> <pass> option can be used to \
                               authenticate the client and select the RESP protocol version at the \
                               same time";

pub fn auth(
    session: &mut Session,
    shared: &Shared,
    command: &Command<'_>,
    out: &mut Vec<u8>,
) -> After {
    if command.len() > 3 {
        session.reply(out).error(SYNTAX);
        return After::Go;
    }
    if command.len() == 2 && shared.users.default_user().takes_any() {
        session.reply(out).error(NO_PASSWORD);
        return After::Go;
    }
    let user = if command.len() == 3 { command.arg(1) } else { b"default" };
    let (right, wait) =
        login(session, shared, (user, command.arg(command.len() - 1)), command.arg(0));
    match right {
        true => session.reply(out).status("OK"),
        false => session.reply(out).error(refusal(wait)),
    }
    wait
}

/// What is told to a client whose login was refused, and closed if too many wait.
fn refusal(after: After) -> &'static [u8] {
    match after {
        After::Close => TOO_MANY,
        _ => WRONG_PASSWORD,
    }
}

/// Judges a user and a password.
fn login(
    session: &mut Session,
    shared: &Shared,
    (user, password): (&[u8], &[u8]),
    how: &[u8],
) -> (bool, After) {
    let account = shared.users.get(user);
    let judged = match &account {
        // As in Redis, a user without a password accepts any.
        Some(account) if account.takes_any() => Judged::Answer(true, None),
        _ => shared.logins.judge(session.client.peer.ip(), Instant::now(), || {
            // The time does not tell whether there is such a user.
            let judge = account.as_ref().unwrap_or(&session.user);
            judge.accepts(password) && account.is_some()
        }),
    };
    let (right, after) = match judged {
        Judged::Answer(right, wait) => (right, wait.map_or(After::Go, After::Wait)),
        Judged::TooMany => (false, After::Close),
    };
    if right && let Some(account) = account {
        session.log_in(account);
    }
    if !right {
        note_refusal(session, shared, Reason::Auth, how, user);
        count(&shared.counters.login_failures, 1);
        shared.events.note(Event::LoginRefused, &session.client.peer);
    }
    (right, after)
}

pub fn hello(
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
                let (right, waits) = login(session, shared, (user, password), command.arg(0));
                wait = waits;
                if !right {
                    session.reply(out).error(refusal(wait));
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
        && let Err(text) = set_name(session, name)
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
