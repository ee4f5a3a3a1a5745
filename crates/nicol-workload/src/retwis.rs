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

use nicol_core::ids::{Key, NodeId, ShardId, TableId};
use nicol_core::records::{RecordSource, Records};
use nicol_core::rng::Stream;
use nicol_core::txn::{ProcedureId, Procedures, Txn};
use nicol_core::view::ShardMap;
use nicol_core::workload::Workload;

use crate::chooser::{Chooser, Distribution};
use crate::counter::{self, CountedTable};
use crate::mix::TransactionMix;

/// The only table.
pub const RECORDS: TableId = TableId(1);

/// The values of a Retwis run. The paper: 1,000,000 records per node of 64 bytes, zipfian 0.5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetwisConfig {
    pub nodes: u16,
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

/// The transaction mix, by the types' numbers in [`Workload::kinds`], and how many keys each
/// writes.
const MIX: TransactionMix<(usize, usize), 4> =
    TransactionMix::new([(5, (0, 3)), (15, (1, 2)), (30, (2, 5)), (50, (3, 0))]);
/// Keys of a timeline at most.
const TIMELINE_KEYS_MAX: u64 = 10;

impl Retwis {
    /// The workload of `config`.
    ///
    /// # Panics
    /// If there are fewer records than keys of a transaction, or a size is out of its range.
    pub fn new(config: RetwisConfig) -> Self {
        let RetwisConfig { nodes, records_per_node, value_bytes, distribution, .. } = config;
        let records = CountedTable::new(RECORDS, nodes, records_per_node, value_bytes);
        assert!(records.total() >= TIMELINE_KEYS_MAX, "a transaction's keys are distinct");
        Self { config, records, chooser: Chooser::new(records.total(), distribution) }
    }

    fn draw(&self, random: &mut Stream, txn: &Txn) -> Key {
        let taken = |row| txn.find(Key::new(RECORDS, row)).is_some();
        Key::new(RECORDS, self.chooser.draw_untaken(random, taken))
    }
}

impl RecordSource for Retwis {
    fn load(&self, shards: &dyn ShardMap, shard: ShardId, each: &mut dyn FnMut(Key, &[u8])) {
        self.records.load(shards, shard, each);
    }

    fn records_per_shard(&self) -> u64 {
        self.records.per_shard()
    }

    fn value_lengths(&self) -> Vec<(u32, u64)> {
        self.records.value_lengths()
    }
}

impl Workload for Retwis {
    fn name(&self) -> &'static str {
        "retwis"
    }

    fn procedures(&self) -> Procedures {
        Procedures::new(&[counter::increment]).some_only_read(Txn::declares_no_write)
    }

    fn next(&self, _home: NodeId, random: &mut Stream, txn: &mut Txn) -> usize {
        txn.reset(ProcedureId(0), &[]);
        txn.ship = self.config.ship;
        let (kind, written) = MIX.draw(random);
        for _ in 0..written {
            txn.write(self.draw(random, txn));
        }
        if written == 0 {
            for _ in 0..=random.below(TIMELINE_KEYS_MAX) {
                txn.read(self.draw(random, txn));
            }
        }
        kind
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["add_user", "follow", "post", "timeline"]
    }

    fn audit(&self, state: &mut dyn Records, totals: &[i128]) -> Vec<String> {
        self.records.audit(state, totals)
    }
}
