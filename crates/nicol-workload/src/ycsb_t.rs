//! YCSB-T: short transactions that read, or read and modify, a few records. [Prism21 8.3]
//!
//! Every value carries a counter, and a modification increments it. The audit: the sum of all
//! counters is the number of increments that were committed, so no update was lost or applied
//! twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nicol_core::ids::{Key, NodeId, ShardId, TableId};
use nicol_core::records::{RecordSource, Records};
use nicol_core::rng::Stream;
use nicol_core::txn::{KEYS_MAX, ProcedureId, Procedures, Txn};
use nicol_core::view::ShardMap;
use nicol_core::workload::Workload;

use crate::chooser::{Chooser, Distribution, PartsPerMillion};
use crate::counter::{self, CountedTable};

/// The only table, or the first one.
pub const RECORDS: TableId = TableId(1);

/// The values of a YCSB-T run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct YcsbTConfig {
    pub nodes: u16,
    pub records_per_node: u64,
    /// Distinct keys of each transaction.
    pub keys_per_txn: usize,
    /// Bytes of a value, 8 to 1,024.
    pub value_bytes: usize,
    /// The share of keys that are only read.
    pub read_fraction: PartsPerMillion,
    /// The share of the other keys that are written without being read, where a system can do that.
    pub blind_fraction: PartsPerMillion,
    /// How keys are drawn, over the whole cluster.
    pub distribution: Distribution,
    /// May the execution logic run on NIC cores? [Xenic21 4.3.3]
    pub ship: bool,
}

/// The YCSB-T workload.
#[derive(Clone, Debug)]
pub struct YcsbT {
    config: YcsbTConfig,
    records: CountedTable,
    chooser: Chooser,
    /// Transactions after which other records are hot, and those drawn so far.
    moves: Option<(u64, Arc<AtomicU64>)>,
    /// Transactions after which they have another number of keys, that number, and those drawn so
    /// far.
    later: Option<(u64, usize, Arc<AtomicU64>)>,
}

/// The kinds, in the order of [`Workload::kinds`].
const READ_ONLY: usize = 0;
const READ_WRITE: usize = 1;

impl YcsbT {
    /// The workload of `config`.
    ///
    /// # Panics
    /// If there are fewer records than keys of a transaction, or a size is out of its range.
    pub fn new(config: YcsbTConfig) -> Self {
        let YcsbTConfig { nodes, records_per_node, value_bytes, distribution, .. } = config;
        let records = CountedTable::new(RECORDS, nodes, records_per_node, value_bytes);
        assert!((1..=KEYS_MAX).contains(&config.keys_per_txn), "1 to {KEYS_MAX} keys");
        let keys = config.keys_per_txn as u64;
        assert!(records.total() >= keys, "a transaction's keys are distinct");
        for share in [config.read_fraction, config.blind_fraction] {
            assert!(share <= PartsPerMillion::ALL, "a share is at most one");
        }
        let chooser = Chooser::new(records.total(), distribution);
        Self { config, records, chooser, moves: None, later: None }
    }

    /// The same; after `every` transactions of all clients other records are hot. [AlNiCo22,
    /// YCSB-HOT]
    ///
    /// # Panics
    /// If that is 0.
    pub fn moving(self, every: u64) -> Self {
        assert!(every > 0, "a hotspot stays for a while");
        Self { moves: Some((every, Arc::default())), ..self }
    }

    /// The same; after so many transactions of all clients each has `keys` keys.
    ///
    /// # Panics
    /// If these are more than a transaction may have, or than there are records of a table.
    pub fn then(self, after: u64, keys: usize) -> Self {
        assert!((1..=KEYS_MAX).contains(&keys), "1 to {KEYS_MAX} keys");
        assert!(self.records.per_table() >= keys as u64, "a transaction's keys are distinct");
        Self { later: Some((after, keys, Arc::default())), ..self }
    }

    /// The keys of the next transaction.
    fn keys(&self) -> usize {
        match &self.later {
            Some((after, keys, drawn)) if drawn.fetch_add(1, Ordering::Relaxed) >= *after => *keys,
            _ => self.config.keys_per_txn,
        }
    }

