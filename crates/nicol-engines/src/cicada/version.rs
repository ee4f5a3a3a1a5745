//! A version of a record: four words, then its value. One of each record's versions stands in the
//! record itself, so that whoever finds the record has it at hand. [Cicada17 3.3, best-effort
//! inlining]

use std::sync::atomic::{AtomicU64, Ordering};

use nicol_core::fabric::Fabric;
use nicol_store::multicore::{Garbage, Multicore, Place, Record, State};

use super::Cicada;
use crate::worker::Worker;

/// Words of a version, before its value.
mod word {
    pub(super) const WTS: usize = 0;
    pub(super) const RTS: usize = 1;
    /// The place of the next older version, the status, whether it stands in the record, the words
    /// of one that does not.
    pub(super) const LINK: usize = 2;
    pub(super) const STATE: usize = 3;
    pub(super) const VALUE: usize = 4;
}

/// Words of a version without a value.
pub(super) const HEADER: usize = word::VALUE;

const STATUS: u64 = 3 << 32;
/// It may become committed.
pub(super) const PENDING: u64 = 0;
/// It is one that transactions see.
pub(super) const COMMITTED: u64 = 1 << 32;
/// It will never be seen.
pub(super) const ABORTED: u64 = 2 << 32;
/// It is in no chain any more: what stands in the record may be used again.
const LEFT: u64 = 3 << 32;
const INSIDE: u64 = 1 << 34;
const WORDS_SHIFT: u32 = 40;
const NEXT: u64 = u32::MAX as u64;

/// A version of a record.
#[derive(Clone, Copy)]
pub(super) struct Old<'s>(&'s [AtomicU64]);

/// The newest version of a record.
pub(super) fn newest(record: Record<'_>) -> Place {
    Place(record.word().load(Ordering::SeqCst) as u32)
}

impl<'s> Old<'s> {
    pub(super) fn at(store: &'s Multicore, place: Place) -> Self {
        Self(store.words(place))
    }

    /// The timestamp of the transaction that has written it.
    pub(super) fn wts(self) -> u64 {
        self.0[word::WTS].load(Ordering::Acquire)
    }

    /// The latest timestamp at which it was read.
    pub(super) fn rts(self) -> u64 {
        self.0[word::RTS].load(Ordering::SeqCst)
    }

    /// It was read at this timestamp.
    pub(super) fn read_at(self, timestamp: u64) {
        // Mostly a later transaction has moved it on: then nothing is written.
        if self.rts() < timestamp {
            self.0[word::RTS].fetch_max(timestamp, Ordering::SeqCst);
        }
    }

    fn link(self) -> u64 {
        self.0[word::LINK].load(Ordering::SeqCst)
    }

    pub(super) fn status(self) -> u64 {
        self.link() & STATUS
    }

    /// Will it never be seen?
    pub(super) fn is_void(self) -> bool {
        self.link() & ABORTED != 0
    }

    /// The next older version.
    pub(super) fn next(self) -> Place {
        Place((self.link() & NEXT) as u32)
    }

    pub(super) fn state(self) -> State {
        State::unpack(self.0[word::STATE].load(Ordering::Acquire))
    }

    /// A pending one is committed or aborted now, or one that was in the record has left its chain.
    pub(super) fn set_status(self, status: u64) {
        // Only its writer changes the status; a worker that cuts off older versions clears the rest
        // only.
        self.0[word::LINK].fetch_or(status, Ordering::SeqCst);
    }

    /// The version that it is put above, before anybody sees it.
    pub(super) fn put_above(self, next: Place) {
        self.0[word::LINK].fetch_or(u64::from(next.0), Ordering::Release);
    }

    /// Cuts off the next older version and returns where it is: the caller frees it.
    pub(super) fn cut(self) -> Place {
        Place((self.0[word::LINK].fetch_and(!NEXT, Ordering::SeqCst) & NEXT) as u32)
    }

    /// Writes what a version begins with, before anybody finds it.
    pub(super) fn begin(self, timestamp: u64, state: State) {
        self.0[word::WTS].store(timestamp, Ordering::Relaxed);
        self.0[word::RTS].store(timestamp, Ordering::Relaxed);
        self.0[word::STATE].store(state.pack(), Ordering::Relaxed);
    }

