//! The values of a TPC-C run.

use std::ops::Range;

use nicol_core::records::TableSize;

use super::features::Features;
use super::key::{self, CUSTOMERS_MAX, DISTRICTS, ITEMS_MAX, LINES_MAX, NAMES};
use super::row::{
    customer, district, history, item, order_number, stock, stock_texts, warehouse, warehouse_ytd,
};
use super::schema::{Indices, Schema, Stock};

/// Bytes of the rows that a slot ought to hold, of an index whose rows are of many lengths.
const SHORT_ROW: usize = 96;

/// Which transactions run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// New-Order 45 %, Payment 43 %, Order-Status, Delivery and Stock-Level 4 % each. (5.2.3)
    Full,
    /// New-Order and Payment, half of each: what contends in the full mix, without its scans.
    NewOrderAndPayment,
    PaymentOnly,
    /// New-Order only. [Xenic21 5.2]
    NewOrderOnly,
}

/// Whether a client is a terminal of one warehouse. (2.4.1.1)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terminals {
    /// A node's clients share its warehouses: each transaction draws one.
    Shared,
    /// Ten clients, one after the other, are the terminals of one warehouse.
    Own,
}

impl Mix {
    /// The kinds that it has, of all in the order of their names.
    pub(super) const fn kinds(self) -> Range<usize> {
        match self {
            Self::Full => 0..5,
            Self::NewOrderAndPayment => 0..2,
            Self::PaymentOnly => 1..2,
            Self::NewOrderOnly => 0..1,
        }
    }
}

/// Where a New-Order's items come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suppliers {
    /// The home warehouse; for 1 % of the lines another one. (2.4.1.5)
    Specification,
    /// Any warehouse of the cluster, uniformly: DrTM+H's pattern. [Xenic21 5.2]
    Uniform,
}

/// Whether long local transactions run as several database transactions. [Xenic21 5.3]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chopping {
    /// One database transaction each.
    Whole,
    /// Delivery: one per district, as 2.7.4 permits. Stock-Level: one that reads the district, one
    /// for the rest, as 2.8.2.3 permits (committed data is enough for it).
    Pieces,
}

/// When a Delivery is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryMode {
    /// In the background: it is queued, and its client goes on at once. (2.7.2)
    Deferred,
    /// While its client waits.
    Interactive,
}

/// Which of New-Order and Payment are annotated to be shipped: their execution logic runs on NIC
/// cores. The others run at the host. [Xenic21 4.3.3]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shipped {
    /// Neither. [Xenic21 5.2] New-Order alone: the coordinator's B+ trees make it heavy, and "the
    /// host executes compute-heavy or predominantly local transactions" (4.3.3).
    Neither,
    NewOrder,
    Payment,
    /// Both. [Xenic21 5.3] "Xenic ships execution of the new order and payment transactions to the
    /// NIC; other transactions execute on the host."
    Both,
}

/// The values of a TPC-C run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TpccConfig {
    pub nodes: u16,
    /// Warehouses per node. The paper: 72.
    pub warehouses_per_node: u16,
    /// Items. The specification: 100,000.
    pub items: u32,
    /// Customers, and initial orders, of a district. The specification: 3,000.
    pub customers_per_district: u16,
    pub mix: Mix,
    /// Which warehouses a client is at.
    pub terminals: Terminals,
    /// Where a New-Order's items come from.
    pub suppliers: Suppliers,
    /// Are long transactions chopped?
    pub chopping: Chopping,
    /// When is a Delivery executed?
    pub delivery: DeliveryMode,
    /// How orders are found.
    pub indices: Indices,
    /// How STOCK stands.
    pub stock: Stock,
    /// The features of a request that a scheduler is told.
    pub features: Features,
    /// Which transactions are annotated to run on NIC cores.
    pub shipped: Shipped,
    /// Records per node that a run may add to the initial ones.
    pub growth_per_node: u64,
}

