//! Workloads by name and scale.

use anyhow::{Result, bail, ensure};
use nicol_workload::chooser::PartsPerMillion;
use nicol_workload::key_value::Content;
use nicol_workload::tpcc::{
    self, Chopping, DeliveryMode, Features, Indices, Shipped, Stock, Suppliers, Terminals,
};
use nicol_workload::ycsb::{KeyForm, Mix, Popularity, YcsbConfig};
use nicol_workload::zipf::Theta;

use crate::refused::refuse;

/// The names of all workloads, with what each is. Which system runs which:
/// [`crate::systems::matrix`].
pub const WORKLOADS: [(&str, &str); 11] = [
    ("smallbank", "bank accounts: six transaction types, 90 % of them on 4 % of the customers"),
    ("ycsb-t", "read-modify-write transactions over one table"),
    ("ycsb", "YCSB's core workloads: single operations by mix, A to F"),
    ("churn", "inserts, deletes and reads of absent keys in a small table"),
    ("churn-ordered", "the same in ordered tables, also by scans"),
    ("retwis", "a social network: half of the transactions only read"),
    ("tatp", "TATP: a register of mobile subscribers, mostly short reads"),
    ("tpcc", "TPC-C: a wholesale supplier, the full mix of five transactions"),
    ("login-social", "the Login function of a social network: gets, then sets"),
    ("login-media", "the Login function of a media service: more of both"),
    ("tpcc-no", "TPC-C: new orders only, each item from any warehouse of the cluster"),
];

/// A workload and its scale; `None` takes the workload's default.
#[derive(Clone, Debug, Default)]
pub struct WorkloadSpec {
    pub name: String,
    /// Transactions of the whole run, if it is a number: a workload that inserts needs space.
    pub transactions: Option<u64>,
    pub records: Option<u64>,
    pub warehouses: Option<u16>,
    /// Items of each warehouse.
    pub items: Option<u32>,
    /// Customers of each district of a warehouse.
    pub customers: Option<u16>,
    /// The warehouses that supply the items of new orders.
    pub suppliers: Option<Suppliers>,
    /// The keys of TPC-C's requests that a scheduler is told.
    pub features: Option<Features>,
    /// The transactions of TPC-C that run.
    pub tpcc_mix: Option<tpcc::Mix>,
    /// Whether a client of TPC-C is a terminal of one warehouse.
    pub terminals: Option<Terminals>,
    /// Whether long transactions are chopped.
    pub chopping: Option<Chopping>,
    /// The time at which a Delivery is executed.
    pub delivery: Option<DeliveryMode>,
    /// Whether TPC-C's STOCK stands in one table or in two.
    pub stock: Option<Stock>,
    /// The transactions of TPC-C that NIC cores execute.
    pub shipped: Option<Shipped>,
    /// The way in which TPC-C finds orders whose keys it does not know.
    pub indices: Option<Indices>,
    /// Keys that are only read, in percent.
    pub read_percent: Option<u8>,
    /// Keys that are written without being read, in percent of those that are written.
    pub blind_percent: Option<u8>,
    pub keys: Option<u16>,
    /// Keys per transaction later.
    pub later_keys: Option<u16>,
    /// Transactions after which they have so many.
    pub later_after: Option<u64>,
    pub value_bytes: Option<u32>,
    /// The content of YCSB's values, for single operations.
    pub content: Option<Content>,
    /// Zipf parameter times 100; 0 is uniform.
    pub zipf_percent: Option<u8>,
    /// Ranks of YCSB's scrambled generator, which then draws instead: ten billion in YCSB.
    pub zipf_over: Option<u64>,
    /// Transactions after which other records are hot.
    pub hot_moves: Option<u64>,
    /// The number of tables of YCSB-T.
    pub tables: Option<u8>,
    /// Whether inserts of churn-ordered name their record only after their scan.
    pub scan_first: Option<bool>,
    /// Whether churn-ordered has transactions of both of its tables.
    pub both_tables: Option<bool>,
    /// YCSB's mix of operations.
    pub mix: Option<Mix>,
    pub popularity: Option<Popularity>,
    /// The form of YCSB's keys.
    pub key_form: Option<KeyForm>,
}

