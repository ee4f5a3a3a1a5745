//! What TPC-C's requests are scheduled by.
//!
//! | transaction | [`Features::Written`] (AMB-52) | [`Features::Artifact`] (AMB-39) |
//! |---|---|---|
//! | New-Order | its district, its customer, each item and each stock | and its warehouse |
//! | Payment | the warehouse's sum, the district, the customer if its number is known | the district |
//! | Order-Status, Stock-Level | the district | the same |
//! | Delivery | the warehouse | the same |
//!
//! Delivery is long, and has cores of its own where some are reserved.

use nicol_core::ids::{Key, TableId};
use nicol_core::txn::Txn;

use super::input;
use super::key::{self, DISTRICTS};

/// The features that a request's vector names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Features {
    /// Every row that the request is known to write, and those that it reads of written tables.
    Written,
    /// As AlNiCo's implementation extracts them: Payment names its district only, though it writes
    /// the warehouse's sum as well.
    Artifact,
}

/// Features of 512 that AlNiCo's implementation gives each table; its share for arguments
/// goes to all other tables. (AMB-39)
pub(super) const SHARES: [(TableId, u32); 13] = [
    // As many as AlNiCo's implementation has for the whole table.
    (key::WAREHOUSE, 5),
    (key::WAREHOUSE_YTD, 5),
    (key::DISTRICT, 20),
    (key::CUSTOMER, 110),
    (key::HISTORY, 10),
    (key::NEW_ORDER, 10),
    (key::ORDER, 10),
    (key::ORDER_LINE, 10),
    (key::ITEM, 115),
    (key::STOCK, 177),
    (key::CUSTOMERS_BY_NAME, 10),
    (key::ORDERS_OF_CUSTOMER, 10),
    (TableId(0), 20),
];

/// Calls `each` with those of `tables` among the keys of the first round.
fn of_tables(txn: &Txn, tables: &[TableId], each: &mut dyn FnMut(Key, bool)) {
    let entries = txn.entries().iter().filter(|entry| tables.contains(&entry.key.table()));
    entries.for_each(|entry| each(entry.key, entry.write));
}

/// Of New-Order. WAREHOUSE is never written.
pub(super) fn new_order(txn: &Txn, each: &mut dyn FnMut(Key, bool)) {
    of_tables(txn, &[key::DISTRICT, key::CUSTOMER, key::ITEM, key::STOCK], each);
}

/// Of New-Order, as AlNiCo's implementation extracts them.
pub(super) fn new_order_of_artifact(txn: &Txn, each: &mut dyn FnMut(Key, bool)) {
    of_tables(txn, &[key::WAREHOUSE], each);
    new_order(txn, each);
}

/// Of Payment.
pub(super) fn payment(txn: &Txn, each: &mut dyn FnMut(Key, bool)) {
    of_tables(txn, &[key::WAREHOUSE_YTD, key::DISTRICT, key::CUSTOMER], each);
}

/// Of Payment, as AlNiCo's implementation extracts them: arguments that do not parse have no
/// features, here and below; the procedure refuses them.
pub(super) fn payment_of_artifact(txn: &Txn, each: &mut dyn FnMut(Key, bool)) {
    if let Ok(payment) = input::Payment::parse(txn.args()) {
        each(payment.home.row(), true);
    }
}

/// Of Order-Status.
pub(super) fn order_status(txn: &Txn, each: &mut dyn FnMut(Key, bool)) {
    if let Ok(status) = input::OrderStatus::parse(txn.args()) {
        each(status.home.row(), false);
    }
}

/// Of Delivery.
pub(super) fn delivery(txn: &Txn, each: &mut dyn FnMut(Key, bool)) {
    if let Ok(delivery) = input::Delivery::parse(txn.args()) {
        each(key::warehouse(delivery.first.warehouse), true);
    }
}

/// Of Stock-Level and its pieces.
pub(super) fn stock_level(txn: &Txn, each: &mut dyn FnMut(Key, bool)) {
    if let Ok(level) = input::StockLevel::parse(txn.args()) {
        each(level.home.row(), false);
    }
}

/// Districts count through all warehouses; what is numbered within one is set apart by its
/// warehouse.
pub(super) fn number(key: Key) -> u64 {
    let warehouse = u64::from(key.partition().unwrap_or_default());
    let within = key.row() & ((1 << Key::PARTITIONED_ROW_BITS) - 1);
    match key.table() {
        key::WAREHOUSE | key::WAREHOUSE_YTD => warehouse,
        key::DISTRICT => warehouse * u64::from(DISTRICTS) + within.saturating_sub(1),
        _ => warehouse << Key::PARTITIONED_ROW_BITS | within,
    }
}
