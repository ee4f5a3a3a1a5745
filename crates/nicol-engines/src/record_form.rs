//! What a concurrency control protocol keeps in a record: the meaning of its word, and of its
//! value.

use nicol_core::history::Promise;
use nicol_store::multicore::{Multicore, Place, Record, Room, State};

/// How a protocol's records are made, loaded and read at rest.
pub trait RecordForm: Send + Sync + Sized + 'static {
    /// With what the order of transactions agrees.
    const PROMISE: Promise;

    /// Where the value that a lookup is going to read most likely stands, if that is not in the
    /// record.
    const BEYOND: Option<fn(Record<'_>) -> Place> = None;

    /// Words of a record besides its header and its value.
    const BESIDE: usize = 0;

    /// The word of a new, absent record at `place`, made by a core with this room; `None` if there
    /// is no memory for what it needs.
    fn word(store: &Multicore, place: Place, room: Option<&mut Room>) -> Option<u64>;

    /// Loads `value` into a new record at `place`, before anything runs.
    fn load(store: &Multicore, place: Place, value: &[u8]) {
        let record = store.record(place);
        record.write_value(value);
        let version = nicol_core::ids::Version(1);
        let len = value.len() as u32;
        record.set_state(State { version, present: true, len, watched: false });
    }

    /// The state of a record once everything is quiet; its value goes to the end of `value`.
    fn value(_store: &Multicore, record: Record<'_>, value: &mut Vec<u8>) -> State {
        let state = record.state();
        record.copy_value(state.len, value);
        state
    }

    /// Does somebody hold the record?
    fn is_held(store: &Multicore, record: Record<'_>) -> bool;
}
