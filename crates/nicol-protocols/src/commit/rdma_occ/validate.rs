//! VALIDATE: nothing that was read and is not locked has changed.

use nicol_core::fabric::{Fabric, OneSided, Work};
use nicol_core::ids::{Key, NodeId, Version};
use nicol_core::memory::WORD;
use nicol_core::txn::{Abort, Txn};
use nicol_store::host_table::Lookup;
use nicol_store::remote_table::Header;

use super::host::{Held, Host, Open, Sent, ValidationSource, Verb};
use super::locks::previous_word;
use super::{Sabotage, Validation};
use crate::commit::messages::{Validate, verdict};

impl<F: Fabric> Host<F> {
    /// Checks every key that is not locked, unless `reads` is false, and takes space for values
    /// that need it; all nodes at once.
    pub(super) async fn check(
        &self,
        txn: &Txn,
        open: &mut Open<F>,
        reads: bool,
    ) -> Result<(), Abort> {
        if reads {
            self.check_here(txn, open)?;
        }
        self.reserve_here(txn, open)?;
        if reads {
            for node in self.fabric.view().node_ids().filter(|&node| !self.is_here(node)) {
                if open.select(node, |_, access| access.held == Held::No) {
                    self.post_checks(txn, open, node);
                }
            }
        }
        self.request_reservations(txn, open);
        let read = self.take_checks(txn, open).await;
        read.and(self.take_verdicts(open).await)?;
        if reads { self.check_ranges(txn) } else { Ok(()) }
    }

    fn check_here(&self, txn: &Txn, open: &Open<F>) -> Result<(), Abort> {
        for (entry, access) in txn.entries().iter().zip(&open.accesses) {
            // A range version validates what a scan has found.
            if access.held == Held::No && self.is_here(access.node) && !entry.range_checked {
                self.check_own(entry.key, entry.version, entry.present)?;
            }
        }
        Ok(())
    }

    /// Checks a key of this node's shard.
    pub(super) fn check_own(&self, key: Key, version: Version, present: bool) -> Result<(), Abort> {
        self.fabric.work(Work::TableLookup);
        let mut scratch = self.scratch.borrow_mut();
        let read = Lookup { version, present };
        self.node.primary().validate(key, read, self.heeds_locks(), &mut scratch.values)
    }

    fn heeds_locks(&self) -> bool {
        self.sabotage() != Sabotage::ValidateIgnoresLocks
    }

    /// Sends what checks the keys in `open.keys`, which are those of `node`.
    fn post_checks(&self, txn: &Txn, open: &mut Open<F>, node: NodeId) {
        let rpc = match self.node.config().validation {
            Validation::Rpc => true,
            Validation::Read => false,
            Validation::ReadUpTo(most) => open.keys.len() > most,
        };
        // A slot for an insertion of our own changes its home's bucket version: then the owner must
        // say whether a key is still absent.
        let inserts = txn.entries().iter().zip(&open.accesses).any(|(entry, access)| {
            access.held == Held::ByOwner && !entry.present && access.node == node
        });
        let Open { keys, accesses, verbs, calls, .. } = open;
        keys.retain(|&index| {
            let (offset, absent) = match accesses[index].source {
                ValidationSource::Owner => return true,
                ValidationSource::Header { address, .. } => (address, false),
                ValidationSource::BucketVersion { address, .. } => (address, true),
            };
            if rpc || absent && inserts {
                return true;
            }
            let rkey = self.known_handles(node).table;
            let read = OneSided::Read { rkey, offset, len: WORD as u32 };
            verbs.push(Verb { index, done: self.fabric.one_sided(node, read) });
            false
        });
        if !keys.is_empty() {
            let reply = self.ask(node, &Validate { txn, keys });
            calls.push(Sent { to: node, reply });
        }
    }

    async fn take_checks(&self, txn: &Txn, open: &mut Open<F>) -> Result<(), Abort> {
        let mut failure = None;
        let mut verbs = std::mem::take(&mut open.verbs);
        for verb in verbs.drain(..) {
            let read = verb.done.await.and_then(|bytes| previous_word(bytes.as_ref()));
            let key = txn.entries()[verb.index].key;
            let verdict = match (read, open.accesses[verb.index].source) {
                (Err(error), _) => Err(Abort::Fabric(error)),
                (Ok(word), ValidationSource::BucketVersion { version, .. }) if word != version => {
                    Err(Abort::Stale { key })
                }
                (Ok(word), ValidationSource::Header { unlocked, .. })
                    if word != unlocked.word() =>
                {
                    match Header::parse(word).filter(|header| header.is_locked()) {
                        None => Err(Abort::Stale { key }),
                        Some(locked)
                            if !self.heeds_locks() && locked.version() == unlocked.version() =>
                        {
                            Ok(())
                        }
                        Some(_) => Err(Abort::ValidateLocked { key }),
                    }
                }
                (Ok(_), _) => Ok(()),
            };
            if let Err(abort) = verdict {
                failure.get_or_insert(abort);
            }
        }
        open.verbs = verbs;
        failure.map_or(Ok(()), Err)
    }

    async fn take_verdicts(&self, open: &mut Open<F>) -> Result<(), Abort> {
        let mut failure = None;
        let mut calls = std::mem::take(&mut open.calls);
        for sent in calls.drain(..) {
            if let Err(abort) = verdict(sent.reply.await) {
                failure.get_or_insert(abort);
            }
        }
        open.calls = calls;
        failure.map_or(Ok(()), Err)
    }
}
