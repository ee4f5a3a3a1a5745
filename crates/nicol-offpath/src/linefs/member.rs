//! An engine of either side: it knows where others take chunks, and passes chunks on.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use nicol_core::exec::Signal;
use nicol_core::fabric::{Fabric, FabricError, OneSided, Timeout};
use nicol_core::ids::{EngineId, NodeId, RKey, Side};
use nicol_core::units::Nanos;
use nicol_kit::count;

use super::chain::Life;
use super::memory::Memory;
use super::messages::{Chunk, Containing, Content, Hello, Keys, Slot, Way};
use super::node::{Node, add_time};

/// How long a HELLO waits for its answer.
const HELLO_TIMEOUT: Timeout = Timeout::After(Nanos::from_millis(2));
/// How long an engine waits before it asks again for what has failed.
const AGAIN: Nanos = Nanos::from_micros(20);

/// Proof that a chunk is persistent on every backup that the view has.
#[must_use = "it is what a write is acknowledged for"]
#[derive(Debug)]
pub(super) struct Replicated(());

/// The chunk's head is the head of its chain no more, or this node is no member.
#[derive(Debug)]
pub(super) struct Gone;

/// The number of things that an engine is doing now, for the busy program on its core.
pub(super) struct Working {
    count: Cell<u32>,
    begun: Signal,
}

/// Something that an engine has to do.
pub(super) struct At(Rc<Working>);

impl Drop for At {
    fn drop(&mut self) {
        self.0.count.set(self.0.count.get() - 1);
    }
}

impl Working {
    pub(super) fn begin(self: &Rc<Self>) -> At {
        self.count.set(self.count.get() + 1);
        self.begun.notify();
        At(self.clone())
    }

    /// Resolves while there is anything to do.
    pub(super) async fn any(&self) {
        while self.count.get() == 0 {
            let begun = self.begun.wait();
            begun.await;
        }
    }
}

/// An engine as a member of chains: it sends chunks and takes them.
pub(super) struct Member<F: Fabric> {
    pub(super) fabric: F,
    pub(super) node: Arc<Node>,
    /// The node's memory of this life.
    pub(super) memory: Arc<Memory>,
    pub(super) working: Rc<Working>,
    /// By node: the keys of its memory, if it has told, and in which life.
    keys: RefCell<Vec<Option<(Life, Keys)>>>,
    /// Whether a chunk of this engine is on the wire.
    is_writing: Cell<bool>,
    written: Signal,
}

impl<F: Fabric> Member<F> {
    pub(super) fn new(fabric: F, node: Arc<Node>) -> Rc<Self> {
        let keys = RefCell::new(vec![None; fabric.view().nodes()]);
        let working = Rc::new(Working { count: Cell::new(0), begun: fabric.signal() });
        let (is_writing, written) = (Cell::new(false), fabric.signal());
        let memory = node.memory();
        memory.register(&fabric);
        Rc::new(Self { fabric, node, memory, working, keys, is_writing, written })
    }

    /// Passes the bytes of a chunk on to the first backup behind this node that is a member, which
    /// does the same with those after it. Whatever fails is done again, until a view tells that
    /// somebody is lost: to take a chunk twice changes nothing.
    ///
    /// Cost: a WRITE, in pieces if so configured, and a call.
    pub(super) async fn pass_on(&self, chunk: &Chunk, bytes: &[u8]) -> Result<Replicated, Gone> {
        let Self { fabric, node, .. } = self;
        let _phase = fabric.phase("chain: pass on");
        loop {
            let next = {
                let state = node.state();
                if !state.follows(chunk) {
                    return Err(Gone);
                }
                let rest = chunk.way.rest.iter().enumerate();
                let member = |(place, node): (usize, &NodeId)| {
                    state.member(chunk.way.shard, *node).map(|life| (place, life))
                };
                rest.filter_map(member).next()
            };
            let Some((place, backup)) = next else { return Ok(Replicated(())) };
            let way = Way { rest: chunk.way.rest[place + 1..].to_vec(), ..chunk.way.clone() };
            if self.hand_over(backup, &Chunk { way, ..chunk.clone() }, bytes).await.is_ok() {
                return Ok(Replicated(()));
            }
            // Its memory may be that of another life.
            self.keys.borrow_mut()[backup.node.index()] = None;
            count(&node.counts.repeated);
            fabric.sleep_until(fabric.now() + AGAIN).await;
        }
    }

