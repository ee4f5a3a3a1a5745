//! Views and leases: until when a side serves, and which engines learn of a change.

use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use nicol_core::engine::{Loss, Start};
use nicol_core::fabric::{Delivery, Fabric, FabricError, Message, Service, Timeout};
use nicol_core::ids::{EngineId, Epoch, NodeId, Side};
use nicol_core::units::Nanos;
use nicol_core::wire::{Malformed, Writer};

struct Ask;

impl Message for Ask {
    const KIND: u16 = 1;

    fn emit(&self, _: &mut Writer<'_>) {}
}

/// Every engine answers; NIC engine 0 of node 0 asks NIC engine 0 of node 1 again and again, and
/// host engine 0 of node 2 waits for views.
#[derive(Clone, Debug)]
pub struct AskingNode1(Arc<State>);

#[derive(Debug)]
struct State {
    every: Nanos,
    /// When node 1 answered, by its own clock.
    served: Mutex<Vec<Nanos>>,
    unreachable: AtomicU64,
    crashes: Mutex<Vec<Loss>>,
    seen: Mutex<Option<(Epoch, Nanos)>>,
}

impl AskingNode1 {
    /// Asks `every` so often, and waits four times as long for an answer.
    pub fn new(every: Nanos) -> Self {
        Self(Arc::new(State {
            every,
            served: Mutex::default(),
            unreachable: AtomicU64::new(0),
            crashes: Mutex::default(),
            seen: Mutex::default(),
        }))
    }

    /// When node 1 answered, by its own clock, in order.
    pub fn served(&self) -> Vec<Nanos> {
        self.0.served.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many questions ended because node 1 was known to be down.
    pub fn unreachable(&self) -> u64 {
        self.0.unreachable.load(Ordering::Relaxed)
    }

    /// The sides that have crashed, or were stopped because they had been given up.
    pub fn crashes(&self) -> Vec<Loss> {
        self.0.crashes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The newest epoch that node 2 has been woken with, and when.
    pub fn seen(&self) -> Option<(Epoch, Nanos)> {
        *self.0.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Answering<F> {
    fabric: F,
    state: Arc<State>,
}

impl<F: Fabric> Service for Answering<F> {
    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        if self.fabric.here().node == NodeId(1) {
            let mut served = self.state.served.lock().unwrap_or_else(PoisonError::into_inner);
            served.push(self.fabric.now());
        }
        delivery.reply_to.into_iter().for_each(|to| self.fabric.reply(to, &Ask));
        Ok(())
    }
}

impl Start for AskingNode1 {
    fn start<F: Fabric>(&self, fabric: &F) {
        let answering = Answering { fabric: fabric.clone(), state: self.0.clone() };
        let first = fabric.serve(Rc::new(answering));
        assert!(first, "an engine that starts has no service");
        let here = fabric.here();
        if here == EngineId::nic(NodeId(0), 0) {
            fabric.spawn(ask(fabric.clone(), self.0.clone()));
        } else if here == (EngineId { node: NodeId(2), side: Side::Host, core: 0 }) {
            fabric.spawn(wait_for_views(fabric.clone(), self.0.clone()));
        }
    }

    fn crashed(&self, loss: &Loss) {
        self.0.crashes.lock().unwrap_or_else(PoisonError::into_inner).push(*loss);
    }
}

async fn ask<F: Fabric>(fabric: F, state: Arc<State>) {
    loop {
        fabric.sleep_until(fabric.now() + state.every).await;
        let timeout = Timeout::After(state.every * 4);
        let asked = fabric.call(EngineId::nic(NodeId(1), 0), &Ask, timeout).await;
        if matches!(asked, Err(FabricError::Unreachable)) {
            state.unreachable.fetch_add(1, Ordering::Relaxed);
        }
    }
}

async fn wait_for_views<F: Fabric>(fabric: F, state: Arc<State>) {
    loop {
        fabric.view_changes().wait().await;
        let seen = (fabric.view().epoch(), fabric.now());
        state.seen.lock().unwrap_or_else(PoisonError::into_inner).replace(seen);
    }
}
