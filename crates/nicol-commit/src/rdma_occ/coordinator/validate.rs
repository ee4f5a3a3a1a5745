//! VALIDATE: nothing that was read has changed; what is locked is looked at where that is wanted
//! (AMB-54).

use std::rc::Rc;

use nicol_core::fabric::{Fabric, FabricError};
use nicol_core::ids::ShardId;
use nicol_core::txn::{Abort, Txn};
use nicol_kit::AllGranted;
use nicol_store::remote_table::Header;

use super::context::Context;
use super::lock::Locked;
use super::open_txn::{AccessRecord, Held, OpenTxn, ValidationSource};
use super::read_of;
use super::reserve::Reservations;
use crate::messages::Validate;
use crate::rdma_occ::config::{ValidateKeys, Validation};
use crate::rdma_occ::reach::word_of;
use crate::survivor::Survivor;

/// Proof that nothing read has changed since, and that what was written has space; the transaction
/// will commit.
#[must_use = "log it"]
pub(super) struct Validated(AllGranted);

impl Validated {
    /// The proof that every owner that was asked to lock has locked, and that nothing read has
    /// changed.
    pub(super) fn granted(self) -> AllGranted {
        self.0
    }
}

/// The checks of one host engine's transactions.
pub(super) struct Checks<F: Fabric> {
    context: Rc<Context<F>>,
    space: Reservations<F>,
}

impl<F: Fabric> Checks<F> {
    pub(super) fn new(context: &Rc<Context<F>>) -> Self {
        Self { context: context.clone(), space: Reservations::new(context) }
    }

    /// Checks every key that is not locked, or every key (`validate_keys`), and takes space for
    /// values that need it (`reserve`); all nodes at once.
    pub(super) async fn validate(
        &self,
        txn: &Txn,
        open: &mut OpenTxn<F>,
        locked: Locked,
    ) -> Result<Validated, Abort> {
        let _phase = self.context.fabric.phase("VALIDATE");
        let reads = match self.context.node.config().validate_keys {
            ValidateKeys::All => true,
            ValidateKeys::Unlocked => !is_one_read(txn, open),
        };
        // DEVIATION [FaRM15 4 step 2]: asks for space besides, if a value takes a block of the
        // heap, because the papers' values keep one size (`reserve`).
        let handed_over = self.space.hand_over(txn, open).await?;
        if reads {
            self.check_here(txn, open)?;
        }
        self.space.reserve_here(txn, open)?;
        if reads {
            self.send_checks(txn, open);
            self.reread_locked(txn, open);
        }
        self.space.request(txn, open);
        let unchanged = self.take_checks(txn, open).await;
        let granted =
            open.calls.gather(|shard, reply| self.context.node.verdict(shard, reply)).await;
        let granted = unchanged?.and(granted?);
        if reads {
            self.check_ranges(txn)?;
        }
        Ok(Validated(locked.granted().and(handed_over).and(granted)))
    }

    fn check_here(&self, txn: &Txn, open: &OpenTxn<F>) -> Result<(), Abort> {
        for (entry, access) in txn.entries().iter().zip(&open.accesses) {
            // A range version validates what a scan has found.
            if access.held == Held::No && access.here && !entry.range_checked {
                self.context.owner.check(read_of(entry))?;
            }
        }
        Ok(())
    }

    /// Checks that what was scanned has not changed, and is not locked by a writer.
    fn check_ranges(&self, txn: &Txn) -> Result<(), Abort> {
        let mut versions = txn.range_versions().iter();
        versions.try_for_each(|version| self.context.owner.check_range(*version, txn.id))
    }

    /// Why a local transaction ends that its procedure refuses: what it has read may be out of
    /// date, or of several states, and then it is to be tried again.
    pub(super) fn refused_here(&self, txn: &Txn, open: &OpenTxn<F>) -> Abort {
        let read = txn.entries().iter().zip(&open.accesses);
        let own = read.filter(|(entry, access)| {
            entry.fetched && !entry.range_checked && access.held == Held::No
        });
        for (entry, _) in own {
            if let Err(abort) = self.context.owner.check(read_of(entry)) {
                return abort;
            }
        }
        self.check_ranges(txn).err().unwrap_or(Abort::Refused)
    }

