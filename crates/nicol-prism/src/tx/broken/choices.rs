//! The rules of a client that is broken on purpose.

use super::Sabotage;
use crate::tx::checks::Plan;
use crate::tx::config::TxConfig;

/// The rules by which a client puts its checks into chains.
pub(in crate::tx) const fn plan(config: &TxConfig) -> Plan {
    let mut plan = Plan::of(config);
    if matches!(config.sabotage, Sabotage::LeavesReadsUnguarded) {
        plan.guards_reads = false;
    }
    plan
}
