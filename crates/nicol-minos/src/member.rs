//! One engine of a node: what it has under way, and how its messages get where they must.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use nicol_core::fabric::{Delivery, Fabric, Message, ReplyTo, Service};
use nicol_core::history::Persistency;
use nicol_core::ids::{EngineId, Key, NodeId, Side};
use nicol_core::memory::Region;
use nicol_core::units::Nanos;
use nicol_core::view::Role;
use nicol_core::wire::Malformed;

use super::broken::Hooks;
use super::config::MinosConfig;
use super::log::{LOG_SLOTS, QUEUE_LABEL, Slots};
use super::messages::{
    ACK, ACK_C, ACK_P, Ack, AckC, AckP, INV, Inv, PERSIST, Persist, REJECT, Received, Reject,
    SCOPE_VAL_P, SHIP, ScopeValP, VAL, VAL_C, VAL_P, Val, ValC, ValP,
};
use super::model::Steps;
use super::node::Node;
use super::pcie_messages::{HOST_INV, RelayInv, RelayVal};
use super::received::Received as Update;
use super::send::{insist, send_reliably, tell_each};
use super::timestamp::Timestamp;
use super::value::{Recent, Value};
use super::write::{Arriving, Waiting, Write};

/// How long a coordinator, or a host, waits before it sends an INV again that was rejected.
pub(super) const REJECT_RETRY: Nanos = Nanos::from_micros(2);

/// An engine that runs the algorithms: of a host, or offloaded of a SmartNIC.
pub(super) struct Member<F: Fabric> {
    pub(super) fabric: F,
    pub(super) node: Arc<Node>,
    pub(super) steps: &'static Steps,
    /// Writes that it coordinates, by number.
    writes: RefCell<BTreeMap<u64, Rc<Write>>>,
    numbers: Cell<u64>,
    /// Of its host, in the offloaded form without batching.
    pub(super) arriving: Arriving,
    /// The part of the host's log that it fills.
    pub(super) log: Slots,
    /// Its part of the dFIFO, in the offloaded form.
    pub(super) durable_queue: Option<Slots>,
}

impl<F: Fabric> Member<F> {
    /// Starts one, and lets it serve.
    pub(super) fn start(fabric: &F, node: &Arc<Node>) -> Rc<Self> {
        let config = node.config();
        let here = fabric.here();
        let label = 1 + u32::from(here.core) + if here.side == Side::Nic { 1 << 8 } else { 0 };
        let slots =
            |region| Slots::new(Arc::new(region), LOG_SLOTS, config.value_bytes, fabric.signal());
        let bytes = Slots::bytes(LOG_SLOTS, config.value_bytes);
        let queue = || slots(Region::for_nic_log(bytes, label | QUEUE_LABEL));
        let member = Rc::new(Self {
            fabric: fabric.clone(),
            steps: Steps::of(config.model),
            writes: RefCell::default(),
            numbers: Cell::new(0),
            arriving: Arriving::default(),
            log: slots(Region::for_log(bytes, label)),
            durable_queue: config.offload.then(queue),
            node: Arc::clone(node),
        });
        assert!(fabric.serve(Rc::new(Serving(member.clone()))), "an engine runs one system");
        member.watch_views();
        member
    }

    pub(super) fn config(&self) -> &MinosConfig {
        self.node.config()
    }

    pub(super) fn hooks(&self) -> Hooks {
        self.config().hooks()
    }

    /// A write to be coordinated here.
    pub(super) fn open_write(
        &self,
        key: Key,
        value: Option<Value>,
        scope: u64,
        waiting: Waiting,
    ) -> Rc<Write> {
        let number = self.numbers.get() + 1;
        self.numbers.set(number);
        let changed = self.fabric.signal();
        let write = Rc::new(Write::new(number, key, value, scope, waiting, changed));
        self.writes.borrow_mut().insert(number, write.clone());
        write
    }

    /// Where replicas share the values of a record. Only modelled ones do: those on threads would
    /// take each other's cache lines.
    fn recent(&self, key: Key) -> Option<&Recent> {
        if F::ACCESS_POINTS { self.node.recent(key) } else { None }
    }

    /// The value of a write that has come as `bytes`.
    pub(super) fn take_value(&self, key: Key, ts: Timestamp, bytes: &[u8]) -> Value {
        self.recent(key).map_or_else(|| bytes.into(), |recent| recent.share(key, ts, bytes))
    }

