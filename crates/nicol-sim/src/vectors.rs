//! DMA on the move: vectors of transfers, and persists, from their queue to their completion.

use nicol_core::engine::{Charge, Operation, Transfer};
use nicol_core::fabric::FabricError;
use nicol_core::ids::{NodeId, Side};
use nicol_core::units::{Nanos, Picos};

use crate::hw::picos;
use crate::in_flight::Vector;
use crate::kernel::Event;
use crate::reach::reads_apart;
use crate::shared::Shared;
use crate::state::State;
use crate::{persists, verbs};

/// Submits a vector at `at`. Without a DMA engine its transfers are verbs to the own node.
pub(crate) fn submit(shared: &Shared, engine: usize, batch: &mut Vec<Operation>, at: Nanos) {
    let first = batch.first().map(|first| &first.transfer);
    let persists = matches!(first, Some(Transfer::Persist { .. } | Transfer::Fill { .. }));
    let node = shared.engines[engine].node;
    let model = shared.model(node);
    if !persists && model.transfers_by_verbs() {
        return verbs::post(shared, engine, node, batch, at);
    }
    let operations: Vec<_> = std::mem::take(batch);
    let state = &mut *shared.state.borrow_mut();
    if persists {
        return persists::submit(shared, state, engine, operations, at);
    }
    let sequences = Vec::new();
    let (engine, since) = (engine as u32, state.since(node));
    let vector = Vector { engine, operations, moved: false, begun: false, since, sequences };
    let number = state.vectors.insert(vector);
    state.kernel.push(at, Event::DmaSubmitted(number));
}

/// A vector reaches its queue.
pub(crate) fn begin(shared: &Shared, state: &mut State, number: u32) {
    if is_orphan(shared, state, number) {
        return drop(state.vectors.remove(number));
    }
    let now = picos(state.kernel.now());
    let vector = state.vectors.get_mut(number);
    vector.begun = true;
    let engine = shared.engines[vector.engine as usize];
    let model = shared.model(engine.node);
    let reads = vector.operations.first().is_some_and(Operation::reads);
    let requests = vector.operations.len() as u64;
    let lanes = vector.operations.iter();
    let lanes = lanes.map(|operation| model.hardware.on_lanes(operation.dma_bytes()));
    let lanes = lanes.fold(Picos(0), |sum, span| sum + span);
    let dma = &model.profile.dma;
    let latency = if reads { dma.read_latency.value } else { dma.write_latency.value };
    let node = &mut state.nodes[usize::from(engine.node.0)];
    let queue = usize::from(engine.core);
    let slot = node.admit_dma(&model.hardware, queue, now, requests);
    let mut moved = slot.start + Picos(latency.0 / 2);
    if model.nic_is_separate {
        // A NIC's read and a host's write move bytes towards the NIC.
        let to_nic = reads == (engine.side == Side::Nic);
        if let Some(card) = &mut node.inside {
            let vector = state.vectors.get_mut(number);
            let bytes = vector.operations.iter().map(Operation::dma_bytes).sum();
            moved = moved.max(card.dma(to_nic, requests, bytes, slot.start));
        }
        // What a NIC with queues writes to its host is what drains from them.
        let queues = model.profile.nic_queues.as_ref();
        let drains = !to_nic && !reads && queues.is_some_and(|queues| queues.background.value);
        let there = match (drains, to_nic) {
            (true, _) => node.drain(slot.start, lanes),
            (false, true) => node.lanes_to_nic.reserve(slot.start, lanes).end,
            (false, false) => node.lanes_to_host.reserve(slot.start, lanes).end,
        };
        moved = moved.max(there);
    }
    let vector = state.vectors.get_mut(number);
    if let Some(apart) = reads_apart(model, &vector.operations) {
        let half = Picos(moved.0.saturating_sub(apart.0)).max(slot.start);
        state.kernel.push(half.to_nanos_up(), Event::DmaHalfMoved(number));
    }
    state.kernel.push(moved.to_nanos_up(), Event::DmaMoved(number));
}

/// The first halves of a vector's long reads move: a write from now until the rest moves tears
/// them.
pub(crate) fn move_half(shared: &Shared, state: &mut State, number: u32) {
    if is_orphan(shared, state, number) || has_lost_target(shared, state, number) {
        return;
    }
    let vector = state.vectors.get_mut(number);
    vector.operations.iter_mut().for_each(Operation::execute_first_half);
}

