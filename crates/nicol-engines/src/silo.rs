//! Silo (SOSP '13): optimistic, with transaction ids that name their epoch.
//!
//! | step | what | where |
//! |---|---|---|
//! | 4.5 | a read takes value and id at one instant, without writing anything | `optimistic.rs` (`find`, `copy`) |
//! | 4.4 phase 1 | lock the write set in the order of memory | `optimistic.rs` (`lock_writes`) |
//! | 4.4 | the serialization point: the epoch is read | `commit` |
//! | 4.4 phase 2 | what was read has the same id, and nobody else's lock; the leaves their versions | `validate` |
//! | 4.2, 4.4 phase 3 | the new id; install and unlock | `next_id`, `optimistic.rs` (`install`) |
//! | 4.6 | scans and insertions | `nicol_store::multicore`, `sets.rs` |
//!
//! DEVIATION [Silo13 4.6]: an absent key that is read gets an absent record, also in tables without
//! an order; it goes when it stays absent for an epoch.
//!
//! DEVIATION [Silo13 4.9]: a deleted record of an ordered table goes as soon as nobody holds it,
//! and a new one of its key begins at id 0. So ids of one epoch need not be in the order of the
//! transactions; versions of a key are, by which logs are read back.

use std::sync::atomic::{Ordering, fence};

use nicol_core::fabric::Fabric;
use nicol_core::history::Promise;
use nicol_core::txn::Abort;
use nicol_store::multicore::{Multicore, Place, Record, Room};

use super::optimistic::{self, LOCKED, Locked, Optimistic, install, is_others, lock_writes};
use super::record_form::RecordForm;
use super::sets::{Read, Sets};
use super::worker::Worker;

/// The step from one id of an epoch to the next.
const STEP: u64 = 4;
/// Where the epoch stands in an id.
const EPOCH_SHIFT: u32 = 34;

/// The protocol.
#[derive(Clone, Copy, Debug)]
pub struct Silo;

/// Proof that what was read is valid, and the highest id of what was read or is written.
struct Validated(u64);

/// [Silo13 4.4 phase 2] What was read has not changed and nobody else is about to change it.
async fn validate<F: Fabric>(
    worker: &Worker<F, Silo>,
    sets: &Sets,
    locked: &Locked,
) -> Result<Validated, Abort> {
    let _phase = worker.phase("validate").await;
    let highest = locked.highest.max(worker.newest.get());
    let validate = |highest: u64, read| Ok(highest.max(validate_read(worker, sets, read)?));
    let highest = worker.each(sets.reads.iter(), highest, validate).await?;
    sets.validate_leaves(|node, version| worker.store().is_unchanged(node, version))?;
    Ok(Validated(highest))
}

/// Returns the id of the record, which is the one that was read.
#[inline(always)]
fn validate_read<F: Fabric>(
    worker: &Worker<F, Silo>,
    sets: &Sets,
    read: &Read,
) -> Result<u64, Abort> {
    let word = worker.store().record(read.place).word().load(Ordering::SeqCst);
    if word & !LOCKED != read.seen {
        return Err(Abort::Stale { key: read.key });
    }
    if is_others(worker, word) && !sets.writes_at(read.place) {
        return Err(Abort::ValidateLocked { key: read.key });
    }
    Ok(word & !LOCKED)
}

/// [Silo13 4.2] The id of a transaction: higher than the ids of all that was read or is written,
/// than the last one of this core, and of the epoch of the serialization point.
fn next_id<F: Fabric>(worker: &Worker<F, Silo>, epoch: u64, Validated(highest): Validated) -> u64 {
    let id = (highest + STEP).max(epoch << EPOCH_SHIFT);
    worker.newest.set(id);
    id
}

impl RecordForm for Silo {
    const PROMISE: Promise = Promise::StrictSerializable;

    fn word(_: &Multicore, _: Place, _: Option<&mut Room>) -> Option<u64> {
        Some(0)
    }

    fn is_held(_: &Multicore, record: Record<'_>) -> bool {
        optimistic::is_held(record)
    }
}

impl Optimistic for Silo {
    async fn commit<F: Fabric>(worker: &Worker<F, Self>, sets: &mut Sets) -> Result<(), Abort> {
        // [Silo13 4.4 phase 1] Lock the write set.
        let locked = lock_writes(worker, sets).await?;
        // [Silo13 4.4] The serialization point: between the locks and what follows.
        fence(Ordering::SeqCst);
        let epoch = worker.commit_point(sets)?;
        // [Silo13 4.4 phase 2] What was read is unchanged.
        let validated = validate(worker, sets, &locked).await?;
        // [Silo13 4.4 phase 3] Install under a new id, and unlock.
        install(worker, sets, locked, || next_id(worker, epoch, validated)).await;
        Ok(())
    }

    fn last_used(_: u64) -> u64 {
        0
    }
}