    fn send_checks(&self, txn: &Txn, open: &mut OpenTxn<F>) {
        let mut last = None;
        let to_check = |access: &AccessRecord| access.held == Held::No && !access.here;
        while let Some(shard) = open.next_shard(last, |_, access| to_check(access)) {
            self.post_checks(txn, open, shard);
            last = Some(shard);
        }
    }

    /// Sends what checks the keys that are selected, which are those of `shard`.
    fn post_checks(&self, txn: &Txn, open: &mut OpenTxn<F>, shard: ShardId) {
        let node = self.context.primary(shard);
        let OpenTxn { keys, accesses, verbs, calls, .. } = open;
        let rpc = match self.context.node.config().validation {
            Validation::Rpc => true,
            Validation::Read => false,
            Validation::ReadUpTo(most) => keys.len() > most,
        };
        // A slot for an insertion of our own changes its home's bucket version: then the owner must
        // say whether a key is still absent.
        let inserts = txn.entries().iter().zip(&*accesses).any(|(entry, access)| {
            access.held == Held::ByOwner && !entry.present && access.shard == shard
        });
        keys.retain(|index| {
            let (address, absent) = match accesses[index].source {
                ValidationSource::Owner => return true,
                ValidationSource::Header { address, .. } => (address, false),
                ValidationSource::BucketVersion { address, .. } => (address, true),
            };
            if rpc || absent && inserts {
                return true;
            }
            verbs
                .push(index, self.context.reach.read_word(node, txn.entries()[index].key, address));
            false
        });
        if !keys.is_empty() {
            calls.push(shard, self.context.rpc.ask(node, &Validate { txn, began: None, keys }));
        }
    }

    /// READs the headers of records of other nodes that are locked, where every key is validated.
    fn reread_locked(&self, txn: &Txn, open: &mut OpenTxn<F>) {
        if self.context.node.config().validate_keys == ValidateKeys::Unlocked {
            return;
        }
        let OpenTxn { accesses, verbs, .. } = open;
        for (index, access) in accesses.iter().enumerate() {
            let entry = &txn.entries()[index];
            if let ValidationSource::Header { address, .. } = access.source
                && access.is_locked()
                && entry.fetched
                && !access.here
            {
                let read = self.context.reach.read_word(access.node, entry.key, address);
                verbs.push(index, read);
            }
        }
    }

    async fn take_checks(&self, txn: &Txn, open: &mut OpenTxn<F>) -> Result<AllGranted, Abort> {
        let OpenTxn { verbs, accesses, .. } = open;
        let here = self.context.fabric.here();
        let take = |index: usize, reply: Result<F::Payload, FabricError>| {
            let word = reply.and_then(|bytes| word_of(bytes.as_ref()));
            let word =
                word.map_err(|error| self.context.node.failure(accesses[index].shard, error))?;
            let key = txn.entries()[index].key;
            let is_locked = accesses[index].is_locked();
            let expected =
                |header: Header| if is_locked { header.locked_by(here) } else { header }.word();
            match accesses[index].source {
                ValidationSource::BucketVersion { version, .. } if word != version => {
                    Err(Abort::Stale { key })
                }
                ValidationSource::Header { unlocked, .. } if word != expected(unlocked) => {
                    match Header::parse(word).filter(|header| header.is_locked()) {
                        Some(locked) => {
                            let holder = locked.owner().map(|engine| engine.node);
                            let conflict = Abort::ValidateLocked { key };
                            Err(self.context.node.conflict(key, holder, conflict))
                        }
                        None => Err(Abort::Stale { key }),
                    }
                }
                _ => Ok(()),
            }
        };
        verbs.gather(take).await
    }
}

/// AMB-34: one key, read in one request, was current at that instant. A walk that found nothing was
/// several requests. A range version is checked in any case.
fn is_one_read<F: Fabric>(txn: &Txn, open: &OpenTxn<F>) -> bool {
    let walk =
        |access: &AccessRecord| matches!(access.source, ValidationSource::BucketVersion { .. });
    txn.range_versions().is_empty() && open.accesses.len() == 1 && !walk(&open.accesses[0])
}
