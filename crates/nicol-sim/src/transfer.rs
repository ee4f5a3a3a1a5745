//! Memory on the move: DMA vectors, persists, verbs.

use nicol_core::engine::{Charge, Operation, Transfer};
use nicol_core::fabric::FabricError;
use nicol_core::ids::{NodeId, Side};
use nicol_core::units::{Nanos, Picos};

use crate::hw::picos;
use crate::kernel::Event;
use crate::state::State;
use crate::world::Shared;

/// A vector of transfers of one kind, or a persist.
#[derive(Debug)]
pub struct Vector {
    engine: u32,
    operations: Vec<Operation>,
    moved: bool,
}

/// The next stage of a verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VerbStage {
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
pub struct VerbFlight {
    operation: Operation,
    engine: u32,
    target: NodeId,
    stage: VerbStage,
    executed: bool,
    tries: u64,
}

/// Bytes that a verb carries to its target and back.
fn verb_bytes(operation: &Operation) -> (u64, u64) {
    match operation.transfer {
        Transfer::VerbRead { len, .. } => (0, u64::from(len)),
        Transfer::VerbCompareSwap { .. } => (16, 8),
        Transfer::VerbFetchAdd { .. } => (8, 8),
        _ if operation.result.is_ok() => (operation.buffer.len() as u64, 0),
        _ => (0, 0),
    }
}

fn is_read(operation: &Operation) -> bool {
    matches!(operation.transfer, Transfer::DmaRead { .. } | Transfer::VerbRead { .. })
}

impl Shared {
    /// Submits a vector at `at`.
    pub fn submit_vector(&self, engine: usize, batch: &mut Vec<Operation>, at: Nanos) {
        let operations: Vec<_> = std::mem::take(batch);
        let persisted: u64 = operations
            .iter()
            .map(|operation| match operation.transfer {
                Transfer::Persist { len, .. } => u64::from(len),
                _ => 0,
            })
            .sum();
        let persists = matches!(
            operations.first().map(|first| &first.transfer),
            Some(Transfer::Persist { .. })
        );
        let state = &mut *self.state.borrow_mut();
        let vector = Vector { engine: engine as u32, operations, moved: false };
        let number = state.vectors.insert(vector);
        if persists {
            let per_byte = self.profile.persist.per_kib.value * persisted;
            let span = self.profile.persist.latency.value + Picos(per_byte.0 >> 10);
            state.kernel.push((picos(at) + span).to_nanos_up(), Event::DmaCompleted(number));
        } else {
            state.kernel.push(at, Event::DmaSubmitted(number));
        }
    }

    /// A vector reaches its queue.
    pub fn dma_submitted(&self, state: &mut State, number: u32) {
        let now = picos(state.kernel.now());
        let vector = state.vectors.get_mut(number);
        let engine = self.engines[vector.engine as usize];
        let reads = vector.operations.first().is_some_and(is_read);
        let requests = vector.operations.len() as u64;
        let lanes = vector.operations.iter().map(|operation| {
            let bytes = match operation.transfer {
                Transfer::DmaRead { len, .. } => u64::from(len),
                _ => operation.buffer.len() as u64,
            };
            self.hardware.on_lanes(bytes)
        });
        let lanes = lanes.fold(Picos(0), |sum, span| sum + span);
        let dma = &self.profile.dma;
        let latency = if reads { dma.read_latency.value } else { dma.write_latency.value };
        let node = &mut state.nodes[usize::from(engine.node.0)];
        let queue = usize::from(engine.core);
        let slot = node.admit_dma(&self.hardware, queue, now, requests);
        let half = Picos(latency.0 / 2);
        let mut moved = slot.start + half;
        if self.nic_is_separate {
            // A NIC's read and a host's write move bytes towards the NIC.
            let to_nic = reads == (engine.side == Side::Nic);
            let lane = if to_nic { &mut node.lanes_to_nic } else { &mut node.lanes_to_host };
            moved = moved.max(lane.reserve(slot.start, lanes).end);
        }
        state.kernel.push(moved.to_nanos_up(), Event::DmaMoved(number));
    }

