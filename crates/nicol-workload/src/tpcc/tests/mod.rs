//! The loader, the five transactions against a model, and what clients draw.

mod broken;
mod model;
mod store;

use super::features::Features;
use std::collections::BTreeMap;

use nicol_core::ids::{Key, NodeId, TableId, Version};
use nicol_core::records::RecordSource;
use nicol_core::rng::{Purpose, Stream};
use nicol_core::txn::{ProcedureId, Procedures, Txn, Verdict};
use nicol_core::workload::Workload;

use super::input::{Customer, Delivery, NewOrder, OrderStatus, Payment, StockLevel};
use super::key::{self, District};
use super::{
    Chopping, Indices, LOGIC, Mix, PROCEDURES, Procedure, Schema, Shipped, Stock, Suppliers,
    Terminals, Tpcc, TpccConfig, row,
};
use crate::placement::mix;
use model::Model;
use store::Store;

fn small() -> TpccConfig {
    TpccConfig { items: 100, customers_per_district: 30, ..TpccConfig::specification(3, 2) }
}

fn random(owner: u32) -> Stream {
    Stream::new(11, Purpose::Test, owner)
}

fn count_by_table(store: &Store) -> BTreeMap<TableId, u64> {
    let mut counts = BTreeMap::new();
    for key in store.0.keys() {
        *counts.entry(key.table()).or_default() += 1;
    }
    counts
}

#[test]
fn the_loader_makes_the_specifications_population() {
    let config = TpccConfig::specification(1, 1);
    let workload = Tpcc::new(config);
    let store = Store::load(&workload);
    let counts = count_by_table(&store);
    for (table, expected) in [
        (key::WAREHOUSE, 1),
        (key::DISTRICT, 10),
        (key::CUSTOMER, 30_000),
        (key::HISTORY, 30_000),
        (key::NEW_ORDER, 9_000),
        (key::ORDER, 30_000),
        (key::ITEM, 100_000),
        (key::STOCK, 100_000),
        (key::STOCK_TEXTS, 100_000),
        (key::CUSTOMERS_BY_NAME, 10_000),
        (key::NEWEST_ORDER, 30_000),
        (key::OLDEST_NEW_ORDER, 10),
    ] {
        assert_eq!(counts[&table], expected, "{table:?}");
    }
    let lines = counts[&key::ORDER_LINE];
    assert!(lines.abs_diff(300_000) < 3_000, "five to fifteen lines an order: {lines}");
    assert!(store.0.len() as u64 <= workload.records_per_shard());
    assert_eq!(store.audit(&workload), Vec::<String>::new());
}

#[test]
fn every_shard_holds_its_warehouses_and_a_copy_of_the_items() {
    let workload = Tpcc::new(small());
    let view = nicol_core::view::View::new(3, 1, 1, 1).unwrap();
    for shard in (0..3).map(nicol_core::ids::ShardId) {
        let (mut items, mut partitions, mut records) = (0, Vec::new(), 0);
        workload.load(&view, shard, &mut |key, _| {
            records += 1;
            items += u32::from(key.table() == key::ITEM);
            partitions.push(key.partition().unwrap());
        });
        assert_eq!(items, 100);
        partitions.sort_unstable();
        partitions.dedup();
        assert_eq!(partitions, [shard.0, shard.0 + 3], "warehouses");
        assert!(records <= workload.records_per_shard());
    }
}

