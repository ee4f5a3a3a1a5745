//! YCSB on the `commit` family: every operation is a transaction.
//!
//! Every value carries a counter. An update and a read-modify-write both increment it: a
//! transaction reads what it writes. The audit: the sum of all counters is the number of increments
//! that were committed, and there are as many records as were loaded and inserted.

use nicol_core::ids::{Key, NodeId, ShardId, TableId};
use nicol_core::records::{RecordSource, Records};
use nicol_core::rng::Stream;
use nicol_core::txn::{Execute, KeyRange, ProcedureId, Procedures, Txn, Verdict, VersionRange};
use nicol_core::view::ShardMap;
use nicol_core::workload::Workload;

use super::generator::{Generator, Operation, SCAN_MAX, YcsbConfig};
use super::keys::{KeyForm, Scatter};
use crate::counter::{VALUE_BYTES_MAX, emit, increment_of, parse};
use crate::placement::{Violations, holds, records_at_most};

/// The table of records found by their keys alone.
const HASHED: TableId = TableId(1);
/// The table of records that stand in the order of their keys.
const ORDERED: TableId = TableId(TableId::ORDERED.0 + 1);

/// Bits of a key within the range that one range version covers.
const RANGE_BITS: u32 = 32;
/// Records per such range, about: three scans of the greatest length.
const RANGE_RECORDS: u64 = 3 * SCAN_MAX as u64;

/// The values of a run on the `commit` family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransactionsConfig {
    pub ycsb: YcsbConfig,
    pub nodes: u16,
    /// Records for whose insertion the tables have capacity, in the whole cluster.
    pub insert_capacity: u64,
    /// May the execution logic run on NIC cores? [Xenic21 4.3.3]
    pub ship: bool,
}

/// The YCSB workload of the `commit` family.
#[derive(Debug)]
pub struct Transactions {
    config: TransactionsConfig,
    generator: Generator,
    view: View,
}

/// Where records stand.
#[derive(Clone, Copy, Debug)]
enum View {
    /// In a hash table, on whichever shard their key's hash says.
    Hashed,
    /// In ordered tables, dealt out to the nodes by their numbers, at keys that scatter them.
    Ordered { nodes: u64, scatter: Scatter },
}

impl View {
    fn of(config: &TransactionsConfig) -> Self {
        if !config.ycsb.mix.scans() {
            return Self::Hashed;
        }
        let nodes = u64::from(config.nodes);
        let ranges = (config.ycsb.records / nodes / RANGE_RECORDS).max(1);
        let bits = RANGE_BITS + ranges.ilog2().min(Key::PARTITIONED_ROW_BITS - RANGE_BITS);
        Self::Ordered { nodes, scatter: Scatter::new(bits) }
    }

    fn key(self, record: u64) -> Key {
        match self {
            Self::Hashed => Key::new(HASHED, record),
            Self::Ordered { nodes, scatter } => {
                Key::partitioned(ORDERED, (record % nodes) as u16, scatter.apply(record / nodes))
            }
        }
    }

    /// The number of the record at `key`, if the key is of this run's table.
    fn record(self, key: Key) -> Option<u64> {
        let record = match self {
            Self::Hashed => key.row(),
            Self::Ordered { nodes, scatter } => {
                let row = key.row() & ((1 << Key::PARTITIONED_ROW_BITS) - 1);
                scatter.undo(row) * nodes + u64::from(key.partition()?)
            }
        };
        (self.key(record) == key).then_some(record)
    }
}

impl Transactions {
    /// The workload of `config`.
    ///
    /// # Panics
    /// If keys are byte strings, which the family's are not; if a value is not of 8 to 1,024 bytes;
    /// if a mix that scans has fewer records than nodes.
    pub fn new(config: TransactionsConfig) -> Self {
        let YcsbConfig { keys, value_bytes, records, mix, .. } = config.ycsb;
        assert!(keys == KeyForm::Number, "the commit family's keys are numbers");
        assert!((8..=VALUE_BYTES_MAX).contains(&value_bytes), "a value holds its counter");
        assert!(!mix.scans() || records >= u64::from(config.nodes), "every node has a record");
        Self { config, generator: Generator::new(config.ycsb), view: View::of(&config) }
    }

    /// A record at `home` that `record` stands for: a scan stays on its client's node.
    fn record_at(&self, home: NodeId, record: u64) -> u64 {
        let nodes = u64::from(self.config.nodes);
        let here = (self.config.ycsb.records - 1 - u64::from(home.0) % nodes) / nodes;
        (record / nodes).min(here) * nodes + u64::from(home.0) % nodes
    }
}

/// The procedures, by their ids.
const PROCEDURES: [Execute; 3] = [touch, insert, scan];
const TOUCH: ProcedureId = ProcedureId(0);
const INSERT: ProcedureId = ProcedureId(1);
const SCAN: ProcedureId = ProcedureId(2);

/// Arguments of [`insert`]: the length of the value. Of [`scan`]: the first key, the most records.
mod field {
    use std::ops::Range;
    pub const LEN: Range<usize> = 0..4;
    pub const FIRST: Range<usize> = 0..8;
    pub const LIMIT: Range<usize> = 8..12;
}

