//! Verbs on the move: from the requester's NIC to the target's memory, and back.

use std::ops::ControlFlow;

use nicol_core::chain::Touch;
use nicol_core::engine::{Charge, Operation, Transfer};
use nicol_core::fabric::FabricError;
use nicol_core::ids::{EngineId, NodeId, Side};
use nicol_core::units::{Nanos, Picos};
use nicol_core::view::View;

use crate::chain::{Execution, Next, Progress, Running};
use crate::hw::{NodeHardware, picos};
use crate::in_flight::{VerbInFlight, VerbStage};
use crate::kernel::Event;
use crate::reach::{access_memory, confirmed, fetched, rest_on_lanes};
use crate::shared::Shared;
use crate::state::State;

/// Posts a batch of verbs at `at`.
pub(crate) fn post(
    shared: &Shared,
    engine: usize,
    target: NodeId,
    batch: &mut Vec<Operation>,
    at: Nanos,
) {
    let state = &mut *shared.state.borrow_mut();
    let model = shared.model(shared.engines[engine].node);
    let verbs = &model.profile.verbs;
    // The card fetches what was posted: a way to the requester's memory and back.
    let fetched = model.beyond_switch(model.memory_of(shared.engines[engine])) * 2;
    let side = model.memory_of(shared.engines[engine]);
    let card = state.nodes[usize::from(shared.engines[engine].node.0)].inside.as_ref();
    let (ready, fetch) = match card {
        None => (picos(at) + verbs.post_latency.value + fetched, None),
        Some(card) => {
            let (start, each) = card.fetches(side, batch.len());
            // One request comes with its doorbell; several are fetched after it.
            let several = if batch.len() > 1 { fetched } else { Picos(0) };
            let ready = picos(at) + verbs.post_latency.value + card.posted(side) + several;
            (state.cores[engine].requester.reserve(ready, start).end, Some(each))
        }
    };
    let (since, target_since) = (state.since(shared.engines[engine].node), state.since(target));
    for operation in batch.drain(..) {
        let (count, operands) = match operation.transfer {
            Transfer::Verbs => (u64::from(operation.verbs()), operation.operand_bytes()),
            _ if operation.reads() => (1, 0),
            _ => (1, operation.dma_bytes()),
        };
        let interval = fetch.unwrap_or(verbs.requester_interval.value) * count;
        let slot = state.cores[engine].requester.reserve(ready, interval);
        let number = state.verbs.insert(VerbInFlight {
            verbs: count,
            operands,
            operation,
            engine: engine as u32,
            target,
            stage: VerbStage::Issue,
            execution: Execution::NotYet,
            since,
            target_since,
            tries: 0,
        });
        state.kernel.push(slot.start.to_nanos_up(), Event::Verb(number));
    }
}

/// Moves verb `number` on by one stage.
pub(crate) fn advance(shared: &Shared, state: &mut State, number: u32) {
    let at_requester = matches!(
        state.verbs.get_mut(number).stage,
        VerbStage::Issue | VerbStage::Return | VerbStage::Done
    );
    if at_requester && is_orphan(shared, state, number) {
        return drop(state.verbs.remove(number));
    }
    let verb = state.verbs.get_mut(number);
    match verb.stage {
        VerbStage::Issue => issue(shared, state, number),
        VerbStage::Arrive => arrive(shared, state, number),
        VerbStage::Execute => execute(shared, state, number),
        VerbStage::Return => land(shared, state, number),
        VerbStage::Done => {
            let verb = state.verbs.remove(number);
            state.finish(verb.engine as usize, verb.operation, Some(Charge::VerbCompleted));
        }
    }
}

fn ends(shared: &Shared, state: &mut State, number: u32) -> (NodeId, NodeId) {
    let verb = state.verbs.get_mut(number);
    (shared.engines[verb.engine as usize].node, verb.target)
}

/// The side whose engine asks, if the verb stays within its node.
fn asker(shared: &Shared, state: &mut State, number: u32) -> Option<Side> {
    let verb = state.verbs.get_mut(number);
    let engine = shared.engines[verb.engine as usize];
    (engine.node == verb.target).then_some(engine.side)
}

/// Bytes of a verb's packets there, or back.
fn bytes_of(shared: &Shared, state: &mut State, number: u32, back: bool) -> u64 {
    let verb = state.verbs.get_mut(number);
    let operation = &verb.operation;
    let carried = match operation.transfer {
        _ if !back => verb.operands,
        Transfer::Verbs => operation.buffer.len() as u64,
        _ if operation.reads() => operation.dma_bytes(),
        _ => 0,
    };
    let from = shared.engines[verb.engine as usize].node;
    shared.model(from).profile.verbs.header.value.0 * verb.verbs + carried
}

