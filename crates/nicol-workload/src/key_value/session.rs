//! What clients of the families of single operations do.

use std::ops::Range;
use std::sync::Arc;

use nicol_core::fabric::{FabricError, Local};
use nicol_core::history::{self, Action, Effect, End, Found, digest};
use nicol_core::ids::{Key, Version};
use nicol_core::key_value::{Failure, Got, KeyValue, Reason, Scanned};
use nicol_core::rng::Stream;

use super::records::{LAST, RecordForm};
use super::{Drawn, KeyValueWorkload, PIECES_MAX, Request};
use crate::driver::{
    Again, Attempted, ClientOperation, HistoryEntry, Recorder, RunControl, Session, spawn,
};

/// Bits of the number that a value names its writer by which count the client's writes.
const WRITE_BITS: u32 = 40;

/// Draws of a client that asks for records of its own node only, at most: beyond it the node holds
/// next to nothing, and what was drawn last is refused.
const DRAWS_MAX: usize = 100_000;

/// Makes the recorder of an engine and spawns the clients of these numbers there, which run the
/// operations of `workload` on `store`.
///
/// # Panics
/// If a number is out of the run's range.
pub fn spawn_clients<F: Local, K: KeyValue>(
    fabric: &F,
    store: &K,
    workload: &Arc<KeyValueWorkload>,
    run: &Arc<RunControl>,
    clients: Range<u32>,
) {
    spawn(fabric, &Recorder::new(run), clients, |_, name| KeyValueSession {
        store: store.clone(),
        workload: Arc::clone(workload),
        then: [None; PIECES_MAX - 1],
        name,
        unpersisted: 0,
    });
}

/// The session of a client of this name.
struct KeyValueSession<K> {
    store: K,
    workload: Arc<KeyValueWorkload>,
    /// The further pieces of the operation under way.
    then: [Option<Request>; PIECES_MAX - 1],
    name: u32,
    /// Its writes in the scope under way.
    unpersisted: u32,
}

/// An operation under way, or a piece of one.
#[derive(Debug, Default)]
struct KeyValueOperation {
    request: Option<Request>,
    form: Option<RecordForm>,
    /// The value of a write, or of a read.
    value: Vec<u8>,
    /// The version that the attempt has read, or installed.
    got: Option<Got>,
    found: Vec<Scanned>,
    /// The writer, as a value names it: the client and its writes so far.
    writer: u64,
}

impl KeyValueOperation {
    /// Makes `request` the next one.
    fn ask(&mut self, request: Request, workload: &KeyValueWorkload) {
        (self.request, self.form) = (Some(request), Some(workload.form));
        (self.got, self.found) = (None, Vec::new());
        self.value.resize(workload.value_bytes(), 0);
        self.sign();
    }

    /// Gives a write a value of its own.
    fn sign(&mut self) {
        if let (Some(Request::Put(record) | Request::Insert(record)), Some(form)) =
            (self.request, self.form)
        {
            self.writer += 1;
            form.write(&mut self.value, record, self.writer);
        }
    }
}

impl<K: KeyValue> Session for KeyValueSession<K> {
    type Operation = KeyValueOperation;

    fn next(&mut self, random: &mut Stream, operation: &mut KeyValueOperation) -> usize {
        let Drawn { kind, request, then } = self.next_in_scope(random);
        if operation.request.is_none() {
            // Loaded values name writer 0.
            operation.writer = (u64::from(self.name) + 1) << WRITE_BITS;
        }
        operation.ask(request, &self.workload);
        self.then = then;
        kind
    }

