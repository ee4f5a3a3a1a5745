//! A server's part: who schedules, and the workers with their queues. [AlNiCo22, implementation]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use nicol_core::exec::Signal;
use nicol_core::fabric::{
    Delivery, Fabric, FabricError, Message, ReplyTo, Service, Work as CoreWork,
};
use nicol_core::ids::{EngineId, Key, Side, TxnId};
use nicol_core::txn::{Abort, Outcome, Txn};
use nicol_core::units::Nanos;
use nicol_core::wire::Malformed;
use nicol_kit::count;

use super::config::{Completion, Kind};
use super::decision::{OPEN_MAX, Vectors};
use super::deposits::{Entry, Waiting};
use super::feedback::{Feedback, Window};
use super::messages::{
    COMPLETED, Checked, Completed, DATA, Done, ENTRY, Header, PART, Part, REQUEST, Request, VECTOR,
    VECTORS, Vector, WORK, Work,
};
use super::shared::Shared;
use super::strife::plan;

/// Requests that a worker's queue holds. (C2.06)
pub const QUEUE_MAX: usize = 256;

/// Runs transactions on a worker's core, for the system behind.
pub trait Executor: 'static {
    /// The event that an answer may have to wait for.
    type Ended: 'static;

    /// The state that attempts at a transaction leave to later ones.
    type Left: Default + 'static;

    /// Makes an attempt at `txn`.
    #[expect(async_fn_in_trait, reason = "futures stay on the polling thread that made them")]
    async fn once(&self, txn: &mut Txn, left: &mut Self::Left) -> (Outcome, Self::Ended);

    fn must_wait(&self, ended: &Self::Ended) -> bool;

    /// Waits until what has ended is durable; false if it never will be.
    #[expect(async_fn_in_trait, reason = "futures stay on the polling thread that made them")]
    async fn is_durable(&self, ended: Self::Ended) -> bool;
}

/// Attempts at a transaction of a worker, at most: it is then refused as if resources were missing.
const ATTEMPTS_MAX: u32 = 100_000;
/// The longest wait of a worker after an abort, and the first one, doubled from attempt to attempt.
const BACKOFF_MAX: Nanos = Nanos::from_micros(20);
const BACKOFF: Nanos = Nanos(200);

/// A request in a worker's queue.
pub(super) struct Job {
    reply_to: ReplyTo,
    request: Request,
    /// The client that is told when it is done.
    scheduler: Option<EngineId>,
}

/// A batch of Strife's that is being gathered, and what waits behind the one under way.
#[derive(Default)]
struct Batch {
    /// Of bounded length: see [`Server::gather`].
    gathered: Vec<(ReplyTo, Header, Vec<u8>)>,
    residual: Vec<(ReplyTo, Header, Vec<u8>)>,
    opened: Nanos,
    shares: Vec<Share>,
}

/// What one worker has of the batch under way: a cluster may be larger than its queue.
#[derive(Default)]
struct Share {
    /// Requests that it has in its queue, or executes.
    has: usize,
    waiting: VecDeque<(ReplyTo, Vec<u8>)>,
}

impl Batch {
    /// Requests that workers were given and that are not done.
    fn under_way(&self) -> usize {
        self.shares.iter().map(|share| share.has + share.waiting.len()).sum()
    }
}

/// One engine of a server.
pub(super) struct Server<F: Fabric, X: Executor> {
    fabric: F,
    shared: Arc<Shared>,
    executor: X,
    queue: RefCell<VecDeque<Job>>,
    arrived: Signal,
    window: Window,
    batch: RefCell<Batch>,
}

impl<F: Fabric, X: Executor> Server<F, X> {
    /// The part of this engine, which somebody delivers its messages to.
    pub(super) fn new(fabric: &F, shared: &Arc<Shared>, executor: X) -> Rc<Self> {
        let gathers = shared.config.kind.batches();
        let shares = (0..shared.ordinary()).filter(|_| gathers).map(|_| Share::default()).collect();
        Rc::new(Self {
            fabric: fabric.clone(),
            shared: Arc::clone(shared),
            executor,
            queue: RefCell::default(),
            arrived: fabric.signal(),
            window: Window::new(shared.config.window),
            batch: RefCell::new(Batch { shares, ..Batch::default() }),
        })
    }