fn schedule(state: &mut State, number: u32, stage: VerbStage, at: Picos) {
    state.verbs.get_mut(number).stage = stage;
    state.kernel.push(at.to_nanos_up(), Event::Verb(number));
}

fn issue(shared: &Shared, state: &mut State, number: u32) {
    let now = state.kernel.now();
    let (source, target) = ends(shared, state, number);
    if retries(shared, state, number, source, target) {
        return;
    }
    send(shared, state, number, source, picos(now), VerbStage::Arrive);
}

/// Sends a verb's packets from `node` at `ready`, there or back: they reach the other node for
/// `stage`.
fn send(
    shared: &Shared,
    state: &mut State,
    number: u32,
    node: NodeId,
    ready: Picos,
    stage: VerbStage,
) {
    let (source, target) = ends(shared, state, number);
    let mut at = match stage {
        VerbStage::Arrive => leave_requester(shared, state, number, node, ready),
        _ => through_card(shared, state, number, node, ready),
    };
    let model = shared.model(node);
    if source != target {
        let bytes = bytes_of(shared, state, number, stage == VerbStage::Return);
        let link = &mut state.nodes[usize::from(node.0)].link_out;
        let wire = model.hardware.on_wire(bytes);
        let sent = link.reserve(at, wire).start;
        let taker = if stage == VerbStage::Return { source } else { target };
        let behind = shared.model(taker).hardware.behind(wire, bytes);
        at = sent + behind + model.profile.verbs.card_latency.value + model.wire_latency;
    } else if model.profile.off_path.is_some() {
        // From one endpoint of the card's switch to another. [Xenic21 3.1]
        at += model.profile.verbs.card_latency.value;
    }
    schedule(state, number, stage, at);
}

/// Takes a verb's packets from the wire to `node` and through its card.
fn take(shared: &Shared, state: &mut State, number: u32, node: NodeId, back: bool) -> Picos {
    let (source, target) = ends(shared, state, number);
    let mut arrived = picos(state.kernel.now());
    if source != target {
        let bytes = bytes_of(shared, state, number, back);
        let link = &mut state.nodes[usize::from(node.0)].link_in;
        arrived = link.reserve(arrived, shared.model(node).hardware.on_wire(bytes)).end;
    }
    let taken = through_card(shared, state, number, node, arrived);
    taken + shared.model(node).profile.verbs.card_latency.value
}

fn arrive(shared: &Shared, state: &mut State, number: u32) {
    let (_, target) = ends(shared, state, number);
    if has_lost_card(shared, state, number) || is_left_out(shared, state, number) {
        return retry(shared, state, number);
    }
    let at = take(shared, state, number, target, false);
    let verb = state.verbs.get_mut(number);
    let requester = shared.engines[verb.engine as usize].side;
    match verb.execution {
        Execution::NotYet if !matches!(verb.operation.transfer, Transfer::Verbs) => {
            let bytes = verb.operation.dma_bytes();
            let reads = verb.operation.reads();
            let touch = if reads { Touch::Fetch(bytes) } else { Touch::Store(bytes) };
            let side = match requester {
                Side::Nic => Side::Host,
                Side::Host => Side::Nic,
            };
            let wanted = (side, 0, touch);
            verb.execution = Execution::Moving(wanted);
            let node = &mut state.nodes[usize::from(target.0)];
            let model = shared.model(target);
            let moved = access_memory(model, node, wanted, Some(requester), true, at);
            if let Some(apart) = rest_on_lanes(model, &verb.operation) {
                let half = Picos(moved.0.saturating_sub(apart.0)).max(at);
                state.kernel.push(half.to_nanos_up(), Event::VerbHalfMoved(number));
            }
            schedule(state, number, VerbStage::Execute, moved);
        }
        Execution::NotYet => {
            let body = std::mem::take(&mut verb.operation.buffer);
            let running = Running::new(body, shared.tables[usize::from(target.0)].clone());
            if step(shared, state, number, running, Progress::Arrived, at) {
                schedule(state, number, VerbStage::Execute, at);
            }
        }
        // Only its response was lost.
        _ => schedule(state, number, VerbStage::Execute, at),
    }
}

/// The first half of a long DMA read moves that is a verb to the own node. The verb is on its
/// way to the memory, where nothing ends it.
pub(crate) fn move_half(shared: &Shared, state: &mut State, number: u32) {
    if !has_lost_memory(shared, state, number) {
        state.verbs.get_mut(number).operation.execute_first_half();
    }
}

