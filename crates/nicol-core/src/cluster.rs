//! The cluster's layout: nodes, engines per side, replicas, and where keys live.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::ids::{EngineId, Key, NodeId, ShardId, Side};

/// Nodes that a cluster may have.
pub const NODES_MAX: usize = 64;
/// Replicas that a shard may have, its primary included.
pub const REPLICAS_MAX: usize = 8;

/// Why a layout is impossible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// The number of nodes is out of range.
    #[error("{0} nodes: give 1 to {NODES_MAX}")]
    Nodes(usize),
    /// The number of replicas is out of range.
    #[error("{replicas} replicas on {nodes} nodes: give 1 to {}", (*nodes).min(REPLICAS_MAX))]
    Replicas {
        /// Replicas asked for.
        replicas: usize,
        /// Nodes there are.
        nodes: usize,
    },
    /// The number of engines is out of range.
    #[error("{0} engines on a side of a node: give 1 to 255")]
    Engines(usize),
}

/// Which engines there are and which node holds which shard. The same on every node of a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    nodes: u8,
    replicas: u8,
    host_engines: u8,
    nic_engines: u8,
    hash_seed: u64,
}

impl Layout {
    /// A layout of `nodes` nodes with as many shards, each on `replicas` nodes (f + 1).
    pub fn new(
        nodes: usize,
        replicas: usize,
        host_engines: usize,
        nic_engines: usize,
    ) -> Result<Self, LayoutError> {
        if nodes == 0 || nodes > NODES_MAX {
            return Err(LayoutError::Nodes(nodes));
        }
        if replicas == 0 || replicas > nodes.min(REPLICAS_MAX) {
            return Err(LayoutError::Replicas { replicas, nodes });
        }
        for engines in [host_engines, nic_engines] {
            if engines == 0 || engines > 255 {
                return Err(LayoutError::Engines(engines));
            }
        }
        Ok(Self {
            nodes: nodes as u8,
            replicas: replicas as u8,
            host_engines: host_engines as u8,
            nic_engines: nic_engines as u8,
            hash_seed: 0,
        })
    }

    /// The same layout with another partition hash.
    pub fn with_hash_seed(mut self, seed: u64) -> Self {
        self.hash_seed = seed;
        self
    }

    /// The seed of the partition hash.
    pub fn hash_seed(&self) -> u64 {
        self.hash_seed
    }

    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        usize::from(self.nodes)
    }

    /// Copies of each shard, the primary included.
    pub fn replicas(&self) -> usize {
        usize::from(self.replicas)
    }

    /// Engines on one side of each node.
    pub fn engines(&self, side: Side) -> usize {
        usize::from(match side {
            Side::Host => self.host_engines,
            Side::Nic => self.nic_engines,
        })
    }

    /// Every node.
    pub fn node_ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.nodes).map(NodeId)
    }

    /// Every engine: node by node, host engines first.
    pub fn engine_ids(&self) -> impl Iterator<Item = EngineId> + use<> {
        let (host, nic) = (self.host_engines, self.nic_engines);
        self.node_ids().flat_map(move |node| {
            let hosts = (0..host).map(move |core| EngineId::host(node, core));
            hosts.chain((0..nic).map(move |core| EngineId::nic(node, core)))
        })
    }

    /// Number of engines of the whole cluster.
    pub fn engine_count(&self) -> usize {
        self.nodes() * (usize::from(self.host_engines) + usize::from(self.nic_engines))
    }

    /// The position of `engine` in [`Layout::engine_ids`]; `None` if there is no such engine.
    pub fn index_of(&self, engine: EngineId) -> Option<usize> {
        let (host, nic) = (usize::from(self.host_engines), usize::from(self.nic_engines));
        let core = usize::from(engine.core);
        let within = match engine.side {
            Side::Host if core < host => core,
            Side::Nic if core < nic => host + core,
            _ => return None,
        };
        (engine.node.0 < self.nodes).then(|| usize::from(engine.node.0) * (host + nic) + within)
    }

    /// The NIC engine of `node` that works for core `core` of any side of any node. Engines of the
    /// same number talk to one another, so that everything bound for one node leaves in one frame.
    pub fn nic_of(&self, node: NodeId, core: u8) -> EngineId {
        EngineId::nic(node, core % self.nic_engines)
    }

    /// The NIC engine that works for the `turn`-th piece of work of `host`, on its node.
    ///
    /// As far as host engines come in whole sets of the NIC engines' number, each works with the
    /// NIC engine of its own number, so that its messages leave together. The work of the remaining
    /// ones takes turns, so that every NIC engine gets the same share.
    pub fn nic_for(&self, host: EngineId, turn: u64) -> EngineId {
        let (hosts, nics) = (u64::from(self.host_engines), u64::from(self.nic_engines));
        let (core, remaining) = (u64::from(host.core), hosts % nics);
        let whole = hosts - remaining;
        if core < whole {
            return EngineId::nic(host.node, (core % nics) as u8);
        }
        let first = core - whole;
        let turns = (nics - first).div_ceil(remaining);
        EngineId::nic(host.node, (first + remaining * (turn % turns)) as u8)
    }

    /// The node that holds the primary of `shard`.
    pub fn primary(&self, shard: ShardId) -> NodeId {
        NodeId((shard.0 % u16::from(self.nodes)) as u8)
    }

    /// The nodes that hold backups of `shard`: the `replicas - 1` nodes after its primary.
    pub fn backups(&self, shard: ShardId) -> impl Iterator<Item = NodeId> + use<> {
        let (nodes, first) = (self.nodes, self.primary(shard).0);
        (1..self.replicas).map(move |step| NodeId((first + step) % nodes))
    }

    /// The shards of which `node` holds a backup.
    pub fn backed_up_by(&self, node: NodeId) -> impl Iterator<Item = ShardId> + use<> {
        let nodes = u16::from(self.nodes);
        (1..u16::from(self.replicas))
            .map(move |step| ShardId((u16::from(node.0) + nodes - step) % nodes))
    }
}

