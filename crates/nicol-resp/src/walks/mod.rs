//! SCAN, KEYS, RANDOMKEY, FLUSHDB and FLUSHALL: commands that go over the keys of a database.
//!
//! The store names the rows that stand behind a position ([`Backend::walk`]), and a transaction
//! looks at some of them: it tells which keys they hold, or deletes them. The next transaction goes
//! on behind them. So other clients wait for one short transaction at most, and each is strictly
//! serializable, but the walk as a whole is not one: it meets every key that is there throughout,
//! and a key that comes or goes meanwhile or not.
//!
//! [`Backend::walk`]: nicol_core::serving::Backend::walk

mod ask;

use std::time::Instant;

use nicol_core::ids::Key;
use nicol_core::serving::Walked;

use crate::commands::glob::matches;
use crate::commands::{scan, type_of};
use crate::connection::encode::{Protocol, Reply};
use crate::shared::Shared;
use crate::transactions::output::OutputHead;
use crate::transactions::plan::{Bounds, Kind, Op, PlanBuilder, Planned};
use crate::transactions::record::Database;
use crate::transactions::{End, REFUSED};

pub use ask::walk;

/// Rows of one transaction.
const ROWS: usize = 128;
/// Steps of the store that one look takes at most: then other clients have their turn.
const STEPS: usize = 512;

const UNABLE: &[u8] = b"ERR not supported: this store does not list its keys";
const TOO_MANY: &[u8] =
    b"ERR the keys are too many for one reply: SCAN goes over them, some at a time";

/// What is asked of the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Question {
    /// Some of them, at least `count` if there are as many, and the next cursor.
    Scan { count: usize },
    /// All of them.
    Keys,
    /// One of them, chosen by this number; from the first position on once the end has been
    /// reached.
    Random { draw: u64, again: bool },
    /// That they be deleted.
    Flush,
}

/// The keys that are answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Wanted {
    pattern: Option<Vec<u8>>,
    /// The name of their type, in any case.
    kind: Option<Vec<u8>>,
}

impl Wanted {
    fn has(&self, key: &[u8], kind: Option<u8>) -> bool {
        let named = |name: &Vec<u8>| {
            let kind = kind.and_then(type_of);
            kind.is_some_and(|kind| name.eq_ignore_ascii_case(kind.name.as_bytes()))
        };
        self.pattern.as_ref().is_none_or(|pattern| matches(pattern, key))
            && self.kind.as_ref().is_none_or(named)
    }
}

/// What a walk does next.
#[derive(Debug)]
pub enum Next {
    /// This transaction.
    Begin(Planned),
    /// There was nothing here: it goes on after others had their turn.
    Later,
    /// It answers.
    Ended,
}

/// A command that is under way.
#[derive(Debug)]
pub struct Walk {
    question: Question,
    wanted: Wanted,
    /// `None`: all.
    database: Option<Database>,
    protocol: Protocol,
    /// Where it goes on; `None`: it is at the end.
    at: Option<u64>,
    /// Rows looked at.
    looked: usize,
    /// Steps of the store.
    steps: usize,
    /// Parts of a transaction that was too large, in reverse order.
    parts: Vec<Planned>,
    /// The keys found, as replies.
    found: Vec<u8>,
    keys: usize,
    error: Option<Vec<u8>>,
    /// When it began, its command's place in the table, and its words.
    pub asked: (Instant, usize, Vec<Vec<u8>>),
}

impl Walk {
    /// Bytes that it holds for its reply.
    pub fn bytes(&self) -> usize {
        self.found.len() + self.parts.iter().map(Planned::bytes).sum::<usize>()
    }

    /// Goes on.
    pub fn next(&mut self, shared: &Shared) -> Next {
        if self.error.is_some() {
            return Next::Ended;
        }
        if let Some(part) = self.parts.pop() {
            return Next::Begin(part);
        }
        if self.is_done() {
            return Next::Ended;
        }
        let rows = self.look(shared);
        if self.error.is_some() {
            return Next::Ended;
        }
        if rows.is_empty() {
            return if self.is_done() { Next::Ended } else { Next::Later };
        }
        Next::Begin(self.plan(&rows, shared))
    }

    /// Notes how a transaction of it has ended.
    pub fn took(&mut self, planned: &Planned, end: End, shared: &Shared) {
        match end {
            End::Committed(output) => {
                if self.read(planned, &output, shared).is_none() {
                    self.error = Some(REFUSED.to_vec());
                }
            }
            End::Split([first, second]) => self.parts.extend([second, first]),
            End::Failed(text) => self.error = Some(text),
        }
    }

    /// Answers the client.
    pub fn answer(&self, reply: &mut Reply<'_>) {
        if let Some(text) = &self.error {
            return reply.error(text);
        }
        match &self.question {
            Question::Scan { .. } => {
                reply.array(2);
                reply.bulk(self.at.unwrap_or(0).to_string().as_bytes());
                reply.array(self.keys);
                reply.replies(&self.found);
            }
            Question::Keys => {
                reply.array(self.keys);
                reply.replies(&self.found);
            }
            Question::Random { .. } if self.keys == 0 => reply.null(),
            Question::Random { .. } => reply.replies(&self.found),
            Question::Flush => reply.status("OK"),
        }
    }

    /// Whether there is nothing more to look at.
    fn is_done(&mut self) -> bool {
        match &mut self.question {
            // Of a database with few of the store's keys many steps find none.
            Question::Scan { count } => {
                let enough = self.looked >= *count || self.steps >= STEPS.max(*count);
                self.at.is_none() || enough
            }
            Question::Random { .. } if self.keys > 0 => true,
            Question::Random { again, .. } if self.at.is_none() && !*again => {
                *again = true;
                self.at = Some(0);
                false
            }
            Question::Random { .. } | Question::Keys | Question::Flush => self.at.is_none(),
        }
    }