    /// Begins to work, and to compute vectors.
    pub(super) fn begin(self: Rc<Self>) {
        let Self { fabric, shared, .. } = &*self;
        let here = fabric.here();
        if here.side == Side::Nic {
            return;
        }
        if usize::from(here.core) < shared.workers {
            (0..shared.config.at_a_time).for_each(|_| fabric.spawn(self.clone().work()));
        } else if shared.config.kind == Kind::Strife {
            fabric.spawn(self.clone().close_batches());
        }
        let schedules =
            matches!(shared.config.kind, Kind::Alnico | Kind::AlnicoCpu2 | Kind::AlnicoCpuN);
        if here.core == 0 && schedules {
            fabric.spawn(self.clone().feed_back());
        }
    }

    /// Makes attempts at `txn` until it has ended; `aborted` is told each key that stood in the
    /// way.
    async fn complete(
        &self,
        txn: &mut Txn,
        aborted: &mut dyn FnMut(Key),
    ) -> (Outcome, Option<X::Ended>) {
        let (initial, fabric) = (txn.entries().len(), &self.fabric);
        let mut left = X::Left::default();
        for attempt in 0..ATTEMPTS_MAX {
            let (outcome, ended) = self.executor.once(txn, &mut left).await;
            let Outcome::Aborted(
                Abort::LockConflict { key } | Abort::Stale { key } | Abort::ValidateLocked { key },
            ) = outcome
            else {
                return (outcome, Some(ended));
            };
            aborted(key);
            let longest = (BACKOFF.0 << attempt.min(16)).min(BACKOFF_MAX.0);
            let wait = Nanos(1 + fabric.random() % longest);
            fabric.sleep_until(fabric.now() + wait).await;
            txn.rewind(initial);
        }
        (Outcome::Aborted(Abort::NoResources), None)
    }

    fn worker(&self, worker: usize) -> EngineId {
        EngineId::host(self.fabric.here().node, worker as u8)
    }

    /// The worker loop: one request after the other. [AlNiCo22, implementation, step 4]
    async fn work(self: Rc<Self>) {
        let mut txn = Txn::default();
        loop {
            let job = self.take();
            let Some(Job { reply_to, request, scheduler }) = job else {
                self.arrived.wait().await;
                continue;
            };
            request.begin(&mut txn);
            let mut aborted = |key| {
                let feature = self.shared.map.feature(key);
                let counts = &self.shared.counts;
                count(&counts.aborts);
                self.window.push(&self.shared.contention, feature);
                let scheduler = &self.shared.assignments().scheduler;
                if scheduler.epoch() > 0 {
                    count(&counts.aborts_since_vectors);
                    if scheduler.weight(feature) > 0 {
                        count(&counts.detected);
                    }
                }
            };
            let running = self.fabric.phase("step 4: run");
            let (outcome, ended) = self.complete(&mut txn, &mut aborted).await;
            drop(running);
            let complete = !matches!(outcome, Outcome::Unknown);
            self.shared.transcripts.put(request.id, &mut txn, complete);
            if let Some(scheduler) = scheduler
                && self.shared.config.tells_who_is_done()
            {
                self.fabric.send(scheduler, &request.completed());
            }
            match ended.filter(|ended| self.executor.must_wait(ended)) {
                // The worker goes on meanwhile.
                Some(ended) => {
                    self.fabric.spawn(self.clone().answer_later(reply_to, outcome, ended));
                }
                None => self.answer(reply_to, outcome),
            }
        }
    }

    /// Takes the request that has waited the longest from this worker's queue.
    fn take(&self) -> Option<Job> {
        self.queue.borrow_mut().pop_front()
    }

    /// The requests that wait in this worker's queue.
    pub(super) const fn queue(&self) -> &RefCell<VecDeque<Job>> {
        &self.queue
    }

    /// The state that the cores of this server share.
    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    fn answer(&self, reply_to: ReplyTo, outcome: Outcome) {
        self.fabric.reply(reply_to, &Done(outcome));
        self.shared.open.fetch_sub(1, Ordering::Relaxed);
    }

    async fn answer_later(self: Rc<Self>, reply_to: ReplyTo, outcome: Outcome, ended: X::Ended) {
        let durable = self.executor.is_durable(ended).await;
        self.answer(reply_to, if durable { outcome } else { Outcome::Unknown });
    }

    /// Puts a request into this worker's queue. It is refused if that is full: the client tries
    /// again.
    fn enqueue(&self, reply_to: ReplyTo, request: Request, scheduler: Option<EngineId>) {
        let mut queue = self.queue.borrow_mut();
        if queue.len() == QUEUE_MAX {
            if let Some(scheduler) = scheduler {
                self.fabric.send(scheduler, &request.completed());
            }
            self.refuse(reply_to);
            return;
        }
        self.shared.open.fetch_add(1, Ordering::Relaxed);
        queue.push_back(Job { reply_to, request, scheduler });
        drop(queue);
        self.arrived.notify();
    }

