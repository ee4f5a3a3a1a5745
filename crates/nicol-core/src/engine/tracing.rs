//! What an engine records where a trace is taken. It charges nothing and changes nothing.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use super::calls::ONE_SIDED_KIND;
use super::{Inner, Operation, Transfer, World};
use crate::exec::{Observer, TaskRef};
use crate::fabric::{Message, OneSided, ReplyTo};
use crate::ids::{EngineId, Incarnation, Key, NodeId};
use crate::trace::{
    self, Flow, Phase, PhaseLog, Sink, Step, TaskNumber, Tracer, Track, TransferKind, What,
    short_name,
};
use crate::units::Nanos;
use crate::wire::{Class, MessageHeader};

/// The state of an engine's part of the trace.
#[derive(Debug)]
pub(super) struct EngineTrace {
    tracer: Tracer,
    here: EngineId,
    /// When the round began, until something happens in it: empty rounds are not recorded.
    round: Cell<Option<Nanos>>,
    in_round: Cell<bool>,
    /// By place in the executor.
    tasks: RefCell<Vec<Option<TaskNumber>>>,
    /// The type and the keys of the message that is sent next, or the verb.
    described: RefCell<Description>,
    /// The keys of the one-sided operation that is posted next.
    about: RefCell<Vec<Key>>,
    /// Messages to itself that were sent and not taken.
    loopback: RefCell<VecDeque<Flow>>,
    /// Tasks and calls, as last recorded.
    counted: Cell<[u64; 2]>,
}

/// A message that is about to be sent, or a verb that is about to be posted.
#[derive(Debug, Default)]
struct Description {
    kind: u16,
    name: Option<&'static str>,
    keys: Vec<Key>,
}

/// The counters of an engine.
const COUNTERS: [&str; 2] = ["tasks", "calls in flight"];

impl EngineTrace {
    pub(super) fn new(sink: &Arc<Sink>, here: EngineId) -> Self {
        Self {
            tracer: Tracer::new(sink, Track::Engine(here)),
            here,
            round: Cell::new(None),
            in_round: Cell::new(false),
            tasks: RefCell::default(),
            described: RefCell::default(),
            about: RefCell::default(),
            loopback: RefCell::default(),
            counted: Cell::default(),
        }
    }

    pub(super) fn sink(&self) -> &Sink {
        self.tracer.sink()
    }

    pub(super) fn record(&self, at: Nanos, what: What) {
        self.enter();
        self.tracer.record(at, what);
    }

    fn begin(&self, at: Nanos, what: What) {
        self.enter();
        self.tracer.begin(at, what);
    }

    /// Begins the round's slice if this is the first that happens in it.
    fn enter(&self) {
        if let Some(begun) = self.round.take() {
            self.tracer.begin(begun, What::Round);
            self.in_round.set(true);
        }
    }

    pub(super) fn end(&self, at: Nanos) {
        self.tracer.end(at);
    }

    pub(super) fn round_begins(&self, at: Nanos) {
        self.round.set(Some(at));
    }

    pub(super) fn round_ends(&self, at: Nanos, counted: [u64; 2]) {
        self.round.set(None);
        if !self.in_round.take() {
            return;
        }
        let before = self.counted.replace(counted);
        for (name, (value, before)) in COUNTERS.into_iter().zip(counted.into_iter().zip(before)) {
            if value != before {
                self.tracer.record(at, What::Counter { name, value });
            }
        }
        self.tracer.end(at);
    }

    /// Notes what the message that is sent next is.
    pub(super) fn describe<M: Message>(&self, message: &M) {
        let mut described = self.described.borrow_mut();
        described.kind = M::KIND;
        described.name = Some(M::name());
        described.keys.clear();
        message.keys(&mut |key| described.keys.push(key));
        self.sink().name_kind(M::KIND, M::name());
    }

    /// Notes a key that the one-sided operation posted next is about.
    pub(super) fn about(&self, key: Key) {
        self.about.borrow_mut().push(key);
    }

    /// Notes what the one-sided operation is that is posted next.
    pub(super) fn describe_one_sided(&self, operation: &OneSided<'_>) {
        let keys = self.about.take();
        let name = Some(operation.name());
        self.described.replace(Description { kind: ONE_SIDED_KIND, name, keys });
    }

    /// A message was appended to frame `frame` as number `place`, or to the loopback queue.
    pub(super) fn sent(
        &self,
        (since, at): (Nanos, Nanos),
        flow: Flow,
        to: EngineId,
        header: &MessageHeader,
    ) {
        let mut described = self.described.take();
        if !matches!(header.class, Class::Reply) && described.kind != header.kind {
            // Described, and then kept for later: this is another one.
            described = Description::default();
        }
        let Description { name, keys, .. } = described;
        let (class, asker) = match header.class {
            Class::OneWay => (trace::Class::OneWay, self.here),
            Class::Request | Class::Superseding(_) => (trace::Class::Request, self.here),
            Class::Reply => (trace::Class::Reply, to),
            Class::Delegated(asker) => (trace::Class::Request, asker),
        };
        let known = || match class {
            trace::Class::Reply => None,
            _ => self.sink().kind_name(header.kind),
        };
        let unnamed = if class == trace::Class::Reply { "reply" } else { "one-sided" };
        let name = name.or_else(known).unwrap_or(unnamed);
        let request = ReplyTo { engine: asker, request: header.request };
        let bytes = header.length;
        self.record(at, What::Sent { flow, since, to, class, name, request, bytes });
        for key in keys {
            self.tracer.record(at, What::About(key));
        }
    }