impl TpccConfig {
    /// The full mix of the specification, run as Xenic does. [Xenic21 5.3]
    pub const fn specification(nodes: u16, warehouses_per_node: u16) -> Self {
        Self {
            nodes,
            warehouses_per_node,
            items: ITEMS_MAX,
            customers_per_district: 3_000,
            mix: Mix::Full,
            terminals: Terminals::Shared,
            suppliers: Suppliers::Specification,
            chopping: Chopping::Pieces,
            delivery: DeliveryMode::Deferred,
            indices: Indices::Records,
            stock: Stock::Split,
            features: Features::Written,
            shipped: Shipped::Both,
            growth_per_node: 1_000_000,
        }
    }

    /// New-Order only, in the pattern of DrTM+H. [Xenic21 5.2]
    pub const fn new_order_only(nodes: u16, warehouses_per_node: u16) -> Self {
        Self {
            mix: Mix::NewOrderOnly,
            suppliers: Suppliers::Uniform,
            shipped: Shipped::Neither,
            ..Self::specification(nodes, warehouses_per_node)
        }
    }

    /// The same, with capacity for a run of so many transactions, evenly distributed over the
    /// nodes. A New-Order adds 12 records on average (its order, NEW-ORDER and ten lines).
    pub const fn for_transactions(mut self, transactions: u64) -> Self {
        let per_node = transactions.div_ceil(self.nodes as u64);
        self.growth_per_node = 13 * per_node + 1_000;
        self
    }

    /// Which rows there are. Without scans New-Order-only runs have the specification's, too.
    pub(super) const fn schema(&self) -> Schema {
        match (self.mix, self.indices) {
            (Mix::NewOrderOnly, Indices::Trees) => Schema::Baselines(self.stock),
            (_, indices) => Schema::Specification(indices, self.stock),
        }
    }

    /// Warehouses of the cluster, numbered from 0. Warehouse `w` is at node `w % nodes`.
    pub const fn warehouses(&self) -> u16 {
        self.nodes * self.warehouses_per_node
    }

    /// Initial orders of a district that are delivered: 2,100 of 3,000.
    pub const fn delivered(&self) -> u32 {
        self.customers_per_district as u32 * 7 / 10
    }

    /// Last names that customers have: all, unless there are fewer customers.
    pub(super) const fn names(&self) -> u16 {
        if self.customers_per_district < NAMES { self.customers_per_district } else { NAMES }
    }

    /// Initial records of a shard, at most. The number of order lines is random: a mean of 10 per
    /// order and a deviation below 3.2, so that eight deviations more are not met.
    pub(super) const fn records_per_shard(&self) -> u64 {
        let customers = self.customers_per_district as u64;
        let lines = 10 * customers + 26 * (customers.isqrt() + 1);
        let lines_max = LINES_MAX as u64 * customers;
        let lines = if lines < lines_max { lines } else { lines_max };
        let undelivered = customers - self.delivered() as u64;
        // CUSTOMER, HISTORY, ORDER, newest order; DISTRICT, oldest undelivered order.
        let district = 4 * customers + lines + undelivered + self.names() as u64 + 2;
        let texts = if self.schema().has_texts_apart() { self.items as u64 } else { 0 };
        let warehouse = 2 + self.items as u64 + texts + DISTRICTS as u64 * district;
        self.items as u64 + self.warehouses_per_node as u64 * warehouse
    }

    /// Initial records of a shard in ordered tables, at least: the mean of lines less the margin
    /// that [`TpccConfig::records_per_shard`] adds.
    pub(super) const fn ordered_per_shard(&self) -> u64 {
        let customers = self.customers_per_district as u64;
        let lines = (10 * customers).saturating_sub(26 * (customers.isqrt() + 1));
        let undelivered = customers - self.delivered() as u64;
        let index = match self.indices {
            Indices::Records => 0,
            Indices::Trees => customers,
        };
        let (ordered_customers, items) = match self.schema() {
            Schema::Specification(..) => (0, 0),
            Schema::Baselines(_) => (customers, self.items as u64),
        };
        let district = customers + lines + undelivered + index + ordered_customers;
        items + self.warehouses_per_node as u64 * DISTRICTS as u64 * district
    }

