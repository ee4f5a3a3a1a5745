//! Tables and keys. Every key contains its warehouse as its partition, so a warehouse and all its
//! records are on one node.
//!
//! Warehouses count from 0; districts, customers, items, orders and order lines from 1, as in the
//! specification.

use nicol_core::ids::{Key, TableId};
use nicol_core::txn::KeyRange;

const fn table(number: u8) -> TableId {
    TableId(TableId::PARTITIONED.0 + number)
}

/// A table whose records are scanned in the order of their keys, by clients of its warehouse only.
/// [Xenic21 5.2]
const fn ordered(number: u8) -> TableId {
    TableId(TableId::ORDERED.0 + number)
}

/// WAREHOUSE without its sum of payments; read-only.
pub const WAREHOUSE: TableId = table(1);
/// W_YTD, which Payment changes. (AMB-52)
pub const WAREHOUSE_YTD: TableId = table(17);
/// DISTRICT, by district.
pub const DISTRICT: TableId = table(2);
/// CUSTOMER, by district and customer.
pub const CUSTOMER: TableId = table(3);
/// HISTORY, by customer and the number of the customer's payment: the specification has no key.
pub const HISTORY: TableId = table(4);
/// NEW-ORDER, by district and order.
pub const NEW_ORDER: TableId = ordered(5);
/// ORDER, by district and order.
pub const ORDER: TableId = ordered(6);
/// ORDER-LINE, by district, order and line.
pub const ORDER_LINE: TableId = ordered(7);
/// ITEM, by item: read-only, a copy per shard, whose partition is the shard's number.
pub const ITEM: TableId = table(8);
/// STOCK, by item: what New-Order changes.
pub const STOCK: TableId = table(9);
/// The texts of STOCK, by item; read-only.
pub const STOCK_TEXTS: TableId = table(14);
/// Index: the customers of a last name, in the order of their first names, by district and name.
pub const CUSTOMERS_BY_NAME: TableId = table(10);
/// Index where trees are not scanned: a customer's newest order, by district and customer.
pub const NEWEST_ORDER: TableId = table(11);
/// Index where trees are not scanned: a district's oldest undelivered order (or the next order, if
/// all are delivered).
pub const OLDEST_NEW_ORDER: TableId = table(12);
/// Index where trees are scanned: the orders of a customer, by district, customer and order.
pub const ORDERS_OF_CUSTOMER: TableId = ordered(13);

/// CUSTOMER where only its warehouse's clients read it, by district and customer.
pub const ORDERED_CUSTOMER: TableId = ordered(15);
/// ITEM beside such customers, by item.
pub const ORDERED_ITEM: TableId = ordered(16);

/// Districts of a warehouse.
pub const DISTRICTS: u8 = 10;
/// Customers that a district may have.
pub const CUSTOMERS_MAX: u16 = 4_095;
/// Maximum number of items.
pub const ITEMS_MAX: u32 = 100_000;
/// Lines that an order may have.
pub const LINES_MAX: u8 = 15;
/// Number of last names.
pub const NAMES: u16 = 1_000;
/// The highest order number that the index of a customer's orders takes.
pub const CUSTOMER_ORDER_MAX: u32 = (1 << CUSTOMER_ORDER_BITS) - 1;
/// Payments that a customer may make.
pub const PAYMENTS_MAX: u32 = (1 << 24) - 1;

/// Lines that a scan takes: more than 20 orders have.
const SCANNED_LINES_MAX: u32 = 21 * LINES_MAX as u32;

const CUSTOMER_BITS: u32 = 12;
const NAME_BITS: u32 = 10;
const PAYMENT_BITS: u32 = 24;
const ORDER_BITS: u32 = 32;
const CUSTOMER_ORDER_BITS: u32 = 24;
const LINE_BITS: u32 = 4;

const _: () = {
    assert!(CUSTOMERS_MAX as u32 == (1 << CUSTOMER_BITS) - 1, "a customer has 12 bits");
    assert!(NAMES as u32 <= 1 << NAME_BITS, "a last name has 10 bits");
    assert!(LINES_MAX as u32 == (1 << LINE_BITS) - 1, "a line has 4 bits");
    assert!(DISTRICTS < 16, "a district has 4 bits");
    assert!(4 + CUSTOMER_BITS + PAYMENT_BITS == Key::PARTITIONED_ROW_BITS, "history fills the row");
    assert!(4 + ORDER_BITS + LINE_BITS == Key::PARTITIONED_ROW_BITS, "an order line fills the row");
    assert!(
        4 + CUSTOMER_BITS + CUSTOMER_ORDER_BITS == Key::PARTITIONED_ROW_BITS,
        "a customer's order fills the row"
    );
};

/// A district of a warehouse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct District {
    /// From 0.
    pub(super) warehouse: u16,
    /// 1 to [`DISTRICTS`].
    pub(super) number: u8,
}