    /// Refuses a request for which nobody has space.
    fn refuse(&self, reply_to: ReplyTo) {
        count(&self.shared.counts.refused);
        self.fabric.refuse(reply_to, FabricError::NoResources);
    }

    /// Decides who gets a request. [AlNiCo22, implementation, step 3]
    fn decide(&self, id: TxnId, header: &Header) -> Option<usize> {
        let shared = &self.shared;
        let _phase = self.fabric.phase("step 3: decide");
        if header.long && shared.config.reserved > 0 {
            // Of what has been answered nobody else says that it is done. (AMB-24)
            if shared.config.completion == Completion::Slot {
                shared.assignments().sent_another(header.slot);
            }
            return Some(shared.reserved_for(&header.features));
        }
        if self.fabric.here().side == Side::Host || !shared.config.fpga {
            // What a core reads of every worker's state.
            let bytes = (shared.workers * size_of::<u64>() * 8) as u32;
            self.fabric.work(CoreWork::Copy { bytes });
            let features = header.features.count();
            self.fabric.work(CoreWork::Execute { keys: features as u16 });
        }
        let mut assignments = shared.assignments();
        let (which, hint) = ((header.slot, id), usize::from(header.hint));
        let given = assignments.give(which, &header.features, hint);
        if given.is_some() || shared.config.completion == Completion::Reply {
            return given;
        }
        // Nobody says that a request is done, and what counts may be of clients that send nothing
        // more: the oldest makes way. Whether its worker has space the worker's own queue tells.
        // (AMB-24)
        assignments.forget_oldest();
        assignments.give(which, &header.features, hint)
    }

    /// Schedules a request and passes it on. All of it is looked at before: what a worker could not
    /// read would count there for ever.
    fn dispatch(&self, reply_to: ReplyTo, body: &[u8]) -> Result<(), Malformed> {
        let Checked { header, id, .. } = Checked::parse(body)?;
        match self.decide(id, &header) {
            Some(worker) => self.give(reply_to, body, worker)?,
            None => self.refuse(reply_to),
        }
        Ok(())
    }

    fn give(&self, reply_to: ReplyTo, body: &[u8], worker: usize) -> Result<(), Malformed> {
        count(&self.shared.counts.scheduled);
        let to = self.worker(worker);
        if to == self.fabric.here() {
            self.enqueue(reply_to, Request::parse(body)?, Some(to));
        } else {
            self.fabric.send(to, &Work { reply_to, request: body });
        }
        Ok(())
    }

    /// Schedules a request whose data is on its way to the host. [AlNiCo22, implementation, step 3]
    fn dispatch_vector(&self, reply_to: ReplyTo, body: &[u8]) -> Result<(), Malformed> {
        let Vector { header, id } = Vector::parse(body)?;
        match self.decide(id, &header) {
            Some(worker) => {
                count(&self.shared.counts.scheduled);
                let entry = Entry { reply_to, slot: header.slot, id };
                self.fabric.send(self.worker(worker), &entry);
            }
            None => self.refuse(reply_to),
        }
        Ok(())
    }

    /// A request's data is on the host: its worker starts if it has the entry. [AlNiCo22,
    /// implementation, step 1]
    fn deposit(&self, body: &[u8]) -> Result<(), Malformed> {
        let Checked { header, id, .. } = Checked::parse(body)?;
        let Some(waiting) = self.shared.deposits.data(header.slot, id, body) else {
            return Ok(());
        };
        let Waiting { entry: Entry { reply_to, .. }, worker, scheduler } = waiting;
        if worker == self.fabric.here() {
            self.enqueue(reply_to, Request::parse(body)?, Some(scheduler));
        } else {
            self.fabric.send(worker, &Work { reply_to, request: body });
        }
        Ok(())
    }

    /// This worker has an entry: it starts if the data is there. [AlNiCo22, implementation, step 4]
    fn entry(&self, scheduler: EngineId, entry: Entry) -> Result<(), Malformed> {
        let waiting = Waiting { entry, worker: self.fabric.here(), scheduler };
        if let Some(body) = self.shared.deposits.entry(waiting) {
            self.enqueue(entry.reply_to, Request::parse(&body)?, Some(scheduler));
        }
        Ok(())
    }

