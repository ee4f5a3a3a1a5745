//! `Fabric`: everything a protocol may do to the world, and the only way to do it.

pub mod conformance;
mod work;

use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

pub use work::Work;

use crate::chain::Chain;
use crate::exec::Signal;
use crate::ids::{EngineId, FreeListKey, NodeId, RKey};
use crate::memory::{Access, AccessError, Buffers, Doorbell, Region};
use crate::units::Nanos;
use crate::view::View;
use crate::wire::{Malformed, Writer};

/// A fault of the fabric: a result, never a panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FabricError {
    /// No such engine in this view; or, for a one-sided operation, the NIC has given up after its
    /// retries, and the operation may have taken effect once.
    #[error("the engine is not reachable")]
    Unreachable,
    /// The timeout is over. The request may still take effect, unless a later call
    /// [supersedes](Fabric::call_superseding) it.
    #[error("no reply in time")]
    TimedOut {
        /// Names the request for a call that supersedes it.
        request: RequestId,
    },
    /// The rkey, bounds or alignment were wrong. The memory is untouched.
    #[error("access denied: {0}")]
    AccessDenied(AccessError),
    /// The receiver has no room for the request (receiver not ready).
    #[error("the receiver has no resources")]
    NoResources,
    /// The receiver could not parse the request.
    #[error("the receiver found the message malformed")]
    Malformed,
}

/// Names a request of one engine to another, for superseding it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId {
    /// The call slot towards that engine.
    pub slot: u16,
    /// The use of that slot; 0 is none.
    pub sequence: u32,
}

impl RequestId {
    /// Names no request.
    pub const NONE: Self = Self { slot: 0, sequence: 0 };
}

/// Where a reply goes. It may travel in messages, so that a third party replies (multi-hop).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyTo {
    /// The engine that waits.
    pub engine: EngineId,
    /// The request it waits for.
    pub request: RequestId,
}

/// How long a call waits for its reply over an unreliable route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// Retransmit for this long, then give up with `TimedOut`.
    After(Nanos),
    /// Retransmit until the reply comes: for effects that must happen.
    Never,
}

/// A typed message: `emit` cannot fail, `parse` (on the receiving side) checks everything.
pub trait Message {
    /// The kind on the wire; unique within a system. Kinds from 0xff00 are the engine's own.
    const KIND: u16;

    /// Appends the body.
    fn emit(&self, to: &mut Writer<'_>);
}

/// A message as it reaches a service. The body is only valid during `deliver`.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    /// The engine that sent it.
    pub from: EngineId,
    /// Where the reply goes; `None` for a one-way message.
    pub reply_to: Option<ReplyTo>,
    /// The message's kind.
    pub kind: u16,
    /// The message's body, unparsed.
    pub body: &'a [u8],
}

/// What an engine runs for arriving messages.
pub trait Service {
    /// Handles one message: at once, or by spawning a task. A malformed body is returned as such:
    /// the engine counts it and answers a request with [`FabricError::Malformed`].
    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Malformed>;
}

/// A one-sided operation on remote regions. Offsets are multiples of eight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OneSided<'a> {
    /// Reads `len` bytes.
    Read {
        /// The region's key.
        rkey: RKey,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u32,
    },
    /// Writes `bytes`; resolves when they are in the remote memory.
    Write {
        /// The region's key.
        rkey: RKey,
        /// First byte.
        offset: u64,
        /// What to write.
        bytes: &'a [u8],
    },
    /// Compares and swaps a word; yields the previous value (eight bytes, little-endian).
    CompareSwap {
        /// The region's key.
        rkey: RKey,
        /// The word.
        offset: u64,
        /// Swap only if the word has this value.
        expected: u64,
        /// The new value.
        new: u64,
    },
    /// Adds to a word, wrapping; yields the previous value (eight bytes, little-endian).
    FetchAdd {
        /// The region's key.
        rkey: RKey,
        /// The word.
        offset: u64,
        /// What to add.
        amount: u64,
    },
    /// Executes a chain of operations in order; resolves to its
    /// [`ChainResults`](crate::chain::ChainResults). Whatever is refused is an outcome in there. An
    /// error of the whole means that nothing was executed (`Malformed`, `NoResources`), or a fault
    /// on the way. [PRISM21 3.4]
    Chain(&'a Chain),
}

