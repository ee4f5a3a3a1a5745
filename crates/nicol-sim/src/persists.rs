//! What is made durable, and what is written into a NIC's queues: which device takes it, and when.

use nicol_core::engine::{Operation, Transfer};
use nicol_core::ids::{EngineId, Side};
use nicol_core::units::{Nanos, Picos};

use crate::hw::{NodeHardware, NodeModel, picos};
use crate::in_flight::Vector;
use crate::kernel::Event;
use crate::shared::Shared;
use crate::state::State;

/// The device that takes a write which is no transfer between the sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Device {
    /// The node's log device.
    Log,
    /// The NIC's volatile queue. [MINOS24 V-B4]
    VolatileQueue,
    /// The NIC's durable queue. [MINOS24 V-B4]
    DurableQueue,
}

impl Device {
    /// The memory that a persist names says which.
    pub(crate) fn of(operation: &Operation) -> Self {
        match &operation.transfer {
            Transfer::Fill { .. } => Self::VolatileQueue,
            Transfer::Persist { region, .. } if region.owner() == Some(Side::Nic) => {
                Self::DurableQueue
            }
            _ => Self::Log,
        }
    }

    /// Takes `bytes` from `at` on; when they are there. Without queues on the NIC an entry is
    /// memory, and the log device the only one.
    fn take(self, model: &NodeModel, node: &mut NodeHardware, at: Picos, bytes: u64) -> Picos {
        let profile = &model.profile;
        let span = |latency: Picos, per_kib: Picos| latency + Picos((per_kib * bytes).0 >> 10);
        let log = span(profile.persist.latency.value, profile.persist.per_kib.value);
        match (self, &profile.nic_queues) {
            (Self::VolatileQueue, Some(queues)) => {
                at + span(queues.volatile_latency.value, queues.volatile_per_kib.value)
            }
            (Self::VolatileQueue, None) => at,
            (Self::DurableQueue, Some(queues)) => {
                at + span(queues.durable_latency.value, queues.durable_per_kib.value)
            }
            (Self::Log | Self::DurableQueue, _) => {
                let free = node.log_channels.iter_mut().min_by_key(|channel| channel.free_at());
                free.map_or(at + log, |channel| channel.reserve(at, log).end)
            }
        }
    }
}

/// The time at which `bytes` are durable that the core of `engine` persists from `at` on, where
/// cores persist themselves: it flushes them after earlier flushes. What a NIC asks for has landed
/// already.
fn flush(
    shared: &Shared,
    state: &mut State,
    engine: usize,
    model: &NodeModel,
    at: Picos,
    bytes: u64,
) -> Picos {
    let persist = &model.profile.persist;
    if shared.memory_of(shared.engines[engine]) == Side::Nic {
        return at;
    }
    let span = persist.latency.value + Picos((persist.per_kib.value * bytes).0 >> 10);
    state.cores[engine].flushes.reserve(at, span).end
}

/// Hands what an engine's round makes durable to the devices of its node, or what it writes
/// into entries of the NIC's volatile queue. A log device without channels takes a round's
/// writes as one; others, and the NIC's queues, take each by itshared.
pub(crate) fn submit(
    shared: &Shared,
    state: &mut State,
    engine: usize,
    mut operations: Vec<Operation>,
    at: Nanos,
) {
    let node = shared.engines[engine].node;
    let model = shared.model(node);
    let by_core = model.profile.persist.is_by_core();
    let channels = model.profile.persist.channels.is_some();
    let alone = |operation: &Operation| by_core || channels || Device::of(operation) != Device::Log;
    while !operations.is_empty() {
        let together = operations.iter().take_while(|operation| !alone(operation)).count();
        let rest = operations.split_off(together.max(1));
        let operations = std::mem::replace(&mut operations, rest);
        let device = Device::of(&operations[0]);
        let bytes = operations.iter().map(Operation::persisted_bytes).sum();
        let done = if by_core && device == Device::Log {
            flush(shared, state, engine, model, picos(at), bytes)
        } else {
            device.take(model, &mut state.nodes[node.index()], picos(at), bytes)
        };
        let sequences = match shared.keeps_content {
            true => write_medium(state, shared.engines[engine], &operations),
            false => Vec::new(),
        };
        let (engine, since) = (engine as u32, state.since(node));
        let vector = Vector { engine, operations, moved: false, begun: false, since, sequences };
        let number = state.vectors.insert(vector);
        state.kernel.push(done.to_nanos_up(), Event::DmaCompleted(number));
    }
}

/// Writes persists onto the medium; their numbers there.
pub(crate) fn write_medium(
    state: &mut State,
    engine: EngineId,
    persists: &[Operation],
) -> Vec<u64> {
    let medium = &mut state.media[usize::from(engine.node.0)];
    let write = |persist: &Operation| match &persist.transfer {
        Transfer::Persist { region, offset, .. } => {
            let side = region.owner().unwrap_or(Side::Host);
            Some(medium.submit((engine, side), region.label(), *offset, &persist.buffer))
        }
        _ => None,
    };
    persists.iter().filter_map(write).collect()
}
