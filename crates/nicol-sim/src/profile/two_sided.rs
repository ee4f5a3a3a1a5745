//! What a message costs beyond a verb: how late the receiver's software takes it.

use nicol_core::units::Picos;
use serde::Deserialize;

use super::Sourced;

/// `[two_sided]`: latencies between the last byte of a frame in the receiver's memory and its
/// handling, on a card with verbs. They add up, delay each frame that has crossed the card, and
/// occupy no core: core time is `[host_core]`'s and `[nic_core]`'s. [PRISM21 2.1, AMB-47]
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TwoSided {
    /// Taking the entry of the receive queue that the frame is written to.
    pub receive_queue: Sourced<Picos>,
    /// Writing the entry of the completion queue.
    pub completion: Sourced<Picos>,
    /// Until the receiver, which polls many queues, comes to this one.
    pub polling: Sourced<Picos>,
    /// Until the coroutine or handler runs that the frame is for.
    pub scheduling: Sourced<Picos>,
}

impl TwoSided {
    /// All of them, one after another.
    pub fn latency(&self) -> Picos {
        let Self { receive_queue, completion, polling, scheduling } = self;
        receive_queue.value + completion.value + polling.value + scheduling.value
    }
}
