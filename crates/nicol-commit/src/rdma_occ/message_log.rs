//! FaRM's message logs: RPCs and their answers as one-sided WRITEs. "FaRM applies an RPC protocol
//! based on one-sided WRITEs to pairwise message logs on each server. The servers poll logs and
//! handle requests, sending back responses using the same mechanism." [Xenic21 2.2.2]
//!
//! Each pair of host engines that work for each other has two rings, one in the memory of each,
//! which the other alone writes. A record is one of `commit::log`: its number and its foot say that
//! all of it is there, so that no order among WRITEs is needed. In front of its message stands how
//! far its sender has read the ring of the other direction: space is acknowledged along with what
//! is sent anyway.
//!
//! - At most once, in order: the place in the ring is a message's identity. A WRITE takes place
//!   once or fails; one that failed is looked for in the ring and made again if it is not there
//!   (`rings`), and until then the records behind it wait. So an ABORT comes after the LOCK that it
//!   takes back, answered or not, and fences it without naming it.
//! - A request that gives up when its timeout is over is delivered nevertheless, if late.
//! - A message that does not fit half of a ring travels in parts, so that any message fits.
//! - Back-pressure: what finds no space waits in a queue of its ring, in order, and is written as
//!   space is freed. If no message says so, a READ of the reader's progress does.
//! - Two full rings of a pair cannot block each other, since reading waits for nothing: a message
//!   is taken out of the ring, its space is free, and then it is served; its answer may have to
//!   queue. A queue of [`WAITING_MAX`] records takes no request any more that may give up, since
//!   those could grow without end while a node is cut off; what must happen belongs to the
//!   transactions that are open, and answers to requests that found space.
//! - A lost WRITE holds up what was written behind it, as a lost packet does on a connection: under
//!   message faults more requests time out than by SENDs, which overtake one another.
//!
//! Cost: at the sender a WRITE and its completion; the card and PCIe at the target; there, the poll
//! of the core's round and what a message costs without a packet (`Work::MessagePolled`). The polls
//! of the rings that have nothing are in that one poll.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use nicol_core::exec::Signal;
use nicol_core::fabric::{
    Delivery, Fabric, FabricError, HasDoorbell, Message, ReplyTo, RequestId, Service, Timeout, Work,
};
use nicol_core::ids::{EngineId, Key, NodeId};
use nicol_core::wire::Writer;

use super::OPEN_MAX;
use super::messages::{AsItCame, Letter, LetterHead};
use super::node::Node;
use super::reach::{LogHandle, Reach};
use super::rings::write_in_time;
use crate::log::{self, LogMemory, LogReader, RecordKind, Tail};

/// Records read before the others' tasks have their turn.
const BATCH: usize = 64;
/// Records that may wait for space in one ring before requests are refused: of as many transactions
/// as may be open.
const WAITING_MAX: usize = OPEN_MAX;
/// Bytes in front of a record's message: how far the ring of the other direction has been read.
const READ_BYTES: usize = 8;

/// Hands over the keys that a letter is about, for traces.
type Named<'a> = &'a dyn Fn(&mut dyn FnMut(Key));

/// The message logs that one engine writes.
pub(super) struct MessageLogs<F: Fabric> {
    fabric: F,
    reach: Rc<Reach<F>>,
    /// By node; that of the own node is not used.
    outboxes: Vec<Outbox<F>>,
    /// Bytes of a message that one record may hold.
    part_max: usize,
    letter: RefCell<Vec<u8>>,
    framing: RefCell<Framing>,
}

/// Buffers for one record.
#[derive(Debug, Default)]
struct Framing {
    body: Vec<u8>,
    record: Vec<u8>,
}

/// The writer's end of one message log.
struct Outbox<F: Fabric> {
    tail: Cell<Tail>,
    /// Bytes that the target has read, as it said last.
    freed: Cell<u64>,
    /// Bytes that this engine has read of the log that the target writes here.
    read: Cell<u64>,
    /// Messages that have found no space, in order.
    waiting: RefCell<VecDeque<Waiting<F>>>,
    /// True if a task already writes the messages that wait.
    draining: Cell<bool>,
    /// Records whose WRITE is not known to have landed, in order.
    flying: RefCell<VecDeque<Flying<F>>>,
    posted: Signal,
}

