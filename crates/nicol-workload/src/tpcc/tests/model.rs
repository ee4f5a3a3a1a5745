//! The five transactions once more, on ordered maps and without indices: what procedures are
//! compared with.

use std::collections::{BTreeMap, BTreeSet};

use nicol_core::ids::Key;

use super::store::Store;
use crate::tpcc::TpccConfig;
use crate::tpcc::input::{Customer, Delivery, NewOrder, OrderStatus, Payment, StockLevel};
use crate::tpcc::key::{self, District, districts};
use crate::tpcc::random::last_name;
use crate::tpcc::row;
use crate::tpcc::schema::Schema;

#[derive(Clone, Debug, PartialEq, Eq)]
struct CustomerRow {
    first: Vec<u8>,
    last: Vec<u8>,
    discount: i64,
    balance: i64,
    ytd: i64,
    payments: u32,
    deliveries: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct LineRow {
    item: u32,
    supply: u16,
    date: u32,
    quantity: u32,
    amount: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct OrderRow {
    customer: u16,
    carrier: u16,
    date: u32,
    all_local: bool,
    lines: Vec<LineRow>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct StockRow {
    quantity: u16,
    ytd: u32,
    orders: u32,
    remote: u32,
}

/// Tax, year-to-date sum and next order.
type DistrictRow = (i64, i64, u32);

/// The whole database; two are equal if every column that transactions change is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Model {
    warehouses: BTreeMap<u16, (i64, i64)>,
    districts: BTreeMap<District, DistrictRow>,
    customers: BTreeMap<(District, u16), CustomerRow>,
    orders: BTreeMap<(District, u32), OrderRow>,
    new_orders: BTreeSet<(District, u32)>,
    prices: BTreeMap<u32, i64>,
    stock: BTreeMap<(u16, u32), StockRow>,
    /// By customer's district, customer and number: where it was paid, when, how much.
    history: BTreeMap<(District, u16, u32), (District, u32, i64)>,
}

impl Model {
    /// The content of `store`.
    pub(super) fn of(config: &TpccConfig, store: &Store) -> Self {
        let mut model = Self {
            warehouses: BTreeMap::new(),
            districts: BTreeMap::new(),
            customers: BTreeMap::new(),
            orders: BTreeMap::new(),
            new_orders: BTreeSet::new(),
            prices: BTreeMap::new(),
            stock: BTreeMap::new(),
            history: BTreeMap::new(),
        };
        let get = |key: Key| store.0.get(&key);
        for number in 0..config.warehouses() {
            let row = get(key::warehouse(number)).unwrap();
            let tax = i64::from(row::warehouse::TAX.get(row));
            let ytd = row::warehouse_ytd::YTD.get(get(key::warehouse_ytd(number)).unwrap());
            model.warehouses.insert(number, (tax, ytd));
            for item in 1..=config.items {
                let stock = get(key::stock(number, item)).unwrap();
                model.stock.insert((number, item), stock_row(stock));
                let partition = number % config.nodes;
                let item_row = get(config.schema().item(partition, item)).unwrap();
                let price = i64::from(row::item::PRICE.get(item_row));
                let known = *model.prices.entry(item).or_insert(price);
                assert_eq!(known, price, "every copy of ITEM is the same");
            }
            districts(number).for_each(|district| model.read_district(config, store, district));
        }
        model
    }

    fn read_district(&mut self, config: &TpccConfig, store: &Store, district: District) {
        let get = |key: Key| store.0.get(&key);
        let found = get(district.row()).unwrap();
        let next = row::district::NEXT_ORDER.get(found);
        let tax = i64::from(row::district::TAX.get(found));
        self.districts.insert(district, (tax, row::district::YTD.get(found), next));
        for number in 1..=config.customers_per_district {
            let key = config.schema().customer(district, number);
            let found = customer_row(get(key).unwrap());
            for payment in 1..=found.payments {
                let paid = get(district.history(number, payment)).unwrap();
                self.history.insert((district, number, payment), history_row(paid));
            }
            self.customers.insert((district, number), found);
        }
        for number in 1..next {
            let found = get(district.order(number)).unwrap();
            let schema = config.schema();
            let found = schema.order(number, found).unwrap();
            let line = |line| get(district.order_line(number, line)).unwrap();
            let lines = (1..=found.lines as u8).map(|number| line_row(schema, line(number)));
            let order = OrderRow {
                customer: found.customer as u16,
                carrier: found.carrier,
                date: found.entry_date,
                all_local: found.all_local,
                lines: lines.collect(),
            };
            self.orders.insert((district, number), order);
            if get(district.new_order(number)).is_some() {
                self.new_orders.insert((district, number));
            }
        }
    }

    fn customer(&self, district: District, customer: Customer) -> u16 {
        let number = match customer {
            Customer::Id(number) => return number,
            Customer::LastName(number) => number,
        };
        let mut last = [0; 16];
        last_name(number, &mut last);
        let mut found: Vec<(Vec<u8>, u16)> = self
            .customers
            .range((district, 0)..=(district, u16::MAX))
            .filter(|(_, row)| row.last == last)
            .map(|((_, number), row)| (row.first.clone(), *number))
            .collect();
        found.sort();
        found[found.len().div_ceil(2) - 1].1
    }

    /// Returns the total in cents and the order's number; `None` if an item does not exist.
    pub(super) fn new_order(&mut self, input: &NewOrder) -> Option<(i64, u32)> {
        if input.lines().iter().any(|line| !self.prices.contains_key(&line.item)) {
            return None;
        }
        let home = input.home;
        let (district_tax, _, next) = self.districts.get_mut(&home)?;
        let number = *next;
        *next += 1;
        let mut lines = Vec::new();
        for line in input.lines() {
            let (quantity, remote) = (u32::from(line.quantity), line.supply != home.warehouse);
            let stock = self.stock.get_mut(&(line.supply, line.item))?;
            if u32::from(stock.quantity) >= quantity + 10 {
                stock.quantity -= u16::from(line.quantity);
            } else {
                stock.quantity = stock.quantity + 91 - u16::from(line.quantity);
            }
            stock.ytd += quantity;
            stock.orders += 1;
            stock.remote += u32::from(remote);
            let amount = self.prices[&line.item] * i64::from(quantity);
            lines.push(LineRow { item: line.item, supply: line.supply, date: 0, quantity, amount });
        }
        let sum: i64 = lines.iter().map(|line| line.amount).sum();
        let taxes = self.warehouses[&home.warehouse].0 + *district_tax;
        let discount = self.customers[&(home, input.customer)].discount;
        let all_local = input.lines().iter().all(|line| line.supply == home.warehouse);
        let (customer, date) = (input.customer, input.date);
        self.orders
            .insert((home, number), OrderRow { customer, carrier: 0, date, all_local, lines });
        self.new_orders.insert((home, number));
        Some((sum * (10_000 - discount) * (10_000 + taxes) / 100_000_000, number))
    }

    /// Returns the customer and the new balance.
    pub(super) fn payment(&mut self, input: &Payment) -> (u16, i64) {
        let amount = i64::from(input.amount);
        let number = self.customer(input.theirs, input.customer);
        self.warehouses.get_mut(&input.home.warehouse).unwrap().1 += amount;
        self.districts.get_mut(&input.home).unwrap().1 += amount;
        let customer = self.customers.get_mut(&(input.theirs, number)).unwrap();
        customer.balance -= amount;
        customer.ytd += amount;
        customer.payments += 1;
        let key = (input.theirs, number, customer.payments);
        self.history.insert(key, (input.home, input.date, amount));
        (number, customer.balance)
    }

    /// Returns the balance, the newest order, its number of lines and its carrier.
    pub(super) fn order_status(&self, input: &OrderStatus) -> (i64, u32, u8, u16) {
        let number = self.customer(input.home, input.customer);
        let (newest, order) = self
            .orders
            .range((input.home, 0)..=(input.home, u32::MAX))
            .rfind(|(_, order)| order.customer == number)
            .unwrap();
        let balance = self.customers[&(input.home, number)].balance;
        (balance, newest.1, order.lines.len() as u8, order.carrier)
    }

    /// Returns the order delivered for each district, 0 for none.
    pub(super) fn delivery(&mut self, input: &Delivery) -> Vec<u32> {
        let mut delivered = Vec::new();
        for district in input.districts() {
            let oldest = self.new_orders.range((district, 0)..=(district, u32::MAX)).next();
            let Some(&oldest) = oldest else {
                delivered.push(0);
                continue;
            };
            self.new_orders.remove(&oldest);
            let order = self.orders.get_mut(&oldest).unwrap();
            order.carrier = u16::from(input.carrier);
            let customer = self.customers.get_mut(&(district, order.customer)).unwrap();
            for line in &mut order.lines {
                line.date = input.date;
                customer.balance += line.amount;
            }
            customer.deliveries += 1;
            delivered.push(oldest.1);
        }
        delivered
    }

    /// Returns the number of distinct items that are short.
    pub(super) fn stock_level(&self, input: &StockLevel) -> u32 {
        let next = self.districts[&input.home].2;
        let items: BTreeSet<u32> = self
            .orders
            .range((input.home, next.saturating_sub(20))..(input.home, next))
            .flat_map(|(_, order)| order.lines.iter().map(|line| line.item))
            .collect();
        let quantity = |item: &u32| self.stock[&(input.home.warehouse, *item)].quantity;
        items.iter().filter(|item| quantity(item) < input.threshold).count() as u32
    }
}

fn customer_row(found: &[u8]) -> CustomerRow {
    use row::customer::*;
    CustomerRow {
        first: found[FIRST].to_vec(),
        last: found[LAST].to_vec(),
        discount: i64::from(DISCOUNT.get(found)),
        balance: BALANCE.get(found),
        ytd: YTD_PAYMENT.get(found),
        payments: PAYMENTS.get(found),
        deliveries: DELIVERIES.get(found),
    }
}

fn line_row(schema: Schema, found: &[u8]) -> LineRow {
    let found = schema.order_line(found).unwrap();
    LineRow {
        item: found.item,
        supply: found.supply,
        date: found.delivery_date,
        quantity: found.quantity,
        amount: found.amount,
    }
}

fn stock_row(found: &[u8]) -> StockRow {
    use row::stock::*;
    StockRow {
        quantity: QUANTITY.get(found),
        ytd: YTD.get(found),
        orders: ORDERS.get(found),
        remote: REMOTE_ORDERS.get(found),
    }
}

fn history_row(found: &[u8]) -> (District, u32, i64) {
    use row::history::*;
    let paid_at = District { warehouse: WAREHOUSE.get(found), number: DISTRICT.get(found) };
    (paid_at, DATE.get(found), AMOUNT.get(found))
}
