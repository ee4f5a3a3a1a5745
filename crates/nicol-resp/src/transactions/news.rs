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
//! sharded channel, 2 an event, 3 what was settled, 4 a grave, 5 a deadline, 6 a key, 7 an end of a
//! wait, 8 calls, 9 errors, 10 a command), a number (4), two lengths (4 each), two texts. Of a
//! message: where the reply stands that tells its number of receivers, the channel, the message. Of
//! an event: its class in the lower half and the database in the upper one, the event, the key. Of
//! what was settled: 0, an argument, nothing. Of a grave: 0, its record, nothing. A script may
//! write keys that its plan does not name. Of a deadline that it gives: 0, the row, the time (8
//! bytes each). Of a key that it writes: 0, the row, the key. Of an end of a wait: 0, nothing,
//! nothing. Of calls: the place of the command in the table, and how often scripts called it, how
//! often it failed and was rejected (4 bytes each). Of errors: how many, their code, nothing. Of a
//! command that a script calls, for those who see all: the database, its words (each behind its
//! length in 4 bytes), nothing.

use nicol_core::ids::Key;
use nicol_core::txn::Txn;

use crate::connection::encode::{Protocol, Reply};
use crate::notices::Class;
use crate::shared::Shared;
use crate::transactions::output::OutputHead;
use crate::transactions::record::Database;
use crate::transactions::tally::Tally;

const HEAD_LEN: usize = 13;
/// The kinds.
const MESSAGE: u8 = 0;
const SHARDED: u8 = 1;
const EVENT: u8 = 2;
const SETTLED: u8 = 3;
const GRAVE: u8 = 4;
const DEADLINE: u8 = 5;
const WROTE: u8 = 6;
const ENDS: u8 = 7;
const CALLS: u8 = 8;
const ERRORS: u8 = 9;
const SHOWN: u8 = 10;
/// The reply of a PUBLISH until its receivers are known.
pub const NO_RECEIVERS: &[u8] = b":0\r\n";

/// What the commands of a transaction have told so far.
#[derive(Debug, Default)]
pub struct News {
    told: Vec<u8>,
    tally: Tally,
}

impl News {
    /// A message is published; its reply stands at `reply` of the output.
    pub fn publish(&mut self, sharded: bool, reply: usize, channel: &[u8], message: &[u8]) {
        push(
            &mut self.told,
            if sharded { SHARDED } else { MESSAGE },
            reply as u32,
            channel,
            message,
        );
    }

    /// An event has befallen a key.
    pub fn event(&mut self, class: Class, database: Database, event: &str, key: &[u8]) {
        let number = class as u32 | u32::from(database.number()) << 16;
        push(&mut self.told, EVENT, number, event.as_bytes(), key);
    }

    /// The last argument of a command that waits is this one from now on.
    pub fn settle(&mut self, last: &[u8]) {
        push(&mut self.told, SETTLED, 0, last, &[]);
    }

    /// What the command has found ends its client's wait, also if it is an error.
    pub fn end_wait(&mut self) {
        push(&mut self.told, ENDS, 0, b"", b"");
    }

    /// The record `row` holds pages that are to be freed.
    pub fn grave(&mut self, row: Key) {
        push(&mut self.told, GRAVE, 0, &row.0.to_le_bytes(), b"");
    }

    /// A key of `row` expires at `deadline`.
    pub fn expires(&mut self, deadline: i64, row: Key) {
        push(&mut self.told, DEADLINE, 0, &row.0.to_le_bytes(), &deadline.to_le_bytes());
    }

    /// A key of `row` was written, or has expired.
    pub fn wrote(&mut self, row: Key, key: &[u8]) {
        push(&mut self.told, WROTE, 0, &row.0.to_le_bytes(), key);
    }

    /// Keys, each with its entry of `txn`, were found expired: that was before all else.
    pub fn tell_ended(&mut self, txn: &Txn, ended: &[(usize, &[u8])]) {
        let later = std::mem::take(&mut self.told);
        for (entry, key) in ended {
            if let Some(database) = Database::of(txn.entries()[*entry].key) {
                self.event(Class::Expired, database, "expired", key);
            }
        }
        self.told.extend(later);
    }