/// Lets an execution that has come so far go on at `from`: true if it has ended, else its next
/// access is under way.
fn step(
    shared: &Shared,
    state: &mut State,
    number: u32,
    mut running: Running,
    progress: Progress,
    from: Picos,
) -> bool {
    let asker = asker(shared, state, number);
    let verb = state.verbs.get_mut(number);
    let model = shared.model(verb.target);
    let node = &mut state.nodes[usize::from(verb.target.0)];
    let first = progress == Progress::Arrived;
    let mut reach = |wanted| access_memory(model, node, wanted, asker, first, from);
    match running.step() {
        ControlFlow::Continue(Next::Access(wanted)) => {
            let at = match progress {
                Progress::Halfway(rest) => rest.max(from),
                Progress::Arrived | Progress::Between => reach(wanted),
            };
            verb.execution = Execution::Under(running, wanted);
            schedule(state, number, VerbStage::Execute, at);
            false
        }
        ControlFlow::Continue(Next::FirstOf(wanted, bytes)) => {
            let (rest, (_, _, touch)) = (reach(wanted), wanted);
            let apart = match touch {
                Touch::Fetch(len) => model.hardware.on_lanes(len - bytes),
                Touch::Store(_) | Touch::Atomic(_) => Picos(0),
            };
            verb.execution = Execution::Halfway(running, rest, wanted);
            let at = Picos(rest.0.saturating_sub(apart.0)).max(from);
            schedule(state, number, VerbStage::Execute, at);
            false
        }
        ControlFlow::Break((reply, result)) => {
            verb.execution = Execution::Ended;
            verb.operation.buffer = reply;
            verb.operation.result = result;
            true
        }
    }
}

/// The target's memory is accessed at this instant, and after the last access the response
/// sent.
fn execute(shared: &Shared, state: &mut State, number: u32) {
    let mut ready = picos(state.kernel.now());
    let (source, target) = ends(shared, state, number);
    if has_lost_memory(shared, state, number) {
        return retry(shared, state, number);
    }
    let asker = asker(shared, state, number);
    let verb = state.verbs.get_mut(number);
    let execution = std::mem::replace(&mut verb.execution, Execution::Ended);
    let node = &mut state.nodes[usize::from(target.0)];
    if let (Some(trace), Some((side, touch))) = (&shared.trace, execution.touches()) {
        trace.access(state.kernel.now(), target, side, touch);
    }
    match execution {
        Execution::Under(running, wanted) => {
            ready = fetched(shared.model(target), node, wanted, asker, ready);
            if !step(shared, state, number, running, Progress::Between, ready) {
                return;
            }
            ready = confirmed(shared.model(target), wanted.2, ready);
        }
        Execution::Halfway(running, rest, _) => {
            // The region may be gone since the first half: then the execution ends here.
            if !step(shared, state, number, running, Progress::Halfway(rest), ready) {
                return;
            }
        }
        Execution::Moving(wanted) => {
            verb.operation.execute_local();
            ready = fetched(shared.model(target), node, wanted, asker, ready);
        }
        Execution::NotYet | Execution::Ended => {}
    }
    if retries(shared, state, number, target, source) {
        return;
    }
    send(shared, state, number, target, ready, VerbStage::Return);
}

fn land(shared: &Shared, state: &mut State, number: u32) {
    let (source, target) = ends(shared, state, number);
    let taken = take(shared, state, number, source, true);
    let back = bytes_of(shared, state, number, true);
    let requester = shared.engines[state.verbs.get_mut(number).engine as usize];
    let node = &mut state.nodes[usize::from(source.0)];
    let model = shared.model(source);
    let side = model.memory_of(requester);
    let landed = match &mut node.inside {
        Some(card) => {
            let carried = back.saturating_sub(model.profile.verbs.header.value.0);
            card.land(&mut node.lanes_to_host, side, carried, source == target, taken)
        }
        None if model.is_off_path(side) => taken + model.off_path,
        None => node.lanes_to_host.reserve(taken, model.hardware.on_lanes(back)).end,
    };
    let at = landed + model.profile.verbs.completion_latency.value;
    schedule(state, number, VerbStage::Done, at);
}

