//! Workloads of single operations, for key-value stores and registers: YCSB's mixes A to F, and
//! churn, which also inserts and deletes.
//!
//! Every value that is written is written once: it names its writer. A checker therefore knows of
//! each value read which operation wrote it, also where the system exports no versions.

mod content;
mod login;
mod records;
mod session;

use nicol_core::ids::{Key, ShardId};
use nicol_core::key_value::Offered;
use nicol_core::records::{RecordSource, Records};
use nicol_core::rng::Stream;
use nicol_core::view::ShardMap;

use crate::placement::{Violations, holds, records_at_most};
use crate::ycsb::{Generator, KeyForm, Mix, Operation, YcsbConfig};

pub use content::Content;
pub use login::Login;
use records::{Record, RecordForm};
pub use session::spawn_clients;

/// Of a hundred operations of churn: reads, and reads and writes.
const CHURN_READS: u64 = 50;
const CHURN_READS_AND_PUTS: u64 = 80;
/// Bytes of a value at most: a block of a file.
pub const VALUE_BYTES_MAX: usize = 1 << 20;
/// Bytes of a value of churn.
const CHURN_BYTES: usize = 16;

/// The features that YCSB's operations need besides reads and writes of records that exist.
pub fn asked_by(mix: Mix, keys: KeyForm) -> Offered {
    let (inserts, scans) = (mix.inserts(), mix.scans());
    Offered { inserts, scans, sparse: keys == KeyForm::Bytes, ..Offered::default() }
}

/// The request in one operation, or in one piece of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Get(Key),
    Put(Record),
    /// Of a record that was never put before.
    Insert(Record),
    Delete(Key),
    /// The end of a scope.
    Persist,
    Scan {
        first: Key,
        limit: u32,
    },
}

impl Request {
    /// The record, or the first one.
    fn key(&self) -> Option<Key> {
        match *self {
            Self::Get(key) | Self::Delete(key) => Some(key),
            Self::Put(record) | Self::Insert(record) => Some(record.key),
            Self::Scan { first, .. } => Some(first),
            Self::Persist => None,
        }
    }
}

/// Pieces of an operation, at most: those of a login.
const PIECES_MAX: usize = 7;

/// The next step: one request, or several one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Drawn {
    kind: usize,
    request: Request,
    /// The pieces that follow, first ones first.
    then: [Option<Request>; PIECES_MAX - 1],
}

impl Drawn {
    const fn single(kind: usize, request: Request) -> Self {
        Self { kind, request, then: [None; PIECES_MAX - 1] }
    }
}

#[derive(Debug)]
enum Draw {
    Ycsb(Generator),
    /// Reads, writes and deletions of so many rows, of which every other one is loaded.
    Churn {
        rows: u64,
    },
    /// Logins of so many users of a microservice.
    Logins {
        service: Login,
        users: u64,
    },
}

/// A workload of single operations, at a scale. The clients of a run share one.
#[derive(Debug)]
pub struct KeyValueWorkload {
    nodes: u16,
    form: RecordForm,
    /// Records for whose insertion the tables have capacity, in the whole cluster.
    insert_capacity: u64,
    draw: Draw,
    /// Writes of a client in a scope, where the system has scopes.
    scope_writes: Option<u32>,
    /// Do clients ask for records of their own node only?
    only_held: bool,
}

impl KeyValueWorkload {
    /// YCSB's operations on `nodes` nodes whose tables have capacity for so many insertions.
    ///
    /// # Panics
    /// If byte-string keys are scanned; if a value is not of 8 to [`VALUE_BYTES_MAX`] bytes.
    pub fn ycsb(config: YcsbConfig, nodes: u16, insert_capacity: u64) -> Self {
        let (mix, keys) = (config.mix, config.keys);
        assert!(keys == KeyForm::Number || !mix.scans(), "hashes have no order");
        assert!((8..=VALUE_BYTES_MAX).contains(&config.value_bytes), "a value names its writer");
        Self {
            nodes,
            form: RecordForm::new(keys, config.value_bytes, mix.scans()),
            insert_capacity: if mix.inserts() { insert_capacity } else { 0 },
            scope_writes: None,
            only_held: false,
            draw: Draw::Ycsb(Generator::new(config)),
        }
    }

