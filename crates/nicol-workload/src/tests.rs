//! Every workload under the driver: its audit holds when the protocol is right, and finds what a
//! broken one did.

use std::sync::Arc;

use nicol_core::history::{Effect, End, Operation};
use nicol_core::ids::Key;
use nicol_core::records::{RecordSource, Records};
use nicol_core::units::Nanos;
use nicol_core::view::{ShardMap, View};
use nicol_core::workload::Workload;

use crate::chooser::{Distribution, PartsPerMillion};
use crate::churn::{Churn, ChurnConfig};
use crate::driver::{Load, Retry, RunControl, RunPlan, RunResult, spawn_clients};
use crate::fake::{FakeConfig, FakeEngine, FakeProtocol, Validation};
use crate::retwis::{Retwis, RetwisConfig};
use crate::smallbank::{Smallbank, SmallbankConfig};
use crate::tatp::{Tatp, TatpConfig};
use crate::tpcc::{Chopping, Tpcc, TpccConfig};
use crate::ycsb::{KeyForm, Mix, Popularity, Transactions, TransactionsConfig, YcsbConfig};
use crate::ycsb_t::{YcsbT, YcsbTConfig};
use crate::zipf::Theta;

const NODES: u16 = 3;
const CLIENTS: u32 = 8;
const TRANSACTIONS: u64 = 1_000;

fn plan() -> RunPlan {
    RunPlan {
        seed: 5,
        clients: CLIENTS,
        begin: Nanos::ZERO,
        warmup_until: Nanos::ZERO,
        stop_at: Nanos::MAX,
        operations_per_client: Some(TRANSACTIONS),
        load: Load::Closed,
        retry: Retry {
            attempts_max: 10_000,
            full_max: 10_000,
            first: Nanos(50),
            longest: Nanos(5_000),
            adaptive_window: false,
        },
        record: true,
        history_max: 1_000_000,
    }
}

/// The content of a store, perhaps damaged on the way.
struct Reading<R> {
    keys: Vec<Key>,
    read: R,
}

impl<R: FnMut(Key) -> Option<Vec<u8>>> Reading<R> {
    fn of(store: &FakeProtocol, read: R) -> Self {
        Self { keys: store.keys(), read }
    }
}

impl<R: FnMut(Key) -> Option<Vec<u8>>> Records for Reading<R> {
    fn read(&mut self, key: Key) -> Option<Vec<u8>> {
        (self.read)(key)
    }

    fn for_each(&mut self, each: &mut dyn FnMut(Key, &[u8])) {
        for &key in &self.keys {
            if let Some(value) = (self.read)(key) {
                each(key, &value);
            }
        }
    }
}

/// Runs `workload` to its end; returns the result and the audit's lines.
fn run(workload: Arc<dyn Workload>, validation: Validation) -> (RunResult, Vec<String>) {
    let view = View::new(usize::from(NODES), 1, 1, 1).unwrap();
    let fabric = FakeEngine::new(view.clone());
    let config = FakeConfig { validation, step_max: 100, unknown_every: 0 };
    let protocol = FakeProtocol::load(&fabric, config, &*workload);
    let run = RunControl::new(plan(), workload.kinds());
    spawn_clients(&fabric, &protocol, &workload, &run, 0, CLIENTS);
    assert!(!run.finished());
    fabric.run_until(Nanos::from_secs(10));
    assert!(run.finished());
    let result = run.result().clone();
    let lines =
        workload.audit(&mut Reading::of(&protocol, |key| protocol.value(key)), &result.totals());
    (result, lines)
}

fn smallbank() -> Arc<dyn Workload> {
    Arc::new(Smallbank::new(SmallbankConfig::paper(NODES, 20)))
}

fn ycsb_t() -> Arc<dyn Workload> {
    Arc::new(YcsbT::new(YcsbTConfig {
        nodes: NODES,
        records_per_node: 20,
        keys_per_txn: 3,
        value_bytes: 100,
        read_fraction: PartsPerMillion::percent(50),
        blind_fraction: PartsPerMillion(0),
        distribution: Distribution::Zipfian(Theta(990)),
        ship: true,
    }))
}

fn ycsb(mix: Mix, popularity: Popularity) -> Arc<dyn Workload> {
    let ycsb = YcsbConfig {
        mix,
        records: 60,
        reads: PartsPerMillion::percent(50),
        popularity,
        keys: KeyForm::Number,
        value_bytes: 100,
    };
    let insert_capacity = u64::from(CLIENTS) * TRANSACTIONS;
    Arc::new(Transactions::new(TransactionsConfig {
        ycsb,
        nodes: NODES,
        insert_capacity,
        ship: true,
    }))
}

fn every_ycsb() -> [Arc<dyn Workload>; 6] {
    Mix::ALL.map(|mix| ycsb(mix, mix.popularity()))
}

