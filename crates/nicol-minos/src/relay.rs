//! Batching without offloading: the host runs the algorithm, and gives its SmartNIC one message for
//! all followers; the SmartNIC sends it on to each, gathers their ACKs, and gives the host one.
//! [MINOS24 V-B3, VIII-D]

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use nicol_core::fabric::{Delivery, Fabric, ReplyTo, Service};
use nicol_core::ids::{EngineId, NodeId, Side};
use nicol_core::wire::{Malformed, Reader};

use super::messages::{ACK, ACK_C, ACK_P, Ack, Inv, Received, Val, vouched_for};
use super::model::Memory;
use super::node::Node;
use super::pcie_messages::{RELAY_INV, RELAY_VAL, parse_nodes};
use super::send::{insist, send_reliably, tell_ack, tell_val};

/// ACKs that are gathered for a host.
struct Gather {
    host: EngineId,
    /// The write's number at the host.
    write: u64,
    epoch: u64,
    missing: Vec<NodeId>,
    missing_p: Vec<NodeId>,
}

/// A SmartNIC's engine that passes on and gathers.
pub(super) struct Relay<F: Fabric> {
    fabric: F,
    node: Arc<Node>,
    gathers: RefCell<BTreeMap<u64, Gather>>,
    numbers: Cell<u64>,
}

impl<F: Fabric> Relay<F> {
    /// Starts the task that passes on INVs and gathers ACKs, on a NIC engine.
    pub(super) fn start(fabric: &F, node: &Arc<Node>) {
        let (gathers, numbers) = Default::default();
        let (fabric, node) = (fabric.clone(), node.clone());
        let relay = Rc::new(Self { fabric: fabric.clone(), node, gathers, numbers });
        assert!(fabric.serve(relay), "an engine runs one system");
    }

    /// The host engines of `nodes` that work with this one.
    fn peers(&self, nodes: &[NodeId]) -> Vec<EngineId> {
        let (view, core) = (self.fabric.view(), self.fabric.here().core);
        let peer =
            |node: &NodeId| EngineId::host(*node, core % view.engines(*node, Side::Host) as u8);
        nodes.iter().map(peer).collect()
    }

    fn pass_inv(&self, host: EngineId, body: &[u8]) -> Result<(), Malformed> {
        let mut reader = Reader::new(body);
        let to = parse_nodes(&mut reader)?;
        let inv = Inv::parse(reader.rest())?;
        let number = self.numbers.get() + 1;
        self.numbers.set(number);
        let (missing, missing_p) = (to.clone(), to.clone());
        let gather = Gather { host, write: inv.write, epoch: inv.epoch, missing, missing_p };
        self.gathers.borrow_mut().insert(number, gather);
        let inv = Inv { write: number, ..inv };
        let fanout = self.node.config().fanout();
        for to in send_reliably(&self.fabric, &self.peers(&to), &inv, fanout) {
            let (fabric, value) = (self.fabric.clone(), inv.value.map(Box::<[u8]>::from));
            let (open, inv) = (self.node.begin(), Inv { value: None, ..inv });
            self.fabric.spawn(async move {
                insist(&fabric, to, &Inv { value: value.as_deref(), ..inv }).await;
                drop(open);
            });
        }
        Ok(())
    }

    fn pass_val(&self, body: &[u8]) -> Result<(), Malformed> {
        let mut reader = Reader::new(body);
        let to = self.peers(&parse_nodes(&mut reader)?);
        let Some(memory) = vouched_for(reader.u16()?) else {
            return Err(Malformed { what: "no VAL to relay" });
        };
        let val = Val::parse(reader.rest())?;
        tell_val(&self.fabric, &to, memory, val, self.node.config().fanout());
        Ok(())
    }

    /// An ACK: the last one goes on to the host.
    fn gather(&self, from: NodeId, memory: Memory, Ack { write: number, epoch }: Ack) {
        let mut gathers = self.gathers.borrow_mut();
        let Some(gather) = gathers.get_mut(&number).filter(|gather| gather.epoch == epoch) else {
            return;
        };
        let before = (gather.missing.is_empty(), gather.missing_p.is_empty());
        for (meant, missing) in [
            (memory.is_volatile(), &mut gather.missing),
            (memory.is_durable(), &mut gather.missing_p),
        ] {
            if meant {
                missing.retain(|other| *other != from);
            }
        }
        let (host, write) = (gather.host, gather.write);
        let consistent = gather.missing.is_empty() && !before.0;
        let persisted = gather.missing_p.is_empty() && !before.1;
        // Those of durable memory alone are counted apart.
        let is_last = if memory.is_volatile() { consistent } else { persisted };
        if is_last {
            tell_ack(&self.fabric, host, memory, Ack { write, epoch });
        }
        let tracks = self.node.config().tracks_durability();
        if gather.missing.is_empty() && (gather.missing_p.is_empty() || !tracks) {
            gathers.remove(&number);
        }
    }
}

impl<F: Fabric> Service for Relay<F> {
    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        let Delivery { from, body, kind, .. } = delivery;
        match kind {
            RELAY_INV => self.pass_inv(from, body)?,
            RELAY_VAL => self.pass_val(body)?,
            ACK => self.gather(from.node, Memory::Both, Ack::parse(body)?),
            ACK_C => self.gather(from.node, Memory::Volatile, Ack::parse(body)?),
            ACK_P => self.gather(from.node, Memory::Durable, Ack::parse(body)?),
            _ => return Err(Malformed { what: "no message for a relay" }),
        }
        let received = |to: ReplyTo| self.fabric.reply(to, &Received);
        delivery.reply_to.into_iter().for_each(received);
        Ok(())
    }
}