/// The contract between a protocol and the world it runs in. A value is a handle of one engine;
/// clones are handles of the same engine, and none of them leaves its thread.
///
/// Nothing here blocks and nothing panics on a fault. Futures resolve in the order the world
/// decides; dropping one abandons its result, never its effect.
///
/// - **Messages** between engines of different nodes may be lost, duplicated, reordered and
///   delayed; a corrupt one is dropped by its checksum. Between engines of one node (the PCIe
///   queues) they are reliable and ordered. [`Fabric::call`] retransmits and its effects happen at
///   most once at the receiver.
/// - **Aggregation**: everything bound for one engine in one poll round leaves as one frame, which
///   is never held back to be filled.
pub trait Fabric: Clone + 'static {
    /// What calls, one-sided operations and DMAs resolve to: the reply's bytes.
    type Completion: Future<Output = Result<Self::Payload, FabricError>> + Unpin + 'static;
    /// Bytes in a pooled buffer, given back when dropped.
    type Payload: AsRef<[u8]> + 'static;
    /// Resolves when woken: see [`Fabric::sleep_until`], [`Fabric::wait_for_doorbell`].
    type Wake: Future<Output = ()> + Unpin + 'static;

    /// The engine this is a handle of.
    fn here(&self) -> EngineId;
    /// The newest view that this engine knows. What is borrowed here stays as it is when a newer one
    /// comes.
    fn view(&self) -> &View;
    /// The time at this engine.
    fn now(&self) -> Nanos;
    /// Resolves at `deadline` or soon after.
    fn sleep_until(&self, deadline: Nanos) -> Self::Wake;
    /// Lets every other ready task of this engine run once.
    fn yield_now(&self) -> Self::Wake;
    /// Resolves when what this engine's clock shows has really passed. The simulator's poll rounds
    /// happen at one instant, and their costs move the clock beyond it: memory that other engines
    /// change is still that of the instant. A transaction that begins with such memory awaits this
    /// first, or it might read what was overwritten before it began. At once in the live world.
    fn caught_up(&self) -> Self::Wake;
    /// Random bits from this engine's protocol stream.
    fn random(&self) -> u64;
    /// Runs `task` on this engine, starting in this poll round. Its memory is pooled by type.
    fn spawn<T: Future<Output = ()> + 'static>(&self, task: T);
    /// Charges a step's computation to this core: free in the live world.
    fn work(&self, work: Work);

    /// Sets what handles arriving messages; the first call counts, later ones are refused (false).
    fn serve(&self, service: Rc<dyn Service>) -> bool;
    /// Sends a one-way message.
    fn send<M: Message>(&self, to: EngineId, message: &M);
    /// Sends a request and resolves to the reply's body.
    fn call<M: Message>(&self, to: EngineId, message: &M, timeout: Timeout) -> Self::Completion;
    /// Like [`Fabric::call`]; before it is delivered, the receiver fences `timed_out`: if that
    /// request has not been delivered yet, it never will be.
    fn call_superseding<M: Message>(
        &self,
        to: EngineId,
        message: &M,
        timed_out: RequestId,
    ) -> Self::Completion;
    /// Opens a request to `to` that another engine sends in this one's name: the address travels
    /// in a message to that engine, which uses it with [`Fabric::send_on_behalf_of`].
    ///
    /// Nothing is sent from here, and nothing times out, until [`Fabric::retransmit`]. An expected
    /// request that will never be sent is given up by refusing it, as if by its receiver. Where
    /// none could be opened it is [`RequestId::NONE`], and the completion says why.
    fn open_delegated_call(&self, to: EngineId) -> (ReplyTo, Self::Completion);
    /// Sends `message` to `to` as the request that `asker` expects; the reply goes there.
    /// However often it is sent, by this engine or the asker, it takes effect at most once.
    fn send_on_behalf_of<M: Message>(&self, asker: ReplyTo, to: EngineId, message: &M);
    /// From now on also sends an expected request from here, like any other: again and again
    /// until the reply comes or `timeout` is over. `message` must be what the other engine sends.
    fn retransmit<M: Message>(&self, delegated: RequestId, message: &M, timeout: Timeout);
    /// From now on an expected request is given up, with `TimedOut`, if no reply comes for that
    /// long. Like calls, only over unreliable routes.
    fn give_up_after(&self, delegated: RequestId, timeout: Nanos);
    /// Answers a request, of whichever engine.
    fn reply<M: Message>(&self, to: ReplyTo, message: &M);
    /// Answers a request with an error.
    fn refuse(&self, to: ReplyTo, error: FabricError);
    /// Copies `bytes` into a pooled buffer, for a task that outlives a delivery.
    fn keep(&self, bytes: &[u8]) -> Self::Payload;

    /// Registers a region of this node for one-sided access by others.
    fn register(&self, region: &Arc<Region>, access: Access) -> RKey;
    /// Takes a registration back. Returns whether it was there.
    fn revoke(&self, rkey: RKey) -> bool;
    /// Registers buffers of this node for remote ALLOCATEs. Errors: the buffers are not aligned, or
    /// not in a region of this node that may be written. [PRISM21 3.2]
    ///
    /// # Panics
    /// If more buffers are in use than there are.
    fn register_buffers(&self, buffers: Buffers) -> Result<FreeListKey, AccessError>;
    /// Posts buffers that are no longer used to their free list again, the daemon's part of
    /// recycling. They wait there until no chain under way can have a pointer to them [PRISM21 3.2,
    /// 4.2]. At the first that is not in use this stops with `NotInUse`; those before it are
    /// posted.
    fn post_buffers(&self, list: FreeListKey, offsets: &[u64]) -> Result<(), AccessError>;
    /// Buffers of this node's `list` that an ALLOCATE could pop now.
    fn buffers_ready(&self, list: FreeListKey) -> usize;
    /// Posts a one-sided operation to `node`, executed there without its host's CPU.
    fn one_sided(&self, node: NodeId, operation: OneSided<'_>) -> Self::Completion;

    /// Reads `len` bytes of the other side's memory over PCIe; joins this round's read vector.
    fn dma_read(&self, from: &Arc<Region>, offset: u64, len: usize) -> Self::Completion;
    /// Writes the other side's memory over PCIe; joins this round's write vector, resolves when
    /// the bytes have landed, and rings the region's doorbell.
    fn dma_write(&self, to: &Arc<Region>, offset: u64, bytes: &[u8]) -> Self::Completion;
    /// Like [`Fabric::dma_write`], and resolves when the bytes are durable as well under the node's
    /// log device. What is persisted is `bytes`, whatever happens to the memory once they landed.
    ///
    /// Cost: that of the DMA where memory itself is durable (battery-backed, as in the papers).
    /// Errors: `NoResources` when the log device is full or has failed; it stays so from then on.
    fn dma_write_durable(&self, to: &Arc<Region>, offset: u64, bytes: &[u8]) -> Self::Completion;
    /// Resolves once `doorbell` has rung more often than `seen` times.
    fn wait_for_doorbell(&self, doorbell: &Arc<dyn HasDoorbell>, seen: u64) -> Self::Wake;
    /// Resolves when `len` bytes of this node's memory from `offset` on, as they are now, are
    /// durable under the node's log device. Errors: as of [`Fabric::dma_write_durable`].
    fn persist(&self, region: &Arc<Region>, offset: u64, len: usize) -> Self::Completion;
    /// A condition that tasks of this engine may wait for.
    fn signal(&self) -> Signal;
}

/// Something with a doorbell that an engine may watch.
pub trait HasDoorbell: Send + Sync + 'static {
    /// The doorbell.
    fn doorbell(&self) -> &Doorbell;
}

impl HasDoorbell for Region {
    fn doorbell(&self) -> &Doorbell {
        Self::doorbell(self)
    }
}

impl HasDoorbell for Doorbell {
    fn doorbell(&self) -> &Doorbell {
        self
    }
}