    /// A write has got its timestamp: its followers may share its value.
    pub(super) fn offer_value(&self, write: &Write) {
        if let (Some(value), Some(recent)) = (&write.value, self.recent(write.key)) {
            recent.offer(write.key, write.ts(), value);
        }
    }

    /// A [PERSIST]sc to be coordinated here.
    pub(super) fn open_scope_end(&self, scope: u64) -> Rc<Write> {
        let number = self.numbers.get() + 1;
        self.numbers.set(number);
        let write = Rc::new(Write::scope_end(number, scope, self.fabric.signal()));
        self.writes.borrow_mut().insert(number, write.clone());
        write
    }

    /// Every write that has not ended.
    pub(super) fn open_writes(&self) -> Vec<Rc<Write>> {
        self.writes.borrow().values().cloned().collect()
    }

    /// Is this write under way here?
    pub(super) fn is_open(&self, key: Key, ts: Timestamp) -> bool {
        self.writes.borrow().values().any(|write| write.key == key && write.ts() == ts)
    }

    /// A write has ended.
    pub(super) fn close_write(&self, write: &Write) {
        let closed = self.writes.borrow_mut().remove(&write.number);
        assert!(closed.is_some(), "a write ends once");
    }

    /// The other nodes that hold `key` and are members of the view.
    pub(super) fn followers(&self, key: Key) -> Vec<NodeId> {
        let view = self.fabric.view();
        let holds = |node: &NodeId| self.node.holds(view, *node, key);
        view.nodes_of(Role::Server).filter(holds).filter(|node| self.is_follower(*node)).collect()
    }

    /// Every other member of the view.
    pub(super) fn all_followers(&self) -> Vec<NodeId> {
        let servers = self.fabric.view().nodes_of(Role::Server);
        servers.filter(|node| self.is_follower(*node)).collect()
    }

    fn is_follower(&self, node: NodeId) -> bool {
        node != self.fabric.here().node && self.is_member(node)
    }

    /// Are both sides of `node` members of the view? Else nobody sends it writes, and it serves
    /// none.
    pub(super) fn is_member(&self, node: NodeId) -> bool {
        let view = self.fabric.view();
        [Side::Host, Side::Nic].into_iter().all(|side| view.side(node, side).up)
    }

    /// The engine of `node` that works with this one.
    pub(super) fn peer(&self, node: NodeId) -> EngineId {
        let view = self.fabric.view();
        let core = self.fabric.here().core;
        match self.config().side() {
            Side::Nic => view.nic_of(node, core),
            Side::Host => EngineId::host(node, core % view.engines(node, Side::Host) as u8),
        }
    }

    /// Sends the INV of `write` to all its followers.
    pub(super) fn send_inv(self: &Rc<Self>, write: &Rc<Write>) {
        let followers = self.followers(write.key);
        self.await_acks(write, &followers);
        self.send_inv_to(write, &followers);
    }

    /// Begins to wait for the ACKs of `followers`.
    pub(super) fn await_acks(&self, write: &Write, followers: &[NodeId]) {
        let awaited = self.hooks().awaited(followers);
        write.await_acks(self.fabric.view().epoch().0.into(), awaited, self.fabric.now());
        if !write.is_scope_end {
            self.mark_invitation(&write.inv());
        }
    }

    /// Sends it to these.
    pub(super) fn send_inv_to(self: &Rc<Self>, write: &Rc<Write>, followers: &[NodeId]) {
        if self.config().relays() && !followers.is_empty() {
            let nic = self.fabric.view().nic_for(self.fabric.here(), write.number);
            return self.fabric.send(nic, &RelayInv { to: followers, inv: write.inv() });
        }
        let fanout = self.config().fanout();
        for to in send_reliably(&self.fabric, &self.peers(followers), &write.inv(), fanout) {
            let (fabric, write) = (self.fabric.clone(), write.clone());
            self.fabric.spawn(async move { insist(&fabric, to, &write.inv()).await });
        }
    }

