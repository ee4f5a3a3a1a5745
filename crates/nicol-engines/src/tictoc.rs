//! TicToc (SIGMOD '16): optimistic, ordered by timestamps that are computed when a transaction
//! commits.
//!
//! | step | what | where |
//! |---|---|---|
//! | algorithm 1 | a read takes value, `wts` and `rts` at one instant | `optimistic.rs` (`find`, `copy`) |
//! | algorithm 2, step 1 | lock the write set, in the order of memory | `optimistic.rs` (`lock_writes`) |
//! | algorithm 2, step 2 | the commit timestamp: at least `wts` of what was read, after `rts` of what is written | `commit_timestamp` |
//! | algorithm 2, step 3 | what was read is valid at that time: its `rts` is moved on if need be | `validate`, `extend` |
//! | algorithm 3 | install, with both timestamps at that time | `optimistic.rs` (`install`) |
//!
//! The order of transactions is that of their timestamps, which need not agree with time: the
//! promise is serializability, not strict serializability.
//!
//! DEVIATION [TicToc16 4.4]: leaves of ordered tables have a read timestamp as well. A scan moves
//! it on before it looks whether the leaf's version is the same, and an insertion commits after it:
//! else a record could be inserted at a time at which a scan that has committed has not seen it.
//! And a scan commits no earlier than deletions whose records have left the leaves.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use nicol_core::fabric::Fabric;
use nicol_core::history::Promise;
use nicol_core::txn::Abort;
use nicol_store::multicore::{Multicore, Place, Record, Room};

use super::optimistic::{self, GONE, LOCKED, Locked, Optimistic, install, is_others, lock_writes};
use super::record_form::RecordForm;
use super::sets::{Read, Sets};
use super::worker::Worker;

/// Where `rts - wts` stands, and its bits. [TicToc16 3.6]
const DELTA_SHIFT: u32 = 2;
const DELTA_BITS: u32 = 14;
const DELTA_MAX: u64 = (1 << DELTA_BITS) - 1;
/// Where `wts` stands.
const WTS_SHIFT: u32 = DELTA_SHIFT + DELTA_BITS;

/// The protocol.
#[derive(Clone, Copy, Debug)]
pub struct TicToc;

const fn wts(word: u64) -> u64 {
    word >> WTS_SHIFT
}

const fn rts(word: u64) -> u64 {
    wts(word) + (word >> DELTA_SHIFT & DELTA_MAX)
}

/// The word of a record that is free.
const fn word_of(wts: u64, rts: u64) -> u64 {
    wts << WTS_SHIFT | (rts - wts) << DELTA_SHIFT
}

/// [TicToc16 algorithm 2, step 2] When the transaction takes effect.
fn commit_timestamp<F: Fabric>(worker: &Worker<F, TicToc>, sets: &Sets, _: &Locked) -> u64 {
    let read = sets.reads.iter().map(|read| wts(read.seen));
    let written = sets.writes.iter().map(|write| {
        let record = worker.store().record(write.place);
        let leaf = match record.state().present {
            true => 0,
            false => worker.leaf_was_read_until(write.key),
        };
        rts(record.word().load(Ordering::SeqCst)).max(leaf) + 1
    });
    // A scan has not seen the records that are gone, which were used until then at most.
    let scanned = if sets.leaves().is_empty() { 0 } else { worker.store().timestamp_floor() };
    read.chain(written).fold(scanned, u64::max)
}

/// [TicToc16 algorithm 2, step 3; 3.6] Moves the `rts` of a record on to `at`, unless it has
/// changed since it was read.
fn extend(
    word: &AtomicU64,
    read: &Read,
    at: u64,
    own: impl Fn() -> bool,
    others: impl Fn(u64) -> bool,
) -> Result<(), Abort> {
    let key = read.key;
    let mut seen = word.load(Ordering::SeqCst);
    loop {
        if wts(seen) != wts(read.seen) || seen & GONE != 0 {
            return Err(Abort::Stale { key });
        }
        // Only what is locked can be the transaction's own.
        if rts(seen) >= at || seen & LOCKED != 0 && own() {
            return Ok(());
        }
        if others(seen) {
            return Err(Abort::ValidateLocked { key });
        }
        let delta = at - wts(seen);
        // What does not fit moves `wts` on as well: others who have read it abort for nothing.
        let shift = delta.saturating_sub(DELTA_MAX);
        let new = word_of(wts(seen) + shift, at) | (seen & LOCKED);
        match word.compare_exchange(seen, new, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => return Ok(()),
            Err(changed) => seen = changed,
        }
    }
}

/// [TicToc16 algorithm 2, step 3] What was read is valid at `at`.
async fn validate<F: Fabric>(
    worker: &Worker<F, TicToc>,
    sets: &Sets,
    at: u64,
) -> Result<(), Abort> {
    let _phase = worker.phase("validate").await;
    let moves = worker.hooks.moves_read_timestamps();
    let early = |read: &&Read| rts(read.seen) < at && moves;
    let extend = |(), read: &Read| {
        let (word, own) = (worker.store().record(read.place).word(), || sets.writes_at(read.place));
        Ok(extend(word, read, at, own, |seen| is_others(worker, seen))?)
    };
    worker.each(sets.reads.iter().filter(early), (), extend).await?;
    worker.fabric.access().await;
    for (node, _, _) in sets.leaves() {
        worker.store().read_until(*node, at);
    }
    // Who inserts writes the leaf first, and looks then until when it was read.
    fence(Ordering::SeqCst);
    sets.validate_leaves(|node, version| worker.store().is_unchanged(node, version))
}

impl RecordForm for TicToc {
    const PROMISE: Promise = Promise::Serializable;

    fn word(store: &Multicore, _: Place, _: Option<&mut Room>) -> Option<u64> {
        // Records of this key that are gone were read until then at most.
        let floor = store.timestamp_floor();
        Some(word_of(floor, floor))
    }

    fn is_held(_: &Multicore, record: Record<'_>) -> bool {
        optimistic::is_held(record)
    }
}

impl Optimistic for TicToc {
    async fn commit<F: Fabric>(worker: &Worker<F, Self>, sets: &mut Sets) -> Result<(), Abort> {
        // [TicToc16 algorithm 2, step 1] Lock the write set.
        let locked = lock_writes(worker, sets).await?;
        fence(Ordering::SeqCst);
        worker.commit_point(sets)?;
        // [TicToc16 algorithm 2, step 2] The commit timestamp.
        let at = commit_timestamp(worker, sets, &locked);
        // [TicToc16 algorithm 2, step 3] What was read is valid then.
        validate(worker, sets, at).await?;
        // [TicToc16 algorithm 3] Install.
        install(worker, sets, locked, || word_of(at, at)).await;
        Ok(())
    }

    fn last_used(word: u64) -> u64 {
        rts(word)
    }
}
