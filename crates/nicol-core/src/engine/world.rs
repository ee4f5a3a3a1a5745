//! What a world must offer to its engines: clock, transport, memory movement, costs.

use std::sync::Arc;

use crate::cluster::Layout;
use crate::fabric::{Bell, FabricError, Work};
use crate::ids::{EngineId, NodeId, RKey};
use crate::memory::{Region, RegionTable};
use crate::units::Nanos;

/// Something that costs time on the core that does it. The simulated world adds the profile's
/// cost to the core's clock; the live world ignores it, since it really happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charge {
    /// A frame was taken from the receive queue.
    FrameReceived {
        /// Who sent it.
        from: EngineId,
        /// Its size with header.
        bytes: u32,
    },
    /// A frame was handed to the transport.
    FrameSent {
        /// Where it goes.
        to: EngineId,
        /// Its size with header.
        bytes: u32,
    },
    /// One message of a frame was parsed and dispatched.
    MessageReceived {
        /// Body size.
        bytes: u32,
    },
    /// One message was appended to a frame.
    MessageSent {
        /// Body size.
        bytes: u32,
    },
    /// A vector of DMA requests was submitted.
    DmaSubmitted {
        /// Requests in the vector.
        requests: u32,
    },
    /// The completion of one vector was handled.
    DmaCompleted,
    /// A batch of verbs was posted with one doorbell.
    VerbsPosted {
        /// Operations in the batch.
        operations: u32,
    },
    /// The completion of a verb was polled.
    VerbCompleted,
    /// A named step of computation.
    Work(Work),
}

/// Whether frames on a route may be lost, duplicated, reordered or corrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Each frame arrives once, in order: calls keep no copy and set no timer.
    Reliable,
    /// Anything may happen to a frame: calls retransmit, receivers remember.
    Unreliable,
}

/// What to move, and where. The buffer of a read is empty until the world fills it with `len`
/// bytes; that of a write holds what to write.
#[derive(Debug)]
pub enum Transfer {
    /// Read the other side's memory.
    DmaRead {
        /// The region.
        region: Arc<Region>,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u32,
    },
    /// Write the other side's memory, then ring the region's bell.
    DmaWrite {
        /// The region.
        region: Arc<Region>,
        /// First byte.
        offset: u64,
    },
    /// Make a range of this node's memory durable.
    Persist {
        /// The region.
        region: Arc<Region>,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u32,
    },
    /// One-sided READ of a remote region.
    VerbRead {
        /// The region's key.
        rkey: RKey,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u32,
    },
    /// One-sided WRITE to a remote region.
    VerbWrite {
        /// The region's key.
        rkey: RKey,
        /// First byte.
        offset: u64,
    },
    /// One-sided compare-and-swap; fills the buffer with the previous word.
    VerbCompareSwap {
        /// The region's key.
        rkey: RKey,
        /// The word.
        offset: u64,
        /// Swap only if the word has this value.
        expected: u64,
        /// The new value.
        new: u64,
    },
    /// One-sided fetch-and-add; fills the buffer with the previous word.
    VerbFetchAdd {
        /// The region's key.
        rkey: RKey,
        /// The word.
        offset: u64,
        /// What to add.
        amount: u64,
    },
}

/// A transfer on its way, and afterwards its result.
#[derive(Debug)]
pub struct Operation {
    /// What to move.
    pub transfer: Transfer,
    /// The bytes (see [`Transfer`]).
    pub buffer: Vec<u8>,
    /// How it went; `Ok` until the world says otherwise.
    pub result: Result<(), FabricError>,
    /// The engine's own mark; the world returns it untouched.
    pub token: u32,
}

impl Operation {
    /// Moves the bytes of a DMA or a persist now. The world calls it at the instant at which it
    /// decides that the transfer happens.
    ///
    /// # Panics
    /// On a verb: those are [`Operation::execute_verb`].
    pub fn execute_local(&mut self) {
        let moved = match &self.transfer {
            Transfer::DmaRead { region, offset, len } => {
                self.buffer.resize(*len as usize, 0);
                region.read(*offset, &mut self.buffer)
            }
            Transfer::DmaWrite { region, offset } => {
                let written = region.write(*offset, &self.buffer);
                region.bell().ring();
                written
            }
            Transfer::Persist { region, offset, len } => region.check(*offset, u64::from(*len)),
            verb => panic!("{verb:?} is executed by its target"),
        };
        self.result = moved.map_err(FabricError::AccessDenied);
    }