/// A part of a message that has found no space.
struct Waiting<F: Fabric> {
    kind: RecordKind,
    part: F::Payload,
    asker: Option<ReplyTo>,
}

/// A WRITE under way, with what is needed to make it again.
struct Flying<F: Fabric> {
    /// Who waits for the answer, where a request begins: refused if the target is gone.
    asker: Option<ReplyTo>,
    record: F::Payload,
    offset: u64,
    end: u64,
    done: F::Completion,
}

impl<F: Fabric> MessageLogs<F> {
    /// Those of the engine of `fabric`; `None` if messages are SENDs.
    pub(super) fn new(fabric: &F, node: &Node, reach: &Rc<Reach<F>>) -> Option<Self> {
        let memory = node.messages_of(fabric.here())?;
        let outbox = || Outbox {
            tail: Cell::new(Tail::new(memory.size())),
            freed: Cell::new(0),
            read: Cell::new(0),
            waiting: RefCell::default(),
            draining: Cell::new(false),
            flying: RefCell::default(),
            posted: fabric.signal(),
        };
        let part_max = memory.body_max().checked_sub(READ_BYTES).filter(|&bytes| bytes > 0);
        let Some(part_max) = part_max else { panic!("a message log has space for a message") };
        Some(Self {
            fabric: fabric.clone(),
            reach: reach.clone(),
            outboxes: (0..fabric.view().nodes()).map(|_| outbox()).collect(),
            part_max,
            letter: RefCell::default(),
            framing: RefCell::default(),
        })
    }

    fn to(&self, node: NodeId) -> &Outbox<F> {
        &self.outboxes[usize::from(node.0)]
    }
}

impl<F: Fabric> Outbox<F> {
    /// True if there is space for a record with a message, or a part of one, of `bytes` bytes.
    fn has_space(&self, bytes: usize) -> bool {
        let tail = self.tail.get();
        tail.at() + tail.needed(READ_BYTES + bytes) - self.freed.get() <= tail.size()
    }

    fn free(&self, read: u64) {
        self.freed.set(self.freed.get().max(read));
    }
}

/// Starts reading what `other` writes to this engine, for `service`, and watching over what this
/// engine writes to it.
pub(super) fn start<F: Fabric>(
    logs: &Rc<MessageLogs<F>>,
    node: &Node,
    service: &Rc<dyn Service>,
    other: NodeId,
) {
    let MessageLogs { fabric, reach, .. } = &**logs;
    let from = reach.engine_of(other);
    if let Some(memory) = node.messages_of(from) {
        let (logs, service, memory) = (logs.clone(), service.clone(), memory.clone());
        fabric.spawn(read_messages(logs.clone(), service, from, memory));
        fabric.spawn(logs.see_land(other));
    }
}

/// Polls the message log that `from` writes, for ever.
async fn read_messages<F: Fabric>(
    logs: Rc<MessageLogs<F>>,
    service: Rc<dyn Service>,
    from: EngineId,
    memory: Arc<LogMemory>,
) {
    let doorbell: Arc<dyn HasDoorbell> = memory.region().clone();
    let mut reader = LogReader::new(memory);
    // The parts of a message that is not complete.
    let mut parts = Vec::new();
    loop {
        let seen = doorbell.doorbell().rings();
        let read = reader.read(BATCH);
        // Before they are served: their answers say so.
        logs.to(from.node).read.set(reader.applied());
        for (kind, record) in reader.records() {
            logs.take_record(&*service, from, kind, record, &mut parts);
        }
        if read == BATCH || doorbell.doorbell().rings() > seen {
            logs.fabric.yield_now().await;
        } else {
            logs.fabric.wait_for_doorbell(&doorbell, seen).await;
        }
    }
}

