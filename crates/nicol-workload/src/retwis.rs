//! Retwis: a Twitter-like application in four transaction types. [Xenic21 5.4]
//!
//! | type | share | keys read | keys written |
//! |---|---|---|---|
//! | add-user | 5 % | 1 | 3 |
//! | follow | 15 % | 2 | 2 |
//! | post | 30 % | 3 | 5 |
//! | timeline | 50 % | 1 to 10 | 0 |
//!
//! As in the published implementation of TAPIR, the keys read by a writing type are among those it
//! writes. Here every write-set record is read when it is locked, and each write increments the
//! record's counter: the audit is that of YCSB-T.

use nicol_core::chance::Stream;
use nicol_core::commit::Procedures;
use nicol_core::ids::{Key, NodeId, ShardId, TableId};
use nicol_core::txn::{ProcedureId, Txn};
use nicol_core::workload::{ShardMap, Workload};

use crate::chooser::{Chooser, Distribution};
use crate::counter::{self, CountedTable};
use crate::placement::records_at_most;

/// The only table.
pub const RECORDS: TableId = TableId(1);

/// The values of a Retwis run. The paper: 1,000,000 records per node of 64 bytes, zipfian 0.5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetwisConfig {
    /// Nodes of the cluster.
    pub nodes: u16,
    /// Records per node.
    pub records_per_node: u64,
    /// Bytes of a value, 8 to 1,024.
    pub value_bytes: usize,
    /// How keys are drawn, over the whole cluster.
    pub distribution: Distribution,
    /// May the execution logic run on NIC cores? [Xenic21 4.3.3]
    pub ship: bool,
}

/// The Retwis workload.
#[derive(Clone, Debug)]
pub struct Retwis {
    config: RetwisConfig,
    records: CountedTable,
    chooser: Chooser,
}

/// Share in percent and number of keys written, of the types that write, in the order of
/// [`Workload::kinds`]; the rest are timelines.
const WRITERS: [(u64, usize); 3] = [(5, 3), (15, 2), (30, 5)];
/// Keys of a timeline at most.
const TIMELINE_KEYS_MAX: u64 = 10;

impl Retwis {
    /// The workload of `config`.
    ///
    /// # Panics
    /// If there are fewer records than keys of a transaction, or a size is out of its range.
    pub fn new(config: RetwisConfig) -> Self {
        let total = config.records_per_node * u64::from(config.nodes);
        let sizes = counter::VALUE_BYTES_MIN..=counter::VALUE_BYTES_MAX;
        assert!(sizes.contains(&config.value_bytes), "values are {sizes:?} bytes");
        assert!(total >= TIMELINE_KEYS_MAX, "a transaction's keys are distinct");
        let records =
            CountedTable { table: RECORDS, records: total, value_bytes: config.value_bytes };
        Self { config, records, chooser: Chooser::new(total, config.distribution) }
    }

    fn draw(&self, random: &mut Stream, txn: &Txn) -> Key {
        let taken = |row| txn.find(Key::new(RECORDS, row)).is_some();
        Key::new(RECORDS, self.chooser.draw_untaken(random, taken))
    }
}

impl Workload for Retwis {
    fn name(&self) -> &'static str {
        "retwis"
    }

    fn procedures(&self) -> Procedures {
        Procedures::new(&[counter::increment])
    }

    fn load(&self, shards: &dyn ShardMap, shard: ShardId, each: &mut dyn FnMut(Key, &[u8])) {
        self.records.load(shards, shard, each);
    }

    fn records_per_shard(&self) -> u64 {
        records_at_most(self.records.records, self.config.nodes)
    }

    fn value_lengths(&self) -> Vec<(u32, u64)> {
        vec![(self.records.value_bytes as u32, self.records_per_shard())]
    }

    fn next(&self, _home: NodeId, random: &mut Stream, txn: &mut Txn) -> usize {
        txn.reset(ProcedureId(0), &[]);
        txn.ship = self.config.ship;
        let mut ticket = random.below(100);
        for (kind, (share, keys)) in WRITERS.iter().enumerate() {
            if ticket < *share {
                for _ in 0..*keys {
                    txn.write(self.draw(random, txn));
                }
                return kind;
            }
            ticket -= share;
        }
        for _ in 0..=random.below(TIMELINE_KEYS_MAX) {
            txn.read(self.draw(random, txn));
        }
        WRITERS.len()
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["add_user", "follow", "post", "timeline"]
    }

    fn audit(
        &self,
        _shards: &dyn ShardMap,
        read: &mut dyn FnMut(Key) -> Option<Vec<u8>>,
        totals: &[i128],
    ) -> Vec<String> {
        self.records.audit(read, totals)
    }
}
