//! The prepare phase: a compare-and-swap for each key read, then one for each key written.
//! [PRISM21 8.2]

use std::rc::Rc;

use nicol_core::fabric::{Fabric, FabricError, Timeout};
use nicol_core::ids::EngineId;
use nicol_core::txn::{Abort, Txn};
use nicol_core::units::Nanos;
use nicol_kit::{AllGranted, Calls, count};

use super::chains::{ReadCheck, WriteCheck};
use super::config::{OwnReads, Staging};
use super::coordinator::{Access, Steps, list_for};
use super::execute::{Executed, NOT_READY_TRIES, NOT_READY_WAIT};
use super::layout::Item;
use super::messages::{Of, Staged, Stock};
use crate::messages::List;
use crate::tag::Tag;

/// How long a client waits before it asks a server again what has become of a write.
const ASK_AGAIN: Nanos = Nanos::from_micros(200);

/// Proof that no other transaction has prepared to write what was read.
#[must_use = "check the writes"]
pub(super) struct ReadsValid(Executed, AllGranted);

/// A write of a transaction, and how far it has come.
#[derive(Clone)]
pub(super) struct Write {
    /// Its place among the transaction's entries.
    pub(super) index: usize,
    pub(super) access: Access,
    /// Where its buffer comes from.
    pub(super) list: List,
    pub(super) state: WriteCheck,
}

/// Proof that every write may be installed.
#[must_use = "install the writes"]
pub(super) struct Prepared(Vec<Write>);

impl Prepared {
    pub(super) fn writes(self) -> Vec<Write> {
        self.0
    }
}

/// What will be installed of the write at `index`.
pub(super) fn item_of(txn: &Txn, index: usize, ts: Tag, writes: u16, staging: Staging) -> Item<'_> {
    let value = txn.update(index).and_then(|write| write.value);
    let mut item = Item::new(ts, txn.entries()[index].key, value, writes);
    if staging == Staging::AtCommit {
        item.meta = item.meta.finished();
    }
    item
}

impl<F: Fabric> Steps<F> {
    /// [PRISM21 8.2 read validation] RC|TS > PW|PR, for every key that was read.
    pub(super) async fn check_reads(
        &self,
        txn: &Txn,
        executed: Executed,
        ts: Tag,
    ) -> Result<ReadsValid, Abort> {
        let _phase = self.fabric.phase("read validation");
        let config = self.node.config();
        let accesses = executed.accesses();
        let mut calls = Calls::<F, &Access>::default();
        for (access, _) in accesses.iter().zip(txn.entries()).filter(|(_, entry)| entry.fetched) {
            let chain = access.at(config).check_read(access.rc, ts);
            calls.push(access, self.post(access, &chain));
        }
        let mut unanswered = None;
        let checked = calls.gather(|access: &Access, reply| {
            let checked =
                reply.and_then(|reply| access.at(config).read_checked(reply.as_ref(), access.rc));
            match checked {
                Ok(ReadCheck::Raised) => Ok(()),
                Ok(ReadCheck::NotNeeded) => {
                    count(&self.node.counts.not_needed);
                    Ok(())
                }
                Ok(ReadCheck::Failed { pw }) => {
                    let key = access.key;
                    Err(self.conflict(pw, key, Abort::Stale { key }))
                }
                Err(error) => {
                    // It may still raise PR: that is as if somebody had read the key and aborted.
                    unanswered.get_or_insert((access, error));
                    Err(Abort::Fabric(error))
                }
            }
        });
        let checked = checked.await;
        match (checked, unanswered) {
            (Ok(granted), _) => Ok(ReadsValid(executed, granted)),
            (Err(_), Some((access, error))) => Err(self.failure(access, error).await),
            (Err(abort), None) => Err(abort),
        }
    }

