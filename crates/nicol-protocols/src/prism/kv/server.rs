//! The server's CPU: it tells clients what they may reach, takes back buffers that are not used any
//! more, and keeps the free lists filled. It executes no GET, PUT or DELETE.

use std::sync::Arc;

use nicol_core::fabric::{Delivery, Fabric, Service, Work};
use nicol_core::ids::Side;
use nicol_core::units::Nanos;
use nicol_core::wire::Malformed;

use super::config::{Reclaim, Sabotage};
use super::node::Node;
use super::store::Store;
use crate::kit::{Open, count};
use crate::prism::messages::{Done, HELLO, Handles, UNUSED, Unused, parse_report};
use crate::prism::pool::SCAN_AFTER;

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
            server.fabric.spawn(keep_filled(server.fabric.clone(), server.node.clone()));
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
        let Node { counts, .. } = &*self.node;
        let pool = &self.store().pool;
        reported.iter().for_each(|_| self.fabric.work(Work::TableLookup));
        let posted = if self.node.config().sabotage == Sabotage::PostsEarly {
            let post = |one: &&Unused| pool.post_reported(&self.fabric, one.offset, one.stamp);
            reported.iter().filter(post).count()
        } else {
            pool.post(&self.fabric, reported)
        };
        (0..posted).for_each(|_| count(&counts.posted));
        pool.refill(&self.fabric);
        if posted < reported.len() {
            // Said twice; or a buffer that was replaced holds a later item than its client has seen.
            self.scan_later();
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

/// Looks at the free lists, for ever. [PRISM21 6.1]
async fn keep_filled<F: Fabric>(fabric: F, node: Arc<Node>) {
    let pool = &stored(&node).pool;
    loop {
        fabric.sleep_until(fabric.now() + node.config().refill_every).await;
        if node.config().reclaim == Reclaim::Scan && !pool.is_clean() {
            count(&node.counts.scans);
            pool.scan(&fabric, Nanos::ZERO).await;
        }
        pool.refill(&fabric);
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
                    self.scan_later();
                }
                self.fabric.reply(reply_to, &Done);
            }
            _ => return Err(Malformed { what: "no message of PRISM-KV's" }),
        }
        Ok(())
    }
}

impl<F: Fabric> Server<F> {
    /// A chain went unanswered: what it has allocated or replaced only a scan finds.
    fn scan_later(&self) {
        let (fabric, node) = (self.fabric.clone(), self.node.clone());
        count(&node.counts.scans);
        let open = Open::begin(&node.open);
        self.fabric.spawn(async move {
            let pool = &stored(&node).pool;
            pool.scan(&fabric, SCAN_AFTER).await;
            pool.refill(&fabric);
            drop(open);
        });
    }
}