impl WorkloadSpec {
    /// The workload of this name, at its defaults.
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// YCSB's operations on `nodes` nodes, which any family may run, on values of so many bytes at
    /// most.
    ///
    /// # Errors
    /// Names the field and the remedy.
    pub fn ycsb(&self, nodes: u16, value_bytes_max: u32) -> Result<YcsbConfig> {
        let mix = self.mix.unwrap_or_default();
        let records = self.records.unwrap_or(YCSB_RECORDS);
        ensure!((1..=1 << 32).contains(&records), refuse("records", records, "", "give 1 to 2^32"));
        let value_bytes = self.value_bytes.unwrap_or(VALUE_BYTES);
        ensure!(
            (8..=value_bytes_max).contains(&value_bytes),
            refuse("value_bytes", value_bytes, "", format!("give 8 to {value_bytes_max}"))
        );
        let theta = Theta(u16::from(self.zipf_percent.unwrap_or(99)) * 10);
        let popularity = match self.popularity.unwrap_or(mix.popularity()) {
            Popularity::Uniform => Popularity::Uniform,
            Popularity::Zipfian(_) | Popularity::Scrambled { .. } => match self.ranks()? {
                Some(ranks) => Popularity::Scrambled { theta, ranks },
                None => Popularity::Zipfian(theta),
            },
            Popularity::Latest(_) => Popularity::Latest(theta),
        };
        ensure!(
            popularity != Popularity::Uniform || self.zipf_percent.is_none(),
            refuse(
                "zipf",
                "",
                "uniform keys have no skew",
                "leave it out or give `distribution` zipfian"
            )
        );
        ensure!(
            self.zipf_over.is_none() || matches!(popularity, Popularity::Scrambled { .. }),
            refuse(
                "zipf_over",
                "",
                "only zipfian keys have ranks",
                "leave it out or give `distribution` zipfian"
            )
        );
        let read_percent = self.read_percent.unwrap_or(mix.read_percent());
        Ok(YcsbConfig {
            mix,
            records: records * u64::from(nodes),
            reads: PartsPerMillion::percent(read_percent.into()),
            popularity,
            keys: self.key_form.unwrap_or_default(),
            value_bytes: value_bytes as usize,
        })
    }

    /// Ranks of YCSB's scrambled generator, if it draws.
    ///
    /// # Errors
    /// Names the field and the remedy.
    pub(crate) fn ranks(&self) -> Result<Option<u64>> {
        let ranks = self.zipf_over;
        ensure!(
            ranks.is_none_or(|ranks| (1..=1 << 52).contains(&ranks)),
            refuse(
                "zipf_over",
                ranks.unwrap_or_default(),
                "",
                "give 1 to 2^52 ranks, 10000000000 as in YCSB"
            )
        );
        Ok(ranks)
    }

    /// Records that the operations of `ycsb` insert at most, by the number of operations; without
    /// one, as many as are loaded.
    pub(crate) fn insertions(&self, ycsb: &YcsbConfig) -> u64 {
        let share = PartsPerMillion(PartsPerMillion::ALL.0 - ycsb.reads.0);
        let most = |count| share.of(count) * 5 / 4 + 1_000;
        if ycsb.mix.inserts() { self.transactions.map_or(ycsb.records, most) } else { 0 }
    }

    /// Clients that a node has at most where the user does not say: each district of TPC-C has a
    /// terminal, and more would mostly wait for one another. At least one: no warehouses are
    /// refused by name.
    pub(crate) fn terminals_per_node(&self) -> Option<usize> {
        self.is_tpcc().then(|| usize::from(self.warehouses.unwrap_or(1)).max(1) * TERMINALS)
    }
}