/// Every hashed row is of a table that the workload names, which has a slot for it.
fn check_tables(workload: &Tpcc, shards: u64, rows: &BTreeMap<Key, Vec<u8>>) {
    let tables = workload.hashed_tables();
    let mut counts = BTreeMap::<_, (u64, u64)>::new();
    for (key, value) in rows.iter().filter(|(key, _)| !key.is_ordered()) {
        let size = tables.iter().find(|size| size.table == key.table());
        let size = size.unwrap_or_else(|| panic!("{key:?} is of no table"));
        let longest = size.longer.iter().map(|(bytes, _)| *bytes as usize).max().unwrap_or(0);
        assert!(value.len() <= size.value_bytes.max(longest), "{key:?}: {} bytes", value.len());
        let (count, long) = counts.entry(size.table).or_default();
        *count += 1;
        *long += if value.len() > size.value_bytes { value.len() as u64 } else { 0 };
    }
    for size in &tables {
        let &(count, long) = counts.get(&size.table).unwrap_or_else(|| panic!("{size:?} is empty"));
        assert!(count <= shards * (size.records + size.growth), "{count} rows in {size:?}");
        let longer: u64 = size.longer.iter().map(|(bytes, rows)| u64::from(*bytes) * rows).sum();
        assert!(long <= shards * longer, "{long} bytes of long rows in {size:?}");
    }
    let capacity: u64 = tables.iter().map(|size| size.records + size.growth).sum();
    let hashed = workload.records_per_shard() - workload.ordered_per_shard();
    assert!(capacity <= hashed + workload.growth_per_shard(), "of all that a shard may have");
}

/// Runs 4,000 transactions and their pieces, each beside the model's.
fn against_the_model(config: TpccConfig) {
    let workload = Tpcc::new(config);
    let mut store = Store::load(&workload);
    let mut model = Model::of(&config, &store);
    let (mut random, mut txn) = (random(1), Txn::default());
    let mut rounds_max = [0; PROCEDURES];
    let mut refused = 0;
    for number in 0..4_000_u32 {
        let kind = workload.next(NodeId((number % 3) as u16), &mut random, &mut txn);
        loop {
            let procedure = usize::from(txn.procedure.0) % PROCEDURES;
            let (committed, rounds) = store.run(&workload, &mut txn);
            rounds_max[procedure] = rounds.max(rounds_max[procedure]);
            refused += u32::from(!committed);
            compare(&mut model, &txn, committed);
            if !committed || !workload.next_piece(kind, &mut txn) {
                break;
            }
        }
    }
    assert_eq!(Model::of(&config, &store), model);
    assert_eq!(store.audit(&workload), Vec::<String>::new());
    check_tables(&workload, config.nodes.into(), &store.0);
    let new_orders = match config.mix {
        Mix::Full => 45,
        Mix::NewOrderAndPayment => 50,
        Mix::PaymentOnly => 0,
        Mix::NewOrderOnly => 100,
    };
    let expected = 40 * new_orders / 100;
    assert!((expected / 3..=2 * expected).contains(&refused), "1 % name no item: {refused}");
    // A scan that finds an order's lines saves the round that reads the orders.
    let scans = usize::from(config.indices == Indices::Trees);
    let stock_level = if config.chopping == Chopping::Whole { 4 } else { 3 } - scans;
    let next_order = if config.chopping == Chopping::Whole { 0 } else { 1 };
    let order_status = 4 - scans;
    let mut expected = [2, 3, order_status, 3, next_order, stock_level];
    match config.mix {
        Mix::Full => {}
        Mix::NewOrderAndPayment => expected[2..].fill(0),
        Mix::PaymentOnly => expected = [0, expected[1], 0, 0, 0, 0],
        Mix::NewOrderOnly => expected[1..].fill(0),
    }
    assert_eq!(rounds_max, expected, "EXECUTE rounds");
}

