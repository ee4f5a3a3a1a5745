//! Churn: inserts, deletes and reads of absent records in a small key space (AMB-36).
//!
//! Values name their row and the insert that wrote them. There are two tables. In `SINGLES` keys
//! are inserted, deleted and moved; the audit counts the present records. In `PAIRS` a record is
//! inserted only while its partner is absent, and the partner is only read: two such inserts that
//! both commit are a write skew over absent records. A later deletion could hide that, so a
//! separate transaction type reads both partners and reports how often it saw both.
//!
//! In `churn-ordered` ([`ChurnConfig::ordered`]) the tables are ordered. Most of their keys are
//! then accessed from other nodes, which no other workload does. Some inserts of a pair look for
//! the partner by a scan: two that both commit are phantoms to each other. With
//! [`ChurnConfig::scan_first`] these name the record only after the scan, so that no lock of the
//! record stands in for one of the range. With [`ChurnConfig::both_tables`] there are deletions
//! that write both tables, and transactions that read the first and then scan the second: one that
//! sees the first before such a deletion and the second behind it is wrong.
//!
//! A procedure that finds another record's value commits that it did: a read is recorded only then,
//! and judged.

use std::ops::Range;

use nicol_core::ids::{Key, NodeId, ShardId, TableId};
use nicol_core::records::{RecordSource, Records};
use nicol_core::rng::Stream;
use nicol_core::txn::{Execute, KeyRange, ProcedureId, Procedures, Txn, Verdict};
use nicol_core::view::ShardMap;
use nicol_core::workload::Workload;

use crate::placement::{Violations, holds, records_at_most};

/// Records that are inserted and deleted; even rows exist initially.
pub const SINGLES: TableId = TableId(1);
/// Records of which rows `2 i` and `2 i + 1` exclude each other; even rows exist initially.
pub const PAIRS: TableId = TableId(2);
/// Bytes of a value.
pub const VALUE_BYTES: usize = field::STAMP.end;

mod field {
    use super::Range;
    pub const ROW: Range<usize> = 0..8;
    pub const STAMP: Range<usize> = 8..16;
}

/// The values of a churn run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChurnConfig {
    pub nodes: u16,
    /// Rows of each of the two tables, in the whole cluster: an even number.
    pub rows: u64,
    /// Are the tables ordered, with pairs distributed over the nodes? Then the odd row of a pair is
    /// above its group's high-water mark until it is inserted (`nicol_store::high_water`).
    pub ordered: bool,
    /// Do inserts that look for the partner by a scan name their record only after it? In ordered
    /// tables.
    pub scan_first: bool,
    /// Do some transactions overwrite a single record and delete one of a pair, and others read the
    /// one and then scan for the other? In ordered tables.
    pub both_tables: bool,
    /// May the execution logic run on NIC cores? [Xenic21 4.3.3]
    pub ship: bool,
}

impl ChurnConfig {
    /// Tables without an order, whose logic may run on NIC cores.
    pub const fn new(nodes: u16, rows: u64) -> Self {
        Self { nodes, rows, ordered: false, scan_first: false, both_tables: false, ship: true }
    }

    /// Maximum rows of ordered tables.
    pub const ORDERED_ROWS_MAX: u64 = 2 << (Key::PARTITIONED_ROW_BITS - PAIR_BITS);
}

/// The churn workload.
#[derive(Clone, Debug)]
pub struct Churn {
    config: ChurnConfig,
}

/// The kinds, in the order of [`Workload::kinds`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Insert,
    Delete,
    Read,
    Move,
    InsertOfPair,
    DeleteOfPair,
    ReadOfPair,
    /// Only in ordered tables.
    InsertByScan,
    /// Only where transactions access both tables.
    DeleteOfBoth,
    ReadOfBoth,
    /// Takes the place of `InsertByScan`, if the scan comes first: not a kind of its own.
    InsertAfterScan,
}

/// Kinds that need no ordered table; the others follow.
const UNORDERED: usize = 7;
/// Kinds of which each transaction accesses one table; the others follow.
const OF_ONE_TABLE: usize = 8;