impl RecordSource for Transactions {
    fn load(&self, shards: &dyn ShardMap, shard: ShardId, each: &mut dyn FnMut(Key, &[u8])) {
        let mut value = [0; VALUE_BYTES_MAX];
        let value = &mut value[..self.config.ycsb.value_bytes];
        for record in 0..self.config.ycsb.records {
            let key = self.view.key(record);
            if holds(shards, shard, key) {
                emit(value, key.row(), 0);
                each(key, value);
            }
        }
    }

    fn records_per_shard(&self) -> u64 {
        records_at_most(self.config.ycsb.records, self.config.nodes)
    }

    fn ordered_per_shard(&self) -> u64 {
        match self.view {
            View::Hashed => 0,
            View::Ordered { nodes, .. } => self.config.ycsb.records / nodes,
        }
    }

    fn growth_per_shard(&self) -> u64 {
        if self.config.insert_capacity == 0 {
            0
        } else {
            records_at_most(self.config.insert_capacity, self.config.nodes)
        }
    }

    fn value_lengths(&self) -> Vec<(u32, u64)> {
        let records = self.records_per_shard() + self.growth_per_shard();
        vec![(self.config.ycsb.value_bytes as u32, records)]
    }
}

impl Workload for Transactions {
    fn name(&self) -> &'static str {
        "ycsb"
    }

    fn procedures(&self) -> Procedures {
        Procedures::new(&PROCEDURES)
    }

    fn next(&self, home: NodeId, rng: &mut Stream, txn: &mut Txn) -> usize {
        let operation = self.generator.next(rng);
        match operation {
            Operation::Read { record } => {
                txn.reset(TOUCH, &[]);
                txn.read(self.view.key(record));
            }
            Operation::Update { record } | Operation::ReadModifyWrite { record } => {
                txn.reset(TOUCH, &[]);
                txn.write(self.view.key(record));
            }
            Operation::Insert { record } => {
                let len = self.config.ycsb.value_bytes as u32;
                txn.reset(INSERT, &len.to_le_bytes());
                txn.write(self.view.key(record));
            }
            Operation::Scan { record, limit } => {
                let first = self.view.key(self.record_at(home, record));
                let mut args = [0; field::LIMIT.end];
                args[field::FIRST].copy_from_slice(&first.0.to_le_bytes());
                args[field::LIMIT].copy_from_slice(&limit.to_le_bytes());
                txn.reset(SCAN, &args);
                txn.local = true;
                txn.scan(rest_of_range(first, limit));
            }
        }
        txn.ship = self.config.ship && !txn.local;
        usize::from(!operation.only_reads())
    }

    fn kinds(&self) -> &'static [&'static str] {
        self.config.ycsb.mix.kinds()
    }

    fn audit_state(&self, state: &mut dyn Records) -> Vec<String> {
        let mut violations = Violations::default();
        self.count(state, &mut violations);
        violations.into_lines()
    }

    fn audit(&self, state: &mut dyn Records, totals: &[i128]) -> Vec<String> {
        let mut violations = Violations::default();
        let (records, counters) = self.count(state, &mut violations);
        let written = totals.get(WRITES).copied().unwrap_or_default();
        let inserts = self.config.ycsb.mix.inserts();
        let (inserted, incremented) = if inserts { (written, 0) } else { (0, written) };
        let expected = i128::from(self.config.ycsb.records) + inserted;
        if records != expected {
            violations.add(|| format!("there are {records} records instead of {expected}"));
        }
        if counters != incremented {
            violations
                .add(|| format!("counters sum to {counters}, increments committed: {incremented}"));
        }
        violations.into_lines()
    }
}

/// The kind that writes, of [`Mix::kinds`](super::Mix::kinds).
const WRITES: usize = 1;

impl Transactions {
    /// The number of records, and the sum of their counters. A loaded record that is lost and a
    /// value that was never written are violations.
    fn count(&self, state: &mut dyn Records, violations: &mut Violations) -> (i128, i128) {
        let (mut loaded, mut found, mut sum) = (0_u64, 0_i128, 0_i128);
        state.for_each(&mut |key, value| {
            found += 1;
            let Some(record) = self.view.record(key) else {
                violations.add(|| format!("{key:?} is none of this workload's"));
                return;
            };
            loaded += u64::from(record < self.config.ycsb.records);
            let whole = value.len() == self.config.ycsb.value_bytes;
            match parse(value, key.row()).filter(|_| whole) {
                Some(counter) => sum += i128::from(counter),
                None => violations.add(|| format!("record {record} holds a torn or foreign value")),
            }
        });
        if loaded != self.config.ycsb.records {
            let records = 0..self.config.ycsb.records;
            for record in records.filter(|&one| state.read(self.view.key(one)).is_none()) {
                violations.add(|| format!("record {record} is lost"));
            }
        }
        (found, sum)
    }
}

/// The first `limit` records from `first` on, up to the end of its range.
fn rest_of_range(first: Key, limit: u32) -> KeyRange {
    let last = Key(first.0 | ((1 << RANGE_BITS) - 1));
    KeyRange { first, last, backward: false, limit }
}

