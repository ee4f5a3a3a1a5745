//! TPC-C: a wholesale supplier with nine tables and five transactions. (TPC-C, revision 5.11;
//! numbers in parentheses are its clauses) [Xenic21 5.2, 5.3]
//!
//! Every row is a keyed record in its warehouse's partition ([`key`]). A customer's newest order
//! and a district's oldest undelivered order are found by a scan of an ordered table if the system
//! has such tables ([`Indices::Trees`]), else by an index record. The customers of a last name are
//! a record in either case, since customers of other nodes' warehouses pay too. ITEM, which is
//! never written, has a copy per shard. STOCK stands in two tables: what New-Order changes, and the
//! texts; so does WAREHOUSE: what Payment changes, and the rest. `tpcc-no` has the rows of the code
//! that the RDMA baselines share (`schema.rs`, AMB-43).
//!
//! | transaction | share | runs on | database transactions |
//! |---|---|---|---|
//! | New-Order | 45 % | NIC; alone (`tpcc-no`): host | 1 |
//! | Payment | 43 % | NIC | 1 |
//! | Order-Status | 4 % | host | 1 |
//! | Delivery | 4 % | host | 1, or 10: one per district |
//! | Stock-Level | 4 % | host | 1, or 2 |
//!
//! Deviations: a node's clients share its warehouses, unless each is to be a terminal of one
//! ([`Terminals`]), and have no keying and think times. Dates are drawn, since a workload has no
//! clock. With fewer customers than last names, only as many names exist. A New-Order with an
//! unknown item refuses once its rows have been read and locked, before it adds the rows to insert.
//! A Delivery is queued where its client runs and answered without a message ([`DeliveryMode`]); a
//! result file is not written.

mod audit;
mod config;
mod delivery;
mod draw;
mod features;
mod input;
pub mod key;
mod load;
mod new_order;
mod order_status;
mod payment;
mod random;
mod row;
mod rows;
mod schema;
mod step;
mod stock_level;
#[cfg(test)]
mod tests;

use nicol_core::ids::{Key, NodeId, ShardId, TableId};
use nicol_core::records::{RecordSource, Records, TableSize};
use nicol_core::rng::Stream;
use nicol_core::txn::{Execute, ProcedureId, Procedures, RequestKeys, Scheduling, Txn, Verdict};
use nicol_core::view::ShardMap;
use nicol_core::workload::Workload;

pub use config::{Chopping, DeliveryMode, Mix, Shipped, Suppliers, Terminals, TpccConfig};
pub use features::Features;
pub use schema::{Indices, Stock};

use crate::chooser::{Chooser, Distribution};
use crate::mix::TransactionMix;
use crate::zipf::Theta;
use key::DISTRICTS;
use schema::Schema;

/// The TPC-C workload.
#[derive(Clone, Debug)]
pub struct Tpcc {
    config: TpccConfig,
    /// Draws a home among the warehouses of a node, where some are more popular.
    homes: Option<Chooser>,
}

/// The transaction types, in the order of [`Workload::kinds`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    NewOrder,
    Payment,
    OrderStatus,
    Delivery,
    StockLevel,
}

/// The transaction mix. (5.2.3)
const MIX: TransactionMix<Kind, 5> = TransactionMix::new([
    (45, Kind::NewOrder),
    (43, Kind::Payment),
    (4, Kind::OrderStatus),
    (4, Kind::Delivery),
    (4, Kind::StockLevel),
]);

/// New-Order and Payment alone.
const TWO: TransactionMix<Kind, 2> =
    TransactionMix::new([(50, Kind::NewOrder), (50, Kind::Payment)]);

const NAMES: [&str; 5] = ["new_order", "payment", "order_status", "delivery", "stock_level"];

/// The database transactions, in the order of [`LOGIC`], which has them for each [`Schema`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Procedure {
    NewOrder,
    Payment,
    OrderStatus,
    Delivery,
    NextOrder,
    StockLevel,
}

const PROCEDURES: usize = 6;

/// The procedures of the schema of this number, which finds orders by `$indices`.
macro_rules! specified {
    ($schema:literal, $indices:ident) => {
        [
            |txn| rows::run(txn, |rows| new_order::new_order(rows, Schema::ALL[$schema])),
            |txn| rows::run(txn, payment::payment),
            |txn| rows::run(txn, |rows| order_status::order_status(rows, Indices::$indices)),
            |txn| rows::run(txn, |rows| delivery::delivery(rows, Indices::$indices)),
            |txn| rows::run(txn, stock_level::next_order),
            |txn| rows::run(txn, |rows| stock_level::stock_level(rows, Indices::$indices)),
        ]
    };
}

