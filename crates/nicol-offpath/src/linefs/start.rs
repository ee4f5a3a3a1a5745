//! How the engines of a node start.

use std::sync::Arc;

use nicol_core::fabric::Fabric;
use nicol_core::ids::Side;
use nicol_core::key_value::{KeyValueNode, Offered};
use nicol_core::view::View;
use nicol_kit::follow_views;

use super::align::Alignment;
use super::broken::server::service;
use super::busy::cluster_points;
use super::client::{Client, HostServer, SocServer};
use super::config::HostLoad;
use super::log::Log;
use super::member::Member;
use super::node::Node;

impl KeyValueNode for Node {
    type Client<F: Fabric> = Client<F>;

    const OFFERED: Offered = Offered { inserts: true, deletes: true, scans: false, sparse: true };

    /// A block: more than the chunk that the study advises (256 KiB) has space for.
    const VALUE_BYTES_MAX: u32 = 1 << 20;

    fn start<F: Fabric>(self: &Arc<Self>, fabric: &F) -> Option<Client<F>> {
        self.start_engine(fabric)
    }
}

impl Node {
    /// Starts an engine, of any life.
    pub(super) fn start_engine<F: Fabric>(self: &Arc<Self>, fabric: &F) -> Option<Client<F>> {
        let (node, engine) = (self.clone(), fabric.clone());
        let learn = move |view: &View| node.learn(&engine, view);
        fabric.spawn(follow_views(fabric.clone(), learn));
        let member = Member::new(fabric.clone(), self.clone());
        if fabric.here().side == Side::Nic {
            fabric.serve(service(&member, SocServer(member.clone())));
            return None;
        }
        if fabric.here().core == 0 {
            fabric.spawn(Alignment::new(&member).keep_aligned());
        }
        if self.config().host == HostLoad::Busy {
            fabric.spawn(cluster_points(member.clone()));
        }
        let log = Log::new(member.clone());
        fabric.serve(service(&member, HostServer(log.clone())));
        Some(Client::new(log))
    }
}