impl<F: Fabric> MessageLogs<F> {
    /// Sends a request as a WRITE; resolves to its answer.
    pub(super) fn write_request<M: Message>(
        self: &Rc<Self>,
        node: NodeId,
        message: &M,
        timeout: Timeout,
    ) -> F::Completion {
        let (asker, reply) = self.fabric.open_delegated_call(self.reach.engine_of(node));
        let request = asker.request;
        if request == RequestId::NONE {
            return reply;
        }
        if let Timeout::After(span) = timeout {
            if self.to(node).waiting.borrow().len() >= WAITING_MAX {
                self.fabric.refuse(asker, FabricError::NoResources);
                return reply;
            }
            self.fabric.give_up_after(request, span);
        }
        let head = LetterHead { letter: Letter::Request(M::KIND), request };
        self.write_letter(node, head, message);
        reply
    }

    /// Answers a request by a WRITE.
    pub(super) fn write_answer<M: Message>(self: &Rc<Self>, to: ReplyTo, message: &M) {
        let head = LetterHead { letter: Letter::Answer, request: to.request };
        self.write_letter(to.engine.node, head, message);
    }

    fn write_letter<M: Message>(self: &Rc<Self>, to: NodeId, head: LetterHead, message: &M) {
        assert!(!self.reach.is_here(to), "what is here is reached in local memory");
        let letter = &mut *self.letter.borrow_mut();
        letter.clear();
        let mut writer = Writer::new(letter);
        head.emit(&mut writer);
        message.emit(&mut writer);
        self.fabric.work(Work::MessageFramed { bytes: letter.len() as u32 });
        let is_request = matches!(head.letter, Letter::Request(_));
        let here = self.fabric.here();
        let mut asker = is_request.then_some(ReplyTo { engine: here, request: head.request });
        let mut parts = letter.chunks(self.part_max).peekable();
        while let Some(part) = parts.next() {
            let last = parts.peek().is_none();
            let kind = if last { RecordKind::Message } else { RecordKind::Part };
            self.write_part(to, kind, part, asker.take(), &|each| message.keys(each));
        }
    }

    /// Writes a record, now or when there is space for it; none to a node that is gone. `keys`
    /// hands over what the letter is about, for traces.
    fn write_part(
        self: &Rc<Self>,
        to: NodeId,
        kind: RecordKind,
        part: &[u8],
        asker: Option<ReplyTo>,
        keys: Named<'_>,
    ) {
        if self.reach.is_gone(to) {
            return self.refuse(asker);
        }
        let outbox = self.to(to);
        let in_turn = outbox.waiting.borrow().is_empty();
        if in_turn
            && outbox.has_space(part.len())
            && let Some(log) = self.message_log_handle(to)
        {
            return self.post_part(log, kind, part, asker, keys);
        }
        let part = self.fabric.keep(part);
        outbox.waiting.borrow_mut().push_back(Waiting { kind, part, asker });
        if !outbox.draining.replace(true) {
            self.fabric.spawn(self.clone().drain(to));
        }
    }

    /// The target of a request is gone.
    fn refuse(&self, asker: Option<ReplyTo>) {
        if let Some(asker) = asker {
            self.fabric.refuse(asker, FabricError::Unreachable);
        }
    }

    /// Where this engine's message log at `node` is, once that node has been asked.
    fn message_log_handle(&self, node: NodeId) -> Option<LogHandle> {
        let rkey = self.reach.find_handles(node)?.messages?;
        Some(LogHandle { node, rkey, size: self.to(node).tail.get().size() })
    }

    /// `keys` hands over what the letter is about, for traces.
    fn post_part(
        &self,
        log: LogHandle,
        kind: RecordKind,
        part: &[u8],
        asker: Option<ReplyTo>,
        keys: Named<'_>,
    ) {
        let outbox = self.to(log.node);
        let Framing { body, record } = &mut *self.framing.borrow_mut();
        body.clear();
        body.extend_from_slice(&outbox.read.get().to_le_bytes());
        body.extend_from_slice(part);
        let mut tail = outbox.tail.get();
        let post = |offset: u64, end: u64, bytes: &[u8], asker| {
            let (record, done) =
                (self.fabric.keep(bytes), self.reach.write_log(log, offset, bytes));
            outbox.flying.borrow_mut().push_back(Flying { asker, record, offset, end, done });
        };
        if let Some((offset, word)) = tail.skip(body.len()) {
            post(offset, tail.at(), &word.to_le_bytes(), None);
        }
        record.clear();
        let offset = tail.frame(kind, body, record);
        self.fabric.about_each(keys);
        post(offset, tail.at(), record, asker);
        outbox.tail.set(tail);
        outbox.posted.notify();
    }