const KINDS: [Kind; 10] = [
    Kind::Insert,
    Kind::Delete,
    Kind::Read,
    Kind::Move,
    Kind::InsertOfPair,
    Kind::DeleteOfPair,
    Kind::ReadOfPair,
    Kind::InsertByScan,
    Kind::DeleteOfBoth,
    Kind::ReadOfBoth,
];

const NAMES: [&str; 10] = [
    "insert",
    "delete",
    "read",
    "move",
    "insert_of_pair",
    "delete_of_pair",
    "read_of_pair",
    "insert_by_scan",
    "delete_of_both",
    "read_of_both",
];

/// Bits of an ordered key below its pair: each pair is a key-prefix group.
const PAIR_BITS: u32 = 24;

/// Keys of a read transaction.
const READ_KEYS: usize = 3;

impl Churn {
    /// The workload of `config`.
    ///
    /// # Panics
    /// If there are fewer than four rows, or an odd number, or ordered tables have no pair for some
    /// node, or more than [`ChurnConfig::ORDERED_ROWS_MAX`].
    pub fn new(config: ChurnConfig) -> Self {
        assert!(config.rows >= 4, "a read looks at three distinct rows");
        assert!(config.rows.is_multiple_of(2), "rows come in pairs");
        let pairs = config.rows / 2;
        assert!(!config.ordered || pairs >= u64::from(config.nodes), "every node has a pair");
        let scans = config.scan_first || config.both_tables;
        assert!(config.ordered || !scans, "only ordered tables are scanned");
        let fits = config.rows <= ChurnConfig::ORDERED_ROWS_MAX;
        assert!(!config.ordered || fits, "a pair's number fits its key");
        Self { config }
    }

    fn all_keys(&self) -> impl Iterator<Item = Key> {
        [SINGLES, PAIRS]
            .into_iter()
            .flat_map(move |table| (0..self.config.rows).map(move |row| self.key(table, row)))
    }

    /// The key of a row. In an ordered table, both of a pair are at one node.
    fn key(&self, table: TableId, row: u64) -> Key {
        if !self.config.ordered {
            return Key::new(table, row);
        }
        let (pair, partition) = (row / 2, row / 2 % u64::from(self.config.nodes));
        let table = TableId(TableId::ORDERED.0 + table.0);
        Key::partitioned(table, partition as u16, (pair << PAIR_BITS) | (row % 2))
    }

    /// Maps `row` to a row of a pair at `home`.
    fn row_at(&self, home: NodeId, row: u64) -> u64 {
        let (nodes, home) = (u64::from(self.config.nodes), u64::from(home.0));
        let pairs = (self.config.rows / 2 - home).div_ceil(nodes);
        2 * (row / 2 % pairs * nodes + home) + row % 2
    }

    fn pairs(&self) -> impl Iterator<Item = (u64, u64)> {
        (0..self.config.rows).step_by(2).map(|row| (row, row + 1))
    }
}

fn is_initial(key: Key) -> bool {
    key.row().is_multiple_of(2)
}

fn value_of(key: Key, stamp: u64) -> [u8; VALUE_BYTES] {
    let mut value = [0; VALUE_BYTES];
    value[field::ROW].copy_from_slice(&key.0.to_le_bytes());
    value[field::STAMP].copy_from_slice(&stamp.to_le_bytes());
    value
}

fn belongs(value: &[u8], key: Key) -> bool {
    value.len() == VALUE_BYTES && value[field::ROW] == key.0.to_le_bytes()
}

impl RecordSource for Churn {
    fn load(&self, shards: &dyn ShardMap, shard: ShardId, each: &mut dyn FnMut(Key, &[u8])) {
        for key in self.all_keys().filter(|key| is_initial(*key) && holds(shards, shard, *key)) {
            each(key, &value_of(key, 0));
        }
    }

    fn records_per_shard(&self) -> u64 {
        records_at_most(self.config.rows, self.config.nodes)
    }