fn retwis() -> Arc<dyn Workload> {
    Arc::new(Retwis::new(RetwisConfig {
        nodes: NODES,
        records_per_node: 30,
        value_bytes: 64,
        distribution: Distribution::Zipfian(Theta(500)),
        ship: true,
    }))
}

fn tatp() -> Arc<dyn Workload> {
    Arc::new(Tatp::new(TatpConfig { nodes: NODES, subscribers_per_node: 2, ship: true }))
}

fn ycsb_t_of_tables() -> Arc<dyn Workload> {
    let config = YcsbTConfig {
        nodes: NODES,
        records_per_node: 20,
        keys_per_txn: 3,
        value_bytes: 16,
        read_fraction: PartsPerMillion::percent(50),
        blind_fraction: PartsPerMillion(0),
        distribution: Distribution::Zipfian(Theta(990)),
        ship: true,
    };
    Arc::new(YcsbT::new(config).in_tables(4))
}

fn churn() -> Arc<dyn Workload> {
    Arc::new(Churn::new(ChurnConfig::new(NODES, 8)))
}

fn churn_ordered() -> Arc<dyn Workload> {
    Arc::new(Churn::new(ChurnConfig {
        ordered: true,
        both_tables: true,
        ..ChurnConfig::new(NODES, 64)
    }))
}

fn tpcc(chopping: Chopping) -> Arc<dyn Workload> {
    Arc::new(Tpcc::new(TpccConfig {
        items: 200,
        customers_per_district: 20,
        chopping,
        ..TpccConfig::specification(NODES, 2)
    }))
}

#[test]
fn audits_hold_when_everything_is_validated() {
    let tpccs = [Chopping::Whole, Chopping::Pieces].map(tpcc);
    let others = [smallbank(), ycsb_t(), retwis(), churn(), churn_ordered()];
    let others = others.into_iter().chain([tatp(), ycsb_t_of_tables()]);
    for workload in others.chain(tpccs).chain(every_ycsb()) {
        let name = workload.name();
        let (result, lines) = run(workload, Validation::Everything);
        assert_eq!(lines, Vec::<String>::new(), "{name}");
        assert_eq!(result.whole.issued, u64::from(CLIENTS) * TRANSACTIONS);
        assert!(result.whole.balance());
        // Smallbank's payments may lack funds, TPC-C's orders may name an item and TATP's changes a
        // record that does not exist; elsewhere a refusal is a damaged value.
        let refused = result.whole.refused;
        assert_eq!(result.whole.committed + refused, result.whole.issued, "{name}");
        let refuses = ["smallbank", "tatp", "tpcc"].contains(&name);
        assert_eq!(refused > 0, refuses, "{name}: {refused} refused");
        assert!(result.whole.aborts[1] > 20, "{name}: transactions must collide");
        assert!(result.kinds.iter().all(|kind| kind.committed > 20), "{name}: every kind runs");
        check_history(&result.history);
        assert_eq!(result.history.len() as u64, result.whole.attempts);
    }
}

#[test]
fn a_chopped_transaction_counts_once() {
    let (result, _) = run(tpcc(Chopping::Pieces), Validation::Everything);
    let committed = |name| result.kinds.iter().find(|kind| kind.name == name).unwrap().committed;
    // A Delivery has ten pieces, a Stock-Level two; the last one is not counted as a piece.
    assert_eq!(result.whole.pieces, 9 * committed("delivery") + committed("stock_level"));
    assert!(result.whole.pieces > 1_000, "{}", result.whole.pieces);
    assert!(result.whole.balance());
    let (result, _) = run(tpcc(Chopping::Whole), Validation::Everything);
    assert_eq!(result.whole.pieces, 0);
}

#[test]
fn audits_find_what_a_broken_protocol_did() {
    for (workload, validation, word) in [
        (smallbank(), Validation::Nothing, "money"),
        (ycsb_t(), Validation::Nothing, "counters"),
        (ycsb(Mix::A, Popularity::Uniform), Validation::Nothing, "counters"),
        (ycsb(Mix::F, Mix::F.popularity()), Validation::Nothing, "counters"),
        (ycsb_t_of_tables(), Validation::Nothing, "counters"),
        (retwis(), Validation::Nothing, "counters"),
        (churn(), Validation::Nothing, "records"),
        (tpcc(Chopping::Pieces), Validation::Nothing, "condition"),
        (churn(), Validation::WriteSet, "saw both"),
    ] {
        let name = workload.name();
        let (_, lines) = run(workload, validation);
        assert!(lines.iter().any(|line| line.contains(word)), "{name} {validation:?}: {lines:?}");
    }
}

