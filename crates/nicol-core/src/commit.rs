//! The `commit` family: what every transactional system offers to a workload.

use std::sync::Arc;

use crate::fabric::Fabric;
use crate::history::Promise;
use crate::ids::Key;
use crate::serving::Walked;
use crate::system::SystemNode;
use crate::txn::{Outcome, Procedures, Txn};

/// A coordinator on one host engine: runs transactions to their end, many at a time.
pub trait CommitProtocol: Clone + 'static {
    /// Runs `txn` once, without retries. On commit its entries hold the versions read and its
    /// updates the versions installed.
    #[expect(async_fn_in_trait, reason = "futures stay on the polling thread that made them")]
    async fn run(&self, txn: &mut Txn) -> Outcome;
}

/// A node of a system that runs transactions.
///
/// Of its counters, those of the group [`PATHS`] are transactions that it has coordinated and
/// committed, by the way that they took; a system with a single way has none.
pub trait CommitNode: SystemNode {
    /// The coordinator that runs transactions on a host engine.
    type Coordinator<F: Fabric>: CommitProtocol;

    /// True if it has ordered tables, which a local transaction may scan.
    const SCANS: bool;

    /// May clients on other nodes run transactions that scan?
    const SCANS_FROM_AFAR: bool = false;

    /// Its promise of its transactions.
    const PROMISE: Promise = Promise::StrictSerializable;

    /// Goes a step over the records of its own shard, as [`Backend::walk`] says; positions have 48
    /// bits.
    ///
    /// [`Backend::walk`]: crate::serving::Backend::walk
    fn walk(&self, from: u64, keys: &mut Vec<Key>) -> Walked {
        let _names_none = (from, keys);
        Walked::Unable
    }

    /// The position before which about a share `draw` / 2^64 of its shard's records stands.
    fn walk_position(&self, draw: u64) -> u64 {
        let _has_none = draw;
        0
    }

    /// Starts the system on one engine of this node; host engines get a coordinator.
    fn start<F: Fabric>(
        self: &Arc<Self>,
        fabric: &F,
        procedures: &Procedures,
    ) -> Option<Self::Coordinator<F>>;
}

/// The group of counters of committed transactions.
pub const PATHS: &str = "paths";

/// The group of counters of what survivors did without nodes that have lost their data.
pub const WITHOUT_LOST_NODES: &str = "without_lost_nodes";
