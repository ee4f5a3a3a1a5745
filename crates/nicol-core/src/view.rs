//! The view: which nodes and engines there are, which of them are up, and which node holds which
//! shard.
//!
//! A view is data. Views follow one another by epoch: a later view of the same cluster has the same
//! nodes and engines, so that an engine's index never changes, and may differ in who is up, under
//! which incarnation, and in the placement of shards.

mod halves;
mod placement;
mod service;
mod set;
mod views;

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64_with_seed;

pub use halves::Halves;
use placement::{Placement, successive};
pub use placement::{REPLICAS_MAX, ReplicaSet, Succession};
pub use service::{Asking, Membership};
pub use set::{Member, NodeSet, Set, ShardSet};
pub use views::Views;

use crate::ids::{EngineId, Epoch, Incarnation, Key, NodeId, ShardId, Side};

/// Nodes that a cluster may have: as many as a packed [`EngineId`] can name.
pub const NODES_MAX: usize = 1 << EngineId::NODE_BITS;
/// Engines that one side of a node may have: as many as the core's byte can number, less one.
pub const ENGINES_MAX: usize = 255;
const _: () = assert!(NODES_MAX <= u16::MAX as usize, "a shard's number has 16 bits");

/// Why a view is impossible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ViewError {
    /// The number of nodes is out of range.
    #[error("{0} nodes: give 1 to {NODES_MAX}")]
    Nodes(usize),
    /// The number of replicas is out of range.
    #[error("{replicas} replicas on {nodes} nodes: give 1 to {}", (*nodes).min(REPLICAS_MAX))]
    Replicas {
        replicas: usize,
        /// Nodes that may hold shards.
        nodes: usize,
    },
    /// The number of engines is out of range.
    #[error("{0} engines on a side of a node: give 1 to {ENGINES_MAX}")]
    Engines(usize),
    /// A shard's replica is on a node that is no server, or twice on one node.
    #[error("shard {}: node {} cannot hold a replica of it: name different servers", shard.0, node.0)]
    Placement { shard: ShardId, node: NodeId },
}

/// The role of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Holds shards; its host engines may run clients as well.
    Server,
    /// Runs clients and their coordinators; holds no shard.
    Client,
}

impl Role {
    /// Its name in words and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
        }
    }
}

/// The role of a node and its engines on each side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeSpec {
    pub role: Role,
    pub host_engines: usize,
    pub nic_engines: usize,
}

/// One side of a node in a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SideState {
    /// True if it is a member of the view.
    pub up: bool,
    /// Its life: one higher each time that it starts again. What an earlier one sent is stale.
    pub incarnation: Incarnation,
}

impl SideState {
    /// Every side of a first view.
    pub const FIRST: Self = Self { up: true, incarnation: Incarnation::FIRST };
}

/// A node of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewNode {
    role: Role,
    host_engines: u8,
    nic_engines: u8,
    /// The index of its first engine: the sum of the engines before.
    first: u32,
    /// The same among the host engines alone.
    first_host: u32,
    sides: [SideState; 2],
    /// The view in which each side has come up in its life.
    joined: [Epoch; 2],
}

impl ViewNode {
    pub const fn role(&self) -> Role {
        self.role
    }

    /// Its engines on `side`.
    pub const fn engines(&self, side: Side) -> usize {
        match side {
            Side::Host => self.host_engines as usize,
            Side::Nic => self.nic_engines as usize,
        }
    }

    /// The state of `side`: up or down, and its life.
    pub const fn side(&self, side: Side) -> SideState {
        self.sides[side as usize]
    }
}

/// Which nodes and engines there are and which node holds which shard. A clone shares its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    epoch: Epoch,
    hash_seed: u64,
    engines: u32,
    halves: Halves,
    succession: Succession,
    nodes: Arc<[ViewNode]>,
    placement: Arc<Placement>,
}

