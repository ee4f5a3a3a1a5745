//! The receiver's side of requests over unreliable routes: each takes effect at most once, and a
//! repeated one gets the reply of the first.

use std::cell::RefCell;

use super::pool::Payload;
use super::sparse::Sparse;
use crate::fabric::RequestId;

/// The requests of each engine to this one, by its index in the view.
#[derive(Debug, Default)]
pub(super) struct Peers(RefCell<Sparse<Peer>>);

impl Peers {
    pub(super) fn with<T>(&self, index: usize, act: impl FnOnce(&mut Peer) -> T) -> T {
        act(self.0.borrow_mut().entry(index))
    }

    /// Forgets what one has asked.
    pub(super) fn forget(&self, index: usize) {
        self.with(index, |peer| *peer = Peer::default());
    }
}

#[derive(Debug, Default)]
enum Last {
    /// Delivered, not answered by this engine (yet).
    #[default]
    Delivered,
    /// Answered: status and body, for repeats.
    Answered(u16, Payload),
    /// Superseded before it was delivered.
    Fenced,
}

#[derive(Debug, Default)]
struct Slot {
    sequence: u32,
    last: Last,
}

/// What one sending engine has asked of this one, per call slot of the sender. The sender reuses
/// a slot only after its request was answered or given up, so the newest request is enough.
#[derive(Debug, Default)]
pub(super) struct Peer {
    slots: Vec<Slot>,
}

/// Whether to deliver a request.
#[derive(Debug)]
pub(super) enum Arrival<'a> {
    /// The first of its name.
    New,
    /// Delivered before, and the service is still at it; or dead.
    Ignore,
    /// Delivered before and answered so.
    Again(u16, &'a [u8]),
}

impl Peer {
    /// Judges an arriving request.
    pub(super) fn arrive(&mut self, request: RequestId) -> Arrival<'_> {
        let slot = self.slot(request.slot);
        if newer(request.sequence, slot.sequence) {
            *slot = Slot { sequence: request.sequence, last: Last::Delivered };
            return Arrival::New;
        }
        if request.sequence != slot.sequence {
            return Arrival::Ignore;
        }
        match &slot.last {
            Last::Answered(status, body) => Arrival::Again(*status, body),
            Last::Delivered | Last::Fenced => Arrival::Ignore,
        }
    }

    /// Makes sure that `dead` is never delivered if it has not been.
    pub(super) fn fence(&mut self, dead: RequestId) {
        let slot = self.slot(dead.slot);
        if newer(dead.sequence, slot.sequence) {
            *slot = Slot { sequence: dead.sequence, last: Last::Fenced };
        }
    }

    /// Remembers the reply to a delivered request, for repeats.
    pub(super) fn answered(&mut self, request: RequestId, status: u16, body: Payload) {
        let slot = self.slot(request.slot);
        if slot.sequence == request.sequence {
            slot.last = Last::Answered(status, body);
        }
    }

    fn slot(&mut self, slot: u16) -> &mut Slot {
        let index = usize::from(slot);
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, Slot::default);
        }
        &mut self.slots[index]
    }
}

/// Is `a` after `b` in wrapping order? Anything is after 0, which names no request: a sender's slot
/// may have had any number of them, to others, before its first one to this engine.
fn newer(a: u32, b: u32) -> bool {
    a != b && (b == 0 || a.wrapping_sub(b) < 1 << 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: RequestId = RequestId { slot: 3, sequence: 1 };
    const SECOND: RequestId = RequestId { slot: 3, sequence: 2 };

    #[test]
    fn a_request_is_delivered_once_and_answered_again() {
        let mut peer = Peer::default();
        assert!(matches!(peer.arrive(FIRST), Arrival::New));
        assert!(matches!(peer.arrive(FIRST), Arrival::Ignore));
        peer.answered(FIRST, 0, super::super::pool::Pool::default().copy(b"yes"));
        assert!(matches!(peer.arrive(FIRST), Arrival::Again(0, b"yes")));
        assert!(matches!(peer.arrive(SECOND), Arrival::New));
        assert!(matches!(peer.arrive(FIRST), Arrival::Ignore));
    }

    #[test]
    fn a_sender_s_first_request_is_new_however_many_others_have_had() {
        for sequence in [1, (1 << 31) - 1, 1 << 31, u32::MAX] {
            let first = RequestId { slot: 3, sequence };
            let mut peer = Peer::default();
            assert!(matches!(peer.arrive(first), Arrival::New), "{sequence}");
            assert!(matches!(peer.arrive(first), Arrival::Ignore), "{sequence}");
            let mut peer = Peer::default();
            peer.fence(first);
            assert!(matches!(peer.arrive(first), Arrival::Ignore), "{sequence}");
        }
    }

    #[test]
    fn a_superseded_request_is_never_delivered_late() {
        let mut peer = Peer::default();
        peer.fence(FIRST);
        assert!(matches!(peer.arrive(FIRST), Arrival::Ignore));
        assert!(matches!(peer.arrive(SECOND), Arrival::New));
        peer.fence(FIRST);
        assert!(matches!(peer.arrive(SECOND), Arrival::Ignore));
    }
}