    fn ordered_per_shard(&self) -> u64 {
        let initial = self.config.rows / 2;
        if self.config.ordered { 2 * (initial / u64::from(self.config.nodes)) } else { 0 }
    }

    fn growth_per_shard(&self) -> u64 {
        // Every row of both tables may be there at once, if the system is wrong.
        records_at_most(2 * self.config.rows, self.config.nodes)
    }

    fn value_lengths(&self) -> Vec<(u32, u64)> {
        vec![(VALUE_BYTES as u32, self.records_per_shard() + self.growth_per_shard())]
    }
}

impl Workload for Churn {
    fn name(&self) -> &'static str {
        if self.config.ordered { "churn-ordered" } else { "churn" }
    }

    fn procedures(&self) -> Procedures {
        const LOGIC: [Execute; 11] = [
            insert,
            delete,
            look,
            move_record,
            insert_of_pair,
            delete,
            look_at_pair,
            insert_by_scan,
            delete_of_both,
            read_of_both,
            insert_after_scan,
        ];
        const READS: [Kind; 3] = [Kind::Read, Kind::ReadOfPair, Kind::ReadOfBoth];
        let only_reads = |txn: &Txn| READS.iter().any(|kind| *kind as u16 == txn.procedure.0);
        Procedures::new(&LOGIC).some_only_read(only_reads)
    }

    fn next(&self, home: NodeId, random: &mut Stream, txn: &mut Txn) -> usize {
        let kind = KINDS[random.below(self.kinds().len() as u64) as usize];
        txn.reset(ProcedureId(kind as u16), &random.bits().to_le_bytes());
        txn.ship = self.config.ship;
        let row = random.below(self.config.rows);
        // Another row, uniformly: a step of 1 to rows - 1 around the ring.
        let other = (row + 1 + random.below(self.config.rows - 1)) % self.config.rows;
        match kind {
            Kind::Insert | Kind::Delete => {
                txn.write(self.key(SINGLES, row));
            }
            Kind::Read => {
                for step in 0..READ_KEYS as u64 {
                    txn.read(self.key(SINGLES, (row + step) % self.config.rows));
                }
            }
            Kind::Move => {
                txn.write(self.key(SINGLES, row));
                txn.write(self.key(SINGLES, other));
            }
            Kind::InsertOfPair => {
                txn.write(self.key(PAIRS, row));
                txn.read(self.key(PAIRS, row ^ 1));
            }
            Kind::DeleteOfPair => {
                txn.write(self.key(PAIRS, row));
            }
            Kind::ReadOfPair => {
                txn.read(self.key(PAIRS, row));
                txn.read(self.key(PAIRS, row ^ 1));
            }
            Kind::InsertByScan | Kind::InsertAfterScan => {
                let row = self.row_at(home, row);
                let key = self.key(PAIRS, row);
                if self.config.scan_first {
                    let stamp = random.bits().to_le_bytes();
                    let args = [stamp, key.0.to_le_bytes()].concat();
                    txn.reset(ProcedureId(Kind::InsertAfterScan as u16), &args);
                    txn.ship = self.config.ship;
                } else {
                    txn.write(key);
                }
                txn.local = true;
                scan_pair(txn, key);
            }
            Kind::DeleteOfBoth => {
                txn.write(self.key(SINGLES, row));
                txn.write(self.key(PAIRS, row));
            }
            Kind::ReadOfBoth => {
                let row = self.row_at(home, row);
                let args = self.key(PAIRS, row).0.to_le_bytes();
                txn.reset(ProcedureId(kind as u16), &args);
                txn.ship = self.config.ship;
                txn.local = true;
                txn.read(self.key(SINGLES, row));
            }
        }
        kind as usize
    }

    fn adds_keys(&self, kind: usize) -> bool {
        self.config.scan_first && kind == Kind::InsertByScan as usize
    }

    fn kinds(&self) -> &'static [&'static str] {
        match self.config {
            ChurnConfig { ordered: false, .. } => &NAMES[..UNORDERED],
            ChurnConfig { both_tables: false, .. } => &NAMES[..OF_ONE_TABLE],
            _ => &NAMES,
        }
    }

    fn audit_survivors(&self, state: &mut dyn Records) -> Vec<String> {
        let mut violations = Violations::default();
        for key in self.all_keys() {
            let found = if state.is_known(key) { state.read(key) } else { None };
            if found.is_some_and(|value| !belongs(&value, key)) {
                violations.add(|| format!("{key:?} holds another record's value"));
            }
        }
        for (even, odd) in self.pairs() {
            let mut present = |row| {
                let key = self.key(PAIRS, row);
                state.is_known(key) && state.read(key).is_some()
            };
            if present(even) && present(odd) {
                violations.add(|| format!("rows {even} and {odd} of the pairs are both present"));
            }
        }
        violations.into_lines()
    }

    fn audit(&self, state: &mut dyn Records, totals: &[i128]) -> Vec<String> {
        let mut violations = Violations::default();
        let (mut before, mut after) = (0_i128, 0_i128);
        for key in self.all_keys() {
            before += i128::from(is_initial(key));
            let Some(value) = state.read(key) else { continue };
            after += 1;
            if !belongs(&value, key) {
                violations.add(|| format!("{key:?} holds another record's value"));
            }
        }
        let sightings = totals.get(Kind::ReadOfPair as usize).copied().unwrap_or_default();
        if sightings != 0 {
            violations.add(|| format!("{sightings} transactions saw both records of a pair"));
        }
        let change = totals.iter().sum::<i128>() - sightings;
        if before + change != after {
            violations.add(|| {
                format!("records: initially {before}, changed by {change}, finally {after}")
            });
        }
        for (even, odd) in self.pairs() {
            let mut present = |row| state.read(self.key(PAIRS, row)).is_some();
            if present(even) && present(odd) {
                violations.add(|| format!("rows {even} and {odd} of the pairs are both present"));
            }
        }
        violations.into_lines()
    }
}

