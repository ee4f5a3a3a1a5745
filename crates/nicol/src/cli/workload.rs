//! Which workload runs, at what scale.

use clap::{Args, ValueEnum};
use nicol_workload::key_value::Content;

/// Where the items of TPC-C's new orders come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SuppliersArg {
    /// The home warehouse; another one for 1 % of the lines, as specified.
    Home,
    /// Any warehouse of the cluster, uniformly, as in DrTM+H's implementation.
    Uniform,
}

/// What a scheduler is told of TPC-C's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FeaturesArg {
    /// The rows that they are known to write, and those that they read of written tables.
    Written,
    /// What AlNiCo's implementation extracts: of Payment the district alone.
    Artifact,
}

/// How long transactions of TPC-C run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ChoppingArg {
    /// As one database transaction each.
    Whole,
    /// As several database transactions, one after the other.
    Pieces,
}

/// When a Delivery of TPC-C is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DeliveryArg {
    /// In the background: it is queued, and its client goes on at once, as specified.
    Deferred,
    /// While its client waits.
    Interactive,
}

/// How TPC-C's STOCK stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StockArg {
    /// In two tables: what New-Order changes, and the texts.
    Split,
    /// In one: a New-Order writes 308 bytes for each of its items.
    Whole,
}

/// Which of TPC-C's transactions NIC cores execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ShipArg {
    /// None: the host executes all.
    None,
    /// New-Order.
    NewOrder,
    /// Payment.
    Payment,
    /// New-Order and Payment.
    Both,
}

/// How TPC-C finds orders whose keys it does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum IndicesArg {
    /// By index records.
    Records,
    /// By scans of ordered tables, if the system has them.
    Trees,
}

/// Whether a client of TPC-C is a terminal of one warehouse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TerminalsArg {
    /// A node's clients share its warehouses.
    Shared,
    /// Ten clients, one after the other, are the terminals of one warehouse, as specified.
    Own,
}

/// YCSB's core workloads, and the shares of TPC-C's transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MixArg {
    /// 50 % reads, 50 % updates.
    A,
    /// 95 % reads, 5 % updates.
    B,
    /// Reads.
    C,
    /// 95 % reads of the latest records, 5 % inserts.
    D,
    /// 95 % scans of 1 to 100 records, 5 % inserts.
    E,
    /// 50 % reads, 50 % read-modify-writes.
    F,
    /// TPC-C's five transactions.
    Full,
    /// TPC-C's New-Order and Payment, half of each.
    NewOrderPayment,
    /// TPC-C's Payment alone.
    Payment,
}

/// How popular YCSB's records are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DistributionArg {
    /// Uniform.
    Uniform,
    /// Zipfian: a few records take most operations.
    Zipfian,
    /// The newest records take most operations.
    Latest,
}

/// What YCSB's keys look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KeyFormArg {
    /// 8 bytes.
    Number,
    /// Strings of 23 bytes: the store has their hash as the key, and the string beside the value.
    Bytes,
}

