//! Which rows a run has, and where they stand: those of the specification, or those of the code
//! that the RDMA baselines share. AMB-43

use nicol_core::ids::Key;

use super::key::{self, District};
use super::row::{Column, baselines, new_order, order, order_line, order_number, parse, stock};

/// How transactions find orders whose keys they do not know: a customer's newest, a district's
/// oldest undelivered, and the lines of the newest twenty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indices {
    /// By index records and order numbers, without scans.
    Records,
    /// By scans of the ordered tables. [Xenic21 5.2]
    Trees,
}

/// How STOCK stands. AMB-43
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stock {
    /// In two tables, as clause 1.4 permits: what New-Order changes, and the texts, which nobody
    /// writes.
    Split,
    /// In one, as clause 1.3 prints it: a New-Order writes the texts of its items, too.
    Whole,
}

/// The tables of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Schema {
    /// The specification's rows.
    Specification(Indices, Stock),
    /// What the baselines' New-Order needs and no more: narrow rows, no texts of order lines nor,
    /// where they stand apart, of STOCK, and CUSTOMER and ITEM in ordered tables of their
    /// warehouse's node.
    Baselines(Stock),
}

/// A row of at most as many bytes as the longest that is made here.
pub(super) struct Row {
    bytes: [u8; order_line::LEN],
    len: usize,
}

impl Row {
    const fn zeroed(len: usize) -> Self {
        Self { bytes: [0; order_line::LEN], len }
    }

    fn set<T: super::row::Number>(mut self, column: &Column<T>, value: T) -> Self {
        column.set(&mut self.bytes, value);
        self
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// An ORDER; its number is in its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) customer: u32,
    pub(super) entry_date: u32,
    /// 0: null, not delivered yet.
    pub(super) carrier: u16,
    pub(super) lines: u16,
    pub(super) all_local: bool,
}

/// An ORDER-LINE without its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OrderLine {
    pub(super) item: u32,
    pub(super) supply: u16,
    /// 0: null, not delivered yet.
    pub(super) delivery_date: u32,
    pub(super) quantity: u32,
    pub(super) amount: i64,
}

impl Schema {
    /// All, in the order of their numbers.
    pub(super) const ALL: [Self; 6] = [
        Self::Specification(Indices::Records, Stock::Split),
        Self::Specification(Indices::Trees, Stock::Split),
        Self::Baselines(Stock::Split),
        Self::Specification(Indices::Records, Stock::Whole),
        Self::Specification(Indices::Trees, Stock::Whole),
        Self::Baselines(Stock::Whole),
    ];

    pub(super) const fn number(self) -> u16 {
        let (rows, stock) = match self {
            Self::Specification(Indices::Records, stock) => (0, stock),
            Self::Specification(Indices::Trees, stock) => (1, stock),
            Self::Baselines(stock) => (2, stock),
        };
        match stock {
            Stock::Split => rows,
            Stock::Whole => 3 + rows,
        }
    }

    const fn stock(self) -> Stock {
        match self {
            Self::Specification(_, stock) | Self::Baselines(stock) => stock,
        }
    }

    /// Bytes of a STOCK row.
    pub(super) const fn stock_len(self) -> usize {
        match self.stock() {
            Stock::Split => stock::LEN,
            Stock::Whole => stock::WHOLE,
        }
    }

    /// How orders are found.
    pub(super) const fn indices(self) -> Indices {
        match self {
            Self::Specification(indices, _) => indices,
            Self::Baselines(_) => Indices::Trees,
        }
    }

    /// True if there are the specification's rows, and no narrower ones.
    pub(super) const fn is_specification(self) -> bool {
        matches!(self, Self::Specification(..))
    }

    /// True if the texts of STOCK have a table of their own.
    pub(super) const fn has_texts_apart(self) -> bool {
        matches!(self, Self::Specification(_, Stock::Split))
    }

    pub(super) const fn customer(self, district: District, customer: u16) -> Key {
        match self {
            Self::Specification(..) => district.customer(customer),
            Self::Baselines(_) => district.ordered_customer(customer),
        }
    }

    /// An ITEM row of the copy in `partition`.
    pub(super) const fn item(self, partition: u16, item: u32) -> Key {
        match self {
            Self::Specification(..) => key::item(partition, item),
            Self::Baselines(_) => key::ordered_item(partition, item),
        }
    }

    /// The row of the index that holds the order `number` of `customer`.
    pub(super) fn order_number_row(self, district: District, customer: u16, number: u32) -> Row {
        match self {
            Self::Specification(..) => {
                Row::zeroed(order_number::LEN).set(&order_number::ORDER, number)
            }
            Self::Baselines(_) => Row::zeroed(baselines::order_of_customer::LEN)
                .set(&baselines::order_of_customer::ORDER, number)
                .set(&baselines::order_of_customer::CUSTOMER, customer.into())
                .set(&baselines::order_of_customer::DISTRICT, district.number.into())
                .set(&baselines::order_of_customer::WAREHOUSE, district.warehouse.into()),
        }
    }