/// New-Order over the schema of this number, which has no rows for the others.
macro_rules! new_order_alone {
    ($schema:literal) => {
        [
            |txn| rows::run(txn, |rows| new_order::new_order(rows, Schema::ALL[$schema])),
            |_| Verdict::Refuse,
            |_| Verdict::Refuse,
            |_| Verdict::Refuse,
            |_| Verdict::Refuse,
            |_| Verdict::Refuse,
        ]
    };
}

static LOGIC: [[Execute; PROCEDURES]; Schema::ALL.len()] = [
    specified!(0, Records),
    specified!(1, Trees),
    new_order_alone!(2),
    specified!(3, Records),
    specified!(4, Trees),
    new_order_alone!(5),
];

/// The keys that requests are scheduled by, procedure by procedure.
const FEATURES: [RequestKeys; PROCEDURES] = [
    features::new_order,
    features::payment,
    features::order_status,
    features::delivery,
    features::stock_level,
    features::stock_level,
];

/// The keys that a request is scheduled by.
fn written(txn: &Txn, each: &mut dyn FnMut(Key, bool)) {
    FEATURES[usize::from(txn.procedure.0) % PROCEDURES](txn, each);
}

/// The same, as AlNiCo's implementation extracts them.
fn extracted(txn: &Txn, each: &mut dyn FnMut(Key, bool)) {
    const OF: [RequestKeys; PROCEDURES] = {
        let mut of = FEATURES;
        of[Procedure::NewOrder as usize] = features::new_order_of_artifact;
        of[Procedure::Payment as usize] = features::payment_of_artifact;
        of
    };
    OF[usize::from(txn.procedure.0) % PROCEDURES](txn, each);
}

/// Delivery has cores of its own, where some are reserved.
fn is_long(procedure: ProcedureId) -> bool {
    usize::from(procedure.0) % PROCEDURES == Procedure::Delivery as usize
}

fn only_reads(txn: &Txn) -> bool {
    const READS: [Procedure; 3] =
        [Procedure::OrderStatus, Procedure::NextOrder, Procedure::StockLevel];
    READS.iter().any(|reads| usize::from(txn.procedure.0) % PROCEDURES == *reads as usize)
}

impl Tpcc {
    /// The workload of `config`.
    ///
    /// # Panics
    /// If a number is out of its range.
    pub fn new(config: TpccConfig) -> Self {
        config.check();
        Self { config, homes: None }
    }

    /// The same; clients of a node prefer some of its warehouses. [AlNiCo22, figure 5]
    pub fn preferring(self, theta: Theta) -> Self {
        let warehouses = u64::from(self.config.warehouses_per_node);
        let homes = Some(Chooser::new(warehouses, Distribution::Zipfian(theta)));
        Self { homes, ..self }
    }

    fn id_of(&self, procedure: Procedure) -> ProcedureId {
        let first = self.config.schema().number() * PROCEDURES as u16;
        ProcedureId(first + procedure as u16)
    }

    /// Makes `txn` run `procedure`: its first round adds the keys that the arguments name.
    fn begin(&self, txn: &mut Txn, procedure: Procedure, args: &input::Args) {
        txn.reset(self.id_of(procedure), args.bytes());
        txn.ship = match procedure {
            Procedure::NewOrder => matches!(self.config.shipped, Shipped::NewOrder | Shipped::Both),
            Procedure::Payment => matches!(self.config.shipped, Shipped::Payment | Shipped::Both),
            _ => false,
        };
        let scans = matches!(
            procedure,
            Procedure::OrderStatus | Procedure::Delivery | Procedure::StockLevel
        );
        txn.local = scans && self.config.indices == Indices::Trees;
        let verdict = LOGIC.as_flattened()[usize::from(txn.procedure.0)](txn);
        assert!(verdict == Verdict::More, "a drawn transaction has rows to fetch");
    }
}

impl RecordSource for Tpcc {
    fn load(&self, shards: &dyn ShardMap, shard: ShardId, each: &mut dyn FnMut(Key, &[u8])) {
        load::load(&self.config, shards, shard, each);
    }

