//! Locks under a log device: they are held until the backups have a transaction durably, and no
//! longer. (decision 0058)

use std::sync::Arc;

use nicol_commit::xenic::{LocksUntil, XenicConfig};
use nicol_core::units::Nanos;
use nicol_core::workload::Workload;
use nicol_workload::chooser::{Distribution, PartsPerMillion};
use nicol_workload::ycsb_t::{YcsbT, YcsbTConfig};

use crate::cluster::{NODES, RUN, Run};
use crate::xenic::{config, held};

const SYNC: Nanos = Nanos::from_millis(2);
const TRANSACTIONS: u64 = 480;

/// One record for each node, which every transaction increments.
fn one_record_a_node(ship: bool) -> Arc<dyn Workload> {
    Arc::new(YcsbT::new(YcsbTConfig {
        nodes: NODES,
        records_per_node: 1,
        keys_per_txn: 1,
        value_bytes: 8,
        read_fraction: PartsPerMillion(0),
        blind_fraction: PartsPerMillion(0),
        distribution: Distribution::Uniform,
        ship,
    }))
}

/// Syncs of the log device that a transaction of a hot key takes.
fn syncs_per_transaction(how: &Run, config: &XenicConfig, workload: &Arc<dyn Workload>) -> f64 {
    let how = Run { log_device: Some(SYNC), transactions: TRANSACTIONS, ..how.clone() };
    let ran = held(&how, config, workload, 1);
    assert_eq!(ran.counts.committed, TRANSACTIONS);
    let of_one_key = TRANSACTIONS / u64::from(NODES);
    ran.ended.0 as f64 / SYNC.0 as f64 / of_one_key as f64
}

#[test]
fn a_hot_key_is_locked_for_one_sync_of_the_backups() {
    for ship in [false, true] {
        let workload = one_record_a_node(ship);
        let paper = config(&workload, 8);
        let syncs = |locks_until| {
            let config = XenicConfig { locks_until, ..paper.clone() };
            syncs_per_transaction(&RUN, &config, &workload)
        };
        let (backups, primary) = (syncs(LocksUntil::Backups), syncs(LocksUntil::Primary));
        // Keys are drawn, so that one of them gets more than its share.
        assert!((1.0..1.6).contains(&backups), "shipped: {ship}; {backups} syncs");
        assert!((2.0..3.0).contains(&primary), "shipped: {ship}; {primary} syncs");
    }
}

/// Nothing but its COMMIT tells that it was committed.
#[test]
fn without_backups_it_is_locked_until_its_primary_has_synced() {
    let workload = one_record_a_node(true);
    let config = config(&workload, 8);
    let syncs = syncs_per_transaction(&Run { replicas: 1, ..RUN }, &config, &workload);
    assert!((1.0..1.6).contains(&syncs), "{syncs} syncs");
}
