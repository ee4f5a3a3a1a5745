//! COMMAND: the table as clients ask for it.

use crate::commands::errors::{SYNTAX, arity_error, unknown_subcommand};
use crate::commands::glob::matches;
use crate::commands::key_places::KeyPlaces;
use crate::commands::rights::{self, Categories, NUMBERS};
use crate::commands::spec::Spec;
use crate::commands::{TABLE, key_flags, lookup, unnamed_keys};
use crate::connection::encode::Reply;
use crate::connection::parse::Command;
use crate::connection::session::Session;

/// Tells of a command.
fn describe(spec: &Spec, reply: &mut Reply<'_>) {
    let categories: Vec<_> = Categories::of(spec).names().collect();
    spec.describe(&categories, reply);
}

/// COMMAND.
pub fn answer(session: &Session, command: &Command<'_>, out: &mut Vec<u8>) {
    let mut reply = session.reply(out);
    let named = || command.args(2).map(lookup);
    match command.arg(1).to_ascii_lowercase().as_slice() {
        b"count" if command.len() == 2 => reply.integer(TABLE.len() as i64),
        b"count" => reply.error(&arity_error("command|count")),
        b"" | b"info" if command.len() <= 2 => {
            reply.array(TABLE.len());
            TABLE.iter().for_each(|spec| describe(spec, &mut reply));
        }
        b"info" => {
            reply.array(command.len() - 2);
            for spec in named() {
                match spec {
                    Some(spec) => describe(spec, &mut reply),
                    None => reply.null(),
                }
            }
        }
        b"docs" => {
            let all = command.len() == 2;
            let specs: Vec<_> =
                if all { TABLE.iter().collect() } else { named().flatten().collect() };
            reply.map(specs.len());
            for spec in specs {
                reply.bulk(spec.name.as_bytes());
                spec.document(&mut reply);
            }
        }
        b"list" => match listed(command) {
            Ok(names) => {
                reply.array(names.len());
                names.iter().for_each(|name| reply.bulk(name.as_bytes()));
            }
            Err(text) => reply.error(text),
        },
        b"getkeys" => match keys(command) {
            Ok(places) => {
                reply.array(places.len());
                places.iter().for_each(|place| reply.bulk(command.arg(*place)));
            }
            Err(text) => reply.error(&text),
        },
        b"getkeysandflags" => match keys(command) {
            Ok(keys) => flagged(command, &keys, &mut reply),
            Err(text) => reply.error(&text),
        },
        b"help" => {
            let lines = [
                "COMMAND <subcommand> [<arg> ...]. Subcommands are:",
                "(no subcommand)",
                "COUNT",
                "DOCS [<name> ...]",
                "GETKEYS <name> [<arg> ...]",
                "GETKEYSANDFLAGS <name> [<arg> ...]",
                "INFO [<name> ...]",
                "LIST [FILTERBY (MODULE <name>|ACLCAT <category>|PATTERN <pattern>)]",
                "HELP",
            ];
            reply.lines(&lines);
        }
        _ => reply.error(&unknown_subcommand(command)),
    }
}

/// The names that COMMAND LIST answers.
fn listed(command: &Command<'_>) -> Result<Vec<&'static str>, &'static [u8]> {
    let names = (0..NUMBERS).map(rights::name);
    if command.len() == 2 {
        return Ok(names.collect());
    }
    if command.len() != 5 || !command.arg(2).eq_ignore_ascii_case(b"filterby") {
        return Err(SYNTAX);
    }
    let value = command.arg(4).to_ascii_lowercase();
    match command.arg(3).to_ascii_lowercase().as_slice() {
        b"pattern" => Ok(names.filter(|name| matches(&value, name.as_bytes())).collect()),
        b"aclcat" => {
            let category = Categories::named(&value).unwrap_or_default();
            let in_it = |number: &usize| rights::categories(*number).meets(category);
            Ok((0..NUMBERS).filter(in_it).map(rights::name).collect())
        }
        // There are no modules.
        b"module" => Ok(Vec::new()),
        _ => Err(SYNTAX),
    }
}

/// The places of the keys of the command that is an argument of COMMAND GETKEYS or GETKEYSANDFLAGS.
fn keys(command: &Command<'_>) -> Result<Vec<usize>, Vec<u8>> {
    if command.len() < 3 {
        let name = String::from_utf8_lossy(command.arg(1)).to_lowercase();
        return Err(arity_error(&format!("command|{name}")));
    }
    let spec = lookup(command.arg(2)).ok_or(b"ERR Invalid command specified")?;
    let len = command.len() - 2;
    if spec.keys == KeyPlaces::NONE {
        return Err(b"ERR The command has no key arguments".into());
    }
    if !spec.accepts(len) {
        return Err(b"ERR Invalid number of arguments specified for command".into());
    }
    let places = spec.keys.of(len, |place| command.arg(2 + place));
    let words: Vec<_> = command.args(2).collect();
    // Of several that are stored into the last counts.
    let stored = unnamed_keys(spec, &words).0.pop();
    Ok(places.iter().chain(stored).map(|place| 2 + place).collect())
}

/// The keys at these places, each with what the command does with it.
fn flagged(command: &Command<'_>, places: &[usize], reply: &mut Reply<'_>) {
    let Some(spec) = lookup(command.arg(2)) else { return };
    let words: Vec<_> = command.args(2).collect();
    reply.array(places.len());
    for (nth, place) in places.iter().enumerate() {
        let flags: Vec<_> = key_flags::flags(spec, &words, nth).split(' ').collect();
        reply.array(2);
        reply.bulk(command.arg(*place));
        reply.set(flags.len());
        flags.iter().for_each(|flag| reply.status(flag));
    }
}
