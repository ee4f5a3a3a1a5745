//! The families of single operations, such as key-value stores and registers: what such a system
//! offers to a workload.

use std::sync::Arc;

use crate::fabric::{Fabric, FabricError};
use crate::ids::{Key, Version};
use crate::system::SystemNode;

/// A client's access to the records of the whole cluster, from one host engine: many operations at
/// a time.
///
/// Each operation is tried once. Versions are told where the system exports them: those of a key
/// grow with every write, deletions included, and what was loaded has version 1.
pub trait KeyValue: Clone + 'static {
    /// Does this handle's node hold `key`? Where only some nodes do, the others refuse operations
    /// on it.
    fn holds(&self, _key: Key) -> bool {
        true
    }

    /// Reads `key` into `value`, which is overwritten.
    #[expect(async_fn_in_trait, reason = "futures stay on the polling thread that made them")]
    async fn get(&self, key: Key, value: &mut Vec<u8>) -> Result<Got, Failure>;

    /// Writes `value` to `key`; returns the version that this installs.
    #[expect(async_fn_in_trait, reason = "futures stay on the polling thread that made them")]
    async fn put(&self, key: Key, value: &[u8]) -> Result<Option<Version>, Failure>;

    /// Removes `key`, if it is there; returns the version that this installs.
    ///
    /// # Panics
    /// Where [`Offered::deletes`] is not set.
    #[expect(async_fn_in_trait, reason = "futures stay on the polling thread that made them")]
    async fn delete(&self, _key: Key) -> Result<Option<Version>, Failure> {
        unreachable!("no workload deletes where deletions are not offered")
    }

    /// Ends a scope: what this handle has written since the last time is durable when this returns.
    ///
    /// # Panics
    /// Where the system knows no scopes.
    #[expect(async_fn_in_trait, reason = "futures stay on the polling thread that made them")]
    async fn persist(&self) -> Result<(), Failure> {
        unreachable!("no workload ends a scope where there are none")
    }

    /// Reads up to `limit` records of the table of `first` in the order of their keys, from `first`
    /// on, into `found`, which is empty.
    ///
    /// # Panics
    /// Where [`Offered::scans`] is not set.
    #[expect(async_fn_in_trait, reason = "futures stay on the polling thread that made them")]
    async fn scan(
        &self,
        _first: Key,
        _limit: u32,
        _found: &mut Vec<Scanned>,
    ) -> Result<(), Failure> {
        unreachable!("no workload scans where scans are not offered")
    }
}

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Got {
    /// True if there is a record.
    pub present: bool,
    /// Its version, where the system exports it. Of an absent record: see
    /// [`Read::version`](crate::history::Read::version).
    pub version: Option<Version>,
}

/// A record that a scan found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scanned {
    pub key: Key,
    /// Its version, where the system exports it.
    pub version: Option<Version>,
    pub value: Vec<u8>,
}

/// Why an operation did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It had no effect, and never will have.
    Aborted(Reason),
    /// A write that has taken effect, or will, or never does.
    Unknown,
}

/// Why an operation had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Another operation was in the way.
    Conflict,
    /// A table, log or limit is full.
    NoResources,
    /// The fabric failed before the operation could take effect.
    Fabric(FabricError),
    /// The record's node has lost its data in a crash, and no other node has the record.
    ShardUnavailable,
}

impl Reason {
    /// Every reason's name, in the order of reports.
    pub const NAMES: [&str; 4] = ["conflict", "no_resources", "fabric", "shard_unavailable"];

    /// The reason's index into [`Reason::NAMES`].
    pub const fn index(&self) -> usize {
        match self {
            Self::Conflict => 0,
            Self::NoResources => 1,
            Self::Fabric(_) => 2,
            Self::ShardUnavailable => 3,
        }
    }
}

/// Which operations a system offers besides reads and writes of records that exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offered {
    /// Does a put create a record that is not there?
    pub inserts: bool,
    /// Can records be removed?
    pub deletes: bool,
    /// Can ranges be read?
    pub scans: bool,
    /// Are records found by any key, such as a hash, and not by the number of a block?
    pub sparse: bool,
}

/// A node of a system of single operations.
pub trait KeyValueNode: SystemNode {
    /// The operations that clients call on a host engine.
    type Client<F: Fabric>: KeyValue;

    const OFFERED: Offered;

    /// Bytes of the largest value that it holds, 8 at least.
    const VALUE_BYTES_MAX: u32 = 1_024;

    /// Starts the system on one engine of this node, in whatever role the node has; host engines
    /// get a client.
    fn start<F: Fabric>(self: &Arc<Self>, fabric: &F) -> Option<Self::Client<F>>;
}
