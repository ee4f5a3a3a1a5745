//! Active expiry: frees what has expired and is not touched any more.
//!
//! A front remembers the rows in which its clients let keys expire, once each, with the
//! earliest deadline that was given there. When it comes, the thread submits a transaction that
//! frees what is over in the row and tells the next deadline. Until then such keys only take space:
//! every command sees them as absent from their deadline on.
//!
//! What large collections leave behind is freed in the same way: the records of their graves
//! (`page.rs`) are such rows, whose deadline has come from the start.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use nicol_core::ids::{IdMap, Key};
use nicol_core::rng;
use nicol_core::txn::Outcome;

use super::output::OutputHead;
use super::page::Place;
use super::plan::{Bounds, Kind, Op, PlanBuilder, Planned};
use crate::commands::number::parse_i64;
use crate::connection::encode::Protocol;
use crate::shared::Shared;
use nicol_core::serving::Response;

/// The place of the active expiry among the connections.
pub const ACTIVE_EXPIRY: usize = usize::MAX - 2;
/// Rows that one thread remembers; the keys of others are freed when their record is next written.
const ROWS_MAX: usize = 1 << 20;
/// Rows of one transaction.
const BATCH: usize = 128;
/// How long a row waits whose transaction has aborted.
const AGAIN_MS: i64 = 100;

/// The rows of one front in which keys expire.
#[derive(Debug, Default)]
pub struct ActiveExpiry {
    due: BTreeSet<(i64, Key)>,
    /// The deadline under which each row is in `due`, and its place in `rows`.
    known: IdMap<Key, (i64, usize)>,
    /// The rows, in any order, to choose some of them.
    rows: Vec<Key>,
    /// The rows of the transaction in progress.
    purging: Vec<Key>,
    noted: Vec<(i64, Key)>,
}

impl ActiveExpiry {
    /// Remembers the rows in which the commands of `plan` let keys expire.
    pub fn note(&mut self, plan: &mut PlanBuilder, shared: &Shared) {
        let mut noted = std::mem::take(&mut self.noted);
        plan.take_expiring(&mut noted);
        for (deadline, row) in noted.drain(..) {
            self.remember(deadline, row, shared);
        }
        self.noted = noted;
    }

    /// Remembers that a key of `row` expires at `deadline`, in milliseconds of Unix time.
    pub fn remember(&mut self, deadline: i64, row: Key, shared: &Shared) {
        let full = self.known.len() >= ROWS_MAX;
        match self.known.get_mut(&row) {
            // Of a later one the transaction that comes at the earlier one tells.
            Some((known, _)) if *known <= deadline => {}
            Some((known, _)) => {
                self.due.remove(&(*known, row));
                self.due.insert((deadline, row));
                *known = deadline;
            }
            None if full && !Place::is_grave(row) => {}
            None => {
                self.known.insert(row, (deadline, self.rows.len()));
                self.rows.push(row);
                self.due.insert((deadline, row));
                shared.keyspace.expires(row, 1);
            }
        }
    }

    /// Remembers nothing of `row` any more.
    pub fn forget(&mut self, row: Key, shared: &Shared) {
        let Some((deadline, place)) = self.known.remove(&row) else { return };
        self.due.remove(&(deadline, row));
        self.rows.swap_remove(place);
        if let Some(moved) = self.rows.get(place).and_then(|moved| self.known.get_mut(moved)) {
            moved.1 = place;
        }
        shared.keyspace.expires(row, -1);
    }

    /// The rows, those first whose keys expire next.
    pub fn next(&self) -> impl Iterator<Item = Key> {
        self.due.iter().map(|(_, row)| *row)
    }

    /// So many rows at random, or all if there are no more; each once.
    pub fn sample(&self, rows: usize, random: &mut rng::Stream) -> Vec<Key> {
        if self.rows.len() <= rows {
            return self.rows.clone();
        }
        let mut sampled: Vec<_> =
            (0..rows).map(|_| self.rows[random.below(self.rows.len() as u64) as usize]).collect();
        sampled.sort_unstable();
        sampled.dedup();
        sampled
    }

    /// The transaction for the rows whose deadline has come, if there are any and none is in
    /// progress.
    pub fn due(&mut self, shared: &Shared) -> Option<Planned> {
        if !self.purging.is_empty() || shared.stop.load(Ordering::SeqCst) {
            return None;
        }
        let (now, limits) = (shared.unix_ms(), &shared.config.limits);
        let mut plan = PlanBuilder::new();
        while let Some(&(deadline, row)) = self.due.first()
            && deadline <= now
            && self.purging.len() < BATCH.min(limits.transaction_keys)
        {
            // A deadline that a command gives it from here on counts: it comes after this
            // transaction.
            self.forget(row, shared);
            self.purging.push(row);
            plan.begin(Op::PURGE, true);
            plan.key(row, b"");
        }
        if shared.notices.is_on() {
            plan.tell_events();
        }
        let planned = || {
            plan.finish(Kind::Batch, Protocol::Resp2, Bounds::values(limits.value_bytes), &[], now)
        };
        (!self.purging.is_empty()).then(planned)
    }

    /// The transaction has ended: rows with another deadline wait for it.
    pub fn expired(&mut self, response: &Response, shared: &Shared) {
        let rows = std::mem::take(&mut self.purging);
        let again = shared.unix_ms() + AGAIN_MS;
        let mut deadlines = match response.outcome {
            Outcome::Committed => integers(&response.output),
            _ => Vec::new(),
        }
        .into_iter();
        for row in rows {
            match deadlines.next() {
                Some(0) => {}
                Some(deadline) => self.remember(deadline, row, shared),
                None => self.remember(again, row, shared),
            }
        }
    }
}

/// The integers that such a transaction has answered, as far as they can be read.
pub fn integers(output: &[u8]) -> Vec<i64> {
    let replies = OutputHead::parse(output).map_or(&[][..], |(_, replies)| replies);
    let lines = replies.split(|byte| *byte == b'\n');
    let number = |line: &[u8]| parse_i64(line.strip_prefix(b":")?.strip_suffix(b"\r")?);
    lines.map_while(number).collect()
}
