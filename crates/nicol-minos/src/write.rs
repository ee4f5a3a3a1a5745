//! A client-write under way at the engine that coordinates it. [MINOS24 Table I, 4c]

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use nicol_core::exec::Signal;
use nicol_core::fabric::ReplyTo;
use nicol_core::ids::{Key, NodeId};
use nicol_core::units::Nanos;

use super::messages::Inv;
use super::model::Memory;
use super::pcie_messages::HostInv;
use super::timestamp::Timestamp;
use super::value::Value;

/// The waiter for the end of the write.
#[derive(Debug)]
pub(super) enum Waiting {
    /// A client of this engine, or nobody: a replay.
    Here,
    /// The host, whose requests are answered: one, or one for each follower.
    Host(RefCell<Vec<(Option<NodeId>, ReplyTo)>>),
}

/// A client-write; or a [PERSIST]sc, which has acknowledgements as well.
#[derive(Debug)]
pub(super) struct Write {
    /// Its number at this engine.
    pub(super) number: u64,
    pub(super) key: Key,
    /// `None` removes the record.
    pub(super) value: Option<Value>,
    pub(super) scope: u64,
    /// Whether it is a \[PERSIST\]sc.
    pub(super) is_scope_end: bool,
    ts: Cell<Timestamp>,
    /// Whether followers may already have it.
    pub(super) again: Cell<bool>,
    /// The view in which its INVs were sent last.
    pub(super) epoch: Cell<u64>,
    /// RcvedACK_SenderID and RcvedACK_C_SenderID, inverted: the followers that have not
    /// acknowledged.
    missing: RefCell<Vec<NodeId>>,
    /// The same for RcvedACK_P_SenderID.
    missing_p: RefCell<Vec<NodeId>>,
    /// Whether the update is durable here.
    persisted: Cell<bool>,
    returned: Cell<bool>,
    /// Whether it was given up because the log device has failed.
    failed: Cell<bool>,
    /// The time of the first INVs; `None` if none was sent.
    sent: Cell<Option<Nanos>>,
    /// The time of the last ACK that it waits for before it returns.
    answered: Cell<Nanos>,
    pub(super) waiting: Waiting,
    changed: Signal,
}

impl Write {
    pub(super) fn new(
        number: u64,
        key: Key,
        value: Option<Value>,
        scope: u64,
        waiting: Waiting,
        changed: Signal,
    ) -> Self {
        Self {
            number,
            key,
            value,
            scope,
            is_scope_end: false,
            ts: Cell::new(Timestamp::NONE),
            again: Cell::new(false),
            epoch: Cell::new(0),
            missing: RefCell::default(),
            missing_p: RefCell::default(),
            persisted: Cell::new(false),
            returned: Cell::new(false),
            failed: Cell::new(false),
            sent: Cell::new(None),
            answered: Cell::new(Nanos::ZERO),
            waiting,
            changed,
        }
    }

    /// The [PERSIST]sc of `scope`.
    pub(super) fn scope_end(number: u64, scope: u64, changed: Signal) -> Self {
        let write = Self::new(number, Key(0), None, scope, Waiting::Here, changed);
        Self { is_scope_end: true, ..write }
    }

    pub(super) fn ts(&self) -> Timestamp {
        self.ts.get()
    }

    pub(super) fn set_ts(&self, ts: Timestamp) {
        self.ts.set(ts);
    }

