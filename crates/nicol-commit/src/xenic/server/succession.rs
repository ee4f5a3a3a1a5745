//! This node leads a shard since its primary was lost. [Xenic21 4.2.1] (decision 0103)

use nicol_core::fabric::{Fabric, FabricError};
use nicol_core::ids::Epoch;

use super::NicServer;
use crate::decided::{Decision, Fate};
use crate::xenic::messages::recovery::ReportRecords;
use crate::xenic::node::inherited::{InheritedShard, keys_of};

impl<F: Fabric> NicServer<F> {
    /// Serves every shard from here on that this node has inherited by the view of `epoch`, whose
    /// recovery has decided about all that lost coordinators began.
    ///
    /// What is undecided still is locked before: the table has all the rest.
    pub(super) async fn open_inherited(&self, epoch: Epoch) -> Result<(), FabricError> {
        let waits = |one: &&InheritedShard| {
            !one.is_open() && self.fabric.view().led_since(one.shard()) <= epoch
        };
        for inherited in self.node.inherited().iter().filter(waits) {
            loop {
                // What is decided before this the host has applied when it answers.
                let so_far = inherited.decisions_so_far();
                let asked = ReportRecords::OfShard(inherited.shard());
                let records = self.ask_host(&asked).await?.records;
                let lock = |key, txn| {
                    if self.node.config().hooks().rebuilds_locks() {
                        self.node.lock_again(key, txn);
                    }
                };
                if inherited.open(records, so_far, lock) {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Ends what is decided of the transactions whose keys are locked in shards that this node has
    /// inherited, and which stands in the log: nobody sends COMMIT or ABORT for what an earlier
    /// primary has locked.
    ///
    /// The host applies what commits, as a backup does. It may have a newer write of another that
    /// was decided before, so that the index learns from the table what has become of the keys.
    pub(super) async fn settle_inherited(
        &self,
        decisions: impl Iterator<Item = Decision>,
    ) -> Result<(), FabricError> {
        if self.node.inherited().iter().next().is_none() {
            return Ok(());
        }
        let decisions = decisions.filter(|one| one.fate != Fate::KnownToAll);
        let mut ended = Vec::new();
        for Decision { txn, .. } in decisions {
            for inherited in self.node.inherited().iter() {
                let records = inherited.decide(txn);
                if !records.is_empty() {
                    ended.push((inherited, txn, records));
                }
            }
        }
        if !ended.is_empty() {
            self.ask_host(&ReportRecords::OfLost).await?;
        }
        for (inherited, txn, records) in ended {
            keys_of(&records).for_each(|key| self.node.end_inherited(inherited, key, txn));
        }
        Ok(())
    }
}
