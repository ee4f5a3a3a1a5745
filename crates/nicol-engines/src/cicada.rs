//! Cicada (SIGMOD '17): several versions of each record, ordered by timestamps that transactions
//! take when they begin.
//!
//! | step | what | where |
//! |---|---|---|
//! | 3.1 | a timestamp: the core's clock, made unique and growing | `begin` |
//! | 3.2 | who only reads sees the past: nothing that it sees is validated or written | `begin` |
//! | 3.3 | one version stands in its record, if that is free when it is written | `pending`, `version.rs` |
//! | 3.3 | what is read outside of its record is copied into it | `promotion.rs` |
//! | 3.3 | a read takes the newest version that is not later; one that is pending is waited for | `visible` |
//! | 3.4 | while transactions abort: what was written last is installed first | `sort_by_contention` |
//! | 3.4 step 1 | install pending versions, where nobody has read or written later | `install_pending` |
//! | 3.4 step 2 | move the read timestamps of what was read on | `commit` |
//! | 3.4 step 3 | what was read is still what is visible, and nobody has read later what is overwritten | `validate` |
//! | 3.4 step 4 | the pending versions become committed | `commit` |
//! | 3.8 | what was overwritten before every transaction under way began is freed at once | `collect`, `nicol_store::multicore::Horizon` |
//!
//! A writer only adds the newest version of a record. [Cicada17 3.5] Its order need not agree with
//! time, since clocks of cores may differ: the promise is serializability in each client's order.
//! A client of a core gets its timestamps from that core, one after the other; one of a server has
//! its transactions on several, whose clocks agree in both worlds.
//!
//! DEVIATION [Cicada17 3.4]: nothing is validated before the first version is installed. With 22
//! workers on TPC-C of two warehouses that took more than it saved (decision 0071).
//!
//! DEVIATION [Cicada17 3.9]: how long an aborted transaction waits is not the engine's choice.
//! Whoever tries again regulates it: clients by an adaptive window (decision 0026), a server's
//! workers by a back-off that doubles.
//!
//! DEVIATION [Cicada17 3.2]: a transaction that only reads sees the past only if that is not
//! earlier than what its client has written or read; else it is like any other. Behind a
//! scheduler, where a server does not know its clients, all are.
//!
//! DEVIATION [Cicada17 3.8]: a core looks at what it may free after so many transactions, not after
//! so many microseconds; aborted versions, and those of records that are gone, wait for an epoch.
//!
//! DEVIATION [Cicada17 3.6]: leaves of ordered tables have a read timestamp, as in `tictoc.rs`,
//! instead of versions of their own.

mod overwritten;
mod promotion;
mod version;

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::atomic::{Ordering, fence};

use nicol_core::fabric::{Fabric, Work};
use nicol_core::history::Promise;
use nicol_core::ids::{Key, Version};
use nicol_core::interactive::Seen;
use nicol_core::txn::Abort;
use nicol_store::multicore::{Begun, Garbage, Horizon, Multicore, Place, Record, Room, State};

use super::broken::Hooks;
use super::halt::Halt;
use super::record_form::RecordForm;
use super::sets::{Read, Sets, Write};
use super::worker::{Absence, Protocol, Worker};
use overwritten::Overwritten;
use version::{ABORTED, COMMITTED, Old, PENDING, newest};

/// Records of which a core frees versions at one look.
const COLLECT_MOST: usize = 1024;

/// Transactions of a core that commit in a row until it expects the next one to do so as well.
/// [Cicada17 3.4, adaptive omission]
const CALM: u32 = 5;

/// When what is loaded was written.
const LOADED: u64 = 1;

/// In a record's word, beside the place of its newest version: it is in no index any more.
const GONE: u64 = 1 << 63;

/// The protocol.
#[derive(Clone, Copy, Debug)]
pub struct Cicada;

