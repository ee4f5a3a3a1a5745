//! New-Order: a customer orders 5 to 15 items. (2.4.2)

use super::input::{Line, NewOrder};
use super::key::{self, CUSTOMER_ORDER_MAX, LINES_MAX};
use super::row::{ORIGINAL, customer, district, item, stock, stock_texts, warehouse};
use super::rows::{Rows, Step, Stop};
use super::schema::{Indices, Order, OrderLine, Row, Schema};

/// Below what is left after an order, stock is filled up by [`REFILL`]. (2.4.2.2)
const LEFT_AT_LEAST: u16 = 10;
const REFILL: u16 = 91;
/// Basis points of one.
const ONE: i128 = 10_000;

/// Leaves 1, then the total in cents, the order's number, and a bit for each "brand" line.
///
/// Rounds: the rows that the arguments name, at their warehouses; then the district's next order,
/// at home. An item that does not exist refuses. (2.4.2.3)
pub(super) fn new_order(rows: &mut Rows<'_>, schema: Schema) -> Step<()> {
    let input = NewOrder::parse(rows.args())?;
    let home = input.home;
    let warehouse = rows.read(key::warehouse(home.warehouse))?;
    let district = rows.write(home.row())?;
    let customer = rows.read(schema.customer(home, input.customer))?;
    if schema.indices() == Indices::Records {
        rows.write(home.newest_order(input.customer))?;
    }
    let mut supplies = [Supply::default(); LINES_MAX as usize];
    for (supply, line) in supplies.iter_mut().zip(input.lines()) {
        supply.item = rows.read(schema.item(input.items_at, line.item))?;
        supply.stock = rows.write(key::stock(line.supply, line.item))?;
        if schema.has_texts_apart() {
            supply.texts = Some(rows.read(key::stock_texts(line.supply, line.item))?);
        }
    }
    rows.complete()?;
    for supply in &supplies[..input.lines().len()] {
        rows.row::<{ item::LEN }>(supply.item)?;
    }

    let mut district_row = *rows.row::<{ district::LEN }>(district)?;
    let number = district::NEXT_ORDER.get(&district_row);
    // Only the holder of the district's row knows the number. Without trees Delivery looks for the
    // next order by its key before it is there.
    let insert = |rows: &mut Rows<'_>, key| match schema.indices() {
        Indices::Records => rows.write(key),
        Indices::Trees => rows.insert(key),
    };
    let newest = match schema.indices() {
        Indices::Records => rows.write(home.newest_order(input.customer))?,
        Indices::Trees if number <= CUSTOMER_ORDER_MAX => {
            rows.insert(home.order_of(input.customer, number))?
        }
        Indices::Trees => return Err(Stop::Refuse),
    };
    let order = insert(rows, home.order(number))?;
    let pending = insert(rows, home.new_order(number))?;
    let mut lines = [0; LINES_MAX as usize];
    for (position, line) in (0..input.lines().len()).zip(1..) {
        lines[position] = insert(rows, home.order_line(number, line))?;
    }
    rows.complete()?;

    let next = number.checked_add(1).ok_or(Stop::Refuse)?;
    district::NEXT_ORDER.set(&mut district_row, next);
    rows.put(district, &district_row);
    rows.put(newest, schema.order_number_row(home, input.customer, number).bytes());
    rows.put(order, schema.order_row(number, &entered(&input)).bytes());
    rows.put(pending, schema.new_order_row(home, number).bytes());
    let (mut sum, mut brands) = (0_i64, 0_u16);
    for (position, line) in input.lines().iter().enumerate() {
        let ordered = order_item(rows, schema, &input, line, supplies[position])?;
        rows.put(lines[position], ordered.row.bytes());
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

/// Where the rows of a line's item are.
#[derive(Clone, Copy, Default)]
struct Supply {
    item: usize,
    stock: usize,
    texts: Option<usize>,
}

/// An order line, made.
struct Ordered {
    row: Row,
    amount: i64,
    brand: bool,
}

/// Takes a line's items from its stock. Without texts no line is a "brand" one.
fn order_item(
    rows: &mut Rows<'_>,
    schema: Schema,
    input: &NewOrder,
    line: &Line,
    supply: Supply,
) -> Step<Ordered> {
    let item_row = rows.row::<{ item::LEN }>(supply.item)?;
    let price = i64::from(item::PRICE.get(item_row));
    let stock_row = rows.stock(supply.stock)?;
    let texts = match supply.texts {
        Some(texts) => Some(&rows.row::<{ stock_texts::LEN }>(texts)?[..]),
        None => stock_row.get(stock::LEN..stock::WHOLE),
    };
    let brand = texts.is_some_and(|texts| {
        contains_original(&item_row[item::DATA]) && contains_original(&texts[stock_texts::DATA])
    });
    let text = texts.map_or(&[][..], |texts| &texts[stock_texts::dist(input.home.number)]);
    let quantity = u16::from(line.quantity);
    let amount = i64::from(quantity) * price;
    let made = OrderLine {
        item: line.item,
        supply: line.supply,
        delivery_date: 0,
        quantity: u32::from(quantity),
        amount,
    };
    let row = schema.order_line_row(&made, text);

    let (mut changed, len) = ([0; stock::WHOLE], stock_row.len());
    let changed = &mut changed[..len];
    changed.copy_from_slice(stock_row);
    let have = stock::QUANTITY.get(changed);
    let refill = if have >= quantity + LEFT_AT_LEAST { 0 } else { REFILL };
    let left = have.checked_add(refill).and_then(|have| have.checked_sub(quantity));
    stock::QUANTITY.set(changed, left.ok_or(Stop::Refuse)?);
    stock::YTD.add(changed, u32::from(quantity))?;
    stock::ORDERS.add(changed, 1)?;
    let remote = line.supply != input.home.warehouse;
    stock::REMOTE_ORDERS.add(changed, u32::from(remote))?;
    stock::CHANGES.add(changed, 1)?;
    rows.put(supply.stock, changed);
    Ok(Ordered { row, amount, brand })
}

fn contains_original(data: &[u8]) -> bool {
    data.array_windows().any(|window| window == ORIGINAL)
}

/// The order that `input` enters.
fn entered(input: &NewOrder) -> Order {
    Order {
        customer: u32::from(input.customer),
        entry_date: input.date,
        carrier: 0,
        lines: input.lines().len() as u16,
        all_local: input.lines().iter().all(|line| line.supply == input.home.warehouse),
    }
}
