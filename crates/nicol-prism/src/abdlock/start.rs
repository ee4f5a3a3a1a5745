//! How the engines of a node start.

use std::sync::Arc;

use nicol_core::fabric::Fabric;
use nicol_core::ids::Side;
use nicol_core::key_value::{KeyValueNode, Offered};

use super::broken::front::Front;
use super::client::Client;
use super::node::Node;
use super::server::Server;

impl KeyValueNode for Node {
    type Client<F: Fabric> = Front<F>;

    const OFFERED: Offered =
        Offered { inserts: false, deletes: false, scans: false, sparse: false };

    fn start<F: Fabric>(self: &Arc<Self>, fabric: &F) -> Option<Front<F>> {
        if fabric.here().side == Side::Nic {
            return None;
        }
        if self.memory().is_some() {
            Server::start(fabric, self);
        }
        Some(Front::new(Client::new(fabric, self)))
    }
}
