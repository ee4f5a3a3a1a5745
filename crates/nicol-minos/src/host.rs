//! The host of MINOS-O: what it does of a client-write before the SmartNIC takes over, and what the
//! two tell one another over PCIe. [MINOS24 V-B1, V-B3, figure 6]

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::Poll;

use nicol_core::fabric::{Fabric, FabricError, ReplyTo, Timeout};
use nicol_core::ids::{EngineId, NodeId};
use nicol_core::wire::Malformed;

use super::member::{Member, REJECT_RETRY};
use super::pcie_messages::{ALL, HostAck, HostInv};
use super::write::{Waiting, Write};

impl<F: Fabric> Member<F> {
    /// A client-write at its host.
    pub(super) async fn hosted_write(self: Rc<Self>, write: Rc<Write>) {
        let open = self.node.begin();
        // [MINOS24 fig. 8 line 4] A client-write to key k: TS_WR.
        self.issue_timestamp(&write).await;
        // [MINOS24 fig. 8 line 5] Is it obsolete already?
        if let Some(newer) = self.obsolete(&write.inv()).await {
            // [MINOS24 fig. 8 line 6, step a] handleObsolete.
            self.handle_obsolete(&write, newer).await;
            // [MINOS24 fig. 8 line 7]
            self.return_to_client(&write);
            return self.end(&write, open);
        }
        // [MINOS24 fig. 8 line 8] Snatch RDLock.
        self.snatch_rd_lock(&write.inv()).await;
        // [MINOS24 V-B1] The INVs to the SmartNIC, and an ACK for each of them.
        let nic = self.fabric.view().nic_for(self.fabric.here(), write.number);
        match self.hand_over(&write, nic).await {
            Ok(()) => self.return_to_client(&write),
            Err(_) => write.fail(),
        }
        self.end(&write, open);
    }

    /// Gives a write to the SmartNIC, and waits until it has returned.
    ///
    /// Errors: the SmartNIC is gone.
    async fn hand_over(&self, write: &Write, nic: EngineId) -> Result<(), FabricError> {
        let _phase = self.fabric.phase("V-B1: at the SmartNIC");
        let followers = self.followers(write.key);
        let all = [NodeId(ALL)];
        let single = self.config().batching || followers.is_empty();
        let to = if single { &all[..] } else { &followers[..] };
        let invs = to.iter().map(|to| HostInv {
            key: write.key,
            ts: write.ts(),
            scope: write.scope,
            to: to.0,
            of: if single { 1 } else { followers.len() as u16 },
            value: write.value.as_deref(),
        });
        // Side by side: what is taken may only be answered after what is rejected has been taken
        // too.
        let mut left: Vec<_> = invs.map(|inv| Box::pin(self.hand_over_one(nic, inv))).collect();
        let mut result = Ok(());
        poll_fn(|context| {
            left.retain_mut(|one| match one.as_mut().poll(context) {
                Poll::Ready(taken) => {
                    result = result.and(taken);
                    false
                }
                Poll::Pending => true,
            });
            if left.is_empty() { Poll::Ready(result) } else { Poll::Pending }
        })
        .await
    }

    /// Sends an INV to the SmartNIC until that takes it: "a SmartNIC can reject a request from its
    /// local host". The write keeps its read lock meanwhile, which it may have snatched from an
    /// older one: only its own end makes the record readable again.
    async fn hand_over_one(&self, nic: EngineId, inv: HostInv<'_>) -> Result<(), FabricError> {
        while let Err(error) = self.fabric.call(nic, &inv, Timeout::Never).await {
            if error != FabricError::NoResources {
                return Err(error);
            }
            self.fabric.sleep_until(self.fabric.now() + REJECT_RETRY).await;
        }
        Ok(())
    }

    /// An INV from the host: the SmartNIC takes the write over, or rejects it.
    pub(super) fn take_over(self: &Rc<Self>, body: &[u8], host: ReplyTo) -> Result<(), Malformed> {
        let inv = HostInv::parse(body)?;
        let name = (inv.key, inv.ts);
        let mut arriving = self.arriving.borrow_mut();
        let write = match arriving.get_mut(&name) {
            Some((write, arrived)) => {
                *arrived += 1;
                let (write, arrived) = (write.clone(), *arrived);
                if arrived == inv.of {
                    arriving.remove(&name);
                }
                write
            }
            None => {
                if self.node.volatile_queue().is_full() {
                    self.node.count_rejected();
                    self.fabric.refuse(host, FabricError::NoResources);
                    return Ok(());
                }
                let waiting = Waiting::Host(RefCell::default());
                let value = inv.value.map(|bytes| self.take_value(inv.key, inv.ts, bytes));
                let write = self.open_write(inv.key, value, inv.scope, waiting);
                write.set_ts(inv.ts);
                if inv.of > 1 {
                    arriving.insert(name, (write.clone(), 1));
                }
                self.fabric.spawn(self.clone().offloaded_write(write.clone()));
                write
            }
        };
        drop(arriving);
        self.note_host(&write, inv.to, host);
        Ok(())
    }

    /// One more INV of a write has come: it goes on to its follower.
    fn note_host(self: &Rc<Self>, write: &Rc<Write>, to: u16, host: ReplyTo) {
        if write.is_returned() {
            return self.answer_host(host);
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
    pub(super) fn pass_inv(self: &Rc<Self>, write: &Rc<Write>) {
        let hosts = match &write.waiting {
            Waiting::Host(hosts) => hosts.borrow().clone(),
            Waiting::Here => Vec::new(),
        };
        let named: Vec<NodeId> = hosts.iter().filter_map(|(follower, _)| *follower).collect();
        if named.is_empty() {
            return self.send_inv(write);
        }
        self.await_acks(write, &self.followers(write.key));
        self.send_inv_to(write, &named);
    }

    /// "Every time an ACK is received, it is passed to the host", without batching; the last one
    /// when the client-write returns.
    pub(super) fn pass_ack(&self, write: &Write, from: NodeId) {
        let Waiting::Host(hosts) = &write.waiting else { return };
        let mut hosts = hosts.borrow_mut();
        let place = hosts.iter().position(|(follower, _)| *follower == Some(from));
        if let (Some(place), true) = (place, hosts.len() > 1) {
            self.answer_host(hosts.swap_remove(place).1);
        }
    }

    pub(super) fn answer_host(&self, host: ReplyTo) {
        self.fabric.reply(host, &HostAck);
    }
}
