//! One node: a replica, or a client, or both.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nicol_core::fabric::Fabric;
use nicol_core::ids::{Key, NodeId, ShardId, TableId};
use nicol_core::units::Nanos;
use nicol_core::view::{ShardMap, View};

use super::config::RsConfig;
use super::replica::Replica;
use crate::pool::BufferPool;
use crate::recycling::{Recycled, Recycles, Recycling};
use crate::tag::Tag;

/// A node of PRISM-RS.
#[derive(Debug)]
pub struct Node {
    pub(super) id: NodeId,
    pub(super) view: View,
    pub(super) config: RsConfig,
    /// The table whose rows number the blocks.
    pub(super) table: TableId,
    /// The replica of this life, once it has every block.
    pub(super) replica: Mutex<Option<Arc<Replica>>>,
    /// Work that its engines have not finished for operations that have ended.
    pub(super) open: Arc<AtomicU64>,
    pub(super) recycled: Recycled,
}

impl Node {
    pub fn id(&self) -> NodeId {
        self.id
    }

    pub fn config(&self) -> &RsConfig {
        &self.config
    }

    /// Its replica, if it has every block.
    pub(super) fn serving(&self) -> Option<Arc<Replica>> {
        self.replica().clone()
    }

    /// `replica` has every block: it counts from here on.
    pub(super) fn serve_again(&self, replica: Replica) {
        *self.replica() = Some(Arc::new(replica));
    }

    /// The blocks of `shard`.
    pub(super) fn blocks_of(&self, shard: ShardId) -> impl Iterator<Item = u64> {
        let of_shard = move |block: &u64| self.view.shard_of(Key::new(self.table, *block)) == shard;
        (0..self.config.blocks).filter(of_shard)
    }

    fn holds(&self, shard: ShardId) -> bool {
        self.view.replicas_of(shard).contains(&self.id)
    }

    pub(super) fn replica(&self) -> MutexGuard<'_, Option<Arc<Replica>>> {
        self.replica.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `each` with every block of `shard`.
    pub(super) fn each_of(&self, shard: ShardId, each: &mut dyn FnMut(Key, Tag, &[u8])) {
        let Some(replica) = self.serving().filter(|_| self.holds(shard)) else { return };
        let mut value = Vec::new();
        for block in self.blocks_of(shard) {
            if let Some(tag) = replica.read(block, &mut value) {
                each(Key::new(self.table, block), tag, &value);
            }
        }
    }
}

impl Recycles for Node {
    fn recycling(&self) -> Recycling {
        self.config.recycling
    }

    fn recycled(&self) -> &Recycled {
        &self.recycled
    }

    fn open(&self) -> &Arc<AtomicU64> {
        &self.open
    }

    fn with_pool(&self, look: &mut dyn FnMut(&BufferPool)) {
        self.serving().iter().for_each(|replica| look(&replica.pool));
    }

    async fn scan<F: Fabric>(&self, fabric: &F, after: Nanos) -> usize {
        match self.serving() {
            Some(replica) => replica.pool.scan(fabric, after).await,
            None => 0,
        }
    }
}