    /// Makes one of `words` words, which stands at `place` outside of its record.
    pub(super) fn make(
        store: &'s Multicore,
        (place, words): (Place, usize),
        status: u64,
        timestamp: u64,
        state: State,
    ) {
        let made = Self::at(store, place);
        made.begin(timestamp, state);
        made.0[word::LINK].store((words as u64) << WORDS_SHIFT | status, Ordering::Release);
    }

    /// Makes the one that stands in the record committed, before anybody sees the record.
    pub(super) fn make_inside(self, timestamp: u64, state: State) {
        self.begin(timestamp, state);
        self.0[word::LINK].store(INSIDE | COMMITTED, Ordering::Release);
    }

    /// Lets what stands in the record be used, at once.
    pub(super) fn leave_inside(self) {
        self.0[word::WTS].store(0, Ordering::Relaxed);
        self.0[word::LINK].store(INSIDE | LEFT, Ordering::Release);
    }

    /// Takes what stands in the record for a pending version, if it is in no chain, and nobody can
    /// look at it who has found it in one: transactions up to `horizon` have ended.
    pub(super) fn take_inside(self, horizon: u64) -> bool {
        let link = self.link();
        let is_left = |wts: u64| link & STATUS == LEFT && wts <= horizon;
        let order = (Ordering::SeqCst, Ordering::Relaxed);
        if !is_left(self.wts())
            || self.0[word::LINK].compare_exchange(link, INSIDE, order.0, order.1).is_err()
        {
            return false;
        }
        // Another may have used it meanwhile, and aborted.
        let taken = is_left(self.wts());
        if !taken {
            self.0[word::LINK].store(link, Ordering::Release);
        }
        taken
    }

    /// Frees it and everything older, which nobody can find any more who is under way.
    pub(super) fn free<F: Fabric>(worker: &Worker<F, Cicada>, mut place: Place) {
        while place.is_some() {
            let old = Old::at(worker.store(), place);
            let next = old.cut();
            old.free_one(worker, place);
            place = next;
        }
    }

    /// Frees it, which stands at `place` and is in no chain.
    pub(super) fn free_one<F: Fabric>(self, worker: &Worker<F, Cicada>, place: Place) {
        let link = self.link();
        if link & INSIDE != 0 {
            return self.leave_inside();
        }
        let words = (link >> WORDS_SHIFT) as usize;
        worker.store().free_words(&mut worker.room.borrow_mut(), place, words);
    }

    /// Lets go of one that was in a chain just now: it is freed when nobody can look at it.
    pub(super) fn discard<F: Fabric>(self, worker: &Worker<F, Cicada>, place: Place) {
        let link = self.link();
        if link & INSIDE != 0 {
            return self.set_status(LEFT);
        }
        worker.discard(Garbage::Words(place, (link >> WORDS_SHIFT) as usize));
    }

    /// The same of all versions of a record that is gone. What stands in it goes with it.
    pub(super) fn discard_all<F: Fabric>(worker: &Worker<F, Cicada>, mut place: Place) {
        while place.is_some() {
            let old = Old::at(worker.store(), place);
            let next = old.cut();
            if old.link() & INSIDE == 0 {
                old.discard(worker, place);
            }
            place = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use nicol_core::ids::{Key, TableId};
    use nicol_core::records::Empty;

    use super::*;
    use crate::record_form::RecordForm;

    #[test]
    fn what_stands_in_a_record_is_taken_only_when_nobody_can_look_at_it() {
        let store = Multicore::new(&Empty { capacity_per_shard: 16 }, 16, &[0; 256], 1);
        let store = store.with_words_beside(Cicada::BESIDE);
        let record = store.locate(Key::new(TableId(1), 1), Cicada::word).unwrap().place;
        assert_ne!(newest(store.record(record)), record.inside(), "an absent one stands elsewhere");
        let inside = Old::at(&store, record.inside());
        assert!(inside.take_inside(0), "nothing has stood there");
        inside.begin(9, State::default());
        assert!(!inside.take_inside(u64::MAX), "it is pending");
        inside.set_status(ABORTED);
        assert!(!inside.take_inside(u64::MAX), "it may be in the chain");
        inside.set_status(LEFT);
        assert!(!inside.take_inside(8), "who has begun before 9 has ended may look at it");
        assert!(inside.is_void());
        assert!(inside.take_inside(9));
        inside.leave_inside();
        assert!(inside.take_inside(0), "nobody can look at what is freed");
    }
}