/// Where a key lives.
pub trait ShardMap {
    /// How many shards there are.
    fn shards(&self) -> u16;
    /// The shard of `key`: by its partition if it has one ([`Key::partition`]), otherwise by its
    /// hash.
    fn shard_of(&self, key: Key) -> ShardId;
}

impl ShardMap for Layout {
    fn shards(&self) -> u16 {
        u16::from(self.nodes)
    }

    fn shard_of(&self, key: Key) -> ShardId {
        if let Some(partition) = key.partition() {
            return ShardId(partition % u16::from(self.nodes));
        }
        let hash = xxh3_64_with_seed(&key.0.to_le_bytes(), self.hash_seed);
        ShardId(((u128::from(hash) * u128::from(self.nodes)) >> 64) as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::TableId;

    #[test]
    fn backups_and_backed_up_by_agree() {
        let layout = Layout::new(5, 3, 1, 2).unwrap();
        for shard in (0..5).map(ShardId) {
            for node in layout.backups(shard) {
                assert!(layout.backed_up_by(node).any(|backed_up| backed_up == shard));
                assert_ne!(node, layout.primary(shard));
            }
        }
        for (index, engine) in layout.engine_ids().enumerate() {
            assert_eq!(layout.index_of(engine), Some(index));
            assert_eq!(EngineId::unpack(engine.pack()), Some(engine));
        }
        assert_eq!(layout.engine_ids().count(), layout.engine_count());
    }

    #[test]
    fn every_nic_engine_gets_its_share_of_the_host_engines_work() {
        const TURNS: u64 = 120;
        for (hosts, nics) in [(1, 1), (32, 24), (3, 8), (8, 3), (1, 5), (4, 8)] {
            let layout = Layout::new(2, 2, hosts, nics).unwrap();
            let node = NodeId(1);
            let mut used = vec![0; nics];
            for core in 0..hosts {
                let host = EngineId::host(node, core as u8);
                for turn in 0..TURNS {
                    let nic = layout.nic_for(host, turn);
                    assert_eq!((nic.node, nic.side), (node, Side::Nic));
                    assert!(turn > 0 || nic == layout.nic_of(node, host.core));
                    used[usize::from(nic.core)] += 1;
                }
            }
            let (least, most) = (used.iter().min().unwrap(), used.iter().max().unwrap());
            let uneven = if nics % (hosts % nics).max(1) == 0 { 0 } else { TURNS };
            assert!(*least > 0, "{hosts} hosts, {nics} NICs: {used:?}");
            assert!(most - least <= uneven, "{hosts} hosts, {nics} NICs: {used:?}");
        }
    }

    #[test]
    fn a_placed_key_lives_where_it_says() {
        let layout = Layout::new(5, 3, 1, 2).unwrap().with_hash_seed(7);
        for partition in [0, 1, 4, 5, 999, u16::MAX] {
            for (table, row) in [(0x80, 0), (0x80, (1 << 40) - 1), (0xff, 12_345)] {
                let key = Key::partitioned(TableId(table), partition, row);
                assert_eq!(key.partition(), Some(partition));
                assert_eq!(key.table(), TableId(table));
                assert_eq!(layout.shard_of(key), ShardId(partition % 5));
            }
        }
        let hashed: std::collections::BTreeSet<_> =
            (0..100).map(|row| layout.shard_of(Key::new(TableId(0x7f), row))).collect();
        assert_eq!(hashed.len(), 5, "other tables spread over every shard");
    }

    #[test]
    fn impossible_layouts_name_the_number() {
        assert_eq!(Layout::new(0, 1, 1, 1), Err(LayoutError::Nodes(0)));
        let error = Layout::new(3, 4, 1, 1).unwrap_err();
        assert_eq!(error.to_string(), "4 replicas on 3 nodes: give 1 to 3");
    }
}
