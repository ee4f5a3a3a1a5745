//! How Xenic runs: every choice and every ablation is a value.

use nicol_core::ids::Key;
use nicol_core::memory::Copies;
use nicol_core::steering::Steering;
use nicol_core::units::{Bytes, Nanos};
use nicol_schedule::{FeatureMap, ScheduleConfig, Transcripts};
use nicol_store::host_table::Growth;
use nicol_store::nic_index::{FirstRead, HomesPerHint};

use crate::broken::{Hooks, Sabotage};

/// How long a request that found no free call slot waits before it tries again.
pub(super) const SLOT_WAIT: Nanos = Nanos::from_micros(5);

/// Most EXECUTE rounds of one transaction; one that needs more aborts.
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
    /// Where it has given more lately.
    Planned(Steering),
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
    /// As printed: it reads the host table twice, without asking the NIC. It misses what the NIC
    /// has committed and the host has not applied; for experiments.
    Paper,
    /// One question to the local NIC: are these the current versions, and unlocked?
    Strict,
}

/// What one request to a primary may combine. [Xenic21 5.7] AMB-45
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CombinedOps {
    /// All keys of a shard, locked and read at once.
    All,
    /// All keys of a shard, which are read, locked or validated.
    Keys,
    /// Nothing: it reads, locks or validates one object, as a one-sided verb does.
    None,
}

/// Until when a commit's locks are held where memory is not durable by itself. (decision 0058)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocksUntil {
    /// Until the backups have the transaction durably, which decides it.
    Backups,
    /// Until its primary has it durably as well.
    Primary,
}

/// Does the system recover, and do its messages tell what that needs? [4.2.1] (decision 0100)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// As much as the paper prints: frames alone are fenced, and a LOG says how many shards its
    /// transaction updates.
    Printed,
    /// Requests say in which epoch their transaction began, LOGs list the shards that it updates,
    /// and receivers refuse what a later view has overruled. Backups apply what is decided only, so
    /// that what they have logged can be taken back. Survivors decide what a lost coordinator
    /// began, and a backup leads a shard whose primary is lost. (decisions 0101 to 0103)
    Prepared,
}

/// Does a primary, too, have what a transaction writes there when the client is told? AMB-50
/// (decision 0115)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogAtPrimary {
    /// As printed: LOG goes to the backups. A coordinator that is the last of these alone has what
    /// its client was told of.
    Paper,
    /// Where the coordinator is one of the backups, LOG goes to the primary as well, so that f + 1
    /// nodes have it. For [`Recovery::Prepared`], which keeps records until they are decided.
    Needed,
}

/// How Xenic runs: every ablation is a value.
#[derive(Clone, Debug)]
pub struct XenicConfig {
    /// Objects that each node's NIC index may cache.
    pub index_objects: usize,
    /// Bytes of the values that each node's NIC index may cache.
    pub index_value_bytes: usize,
    /// Does the index know from the start what it has space for, as after a long run?
    pub warm_index: bool,
    /// Displacement limit D_m of the host table, in slots. [4.1.2]
    pub displacement_max: u16,
    /// The k of the d_i + k entries that a lookup reads first. [4.1.3]
    pub slack: u16,
    /// From where these entries count. [4.1.3] AMB-04
    pub first_read: FirstRead,
    /// How many homes of a segment share a known displacement d_i. [4.1.3] AMB-46
    pub homes_per_hint: HomesPerHint,
    /// Bytes of a value that a table slot holds inline. [4.1.2]
    pub inline_value: usize,
    /// Where backups have the pages that they are loaded with.
    pub copies: Copies,
    /// Table slots per record, in percent.
    pub slots_percent: u64,
    /// May the host tables double when they are full?
    pub growth: Growth,
    /// Bytes of each NIC core's log in host memory.
    pub log: Bytes,
    /// Bytes of it that are used over and over, unless a record is longer; `None`: all.
    pub log_lap: Option<Bytes>,
    /// How long a phase waits for an unreachable node before it gives up.
    pub timeout: Nanos,
    /// Where execution logic runs.
    pub execute_at: ExecuteAt,
    /// Are the paper's gaps closed?
    pub faithful: Faithful,
    /// What one request to a primary may combine. [5.7]
    pub combined_ops: CombinedOps,
    /// May a primary NIC execute a transaction for another node? Takes all combined operations.
    /// [4.2.3, 5.7]
    pub multi_hop: bool,
    /// May the host execute a transaction whose keys are all local? [4.2.4]
    pub local_paths: bool,
    /// How local read-only transactions make sure of what they read.
    pub local_read: LocalRead,
    /// Until when locks are held under a log device.
    pub locks_until: LocksUntil,
    /// What messages tell for recovery.
    pub recovery: Recovery,
    /// Who has the writes when the client is told.
    pub log_at_primary: LogAtPrimary,
    /// Who decides which host engine coordinates a transaction; `None`: the one that its client is
    /// on.
    pub schedule: Option<ScheduleConfig>,
    /// Which features keys have, for scheduling.
    pub features: FeatureMap,
    /// What clients learn, for the judge alone, of transactions that others coordinate for them.
    pub transcripts: Transcripts,
    /// For negative tests.
    #[doc(hidden)]
    pub sabotage: Sabotage,
}

impl XenicConfig {
    /// What the steps ask where a planted fault may decide otherwise.
    pub(super) const fn hooks(&self) -> Hooks {
        Hooks(self.sabotage)
    }

    /// These, with recovery, and the values at f + 1 nodes before a client is told.
    #[must_use]
    pub fn that_recovers(self) -> Self {
        let (recovery, log_at_primary) = (Recovery::Prepared, LogAtPrimary::Needed);
        Self { recovery, log_at_primary, ..self }
    }

    /// The paper's choices, with memory for `records` records per shard of at most `value` bytes.
    pub fn paper(records: u64, value: usize) -> Self {
        Self {
            index_objects: (records as usize / 4).max(1_024),
            index_value_bytes: usize::MAX,
            warm_index: true,
            displacement_max: 16,
            slack: 1,
            // The sentence that says what is read before a second read: AMB-04.
            first_read: FirstRead::Within,
            homes_per_hint: HomesPerHint::ONE,
            inline_value: value.clamp(8, 256),
            slots_percent: 125,
            growth: Growth::Doubling { memory_max: TABLE_MEMORY_MAX },
            copies: Copies::Own,
            log: Bytes(1 << 20),
            log_lap: None,
            timeout: Nanos::from_millis(20),
            execute_at: ExecuteAt::Annotation,
            faithful: Faithful::Fixed,
            combined_ops: CombinedOps::All,
            multi_hop: true,
            local_paths: true,
            local_read: LocalRead::Strict,
            locks_until: LocksUntil::Backups,
            recovery: Recovery::Printed,
            log_at_primary: LogAtPrimary::Paper,
            schedule: None,
            features: FeatureMap::new(&[], Key::row),
            transcripts: Transcripts::default(),
            sabotage: Sabotage::None,
        }
    }
}
