//! What leaves: requests and their repeats, replies, frames, operations.

use super::calls::{Due, Resend};
use super::completions::{Completion, Token};
use super::pool::Payload;
use super::stats::count;
use super::{Charge, DoorbellBatch, Engine, Operation, Route, Timer, Transfer, World};
use crate::chain::error_status;
use crate::fabric::{FabricError, Fanout, ReplyTo, RequestId, Timeout};
use crate::ids::{EngineId, NodeId};
use crate::trace::Flow;
use crate::units::Nanos;
use crate::wire::{
    Class, FRAME_HEADER, FrameHeader, MESSAGES_MAX, MessageHeader, Window, Writer, seal,
};

/// Which part of sending a message is this core's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Share {
    /// All of it.
    Own,
    /// The deposit: what is sent was prepared for another receiver.
    Copy,
    /// None: the card sends a copy.
    OfCard,
}

/// Writes a body. As an object, so that sending is compiled once and not again for each message.
pub(super) type Emit<'a> = &'a mut dyn FnMut(&mut Vec<u8>);

/// A frame is flushed when it has grown to this size, whatever the round still brings.
const FRAME_BYTES_MAX: usize = 32 << 10;

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
        let inner = &*self.0;
        let Some(index) = self.reach(to) else {
            return Completion::ready(Err(FabricError::Unreachable));
        };
        let (token, completion) = inner.completions.open();
        let Some(request) = inner.calls.borrow_mut().open(to, token) else {
            inner.completions.resolve(token, Err(FabricError::NoResources));
            return completion;
        };
        let class = supersedes.map_or(Class::Request, Class::Superseding);
        let header = MessageHeader { class, kind, request, length: 0 };
        if self.may_lose(to) {
            let body = self.append_and_keep(to, header, emit);
            let length = body.len() as u32;
            self.keep_and_watch(MessageHeader { length, ..header }, body, timeout);
        } else {
            self.append_for(to, index, header, emit);
        }
        completion
    }

    /// Opens a request that another engine will send.
    pub(super) fn open_delegated(&self, to: EngineId) -> (ReplyTo, Completion) {
        let inner = &*self.0;
        let (token, completion) = inner.completions.open();
        let opened = match self.reach(to) {
            None => Err(FabricError::Unreachable),
            Some(_) => inner.calls.borrow_mut().open(to, token).ok_or(FabricError::NoResources),
        };
        if let Err(error) = opened {
            inner.completions.resolve(token, Err(error));
        }
        (ReplyTo { engine: inner.here, request: opened.unwrap_or(RequestId::NONE) }, completion)
    }

    /// The index of an engine that is part of the view, unless its side is known to be down.
    #[inline(always)]
    fn reach(&self, to: EngineId) -> Option<usize> {
        let index = self.0.views.current().index_of(to)?;
        (!self.0.lives.is_down(to)).then_some(index)
    }

    /// May what is sent to another engine get lost?
    #[inline]
    pub(super) fn may_lose(&self, to: EngineId) -> bool {
        to != self.0.here && self.0.world.route(to) == Route::Unreliable
    }

    /// Is an expected request still open, over a route that may lose it?
    pub(super) fn may_be_lost(&self, request: RequestId) -> bool {
        let inner = &*self.0;
        let to = inner.calls.borrow().receiver_of(request);
        to.is_some_and(|to| to == inner.here || inner.world.route(to) == Route::Unreliable)
    }

    /// Sends an expected request again and again.
    pub(super) fn retransmit_delegated(
        &self,
        request: RequestId,
        kind: u16,
        body: Vec<u8>,
        timeout: Timeout,
    ) {
        let inner = &*self.0;
        let body = inner.pool.payload(body);
        let class = Class::Delegated(inner.here);
        let header = MessageHeader { class, kind, request, length: body.len() as u32 };
        self.keep_and_watch(header, body, timeout);
    }

    /// Keeps a request for sending it again, and sets its timer.
    fn keep_and_watch(&self, header: MessageHeader, body: Payload, timeout: Timeout) {
        let inner = &*self.0;
        let after = inner.world.tuning().retransmit_after;
        let now = inner.world.now();
        let request = header.request;
        let resend = Resend::new(header, body, after, now, timeout);
        let first = resend.next_look(now + after);
        inner.calls.borrow_mut().keep(request, resend);
        let timer = Timer::Retransmit { slot: request.slot, sequence: request.sequence };
        inner.set_timer(first, timer);
    }

    /// Sends a request again, or gives it up.
    pub(super) fn retransmit(&self, request: RequestId, now: Nanos) {
        let inner = &*self.0;
        let mut calls = inner.calls.borrow_mut();
        match calls.due(request, now) {
            Due::Answered => {}
            Due::Resend { to, header, body, next } => {
                count(&inner.counters.retransmissions, 1);
                self.append(to, header, &mut |to| to.extend_from_slice(body));
                let timer = Timer::Retransmit { slot: request.slot, sequence: request.sequence };
                inner.set_timer(next, timer);
            }
            Due::GiveUp(token, error) => {
                count(&inner.counters.timeouts, 1);
                inner.completions.resolve(token, Err(error));
            }
        }
    }

    /// Gives up an expected request if it is still open.
    pub(super) fn give_up(&self, request: RequestId) {
        let inner = &*self.0;
        let open = inner.calls.borrow_mut().close(request);
        if let Some(token) = open {
            count(&inner.counters.timeouts, 1);
            inner.completions.resolve(token, Err(FabricError::TimedOut { request }));
        }
    }

    /// Sends a reply whose body `emit` writes, and remembers it where it may be asked for again.
    pub(super) fn send_reply(&self, to: ReplyTo, status: u16, emit: Emit<'_>) {
        let inner = &*self.0;
        let Some(index) = inner.views.current().index_of(to.engine) else {
            count(&inner.counters.malformed, 1);
            return;
        };
        let class = Class::Reply;
        let header = MessageHeader { class, kind: status, request: to.request, length: 0 };
        if self.may_lose(to.engine) {
            let kept = self.append_and_keep(to.engine, header, emit);
            self.with_peer(to.engine, |peer| peer.answered(to.request, status, kept));
        } else if !inner.lives.is_down(to.engine) {
            self.append_for(to.engine, index, header, emit);
        }
    }

    pub(super) fn send_refusal(&self, to: ReplyTo, error: FabricError) {
        let mut details = self.0.pool.take();
        let status = error_status(error, &mut Writer::new(&mut details));
        self.send_reply(to, status, &mut |body| body.extend_from_slice(&details));
        self.0.pool.give(details);
    }

    /// Appends a message for another engine, and returns its body for sending it again.
    fn append_and_keep(&self, to: EngineId, header: MessageHeader, emit: Emit<'_>) -> Payload {
        let mut body = self.0.pool.take();
        emit(&mut body);
        self.append(to, header, &mut |to| to.extend_from_slice(&body));
        self.0.pool.payload(body)
    }

    /// Appends a message to the frame that goes to its engine next. `emit` writes the body where it
    /// leaves from, and must not reach for the engine; the header's length is that of the body.
    pub(super) fn append(&self, to: EngineId, header: MessageHeader, emit: Emit<'_>) {
        if let Some(index) = self.reach(to) {
            self.append_for(to, index, header, emit);
        }
    }

    /// The same for an engine that is within reach and has this index.
    #[inline]
    fn append_for(&self, to: EngineId, index: usize, header: MessageHeader, emit: Emit<'_>) {
        let inner = &*self.0;
        if index == inner.index {
            return self.append_for_itself(header, emit);
        }
        self.deposit((to, index), Share::Own, header, emit);
    }

    /// Appends a message to the frame for an engine that is not this one.
    #[inline]
    fn deposit(
        &self,
        (to, index): (EngineId, usize),
        share: Share,
        mut header: MessageHeader,
        emit: Emit<'_>,
    ) {
        let inner = &*self.0;
        let since = inner.trace.as_ref().map(|_| inner.world.now());
        let full = {
            let mut gathers = inner.gathers.borrow_mut();
            let gather = gathers.entry(index);
            if gather.frame.is_empty() && gather.frame.capacity() == 0 {
                gather.frame = inner.world.frame_buffer();
            }
            let place = gather.count;
            gather.append(&mut header, emit);
            match share {
                Share::Own => inner.world.charge(Charge::MessageSent { bytes: header.length }),
                Share::Copy => inner.world.charge(Charge::MessageCopied),
                Share::OfCard => {}
            }
            count(&inner.counters.messages_sent, 1);
            count(&inner.counters.message_bytes_sent, u64::from(header.length));
            if let (Some(trace), Some(since)) = (&inner.trace, since) {
                if place == 0 {
                    gather.traced = trace.sink().number_frame();
                }
                let flow = Flow::new(gather.traced, place);
                trace.sent((since, inner.world.now()), flow, to, &header);
            }
            if !gather.listed {
                gather.listed = true;
                inner.listed.borrow_mut().push(to);
            }
            !inner.world.tuning().aggregation
                || gather.frame.len() >= FRAME_BYTES_MAX
                || usize::from(gather.count) == MESSAGES_MAX
        };
        if full {
            self.close_frame((to, index), share);
        }
    }

    #[inline]
    fn append_for_itself(&self, mut header: MessageHeader, emit: Emit<'_>) {
        let inner = &*self.0;
        let mut body = inner.pool.take();
        emit(&mut body);
        header.length = body.len() as u32;
        if let Some(trace) = &inner.trace {
            trace.sent_to_itself(inner.world.now(), &header);
        }
        let kept = inner.pool.payload(body);
        inner.loopback.borrow_mut().queue.push_back((header, kept));
    }

    /// Seals the frame for `to` and gives it to the transport, or holds it back if there is no
    /// space or older ones are held.
    fn close_frame(&self, (to, index): (EngineId, usize), share: Share) {
        let inner = &*self.0;
        let mut gathers = inner.gathers.borrow_mut();
        let gather = gathers.entry(index);
        if gather.frame.is_empty() {
            return;
        }
        let header = FrameHeader {
            from: inner.here,
            to,
            epoch: Window::of(self.0.views.current().epoch().0),
            incarnation: Window::of(inner.incarnation.0),
            to_incarnation: Window::of(inner.lives.incarnation(to).0),
            count: gather.count,
        };
        let mut frame = std::mem::take(&mut gather.frame);
        gather.count = 0;
        assert!((frame.len() > FRAME_HEADER) == (header.count > 0), "a count is that of messages");
        seal(&mut frame, header, inner.world.tuning().checksums);
        if let Some(trace) = &inner.trace {
            trace.sink().frame_sent(&frame, gather.traced);
        }
        let bytes = frame.len() as u32;
        count(&inner.counters.frames_sent, 1);
        count(&inner.counters.frame_bytes_sent, u64::from(bytes));
        if share != Share::OfCard {
            inner.world.charge(Charge::FrameSent { to, bytes });
        }
        let refused = if !gather.held.is_empty() {
            Some(frame)
        } else if share == Share::OfCard {
            inner.world.transmit_copy(to, frame).err()
        } else {
            inner.world.transmit(to, frame).err()
        };
        if let Some(frame) = refused {
            gather.held.push_back(frame);
            let mut holding = inner.holding.borrow_mut();
            if let Err(at) = holding.binary_search(&(index, to)) {
                holding.insert(at, (index, to));
            }
        }
    }

    /// Sends a one-way message, whose body `emit` writes, to each of `to`.
    ///
    /// What the card sends copies of is a frame of its own: frames in the making differ from one
    /// receiver to the next. (Decision 0014)
    pub(super) fn send_copies(
        &self,
        to: &[EngineId],
        header: MessageHeader,
        fanout: Fanout,
        emit: Emit<'_>,
    ) {
        let inner = &*self.0;
        let by_card = fanout == Fanout::Broadcast && inner.world.broadcasts();
        let mut body = inner.pool.take();
        emit(&mut body);
        let mut share = Share::Own;
        for &to in to {
            let Some(index) = self.reach(to) else { continue };
            assert!(to.node != inner.here.node, "within a node nothing is sent in copies");
            if by_card {
                self.close_frame((to, index), Share::Own);
            }
            let copy: Emit<'_> = &mut |frame| frame.extend_from_slice(&body);
            self.deposit((to, index), share, header, copy);
            if by_card {
                self.close_frame((to, index), share);
            }
            share = if by_card { Share::OfCard } else { Share::Copy };
        }
        inner.pool.give(body);
    }

    /// Forgets what was gathered or held back for `to`.
    pub(super) fn forget_frames(&self, to: EngineId) {
        let inner = &*self.0;
        let Some(index) = inner.views.current().index_of(to) else { return };
        let mut gathers = inner.gathers.borrow_mut();
        let gather = gathers.entry(index);
        gather.frame.clear();
        gather.count = 0;
        gather.held.clear();
        inner.holding.borrow_mut().retain(|&(holding, _)| holding != index);
    }

    /// Sends a frame without a message, which tells `to` the incarnation of this side.
    pub(super) fn send_notice(&self, to: EngineId) {
        let inner = &*self.0;
        let Some(index) = inner.views.current().index_of(to) else { return };
        let mut gathers = inner.gathers.borrow_mut();
        let gather = gathers.entry(index);
        if gather.frame.is_empty() {
            gather.frame.resize(FRAME_HEADER, 0);
        }
        if !std::mem::replace(&mut gather.listed, true) {
            inner.listed.borrow_mut().push(to);
        }
    }

    /// Sends what the round has gathered; true if anything left.
    pub(super) fn flush_frames(&self) -> bool {
        let inner = &*self.0;
        let mut progress = false;
        if !inner.holding.borrow().is_empty() {
            progress |= self.retry_held();
        }
        loop {
            let next = inner.listed.borrow_mut().pop();
            let Some(to) = next else { return progress };
            let Some(index) = self.0.views.current().index_of(to) else { continue };
            inner.gathers.borrow_mut().entry(index).listed = false;
            self.close_frame((to, index), Share::Own);
            progress = true;
        }
    }

    fn retry_held(&self) -> bool {
        let inner = &*self.0;
        let mut progress = false;
        let mut gathers = inner.gathers.borrow_mut();
        inner.holding.borrow_mut().retain(|&(index, to)| {
            let held = &mut gathers.entry(index).held;
            while let Some(frame) = held.pop_front() {
                if let Err(frame) = inner.world.transmit(to, frame) {
                    held.push_front(frame);
                    return true;
                }
                progress = true;
            }
            false
        });
        progress
    }

    /// Starts a transfer to the other side's memory, or makes it at once where memory is shared.
    pub(super) fn start_local(&self, transfer: Transfer, buffer: Vec<u8>) -> Completion {
        let inner = &*self.0;
        let mut operation = Operation { transfer, buffer, result: Ok(()), token: 0 };
        let is_dma =
            !matches!(operation.transfer, Transfer::Persist { .. } | Transfer::Fill { .. });
        if is_dma {
            self.count_dma(operation.reads(), operation.dma_bytes());
            if let Some(region) = operation.region() {
                inner.world.regions().adopt(region, inner.here.side.other());
            }
        }
        if W::SHARED_MEMORY && is_dma {
            return self.transfer_at_once(operation);
        }
        let (token, completion) = inner.completions.open();
        operation.token = token.0;
        if let Some(trace) = &inner.trace {
            trace.transfer_begins(inner.world.now(), &operation);
        }
        let mut batches = inner.batches.borrow_mut();
        let limit = inner.world.tuning().dma_vector;
        let batch = match operation.transfer {
            Transfer::DmaRead { .. } | Transfer::DmaTouch { reads: true, .. } => {
                &mut batches.dma_reads
            }
            Transfer::DmaWrite { .. } | Transfer::DmaTouch { .. } => &mut batches.dma_writes,
            Transfer::Fill { .. } => &mut batches.fills,
            _ => &mut batches.persists,
        };
        batch.push(operation);
        // [Xenic21 4.3.1] A vector is submitted when it fills, or at the end of the round.
        if is_dma && batch.len() >= limit {
            self.submit(batch);
        }
        completion
    }

    /// Makes a DMA in memory that both sides share. What the log device must take is not complete
    /// before it has.
    fn transfer_at_once(&self, mut operation: Operation) -> Completion {
        let inner = &*self.0;
        let pending = operation.persists().then(|| inner.completions.open());
        if let Some((token, _)) = &pending {
            operation.token = token.0;
        }
        if let Some(trace) = &inner.trace {
            trace.transfer_begins(inner.world.now(), &operation);
        }
        operation.execute_local();
        let landed = self.persist_landed(operation);
        if let (Some(trace), Some(landed)) = (&inner.trace, &landed) {
            trace.transfer_ends(inner.world.now(), landed);
        }
        let result = landed.map(|done| done.result.map(|()| inner.pool.payload(done.buffer)));
        match (pending, result) {
            (None, Some(result)) => Completion::ready(result),
            (Some((token, completion)), Some(result)) => {
                inner.completions.resolve(token, result);
                completion
            }
            (Some((_, completion)), None) => completion,
            (None, None) => panic!("only a durable write goes on to the log device"),
        }
    }

    /// Sends a durable write that has landed on to the log device, if there is one to wait for;
    /// gives back what is complete.
    pub(super) fn persist_landed(&self, mut operation: Operation) -> Option<Operation> {
        let Transfer::DmaWrite { region, offset, durable: true } = &operation.transfer else {
            return Some(operation);
        };
        if self.0.world.memory_is_durable() || operation.result.is_err() {
            return Some(operation);
        }
        let (region, offset, len) = (region.clone(), *offset, operation.buffer.len() as u32);
        operation.transfer = Transfer::Persist { region, offset, len };
        self.0.batches.borrow_mut().persists.push(operation);
        None
    }

    pub(super) fn count_dma(&self, reads: bool, bytes: u64) {
        let counters = &self.0.counters;
        let counter = if reads { &counters.dma_reads } else { &counters.dma_writes };
        count(counter, 1);
        count(&counters.dma_bytes, bytes);
    }

    fn submit(&self, batch: &mut Vec<Operation>) {
        let inner = &*self.0;
        if batch.is_empty() {
            return;
        }
        count(&inner.counters.dma_vectors, 1);
        inner.world.charge(Charge::DmaSubmitted { requests: batch.len() as u32 });
        inner.world.submit(batch);
        assert!(batch.is_empty(), "the world takes the whole vector");
    }

    /// Posts the verb or chain `buffer` to the NIC of `node`.
    pub(super) fn post_verb(&self, node: NodeId, buffer: Vec<u8>) -> Completion {
        let inner = &*self.0;
        let (Token(token), completion) = inner.completions.open();
        let operation = Operation { transfer: Transfer::Verbs, buffer, result: Ok(()), token };
        count(&inner.counters.verbs, u64::from(operation.verbs()));
        if let Some(trace) = &inner.trace {
            trace.verb_begins(inner.world.now(), &operation, node);
        }
        let batches = &mut *inner.batches.borrow_mut();
        let batch = batches.verbs.entry(node.index());
        if batch.is_empty() {
            batches.posted.push(node);
        }
        batch.push(operation);
        if batch.len() >= inner.world.tuning().doorbell_batch.limit(inner.here.side) {
            self.ring_doorbells(node, batch);
        }
        completion
    }

    /// Posts a batch with one doorbell, or with as many as there are operations if that is sooner.
    fn ring_doorbells(&self, node: NodeId, batch: &mut Vec<Operation>) {
        let world = &self.0.world;
        let adapts = world.tuning().doorbell_batch == DoorbellBatch::Adaptive;
        if !adapts || batch.len() < 2 || world.doorbell_pays(batch.len()) {
            return self.ring_doorbell(node, batch);
        }
        let mut alone = Vec::with_capacity(1);
        for operation in batch.drain(..) {
            alone.push(operation);
            self.ring_doorbell(node, &mut alone);
        }
    }

    fn ring_doorbell(&self, node: NodeId, batch: &mut Vec<Operation>) {
        if batch.is_empty() {
            return;
        }
        let operations = batch.iter().map(Operation::verbs).sum();
        self.0.world.charge(Charge::VerbsPosted { operations });
        self.0.world.post(node, batch);
        assert!(batch.is_empty(), "the world takes the whole batch");
    }

    /// Submits whatever the round has gathered.
    pub(super) fn flush_operations(&self) {
        let mut batches = self.0.batches.borrow_mut();
        let batches = &mut *batches;
        self.submit(&mut batches.dma_reads);
        self.submit(&mut batches.dma_writes);
        for batch in [&mut batches.fills, &mut batches.persists] {
            if !batch.is_empty() {
                self.0.world.submit(batch);
            }
        }
        if batches.posted.is_empty() {
            return;
        }
        batches.posted.sort_unstable();
        for node in batches.posted.drain(..) {
            self.ring_doorbells(node, batches.verbs.entry(node.index()));
        }
    }
}
