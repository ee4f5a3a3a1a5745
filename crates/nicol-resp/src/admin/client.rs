//! CLIENT.

use std::time::{Duration, Instant};

use super::tracking;
use crate::commands::errors::{SYNTAX, arity_error, wrong_subcommand};
use crate::commands::number::{NOT_AN_INTEGER, parse_i64};
use crate::commands::rights;
use crate::commands::spec::takes;
use crate::connection::address::Address;
use crate::connection::clients::{Client, CommandNumber};
use crate::connection::parse::Command;
use crate::connection::session::{After, Answers, Session};
use crate::pause::Paused;
use crate::shared::Shared;

const BAD_NAME: &[u8] = b"ERR Client names cannot contain spaces, newlines or special characters.";

/// The subcommands with their arities.
const SUBCOMMANDS: [(&str, i32); 17] = [
    ("client|caching", 3),
    ("client|getname", 2),
    ("client|getredir", 2),
    ("client|help", 2),
    ("client|id", 2),
    ("client|info", 2),
    ("client|kill", -3),
    ("client|list", -2),
    ("client|no-evict", 3),
    ("client|pause", -3),
    ("client|reply", 3),
    ("client|setinfo", 4),
    ("client|setname", 3),
    ("client|tracking", -3),
    ("client|trackinginfo", 2),
    ("client|unblock", -3),
    ("client|unpause", 2),
];

const HELP: (&str, i32) = ("client|help", 2);

const CLIENT_HELP: [&str; 19] = [
    "CLIENT <subcommand> [<arg> ...]. Subcommands are:",
    "CACHING (YES|NO)",
    "GETNAME",
    "GETREDIR",
    "ID",
    "INFO",
    "KILL <ip:port>",
    "KILL <ID|ADDR|LADDR|TYPE|USER|SKIPME> <value> [...]",
    "LIST [TYPE <type>|ID <id> ...]",
    "NO-EVICT (ON|OFF)",
    "PAUSE <timeout> [WRITE|ALL]",
    "REPLY (ON|OFF|SKIP)",
    "SETINFO <option> <value>",
    "SETNAME <name>",
    "TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]] [OPTIN] [OPTOUT] [NOLOOP]",
    "TRACKINGINFO",
    "UNBLOCK <clientid> [TIMEOUT|ERROR]",
    "UNPAUSE",
    "HELP",
];

/// CLIENT.
pub fn answer(
    session: &mut Session,
    shared: &Shared,
    command: &Command<'_>,
    out: &mut Vec<u8>,
) -> After {
    let asked = [b"client|", command.arg(1).to_ascii_lowercase().as_slice()].concat();
    // One that does not exist was refused before.
    let known = SUBCOMMANDS.iter().find(|(name, _)| name.as_bytes() == asked);
    let (name, arity) = known.unwrap_or(&HELP);
    if !takes(*arity, command.len()) {
        session.reply(out).error(&arity_error(name));
        return After::Go;
    }
    let done: Result<(), Vec<u8>> = match *name {
        "client|getname" => {
            let name = session.client.seen().name.clone();
            session.reply(out).bulk_or_null((!name.is_empty()).then_some(&name[..]));
            return After::Go;
        }
        "client|id" => {
            session.reply(out).integer(session.id as i64);
            return After::Go;
        }
        "client|info" => {
            info(session, shared, out);
            return After::Go;
        }
        "client|kill" => return kill(session, shared, command, out),
        "client|list" => {
            list(session, shared, command, out);
            return After::Go;
        }
        "client|caching" => tracking::set_caching(session, command.arg(2)),
        "client|tracking" => tracking::set(session, shared, command),
        "client|getredir" => {
            let mode = shared.tracking.mode(session.id).map(|(mode, _)| mode);
            session.reply(out).integer(tracking::redirect(mode.as_ref()));
            return After::Go;
        }
        "client|trackinginfo" => {
            tracking::tell(session, shared, out);
            return After::Go;
        }
        "client|pause" => pause(command).map(|pause| session.pause = Some(pause)),
        "client|unpause" => {
            shared.pause.end();
            shared.clients.all().values().for_each(|client| client.wake());
            Ok(())
        }
        "client|reply" => match set_answers(session, command.arg(2)) {
            // Who wants no answer gets none to this either.
            Ok(()) if session.answers != Answers::On => return After::Go,
            done => done,
        },
        "client|unblock" => match unblock(shared, command) {
            Ok(unblocked) => {
                session.reply(out).integer(i64::from(unblocked));
                return After::Go;
            }
            Err(text) => Err(text),
        },
        "client|no-evict" => set_no_evict(session, command.arg(2)).map_err(Into::into),
        "client|setinfo" => set_info(session, command.arg(2), command.arg(3)).map_err(Into::into),
        "client|setname" => set_name(session, command.arg(2)).map_err(Into::into),
        _ => {
            session.reply(out).lines(&CLIENT_HELP);
            return After::Go;
        }
    };
    match done {
        Ok(()) => session.reply(out).status("OK"),
        Err(text) => session.reply(out).error(&text),
    }
    After::Go
}

