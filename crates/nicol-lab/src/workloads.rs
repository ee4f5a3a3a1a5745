//! Workloads by name and scale.

use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use nicol_core::view::NODES_MAX;
use nicol_core::workload::Workload;
use nicol_workload::chooser::{Distribution, PartsPerMillion};
use nicol_workload::churn::{Churn, ChurnConfig};
use nicol_workload::retwis::{Retwis, RetwisConfig};
use nicol_workload::smallbank::{Smallbank, SmallbankConfig};
use nicol_workload::tpcc::key::{CUSTOMERS_MAX, ITEMS_MAX};
use nicol_workload::tpcc::{Chopping, Indices, Suppliers, Tpcc, TpccConfig};
use nicol_workload::ycsb_t::{YcsbT, YcsbTConfig};
use nicol_workload::zipf::Theta;

/// The names that [`build`] knows, with what each is.
pub const WORKLOADS: [(&str, &str); 7] = [
    ("smallbank", "bank accounts: six transaction types, 90 % of them on 4 % of the customers"),
    ("ycsb-t", "read-modify-write transactions over one table"),
    ("churn", "inserts, deletes and reads of absent keys in a small table"),
    ("churn-ordered", "the same in ordered tables, also by scans"),
    ("retwis", "a social network: half of the transactions only read"),
    ("tpcc", "TPC-C: a wholesale supplier, the full mix of five transactions"),
    ("tpcc-no", "TPC-C: new orders only, each item from any warehouse of the cluster"),
];

/// Which workload, at what scale; `None` takes the workload's default.
#[derive(Clone, Debug, Default)]
pub struct WorkloadSpec {
    /// Its name.
    pub name: String,
    /// Transactions of the whole run, if it is a number: a workload that inserts needs room.
    pub transactions: Option<u64>,
    /// Records per node.
    pub records: Option<u64>,
    /// Warehouses per node.
    pub warehouses: Option<u16>,
    /// Items of each warehouse.
    pub items: Option<u32>,
    /// Customers of each district of a warehouse.
    pub customers: Option<u16>,
    /// Where the items of new orders come from.
    pub suppliers: Option<Suppliers>,
    /// Are long transactions chopped?
    pub chopping: Option<Chopping>,
    /// How orders are found that no key names.
    pub indices: Option<Indices>,
    /// Keys that are only read, in percent.
    pub read_percent: Option<u8>,
    /// Keys per transaction.
    pub keys: Option<u16>,
    /// Bytes of a value.
    pub value_bytes: Option<u32>,
    /// Zipf parameter times 100; 0 is uniform.
    pub zipf_percent: Option<u8>,
}

/// A workload and the bytes of its largest value.
#[derive(Clone)]
pub struct BuiltWorkload {
    /// The workload.
    pub workload: Arc<dyn Workload>,
    /// Bytes that a table slot should hold inline.
    pub value_bytes: usize,
}

/// Builds a workload for `nodes` nodes. Errors name the flag and the remedy.
pub fn build(spec: &WorkloadSpec, nodes: usize) -> Result<BuiltWorkload> {
    ensure!((1..=NODES_MAX).contains(&nodes), "--nodes {nodes}: give 1 to {NODES_MAX}");
    let nodes = nodes as u16;
    spec.refuse_foreign_flags()?;
    Ok(match spec.name.as_str() {
        "smallbank" => {
            let accounts = spec.records.unwrap_or(100_000);
            ensure!(
                (10..=1 << 30).contains(&accounts),
                "--records {accounts}: smallbank takes 10 to 2^30 accounts per node"
            );
            let workload = Arc::new(Smallbank::new(SmallbankConfig::paper(nodes, accounts)));
            BuiltWorkload { workload, value_bytes: 8 }
        }
        "ycsb-t" => ycsb_t(spec, nodes)?,
        "churn" | "churn-ordered" => {
            let ordered = spec.name == "churn-ordered";
            let rows = spec.records.unwrap_or(64) * u64::from(nodes);
            ensure!(rows >= 4, "--records: churn needs 4 rows in the cluster at least");
            let rows = rows.next_multiple_of(2);
            if ordered {
                ensure!(
                    (2 * u64::from(nodes)..=ChurnConfig::ORDERED_ROWS_MAX).contains(&rows),
                    "--records: churn-ordered takes 2 rows per node at least and {} in all at most",
                    ChurnConfig::ORDERED_ROWS_MAX
                );
            }
            let config = ChurnConfig { nodes, rows, ordered, ship: true };
            BuiltWorkload { workload: Arc::new(Churn::new(config)), value_bytes: 16 }
        }
        "retwis" => retwis(spec, nodes)?,
        "tpcc" => tpcc(spec, nodes, TpccConfig::specification)?,
        "tpcc-no" => tpcc(spec, nodes, TpccConfig::new_order_only)?,
        other => {
            let known: Vec<_> = WORKLOADS.iter().map(|(name, _)| *name).collect();
            bail!("unknown workload '{other}': choose one of {}", known.join(", "))
        }
    })
}

