//! Frames on their way: which resources they occupy, one after another.

use nicol_core::faults::FrameFault;
use nicol_core::ids::{EngineId, Side};
use nicol_core::units::{Nanos, Picos};

use crate::hw::{Crossing, NodeHardware, NodeModel, Way, picos};
use crate::in_flight::{FrameInFlight, Launch, Stage};
use crate::kernel::Event;
use crate::shared::Shared;
use crate::state::State;

/// Sends a frame on its way at `at`; `Err` if the sender's queue is full.
pub(crate) fn launch(
    shared: &Shared,
    from: usize,
    to: EngineId,
    frame: Vec<u8>,
    at: Nanos,
    way: Launch,
) -> Result<(), Vec<u8>> {
    let Some(to) = shared.view.index_of(to) else { return Ok(()) };
    let state = &mut *shared.state.borrow_mut();
    state.cores[from].let_frames_leave(state.kernel.now());
    if state.cores[from].queued >= shared.model(shared.engines[from].node).queue_frames {
        return Err(frame);
    }
    let (stage, wait) = first_stage(shared, shared.engines[from], shared.engines[to]);
    let queued = stage != Stage::Deliver;
    state.cores[from].queued += u64::from(queued);
    let (from, to, first) = (from as u32, to as u32, stage);
    let since = state.since(shared.engines[from as usize].node);
    let frame_in_flight = FrameInFlight { frame, from, to, stage, first, way, queued, since };
    let number = state.frames.insert(frame_in_flight);
    schedule(state, number, stage, picos(at + wait));
    Ok(())
}

fn first_stage(shared: &Shared, from: EngineId, to: EngineId) -> (Stage, Nanos) {
    let (source, target) = (shared.memory_of(from), shared.memory_of(to));
    let model = shared.model(from.node);
    match (from.node == to.node, source, target) {
        (true, Side::Host, Side::Host) => (Stage::Deliver, model.host_latency),
        (true, Side::Nic, Side::Nic) => (Stage::Deliver, model.nic_latency),
        (true, Side::Nic, Side::Host) => (Stage::ToHost, model.off_path_out.to_nanos_up()),
        (false, Side::Nic, _) => (Stage::Egress, model.off_path_out.to_nanos_up()),
        (_, Side::Host, _) => (Stage::ToNic, Nanos::ZERO),
    }
}

/// Moves frame `number` on by one resource.
pub(crate) fn advance(shared: &Shared, state: &mut State, number: u32) {
    let now = state.kernel.now();
    let frame_in_flight = state.frames.get_mut(number);
    let (from, to) = (frame_in_flight.from as usize, frame_in_flight.to as usize);
    let (source, target) = (shared.engines[from], shared.engines[to]);
    let bytes = frame_in_flight.frame.len() as u64;
    let (stage, rings) = (frame_in_flight.stage, frame_in_flight.way == Launch::Rings);
    let waits = frame_in_flight.queued && stage != frame_in_flight.first;
    if state.has_crashes && is_cut_off(shared, state, number) {
        return drop_frame(shared, state, number);
    }
    if waits {
        // What waits before its first resource counts as queued at its sender.
        leave_queue(state, number);
    }
    match stage {
        Stage::ToNic => cross_to_nic(shared, state, number, bytes),
        Stage::ForwardOut => forward(shared, state, number, source),
        Stage::Egress => leave_node(shared, state, number, bytes, now),
        Stage::Ingress => enter_node(shared, state, number, bytes),
        Stage::ForwardIn => forward(shared, state, number, target),
        Stage::ToHost => {
            let node = usize::from(target.node.0);
            let way = Crossing::ToHost;
            let model = shared.model(target.node);
            let node = &mut state.nodes[node];
            let mut from = picos(now);
            if source.node == target.node {
                from = pass_units(node, model, (source, Way::ToUnits), bytes, from);
                from = pass_units(node, model, (target, Way::ToMemory), bytes, from);
            }
            let slot = node.cross(&model.hardware, way, from, bytes, rings);
            let end = slot.end + model.to_host_latency;
            schedule(state, number, Stage::Deliver, end);
        }
        Stage::Deliver => deliver(shared, state, number),
    }
}

