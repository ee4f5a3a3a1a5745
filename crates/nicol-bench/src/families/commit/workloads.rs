//! The workloads of the commit family: what its clients run, at a scale.

use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use nicol_core::txn::KEYS_MAX;
use nicol_core::view::NODES_MAX;
use nicol_core::workload::Workload;
use nicol_workload::chooser::{Distribution, PartsPerMillion};
use nicol_workload::churn::{Churn, ChurnConfig};
use nicol_workload::retwis::{Retwis, RetwisConfig};
use nicol_workload::smallbank::{Smallbank, SmallbankConfig};
use nicol_workload::tatp::{self, Tatp, TatpConfig};
use nicol_workload::tpcc::key::{CUSTOMERS_MAX, ITEMS_MAX};
use nicol_workload::tpcc::{Indices, Stock, Terminals, Tpcc, TpccConfig};
use nicol_workload::ycsb::{KeyForm, Transactions, TransactionsConfig};
use nicol_workload::ycsb_t::{YcsbT, YcsbTConfig};
use nicol_workload::zipf::Theta;

use crate::refused::refuse;
use crate::workloads::{VALUE_BYTES, WorkloadSpec};

/// The workloads that the family runs.
pub(super) const NAMES: [&str; 9] =
    ["smallbank", "ycsb-t", "ycsb", "churn", "churn-ordered", "retwis", "tatp", "tpcc", "tpcc-no"];

/// Checks that a system can run this workload, if it has ordered tables (`scans`) or none. Errors:
/// why not.
pub(super) fn accepts(spec: &WorkloadSpec, scans: bool) -> Result<(), String> {
    let name = spec.name.as_str();
    if !NAMES.contains(&name) {
        return Err(format!("its clients run transactions: choose one of {}", NAMES.join(", ")));
    }
    let no_tables = "it has no ordered tables to scan";
    match name {
        _ if scans => Ok(()),
        "churn-ordered" => Err(no_tables.to_owned()),
        "ycsb" if spec.mix.unwrap_or_default().scans() => {
            Err(refuse("mix", "E", no_tables, "choose another").to_string())
        }
        "tpcc" | "tpcc-no" if spec.indices == Some(Indices::Trees) => {
            Err(refuse("indices", "trees", no_tables, "leave it out").to_string())
        }
        _ => Ok(()),
    }
}

/// Whether it has transactions that scan the trees of their client's own node.
pub(super) fn is_local(spec: &WorkloadSpec) -> bool {
    match spec.name.as_str() {
        "churn-ordered" => true,
        "ycsb" => spec.mix.unwrap_or_default().scans(),
        _ => spec.is_tpcc() && spec.indices == Some(Indices::Trees),
    }
}

/// The same of a workload whose settings are not all known yet: trees are what TPC-C takes where it
/// can.
pub(super) fn may_be_local(spec: &WorkloadSpec) -> bool {
    is_local(spec) || spec.is_tpcc() && spec.indices.is_none()
}

/// A workload and the bytes of its largest value.
#[derive(Clone)]
pub struct BuiltWorkload {
    pub workload: Arc<dyn Workload>,
    /// Bytes that a table slot should hold inline.
    pub value_bytes: usize,
}

