//! How the engines of a node start.

use std::sync::Arc;

use nicol_core::fabric::Fabric;
use nicol_core::ids::Side;
use nicol_core::key_value::{KeyValueNode, Offered};
use nicol_kit::follow_views;

use super::broken;
use super::broken::front::Front;
use super::client::Client;
use super::node::Node;
use super::server::Server;

impl KeyValueNode for Node {
    type Client<F: Fabric> = Front<F>;

    const OFFERED: Offered = Offered { inserts: true, deletes: true, scans: false, sparse: true };

    fn start<F: Fabric>(self: &Arc<Self>, fabric: &F) -> Option<Front<F>> {
        self.start_engine(fabric).map(Front::new)
    }
}

impl Node {
    /// Starts an engine: a host's client.
    pub(super) fn start_engine<F: Fabric>(self: &Arc<Self>, fabric: &F) -> Option<Client<F>> {
        if fabric.here().side == Side::Nic {
            // It executes chains where the card does not, without knowing what they are about.
            return None;
        }
        let node = self.clone();
        fabric.spawn(follow_views(fabric.clone(), move |view| node.lost().learn(view)));
        let client = Client::new(fabric.clone(), self.clone());
        if self.store().is_some() {
            let server = Server::start(fabric.clone(), self.clone(), &client);
            fabric.serve(broken::server::service(fabric, server));
        }
        Some(client)
    }
}
