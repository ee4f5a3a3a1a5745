//! The consistency conditions, judged on the final state. (3.3.2)
//!
//! Conditions 1 to 12 are the specification's; 11, which it states for the initial population only,
//! is generalised: orders that have left NEW-ORDER are those before the oldest undelivered one. The
//! others check stock, history and indices against the transactions.

use std::collections::BTreeMap;

use nicol_core::ids::Key;
use nicol_core::records::Records;

use super::Kind;
use super::config::{Mix, TpccConfig};
use super::key::{self, DISTRICTS, District, LINES_MAX, districts};
use super::load::FIRST_PAYMENT;
use super::row::{customer, district, history, parse, stock, warehouse, warehouse_ytd};
use super::schema::Indices;
use crate::placement::Violations;

/// The quantities that New-Orders took from a stock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Taken {
    quantity: u32,
    orders: u32,
    remote: u32,
}

/// A customer's state as computed from the rows of a district.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    delivered: i64,
    deliveries: u16,
    newest: u32,
}

/// An order as the audit sees it.
struct Seen {
    customer: usize,
    lines: u32,
    amount: i64,
    delivered: bool,
}

/// An audit in progress.
pub(super) struct Audit<'a> {
    config: &'a TpccConfig,
    state: &'a mut dyn Records,
    violations: Violations,
    /// Sums of H_AMOUNT by H_W_ID and H_D_ID.
    paid: BTreeMap<District, i64>,
    taken: BTreeMap<Key, Taken>,
    /// Orders entered, orders delivered, and cents paid since the initial population.
    entered: i128,
    delivered: i128,
    received: i128,
}

impl<'a> Audit<'a> {
    pub(super) fn new(config: &'a TpccConfig, state: &'a mut dyn Records) -> Self {
        Self {
            config,
            state,
            violations: Violations::default(),
            paid: BTreeMap::new(),
            taken: BTreeMap::new(),
            entered: 0,
            delivered: 0,
            received: 0,
        }
    }

    pub(super) fn into_lines(self) -> Vec<String> {
        self.violations.into_lines()
    }

    fn expect(&mut self, holds: bool, line: impl FnOnce() -> String) {
        if !holds {
            self.violations.add(line);
        }
    }

    /// The row of `key`; a missing or malformed one is noted.
    fn row<const LEN: usize>(&mut self, key: Key) -> Option<[u8; LEN]> {
        let row = self.find(key);
        self.expect(row.is_some(), || format!("{key:?} is lost"));
        row
    }

    /// The row of `key`, if there is one; a malformed one is noted.
    fn find<const LEN: usize>(&mut self, key: Key) -> Option<[u8; LEN]> {
        let value = self.state.read(key)?;
        let row = parse(&value).copied();
        self.expect(row.is_some(), || format!("{key:?} is malformed"));
        row
    }

    /// Every condition on the state alone.
    pub(super) fn conditions(&mut self) {
        for number in 0..self.config.warehouses() {
            districts(number).for_each(|district| self.district(district));
        }
        for number in 0..self.config.warehouses() {
            self.warehouse(number);
        }
        self.stocks();
    }

    /// Compares the outputs of committed transactions with the final state.
    pub(super) fn totals(&mut self, totals: &[i128]) {
        let first = self.config.mix.kinds().start;
        let mut compare = |kind: Kind, found: i128, what: &str| {
            // A kind that the mix has not has done nothing.
            let number = (kind as usize).checked_sub(first);
            let reported = number.and_then(|number| totals.get(number)).copied().unwrap_or(0);
            if found != reported {
                self.violations.add(|| format!("{what}: {found} found, {reported} committed"));
            }
        };
        compare(Kind::NewOrder, self.entered, "orders entered");
        // New-Order alone may have the rows of the baselines' code, which count nothing else.
        if self.config.mix != Mix::NewOrderOnly {
            compare(Kind::Payment, self.received, "cents paid");
            compare(Kind::Delivery, self.delivered, "orders delivered");
        }
    }

