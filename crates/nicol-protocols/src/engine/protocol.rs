//! What a concurrency control protocol is to the engines: how a record is read, how a transaction
//! commits, what an absent record's word says.

use nicol_core::fabric::Fabric;
use nicol_core::ids::Key;
use nicol_core::interactive::Seen;
use nicol_core::txn::Abort;
use nicol_store::multicore::{Multicore, Place, Record, State};

use super::sets::Sets;
use super::worker::Worker;

/// Is the record that somebody looked at still absent?
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
/// Transactions of one node call it, many at a time. Before each look at a record it awaits
/// [`access`](nicol_core::fabric::SharedMemory::access). After an error the transaction calls
/// [`Protocol::abort`].
pub trait Protocol: Send + Sync + Sized + 'static {
    /// The order of transactions agrees with real time?
    const STRICT: bool;

    /// The word of a new, absent record; `None` if there is no memory for what it needs.
    fn word(store: &Multicore) -> Option<u64>;

    /// Takes back what [`Protocol::word`] has made, which nobody has seen.
    fn unused_word(_store: &Multicore, _word: u64) {}

    /// Loads `value` into a new record, before anything runs; false if there is no memory.
    fn load(_store: &Multicore, record: Record<'_>, value: &[u8]) -> bool {
        record.write_value(value);
        let version = nicol_core::ids::Version(1);
        let len = value.len() as u32;
        record.set_state(State { version, present: true, len, watched: false });
        true
    }

    /// Called when a transaction begins.
    fn begin<F: Fabric>(_worker: &Worker<F, Self>, _sets: &mut Sets) {}

    /// Reads the record of `key` at `place` into `value`, which is overwritten.
    #[expect(async_fn_in_trait, reason = "futures stay on the polling thread that made them")]
    async fn read<F: Fabric>(
        worker: &Worker<F, Self>,
        sets: &mut Sets,
        at: (Key, Place),
        for_update: bool,
        value: &mut Vec<u8>,
    ) -> Result<Seen, Abort>;

    /// Prepares to write the record of `key` at `place`.
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

    /// What a record holds, once everything is quiet; its value goes to the end of `value`.
    fn value(_store: &Multicore, record: Record<'_>, value: &mut Vec<u8>) -> State {
        let state = record.state();
        record.copy_value(state.len, value);
        state
    }

    /// Does somebody hold the record?
    fn is_held(store: &Multicore, record: Record<'_>) -> bool;
}