/// Runs `txn`'s procedure on the model and compares what both put out.
fn compare(model: &mut Model, txn: &Txn, committed: bool) {
    let (args, output) = (txn.args(), &txn.output[..]);
    let i64_at = |at: usize| i64::from_le_bytes(output[at..at + 8].try_into().unwrap());
    let u32_at = |at: usize| u32::from_le_bytes(output[at..at + 4].try_into().unwrap());
    let u16_at = |at: usize| u16::from_le_bytes(output[at..at + 2].try_into().unwrap());
    let procedure = usize::from(txn.procedure.0) % PROCEDURES;
    if procedure == Procedure::NewOrder as usize {
        let expected = model.new_order(&NewOrder::parse(args).unwrap());
        assert_eq!(expected.is_some(), committed);
        let Some(expected) = expected else { return };
        assert_eq!((i64_at(8), u32_at(16)), expected);
        return;
    }
    assert!(committed, "only New-Orders refuse");
    if procedure == Procedure::Payment as usize {
        let input = Payment::parse(args).unwrap();
        assert_eq!((u16_at(8), i64_at(10)), model.payment(&input));
        assert_eq!(i64_at(0), i64::from(input.amount));
    } else if procedure == Procedure::OrderStatus as usize {
        let expected = model.order_status(&OrderStatus::parse(args).unwrap());
        assert_eq!((i64_at(8), u32_at(16), output[20], u16_at(21)), expected);
    } else if procedure == Procedure::Delivery as usize {
        let expected = model.delivery(&Delivery::parse(args).unwrap());
        let orders: Vec<u32> = (8..output.len()).step_by(4).map(u32_at).collect();
        assert_eq!(orders, expected);
        assert_eq!(i64_at(0), expected.iter().filter(|order| **order > 0).count() as i64);
    } else if procedure == Procedure::StockLevel as usize {
        assert_eq!(u32_at(8), model.stock_level(&StockLevel::parse(args).unwrap()));
    }
}

#[test]
fn the_five_transactions_do_what_the_model_does_in_pieces() {
    against_the_model(small());
}

#[test]
fn the_five_transactions_do_what_the_model_does_in_one() {
    against_the_model(TpccConfig { chopping: Chopping::Whole, ..small() });
}

#[test]
fn the_five_transactions_do_what_the_model_does_by_scans() {
    for chopping in [Chopping::Pieces, Chopping::Whole] {
        against_the_model(TpccConfig { chopping, indices: Indices::Trees, ..small() });
    }
}

#[test]
fn new_orders_do_what_the_model_does_on_either_schema() {
    for indices in [Indices::Records, Indices::Trees] {
        let few = TpccConfig { items: 100, customers_per_district: 30, indices, ..small() };
        against_the_model(TpccConfig { mix: Mix::NewOrderOnly, ..few });
    }
}

#[test]
fn transactions_do_what_the_model_does_where_stock_is_whole() {
    let few = TpccConfig { items: 100, customers_per_district: 30, ..small() };
    for (mix, indices) in [
        (Mix::Full, Indices::Records),
        (Mix::Full, Indices::Trees),
        (Mix::NewOrderOnly, Indices::Trees),
    ] {
        against_the_model(TpccConfig { mix, indices, stock: Stock::Whole, ..few });
    }
}

#[test]
fn new_order_and_payment_do_what_the_model_does_without_the_others() {
    for mix in [Mix::NewOrderAndPayment, Mix::PaymentOnly] {
        for indices in [Indices::Records, Indices::Trees] {
            against_the_model(TpccConfig { mix, indices, ..small() });
        }
    }
}

#[test]
fn a_mix_has_the_kinds_that_it_names_by_their_shares() {
    for (mix, kinds, shares) in [
        (Mix::Full, &["new_order", "payment", "order_status", "delivery", "stock_level"][..], 45),
        (Mix::NewOrderAndPayment, &["new_order", "payment"][..], 50),
        (Mix::PaymentOnly, &["payment"][..], 100),
    ] {
        let workload = Tpcc::new(TpccConfig { mix, ..small() });
        assert_eq!(workload.kinds(), kinds);
        let (mut random, mut txn) = (random(3), Txn::default());
        let mut drawn = vec![0; kinds.len()];
        for _ in 0..4_000 {
            let kind = workload.next(NodeId(0), &mut random, &mut txn);
            let procedure = usize::from(txn.procedure.0) % PROCEDURES;
            assert_eq!(procedure == Procedure::Payment as usize, kinds[kind] == "payment");
            drawn[kind] += 1;
        }
        assert!((shares * 38..=shares * 42).contains(&drawn[0]), "{mix:?}: {drawn:?}");
    }
}

