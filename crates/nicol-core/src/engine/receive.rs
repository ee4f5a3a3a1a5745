//! What arrives: frames, their messages, and one-sided operations executed in software.

use std::cmp::Ordering;

use super::calls::ONE_SIDED_KIND;
use super::peers::{Arrival, Peer};
use super::stats::count;
use super::{Charge, Engine, Route, Transfer, World};
use crate::chain::{ChainAccess, Encoded, STATUS_OK, Touch, run, status_error};
use crate::exec::at_once;
use crate::fabric::{
    Completions, Delivery, FabricError, Local, Messages, ReplyTo, RequestId, Work,
};
use crate::ids::{EngineId, Incarnation, Side};
use crate::trace::Flow;
use crate::wire::{Class, Frame, FrameHeader, Malformed, MessageHeader};

impl<W: World> Engine<W> {
    /// Takes a burst of frames; true if there was one.
    pub(super) fn take_frames(&self) -> bool {
        let (world, site) = (self.world(), self.site());
        let mut progress = false;
        for _ in 0..world.tuning().burst {
            let Some(frame) = world.receive() else { break };
            progress = true;
            count(&self.site().counters().frames_received, 1);
            let traced = site.trace().and_then(|trace| trace.sink().frame_ended(&frame));
            if self.take_frame(&frame, traced).is_err() {
                count(&self.site().counters().malformed, 1);
            }
            world.recycle(frame);
        }
        progress
    }

    /// Delivers what this engine sent to itself; true if there was anything.
    pub(super) fn take_loopback(&self) -> bool {
        let site = self.site();
        let mut progress = false;
        while let Some((header, body)) = self.0.outbox.take_own() {
            progress = true;
            if let Some(trace) = site.trace() {
                trace.delivers_own(site.now(), &header);
            }
            self.dispatch(site.here(), Route::Reliable, header, &body);
            if let Some(trace) = site.trace() {
                trace.end(site.now());
            }
        }
        progress
    }

    /// `traced` is the frame's number where a trace is taken.
    fn take_frame(&self, bytes: &[u8], traced: Option<u64>) -> Result<(), Malformed> {
        let (world, site) = (self.world(), self.site());
        let mut frame = Frame::parse(bytes, world.tuning().checksums)?;
        let from = frame.header.from;
        if frame.header.to != site.here() || site.membership().index_of(from).is_none() {
            return Err(Malformed { what: "a frame for another engine" });
        }
        world.charge(Charge::FrameReceived { from, bytes: bytes.len() as u32 });
        if !self.admits(&frame.header) && world.fences() {
            count(&self.site().counters().fenced_frames, 1);
            return Ok(());
        }
        let route = world.route(from);
        let mut place = 0;
        // Within a node nobody else could serve instead: what is under way there goes on.
        let serves = from.node == site.here().node || self.is_leased();
        while let Some((header, body)) = frame.next_message()? {
            if let Some(trace) = site.trace() {
                let flow = traced.map(|frame| Flow::new(frame, place));
                trace.delivers(world.now(), flow, from, &header);
                place += 1;
            }
            world.charge(Charge::MessageReceived { bytes: header.length });
            count(&self.site().counters().messages_received, 1);
            if serves || header.class == Class::Reply {
                self.dispatch(from, route, header, body);
            } else {
                count(&self.site().counters().unleased, 1);
            }
            if let Some(trace) = site.trace() {
                trace.end(world.now());
            }
        }
        Ok(())
    }

    /// Is a frame of and for the lives that are known? Learns from it if its sender's is newer, and
    /// tells the sender if it means an earlier life of this side.
    fn admits(&self, header: &FrameHeader) -> bool {
        let site = self.site();
        let lives = site.membership().lives();
        let known = lives.incarnation(header.from);
        match header.incarnation.compare(known.0) {
            Ordering::Less => return false,
            Ordering::Equal if !lives.is_down(header.from) => {}
            Ordering::Equal | Ordering::Greater => {
                let newer = Incarnation(header.incarnation.from(known.0));
                self.welcome(header.from.node, header.from.side, newer);
            }
        }
        let meant = header.to_incarnation.compare(site.incarnation().0);
        if meant == Ordering::Less
            && let Some(index) = site.membership().index_of(header.from)
        {
            self.0.outbox.append_notice(header.from, index);
        }
        meant == Ordering::Equal
    }

