//! What a concurrency control protocol is to the engines, and what the transactions of one core
//! share: its place in the epochs, its clock, and what it has to take out of the indexes and to
//! free.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;

use nicol_core::exec::Signal;
use nicol_core::fabric::{Fabric, Work};
use nicol_core::ids::{Key, TxnId};
use nicol_core::interactive::Seen;
use nicol_core::trace::Phase;
use nicol_core::txn::Abort;
use nicol_core::units::Nanos;
use nicol_store::multicore::{Garbage, Multicore, Near, Place, Room, Trails};

use super::broken::Hooks;
use super::broken::choices::{durable_from_the_start, waiting};
use super::config::Waiting;
use super::halt::{Halt, unless_busy};
use super::log::CoreLog;
use super::node::Node;
use super::record_form::RecordForm;
use super::sets::Sets;

/// Transactions of a core between two looks at what it may take out and free.
const TIDY_EVERY: u64 = 8;
/// Records that a core removes or frees at one look, so that no transaction waits long for it.
const TIDY_MOST: usize = 64;
/// One step in so many stalls, where cores do.
const STALL_ONE_IN: u64 = 8;
/// Transactions that a core on a thread runs in a row, while it has other tasks.
const IN_A_ROW: u32 = 16;
/// Bits of a timestamp that name the core.
const CORE_BITS: u32 = 8;

/// The result of a second look at an absent record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// It is not, and nobody watches it any more.
    Present,
    /// Somebody holds it: look again.
    Busy,
    /// It was, and its word now says that it is gone. Nobody has used it after `timestamp`.
    Gone {
        /// The protocol's time; 0 where it has none.
        timestamp: u64,
    },
}

/// A concurrency control protocol.
///
/// Transactions of one node call it, many at a time. A read is two plain functions, between which
/// others may change the record; whoever calls them awaits what is to be awaited (`access.rs`).
/// Before each look at a record in other steps the protocol awaits
/// [`access`](nicol_core::fabric::SharedMemory::access). After an error the transaction calls
/// [`Protocol::abort`].
pub trait Protocol: RecordForm {
    /// The first half of a read, before it copies the value.
    type Found: Copy;

    /// The state of a core between its transactions.
    type Kept: Default;

    /// Called when a transaction begins. `since`: it will only read, and its client has seen what
    /// was written up to this timestamp.
    fn begin<F: Fabric>(_worker: &Worker<F, Self>, _sets: &mut Sets, _since: Option<u64>) {}

    /// Looks for what the transaction may see of the record of `key` at `place`.
    fn find<F: Fabric>(
        worker: &Worker<F, Self>,
        sets: &mut Sets,
        at: (Key, Place),
        for_update: bool,
    ) -> Result<Self::Found, Halt>;

    /// What others do between [`Protocol::find`] and [`Protocol::copy`] comes at this point, if
    /// they can do anything.
    fn before_copy<F: Fabric>(fabric: &F) -> Option<F::Access>;

    /// Copies what was found to the end of `value`, and notes the read. After an error what stands
    /// there means nothing.
    fn copy<F: Fabric>(
        worker: &Worker<F, Self>,
        sets: &mut Sets,
        at: (Key, Place),
        found: Self::Found,
        value: &mut Vec<u8>,
    ) -> Result<Seen, Halt>;

    /// Looks at a record that somebody holds after which a transaction gives up.
    fn looks_most<F: Fabric>(worker: &Worker<F, Self>) -> u32 {
        worker.node.config().spins
    }

    /// How long it goes on after so many looks.
    fn patience<F: Fabric>(_worker: &Worker<F, Self>) -> Nanos {
        Nanos::ZERO
    }

    /// Why a transaction ends that has given up on the record of `key`.
    fn give_up<F: Fabric>(_worker: &Worker<F, Self>, key: Key) -> Abort {
        Abort::LockConflict { key }
    }

    /// May the transaction write the record at `place` as it is?
    #[inline]
    fn writes_at_once<F: Fabric>(_worker: &Worker<F, Self>, _sets: &Sets, _place: Place) -> bool {
        true
    }

    /// Prepares to write the record of `key` at `place`, which it may not write as it is.
    #[expect(async_fn_in_trait, reason = "futures stay on the polling thread that made them")]
    async fn will_write<F: Fabric>(
        _worker: &Worker<F, Self>,
        _sets: &mut Sets,
        _at: (Key, Place),
    ) -> Result<(), Abort> {
        Ok(())
    }

