//! The server's CPU: it tells clients what they may reach, takes back buffers that are not used any
//! more, and keeps the free lists filled. It executes no GET, PUT or DELETE. Where the slots of
//! deleted keys are used again, it says which slot a new key gets (`slots.rs`).

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::{Arc, PoisonError};

use nicol_core::fabric::{Delivery, Fabric, Service, Work};
use nicol_core::ids::Side;
use nicol_core::wire::Malformed;
use nicol_kit::count;

use super::broken;
use super::claim::CLAIM;
use super::client::{self, Client};
use super::node::Node;
use super::slots::Keeper;
use super::store::Store;
use crate::messages::{Done, HELLO, Handles, Suspicion, UNUSED, Unused, parse_report};
use crate::recycling::scan_later;

/// The service of a server's host engine.
pub(super) struct Server<F: Fabric> {
    fabric: F,
    node: Arc<Node>,
    /// Of the first engine, where slots are used again.
    keeper: Option<Rc<Keeper<F>>>,
}

impl<F: Fabric> Server<F> {
    /// Opens the memory; the first engine starts the daemon. `client` is this engine's.
    pub(super) fn start(fabric: F, node: Arc<Node>, client: &Client<F>) -> Self {
        let mut server = Self { fabric, node, keeper: None };
        let here = server.fabric.here();
        if here.core == 0 {
            let handles = Rc::new(server.hello());
            broken::daemon::start(&server.fabric, &server.node);
            if server.node.config().reuses_slots() {
                let own = client::Server { node: here.node, handles, key: None };
                server.keeper = Some(Keeper::new(client.clone(), own));
            }
        }
        server
    }

    pub(super) fn node(&self) -> &Node {
        &self.node
    }

    pub(super) fn store(&self) -> &Store {
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
        let reported = &*self.take_back_slots(reported);
        let posted = pool.post(&self.fabric, reported);
        (0..posted).for_each(|_| count(&self.node.recycled.posted));
        if let Some(keeper) = &self.keeper {
            let deleted = reported.iter().filter_map(|one| self.store().deleted_at(one.pointer));
            deleted.for_each(|index| keeper.retire(index));
            self.retire_found(keeper);
        }
        pool.refill(&self.fabric);
        if posted < reported.len() {
            // Said twice; or a buffer that was replaced holds a later item than its client has
            // seen.
            scan_later(&self.fabric, &self.node, Suspicion::Unseen);
        }
    }
}

impl<F: Fabric> Server<F> {
    /// Frees the slots that are given back, where slots are used again. Returns the reports of
    /// buffers.
    fn take_back_slots<'r>(&self, reported: &'r [Unused]) -> Cow<'r, [Unused]> {
        let Some(keeper) = &self.keeper else { return Cow::Borrowed(reported) };
        let of_buffers = reported.iter().filter(|one| match self.store().given_back(one) {
            Some(index) => {
                keeper.give_back(index, one.stamp);
                false
            }
            None => true,
        });
        of_buffers.copied().collect()
    }

    /// Frees slots of deleted keys whose deletion nobody has reported.
    fn retire_found(&self, keeper: &Rc<Keeper<F>>) {
        let mut deleted = self.node.deleted_slots.lock().unwrap_or_else(PoisonError::into_inner);
        deleted.drain(..).for_each(|index| keeper.retire(index));
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
                let (suspects, reported) = parse_report(body, self.fabric.incarnation())?;
                self.take_back(&reported);
                scan_later(&self.fabric, &self.node, suspects);
                self.fabric.reply(reply_to, &Done);
            }
            (CLAIM, Some(reply_to)) if !body.is_empty() => {
                let Some(keeper) = &self.keeper else {
                    return Err(Malformed { what: "a CLAIM where slots are kept" });
                };
                self.retire_found(keeper);
                keeper.claim(reply_to, body);
            }
            _ => return Err(Malformed { what: "no message of PRISM-KV's" }),
        }
        Ok(())
    }
}