/// The pause that CLIENT PAUSE asks for.
fn pause(command: &Command<'_>) -> Result<(Paused, Duration), Vec<u8>> {
    const MODE: &[u8] = b"ERR CLIENT PAUSE mode must be WRITE or ALL";
    let paused = match (command.arg(3).to_ascii_lowercase().as_slice(), command.len()) {
        (_, 3) | (b"all", 4) => Paused::All,
        (b"write", 4) => Paused::Writes,
        (_, 4) => return Err(MODE.into()),
        _ => return Err(wrong_subcommand(command)),
    };
    let millis = parse_i64(command.arg(2));
    let millis = millis.ok_or(b"ERR timeout is not an integer or out of range")?;
    let millis = u64::try_from(millis).map_err(|_| b"ERR timeout is negative")?;
    Ok((paused, Duration::from_millis(millis)))
}

fn set_answers(session: &mut Session, value: &[u8]) -> Result<(), Vec<u8>> {
    session.answers = match value.to_ascii_lowercase().as_slice() {
        b"on" => Answers::On,
        b"off" => Answers::Off,
        b"skip" if session.answers == Answers::Off => Answers::Off,
        b"skip" => Answers::SkipNext,
        _ => return Err(SYNTAX.into()),
    };
    Ok(())
}

/// Ends the wait of a client; `false`: it does not wait.
fn unblock(shared: &Shared, command: &Command<'_>) -> Result<bool, Vec<u8>> {
    const REASON: &[u8] = b"ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR";
    let with_error = match (command.arg(3).to_ascii_lowercase().as_slice(), command.len()) {
        (_, 3) | (b"timeout", 4) => false,
        (b"error", 4) => true,
        (_, 4) => return Err(REASON.into()),
        _ => return Err(wrong_subcommand(command)),
    };
    let id = parse_i64(command.arg(2)).ok_or(NOT_AN_INTEGER)?;
    let client = shared.clients.all().get(&(id as u64)).cloned();
    Ok(client.is_some_and(|client| client.unblock(with_error)))
}

fn set_no_evict(session: &Session, value: &[u8]) -> Result<(), &'static [u8]> {
    session.client.seen().no_evict = match value.to_ascii_lowercase().as_slice() {
        b"on" => true,
        b"off" => false,
        _ => return Err(SYNTAX),
    };
    Ok(())
}

fn set_info(session: &Session, option: &[u8], value: &[u8]) -> Result<(), &'static [u8]> {
    let mut seen = session.client.seen();
    let field = match option.to_ascii_lowercase().as_slice() {
        b"lib-name" => &mut seen.library,
        b"lib-ver" => &mut seen.library_version,
        _ => return Err(b"ERR Unrecognized option for CLIENT SETINFO"),
    };
    if !value.iter().all(u8::is_ascii_graphic) {
        return Err(
            b"ERR CLIENT SETINFO values cannot contain spaces, newlines or special characters.",
        );
    }
    *field = value.to_vec();
    Ok(())
}

/// Sets the client's name, if it is one.
pub fn set_name(session: &Session, name: &[u8]) -> Result<(), &'static [u8]> {
    if !name.iter().all(u8::is_ascii_graphic) {
        return Err(BAD_NAME);
    }
    session.client.seen().name = name.to_vec();
    Ok(())
}

/// The command of a number, or the subcommand of CLIENT.
fn name_of(number: CommandNumber) -> &'static str {
    match usize::from(number.0).checked_sub(1) {
        None => "NULL",
        Some(number) => rights::name(number),
    }
}

fn describe(client: &Client, shared: &Shared, now: Instant, text: &mut String) {
    let mode = shared.tracking.mode(client.id).map(|(mode, _)| mode);
    client.describe(now, name_of, tracking::redirect(mode.as_ref()), text);
}

/// The client's line of CLIENT LIST.
pub fn line(session: &Session, shared: &Shared) -> String {
    let mut text = String::new();
    describe(&session.client, shared, Instant::now(), &mut text);
    text.truncate(text.trim_end().len());
    text
}

fn info(session: &Session, shared: &Shared, out: &mut Vec<u8>) {
    session.reply(out).verbatim(&(line(session, shared) + "\n"));
}

fn list(session: &Session, shared: &Shared, command: &Command<'_>, out: &mut Vec<u8>) {
    match listed(shared, command) {
        Ok(text) => session.reply(out).verbatim(&text),
        Err(error) => session.reply(out).error(&error),
    }
}