    /// The INV that announces the write.
    pub(super) fn inv(&self) -> Inv<'_> {
        Inv {
            write: self.number,
            epoch: self.epoch.get(),
            key: self.key,
            ts: self.ts(),
            scope: self.scope,
            again: self.again.get(),
            value: self.value.as_deref(),
        }
    }

    /// Begins to wait for `followers`, in the view of this epoch, now.
    pub(super) fn await_acks(&self, epoch: u64, followers: &[NodeId], now: Nanos) {
        self.epoch.set(epoch);
        self.sent.set(self.sent.get().or(Some(now)));
        *self.missing.borrow_mut() = followers.to_vec();
        *self.missing_p.borrow_mut() = followers.to_vec();
        self.changed.notify();
    }

    /// `node` has acknowledged `memory`, in the view of this epoch.
    pub(super) fn acknowledged(&self, node: NodeId, epoch: u64, memory: Memory) {
        self.all_of(epoch, memory, |other| other == node);
    }

    /// All followers have acknowledged `memory`, in the view of this epoch.
    pub(super) fn all_acknowledged(&self, epoch: u64, memory: Memory) {
        self.all_of(epoch, memory, |_| true);
    }

    fn all_of(&self, epoch: u64, memory: Memory, is_one: impl Fn(NodeId) -> bool) {
        if epoch != self.epoch.get() {
            return;
        }
        for (is_meant, missing) in
            [(memory.is_volatile(), &self.missing), (memory.is_durable(), &self.missing_p)]
        {
            if is_meant {
                missing.borrow_mut().retain(|other| !is_one(*other));
            }
        }
        self.changed.notify();
    }

    /// Whether every follower has acknowledged for its volatile memory.
    pub(super) fn is_consistent(&self) -> bool {
        self.missing.borrow().is_empty()
    }

    /// Whether every follower has acknowledged for its durable memory.
    pub(super) fn is_durable(&self) -> bool {
        self.missing_p.borrow().is_empty()
    }

    /// Whether it still waits for the volatile memory of `node`.
    pub(super) fn lacks(&self, node: NodeId) -> bool {
        self.missing.borrow().contains(&node)
    }

    pub(super) fn set_persisted(&self) {
        self.persisted.set(true);
        self.changed.notify();
    }

    pub(super) fn is_persisted(&self) -> bool {
        self.persisted.get()
    }

    pub(super) fn set_returned(&self) {
        self.returned.set(true);
        self.changed.notify();
    }

    pub(super) fn is_returned(&self) -> bool {
        self.returned.get()
    }

    /// Gives the write up: it waits for nothing any more, and its outcome is unknown.
    pub(super) fn fail(&self) {
        self.failed.set(true);
        self.changed.notify();
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failed.get()
    }

    /// Whether INVs have been sent.
    pub(super) fn has_sent(&self) -> bool {
        self.sent.get().is_some()
    }

    /// An ACK has come, now, that it waits for before it returns.
    pub(super) fn answered(&self, now: Nanos) {
        if !self.returned.get() {
            self.answered.set(now);
        }
    }

    /// From its first INV to the last ACK that it has waited for; `None` if it sent none.
    pub(super) fn exchange(&self) -> Option<Nanos> {
        self.sent.get().map(|sent| self.answered.get().since(sent))
    }

    /// Wakes all waiters to re-check.
    pub(super) fn wake(&self) {
        self.changed.notify();
    }

    /// Waits until `done`. A parked continuation, not a thread that spins. AMB-16
    pub(super) async fn spin_until(&self, done: impl Fn(&Self) -> bool) {
        loop {
            let changed = self.changed.wait();
            if done(self) {
                return;
            }
            changed.await;
        }
    }
}

/// A write, and how many of its INVs have come.
type Arriving = (Rc<Write>, u16);

/// The writes that an engine coordinates, by number.
#[derive(Debug, Default)]
pub(super) struct Writes {
    open: RefCell<BTreeMap<u64, Rc<Write>>>,
    last: Cell<u64>,
    /// Those whose INVs come one by one from the host.
    arriving: RefCell<BTreeMap<(Key, Timestamp), Arriving>>,
}

impl Writes {
    /// Opens the write that `make` makes of its number.
    pub(super) fn open(&self, make: impl FnOnce(u64) -> Write) -> Rc<Write> {
        let number = self.last.get() + 1;
        self.last.set(number);
        let write = Rc::new(make(number));
        self.open.borrow_mut().insert(number, write.clone());
        write
    }

    /// Every write that has not ended.
    pub(super) fn all(&self) -> Vec<Rc<Write>> {
        self.open.borrow().values().cloned().collect()
    }

    /// The write of this number, unless it has ended or is of an earlier life of this engine.
    pub(super) fn find(&self, number: u64) -> Option<Rc<Write>> {
        self.open.borrow().get(&number).cloned()
    }

    /// Whether this write is under way here.
    pub(super) fn is_open(&self, key: Key, ts: Timestamp) -> bool {
        self.open.borrow().values().any(|write| write.key == key && write.ts() == ts)
    }

    /// Ends a write.
    ///
    /// # Panics
    /// If it has ended.
    pub(super) fn close(&self, write: &Write) {
        let closed = self.open.borrow_mut().remove(&write.number);
        assert!(closed.is_some(), "a write ends once");
    }

    /// One more INV of a write has come from the host: the write, if it is not the first one.
    pub(super) fn arrived(&self, inv: &HostInv<'_>) -> Option<Rc<Write>> {
        let (name, mut arriving) = ((inv.key, inv.ts), self.arriving.borrow_mut());
        let (write, arrived) = arriving.get_mut(&name)?;
        *arrived += 1;
        let (write, all) = (write.clone(), *arrived == inv.of);
        if all {
            arriving.remove(&name);
        }
        Some(write)
    }

    /// The first INV of `write` has come from the host.
    pub(super) fn arrives(&self, inv: &HostInv<'_>, write: &Rc<Write>) {
        if inv.of > 1 {
            self.arriving.borrow_mut().insert((inv.key, inv.ts), (write.clone(), 1));
        }
    }
}
