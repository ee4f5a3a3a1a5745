//! A host engine's log: writes gather in it and leave as chunks.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use nicol_core::exec::Signal;
use nicol_core::fabric::{Fabric, Timeout, Work};
use nicol_core::ids::{Key, ShardId, Side, Version};
use nicol_core::key_value::{Failure, Reason};
use nicol_core::units::Nanos;
use nicol_kit::count;

use super::chain::Chain;
use super::compress::Cost;
use super::config::ChunkWay;
use super::layout::{Record, record_bytes, records};
use super::member::{Gone, Member};
use super::messages::{Chunk, Containing, Content, Slot, Submit, Way};
use super::node::add_time;
use super::saturation::AtSoc;
use super::standing::Verdict;

/// How long a host waits before it submits a chunk again that was refused.
const AGAIN: Nanos = Nanos::from_micros(20);

/// Whether the whole chain holds a chunk, once that is decided.
struct ChunkOutcome {
    decided: Signal,
    held: Cell<Option<bool>>,
}

impl ChunkOutcome {
    fn decide(&self, held: bool) {
        self.held.set(Some(held));
        self.decided.notify();
    }
}

/// A write that is in a chunk.
#[must_use = "wait until the chain holds it"]
pub(super) struct Accepted {
    version: Version,
    outcome: Rc<ChunkOutcome>,
}

impl Accepted {
    pub(super) const fn version(&self) -> Version {
        self.version
    }

    /// Its version, once the whole chain holds its chunk and it is published.
    ///
    /// Errors: it is unknown whether the chain holds it.
    pub(super) async fn held(self) -> Result<Version, Failure> {
        loop {
            let decided = self.outcome.decided.wait();
            match self.outcome.held.get() {
                Some(true) => return Ok(self.version),
                Some(false) => return Err(Failure::Unknown),
                None => decided.await,
            }
        }
    }
}

/// The chunk that writes of a shard gather in.
struct Open {
    bytes: Vec<u8>,
    outcome: Rc<ChunkOutcome>,
}

/// A chunk that was sealed.
struct Sealed {
    shard: ShardId,
    slot: Slot,
    bytes: Vec<u8>,
    outcome: Rc<ChunkOutcome>,
    /// Whether A3 takes it.
    by_host: bool,
    /// It counts at the SoC, where chunks go by that.
    at_soc: Option<AtSoc>,
}