/// Takes the card's processing of a verb that an engine of `node` has posted: when it leaves.
fn leave_requester(
    shared: &Shared,
    state: &mut State,
    number: u32,
    node: NodeId,
    from: Picos,
) -> Picos {
    let verb = state.verbs.get_mut(number);
    let (operands, within) = (verb.operands, verb.target == node);
    let side = shared.model(node).memory_of(shared.engines[verb.engine as usize]);
    let NodeHardware { inside, lanes_to_nic, .. } = &mut state.nodes[usize::from(node.0)];
    match inside {
        Some(card) => card.issue(lanes_to_nic, side, operands, within, from),
        None => through_card(shared, state, number, node, from),
    }
}

/// Takes the card's processing of a verb's packets at `node`. One whose inside is modelled
/// takes a unit when a request comes, and when it reaches memory.
fn through_card(
    shared: &Shared,
    state: &mut State,
    number: u32,
    node: NodeId,
    from: Picos,
) -> Picos {
    if state.nodes[usize::from(node.0)].inside.is_some() {
        return from;
    }
    let packets = state.verbs.get_mut(number).verbs;
    let interval = shared.model(node).profile.verbs.card_interval.value * packets;
    state.nodes[usize::from(node.0)].card.reserve(from, interval).end
}

/// Whether the way fails now. Then the requester's NIC sends the verb again, or gives it up. A verb
/// that was executed is not executed again: only its response was lost.
fn retries(shared: &Shared, state: &mut State, number: u32, from: NodeId, to: NodeId) -> bool {
    let now = state.kernel.now();
    let dead = has_lost_card(shared, state, number);
    let lost =
        dead || from != to && (state.faults.is_cut(now, from, to) || state.faults.strikes(now));
    if lost {
        retry(shared, state, number);
    }
    lost
}

/// Lets the requester's NIC send a verb again, or give it up after its last try.
fn retry(shared: &Shared, state: &mut State, number: u32) {
    let now = state.kernel.now();
    state.faults.counts.dead += u64::from(has_lost_card(shared, state, number));
    state.faults.counts.verb_retries += 1;
    let verb = state.verbs.get_mut(number);
    verb.tries += 1;
    let mut stage = VerbStage::Issue;
    let verbs = &shared.model(shared.engines[verb.engine as usize].node).profile.verbs;
    if verb.tries > verbs.retries.value {
        verb.operation.result = Err(FabricError::Unreachable);
        stage = VerbStage::Done;
    }
    let at = picos(now) + verbs.retry_after.value;
    schedule(state, number, stage, at);
}

/// Whether the target's card has gone down since the verb was posted. The connection does not come
/// back, and the card forgets what it was about to execute or had executed.
fn has_lost_card(shared: &Shared, state: &mut State, number: u32) -> bool {
    let VerbInFlight { target, target_since, .. } = *state.verbs.get_mut(number);
    state.has_crashed(target, shared.model(target).card_side(), target_since)
}

/// Whether the target knows a view that has gone on without the life that posted the verb. Then it
/// has given up the connections of that life, and executes nothing of it any more.
fn is_left_out(shared: &Shared, state: &mut State, number: u32) -> bool {
    let VerbInFlight { engine, target, since, .. } = *state.verbs.get_mut(number);
    let EngineId { node, side, .. } = shared.engines[engine as usize];
    let over = |view: &View| since.0[side as usize] < view.side(node, side).incarnation;
    let known = state.known[target.index()].as_ref();
    node != target && !shared.ignores_fences && known.is_some_and(over)
}

/// Whether the memory that the verb is about to access has gone down, with the card or alone.
fn has_lost_memory(shared: &Shared, state: &mut State, number: u32) -> bool {
    let verb = state.verbs.get_mut(number);
    let (target, since) = (verb.target, verb.target_since);
    // A chain looks at its regions itshared.
    let moving = match verb.execution {
        Execution::Moving((side, ..)) => Some(side),
        _ => None,
    };
    moving.is_some_and(|side| state.has_crashed(target, side, since))
        || has_lost_card(shared, state, number)
}

/// Whether the engine that posted the verb has crashed since.
fn is_orphan(shared: &Shared, state: &mut State, number: u32) -> bool {
    let VerbInFlight { engine, since, .. } = *state.verbs.get_mut(number);
    let engine = shared.engines[engine as usize];
    state.has_crashed(engine.node, engine.side, since)
}

/// The crash of the card of `node` ends what it executes.
pub(crate) fn abort_executions(state: &mut State, node: NodeId) {
    for verb in state.verbs.iter_mut().filter(|verb| verb.target == node) {
        if matches!(verb.execution, Execution::Under(..) | Execution::Halfway(..)) {
            verb.execution = Execution::Ended;
        }
    }
}
