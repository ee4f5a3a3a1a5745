//! How a node loads, starts and comes back.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use nicol_core::engine::Loss;
use nicol_core::fabric::Fabric;
use nicol_core::ids::{Key, NodeId, ShardId, Side, TableId};
use nicol_core::key_value::{KeyValueNode, Offered};
use nicol_core::system::{Audit, Counter, NodeState, Opening, Origin, SystemNode, TooSmall};
use nicol_core::view::Role;

use super::broken;
use super::broken::front::Front;
use super::client::Client;
use super::config::RsConfig;
use super::node::Node;
use super::replica::Replica;
use super::server::Server;
use crate::recycling::Recycled;
use crate::tag::Tag;

/// Starts a host engine of a server.
fn start_server<F: Fabric>(fabric: &F, node: &Arc<Node>) {
    let service = broken::server::service(fabric, node, Server::new(fabric, node));
    assert!(fabric.serve(service), "an engine runs one system");
    if fabric.here().core == 0 {
        broken::daemon::start(fabric, node);
    }
}

impl SystemNode for Node {
    type Config = RsConfig;

    /// Nothing: a node loads what it replicates by itself.
    type Shard = ();

    const REPLICAS_CONVERGE: bool = false;

    const RECOVERS: bool = true;

    const FOLLOWS_VIEWS: bool = true;

    fn load(_: &Origin<'_, RsConfig>, _: ShardId) -> Result<(), TooSmall> {
        Ok(())
    }

    fn open(from: &Origin<'_, RsConfig>, id: NodeId, _: &[()]) -> Opening<Self, ()> {
        let Origin { view, config, source } = *from;
        let (mut replica, mut table) = (None, TableId(0));
        for shard in view.shard_ids().filter(|&shard| view.replicas_of(shard).contains(&id)) {
            let all = replica.get_or_insert_with(|| Replica::new(config, view.nodes()));
            source.load(view, shard, &mut |key, value| {
                table = key.table();
                all.load(key.row(), Tag::LOADED, value);
            });
        }
        let node = Self {
            id,
            view: view.clone(),
            config: config.clone(),
            table,
            replica: Mutex::new(replica.map(Arc::new)),
            open: Arc::default(),
            recycled: Recycled::default(),
        };
        Box::new(|_| node)
    }

    fn restart<F: Fabric>(self: &Arc<Self>, fabric: &F) {
        let is_server = fabric.view().role(self.id) == Some(Role::Server);
        if !is_server || fabric.here().side != Side::Host {
            return;
        }
        start_server(fabric, self);
        if fabric.here().core == 0 {
            broken::rejoin::start(fabric, self);
        }
    }
}

impl NodeState for Node {
    fn crashed(&self, _: &Loss) {
        *self.replica() = None;
        self.recycled.forget_scan();
    }

    fn has_recovered(&self) -> bool {
        self.replica().is_some()
    }

    fn is_settled(&self) -> bool {
        // Of a chain that a dead client leaves behind the next view tells. That is asked last,
        // since it goes over every buffer.
        self.open.load(Ordering::Relaxed) == 0
            && self.serving().is_none_or(|replica| replica.pool.is_as_loaded())
    }

    fn audit(&self) -> Audit {
        let serving = self.serving();
        let count = |count: fn(&Replica) -> usize| serving.as_deref().map_or(0, count) as u64;
        Audit {
            leaks: vec![
                ("buffers", count(|replica| replica.pool.unreferenced().len())),
                ("dangling_pointers", count(|replica| replica.pool.dangling())),
            ],
            ..Audit::default()
        }
    }

    fn counters(&self) -> Vec<Counter> {
        self.recycled.counters("prism_rs").collect()
    }

    fn records(&self) -> u64 {
        let own = self.view.led_by(self.id).map(|shard| self.blocks_of(shard).count());
        own.sum::<usize>() as u64
    }

    fn read(&self, key: Key, value: &mut Vec<u8>) -> bool {
        let serving = self.serving();
        serving.and_then(|replica| replica.read(key.row(), value)).is_some()
    }

    fn for_each(&self, each: &mut dyn FnMut(Key, &[u8])) {
        for shard in self.view.led_by(self.id) {
            self.each_of(shard, &mut |key, _, value| each(key, value));
        }
    }
}

impl KeyValueNode for Node {
    type Client<F: Fabric> = Front<F>;

    /// "GET and PUT operations to objects with fixed identifiers, i.e., blocks." [PRISM21 7]
    const OFFERED: Offered =
        Offered { inserts: false, deletes: false, scans: false, sparse: false };

    fn start<F: Fabric>(self: &Arc<Self>, fabric: &F) -> Option<Front<F>> {
        if fabric.here().side == Side::Nic {
            return None;
        }
        if self.serving().is_some() {
            start_server(fabric, self);
        }
        Some(Front::new(Client::new(fabric, self)))
    }
}