/// The bytes of a vector move, of its long reads the rest; the completion status follows.
pub(crate) fn move_rest(shared: &Shared, state: &mut State, number: u32) {
    if is_orphan(shared, state, number) {
        return drop(state.vectors.remove(number));
    }
    let now = picos(state.kernel.now());
    let lost = has_lost_target(shared, state, number);
    let vector = state.vectors.get_mut(number);
    vector.moved = true;
    for operation in &mut vector.operations {
        if lost {
            operation.result = Err(FabricError::Unreachable);
        } else {
            operation.execute_local();
        }
    }
    let dma = &shared.model(shared.engines[vector.engine as usize].node).profile.dma;
    let reads = vector.operations.first().is_some_and(Operation::reads);
    let latency = if reads { dma.read_latency.value } else { dma.write_latency.value };
    let status = Picos(latency.0 - latency.0 / 2);
    state.kernel.push((now + status).to_nanos_up(), Event::DmaCompleted(number));
}

/// A vector, or a persist, is complete.
pub(crate) fn complete(shared: &Shared, state: &mut State, number: u32) {
    let (orphan, lost) = (is_orphan(shared, state, number), has_lost_target(shared, state, number));
    let Vector { engine, operations, moved, sequences, .. } = state.vectors.remove(number);
    let node = shared.engines[engine as usize].node;
    if !lost && !shared.syncs_nothing {
        let medium = &mut state.media[usize::from(node.0)];
        sequences.into_iter().for_each(|sequence| medium.sync(sequence));
    }
    if orphan {
        return;
    }
    let mut charge = moved.then_some(Charge::DmaCompleted);
    for mut operation in operations {
        if !moved && lost {
            operation.result = Err(FabricError::Unreachable);
        } else if !moved {
            operation.execute_local();
        }
        state.finish(engine as usize, operation, charge.take());
    }
}

/// Whether the engine that submitted vector `number` has crashed since.
pub(crate) fn is_orphan(shared: &Shared, state: &mut State, number: u32) -> bool {
    if !state.has_crashes {
        return false;
    }
    let Vector { engine, since, .. } = *state.vectors.get_mut(number);
    let engine = shared.engines[engine as usize];
    state.has_crashed(engine.node, engine.side, since)
}

/// Whether the memory that vector `number` moves to or from has crashed since it was submitted.
pub(crate) fn has_lost_target(shared: &Shared, state: &mut State, number: u32) -> bool {
    if !state.has_crashes {
        return false;
    }
    let vector = state.vectors.get_mut(number);
    let first = vector.operations.first().map(|first| &first.transfer);
    // What a write to the log device, or into the NIC's queues, takes is of one side.
    let alone = match first {
        Some(Transfer::Persist { region, .. }) => Some(region.owner().unwrap_or(Side::Host)),
        Some(Transfer::Fill { .. }) => Some(Side::Nic),
        _ => None,
    };
    let (engine, since) = (shared.engines[vector.engine as usize], vector.since);
    let target = match engine.side {
        _ if alone.is_some() => alone.unwrap_or(Side::Host),
        Side::Host => Side::Nic,
        Side::Nic => Side::Host,
    };
    state.has_crashed(engine.node, target, since)
}

/// DMA writes that the crash of the NICs of `node` catches under way land in part: from the
/// first on, in ascending order, up to some line.
pub(crate) fn land_in_part(shared: &Shared, state: &mut State, node: NodeId) {
    let host_lives = state.is_up(node, Side::Host);
    let rng = &mut state.medium_rng;
    for vector in state.vectors.iter_mut() {
        let from = shared.engines[vector.engine as usize];
        let under_way = vector.begun && !vector.moved && host_lives;
        if !under_way || from.node != node || from.side != Side::Nic {
            continue;
        }
        let mut left = rng.below(1 + vector.operations.iter().map(lines).sum::<u64>());
        for operation in &vector.operations {
            land_lines(operation, left);
            left = left.saturating_sub(lines(operation));
        }
    }
}

/// Bytes of a line of memory: what is in one moves at one instant.
const LINE: usize = 64;

/// Lets the first `left` lines of a DMA write land; nothing of other transfers.
fn land_lines(operation: &Operation, left: u64) {
    let Transfer::DmaWrite { region, offset, .. } = &operation.transfer else { return };
    let bytes = operation.buffer.len().min(left as usize * LINE);
    // What is out of bounds moves nothing, as in a whole transfer.
    if bytes > 0 && region.check(*offset, operation.buffer.len() as u64).is_ok() {
        let landed = region.write(*offset, &operation.buffer[..bytes]);
        assert!(landed.is_ok(), "the range was checked");
        region.doorbell().ring();
    }
}

/// Lines of memory that a DMA write moves; none for other transfers.
fn lines(operation: &Operation) -> u64 {
    match operation.transfer {
        Transfer::DmaWrite { .. } => operation.buffer.len().div_ceil(LINE) as u64,
        _ => 0,
    }
}