fn listed(shared: &Shared, command: &Command<'_>) -> Result<String, Vec<u8>> {
    let (mut text, now) = (String::new(), Instant::now());
    let all = shared.clients.all();
    match (command.arg(2).to_ascii_lowercase().as_slice(), command.len()) {
        (_, 2) => all.values().for_each(|client| describe(client, shared, now, &mut text)),
        (b"type", 4) => {
            let kind = Kind::parse(command.arg(3))?;
            let fitting = all.values().filter(|client| kind.has(client));
            fitting.for_each(|client| describe(client, shared, now, &mut text));
        }
        (b"id", 4..) => {
            for id in command.args(3) {
                let id = parse_i64(id).ok_or(b"ERR Invalid client ID")?;
                if let Some(client) = all.get(&(id as u64)) {
                    describe(client, shared, now, &mut text);
                }
            }
        }
        _ => return Err(SYNTAX.into()),
    }
    Ok(text)
}

/// A type of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Normal,
    /// They have subscribed to something.
    PubSub,
    /// Other servers, of which none is a client.
    Server,
}

impl Kind {
    fn parse(name: &[u8]) -> Result<Self, Vec<u8>> {
        match name.to_ascii_lowercase().as_slice() {
            b"normal" => Ok(Self::Normal),
            b"pubsub" => Ok(Self::PubSub),
            b"master" | b"slave" | b"replica" => Ok(Self::Server),
            _ => Err([b"ERR Unknown client type '", name, b"'"].concat()),
        }
    }

    fn has(self, client: &Client) -> bool {
        match self {
            Self::Normal => !client.listens(),
            Self::PubSub => client.listens(),
            Self::Server => false,
        }
    }
}

/// Which clients a CLIENT KILL is for: all that fit every filter.
#[derive(Debug)]
struct Filter<'a> {
    id: Option<i64>,
    peer: Option<&'a [u8]>,
    local: Option<&'a [u8]>,
    kind: Option<Kind>,
    user: Option<&'a [u8]>,
    spares_caller: bool,
}

impl<'a> Filter<'a> {
    fn all() -> Self {
        let (id, peer, local, kind, user) = (None, None, None, None, None);
        Self { id, peer, local, kind, user, spares_caller: false }
    }

    /// The filters of a CLIENT KILL in its newer form.
    fn parse(command: &Command<'a>, shared: &Shared) -> Result<Self, Vec<u8>> {
        let mut filter = Self { spares_caller: true, ..Self::all() };
        if !command.len().is_multiple_of(2) {
            return Err(SYNTAX.into());
        }
        for index in (2..command.len()).step_by(2) {
            let value = command.arg(index + 1);
            match command.arg(index).to_ascii_lowercase().as_slice() {
                b"id" => {
                    let id = parse_i64(value).filter(|id| *id > 0);
                    filter.id = Some(id.ok_or(b"ERR client-id should be greater than 0")?);
                }
                b"addr" => filter.peer = Some(value),
                b"laddr" => filter.local = Some(value),
                b"type" => filter.kind = Some(Kind::parse(value)?),
                b"user" if shared.users.get(value).is_some() => filter.user = Some(value),
                b"user" => return Err([b"ERR No such user '", value, b"'"].concat()),
                b"skipme" => match value.to_ascii_lowercase().as_slice() {
                    b"yes" => filter.spares_caller = true,
                    b"no" => filter.spares_caller = false,
                    _ => return Err(SYNTAX.into()),
                },
                _ => return Err(SYNTAX.into()),
            }
        }
        Ok(filter)
    }

    fn fits(&self, client: &Client, caller: u64) -> bool {
        let is = |address: &Address, wanted: Option<&[u8]>| {
            wanted.is_none_or(|wanted| address.endpoint().as_bytes() == wanted)
        };
        self.kind.is_none_or(|kind| kind.has(client))
            && self.id.is_none_or(|id| id as u64 == client.id)
            && is(&client.peer, self.peer)
            && is(&client.local, self.local)
            && self.user.is_none_or(|user| client.user() == user)
            && !(self.spares_caller && client.id == caller)
    }
}

/// A caller that is among the killed gets its answer first.
fn kill(session: &Session, shared: &Shared, command: &Command<'_>, out: &mut Vec<u8>) -> After {
    let by_address = command.len() == 3;
    let filter = if by_address {
        Ok(Filter { peer: Some(command.arg(2)), ..Filter::all() })
    } else {
        Filter::parse(command, shared)
    };
    let filter = match filter {
        Ok(filter) => filter,
        Err(error) => {
            session.reply(out).error(&error);
            return After::Go;
        }
    };
    let (mut killed, mut after) = (0, After::Go);
    for client in shared.clients.all().values() {
        if !filter.fits(client, session.client.id) {
            continue;
        }
        killed += 1;
        match client.id == session.client.id {
            true => after = After::Close,
            false => client.kill(),
        }
    }
    match (by_address, killed) {
        (true, 0) => session.reply(out).error(b"ERR No such client"),
        (true, _) => session.reply(out).status("OK"),
        (false, _) => session.reply(out).integer(killed),
    }
    after
}