    /// The same with its records in so many tables of the same size, each with a skew of its own; a
    /// transaction has its keys in one of them, drawn uniformly. [AlNiCo22: "YCSB: table ID"]
    /// (AMB-39)
    ///
    /// # Panics
    /// If that is none or does not divide the records, or a table has fewer than a transaction has
    /// keys.
    pub fn in_tables(self, tables: u8) -> Self {
        let records = self.records.split_in(tables);
        let rows = records.per_table();
        assert!(rows >= self.config.keys_per_txn as u64, "a transaction's keys are distinct");
        Self { records, chooser: Chooser::new(rows, self.config.distribution), ..self }
    }

    /// The number of rows by which the hot records are shifted for the next transaction.
    fn shift(&self) -> u64 {
        let Some((every, drawn)) = &self.moves else { return 0 };
        // By about the golden ratio, so that hot records do not meet former ones soon.
        let step = self.records.per_table() * 618 / 1_000 + 1;
        drawn.fetch_add(1, Ordering::Relaxed) / every * step
    }
}

impl RecordSource for YcsbT {
    fn load(&self, shards: &dyn ShardMap, shard: ShardId, each: &mut dyn FnMut(Key, &[u8])) {
        self.records.load(shards, shard, each);
    }

    fn records_per_shard(&self) -> u64 {
        self.records.per_shard()
    }

    fn value_lengths(&self) -> Vec<(u32, u64)> {
        self.records.value_lengths()
    }

    /// The same for each of several tables. (AMB-39)
    fn feature_shares(&self) -> Vec<(TableId, u32)> {
        let shares: Vec<_> = self.records.tables().map(|table| (table, 1)).collect();
        if shares.len() > 1 { shares } else { Vec::new() }
    }
}

impl Workload for YcsbT {
    fn name(&self) -> &'static str {
        "ycsb-t"
    }

    fn procedures(&self) -> Procedures {
        Procedures::new(&[counter::increment, counter::increment_or_overwrite])
            .some_only_read(Txn::declares_no_write)
    }

    fn next(&self, _home: NodeId, random: &mut Stream, txn: &mut Txn) -> usize {
        let blind = self.config.blind_fraction;
        if blind.0 > 0 {
            let args = counter::overwriting(random.below(1 << 32) as u32, self.config.value_bytes);
            txn.reset(ProcedureId(1), &args);
        } else {
            txn.reset(ProcedureId(0), &[]);
        }
        txn.ship = self.config.ship;
        let mut kind = READ_ONLY;
        let (shift, rows) = (self.shift(), self.records.per_table());
        let tables = self.records.tables().count() as u64;
        let table = if tables > 1 { random.below(tables) as u8 } else { 0 };
        let key_of = |row: u64| self.records.key(table, (row + shift) % rows);
        for _ in 0..self.keys() {
            let row = self.chooser.draw_untaken(random, |row| txn.find(key_of(row)).is_some());
            let key = key_of(row);
            if random.bernoulli(self.config.read_fraction.0) {
                txn.read(key);
            } else {
                let is_blind = blind.0 > 0 && random.bernoulli(blind.0);
                if is_blind {
                    txn.overwrite(key)
                } else {
                    txn.write(key)
                };
                kind = READ_WRITE;
            }
        }
        kind
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["read_only", "read_modify_write"]
    }

    fn audit(&self, state: &mut dyn Records, totals: &[i128]) -> Vec<String> {
        if self.config.blind_fraction.0 > 0 {
            // What was counted has been overwritten.
            return self.records.audit_values(state, None);
        }
        self.records.audit(state, totals)
    }
}

#[cfg(test)]
mod tests {
    use nicol_core::rng::Purpose;

    use super::*;

    #[test]
    fn transactions_have_another_number_of_keys_after_so_many_of_them() {
        let config = YcsbTConfig {
            nodes: 1,
            records_per_node: 20,
            keys_per_txn: 3,
            value_bytes: 8,
            read_fraction: PartsPerMillion::percent(50),
            blind_fraction: PartsPerMillion(0),
            distribution: Distribution::Uniform,
            ship: true,
        };
        let workload = YcsbT::new(config).then(4, 9);
        let (mut random, mut txn) = (Stream::new(3, Purpose::Test, 0), Txn::default());
        let mut keys = || {
            workload.next(NodeId(0), &mut random, &mut txn);
            txn.entries().len()
        };
        let counted: Vec<usize> = (0..6).map(|_| keys()).collect();
        assert_eq!(counted, [3, 3, 3, 3, 9, 9]);
    }
}