/// The PCIe queue to the NIC, and the sender's link where that is known to be next.
fn cross_to_nic(shared: &Shared, state: &mut State, number: u32, bytes: u64) {
    let now = picos(state.kernel.now());
    let (source, target) = ends(shared, state, number);
    let way = state.frames.get_mut(number).way;
    let model = shared.model(source.node);
    let node = &mut state.nodes[usize::from(source.node.0)];
    let crossed = match way {
        // Right behind the frame of which it is a copy.
        Launch::Copy => node.lanes_to_nic.free_at().max(now),
        Launch::Rings | Launch::Rides => {
            let rings = way == Launch::Rings;
            node.cross(&model.hardware, Crossing::ToNic, now, bytes, rings).end
        }
    };
    let next = match (source.node == target.node, model.on_path) {
        (true, _) => Stage::Deliver,
        (false, true) => Stage::ForwardOut,
        (false, false) => Stage::Egress,
    };
    let mut at = crossed + model.to_nic_latency;
    if next == Stage::Deliver {
        at = pass_units(node, model, (source, Way::ToUnits), bytes, at);
        at = pass_units(node, model, (target, Way::ToMemory), bytes, at);
        at += model.off_path_in;
    }
    let is_alone = node.inside.is_none() && node.link_out_alone.holds(&node.link_out);
    if next == Stage::Egress && is_alone && shared.links_at_once {
        let at = at.to_nanos_up();
        leave_queue_at(state, number, at);
        leave_node(shared, state, number, bytes, at);
        let node = &mut state.nodes[usize::from(source.node.0)];
        node.link_out_alone.took(&node.link_out);
    } else {
        schedule(state, number, next, at);
    }
}

/// The receiver's link, and the PCIe queue to its host where that is known to be next.
fn enter_node(shared: &Shared, state: &mut State, number: u32, bytes: u64) {
    let now = picos(state.kernel.now());
    let (_, target) = ends(shared, state, number);
    let model = shared.model(target.node);
    let node = &mut state.nodes[usize::from(target.node.0)];
    let slot = node.link_in.reserve(now, model.hardware.on_wire(bytes));
    let end = pass_units(node, model, (target, Way::ToMemory), bytes, slot.end);
    let is_alone = node.inside.is_none() && node.to_host_alone.holds(&node.lanes_to_host);
    let (next, at) = match (model.memory_of(target), model.on_path) {
        (Side::Nic, _) => (Stage::Deliver, end + model.off_path_in),
        (Side::Host, true) => (Stage::ForwardIn, end),
        (Side::Host, false) if is_alone => {
            let from = picos(end.to_nanos_up());
            let slot = node.cross(&model.hardware, Crossing::ToHost, from, bytes, false);
            node.to_host_alone.took(&node.lanes_to_host);
            (Stage::Deliver, slot.end + model.to_host_latency)
        }
        (Side::Host, false) => (Stage::ToHost, end),
    };
    schedule(state, number, next, at);
}

/// The sender and the receiver of frame `number`.
fn ends(shared: &Shared, state: &mut State, number: u32) -> (EngineId, EngineId) {
    let FrameInFlight { from, to, .. } = *state.frames.get_mut(number);
    (shared.engines[from as usize], shared.engines[to as usize])
}

/// Whether frame `number` is still in memory of its sender's node, which a crash has taken away.
fn is_cut_off(shared: &Shared, state: &mut State, number: u32) -> bool {
    let FrameInFlight { from, stage, first, since, .. } = *state.frames.get_mut(number);
    let source = shared.engines[from as usize];
    let side = match stage {
        // On the wire, or beyond.
        Stage::Ingress => return false,
        _ if stage == first => source.side,
        Stage::ForwardOut | Stage::Egress => match shared.model(source.node).card_side() {
            Side::Nic => Side::Nic,
            // A card that lives as long as its machine sends from the memory of its sender.
            Side::Host => source.side,
        },
        Stage::ToNic | Stage::ForwardIn | Stage::ToHost | Stage::Deliver => return false,
    };
    state.has_crashed(source.node, side, since)
}

