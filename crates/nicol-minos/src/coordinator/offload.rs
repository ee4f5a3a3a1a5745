//! The coordinator of MINOS-O at its SmartNIC: figure 8, which is figure 2 without write locks, on
//! coherent metadata, with a vFIFO before the host's memory and a dFIFO before its log; and what
//! the host and its SmartNIC tell one another over PCIe. [MINOS24 V]

use std::cell::RefCell;
use std::rc::Rc;

use nicol_core::fabric::{Fabric, FabricError, ReplyTo};
use nicol_core::ids::NodeId;
use nicol_core::wire::Malformed;

use super::Coordinator;
use crate::pcie_messages::{ALL, HostAck, HostInv};
use crate::write::{Waiting, Write};

impl<F: Fabric> Coordinator<F> {
    /// A client-write from line 9 on: the host has done lines 4 to 8.
    async fn offloaded_write(self, write: Rc<Write>) {
        let open = self.member.node().begin();
        let records = self.member.records();
        records.look_up();
        // [MINOS24 fig. 8 line 10] Has it become obsolete? Instead of under a WRLock, "it directly
        // checks whether the write is obsolete".
        if let Some(newer) = records.obsolete(&write.inv()).await {
            // [MINOS24 fig. 8 line 16, step c] handleObsolete.
            self.handle_obsolete(&write, newer).await;
            // [MINOS24 fig. 8 lines 20, 21]
            records.release_rd_lock(write.key, write.ts()).await;
            self.return_to_client(&write);
            return self.end(&write, open);
        }
        // [MINOS24 fig. 8 line 11, step b] INV to every follower.
        self.pass_inv(&write);
        // [MINOS24 fig. 8 line 12] Enqueue the update in the vFIFO.
        self.member.queues().enqueue_volatile(&write.inv(), &write.value).await;
        // [MINOS24 fig. 8 lines 18 to 22, steps d, e, f] Enqueue it in the dFIFO, and so on.
        self.complete(&write).await;
        self.end(&write, open);
    }

    /// An INV from the host: the SmartNIC takes the write over, or rejects it.
    pub(crate) fn take_over(&self, body: &[u8], host: ReplyTo) -> Result<(), Malformed> {
        let inv = HostInv::parse(body)?;
        let (fabric, node) = (self.member.fabric(), self.member.node());
        let write = match self.member.writes().arrived(&inv) {
            Some(write) => write,
            None if node.volatile_queue().is_full() => {
                node.count_rejected();
                fabric.refuse(host, FabricError::NoResources);
                return Ok(());
            }
            None => {
                let waiting = Waiting::Host(RefCell::default());
                let records = self.member.records();
                let value = inv.value.map(|bytes| records.take_value(inv.key, inv.ts, bytes));
                let write = self.open(inv.key, value, inv.scope, waiting);
                write.set_ts(inv.ts);
                self.member.writes().arrives(&inv, &write);
                fabric.spawn(self.clone().offloaded_write(write.clone()));
                write
            }
        };
        self.note_host(&write, inv.to, host);
        Ok(())
    }

    /// One more INV of a write has come: it goes on to its follower.
    fn note_host(&self, write: &Rc<Write>, to: u16, host: ReplyTo) {
        if write.is_returned() {
            return self.member.fabric().reply(host, &HostAck);
        }
        let Waiting::Host(hosts) = &write.waiting else { return };
        let follower = (to != ALL).then_some(NodeId(to));
        hosts.borrow_mut().push((follower, host));
        if let (Some(follower), true) = (follower, write.has_sent()) {
            self.send_inv_to(write, &[follower]);
        }
    }

    /// Sends the INV to every follower; where the host sends one for each, to those whose have
    /// come.
    fn pass_inv(&self, write: &Rc<Write>) {
        let hosts = match &write.waiting {
            Waiting::Host(hosts) => hosts.borrow().clone(),
            Waiting::Here => Vec::new(),
        };
        let named: Vec<NodeId> = hosts.iter().filter_map(|(follower, _)| *follower).collect();
        if named.is_empty() {
            return self.send_inv(write);
        }
        self.await_acks(write, &self.member.views().followers(write.key));
        self.send_inv_to(write, &named);
    }

    /// "Every time an ACK is received, it is passed to the host", without batching; the last one
    /// when the client-write returns.
    pub(super) fn pass_ack(&self, write: &Write, from: NodeId) {
        let Waiting::Host(hosts) = &write.waiting else { return };
        let mut hosts = hosts.borrow_mut();
        let place = hosts.iter().position(|(follower, _)| *follower == Some(from));
        if let (Some(place), true) = (place, hosts.len() > 1) {
            self.member.fabric().reply(hosts.swap_remove(place).1, &HostAck);
        }
    }
}
