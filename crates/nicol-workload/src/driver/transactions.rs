//! What clients of the commit family do: a workload's transactions, run by a coordinator.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use nicol_core::commit::CommitProtocol;
use nicol_core::fabric::Local;
use nicol_core::history::{self, Action, Effect, End, digest};
use nicol_core::ids::{NodeId, TxnId};
use nicol_core::rng::Stream;
use nicol_core::txn::{Abort, Outcome, Txn};
use nicol_core::workload::Workload;

use super::recorder::Recorder;
use super::session::{Again, Attempted, ClientOperation, HistoryEntry, Session};
use super::{RunControl, home_of, spawn};

/// Makes the recorder of an engine and spawns `clients` clients there that run transactions of
/// `workload`, the first one numbered `first`.
///
/// # Panics
/// If a number is out of the run's range.
pub fn spawn_clients<F: Local, C: CommitProtocol>(
    fabric: &F,
    protocol: &C,
    workload: &Arc<dyn Workload>,
    run: &Arc<RunControl>,
    first: u32,
    clients: u32,
) {
    spawn_recorded(fabric, protocol, workload, &Recorder::new(run), first..first + clients);
}

/// Spawns clients of these numbers, that record what they see at `recorder`.
pub(super) fn spawn_recorded<F: Local, C: CommitProtocol>(
    fabric: &F,
    protocol: &C,
    workload: &Arc<dyn Workload>,
    recorder: &Rc<Recorder>,
    clients: Range<u32>,
) {
    spawn(fabric, recorder, clients, |client, _| Transactions {
        client,
        home: home_of(fabric.view(), fabric.here().node, client),
        protocol: protocol.clone(),
        workload: Arc::clone(workload),
        awaits_recovery: recorder.run().bursts().is_some(),
    });
}

/// The session of a client that runs transactions.
struct Transactions<C> {
    client: u32,
    home: NodeId,
    protocol: C,
    workload: Arc<dyn Workload>,
    /// May an attempt that a lost node's shard or lock has refused be tried again?
    awaits_recovery: bool,
}

impl<C: CommitProtocol> Session for Transactions<C> {
    type Operation = Transaction;

    fn next(&mut self, random: &mut Stream, operation: &mut Transaction) -> usize {
        let kind = self.workload.next_of(self.client, self.home, random, &mut operation.txn);
        operation.adds_keys = self.workload.adds_keys(kind);
        operation.initial = operation.txn.entries().len();
        kind
    }

    async fn attempt(&self, operation: &mut Transaction) -> Attempted {
        match self.protocol.run(&mut operation.txn).await {
            Outcome::Committed => {
                operation.check_added_keys();
                Attempted::Done
            }
            Outcome::Unknown => Attempted::Unknown,
            Outcome::Aborted(reason) => {
                let again = match reason {
                    Abort::Refused => Again::Refused,
                    Abort::NoResources => Again::WhenFull,
                    Abort::ShardUnavailable { .. } | Abort::AwaitsRecovery { .. }
                        if self.awaits_recovery =>
                    {
                        Again::WhenFull
                    }
                    _ if reason.retryable() => Again::Yes,
                    _ => Again::Never,
                };
                Attempted::Aborted { reason: reason.index(), again }
            }
        }
    }

    fn next_piece(&mut self, kind: usize, operation: &mut Transaction) -> bool {
        let more = self.workload.next_piece(kind, &mut operation.txn);
        operation.initial = operation.txn.entries().len();
        more
    }

    fn deferred(&self) -> Option<usize> {
        self.workload.deferred()
    }
}

/// A transaction under way.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    txn: Txn,
    /// Keys of its first request.
    initial: usize,
    /// May its execution write further ones?
    adds_keys: bool,
}

impl Transaction {
    /// Checks, once an attempt has committed, that only a kind of which that was said has added
    /// keys to the initial ones and written them.
    fn check_added_keys(&self) {
        let mut added = self.txn.entries()[self.initial..].iter();
        assert!(
            self.adds_keys || !added.any(|entry| entry.write),
            "Workload::adds_keys says that too"
        );
    }
}

impl ClientOperation for Transaction {
    fn rewind(&mut self) {
        self.txn.rewind(self.initial);
    }

    fn left(&self) -> i64 {
        self.txn.output.first_chunk::<8>().map_or(0, |left| i64::from_le_bytes(*left))
    }

    fn history_entry(&self, end: End) -> Option<HistoryEntry> {
        let txn = &self.txn;
        if txn.id == TxnId(0) {
            // It ended before the coordinator numbered it, so that nobody can have seen it.
            assert!(end != End::Ok, "a committed transaction has an id");
            return None;
        }
        let is_unknown = end == End::Unknown;
        let action = Action::Txn(history::Txn {
            reads: reads(txn),
            scans: scans(txn),
            writes: writes(txn, is_unknown),
            writes_more: is_unknown && txn.ship && self.adds_keys,
        });
        Some(HistoryEntry { id: Some(txn.id.0), action })
    }
}

/// The reads by key, with those of scans.
fn reads(txn: &Txn) -> Vec<history::Read> {
    let fetched = |index: &usize| txn.entries()[*index].fetched;
    // Nearly all were: a list that grows entry by entry would be copied again and again.
    let mut reads = Vec::with_capacity(txn.entries().len());
    reads.extend((0..txn.entries().len()).filter(fetched).map(|index| read(txn, index)));
    reads
}

/// The read of the key at `index`. If it was executed elsewhere, the value is unknown.
fn read(txn: &Txn, index: usize) -> history::Read {
    let entry = &txn.entries()[index];
    let value = if entry.remote { None } else { txn.value(index) };
    history::Read {
        key: entry.key.into(),
        present: entry.present,
        version: Some(entry.version.0),
        digest: value.map(digest),
    }
}

/// The ranges that were read.
fn scans(txn: &Txn) -> Vec<history::Scan> {
    let made = (0..txn.scans().len()).filter_map(|scan| Some((scan, txn.found(scan)?)));
    made.map(|(scan, found)| {
        let range = txn.scans()[scan].range;
        let fetched = |index: &&u32| txn.entries()[**index as usize].fetched;
        history::Scan {
            first: range.first.into(),
            last: range.last.into(),
            backward: range.backward,
            limit: Some(range.limit),
            found: found.iter().filter(fetched).map(|&at| read(txn, at as usize)).collect(),
        }
    })
    .collect()
}

/// The bytes written; where the outcome is unknown, also the keys that may have been.
fn writes(txn: &Txn, is_unknown: bool) -> Vec<history::Write> {
    let write = |index: usize| {
        let entry = &txn.entries()[index];
        let update = txn.update(index).filter(|_| entry.fetched || entry.blind);
        let key = entry.key.into();
        match update {
            Some(update) => {
                let known = update.value.filter(|_| !entry.remote).map(digest);
                let effect = match update.value {
                    Some(_) => Effect::Put { digest: known },
                    None => Effect::Delete,
                };
                Some(history::Write { key, effect, version: Some(update.version.0) })
            }
            None if entry.write && is_unknown => {
                Some(history::Write { key, effect: Effect::Unknown, version: None })
            }
            None => None,
        }
    };
    (0..txn.entries().len()).filter_map(write).collect()
}