/// A host engine's log of writes that have not left as a chunk.
pub(super) struct Log<F: Fabric> {
    pub(super) member: Rc<Member<F>>,
    /// By shard: a chain is one shard's.
    open: RefCell<BTreeMap<ShardId, Open>>,
    /// The shard whose chunk left last.
    last: Cell<ShardId>,
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
            open: RefCell::default(),
            last: Cell::default(),
            free: RefCell::new((0..slots).rev().collect()),
            room: member.fabric.signal(),
            sealed: Cell::new(0),
            member,
        })
    }

    /// Appends a write, and waits until its chunk is replicated and published. Returns its version.
    ///
    /// Waits for space while every slot is taken and the open chunk is full. Fails with
    /// `NoResources` if no chunk can hold it.
    pub(super) async fn append(
        self: &Rc<Self>,
        key: Key,
        value: Option<&[u8]>,
    ) -> Result<Version, Failure> {
        let _working = self.member.working.begin();
        let _phase = self.member.fabric.phase("log: append");
        self.accept(key, value).await?.held().await
    }

    /// Puts a write into a chunk, whose outcome it is to wait for.
    pub(super) async fn accept(
        self: &Rc<Self>,
        key: Key,
        value: Option<&[u8]>,
    ) -> Result<Accepted, Failure> {
        let Member { fabric, node, .. } = &*self.member;
        let bytes = record_bytes(value.map_or(0, <[u8]>::len));
        let shard = node.shard_of(key);
        if bytes > node.config().chunk.0 {
            return Err(Failure::Aborted(Reason::NoResources));
        }
        // [LineFS21] The client writes to its log in persistent memory.
        fabric.work(Work::TableLookup);
        fabric.work(Work::Copy { bytes: bytes as u32 });
        let (version, outcome) = loop {
            let room = self.room.wait();
            fabric.access().await;
            if let Some(taken) = self.take(shard, key, value)? {
                break taken;
            }
            room.await;
        };
        self.seal();
        Ok(Accepted { version: Version(version), outcome })
    }

    /// Puts a write into the open chunk of its shard: its version, and the chunk's outcome. `None`:
    /// the chunk has no space.
    fn take(
        &self,
        shard: ShardId,
        key: Key,
        value: Option<&[u8]>,
    ) -> Result<Option<(u64, Rc<ChunkOutcome>)>, Failure> {
        let Member { fabric, node, .. } = &*self.member;
        let mut state = node.state();
        if !state.serves(shard) {
            return Err(Failure::Aborted(Reason::ShardUnavailable));
        }
        let mut chunks = self.open.borrow_mut();
        let open = chunks.entry(shard).or_insert_with(|| {
            let outcome = ChunkOutcome { decided: fabric.signal(), held: Cell::new(None) };
            Open { bytes: Vec::new(), outcome: Rc::new(outcome) }
        });
        let bytes = record_bytes(value.map_or(0, <[u8]>::len));
        if open.bytes.len() as u64 + bytes > node.config().chunk.0 {
            return Ok(None);
        }
        let version = state.files.give_version(key);
        Record { key, version, value }.emit(&mut open.bytes);
        Ok(Some((version, open.outcome.clone())))
    }

    /// Lets an open chunk leave, if there is any and a slot for it; shards take turns. Nothing
    /// waits for a chunk to fill.
    fn seal(self: &Rc<Self>) {
        let next = {
            let open = self.open.borrow();
            let behind = open.range(ShardId(self.last.get().0.saturating_add(1))..).next();
            behind.or_else(|| open.iter().next()).map(|(shard, _)| *shard)
        };
        let Some(shard) = next else { return };
        let Some(slot) = self.free.borrow_mut().pop() else { return };
        self.last.set(shard);
        let Member { fabric, node, memory, .. } = &*self.member;
        let Some(Open { bytes, outcome }) = self.open.borrow_mut().remove(&shard) else {
            unreachable!("the chunk of shard {} was there", shard.0)
        };
        self.room.notify();
        let here = fabric.here();
        let slot = Slot { node: here.node, core: here.core, slot };
        let kept = memory.log().write(memory.offset_in_log(slot), &bytes);
        assert!(kept.is_ok(), "the log has space for every slot");
        let turn = self.sealed.replace(self.sealed.get() + 1);
        let (by_host, at_soc) = match node.config().way(turn) {
            ChunkWay::Soc => (false, None),
            ChunkWay::Host => (true, None),
            // [OffPath23 4.2 step 3] In turn: A2 until it is saturated, then A3.
            ChunkWay::SocFirst => {
                let core = self.member.engine_of(here.node, Side::Nic, slot).core;
                let taken = node.soc.take(core);
                (taken.is_none(), taken)
            }
        };
        count(if by_host { &node.counts.by_host } else { &node.counts.by_soc });
        let sealed = Sealed { shard, slot, bytes, outcome, by_host, at_soc };
        fabric.spawn(self.clone().replicate(sealed));
    }

    /// Replicates a sealed chunk, publishes its writes and frees its slot.
    async fn replicate(self: Rc<Self>, mut sealed: Sealed) {
        let Member { fabric, node, memory, working, .. } = &*self.member;
        let _open = node.begin();
        let _working = working.begin();
        let at_soc = sealed.at_soc.take();
        let Sealed { slot, bytes, outcome, .. } = &sealed;
        let (times, began) = (&node.counts.times, fabric.now());
        // [OffPath23 5.1] RDMA writes to persistent memory as to DRAM; the own copy has to be
        // durable as well.
        let durable = fabric.persist(memory.log(), memory.offset_in_log(*slot), bytes.len());
        let mut held = self.replicate_once(&sealed).await;
        drop(at_soc);
        if durable.await.is_err() {
            held = None;
        }
        let publishing = fabric.now();
        while let Some(chain) = held.take() {
            match self.publish(&sealed, &chain).await {
                Verdict::Held => {
                    held = Some(chain);
                    break;
                }
                // A node has joined the chain, and copies what is published: so it must have this
                // first.
                Verdict::Grown => held = self.replicate_once(&sealed).await,
                Verdict::Deposed => {}
            }
        }
        outcome.decide(held.is_some());
        add_time(&times.publish, fabric, publishing);
        add_time(&times.whole, fabric, began);
        self.free.borrow_mut().push(slot.slot);
        self.seal();
    }

    /// Replicates a chunk once along the chain as it is now. Returns that chain if it succeeded.
    async fn replicate_once(&self, sealed: &Sealed) -> Option<Chain> {
        let Sealed { shard, slot, bytes, by_host, .. } = sealed;
        let slot = *slot;
        let chain = self.member.node.state().led(*shard)?;
        let _phase = self.member.fabric.phase("chain: replicate");
        let (raw, way) = (bytes.len() as u32, Way::along(*shard, &chain));
        if *by_host {
            // [OffPath23 A3] The host writes the chunk to the next host, without compressing it
            // unless it is told to.
            let packed = match self.member.node.config().host_compresses {
                true => Some(self.member.compress(bytes, Cost::HOST_COMPRESSION).await),
                false => None,
            };
            let bytes = packed.as_ref().unwrap_or(bytes);
            let (len, crc) = (bytes.len() as u32, crc32c::crc32c(bytes));
            let chunk = Chunk { slot, raw, len, crc, way };
            let _replicated = self.member.pass_on(&chunk, bytes).await.ok()?;
        } else {
            self.submit(&Submit { slot, len: raw, way }, bytes).await.ok()?;
        }
        Some(chain)
    }

    /// [OffPath23 A1, A2] Has the SoC replicate what is in a slot; it acknowledges the log.
    async fn submit(&self, submit: &Submit, bytes: &[u8]) -> Result<(), Gone> {
        let message = Containing { message: submit, content: Content::Raw(bytes) };
        let Member { fabric, node, .. } = &*self.member;
        let to = self.member.engine_of(fabric.here().node, Side::Nic, submit.slot);
        loop {
            if fabric.call(to, &message, Timeout::Never).await.is_ok() {
                return Ok(());
            }
            if !node.state().serves(submit.way.shard) {
                return Err(Gone);
            }
            fabric.sleep_until(fabric.now() + AGAIN).await;
        }
    }

    /// Makes the writes of a chunk readable on the head if each member of its chain has it. `held`
    /// is the chain whose members have it.
    async fn publish(&self, sealed: &Sealed, held: &Chain) -> Verdict {
        let Member { fabric, node, .. } = &*self.member;
        let _phase = fabric.phase("publish");
        let writes = records(&sealed.bytes);
        let writes = writes.unwrap_or_default();
        writes.iter().for_each(|_| fabric.work(Work::TableApply));
        fabric.access().await;
        debug_assert!(fabric.here().side == Side::Host, "the log's engine publishes");
        let mut state = node.state();
        let verdict = state.judge(sealed.shard, held);
        if verdict == Verdict::Held {
            state.publish(&writes);
        }
        verdict
    }
}
