//! `Fabric`: everything a protocol may do to the world, and the only way to do it.
//!
//! It has a trait for each group of operations, with that group's contract: [`Local`],
//! [`Messages`], [`OneSidedOps`], [`Pcie`], [`Durability`], [`SharedMemory`]. Code that needs one
//! group is bound to that one; protocols take one type parameter, `F: Fabric`, which has them all.

mod completions;
mod durability;
mod local;
mod messages;
mod one_sided;
mod pcie;
mod shared_memory;
mod work;

pub use crate::ids::{ReplyTo, RequestId};
pub use completions::Completions;
pub use durability::Durability;
pub use local::Local;
pub use messages::{Delivery, Fanout, Message, Messages, Service, Timeout};
pub use one_sided::{OneSided, OneSidedOps};
pub use pcie::Pcie;
pub use shared_memory::{HasDoorbell, SharedMemory};
pub use work::Work;

use crate::memory::AccessError;

/// A fault of the fabric: a result, never a panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FabricError {
    /// No such engine in this view; or, for a one-sided operation, the NIC has given up after its
    /// retries, and the operation may have taken effect once.
    #[error("the engine is not reachable")]
    Unreachable,
    /// The timeout is over. The request may still take effect, unless a later call
    /// [supersedes](Messages::call_superseding) it.
    #[error("no reply in time")]
    TimedOut {
        /// Names the request for a call that supersedes it.
        request: RequestId,
    },
    /// The rkey, bounds or alignment were wrong. The memory is untouched.
    #[error("access denied: {0}")]
    AccessDenied(AccessError),
    /// The receiver has no space for the request (receiver not ready).
    #[error("the receiver has no resources")]
    NoResources,
    /// The receiver could not parse the request.
    #[error("the receiver found the message malformed")]
    Malformed,
}

/// The contract between a protocol and the world it runs in: all groups of operations together.
///
/// Nothing blocks, and a fault is a result, never a panic.
pub trait Fabric: Messages + OneSidedOps + Pcie + Durability + SharedMemory {}

impl<T: Messages + OneSidedOps + Pcie + Durability + SharedMemory> Fabric for T {}
