//! What a transaction tells others once it has committed: the messages that it publishes, and the
//! events of its keys.
//!
//! The engine that runs it appends them to its output, and the front that gets the output sends
//! them: so what is aborted or tried again is told once, or not at all.
//!
//! What the first attempt of a command that waits has settled for those after it comes the same
//! way.
//!
//! Layout, numbers little-endian, one after the other: kind (1 byte: 0 a message, 1 a message on a
//! sharded channel, 2 an event, 3 what was settled, 4 a grave), a number (4), two lengths (4
//! each), two texts. Of a message: where the reply stands that tells its number of receivers, the
//! channel, the message. Of an event: its class in the lower half and the database in the upper
//! one, the event, the key. Of what was settled: 0, an argument, nothing. Of a grave: 0, its
//! record, nothing.

use nicol_core::ids::Key;
use nicol_core::txn::Txn;

use crate::connection::encode::{Protocol, Reply};
use crate::notices::Class;
use crate::shared::Shared;
use crate::transactions::output::OutputHead;
use crate::transactions::record::Database;

const HEAD_LEN: usize = 13;
/// The kinds.
const MESSAGE: u8 = 0;
const SHARDED: u8 = 1;
const EVENT: u8 = 2;
const SETTLED: u8 = 3;
const GRAVE: u8 = 4;
/// The reply of a PUBLISH until its receivers are known.
pub const NO_RECEIVERS: &[u8] = b":0\r\n";

/// What the commands of a transaction have told so far.
#[derive(Debug, Default)]
pub struct News(Vec<u8>);

impl News {
    /// A message is published; its reply stands at `reply` of the output.
    pub fn publish(&mut self, sharded: bool, reply: usize, channel: &[u8], message: &[u8]) {
        push(&mut self.0, if sharded { SHARDED } else { MESSAGE }, reply as u32, channel, message);
    }

    /// An event has befallen a key.
    pub fn event(&mut self, class: Class, database: Database, event: &str, key: &[u8]) {
        let number = class as u32 | u32::from(database.number()) << 16;
        push(&mut self.0, EVENT, number, event.as_bytes(), key);
    }

    /// The last argument of a command that waits is this one from now on.
    pub fn settle(&mut self, last: &[u8]) {
        push(&mut self.0, SETTLED, 0, last, &[]);
    }

    /// The record `row` holds pages that are to be freed.
    pub fn grave(&mut self, row: Key) {
        push(&mut self.0, GRAVE, 0, &row.0.to_le_bytes(), b"");
    }

    /// Keys, each with its entry of `txn`, were found expired: that was before all else.
    pub fn tell_ended(&mut self, txn: &Txn, ended: &[(usize, &[u8])]) {
        let later = std::mem::take(&mut self.0);
        for (entry, key) in ended {
            if let Some(database) = Database::of(txn.entries()[*entry].key) {
                self.event(Class::Expired, database, "expired", key);
            }
        }
        self.0.extend(later);
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

fn push(out: &mut Vec<u8>, kind: u8, number: u32, first: &[u8], second: &[u8]) {
    out.push(kind);
    for number in [number, first.len() as u32, second.len() as u32] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(first);
    out.extend_from_slice(second);
}

/// A part of the news: its kind, its number and its two texts.
type Part<'a> = (u8, usize, &'a [u8], &'a [u8]);

/// The parts of `news`, in order.
fn parts(news: &[u8]) -> impl Iterator<Item = Part<'_>> {
    let mut rest = news;
    std::iter::from_fn(move || {
        let (head, behind) = rest.split_first_chunk::<HEAD_LEN>()?;
        let number = |at: usize| -> usize {
            u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize
        };
        let (first, behind) = behind.split_at_checked(number(5))?;
        let (second, behind) = behind.split_at_checked(number(9))?;
        rest = behind;
        Some((head[0], number(1), first, second))
    })
}

/// What the attempt of a command that waits has settled in `output`.
pub fn settled(output: &[u8]) -> Option<&[u8]> {
    let mut settled = parts(OutputHead::news(output)).filter(|(kind, ..)| *kind == SETTLED);
    settled.next().map(|(_, _, last, _)| last)
}

/// Sends what a committed transaction tells in `output`, and completes its replies. Returns the
/// records of its graves.
pub fn send(shared: &Shared, output: &mut Vec<u8>) -> Vec<Key> {
    let mut graves = Vec::new();
    let news = OutputHead::news(output);
    if news.is_empty() {
        return graves;
    }
    let mut receivers = Vec::new();
    for (kind, number, first, second) in parts(news) {
        let pubsub = &shared.pubsub;
        match kind {
            MESSAGE => receivers.push((number, pubsub.publish(first, second))),
            SHARDED => receivers.push((number, pubsub.publish_sharded(first, second))),
            GRAVE => graves.extend(first.first_chunk().map(|row| Key(u64::from_le_bytes(*row)))),
            EVENT => {
                if let Some(database) = Database::new((number >> 16) as i64) {
                    shared.notices.send(pubsub, number & 0xffff, database, first, second);
                }
            }
            _ => {}
        }
    }
    // From the last to the first: what stands behind moves.
    for (at, count) in receivers.into_iter().rev() {
        let mut reply = Vec::new();
        Reply::new(&mut reply, Protocol::Resp2).integer(count as i64);
        if output.get(at..).is_some_and(|rest| rest.starts_with(NO_RECEIVERS)) {
            output.splice(at..at + NO_RECEIVERS.len(), reply);
        }
    }
    graves
}