    /// Executes a verb on the regions of its target now.
    ///
    /// # Panics
    /// On a DMA or a persist: those are [`Operation::execute_local`].
    pub fn execute_verb(&mut self, regions: &RegionTable) {
        let done = match self.transfer {
            Transfer::VerbRead { rkey, offset, len } => {
                regions.find(rkey, false).and_then(|region| {
                    region.check(offset, u64::from(len))?;
                    self.buffer.resize(len as usize, 0);
                    region.read(offset, &mut self.buffer)
                })
            }
            Transfer::VerbWrite { rkey, offset } => regions.find(rkey, true).and_then(|region| {
                region.write(offset, &self.buffer)?;
                region.bell().ring();
                Ok(())
            }),
            Transfer::VerbCompareSwap { rkey, offset, expected, new } => regions
                .find(rkey, true)
                .and_then(|region| region.compare_swap(offset, expected, new))
                .map(|previous| previous_word(&mut self.buffer, previous)),
            Transfer::VerbFetchAdd { rkey, offset, amount } => regions
                .find(rkey, true)
                .and_then(|region| region.fetch_add(offset, amount))
                .map(|previous| previous_word(&mut self.buffer, previous)),
            ref local => panic!("{local:?} is executed by its own node"),
        };
        self.result = done.map_err(FabricError::AccessDenied);
    }
}

fn previous_word(buffer: &mut Vec<u8>, word: u64) {
    buffer.clear();
    buffer.extend_from_slice(&word.to_le_bytes());
}

/// How the engines of a world behave: every ablation of the runtime is a value here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Gather everything for one engine into one frame per round? [Xenic21 4.3.2, 5.7]
    pub aggregation: bool,
    /// DMA requests per vector: 15 on the LiquidIO, 1 switches vectors off. [Xenic21 4.3.1, 5.7]
    pub dma_vector: usize,
    /// Does a core go on while its DMAs are under way? If not, it waits for each vector; where
    /// transfers complete at once there is nothing to wait for. [Xenic21 4.3.1, 5.7]
    pub dma_async: bool,
    /// One-sided operations per doorbell.
    pub doorbell_batch: usize,
    /// Frames taken from the receive queue in one round.
    pub burst: usize,
    /// Tasks polled in one round, so that a round ends.
    pub tasks_per_round: usize,
    /// First retransmission of a call over an unreliable route; doubles up to 16 times this.
    pub retransmit_after: Nanos,
    /// Do frames carry and check a CRC32C?
    pub checksums: bool,
}

/// What an engine needs from the world around it. One value per engine; never leaves its thread.
pub trait World: 'static {
    /// Do transfers to the other side's memory complete at once (shared memory)? Then the engine
    /// makes them itself and [`World::submit`] never sees a DMA.
    const SHARED_MEMORY: bool;

    /// The time at this engine: in the simulator, with what this round has been charged so far.
    fn now(&self) -> Nanos;
    /// Charges the core.
    fn charge(&self, charge: Charge);
    /// Random bits of this engine's protocol stream.
    fn random(&self) -> u64;
    /// A candidate for an rkey, unpredictable in the live world.
    fn draw_rkey(&self) -> u32;
    /// The cluster.
    fn layout(&self) -> &Layout;
    /// How engines behave.
    fn tuning(&self) -> &Tuning;
    /// What may happen to frames between this engine and `other`.
    fn route(&self, other: EngineId) -> Route;
    /// The regions registered at this node.
    fn regions(&self) -> &RegionTable;

    /// The next frame that has arrived.
    fn receive(&self) -> Option<Vec<u8>>;
    /// An empty buffer for a frame; gives received or fresh ones.
    fn frame_buffer(&self) -> Vec<u8>;
    /// Takes a received frame's buffer back.
    fn recycle(&self, frame: Vec<u8>);
    /// Sends a frame (never to this engine itself). `Err` returns it: no room now, the engine
    /// tries again next round.
    fn transmit(&self, to: EngineId, frame: Vec<u8>) -> Result<(), Vec<u8>>;

    /// Starts a vector of DMA reads, a vector of DMA writes, or a persist; takes them all.
    fn submit(&self, batch: &mut Vec<Operation>);
    /// Does the NIC execute verbs in hardware? If not, the engine sends them as messages to the
    /// target's NIC engine, which executes them in software.
    fn has_verbs(&self) -> bool;
    /// Posts a batch of verbs to `node` with one doorbell; takes them all.
    fn post(&self, node: NodeId, batch: &mut Vec<Operation>);
    /// The next finished operation.
    fn finished(&self) -> Option<Operation>;

    /// Asks for a round at `deadline` (the earliest of several counts; may be repeated).
    fn wake_at(&self, deadline: Nanos);
    /// Asks for a round whenever `bell` rings.
    fn watch(&self, bell: &Arc<dyn Bell>);
}
