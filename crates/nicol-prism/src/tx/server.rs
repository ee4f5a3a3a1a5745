//! The server's CPU: it tells clients what they may reach, takes back buffers that are not used any
//! more, and tells what is staged. No transaction needs it to execute, validate or commit.

use std::sync::Arc;

use nicol_core::fabric::FabricError;
use nicol_core::fabric::{Delivery, Fabric, ReplyTo, Service, Work};
use nicol_core::ids::Side;
use nicol_core::wire::Malformed;
use nicol_kit::{Open, count};

use super::messages::{Of, STOCK, Staged, Stock};
use super::node::Node;
use crate::messages::{Done, HELLO, Handles, Suspicion, UNUSED, Unused, parse_report};
use crate::recycling::{self, drain, scan_later};
use crate::tag::Tag;

/// The service of a server's host engine.
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

    fn hello(&self) -> Handles {
        let view = self.fabric.view();
        let lives = view.node_ids().map(|node| view.side(node, Side::Host).incarnation);
        self.node.store().open(&self.fabric, lives.collect())
    }

    /// Takes back what clients report, once this core has come so far.
    fn take_back(&self, reports: Vec<Unused>, suspects: Suspicion, to: ReplyTo) {
        let (fabric, node) = (self.fabric.clone(), self.node.clone());
        let open = Open::begin(&node.open);
        self.fabric.spawn(async move {
            fabric.caught_up().await;
            reports.iter().for_each(|_| fabric.work(Work::TableLookup));
            let posted = node.store().take_back(&fabric, &reports);
            (0..posted).for_each(|_| count(&node.recycled.posted));
            node.store().pool.refill(&fabric);
            fabric.reply(to, &Done);
            scan_later(&fabric, &node, suspects);
            drop(open);
        });
    }

    /// Tells what a transaction of the sender has staged, once no chain of it is under way.
    fn tell_of(&self, ts: Tag, to: ReplyTo) {
        let (fabric, node) = (self.fabric.clone(), self.node.clone());
        self.fabric.spawn(async move {
            drain(&fabric).await;
            let writes = node.store().staged(|found| found == ts);
            fabric.reply(to, &Staged { writes, decided: Vec::new() });
        });
    }
}

impl<F: Fabric> Service for Server<F> {
    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        let Delivery { reply_to, kind, body, .. } = delivery;
        let to = reply_to.ok_or(Malformed { what: "a request" })?;
        match kind {
            HELLO => self.fabric.reply(to, &self.hello()),
            UNUSED => {
                let (suspects, reports) = parse_report(body, self.fabric.incarnation())?;
                self.take_back(reports, suspects, to);
            }
            STOCK => match Stock::parse(body)?.0 {
                Of::Txn(ts) => self.tell_of(ts, to),
                Of::Node(node) => {
                    let ended = self.node.ended();
                    if ended.drained.contains(&node) {
                        let is_its = |ts: &Tag| self.node.is_of(*ts, node);
                        let writes = self.node.store().staged(|ts| is_its(&ts));
                        let decided = ended.decided.iter().filter(|(ts, _)| is_its(ts));
                        let decided = decided.map(|(ts, committed)| (*ts, *committed)).collect();
                        self.fabric.reply(to, &Staged { writes, decided });
                    } else {
                        self.fabric.refuse(to, FabricError::NoResources);
                    }
                }
            },
            _ => return Err(Malformed { what: "no message of PRISM-TX's" }),
        }
        Ok(())
    }
}
