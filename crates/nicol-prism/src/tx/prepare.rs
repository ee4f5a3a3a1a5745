//! The prepare phase: a compare-and-swap for each key read and for each key written, in one chain
//! at each server. [PRISM21 8.2]

use std::rc::Rc;

use nicol_core::chain::{Chain, ChainResults};
use nicol_core::fabric::{Fabric, FabricError, Timeout};
use nicol_core::ids::EngineId;
use nicol_core::txn::{Abort, Txn};
use nicol_core::units::Nanos;
use nicol_kit::{Calls, count};

use super::chains::{ReadCheck, When, WriteCheck, mark_operations, parse, write_operations};
use super::checks::{Bundle, Due};
use super::config::{OwnReads, Staging};
use super::coordinator::{Access, Steps, list_for};
use super::execute::{Executed, NOT_READY_TRIES, NOT_READY_WAIT};
use super::layout::Item;
use super::messages::{Of, Staged, Stock};
use crate::messages::List;
use crate::tag::Tag;

/// Wait before a client asks a server again about the fate of a write.
const ASK_AGAIN: Nanos = Nanos::from_micros(200);

/// A write of a transaction, and how far it has come.
#[derive(Clone)]
pub(super) struct Write {
    /// Its place among the transaction's entries.
    pub(super) index: usize,
    pub(super) access: Access,
    /// The free list that its buffer comes from.
    pub(super) list: List,
    pub(super) state: WriteCheck,
}

/// Proof that no other transaction has prepared to write what was read, and that every write may be
/// installed.
#[must_use = "install the writes"]
pub(super) struct Prepared(Vec<Write>);

impl Prepared {
    pub(super) fn as_writes(&self) -> &[Write] {
        &self.0
    }

    pub(super) fn writes(self) -> Vec<Write> {
        self.0
    }
}

/// A transaction that one of its checks has refused, with what they have raised PW for.
#[must_use = "give the writes up"]
pub(super) struct Refused {
    pub(super) abort: Abort,
    pub(super) writes: Vec<Write>,
}

impl From<Abort> for Refused {
    fn from(abort: Abort) -> Self {
        Self { abort, writes: Vec::new() }
    }
}

impl Refused {
    /// Takes what is staged for a write that may be installed: what a client does that is broken on
    /// purpose.
    pub(super) fn unchecked(mut self) -> Prepared {
        self.writes.retain(|write| write.state.staged() != 0);
        Prepared(self.writes)
    }
}

/// The item that will be installed for the write at `index`.
pub(super) fn item_of(txn: &Txn, index: usize, ts: Tag, writes: u16, staging: Staging) -> Item<'_> {
    let value = txn.update(index).and_then(|write| write.value);
    let mut item = Item::new(ts, txn.entries()[index].key, value, writes);
    if staging == Staging::AtCommit {
        item.meta = item.meta.finished();
    }
    item
}

/// A key of a transaction while its checks are made.
struct Checked {
    access: Access,
    /// Whether its read is still to be validated.
    read: bool,
    write: Option<Write>,
    /// Bytes of the item.
    bytes: usize,
}

impl Checked {
    fn due(&self) -> Due {
        let open =
            |write: &&Write| matches!(write.state, WriteCheck::Skipped | WriteCheck::NotReady);
        let write = self.write.as_ref().filter(open).map(|_| self.bytes);
        Due { server: self.access.server, read: self.read, write }
    }
}

/// The refusals of a round of checks.
#[derive(Default)]
struct Refusals {
    /// Why the transaction aborts, whatever its write checks come to: a read validation has failed,
    /// or a server does not answer.
    end: Option<Abort>,
    /// Why a write check has failed.
    write: Option<Abort>,
    /// Whether a write has found no buffer.
    not_ready: bool,
}

impl Refusals {
    /// The first one counts.
    fn end(&mut self, why: Abort) {
        self.end.get_or_insert(why);
    }
}

impl<F: Fabric> Steps<F> {
    /// Makes every check of a transaction, in one round trip where chains can hold them.
    /// [PRISM21 8.2 prepare]
    ///
    /// Errors: one of them does not hold.
    pub(super) async fn prepare(
        self: &Rc<Self>,
        txn: &Txn,
        executed: Executed,
        ts: Tag,
    ) -> Result<Prepared, Refused> {
        let _phase = self.fabric.phase("prepare");
        let mut keys = self.keys_to_check(txn, &executed, ts)?;
        let (mut wait, mut waits) = (NOT_READY_WAIT, 0);
        let mut rounds = 0;
        let refused = loop {
            let due: Vec<Due> = keys.iter().map(Checked::due).collect();
            let round = self.plan.next_round(&due);
            if round.is_empty() {
                break None;
            }
            self.count_round(rounds, &round, &due);
            rounds += 1;
            let found = self.check(txn, &mut keys, &round, ts).await;
            let refused = found.end.or(found.write);
            if refused.is_some() {
                break refused;
            }
            if found.not_ready {
                if waits == NOT_READY_TRIES {
                    break Some(Abort::NoResources);
                }
                // [PRISM21 4.2] Receiver not ready: back off.
                count(&self.node.recycled.waits);
                waits += 1;
                self.fabric.sleep_until(self.fabric.now() + wait).await;
                wait = wait * 2;
            }
        };
        let writes = keys.into_iter().filter_map(|key| key.write).collect();
        match refused {
            Some(abort) => Err(Refused { abort, writes }),
            None => Ok(Prepared(writes)),
        }
    }

