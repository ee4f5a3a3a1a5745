//! What a concurrency control protocol keeps in a record: the meaning of its word, and of its
//! value.

use nicol_store::multicore::{Multicore, Place, Record, State};

/// How a protocol's records are made, loaded and read at rest.
pub trait RecordForm: Send + Sync + Sized + 'static {
    /// The order of transactions agrees with real time?
    const STRICT: bool;

    /// Where the value that a lookup is going to read most likely stands, if that is not in the
    /// record.
    const BEYOND: Option<fn(Record<'_>) -> Place> = None;

    /// The word of a new, absent record; `None` if there is no memory for what it needs.
    fn word(store: &Multicore) -> Option<u64>;

    /// Loads `value` into a new record, before anything runs; false if there is no memory.
    fn load(_store: &Multicore, record: Record<'_>, value: &[u8]) -> bool {
        record.write_value(value);
        let version = nicol_core::ids::Version(1);
        let len = value.len() as u32;
        record.set_state(State { version, present: true, len, watched: false });
        true
    }

    /// What a record holds, once everything is quiet; its value goes to the end of `value`.
    fn value(_store: &Multicore, record: Record<'_>, value: &mut Vec<u8>) -> State {
        let state = record.state();
        record.copy_value(state.len, value);
        state
    }

    /// Does somebody hold the record?
    fn is_held(store: &Multicore, record: Record<'_>) -> bool;
}
