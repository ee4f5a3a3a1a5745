//! Frames that are held on the wire, and completions that are held at their devices, until a test
//! releases them, so that it can explore every order in which they reach an engine.

use nicol_core::engine::{Operation, Transfer};
use nicol_core::history::digest;
use nicol_core::ids::EngineId;
use nicol_core::wire::Frame;

use super::SimCluster;
use crate::in_flight::{FrameInFlight, Launch, Stage};
use crate::kernel::Event;
use crate::persists::Device;
use crate::shared::Shared;
use crate::state::State;
use crate::vectors;

/// A frame that waits. Equal ones have the same effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Held {
    pub to: EngineId,
    pub from: EngineId,
    /// The kind of its first message; none of its own has 0.
    pub kind: u16,
    /// A hash of its bytes.
    pub digest: u64,
}

/// A persist or transfer that has ended, and whose engine does not know it yet. Equal ones have the
/// same effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HeldCompletion {
    /// The engine that waits for it.
    pub engine: EngineId,
    pub of: Completes,
    pub bytes: u64,
    /// A hash of what is written; an access that the caller makes itself has none to tell.
    pub digest: u64,
}

/// The kind of a completion that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Completes {
    /// A write to the node's log device. It is not synced before it is released.
    Log,
    /// A write to the NIC's durable queue: the same.
    DurableQueue,
    /// An entry of the NIC's volatile queue has been filled.
    VolatileQueue,
    /// A crossing to the other side's memory that its caller makes itself: an entry that drains.
    Crossing,
}

impl Completes {
    /// The kind of completion of `operation`; `None` if such completions are never held.
    fn of(operation: &Operation) -> Option<Self> {
        match (&operation.transfer, Device::of(operation)) {
            (Transfer::DmaTouch { .. }, _) => Some(Self::Crossing),
            (Transfer::Persist { .. } | Transfer::Fill { .. }, device) => Some(match device {
                Device::Log => Self::Log,
                Device::DurableQueue => Self::DurableQueue,
                Device::VolatileQueue => Self::VolatileQueue,
            }),
            _ => None,
        }
    }
}

/// Vector `number` is complete: it ends, or is held if its kind is.
pub(super) fn complete_or_hold(shared: &Shared, state: &mut State, number: u32) {
    let first = state.vectors.get_mut(number).operations.first();
    if shared.holds_completions && first.and_then(Completes::of).is_some() {
        state.held_completions.push(number);
    } else {
        vectors::complete(shared, state, number);
    }
}

fn completion(shared: &Shared, state: &mut State, number: u32) -> Option<HeldCompletion> {
    // Nobody waits for what an engine has asked for that has crashed since.
    if vectors::is_orphan(shared, state, number) {
        return None;
    }
    let vector = state.vectors.get_mut(number);
    let first = vector.operations.first()?;
    let bytes = vector.operations.iter().map(|operation| match operation.transfer {
        Transfer::DmaTouch { len, .. } => u64::from(len),
        _ => operation.persisted_bytes(),
    });
    let bytes = bytes.sum();
    let engine = shared.engines[vector.engine as usize];
    let digest = vector
        .operations
        .iter()
        .fold(0, |sum: u64, operation| sum.rotate_left(7) ^ digest(&operation.buffer));
    Some(HeldCompletion { engine, of: Completes::of(first)?, bytes, digest })
}

impl SimCluster {
    /// The completions that wait, in the order in which their devices have ended them. See
    /// [`SimConfig::holds_completions`](crate::SimConfig::holds_completions).
    pub fn held_completions(&self) -> Vec<HeldCompletion> {
        let state = &mut *self.shared.state.borrow_mut();
        let numbers = state.held_completions.clone();
        numbers.iter().filter_map(|number| completion(&self.shared, state, *number)).collect()
    }

    /// Lets the first completion reach its engine that is equal to `held`. What it makes durable is
    /// durable from now on.
    ///
    /// # Panics
    /// If none waits.
    pub fn complete(&self, held: HeldCompletion) {
        let state = &mut *self.shared.state.borrow_mut();
        let numbers = state.held_completions.clone();
        let is_meant = |number: &u32| completion(&self.shared, state, *number) == Some(held);
        let place = numbers.iter().position(is_meant);
        assert!(place.is_some(), "{held:?} does not wait");
        let number = state.held_completions.remove(place.unwrap_or_default());
        vectors::complete(&self.shared, state, number);
    }

    /// The number of frames and completions that wait.
    pub fn held_count(&self) -> usize {
        let state = self.shared.state.borrow();
        state.held.len() + state.held_completions.len()
    }

    /// The frames that wait, in the order in which they have left their nodes. See
    /// [`SimConfig::holds_frames`](crate::SimConfig::holds_frames).
    pub fn held(&self) -> Vec<Held> {
        let state = &mut *self.shared.state.borrow_mut();
        let frames = &mut state.frames;
        let held = |number: &u32| {
            let FrameInFlight { frame, from, to, .. } = frames.get_mut(*number);
            let engine = |index: u32| self.shared.engines[index as usize];
            Held { to: engine(*to), from: engine(*from), kind: kind(frame), digest: digest(frame) }
        };
        state.held.iter().map(held).collect()
    }

    /// Lets a frame arrive that is equal to `held`; a copy of it waits on if it is `duplicated`.
    ///
    /// # Panics
    /// If none waits.
    pub fn release(&self, held: Held, duplicated: bool) {
        let place = self.held().into_iter().position(|other| other == held);
        assert!(place.is_some(), "{held:?} does not wait");
        let state = &mut *self.shared.state.borrow_mut();
        let number = state.held.remove(place.unwrap_or_default());
        if duplicated {
            let FrameInFlight { frame, from, to, since, .. } = state.frames.get_mut(number);
            let (frame, from, to, since, first) =
                (frame.clone(), *from, *to, *since, Stage::Ingress);
            let (stage, way, queued) = (first, Launch::Rides, false);
            let copy = FrameInFlight { frame, from, to, stage, first, way, queued, since };
            let copy = state.frames.insert(copy);
            state.held.push(copy);
        }
        let now = state.kernel.now();
        state.kernel.push(now, Event::Frame(number));
    }
}

fn kind(frame: &[u8]) -> u16 {
    let first = Frame::parse(frame, false).and_then(|mut frame| frame.next_message());
    first.ok().flatten().map_or(0, |(header, _)| header.kind)
}