    fn warehouse(&mut self, number: u16) {
        self.row::<{ warehouse::LEN }>(key::warehouse(number));
        let key = key::warehouse_ytd(number);
        let Some(row) = self.row::<{ warehouse_ytd::LEN }>(key) else { return };
        let ytd = warehouse_ytd::YTD.get(&row);
        let (mut of_districts, mut of_history) = (0, 0);
        for district in districts(number) {
            let Some(row) = self.row::<{ district::LEN }>(district.row()) else { return };
            let district_ytd = district::YTD.get(&row);
            let paid = self.paid.get(&district).copied().unwrap_or(0);
            self.expect(district_ytd == paid, || {
                format!("condition 9: {district:?}: D_YTD {district_ytd}, sum of H_AMOUNT {paid}")
            });
            of_districts += district_ytd;
            of_history += paid;
        }
        self.expect(ytd == of_districts, || {
            format!("condition 1: warehouse {number}: W_YTD {ytd}, sum of D_YTD {of_districts}")
        });
        self.expect(ytd == of_history, || {
            format!("condition 8: warehouse {number}: W_YTD {ytd}, sum of H_AMOUNT {of_history}")
        });
        let initial = i64::from(self.config.customers_per_district) * FIRST_PAYMENT;
        self.received += i128::from(ytd) - i128::from(initial) * i128::from(DISTRICTS);
    }

    /// Every STOCK row, in the order of memory: to look each up would take longer than most runs.
    fn stocks(&mut self) {
        let Self { config, state, violations, taken, .. } = self;
        let (len, mut rows) = (config.schema().stock_len(), 0);
        state.for_each(&mut |key, row| {
            if key.table() != key::STOCK {
                return;
            }
            rows += 1;
            if row.len() != len {
                return violations.add(|| format!("{key:?} is malformed"));
            }
            let (orders, changes) = (stock::ORDERS.get(row), stock::CHANGES.get(row));
            if orders != changes {
                violations.add(|| format!("stock {key:?}: {orders} orders, {changes} changes"));
            }
            let (quantity, remote) = (stock::YTD.get(row), stock::REMOTE_ORDERS.get(row));
            let found = Taken { quantity, orders, remote };
            // Most rows are as they were loaded, and no order names them.
            if found != Taken::default() {
                let expected = taken.remove(&key).unwrap_or_default();
                if found != expected {
                    violations.add(|| format!("stock {key:?}: {found:?}, ordered {expected:?}"));
                }
            }
        });
        for (key, expected) in std::mem::take(taken) {
            violations.add(|| format!("stock {key:?}: nothing, ordered {expected:?}"));
        }
        if rows != u64::from(config.warehouses()) * u64::from(config.items) {
            self.find_lost_stock();
        }
    }

    /// Notes the STOCK rows that are not there.
    fn find_lost_stock(&mut self) {
        for warehouse in 0..self.config.warehouses() {
            for item in 1..=self.config.items {
                let key = key::stock(warehouse, item);
                let found = self.state.read(key).is_some();
                self.expect(found, || format!("{key:?} is lost"));
            }
        }
    }

