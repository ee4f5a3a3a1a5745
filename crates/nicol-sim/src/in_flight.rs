//! Frames, transfers and persists under way, with the lives whose end cancels them.

use nicol_core::engine::{Life, Operation};
use nicol_core::ids::{Incarnation, NodeId, Side};

use crate::chain::Execution;

/// The incarnations of a node's host and NIC when something began: it does not outlive them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Since(pub(crate) [Incarnation; 2]);

/// Something that engines learn about a side after a while.
#[derive(Clone, Copy, Debug)]
pub struct News {
    pub node: NodeId,
    pub side: Side,
    pub life: Life,
    /// Whether it goes only to the node's other side, over PCIe. Otherwise it goes to every engine.
    pub over_pcie: bool,
}

/// The next resource on a frame's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The PCIe queue from the host to the NIC.
    ToNic,
    /// A NIC core passes it on to the wire. [Xenic21 3.1]
    ForwardOut,
    Egress,
    Ingress,
    /// A NIC core passes it on to the host. [Xenic21 3.1]
    ForwardIn,
    /// The PCIe queue from the NIC to the host.
    ToHost,
    Deliver,
}

/// The way of a frame from a host to its NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launch {
    /// It rings a doorbell.
    Rings,
    /// It rides on the burst's.
    Rides,
    /// The card makes it, from the frame that was sent before it: it does not cross PCIe.
    Copy,
}

/// A frame under way.
#[derive(Debug)]
pub struct FrameInFlight {
    pub(crate) frame: Vec<u8>,
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) stage: Stage,
    pub(crate) first: Stage,
    pub(crate) way: Launch,
    /// Whether it counts as waiting at its sender.
    pub(crate) queued: bool,
    /// The incarnations of the sender's node when it was sent.
    pub(crate) since: Since,
}

/// A vector of transfers of one kind, or a persist.
#[derive(Debug)]
pub struct Vector {
    pub(crate) engine: u32,
    pub(crate) operations: Vec<Operation>,
    pub(crate) moved: bool,
    /// Whether it has reached the DMA engine.
    pub(crate) begun: bool,
    /// The incarnations of its node when it was submitted.
    pub(crate) since: Since,
    /// Persists: the numbers of their writes on the medium, if it keeps content.
    pub(crate) sequences: Vec<u64>,
}

/// The next stage of a verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerbStage {
    /// The requester's NIC sends it.
    Issue,
    /// It reaches the target's NIC.
    Arrive,
    /// It reaches the target's memory.
    Execute,
    /// The response reaches the requester's NIC.
    Return,
    /// The completion is in the requester's memory.
    Done,
}

/// A verb under way on a reliable connection.
#[derive(Debug)]
pub struct VerbInFlight {
    pub(crate) operation: Operation,
    pub(crate) engine: u32,
    pub(crate) target: NodeId,
    pub(crate) stage: VerbStage,
    pub(crate) execution: Execution,
    /// The incarnations of the requester's node when it was posted.
    pub(crate) since: Since,
    /// The incarnations of the target's node at that time: a connection does not outlive them.
    pub(crate) target_since: Since,
    /// The number of its operations, each with packets of its own.
    pub(crate) verbs: u64,
    /// Bytes of operands that its packets carry to the target.
    pub(crate) operands: u64,
    pub(crate) tries: u64,
}
