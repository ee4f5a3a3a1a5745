//! Stock-Level: how many items of a district's last 20 orders are short. (2.8.2)

use std::ops::Range;

use super::input::StockLevel;
use super::key::{self, ORDER_LINE, STOCK};
use super::order_status::line_count;
use super::row::{district, order_line, stock};
use super::rows::{Rows, Step};
use super::schema::Indices;

/// Orders examined.
const ORDERS: u32 = 20;

/// The first piece of a chopped Stock-Level: outputs 0, then D_NEXT_O_ID.
pub(super) fn next_order(rows: &mut Rows<'_>) -> Step<()> {
    let input = StockLevel::parse(rows.args())?;
    let next = read_next_order(rows, &input)?;
    rows.output(&0_i64.to_le_bytes());
    rows.output(&next.to_le_bytes());
    Ok(())
}

/// The output of the first piece of a chopped Stock-Level.
pub(super) fn parse_next_order(output: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(*output.get(8..)?.first_chunk()?))
}

fn read_next_order(rows: &mut Rows<'_>, input: &StockLevel) -> Step<u32> {
    let district = rows.read(input.home.row())?;
    rows.complete()?;
    Ok(district::NEXT_ORDER.get(rows.row::<{ district::LEN }>(district)?))
}

/// The lines of the orders, by the number of lines that each order names.
fn read_lines(rows: &mut Rows<'_>, input: &StockLevel, orders: Range<u32>) -> Step<()> {
    for number in orders.clone() {
        rows.read(input.home.order(number))?;
    }
    rows.complete()?;
    for number in orders {
        let order = rows.read(input.home.order(number))?;
        for line in 1..=line_count(rows.row(order)?)? {
            rows.read(input.home.order_line(number, line))?;
        }
    }
    Ok(())
}

/// Outputs 0, then the number of distinct items whose stock is below the threshold.
///
/// Rounds: the district, unless a piece before has read it; its last orders (not if trees are
/// scanned); their lines; the stock of every item on them.
pub(super) fn stock_level(rows: &mut Rows<'_>, indices: Indices) -> Step<()> {
    let input = StockLevel::parse(rows.args())?;
    let next = match input.next_order {
        0 => read_next_order(rows, &input)?,
        known => known,
    };
    let orders = next.saturating_sub(ORDERS).max(1)..next;
    match indices {
        Indices::Records => read_lines(rows, &input, orders)?,
        Indices::Trees if orders.is_empty() => {}
        Indices::Trees => {
            rows.scan(input.home.lines(orders.start, orders.end - 1))?;
        }
    }
    rows.complete()?;
    // The read set holds each item's stock once, however many lines have it.
    for index in 0..rows.len() {
        if rows.key(index).table() == ORDER_LINE {
            let item = order_line::ITEM.get(rows.row::<{ order_line::LEN }>(index)?);
            rows.read(key::stock(input.home.warehouse, item))?;
        }
    }
    rows.complete()?;
    let mut short = 0_u32;
    for index in 0..rows.len() {
        if rows.key(index).table() == STOCK {
            let quantity = stock::QUANTITY.get(rows.stock(index)?);
            short += u32::from(quantity < input.threshold);
        }
    }
    rows.output(&0_i64.to_le_bytes());
    rows.output(&short.to_le_bytes());
    Ok(())
}
