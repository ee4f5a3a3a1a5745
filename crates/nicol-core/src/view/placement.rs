//! Which nodes hold which shard.

use std::sync::Arc;

use crate::ids::{Epoch, NodeId, ShardId};

/// Replicas that a shard may have, its primary included: they stand in line in the view, so that
/// finding them costs one read.
pub const REPLICAS_MAX: usize = 8;

/// The nodes that hold a shard, its primary first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaSet {
    nodes: [NodeId; REPLICAS_MAX],
    len: u8,
}

impl ReplicaSet {
    /// The replicas on `nodes`, the primary's node first.
    ///
    /// # Panics
    /// If there is none, or there are more than [`REPLICAS_MAX`].
    pub fn new(nodes: impl IntoIterator<Item = NodeId>) -> Self {
        let mut set = Self { nodes: [NodeId(0); REPLICAS_MAX], len: 0 };
        for node in nodes {
            assert!(usize::from(set.len) < REPLICAS_MAX, "at most {REPLICAS_MAX} replicas");
            set.nodes[usize::from(set.len)] = node;
            set.len += 1;
        }
        assert!(set.len > 0, "a shard has a primary");
        set
    }

    /// The nodes, the primary's first.
    #[inline]
    pub fn nodes(&self) -> &[NodeId] {
        &self.nodes[..usize::from(self.len)]
    }

    pub const fn primary(&self) -> NodeId {
        self.nodes[0]
    }

    #[inline]
    pub fn backups(self) -> impl Iterator<Item = NodeId> + use<> {
        (1..usize::from(self.len)).map(move |place| self.nodes[place])
    }
}

/// The fate of a shard whose primary's node has lost its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Succession {
    /// Nobody leads it any more: the placement stays.
    #[default]
    Nobody,
    /// The first of its backups that has its data leads it. A node that has lost its data leads
    /// none, unless it was the last that had a shard's, which is lost then. When the node is back,
    /// it catches up.
    Backups,
}

/// A replica as its node sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    node: NodeId,
    /// Its position in the replica set; 0 is the primary.
    position: u8,
    shard: ShardId,
}

/// A shard in a placement.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Placed {
    /// Its complete replicas.
    replicas: ReplicaSet,
    /// Nodes that are being given its records.
    catching_up: Vec<NodeId>,
    /// See [`View::led_since`](super::View::led_since).
    led_since: Epoch,
    /// Have all its replicas lost their data?
    is_lost: bool,
}

/// The replicas of every shard, and the shards of every node.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Placement {
    /// The replicas of the first view.
    first: Arc<[ReplicaSet]>,
    shards: Box<[Placed]>,
    held: Box<[Held]>,
    replicas_most: usize,
}

impl Placement {
    pub(super) fn new(shards: Vec<ReplicaSet>) -> Self {
        let place = |&replicas: &ReplicaSet| Placed {
            replicas,
            catching_up: Vec::new(),
            led_since: Epoch::FIRST,
            is_lost: false,
        };
        let placed = shards.iter().map(place).collect();
        Self::of(shards.into(), placed)
    }

    fn of(first: Arc<[ReplicaSet]>, shards: Vec<Placed>) -> Self {
        let mut held = Vec::new();
        for (number, placed) in shards.iter().enumerate() {
            let shard = ShardId(number as u16);
            let replica = |(position, &node)| Held { node, position: position as u8, shard };
            held.extend(placed.replicas.nodes().iter().enumerate().map(replica));
        }
        held.sort_unstable();
        let sizes = shards.iter().map(|placed| placed.replicas.nodes().len());
        let replicas_most = sizes.max().unwrap_or_default();
        Self { first, shards: shards.into(), held: held.into(), replicas_most }
    }

