//! The caller's side of requests: slots that give each request its identity, and retransmission.

use super::completions::Token;
use super::pool::Payload;
use crate::fabric::{FabricError, RequestId, Timeout};
use crate::ids::{EngineId, Incarnation};
use crate::units::Nanos;
use crate::wire::{Class, MessageHeader};

/// Kind of the engine's own requests for one-sided operations in software.
pub(super) const ONE_SIDED_KIND: u16 = 0xff01;

/// Requests that an engine may have in flight; a further call resolves to `NoResources`.
pub const CALLS_MAX: usize = 32_768;
/// Retransmission intervals grow up to this multiple of the first.
const BACK_OFF_MAX: u64 = 16;
const _: () = assert!(CALLS_MAX <= 1 << 16, "a slot's number has 16 bits on the wire");

/// The state that is needed to send a request again.
#[derive(Debug)]
pub(super) struct Resend {
    header: MessageHeader,
    body: Payload,
    after: Nanos,
    after_max: Nanos,
    give_up_at: Option<Nanos>,
}

#[derive(Debug)]
struct Waiting {
    to: EngineId,
    token: Token,
}

#[derive(Debug, Default)]
struct Slot {
    sequence: u32,
    waiting: Option<Waiting>,
    /// Of a request over an unreliable route that waits.
    resend: Option<Resend>,
}

/// The requests of one engine to all others.
#[derive(Debug)]
pub(super) struct Calls {
    slots: Vec<Slot>,
    vacant: Vec<u16>,
    /// The number after which the slots' sequences begin.
    base: u32,
}

/// Sequences between the first ones of two incarnations: requests of a new life are newer than all
/// of the old one, which a third party may still send on its behalf.
const SEQUENCES_PER_LIFE: u32 = 1 << 22;

/// The action for a request whose retransmission timer has fired.
pub(super) enum Due<'a> {
    /// Nothing: it was answered meanwhile.
    Answered,
    /// Send it again, and look again at `next`.
    Resend { to: EngineId, header: MessageHeader, body: &'a [u8], next: Nanos },
    /// Its timeout is over.
    GiveUp(Token, FabricError),
}

impl Calls {
    /// No requests yet, of an engine in this incarnation.
    pub(super) fn of(incarnation: Incarnation) -> Self {
        let lives = incarnation.0 - Incarnation::FIRST.0;
        let base = lives.wrapping_mul(SEQUENCES_PER_LIFE);
        Self { slots: Vec::new(), vacant: Vec::new(), base }
    }

    /// Closes every request to an engine that `is_gone`, and hands out what waits for them.
    pub(super) fn end(&mut self, is_gone: impl Fn(EngineId) -> bool) -> Vec<Token> {
        let mut ended = Vec::new();
        for (number, slot) in self.slots.iter_mut().enumerate() {
            if let Some(waiting) = slot.waiting.take_if(|waiting| is_gone(waiting.to)) {
                slot.resend = None;
                self.vacant.push(number as u16);
                ended.push(waiting.token);
            }
        }
        ended
    }

    /// Opens a request; `None` if too many are in flight.
    #[inline]
    pub(super) fn open(&mut self, to: EngineId, token: Token) -> Option<RequestId> {
        let slot = match self.vacant.pop() {
            Some(slot) => slot,
            None if self.slots.len() < CALLS_MAX => {
                self.slots.push(Slot { sequence: self.base, waiting: None, resend: None });
                (self.slots.len() - 1) as u16
            }
            None => return None,
        };
        let open = &mut self.slots[usize::from(slot)];
        assert!(open.waiting.is_none(), "a vacant slot waits for nothing");
        // Never 0, which names no request.
        open.sequence = open.sequence.wrapping_add(1).max(1);
        open.waiting = Some(Waiting { to, token });
        Some(RequestId { slot, sequence: open.sequence })
    }

    /// Keeps a copy of an open request for sending it again.
    pub(super) fn keep(&mut self, request: RequestId, resend: Resend) {
        let slot = &mut self.slots[usize::from(request.slot)];
        if slot.waiting.is_some() {
            slot.resend = Some(resend);
        }
    }

    /// The engine that an open request goes to; `None` if it has been closed.
    pub(super) fn receiver_of(&self, request: RequestId) -> Option<EngineId> {
        let slot = self.slots.get(usize::from(request.slot))?;
        let waiting = slot.waiting.as_ref()?;
        (slot.sequence == request.sequence).then_some(waiting.to)
    }

    /// Closes the request that a reply answers; `None` if its caller has gone.
    #[inline]
    pub(super) fn close(&mut self, request: RequestId) -> Option<Token> {
        let slot = self.slots.get_mut(usize::from(request.slot))?;
        if slot.sequence != request.sequence {
            return None;
        }
        let waiting = slot.waiting.take()?;
        if slot.resend.is_some() {
            slot.resend = None;
        }
        self.vacant.push(request.slot);
        Some(waiting.token)
    }

    /// Decides about the request whose timer fired at `now`.
    pub(super) fn due(&mut self, request: RequestId, now: Nanos) -> Due<'_> {
        let slot = &mut self.slots[usize::from(request.slot)];
        if slot.sequence != request.sequence {
            return Due::Answered;
        }
        let Some(&Waiting { to, token }) = slot.waiting.as_ref() else { return Due::Answered };
        let Some(resend) = slot.resend.as_ref() else { return Due::Answered };
        if resend.give_up_at.is_some_and(|deadline| now >= deadline) {
            let kind = resend.header.kind;
            (slot.waiting, slot.resend) = (None, None);
            self.vacant.push(request.slot);
            // Who posts a one-sided operation cannot supersede it, and learns what a card would
            // say.
            let error = match kind {
                ONE_SIDED_KIND => FabricError::Unreachable,
                _ => FabricError::TimedOut { request },
            };
            return Due::GiveUp(token, error);
        }
        let Some(resend) = slot.resend.as_mut() else { return Due::Answered };
        let next = resend.next_look(now + resend.after);
        resend.after = (resend.after * 2).min(resend.after_max);
        Due::Resend { to, header: resend.header, body: &resend.body, next }
    }

    /// Requests waiting for a reply.
    pub(super) fn in_flight(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }
}

impl Resend {
    /// How a request over an unreliable route is sent again: first `after` a while, then at
    /// doubling intervals.
    pub(super) fn new(
        header: MessageHeader,
        body: Payload,
        after: Nanos,
        now: Nanos,
        timeout: Timeout,
    ) -> Self {
        let give_up_at = match timeout {
            Timeout::After(span) => Some(now.saturating_add(span)),
            Timeout::Never => None,
        };
        assert!(
            !matches!(header.class, Class::OneWay | Class::Reply),
            "only requests are sent again"
        );
        Self { header, body, after: after * 2, after_max: after * BACK_OFF_MAX, give_up_at }
    }

    /// When to look at it again: at `next`, or when it is given up if that is sooner.
    pub(super) fn next_look(&self, next: Nanos) -> Nanos {
        self.give_up_at.map_or(next, |deadline| next.min(deadline))
    }
}
