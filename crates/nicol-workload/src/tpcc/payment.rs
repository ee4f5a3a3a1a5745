//! Payment: a customer pays, at a district of any warehouse. (2.5.2)

use std::ops::Range;

use super::input::{Customer, Payment};
use super::key::{self, CUSTOMERS_MAX, District, PAYMENTS_MAX};
use super::row::{address, customer, district, history, warehouse, warehouse_ytd};
use super::rows::{Rows, Step, Stop};

/// Outputs the amount in cents, then the customer's number and new balance.
///
/// Rounds: warehouse, its sum, district and customer (after the last name's index, if the customer
/// is given by name); then the HISTORY row, whose key contains the customer's number of payments.
pub(super) fn payment(rows: &mut Rows<'_>) -> Step<()> {
    let input = Payment::parse(rows.args())?;
    let (home, theirs) = (input.home, input.theirs);
    let amount = i64::from(input.amount);
    let warehouse = rows.read(key::warehouse(home.warehouse))?;
    let sum = rows.write(key::warehouse_ytd(home.warehouse))?;
    let district = rows.write(home.row())?;
    let customer = find_customer(rows, theirs, input.customer)?;
    let customer_index = rows.write(theirs.customer(customer))?;
    rows.complete()?;

    let mut customer_row = *rows.row::<{ customer::LEN }>(customer_index)?;
    customer::PAYMENTS.add(&mut customer_row, 1)?;
    let payment = customer::PAYMENTS.get(&customer_row);
    if payment > PAYMENTS_MAX {
        return Err(Stop::Refuse);
    }
    let history = rows.write(theirs.history(customer, payment))?;
    rows.complete()?;

    let warehouse_row = *rows.row::<{ warehouse::LEN }>(warehouse)?;
    let mut sum_row = *rows.row::<{ warehouse_ytd::LEN }>(sum)?;
    let mut district_row = *rows.row::<{ district::LEN }>(district)?;
    warehouse_ytd::YTD.add(&mut sum_row, amount)?;
    district::YTD.add(&mut district_row, amount)?;
    customer::BALANCE.add(&mut customer_row, -amount)?;
    customer::YTD_PAYMENT.add(&mut customer_row, amount)?;
    if &customer_row[customer::CREDIT] == customer::BAD_CREDIT {
        note(&mut customer_row[customer::DATA], customer, &input);
    }
    let balance = customer::BALANCE.get(&customer_row);
    let mut paid = [0; history::LEN];
    history::CUSTOMER.set(&mut paid, u32::from(customer));
    history::CUSTOMER_DISTRICT.set(&mut paid, theirs.number);
    history::CUSTOMER_WAREHOUSE.set(&mut paid, theirs.warehouse);
    history::DISTRICT.set(&mut paid, home.number);
    history::WAREHOUSE.set(&mut paid, home.warehouse);
    history::DATE.set(&mut paid, input.date);
    history::AMOUNT.set(&mut paid, amount);
    let data = &mut paid[history::DATA];
    data[..10].copy_from_slice(&warehouse_row[address::NAME]);
    data[10..14].fill(b' ');
    data[14..].copy_from_slice(&district_row[address::NAME]);
    rows.put(sum, &sum_row);
    rows.put(district, &district_row);
    rows.put(customer_index, &customer_row);
    rows.put(history, &paid);
    rows.output(&amount.to_le_bytes());
    rows.output(&customer.to_le_bytes());
    rows.output(&balance.to_le_bytes());
    Ok(())
}

/// The note of a payment in the data of a customer with bad credit.
const NOTE: Range<usize> = 0..12;

/// Inserts a note of the payment at the start of `data` and truncates the end. (2.5.2.2)
fn note(data: &mut [u8], customer: u16, input: &Payment) {
    data.copy_within(..data.len() - NOTE.len(), NOTE.len());
    let [customer_low, customer_high] = customer.to_le_bytes();
    let [their_low, their_high] = input.theirs.warehouse.to_le_bytes();
    let [low, high] = input.home.warehouse.to_le_bytes();
    let [cents, hundreds, more, most] = input.amount.to_le_bytes();
    data[NOTE].copy_from_slice(&[
        customer_low,
        customer_high,
        input.theirs.number,
        their_low,
        their_high,
        input.home.number,
        low,
        high,
        cents,
        hundreds,
        more,
        most,
    ]);
}

/// The customer's number; of those with a last name, sorted by first name, the middle one (the
/// lower, of an even number). (2.5.2.2, 2.6.2.2)
pub(super) fn find_customer(
    rows: &mut Rows<'_>,
    district: District,
    customer: Customer,
) -> Step<u16> {
    let name = match customer {
        Customer::Id(customer) => return Ok(customer),
        Customer::LastName(name) => name,
    };
    let index = rows.read(district.customers_by_name(name))?;
    rows.complete()?;
    let (customers, rest) = rows.value(index)?.as_chunks::<2>();
    let middle = customers.len().checked_sub(1).ok_or(Stop::Refuse)? / 2;
    match u16::from_le_bytes(customers[middle]) {
        customer @ 1..=CUSTOMERS_MAX if rest.is_empty() => Ok(customer),
        _ => Err(Stop::Refuse),
    }
}
