//! TATP: what a mobile network asks of its register of subscribers. [TATP 1.0]
//!
//! | transaction | share | what |
//! |---|---|---|
//! | get-subscriber-data | 35 % | reads a subscriber |
//! | get-new-destination | 10 % | reads a facility and where it forwards calls at an hour |
//! | get-access-data | 35 % | reads a record that exists for 62.5 % of what is asked for |
//! | update-subscriber-data | 2 % | changes a subscriber and a facility; refuses without the facility |
//! | update-location | 14 % | finds a subscriber by number, and changes where it is |
//! | insert-call-forwarding | 2 % | by number; refuses without the facility, or if it is there already |
//! | delete-call-forwarding | 2 % | by number; refuses if there is none |
//!
//! All records of a subscriber are on one node. Numbers lead to subscribers by an index that never
//! changes; what a number is follows from its subscriber, so that a client's cache of the index
//! always hits [AlNiCo22, corner cases].
//!
//! Values name their key, and what no transaction changes of them follows from it. The audit:
//! nothing is lost or damaged, calls are forwarded by facilities that exist, and as many more of
//! these records are there as were inserted and not deleted.

mod procedures;
mod rows;
#[cfg(test)]
mod tests;

use nicol_core::ids::{Key, NodeId, ShardId, TableId};
use nicol_core::records::{RecordSource, Records};
use nicol_core::rng::Stream;
use nicol_core::txn::{Execute, ProcedureId, Procedures, Scheduling, Txn};
use nicol_core::view::ShardMap;
use nicol_core::workload::Workload;

use crate::mix::TransactionMix;
use crate::placement::{Violations, holds, records_at_most};
use procedures::{
    delete_call_forwarding, get_access_data, get_new_destination, get_subscriber_data,
    insert_call_forwarding, update_location, update_subscriber_data,
};
pub use rows::{
    ACCESS_INFO, CALL_FORWARDING, NUMBERS, SPECIAL_FACILITY, SUBSCRIBER, VALUE_BYTES_MAX,
};
use rows::{
    Asked, HOURS, STARTS, TYPES, access_of, damage, each_of, end_of, facility_of, forwarding_of,
    number_of, subscriber_of,
};

/// Records that a subscriber has in the mean, rounded up: itself, its number, 2.5 of access, 2.5
/// facilities, half of three forwardings of each.
const RECORDS_OF_ONE: u64 = 11;

/// The values of a TATP run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TatpConfig {
    pub nodes: u16,
    /// Subscribers per node. The specification: 100,000, or multiples of it.
    pub subscribers_per_node: u64,
    /// May the execution logic run on NIC cores? [Xenic21 4.3.3]
    pub ship: bool,
}

/// The TATP workload.
#[derive(Clone, Copy, Debug)]
pub struct Tatp {
    config: TatpConfig,
    subscribers: u64,
}

/// The transaction types, in the order of [`Workload::kinds`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    GetSubscriberData,
    GetNewDestination,
    GetAccessData,
    UpdateSubscriberData,
    UpdateLocation,
    InsertCallForwarding,
    DeleteCallForwarding,
}

const MIX: TransactionMix<Kind, 7> = TransactionMix::new([
    (35, Kind::GetSubscriberData),
    (10, Kind::GetNewDestination),
    (35, Kind::GetAccessData),
    (2, Kind::UpdateSubscriberData),
    (14, Kind::UpdateLocation),
    (2, Kind::InsertCallForwarding),
    (2, Kind::DeleteCallForwarding),
]);

impl Tatp {
    /// The workload of `config`.
    ///
    /// # Panics
    /// If there is no subscriber, or there are 2^32 or more.
    pub fn new(config: TatpConfig) -> Self {
        let subscribers = config.subscribers_per_node * u64::from(config.nodes);
        assert!((1..1 << 32).contains(&subscribers), "1 to 2^32 - 1 subscribers");
        Self { config, subscribers }
    }

    /// Some subscribers are asked for more often than others.
    fn draw(&self, random: &mut Stream) -> u64 {
        let spread = match self.subscribers {
            0..=1_000_000 => 65_535,
            1_000_001..=10_000_000 => 1_048_575,
            _ => 2_097_151,
        };
        (random.below(spread + 1) | random.below(self.subscribers)) % self.subscribers
    }

    /// Subscribers of a shard at most, and what their numbers of records may exceed the mean by.
    fn per_shard(&self) -> (u64, u64) {
        let subscribers = records_at_most(self.subscribers, self.config.nodes);
        (subscribers, 64 * (subscribers.isqrt() + 1))
    }
}

impl RecordSource for Tatp {
    fn load(&self, shards: &dyn ShardMap, shard: ShardId, each: &mut dyn FnMut(Key, &[u8])) {
        for subscriber in 0..self.subscribers {
            if holds(shards, shard, subscriber_of(subscriber)) {
                each_of(subscriber, each);
            }
        }
    }

    fn records_per_shard(&self) -> u64 {
        let (subscribers, more) = self.per_shard();
        RECORDS_OF_ONE * subscribers + more
    }

    fn growth_per_shard(&self) -> u64 {
        // Facilities forward calls at half of all hours at first; they may at all.
        let (subscribers, more) = self.per_shard();
        4 * subscribers + more
    }