    fn completed(&self, by: EngineId, Completed { slot, id }: Completed) {
        self.shared.assignments().done(slot, id);
        let worker = usize::from(by.core);
        let mut batch = self.batch.borrow_mut();
        if let Some(share) = batch.shares.get_mut(worker) {
            share.has = share.has.saturating_sub(1);
            drop(batch);
            self.fill(worker);
        }
    }

    /// Strife: a worker gets this request behind what it has of the batch.
    fn hand_out(&self, worker: usize, (reply_to, body): (ReplyTo, Vec<u8>)) {
        self.batch.borrow_mut().shares[worker].waiting.push_back((reply_to, body));
        self.fill(worker);
    }

    /// Gives a worker what it has of the batch, as much as its queue takes.
    fn fill(&self, worker: usize) {
        let next = || {
            let mut batch = self.batch.borrow_mut();
            let share = &mut batch.shares[worker];
            let next = if share.has < QUEUE_MAX { share.waiting.pop_front() } else { None };
            share.has += usize::from(next.is_some());
            next
        };
        while let Some((reply_to, body)) = next() {
            // It was parsed when it was gathered.
            let _ = self.give(reply_to, &body, worker);
        }
    }

    /// True if Strife has gathered as many requests as a batch or the workers' queues take.
    pub(super) fn batch_is_full(&self) -> bool {
        let most = self.shared.config.batch.max(self.shared.ordinary() * QUEUE_MAX);
        self.batch.borrow().gathered.len() >= most
    }

    /// Strife gathers a request. It is refused if there are as many as a batch takes, or as the
    /// workers' queues take if that is more: the client tries again. [Strife20 3]
    fn gather(&self, reply_to: ReplyTo, body: &[u8]) -> Result<(), Malformed> {
        let Checked { header, .. } = Checked::parse(body)?;
        if self.batch_is_full() {
            self.refuse(reply_to);
            return Ok(());
        }
        let mut batch = self.batch.borrow_mut();
        if batch.gathered.is_empty() {
            batch.opened = self.fabric.now();
        }
        batch.gathered.push((reply_to, header, body.to_vec()));
        drop(batch);
        self.arrived.notify();
        Ok(())
    }

    /// Closes a batch when it is full or old, and the one before is done. Batches never overlap.
    async fn close_batches(self: Rc<Self>) {
        loop {
            let (opened, gathered, under_way, residual) = {
                let batch = self.batch.borrow();
                (batch.opened, batch.gathered.len(), batch.under_way(), batch.residual.len())
            };
            let config = &self.shared.config;
            let closes = opened + config.batch_time;
            if under_way > 0 {
                self.fabric.sleep_until(self.fabric.now() + Nanos::from_micros(5)).await;
            } else if residual > 0 {
                let residual = std::mem::take(&mut self.batch.borrow_mut().residual);
                for (place, (reply_to, _, body)) in residual.into_iter().enumerate() {
                    self.hand_out(place % self.shared.ordinary(), (reply_to, body));
                }
            } else if gathered == 0 {
                self.arrived.wait().await;
            } else if gathered < config.batch && self.fabric.now() < closes {
                // Few clients never fill a batch: it closes in time.
                let step = Nanos::from_micros(10);
                self.fabric.sleep_until(closes.min(self.fabric.now() + step)).await;
            } else {
                self.close_batch();
            }
        }
    }

    /// Looks at so many keys: more than one piece of work counts, if there are many.
    fn look_at(&self, keys: u32) {
        let mut left = keys;
        loop {
            let part = left.min(u16::MAX.into());
            self.fabric.work(CoreWork::Execute { keys: part as u16 });
            left -= part;
            if left == 0 {
                return;
            }
        }
    }

    /// Plans what was gathered, and gives the clusters to workers.
    fn close_batch(&self) {
        let mut batch = self.batch.borrow_mut();
        let most = self.shared.config.batch.min(batch.gathered.len());
        let taken: Vec<_> = batch.gathered.drain(..most).collect();
        batch.opened = self.fabric.now();
        let features: Vec<_> = taken.iter().map(|(_, header, _)| header.features).collect();
        let keys: u32 = features.iter().map(|features| features.count()).sum();
        // Three passes over the keys of the batch, as in the artifact.
        (0..3).for_each(|_| self.look_at(keys));
        let _phase = self.fabric.phase("Strife: plan");
        let plan = plan(&features, self.shared.ordinary());
        let mut taken: Vec<_> = taken.into_iter().map(Some).collect();
        batch.residual =
            plan.residual.iter().filter_map(|position| taken[*position].take()).collect();
        drop(batch);
        for (worker, cluster) in plan.clusters.iter().enumerate() {
            for (reply_to, _, body) in cluster.iter().filter_map(|at| taken[*at].take()) {
                self.hand_out(worker, (reply_to, body));
            }
        }
    }

