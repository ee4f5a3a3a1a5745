//! Order-Status: a customer's newest order. (2.6.2)

use super::input::OrderStatus;
use super::key::{District, LINES_MAX, order_in};
use super::payment::find_customer;
use super::row::{customer, order, order_line, order_number};
use super::rows::{Rows, Step, Stop};
use super::schema::Indices;

/// Leaves 0, then the customer's balance, the order's number, its lines and its carrier. The lines
/// themselves are among the rows read.
///
/// Rounds: the customer (after a look at the last name's index, if named so); the order; its lines.
pub(super) fn order_status(rows: &mut Rows<'_>, indices: Indices) -> Step<()> {
    let input = OrderStatus::parse(rows.args())?;
    let home = input.home;
    let customer = find_customer(rows, home, input.customer)?;
    let customer_index = rows.read(home.customer(customer))?;
    let number = newest_order(rows, home, customer, indices)?;
    let balance = customer::BALANCE.get(rows.row::<{ customer::LEN }>(customer_index)?);

    let order = rows.read(home.order(number))?;
    if indices == Indices::Trees {
        rows.scan(home.lines(number, number))?;
    }
    rows.complete()?;
    let lines = line_count(rows.row(order)?)?;
    let carrier = order::CARRIER.get(rows.row::<{ order::LEN }>(order)?);

    for line in 1..=lines {
        rows.read(home.order_line(number, line))?;
    }
    rows.complete()?;
    for line in 1..=lines {
        let index = rows.read(home.order_line(number, line))?;
        rows.row::<{ order_line::LEN }>(index)?;
    }
    rows.output(&0_i64.to_le_bytes());
    rows.output(&balance.to_le_bytes());
    rows.output(&number.to_le_bytes());
    rows.output(&[lines]);
    rows.output(&carrier.to_le_bytes());
    Ok(())
}

/// The number of a customer's newest order.
fn newest_order(rows: &mut Rows<'_>, home: District, customer: u16, indices: Indices) -> Step<u32> {
    match indices {
        Indices::Records => {
            let newest = rows.read(home.newest_order(customer))?;
            rows.complete()?;
            Ok(order_number::ORDER.get(rows.row::<{ order_number::LEN }>(newest)?))
        }
        Indices::Trees => {
            let orders = rows.scan(home.orders_of(customer))?;
            rows.complete()?;
            rows.first_found(orders)?.map(order_in).ok_or(Stop::Refuse)
        }
    }
}

/// O_OL_CNT, checked.
pub(super) fn line_count(row: &[u8; order::LEN]) -> Step<u8> {
    match order::LINES.get(row) {
        lines if lines <= u16::from(LINES_MAX) => Ok(lines as u8),
        _ => Err(Stop::Refuse),
    }
}