    /// The bytes of a vector move, all at one instant; the completion status follows.
    pub fn dma_moved(&self, state: &mut State, number: u32) {
        let now = picos(state.kernel.now());
        let vector = state.vectors.get_mut(number);
        vector.moved = true;
        for operation in &mut vector.operations {
            operation.execute_local();
        }
        let dma = &self.profile.dma;
        let reads = vector.operations.first().is_some_and(is_read);
        let latency = if reads { dma.read_latency.value } else { dma.write_latency.value };
        let status = Picos(latency.0 - latency.0 / 2);
        state.kernel.push((now + status).to_nanos_up(), Event::DmaCompleted(number));
    }

    /// A vector, or a persist, is complete.
    pub fn dma_completed(&self, state: &mut State, number: u32) {
        let Vector { engine, operations, moved } = state.vectors.remove(number);
        let mut charge = moved.then_some(Charge::DmaCompleted);
        for mut operation in operations {
            if !moved {
                operation.execute_local();
            }
            state.finish(engine as usize, operation, charge.take());
        }
    }

    /// Posts a batch of verbs at `at`.
    pub fn post_verbs(&self, engine: usize, target: NodeId, batch: &mut Vec<Operation>, at: Nanos) {
        let state = &mut *self.state.borrow_mut();
        let verbs = &self.profile.verbs;
        let ready = picos(at) + verbs.post_latency.value;
        for operation in batch.drain(..) {
            let interval = verbs.requester_interval.value;
            let slot = state.cores[engine].requester.reserve(ready, interval);
            let number = state.verbs.insert(VerbFlight {
                operation,
                engine: engine as u32,
                target,
                stage: VerbStage::Issue,
                executed: false,
                tries: 0,
            });
            state.kernel.push(slot.start.to_nanos_up(), Event::Verb(number));
        }
    }

    /// Moves verb `number` on by one stage.
    pub fn advance_verb(&self, state: &mut State, number: u32) {
        let verb = state.verbs.get_mut(number);
        match verb.stage {
            VerbStage::Issue => self.issue_verb(state, number),
            VerbStage::Arrive => self.arrive_verb(state, number),
            VerbStage::Execute => self.execute_verb(state, number),
            VerbStage::Return => self.return_verb(state, number),
            VerbStage::Done => {
                let verb = state.verbs.remove(number);
                state.finish(verb.engine as usize, verb.operation, Some(Charge::VerbCompleted));
            }
        }
    }

    fn verb_ends(&self, state: &mut State, number: u32) -> (NodeId, NodeId, (u64, u64)) {
        let verb = state.verbs.get_mut(number);
        let source = self.engines[verb.engine as usize].node;
        let header = self.profile.verbs.header.value.0;
        let (out, back) = verb_bytes(&verb.operation);
        (source, verb.target, (header + out, header + back))
    }

    fn next_verb_stage(&self, state: &mut State, number: u32, stage: VerbStage, at: Picos) {
        state.verbs.get_mut(number).stage = stage;
        state.kernel.push(at.to_nanos_up(), Event::Verb(number));
    }

    fn issue_verb(&self, state: &mut State, number: u32) {
        let now = state.kernel.now();
        let (source, target, (bytes, _)) = self.verb_ends(state, number);
        if self.retries_verb(state, number, source, target) {
            return;
        }
        let verbs = &self.profile.verbs;
        let sent = self.through_card(state, source, picos(now));
        if source == target {
            self.next_verb_stage(state, number, VerbStage::Arrive, sent);
            return;
        }
        let node = &mut state.nodes[usize::from(source.0)];
        let slot = node.link_out.reserve(sent, self.hardware.on_wire(bytes));
        let at = slot.start + verbs.card_latency.value + self.wire_latency;
        self.next_verb_stage(state, number, VerbStage::Arrive, at);
    }

    fn arrive_verb(&self, state: &mut State, number: u32) {
        let now = picos(state.kernel.now());
        let (source, target, (bytes, _)) = self.verb_ends(state, number);
        let mut arrived = now;
        if source != target {
            let node = &mut state.nodes[usize::from(target.0)];
            arrived = node.link_in.reserve(now, self.hardware.on_wire(bytes)).end;
        }
        let verbs = &self.profile.verbs;
        let mut at = self.through_card(state, target, arrived) + verbs.card_latency.value;
        let node = &mut state.nodes[usize::from(target.0)];
        let operation = &state.verbs.get_mut(number).operation;
        if matches!(operation.transfer, Transfer::VerbWrite { .. }) {
            let span = self.hardware.on_lanes(operation.buffer.len() as u64);
            at = node.lanes_to_host.reserve(at, span).end;
        } else {
            at += Picos(verbs.read_latency.value.0 / 2);
        }
        self.next_verb_stage(state, number, VerbStage::Execute, at);
    }