    /// Writes a chunk to the memory of `backup`'s engines of this side, and has them take it.
    async fn hand_over(
        &self,
        backup: Life,
        chunk: &Chunk,
        bytes: &[u8],
    ) -> Result<(), FabricError> {
        let here = self.fabric.here();
        let keys = self.reach(backup).await?;
        let rkey = if here.side == Side::Host { keys.host } else { keys.soc };
        let offset = self.memory.place_of(here.side, chunk.slot);
        // [LineFS21, OffPath23 5.1] WRITE the chunk: by (2) from SoC to SoC, by (1) from host to
        // host.
        let (times, began) = (&self.node.counts.times, self.fabric.now());
        self.write(backup.node, rkey, offset, bytes).await?;
        add_time(&times.write, &self.fabric, began);
        // [LineFS21, OffPath23 5.1] The backup acknowledges what is persistent there and behind it.
        let (to, began) = (self.engine_of(backup.node, here.side, chunk.slot), self.fabric.now());
        let content = self.content_of(chunk, bytes);
        let message = Containing { message: chunk, content };
        let acknowledged = self.fabric.call(to, &message, Timeout::Never).await;
        add_time(&times.acknowledge, &self.fabric, began);
        acknowledged.map(drop)
    }

    /// How to read the bytes of a chunk that this engine passes on.
    fn content_of<'a>(&self, chunk: &Chunk, bytes: &'a [u8]) -> Content<'a> {
        match self.node.config().packs(self.fabric.here().side) {
            true => Content::Packed(bytes, chunk.raw as usize),
            false => Content::Raw(bytes),
        }
    }

    /// WRITEs `bytes`, in pieces where transfers are segmented. [OffPath23 advices 2 and 3]
    ///
    /// One chunk of an engine at a time: a link carries what was posted in its order, and the
    /// messages that say that a chunk is there would wait behind every chunk that is not.
    pub(super) async fn write(
        &self,
        node: NodeId,
        rkey: RKey,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), FabricError> {
        while self.is_writing.get() {
            let written = self.written.wait();
            written.await;
        }
        self.is_writing.set(true);
        let pieces = bytes.chunks(self.piece()).enumerate();
        let posted: Vec<_> = pieces
            .map(|(number, bytes)| {
                let offset = offset + (number * self.piece()) as u64;
                self.fabric.one_sided(node, OneSided::Write { rkey, offset, bytes })
            })
            .collect();
        let mut done = Ok(());
        for written in posted {
            done = done.and(written.await.map(drop));
        }
        self.is_writing.set(false);
        self.written.notify();
        done
    }

    /// Bytes of a transfer at most.
    pub(super) fn piece(&self) -> usize {
        self.node.config().segment.map_or(usize::MAX, |most| most.0 as usize)
    }

    /// The engine of `node` that works for a slot: several of a log work side by side.
    pub(super) fn engine_of(&self, node: NodeId, side: Side, slot: Slot) -> EngineId {
        let engines = self.fabric.view().engines(node, side).max(1);
        let number = usize::from(slot.core) + usize::from(slot.slot);
        EngineId { node, side, core: (number % engines) as u8 }
    }

    /// The keys of a backup's memory, asked for at first in each of its lives.
    async fn reach(&self, backup: Life) -> Result<Keys, FabricError> {
        let known = self.keys.borrow()[backup.node.index()];
        if let Some((_, keys)) = known.filter(|(life, _)| *life == backup) {
            return Ok(keys);
        }
        let side = self.fabric.here().side;
        let to = EngineId { node: backup.node, side, core: 0 };
        let answer = self.fabric.call(to, &Hello, HELLO_TIMEOUT).await?;
        let keys = Keys::parse(answer.as_ref()).map_err(|_| FabricError::Malformed)?;
        self.keys.borrow_mut()[backup.node.index()] = Some((backup, keys));
        Ok(keys)
    }
}