/// Lets frame `number` reach its next resource at `at`. Its receiver's queue takes it at once,
/// with that time on it, unless something else is to happen then: a queue at the sender has
/// room again, or the receiver is down, and may be back. Decision 0066
fn schedule(state: &mut State, number: u32, next: Stage, at: Picos) {
    let at = at.to_nanos_up();
    let frame_in_flight = state.frames.get_mut(number);
    frame_in_flight.stage = next;
    let receiver = frame_in_flight.to as usize;
    if next != Stage::Deliver || frame_in_flight.queued || state.cores[receiver].dead {
        state.kernel.push(at, Event::Frame(number));
    } else {
        state.cores[receiver].await_frame(at, number);
        state.request_round(receiver, at);
    }
}

/// Queues the frame at the NIC core that works for `host` engine.
fn forward(shared: &Shared, state: &mut State, number: u32, host: EngineId) {
    let nic = shared.view.nic_of(host.node, host.core);
    match shared.view.index_of(nic) {
        Some(core) if !state.cores[core].dead => {
            state.cores[core].forward.push_back(number);
            state.request_round(core, state.kernel.now());
        }
        _ => drop_frame(shared, state, number),
    }
}

/// The wire, from `now` on: the sender's link, the switch, and what goes wrong there.
fn leave_node(shared: &Shared, state: &mut State, number: u32, bytes: u64, now: Nanos) {
    let frame_in_flight = state.frames.get_mut(number);
    let (from, to) = (frame_in_flight.from, frame_in_flight.to);
    let (source, target) = (shared.engines[from as usize], shared.engines[to as usize]);
    let model = shared.model(source.node);
    let wire = model.hardware.on_wire(bytes);
    let node = &mut state.nodes[usize::from(source.node.0)];
    let ready = pass_units(node, model, (source, Way::ToUnits), bytes, picos(now));
    let slot = node.link_out.reserve(ready, wire);
    // The receiver's link carries the first bit while the sender's still sends the last, and is
    // never behind one of its own kind.
    let receiver = shared.model(target.node);
    let is_alike = std::ptr::eq(model, receiver);
    let behind = if is_alike { Picos(0) } else { receiver.hardware.behind(wire, bytes) };
    let arrives = (slot.start + behind + model.wire_latency).to_nanos_up();
    if shared.holds_frames {
        state.frames.get_mut(number).stage = Stage::Ingress;
        state.held.push(number);
        return;
    }
    let fault = state.faults.judge(now, source.node, target.node);
    trace_fault(shared, state, number, &fault);
    if let Some(delay) = fault.again {
        let FrameInFlight { frame, since, .. } = state.frames.get_mut(number);
        let (frame, since, first) = (frame.clone(), *since, Stage::Ingress);
        if let Some(trace) = &shared.trace {
            trace.sink().frame_copied(&state.frames.get_mut(number).frame, &frame);
        }
        let (stage, way, queued) = (first, Launch::Rides, false);
        let copy = FrameInFlight { frame, from, to, stage, first, way, queued, since };
        let copy = state.frames.insert(copy);
        state.kernel.push(arrives + delay, Event::Frame(copy));
    }
    let Some(delay) = fault.arrives else { return drop_frame(shared, state, number) };
    if fault.flips > 0 {
        state.faults.flip(&mut state.frames.get_mut(number).frame, fault.flips);
    }
    state.frames.get_mut(number).stage = Stage::Ingress;
    state.kernel.push(arrives + delay, Event::Frame(number));
}

/// Records what happens to frame `number` on the wire.
fn trace_fault(shared: &Shared, state: &mut State, number: u32, fault: &FrameFault) {
    let Some(trace) = &shared.trace else { return };
    let now = state.kernel.now();
    let frame = &state.frames.get_mut(number);
    let ends = [frame.from, frame.to].map(|end| shared.engines[end as usize].node);
    let ends = (ends[0], ends[1]);
    let cut = state.faults.is_cut(now, ends.0, ends.1);
    let faults = [
        (fault.arrives.is_none() && cut, "cut off"),
        (fault.arrives.is_none() && !cut, "lost"),
        (fault.arrives.is_some_and(|delay| delay > Nanos::ZERO), "late"),
        (fault.again.is_some(), "duplicated"),
        (fault.flips > 0, "damaged"),
    ];
    for (_, fault) in faults.into_iter().filter(|(struck, _)| *struck) {
        trace.frame(now, fault, &frame.frame, ends);
    }
}

