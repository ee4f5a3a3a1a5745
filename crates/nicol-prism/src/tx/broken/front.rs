//! A coordinator that is broken on purpose: it stands before the true one, and spoils what a step
//! hands to the next.

use nicol_core::commit::CommitProtocol;
use nicol_core::fabric::{Fabric, OneSided};
use nicol_core::txn::{Abort, Outcome, Txn};

use super::Sabotage;
use crate::tag::Tag;
use crate::tx::coordinator::Coordinator;
use crate::tx::layout::word;
use crate::tx::prepare::Prepared;

/// Bits of a timestamp that the fault sets that lets two transactions have the same.
const SAME: u64 = 0xff;

/// The coordinator that a session calls: the true one, unless a planted fault stands before it.
#[derive(Clone)]
pub struct Front<F: Fabric> {
    coordinator: Coordinator<F>,
    sabotage: Sabotage,
}

impl<F: Fabric> Front<F> {
    pub(crate) fn new(coordinator: Coordinator<F>) -> Self {
        Self { sabotage: coordinator.steps().node.config().sabotage, coordinator }
    }

    /// Commits a transaction, with the steps of the true coordinator.
    async fn commit_spoiled(&self, txn: &mut Txn) -> Result<Outcome, Abort> {
        let steps = self.coordinator.steps();
        let mut again = txn.clone();
        let mut executed = steps.execute_rounds(txn).await?;
        if self.sabotage == Sabotage::TrustsFailedReads
            && again.entries().len() == txn.entries().len()
        {
            executed = steps.execute(&mut again, None).await?;
        }
        let latest = executed.latest(txn);
        let mut ts = steps.clock.after(latest).ok_or(Abort::NoResources)?;
        if self.sabotage == Sabotage::ReusesTimestamps {
            ts = Tag::new(ts.ts() | SAME, ts.writer());
        }
        txn.install_at(ts.version());
        let prepared = match (self.sabotage, steps.prepare(txn, executed, ts).await) {
            (_, Ok(prepared)) => prepared,
            (Sabotage::CommitsUnchecked, Err(refused)) if is_of_a_write(refused.abort) => {
                refused.unchecked()
            }
            (Sabotage::NeverBumps, Err(refused)) => {
                refused.writes.iter().for_each(|write| steps.report_own(write, ts));
                return Err(refused.abort);
            }
            (_, Err(refused)) => return Err(steps.abort(refused, ts)),
        };
        match self.sabotage {
            Sabotage::ForgetsInstalls => return Ok(Outcome::Committed),
            Sabotage::InstallsAlways => self.take_c_away(&prepared).await,
            _ => {}
        }
        Ok(steps.commit(txn, prepared, ts).await)
    }

    /// Writes 0 over C of every key that is going to be installed.
    async fn take_c_away(&self, prepared: &Prepared) {
        for access in prepared.as_writes().iter().map(|write| &write.access) {
            let (rkey, offset) = (access.handles.pointers, access.slot + word::C);
            let write = OneSided::Write { rkey, offset, bytes: &[0; 8] };
            // A server that does not answer keeps its C.
            let _done = self.coordinator.steps().fabric.one_sided(access.server, write).await;
        }
    }
}

/// Whether a transaction aborts because of another one's write check, or of a later read.
const fn is_of_a_write(abort: Abort) -> bool {
    matches!(abort, Abort::ValidateLocked { .. } | Abort::LockConflict { .. })
}

impl<F: Fabric> CommitProtocol for Front<F> {
    async fn run(&self, txn: &mut Txn) -> Outcome {
        if self.sabotage == Sabotage::None {
            return self.coordinator.run(txn).await;
        }
        self.coordinator.begin(txn);
        self.commit_spoiled(txn).await.unwrap_or_else(Outcome::Aborted)
    }
}