impl View {
    /// The first view of `nodes` servers with as many shards, each on `replicas` nodes (f + 1).
    ///
    /// # Errors
    /// If a number is out of range.
    pub fn new(
        nodes: usize,
        replicas: usize,
        host_engines: usize,
        nic_engines: usize,
    ) -> Result<Self, ViewError> {
        if nodes == 0 || nodes > NODES_MAX {
            return Err(ViewError::Nodes(nodes));
        }
        let spec = NodeSpec { role: Role::Server, host_engines, nic_engines };
        Self::of(&vec![spec; nodes], replicas)
    }

    /// The first view of nodes that may differ. There are as many shards as servers: the primary of
    /// the i-th shard is the i-th server, and its backups are the servers that follow.
    ///
    /// # Errors
    /// If a number is out of range.
    pub fn of(specs: &[NodeSpec], replicas: usize) -> Result<Self, ViewError> {
        if specs.is_empty() || specs.len() > NODES_MAX {
            return Err(ViewError::Nodes(specs.len()));
        }
        let (mut first, mut first_host) = (0, 0);
        let mut nodes = Vec::with_capacity(specs.len());
        for &NodeSpec { role, host_engines, nic_engines } in specs {
            for engines in [host_engines, nic_engines] {
                if engines == 0 || engines > ENGINES_MAX {
                    return Err(ViewError::Engines(engines));
                }
            }
            let (host_engines, nic_engines) = (host_engines as u8, nic_engines as u8);
            nodes.push(ViewNode {
                role,
                host_engines,
                nic_engines,
                first,
                first_host,
                sides: [SideState::FIRST; 2],
                joined: [Epoch::FIRST; 2],
            });
            first += u32::from(host_engines) + u32::from(nic_engines);
            first_host += u32::from(host_engines);
        }
        let servers = ids(nodes.len()).filter(|id| nodes[id.index()].role == Role::Server);
        let servers: Vec<NodeId> = servers.collect();
        if replicas == 0 || replicas > servers.len().min(REPLICAS_MAX) {
            return Err(ViewError::Replicas { replicas, nodes: servers.len() });
        }
        Ok(Self {
            epoch: Epoch::FIRST,
            hash_seed: 0,
            engines: first,
            halves: Halves::Apart,
            succession: Succession::Nobody,
            nodes: nodes.into(),
            placement: Arc::new(Placement::new(successive(&servers, replicas))),
        })
    }

    /// The same view with another partition hash.
    pub fn with_hash_seed(mut self, seed: u64) -> Self {
        self.hash_seed = seed;
        self
    }

    /// The same view of nodes whose halves are worth this. Without a word each side goes on alone.
    pub const fn with_halves(mut self, halves: Halves) -> Self {
        self.halves = halves;
        self
    }

    /// The same view of a system whose lost shards become this. Without a word nobody leads them.
    pub const fn with_succession(mut self, succession: Succession) -> Self {
        self.succession = succession;
        self
    }

    /// The fate of a shard whose primary is lost.
    pub const fn succession(&self) -> Succession {
        self.succession
    }

    /// The same view with these replicas of each shard, in the order of the shards.
    ///
    /// # Errors
    /// If there are no shards, more than nodes may be, or a replica is on a node that is no server.
    pub fn with_placement(mut self, shards: Vec<ReplicaSet>) -> Result<Self, ViewError> {
        if shards.is_empty() || shards.len() > NODES_MAX {
            return Err(ViewError::Replicas { replicas: 0, nodes: self.nodes() });
        }
        for (number, set) in shards.iter().enumerate() {
            for (position, &node) in set.nodes().iter().enumerate() {
                let serves = self.node(node).is_some_and(|found| found.role == Role::Server);
                if !serves || set.nodes()[..position].contains(&node) {
                    return Err(ViewError::Placement { shard: ShardId(number as u16), node });
                }
            }
        }
        self.placement = Arc::new(Placement::new(shards));
        Ok(self)
    }

