//! Which nodes hold which shard.

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
    /// The first of its backups that has its data leads it. A node that has lost its data is in no
    /// later placement, unless it was the last that had a shard's.
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

/// The replicas of every shard, and the shards of every node.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Placement {
    shards: Box<[ReplicaSet]>,
    held: Box<[Held]>,
    replicas_most: usize,
    /// By shard: see [`View::led_since`](super::View::led_since).
    led_since: Box<[Epoch]>,
}

impl Placement {
    pub(super) fn new(shards: Vec<ReplicaSet>) -> Self {
        let led_since = vec![Epoch::FIRST; shards.len()];
        Self::since(shards, led_since)
    }

    fn since(shards: Vec<ReplicaSet>, led_since: Vec<Epoch>) -> Self {
        let mut held = Vec::new();
        for (number, set) in shards.iter().enumerate() {
            let shard = ShardId(number as u16);
            let replica = |(position, &node)| Held { node, position: position as u8, shard };
            held.extend(set.nodes().iter().enumerate().map(replica));
        }
        held.sort_unstable();
        let replicas_most = shards.iter().map(|set| set.nodes().len()).max().unwrap_or_default();
        let led_since = led_since.into();
        Self { shards: shards.into(), held: held.into(), replicas_most, led_since }
    }

    /// The placement of the view of `epoch`, before which these nodes have lost their data.
    pub(super) fn without(&self, lost: &[NodeId], epoch: Epoch, succession: Succession) -> Self {
        let (mut shards, mut led_since) = (self.shards.to_vec(), self.led_since.to_vec());
        for (set, since) in shards.iter_mut().zip(&mut led_since) {
            if lost.contains(&set.primary()) {
                *since = epoch;
            }
            let mut left = set.nodes().iter().copied().filter(|node| !lost.contains(node));
            if succession == Succession::Backups
                && let Some(primary) = left.next()
            {
                *set = ReplicaSet::new(std::iter::once(primary).chain(left));
            }
        }
        Self::since(shards, led_since)
    }

    #[inline]
    pub(super) fn led_since(&self, shard: ShardId) -> Epoch {
        self.led_since[usize::from(shard.0)]
    }

    #[inline]
    pub(super) fn shards(&self) -> u16 {
        self.shards.len() as u16
    }

    #[inline]
    pub(super) fn replicas_of(&self, shard: ShardId) -> &ReplicaSet {
        &self.shards[usize::from(shard.0)]
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
