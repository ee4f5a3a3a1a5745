//! A backend that keeps one map under one lock: for tests, and to measure the front alone.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use nicol_core::ids::{Key, Version};
use nicol_core::txn::{Abort, Outcome, Procedures, Txn, Verdict};

use nicol_core::serving::Walked;
use nicol_resp::{Backend, Done, Request, Response};

/// Rounds of execution after which a procedure that keeps asking for more keys is refused.
const ROUNDS_MAX: usize = 64;
/// Keys of one step of a walk.
const STEP: usize = 16;

/// Runs each transaction to its end on the caller's thread.
#[derive(Debug)]
pub struct MemoryBackend {
    procedures: Procedures,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// A deleted record keeps its version, so that no version of a key is used twice.
    records: BTreeMap<Key, (Version, Option<Vec<u8>>)>,
    present: u64,
    txn: Txn,
}

impl MemoryBackend {
    /// An empty store.
    pub fn new() -> Self {
        Self { procedures: nicol_resp::procedures(), table: Mutex::new(Table::default()) }
    }

    /// Runs `request` and returns its response.
    pub fn run(&self, request: &Request) -> Response {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let Table { records, present, txn } = &mut *table;
        txn.reset(request.procedure, &request.args);
        for key in &request.reads {
            txn.read(*key);
        }
        for key in &request.writes {
            txn.write(*key);
        }
        for _ in 0..ROUNDS_MAX {
            fetch(records, txn);
            match self.procedures.execute(txn) {
                Verdict::More => {}
                Verdict::Refuse => break,
                Verdict::Commit => {
                    install(records, present, txn);
                    let output = std::mem::take(&mut txn.output);
                    return Response { outcome: Outcome::Committed, output };
                }
            }
        }
        Response { outcome: Outcome::Aborted(Abort::Refused), output: Vec::new() }
    }

    /// All records.
    #[allow(dead_code, reason = "each program uses its part")]
    pub fn all(&self) -> Vec<(Key, Vec<u8>)> {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let there =
            table.records.iter().filter_map(|(key, (_, value))| Some((*key, value.clone()?)));
        there.collect()
    }

    /// Records that are present.
    #[allow(dead_code, reason = "each program uses its part")]
    pub fn records(&self) -> u64 {
        self.table.lock().unwrap_or_else(PoisonError::into_inner).present
    }
}

impl Default for MemoryBackend {
    fn default() -> Self {
        Self::new()
    }
}

fn fetch(records: &BTreeMap<Key, (Version, Option<Vec<u8>>)>, txn: &mut Txn) {
    for index in 0..txn.entries().len() {
        let entry = txn.entries()[index];
        if entry.fetched {
            continue;
        }
        match records.get(&entry.key) {
            Some((version, value)) => txn.fetched(index, *version, value.as_deref()),
            None => txn.fetched(index, Version(0), None),
        }
    }
}

fn install(records: &mut BTreeMap<Key, (Version, Option<Vec<u8>>)>, present: &mut u64, txn: &Txn) {
    for write in txn.updates() {
        let record = records.entry(write.key).or_default();
        *present -= u64::from(record.1.is_some());
        *present += u64::from(write.value.is_some());
        record.0 = write.version;
        match (&mut record.1, write.value) {
            (Some(old), Some(new)) => {
                old.clear();
                old.extend_from_slice(new);
            }
            (old, new) => *old = new.map(<[u8]>::to_vec),
        }
    }
}

/// Where a key stands in a walk.
fn position(key: Key) -> u64 {
    1 + ((key.0 ^ key.0 >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1)
}

impl Backend for MemoryBackend {
    fn walk(&self, from: u64, keys: &mut Vec<Key>) -> Walked {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let there = table.records.iter().filter(|(_, (_, value))| value.is_some());
        let mut behind: Vec<_> = there.map(|(key, _)| (position(*key), *key)).collect();
        behind.retain(|(position, _)| *position > from);
        behind.sort_unstable();
        keys.extend(behind.iter().take(STEP).map(|(_, key)| *key));
        match behind.len() {
            0..=STEP => Walked::End,
            _ => Walked::Until(behind[STEP - 1].0),
        }
    }

    fn walk_position(&self, draw: u64) -> u64 {
        draw >> 1
    }

    fn submit(&self, _connection: u64, request: Arc<Request>, done: Done) {
        done(self.run(&request));
    }
}