/// For each of the transaction's keys, whether its record is present. `None` unless the transaction
/// has the expected entries (`true`: in the write set) with valid values.
fn presence<const N: usize>(txn: &Txn, expected: [bool; N]) -> Option<[bool; N]> {
    let entries = txn.entries();
    if entries.len() != N {
        return None;
    }
    let mut presence = [false; N];
    for (index, write) in expected.into_iter().enumerate() {
        if !entries[index].fetched || entries[index].write != write {
            return None;
        }
        let value = txn.value(index);
        if value.is_some_and(|value| !belongs(value, entries[index].key)) {
            return None;
        }
        presence[index] = value.is_some();
    }
    Some(presence)
}

/// What a transaction outputs that has found another record's value: no count of records is as
/// large.
const FOREIGN: i64 = 1 << 40;

/// Ends a procedure whose keys are not as expected.
fn unexpected(txn: &mut Txn) -> Verdict {
    let foreign = (0..txn.entries().len()).any(|index| {
        let entry = &txn.entries()[index];
        entry.fetched && txn.value(index).is_some_and(|value| !belongs(value, entry.key))
    });
    if foreign { finish(txn, FOREIGN) } else { Verdict::Refuse }
}

/// Writes a value, stamped by the arguments, to the key at `index`.
fn put(txn: &mut Txn, index: usize) {
    let stamp = txn.args().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let value = value_of(txn.entries()[index].key, stamp);
    txn.put(index, &value);
}

/// Ends a procedure that changed the number of present records by `change`.
fn finish(txn: &mut Txn, change: i64) -> Verdict {
    txn.output.extend_from_slice(&change.to_le_bytes());
    Verdict::Commit
}

/// Inserts the record, or overwrites it.
fn insert(txn: &mut Txn) -> Verdict {
    let Some([present]) = presence(txn, [true]) else { return unexpected(txn) };
    put(txn, 0);
    finish(txn, i64::from(!present))
}

/// Deletes the record if it is there.
fn delete(txn: &mut Txn) -> Verdict {
    let Some([present]) = presence(txn, [true]) else { return unexpected(txn) };
    txn.delete(0);
    finish(txn, -i64::from(present))
}

