//! This node leads a shard since its primary was lost. [Xenic21 4.2.1] (decision 0103)

use nicol_core::fabric::{Fabric, FabricError};
use nicol_core::ids::Epoch;

use super::NicServer;
use crate::decided::{Decision, Fate};
use crate::log::RecordKind;
use crate::writes::Writes;
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
                if inherited.open(records, so_far, |key, txn| self.node.lock_again(key, txn)) {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Ends what is decided of the transactions whose keys are locked in shards that this node has
    /// inherited: nobody sends COMMIT or ABORT for what an earlier primary has locked.
    pub(super) async fn settle_inherited(
        &self,
        decisions: impl Iterator<Item = Decision>,
    ) -> Result<(), FabricError> {
        if self.node.inherited().iter().next().is_none() {
            return Ok(());
        }
        for Decision { txn, fate } in decisions.filter(|one| one.fate != Fate::KnownToAll) {
            for inherited in self.node.inherited().iter() {
                let records = inherited.decide(txn);
                if fate == Fate::Committed {
                    for record in &records {
                        self.install_inherited(inherited, record).await?;
                    }
                }
                keys_of(&records).for_each(|key| self.node.pass_lock(inherited, key, txn));
            }
        }
        Ok(())
    }

    /// Installs a LOG that its backup has become primary of, as COMMIT does.
    async fn install_inherited(
        &self,
        inherited: &InheritedShard,
        record: &[u8],
    ) -> Result<(), FabricError> {
        let Ok(writes) = Writes::parse(record) else { return Ok(()) };
        let (position, landing) = self.log.append(RecordKind::Commit, record, || true).await?;
        for (key, version, value) in writes.installs() {
            // Later transactions may have been decided before this one.
            if inherited.is_newest(key, version) {
                self.node.install(key, version, value);
                self.log.pin(position, key);
            }
        }
        landing.await.map(drop)
    }
}