    /// The target's memory is accessed at this instant, and the response sent.
    fn execute_verb(&self, state: &mut State, number: u32) {
        let now = state.kernel.now();
        let verb = state.verbs.get_mut(number);
        let (_, before) = verb_bytes(&verb.operation);
        if !verb.executed {
            verb.executed = true;
            verb.operation.execute_verb(&self.tables[usize::from(verb.target.0)]);
            if matches!(verb.operation.transfer, Transfer::VerbWrite { .. }) {
                verb.operation.buffer.clear();
            }
        }
        let failed = verb.operation.result.is_err();
        let writes = matches!(verb.operation.transfer, Transfer::VerbWrite { .. });
        let (source, target, (_, back)) = self.verb_ends(state, number);
        if self.retries_verb(state, number, target, source) {
            return;
        }
        let verbs = &self.profile.verbs;
        let mut ready = picos(now);
        if !writes && !failed {
            let span = self.hardware.on_lanes(before);
            let fetched = state.nodes[usize::from(target.0)].lanes_to_nic.reserve(ready, span);
            let half = verbs.read_latency.value.0 - verbs.read_latency.value.0 / 2;
            ready = fetched.end.max(ready + Picos(half));
        }
        let sent = self.through_card(state, target, ready);
        if source == target {
            self.next_verb_stage(state, number, VerbStage::Return, sent);
            return;
        }
        let node = &mut state.nodes[usize::from(target.0)];
        let slot = node.link_out.reserve(sent, self.hardware.on_wire(back));
        let at = slot.start + verbs.card_latency.value + self.wire_latency;
        self.next_verb_stage(state, number, VerbStage::Return, at);
    }

    fn return_verb(&self, state: &mut State, number: u32) {
        let now = picos(state.kernel.now());
        let (source, target, (_, back)) = self.verb_ends(state, number);
        let mut arrived = now;
        if source != target {
            let node = &mut state.nodes[usize::from(source.0)];
            arrived = node.link_in.reserve(now, self.hardware.on_wire(back)).end;
        }
        let verbs = &self.profile.verbs;
        let taken = self.through_card(state, source, arrived) + verbs.card_latency.value;
        let node = &mut state.nodes[usize::from(source.0)];
        let landed = node.lanes_to_host.reserve(taken, self.hardware.on_lanes(back)).end;
        let at = landed + verbs.completion_latency.value;
        self.next_verb_stage(state, number, VerbStage::Done, at);
    }

    /// Takes the card's packet processing of `node`.
    fn through_card(&self, state: &mut State, node: NodeId, from: Picos) -> Picos {
        let interval = self.profile.verbs.card_interval.value;
        state.nodes[usize::from(node.0)].card.reserve(from, interval).end
    }

    /// Does the way fail now? Then the requester's NIC sends the verb again, or gives it up. A
    /// verb that was executed is not executed again: only its response was lost.
    fn retries_verb(&self, state: &mut State, number: u32, from: NodeId, to: NodeId) -> bool {
        let now = state.kernel.now();
        let target = state.verbs.get_mut(number).target;
        let dead = self.is_host_dead(state, target);
        let lost =
            dead || from != to && (state.faults.is_cut(now, from, to) || state.faults.strikes(now));
        if !lost {
            return false;
        }
        state.faults.counts.dead += u64::from(dead);
        state.faults.counts.verb_retries += 1;
        let verb = state.verbs.get_mut(number);
        verb.tries += 1;
        let mut stage = VerbStage::Issue;
        if verb.tries > self.profile.verbs.retries.value {
            verb.operation.result = Err(FabricError::Unreachable);
            stage = VerbStage::Done;
        }
        let at = picos(now) + self.profile.verbs.retry_after.value;
        self.next_verb_stage(state, number, stage, at);
        true
    }

    fn is_host_dead(&self, state: &State, node: NodeId) -> bool {
        let host = nicol_core::ids::EngineId::host(node, 0);
        self.layout.index_of(host).is_some_and(|index| state.cores[index].dead)
    }
}