    /// [PRISM21 8.2 write validation] TS > PW, then TS >= PR, for every key that is written.
    ///
    /// Errors: one of them does not hold. What PW has been raised for is given up.
    pub(super) async fn check_writes(
        self: &Rc<Self>,
        txn: &Txn,
        ReadsValid(executed, _): ReadsValid,
        ts: Tag,
    ) -> Result<Prepared, Abort> {
        let _phase = self.fabric.phase("write validation");
        let staging = self.node.config().staging;
        let count = txn.updates().count() as u16;
        let mut writes = Vec::with_capacity(usize::from(count));
        for (index, access) in executed.accesses().iter().enumerate() {
            if txn.update(index).is_none() {
                continue;
            }
            let bytes = item_of(txn, index, ts, count, staging).emit().len() as u64;
            let list = list_for(&access.handles, bytes)?;
            let state = WriteCheck::NotReady;
            writes.push(Write { index, access: access.clone(), list, state });
        }
        let mut calls = Calls::<F, usize>::default();
        for (place, write) in writes.iter().enumerate() {
            calls.push(place, self.post_check(txn, write, ts, count));
        }
        let mut refused = None;
        while let Some((place, reply)) = calls.next().await {
            let checked = self.write_checked(txn, &mut writes[place], ts, count, reply).await;
            refused = refused.or(checked.err());
        }
        match self.hooks().refusal(refused) {
            Some(abort) => {
                self.give_up(writes, ts);
                Err(abort)
            }
            None => Ok(Prepared(writes)),
        }
    }

    fn post_check(&self, txn: &Txn, write: &Write, ts: Tag, count: u16) -> F::Completion {
        let config = self.node.config();
        let item = item_of(txn, write.index, ts, count, config.staging);
        self.post(&write.access, &write.access.at(config).check_write(write.list.key, &item))
    }

    /// Takes the answer to a write check, and sees to it that there is one.
    async fn write_checked(
        &self,
        txn: &Txn,
        write: &mut Write,
        ts: Tag,
        writes: u16,
        mut reply: Result<F::Payload, FabricError>,
    ) -> Result<(), Abort> {
        let config = self.node.config();
        let mut wait = NOT_READY_WAIT;
        let mut tries = 0;
        let checked = loop {
            let at = write.access.at(config);
            let checked = reply.and_then(|reply| at.write_checked(reply.as_ref()));
            let not_ready = matches!(checked, Ok(WriteCheck::NotReady))
                || checked == Err(FabricError::NoResources);
            if !not_ready || tries == NOT_READY_TRIES {
                break checked;
            }
            // [PRISM21 4.2] Receiver not ready: back off.
            count(&self.node.recycled.waits);
            tries += 1;
            self.fabric.sleep_until(self.fabric.now() + wait).await;
            wait = wait * 2;
            reply = self.post_check(txn, write, ts, writes).await;
        };
        write.state = match checked {
            Ok(state) => state,
            Err(error) => match self.resolve(&write.access, ts, error).await {
                Some(state) => state,
                None => return Err(self.failure(&write.access, error).await),
            },
        };
        let key = write.access.key;
        match write.state {
            WriteCheck::Raised { old_pr, .. } if self.passes(old_pr, ts) => Ok(()),
            WriteCheck::Raised { .. } => Err(Abort::ValidateLocked { key }),
            WriteCheck::Failed { pw, .. } => {
                Err(self.conflict(pw, key, Abort::LockConflict { key }))
            }
            WriteCheck::NotReady => Err(Abort::NoResources),
        }
    }

    /// Is a write at `ts` late enough, where PR is `pr`?
    pub(super) fn passes(&self, pr: Tag, ts: Tag) -> bool {
        match self.node.config().own_reads {
            OwnReads::Conflict => pr < ts,
            // DEVIATION [PRISM21 8.2 write validation]: not TS > PR, which a transaction that reads
            // what it writes has made impossible itself. AMB-13
            OwnReads::Pass => pr <= ts,
        }
    }

    /// What has become of a write check that has failed to answer: its server tells, once it cannot
    /// arrive any more. `None`: nothing, or the server has died.
    async fn resolve(&self, access: &Access, ts: Tag, error: FabricError) -> Option<WriteCheck> {
        let is_silent = matches!(error, FabricError::Unreachable | FabricError::TimedOut { .. });
        if !is_silent || self.node.config().staging == Staging::AtCommit {
            return None;
        }
        let stock = Stock(Of::Txn(ts));
        let staged = loop {
            if self.node.lost().contain(access.server) {
                return None;
            }
            let asked = EngineId::host(access.server, 0);
            let answer = self.fabric.call(asked, &stock, Timeout::Never).await;
            match answer.ok().and_then(|body| Staged::parse(body.as_ref()).ok()) {
                Some(staged) => break staged,
                None => self.fabric.sleep_until(self.fabric.now() + ASK_AGAIN).await,
            }
        };
        count(&self.node.counts.resolved);
        let write = staged.writes.iter().find(|write| write.key == access.key)?;
        Some(match write.raised {
            Some((old_pw, old_pr)) => WriteCheck::Raised { old_pw, old_pr, staged: write.offset },
            None => WriteCheck::Failed { pw: ts, staged: write.offset },
        })
    }
}