    /// The order that a row of the index names; `None` if it is no such row.
    pub(super) fn order_number(self, row: &[u8]) -> Option<u32> {
        match self {
            Self::Specification(..) => {
                Some(order_number::ORDER.get(parse::<{ order_number::LEN }>(row)?))
            }
            Self::Baselines(_) => {
                use baselines::order_of_customer::{LEN, ORDER};
                Some(ORDER.get(parse::<LEN>(row)?))
            }
        }
    }

    pub(super) fn new_order_row(self, district: District, number: u32) -> Row {
        match self {
            Self::Specification(..) => Row::zeroed(new_order::LEN)
                .set(&new_order::ORDER, number)
                .set(&new_order::DISTRICT, district.number.into())
                .set(&new_order::WAREHOUSE, district.warehouse),
            Self::Baselines(_) => Row::zeroed(baselines::new_order::LEN)
                .set(&baselines::new_order::ORDER, number)
                .set(&baselines::new_order::DISTRICT, district.number.into())
                .set(&baselines::new_order::WAREHOUSE, district.warehouse.into()),
        }
    }

    pub(super) fn order_row(self, number: u32, made: &Order) -> Row {
        match self {
            Self::Specification(..) => Row::zeroed(order::LEN)
                .set(&order::ORDER, number)
                .set(&order::CUSTOMER, made.customer)
                .set(&order::ENTRY_DATE, made.entry_date)
                .set(&order::CARRIER, made.carrier)
                .set(&order::LINES, made.lines)
                .set(&order::ALL_LOCAL, made.all_local.into()),
            Self::Baselines(_) => Row::zeroed(baselines::order::LEN)
                .set(&baselines::order::CUSTOMER, made.customer)
                .set(&baselines::order::ENTRY_DATE, made.entry_date)
                .set(&baselines::order::CARRIER, made.carrier.into())
                .set(&baselines::order::LINES, made.lines as u8)
                .set(&baselines::order::ALL_LOCAL, made.all_local.into()),
        }
    }

    /// The fields of an ORDER row; `None` if it is no such row, or that of another order.
    pub(super) fn order(self, number: u32, row: &[u8]) -> Option<Order> {
        match self {
            Self::Specification(..) => {
                let row = parse::<{ order::LEN }>(row)?;
                (order::ORDER.get(row) == number).then(|| Order {
                    customer: order::CUSTOMER.get(row),
                    entry_date: order::ENTRY_DATE.get(row),
                    carrier: order::CARRIER.get(row),
                    lines: order::LINES.get(row),
                    all_local: order::ALL_LOCAL.get(row) == 1,
                })
            }
            Self::Baselines(_) => {
                use baselines::order as columns;
                let row = parse::<{ columns::LEN }>(row)?;
                Some(Order {
                    customer: columns::CUSTOMER.get(row),
                    entry_date: columns::ENTRY_DATE.get(row),
                    carrier: columns::CARRIER.get(row) as u16,
                    lines: columns::LINES.get(row).into(),
                    all_local: columns::ALL_LOCAL.get(row) == 1,
                })
            }
        }
    }

    /// An ORDER-LINE row; `text` is OL_DIST_INFO, of 24 bytes, which only the specification has.
    pub(super) fn order_line_row(self, made: &OrderLine, text: &[u8]) -> Row {
        match self {
            Self::Specification(..) => {
                let mut row = Row::zeroed(order_line::LEN)
                    .set(&order_line::ITEM, made.item)
                    .set(&order_line::SUPPLY_WAREHOUSE, made.supply)
                    .set(&order_line::DELIVERY_DATE, made.delivery_date)
                    .set(&order_line::QUANTITY, made.quantity)
                    .set(&order_line::AMOUNT, made.amount);
                row.bytes[order_line::DIST_INFO].copy_from_slice(text);
                row
            }
            Self::Baselines(_) => Row::zeroed(baselines::order_line::LEN)
                .set(&baselines::order_line::ITEM, made.item)
                .set(&baselines::order_line::SUPPLY_WAREHOUSE, made.supply.into())
                .set(&baselines::order_line::DELIVERY_DATE, made.delivery_date)
                .set(&baselines::order_line::QUANTITY, made.quantity as u8)
                .set(&baselines::order_line::AMOUNT, made.amount as u32),
        }
    }

    /// The fields of an ORDER-LINE row; `None` if it is no such row.
    pub(super) fn order_line(self, row: &[u8]) -> Option<OrderLine> {
        match self {
            Self::Specification(..) => {
                let row = parse::<{ order_line::LEN }>(row)?;
                Some(OrderLine {
                    item: order_line::ITEM.get(row),
                    supply: order_line::SUPPLY_WAREHOUSE.get(row),
                    delivery_date: order_line::DELIVERY_DATE.get(row),
                    quantity: order_line::QUANTITY.get(row),
                    amount: order_line::AMOUNT.get(row),
                })
            }
            Self::Baselines(_) => {
                use baselines::order_line as columns;
                let row = parse::<{ columns::LEN }>(row)?;
                Some(OrderLine {
                    item: columns::ITEM.get(row),
                    supply: columns::SUPPLY_WAREHOUSE.get(row) as u16,
                    delivery_date: columns::DELIVERY_DATE.get(row),
                    quantity: columns::QUANTITY.get(row).into(),
                    amount: columns::AMOUNT.get(row).into(),
                })
            }
        }
    }
}
