//! A host engine's log: writes gather in it and leave as chunks.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use nicol_core::exec::Signal;
use nicol_core::fabric::{Fabric, Timeout, Work};
use nicol_core::ids::{Key, Side, Version};
use nicol_core::key_value::{Failure, Reason};
use nicol_core::units::Nanos;

use super::config::Sabotage;
use super::layout::{Record, record_bytes, records};
use super::member::{Gone, Member};
use super::messages::{Chunk, Slot, Submit};
use crate::kit::count;

/// How long a host waits before it submits a chunk again that was refused.
const AGAIN: Nanos = Nanos::from_micros(20);

/// What becomes of a chunk.
struct Fate {
    decided: Signal,
    held: Cell<Option<bool>>,
}

impl Fate {
    fn decide(&self, held: bool) {
        self.held.set(Some(held));
        self.decided.notify();
    }
}

/// The chunk that writes gather in.
struct Open {
    bytes: Vec<u8>,
    fate: Rc<Fate>,
}

/// See the module.
pub(super) struct Log<F: Fabric> {
    pub(super) member: Rc<Member<F>>,
    open: RefCell<Open>,
    /// Slots that no chunk is in.
    free: RefCell<Vec<u8>>,
    /// The open chunk has space again.
    room: Signal,
    /// Chunks that were sealed.
    sealed: Cell<u64>,
}

impl<F: Fabric> Log<F> {
    pub(super) fn new(member: Rc<Member<F>>) -> Rc<Self> {
        let slots = member.node.config().slots;
        Rc::new(Self {
            open: RefCell::new(Self::fresh(&member.fabric)),
            free: RefCell::new((0..slots).rev().collect()),
            room: member.fabric.signal(),
            sealed: Cell::new(0),
            member,
        })
    }

    fn fresh(fabric: &F) -> Open {
        let fate = Fate { decided: fabric.signal(), held: Cell::new(None) };
        Open { bytes: Vec::new(), fate: Rc::new(fate) }
    }

    /// Appends a write, and waits until its chunk is replicated and published. Returns its version.
    ///
    /// Waits for space while every slot is taken and the open chunk is full. Fails with `NoResources`
    /// if no chunk can hold it.
    pub(super) async fn append(
        self: &Rc<Self>,
        key: Key,
        value: Option<&[u8]>,
    ) -> Result<Version, Failure> {
        let Member { fabric, node, working, .. } = &*self.member;
        let bytes = record_bytes(value.map_or(0, <[u8]>::len));
        let most = node.config().chunk.0;
        if bytes > most {
            return Err(Failure::Aborted(Reason::NoResources));
        }
        let _working = working.begin();
        // [LineFS21] The client writes to its log in persistent memory.
        fabric.work(Work::TableLookup);
        fabric.work(Work::Copy { bytes: bytes as u32 });
        let (version, fate) = loop {
            let room = self.room.wait();
            fabric.access().await;
            if node.lost().contain(fabric.here().node) {
                return Err(Failure::Aborted(Reason::ShardUnavailable));
            }
            let fits = self.open.borrow().bytes.len() as u64 + bytes <= most;
            if fits {
                let version = node.files().give_version(key);
                let open = &mut *self.open.borrow_mut();
                Record { key, version, value }.emit(&mut open.bytes);
                break (version, open.fate.clone());
            }
            room.await;
        };
        self.seal();
        loop {
            let decided = fate.decided.wait();
            match fate.held.get() {
                Some(true) => return Ok(Version(version)),
                Some(false) => return Err(Failure::Unknown),
                None => decided.await,
            }
        }
    }

    /// Lets the open chunk leave, if there is anything in it and a slot for it. Nothing waits for a
    /// chunk to fill.
    fn seal(self: &Rc<Self>) {
        if self.open.borrow().bytes.is_empty() {
            return;
        }
        let Some(slot) = self.free.borrow_mut().pop() else { return };
        let Member { fabric, node, .. } = &*self.member;
        let Open { bytes, fate } = self.open.replace(Self::fresh(fabric));
        self.room.notify();
        let here = fabric.here();
        let slot = Slot { node: here.node, core: here.core, slot };
        let kept = node.log().write(node.offset_in_log(slot), &bytes);
        assert!(kept.is_ok(), "the log has space for every slot");
        let turn = self.sealed.replace(self.sealed.get() + 1);
        fabric.spawn(self.clone().replicate(slot, bytes, fate, turn));
    }

    /// Replicates a sealed chunk, publishes its writes and frees its slot.
    async fn replicate(self: Rc<Self>, slot: Slot, bytes: Vec<u8>, fate: Rc<Fate>, turn: u64) {
        let member = &*self.member;
        let Member { fabric, node, working, .. } = member;
        let _open = node.begin();
        let _working = working.begin();
        let sabotage = node.config().sabotage;
        match sabotage {
            Sabotage::AcknowledgesEarly => {
                self.publish(&bytes).await;
                fate.decide(true);
            }
            Sabotage::PublishesEarly => self.publish(&bytes).await,
            _ => {}
        }
        // [OffPath23 5.1] RDMA writes to persistent memory as to DRAM; the own copy has to be durable
        // as well.
        let durable = fabric.persist(node.log(), node.offset_in_log(slot), bytes.len());
        let replicated = if node.config().by_host(turn) {
            count(&node.counts.by_host);
            // [OffPath23 A3] The host writes the chunk to the next host, without compressing it.
            let (raw, crc) = (bytes.len() as u32, crc32c::crc32c(&bytes));
            let rest = node.backups();
            member.pass_on(&Chunk { slot, raw, len: raw, crc, rest }, &bytes).await.map(drop)
        } else {
            count(&node.counts.by_soc);
            self.submit(slot, bytes.len() as u32).await
        };
        let durable = durable.await;
        let held = replicated.is_ok() && durable.is_ok();
        if held {
            self.publish(&bytes).await;
        }
        if sabotage != Sabotage::AcknowledgesEarly {
            fate.decide(held);
        }
        self.free.borrow_mut().push(slot.slot);
        self.seal();
    }

    /// [OffPath23 A1, A2] Has the SoC replicate what is in a slot; it acknowledges the log.
    async fn submit(&self, slot: Slot, len: u32) -> Result<(), Gone> {
        let Member { fabric, node, .. } = &*self.member;
        let to = self.member.engine_of(fabric.here().node, Side::Nic, slot);
        loop {
            if fabric.call(to, &Submit { slot, len }, Timeout::Never).await.is_ok() {
                return Ok(());
            }
            if node.lost().contain(fabric.here().node) {
                return Err(Gone);
            }
            fabric.sleep_until(fabric.now() + AGAIN).await;
        }
    }

    /// Makes the writes of a chunk readable on the primary.
    async fn publish(&self, bytes: &[u8]) {
        let Member { fabric, node, .. } = &*self.member;
        let writes = records(bytes);
        let writes = writes.unwrap_or_default();
        writes.iter().for_each(|_| fabric.work(Work::TableApply));
        fabric.access().await;
        debug_assert!(fabric.here().side == Side::Host, "the log's engine publishes");
        let always = node.config().sabotage == Sabotage::PublishesOld;
        let mut files = node.files();
        writes.iter().for_each(|write| files.publish(write, always));
    }
}