    /// The view that follows this one, in which `side` of `node` has another state.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn with_side(&self, node: NodeId, side: Side, state: SideState) -> Self {
        self.with_sides(&[(node, side, state)])
    }

    /// The view that follows this one, in which these sides have other states. A shard whose
    /// primary has lost its data with them has none that answers, unless another node
    /// [succeeds](Succession).
    ///
    /// # Panics
    /// If there is no such node.
    pub fn with_sides(&self, changes: &[(NodeId, Side, SideState)]) -> Self {
        let (mut nodes, epoch) = (self.nodes.to_vec(), self.epoch.next());
        for &(node, side, state) in changes {
            let node = &mut nodes[node.index()];
            if state.up && node.sides[side as usize] != state {
                node.joined[side as usize] = epoch;
            }
            node.sides[side as usize] = state;
        }
        let ends = |&&(node, side, state): &&(NodeId, Side, SideState)| {
            let before = self.side(node, side);
            before.up && before != state && self.halves.are_lost_with(side)
        };
        let lost: Vec<NodeId> = changes.iter().filter(ends).map(|(node, ..)| *node).collect();
        let mut placement = match lost.is_empty() {
            true => self.placement.clone(),
            false => Arc::new(self.placement.without(&lost, epoch, self.succession)),
        };
        // Both halves of its data begin with nothing: a node joins when the second is up.
        let needed = |side: &Side| self.halves.are_lost_with(*side);
        let joins = |&node: &NodeId| {
            let begins = |&(of, side, state): &(NodeId, Side, SideState)| {
                of == node && needed(&side) && state.up && self.side(node, side) != state
            };
            let is_up = |side: Side| nodes[node.index()].side(side).up;
            changes.iter().any(begins)
                && [Side::Host, Side::Nic].into_iter().filter(needed).all(is_up)
        };
        let mut newcomers: Vec<NodeId> = changes.iter().map(|(node, ..)| *node).collect();
        newcomers.dedup();
        newcomers.retain(joins);
        if self.succession == Succession::Backups && !newcomers.is_empty() {
            placement = Arc::new(placement.with_newcomers(&newcomers));
        }
        Self { epoch, nodes: nodes.into(), placement, ..self.clone() }
    }

    /// The view that follows this one, in which `node` is a backup of each shard for which it has
    /// caught up.
    pub fn with_complete(&self, node: NodeId) -> Self {
        let placement = Arc::new(self.placement.with_complete(node));
        Self { epoch: self.epoch.next(), placement, ..self.clone() }
    }

    /// The number of this view: later ones have higher numbers.
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub const fn hash_seed(&self) -> u64 {
        self.hash_seed
    }

    /// Which sides of a node the system needs together.
    pub const fn halves(&self) -> Halves {
        self.halves
    }

    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Copies of the most replicated shard, its primary included.
    pub fn replicas(&self) -> usize {
        self.placement.replicas_most()
    }

    /// A node; `None` if there is no such node.
    pub fn node(&self, node: NodeId) -> Option<&ViewNode> {
        self.nodes.get(node.index())
    }

    /// The role of `node`; `None` if there is no such node.
    pub fn role(&self, node: NodeId) -> Option<Role> {
        self.node(node).map(ViewNode::role)
    }

    /// The state of `side` of `node`: up or down, and its life. A node that does not exist is down.
    pub fn side(&self, node: NodeId, side: Side) -> SideState {
        let down = SideState { up: false, incarnation: Incarnation::FIRST };
        self.node(node).map_or(down, |node| node.side(side))
    }

    /// The first view that had both sides of `node` in the lives in which this one has them, or had
    /// them last. If a node is up in two views, and joined in the same view by both, it was a
    /// member of all views between.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn joined(&self, node: NodeId) -> Epoch {
        let [host, nic] = self.nodes[node.index()].joined;
        host.max(nic)
    }

    /// Engines on one side of a node; 0 if there is no such node.
    pub fn engines(&self, node: NodeId, side: Side) -> usize {
        self.node(node).map_or(0, |node| node.engines(side))
    }

    /// Engines on one side of the node that has most of them.
    pub fn engines_most(&self, side: Side) -> usize {
        self.nodes.iter().map(|node| node.engines(side)).max().unwrap_or_default()
    }

    pub fn node_ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        ids(self.nodes.len())
    }

    pub fn nodes_of(&self, role: Role) -> impl Iterator<Item = NodeId> + use<'_> {
        self.node_ids().filter(move |node| self.nodes[node.index()].role == role)
    }

    pub fn shard_ids(&self) -> impl Iterator<Item = ShardId> + use<> {
        (0..self.shards()).map(ShardId)
    }

    /// Every engine: node by node, host engines first.
    pub fn engine_ids(&self) -> impl Iterator<Item = EngineId> + use<> {
        let nodes = self.nodes.clone();
        self.node_ids().flat_map(move |node| {
            let ViewNode { host_engines, nic_engines, .. } = nodes[node.index()];
            let hosts = (0..host_engines).map(move |core| EngineId::host(node, core));
            hosts.chain((0..nic_engines).map(move |core| EngineId::nic(node, core)))
        })
    }

    /// Number of engines of the whole cluster.
    pub const fn engine_count(&self) -> usize {
        self.engines as usize
    }

    /// Number of host engines of the whole cluster.
    pub fn host_count(&self) -> usize {
        self.nodes.last().map_or(0, |last| last.first_host as usize + last.engines(Side::Host))
    }

    /// The position of `engine` in [`View::engine_ids`]; `None` if there is no such engine.
    #[inline]
    pub fn index_of(&self, engine: EngineId) -> Option<usize> {
        let node = self.nodes.get(engine.node.index())?;
        let (core, first) = (usize::from(engine.core), node.first as usize);
        match engine.side {
            Side::Host if engine.core < node.host_engines => Some(first + core),
            Side::Nic if engine.core < node.nic_engines => {
                Some(first + usize::from(node.host_engines) + core)
            }
            _ => None,
        }
    }

    /// The position of `engine` among the host engines of all nodes; `None` if it is no host
    /// engine.
    pub fn host_index_of(&self, engine: EngineId) -> Option<usize> {
        let node = self.nodes.get(engine.node.index())?;
        let is_host = engine.side == Side::Host && engine.core < node.host_engines;
        is_host.then(|| node.first_host as usize + usize::from(engine.core))
    }

    /// The NIC engine of `node` that works for core `core` of any side of any node. Engines of the
    /// same number talk to one another, so that everything bound for one node leaves in one frame.
    ///
    /// # Panics
    /// If there is no such node.
    #[inline]
    pub fn nic_of(&self, node: NodeId, core: u8) -> EngineId {
        EngineId::nic(node, core % self.nodes[node.index()].nic_engines)
    }

    /// Which of `engines` engines of `node` works for `from`, an engine of any node. Engines of one
    /// node have different ones as far as there are, and so have those of one number on different
    /// nodes: few clients on many nodes would otherwise all meet at the first engine.
    ///
    /// # Panics
    /// If there are none.
    pub fn peer_of(&self, from: EngineId, node: NodeId, engines: usize) -> u8 {
        let nodes = self.nodes.len();
        let distance = (from.node.index() + nodes - node.index()) % nodes;
        ((usize::from(from.core) + distance) % engines) as u8
    }

    /// The NIC engine that works for the `turn`-th piece of work of `host`, on its node.
    ///
    /// As far as host engines come in whole sets of the NIC engines' number, each works with the
    /// NIC engine of its own number, so that its messages leave together. The work of the remaining
    /// ones takes turns, so that every NIC engine gets the same share.
    ///
    /// # Panics
    /// If there is no such node.
    #[inline]
    pub fn nic_for(&self, host: EngineId, turn: u64) -> EngineId {
        let node = &self.nodes[host.node.index()];
        let (hosts, nics) = (u64::from(node.host_engines), u64::from(node.nic_engines));
        let (core, remaining) = (u64::from(host.core), hosts % nics);
        let whole = hosts - remaining;
        if core < whole {
            return EngineId::nic(host.node, (core % nics) as u8);
        }
        let first = core - whole;
        let turns = (nics - first).div_ceil(remaining);
        EngineId::nic(host.node, (first + remaining * (turn % turns)) as u8)
    }

    /// The nodes that hold `shard`, its primary first.
    ///
    /// # Panics
    /// If there is no such shard.
    pub fn replicas_of(&self, shard: ShardId) -> &[NodeId] {
        self.placement.replicas_of(shard).nodes()
    }

    /// The node that holds the primary of `shard`.
    ///
    /// # Panics
    /// If there is no such shard.
    #[inline]
    pub fn primary(&self, shard: ShardId) -> NodeId {
        self.placement.replicas_of(shard).primary()
    }

    /// The view in which the primary of `shard` has changed, or was lost, the last time.
    ///
    /// # Panics
    /// If there is no such shard.
    #[inline]
    pub fn led_since(&self, shard: ShardId) -> Epoch {
        self.placement.led_since(shard)
    }

    /// The nodes that hold backups of `shard`, in the order of its replicas.
    ///
    /// # Panics
    /// If there is no such shard.
    #[inline]
    pub fn backups(&self, shard: ShardId) -> impl Iterator<Item = NodeId> + use<> {
        self.placement.replicas_of(shard).backups()
    }

    /// The nodes that are being given the records of `shard`. They are no replicas yet.
    ///
    /// # Panics
    /// If there is no such shard.
    #[inline]
    pub fn catching_up(&self, shard: ShardId) -> &[NodeId] {
        self.placement.catching_up(shard)
    }

    /// Whether `node` is being given the records of any shard.
    pub fn is_catching_up(&self, node: NodeId) -> bool {
        self.shard_ids().any(|shard| self.catching_up(shard).contains(&node))
    }

    /// The nodes beside the primary that must have what is written to `shard`: its backups, then
    /// those that catch up.
    ///
    /// # Panics
    /// If there is no such shard.
    #[inline]
    pub fn followers(&self, shard: ShardId) -> impl Iterator<Item = NodeId> + use<'_> {
        self.backups(shard).chain(self.catching_up(shard).iter().copied())
    }

    /// Have all replicas of `shard` lost their data, so that nobody will serve it any more? Only
    /// where backups [succeed](Succession); elsewhere a view does not tell.
    ///
    /// # Panics
    /// If there is no such shard.
    pub fn is_lost(&self, shard: ShardId) -> bool {
        self.placement.is_lost(shard)
    }

    /// The shards of which `node` holds the primary.
    pub fn led_by(&self, node: NodeId) -> impl Iterator<Item = ShardId> + use<'_> {
        self.placement.led_by(node)
    }

    /// The shards of which `node` holds a backup: first those whose first backup it is.
    pub fn backed_up_by(&self, node: NodeId) -> impl Iterator<Item = ShardId> + use<'_> {
        self.placement.backed_up_by(node)
    }
}

/// Where a key lives.
pub trait ShardMap {
    fn shards(&self) -> u16;
    /// The shard of `key`: by its partition if it has one ([`Key::partition`]), otherwise by its
    /// hash.
    fn shard_of(&self, key: Key) -> ShardId;
}

impl ShardMap for View {
    #[inline]
    fn shards(&self) -> u16 {
        self.placement.shards()
    }

    #[inline]
    fn shard_of(&self, key: Key) -> ShardId {
        if let Some(partition) = key.partition() {
            return ShardId(partition % self.shards());
        }
        let hash = xxh3_64_with_seed(&key.0.to_le_bytes(), self.hash_seed);
        ShardId(((u128::from(hash) * u128::from(self.shards())) >> 64) as u16)
    }
}

fn ids(nodes: usize) -> impl Iterator<Item = NodeId> + use<> {
    (0..nodes as u16).map(NodeId)
}

#[cfg(test)]
mod tests;
