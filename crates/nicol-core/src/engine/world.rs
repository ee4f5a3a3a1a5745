//! What a world must offer to its engines: clock, transport, memory movement, costs.

use std::future::Future;
use std::sync::Arc;

use super::Wake;
use crate::chain::Encoded;
use crate::fabric::{FabricError, HasDoorbell, Work};
use crate::ids::{EngineId, Incarnation, NodeId, Side};
use crate::memory::{AccessError, Region, RegionTable, WORD, halves};
use crate::trace::Sink;
use crate::units::Nanos;
use crate::view::View;

/// Something that costs time on the core that does it. The simulated world adds the profile's
/// cost to the core's clock; the live world ignores it, since it really happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charge {
    /// A frame was taken from the receive queue.
    FrameReceived {
        /// Its sender.
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
    /// A copy of a message that is prepared already was appended to a frame.
    MessageCopied,
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
    /// A cache line that another core may have written was taken for an access to shared memory.
    Access,
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
        region: Arc<Region>,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u32,
    },
    /// Write the other side's memory, then ring the region's doorbell.
    DmaWrite {
        region: Arc<Region>,
        /// First byte.
        offset: u64,
        /// True if it is to be persisted once it has landed.
        durable: bool,
    },
    /// Make the buffer durable: what stands, or stood, in a range of this node's memory.
    Persist {
        region: Arc<Region>,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u32,
    },
    /// Reach the other side's memory. The caller makes the access itself when the transfer is
    /// complete.
    DmaTouch {
        /// Does it read? Else it writes.
        reads: bool,
        /// Bytes.
        len: u32,
    },
    /// Fill an entry of the NIC's volatile queue. [MINOS24 V-B4]
    Fill {
        /// Bytes.
        len: u32,
    },
    /// A verb or a chain of operations on remote regions. The buffer holds the request, and after
    /// [`run`](crate::chain::run()) at the target the reply.
    Verbs,
}

/// A transfer on its way, and afterwards its result.
#[derive(Debug)]
pub struct Operation {
    /// The data to move.
    pub transfer: Transfer,
    /// The bytes (see [`Transfer`]).
    pub buffer: Vec<u8>,
    /// How it went; `Ok` until the world says otherwise.
    pub result: Result<(), FabricError>,
    /// The engine's own mark; the world returns it untouched.
    pub token: u32,
}

impl Operation {
    /// Where a DMA read of more than one line of 64 bytes may be torn: the bytes of the first half
    /// of its lines. `None` for what moves at one instant.
    pub fn first_half(&self) -> Option<usize> {
        let Transfer::DmaRead { offset, len, .. } = self.transfer else { return None };
        halves(offset, len.into())
    }

    /// Moves the first half of a DMA read that has one now: the lower addresses, as a card reads.
    /// [`Operation::execute_local`] moves the rest, and tells how it went.
    pub fn execute_first_half(&mut self) {
        let (Some(half), Transfer::DmaRead { region, offset, len }) =
            (self.first_half(), &self.transfer)
        else {
            return;
        };
        // What is out of bounds or lost moves nothing.
        if !region.is_lost() && region.check(*offset, u64::from(*len)).is_ok() {
            self.buffer.resize(half, 0);
            self.result = region.read(*offset, &mut self.buffer).map_err(FabricError::AccessDenied);
        }
    }

    /// Moves the bytes of a DMA or a persist now, those that have not moved yet. The world calls it
    /// at the instant at which it decides that the transfer happens, or ends.
    ///
    /// # Panics
    /// On verbs: those are executed by their target.
    pub fn execute_local(&mut self) {
        if self.region().is_some_and(|region| region.is_lost()) {
            self.result = Err(FabricError::Unreachable);
            return;
        }
        let moved = match &self.transfer {
            Transfer::DmaRead { region, offset, len } => {
                let moved = self.buffer.len();
                self.buffer.resize(*len as usize, 0);
                region.read(*offset + moved as u64, &mut self.buffer[moved..])
            }
            Transfer::DmaWrite { region, offset, .. } => land(region, *offset, &[&self.buffer]),
            Transfer::Persist { region, offset, len } => region.check(*offset, u64::from(*len)),
            Transfer::DmaTouch { .. } | Transfer::Fill { .. } => Ok(()),
            Transfer::Verbs => panic!("verbs are executed by their target"),
        };
        self.result = moved.map_err(FabricError::AccessDenied);
    }