    /// Every key that was read or is written.
    fn keys_to_check(
        &self,
        txn: &Txn,
        executed: &Executed,
        ts: Tag,
    ) -> Result<Vec<Checked>, Abort> {
        let (staging, writes) = (self.node.config().staging, txn.updates().count() as u16);
        let mut keys = Vec::with_capacity(executed.accesses().len());
        for (index, access) in executed.accesses().iter().enumerate() {
            let (read, mut write, mut bytes) = (txn.entries()[index].fetched, None, 0);
            if txn.update(index).is_some() {
                bytes = item_of(txn, index, ts, writes, staging).emit().len();
                let list = list_for(&access.handles, bytes as u64)?;
                let state = WriteCheck::Skipped;
                write = Some(Write { index, access: access.clone(), list, state });
            }
            if read || write.is_some() {
                keys.push(Checked { access: access.clone(), read, write, bytes });
            }
        }
        Ok(keys)
    }

    /// Counts what goes beyond one round trip, and beyond one chain at a server.
    fn count_round(&self, rounds: u64, round: &[Bundle], due: &[Due]) {
        let counts = &self.node.counts;
        if rounds > 0 {
            count(&counts.more_rounds);
        }
        let server = |bundle: &Bundle| bundle.places().first().map(|&key| due[key].server);
        let repeated = round.windows(2).filter(|pair| server(&pair[0]) == server(&pair[1]));
        repeated.for_each(|_| count(&counts.more_chains));
    }

    /// Makes the checks of a round, and says what they have come to in `keys`.
    async fn check(&self, txn: &Txn, keys: &mut [Checked], round: &[Bundle], ts: Tag) -> Refusals {
        let mut calls = Calls::<F, &Bundle>::default();
        for bundle in round {
            calls.push(bundle, self.post_checks(txn, keys, bundle, ts));
        }
        let mut refusals = Refusals::default();
        while let Some((bundle, reply)) = calls.next().await {
            let unanswered = match reply.as_ref().map(|reply| parse(reply.as_ref())) {
                Ok(Ok(results)) => self.take(keys, bundle, ts, &results, &mut refusals),
                Ok(Err(error)) | Err(&error) => Some(error),
            };
            if let Some(error) = unanswered {
                self.settle(keys, bundle, ts, error, &mut refusals).await;
            }
        }
        refusals
    }

    /// Sends the chain of `bundle`.
    fn post_checks(&self, txn: &Txn, keys: &[Checked], bundle: &Bundle, ts: Tag) -> F::Completion {
        let config = self.node.config();
        let count = txn.updates().count() as u16;
        let carried = bundle.writes.iter().map(|&key| keys[key].bytes).sum();
        let mut chain = Chain::carrying(carried);
        let mut when = When::Always;
        for &key in &bundle.reads {
            let access = &keys[key].access;
            access.at(config).check_read(&mut chain, when, access.rc, ts);
            when = if bundle.writes.is_empty() { When::Always } else { When::AfterSuccess };
        }
        let [first, ..] = bundle.places() else { panic!("a chain has a check") };
        let access = &keys[*first].access;
        let writes = || bundle.writes.iter().filter_map(|&key| keys[key].write.as_ref());
        if writes().next().is_some() {
            access.at(config).begin_writes(&mut chain, when, ts);
        }
        if config.staging == Staging::AtPrepare {
            when = When::AfterSuccess;
        }
        for (place, write) in writes().enumerate() {
            let told =
                if place + 1 < bundle.writes.len() { When::AfterSuccess } else { When::Always };
            let item = item_of(txn, write.index, ts, count, config.staging);
            let at = write.access.at(config);
            at.check_write(&mut chain, when, write.list.key, &item, told);
            when = When::AfterSuccess;
        }
        self.post(access, &chain)
    }

    /// Takes the results of a chain. An operation that its server could not execute: the error.
    fn take(
        &self,
        keys: &mut [Checked],
        bundle: &Bundle,
        ts: Tag,
        results: &ChainResults<'_>,
        refusals: &mut Refusals,
    ) -> Option<FabricError> {
        let config = self.node.config();
        let mut failed = None;
        for (at, &place) in bundle.reads.iter().enumerate() {
            let key = &mut keys[place];
            let checked = key.access.at(config).read_checked(results, at, key.access.rc);
            failed = failed.or(self.read_found(key, checked, refusals).err());
        }
        let mut at = bundle.reads.len() + mark_operations(config.staging);
        for &place in &bundle.writes {
            let Some(write) = &mut keys[place].write else { continue };
            match write.access.at(config).write_checked(results, at) {
                Ok(state) => {
                    write.state = state;
                    self.write_found(write, ts, refusals);
                }
                Err(error) => failed = failed.or(Some(error)),
            }
            at += write_operations(config.staging);
        }
        failed
    }

