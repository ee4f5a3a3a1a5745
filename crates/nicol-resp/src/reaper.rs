//! Frees what has expired and is not touched any more.
//!
//! A front thread remembers the rows in which its clients let keys expire, once each, with the
//! earliest deadline that was given there. When it comes, the thread submits a transaction that frees
//! what is over in the row and tells the next deadline. Until then such keys only take space: every
//! command sees them as absent from their deadline on.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use nicol_core::ids::{IdMap, Key};
use nicol_core::txn::Outcome;

use super::backend::{Request, Response};
use super::encode::Protocol;
use super::front::Front;
use super::gate::Waiter;
use super::number::parse_i64;
use super::plan::{Kind, Op, PlanBuilder};
use super::procedure::OutputHead;

/// The place of the reaper among the connections.
pub const REAPER: usize = usize::MAX - 2;
/// Rows that one thread remembers; the keys of others are freed when their record is next written.
const ROWS_MAX: usize = 1 << 20;
/// Rows of one transaction.
const BATCH: usize = 128;
/// How long a row waits whose transaction has aborted.
const AGAIN_MS: i64 = 100;

/// The rows of one front thread in which keys expire.
#[derive(Debug, Default)]
pub struct Reaper {
    due: BTreeSet<(i64, Key)>,
    /// The deadline under which each row is in `due`.
    known: IdMap<Key, i64>,
    /// The rows of the transaction in progress.
    reaping: Vec<Key>,
    noted: Vec<(i64, Key)>,
}

impl Front {
    /// Remembers the rows in which the commands of `plan` let keys expire.
    pub(super) fn note_expiring(&mut self, plan: &mut PlanBuilder) {
        let mut noted = std::mem::take(&mut self.reaper.noted);
        plan.take_expiring(&mut noted);
        for (deadline, row) in noted.drain(..) {
            self.remember(deadline, row);
        }
        self.reaper.noted = noted;
    }

    /// Notes when rows expire that were there before this server.
    pub fn expect_to_reap(&mut self, rows: &[(i64, Key)]) {
        rows.iter().for_each(|&(deadline, row)| self.remember(deadline, row));
    }

    fn remember(&mut self, deadline: i64, row: Key) {
        let reaper = &mut self.reaper;
        let full = reaper.known.len() >= ROWS_MAX;
        match reaper.known.get_mut(&row) {
            // Of a later one the transaction that comes at the earlier one tells.
            Some(known) if *known <= deadline => {}
            Some(known) => {
                reaper.due.remove(&(*known, row));
                reaper.due.insert((deadline, row));
                *known = deadline;
            }
            None if full => {}
            None => {
                reaper.known.insert(row, deadline);
                reaper.due.insert((deadline, row));
                self.shared.expiring.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Submits the rows whose deadline has come, if none are in progress.
    pub(super) fn reap(&mut self) {
        let now = self.shared.unix_ms();
        let reaper = &mut self.reaper;
        if !reaper.reaping.is_empty() || self.shared.stop.load(Ordering::SeqCst) {
            return;
        }
        let mut plan = PlanBuilder::new();
        while let Some(&(deadline, row)) = reaper.due.first()
            && deadline <= now
            && reaper.reaping.len() < BATCH.min(self.shared.config.limits.transaction_keys)
        {
            reaper.due.pop_first();
            // A deadline that a command gives it from here on counts: it comes after this transaction.
            reaper.known.remove(&row);
            self.shared.expiring.fetch_sub(1, Ordering::Relaxed);
            reaper.reaping.push(row);
            plan.begin(Op::Reap);
            plan.key(row, b"");
        }
        if reaper.reaping.is_empty() {
            return;
        }
        let value_max = self.shared.config.limits.value_bytes;
        let request = plan.finish(Kind::Batch, Protocol::Resp2, value_max, &[], now);
        let waiter = Waiter { slot: REAPER, connection: 0, request: Arc::new(request) };
        if let Some(waiter) = self.gate.enter(waiter) {
            self.submit(waiter);
        }
    }

    /// The reaper's transaction has ended: rows with another deadline wait for it.
    pub(super) fn reaped(&mut self, request: &Request, response: &Response) {
        self.release(request);
        let rows = std::mem::take(&mut self.reaper.reaping);
        let again = self.shared.unix_ms() + AGAIN_MS;
        let mut deadlines = match response.outcome {
            Outcome::Committed => next_deadlines(&response.output),
            _ => Vec::new(),
        }
        .into_iter();
        for row in rows {
            match deadlines.next() {
                Some(0) => {}
                Some(deadline) => self.remember(deadline, row),
                None => self.remember(again, row),
            }
        }
        self.reap();
    }
}

/// The integers that a reaper's transaction has answered, as far as they can be read.
fn next_deadlines(output: &[u8]) -> Vec<i64> {
    let replies = OutputHead::parse(output).map_or(&[][..], |(_, replies)| replies);
    let lines = replies.split(|byte| *byte == b'\n');
    let number = |line: &[u8]| parse_i64(line.strip_prefix(b":")?.strip_suffix(b"\r")?);
    lines.map_while(number).collect()
}
