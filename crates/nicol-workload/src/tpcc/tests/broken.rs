//! Each condition of the audit against a state that breaks it.

use nicol_core::ids::{Key, NodeId};
use nicol_core::rng::{Purpose, Stream};
use nicol_core::txn::Txn;
use nicol_core::workload::Workload;

use super::store::Store;
use crate::tpcc::key::{self, District};
use crate::tpcc::schema::{Schema, Stock};
use crate::tpcc::{Indices, Tpcc, TpccConfig, row};

const HOME: District = District { warehouse: 2, number: 4 };

/// A store after 400 transactions.
fn used(indices: Indices) -> (Tpcc, Store) {
    let config = TpccConfig {
        items: 50,
        customers_per_district: 30,
        indices,
        ..TpccConfig::specification(3, 1)
    };
    let workload = Tpcc::new(config);
    let mut store = Store::load(&workload);
    let (mut random, mut txn) = (Stream::new(7, Purpose::Test, 0), Txn::default());
    for number in 0..400_u32 {
        let kind = workload.next(NodeId((number % 3) as u16), &mut random, &mut txn);
        while store.run(&workload, &mut txn).0 && workload.next_piece(kind, &mut txn) {}
    }
    assert_eq!(store.audit(&workload), Vec::<String>::new());
    (workload, store)
}

/// Breaks a used store; the audit must name `what`.
fn broken(what: &str, break_it: impl FnOnce(&mut Store)) {
    broken_with(Indices::Records, what, break_it);
}

fn broken_with(indices: Indices, what: &str, break_it: impl FnOnce(&mut Store)) {
    let (workload, mut store) = used(indices);
    break_it(&mut store);
    let lines = store.audit(&workload);
    assert!(lines.iter().any(|line| line.contains(what)), "{what}: {lines:#?}");
}

fn change(store: &mut Store, key: Key, change: impl FnOnce(&mut Vec<u8>)) {
    change(store.0.get_mut(&key).expect("the row is there"));
}

fn next_order(store: &Store) -> u32 {
    row::district::NEXT_ORDER.get(&store.0[&HOME.row()])
}

fn oldest(store: &Store) -> u32 {
    row::order_number::ORDER.get(&store.0[&HOME.oldest_new_order()])
}

fn order_number_row(number: u32) -> Vec<u8> {
    Schema::Specification(Indices::Records, Stock::Split)
        .order_number_row(HOME, 0, number)
        .bytes()
        .to_vec()
}

#[test]
fn condition_1_warehouse_against_districts() {
    let change = |store: &mut Store| {
        change(store, key::warehouse_ytd(2), |row| row::warehouse_ytd::YTD.add(row, 1).unwrap());
    };
    broken("condition 1:", change);
    broken("condition 8:", change);
}

#[test]
fn condition_2_next_order() {
    broken("condition 2:", |store| {
        change(store, HOME.row(), |row| row::district::NEXT_ORDER.add(row, 1).unwrap());
    });
    broken("condition 2:", |store| {
        let next = next_order(store);
        change(store, HOME.row(), |row| row::district::NEXT_ORDER.set(row, next - 1));
    });
    broken("condition 2:", |store| {
        let (oldest, next) = (oldest(store), next_order(store));
        assert!(oldest + 1 < next, "two orders are undelivered");
        store.0.remove(&HOME.new_order(next - 1));
    });
}

#[test]
fn condition_3_new_orders_are_contiguous() {
    broken("condition 3:", |store| {
        let (oldest, next) = (oldest(store), next_order(store));
        assert!(oldest + 2 < next, "three orders are undelivered");
        store.0.remove(&HOME.new_order(oldest + 1));
    });
}

#[test]
fn conditions_4_and_6_order_lines() {
    for what in ["condition 4:", "condition 6:"] {
        broken(what, |store| {
            store.0.remove(&HOME.order_line(3, 2));
        });
        broken(what, |store| {
            let lines = row::order::LINES.get(&store.0[&HOME.order(3)]);
            let line = store.0[&HOME.order_line(3, 1)].clone();
            assert!(lines < 15, "order 3 has space for a line");
            store.0.insert(HOME.order_line(3, lines as u8 + 1), line);
        });
    }
}

#[test]
fn condition_5_carrier_and_new_order() {
    broken("condition 5:", |store| {
        let oldest = oldest(store);
        change(store, HOME.order(oldest), |row| row::order::CARRIER.set(row, 1));
    });
    broken("condition 5:", |store| {
        change(store, HOME.order(1), |row| row::order::CARRIER.set(row, 0));
    });
}

#[test]
fn condition_7_delivery_dates() {
    broken("condition 7:", |store| {
        change(store, HOME.order_line(1, 1), |row| row::order_line::DELIVERY_DATE.set(row, 0));
    });
    broken("condition 7:", |store| {
        let oldest = oldest(store);
        change(store, HOME.order_line(oldest, 1), |row| {
            row::order_line::DELIVERY_DATE.set(row, 1);
        });
    });
}