    fn district(&mut self, district: District) {
        let customers = usize::from(self.config.customers_per_district);
        let Some(row) = self.row::<{ district::LEN }>(district.row()) else { return };
        let next = district::NEXT_ORDER.get(&row);
        let mut accounts = vec![Account::default(); customers];
        let mut pending = Vec::new();
        let (mut stated, mut counted) = (0, 0);
        for number in 1..next {
            if self.has_new_order(district, number) {
                pending.push(number);
            }
            let is_pending = pending.last() == Some(&number);
            let Some((seen, lines)) = self.order(district, number, is_pending) else { continue };
            stated += lines;
            counted += seen.lines;
            let Some(account) = accounts.get_mut(seen.customer.wrapping_sub(1)) else {
                self.violations
                    .add(|| format!("{district:?} order {number}: no customer {}", seen.customer));
                continue;
            };
            account.newest = number;
            self.indexed(district, seen.customer as u16, number);
            if seen.delivered {
                account.delivered += seen.amount;
                let loaded = number <= self.config.delivered();
                account.deliveries = account.deliveries.saturating_add(u16::from(!loaded));
            }
        }
        let first = pending.first().copied().unwrap_or(next);
        let Some(oldest) = self.oldest(district, first) else { return };
        self.queue(district, &pending, next, oldest);
        self.expect(stated == counted, || {
            format!("condition 4: {district:?}: sum of O_OL_CNT {stated}, order lines {counted}")
        });
        for (account, number) in accounts.iter().zip(1..) {
            self.customer(district, number, account);
        }
        self.entered += i128::from(next) - i128::from(self.config.customers_per_district) - 1;
        self.delivered += i128::from(oldest) - i128::from(self.config.delivered()) - 1;
    }

    /// The order that the index names at `key`; a missing or malformed row is noted.
    fn order_number(&mut self, key: Key) -> Option<u32> {
        let row = self.state.read(key);
        self.expect(row.is_some(), || format!("{key:?} is lost"));
        let number = self.config.schema().order_number(&row?);
        self.expect(number.is_some(), || format!("{key:?} is malformed"));
        number
    }

    /// The oldest undelivered order as the index has it, if that is a record.
    fn oldest(&mut self, district: District, first: u32) -> Option<u32> {
        match self.config.indices {
            Indices::Records => self.order_number(district.oldest_new_order()),
            Indices::Trees => Some(first),
        }
    }

    /// Where trees are scanned, every order is among its customer's.
    fn indexed(&mut self, district: District, customer: u16, order: u32) {
        if self.config.indices == Indices::Trees {
            let named = self.order_number(district.order_of(customer, order));
            let named = named.is_none_or(|named| named == order);
            self.expect(named, || format!("index: {district:?} order {order} has another number"));
        }
    }

    fn has_new_order(&mut self, district: District, number: u32) -> bool {
        let Some(row) = self.state.read(district.new_order(number)) else { return false };
        let expected = self.config.schema().new_order_row(district, number);
        self.expect(*row == *expected.bytes(), || {
            format!("{district:?} new order {number} names another order")
        });
        true
    }

    /// Conditions 2, 3 and 11: the numbers of orders and of undelivered ones.
    fn queue(&mut self, district: District, pending: &[u32], next: u32, oldest: u32) {
        let order = self.state.read(district.order(next));
        let undelivered = self.state.read(district.new_order(next));
        self.expect(order.is_none() && undelivered.is_none(), || {
            format!("condition 2: {district:?}: order {next}, which is the next one, exists")
        });
        if let (Some(first), Some(last)) = (pending.first(), pending.last()) {
            self.expect(*last == next - 1, || {
                format!("condition 2: {district:?}: newest undelivered {last}, next order {next}")
            });
            let span = last - first + 1;
            let count = pending.len() as u32;
            self.expect(span == count, || {
                format!("condition 3: {district:?}: {count} new orders in {first}..={last}")
            });
            self.expect(*first == oldest, || {
                format!("index: {district:?}: oldest undelivered is {first}, index says {oldest}")
            });
        }
        let left = next.saturating_sub(1).checked_sub(pending.len() as u32);
        self.expect(left == oldest.checked_sub(1), || {
            format!(
                "condition 11: {district:?}: {} orders, {} undelivered, {} delivered",
                next.saturating_sub(1),
                pending.len(),
                oldest.saturating_sub(1)
            )
        });
    }

