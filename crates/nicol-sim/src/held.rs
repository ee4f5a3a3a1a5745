//! Frames that are held on the wire until a test releases them, so that it can explore every order of
//! arrival.

use nicol_core::history::digest;
use nicol_core::ids::EngineId;
use nicol_core::wire::Frame;

use crate::cluster::SimCluster;
use crate::in_flight::{FrameInFlight, Launch, Stage};
use crate::kernel::Event;

/// A frame that waits. Equal ones have the same effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Held {
    /// Its receiver.
    pub to: EngineId,
    /// Its sender.
    pub from: EngineId,
    /// The kind of its first message; none of its own has 0.
    pub kind: u16,
    /// A hash of its bytes.
    pub digest: u64,
}

impl SimCluster {
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
