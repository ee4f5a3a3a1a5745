//! What is read often and was written once stands outside its record, since the version that stood
//! inside was still seen then. Who reads it copies it into the record, so that whoever reads it
//! next looks at one place. [Cicada17 3.3, promotion]
//!
//! The copy is a version like any other, with a timestamp of its own: who reads at a later one, and
//! has found the version outside, is not valid any more. It changes nothing, so that the record's
//! version stays as it is.

use std::sync::atomic::{Ordering, fence};

use nicol_core::fabric::{Fabric, Work};
use nicol_core::ids::Key;
use nicol_store::multicore::{Multicore, Place, State};

use super::version::{COMMITTED, HEADER, Old};
use super::{Cicada, GONE, take_back};
use crate::sets::Sets;
use crate::worker::Worker;

/// Transactions that have read such a version of which one copies it: so what is read often is met.
const ONE_IN: u32 = 4;

/// Bytes of the longest value that is copied: it takes less than what it saves. [Cicada17 3.3 has
/// 216]
const BYTES_MOST: u32 = 256;

/// A copy that is pending.
struct Copied {
    at: u64,
    /// The version that it copies.
    of: Place,
    /// The bytes of its value.
    bytes: u32,
}

/// Is the version at `found`, of the record at `place`, worth a copy? It stands outside, is not
/// long, and was written before everybody who is under way had begun.
#[inline(always)]
pub(super) fn is_due(old: Old<'_>, (place, found): (Place, Place), horizon: u64) -> bool {
    let is_worth = |state: State| state.present && state.len <= BYTES_MOST;
    found != place.inside() && old.wts() <= horizon && is_worth(old.state())
}

/// Copies what the transaction has read outside of its record into it, once in a while.
#[inline]
pub(super) async fn of_read<F: Fabric>(worker: &Worker<F, Cicada>, sets: &Sets) {
    let Some(read) = sets.outside else { return };
    let met = worker.kept.outside.get().wrapping_add(1);
    worker.kept.outside.set(met);
    if met.is_multiple_of(ONE_IN) {
        promote(worker, read).await;
    }
}

/// Copies the newest version of the record of `key` at `place` into it, if that is still due. The
/// caller's transaction is under way, so that the copy's timestamp is not over.
async fn promote<F: Fabric>(worker: &Worker<F, Cicada>, (key, place): (Key, Place)) {
    let _phase = worker.fabric.phase("promote");
    worker.fabric.access().await;
    let (store, horizon) = (worker.store(), worker.kept.overwritten.horizon());
    let copied = copy(store, place, horizon, |than| worker.later(than));
    let Some(Copied { at, of, bytes }) = copied else { return };
    worker.fabric.work(Work::Copy { bytes });
    worker.fabric.access().await;
    // Who has a later timestamp and reads what is copied either finds the copy, or is seen here.
    fence(Ordering::SeqCst);
    if Old::at(store, of).rts() <= at {
        Old::at(store, place.inside()).set_status(COMMITTED);
        worker.kept.overwritten.note(at, (key, place));
    } else {
        take_back(worker, place, place.inside());
    }
}

/// Installs a pending copy of the newest version of the record at `place` in the record, at a
/// timestamp that is `later` than the one it is told.
fn copy(
    store: &Multicore,
    place: Place,
    horizon: u64,
    later: impl FnOnce(u64) -> u64,
) -> Option<Copied> {
    let record = store.record(place);
    let head = record.word().load(Ordering::SeqCst);
    let (of, inside) = (Place(head as u32), Old::at(store, place.inside()));
    let original = Old::at(store, of);
    let is_newest = head & GONE == 0 && original.status() == COMMITTED;
    if !is_newest || !is_due(original, (place, of), horizon) || !inside.take_inside(horizon) {
        return None;
    }
    let (at, state) = (later(original.rts()), original.state());
    inside.begin(at, state);
    store.copy_value(of, place.inside(), HEADER, state.len as usize);
    inside.put_above(of);
    let order = (Ordering::SeqCst, Ordering::SeqCst);
    let installed = record.word().compare_exchange(head, place.inside().0.into(), order.0, order.1);
    if installed.is_err() {
        // Nobody has seen it.
        inside.cut();
        inside.leave_inside();
        return None;
    }
    Some(Copied { at, of, bytes: state.len })
}

#[cfg(test)]
mod tests {
    use nicol_core::ids::{TableId, Version};
    use nicol_core::records::Empty;

    use super::*;
    use crate::record_form::RecordForm;

    #[test]
    fn what_was_written_before_everybody_began_is_copied_into_its_record() {
        let store = Multicore::new(&Empty { capacity_per_shard: 16 }, 16, &[0; 256], 1);
        let store = store.with_words_beside(Cicada::BESIDE);
        let place = store.locate(Key::new(TableId(1), 1), Cicada::word).unwrap().place;
        Cicada::load(&store, place, b"loaded");
        // A version is written outside at 9, and what stood inside is seen no longer.
        let outside = store.allocate(None, HEADER + 2).unwrap();
        let state = State { version: Version(2), present: true, len: 7, watched: false };
        Old::make(&store, (outside, HEADER + 2), COMMITTED, 9, state);
        store.write_words(outside, HEADER, b"written");
        store.record(place).word().store(outside.0.into(), Ordering::SeqCst);
        let later = |than: u64| than + 1;
        assert!(copy(&store, place, 9, later).is_none(), "what stands inside may be seen");
        Old::at(&store, place.inside()).leave_inside();
        assert!(copy(&store, place, 8, later).is_none(), "who has begun before 9 is under way");
        let Copied { at, of, .. } = copy(&store, place, 9, later).unwrap();
        assert_eq!((at, of), (10, outside));
        assert!(Cicada::is_held(&store, store.record(place)), "it is pending");
        let copied = Old::at(&store, place.inside());
        assert_eq!((copied.wts(), copied.next(), copied.state()), (10, outside, state));
        copied.set_status(COMMITTED);
        let mut value = Vec::new();
        assert_eq!(Cicada::value(&store, store.record(place), &mut value), state);
        assert_eq!(value, b"written");
        assert!(copy(&store, place, 10, later).is_none(), "it stands there");
    }
}