    /// Conditions 2, 5, 6 and 7 of one order; returns it, and O_OL_CNT.
    fn order(&mut self, district: District, number: u32, pending: bool) -> Option<(Seen, u32)> {
        let Some(row) = self.state.read(district.order(number)) else {
            self.violations.add(|| format!("condition 2: {district:?}: order {number} is lost"));
            return None;
        };
        let Some(order) = self.config.schema().order(number, &row) else {
            self.violations.add(|| format!("{district:?} order {number} holds another order"));
            return None;
        };
        let carrier = order.carrier;
        self.expect((carrier == 0) == pending, || {
            format!("condition 5: {district:?} order {number}: carrier {carrier}, new {pending}")
        });
        let mut seen = Seen {
            customer: order.customer as usize,
            lines: 0,
            amount: 0,
            delivered: carrier != 0,
        };
        for line in 1..=LINES_MAX {
            self.order_line(district, number, line, &mut seen);
        }
        let stated = u32::from(order.lines);
        let found = seen.lines;
        self.expect(stated == found, || {
            format!("condition 6: {district:?} order {number}: O_OL_CNT {stated}, lines {found}")
        });
        Some((seen, stated))
    }

    fn order_line(&mut self, district: District, number: u32, line: u8, seen: &mut Seen) {
        let key = district.order_line(number, line);
        let Some(row) = self.state.read(key) else { return };
        let Some(found) = self.config.schema().order_line(&row) else {
            self.violations.add(|| format!("{key:?} is malformed"));
            return;
        };
        seen.lines += 1;
        seen.amount += found.amount;
        let date = found.delivery_date;
        let delivered = seen.delivered;
        self.expect((date != 0) == delivered, || {
            format!(
                "condition 7: {district:?} order {number} line {line}: date {date}, carrier set \
                 {delivered}"
            )
        });
        if number > u32::from(self.config.customers_per_district) {
            let taken = self.taken.entry(key::stock(found.supply, found.item)).or_default();
            taken.quantity += found.quantity;
            taken.orders += 1;
            taken.remote += u32::from(found.supply != district.warehouse);
        }
    }

    /// Conditions 10 and 12 of one customer, its history and its index.
    fn customer(&mut self, district: District, number: u16, account: &Account) {
        let key = self.config.schema().customer(district, number);
        let Some(row) = self.row::<{ customer::LEN }>(key) else { return };
        let payments = customer::PAYMENTS.get(&row);
        let mut paid = 0_i64;
        for payment in 1..=payments {
            let key = district.history(number, payment);
            let Some(row) = self.row::<{ history::LEN }>(key) else { break };
            let amount = history::AMOUNT.get(&row);
            let at = District {
                warehouse: history::WAREHOUSE.get(&row),
                number: history::DISTRICT.get(&row),
            };
            *self.paid.entry(at).or_default() += amount;
            paid += amount;
        }
        let beyond = self.find::<{ history::LEN }>(district.history(number, payments + 1));
        self.expect(beyond.is_none(), || {
            format!("history: {district:?} customer {number} made more than {payments} payments")
        });
        let (balance, ytd) = (customer::BALANCE.get(&row), customer::YTD_PAYMENT.get(&row));
        let delivered = account.delivered;
        self.expect(balance == delivered - paid, || {
            format!(
                "condition 10: {district:?} customer {number}: C_BALANCE {balance}, delivered \
                 {delivered}, paid {paid}"
            )
        });
        self.expect(balance + ytd == delivered, || {
            format!(
                "condition 12: {district:?} customer {number}: C_BALANCE {balance}, \
                 C_YTD_PAYMENT {ytd}, delivered {delivered}"
            )
        });
        let deliveries = customer::DELIVERIES.get(&row);
        self.expect(deliveries == account.deliveries, || {
            format!(
                "deliveries: {district:?} customer {number}: {deliveries} counted, {} made",
                account.deliveries
            )
        });
        if self.config.indices == Indices::Trees {
            return;
        }
        let newest = self.order_number(district.newest_order(number)).unwrap_or(0);
        self.expect(newest == account.newest, || {
            format!(
                "index: {district:?} customer {number}: newest order {}, index says {newest}",
                account.newest
            )
        });
    }
}