    /// The rows of a shard's hashed tables that are longer than 96 bytes. A name's customers are 2
    /// bytes each in the index: however they are spread, its rows take no more than two that list
    /// them all.
    pub(super) fn value_lengths(&self) -> Vec<(u32, u64)> {
        let warehouses = u64::from(self.warehouses_per_node);
        let districts = warehouses * u64::from(DISTRICTS);
        let customers = self.customers_per_district;
        let names = (2 * u32::from(customers), 2 * districts);
        let stocks = warehouses * u64::from(self.items);
        let mut lengths = vec![names];
        match (self.schema(), self.stock) {
            (Schema::Baselines(_), Stock::Split) => {}
            (Schema::Specification(..), Stock::Split) => {
                lengths.push((stock_texts::LEN as u32, stocks));
            }
            (_, Stock::Whole) => lengths.push((stock::WHOLE as u32, stocks)),
        }
        if self.schema().is_specification() {
            lengths.push((customer::LEN as u32, districts * u64::from(customers)));
        }
        lengths
    }

    /// The hashed tables of a shard. Orders and what belongs to them stand in ordered ones.
    pub(super) fn hashed_tables(&self) -> Vec<TableSize> {
        let warehouses = u64::from(self.warehouses_per_node);
        let (districts, items) = (warehouses * u64::from(DISTRICTS), u64::from(self.items));
        let customers = districts * u64::from(self.customers_per_district);
        let names = 2 * usize::from(self.customers_per_district);
        let pays = !matches!(self.mix, Mix::NewOrderOnly);
        let mut tables = vec![
            TableSize::fixed(key::WAREHOUSE, warehouses, warehouse::LEN),
            TableSize::fixed(key::WAREHOUSE_YTD, warehouses, warehouse_ytd::LEN),
            TableSize::fixed(key::DISTRICT, districts, district::LEN),
            TableSize::fixed(key::STOCK, warehouses * items, self.schema().stock_len()),
            TableSize {
                growth: if pays { self.growth_per_node } else { 0 },
                ..TableSize::fixed(key::HISTORY, customers, history::LEN)
            },
            TableSize {
                longer: vec![(names as u32, 2 * districts)],
                ..TableSize::fixed(
                    key::CUSTOMERS_BY_NAME,
                    districts * u64::from(self.names()),
                    names.min(SHORT_ROW),
                )
            },
        ];
        if self.schema().is_specification() {
            tables.extend([
                TableSize::fixed(key::CUSTOMER, customers, customer::LEN),
                TableSize::fixed(key::ITEM, items, item::LEN),
            ]);
        }
        if self.schema().has_texts_apart() {
            let texts = stock_texts::LEN;
            tables.push(TableSize::fixed(key::STOCK_TEXTS, warehouses * items, texts));
        }
        if self.schema().indices() == Indices::Records {
            let number = order_number::LEN;
            tables.extend([
                TableSize::fixed(key::NEWEST_ORDER, customers, number),
                TableSize::fixed(key::OLDEST_NEW_ORDER, districts, number),
            ]);
        }
        tables
    }

    pub(super) fn check(&self) {
        assert!(self.nodes > 0, "a cluster has a node");
        assert!(self.warehouses_per_node > 0, "a node has a warehouse");
        let warehouses = u32::from(self.nodes) * u32::from(self.warehouses_per_node);
        assert!(warehouses <= u32::from(u16::MAX), "a warehouse's number has 16 bits");
        assert!((1..=ITEMS_MAX).contains(&self.items), "1 to {ITEMS_MAX} items");
        let customers = 1..=CUSTOMERS_MAX;
        assert!(customers.contains(&self.customers_per_district), "1 to {CUSTOMERS_MAX} customers");
    }
}
