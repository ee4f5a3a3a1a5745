//! What an engine sends: requests and their repeats, and replies.

use super::calls::{Due, Resend};
use super::outbox::Emit;
use super::stats::count;
use super::timers::Timer;
use super::{Completion, Engine, Payload, Route, World};
use crate::chain::error_status;
use crate::fabric::{FabricError, ReplyTo, RequestId, Timeout};
use crate::ids::EngineId;
use crate::units::Nanos;
use crate::wire::{Class, MessageHeader, Writer};

impl<W: World> Engine<W> {
    /// Sends a request whose body `emit` writes; the completion resolves to its reply.
    pub(super) fn request(
        &self,
        to: EngineId,
        kind: u16,
        emit: Emit<'_>,
        timeout: Timeout,
        supersedes: Option<RequestId>,
    ) -> Completion {
        let (inner, site) = (&*self.0, self.site());
        let Some(index) = site.membership().reach(to) else {
            return Completion::ready(Err(FabricError::Unreachable));
        };
        let (token, completion) = site.completions().open();
        let Some(request) = inner.calls.borrow_mut().open(to, token) else {
            site.completions().resolve(token, Err(FabricError::NoResources));
            return completion;
        };
        let class = supersedes.map_or(Class::Request, Class::Superseding);
        let header = MessageHeader { class, kind, request, length: 0 };
        if self.may_lose(to) {
            let body = self.append_and_keep(to, header, emit);
            let length = body.len() as u32;
            self.keep_and_watch(MessageHeader { length, ..header }, body, timeout);
        } else {
            inner.outbox.append(site, (to, index), header, emit);
        }
        completion
    }

    /// Opens a request that another engine will send.
    pub(super) fn open_delegated(&self, to: EngineId) -> (ReplyTo, Completion) {
        let site = self.site();
        let (token, completion) = site.completions().open();
        let opened = match site.membership().reach(to) {
            None => Err(FabricError::Unreachable),
            Some(_) => self.0.calls.borrow_mut().open(to, token).ok_or(FabricError::NoResources),
        };
        if let Err(error) = opened {
            site.completions().resolve(token, Err(error));
        }
        (ReplyTo { engine: site.here(), request: opened.unwrap_or(RequestId::NONE) }, completion)
    }

    /// May what is sent to another engine get lost?
    #[inline]
    pub(super) fn may_lose(&self, to: EngineId) -> bool {
        to != self.site().here() && self.world().route(to) == Route::Unreliable
    }

    /// True if an expected request is still open, over a route that may lose it.
    pub(super) fn may_be_lost(&self, request: RequestId) -> bool {
        let to = self.0.calls.borrow().receiver_of(request);
        let is_own = |to| to == self.site().here();
        to.is_some_and(|to| is_own(to) || self.world().route(to) == Route::Unreliable)
    }

    /// Sends an expected request again and again.
    pub(super) fn retransmit_delegated(
        &self,
        request: RequestId,
        kind: u16,
        body: Vec<u8>,
        timeout: Timeout,
    ) {
        let site = self.site();
        let body = site.pool().payload(body);
        let class = Class::Delegated(site.here());
        let header = MessageHeader { class, kind, request, length: body.len() as u32 };
        self.keep_and_watch(header, body, timeout);
    }

    /// Keeps a request for sending it again, and sets its timer.
    fn keep_and_watch(&self, header: MessageHeader, body: Payload, timeout: Timeout) {
        let world = self.world();
        let after = world.tuning().retransmit_after;
        let now = world.now();
        let request = header.request;
        let resend = Resend::new(header, body, after, now, timeout);
        let first = resend.next_look(now + after);
        self.0.calls.borrow_mut().keep(request, resend);
        self.0.timers.set(world, first, Timer::retransmit(request));
    }

    /// Sends a request again, or gives it up.
    pub(super) fn retransmit(&self, request: RequestId, now: Nanos) {
        let (inner, site) = (&*self.0, self.site());
        let mut calls = inner.calls.borrow_mut();
        match calls.due(request, now) {
            Due::Answered => {}
            Due::Resend { to, header, body, next } => {
                count(&site.counters().retransmissions, 1);
                self.append(to, header, &mut |to| to.extend_from_slice(body));
                inner.timers.set(site.world(), next, Timer::retransmit(request));
            }
            Due::GiveUp(token, error) => {
                count(&site.counters().timeouts, 1);
                site.completions().resolve(token, Err(error));
            }
        }
    }

    /// Gives up an expected request if it is still open.
    pub(super) fn give_up(&self, request: RequestId) {
        let site = self.site();
        let open = self.0.calls.borrow_mut().close(request);
        if let Some(token) = open {
            count(&site.counters().timeouts, 1);
            site.completions().resolve(token, Err(FabricError::TimedOut { request }));
        }
    }

    /// Sends a reply whose body `emit` writes, and remembers it where it may be asked for again.
    pub(super) fn send_reply(&self, to: ReplyTo, status: u16, emit: Emit<'_>) {
        let (inner, site) = (&*self.0, self.site());
        let Some(index) = site.membership().index_of(to.engine) else {
            count(&site.counters().malformed, 1);
            return;
        };
        let class = Class::Reply;
        let header = MessageHeader { class, kind: status, request: to.request, length: 0 };
        if self.may_lose(to.engine) {
            let kept = self.append_and_keep(to.engine, header, emit);
            inner.peers.with(index, |peer| peer.answered(to.request, status, kept));
        } else if !site.membership().lives().is_down(to.engine) {
            inner.outbox.append(site, (to.engine, index), header, emit);
        }
    }

    pub(super) fn send_refusal(&self, to: ReplyTo, error: FabricError) {
        let pool = self.site().pool();
        let mut details = pool.take();
        let status = error_status(error, &mut Writer::new(&mut details));
        self.send_reply(to, status, &mut |body| body.extend_from_slice(&details));
        pool.give(details);
    }

    /// Appends a message for another engine, and returns its body for sending it again.
    fn append_and_keep(&self, to: EngineId, header: MessageHeader, emit: Emit<'_>) -> Payload {
        let pool = self.site().pool();
        let mut body = pool.take();
        emit(&mut body);
        self.append(to, header, &mut |to| to.extend_from_slice(&body));
        pool.payload(body)
    }

    /// Appends a message to the frame that goes to its engine next, if that is within reach. `emit`
    /// writes the body where it leaves from, and must not reach for the engine; the header's length
    /// is that of the body.
    pub(super) fn append(&self, to: EngineId, header: MessageHeader, emit: Emit<'_>) {
        let (inner, site) = (&*self.0, self.site());
        if let Some(index) = site.membership().reach(to) {
            inner.outbox.append(site, (to, index), header, emit);
        }
    }
}
