//! Local transactions: executed optimistically by the host on its own table. [Xenic21 4.2.4]
//!
//! The NIC may know newer versions than the table: what it has committed and the host has not
//! applied, and locks. So every local transaction, reading ones included, sends what it has read to
//! the local NIC, in the one message that a writing one needs anyway. [AMB-07, AMB-08]

use std::rc::Rc;

use nicol_core::fabric::{Fabric, FabricError, ReplyTo, Work};
use nicol_core::ids::Key;
use nicol_core::txn::{Abort, Outcome, Txn, Verdict};

use super::coordinator::{Validated, refuses};
use super::host::Coordinator;
use super::messages::local::TxnLocal;
use super::messages::parse_host_reply;
use super::nic::{Nic, OpenTxn};
use super::node::Path;
use super::{ExecuteAt, Faithful, LocalRead, ROUNDS_MAX};
use crate::commit::make_scans;

impl<F: Fabric> Coordinator<F> {
    /// Runs `txn` on this host's own table if all its keys are there. `None`: it must take the
    /// ordinary way, because they are not or the table was out of date; nothing of it has happened.
    ///
    /// A transaction that must run here, because it scans, never takes another way: it is refused
    /// if its keys are elsewhere.
    pub(super) async fn run_local(&self, txn: &mut Txn) -> Option<Outcome> {
        let config = self.node.config();
        let allowed = config.local_paths
            && config.execute_at != ExecuteAt::Nic
            && self.node.allows_shortcuts();
        let initial = txn.entries().len();
        if !txn.local && (!allowed || initial == 0) {
            return None;
        }
        let id = match self.execute_local(txn).await {
            None if txn.local => return Some(Outcome::Aborted(Abort::Refused)),
            None => txn.id,
            // DEVIATION [Xenic21 4.2.4]: the table lags behind the NIC, and a hot key's may do so
            // at every attempt. The NIC knows the key, so the transaction goes on there at once;
            // under another id, since the NIC may still be about to unlock what this attempt has
            // locked.
            Some(Outcome::Aborted(Abort::Stale { .. })) if !txn.local => self.next_id(),
            ended => return ended,
        };
        txn.rewind(initial);
        txn.id = id;
        None
    }

    async fn execute_local(&self, txn: &mut Txn) -> Option<Outcome> {
        for _ in 0..ROUNDS_MAX {
            let keys = txn.entries().iter().map(|entry| entry.key);
            let ranges = txn.scans().iter().map(|scan| scan.range.first);
            if !self.node.is_local(keys.chain(ranges)) {
                return None;
            }
            self.read_table(txn);
            if !make_scans(&self.fabric, &self.node.own().ordered, txn) {
                return Some(Outcome::Aborted(Abort::NoResources));
            }
            self.fabric.work(Work::Execute { keys: txn.entries().len() as u16 });
            match self.procedures.execute(txn) {
                Verdict::Commit => return Some(self.commit_local(txn).await),
                Verdict::More => {}
                // What it refused may be out of date: only the NIC knows.
                Verdict::Refuse if txn.local => return Some(self.ask_nic(txn, true).await),
                Verdict::Refuse => return None,
            }
        }
        txn.local.then_some(Outcome::Aborted(Abort::NoResources))
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
            if entry.key.is_ordered() {
                self.read_ordered(txn, index, &mut value);
                continue;
            }
            let found = self.node.primary().get(entry.key, &mut value);
            txn.fetched(index, found.version, found.present.then_some(value.as_slice()));
        }
    }

    async fn commit_local(&self, txn: &mut Txn) -> Outcome {
        let reads_only = txn.entries().iter().all(|entry| !entry.write);
        if reads_only && self.node.config().local_read == LocalRead::Paper {
            return self.read_again(txn);
        }
        // Here, since the NIC does not learn how long the old values are.
        if refuses(self.node.exhausted_space(), txn) {
            return Outcome::Aborted(Abort::NoResources);
        }
        self.ask_nic(txn, false).await
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
        let ended = match reply {
            Ok(reply) => parse_host_reply(reply.as_ref(), txn).map_err(|_| FabricError::Malformed),
            Err(error) => Err(error),
        };
        match ended {
            Ok(Some(outcome)) => outcome,
            Err(FabricError::NoResources) => Outcome::Aborted(Abort::NoResources),
            Ok(None) | Err(_) => Outcome::Unknown,
        }
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
        self.node.took(Path::LocalRead);
        Outcome::Committed
    }
}

