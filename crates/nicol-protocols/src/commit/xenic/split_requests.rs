//! Without combined operations: separate requests to read, lock and validate. [Xenic21 5.7]
//!
//! The baseline of the paper's ablations, with the requests that one-sided verbs allow: READ in the
//! place of EXECUTE; once the writes are known, LOCK, which also compares the versions read; then
//! VALIDATE, LOG and COMMIT as ever.

use std::rc::Rc;

use nicol_core::fabric::{Fabric, ReplyTo, Timeout, Work};
use nicol_core::ids::TxnId;
use nicol_core::txn::Abort;
use nicol_core::view::ShardSet;

use super::coordinator::{Executed, Locked};
use super::messages::split_requests::{Lock, parse_lock};
use super::nic::{Nic, OpenTxn, Sent};
use crate::commit::messages::{Reads, ValidateReply, verdict};

impl<F: Fabric> Nic<F> {
    /// Locks the write set if EXECUTE has only read it.
    pub(super) async fn lock(
        &self,
        open: &mut OpenTxn<F>,
        executed: Executed,
    ) -> Result<Locked, Abort> {
        if self.node.config().combined_ops {
            return Ok(executed.locked());
        }
        for shard in self.fabric.view().shard_ids() {
            self.select(open, shard, |entry| entry.write);
            if open.keys.is_empty() {
                continue;
            }
            open.held.insert(shard);
            let timeout = Timeout::After(self.node.config().timeout);
            let message = Lock { txn: &open.txn, keys: &open.keys };
            let node = self.fabric.view().primary(shard);
            let to = self.fabric.view().nic_of(node, self.fabric.here().core);
            let reply = self.fabric.call(to, &message, timeout);
            open.calls.push(Sent { to: node, shard, reply });
        }
        let mut failure = None;
        let mut calls = std::mem::take(&mut open.calls);
        for sent in calls.drain(..) {
            if let Err(abort) = verdict(sent.reply.await) {
                self.denied(open, sent.shard, &ShardSet::new(), abort);
                failure.get_or_insert(abort);
            }
        }
        open.calls = calls;
        match failure {
            None => Ok(executed.locked()),
            Some(abort) => Err(abort),
        }
    }

    /// LOCK: all or nothing, at the versions read.
    pub(super) async fn serve_lock(self: Rc<Self>, body: F::Payload, reply_to: ReplyTo) {
        let Ok((txn, reads)) = parse_lock(body.as_ref()) else { return };
        let mut granted = self.lock_all(txn, &reads);
        if granted.is_ok() {
            granted = match self.compare(&reads).await {
                Err(Abort::Fabric(error)) => {
                    self.unlock_first(txn, &reads, usize::MAX);
                    return self.fabric.refuse(reply_to, error);
                }
                compared => compared,
            };
            if granted.is_err() {
                self.unlock_first(txn, &reads, usize::MAX);
            }
        }
        self.fabric.reply(reply_to, &ValidateReply(granted));
    }

    fn lock_all(&self, txn: TxnId, reads: &Reads<&[u8]>) -> Result<(), Abort> {
        for (locked, read) in reads.iter().enumerate() {
            self.fabric.work(Work::IndexLookup);
            if let Err(abort) = self.node.lock(read.key, txn) {
                self.unlock_first(txn, reads, locked);
                return Err(abort);
            }
        }
        Ok(())
    }

    fn unlock_first(&self, txn: TxnId, reads: &Reads<&[u8]>, count: usize) {
        for read in reads.iter().take(count) {
            self.fabric.work(Work::IndexLookup);
            self.node.unlock(read.key, txn);
        }
    }

    /// Is everything as it was read, and is there room for what was absent?
    async fn compare(&self, reads: &Reads<&[u8]>) -> Result<(), Abort> {
        let mut found = self.lookups.batch();
        let read = self.lookups.read_all(reads.iter().map(|read| read.key), &mut found).await;
        let mut verdict = read.map_err(Abort::Fabric);
        for (read, now) in reads.iter().zip(found.iter()) {
            if verdict.is_ok() && (now.version, now.value.is_some()) != (read.version, read.present)
            {
                verdict = Err(Abort::Stale { key: read.key });
            }
            if verdict.is_ok() && !read.present && !self.node.has_capacity() {
                verdict = Err(Abort::NoResources);
            }
        }
        self.lookups.give_back(found);
        verdict
    }
}
