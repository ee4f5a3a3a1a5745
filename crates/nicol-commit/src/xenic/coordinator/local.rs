//! Local transactions at their NIC: it locks and checks what the host has executed on its own
//! table. [Xenic21 4.2.4]
//!
//! The NIC may know newer versions than the table: what it has committed and the host has not
//! applied, and locks. So it checks what every local transaction has read, one that only reads
//! included. [AMB-07, AMB-08]

use std::rc::Rc;
use std::sync::Arc;

use nicol_core::fabric::{Delivery, Fabric, Work};
use nicol_core::txn::{Abort, Entry, Txn};
use nicol_core::wire::Malformed;
use nicol_kit::lock_all;

use super::current::Checks;
use super::steps::Steps;
use crate::xenic::messages::local::parse_txn_local;
use crate::xenic::node::{Node, OwnInserts, Path};
use crate::xenic::open_txn::OpenTxn;
use crate::xenic::server::OwnKeys;

/// The local transactions of one NIC engine.
pub(super) struct LocalTxns<F: Fabric> {
    fabric: F,
    node: Arc<Node>,
    checks: Checks<F>,
    steps: Rc<Steps<F>>,
}

impl<F: Fabric> LocalTxns<F> {
    pub(super) fn new(
        fabric: &F,
        node: &Arc<Node>,
        own: &Rc<OwnKeys<F>>,
        steps: &Rc<Steps<F>>,
    ) -> Self {
        let checks = Checks::new(fabric, node, own);
        Self { fabric: fabric.clone(), node: node.clone(), checks, steps: steps.clone() }
    }

    /// Fills `open` from a TXN_LOCAL; returns whether the application has refused.
    pub(super) fn parse(
        &self,
        delivery: Delivery<'_>,
        open: &mut OpenTxn<F>,
    ) -> Result<bool, Malformed> {
        let refused = parse_txn_local(delivery.body, &mut open.txn)?;
        open.place_keys(&self.node);
        let ranges = open.txn.range_versions().iter().map(|version| version.range.first());
        if !open.shards.iter().all(|shard| self.node.is_primary(shard))
            || !self.node.is_local(ranges)
        {
            return Err(Malformed { what: "a local transaction with keys of another shard" });
        }
        if !OwnInserts::of(&self.node).are_all_of(&open.txn) {
            return Err(Malformed { what: "an own record of a table that is not ordered" });
        }
        Ok(refused)
    }

    /// Commits a transaction that its host has executed, unless the application has `refused`: then
    /// it only looks whether what the host has read was current.
    ///
    /// Errors: it has not committed, and must release what it holds.
    pub(super) async fn commit(&self, open: &mut OpenTxn<F>, refused: bool) -> Result<(), Abort> {
        let reads_only = open.txn.entries().iter().all(|entry| !entry.write);
        open.path = if reads_only { Path::LocalRead } else { Path::LocalWrite };
        // [Xenic21 4.2.4] "Acquires write-set locks in its index and aborts if any is held."
        self.lock_write_set(&open.txn)?;
        if let Some(own) = self.node.shard()
            && !reads_only
        {
            open.holds_locks_at(own);
        }
        OwnInserts::of(&self.node).hold(&self.fabric, &open.txn);
        let current = self.checks.check(open, reads_only).await?;
        if refused {
            return Err(Abort::Refused);
        }
        // [Xenic21 4.2 step 5] LOG at every backup.
        let logged = self.steps.log(open, current.into()).await?;
        // [Xenic21 4.2 step 6] Committed: the host is told, then COMMIT at this primary.
        let reported = self.steps.report_logged(open, logged);
        self.steps.commit(open, reported).await;
        Ok(())
    }

    fn lock_write_set(&self, txn: &Txn) -> Result<(), Abort> {
        let locked = |entry: &&Entry| entry.write && !entry.own;
        let written = txn.entries().iter().filter(locked).map(|entry| entry.key);
        let lock = |key| {
            self.fabric.work(Work::IndexLookup);
            self.node.lock(key, txn.id)
        };
        let unlock = |key| {
            self.node.unlock(key, txn.id);
        };
        lock_all(written, lock, unlock)
    }
}