    async fn attempt(&self, operation: &mut KeyValueOperation) -> Attempted {
        let KeyValueOperation { request, value, found, .. } = operation;
        let written = |version: Option<Version>| Some(Got { present: true, version });
        let done = match request.expect("an attempt is one at what was drawn") {
            Request::Get(key) => self.store.get(key, value).await.map(Some),
            Request::Put(record) | Request::Insert(record) => {
                self.store.put(record.key, value).await.map(written)
            }
            Request::Delete(key) => self.store.delete(key).await.map(written),
            Request::Persist => self.store.persist().await.map(|()| None),
            Request::Scan { first, limit } => {
                self.store.scan(first, limit, found).await.map(|()| None)
            }
        };
        match done {
            Ok(got) => {
                operation.got = got;
                Attempted::Done
            }
            Err(Failure::Unknown) => Attempted::Unknown,
            Err(Failure::Aborted(reason)) => {
                let again = match reason {
                    Reason::NoResources => Again::WhenFull,
                    // The node that could answer is down.
                    Reason::ShardUnavailable | Reason::Fabric(FabricError::Unreachable) => {
                        Again::Never
                    }
                    Reason::Conflict | Reason::Fabric(_) => Again::Yes,
                };
                Attempted::Aborted { reason: reason.index(), again }
            }
        }
    }

    fn next_piece(&mut self, _kind: usize, operation: &mut KeyValueOperation) -> bool {
        let Some(then) = self.then[0].take() else { return false };
        self.then.rotate_left(1);
        operation.ask(then, &self.workload);
        true
    }
}

impl<K: KeyValue> KeyValueSession<K> {
    /// The next draw; of records of the own node, if only those may be asked for.
    fn draw(&self, random: &mut Stream) -> Drawn {
        let mut drawn = self.workload.next(random);
        if self.workload.only_held {
            let held = |request: &Request| request.key().is_none_or(|key| self.store.holds(key));
            for _ in 0..DRAWS_MAX {
                if drawn.then.iter().flatten().chain([&drawn.request]).all(held) {
                    break;
                }
                drawn = self.workload.next(random);
            }
        }
        drawn
    }

    /// The next step: the end of a scope, if it has all of its writes.
    fn next_in_scope(&mut self, random: &mut Stream) -> Drawn {
        if self.workload.scope_writes.is_some_and(|writes| self.unpersisted >= writes) {
            self.unpersisted = 0;
            let kind = self.workload.kinds().len() - 1;
            return Drawn::single(kind, Request::Persist);
        }
        let drawn = self.draw(random);
        let writes =
            |request| matches!(request, Request::Put(_) | Request::Insert(_) | Request::Delete(_));
        let pieces = drawn.then.iter().flatten().chain([&drawn.request]);
        self.unpersisted += pieces.filter(|piece| writes(**piece)).count() as u32;
        drawn
    }
}

impl ClientOperation for KeyValueOperation {
    fn rewind(&mut self) {
        (self.got, self.found) = (None, Vec::new());
        // A read of what a failed attempt wrote must differ from a read of this attempt's value.
        self.sign();
    }

    fn left(&self) -> i64 {
        i64::from(matches!(self.request, Some(Request::Insert(_))))
    }

    fn history_entry(&self, end: End) -> Option<HistoryEntry> {
        let number = |version: Version| version.0;
        let version = self.got.and_then(|got| got.version).map(number);
        let write = |key: Key, effect| history::Write { key: key.into(), effect, version };
        let put = |key| {
            let effect = Effect::Put { digest: Some(digest(&self.value)) };
            Action::Put { write: write(key, effect), scope: None }
        };
        let action = match self.request? {
            Request::Get(key) => {
                let found = |got: Got| Found {
                    present: got.present,
                    version,
                    digest: got.present.then(|| digest(&self.value)),
                };
                let found = self.got.filter(|_| end == End::Ok).map(found);
                Action::Get { key: key.into(), found }
            }
            Request::Put(record) | Request::Insert(record) => put(record.key),
            Request::Delete(key) => {
                Action::Delete { write: write(key, Effect::Delete), scope: None }
            }
            Request::Persist => Action::Persist { scope: None },
            Request::Scan { first, limit } => {
                let found = if end == End::Ok { self.found.as_slice() } else { &[] };
                Action::Scan(history::Scan {
                    first: first.into(),
                    last: LAST.into(),
                    backward: false,
                    limit: Some(limit),
                    found: found.iter().map(read).collect(),
                })
            }
        };
        Some(HistoryEntry { id: None, action })
    }
}

fn read(found: &Scanned) -> history::Read {
    history::Read {
        key: found.key.into(),
        present: true,
        version: found.version.map(|version| version.0),
        digest: Some(digest(&found.value)),
    }
}