    /// Commits: when this returns well, every write is visible and nothing is held.
    #[expect(async_fn_in_trait, reason = "futures stay on the polling thread that made them")]
    async fn commit<F: Fabric>(worker: &Worker<F, Self>, sets: &mut Sets) -> Result<(), Abort>;

    /// Lets go of everything that a transaction holds which does not commit.
    fn abort<F: Fabric>(worker: &Worker<F, Self>, sets: &mut Sets);

    /// Looks at a watched record that was absent, and marks it as gone if it still is.
    fn take_if_absent<F: Fabric>(worker: &Worker<F, Self>, place: Place) -> Absence;

    /// Discards what a record that is gone has besides its own words.
    fn discard_versions<F: Fabric>(_worker: &Worker<F, Self>, _place: Place) {}

    /// Frees the versions that no transaction can see any more. Called now and then before a
    /// transaction ends, so that the core is in its epoch.
    fn collect<F: Fabric>(_worker: &Worker<F, Self>) {}

    /// A transaction ends that holds nothing any more, and looks at nothing any more.
    fn end<F: Fabric>(_worker: &Worker<F, Self>, _sets: &Sets) {}
}

/// The state of one core.
pub struct Worker<F: Fabric, P: Protocol> {
    pub(super) fabric: F,
    pub(super) node: Arc<Node<P>>,
    pub(super) core: usize,
    /// The questions of the steps that a planted fault may answer otherwise.
    pub(super) hooks: Hooks,
    /// The reaction to a locked record, in an engine that locks for reading.
    pub(super) waiting: Waiting,
    /// Do some steps suffer stalls? What runs for each record asks before it makes a future.
    pub(super) stalls: bool,
    active: Cell<u32>,
    /// Notified when there is none.
    idle: Signal,
    /// The epoch that the core has announced.
    entered: Cell<u64>,
    begun: Cell<u64>,
    /// The newest version or timestamp that the core has given out.
    pub(super) newest: Cell<u64>,
    /// Transactions since the core's other tasks had a turn.
    in_a_row: Cell<u32>,
    /// Records that were absent in an epoch: to be taken out if they still are when it is over.
    absent: RefCell<VecDeque<(u64, Place)>>,
    /// Records of ordered tables that were deleted: to be taken out if they still are absent.
    deleted: RefCell<VecDeque<Place>>,
    /// Where the last searches in ordered tables have ended.
    trails: Trails,
    /// Where the core makes records.
    pub(super) room: RefCell<Room>,
    /// The protocol's state between the core's transactions.
    pub(super) kept: P::Kept,
    /// The garbage of an epoch, which is freed when that is over.
    garbage: RefCell<VecDeque<(u64, Garbage)>>,
    /// The log of what it has committed, if there is one.
    pub(super) log: Option<CoreLog>,
    #[expect(clippy::vec_box, reason = "a transaction takes one as it is")]
    pool: RefCell<Vec<Box<Sets>>>,
}

impl<F: Fabric, P: Protocol> Worker<F, P> {
    pub(super) fn new(fabric: F, node: Arc<Node<P>>) -> Self {
        let here = fabric.here();
        let idle = fabric.signal();
        Self {
            core: usize::from(here.core),
            hooks: node.config().hooks(),
            waiting: waiting(node.config()),
            stalls: node.config().stall > Nanos::ZERO,
            log: node.log().map(|_| CoreLog::new(&fabric, durable_from_the_start(node.config()))),
            fabric,
            node,
            active: Cell::new(0),
            idle,
            entered: Cell::new(0),
            begun: Cell::new(0),
            newest: Cell::new(0),
            in_a_row: Cell::new(0),
            absent: RefCell::default(),
            deleted: RefCell::default(),
            trails: Trails::default(),
            room: RefCell::default(),
            kept: P::Kept::default(),
            garbage: RefCell::default(),
            pool: RefCell::default(),
        }
    }

    pub(super) fn store(&self) -> &Multicore {
        self.node.store()
    }