    /// Reads, writes and deletions of `rows` records of the whole cluster.
    ///
    /// # Panics
    /// If there are none.
    pub fn churn(rows: u64, nodes: u16) -> Self {
        assert!(rows > 0, "there is a record");
        let draw = Draw::Churn { rows };
        Self {
            nodes,
            form: RecordForm::new(KeyForm::Number, CHURN_BYTES, false),
            insert_capacity: rows.div_ceil(2),
            draw,
            scope_writes: None,
            only_held: false,
        }
    }

    /// Logins of `users` users of `service`.
    ///
    /// # Panics
    /// If there are none.
    pub fn logins(service: Login, users: u64, nodes: u16, value_bytes: usize) -> Self {
        assert!(users > 0, "there is a user");
        assert!((8..=VALUE_BYTES_MAX).contains(&value_bytes), "a value names its writer");
        let draw = Draw::Logins { service, users };
        let form = RecordForm::new(KeyForm::Number, value_bytes, false);
        let (insert_capacity, scope_writes, only_held) = (0, None, false);
        Self { nodes, form, insert_capacity, draw, scope_writes, only_held }
    }

    /// The same, with this in its values.
    pub fn with_content(mut self, content: Content) -> Self {
        self.form = self.form.with_content(content);
        self
    }

    /// The same, by clients that draw again until their own node holds what they ask for.
    pub fn with_held_records(self) -> Self {
        Self { only_held: true, ..self }
    }

    /// The same, by clients that end a scope after so many writes: an operation of its own kind.
    ///
    /// # Panics
    /// If there are none.
    pub fn with_scopes(self, writes: u32) -> Self {
        assert!(writes > 0, "a scope has a write");
        Self { scope_writes: Some(writes), ..self }
    }

