//! LOCK, of the ablation without combined operations. [Xenic21 5.7]

use std::rc::Rc;

use nicol_core::fabric::{Fabric, ReplyTo, Work};
use nicol_core::txn::Abort;
use nicol_kit::lock_all;

use super::NicServer;
use crate::messages::{LockReads, Reads, ValidateReply};

impl<F: Fabric> NicServer<F> {
    /// LOCK: every key at the version read, or none.
    pub(super) async fn lock(self: Rc<Self>, lock: LockReads<F::Payload>, reply_to: ReplyTo) {
        let _phase = self.fabric.phase("server: LOCK");
        let LockReads { txn, reads } = &lock;
        let lock_one = |key| {
            self.fabric.work(Work::IndexLookup);
            self.node.lock(key, *txn)
        };
        let unlock = |key| {
            self.fabric.work(Work::IndexLookup);
            self.node.unlock(key, *txn);
        };
        let mut granted = self.admits(*txn, reads.began, reads.keys());
        granted = granted.and_then(|()| lock_all(reads.keys(), lock_one, unlock));
        if granted.is_ok() {
            granted = self
                .compare(reads)
                .await
                .and_then(|()| self.admits(*txn, reads.began, reads.keys()));
            if granted.is_err() {
                reads.keys().for_each(unlock);
            }
        }
        match granted {
            Err(Abort::Fabric(error)) => self.fabric.refuse(reply_to, error),
            granted => self.fabric.reply(reply_to, &ValidateReply(granted)),
        }
    }

    /// Is everything as it was read, and is there space for what was absent?
    async fn compare(&self, reads: &Reads<F::Payload>) -> Result<(), Abort> {
        let mut found = self.own.lookups().batch();
        let read = self.own.lookups().read_all(reads.keys(), &mut found).await;
        let mut verdict = read.map_err(Abort::Fabric);
        for (read, now) in reads.iter().zip(found.iter()) {
            if verdict.is_ok() && !now.is_as_read(&read) {
                verdict = Err(Abort::Stale { key: read.key });
            }
            if verdict.is_ok() && !read.present && !self.node.table_of(read.key).has_capacity() {
                verdict = Err(Abort::NoResources);
            }
        }
        self.own.lookups().give_back(found);
        verdict
    }
}