    /// Begins a transaction. Where others of this core are under way in an epoch that is over, they
    /// end first: else the core would never be seen to leave it.
    pub(super) async fn begin(&self) -> (TxnId, Box<Sets>) {
        let epochs = self.store().epochs();
        while self.active.get() > 0 && self.entered.get() != epochs.now() {
            self.idle.wait().await;
        }
        if self.active.get() == 0 {
            let announces = self.hooks.announces_epochs();
            self.entered.set(if announces { epochs.enter(self.core) } else { epochs.now() });
        }
        self.set_active(self.active.get() + 1);
        self.begun.set(self.begun.get() + 1);
        let id = TxnId::new(self.fabric.here(), self.fabric.incarnation(), self.begun.get());
        let sets = self.pool.borrow_mut().pop().unwrap_or_default();
        (id, sets)
    }

    /// Ends a transaction that holds nothing any more.
    pub(super) fn end(&self, mut sets: Box<Sets>) {
        sets.left_absent().for_each(|place| self.look_later(place));
        let ended = self.begun.get() - u64::from(self.active.get());
        if ended.is_multiple_of(TIDY_EVERY) {
            P::collect(self);
            self.tidy();
        }
        P::end(self, &sets);
        sets.clear();
        self.pool.borrow_mut().push(sets);
        self.set_active(self.active.get() - 1);
        if self.active.get() == 0 {
            self.store().epochs().leave(self.core);
            self.idle.notify();
        }
    }

    fn set_active(&self, transactions: u32) {
        self.active.set(transactions);
        self.node.set_open(self.core, transactions);
    }

    /// A timestamp that no other core gives out, later than `than` and than those that this core
    /// has given out.
    pub(super) fn later(&self, than: u64) -> u64 {
        let now = (self.fabric.now().0 + 2) << CORE_BITS | self.core as u64;
        let next = ((self.newest.get().max(than) >> CORE_BITS) + 1) << CORE_BITS | self.core as u64;
        let timestamp = now.max(next);
        self.newest.set(timestamp);
        timestamp
    }

    /// The epoch that the core is in.
    pub(super) const fn entered(&self) -> u64 {
        self.entered.get()
    }

    /// The record of `key`; an absent one is made if there is none.
    #[inline]
    pub(super) fn locate(&self, sets: &mut Sets, key: Key) -> Result<Place, Abort> {
        self.fabric.work(Work::TableLookup);
        match self.find(key) {
            Some(place) => Ok(place),
            None => self.make(sets, key),
        }
    }

    /// The record of `key`, if there is one.
    #[inline]
    pub(super) fn find(&self, key: Key) -> Option<Place> {
        self.search(key, |store, near| store.place_near(key, near))
    }

    /// Where the record of `key` stands for a snapshot; if there is none, what it sees of the key:
    /// what is made later was not there.
    pub(super) fn find_past(&self, key: Key) -> Result<Place, Seen> {
        let found = self.search(key, |store, near| store.place_or_floor(key, near));
        found.map_err(|version| Seen { present: false, version })
    }

    /// Until when the leaf of `key` was read; 0 of a key that is in none.
    pub(super) fn leaf_was_read_until(&self, key: Key) -> u64 {
        self.search(key, |store, near| store.was_read_until(key, near))
    }

    /// Searches the records from where the last search for a key near it has ended.
    #[inline]
    pub(super) fn search<T>(&self, key: Key, search: impl FnOnce(&Multicore, &mut Near) -> T) -> T {
        self.trails.follow(key, |near| search(self.store(), near))
    }

    /// The record of `key`, which had none just now.
    #[cold]
    pub(super) fn make(&self, sets: &mut Sets, key: Key) -> Result<Place, Abort> {
        let made = self.search(key, |store, near| {
            store.make(key, near, Some(&mut self.room.borrow_mut()), P::word)
        });
        let located = made.map_err(|_| Abort::NoResources)?;
        if located.is_new {
            sets.made(located.place);
        }
        if located.inserted.is_some_and(|inserted| sets.inserted(inserted)) {
            self.note_absent(sets, (key, located.place))?;
        }
        Ok(located.place)
    }

    /// A scan of the transaction has read the leaf in which the record at `place` was made since,
    /// and so has seen that it is absent. It is read like those that the scan has met, since others
    /// may fill it, which does not change the leaf. [Silo13 4.6]
    fn note_absent(&self, sets: &mut Sets, at: (Key, Place)) -> Result<(), Abort> {
        let mut value = Vec::new();
        let found = P::find(self, sets, at, false);
        let seen = found.and_then(|found| P::copy(self, sets, at, found, &mut value));
        match unless_busy(seen)? {
            Some(Seen { present: false, .. }) => Ok(()),
            _ => Err(Abort::Stale { key: at.0 }),
        }
    }

