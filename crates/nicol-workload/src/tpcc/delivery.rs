//! Delivery: the oldest undelivered order of each district of a warehouse. (2.7.4)

use super::input::Delivery;
use super::key::{DISTRICTS, District, order_in};
use super::order_status::line_count;
use super::row::{customer, new_order, order, order_line, order_number};
use super::rows::{Rows, Step, Stop};
use super::schema::{Indices, Schema, Stock};

/// An order to deliver, by the indices of its rows.
#[derive(Clone, Copy)]
struct Due {
    district: District,
    /// The index record that says so, if it is one that does.
    oldest: Option<usize>,
    number: u32,
    pending: usize,
    order: usize,
}

/// Outputs the number of orders delivered, then each district's order, 0 if it has none.
///
/// Rounds: the districts' oldest undelivered orders; these orders; their lines and customers.
pub(super) fn delivery(rows: &mut Rows<'_>, indices: Indices) -> Step<()> {
    let input = Delivery::parse(rows.args())?;
    let mut due = [None; DISTRICTS as usize];
    let mut oldest = [0; DISTRICTS as usize];
    for (oldest, district) in oldest.iter_mut().zip(input.districts()) {
        *oldest = match indices {
            Indices::Records => rows.write(district.oldest_new_order())?,
            Indices::Trees => rows.scan(district.undelivered())?,
        };
    }
    rows.complete()?;
    for ((due, oldest), district) in due.iter_mut().zip(oldest).zip(input.districts()) {
        let Some(number) = oldest_order(rows, oldest, indices)? else { continue };
        let oldest = (indices == Indices::Records).then_some(oldest);
        let pending = rows.write(district.new_order(number))?;
        let order = rows.write(district.order(number))?;
        *due = Some(Due { district, oldest, number, pending, order });
    }
    rows.complete()?;
    for due in &mut due {
        *due = match *due {
            Some(found) if rows.find::<{ new_order::LEN }>(found.pending)?.is_some() => Some(found),
            _ => None,
        };
    }
    for due in due.iter().flatten() {
        let order = *rows.row::<{ order::LEN }>(due.order)?;
        rows.write(due.district.customer(customer_of(&order)?))?;
        for line in 1..=line_count(&order)? {
            rows.write(due.district.order_line(due.number, line))?;
        }
    }
    rows.complete()?;
    for due in due.iter().flatten() {
        deliver(rows, &input, due)?;
    }
    let delivered = due.iter().flatten().count() as i64;
    rows.output(&delivered.to_le_bytes());
    for due in &due[..input.districts().count()] {
        rows.output(&due.map_or(0, |due| due.number).to_le_bytes());
    }
    Ok(())
}

/// The oldest undelivered order, by index record or by scan.
fn oldest_order(rows: &Rows<'_>, index: usize, indices: Indices) -> Step<Option<u32>> {
    match indices {
        Indices::Records => {
            Ok(Some(order_number::ORDER.get(rows.row::<{ order_number::LEN }>(index)?)))
        }
        Indices::Trees => Ok(rows.first_found(index)?.map(order_in)),
    }
}

fn customer_of(order: &[u8; order::LEN]) -> Step<u16> {
    order::CUSTOMER.get(order).try_into().map_err(|_| Stop::Refuse)
}

/// Delivers one order, all rows of which have been fetched.
fn deliver(rows: &mut Rows<'_>, input: &Delivery, due: &Due) -> Step<()> {
    let mut order = *rows.row::<{ order::LEN }>(due.order)?;
    let mut sum = 0_i64;
    for line in 1..=line_count(&order)? {
        let index = rows.write(due.district.order_line(due.number, line))?;
        let mut row = *rows.row::<{ order_line::LEN }>(index)?;
        sum = sum.checked_add(order_line::AMOUNT.get(&row)).ok_or(Stop::Refuse)?;
        order_line::DELIVERY_DATE.set(&mut row, input.date);
        rows.put(index, &row);
    }
    let index = rows.write(due.district.customer(customer_of(&order)?))?;
    let mut row = *rows.row::<{ customer::LEN }>(index)?;
    customer::BALANCE.add(&mut row, sum)?;
    let deliveries = customer::DELIVERIES.get(&row).saturating_add(1);
    customer::DELIVERIES.set(&mut row, deliveries);
    rows.put(index, &row);
    order::CARRIER.set(&mut order, u16::from(input.carrier));
    rows.put(due.order, &order);
    rows.delete(due.pending);
    if let Some(oldest) = due.oldest {
        let next = due.number.checked_add(1).ok_or(Stop::Refuse)?;
        let row = Schema::Specification(Indices::Records, Stock::Split).order_number_row(
            due.district,
            0,
            next,
        );
        rows.put(oldest, row.bytes());
    }
    Ok(())
}