    /// The placement of the view of `epoch`, before which these nodes have lost their data.
    pub(super) fn without(&self, lost: &[NodeId], epoch: Epoch, succession: Succession) -> Self {
        let mut shards = self.shards.to_vec();
        for placed in &mut shards {
            if lost.contains(&placed.replicas.primary()) {
                placed.led_since = epoch;
            }
            placed.catching_up.retain(|node| !lost.contains(node));
            let nodes = placed.replicas.nodes().iter();
            let mut left = nodes.copied().filter(|node| !lost.contains(node));
            match (succession, left.next()) {
                (Succession::Backups, Some(primary)) => {
                    placed.replicas = ReplicaSet::new(std::iter::once(primary).chain(left));
                }
                (Succession::Backups, None) => placed.is_lost = true,
                (Succession::Nobody, _) => {}
            }
        }
        Self::of(self.first.clone(), shards)
    }

    /// The same placement, in which these nodes, without data, catch up: as replicas of each shard
    /// that they had in the first view, if anybody has its records.
    pub(super) fn with_newcomers(&self, nodes: &[NodeId]) -> Self {
        let mut shards = self.shards.to_vec();
        for (first, placed) in self.first.iter().zip(&mut shards) {
            let held = nodes.iter().filter(|node| first.nodes().contains(node));
            let known = |node: &NodeId| {
                placed.replicas.nodes().contains(node) || placed.catching_up.contains(node)
            };
            let joins: Vec<NodeId> = held.copied().filter(|node| !known(node)).collect();
            if !placed.is_lost {
                placed.catching_up.extend(joins);
            }
        }
        Self::of(self.first.clone(), shards)
    }

    /// The same placement, in which `node` is a backup wherever it has caught up.
    pub(super) fn with_complete(&self, node: NodeId) -> Self {
        let mut shards = self.shards.to_vec();
        for placed in &mut shards {
            if placed.catching_up.contains(&node) {
                placed.catching_up.retain(|other| *other != node);
                let replicas = placed.replicas.nodes().iter().copied();
                placed.replicas = ReplicaSet::new(replicas.chain([node]));
            }
        }
        Self::of(self.first.clone(), shards)
    }

    #[inline]
    pub(super) fn led_since(&self, shard: ShardId) -> Epoch {
        self.shards[usize::from(shard.0)].led_since
    }

    pub(super) fn is_lost(&self, shard: ShardId) -> bool {
        self.shards[usize::from(shard.0)].is_lost
    }

    #[inline]
    pub(super) fn catching_up(&self, shard: ShardId) -> &[NodeId] {
        &self.shards[usize::from(shard.0)].catching_up
    }

    #[inline]
    pub(super) fn shards(&self) -> u16 {
        self.shards.len() as u16
    }

    #[inline]
    pub(super) fn replicas_of(&self, shard: ShardId) -> &ReplicaSet {
        &self.shards[usize::from(shard.0)].replicas
    }

    pub(super) const fn replicas_most(&self) -> usize {
        self.replicas_most
    }

    pub(super) fn led_by(&self, node: NodeId) -> impl Iterator<Item = ShardId> + use<'_> {
        let held = self.held_by(node).iter();
        held.take_while(|held| held.position == 0).map(|held| held.shard)
    }

    pub(super) fn backed_up_by(&self, node: NodeId) -> impl Iterator<Item = ShardId> + use<'_> {
        let held = self.held_by(node).iter();
        held.skip_while(|held| held.position == 0).map(|held| held.shard)
    }

    fn held_by(&self, node: NodeId) -> &[Held] {
        let first = self.held.partition_point(|held| held.node < node);
        let rest = &self.held[first..];
        &rest[..rest.partition_point(|held| held.node == node)]
    }
}

/// A shard for each of `servers`, with its primary there and its backups on the servers after it.
pub(super) fn successive(servers: &[NodeId], replicas: usize) -> Vec<ReplicaSet> {
    let after = |first| servers.iter().cycle().skip(first).take(replicas).copied();
    (0..servers.len()).map(|first| ReplicaSet::new(after(first))).collect()
}
