//! Local transactions at their host: executed optimistically on its own table. [Xenic21 4.2.4]
//!
//! The NIC may know newer versions than the table: what it has committed and the host has not
//! applied, and locks. So every local transaction, reading ones included, sends what it has read to
//! the local NIC, in the one message that a writing one needs anyway. [AMB-07, AMB-08]

use nicol_core::fabric::{Fabric, FabricError, Work};
use nicol_core::txn::{Abort, Outcome, Txn, Verdict, VersionRange};

use super::{HostCoordinator, outcome_of};
use crate::make_scans;
use crate::survivor::Survivor;
use crate::xenic::capacity;
use crate::xenic::config::{LocalRead, ROUNDS_MAX};
use crate::xenic::messages::local::TxnLocal;
use crate::xenic::messages::{Answer, parse_answer};
use crate::xenic::node::{OwnInserts, Path};

/// What comes of a transaction that was tried at its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AtHost {
    /// It has ended.
    Ended(Outcome),
    /// It must take the ordinary way: its keys are elsewhere, or the table was out of date. Nothing
    /// of it has happened.
    Elsewhere,
}

impl<F: Fabric> HostCoordinator<F> {
    /// Runs `txn` on this host's own table if all its keys are there.
    ///
    /// A transaction that must run here, because it scans, never takes another way: it is refused
    /// if its keys are elsewhere.
    pub(super) async fn run_at_host(&self, txn: &mut Txn, may: bool) -> AtHost {
        let allowed = may && self.node.config().local_paths;
        let initial = txn.entries().len();
        if !txn.local && (!allowed || initial == 0) {
            return AtHost::Elsewhere;
        }
        let id = match self.execute_at_host(txn).await {
            AtHost::Elsewhere if txn.local => {
                return AtHost::Ended(Outcome::Aborted(Abort::Refused));
            }
            AtHost::Elsewhere => txn.id,
            // DEVIATION [Xenic21 4.2.4]: the table lags behind the NIC, and a hot key's may do so
            // at every attempt. The NIC knows the key, so the transaction goes on there at once;
            // under another id, since the NIC may still be about to unlock what this attempt has
            // locked.
            AtHost::Ended(Outcome::Aborted(Abort::Stale { .. })) if !txn.local => self.next_id(),
            ended => return ended,
        };
        txn.rewind(initial);
        txn.id = id;
        AtHost::Elsewhere
    }

    async fn execute_at_host(&self, txn: &mut Txn) -> AtHost {
        let _phase = self.fabric.phase("4.2.4: execution at the host");
        for _ in 0..ROUNDS_MAX {
            let keys = txn.entries().iter().map(|entry| entry.key);
            let ranges = txn.scans().iter().map(|scan| scan.range.first);
            if !self.node.is_local(keys.chain(ranges)) {
                return AtHost::Elsewhere;
            }
            self.read_table(txn);
            if !make_scans(&self.fabric, &self.node.own().ordered, txn) {
                return AtHost::Ended(Outcome::Aborted(Abort::NoResources));
            }
            self.fabric.work(Work::Execute { keys: txn.entries().len() as u16 });
            match OwnInserts::of(&self.node).execute(&self.procedures, txn) {
                Verdict::Commit => return AtHost::Ended(self.commit_at_host(txn).await),
                Verdict::More => {}
                // What it refused may be out of date: only the NIC knows.
                Verdict::Refuse if txn.local => {
                    return AtHost::Ended(self.ask_nic(txn, true).await);
                }
                Verdict::Refuse => return AtHost::Elsewhere,
            }
        }
        match txn.local {
            true => AtHost::Ended(Outcome::Aborted(Abort::NoResources)),
            false => AtHost::Elsewhere,
        }
    }

    /// Reads the keys that have not been read yet.
    fn read_table(&self, txn: &mut Txn) {
        let mut value = self.scratch.borrow_mut();
        for index in 0..txn.entries().len() {
            let entry = txn.entries()[index];
            if entry.fetched {
                continue;
            }
            value.clear();
            self.fabric.work(Work::TableLookup);
            let own = self.node.own();
            if entry.key.is_ordered() {
                // Its range's version, noted before the lookup, vouches for what is found.
                txn.note_range_version(own.ordered.range_version(VersionRange::of(entry.key)));
            }
            let found = own.get(entry.key, &mut value);
            let bytes = found.present.then_some(value.as_slice());
            match entry.key.is_ordered() {
                true => txn.fetched_in_range(index, found.version, bytes),
                false => txn.fetched(index, found.version, bytes),
            }
        }
    }

    async fn commit_at_host(&self, txn: &mut Txn) -> Outcome {
        let reads_only = txn.entries().iter().all(|entry| !entry.write);
        if reads_only && self.node.config().local_read == LocalRead::Paper {
            return self.read_again(txn);
        }
        // Here, since the NIC does not learn how long the old values are.
        match capacity::check_values(self.node.exhausted_space(), txn) {
            Ok(()) => self.ask_nic(txn, false).await,
            Err(abort) => Outcome::Aborted(abort),
        }
    }

    /// Has the NIC commit what was executed here or, if the application has `refused`, say whether
    /// that was for good.
    async fn ask_nic(&self, txn: &mut Txn, refused: bool) -> Outcome {
        // DEVIATION [Xenic21 4.2.4]: a local read crosses PCIe once, because a transaction may be
        // reported, and read from elsewhere, before its COMMIT has reached this node: only the
        // lock in the NIC's index tells.
        let nic = self.nic(txn.id);
        let message = TxnLocal { txn, refused };
        let reply = self.acks.call(nic, &message).await;
        outcome_of(reply.and_then(|reply| match parse_answer(reply.as_ref(), txn) {
            Ok(Answer::Ended(outcome)) => Ok(outcome),
            Ok(Answer::Executed) | Err(_) => Err(FabricError::Malformed),
        }))
    }

    /// VALIDATE at the host table, as printed. [Xenic21 4.2.4]
    fn read_again(&self, txn: &Txn) -> Outcome {
        let mut value = self.scratch.borrow_mut();
        for entry in txn.entries() {
            value.clear();
            self.fabric.work(Work::TableLookup);
            let found = self.node.own().get(entry.key, &mut value);
            if (found.version, found.present) != (entry.version, entry.present) {
                return Outcome::Aborted(Abort::Stale { key: entry.key });
            }
        }
        for version in txn.range_versions() {
            if self.node.own().ordered.range_version(version.range) != *version {
                return Outcome::Aborted(Abort::Stale { key: version.range.first() });
            }
        }
        if let Err(abort) = self.node.check_lease(&self.fabric) {
            return Outcome::Aborted(abort);
        }
        self.node.took(Path::LocalRead);
        Outcome::Committed
    }
}
