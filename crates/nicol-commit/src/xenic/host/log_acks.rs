//! Log acks travel with other messages to the NIC. [Xenic21 4.2 step 7]
//!
//! Only a log that is nearly full waits for acks. So an ack leaves with the next message to its NIC
//! core, and on its own only when there is none for a while, or when the log needs space.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use nicol_core::exec::Signal;
use nicol_core::fabric::{Fabric, Message, Timeout};
use nicol_core::ids::{EngineId, Side};
use nicol_core::units::Nanos;

use crate::xenic::messages::LogAck;

/// How long an ack waits for a message that takes it along.
const ACK_WAIT: Nanos = Nanos::from_micros(50);
/// An ack that frees this part of its log does not wait.
const URGENT_PART: u64 = 4;

/// One log's ack.
#[derive(Clone, Copy, Debug, Default)]
struct Ack {
    /// Bytes that have been applied.
    applied: u64,
    /// Bytes of which the NIC knows.
    sent: u64,
}

/// The acks of one host engine, for the logs of the NIC cores that it works for.
#[derive(Debug)]
pub(in crate::xenic) struct LogAcks<F> {
    fabric: F,
    /// By NIC core.
    acks: RefCell<Vec<Ack>>,
    /// Is there an ack to send?
    waiting: Cell<bool>,
    wanted: Signal,
}

impl<F: Fabric> LogAcks<F> {
    pub(in crate::xenic) fn new(fabric: F) -> Rc<Self> {
        let nics = fabric.view().engines(fabric.here().node, Side::Nic);
        let wanted = fabric.signal();
        let acks = RefCell::new(vec![Ack::default(); nics]);
        Rc::new(Self { fabric, acks, waiting: Cell::new(false), wanted })
    }

    /// Notes that the log of NIC core `core`, of `size` bytes, has been applied up to `applied`.
    pub(in crate::xenic) fn applied(&self, core: u8, applied: u64, size: u64) {
        let urgent = {
            let ack = &mut self.acks.borrow_mut()[usize::from(core)];
            ack.applied = applied;
            applied - ack.sent >= size / URGENT_PART
        };
        if urgent {
            self.send(core);
        } else if !self.waiting.replace(true) {
            self.wanted.notify();
        }
    }

    /// Calls `nic`, a core of this node's NIC, and takes its log's ack along.
    pub(in crate::xenic) fn call<M: Message>(&self, nic: EngineId, message: &M) -> F::Completion {
        self.send(nic.core);
        // The PCIe queues are reliable: the NIC answers, however long it takes.
        self.fabric.call(nic, message, Timeout::Never)
    }

    /// Sends the acks for which no message has come by, for ever.
    pub(in crate::xenic) async fn send_overdue(self: Rc<Self>) {
        loop {
            while !self.waiting.get() {
                self.wanted.wait().await;
            }
            self.fabric.sleep_until(self.fabric.now() + ACK_WAIT).await;
            self.waiting.set(false);
            let nics = self.acks.borrow().len();
            (0..nics as u8).for_each(|core| self.send(core));
        }
    }

    fn send(&self, core: u8) {
        let applied = {
            let ack = &mut self.acks.borrow_mut()[usize::from(core)];
            if ack.sent == ack.applied {
                return;
            }
            ack.sent = ack.applied;
            ack.applied
        };
        let nic = EngineId::nic(self.fabric.here().node, core);
        self.fabric.send(nic, &LogAck { applied });
    }
}