#[test]
fn a_terminal_stays_at_its_warehouse() {
    let config = TpccConfig {
        terminals: Terminals::Own,
        mix: Mix::NewOrderAndPayment,
        ..TpccConfig::specification(3, 4)
    };
    let workload = Tpcc::new(config);
    let (mut random, mut txn) = (random(5), Txn::default());
    for turn in 0..4_000 {
        let (client, node) = (turn % 50, turn % 3);
        let kind = workload.next_of(client, NodeId(node as u16), &mut random, &mut txn);
        let home = match kind {
            0 => NewOrder::parse(txn.args()).unwrap().home,
            _ => Payment::parse(txn.args()).unwrap().home,
        };
        // Ten terminals a warehouse, and from the fifth ten on the first one's again.
        assert_eq!(u32::from(home.warehouse), client / 10 % 4 * 3 + node);
    }
}

/// The rows that one New-Order of ten lines writes, by table: how many, and bytes of each.
fn written(config: TpccConfig) -> BTreeMap<TableId, (usize, usize)> {
    let workload = Tpcc::new(config);
    let mut store = Store::load(&workload);
    let mut order = NewOrder::new(District { warehouse: 1, number: 3 }, 5, 1, 9);
    for item in 1..=10 {
        order.add(super::input::Line { item, supply: 1, quantity: 2 });
    }
    let mut txn = Txn::default();
    workload.begin(&mut txn, Procedure::NewOrder, &order.emit());
    assert!(store.run(&workload, &mut txn).0);
    let mut written = BTreeMap::new();
    for index in 0..txn.entries().len() {
        let Some(value) = txn.update(index).and_then(|write| write.value) else { continue };
        let row = written.entry(txn.entries()[index].key.table()).or_insert((0, value.len()));
        row.0 += 1;
        assert_eq!(row.1, value.len());
    }
    written
}

#[test]
fn a_new_order_writes_no_texts_of_stock_and_narrow_rows_where_it_runs_alone() {
    // AMB-43: whole STOCK rows in every log would make it several times larger on the wire.
    let rows = [
        (key::DISTRICT, (1, 95)),
        (key::STOCK, (10, 18)),
        (key::NEW_ORDER, (1, 12)),
        (key::ORDER, (1, 16)),
        (key::ORDER_LINE, (10, 20)),
        (key::ORDERS_OF_CUSTOMER, (1, 16)),
    ];
    let alone = TpccConfig { mix: Mix::NewOrderOnly, indices: Indices::Trees, ..small() };
    assert_eq!(written(alone), BTreeMap::from(rows));
    let full = written(TpccConfig { indices: Indices::Trees, ..small() });
    assert_eq!(full[&key::STOCK], (10, 18));
    assert_eq!(full[&key::ORDER_LINE], (10, 46), "the specification's, with the district's text");
    for config in [alone, TpccConfig { indices: Indices::Trees, ..small() }] {
        let whole = written(TpccConfig { stock: Stock::Whole, ..config });
        assert_eq!(whole[&key::STOCK], (10, 308), "with the texts");
        assert_eq!(whole[&key::ORDER_LINE], written(config)[&key::ORDER_LINE]);
    }
}

