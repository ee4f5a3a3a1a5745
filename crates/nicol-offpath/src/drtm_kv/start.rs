//! How the engines of a node start.

use std::sync::Arc;

use nicol_core::fabric::Fabric;
use nicol_core::ids::Side;
use nicol_core::key_value::{KeyValueNode, Offered};
use nicol_kit::follow_views;

use super::broken::front::Front;
use super::broken::server::service;
use super::client::Client;
use super::node::Node;
use super::server::Server;

impl KeyValueNode for Node {
    type Client<F: Fabric> = Front<F>;

    const OFFERED: Offered = Offered { inserts: false, deletes: false, scans: false, sparse: true };

    fn start<F: Fabric>(self: &Arc<Self>, fabric: &F) -> Option<Front<F>> {
        if self.is_server() {
            self.register(fabric);
            if fabric.here().side == Side::Nic {
                fabric.serve(service(Server { fabric: fabric.clone(), node: self.clone() }));
            }
        }
        if fabric.here().side == Side::Nic {
            return None;
        }
        let node = self.clone();
        fabric.spawn(follow_views(fabric.clone(), move |view| node.lost().learn(view)));
        Some(Front::new(Client::new(fabric.clone(), self.clone())))
    }
}
