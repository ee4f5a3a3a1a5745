//! CLIENT INFO, CLIENT LIST and CLIENT KILL.

use std::time::Instant;

use super::address::Address;
use super::clients::Client;
use super::number::parse_i64;
use super::parse::Command;
use super::session::{After, Session};
use super::shared::Shared;

const SYNTAX: &[u8] = b"ERR syntax error";

/// CLIENT INFO.
pub fn info(session: &Session, out: &mut Vec<u8>) {
    let mut text = String::new();
    session.client.describe(Instant::now(), &mut text);
    session.reply(out).verbatim(&text);
}

/// CLIENT LIST.
pub fn list(session: &Session, shared: &Shared, command: &Command<'_>, out: &mut Vec<u8>) {
    match listed(shared, command) {
        Ok(text) => session.reply(out).verbatim(&text),
        Err(error) => session.reply(out).error(&error),
    }
}

fn listed(shared: &Shared, command: &Command<'_>) -> Result<String, Vec<u8>> {
    let (mut text, now) = (String::new(), Instant::now());
    let all = shared.clients.all();
    match (command.arg(2).to_ascii_lowercase().as_slice(), command.len()) {
        (_, 2) => all.values().for_each(|client| client.describe(now, &mut text)),
        (b"type", 4) => {
            if is_normal(command.arg(3))? {
                all.values().for_each(|client| client.describe(now, &mut text));
            }
        }
        (b"id", 4..) => {
            for id in command.args(3) {
                let id = parse_i64(id).ok_or(b"ERR Invalid client ID")?;
                if let Some(client) = all.get(&(id as u64)) {
                    client.describe(now, &mut text);
                }
            }
        }
        _ => return Err(SYNTAX.into()),
    }
    Ok(text)
}

/// Does a type of clients, as it is written, name those that there are here?
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
    spares_caller: bool,
}

impl<'a> Filter<'a> {
    /// The filters of a CLIENT KILL in its newer form.
    fn parse(command: &Command<'a>) -> Result<Self, Vec<u8>> {
        let mut filter =
            Self { id: None, peer: None, local: None, normal: true, spares_caller: true };
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
                b"user" if value == b"default" => {}
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
            && !(self.spares_caller && client.id == caller)
    }
}

/// CLIENT KILL. A caller that is among the killed gets its answer first.
pub fn kill(session: &Session, shared: &Shared, command: &Command<'_>, out: &mut Vec<u8>) -> After {
    let by_address = command.len() == 3;
    let filter = if by_address {
        let peer = Some(command.arg(2));
        Ok(Filter { id: None, peer, local: None, normal: true, spares_caller: false })
    } else {
        Filter::parse(command)
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