impl District {
    const fn key(self, table: TableId, bits: u32, within: u64) -> Key {
        Key::partitioned(table, self.warehouse, (self.number as u64) << bits | within)
    }

    /// Its DISTRICT row.
    pub(super) const fn row(self) -> Key {
        self.key(DISTRICT, 0, 0)
    }

    pub(super) const fn customer(self, customer: u16) -> Key {
        self.key(CUSTOMER, CUSTOMER_BITS, customer as u64)
    }

    /// A CUSTOMER row in the ordered table.
    pub(super) const fn ordered_customer(self, customer: u16) -> Key {
        self.key(ORDERED_CUSTOMER, CUSTOMER_BITS, customer as u64)
    }

    /// The HISTORY row of a customer's payment.
    pub(super) const fn history(self, customer: u16, payment: u32) -> Key {
        let customer = (self.number as u64) << CUSTOMER_BITS | customer as u64;
        Key::partitioned(HISTORY, self.warehouse, customer << PAYMENT_BITS | payment as u64)
    }

    pub(super) const fn new_order(self, order: u32) -> Key {
        self.key(NEW_ORDER, ORDER_BITS, order as u64)
    }

    pub(super) const fn order(self, order: u32) -> Key {
        self.key(ORDER, ORDER_BITS, order as u64)
    }

    pub(super) const fn order_line(self, order: u32, line: u8) -> Key {
        let line = (order as u64) << LINE_BITS | line as u64;
        self.key(ORDER_LINE, ORDER_BITS + LINE_BITS, line)
    }

    pub(super) const fn customers_by_name(self, name: u16) -> Key {
        self.key(CUSTOMERS_BY_NAME, NAME_BITS, name as u64)
    }

    pub(super) const fn newest_order(self, customer: u16) -> Key {
        self.key(NEWEST_ORDER, CUSTOMER_BITS, customer as u64)
    }

    /// An order of a customer, in the index; the number is at most [`CUSTOMER_ORDER_MAX`].
    pub(super) const fn order_of(self, customer: u16, order: u32) -> Key {
        let order = (customer as u64) << CUSTOMER_ORDER_BITS | order as u64;
        self.key(ORDERS_OF_CUSTOMER, CUSTOMER_BITS + CUSTOMER_ORDER_BITS, order)
    }

    /// All orders of a customer, the newest first.
    pub(super) const fn orders_of(self, customer: u16) -> KeyRange {
        KeyRange {
            first: self.order_of(customer, 0),
            last: self.order_of(customer, CUSTOMER_ORDER_MAX),
            backward: true,
            limit: 1,
        }
    }

    /// The oldest undelivered order, among all of them.
    pub(super) const fn undelivered(self) -> KeyRange {
        KeyRange {
            first: self.new_order(0),
            last: self.new_order(u32::MAX),
            backward: false,
            limit: 1,
        }
    }

    /// The lines of the orders `first` to `last`, of which there are fewer than 2^28.
    pub(super) const fn lines(self, first: u32, last: u32) -> KeyRange {
        let (first, last) = (self.order_line(first, 0), self.order_line(last, LINES_MAX));
        KeyRange { first, last, backward: false, limit: SCANNED_LINES_MAX }
    }

    pub(super) const fn oldest_new_order(self) -> Key {
        self.key(OLDEST_NEW_ORDER, 0, 0)
    }
}

/// The order that a key of NEW-ORDER or of a customer's orders names.
pub(super) const fn order_in(key: Key) -> u32 {
    if key.table().0 == ORDERS_OF_CUSTOMER.0 {
        key.row() as u32 & CUSTOMER_ORDER_MAX
    } else {
        key.row() as u32
    }
}

/// The districts of a warehouse.
pub(super) fn districts(warehouse: u16) -> impl Iterator<Item = District> {
    (1..=DISTRICTS).map(move |number| District { warehouse, number })
}

pub(super) const fn warehouse(warehouse: u16) -> Key {
    Key::partitioned(WAREHOUSE, warehouse, 0)
}

/// The W_YTD of a warehouse.
pub(super) const fn warehouse_ytd(warehouse: u16) -> Key {
    Key::partitioned(WAREHOUSE_YTD, warehouse, 0)
}

/// An ITEM row of the copy in `partition`.
pub(super) const fn item(partition: u16, item: u32) -> Key {
    Key::partitioned(ITEM, partition, item as u64)
}

/// An ITEM row of the copy in `partition`, in the ordered table.
pub(super) const fn ordered_item(partition: u16, item: u32) -> Key {
    Key::partitioned(ORDERED_ITEM, partition, item as u64)
}

/// The texts of a STOCK row.
pub(super) const fn stock_texts(warehouse: u16, item: u32) -> Key {
    Key::partitioned(STOCK_TEXTS, warehouse, item as u64)
}

pub(super) const fn stock(warehouse: u16, item: u32) -> Key {
    Key::partitioned(STOCK, warehouse, item as u64)
}