/// Builds a workload for `nodes` nodes. Errors name the field and the remedy.
pub fn build(spec: &WorkloadSpec, nodes: usize) -> Result<BuiltWorkload> {
    ensure!(
        (1..=NODES_MAX).contains(&nodes),
        refuse("nodes", nodes, "", format!("give 1 to {NODES_MAX}"))
    );
    let nodes = nodes as u16;
    spec.refuse_foreign()?;
    Ok(match spec.name.as_str() {
        "smallbank" => {
            let accounts = spec.records.unwrap_or(100_000);
            ensure!(
                (10..=1 << 30).contains(&accounts),
                refuse("records", accounts, "", "smallbank takes 10 to 2^30 accounts per node")
            );
            let workload = Arc::new(Smallbank::new(SmallbankConfig::paper(nodes, accounts)));
            BuiltWorkload { workload, value_bytes: 8 }
        }
        "ycsb-t" => ycsb_t(spec, nodes)?,
        "ycsb" => ycsb(spec, nodes)?,
        "churn" | "churn-ordered" => {
            let ordered = spec.name == "churn-ordered";
            let rows = records_of(spec, 64)? * u64::from(nodes);
            ensure!(
                rows >= 4,
                refuse("records", "", "", "churn needs 4 rows in the cluster at least")
            );
            let rows = rows.next_multiple_of(2);
            if ordered {
                ensure!(
                    (2 * u64::from(nodes)..=ChurnConfig::ORDERED_ROWS_MAX).contains(&rows),
                    refuse(
                        "records",
                        "",
                        "",
                        format!(
                            "churn-ordered takes 2 rows per node at least and {} in all at most",
                            ChurnConfig::ORDERED_ROWS_MAX
                        )
                    )
                );
            }
            let scan_first = spec.scan_first == Some(true);
            let both_tables = spec.both_tables == Some(true);
            let plain = ChurnConfig::new(nodes, rows);
            let config = ChurnConfig { ordered, scan_first, both_tables, ..plain };
            BuiltWorkload { workload: Arc::new(Churn::new(config)), value_bytes: 16 }
        }
        "retwis" => retwis(spec, nodes)?,
        "tatp" => tatp(spec, nodes)?,
        "tpcc" => tpcc(spec, nodes, TpccConfig::specification)?,
        "tpcc-no" => tpcc(spec, nodes, TpccConfig::new_order_only)?,
        other => {
            bail!("unknown workload '{other}': choose one of {}", NAMES.join(", "))
        }
    })
}

/// Tables of ycsb-t at most: each has some of 512 features.
const TABLES_MAX: u8 = 64;
/// Keys of a transaction of ycsb-t by default.
const KEYS: u16 = 4;

/// The distribution of keys, with a skew of `usual` hundredths unless the user gives one.
fn distribution(spec: &WorkloadSpec, usual: u8) -> Result<Distribution> {
    let percent = spec.zipf_percent.unwrap_or(usual);
    let theta = Theta(u16::from(percent) * 10);
    Ok(match (percent, spec.ranks()?) {
        (0, None) => Distribution::Uniform,
        (0, Some(ranks)) => {
            let remedy = "leave it out, or give `zipf` 99";
            bail!(refuse("zipf_over", ranks, "uniform keys have no ranks", remedy))
        }
        (_, None) => Distribution::ScatteredZipfian(theta),
        (_, Some(ranks)) => Distribution::ScrambledZipfian { theta, ranks },
    })
}

/// Records of a node at most: what all nodes have together is counted, too.
const RECORDS_MAX: u64 = 1 << 40;

/// Records of a node; `usual` of them unless the user says how many.
fn records_of(spec: &WorkloadSpec, usual: u64) -> Result<u64> {
    let records = spec.records.unwrap_or(usual);
    ensure!(records <= RECORDS_MAX, refuse("records", records, "", "give 2^40 per node at most"));
    Ok(records)
}

fn ycsb_t(spec: &WorkloadSpec, nodes: u16) -> Result<BuiltWorkload> {
    let (records, keys) = (records_of(spec, 100_000)?, spec.keys.unwrap_or(KEYS));
    let value_bytes = spec.value_bytes.unwrap_or(VALUE_BYTES);
    ensure!((1..=1_024).contains(&keys), refuse("keys", keys, "", "give 1 to 1024"));
    ensure!(
        (8..=1_024).contains(&value_bytes),
        refuse("value_bytes", value_bytes, "", "give 8 to 1024")
    );
    ensure!(
        records * u64::from(nodes) >= u64::from(keys),
        refuse(
            "records",
            records,
            format!("fewer records than the {keys} keys of a transaction"),
            "give more"
        )
    );
    let config = YcsbTConfig {
        nodes,
        records_per_node: records,
        keys_per_txn: usize::from(keys),
        value_bytes: value_bytes as usize,
        read_fraction: PartsPerMillion::percent(spec.read_percent.unwrap_or(50).into()),
        blind_fraction: PartsPerMillion::percent(spec.blind_percent.unwrap_or(0).into()),
        distribution: distribution(spec, 99)?,
        ship: true,
    };
    let workload = Arc::new(varied(spec, YcsbT::new(config), records * u64::from(nodes))?);
    Ok(BuiltWorkload { workload, value_bytes: value_bytes as usize })
}

