//! CLIENT.

use std::time::Instant;

use super::tracking;
use crate::commands::errors::arity_error;
use crate::commands::number::parse_i64;
use crate::commands::rights;
use crate::commands::spec::takes;
use crate::connection::address::Address;
use crate::connection::clients::{Client, CommandNumber};
use crate::connection::parse::Command;
use crate::connection::session::{After, Session};
use crate::shared::Shared;

const SYNTAX: &[u8] = b"ERR syntax error";
const BAD_NAME: &[u8] = b"ERR Client names cannot contain spaces, newlines or special characters.";

/// The subcommands with their arities.
const SUBCOMMANDS: [(&str, i32); 13] = [
    ("client|caching", 3),
    ("client|getname", 2),
    ("client|getredir", 2),
    ("client|help", 2),
    ("client|id", 2),
    ("client|info", 2),
    ("client|kill", -3),
    ("client|list", -2),
    ("client|no-evict", 3),
    ("client|setinfo", 4),
    ("client|setname", 3),
    ("client|tracking", -3),
    ("client|trackinginfo", 2),
];

const HELP: (&str, i32) = ("client|help", 2);

const CLIENT_HELP: [&str; 15] = [
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
    "SETINFO <option> <value>",
    "SETNAME <name>",
    "TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]] [OPTIN] [OPTOUT] [NOLOOP]",
    "TRACKINGINFO",
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
            info(session, out);
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

fn set_no_evict(session: &Session, value: &[u8]) -> Result<(), &'static [u8]> {
    session.client.seen().no_evict = match value.to_ascii_lowercase().as_slice() {
        b"on" => true,
        b"off" => false,
        _ => return Err(b"ERR syntax error"),
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

/// The client's line of CLIENT LIST.
pub fn line(session: &Session) -> String {
    let mut text = String::new();
    session.client.describe(Instant::now(), name_of, &mut text);
    text.truncate(text.trim_end().len());
    text
}

fn info(session: &Session, out: &mut Vec<u8>) {
    session.reply(out).verbatim(&(line(session) + "\n"));
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
        (_, 2) => all.values().for_each(|client| client.describe(now, name_of, &mut text)),
        (b"type", 4) => {
            if is_normal(command.arg(3))? {
                all.values().for_each(|client| client.describe(now, name_of, &mut text));
            }
        }
        (b"id", 4..) => {
            for id in command.args(3) {
                let id = parse_i64(id).ok_or(b"ERR Invalid client ID")?;
                if let Some(client) = all.get(&(id as u64)) {
                    client.describe(now, name_of, &mut text);
                }
            }
        }
        _ => return Err(SYNTAX.into()),
    }
    Ok(text)
}

/// Whether a type of clients, as it is written, names those that there are here.
fn is_normal(name: &[u8]) -> Result<bool, Vec<u8>> {
    match name.to_ascii_lowercase().as_slice() {
        b"normal" => Ok(true),
        b"master" | b"slave" | b"replica" | b"pubsub" => Ok(false),
        _ => Err([b"ERR Unknown client type '", name, b"'"].concat()),
    }
}

/// Which clients a CLIENT KILL is for: all that fit every filter.
#[derive(Debug)]
struct Filter<'a> {
    id: Option<i64>,
    peer: Option<&'a [u8]>,
    local: Option<&'a [u8]>,
    /// False if clients of another kind are meant, of which there are none.
    normal: bool,
    user: Option<&'a [u8]>,
    spares_caller: bool,
}

impl<'a> Filter<'a> {
    fn all() -> Self {
        let (id, peer, local, user) = (None, None, None, None);
        Self { id, peer, local, normal: true, user, spares_caller: false }
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
                b"type" => filter.normal &= is_normal(value)?,
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
        self.normal
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