    /// A message to itself: it is taken in the order of sending.
    pub(super) fn sent_to_itself(&self, at: Nanos, header: &MessageHeader) {
        let flow = Flow::new(self.sink().number_frame(), 0);
        self.loopback.borrow_mut().push_back(flow);
        self.sent((at, at), flow, self.here, header);
    }

    /// The engine takes a message.
    pub(super) fn delivers(
        &self,
        at: Nanos,
        flow: Option<Flow>,
        from: EngineId,
        header: &MessageHeader,
    ) {
        let reply = matches!(header.class, Class::Reply);
        self.described.take();
        self.begin(at, What::Deliver { flow, from, kind: header.kind, reply });
    }

    /// The engine takes the next message that it sent to itself.
    pub(super) fn delivers_own(&self, at: Nanos, header: &MessageHeader) {
        let flow = self.loopback.borrow_mut().pop_front();
        self.delivers(at, flow, self.here, header);
    }

    /// A protocol has taken a step in this life.
    #[cold]
    pub(super) fn step(&self, at: Nanos, life: Incarnation, step: Step) {
        let place = self.sink().number_step();
        self.record(at, What::Step { step, life, place });
    }

    /// A transfer was asked for.
    pub(super) fn transfer_begins(&self, at: Nanos, operation: &Operation) {
        let kind = match operation.transfer {
            Transfer::DmaRead { .. } | Transfer::DmaTouch { reads: true, .. } => {
                TransferKind::DmaRead
            }
            Transfer::DmaWrite { .. } | Transfer::DmaTouch { .. } => TransferKind::DmaWrite,
            Transfer::Persist { .. } | Transfer::Fill { .. } => TransferKind::Persist,
            Transfer::Verbs => panic!("a verb goes to a node"),
        };
        let bytes = operation.dma_bytes();
        self.record(at, What::TransferBegins { id: operation.token, kind, bytes, to: None });
    }

    /// A one-sided operation was posted to the card of `node`.
    pub(super) fn verb_begins(&self, at: Nanos, operation: &Operation, node: NodeId) {
        let Description { name, keys, .. } = self.described.take();
        let kind = TransferKind::Verb(name.unwrap_or("verb"));
        let bytes = operation.dma_bytes();
        self.record(at, What::TransferBegins { id: operation.token, kind, bytes, to: Some(node) });
        for key in keys {
            self.tracer.record(at, What::About(key));
        }
    }

    /// A transfer is complete.
    pub(super) fn transfer_ends(&self, at: Nanos, operation: &Operation) {
        let ok = operation.result.is_ok();
        self.record(at, What::TransferEnds { id: operation.token, ok });
    }

    /// A task of the type with this name was spawned.
    pub(super) fn task_begins(&self, at: Nanos, task: TaskRef, of: &'static str) {
        let number = self.sink().number_task();
        let mut tasks = self.tasks.borrow_mut();
        if tasks.len() <= task.place() {
            tasks.resize(task.place() + 1, None);
        }
        tasks[task.place()] = Some(number);
        self.record(at, What::TaskBegins { task: number, name: short_name(of) });
    }

    fn number(&self, task: TaskRef) -> Option<TaskNumber> {
        self.tasks.borrow().get(task.place()).copied().flatten()
    }

    /// A phase of a task, the running one, begins; outside tasks, a slice of the engine.
    #[cold]
    pub(super) fn phase_begins(
        &self,
        at: Nanos,
        task: Option<TaskRef>,
        log: Rc<dyn PhaseLog>,
        name: &'static str,
    ) -> Phase {
        let task = task.and_then(|task| self.number(task));
        let what = What::PhaseBegins { task, name };
        match task {
            Some(_) => self.record(at, what),
            None => self.begin(at, what),
        }
        Phase::open(log, task, name)
    }

    /// The engine is no more: its tasks are gone, and what was recorded is handed over.
    pub(super) fn ends(&self, at: Nanos) {
        for task in self.tasks.take().into_iter().flatten() {
            self.tracer.record(at, What::TaskEnds(task));
        }
        self.tracer.flush();
    }
}

impl<W: World> Observer for Inner<W> {
    fn poll_begins(&self, task: TaskRef) {
        let Some(trace) = self.site.trace() else { return };
        trace.described.take();
        trace.begin(self.site.now(), What::Poll(trace.number(task).unwrap_or_default()));
    }

    fn poll_ends(&self, task: TaskRef, done: bool) {
        let Some(trace) = self.site.trace() else { return };
        let at = self.site.now();
        if done && let Some(number) = trace.number(task) {
            trace.record(at, What::TaskEnds(number));
            trace.tasks.borrow_mut()[task.place()] = None;
        }
        trace.end(at);
    }
}

impl<W: World> PhaseLog for Inner<W> {
    fn phase_ends(&self, task: Option<TaskNumber>, name: &'static str) {
        let Some(trace) = self.site.trace() else { return };
        match task {
            Some(_) => trace.record(self.site.now(), What::PhaseEnds { task, name }),
            None => trace.end(self.site.now()),
        }
    }
}