    /// The region that it moves to or from; `None` for what names none.
    pub const fn region(&self) -> Option<&Arc<Region>> {
        match &self.transfer {
            Transfer::DmaRead { region, .. }
            | Transfer::DmaWrite { region, .. }
            | Transfer::Persist { region, .. } => Some(region),
            Transfer::DmaTouch { .. } | Transfer::Fill { .. } | Transfer::Verbs => None,
        }
    }

    /// Does it write what is to be persisted?
    pub const fn persists(&self) -> bool {
        matches!(self.transfer, Transfer::DmaWrite { durable: true, .. })
    }

    /// Does a DMA read?
    pub const fn reads(&self) -> bool {
        matches!(self.transfer, Transfer::DmaRead { .. } | Transfer::DmaTouch { reads: true, .. })
    }

    /// Bytes that are made durable, or written into a queue's entry.
    pub const fn persisted_bytes(&self) -> u64 {
        match self.transfer {
            Transfer::Persist { len, .. } | Transfer::Fill { len } => len as u64,
            _ => 0,
        }
    }

    /// Bytes that a DMA moves.
    pub fn dma_bytes(&self) -> u64 {
        match self.transfer {
            Transfer::DmaRead { len, .. }
            | Transfer::DmaTouch { len, .. }
            | Transfer::Fill { len } => u64::from(len),
            _ => self.buffer.len() as u64,
        }
    }

    /// How many verbs a request is: one, or a chain's operations.
    pub fn verbs(&self) -> u32 {
        Encoded::parse(&self.buffer).map_or(1, |chain| chain.count as u32)
    }

    /// Bytes of operands in a request: what its packets carry besides their headers.
    pub fn operand_bytes(&self) -> u64 {
        Encoded::parse(&self.buffer).map_or(0, |chain| chain.operand_bytes() as u64)
    }
}

/// What a DMA write does to memory: of all its parts, each but the last in whole words, or nothing.
#[inline(always)]
pub(super) fn land(region: &Region, offset: u64, parts: &[&[u8]]) -> Result<(), AccessError> {
    let written = write_parts(region, offset, parts);
    region.doorbell().ring();
    written
}

#[inline(always)]
fn write_parts(region: &Region, offset: u64, parts: &[&[u8]]) -> Result<(), AccessError> {
    let Some((last, filled)) = parts.split_last() else { return Ok(()) };
    let len = len_of(parts) as u64;
    // Checked once, whatever the parts: whole words, and what the last part has beyond them.
    let words = region.words(offset, len)?;
    let mut at = 0;
    for part in filled {
        words.write(at, part);
        at += part.len().div_ceil(WORD);
    }
    if last.len().is_multiple_of(WORD) {
        words.write(at, last);
        return Ok(());
    }
    region.write(offset + (at * WORD) as u64, last)
}

/// Bytes of the parts of a DMA write.
#[inline(always)]
pub(super) fn len_of(parts: &[&[u8]]) -> usize {
    parts.iter().fold(0, |len: usize, part| len.next_multiple_of(WORD) + part.len())
}

/// How many one-sided operations a core gathers for a doorbell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoorbellBatch {
    /// What a round posts to a node, up to so many.
    UpTo(usize),
    /// The same for engines of the NIC; those of the host ring for each operation.
    OfNic(usize),
    /// What a round posts to a node shares a doorbell if that many operations leave sooner so, by
    /// [`World::doorbell_pays`]; else each has its own. Few come together at a low load, and many
    /// when a core is busy, so that the same core does both. [OffPath23 advice 4]
    Adaptive,
}

impl DoorbellBatch {
    /// The most that are gathered.
    pub const MOST: usize = 64;

    /// Operations that an engine of `side` gathers for a doorbell at most.
    pub const fn limit(self, side: Side) -> usize {
        match (self, side) {
            (Self::UpTo(most), _) | (Self::OfNic(most), Side::Nic) => most,
            (Self::OfNic(_), Side::Host) => 1,
            (Self::Adaptive, _) => Self::MOST,
        }
    }
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
    pub doorbell_batch: DoorbellBatch,
    /// Frames taken from the receive queue in one round.
    pub burst: usize,
    /// Tasks polled in one round, so that a round ends.
    pub tasks_per_round: usize,
    /// First retransmission of a call over an unreliable route; doubles up to 16 times this.
    pub retransmit_after: Nanos,
    /// How long a one-sided operation that engines execute in software is sent again, over an
    /// unreliable route, before it ends with `Unreachable`.
    pub one_sided_timeout: Nanos,
    /// Do frames carry and check a CRC32C?
    pub checksums: bool,
}