#[test]
fn ordered_tables_hold_what_is_scanned() {
    let alone = TpccConfig::new_order_only(1, 1);
    let full = TpccConfig::specification(1, 1);
    for (indices, config) in
        [(Indices::Records, full), (Indices::Trees, full), (Indices::Trees, alone)]
    {
        let workload = Tpcc::new(TpccConfig { indices, ..config });
        let store = Store::load(&workload);
        let ordered = store.0.keys().filter(|key| key.is_ordered()).count() as u64;
        assert!(ordered >= workload.ordered_per_shard(), "{indices:?}: {ordered}");
        assert!(ordered < workload.ordered_per_shard() * 11 / 10, "{indices:?}: {ordered}");
        assert!(store.0.len() as u64 <= workload.records_per_shard());
        check_tables(&workload, 1, &store.0);
        let counts = count_by_table(&store);
        let scans = indices == Indices::Trees;
        let count = |table| counts.get(&table).copied();
        assert_eq!(count(key::ORDERS_OF_CUSTOMER), scans.then_some(30_000));
        assert_eq!(count(key::NEWEST_ORDER), (!scans).then_some(30_000));
        assert_eq!(count(key::OLDEST_NEW_ORDER), (!scans).then_some(10));
        assert_eq!(store.audit(&workload), Vec::<String>::new());
    }
}

#[test]
fn an_item_ordered_twice_is_taken_twice() {
    let workload = Tpcc::new(small());
    let mut store = Store::load(&workload);
    let home = District { warehouse: 1, number: 3 };
    let mut order = NewOrder::new(home, 5, 1, 9);
    for quantity in [4, 6] {
        order.add(super::input::Line { item: 7, supply: 1, quantity });
    }
    let mut model = Model::of(&workload.config, &store);
    let mut txn = Txn::default();
    workload.begin(&mut txn, Procedure::NewOrder, &order.emit());
    assert_eq!(store.run(&workload, &mut txn), (true, 2));
    assert!(model.new_order(&order).is_some());
    assert_eq!(Model::of(&workload.config, &store), model);
}

#[test]
fn bad_credit_gets_its_payment_noted_and_keeps_its_length() {
    let workload = Tpcc::new(small());
    let mut store = Store::load(&workload);
    let home = District { warehouse: 0, number: 1 };
    let customer = home.customer(4);
    let data = row::customer::DATA;
    for credit in [row::customer::BAD_CREDIT, row::customer::GOOD_CREDIT] {
        let found = store.0.get_mut(&customer).unwrap();
        found[row::customer::CREDIT].copy_from_slice(credit);
        let before = found[data.clone()].to_vec();
        let customer_named = Customer::Id(4);
        let input =
            Payment { home, theirs: home, customer: customer_named, amount: 0x0102, date: 1 };
        let mut txn = Txn::default();
        workload.begin(&mut txn, Procedure::Payment, &input.emit());
        assert!(store.run(&workload, &mut txn).0);
        let after = &store.0[&customer][data.clone()];
        if credit == row::customer::BAD_CREDIT {
            assert_eq!(after[..12], [4, 0, 1, 0, 0, 1, 0, 0, 2, 1, 0, 0]);
            assert_eq!(after[12..], before[..data.len() - 12]);
        } else {
            assert_eq!(after, before);
        }
    }
}

#[test]
fn what_no_client_sends_is_refused() {
    let workload = Tpcc::new(small());
    let procedures = Procedures::new(LOGIC.as_flattened());
    let (mut random, mut txn) = (random(2), Txn::default());
    let refuses = |procedure: u16, args: &[u8]| {
        let mut txn = Txn::default();
        txn.reset(ProcedureId(procedure), args);
        procedures.execute(&mut txn) == Verdict::Refuse
    };
    let mut seen = [false; Schema::ALL.len() * PROCEDURES];
    for _ in 0..400 {
        let kind = workload.next(NodeId(0), &mut random, &mut txn);
        let (procedure, args) = (txn.procedure.0, txn.args().to_vec());
        seen[usize::from(procedure)] = true;
        assert!(refuses(procedure, &args[..args.len() - 1]), "{kind}: cut");
        assert!(refuses(procedure, &[args.clone(), vec![0]].concat()), "{kind}: longer");
        for district in [0, 11] {
            let mut other = args.clone();
            other[2] = district;
            assert!(refuses(procedure, &other), "{kind}: district {district}");
        }
        // Rows of a wrong size, whatever the round.
        let mut verdict = Verdict::More;
        while verdict == Verdict::More {
            for index in 0..txn.entries().len() {
                txn.fetched(index, Version(1), Some(&[0; 3]));
            }
            verdict = procedures.execute(&mut txn);
        }
        assert_eq!(verdict, Verdict::Refuse);
    }
    assert!(seen[..5].iter().all(|seen| *seen));
    assert!(refuses(Procedure::StockLevel as u16, &[1, 2]));
}