/// Reads three records, present or not.
fn look(txn: &mut Txn) -> Verdict {
    match presence(txn, [false; READ_KEYS]) {
        Some(_) => finish(txn, 0),
        None => unexpected(txn),
    }
}

/// Moves a record to the other key if that is free; otherwise changes nothing.
fn move_record(txn: &mut Txn) -> Verdict {
    let Some(present) = presence(txn, [true; 2]) else { return unexpected(txn) };
    if present == [true, false] {
        txn.delete(0);
        put(txn, 1);
    }
    finish(txn, 0)
}

/// Inserts the record if its partner is absent.
fn insert_of_pair(txn: &mut Txn) -> Verdict {
    let Some([present, partner]) = presence(txn, [true, false]) else { return unexpected(txn) };
    if partner {
        return finish(txn, 0);
    }
    put(txn, 0);
    finish(txn, i64::from(!present))
}

/// The key of an ordered table with which `args` begin.
fn named(args: &[u8]) -> Option<Key> {
    let key = args.first_chunk().map(|bytes| Key(u64::from_le_bytes(*bytes)));
    key.filter(|key| key.is_ordered())
}

/// Requests a scan of the pair of `key`. Returns its index.
fn scan_pair(txn: &mut Txn, key: Key) -> usize {
    let (first, last) = (Key(key.0 & !1), Key(key.0 | 1));
    txn.scan(KeyRange { first, last, backward: false, limit: 2 })
}

/// Inserts the record if a scan of the pair does not find its partner.
fn insert_by_scan(txn: &mut Txn) -> Verdict {
    let Some(key) = txn.entries().first().map(|entry| entry.key).filter(|key| key.is_ordered())
    else {
        return Verdict::Refuse;
    };
    let scan = scan_pair(txn, key);
    let Some(found) = txn.found(scan) else { return Verdict::More };
    // The record itself is the first entry, wherever it was found.
    let partner = found.iter().any(|index| *index != 0);
    let present = txn.value(0).is_some();
    if partner {
        return finish(txn, 0);
    }
    put(txn, 0);
    finish(txn, i64::from(!present))
}

/// Inserts the record that the arguments name, once a scan of the pair has found no other.
fn insert_after_scan(txn: &mut Txn) -> Verdict {
    let Some(key) = txn.args().get(size_of::<u64>()..).and_then(named) else {
        return Verdict::Refuse;
    };
    let scan = scan_pair(txn, key);
    let Some(found) = txn.found(scan) else { return Verdict::More };
    let partner = found.iter().any(|index| txn.entries()[*index as usize].key != key);
    if partner {
        return finish(txn, 0);
    }
    let index = txn.write(key);
    if !txn.entries()[index].fetched {
        return Verdict::More;
    }
    let present = match txn.value(index) {
        Some(value) if !belongs(value, key) => return finish(txn, FOREIGN),
        value => value.is_some(),
    };
    put(txn, index);
    finish(txn, i64::from(!present))
}

/// Overwrites one record, or inserts it, and deletes the other if it is there.
fn delete_of_both(txn: &mut Txn) -> Verdict {
    let Some([single, of_pair]) = presence(txn, [true; 2]) else { return unexpected(txn) };
    put(txn, 0);
    txn.delete(1);
    finish(txn, i64::from(!single) - i64::from(of_pair))
}

/// Has read one record, and scans the pair of the other, which the arguments name.
fn read_of_both(txn: &mut Txn) -> Verdict {
    let Some(key) = named(txn.args()) else { return Verdict::Refuse };
    let scan = scan_pair(txn, key);
    match txn.found(scan) {
        None => Verdict::More,
        Some(_) => finish(txn, 0),
    }
}

/// Reads both records of a pair, and outputs 1 if both exist.
fn look_at_pair(txn: &mut Txn) -> Verdict {
    let Some(present) = presence(txn, [false; 2]) else { return unexpected(txn) };
    finish(txn, i64::from(present == [true; 2]))
}