/// What an engine needs from the world around it. One value per engine; never leaves its thread.
pub trait World: 'static {
    /// Do transfers to the other side's memory complete at once (shared memory)? Then the engine
    /// makes them itself and [`World::submit`] never sees a DMA.
    const SHARED_MEMORY: bool;
    /// The future of a scheduling point before an access to shared memory.
    type Access: Future<Output = ()> + Unpin + 'static;
    /// Do other engines come in between at such points, or at any time?
    const ACCESS_POINTS: bool;

    /// The time at this engine: in the simulator, with what this round has been charged so far.
    fn now(&self) -> Nanos;
    /// Charges the core.
    fn charge(&self, charge: Charge);
    /// Random bits of this engine's protocol stream.
    fn random(&self) -> u64;
    /// A candidate for an rkey, unpredictable in the live world.
    fn draw_rkey(&self) -> u32;
    /// The cluster's first view: its nodes and engines are those of every later one.
    fn first_view(&self) -> &View;
    /// The life of this engine's side of its node.
    fn incarnation(&self) -> Incarnation;
    /// How engines behave.
    fn tuning(&self) -> &Tuning;
    /// The faults that frames between this engine and `other` may suffer.
    fn route(&self, other: EngineId) -> Route;
    /// The regions registered at this node.
    fn regions(&self) -> &RegionTable;

    /// The next frame that has arrived.
    fn receive(&self) -> Option<Vec<u8>>;
    /// An empty buffer for a frame; gives received or fresh ones.
    fn frame_buffer(&self) -> Vec<u8>;
    /// Takes a received frame's buffer back.
    fn recycle(&self, frame: Vec<u8>);
    /// True if a module of the card sends the copies of one deposit to many. [MINOS24 V-B3]
    fn broadcasts(&self) -> bool {
        false
    }
    /// Lets the card send a further copy of the frame that this engine has transmitted last, with
    /// its own header. Otherwise like [`World::transmit`].
    fn transmit_copy(&self, to: EngineId, frame: Vec<u8>) -> Result<(), Vec<u8>> {
        self.transmit(to, frame)
    }
    /// Sends a frame (never to this engine itself). `Err` returns it: no space now, the engine
    /// tries again next round.
    fn transmit(&self, to: EngineId, frame: Vec<u8>) -> Result<(), Vec<u8>>;

    /// Is memory durable by itself (battery-backed)? Then the engine resolves persists at once and
    /// [`World::submit`] never sees one.
    fn memory_is_durable(&self) -> bool;
    /// Does the log device need the bytes that are persisted? If not, [`World::submit`] is told how
    /// many they are, and gets none.
    fn keeps_persisted(&self) -> bool {
        true
    }
    /// True if both sides of a node persist to one device.
    fn shares_medium(&self) -> bool;
    /// Starts a vector of DMA reads, a vector of DMA writes, or persists; takes them all.
    fn submit(&self, batch: &mut Vec<Operation>);
    /// Does the card of `node` execute this engine's plain verbs, or its chains? If not, they are
    /// sent as messages to a NIC engine there, which executes them in software.
    fn card_executes(&self, node: NodeId, chains: bool) -> bool;
    /// Do so many verbs leave this engine sooner with one doorbell for all, after which the card
    /// fetches them, than with a doorbell for each?
    fn doorbell_pays(&self, _verbs: usize) -> bool {
        true
    }
    /// Posts a batch of verbs to the card of `node` with one doorbell; takes them all.
    fn post(&self, node: NodeId, batch: &mut Vec<Operation>);
    /// The next finished operation.
    fn finished(&self) -> Option<Operation>;

    /// Are frames of and for earlier incarnations dropped? False in negative tests only.
    #[doc(hidden)]
    fn fences(&self) -> bool {
        true
    }
    /// A scheduling point before an access to shared memory. `wait` waits for this engine's next
    /// round, which begins no earlier than its clock shows now.
    fn access(&self, wait: impl FnOnce() -> Wake) -> Self::Access;
    /// The same within an access: it charges nothing.
    fn within_access(&self, wait: impl FnOnce() -> Wake) -> Self::Access;
    /// Where this run is recorded, if it is.
    fn trace(&self) -> Option<&Arc<Sink>> {
        None
    }
    /// True if this engine's clock is ahead of the memory that it sees.
    fn is_ahead(&self) -> bool {
        false
    }
    /// Asks for a round at `deadline` (the earliest of several counts; may be repeated). Within a
    /// round it may be left to who ends the round, and asks for the next deadline.
    fn wake_at(&self, deadline: Nanos);
    /// Asks for a round whenever `doorbell` rings.
    fn watch(&self, doorbell: &Arc<dyn HasDoorbell>);
}
