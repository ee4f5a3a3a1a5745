//! How DrTM-KV runs: every choice is a value.

use nicol_core::steering::Steering;
use nicol_core::units::Nanos;

use super::broken::Sabotage;
use super::layout::{BUCKET, KEPT_MAX, extent_bytes};

/// The most copies of the index that a server may have.
pub const COPIES_MAX: u64 = 16;

/// The path that a get takes. [OffPath23 5.2]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alternative {
    /// A1 on a card without cores beside the path.
    Rnic,
    /// READs of index and value of the host.
    A1,
    /// The SoC reads index and value of the host.
    A2,
    /// The SoC has the index and reads the value of the host.
    A3,
    /// READs of the index of the SoC and of the value of the host.
    A4,
    /// The SoC has the index and values of some keys.
    A5,
    /// A get uses A4 or A5: see [`Asking`].
    A4AndA5,
}

/// Which gets ask the SoC, where a client can do both (A4 + A5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asking {
    /// Those for which that is faster: the better way is used until it is saturated, and then the
    /// other one as well. [OffPath23 4.2]
    Greedy,
    /// All of one client machine, none of the others. [OffPath23 figure 18]
    OneMachine,
    /// So many of a thousand.
    Permille(u16),
}

impl Alternative {
    /// Whether the index is in the SoC's memory; otherwise it is in the host's.
    pub const fn index_on_soc(self) -> bool {
        matches!(self, Self::A3 | Self::A4 | Self::A5 | Self::A4AndA5)
    }

    /// Whether the SoC keeps values.
    pub const fn caches(self) -> bool {
        matches!(self, Self::A5 | Self::A4AndA5)
    }
}

/// How a client gets a value that the SoC keeps. [OffPath23 figure 17]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptBy {
    /// It asks the SoC.
    Send,
    /// It READs the index and the value of the SoC, and a value that is not there of the host.
    Read,
}

/// Configuration of a `drtm-kv` system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrtmKvConfig {
    pub alternative: Alternative,
    /// Buckets that keys hash to.
    pub buckets: u64,
    pub spare_buckets: u64,
    /// Bytes of the largest value.
    pub value_bytes: u64,
    /// Extents: as many values, and those that puts under way write.
    pub extents: u64,
    /// Values that the SoC keeps at most.
    pub cached: u64,
    pub kept_by: KeptBy,
    /// Copies of what clients READ of the SoC's memory, in other rows of it: a READ takes any.
    /// [OffPath23 advice 1]
    pub copies: u64,
    /// The gets that ask, where a client can do both (A4 + A5).
    pub asking: Asking,
    /// Chooses at run time whether a get READs or asks, where a client can do both (A4 + A5). With
    /// it `asking` has no effect.
    pub steering: Option<Steering>,
    /// Time that a client waits for the answer to a request.
    pub timeout: Nanos,
    #[doc(hidden)]
    pub sabotage: Sabotage,
}

impl DrtmKvConfig {
    /// Values that the SoC keeps at most: of those that clients READ, as many as buckets can name.
    pub(super) fn kept_most(&self) -> u64 {
        if self.reads_kept() { self.cached.min(self.extents).min(KEPT_MAX) } else { self.cached }
    }

    /// Bytes of a copy of what clients READ of the values that the SoC keeps.
    pub(super) fn kept_bytes(&self) -> u64 {
        let slots = if self.reads_kept() { self.kept_most() } else { 0 };
        slots * extent_bytes(self.value_bytes)
    }

    /// Bytes of a server's index, in all its copies, and of its extents.
    pub fn table_bytes(&self) -> u64 {
        let buckets = self.buckets.saturating_add(self.spare_buckets);
        let index = buckets.saturating_mul(BUCKET * self.copies);
        index.saturating_add(self.extents.saturating_mul(extent_bytes(self.value_bytes)))
    }

    /// Whether clients compare the times of their two ways.
    pub(super) fn compares(&self) -> bool {
        self.alternative == Alternative::A4AndA5 && self.asking == Asking::Greedy
    }

    /// Whether clients READ values of the SoC.
    pub(super) fn reads_kept(&self) -> bool {
        self.alternative == Alternative::A5 && self.kept_by == KeptBy::Read
    }

    /// The paper's choices for so many records of so many bytes at most.
    pub fn paper(alternative: Alternative, records: u64, value_bytes: u64) -> Self {
        Self {
            alternative,
            // Three entries to a bucket: chains are short at this load.
            buckets: records.div_ceil(2).next_power_of_two().max(16),
            spare_buckets: records.max(64),
            value_bytes,
            extents: records + 1_024,
            // In A5 alone clients ask for what is cached; together with A4 a part is.
            cached: if alternative == Alternative::A5 { records } else { (records / 8).max(1) },
            kept_by: KeptBy::Send,
            copies: 1,
            asking: Asking::Greedy,
            steering: None,
            timeout: Nanos::from_millis(20),
            sabotage: Sabotage::None,
        }
    }
}