/// The state of a core between its transactions.
#[derive(Debug, Default)]
pub struct Kept {
    /// The transactions under way, the oldest one first.
    open: RefCell<VecDeque<Begun>>,
    overwritten: Overwritten,
    /// Transactions that have read a version outside of its record which could stand in it.
    outside: Cell<u32>,
    /// Transactions that have committed since one has aborted, up to [`CALM`].
    in_a_row: Cell<u32>,
}

impl Kept {
    /// A transaction of `core` begins.
    fn begin(&self, horizon: &Horizon, core: usize, later: impl Fn(u64) -> u64) -> Begun {
        let mut open = self.open.borrow_mut();
        let begun = match open.is_empty() {
            true => horizon.begin(core, later),
            false => horizon.begin_beside(later(0)),
        };
        open.push_back(begun);
        begun
    }

    /// The transaction of this timestamp ends, and what it may have seen is kept no longer.
    fn end(&self, horizon: &Horizon, core: usize, timestamp: u64) {
        let mut open = self.open.borrow_mut();
        let ended = open.iter().position(|begun| begun.timestamp == timestamp);
        let ended = ended.expect("a transaction that ends has begun");
        open.remove(ended);
        match open.front() {
            None => horizon.end(core),
            Some(oldest) if ended == 0 => horizon.go_by(core, *oldest),
            Some(_) => {}
        }
    }

    fn committed(&self) {
        self.in_a_row.set(CALM.min(self.in_a_row.get() + 1));
    }

    fn aborted(&self) {
        self.in_a_row.set(0);
    }

    const fn is_calm(&self) -> bool {
        self.in_a_row.get() == CALM
    }
}

/// How the search for the version that a transaction sees ended.
enum Found {
    Version(Place),
    /// One that would be it, if it commits.
    Pending,
    /// None: what it would be was cut off, or the record is gone.
    Nothing,
}

/// The newest version of a record that is earlier than `at`. [Cicada17 3.3]
#[inline(always)]
fn search(store: &Multicore, record: Record<'_>, at: u64, hooks: Hooks) -> Found {
    let head = record.word().load(Ordering::SeqCst);
    if head & GONE != 0 {
        return Found::Nothing;
    }
    let mut place = Place(head as u32);
    while place.is_some() {
        let old = Old::at(store, place);
        let status = old.status();
        if old.wts() < at {
            match status {
                COMMITTED => return Found::Version(place),
                status if hooks.heeds(status == PENDING) => return Found::Pending,
                _ => {}
            }
        }
        place = old.next();
    }
    Found::Nothing
}

/// The same, of a transaction; one that is pending must be waited for.
#[inline(always)]
fn visible<F: Fabric>(
    worker: &Worker<F, Cicada>,
    (key, place): (Key, Place),
    at: u64,
) -> Result<Place, Halt> {
    let store = worker.store();
    match search(store, store.record(place), at, worker.hooks) {
        Found::Version(found) => Ok(found),
        Found::Nothing => Err(Abort::Stale { key }.into()),
        Found::Pending => Err(Halt::Busy(key)),
    }
}

/// What a snapshot sees of a record of which it finds no version: one that was made later was
/// absent.
#[cold]
fn made_later<F: Fabric>(
    worker: &Worker<F, Cicada>,
    (key, place): (Key, Place),
) -> Result<Place, Halt> {
    let store = worker.store();
    let head = store.record(place).word().load(Ordering::SeqCst);
    let oldest = newest_that(store, Place(head as u32), |old| !old.next().is_some());
    // What is gone may have been taken apart: the next attempt does not find it.
    let is_gone = head & GONE != 0 || !oldest.is_some();
    if is_gone { Err(Abort::Stale { key }.into()) } else { Ok(oldest) }
}

/// Proof that the transaction's versions are pending.
struct Pending;