#[test]
fn what_is_annotated_is_shipped_and_new_orders_alone_are_not() {
    let ships = |config: TpccConfig| {
        let (workload, mut random, mut txn) = (Tpcc::new(config), random(5), Txn::default());
        let mut ships = [None; 5];
        for _ in 0..1_000 {
            let kind = workload.next(NodeId(0), &mut random, &mut txn);
            assert_eq!(*ships[kind].get_or_insert(txn.ship), txn.ship, "one annotation a type");
        }
        ships
    };
    let host = Some(false);
    let of = |shipped| ships(TpccConfig { shipped, ..small() });
    assert_eq!(of(Shipped::NewOrder), [Some(true), host, host, host, host]);
    assert_eq!(of(Shipped::Payment), [host, Some(true), host, host, host]);
    assert_eq!(of(Shipped::Neither), [host; 5]);
    assert_eq!(ships(small()), [Some(true), Some(true), host, host, host]);
    let alone = TpccConfig { items: 100, ..TpccConfig::new_order_only(1, 2) };
    assert_eq!(ships(alone), [host, None, None, None, None]);
}

#[test]
fn clients_draw_the_mix_and_the_remote_shares() {
    let workload = Tpcc::new(TpccConfig { nodes: 4, ..small() });
    let (mut random, mut txn) = (random(3), Txn::default());
    let mut kinds = [0_u32; 5];
    let (mut lines, mut remote_lines, mut remote_payments, mut by_name, mut bad) = (0, 0, 0, 0, 0);
    for _ in 0..40_000 {
        let kind = workload.next(NodeId(2), &mut random, &mut txn);
        kinds[kind] += 1;
        let district = u16::from_le_bytes([txn.args()[0], txn.args()[1]]);
        assert_eq!(district % 4, 2, "a client's home is a warehouse of its node");
        assert_eq!(txn.ship, kind < 2, "New-Order and Payment ship");
        match kind {
            0 => {
                let order = NewOrder::parse(txn.args()).unwrap();
                assert!((5..=15).contains(&order.lines().len()));
                lines += order.lines().len() as u32;
                let supplies = order.lines().iter().map(|line| line.supply);
                remote_lines += supplies.filter(|at| *at != district).count() as u32;
                bad += u32::from(order.lines().iter().any(|line| line.item > 100));
            }
            1 => {
                let payment = Payment::parse(txn.args()).unwrap();
                remote_payments += u32::from(payment.theirs.warehouse != district);
                by_name += u32::from(matches!(payment.customer, Customer::LastName(_)));
            }
            _ => {}
        }
    }
    for (seen, percent) in kinds.iter().zip([45, 43, 4, 4, 4]) {
        assert!(seen.abs_diff(percent * 400) < 500, "{kinds:?}");
    }
    let per_thousand = |part: u32, of: u32| part * 1_000 / of;
    assert!((8..12).contains(&per_thousand(remote_lines, lines)), "{remote_lines} of {lines}");
    assert!((140..160).contains(&per_thousand(remote_payments, kinds[1])), "{remote_payments}");
    assert!((580..620).contains(&per_thousand(by_name, kinds[1])), "{by_name}");
    assert!((7..13).contains(&per_thousand(bad, kinds[0])), "{bad}");
}