    /// Writes what waits for space at `to`, until nothing does.
    async fn drain(self: Rc<Self>, to: NodeId) {
        let outbox = self.to(to);
        loop {
            if self.reach.is_gone(to) {
                let waiting = std::mem::take(&mut *outbox.waiting.borrow_mut());
                waiting.into_iter().for_each(|waiting| self.refuse(waiting.asker));
            }
            let next = outbox.waiting.borrow().front().map(|next| next.part.as_ref().len());
            let Some(bytes) = next else {
                outbox.draining.set(false);
                return;
            };
            let progress = match self.message_log_handle(to) {
                None => self.reach.handles_of(to).await.is_ok(),
                Some(log) if outbox.has_space(bytes) => {
                    let part = outbox.waiting.borrow_mut().pop_front();
                    if let Some(Waiting { kind, part, asker }) = part {
                        // Whose letter it was is not known any more.
                        self.post_part(log, kind, part.as_ref(), asker, &|_| {});
                    }
                    true
                }
                Some(log) => self.check_log_space(log).await,
            };
            if !progress {
                self.reach.wait_to_retry().await;
            }
        }
    }

    /// Looks how far the target has read its log; is that further than it has said before?
    async fn check_log_space(&self, log: LogHandle) -> bool {
        let outbox = self.to(log.node);
        let before = outbox.freed.get();
        if let Ok(read) = self.reach.read_log_word(log, log::applied_offset(log.size)).await {
            outbox.free(read);
        }
        outbox.freed.get() > before
    }

    /// Retries until every record for `to` has landed; gives up only when that node is gone.
    async fn see_land(self: Rc<Self>, to: NodeId) {
        let outbox = self.to(to);
        loop {
            let next = outbox.flying.borrow_mut().pop_front();
            let Some(Flying { asker, record, offset, end, done }) = next else {
                outbox.posted.wait().await;
                continue;
            };
            if done.await.is_err()
                && let Some(log) = self.message_log_handle(to)
            {
                write_in_time(&self.reach, log, record.as_ref(), offset, end).await;
            }
            if self.reach.is_gone(to) {
                self.refuse(asker);
            }
        }
    }

    /// Takes a record that `from` has written.
    fn take_record(
        self: &Rc<Self>,
        service: &dyn Service,
        from: EngineId,
        kind: RecordKind,
        record: &[u8],
        parts: &mut Vec<u8>,
    ) {
        let Some((read, part)) = record.split_first_chunk::<READ_BYTES>() else {
            panic!("a record of a message log that was valid when written is too short");
        };
        self.to(from.node).free(u64::from_le_bytes(*read));
        if kind == RecordKind::Message && parts.is_empty() {
            return self.take_letter(service, from, part);
        }
        parts.extend_from_slice(part);
        if kind == RecordKind::Message {
            self.take_letter(service, from, parts);
            parts.clear();
        }
    }

    fn take_letter(self: &Rc<Self>, service: &dyn Service, from: EngineId, letter: &[u8]) {
        self.fabric.work(Work::MessagePolled { bytes: letter.len() as u32 });
        let Ok((LetterHead { letter, request }, body)) = LetterHead::parse(letter) else {
            panic!("a message that was valid when written cannot be parsed any more");
        };
        // To an engine itself no message leaves: it takes the answer that it was brought.
        let asked = ReplyTo { engine: self.fabric.here(), request };
        match letter {
            Letter::Request(kind) => {
                let reply_to = Some(ReplyTo { engine: from, request });
                if service.deliver(Delivery { from, reply_to, kind, body }).is_err() {
                    let head = LetterHead { letter: Letter::Refusal, request };
                    self.write_letter(from.node, head, &AsItCame(&[]));
                }
            }
            Letter::Answer => self.fabric.reply(asked, &AsItCame(body)),
            Letter::Refusal => self.fabric.refuse(asked, FabricError::Malformed),
        }
    }
}