/// Frame `number` makes room at its sender, if it took any.
fn leave_queue(state: &mut State, number: u32) {
    let frame_in_flight = state.frames.get_mut(number);
    if !std::mem::take(&mut frame_in_flight.queued) {
        return;
    }
    let from = frame_in_flight.from as usize;
    state.cores[from].queued -= 1;
    if std::mem::take(&mut state.cores[from].blocked) {
        state.request_round(from, state.kernel.now());
    }
}

/// The same at a time that is known.
fn leave_queue_at(state: &mut State, number: u32, at: Nanos) {
    let frame_in_flight = state.frames.get_mut(number);
    frame_in_flight.queued = false;
    let from = frame_in_flight.from as usize;
    let core = &mut state.cores[from];
    core.leaving.push_back(at);
    if std::mem::take(&mut core.blocked) {
        state.request_round(from, at);
    }
}

/// Drops frame `number`, and gives back what it holds at its sender.
pub(crate) fn drop_frame(shared: &Shared, state: &mut State, number: u32) {
    leave_queue(state, number);
    let frame = state.frames.remove(number).frame;
    if let Some(trace) = &shared.trace {
        trace.sink().frame_ended(&frame);
    }
    shared.recycle_frame(frame);
}

fn deliver(shared: &Shared, state: &mut State, number: u32) {
    let now = state.kernel.now();
    let FrameInFlight { frame, from, to, .. } = state.frames.get_mut(number);
    let (from, to) = (*from as usize, *to as usize);
    if state.cores[to].dead {
        state.faults.counts.dead += 1;
        if let Some(trace) = &shared.trace {
            let ends = (shared.engines[from].node, shared.engines[to].node);
            trace.frame(now, "receiver is down", frame, ends);
        }
        return drop_frame(shared, state, number);
    }
    state.cores[to].await_frame(now, number);
    state.request_round(to, now);
}

/// The next frame that has arrived at engine `index`.
#[inline]
pub(crate) fn receive(shared: &Shared, state: &mut State, index: usize) -> Option<Vec<u8>> {
    // Most rounds find none: told in line.
    state.cores[index].next_frame().filter(|arrival| *arrival <= shared.now.get())?;
    take_first(state, index)
}

fn take_first(state: &mut State, index: usize) -> Option<Vec<u8>> {
    let (_, number) = state.cores[index].inbox.pop_front()?;
    let FrameInFlight { frame, from, to, .. } = state.frames.remove(number);
    state.kernel.note(u64::from(from) << 40 ^ u64::from(to) << 20 ^ frame.len() as u64);
    Some(frame)
}

/// A NIC core is done with passing frame `number` on at `at`.
pub(crate) fn passed_on(state: &mut State, number: u32, at: Nanos) {
    let stage = &mut state.frames.get_mut(number).stage;
    *stage = match stage {
        Stage::ForwardOut => Stage::Egress,
        _ => Stage::ToHost,
    };
    state.kernel.push(at, Event::Frame(number));
}

/// The size of frame `number`.
pub(crate) fn bytes_of(state: &mut State, number: u32) -> u64 {
    state.frames.get_mut(number).frame.len() as u64
}

/// Takes a frame through the units of a card whose inside is modelled, from or to the memory of an
/// engine; when it goes on. Memory beside the switch is reached here, that of a host by its queues.
#[inline]
fn pass_units(
    node: &mut NodeHardware,
    model: &NodeModel,
    (end, way): (EngineId, Way),
    bytes: u64,
    from: Picos,
) -> Picos {
    let Some(card) = &mut node.inside else { return from };
    let side = model.memory_of(end);
    let passed = card.frame(side, model.hardware.packets(bytes), from);
    match side {
        Side::Host => passed,
        Side::Nic => card.carry(&mut node.lanes_to_nic, side, way, bytes, passed, false),
    }
}