/// Records per node of ycsb by default.
const YCSB_RECORDS: u64 = 100_000;
/// Bytes of a value by default.
pub(crate) const VALUE_BYTES: u32 = 64;
/// Terminals of a TPC-C warehouse. (TPC-C 4.2.2)
const TERMINALS: usize = 10;

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
            other => {
                let why = format!("no paper measured '{other}'");
                bail!(refuse("full_size", "", why, "give its `records`"))
            }
        }
        Ok(())
    }

    /// Draws what a sweep varies, where it was not given.
    pub fn vary(&mut self, seed: u64) {
        if self.name == "churn-ordered" {
            self.both_tables.get_or_insert(!seed.is_multiple_of(2));
        }
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

    /// Whether it is one of TPC-C's.
    pub fn is_tpcc(&self) -> bool {
        self.name.starts_with("tpcc")
    }

    /// A field that the workload does not have is an error, not ignored.
    pub(crate) fn refuse_foreign(&self) -> Result<()> {
        let (ycsb_t, ycsb, tpcc) = (self.name == "ycsb-t", self.name == "ycsb", self.is_tpcc());
        let sized = ycsb_t || ycsb || self.name.starts_with("login-");
        let fields = [
            ("records", self.records.is_some(), !tpcc),
            ("warehouses", self.warehouses.is_some(), tpcc),
            ("items", self.items.is_some(), tpcc),
            ("customers", self.customers.is_some(), tpcc),
            ("features", self.features.is_some(), tpcc),
            ("suppliers", self.suppliers.is_some(), tpcc),
            ("mix", self.tpcc_mix.is_some(), self.name == "tpcc"),
            ("terminals", self.terminals.is_some(), tpcc),
            ("chopping", self.chopping.is_some(), tpcc),
            ("delivery", self.delivery.is_some(), self.name == "tpcc"),
            ("ship", self.shipped.is_some(), tpcc),
            ("stock", self.stock.is_some(), tpcc),
            ("indices", self.indices.is_some(), tpcc),
            ("read_percent", self.read_percent.is_some(), ycsb_t || ycsb),
            ("blind_percent", self.blind_percent.is_some(), ycsb_t),
            ("keys", self.keys.is_some(), ycsb_t),
            ("later_keys", self.later_keys.is_some(), ycsb_t),
            ("later_after", self.later_after.is_some(), ycsb_t),
            ("value_bytes", self.value_bytes.is_some(), sized),
            ("zipf", self.zipf_percent.is_some(), ycsb_t || ycsb || tpcc || self.name == "retwis"),
            ("zipf_over", self.zipf_over.is_some(), ycsb_t || ycsb || self.name == "retwis"),
            ("hot_moves", self.hot_moves.is_some(), ycsb_t),
            ("tables", self.tables.is_some(), ycsb_t),
            ("scan_first", self.scan_first.is_some(), self.name == "churn-ordered"),
            ("both_tables", self.both_tables.is_some(), self.name == "churn-ordered"),
            ("mix", self.mix.is_some(), ycsb),
            ("distribution", self.popularity.is_some(), ycsb),
            ("key_form", self.key_form.is_some(), ycsb),
            ("content", self.content.is_some(), ycsb),
        ];
        let delivers = matches!(self.tpcc_mix, None | Some(tpcc::Mix::Full));
        ensure!(
            self.delivery.is_none() || delivers,
            refuse("delivery", "", "only the full mix has Deliveries", "leave it out")
        );
        let mixes = [
            (ycsb && self.tpcc_mix.is_some(), "that is TPC-C's", "A to F"),
            (
                self.name == "tpcc" && self.mix.is_some(),
                "that is YCSB's",
                "full, new-order-payment, payment",
            ),
        ];
        for (given, why, mixes) in mixes {
            let remedy = format!("leave it out, or give one of {mixes}");
            ensure!(!given, refuse("mix", "", why, remedy));
        }
        let foreign = fields.into_iter().find(|(_, given, known)| *given && !known);
        foreign.map_or(Ok(()), |(field, ..)| {
            let why = format!("'{}' has no such parameter", self.name);
            Err(refuse(field, "", why, "leave it out").into())
        })
    }
}
