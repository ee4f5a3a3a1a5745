//! Protocols broken on purpose, for the checkers' negative tests.

use std::rc::Rc;

use nicol_core::fabric::{Fabric, ReplyTo};
use nicol_core::ids::{Key, TxnId, Version};
use nicol_core::txn::{Outcome, Txn};
use nicol_core::units::Nanos;

use super::Sabotage;
use super::finish::Decision;
use super::host::{Held, Host, Open};
use crate::commit::messages::{Ack, Writes};

/// How long records that should be locked are left unprotected.
pub(super) const GAP: Nanos = Nanos::from_micros(3);

impl<F: Fabric> Host<F> {
    pub(super) fn sabotage(&self) -> Sabotage {
        self.node.config().sabotage
    }

    /// Are writes installed that no lock protects?
    pub(super) fn installs_unlocked(&self) -> bool {
        matches!(self.sabotage(), Sabotage::UnlockFirst | Sabotage::NoLocks | Sabotage::EarlyUnlock)
    }

    /// [`Sabotage::NoLocks`]: notes that keys are locked which are not.
    pub(super) fn pretend_locks(
        &self,
        txn: &Txn,
        open: &mut Open<F>,
        wanted: &impl Fn(&Txn, usize) -> bool,
    ) {
        for (index, access) in open.accesses.iter_mut().enumerate() {
            if wanted(txn, index) {
                access.held = Held::ByOwner;
            }
        }
    }

    /// [`Sabotage::EarlyUnlock`]: gives the locks back, and notes that what was written is locked.
    pub(super) async fn unlock_early(&self, txn: &Txn, open: &mut Open<F>) {
        self.release_all(txn, open, Decision::Abort).await;
        self.pretend_locks(txn, open, &|txn: &Txn, index| txn.update(index).is_some());
    }

    /// What a transaction's locks come to; with [`Sabotage::AbortInstalls`] its writes are
    /// installed where it holds their locks, whatever its outcome.
    pub(super) fn decision_of(&self, outcome: Outcome) -> Decision {
        match outcome {
            Outcome::Committed | Outcome::Unknown => Decision::Commit,
            Outcome::Aborted(_) if self.sabotage() == Sabotage::AbortInstalls => Decision::Commit,
            Outcome::Aborted(_) => Decision::Abort,
        }
    }

    /// [`Sabotage::AbortInstalls`]: installs the write to the key at `index` if it is locked, even if
    /// it is not what was read.
    pub(super) async fn install_whatever(&self, txn: &Txn, open: &mut Open<F>, index: usize) {
        let held = std::mem::replace(&mut open.accesses[index].held, Held::No);
        if let (Held::ByOwner, Some(write)) = (held, txn.update(index)) {
            self.install_unlocked(write.key, txn.id, write.version, write.value).await;
        }
    }

    /// Unlocks, and installs later.
    pub(super) fn commit_broken(self: Rc<Self>, body: &[u8], reply_to: ReplyTo) {
        let body = self.fabric.keep(body);
        let fabric = self.fabric.clone();
        fabric.spawn(async move {
            let Ok(writes) = Writes::parse(body.as_ref()) else { return };
            writes.iter().for_each(|(key, ..)| self.unlock_own(key, writes.txn));
            self.fabric.sleep_until(self.fabric.now() + GAP).await;
            for (key, version, value) in writes.installs() {
                self.install_unlocked(key, writes.txn, version, value).await;
            }
            self.answer(reply_to, &Ack);
        });
    }

    /// What a broken protocol does: installs over whatever has happened meanwhile.
    pub(super) async fn install_unlocked(
        &self,
        key: Key,
        txn: TxnId,
        version: Version,
        value: Option<&[u8]>,
    ) {
        loop {
            if let Ok(granted) = self.node.primary().lock(key, txn) {
                let version = version.max(granted.version.next());
                return self.install_own(key, txn, version, value);
            }
            self.fabric.sleep_until(self.fabric.now() + GAP).await;
        }
    }
}