    /// A script calls a command in `database`.
    pub fn show<'w>(&mut self, database: Database, words: impl Iterator<Item = &'w [u8]>) {
        let mut text = Vec::new();
        for word in words {
            text.extend_from_slice(&(word.len() as u32).to_le_bytes());
            text.extend_from_slice(word);
        }
        push(&mut self.told, SHOWN, database.number().into(), &text, b"");
    }

    /// Bytes of what was told so far.
    pub fn len(&self) -> usize {
        self.told.len()
    }

    /// Which commands were called and failed.
    pub fn tally(&mut self) -> &mut Tally {
        &mut self.tally
    }

    /// All of it, in its layout.
    pub fn finish(&mut self) -> &[u8] {
        let Tally { commands, errors, .. } = std::mem::take(&mut self.tally);
        for (place, counts) in commands {
            push(
                &mut self.told,
                CALLS,
                place.into(),
                counts.map(u32::to_le_bytes).as_flattened(),
                b"",
            );
        }
        for (code, count) in errors {
            push(&mut self.told, ERRORS, count, &code, b"");
        }
        &self.told
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

/// What the front must know.
#[derive(Debug, Default)]
pub struct Told {
    /// When a key of a row expires that no plan names, or its graves are to be worked off.
    pub expiring: Vec<(i64, Key)>,
    /// The keys that scripts have written, each with its row.
    pub wrote: Vec<(Key, Vec<u8>)>,
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

/// The words of a command that is shown.
fn words(mut text: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (len, rest) = text.split_first_chunk()?;
        let (word, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        text = rest;
        Some(word)
    })
}

/// What the attempt of a command that waits has settled in `output`.
pub fn settled(output: &[u8]) -> Option<&[u8]> {
    let mut settled = parts(OutputHead::news(output)).filter(|(kind, ..)| *kind == SETTLED);
    settled.next().map(|(_, _, last, _)| last)
}

/// Whether what the command that waits has found in `output` ends its client's wait.
pub fn ends_wait(output: &[u8]) -> bool {
    parts(OutputHead::news(output)).any(|(kind, ..)| kind == ENDS)
}

/// Counts the calls and errors in `output`, which a client of this front gets.
pub fn note(shared: &Shared, front: usize, output: &[u8]) {
    let counted = |part: &Part<'_>| matches!(part.0, CALLS | ERRORS);
    let mut parts = parts(OutputHead::news(output)).filter(counted).peekable();
    if parts.peek().is_none() {
        return;
    }
    let mut stats = shared.stats.of(front);
    for (kind, number, first, _) in parts {
        match (kind, first.as_chunks::<4>().0) {
            (CALLS, &[calls, failed, rejected]) => {
                let count = |count| (number, u32::from_le_bytes(count) as usize);
                stats.called_within(count(calls));
                stats.failed(count(failed));
                stats.rejected(count(rejected));
            }
            (CALLS, _) => {}
            _ => stats.errors(first, number),
        }
    }
}

/// Sends what a committed transaction tells in `output`, and completes its replies.
pub fn send(shared: &Shared, output: &mut Vec<u8>) -> Told {
    let (news, mut told) = (OutputHead::news(output), Told::default());
    if news.is_empty() {
        return told;
    }
    let word = |text: &[u8]| text.first_chunk().map(|word| u64::from_le_bytes(*word));
    let mut receivers = Vec::new();
    for (kind, number, first, second) in parts(news) {
        let pubsub = &shared.pubsub;
        match kind {
            DEADLINE => told.expiring.extend(
                word(second).zip(word(first)).map(|(deadline, row)| (deadline as i64, Key(row))),
            ),
            WROTE => told.wrote.extend(word(first).map(|row| (Key(row), second.to_vec()))),
            MESSAGE => receivers.push((number, pubsub.publish(first, second))),
            SHARDED => receivers.push((number, pubsub.publish_sharded(first, second))),
            GRAVE => told.expiring.extend(word(first).map(|row| (0, Key(row)))),
            SHOWN => {
                if let Some(database) = Database::new(number as i64) {
                    shared.monitors.show(database, None, words(first));
                }
            }
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
    told
}