/// Which workload, at what scale.
#[derive(Clone, Debug, Args)]
pub struct WorkloadArgs {
    /// The workload: smallbank, ycsb-t, ycsb, churn, churn-ordered, retwis, tatp, tpcc,
    /// tpcc-no, login-social or login-media.
    pub workload: String,
    /// Records (for Smallbank: accounts) per node.
    #[arg(long, value_name = "N")]
    pub records: Option<u64>,
    /// Warehouses per node (tpcc, tpcc-no) [default: 1].
    #[arg(long, value_name = "N")]
    pub warehouses: Option<u16>,
    /// Items (tpcc, tpcc-no) [default: 100000, as specified; 100 in a sweep].
    #[arg(long, value_name = "N")]
    pub items: Option<u32>,
    /// Customers per district (tpcc, tpcc-no) [default: 3000, as specified; 30 in a sweep].
    #[arg(long, value_name = "N")]
    pub customers: Option<u16>,
    /// Where the items of new orders come from [default: home for tpcc, uniform for tpcc-no].
    #[arg(long, value_enum)]
    pub suppliers: Option<SuppliersArg>,
    /// What a scheduler is told of requests (tpcc, tpcc-no) [default: written].
    #[arg(long, value_enum)]
    pub features: Option<FeaturesArg>,
    /// How Delivery and Stock-Level run (tpcc) [default: pieces].
    #[arg(long, value_enum)]
    pub chopping: Option<ChoppingArg>,
    /// When a Delivery is executed (tpcc) [default: deferred].
    #[arg(long, value_enum)]
    pub delivery: Option<DeliveryArg>,
    /// How STOCK stands (tpcc, tpcc-no) [default: split].
    #[arg(long, value_enum)]
    pub stock: Option<StockArg>,
    /// Transactions that NIC cores execute (tpcc, tpcc-no) [default: both for tpcc, none for
    /// tpcc-no].
    #[arg(long, value_enum)]
    pub ship: Option<ShipArg>,
    /// Find orders by index record or by tree scan (tpcc, tpcc-no) [default: trees if the system
    /// has ordered tables, else records].
    #[arg(long, value_enum)]
    pub indices: Option<IndicesArg>,
    /// Which warehouses a client uses (tpcc, tpcc-no) [default: shared].
    #[arg(long, value_enum)]
    pub terminals: Option<TerminalsArg>,
    /// Mix of operations (ycsb) or of transactions (tpcc) [default: A for ycsb, full for tpcc].
    #[arg(long, value_enum, ignore_case = true)]
    pub mix: Option<MixArg>,
    /// How keys are drawn (ycsb) [default: latest for mix D, otherwise zipfian].
    #[arg(long, value_enum)]
    pub distribution: Option<DistributionArg>,
    /// What keys look like (ycsb, by systems of single operations) [default: number].
    #[arg(long, value_enum)]
    pub key_form: Option<KeyFormArg>,
    /// Share of operations that only read, in percent (ycsb-t, ycsb) [default for ycsb: the mix's].
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub read_percent: Option<u8>,
    /// Share of written keys not read before, in percent (ycsb-t, with blind writes) [default: 0].
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub blind_percent: Option<u8>,
    /// Keys per transaction (ycsb-t).
    #[arg(long, value_name = "N")]
    pub keys: Option<u16>,
    /// Keys per transaction after --later-after transactions (ycsb-t) [default: as many].
    #[arg(long, value_name = "N")]
    pub later_keys: Option<u16>,
    /// Transactions before --later-keys holds (ycsb-t) [default: 0].
    #[arg(long, value_name = "N", requires = "later_keys")]
    pub later_after: Option<u64>,
    /// Bytes of a value (ycsb-t, ycsb) [default: 64].
    #[arg(long, value_name = "BYTES")]
    pub value_bytes: Option<u32>,
    /// What is in values: zeros, text, random, repeated, or the percentage of each 4 KiB that is
    /// random (ycsb, by systems of single operations) [default: repeated].
    #[arg(long, value_name = "CONTENT")]
    pub content: Option<Content>,
    /// Zipf parameter times 100: 0 is uniform, 99 YCSB's (ycsb-t, ycsb, retwis; tpcc's warehouses).
    #[arg(long, value_name = "THETA_PERCENT", value_parser = clap::value_parser!(u8).range(0..=150))]
    pub zipf: Option<u8>,
    /// Draw by YCSB's scrambled generator (ycsb-t, ycsb, retwis): ranks over N items, hashed into
    /// the records, flatter than Zipf. YCSB's N is 10000000000 [default: exact Zipf].
    #[arg(long, value_name = "N")]
    pub zipf_over: Option<u64>,
    /// Make other records hot after every N transactions (ycsb-t) [default: the same stay hot].
    #[arg(long, value_name = "N")]
    pub hot_moves: Option<u64>,
    /// Tables of equal size; a transaction uses one of them (ycsb-t) [default: 1].
    #[arg(long, value_name = "N")]
    pub tables: Option<u8>,
    /// Name a record to insert after its pair's scan (churn-ordered) [default: false].
    #[arg(long, value_name = "true|false")]
    pub scan_first: Option<bool>,
    /// Add transactions over both tables (churn-ordered). These delete records or scan after a read
    /// [default: false].
    #[arg(long, value_name = "true|false")]
    pub both_tables: Option<bool>,
}