/// YCSB-T on `all` records, with what else may vary in it: its tables, what is hot, how many keys.
fn varied(spec: &WorkloadSpec, mut workload: YcsbT, all: u64) -> Result<YcsbT> {
    let keys = spec.keys.unwrap_or(KEYS);
    if let Some(tables) = spec.tables {
        ensure!(
            (1..=TABLES_MAX).contains(&tables) && all.is_multiple_of(tables.into()),
            refuse(
                "tables",
                tables,
                "",
                format!("give 1 to {TABLES_MAX} that divide the {all} records")
            )
        );
        ensure!(
            all / u64::from(tables) >= u64::from(keys),
            refuse(
                "tables",
                tables,
                format!("fewer records in one than the {keys} keys of a transaction"),
                "give fewer"
            )
        );
        workload = workload.in_tables(tables);
    }
    if let Some(every) = spec.hot_moves {
        ensure!(every > 0, refuse("hot_moves", 0, "", "give a number of transactions"));
        ensure!(
            spec.zipf_percent != Some(0),
            refuse(
                "hot_moves",
                "",
                "of uniform keys none are hot",
                "leave it out, or give `zipf` 99"
            )
        );
        workload = workload.moving(every);
    }
    if let (after, Some(later)) = (spec.later_after.unwrap_or(0), spec.later_keys) {
        let rows = all / u64::from(spec.tables.unwrap_or(1));
        let most = (KEYS_MAX as u64).min(rows);
        ensure!(
            (1..=most).contains(&u64::from(later)),
            refuse("later_keys", later, "", format!("give 1 to {most} keys"))
        );
        workload = workload.then(after, usize::from(later));
    }
    ensure!(
        spec.later_after.is_none() || spec.later_keys.is_some(),
        refuse("later_after", "", "", "give `later_keys` as well")
    );
    Ok(workload)
}

fn ycsb(spec: &WorkloadSpec, nodes: u16) -> Result<BuiltWorkload> {
    ensure!(
        spec.content.is_none(),
        refuse(
            "content",
            "",
            "a transaction's values count their writes",
            "leave it out, or run a system of single operations"
        )
    );
    let ycsb = spec.ycsb(nodes, 1_024)?;
    ensure!(
        ycsb.keys == KeyForm::Number,
        refuse(
            "key_form",
            "bytes",
            "records of transactions have 8-byte keys",
            "leave it out, or choose a system of single operations"
        )
    );
    let (insert_capacity, value_bytes) = (spec.insertions(&ycsb), ycsb.value_bytes);
    let config = TransactionsConfig { ycsb, nodes, insert_capacity, ship: true };
    Ok(BuiltWorkload { workload: Arc::new(Transactions::new(config)), value_bytes })
}

fn retwis(spec: &WorkloadSpec, nodes: u16) -> Result<BuiltWorkload> {
    let records = records_of(spec, 100_000)?;
    ensure!(
        records >= 10,
        refuse("records", records, "", "a timeline reads up to 10 records: give 10 at least")
    );
    let config = RetwisConfig {
        nodes,
        records_per_node: records,
        value_bytes: VALUE_BYTES as usize,
        distribution: distribution(spec, 50)?,
        ship: true,
    };
    Ok(BuiltWorkload { workload: Arc::new(Retwis::new(config)), value_bytes: VALUE_BYTES as usize })
}

