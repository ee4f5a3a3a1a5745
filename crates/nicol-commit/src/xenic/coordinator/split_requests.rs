//! Without combined operations: separate requests to read, lock and validate. [Xenic21 5.7]
//!
//! The baseline of the paper's ablations, with the requests that one-sided verbs allow: READ in the
//! place of EXECUTE; once the writes are known, LOCK, which also compares the versions read; then
//! VALIDATE, LOG and COMMIT as ever. READ, LOCK and VALIDATE name one object each, unless the keys
//! of a shard are combined ([`CombinedOps`](crate::xenic::CombinedOps), AMB-45).

use nicol_core::fabric::Fabric;
use nicol_core::txn::Abort;
use nicol_kit::{AllGranted, Computed};

use super::NicCoordinator;
use super::steps::{Executed, Steps, note_locks};
use crate::survivor::Survivor;
use crate::xenic::messages::split_requests::{Lock, Read};
use crate::xenic::node::OwnInserts;
use crate::xenic::open_txn::{InHand, OpenTxn, PrimaryCall};

impl<F: Fabric> NicCoordinator<F> {
    /// [`NicCoordinator::commit_transaction`] with separate requests in its second step.
    pub(super) async fn commit_with_split_requests(
        &self,
        open: &mut InHand<F>,
    ) -> Result<(), Abort> {
        // [Xenic21 5.7] READ every key in the place of step 2, and lock none.
        let mut read = read_keys(&self.steps, open).await?;
        // [Xenic21 4.2 step 3] Execution logic computes the writes; keys that it adds are READ.
        while self.logic.compute(open).await? == Computed::AddedKeys {
            read = read_keys(&self.steps, open).await?;
        }
        // [Xenic21 5.7] LOCK the write set at the versions read: what is left of step 2.
        let executed = lock_write_set(&self.steps, open, read).await?;
        // [Xenic21 5.6] The coordinator's own new records have no locks (decision 0110).
        OwnInserts::of(&self.node).hold(&self.fabric, &open.txn);
        // [Xenic21 4.2 step 4] VALIDATE what was read and is not locked.
        let validated = self.steps.validate(open, executed).await?;
        // [Xenic21 4.2 step 5] LOG at every backup of every shard written.
        let logged = self.steps.log(open, validated).await?;
        // [Xenic21 4.2 step 6] Committed: the host is told, then COMMIT at the primaries.
        let reported = self.steps.report_logged(open, logged);
        self.steps.commit(open, reported).await;
        Ok(())
    }
}

/// READ: reads the keys that have not been fetched yet, at all primaries at once.
async fn read_keys<F: Fabric>(
    steps: &Steps<F>,
    open: &mut OpenTxn<F>,
) -> Result<AllGranted, Abort> {
    open.note_fetched();
    steps.node().check_served(&open.txn, |_, entry| !entry.fetched)?;
    steps.scatter(
        open,
        |entry| !entry.fetched,
        |open, shard| {
            steps.ask(shard, &Read { txn: &open.txn, began: open.began, keys: &open.keys })
        },
    );
    steps.gather_values(open).await
}

/// LOCK: locks the write set at the versions read, at all primaries at once.
async fn lock_write_set<F: Fabric>(
    steps: &Steps<F>,
    open: &mut OpenTxn<F>,
    read: AllGranted,
) -> Result<Executed, Abort> {
    steps.scatter(
        open,
        |entry| entry.write && !entry.own,
        |open, shard| {
            open.locks.asked(shard);
            steps.ask(shard, &Lock { txn: &open.txn, began: open.began, keys: &open.keys })
        },
    );
    let OpenTxn { calls, locks, .. } = open;
    let granted = |call: PrimaryCall, reply| {
        note_locks(locks, call.shard, steps.node().verdict(call.shard, reply))
    };
    let locked = calls.gather(granted).await?;
    Ok(Executed::separately(read, locked))
}