    fn records_per_shard(&self) -> u64 {
        self.config.records_per_shard()
    }

    fn ordered_per_shard(&self) -> u64 {
        self.config.ordered_per_shard()
    }

    fn growth_per_shard(&self) -> u64 {
        self.config.growth_per_node
    }

    fn value_lengths(&self) -> Vec<(u32, u64)> {
        self.config.value_lengths()
    }

    fn hashed_tables(&self) -> Vec<TableSize> {
        self.config.hashed_tables()
    }

    fn feature_shares(&self) -> Vec<(TableId, u32)> {
        features::SHARES.to_vec()
    }

    fn feature_number(&self) -> fn(Key) -> u64 {
        features::number
    }
}

impl Workload for Tpcc {
    fn name(&self) -> &'static str {
        match self.config.mix {
            Mix::Full | Mix::NewOrderAndPayment | Mix::PaymentOnly => "tpcc",
            Mix::NewOrderOnly => "tpcc-no",
        }
    }

    fn procedures(&self) -> Procedures {
        let features = match self.config.features {
            Features::Written => written,
            Features::Artifact => extracted,
        };
        let scheduling = Scheduling { features, is_long };
        Procedures::new(LOGIC.as_flattened()).scheduled_by(scheduling).some_only_read(only_reads)
    }

    fn next(&self, home: NodeId, random: &mut Stream, txn: &mut Txn) -> usize {
        self.next_of(0, home, random, txn)
    }

    fn next_of(&self, client: u32, home: NodeId, random: &mut Stream, txn: &mut Txn) -> usize {
        let kind = match self.config.mix {
            Mix::Full => MIX.draw(random),
            Mix::NewOrderAndPayment => TWO.draw(random),
            Mix::PaymentOnly => Kind::Payment,
            Mix::NewOrderOnly => Kind::NewOrder,
        };
        let homes = self.homes.as_ref();
        let draw = draw::Draw { config: &self.config, homes, client, home, random };
        let (procedure, args) = match kind {
            Kind::NewOrder => (Procedure::NewOrder, draw.new_order().emit()),
            Kind::Payment => (Procedure::Payment, draw.payment().emit()),
            Kind::OrderStatus => (Procedure::OrderStatus, draw.order_status().emit()),
            Kind::Delivery => (Procedure::Delivery, draw.delivery().emit()),
            Kind::StockLevel => match self.config.chopping {
                Chopping::Whole => (Procedure::StockLevel, draw.stock_level().emit()),
                Chopping::Pieces => (Procedure::NextOrder, draw.stock_level().emit()),
            },
        };
        self.begin(txn, procedure, &args);
        kind as usize - self.config.mix.kinds().start
    }

    fn adds_keys(&self, _kind: usize) -> bool {
        true
    }

    fn next_piece(&self, _kind: usize, txn: &mut Txn) -> bool {
        if txn.procedure == self.id_of(Procedure::NextOrder) {
            let Ok(mut level) = input::StockLevel::parse(txn.args()) else { return false };
            let Some(next) = stock_level::parse_next_order(&txn.output) else { return false };
            level.next_order = next;
            self.begin(txn, Procedure::StockLevel, &level.emit());
            return true;
        }
        if txn.procedure == self.id_of(Procedure::Delivery) {
            let Ok(mut delivery) = input::Delivery::parse(txn.args()) else { return false };
            if delivery.last == DISTRICTS {
                return false;
            }
            delivery.first.number = delivery.last + 1;
            delivery.last = delivery.first.number;
            self.begin(txn, Procedure::Delivery, &delivery.emit());
            return true;
        }
        false
    }

    fn deferred(&self) -> Option<usize> {
        let deferred =
            self.config.mix == Mix::Full && self.config.delivery == DeliveryMode::Deferred;
        deferred.then_some(Kind::Delivery as usize)
    }

    fn kinds(&self) -> &'static [&'static str] {
        &NAMES[self.config.mix.kinds()]
    }

    fn audit_state(&self, state: &mut dyn Records) -> Vec<String> {
        let mut audit = audit::Audit::new(&self.config, state);
        audit.conditions();
        audit.into_lines()
    }

    fn audit(&self, state: &mut dyn Records, totals: &[i128]) -> Vec<String> {
        let mut audit = audit::Audit::new(&self.config, state);
        audit.conditions();
        audit.totals(totals);
        audit.into_lines()
    }
}