    /// Computes vectors from what stood in the way, and tells the scheduler. (AMB-21)
    async fn feed_back(self: Rc<Self>) {
        let Shared { config, contention, map, .. } = &*self.shared;
        let mut feedback = Feedback::new(map, self.shared.ordinary());
        loop {
            self.fabric.sleep_until(self.fabric.now() + config.feedback).await;
            let counts = contention.counts();
            count(&self.shared.counts.epochs);
            self.fabric.work(CoreWork::Copy { bytes: (counts.len() * size_of::<u32>()) as u32 });
            let Some(made) = feedback.vectors(config.policy, &counts) else { continue };
            match config.kind {
                Kind::Alnico => {
                    self.fabric.send(EngineId::nic(self.fabric.here().node, 0), &made);
                }
                _ => self.publish(&made),
            }
        }
    }

    fn publish(&self, vectors: &Vectors) {
        if self.shared.assignments().scheduler.publish(vectors) {
            count(&self.shared.counts.published);
        }
    }

    /// Does this engine decide by vectors whose data goes another way?
    fn schedules_vectors(&self) -> bool {
        self.shared.config.kind == Kind::Alnico && self.fabric.here().side == Side::Nic
    }

    fn asked(&self, reply_to: ReplyTo, body: &[u8]) -> Result<(), Malformed> {
        let here = self.fabric.here();
        let is_worker = here.side == Side::Host && usize::from(here.core) < self.shared.workers;
        match (self.shared.config.kind, is_worker) {
            (Kind::RoundRobin | Kind::StaticPartition, true) => {
                count(&self.shared.counts.scheduled);
                self.enqueue(reply_to, Request::parse(body)?, None);
                Ok(())
            }
            (Kind::AlnicoCpuN, true) | (Kind::AlnicoCpu2, false) => self.dispatch(reply_to, body),
            (Kind::Alnico, false) if here.side == Side::Nic => self.dispatch(reply_to, body),
            (Kind::Strife, false) if here.side == Side::Host => self.gather(reply_to, body),
            _ => Err(Malformed { what: "nobody schedules here" }),
        }
    }
}

impl<F: Fabric, X: Executor> Service for Server<F, X> {
    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        let Delivery { from, reply_to, kind, body } = delivery;
        let own = from.node == self.fabric.here().node;
        match (kind, reply_to) {
            (REQUEST, Some(reply_to)) => self.asked(reply_to, body),
            (PART, Some(reply_to)) => Part::parse(body).map(|Part| {
                self.fabric.reply(reply_to, &Done(Outcome::Committed));
            }),
            (VECTOR, Some(reply_to)) if self.schedules_vectors() => {
                self.dispatch_vector(reply_to, body)
            }
            (DATA, _) if self.fabric.here().side == Side::Host => {
                let taken = self.deposit(body);
                if let (Ok(()), Some(reply_to)) = (&taken, reply_to) {
                    self.fabric.reply(reply_to, &Done(Outcome::Committed));
                }
                taken
            }
            (ENTRY, None) if own => self.entry(from, Entry::parse(body)?),
            (WORK, None) if own => {
                let Work { reply_to, request } = Work::parse(body)?;
                // Of data that another core has received the card is told, which has decided.
                let apart = self.shared.config.writes_twice();
                let scheduler = if apart { EngineId::nic(from.node, 0) } else { from };
                self.enqueue(reply_to, Request::parse(request)?, Some(scheduler));
                Ok(())
            }
            (COMPLETED, None) if own => {
                Completed::parse(body).map(|completed| self.completed(from, completed))
            }
            (VECTORS, None) if own => Vectors::parse(body).map(|vectors| self.publish(&vectors)),
            _ => Err(Malformed { what: "a message of scheduling" }),
        }
    }
}

const _: () = assert!(OPEN_MAX as usize <= QUEUE_MAX, "a queue has a place for what is decided");
const _: () = assert!(<Completed as Message>::KIND == COMPLETED, "kinds are what is matched");

#[cfg(test)]
mod tests;