    /// Sends a VAL, VAL_C or VAL_P to every follower of its record.
    pub(super) fn send_val<M: Message + Copy + 'static>(&self, write: &Write, message: M) {
        let followers = self.followers(write.key);
        if self.config().relays() {
            let nic = self.fabric.view().nic_for(self.fabric.here(), write.number);
            let val = Val { key: write.key.0, ts: write.ts().bits() };
            return self.fabric.send(nic, &RelayVal { to: &followers, kind: M::KIND, val });
        }
        self.tell_each(&followers, message);
    }

    /// Sends `message` to each of `nodes`.
    pub(super) fn tell_each<M: Message + Copy + 'static>(&self, nodes: &[NodeId], message: M) {
        tell_each(&self.fabric, &self.peers(nodes), message, self.config().fanout());
    }

    fn peers(&self, nodes: &[NodeId]) -> Vec<EngineId> {
        nodes.iter().map(|node| self.peer(*node)).collect()
    }

    /// An ACK has come; of which memory?
    fn acknowledged(
        &self,
        from: NodeId,
        number: u64,
        epoch: u64,
        (volatile, durable): (bool, bool),
    ) {
        let write = self.writes.borrow().get(&number).cloned();
        // Of a write that has ended, or of an earlier life of this engine, nobody waits for one.
        let Some(write) = write else { return };
        if from == self.fabric.here().node {
            // Batched: the SmartNIC has gathered them.
            write.all_acknowledged(epoch, volatile, durable);
        } else {
            write.acknowledged(from, epoch, volatile, durable);
        }
        if volatile || self.config().model == Persistency::Strict {
            write.answered(self.fabric.now());
        }
        if volatile && epoch == write.epoch.get() {
            self.pass_ack(&write, from);
        }
    }

    /// An INV was rejected: it is sent again.
    fn rejected(self: &Rc<Self>, from: NodeId, reject: Reject) {
        let write = self.writes.borrow().get(&reject.write).cloned();
        let Some(write) = write else { return };
        let member = self.clone();
        self.fabric.spawn(async move {
            let fabric = &member.fabric;
            fabric.sleep_until(fabric.now() + REJECT_RETRY).await;
            if write.epoch.get() == reject.epoch && write.lacks(from) {
                member.send_inv_to(&write, &[from]);
            }
        });
    }

    fn deliver(self: &Rc<Self>, delivery: Delivery<'_>) -> Result<(), Malformed> {
        let Delivery { from, body, kind, .. } = delivery;
        match kind {
            INV => {
                let inv = Inv::parse(body)?;
                let value = inv.value.map(|bytes| self.take_value(inv.key, inv.ts, bytes));
                let update = Update::of(from, &inv, value, self.fabric.now());
                self.fabric.spawn(self.clone().follow(update));
            }
            ACK => {
                let Ack { write, epoch } = Ack::parse(body)?;
                self.acknowledged(from.node, write, epoch, (true, true));
            }
            ACK_C => {
                let AckC { write, epoch } = AckC::parse(body)?;
                self.acknowledged(from.node, write, epoch, (true, false));
            }
            ACK_P => {
                let AckP { write, epoch } = AckP::parse(body)?;
                self.acknowledged(from.node, write, epoch, (false, true));
            }
            VAL => {
                let Val { key, ts } = Val::parse(body)?;
                self.fabric.spawn(self.clone().validated(key, ts, self.steps.on_val));
            }
            VAL_C => {
                let ValC { key, ts } = ValC::parse(body)?;
                self.fabric.spawn(self.clone().validated(key, ts, self.steps.on_val));
            }
            VAL_P => {
                let ValP { key, ts } = ValP::parse(body)?;
                self.fabric.spawn(self.clone().validated(key, ts, self.steps.on_val_p));
            }
            PERSIST => {
                let persist = Persist::parse(body)?;
                self.fabric.spawn(self.clone().follow_persist(from, persist));
            }
            SCOPE_VAL_P => self.node.end_scope(ScopeValP::parse(body)?.scope),
            REJECT => self.rejected(from.node, Reject::parse(body)?),
            _ => return Err(Malformed { what: "no such message of MINOS" }),
        }
        Ok(())
    }
}

/// An engine as a service.
struct Serving<F: Fabric>(Rc<Member<F>>);

impl<F: Fabric> Service for Serving<F> {
    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        match (delivery.kind, delivery.reply_to) {
            (HOST_INV, Some(host)) => return self.0.take_over(delivery.body, host),
            (SHIP, Some(to)) => return self.0.ship_to(delivery.body, to),
            (HOST_INV, None) => return Err(Malformed { what: "an INV of a host without a reply" }),
            _ => {}
        }
        self.0.deliver(delivery)?;
        let received = |to: ReplyTo| self.0.fabric.reply(to, &Received);
        delivery.reply_to.into_iter().for_each(received);
        Ok(())
    }
}
