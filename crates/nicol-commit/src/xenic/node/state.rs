//! What is asked of a node from outside: of its present life.

use nicol_core::engine::Loss;
use nicol_core::ids::{Key, ShardId, Version};
use nicol_core::steering::Decisions;
use nicol_core::system::{Audit, Counter, NodeMemory, NodeState};

use super::Node;
use super::inherited::InheritedShard;
use crate::survivor::Survivor;

impl NodeState for Node {
    fn crashed(&self, loss: &Loss) {
        let life = self.newest();
        life.lost_sides.lose(loss);
    }

    fn has_recovered(&self) -> bool {
        let life = self.newest();
        !life.lives.is_first() && life.lives.is_complete() && !life.lost_sides.are_any()
    }

    fn serves(&self, shard: ShardId) -> bool {
        let life = self.newest();
        life.shard == Some(shard) || life.inherited.get(shard).is_some_and(InheritedShard::is_open)
    }

    fn is_settled(&self) -> bool {
        let life = self.newest();
        life.indices().all(|(_, index)| index.pinned_count() == 0)
            && life.inherited.iter().all(|one| one.is_settled(|txn| life.lost().have_left(txn)))
            && life.logs.iter().all(|log| log.is_settled())
            && life.has_released()
            && life.has_decided()
            && !life.recovery.is_due()
            && life.schedule.as_ref().is_none_or(|shared| shared.is_settled())
            // Last: a reader that finds a COMMIT's locks released finds it counted until it is
            // durable.
            && life.syncing.is_none()
    }

    fn audit(&self) -> Audit {
        let life = self.newest();
        let mut digests = Vec::from_iter(life.shard.map(|shard| (shard, life.primary.digest())));
        digests.extend(life.backups.iter().map(|(shard, table)| (shard, table.digest())));
        let locked = life.awaiting_recovery();
        let pinned: usize = life.indices().map(|(_, index)| index.pinned_count()).sum();
        let locks = life.locks_held() - locked.len() as u64;
        let undecided = life.undecided_of_lost();
        let awaiting = [("locks", locked.len()), ("undecided_writes", undecided.len())];
        Audit {
            leaks: vec![
                ("locks", locks),
                ("pinned_objects", pinned as u64),
                ("ranges_held", life.write_counters.inserting_count() as u64),
            ],
            awaiting_recovery: awaiting.map(|(name, keys)| (name, keys as u64)).to_vec(),
            keys_awaiting_recovery: [locked, undecided].concat(),
            digests,
        }
    }

    fn locks_held(&self) -> u64 {
        let life = self.newest();
        life.indices().map(|(_, index)| index.locked_count() as u64).sum()
    }

    fn counters(&self) -> Vec<Counter> {
        let life = self.newest();
        life.counted()
    }

    fn decisions(&self) -> Option<Decisions> {
        let life = self.newest();
        Some(life.choice.as_ref()?.decisions(life.id, ["host", "nic"]))
    }

    fn check(&self) {
        let life = self.newest();
        life.indices().for_each(|(_, index)| index.check());
        for replica in life.replicas() {
            let breaches = replica.check();
            assert!(breaches.is_empty(), "a replica is broken: {breaches:?}");
        }
    }

    fn memory(&self) -> Option<NodeMemory> {
        let life = self.newest();
        Some(life.taken_memory())
    }

    fn is_full(&self) -> bool {
        let life = self.newest();
        !life.exhausted_space().takes_usual()
    }

    fn records(&self) -> u64 {
        let life = self.newest();
        life.primary.len()
    }

    fn read(&self, key: Key, value: &mut Vec<u8>) -> bool {
        let life = self.newest();
        life.primary.get(key, value).present
    }

    fn for_each(&self, each: &mut dyn FnMut(Key, &[u8])) {
        let life = self.newest();
        life.primary.for_each(each);
    }

    fn for_each_of(&self, shard: ShardId, each: &mut dyn FnMut(Key, Version, &[u8])) {
        let life = self.newest();
        if let Some(replica) = life.held(shard) {
            replica.for_each_version(each);
        }
    }
}