    /// The next rows of its databases, each once.
    fn look(&mut self, shared: &Shared) -> Vec<Key> {
        let most = match self.question {
            Question::Scan { count } => count.saturating_sub(self.looked).min(ROWS),
            _ => ROWS,
        };
        let most = most.min(shared.config.limits.transaction_keys);
        let (mut rows, mut named) = (Vec::new(), Vec::new());
        for _ in 0..STEPS {
            let Some(at) = self.at else { break };
            self.steps += 1;
            self.at = match shared.backend.walk(at, &mut named) {
                Walked::Until(next) => Some(next),
                Walked::End => None,
                Walked::Unable => {
                    self.error = Some(UNABLE.to_vec());
                    return Vec::new();
                }
            };
            rows.extend(named.drain(..).filter(|row| self.is_of(*row)));
            if rows.len() >= most {
                break;
            }
        }
        rows.sort_unstable();
        rows.dedup();
        self.looked += rows.len();
        rows
    }

    fn is_of(&self, row: Key) -> bool {
        let of = Database::of(row);
        of.is_some() && (self.database.is_none() || of == self.database)
    }

    fn plan(&mut self, rows: &[Key], shared: &Shared) -> Planned {
        let (op, writes) = match self.question {
            Question::Flush => (Op::EMPTY, true),
            _ => (Op::LIST, false),
        };
        let mut plan = PlanBuilder::new();
        for row in rows {
            plan.begin(op, writes);
            plan.key(*row, b"");
        }
        let max = shared.config.limits.transaction_keys;
        let whole =
            plan.finish(Kind::Walk, self.protocol, Bounds::values(0), &[], shared.unix_ms());
        if rows.len() <= max {
            return whole;
        }
        // A step of the store may name more rows than a transaction may have.
        let part = |from: usize| whole.part(from, (from + max).min(rows.len())).ok();
        let mut parts: Vec<_> = (0..rows.len()).step_by(max).rev().filter_map(part).collect();
        let first = parts.pop().unwrap_or(whole);
        self.parts = parts;
        first
    }

    /// Takes what a transaction has answered. `None`: it is not in the layout.
    fn read(&mut self, planned: &Planned, output: &[u8], shared: &Shared) -> Option<()> {
        let (OutputHead { executed, .. }, replies) = OutputHead::parse(output)?;
        if executed == 0 || executed > planned.commands() {
            return None;
        }
        if executed < planned.commands() {
            self.parts.push(planned.part(executed, planned.commands()).ok()?);
        }
        if self.question == Question::Flush {
            return Some(());
        }
        let mut listed = Vec::new();
        for row in Listed(replies) {
            let (key, kind) = row?;
            if self.wanted.has(key, kind) {
                listed.push(key);
            }
        }
        if let Question::Random { draw, .. } = self.question {
            // What one transaction has found is as good as any other.
            let chosen = (draw % listed.len().max(1) as u64) as usize;
            listed = listed.get(chosen).copied().into_iter().collect();
            self.parts.retain(|_| listed.is_empty());
        }
        self.keys += listed.len();
        let mut reply = Reply::new(&mut self.found, self.protocol);
        listed.into_iter().for_each(|key| reply.bulk(key));
        let limits = &shared.config.limits;
        let room = limits.output_hard_bytes.saturating_sub(limits.output_soft_bytes);
        if self.found.len() > room {
            self.found = Vec::new();
            self.error = Some(TOO_MANY.to_vec());
        }
        Some(())
    }
}

/// The keys that [`Op::LIST`] has answered, each with the number of its type.
struct Listed<'a>(&'a [u8]);

impl<'a> Iterator for Listed<'a> {
    type Item = Option<(&'a [u8], Option<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.0.starts_with(b"*") {
            // The head of a row's list.
            self.line()?;
        }
        if self.0.is_empty() {
            return None;
        }
        let pair = self.pair();
        if pair.is_none() {
            self.0 = &[];
        }
        Some(pair)
    }
}

impl<'a> Listed<'a> {
    fn pair(&mut self) -> Option<(&'a [u8], Option<u8>)> {
        let len = self.number(b'$')?;
        let (key, rest) = self.0.split_at_checked(len)?;
        self.0 = rest.strip_prefix(b"\r\n")?;
        Some((key, u8::try_from(self.number(b':')?).ok()))
    }

    fn number(&mut self, kind: u8) -> Option<usize> {
        let digits = self.line()?.strip_prefix(&[kind])?;
        std::str::from_utf8(digits).ok()?.parse().ok()
    }

    fn line(&mut self) -> Option<&'a [u8]> {
        let len = self.0.windows(2).position(|pair| pair == b"\r\n")?;
        let line = &self.0[..len];
        self.0 = &self.0[len + 2..];
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_keys_are_read_whatever_they_hold() {
        let mut replies = Vec::new();
        let rows: [&[(&[u8], i64)]; 4] = [&[], &[(b"*1\r\n$3", 0)], &[], &[(b"", 4), (b"k", 31)]];
        for row in rows {
            let mut reply = Reply::new(&mut replies, Protocol::Resp3);
            reply.array(2 * row.len());
            for (key, kind) in row {
                reply.bulk(key);
                reply.integer(*kind);
            }
        }
        let found: Vec<_> = Listed(&replies).collect();
        let all: Vec<_> = rows.concat();
        let wanted: Vec<_> =
            all.iter().map(|(key, kind)| Some((*key, Some(*kind as u8)))).collect();
        assert_eq!(found, wanted);
        let cut: Vec<_> = Listed(&replies[..replies.len() - 1]).collect();
        assert_eq!(cut.last(), Some(&None));
    }
}