#[test]
fn conditions_8_and_9_history() {
    for what in ["condition 8:", "condition 9:"] {
        broken(what, |store| {
            change(store, HOME.history(3, 1), |row| row::history::AMOUNT.add(row, 1).unwrap());
        });
        broken(what, |store| {
            change(store, HOME.history(3, 1), |row| row::history::WAREHOUSE.set(row, 0));
        });
    }
    broken("condition 9:", |store| {
        change(store, HOME.row(), |row| row::district::YTD.add(row, 1).unwrap());
    });
}

#[test]
fn conditions_10_and_12_balances() {
    for what in ["condition 10:", "condition 12:"] {
        broken(what, |store| {
            change(store, HOME.customer(5), |row| row::customer::BALANCE.add(row, 1).unwrap());
        });
    }
    broken("condition 12:", |store| {
        change(store, HOME.customer(5), |row| row::customer::YTD_PAYMENT.add(row, 1).unwrap());
    });
}

#[test]
fn condition_11_delivered_orders() {
    broken("condition 11:", |store| {
        let oldest = oldest(store);
        store.0.insert(HOME.oldest_new_order(), order_number_row(oldest + 1));
    });
    broken("condition 11:", |store| {
        let oldest = oldest(store);
        store.0.remove(&HOME.new_order(oldest));
    });
}

#[test]
fn stock_history_and_indices() {
    broken("stock", |store| {
        change(store, key::stock(1, 9), |row| row::stock::YTD.add(row, 1).unwrap());
    });
    broken("stock", |store| {
        change(store, key::stock(1, 9), |row| row::stock::REMOTE_ORDERS.add(row, 1).unwrap());
    });
    broken("history:", |store| {
        let payments = row::customer::PAYMENTS.get(&store.0[&HOME.customer(5)]);
        let paid = store.0[&HOME.history(5, 1)].clone();
        store.0.insert(HOME.history(5, payments + 1), paid);
    });
    broken("index:", |store| {
        store.0.insert(HOME.newest_order(5), order_number_row(1_000));
    });
    broken("index:", |store| {
        let oldest = oldest(store);
        store.0.insert(HOME.oldest_new_order(), order_number_row(oldest + 1));
    });
    broken("deliveries:", |store| {
        change(store, HOME.customer(5), |row| {
            let deliveries = row::customer::DELIVERIES.get(row);
            row::customer::DELIVERIES.set(row, deliveries + 1);
        });
    });
}

#[test]
fn orders_of_a_customer_where_trees_are_scanned() {
    let order_of = |store: &Store| {
        let customer = row::order::CUSTOMER
            .get(row::parse::<{ row::order::LEN }>(&store.0[&HOME.order(2)]).unwrap());
        HOME.order_of(customer as u16, 2)
    };
    broken_with(Indices::Trees, "is lost", |store| {
        store.0.remove(&order_of(store));
    });
    broken_with(Indices::Trees, "index:", |store| {
        store.0.insert(order_of(store), order_number_row(1_000));
    });
    broken_with(Indices::Trees, "condition 3", |store| {
        let first = (1..).find(|&order| store.0.contains_key(&HOME.new_order(order))).unwrap();
        store.0.remove(&HOME.new_order(first + 1));
    });
}

#[test]
fn lost_and_malformed_rows() {
    let keys = [
        key::warehouse(1),
        key::warehouse_ytd(1),
        HOME.row(),
        HOME.customer(2),
        HOME.history(2, 1),
        HOME.newest_order(2),
        HOME.oldest_new_order(),
        key::stock(0, 3),
    ];
    for key in keys {
        broken("is lost", |store| {
            store.0.remove(&key);
        });
        broken("is malformed", |store| change(store, key, |row| row.truncate(3)));
    }
}

#[test]
fn the_sums_of_the_committed_transactions() {
    let (workload, store) = used(Indices::Records);
    let audit = |totals: &[i128]| workload.audit(&mut store.clone(), totals).join("\n");
    let lines = audit(&[0; 5]);
    for what in ["orders entered: ", "cents paid: ", "orders delivered: "] {
        assert!(lines.contains(what), "{lines}");
    }
    // The lines say what was found: these sums are the right ones.
    let found = |what: &str| -> i128 {
        let line = lines.lines().find_map(|line| line.strip_prefix(what)).unwrap();
        line.split(' ').next().unwrap().parse().unwrap()
    };
    let sums =
        [found("orders entered: "), found("cents paid: "), 0, found("orders delivered: "), 0];
    assert_eq!(audit(&sums), "");
    assert!(sums[0] > 140, "New-Orders are 45 %");
}