    fn value_lengths(&self) -> Vec<(u32, u64)> {
        let all = self.records_per_shard() + self.growth_per_shard();
        vec![(VALUE_BYTES_MAX as u32, all)]
    }

    fn feature_shares(&self) -> Vec<(TableId, u32)> {
        // As many as records, four times.
        vec![(SUBSCRIBER, 4), (ACCESS_INFO, 10), (SPECIAL_FACILITY, 10), (CALL_FORWARDING, 15)]
    }

    fn feature_number(&self) -> fn(Key) -> u64 {
        |key| key.row() & ((1 << Key::PARTITIONED_ROW_BITS) - 1)
    }
}

impl Workload for Tatp {
    fn name(&self) -> &'static str {
        "tatp"
    }

    fn procedures(&self) -> Procedures {
        const LOGIC: [Execute; 7] = [
            get_subscriber_data,
            get_new_destination,
            get_access_data,
            update_subscriber_data,
            update_location,
            insert_call_forwarding,
            delete_call_forwarding,
        ];
        let only_reads = |txn: &Txn| txn.procedure.0 <= Kind::GetAccessData as u16;
        let scheduling = Scheduling { features, is_long: |_| false };
        Procedures::new(&LOGIC).scheduled_by(scheduling).some_only_read(only_reads)
    }

    fn next(&self, _home: NodeId, random: &mut Stream, txn: &mut Txn) -> usize {
        let kind = MIX.draw(random);
        let start = HOURS * random.below(STARTS) as u8;
        let asked = Asked {
            subscriber: self.draw(random),
            kind: random.below(TYPES) as u8,
            start,
            end: end_of(if kind == Kind::GetNewDestination { 0 } else { start }, random.bits()),
            data: random.below(1 << 32) as u32,
        };
        let asked = match kind {
            // Any hour of the day.
            Kind::GetNewDestination => Asked { end: 1 + random.below(24) as u8, ..asked },
            _ => asked,
        };
        txn.reset(ProcedureId(kind as u16), &asked.emit());
        txn.ship = self.config.ship;
        let (subscriber, facility) = (asked.subscriber, u64::from(asked.kind));
        match kind {
            Kind::GetSubscriberData => {
                txn.read(subscriber_of(subscriber));
            }
            Kind::GetNewDestination => {
                txn.read(facility_of(subscriber, facility));
                for start in (0..=start).step_by(HOURS.into()) {
                    txn.read(forwarding_of(subscriber, facility, start));
                }
            }
            Kind::GetAccessData => {
                txn.read(access_of(subscriber, facility));
            }
            Kind::UpdateSubscriberData => {
                txn.write(subscriber_of(subscriber));
                txn.write(facility_of(subscriber, facility));
            }
            Kind::UpdateLocation | Kind::InsertCallForwarding | Kind::DeleteCallForwarding => {
                txn.read(number_of(subscriber));
            }
        }
        kind as usize
    }

    fn adds_keys(&self, kind: usize) -> bool {
        kind >= Kind::UpdateLocation as usize
    }

    fn kinds(&self) -> &'static [&'static str] {
        &[
            "get_subscriber_data",
            "get_new_destination",
            "get_access_data",
            "update_subscriber_data",
            "update_location",
            "insert_call_forwarding",
            "delete_call_forwarding",
        ]
    }

    fn audit(&self, state: &mut dyn Records, totals: &[i128]) -> Vec<String> {
        let mut violations = Violations::default();
        let (mut forwardings, mut others) = (0_i128, 0_u64);
        state.for_each(&mut |key, value| {
            match key.table() {
                CALL_FORWARDING => forwardings += 1,
                _ => others += 1,
            }
            if let Some(what) = damage(key, value) {
                violations.add(|| format!("{key:?} {what}"));
            }
        });
        let (mut before, mut expected, mut lost) = (0_i128, 0_u64, Vec::new());
        for subscriber in 0..self.subscribers {
            each_of(subscriber, &mut |key, _| match key.table() {
                CALL_FORWARDING => before += 1,
                _ => {
                    expected += 1;
                    if state.read(key).is_none() {
                        lost.push(key);
                    }
                }
            });
        }
        lost.iter().for_each(|key| violations.add(|| format!("{key:?} is lost")));
        if others != expected {
            violations.add(|| format!("there are {others} records instead of {expected}"));
        }
        let change: i128 = totals.iter().sum();
        if before + change != forwardings {
            violations.add(|| {
                format!("forwardings: {before} at first, changed by {change}, {forwardings} now")
            });
        }
        violations.into_lines()
    }
}

/// Calls `each` with the keys by which a request is scheduled: those that it declares, or the
/// subscriber to which the index leads. A client has the index in its cache. [AlNiCo22, corner
/// cases]
fn features(txn: &Txn, each: &mut dyn FnMut(Key, bool)) {
    let found = Asked::parse(txn.args());
    match (usize::from(txn.procedure.0), found) {
        (procedure, Some(asked)) if procedure == Kind::UpdateLocation as usize => {
            each(subscriber_of(asked.subscriber), true);
        }
        (procedure, Some(asked)) if procedure > Kind::UpdateLocation as usize => {
            each(forwarding_of(asked.subscriber, asked.kind.into(), asked.start), true);
        }
        _ => txn.entries().iter().for_each(|entry| each(entry.key, entry.write)),
    }
}
