//! What a node has counted, the memory that it takes, and who schedules its clients' transactions.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use nicol_core::commit::{PATHS, WITHOUT_LOST_NODES};
use nicol_core::system::{Counter, NodeMemory};
use nicol_core::units::Bytes;
use nicol_kit::steering::Choice;
use nicol_schedule::Shared;
use nicol_store::host_table::HostTable;

use super::{Node, Path};
use crate::log::LogMemory;
use crate::survivor::Survivor;
use crate::xenic::config::Recovery;
use crate::xenic::replica::Replica;
use crate::xenic::server::lookup::stats::LookupCounters;

impl Node {
    /// What schedules its clients' transactions, if anything does.
    pub(in crate::xenic) const fn schedule(&self) -> Option<&Arc<Shared>> {
        self.schedule.as_ref()
    }

    /// What it has counted.
    pub(super) fn counted(&self) -> Vec<Counter> {
        let paths = Path::ALL.map(|path| Counter {
            group: PATHS,
            name: path.name(),
            value: self.paths[path as usize].load(Ordering::Relaxed),
        });
        let lookup = |(name, value)| Counter { group: "lookups", name, value };
        let progress = self.primary.tables.iter().map(HostTable::progress);
        let doublings = progress.map(|of| u64::from(of.level()) + u64::from(of.split() > 0)).sum();
        let lookups = LookupCounters::sums(&self.lookups).map(lookup);
        let doublings = lookup(("table_doublings", doublings));
        let recovers = self.lost().are_any() && self.config.recovery == Recovery::Prepared;
        let decided = recovers.then(|| Counter {
            group: WITHOUT_LOST_NODES,
            name: "decided_for_the_lost",
            value: self.recovery.decided(),
        });
        let without = self.done_without().chain(decided);
        let planner = self.choice.iter().flat_map(Choice::counters);
        let all = paths.into_iter().chain(lookups).chain([doublings]).chain(without);
        let schedule = self.schedule.iter().flat_map(|shared| shared.counters());
        all.chain(planner).chain(schedule).collect()
    }

    /// The memory that it takes.
    pub(super) fn taken_memory(&self) -> NodeMemory {
        let bytes = |replica: &Replica| -> u64 {
            replica.tables.iter().map(|table| table.resident().0).sum()
        };
        // A ring takes memory as it is first gone around.
        let written = |log: &Arc<LogMemory>| log.lap().min(log.reserved());
        NodeMemory {
            tables: Bytes(self.replicas().map(bytes).sum()),
            index: Bytes(self.indices().map(|(_, index)| index.memory().0).sum()),
            logs: Bytes(self.logs.iter().map(written).sum()),
        }
    }
}