fn tatp(spec: &WorkloadSpec, nodes: u16) -> Result<BuiltWorkload> {
    let subscribers = spec.records.unwrap_or(100_000);
    ensure!(
        (1..1 << 28).contains(&subscribers) && subscribers * u64::from(nodes) < 1 << 32,
        refuse(
            "records",
            subscribers,
            "",
            "tatp takes 1 to 2^28 subscribers per node, and 2^32 in all"
        )
    );
    let config = TatpConfig { nodes, subscribers_per_node: subscribers, ship: true };
    let value_bytes = tatp::VALUE_BYTES_MAX;
    Ok(BuiltWorkload { workload: Arc::new(Tatp::new(config)), value_bytes })
}

/// Bytes that a slot holds inline: all rows but CUSTOMER's, STOCK's texts, and some of the index by
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
        refuse("warehouses", warehouses, "", format!("give 1 to {} per node", u16::MAX / nodes))
    );
    let mut config = config(nodes, warehouses);
    config.items = spec.items.unwrap_or(config.items);
    config.customers_per_district = spec.customers.unwrap_or(config.customers_per_district);
    config.features = spec.features.unwrap_or(config.features);
    config.suppliers = spec.suppliers.unwrap_or(config.suppliers);
    config.mix = spec.tpcc_mix.unwrap_or(config.mix);
    config.terminals = spec.terminals.unwrap_or(config.terminals);
    ensure!(
        config.terminals == Terminals::Shared || spec.zipf_percent.unwrap_or_default() == 0,
        refuse(
            "zipf",
            "",
            "no warehouse is preferred where each client has its own",
            "leave `terminals` out"
        )
    );
    config.chopping = spec.chopping.unwrap_or(config.chopping);
    config.delivery = spec.delivery.unwrap_or(config.delivery);
    config.shipped = spec.shipped.unwrap_or(config.shipped);
    config.stock = spec.stock.unwrap_or(config.stock);
    config.indices = spec.indices.unwrap_or(config.indices);
    if let Some(transactions) = spec.transactions {
        config = config.for_transactions(transactions);
    }
    let (items, customers) = (config.items, config.customers_per_district);
    ensure!(
        (1..=ITEMS_MAX).contains(&items),
        refuse("items", items, "", format!("give 1 to {ITEMS_MAX}"))
    );
    ensure!(
        (1..=CUSTOMERS_MAX).contains(&customers),
        refuse("customers", customers, "", format!("give 1 to {CUSTOMERS_MAX} per district"))
    );
    let mut workload = Tpcc::new(config);
    if let Some(percent @ 1..) = spec.zipf_percent {
        workload = workload.preferring(Theta(u16::from(percent) * 10));
    }
    Ok(BuiltWorkload { workload: Arc::new(workload), value_bytes: TPCC_INLINE })
}

/// About how many bytes of a log the largest write set of one transaction at one shard takes:
/// what a scarce log is scarce for.
pub(super) fn write_set_bytes(spec: &WorkloadSpec) -> u64 {
    const ENTRY: u64 = 28;
    match spec.name.as_str() {
        // Two accounts and what the record is framed in; a row and its neighbour.
        "smallbank" | "churn" | "churn-ordered" => 96,
        "ycsb-t" => {
            u64::from(spec.keys.unwrap_or(KEYS))
                * (ENTRY + u64::from(spec.value_bytes.unwrap_or(VALUE_BYTES)))
        }
        "retwis" => 5 * (ENTRY + u64::from(VALUE_BYTES)),
        "tatp" => 2 * (ENTRY + tatp::VALUE_BYTES_MAX as u64),
        "ycsb" => ENTRY + u64::from(spec.value_bytes.unwrap_or(VALUE_BYTES)),
        // An order of fifteen lines, its stock rows included; the district's and the order's rows.
        _ => {
            let stock = if spec.stock == Some(Stock::Whole) { 308 } else { 18 };
            15 * (2 * ENTRY + stock + 46) + 512
        }
    }
}
