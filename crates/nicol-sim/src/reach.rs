//! A card's way to memory: when it makes an access, and when the result arrives.

use nicol_core::chain::Touch;
use nicol_core::engine::Operation;
use nicol_core::ids::Side;
use nicol_core::units::Picos;

use crate::chain::Wanted;
use crate::hw::{NodeHardware, NodeModel};

/// The time on the lanes between the two instants at which a vector's long reads look at memory:
/// that of the second half of the longest. `None` if none is longer than a line.
pub fn reads_apart(model: &NodeModel, vector: &[Operation]) -> Option<Picos> {
    vector.iter().filter_map(|operation| rest_on_lanes(model, operation)).max()
}

/// The time on the lanes of the second half of a long DMA read.
pub fn rest_on_lanes(model: &NodeModel, operation: &Operation) -> Option<Picos> {
    let half = operation.first_half()?;
    Some(model.hardware.on_lanes(operation.dma_bytes() - half as u64))
}

/// The time at which an access to memory of `side` of a node is made that its card begins at
/// `from`.
pub fn access_memory(
    model: &NodeModel,
    node: &mut NodeHardware,
    wanted: Wanted,
    asker: Option<Side>,
    first: bool,
    from: Picos,
) -> Picos {
    let (side, _, touch) = wanted;
    if let Some(card) = &mut node.inside {
        let latency = model.profile.verbs.read_latency.value;
        return card.access(&mut node.lanes_to_host, wanted, latency, asker, first, from);
    }
    match touch {
        _ if model.is_off_path(side) => from + model.off_path,
        Touch::Store(bytes) => node.lanes_to_host.reserve(from, model.hardware.on_lanes(bytes)).end,
        Touch::Fetch(_) | Touch::Atomic(_) => {
            from + Picos(model.profile.verbs.read_latency.value.0 / 2)
        }
    }
}

/// The time at which the card has the result of an access made now: from NIC cores off the path at
/// least that it was made.
pub fn fetched(
    model: &NodeModel,
    node: &mut NodeHardware,
    wanted: Wanted,
    asker: Option<Side>,
    now: Picos,
) -> Picos {
    let (side, _, touch) = wanted;
    if let Some(card) = &mut node.inside {
        let latency = model.profile.verbs.read_latency.value;
        return card.fetched(&mut node.lanes_to_nic, side, touch, latency, asker, now);
    }
    if model.is_off_path(side) {
        return now + model.off_path;
    }
    let (Touch::Fetch(bytes) | Touch::Atomic(bytes)) = touch else { return now };
    let latency = model.profile.verbs.read_latency.value.0;
    let span = model.hardware.on_lanes(bytes);
    node.lanes_to_nic.reserve(now, span).end.max(now + Picos(latency - latency / 2))
}

/// The time at which the card knows that what ended with `touch`, made now, is in memory, and so
/// may acknowledge it. What was read was there before.
pub fn confirmed(model: &NodeModel, touch: Touch, now: Picos) -> Picos {
    match (touch, &model.profile.verbs.write_latency) {
        (Touch::Store(_), Some(latency)) => now + latency.value,
        _ => now,
    }
}
