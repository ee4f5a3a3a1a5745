//! The server's CPU: it tells clients what they may reach, takes back buffers that are not used any
//! more, and keeps the free lists filled. It executes no GET, PUT or DELETE.

use std::sync::Arc;

use nicol_core::fabric::{Delivery, Fabric, Service, Work};
use nicol_core::ids::Side;
use nicol_core::wire::Malformed;

use super::config::Sabotage;
use super::node::Node;
use super::store::Store;
use crate::kit::count;
use crate::prism::messages::{Done, HELLO, Handles, UNUSED, Unused, parse_report};
use crate::prism::recycling::{self, scan_later};

/// What a host engine of a server answers.
pub(super) struct Server<F> {
    fabric: F,
    node: Arc<Node>,
}

impl<F: Fabric> Server<F> {
    /// Opens the memory; the first engine starts the daemon.
    pub(super) fn start(fabric: F, node: Arc<Node>) -> Self {
        let server = Self { fabric, node };
        if server.fabric.here().core == 0 {
            server.hello();
            recycling::start(&server.fabric, &server.node);
        }
        server
    }

    fn store(&self) -> &Store {
        stored(&self.node)
    }

    fn hello(&self) -> Handles {
        let view = self.fabric.view();
        let lives = view.node_ids().map(|node| view.side(node, Side::Host).incarnation);
        self.store().open(&self.fabric, lives.collect())
    }

    /// Takes back what a client reports. [PRISM21 3.2]
    fn take_back(&self, reported: &[Unused]) {
        let pool = &self.store().pool;
        reported.iter().for_each(|_| self.fabric.work(Work::TableLookup));
        let posted = if self.node.config().sabotage == Sabotage::PostsEarly {
            let post = |one: &&Unused| pool.post_reported(&self.fabric, one.offset, one.stamp);
            reported.iter().filter(post).count()
        } else {
            pool.post(&self.fabric, reported)
        };
        (0..posted).for_each(|_| count(&self.node.recycled.posted));
        pool.refill(&self.fabric);
        if posted < reported.len() {
            // Said twice; or a buffer that was replaced holds a later item than its client has seen.
            scan_later(&self.fabric, &self.node);
        }
    }
}

/// The memory of a server.
fn stored(node: &Node) -> &Store {
    match node.store() {
        Some(store) => store,
        None => panic!("only a node with memory serves"),
    }
}

impl<F: Fabric> Service for Server<F> {
    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        let Delivery { reply_to, kind, body, .. } = delivery;
        match (kind, reply_to) {
            (HELLO, Some(reply_to)) => self.fabric.reply(reply_to, &self.hello()),
            (UNUSED, Some(reply_to)) => {
                let (suspects, reported) = parse_report(body)?;
                self.take_back(&reported);
                if suspects {
                    scan_later(&self.fabric, &self.node);
                }
                self.fabric.reply(reply_to, &Done);
            }
            _ => return Err(Malformed { what: "no message of PRISM-KV's" }),
        }
        Ok(())
    }
}