impl<F: Fabric> Nic<F> {
    /// Commits what the host has executed: locks, checks, then LOG and COMMIT.
    /// One that was `refused` ends so if what it read is current.
    pub(super) async fn commit_local(
        self: Rc<Self>,
        mut open: Box<OpenTxn<F>>,
        refused: bool,
        reply_to: ReplyTo,
    ) {
        self.fabric.work(Work::TxnSetup);
        let reads_only = open.txn.entries().iter().all(|entry| !entry.write);
        open.path = if reads_only { Path::LocalRead } else { Path::LocalWrite };
        if let Err(abort) = self.lock_local(&open) {
            return self.end_aborted(open, abort, reply_to).await;
        }
        if !reads_only {
            open.held.extend(self.node.shard());
        }
        let checks = reads_only || self.node.config().faithful == Faithful::Fixed;
        let mut checked = self.check_insert_capacity(&open.txn);
        if checked.is_ok() && checks {
            checked = self.check_current(&mut open).await;
        }
        match checked {
            Ok(()) if refused => self.end_aborted(open, Abort::Refused, reply_to).await,
            Ok(()) => self.commit_validated(open, Validated(()), reply_to).await,
            Err(abort) => self.end_aborted(open, abort, reply_to).await,
        }
    }

    /// Locks the write set, all or nothing.
    fn lock_local(&self, open: &OpenTxn<F>) -> Result<(), Abort> {
        let id = open.txn.id;
        let written = || open.txn.entries().iter().filter(|entry| entry.write);
        for (locked, entry) in written().enumerate() {
            self.fabric.work(Work::IndexLookup);
            if let Err(abort) = self.node.lock(entry.key, id) {
                for entry in written().take(locked) {
                    self.node.unlock(entry.key, id);
                }
                return Err(abort);
            }
        }
        Ok(())
    }

    fn check_insert_capacity(&self, txn: &Txn) -> Result<(), Abort> {
        let inserts = txn.entries().iter().any(|entry| entry.write && !entry.present);
        if inserts && !self.node.has_capacity() { Err(Abort::NoResources) } else { Ok(()) }
    }

    /// [AMB-07] With the write set locked: is what was read still current, and unlocked? Where the
    /// index cannot tell, the table is read by DMA.
    async fn check_current(&self, open: &mut OpenTxn<F>) -> Result<(), Abort> {
        let OpenTxn { txn, keys, .. } = open;
        keys.clear();
        for (index, entry) in txn.entries().iter().enumerate() {
            self.fabric.work(Work::IndexLookup);
            if entry.range_checked {
                continue;
            }
            match self.node.is_current(txn.id, entry) {
                Some(true) => {}
                Some(false) => return Err(Abort::Stale { key: entry.key }),
                None => keys.push(index),
            }
        }
        if !keys.is_empty() {
            let mut found = self.lookups.batch();
            let asked = keys.iter().map(|&index| txn.entries()[index].key);
            let mut read = self.lookups.read_all(asked, &mut found).await.map_err(Abort::Fabric);
            for (&index, now) in keys.iter().zip(found.iter()) {
                let entry = &txn.entries()[index];
                let same = match entry.present {
                    true => now.value.is_some() && now.version == entry.version,
                    false => now.value.is_none() && now.version <= entry.version,
                };
                // Asked again: the lookup may have cached a negative entry.
                let current = same && self.node.is_current(txn.id, entry) != Some(false);
                if read.is_ok() && !current {
                    read = Err(Abort::Stale { key: entry.key });
                }
            }
            self.lookups.give_back(found);
            read?;
        }
        // Last, and at one instant: the range versions validate everything read so far.
        for version in txn.range_versions() {
            self.fabric.work(Work::IndexLookup);
            if !self.node.is_range_current(txn.id, *version) {
                return Err(Abort::Stale { key: version.range.first() });
            }
        }
        // After the range versions, which validate what this stores in the index.
        let mut absent = txn.entries().iter().filter(|entry| entry.range_checked && !entry.present);
        if let Some(entry) = absent.find(|entry| !self.node.confirm_absent_at(txn.id, entry)) {
            return Err(Abort::Stale { key: entry.key });
        }
        // Checked after the versions: a writer that locked since may have been reported already.
        match txn.entries().iter().find(|entry| !entry.write && self.is_held(entry.key)) {
            Some(entry) => Err(Abort::ValidateLocked { key: entry.key }),
            None => Ok(()),
        }
    }

    fn is_held(&self, key: Key) -> bool {
        self.node.holder(key).is_some()
    }
}
