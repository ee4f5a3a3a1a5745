//! The initial population. (4.3.3.1)

use nicol_core::ids::{Key, ShardId};
use nicol_core::rng::{Purpose, Stream};
use nicol_core::view::ShardMap;

use super::config::TpccConfig;
use super::draw::TODAY;
use super::key::{self, District, NAMES, districts};
use super::random::{NonUniform, data, digits, last_name, letters, within};
use super::row::{
    address, customer, district, history, item, order_line, stock, stock_texts, warehouse,
    warehouse_ytd,
};
use super::schema::{Indices, Order, OrderLine};
use crate::placement::holds;

/// The seed of the initial population: the same in every run, so that runs differ only in what
/// clients do.
const SEED: u64 = 0x7bcc;
/// The stream's owner for ITEM: no warehouse has this number.
const ITEMS: u32 = 1 << 16;
/// The payments of each customer when loaded, in cents.
pub(super) const FIRST_PAYMENT: i64 = 1_000;

/// Where records go.
type Each<'a> = dyn FnMut(Key, &[u8]) + 'a;

/// Yields every record of `shard`, warehouse by warehouse. Besides one record it holds, for one
/// district, the names of its customers and the order in which they ordered.
pub(super) fn load(
    config: &TpccConfig,
    shards: &dyn ShardMap,
    shard: ShardId,
    each: &mut Each<'_>,
) {
    for partition in
        (0..config.nodes).filter(|partition| holds(shards, shard, key::item(*partition, 1)))
    {
        load_items(config, partition, each);
    }
    let mut names = Vec::new();
    for number in 0..config.warehouses() {
        if !holds(shards, shard, key::warehouse(number)) {
            continue;
        }
        let random = &mut Stream::new(SEED, Purpose::Load, u32::from(number));
        load_warehouse(config, number, random, each);
        load_stock(config, number, random, each);
        for district in districts(number) {
            let mut loader = DistrictLoader { config, district, random, each };
            loader.district();
            loader.customers(&mut names);
            loader.orders();
        }
    }
}

fn load_items(config: &TpccConfig, partition: u16, each: &mut Each<'_>) {
    let random = &mut Stream::new(SEED, Purpose::Load, ITEMS);
    let mut row = [0; item::LEN];
    for number in 1..=config.items {
        item::IMAGE.set(&mut row, within(random, 1, 10_000) as u32);
        letters(random, 14, &mut row[item::NAME]);
        item::PRICE.set(&mut row, within(random, 100, 10_000) as u32);
        data(random, 26, &mut row[item::DATA]);
        each(config.schema().item(partition, number), &row);
    }
}

fn load_stock(config: &TpccConfig, warehouse: u16, random: &mut Stream, each: &mut Each<'_>) {
    let (schema, mut row) = (config.schema(), [0; stock::WHOLE]);
    let len = schema.stock_len();
    for number in 1..=config.items {
        stock::QUANTITY.set(&mut row, within(random, 10, 100) as u16);
        if schema.has_texts_apart() {
            each(key::stock(warehouse, number), &row[..len]);
        }
        if schema.has_texts_apart() || len == stock::WHOLE {
            let texts = &mut row[stock::LEN..];
            letters(random, stock_texts::DISTS.len(), &mut texts[stock_texts::DISTS]);
            data(random, 26, &mut texts[stock_texts::DATA]);
        }
        if schema.has_texts_apart() {
            each(key::stock_texts(warehouse, number), &row[stock::LEN..]);
        } else {
            each(key::stock(warehouse, number), &row[..len]);
        }
    }
}

fn fill_address(random: &mut Stream, row: &mut [u8]) {
    letters(random, 6, &mut row[address::NAME]);
    fill_streets_and_city(random, row, address::STREETS_AND_CITY.start);
}

/// Two streets, a city, a state and a zip code, from byte `at` of `row`. (4.3.2.7)
fn fill_streets_and_city(random: &mut Stream, row: &mut [u8], at: usize) {
    for text in row[at..at + 60].chunks_mut(20) {
        letters(random, 10, text);
    }
    letters(random, 2, &mut row[at + 60..at + 62]);
    digits(random, &mut row[at + 62..at + 66]);
    row[at + 66..at + 71].fill(b'1');
}

fn tax(random: &mut Stream) -> u16 {
    within(random, 0, 2_000) as u16
}

fn load_warehouse(config: &TpccConfig, number: u16, random: &mut Stream, each: &mut Each<'_>) {
    let mut row = [0; warehouse::LEN];
    fill_address(random, &mut row);
    warehouse::TAX.set(&mut row, tax(random));
    each(key::warehouse(number), &row);
    let mut ytd = [0; warehouse_ytd::LEN];
    warehouse_ytd::YTD.set(&mut ytd, i64::from(key::DISTRICTS) * paid(config));
    each(key::warehouse_ytd(number), &ytd);
}

/// The payments of the customers of a district: 30,000.00 for 3,000.
fn paid(config: &TpccConfig) -> i64 {
    FIRST_PAYMENT * i64::from(config.customers_per_district)
}

/// A customer's names, for the index: last name's number, first name, customer.
type Names = (u16, [u8; 16], u16);

struct DistrictLoader<'a, 'e> {
    config: &'a TpccConfig,
    district: District,
    random: &'a mut Stream,
    each: &'a mut Each<'e>,
}

impl DistrictLoader<'_, '_> {
    fn district(&mut self) {
        let mut row = [0; district::LEN];
        fill_address(self.random, &mut row);
        district::TAX.set(&mut row, tax(self.random));
        district::YTD.set(&mut row, paid(self.config));
        district::NEXT_ORDER.set(&mut row, u32::from(self.config.customers_per_district) + 1);
        (self.each)(self.district.row(), &row);
    }

