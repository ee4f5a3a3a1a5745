//! The futures of transfers and one-sided operations, which complete outside the engine.

use std::future::Future;

use super::{FabricError, Local};
use crate::exec::Detached;

/// The results of operations that end elsewhere: calls, one-sided operations, DMAs, persists.
///
/// Contract: a completion resolves once, to bytes or to a fault. Completions resolve in the order
/// that the world decides. Dropping one abandons its result, never its effect.
pub trait Completions: Local {
    /// What calls, one-sided operations and DMAs resolve to: the reply's bytes.
    type Completion: Future<Output = Result<Self::Payload, FabricError>>
        + Detached
        + Unpin
        + 'static;

    /// Bytes in a pooled buffer, given back when dropped.
    type Payload: AsRef<[u8]> + 'static;

    /// Copies `bytes` into a pooled buffer, for a task that outlives a delivery.
    fn keep(&self, bytes: &[u8]) -> Self::Payload;
}
