//! Messages that must arrive: one-way where the route is reliable, else requests (decision 0031).

use nicol_core::fabric::{Fabric, FabricError, Fanout, Message, Timeout};
use nicol_core::ids::EngineId;
use nicol_core::units::Nanos;

use super::messages::{Ack, AckC, AckP, Val, ValC, ValP};
use super::model::Memory;

/// How long a message waits that found no call slot.
const CALL_RETRY: Nanos = Nanos::from_micros(5);

/// Sends `message` to `to`.
pub(super) fn tell<F: Fabric, M: Message + 'static>(fabric: &F, to: EngineId, message: M) {
    if fabric.is_reliable(to) {
        return fabric.send(to, &message);
    }
    let sender = fabric.clone();
    fabric.spawn(async move { insist(&sender, to, &message).await });
}

/// Sends the ACK that vouches for `memory`.
pub(super) fn tell_ack<F: Fabric>(fabric: &F, to: EngineId, memory: Memory, ack: Ack) {
    match memory {
        Memory::Both => tell(fabric, to, ack),
        Memory::Volatile => tell(fabric, to, AckC(ack)),
        Memory::Durable => tell(fabric, to, AckP(ack)),
    }
}

/// Sends the VAL that vouches for `memory` to each of `to`.
pub(super) fn tell_val<F: Fabric>(
    fabric: &F,
    to: &[EngineId],
    memory: Memory,
    val: Val,
    fanout: Fanout,
) {
    match memory {
        Memory::Both => tell_each(fabric, to, val, fanout),
        Memory::Volatile => tell_each(fabric, to, ValC(val), fanout),
        Memory::Durable => tell_each(fabric, to, ValP(val), fanout),
    }
}

/// Sends `message` to each of `to`, which are on other nodes.
pub(super) fn tell_each<F: Fabric, M: Message + Copy + 'static>(
    fabric: &F,
    to: &[EngineId],
    message: M,
    fanout: Fanout,
) {
    let others = send_reliably(fabric, to, &message, fanout);
    others.into_iter().for_each(|to| tell(fabric, to, message));
}

/// Sends `message` to those of `to` to which routes are reliable; returns the others.
pub(super) fn send_reliably<F: Fabric, M: Message>(
    fabric: &F,
    to: &[EngineId],
    message: &M,
    fanout: Fanout,
) -> Vec<EngineId> {
    let (reliable, others): (Vec<EngineId>, Vec<EngineId>) =
        to.iter().partition(|to| fabric.is_reliable(**to));
    fabric.send_each(&reliable, message, fanout);
    others
}

/// Sends a request until it has arrived, or its receiver is no member of the view.
pub(super) async fn insist<F: Fabric, M: Message>(fabric: &F, to: EngineId, message: &M) {
    while let Err(FabricError::NoResources) = fabric.call(to, message, Timeout::Never).await {
        fabric.sleep_until(fabric.now() + CALL_RETRY).await;
    }
}
