//! Which primitive does what: the choices that make the systems, as values.
//!
//! The systems are the constructors of [`RdmaOccConfig`]:
//!
//! FaRM over software verbs, `farm-software`, is FaRM as PRISM sets it
//! ([`RdmaOccConfig::farm_software`]).
//!
//! | | FaRM | FaSST | DrTM+R | DrTM+R original | DrTM+H | DrTM+H NC |
//! |---|---|---|---|---|---|---|
//! | table | hopscotch | chained | chained | chained | chained | chained |
//! | read | walk | RPC | cached address | cached address | cached address | walk |
//! | lock | RPC | in the read | CAS | CAS, every key | RPC | RPC |
//! | validate | READ, RPC above t_r | RPC | READ | nothing is left | READ | READ |
//! | log | WRITE | RPC | WRITE | WRITE | WRITE | WRITE |
//! | commit | RPC | RPC | WRITE | WRITE | RPC | RPC |
//! | RPCs travel by | WRITE | SEND | SEND | SEND | SEND | SEND |
//!
//! DrTM+H commits by RPC here since that is how Xenic describes and measures it: "writes, during
//! the execution and commit phases, are done via RPCs" [Xenic21 2.2.2]. As in DrTM+H, nobody waits
//! for the answers to COMMIT: the client has its outcome once every backup has logged.

use nicol_core::memory::Copies;
use nicol_core::units::{Bytes, Nanos};
use nicol_store::remote_table::{Design, INLINE_MAX, TableConfig};

use crate::broken::{Hooks, Sabotage};

/// Keys of one primary above which FaRM validates by RPC, t_r. [FaRM15 4]
const FARM_VALIDATE_BY_RPC_ABOVE: usize = 4;
/// Slots of a neighbourhood of FaRM's table, H. [Xenic21 4.1.4]
const FARM_NEIGHBOURHOOD: u16 = 8;
/// Bytes of the largest value that stands in its slot where values are to stand apart.
const VALUE_APART: usize = 8;
/// Slots of a bucket of DrTM+H's table, B: the middle one of those that Xenic looks at. [4.1.4]
const DRTM_BUCKET: u16 = 8;
const CHAINED: Design = Design::Chained { bucket: DRTM_BUCKET };

/// How a key is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Execution {
    /// One-sided READs; what is written is locked afterwards.
    Read(Locking),
    /// One RPC per primary locks the write set and reads every key, as FaSST does.
    Rpc,
}

/// How and when a key that was READ is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Locking {
    /// By which primitive.
    pub by: Primitive,
    /// Which keys, and so when.
    pub keys: LockKeys,
}

/// Which keys are locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKeys {
    /// Those that execution wrote, before validation.
    Written,
    /// Every key, as soon as it was read. [DrTM+R]
    Every,
}

/// One-sided or two-sided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Primitive {
    /// READ, WRITE or CAS, without the target's CPU.
    OneSided,
    /// A message to a host engine of the target, and its answer.
    Rpc,
}

/// The executor of verbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verbs {
    /// The target's card, where it has one.
    Card,
    /// The software that executes chains, where that is not the card's. [PRISM21 8.3]
    Software,
}

/// How RPCs and their answers travel between host engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Two-sided: a packet to the target's receive queue. As in FaSST. [Xenic21 2.2.2]
    Send,
    /// A one-sided WRITE into a message log of the pair, which the target polls. As in FaRM.
    /// [Xenic21 2.2.2]
    Write,
}

/// How what was read is validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validation {
    /// A READ of each key's header.
    Read,
    /// READs, but one RPC to a primary of which more keys than this are validated. [FaRM15 4]
    ReadUpTo(usize),
    /// One RPC per primary.
    Rpc,
}

/// Which of the keys that were read are validated. AMB-54
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValidateKeys {
    /// Those that are not locked, and none of a transaction with one key that one request has read:
    /// a lock is taken at the version read, and one read is of one instant. AMB-34
    Unlocked,
    /// Every one: "they reread all objects in the read set" [PRISM21 8.1]. A record that is locked
    /// must carry this engine's lock, at the version read.
    All,
}