    // In line at both callers: what a call saves and restores is a third of what it does itself.
    #[inline(always)]
    fn dispatch(&self, from: EngineId, route: Route, header: MessageHeader, body: &[u8]) {
        let request = header.request;
        let (from, route) = match header.class {
            Class::OneWay => return self.deliver(from, None, header.kind, body),
            Class::Reply => return self.take_reply(request, header.kind, body),
            Class::Request => (from, route),
            Class::Superseding(dead) => {
                if route == Route::Unreliable {
                    self.with_peer(from, |peer| peer.fence(dead));
                }
                (from, route)
            }
            Class::Delegated(asker) if self.site().membership().index_of(asker).is_none() => {
                return count(&self.site().counters().malformed, 1);
            }
            // Two engines may send it, so that it may come twice over any route.
            Class::Delegated(asker) => (asker, Route::Unreliable),
        };
        self.take_request(from, route, request, header.kind, body);
    }

    #[inline(always)]
    fn take_request(
        &self,
        from: EngineId,
        route: Route,
        request: RequestId,
        kind: u16,
        body: &[u8],
    ) {
        let reply_to = ReplyTo { engine: from, request };
        if route == Route::Unreliable {
            let again = self.with_peer(from, |peer| match peer.arrive(request) {
                Arrival::New => None,
                Arrival::Ignore => Some(None),
                Arrival::Again(status, body) => Some(Some((status, self.site().pool().copy(body)))),
            });
            if let Some(answer) = again {
                count(&self.site().counters().duplicates, 1);
                if let Some((status, body)) = answer {
                    self.send_reply(reply_to, status, &mut |to| to.extend_from_slice(&body));
                }
                return;
            }
        }
        if kind == ONE_SIDED_KIND {
            self.take_one_sided(reply_to, body);
        } else {
            self.deliver(from, Some(reply_to), kind, body);
        }
    }

    #[inline]
    fn deliver(&self, from: EngineId, reply_to: Option<ReplyTo>, kind: u16, body: &[u8]) {
        let service = self.0.service.borrow();
        let Some(service) = &*service else {
            if let Some(reply_to) = reply_to {
                self.refuse(reply_to, FabricError::Unreachable);
            }
            return;
        };
        if service.deliver(Delivery { from, reply_to, kind, body }).is_err() {
            count(&self.site().counters().malformed, 1);
            if let Some(reply_to) = reply_to {
                self.refuse(reply_to, FabricError::Malformed);
            }
        }
    }

    #[inline]
    fn take_reply(&self, request: RequestId, status: u16, body: &[u8]) {
        let Some(token) = self.0.calls.borrow_mut().close(request) else {
            count(&self.site().counters().late_replies, 1);
            return;
        };
        let result = if status == STATUS_OK {
            Ok(self.site().pool().copy(body))
        } else {
            Err(status_error(status, body))
        };
        self.site().completions().resolve(token, result);
    }

    /// The requests of the engine `from` to this one.
    fn with_peer<T>(&self, from: EngineId, act: impl FnOnce(&mut Peer) -> T) -> T {
        let site = self.site();
        // `take_frame` has checked that the sender is part of the view.
        let index = site.membership().index_of(from).unwrap_or(site.index());
        self.0.peers.with(index, act)
    }

    /// Executes a verb or a chain in software: on this side's memory at once, on the other side's
    /// by DMA.
    fn take_one_sided(&self, reply_to: ReplyTo, body: &[u8]) {
        let regions = self.world().regions();
        let mut results = self.site().pool().take();
        if let Ok(Encoded { like_chain: true, count, .. }) = Encoded::parse(body) {
            self.work(Work::Chain { operations: count as u16 });
        }
        if W::SHARED_MEMORY {
            let ran = at_once(run(body, regions, self, &mut results));
            self.answer_one_sided(reply_to, ran, results);
            return;
        }
        let (engine, body) = (self.clone(), self.keep(body));
        self.spawn(async move {
            let ran = run(&body, engine.world().regions(), &engine, &mut results).await;
            engine.answer_one_sided(reply_to, ran, results);
        });
    }

    fn answer_one_sided(&self, reply_to: ReplyTo, ran: Result<(), FabricError>, results: Vec<u8>) {
        match ran {
            Ok(()) => {
                self.send_reply(reply_to, STATUS_OK, &mut |to| to.extend_from_slice(&results));
            }
            Err(error) => {
                count(
                    &self.site().counters().malformed,
                    u64::from(error == FabricError::Malformed),
                );
                self.refuse(reply_to, error);
            }
        }
        self.site().pool().give(results);
    }
}

impl<W: World> ChainAccess for Engine<W> {
    async fn access(&self, side: Side, _at: u64, touch: Touch) -> Result<(), FabricError> {
        if W::SHARED_MEMORY || side == self.site().here().side {
            return Ok(());
        }
        // An atomic is made by this engine once its words are here; writing them back is posted.
        let (reads, bytes) = match touch {
            Touch::Fetch(bytes) | Touch::Atomic(bytes) => (true, bytes),
            Touch::Store(bytes) => (false, bytes),
        };
        let transfer = Transfer::DmaTouch { reads, len: bytes as u32 };
        self.start_transfer(transfer, self.site().pool().take()).await.map(drop)
    }
}