    /// CUSTOMER and HISTORY, and the index by last name.
    fn customers(&mut self, names: &mut Vec<Names>) {
        names.clear();
        for number in 1..=self.config.customers_per_district {
            let name = self.customer(number);
            names.push(name);
            self.history(number);
        }
        names.sort_unstable();
        for same in names.chunk_by(|a, b| a.0 == b.0) {
            let mut row = [0; 2 * key::CUSTOMERS_MAX as usize];
            for (to, (_, _, customer)) in row.as_chunks_mut::<2>().0.iter_mut().zip(same) {
                *to = customer.to_le_bytes();
            }
            let key = self.district.customers_by_name(same[0].0);
            (self.each)(key, &row[..2 * same.len()]);
        }
    }

    fn customer(&mut self, number: u16) -> Names {
        let random = &mut *self.random;
        let name = match number {
            1..=NAMES => number - 1,
            _ => NonUniform::LAST_NAME_LOAD.draw(random, 0, u64::from(NAMES) - 1) as u16,
        };
        let mut row = [0; customer::LEN];
        letters(random, 8, &mut row[customer::FIRST]);
        row[customer::MIDDLE].copy_from_slice(b"OE");
        last_name(name, &mut row[customer::LAST]);
        fill_streets_and_city(random, &mut row, customer::STREETS_AND_CITY.start);
        digits(random, &mut row[customer::PHONE]);
        customer::SINCE.set(&mut row, TODAY);
        let bad = random.below(10) == 0;
        let credit = if bad { customer::BAD_CREDIT } else { customer::GOOD_CREDIT };
        row[customer::CREDIT].copy_from_slice(credit);
        customer::CREDIT_LIMIT.set(&mut row, 5_000_000);
        customer::DISCOUNT.set(&mut row, within(random, 0, 5_000) as u16);
        customer::BALANCE.set(&mut row, -FIRST_PAYMENT);
        customer::YTD_PAYMENT.set(&mut row, FIRST_PAYMENT);
        customer::PAYMENTS.set(&mut row, 1);
        letters(random, 300, &mut row[customer::DATA]);
        (self.each)(self.config.schema().customer(self.district, number), &row);
        let mut first = [0; 16];
        first.copy_from_slice(&row[customer::FIRST]);
        (name, first, number)
    }

    fn history(&mut self, number: u16) {
        let mut row = [0; history::LEN];
        history::CUSTOMER.set(&mut row, u32::from(number));
        history::CUSTOMER_DISTRICT.set(&mut row, self.district.number);
        history::CUSTOMER_WAREHOUSE.set(&mut row, self.district.warehouse);
        history::DISTRICT.set(&mut row, self.district.number);
        history::WAREHOUSE.set(&mut row, self.district.warehouse);
        history::DATE.set(&mut row, TODAY);
        history::AMOUNT.set(&mut row, FIRST_PAYMENT);
        letters(self.random, 12, &mut row[history::DATA]);
        (self.each)(self.district.history(number, 1), &row);
    }

    /// ORDER, ORDER-LINE and NEW-ORDER, and the two indices of orders: one order per customer, in a
    /// random order.
    fn orders(&mut self) {
        let mut customers: Vec<u16> = (1..=self.config.customers_per_district).collect();
        for last in (1..customers.len()).rev() {
            customers.swap(last, self.random.below(last as u64 + 1) as usize);
        }
        for (&customer, number) in customers.iter().zip(1..) {
            self.order(number, customer);
            let index = match self.config.indices {
                Indices::Records => self.district.newest_order(customer),
                Indices::Trees => self.district.order_of(customer, number),
            };
            let row = self.config.schema().order_number_row(self.district, customer, number);
            (self.each)(index, row.bytes());
        }
        if self.config.indices == Indices::Records {
            let oldest = self.config.delivered() + 1;
            let row = self.config.schema().order_number_row(self.district, 0, oldest);
            (self.each)(self.district.oldest_new_order(), row.bytes());
        }
    }

    fn order(&mut self, number: u32, customer: u16) {
        let delivered = number <= self.config.delivered();
        let lines = within(self.random, 5, 15) as u8;
        let made = Order {
            customer: u32::from(customer),
            entry_date: TODAY,
            carrier: if delivered { within(self.random, 1, 10) as u16 } else { 0 },
            lines: u16::from(lines),
            all_local: true,
        };
        let schema = self.config.schema();
        (self.each)(self.district.order(number), schema.order_row(number, &made).bytes());
        for line in 1..=lines {
            self.order_line(number, line, delivered);
        }
        if !delivered {
            let row = schema.new_order_row(self.district, number);
            (self.each)(self.district.new_order(number), row.bytes());
        }
    }

    fn order_line(&mut self, order: u32, line: u8, delivered: bool) {
        let item = within(self.random, 1, u64::from(self.config.items)) as u32;
        let amount = if delivered { 0 } else { within(self.random, 1, 999_999) as i64 };
        let made = OrderLine {
            item,
            supply: self.district.warehouse,
            delivery_date: if delivered { TODAY } else { 0 },
            quantity: 5,
            amount,
        };
        let mut text = [0; order_line::DIST_INFO.end - order_line::DIST_INFO.start];
        letters(self.random, text.len(), &mut text);
        let row = self.config.schema().order_line_row(&made, &text);
        (self.each)(self.district.order_line(order, line), row.bytes());
    }
}
