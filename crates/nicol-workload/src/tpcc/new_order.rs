//! New-Order: a customer orders 5 to 15 items. (2.4.2)

use super::config::Indices;
use super::input::{Line, NewOrder};
use super::key::{self, CUSTOMER_ORDER_MAX, LINES_MAX};
use super::row::{
    ORIGINAL, customer, district, item, new_order, order, order_line, order_number, stock,
    warehouse,
};
use super::rows::{Rows, Step, Stop};

/// Below what is left after an order, stock is filled up by [`REFILL`]. (2.4.2.2)
const LEFT_AT_LEAST: u16 = 10;
const REFILL: u16 = 91;
/// Basis points of one.
const ONE: i128 = 10_000;

/// Leaves 1, then the total in cents, the order's number, and a bit for each "brand" line.
///
/// Rounds: the rows that the arguments name, at their warehouses; then the district's next order,
/// at home. An item that does not exist refuses. (2.4.2.3)
pub(super) fn new_order(rows: &mut Rows<'_>, indices: Indices) -> Step<()> {
    let input = NewOrder::parse(rows.args())?;
    let home = input.home;
    let warehouse = rows.read(key::warehouse(home.warehouse))?;
    let district = rows.write(home.row())?;
    let customer = rows.read(home.customer(input.customer))?;
    if indices == Indices::Records {
        rows.write(home.newest_order(input.customer))?;
    }
    let (mut items, mut stocks) = ([0; LINES_MAX as usize], [0; LINES_MAX as usize]);
    for (position, line) in input.lines().iter().enumerate() {
        items[position] = rows.read(key::item(input.items_at, line.item))?;
        stocks[position] = rows.write(key::stock(line.supply, line.item))?;
    }
    rows.complete()?;
    for &item in &items[..input.lines().len()] {
        rows.row::<{ item::LEN }>(item)?;
    }

    let mut district_row = *rows.row::<{ district::LEN }>(district)?;
    let number = district::NEXT_ORDER.get(&district_row);
    let newest = match indices {
        Indices::Records => rows.write(home.newest_order(input.customer))?,
        Indices::Trees if number <= CUSTOMER_ORDER_MAX => {
            rows.write(home.order_of(input.customer, number))?
        }
        Indices::Trees => return Err(Stop::Refuse),
    };
    let order = rows.write(home.order(number))?;
    let pending = rows.write(home.new_order(number))?;
    let mut lines = [0; LINES_MAX as usize];
    for (position, line) in (0..input.lines().len()).zip(1..) {
        lines[position] = rows.write(home.order_line(number, line))?;
    }
    rows.complete()?;

    let next = number.checked_add(1).ok_or(Stop::Refuse)?;
    district::NEXT_ORDER.set(&mut district_row, next);
    rows.put(district, &district_row);
    rows.put(newest, &order_number_row(number));
    rows.put(order, &order_row(&input, number));
    rows.put(pending, &new_order_row(&input, number));
    let (mut sum, mut brands) = (0_i64, 0_u16);
    for (position, line) in input.lines().iter().enumerate() {
        let ordered = order_item(rows, &input, line, items[position], stocks[position])?;
        rows.put(lines[position], &ordered.row);
        sum += ordered.amount;
        brands |= u16::from(ordered.brand) << position;
    }
    let taxes = warehouse::TAX.get(rows.row::<{ warehouse::LEN }>(warehouse)?);
    let taxes = i128::from(taxes) + i128::from(district::TAX.get(&district_row));
    let discount = customer::DISCOUNT.get(rows.row::<{ customer::LEN }>(customer)?);
    let total = i128::from(sum) * (ONE - i128::from(discount)) * (ONE + taxes) / (ONE * ONE);
    rows.output(&1_i64.to_le_bytes());
    rows.output(&(total as i64).to_le_bytes());
    rows.output(&number.to_le_bytes());
    rows.output(&brands.to_le_bytes());
    Ok(())
}

/// An order line, made.
struct Ordered {
    row: [u8; order_line::LEN],
    amount: i64,
    brand: bool,
}

/// Takes a line's items from its stock.
fn order_item(
    rows: &mut Rows<'_>,
    input: &NewOrder,
    line: &Line,
    item: usize,
    stock: usize,
) -> Step<Ordered> {
    let item_row = rows.row::<{ item::LEN }>(item)?;
    let price = i64::from(item::PRICE.get(item_row));
    let may_brand = contains_original(&item_row[item::DATA]);
    let mut stock_row = *rows.row::<{ stock::LEN }>(stock)?;
    let brand = may_brand && contains_original(&stock_row[stock::DATA]);
    let quantity = u16::from(line.quantity);
    let have = stock::QUANTITY.get(&stock_row);
    let refill = if have >= quantity + LEFT_AT_LEAST { 0 } else { REFILL };
    let left = have.checked_add(refill).and_then(|have| have.checked_sub(quantity));
    stock::QUANTITY.set(&mut stock_row, left.ok_or(Stop::Refuse)?);
    stock::YTD.add(&mut stock_row, u32::from(quantity))?;
    stock::ORDERS.add(&mut stock_row, 1)?;
    let remote = line.supply != input.home.warehouse;
    stock::REMOTE_ORDERS.add(&mut stock_row, u32::from(remote))?;
    rows.put(stock, &stock_row);

    let amount = i64::from(quantity) * price;
    let mut row = [0; order_line::LEN];
    order_line::ITEM.set(&mut row, line.item);
    order_line::SUPPLY_WAREHOUSE.set(&mut row, line.supply);
    order_line::QUANTITY.set(&mut row, u32::from(quantity));
    order_line::AMOUNT.set(&mut row, amount);
    row[order_line::DIST_INFO].copy_from_slice(&stock_row[stock::dist(input.home.number)]);
    Ok(Ordered { row, amount, brand })
}

fn contains_original(data: &[u8]) -> bool {
    data.windows(ORIGINAL.len()).any(|window| window == ORIGINAL)
}

/// The index rows that hold an order's number.
pub(super) fn order_number_row(number: u32) -> [u8; order_number::LEN] {
    let mut row = [0; order_number::LEN];
    order_number::ORDER.set(&mut row, number);
    row
}

fn order_row(input: &NewOrder, number: u32) -> [u8; order::LEN] {
    let all_local = input.lines().iter().all(|line| line.supply == input.home.warehouse);
    let mut row = [0; order::LEN];
    order::ORDER.set(&mut row, number);
    order::CUSTOMER.set(&mut row, u32::from(input.customer));
    order::ENTRY_DATE.set(&mut row, input.date);
    order::LINES.set(&mut row, input.lines().len() as u16);
    order::ALL_LOCAL.set(&mut row, u16::from(all_local));
    row
}

fn new_order_row(input: &NewOrder, number: u32) -> [u8; new_order::LEN] {
    let mut row = [0; new_order::LEN];
    new_order::ORDER.set(&mut row, number);
    new_order::DISTRICT.set(&mut row, u16::from(input.home.number));
    new_order::WAREHOUSE.set(&mut row, input.home.warehouse);
    row
}
