//! Xenic: SmartNIC-accelerated distributed transactions [Xenic21, SOSP '21].
//!
//! Optimistic concurrency control with primary-backup replication, run by NIC engines: the locks
//! and the caching index live in NIC memory, the tables and the logs in host memory.
//!
//! | step | who | what | code |
//! |---|---|---|---|
//! | 1 | host coordinator | transaction id; state to the local NIC | `host` |
//! | 2 | coordinator NIC, primary NICs | EXECUTE: lock the write set, read everything | `coordinator`, `server` |
//! | 3 | host, or NIC if shipped | execution logic; further EXECUTE rounds | `host`, `coordinator` |
//! | 4 | primary NICs | VALIDATE what was read and not locked | `server` |
//! | 5 | backup NICs | LOG: append to the host log by DMA | `server`, `log` |
//! | 6 | primary NICs | COMMIT: log, install in the index, pin, unlock | `server` |
//! | 7 | host workers | apply logs to the tables; log acks free space and unpin | `worker`, `log_acks` |
//!
//! Three kinds of transaction take a shorter way:
//!
//! | which | how | code |
//! |---|---|---|
//! | one shard, or the local and one remote shard | executed by the primary NIC [4.2.3] | `multi_hop`, `shipped` |
//! | local, writing | executed by the host on its own table [4.2.4] | `local` |
//! | local, reading | the same, and the NIC only says whether it was current | `local` |
//!
//! The records of ordered tables stand in B+ trees, at the primary and at the backups: `ordered`.
//!
//! Deviations from the paper are tagged where they stand. Recovery [4.2.1] is not here yet.

mod coordinator;
mod host;
mod local;
mod log;
mod log_acks;
mod lookup;
mod lookup_stats;
mod messages;
mod multi_hop;
mod nic;
mod node;
mod ordered;
mod replica;
mod server;
mod shipped;
mod split_requests;
mod worker;

use std::sync::Arc;

use nicol_core::fabric::Fabric;
use nicol_core::ids::{EngineId, Side};
use nicol_core::txn::Procedures;
use nicol_core::units::{Bytes, Nanos};
use nicol_core::view::View;
use nicol_store::host_table::Growth;

use super::Sabotage;
use super::log_worker::apply_log;
pub use host::Coordinator;
use log_acks::LogAcks;
use nic::Nic;
pub use node::Node;
use ordered::HostService;
use worker::Worker;

/// EXECUTE rounds that one transaction may take.
pub const ROUNDS_MAX: usize = 64;

/// Host memory into which one table grows unless the configuration says otherwise.
pub const TABLE_MEMORY_MAX: Bytes = Bytes(4 << 30);

/// Where a transaction's execution logic runs. [Xenic21 4.2.2, 4.3.3]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecuteAt {
    /// On the host, always.
    Host,
    /// Where the transaction's annotation says.
    Annotation,
    /// On the coordinator's NIC, always.
    Nic,
}

/// Whether the paper's gaps are closed. [AMB-06, AMB-07]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Faithful {
    /// As printed: a multi-hop transaction does not protect what it only reads at its coordinator,
    /// and a local one locks what it writes and checks nothing. Not serializable; for experiments.
    Paper,
    /// Serializable: the coordinator locks for reading what it only reads, and the NIC checks the
    /// versions that a local transaction has read.
    Fixed,
}

/// How a local read-only transaction makes sure of what it has read. [AMB-08]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalRead {
    /// As printed: it reads the host table twice, and asks nobody. It misses what the NIC has
    /// committed and the host has not applied; for experiments.
    Paper,
    /// One question to the local NIC: are these the current versions, and unlocked?
    Strict,
}

/// How Xenic runs: every ablation is a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XenicConfig {
    /// Objects that each node's NIC index may cache.
    pub index_objects: usize,
    /// Does the index know from the start what it has room for, as after a long run?
    pub warm_index: bool,
    /// Displacement limit D_m of the host table, in slots. [4.1.2]
    pub displacement_max: u16,
    /// Entries read beyond the known displacement, k. [4.1.3]
    pub slack: u16,
    /// Bytes of a value that a table slot holds inline. [4.1.2]
    pub inline_value: usize,
    /// Table slots per record, in percent.
    pub slots_percent: u64,
    /// May the host tables double when they are full?
    pub growth: Growth,
    /// Bytes of each NIC core's log in host memory.
    pub log: Bytes,
    /// How long a phase waits for an unreachable node before it gives up.
    pub timeout: Nanos,
    /// Where execution logic runs.
    pub execute_at: ExecuteAt,
    /// Are the paper's gaps closed?
    pub faithful: Faithful,
    /// Does one request lock and read, as opposed to one each, as one-sided verbs would? [5.7]
    pub combined_ops: bool,
    /// May a primary NIC execute a transaction for another node? Takes combined operations.
    /// [4.2.3, 5.7]
    pub multi_hop: bool,
    /// May the host execute a transaction whose keys are all local? [4.2.4]
    pub local_paths: bool,
    /// How local read-only transactions make sure of what they read.
    pub local_read: LocalRead,
    /// For negative tests.
    #[doc(hidden)]
    pub sabotage: Sabotage,
}

impl XenicConfig {
    /// The paper's choices, with memory for `records` records per shard of at most `value` bytes.
    pub fn paper(records: u64, value: usize) -> Self {
        Self {
            index_objects: (records as usize / 4).max(1_024),
            warm_index: true,
            displacement_max: 16,
            slack: 1,
            inline_value: value.clamp(8, 256),
            slots_percent: 125,
            growth: Growth::Doubling { memory_max: TABLE_MEMORY_MAX },
            log: Bytes(1 << 20),
            timeout: Nanos::from_millis(20),
            execute_at: ExecuteAt::Annotation,
            faithful: Faithful::Fixed,
            combined_ops: true,
            multi_hop: true,
            local_paths: true,
            local_read: LocalRead::Strict,
            sabotage: Sabotage::None,
        }
    }
}

/// Starts Xenic on one engine of `node`: a NIC engine serves; a host engine applies logs and gets
/// a coordinator.
fn start<F: Fabric>(
    fabric: &F,
    node: &Arc<Node>,
    procedures: &Procedures,
) -> Option<Coordinator<F>> {
    let here = fabric.here();
    assert!(here.node == node.id(), "an engine starts with its own node's memory");
    match here.side {
        Side::Nic => {
            let nic = Nic::new(fabric.clone(), node.clone(), procedures.clone());
            let first = fabric.serve(nic);
            assert!(first, "an engine runs one system");
            None
        }
        Side::Host => {
            let acks = LogAcks::new(fabric.clone());
            for core in logs_of(fabric.view(), here) {
                let (node, acks) = (node.clone(), acks.clone());
                let log = node.log(core).clone();
                let worker = Worker { fabric: fabric.clone(), node, acks, core };
                fabric.spawn(apply_log(fabric.clone(), log, worker));
            }
            fabric.spawn(acks.clone().send_overdue());
            let first = fabric.serve(HostService::new(fabric.clone(), node.clone()));
            assert!(first, "an engine runs one system");
            Some(Coordinator::new(fabric.clone(), procedures.clone(), node.clone(), acks))
        }
    }
}

/// The NIC cores whose logs `host` applies.
fn logs_of(view: &View, host: EngineId) -> impl Iterator<Item = u8> + use<> {
    let (hosts, nics) = (view.engines(host.node, Side::Host), view.engines(host.node, Side::Nic));
    (usize::from(host.core)..nics).step_by(hosts).map(|nic| nic as u8)
}