/// Keys of a transaction of ycsb-t by default.
const KEYS: u16 = 4;
/// Bytes of a value of ycsb-t by default, and of retwis.
const VALUE_BYTES: u32 = 64;

fn distribution(percent: u8) -> Distribution {
    match percent {
        0 => Distribution::Uniform,
        theta => Distribution::ScrambledZipfian(Theta(u16::from(theta) * 10)),
    }
}

fn ycsb_t(spec: &WorkloadSpec, nodes: u16) -> Result<BuiltWorkload> {
    let (records, keys) = (spec.records.unwrap_or(100_000), spec.keys.unwrap_or(KEYS));
    let value_bytes = spec.value_bytes.unwrap_or(VALUE_BYTES);
    ensure!((1..=1_024).contains(&keys), "--keys {keys}: give 1 to 1024");
    ensure!((8..=1_024).contains(&value_bytes), "--value-bytes {value_bytes}: give 8 to 1024");
    ensure!(
        records * u64::from(nodes) >= u64::from(keys),
        "--records {records}: fewer records than the {keys} keys of a transaction"
    );
    let config = YcsbTConfig {
        nodes,
        records_per_node: records,
        keys_per_txn: usize::from(keys),
        value_bytes: value_bytes as usize,
        read_fraction: PartsPerMillion::percent(spec.read_percent.unwrap_or(50).into()),
        distribution: distribution(spec.zipf_percent.unwrap_or(99)),
        ship: true,
    };
    Ok(BuiltWorkload { workload: Arc::new(YcsbT::new(config)), value_bytes: value_bytes as usize })
}

fn retwis(spec: &WorkloadSpec, nodes: u16) -> Result<BuiltWorkload> {
    let records = spec.records.unwrap_or(100_000);
    ensure!(records >= 10, "--records {records}: a timeline reads up to 10 records");
    let config = RetwisConfig {
        nodes,
        records_per_node: records,
        value_bytes: VALUE_BYTES as usize,
        distribution: distribution(spec.zipf_percent.unwrap_or(50)),
        ship: true,
    };
    Ok(BuiltWorkload { workload: Arc::new(Retwis::new(config)), value_bytes: VALUE_BYTES as usize })
}

/// Bytes that a slot holds inline: all rows but CUSTOMER's and STOCK's, and some of the index by
/// last name.
const TPCC_INLINE: usize = 96;

fn tpcc(
    spec: &WorkloadSpec,
    nodes: u16,
    config: fn(u16, u16) -> TpccConfig,
) -> Result<BuiltWorkload> {
    let warehouses = spec.warehouses.unwrap_or(1);
    ensure!(
        warehouses > 0 && u32::from(warehouses) * u32::from(nodes) <= u32::from(u16::MAX),
        "--warehouses {warehouses}: give 1 to {} per node",
        u16::MAX / nodes
    );
    let mut config = config(nodes, warehouses);
    config.items = spec.items.unwrap_or(config.items);
    config.customers_per_district = spec.customers.unwrap_or(config.customers_per_district);
    config.suppliers = spec.suppliers.unwrap_or(config.suppliers);
    config.chopping = spec.chopping.unwrap_or(config.chopping);
    config.indices = spec.indices.unwrap_or(config.indices);
    if let Some(transactions) = spec.transactions {
        config = config.for_transactions(transactions);
    }
    let (items, customers) = (config.items, config.customers_per_district);
    ensure!((1..=ITEMS_MAX).contains(&items), "--items {items}: give 1 to {ITEMS_MAX}");
    ensure!(
        (1..=CUSTOMERS_MAX).contains(&customers),
        "--customers {customers}: give 1 to {CUSTOMERS_MAX} per district"
    );
    Ok(BuiltWorkload { workload: Arc::new(Tpcc::new(config)), value_bytes: TPCC_INLINE })
}