/// Reads the record, and increments the counter of one in the write set. An absent record is none:
/// its insertion may be under way. Refuses a value that was never written.
fn touch(txn: &mut Txn) -> Verdict {
    if txn.entries().len() != 1 || !txn.entries()[0].fetched {
        return Verdict::Refuse;
    }
    let increments = match txn.value(0) {
        None => 0,
        Some(_) => match increment_of(txn, 0) {
            Some(increments) => increments,
            None => return Verdict::Refuse,
        },
    };
    txn.output.extend_from_slice(&increments.to_le_bytes());
    Verdict::Commit
}

/// Inserts the record unless it is there, and leaves how many it has inserted.
fn insert(txn: &mut Txn) -> Verdict {
    let Some(len) = txn.args().get(field::LEN).and_then(|len| len.first_chunk()) else {
        return Verdict::Refuse;
    };
    let len = u32::from_le_bytes(*len) as usize;
    let fetched = txn.entries().len() == 1 && txn.entries()[0].fetched && txn.entries()[0].write;
    let mut value = [0; VALUE_BYTES_MAX];
    let Some(value) = value.get_mut(..len).filter(|value| fetched && value.len() >= 8) else {
        return Verdict::Refuse;
    };
    let inserted = i64::from(txn.value(0).is_none());
    if inserted == 1 {
        emit(value, txn.entries()[0].key.row(), 0);
        txn.put(0, value);
    }
    txn.output.extend_from_slice(&inserted.to_le_bytes());
    Verdict::Commit
}

/// Reads up to as many records as asked for: from the first key to the end of its range, and then
/// of the next one. Refuses if a value was never written.
fn scan(txn: &mut Txn) -> Verdict {
    let args = txn.args();
    let first = args.get(field::FIRST).and_then(|first| first.first_chunk());
    let limit = args.get(field::LIMIT).and_then(|limit| limit.first_chunk());
    let (Some(first), Some(limit)) = (first, limit) else { return Verdict::Refuse };
    let first = Key(u64::from_le_bytes(*first));
    let limit = u32::from_le_bytes(*limit);
    if !first.is_ordered() {
        return Verdict::Refuse;
    }
    let initial = txn.scan(rest_of_range(first, limit));
    let Some(found) = txn.found(initial) else { return Verdict::More };
    let left = limit.saturating_sub(found.len() as u32);
    let next = VersionRange(VersionRange::of(first).0.wrapping_add(1)).first();
    if left > 0 && next.partition() == first.partition() && next.table() == first.table() {
        let further = txn.scan(rest_of_range(next, left));
        if txn.found(further).is_none() {
            return Verdict::More;
        }
    }
    let whole = |index: usize| {
        let key = txn.entries()[index].key;
        txn.value(index).is_some_and(|value| parse(value, key.row()).is_some())
    };
    if (0..txn.entries().len()).all(whole) { Verdict::Commit } else { Verdict::Refuse }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chooser::PartsPerMillion;
    use crate::ycsb::Mix;

    fn view(mix: Mix, nodes: u16, records: u64) -> (TransactionsConfig, View) {
        let ycsb = YcsbConfig {
            mix,
            records,
            reads: PartsPerMillion::percent(mix.read_percent().into()),
            popularity: mix.popularity(),
            keys: KeyForm::Number,
            value_bytes: 8,
        };
        let config = TransactionsConfig { ycsb, nodes, insert_capacity: 0, ship: false };
        (config, View::of(&config))
    }

    #[test]
    fn a_record_is_found_again_by_its_key() {
        for mix in [Mix::A, Mix::E] {
            for (nodes, records) in [(1, 1), (3, 40), (3, 300_000), (16, 1 << 30)] {
                let (_, view) = view(mix, nodes, records);
                for record in (0..100).chain(records..records + 100) {
                    assert_eq!(view.record(view.key(record)), Some(record));
                }
            }
        }
        let (_, view) = view(Mix::E, 3, 40);
        assert_eq!(view.record(Key::new(HASHED, 1)), None);
    }

    #[test]
    fn ranges_hold_a_few_scans_each() {
        for (records, most) in [(40, 60), (3_000, 4_000), (30_000, 900), (1 << 20, 5_000)] {
            let (_, view) = view(Mix::E, 1, records);
            let mut ranges = std::collections::BTreeMap::new();
            for record in 0..records {
                *ranges.entry(VersionRange::of(view.key(record))).or_insert(0) += 1;
            }
            assert!(ranges.values().all(|count| *count <= most), "{records}: {ranges:?}");
        }
    }

    #[test]
    fn a_scan_begins_at_a_record_of_its_clients_node() {
        for nodes in [1, 3, 7] {
            let (config, view) = view(Mix::E, nodes, 100);
            let workload = Transactions::new(config);
            for home in (0..nodes).map(|node| NodeId(node as _)) {
                for record in 0..100 {
                    let record = workload.record_at(home, record);
                    assert!(record < 100);
                    assert_eq!(view.key(record).partition(), Some(home.0));
                }
            }
        }
    }
}