    /// Takes what a read validation has come to.
    fn read_found(
        &self,
        key: &mut Checked,
        checked: Result<ReadCheck, FabricError>,
        refusals: &mut Refusals,
    ) -> Result<(), FabricError> {
        match checked? {
            ReadCheck::Raised => key.read = false,
            ReadCheck::NotNeeded => {
                count(&self.node.counts.not_needed);
                key.read = false;
                if key.write.is_some() {
                    // TS > PR does not hold: its write, which was skipped, cannot pass.
                    let key = key.access.key;
                    refusals.write.get_or_insert(Abort::ValidateLocked { key });
                }
            }
            ReadCheck::Failed { pw } => {
                let key = key.access.key;
                refusals.end(self.conflict(pw, key, Abort::Stale { key }));
            }
            ReadCheck::Skipped => {}
        }
        Ok(())
    }

    /// Takes what a write check has come to.
    fn write_found(&self, write: &Write, ts: Tag, refusals: &mut Refusals) {
        let key = write.access.key;
        let refused = match write.state {
            WriteCheck::Raised { old_pr, .. } if self.passes(old_pr, ts) => return,
            WriteCheck::Raised { .. } => Abort::ValidateLocked { key },
            WriteCheck::Failed { pw, .. } => self.conflict(pw, key, Abort::LockConflict { key }),
            WriteCheck::NotReady => {
                refusals.not_ready = true;
                return;
            }
            WriteCheck::Skipped => return,
        };
        refusals.write.get_or_insert(refused);
    }

    /// Whether a write at `ts` is late enough, where PR is `pr`.
    pub(super) fn passes(&self, pr: Tag, ts: Tag) -> bool {
        match self.node.config().own_reads {
            OwnReads::Conflict => pr < ts,
            // DEVIATION [PRISM21 8.2 write validation]: not TS > PR, which a transaction that reads
            // what it writes has made impossible itself. AMB-13
            OwnReads::Pass => pr <= ts,
        }
    }

    /// Finds out what has become of the checks of a chain that ended with `error`; what stays
    /// unknown aborts the transaction.
    async fn settle(
        &self,
        keys: &mut [Checked],
        bundle: &Bundle,
        ts: Tag,
        error: FabricError,
        refusals: &mut Refusals,
    ) {
        let [first, ..] = bundle.places() else { return };
        let access = keys[*first].access.clone();
        let staged = match bundle.writes.first() {
            Some(_) => self.resolve(&access, ts, error).await.unwrap_or_default(),
            // It may still raise PR: that is as if somebody had read the key and aborted.
            None => Staged::default(),
        };
        for &place in &bundle.writes {
            let key = &mut keys[place];
            let Some(write) = key.write.as_mut() else { continue };
            let found = staged.writes.iter().find(|found| found.key == write.access.key);
            let Some(found) = found else { continue };
            write.state = match found.raised {
                Some((old_pw, old_pr)) => {
                    WriteCheck::Raised { old_pw, old_pr, staged: found.offset }
                }
                None => WriteCheck::Failed { pw: ts, staged: found.offset },
            };
            self.write_found(write, ts, refusals);
            // It was staged, so that every read before it is valid.
            bundle.reads.iter().for_each(|&read| keys[read].read = false);
        }
        if bundle.reads.iter().chain(&bundle.writes).any(|&key| keys[key].due().is_open()) {
            refusals.end(self.failure(&access, error).await);
        }
    }

    /// What a transaction has staged at a server whose answer is missing, as the server tells once
    /// nothing of it can arrive any more. `None`: nothing is staged, or the server has died.
    async fn resolve(&self, access: &Access, ts: Tag, error: FabricError) -> Option<Staged> {
        let is_silent = matches!(error, FabricError::Unreachable | FabricError::TimedOut { .. });
        if !is_silent || self.node.config().staging == Staging::AtCommit {
            return None;
        }
        let stock = Stock(Of::Txn(ts));
        loop {
            if self.node.lost().contain(access.server) {
                return None;
            }
            let asked = EngineId::host(access.server, 0);
            let answer = self.fabric.call(asked, &stock, Timeout::Never).await;
            match answer.ok().and_then(|body| Staged::parse(body.as_ref()).ok()) {
                Some(staged) => {
                    count(&self.node.counts.resolved);
                    return Some(staged);
                }
                None => self.fabric.sleep_until(self.fabric.now() + ASK_AGAIN).await,
            }
        }
    }
}