    /// Its name on the command line.
    pub fn name(&self) -> &'static str {
        match self.draw {
            Draw::Ycsb(_) => "ycsb",
            Draw::Churn { .. } => "churn",
            Draw::Logins { service, .. } => service.name(),
        }
    }

    /// The names of its kinds of operations.
    pub fn kinds(&self) -> &'static [&'static str] {
        match (&self.draw, self.scope_writes) {
            (Draw::Ycsb(generator), None) => generator.config().mix.kinds(),
            (Draw::Churn { .. }, None) => &["get", "put", "delete"],
            (Draw::Ycsb(_), Some(_)) => &["read", "write", "persist"],
            (Draw::Churn { .. }, Some(_)) => &["get", "put", "delete", "persist"],
            (Draw::Logins { .. }, None) => &["login"],
            (Draw::Logins { .. }, Some(_)) => &["login", "persist"],
        }
    }

    /// The features that it needs besides reads and writes of records that exist.
    pub fn asks(&self) -> Offered {
        match &self.draw {
            Draw::Ycsb(generator) => asked_by(generator.config().mix, generator.config().keys),
            Draw::Churn { .. } => Offered { inserts: true, deletes: true, ..Offered::default() },
            Draw::Logins { .. } => Offered::default(),
        }
    }

    /// Bytes of a stored value: with byte-string keys, the key's are among them.
    pub fn value_bytes(&self) -> usize {
        self.form.stored_bytes()
    }

    /// Two records, loaded or to be inserted, that the store could not tell apart, as their
    /// byte-string keys have the same hash.
    pub fn collision(&self) -> Option<[u64; 2]> {
        self.form.collision(self.records() + self.insert_capacity)
    }

    fn record(&self, number: u64) -> Record {
        self.form.record(number)
    }

    fn key(&self, number: u64) -> Key {
        self.record(number).key
    }

    fn next(&self, random: &mut Stream) -> Drawn {
        let generator = match &self.draw {
            Draw::Ycsb(generator) => generator,
            Draw::Churn { rows } => {
                let record = self.record(random.below(*rows));
                let (kind, request) = match random.below(100) {
                    0..CHURN_READS => (0, Request::Get(record.key)),
                    CHURN_READS..CHURN_READS_AND_PUTS => (1, Request::Put(record)),
                    _ => (2, Request::Delete(record.key)),
                };
                return Drawn::single(kind, request);
            }
            Draw::Logins { service, users } => {
                let user = random.below(*users);
                return service.drawn(|record| self.record(user * Login::RECORDS_MAX + record));
            }
        };
        let operation = generator.next(random);
        let (request, then) = match operation {
            Operation::Read { record } => (Request::Get(self.key(record)), None),
            Operation::Update { record } => (Request::Put(self.record(record)), None),
            Operation::Insert { record } => (Request::Insert(self.record(record)), None),
            Operation::Scan { record, limit } => {
                (Request::Scan { first: self.key(record), limit }, None)
            }
            Operation::ReadModifyWrite { record } => {
                let record = self.record(record);
                (Request::Get(record.key), Some(Request::Put(record)))
            }
        };
        let mut drawn = Drawn::single(usize::from(!operation.only_reads()), request);
        drawn.then[0] = then;
        drawn
    }

    /// The numbers of the loaded records.
    fn loaded(&self) -> impl Iterator<Item = u64> {
        let (records, step) = match &self.draw {
            Draw::Ycsb(generator) => (generator.config().records, 1),
            Draw::Churn { rows } => (*rows, 2),
            Draw::Logins { users, .. } => (*users * Login::RECORDS_MAX, 1),
        };
        (0..records).step_by(step)
    }

    fn records(&self) -> u64 {
        match &self.draw {
            Draw::Ycsb(generator) => generator.config().records,
            Draw::Churn { rows } => rows.div_ceil(2),
            Draw::Logins { users, .. } => users * Login::RECORDS_MAX,
        }
    }

    /// Judges the final state: one line per violated invariant. `inserted` is how many records were
    /// inserted, if every outcome is known and every replica has what was acknowledged.
    pub fn audit(&self, state: &mut dyn Records, inserted: Option<i128>) -> Vec<String> {
        let mut violations = Violations::default();
        let mut found = 0_i128;
        state.for_each(&mut |key, value| {
            found += 1;
            if !self.form.is_whole(key, value) {
                violations.add(|| format!("{key:?} holds a torn or foreign value"));
            }
        });
        if self.asks().deletes {
            return violations.into_lines();
        }
        let loaded = i128::from(self.records());
        let (expected, is_exact) = match inserted {
            Some(inserted) => (loaded + inserted, true),
            None => (loaded, false),
        };
        if found < expected || is_exact && found > expected {
            violations.add(|| format!("there are {found} records instead of {expected}"));
        }
        violations.into_lines()
    }
}

impl RecordSource for KeyValueWorkload {
    fn load(&self, shards: &dyn ShardMap, shard: ShardId, each: &mut dyn FnMut(Key, &[u8])) {
        let mut value = vec![0; self.value_bytes()];
        for record in self.loaded().map(|number| self.record(number)) {
            if holds(shards, shard, record.key) {
                self.form.write(&mut value, record, 0);
                each(record.key, &value);
            }
        }
    }

    fn records_per_shard(&self) -> u64 {
        records_at_most(self.records(), self.nodes)
    }

    fn growth_per_shard(&self) -> u64 {
        if self.insert_capacity == 0 {
            0
        } else {
            records_at_most(self.insert_capacity, self.nodes)
        }
    }

    fn value_lengths(&self) -> Vec<(u32, u64)> {
        vec![(self.value_bytes() as u32, self.records_per_shard() + self.growth_per_shard())]
    }
}