#[test]
fn drtm_h_draws_every_warehouse_alike() {
    let config = TpccConfig { items: 100, ..TpccConfig::new_order_only(3, 2) };
    assert_eq!(config.suppliers, Suppliers::Uniform);
    let workload = Tpcc::new(config);
    assert_eq!(workload.kinds(), ["new_order"]);
    let (mut random, mut txn) = (random(4), Txn::default());
    let mut supplies = [0_u32; 6];
    for _ in 0..3_000 {
        assert_eq!(workload.next(NodeId(1), &mut random, &mut txn), 0);
        let order = NewOrder::parse(txn.args()).unwrap();
        order.lines().iter().for_each(|line| supplies[usize::from(line.supply)] += 1);
    }
    let mean = supplies.iter().sum::<u32>() / 6;
    assert!(supplies.iter().all(|seen| seen.abs_diff(mean) < mean / 10), "{supplies:?}");
}

#[test]
fn data_and_draws_are_the_same_everywhere() {
    let workload = Tpcc::new(small());
    let fold = |digest: u64, bytes: &[u8]| {
        bytes.iter().fold(digest, |digest, byte| mix(digest ^ u64::from(*byte)))
    };
    let row = |digest: u64, (key, row): (&Key, &Vec<u8>)| fold(mix(digest ^ key.0), row);
    let loaded = Store::load(&workload).0.iter().fold(0, row);
    let (mut random, mut txn) = (random(5), Txn::default());
    let drawn = (0..1_000).fold(0, |digest, _| {
        let kind = workload.next(NodeId(1), &mut random, &mut txn);
        fold(mix(digest ^ kind as u64), txn.args())
    });
    assert_eq!((loaded, drawn), (1_522_333_994_300_520_785, 12_313_902_982_654_358_913));
}

#[test]
fn each_transaction_is_scheduled_by_what_it_writes_or_by_the_published_features() {
    [Features::Written, Features::Artifact].into_iter().for_each(scheduled_by);
}

fn scheduled_by(features: Features) {
    let config = TpccConfig { items: 100, features, ..TpccConfig::specification(1, 2) };
    let workload = Tpcc::new(TpccConfig { customers_per_district: 30, ..config });
    let (mut drawn, mut txn) = (random(0), Txn::default());
    let procedures = workload.procedures();
    let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
    for _ in 0..2_000 {
        let kind = workload.next(NodeId(0), &mut drawn, &mut txn);
        let mut tables = BTreeMap::new();
        procedures.features(&txn, &mut |key, write| {
            *tables.entry((key.table(), write)).or_insert(0) += 1;
        });
        let name = workload.kinds()[kind];
        assert_eq!(procedures.is_long(txn.procedure), name == "delivery");
        let one = |table, write| BTreeMap::from([((table, write), 1)]);
        match name {
            "new_order" => {
                for (table, write) in [(key::DISTRICT, true), (key::CUSTOMER, false)] {
                    assert_eq!(tables.get(&(table, write)), Some(&1));
                }
                let warehouse = tables.remove(&(key::WAREHOUSE, false));
                assert_eq!(warehouse, (features == Features::Artifact).then_some(1));
                // Lines may name an item twice.
                assert!((2..=15).contains(&tables[&(key::STOCK, true)]));
                assert_eq!(tables.len(), 4);
            }
            "payment" if features == Features::Written => {
                // A customer who is named by the last name is not known yet.
                tables.remove(&(key::CUSTOMER, true));
                let written = [((key::WAREHOUSE_YTD, true), 1), ((key::DISTRICT, true), 1)];
                assert_eq!(tables, BTreeMap::from(written));
            }
            "payment" => assert_eq!(tables, one(key::DISTRICT, true)),
            "delivery" => assert_eq!(tables, one(key::WAREHOUSE, true)),
            _ => assert_eq!(tables, one(key::DISTRICT, false)),
        }
        *seen.entry(name).or_insert(0) += 1;
    }
    assert_eq!(seen.len(), 5, "{seen:?}");
    assert_eq!(super::features::SHARES.iter().map(|(_, share)| share).sum::<u32>(), 512);
}
