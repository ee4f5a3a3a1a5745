//! What a client asks that goes over all keys, from its words.

use std::time::Instant;

use super::{Question, Walk, Wanted, scan};
use crate::commands::errors::SYNTAX;
use crate::commands::lookup;
use crate::commands::number::{NOT_AN_INTEGER, parse_i64};
use crate::commands::spec::Admin;
use crate::connection::parse::Command;
use crate::connection::session::Session;
use crate::shared::Shared;

/// The walk that `command` begins. Errors: the text that it answers.
pub fn walk(
    admin: Admin,
    session: &Session,
    shared: &Shared,
    command: &Command<'_>,
) -> Result<Walk, &'static [u8]> {
    let (mut wanted, mut database, mut from) = (Wanted::default(), Some(session.database), 0);
    let question = match admin {
        Admin::Scan => {
            from = scan::cursor(command.arg(1))?;
            let count = options(command, &mut wanted)?;
            Question::Scan { count }
        }
        Admin::Keys => {
            wanted.pattern = Some(command.arg(1).to_vec());
            Question::Keys
        }
        Admin::RandomKey => {
            let draw = shared.planner(session.database).draw();
            from = shared.backend.walk_position(draw);
            Question::Random { draw, again: from == 0 }
        }
        _ => {
            let known = |word: &[u8]| {
                word.eq_ignore_ascii_case(b"async") || word.eq_ignore_ascii_case(b"sync")
            };
            if command.len() > 2 || command.args(1).any(|word| !known(word)) {
                return Err(SYNTAX);
            }
            database = database.filter(|_| admin == Admin::FlushDb);
            Question::Flush
        }
    };
    let place = lookup(command.arg(0)).map_or(0, |spec| spec.number.into());
    let words = command.args(0).map(<[u8]>::to_vec).collect();
    Ok(Walk {
        question,
        wanted,
        database,
        protocol: session.protocol,
        at: Some(from),
        looked: 0,
        steps: 0,
        parts: Vec::new(),
        found: Vec::new(),
        keys: 0,
        error: None,
        asked: (Instant::now(), place, words),
    })
}

/// Reads MATCH, TYPE and COUNT; returns the last one.
fn options(command: &Command<'_>, wanted: &mut Wanted) -> Result<usize, &'static [u8]> {
    let (mut count, mut at) = (scan::COUNT, 2);
    while at < command.len() {
        let value = (at + 1 < command.len()).then(|| command.arg(at + 1)).ok_or(SYNTAX)?;
        match command.arg(at).to_ascii_lowercase().as_slice() {
            b"count" => {
                let given = parse_i64(value).ok_or(NOT_AN_INTEGER)?;
                count = usize::try_from(given).ok().filter(|count| *count > 0).ok_or(SYNTAX)?;
            }
            b"match" => wanted.pattern = Some(value.to_vec()),
            b"type" => wanted.kind = Some(value.to_vec()),
            _ => return Err(SYNTAX),
        }
        at += 2;
    }
    Ok(count)
}