/// The content of a LOG. AMB-44
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogContent {
    /// A shard's part of the write set: one LOG to each of its backups.
    Shard,
    /// The whole write set: one LOG to each node that backs up any of its shards. As in the public
    /// code of DrTM+H.
    Whole,
}

/// How a baseline runs: every choice is a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RdmaOccConfig {
    /// The table of a shard, without the memory for values that do not stand in their slots: a
    /// node adds it when it loads a workload.
    pub table: TableConfig,
    /// Records that a shard's table has space for.
    pub records: u64,
    /// Bytes of the largest value, of those that any slot might hold.
    pub short_value: usize,
    /// Where backups have the pages that they are loaded with.
    pub copies: Copies,
    /// Record addresses that each node remembers of each other shard; 0 switches the cache off.
    pub cached_addresses: u64,
    /// Does each node know where all initial records stand from the start, as after a long run? If
    /// not, it learns addresses as it walks.
    pub warm_addresses: bool,
    /// How keys are read and locked.
    pub execution: Execution,
    /// How what was read is validated.
    pub validation: Validation,
    /// Which keys are validated.
    pub validate_keys: ValidateKeys,
    /// How backups get their log records.
    pub log_by: Primitive,
    /// The content of a LOG.
    pub log_content: LogContent,
    /// Does a second round tell the backups that all of them have logged? Only then is the record's
    /// space freed, and COMMIT and the client wait for the answers. As in the public code of
    /// DrTM+H. AMB-44
    pub log_acks: bool,
    /// How primaries get their writes.
    pub commit_by: Primitive,
    /// Does the client wait until the primaries have installed its writes? Without backups nobody
    /// has them before.
    pub await_commit: bool,
    /// The executor of verbs.
    pub verbs: Verbs,
    /// Bytes of each log: one per host engine, and one per host engine of every other node.
    pub log: Bytes,
    /// How RPCs travel.
    pub rpc_by: Transport,
    /// Bytes of each message log, where RPCs are WRITEs: one per host engine of every other node.
    /// A full one holds messages back.
    pub message_log: Bytes,
    /// How long a phase waits for an unreachable node before it gives up.
    pub timeout: Nanos,
    /// For negative tests; those that break what is not there do nothing.
    #[doc(hidden)]
    pub sabotage: Sabotage,
}

/// The names of the systems.
pub const SYSTEMS: [&str; 7] =
    ["farm", "farm-software", "fasst", "drtm-r", "drtm-r-original", "drtm-h", "drtm-h-nc"];

impl RdmaOccConfig {
    /// The questions of the steps that a planted fault may answer otherwise.
    pub(super) const fn hooks(&self) -> Hooks {
        Hooks(self.sabotage)
    }

    /// The published choices of the system of this name, one of [`SYSTEMS`].
    pub fn named(system: &str, records: u64, value: usize) -> Option<Self> {
        Some(match system {
            "farm" => Self::farm(records, value),
            "farm-software" => Self::farm_software(records, value),
            "fasst" => Self::fasst(records, value),
            "drtm-r" => Self::drtm_r(records, value),
            "drtm-r-original" => Self::drtm_r_original(records, value),
            "drtm-h" => Self::drtm_h(records, value),
            "drtm-h-nc" => Self::drtm_h_nc(records, value),
            _ => return None,
        })
    }

    /// FaRM: hopscotch table, one-sided reads, validation and log, RPCs to lock and to commit by
    /// WRITEs to pairwise message logs [Xenic21 2.2.2]. `records` per shard, values of at most
    /// `value` bytes; so for all systems.
    pub fn farm(records: u64, value: usize) -> Self {
        let design = Design::Hopscotch { neighbourhood: FARM_NEIGHBOURHOOD };
        Self {
            validation: Validation::ReadUpTo(FARM_VALIDATE_BY_RPC_ABOVE),
            rpc_by: Transport::Write,
            ..Self::one_sided(design, records, value)
        }
    }