/// Records per node in a sweep: few, so that transactions meet.
const FEW_RECORDS: u64 = 40;
/// Items and customers per district in a sweep: a small TPC-C, for the same reason.
const FEW_ITEMS: u32 = 100;
const FEW_CUSTOMERS: u16 = 30;

/// The scales at which Xenic was measured, per node. [Xenic21 5.2 to 5.5]
const PAPER_ACCOUNTS: u64 = 2_400_000;
const PAPER_RECORDS: u64 = 1_000_000;
const PAPER_WAREHOUSES: u16 = 72;

impl WorkloadSpec {
    /// Takes the published scale where none was given. Errors if none was published.
    pub fn enlarge(&mut self) -> Result<()> {
        match self.name.as_str() {
            "smallbank" => _ = self.records.get_or_insert(PAPER_ACCOUNTS),
            "retwis" => _ = self.records.get_or_insert(PAPER_RECORDS),
            "tpcc" | "tpcc-no" => _ = self.warehouses.get_or_insert(PAPER_WAREHOUSES),
            other => bail!("--full-size: no paper measured '{other}'; give its --records"),
        }
        Ok(())
    }

    /// Takes a small scale where none was given: transactions meet, and runs are short.
    pub fn shrink(&mut self) {
        if self.is_tpcc() {
            self.items.get_or_insert(FEW_ITEMS);
            self.customers.get_or_insert(FEW_CUSTOMERS);
        } else {
            self.records.get_or_insert(FEW_RECORDS);
        }
    }

    /// About how many bytes of a log the largest write set of one transaction at one shard takes:
    /// what a scarce log is scarce for.
    pub fn write_set_bytes(&self) -> u64 {
        const ENTRY: u64 = 28;
        match self.name.as_str() {
            // Two accounts and what the record is framed in; a row and its neighbour.
            "smallbank" | "churn" | "churn-ordered" => 96,
            "ycsb-t" => {
                u64::from(self.keys.unwrap_or(KEYS))
                    * (ENTRY + u64::from(self.value_bytes.unwrap_or(VALUE_BYTES)))
            }
            "retwis" => 5 * (ENTRY + u64::from(VALUE_BYTES)),
            // An order of fifteen lines, its stock rows included.
            _ => 15 * (2 * ENTRY + 310 + 54),
        }
    }

    /// Is it one of TPC-C's?
    pub(crate) fn is_tpcc(&self) -> bool {
        self.name.starts_with("tpcc")
    }

    /// A flag that the workload does not have is an error, not ignored.
    fn refuse_foreign_flags(&self) -> Result<()> {
        let (ycsb, tpcc) = (self.name == "ycsb-t", self.is_tpcc());
        let flags = [
            ("--records", self.records.is_some(), !tpcc),
            ("--warehouses", self.warehouses.is_some(), tpcc),
            ("--items", self.items.is_some(), tpcc),
            ("--customers", self.customers.is_some(), tpcc),
            ("--suppliers", self.suppliers.is_some(), tpcc),
            ("--chopping", self.chopping.is_some(), tpcc),
            ("--indices", self.indices.is_some(), tpcc),
            ("--read-percent", self.read_percent.is_some(), ycsb),
            ("--keys", self.keys.is_some(), ycsb),
            ("--value-bytes", self.value_bytes.is_some(), ycsb),
            ("--zipf", self.zipf_percent.is_some(), ycsb || self.name == "retwis"),
        ];
        for (flag, given, known) in flags {
            ensure!(!given || known, "{flag} is not a setting of '{}': leave it out", self.name);
        }
        Ok(())
    }
}