#[test]
fn audits_find_lost_and_damaged_records() {
    let view = View::new(usize::from(NODES), 1, 1, 1).unwrap();
    let others = [smallbank(), ycsb_t(), ycsb_t_of_tables(), retwis(), tatp(), churn()];
    for workload in others.into_iter().chain([churn_ordered()]).chain(every_ycsb()) {
        let fabric = FakeEngine::new(view.clone());
        let config =
            FakeConfig { validation: Validation::Everything, step_max: 1, unknown_every: 0 };
        let store = FakeProtocol::load(&fabric, config, &*workload);
        let audit = |damage: &dyn Fn(Vec<u8>) -> Option<Vec<u8>>| {
            let first = store.keys()[0];
            let read = |key| {
                let value = store.value(key)?;
                if key == first { damage(value) } else { Some(value) }
            };
            let mut state = Reading::of(&store, read);
            workload.audit(&mut state, &vec![0; workload.kinds().len()])
        };
        assert!(audit(&Some).is_empty(), "{}", workload.name());
        assert!(!audit(&|_| None).is_empty(), "{}: a lost record", workload.name());
        let flip = |mut value: Vec<u8>| {
            value[0] ^= 1;
            Some(value)
        };
        assert!(!audit(&flip).is_empty(), "{}: a flipped bit", workload.name());
        let cut = |value: Vec<u8>| Some(value[..value.len() - 1].to_vec());
        assert!(!audit(&cut).is_empty(), "{}: a short value", workload.name());
    }
}

#[test]
fn a_seed_makes_one_history() {
    let (first, _) = run(churn(), Validation::Everything);
    let (second, _) = run(churn(), Validation::Everything);
    assert_eq!(first.history, second.history);
    let mut txns = first.history.iter().filter_map(Operation::txn);
    let mut writes = txns.clone().flat_map(|txn| &txn.writes);
    let deleted = writes.any(|write| write.effect == Effect::Delete);
    assert!(deleted, "a deletion of a present record is a write");
    assert!(txns.any(|txn| txn.reads.iter().any(|read| !read.present)));
}

/// Versions of a committed history with everything validated: each install follows the read.
fn check_history(history: &[Operation]) {
    let mut ids: Vec<u64> = history.iter().map(|operation| operation.id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), history.len(), "every attempt has an id of its own");
    let mut installs = Vec::new();
    for operation in history.iter().filter(|operation| operation.end == End::Ok) {
        assert!(Some(operation.invoked) < operation.responded);
        let txn = operation.txn().expect("the driver runs transactions");
        for write in &txn.writes {
            let read = txn.reads.iter().find(|read| read.key == write.key);
            let read = read.expect("a write-set key is read");
            let versions = (read.version, write.version);
            assert_eq!(versions.0.map(|version| version + 1), versions.1);
            let deletes = write.effect == Effect::Delete;
            assert!(read.present || !deletes, "deleting nothing writes nothing");
            installs.push((write.key.clone(), write.version));
        }
    }
    let count = installs.len();
    installs.sort_unstable();
    installs.dedup();
    assert_eq!(installs.len(), count, "no version is installed twice");
}

#[test]
fn smallbank_draws_its_mix_and_its_hot_customers() {
    use nicol_core::ids::NodeId;
    use nicol_core::rng::{Purpose, Stream};
    use nicol_core::txn::Txn;
    let workload = Smallbank::new(SmallbankConfig::paper(2, 5_000));
    let mut random = Stream::new(3, Purpose::Test, 0);
    let mut txn = Txn::default();
    let (mut kinds, mut hot) = ([0_u32; 6], 0_u32);
    for _ in 0..50_000 {
        kinds[workload.next(NodeId(0), &mut random, &mut txn)] += 1;
        let customer = |key: Key| key.row() & ((1 << Key::PARTITIONED_ROW_BITS) - 1);
        hot += u32::from(txn.entries().iter().all(|entry| customer(entry.key) < 400));
    }
    for (seen, percent) in kinds.iter().zip([15, 15, 15, 25, 15, 15]) {
        assert!(seen.abs_diff(percent * 500) < 400, "{kinds:?}");
    }
    // 90 % by choice, and 4 % of the other single-customer ones by chance.
    assert!(hot.abs_diff(45_140) < 300, "{hot}");
}

/// As in DrTM+H's implementation.
#[test]
fn smallbank_keeps_the_accounts_of_a_customer_on_one_node() {
    use crate::smallbank::{CHECKING, SAVINGS, account};
    const CUSTOMERS: u64 = 60_000;
    let view = View::new(6, 3, 1, 1).unwrap();
    let mut customers = [0_u64; 6];
    for customer in 0..CUSTOMERS {
        let shards = [SAVINGS, CHECKING].map(|table| view.shard_of(account(table, customer)));
        assert_eq!(shards[0], shards[1], "customer {customer}");
        customers[usize::from(shards[0].0)] += 1;
    }
    let mean = CUSTOMERS / 6;
    assert!(customers.iter().all(|count| count.abs_diff(mean) < 400), "{customers:?}");
    let workload = Smallbank::new(SmallbankConfig::paper(6, CUSTOMERS / 6));
    let most = 2 * customers.iter().max().unwrap();
    assert!((most..most + most / 10).contains(&workload.records_per_shard()), "{customers:?}");
}