/// The newest version from the one at `place` on that `fits`.
#[inline(always)]
fn newest_that(store: &Multicore, mut place: Place, fits: impl Fn(Old<'_>) -> bool) -> Place {
    while place.is_some() && !fits(Old::at(store, place)) {
        place = Old::at(store, place).next();
    }
    place
}

/// The newest version that has not been aborted.
fn newest_valid(store: &Multicore, place: Place) -> Place {
    newest_that(store, place, |old| !old.is_void())
}

/// [Cicada17 3.4, write set sort by contention] What was written last comes first: it is the
/// likeliest to end the transaction, which then has installed little.
fn sort_by_contention(store: &Multicore, writes: &mut [Write]) {
    for write in &*writes {
        let newest = newest_valid(store, newest(store.record(write.place)));
        let wts = if newest.is_some() { Old::at(store, newest).wts() } else { 0 };
        // Others write meanwhile: what is sorted must stay as it is.
        write.held.set(wts);
    }
    writes.sort_unstable_by_key(|write| Reverse(write.held.get()));
    writes.iter().for_each(|write| write.held.set(0));
}

/// [Cicada17 3.4 step 1] Installs the writes as pending versions. Nobody waits in a circle,
/// whatever the order: who waits does so for a version that is earlier than its own ones.
async fn install_pending<F: Fabric>(
    worker: &Worker<F, Cicada>,
    sets: &Sets,
) -> Result<Pending, Abort> {
    let _phase = worker.fabric.phase("install as pending");
    let at = sets.timestamp;
    let install = |(), write: &Write| {
        let installed = install_one(worker, write, sets.value(write), at)?;
        write.held.set(installed.0.into());
        Ok(())
    };
    worker.each(sets.writes.iter(), (), install).await?;
    Ok(Pending)
}

/// Installs a pending version with `value` above the version that is visible, unless somebody has
/// written or read later.
#[inline(always)]
fn install_one<F: Fabric>(
    worker: &Worker<F, Cicada>,
    write: &Write,
    value: Option<&[u8]>,
    at: u64,
) -> Result<Place, Halt> {
    let (store, key) = (worker.store(), write.key);
    let record = store.record(write.place);
    loop {
        let before = visible(worker, (key, write.place), at)?;
        let head = record.word().load(Ordering::SeqCst);
        let old = Old::at(store, before);
        let overtaken = newest_valid(store, Place(head as u32)) != before;
        if head & GONE != 0 || overtaken || old.rts() > at {
            return Err(Abort::Stale { key }.into());
        }
        let place = pending(worker, write.place, old.state(), value, at);
        let place = place.ok_or(Abort::NoResources)?;
        let new = Old::at(store, place);
        new.put_above(Place(head as u32));
        let order = (Ordering::SeqCst, Ordering::SeqCst);
        if record.word().compare_exchange(head, place.0.into(), order.0, order.1).is_ok() {
            return Ok(place);
        }
        // Nobody has seen it.
        new.cut();
        new.free_one(worker, place);
    }
}

/// A pending version of the record at `place`, which is in state `before`: in the record itself, if
/// no version stands there. [Cicada17 3.3]
fn pending<F: Fabric>(
    worker: &Worker<F, Cicada>,
    place: Place,
    before: State,
    value: Option<&[u8]>,
    at: u64,
) -> Option<Place> {
    let store = worker.store();
    let (present, len) = (value.is_some(), value.map_or(0, <[u8]>::len) as u32);
    let version = if present || before.present { before.version.next() } else { before.version };
    let state = State { version, present, len, watched: false };
    let inside = Old::at(store, place.inside());
    let made = if inside.take_inside(worker.kept.overwritten.horizon()) {
        inside.begin(at, state);
        place.inside()
    } else {
        let words = version::HEADER + store.record(place).capacity() / size_of::<u64>();
        let made = store.allocate(Some(&mut worker.room.borrow_mut()), words).ok()?;
        Old::make(store, (made, words), PENDING, at, state);
        made
    };
    store.write_words(made, version::HEADER, value.unwrap_or_default());
    worker.fabric.work(Work::Copy { bytes: len });
    Some(made)
}

/// [Cicada17 3.4 step 3] What was read is what is visible; nobody has read later what is
/// overwritten.
async fn validate<F: Fabric>(
    worker: &Worker<F, Cicada>,
    sets: &Sets,
    _: &Pending,
) -> Result<(), Abort> {
    let _phase = worker.fabric.phase("validate");
    let (store, at) = (worker.store(), sets.timestamp);
    let validate = |(), read| validate_read(worker, read, at);
    worker.each(sets.reads.iter(), (), validate).await?;
    let validate = |(), write| Ok(validate_write(worker, write, at)?);
    worker.each(sets.writes.iter(), (), validate).await?;
    sets.validate_leaves(|node, version| store.is_unchanged(node, version))
}

/// The versions that were read are still the visible ones.
#[inline(always)]
fn validate_read<F: Fabric>(worker: &Worker<F, Cicada>, read: &Read, at: u64) -> Result<(), Halt> {
    let Place(seen) = visible(worker, (read.key, read.place), at)?;
    if u64::from(seen) != read.seen {
        return Err(Abort::Stale { key: read.key }.into());
    }
    Ok(())
}

/// Nobody has read later what is overwritten.
#[inline(always)]
fn validate_write<F: Fabric>(
    worker: &Worker<F, Cicada>,
    write: &Write,
    at: u64,
) -> Result<(), Abort> {
    let store = worker.store();
    let own = Old::at(store, Place(write.held.get() as u32));
    let before = newest_valid(store, own.next());
    let late = before.is_some() && Old::at(store, before).rts() > at;
    let absent = !before.is_some() || !Old::at(store, before).state().present;
    if late || absent && worker.leaf_was_read_until(write.key) > at {
        return Err(Abort::Stale { key: write.key });
    }
    Ok(())
}

/// [Cicada17 3.4 step 4] The pending version of a write becomes committed.
#[inline(always)]
fn commit_version<F: Fabric>(worker: &Worker<F, Cicada>, sets: &Sets, write: &Write) {
    let place = Place(write.held.take() as u32);
    let own = Old::at(worker.store(), place);
    write.version.set(own.state().version);
    if own.state().present && sets.fills_own(write.place) {
        // Before others can delete it, and watch it themselves.
        worker.store().record(write.place).unwatch();
    }
    own.set_status(COMMITTED);
    if !own.state().present && worker.store().record(write.place).watch() {
        worker.was_deleted(write.key, write.place);
    }
    worker.kept.overwritten.note(sets.timestamp, (write.key, write.place));
}

/// The pending version at `place` of a record becomes aborted.
fn take_back<F: Fabric>(worker: &Worker<F, Cicada>, record: Place, place: Place) {
    let own = Old::at(worker.store(), place);
    own.set_status(ABORTED);
    let word = worker.store().record(record).word();
    // One that another has installed a version above stays until that is cut.
    let (order, next) = ((Ordering::SeqCst, Ordering::SeqCst), own.next());
    if word.compare_exchange(place.0.into(), next.0.into(), order.0, order.1).is_ok() {
        own.discard(worker, place);
    }
}

/// [Cicada17 3.8] Frees what is older than the version that the oldest transaction sees.
///
/// Others do the same, and may have seen more transactions end, but not more than had ended when
/// the oldest of this core began: they free nothing above the version that this one sees.
fn free_older<F: Fabric>(worker: &Worker<F, Cicada>, record: Place) {
    let store = worker.store();
    let (seen, horizon) = (store.horizon().seen(worker.core), worker.kept.overwritten.horizon());
    let mut place = newest(store.record(record));
    while place.is_some() {
        let old = Old::at(store, place);
        // The horizon is the later one only in a run in which cores protect nothing.
        if old.status() == COMMITTED && old.wts() <= seen.max(horizon) {
            if old.wts() <= horizon {
                Old::free(worker, old.cut());
            }
            return;
        }
        place = old.next();
    }
}

impl RecordForm for Cicada {
    const PROMISE: Promise = Promise::SessionSerializable;
    const BEYOND: Option<fn(Record<'_>) -> Place> = Some(newest);

    const BESIDE: usize = version::HEADER;

    fn word(store: &Multicore, place: Place, room: Option<&mut Room>) -> Option<u64> {
        Old::at(store, place.inside()).leave_inside();
        // A transaction with an earlier timestamp than the removed record finds no version, and
        // begins again.
        let state = State { version: store.floor(), ..State::default() };
        let absent = store.allocate(room, version::HEADER).ok()?;
        let made = (absent, version::HEADER);
        Old::make(store, made, COMMITTED, store.timestamp_floor(), state);
        Some(absent.0.into())
    }

    fn load(store: &Multicore, place: Place, value: &[u8]) {
        let (record, len) = (store.record(place), value.len() as u32);
        let state = State { version: Version(1), present: true, len, watched: false };
        Old::at(store, place.inside()).make_inside(LOADED, state);
        store.write_words(place.inside(), version::HEADER, value);
        let absent = record.word().swap(place.inside().0.into(), Ordering::SeqCst);
        store.free(Garbage::Words(Place(absent as u32), version::HEADER));
        record.unwatch();
    }

    fn value(store: &Multicore, record: Record<'_>, value: &mut Vec<u8>) -> State {
        match search(store, record, u64::MAX, Hooks::NONE) {
            Found::Version(place) => {
                let state = Old::at(store, place).state();
                store.copy_words(place, version::HEADER, state.len as usize, value);
                state
            }
            Found::Pending | Found::Nothing => State::default(),
        }
    }

    fn is_held(store: &Multicore, record: Record<'_>) -> bool {
        newest_that(store, newest(record), |old| old.status() == PENDING).is_some()
    }
}

impl Protocol for Cicada {
    fn begin<F: Fabric>(worker: &Worker<F, Self>, sets: &mut Sets, since: Option<u64>) {
        worker.kept.overwritten.enter(worker.entered());
        let horizon = worker.store().horizon();
        let since = since.map(|since| since.max(LOADED));
        if since.is_some_and(|since| since > horizon.ended()) {
            horizon.move_on();
        }
        let begun = worker.kept.begin(horizon, worker.core, |than| worker.later(than));
        sets.timestamp = begun.timestamp;
        sets.is_snapshot = since.is_some_and(|since| since <= begun.seen);
        sets.sees = if sets.is_snapshot { begun.seen + 1 } else { begun.timestamp };
    }

    /// The version that it sees.
    type Found = Place;

    type Kept = Kept;

    #[inline(always)]
    fn find<F: Fabric>(
        worker: &Worker<F, Self>,
        sets: &mut Sets,
        at: (Key, Place),
        _for_update: bool,
    ) -> Result<Place, Halt> {
        match visible(worker, at, sets.sees) {
            Err(Halt::Abort(_)) if sets.is_snapshot => made_later(worker, at),
            found => found,
        }
    }

    fn before_copy<F: Fabric>(fabric: &F) -> Option<F::Access> {
        Some(fabric.access())
    }

    #[inline(always)]
    fn copy<F: Fabric>(
        worker: &Worker<F, Self>,
        sets: &mut Sets,
        (key, place): (Key, Place),
        found: Place,
        value: &mut Vec<u8>,
    ) -> Result<Seen, Halt> {
        let old = Old::at(worker.store(), found);
        let state = old.state();
        worker.store().copy_words(found, version::HEADER, state.len as usize, value);
        worker.fabric.work(Work::Copy { bytes: state.len });
        if promotion::is_due(old, (place, found), worker.kept.overwritten.horizon()) {
            sets.outside = Some((key, place));
        }
        if !sets.is_snapshot {
            sets.reads.push(Read { place, key, seen: found.0.into() });
            sets.latest = sets.latest.max(old.wts());
        }
        Ok(Seen { present: state.present, version: state.version })
    }

    async fn commit<F: Fabric>(worker: &Worker<F, Self>, sets: &mut Sets) -> Result<(), Abort> {
        if sets.is_snapshot {
            assert!(sets.writes.is_empty(), "what is said to read only writes nothing");
            worker.commit_point(sets)?;
            promotion::of_read(worker, sets).await;
            return Ok(());
        }
        let (store, at) = (worker.store(), sets.timestamp);
        if !sets.writes.is_empty() && !worker.kept.is_calm() {
            sort_by_contention(store, &mut sets.writes);
        }
        let pending = install_pending(worker, sets).await?;
        worker.commit_point(sets)?;
        if let Some(stall) = worker.stall() {
            stall.await;
        }
        // [Cicada17 3.4 step 2]
        if worker.hooks.moves_read_timestamps() {
            let move_on = |read: &Read| Old::at(store, Place(read.seen as u32)).read_at(at);
            worker.each_held(sets.reads.iter(), move_on).await;
        }
        for (node, _, _) in sets.leaves() {
            store.read_until(*node, at);
        }
        fence(Ordering::SeqCst);
        validate(worker, sets, &pending).await?;
        let _phase = worker.phase("commit the versions").await;
        // [Cicada17 3.4 step 4]
        let commit = |write| commit_version(worker, sets, write);
        worker.each_held(sets.writes.iter(), commit).await;
        worker.kept.committed();
        promotion::of_read(worker, sets).await;
        Ok(())
    }

    fn abort<F: Fabric>(worker: &Worker<F, Self>, sets: &mut Sets) {
        worker.kept.aborted();
        for write in sets.writes.iter().filter(|write| write.held.get() != 0) {
            take_back(worker, write.place, Place(write.held.take() as u32));
        }
    }

    fn take_if_absent<F: Fabric>(worker: &Worker<F, Self>, place: Place) -> Absence {
        let record = worker.store().record(place);
        let store = worker.store();
        let head = record.word().load(Ordering::SeqCst);
        // What was aborted goes with the record, if it goes.
        let old = Old::at(store, newest_valid(store, Place(head as u32)));
        if head & GONE != 0 || old.status() != COMMITTED {
            return Absence::Busy;
        }
        if old.state().present {
            record.unwatch();
            // It may have been deleted meanwhile by somebody who saw that it was watched. What is
            // pending watches it when it commits.
            let committed = newest_that(store, newest(record), |old| old.status() == COMMITTED);
            let still = Old::at(store, committed).state().present;
            return if still || !record.watch() { Absence::Present } else { Absence::Busy };
        }
        let order = (Ordering::SeqCst, Ordering::Relaxed);
        // Snapshots may see what there was before it was deleted.
        let unseen = old.wts() <= worker.kept.overwritten.horizon();
        if !unseen || record.word().compare_exchange(head, head | GONE, order.0, order.1).is_err() {
            return Absence::Busy;
        }
        record.set_state(State { watched: true, ..old.state() });
        Absence::Gone { timestamp: old.rts().max(old.wts()) }
    }

    fn discard_versions<F: Fabric>(worker: &Worker<F, Self>, place: Place) {
        Old::discard_all(worker, newest(worker.store().record(place)));
    }

    fn collect<F: Fabric>(worker: &Worker<F, Self>) {
        let horizon = worker.store().horizon().move_on();
        worker.kept.overwritten.see(worker.hooks.horizon(horizon));
        for _ in 0..COLLECT_MOST {
            let Some((key, place)) = worker.kept.overwritten.next() else { break };
            let found = if place.is_some() { Some(place) } else { worker.find(key) };
            if let Some(record) = found {
                free_older(worker, record);
            }
        }
    }

    fn end<F: Fabric>(worker: &Worker<F, Self>, sets: &Sets) {
        worker.kept.end(worker.store().horizon(), worker.core, sets.timestamp);
    }
}