    /// Notes that a watched record is absent, so that it is taken out if it stays so.
    pub(super) fn look_later(&self, place: Place) {
        self.absent.borrow_mut().push_back((self.store().epochs().now(), place));
    }

    /// Notes that a transaction has deleted the record of `key`, which is watched now. In an
    /// ordered table it is not left for others to find: a scan from a queue's head, such as for a
    /// district's oldest order, would look at all that were deleted since the epoch before.
    pub(super) fn was_deleted(&self, key: Key, place: Place) {
        match key.is_ordered() {
            true => self.deleted.borrow_mut().push_back(place),
            false => self.look_later(place),
        }
    }

    /// Notes what was taken out of an index, or of a record.
    pub(super) fn discard(&self, garbage: Garbage) {
        if self.hooks.frees_at_once() {
            self.store().free(garbage);
            return;
        }
        self.garbage.borrow_mut().push_back((self.store().epochs().of_removal(), garbage));
    }

    /// Before a transaction: now and then the core's other tasks have a turn. On threads most
    /// transactions await nothing, so that a client would go on with its next one for ever. One
    /// that is under way has found something held, and others wait for what it holds: it goes on
    /// soon.
    #[inline]
    pub(super) async fn take_turns(&self) {
        if F::ACCESS_POINTS {
            return;
        }
        let in_a_row = self.in_a_row.get() + 1;
        let yields = in_a_row == IN_A_ROW || self.active.get() > 0;
        self.in_a_row.set(if yields { 0 } else { in_a_row });
        if yields {
            self.fabric.yield_now().await;
        }
    }

    /// The stall between two steps of a transaction, if steps suffer stalls.
    #[inline]
    pub(super) fn stall(&self) -> Option<impl Future<Output = ()>> {
        self.stalls.then(|| self.stall_sometimes())
    }

    /// Begins a phase of a transaction, where steps suffer stalls after one.
    #[inline]
    pub(super) async fn phase(&self, name: &'static str) -> Phase {
        if let Some(stall) = self.stall() {
            stall.await;
        }
        self.fabric.phase(name)
    }

    async fn stall_sometimes(&self) {
        let longest = self.node.config().stall.0;
        let random = self.fabric.random();
        if random.is_multiple_of(STALL_ONE_IN) {
            let span = Nanos(random / STALL_ONE_IN % longest);
            self.fabric.sleep_until(self.fabric.now() + span).await;
        }
    }

    /// Moves the epoch on when that is due, and no other core has done so.
    pub(super) fn move_epoch(&self) {
        if self.node.takes_epoch_due(self.fabric.now()) {
            self.store().epochs().advance();
        }
    }

    /// Moves the epoch on when that is due, takes out what has stayed absent, and frees what nobody
    /// can look at any more. The core is in its epoch: who takes a record out looks at it.
    fn tidy(&self) {
        self.move_epoch();
        let epochs = self.store().epochs();
        let oldest = epochs.oldest();
        let deleted = self.deleted.borrow().len();
        for _ in 0..TIDY_MOST.min(deleted) {
            let Some(place) = self.deleted.borrow_mut().pop_front() else { break };
            if !self.take_out(place) {
                self.deleted.borrow_mut().push_back(place);
            }
        }
        for _ in 0..TIDY_MOST {
            let over = |(epoch, _): &mut (u64, Place)| *epoch < oldest;
            let Some((_, place)) = self.absent.borrow_mut().pop_front_if(over) else { break };
            if !self.take_out(place) {
                self.absent.borrow_mut().push_back((epochs.now(), place));
            }
        }
        for _ in 0..TIDY_MOST {
            let mut garbage = self.garbage.borrow_mut();
            let Some((_, freed)) = garbage.pop_front_if(|(epoch, _)| *epoch < oldest) else {
                break;
            };
            self.store().free(freed);
        }
    }

    /// Takes a watched record out of its index if it is still absent; returns false if somebody
    /// holds it.
    fn take_out(&self, place: Place) -> bool {
        match P::take_if_absent(self, place) {
            Absence::Present => true,
            Absence::Busy => false,
            Absence::Gone { timestamp } => {
                let taken = self.store().take_out(place, timestamp);
                P::discard_versions(self, place);
                taken.for_each(|garbage| self.discard(garbage));
                true
            }
        }
    }
}