    /// FaRM as PRISM compares with it, over the software that executes its chains: a lookup takes
    /// two READs, of the bucket and of the value; every object read is validated; RPCs travel as
    /// PRISM's do; one copy suffices. [PRISM21 8.1, 8.3]
    pub fn farm_software(records: u64, value: usize) -> Self {
        let mut config = Self {
            verbs: Verbs::Software,
            validation: Validation::Read,
            validate_keys: ValidateKeys::All,
            rpc_by: Transport::Send,
            await_commit: true,
            ..Self::farm(records, value)
        };
        config.table.inline = VALUE_APART;
        // Hardly a key overflows its neighbourhood, which would take another READ.
        config.table.slots = 2 * config.records;
        config
    }

    /// FaSST: RPCs only; one RPC locks and reads.
    pub fn fasst(records: u64, value: usize) -> Self {
        Self {
            execution: Execution::Rpc,
            validation: Validation::Rpc,
            log_by: Primitive::Rpc,
            ..Self::one_sided(CHAINED, records, value)
        }
    }

    /// DrTM+R as Xenic compares with it: one-sided everything under DrTM+H's optimistic protocol.
    /// [Xenic21 5.1]
    pub fn drtm_r(records: u64, value: usize) -> Self {
        let locking = Locking { by: Primitive::OneSided, keys: LockKeys::Written };
        Self {
            execution: Execution::Read(locking),
            commit_by: Primitive::OneSided,
            ..Self::drtm_h(records, value)
        }
    }

    /// DrTM+R as published: locks every key by CAS, so that nothing is left to validate.
    /// [Xenic21 2.2.2]
    pub fn drtm_r_original(records: u64, value: usize) -> Self {
        let locking = Locking { by: Primitive::OneSided, keys: LockKeys::Every };
        Self { execution: Execution::Read(locking), ..Self::drtm_r(records, value) }
    }

    /// DrTM+H: READs to cached addresses, one-sided validation and log, RPCs to lock and to
    /// commit. [Xenic21 2.2.2]
    pub fn drtm_h(records: u64, value: usize) -> Self {
        // "The remote memory address of each key" [Xenic21 2.2.2]: space for half as many more,
        // since the cache is set-associative.
        let cached_addresses = records.max(64) * 3 / 2;
        Self { cached_addresses, warm_addresses: true, ..Self::drtm_h_nc(records, value) }
    }

    /// DrTM+H without the address cache. [Xenic21 5.1]
    pub fn drtm_h_nc(records: u64, value: usize) -> Self {
        Self::one_sided(CHAINED, records, value)
    }

    /// One-sided reads, validation and log; RPCs to lock and to commit; no cache.
    fn one_sided(design: Design, records: u64, value: usize) -> Self {
        let records = records.max(64);
        // Filled to nine tenths, where Xenic measures lookups [4.1.4]; chains take the rest.
        let slots = records * 10 / 9;
        let inline = value.clamp(8, INLINE_MAX);
        let overflow_slots = slots / 2 + 256;
        let table = TableConfig { design, slots, overflow_slots, inline, heap: Bytes(0) };
        Self {
            table,
            records,
            short_value: inline,
            copies: Copies::Own,
            cached_addresses: 0,
            warm_addresses: false,
            execution: Execution::Read(Locking { by: Primitive::Rpc, keys: LockKeys::Written }),
            validation: Validation::Read,
            validate_keys: ValidateKeys::Unlocked,
            log_by: Primitive::OneSided,
            log_content: LogContent::Shard,
            log_acks: false,
            commit_by: Primitive::Rpc,
            await_commit: false,
            verbs: Verbs::Card,
            log: Bytes(128 << 10),
            rpc_by: Transport::Send,
            message_log: Bytes(32 << 10),
            timeout: Nanos::from_millis(20),
            sabotage: Sabotage::None,
        }
    }
}
