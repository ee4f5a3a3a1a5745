//! How MINOS runs: every choice is a value.

use nicol_core::fabric::Fanout;
use nicol_core::history::Persistency;
use nicol_core::ids::Side;
use nicol_core::units::{Bytes, Nanos};

use super::broken::{Hooks, Sabotage};

/// Whether an erratum of the paper is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Faithful {
    /// As the paper prints it.
    Paper,
    /// As it must be.
    Fixed,
}

/// The errata that are kept as printed. None is, except in tests which show that checkers catch
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errata {
    /// Two concurrent writes of one node may have one timestamp. AMB-15
    pub timestamps: Faithful,
    /// Global timestamps are set, not raised. AMB-16
    pub global_timestamps: Faithful,
    /// \[PERSIST\]sc leaves out what was obsolete. AMB-18
    pub scopes: Faithful,
    /// volatileTS is set when the vFIFO drains. AMB-19
    pub queued: Faithful,
}

impl Errata {
    /// Every erratum is fixed.
    pub const FIXED: Self = Self {
        timestamps: Faithful::Fixed,
        global_timestamps: Faithful::Fixed,
        scopes: Faithful::Fixed,
        queued: Faithful::Fixed,
    };
}

/// The answer of a SmartNIC to a request when all entries of its vFIFO are in use. [MINOS24 V-B1]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// It waits for one; beyond so many that wait it is rejected.
    Wait,
    /// It is rejected, and whoever sent it sends it again.
    Reject,
}

/// Configuration of a MINOS system. Every point between MINOS-B and MINOS-O is one of these values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MinosConfig {
    pub model: Persistency,
    /// The SmartNIC runs the algorithms, on coherent metadata and without write locks. The paper
    /// calls these three together "Combined". [MINOS24 V-B1, V-B2, V-B4, VIII-D]
    pub offload: bool,
    /// The host and its NIC exchange one INV and one ACK a write, instead of one for each follower.
    /// [MINOS24 V-B3]
    pub batching: bool,
    /// The card sends the copies of an INV or VAL. [MINOS24 V-B3]
    pub broadcast: bool,
    /// Entries of each of the vFIFO and the dFIFO; `None`: as many as are asked for.
    pub queue_entries: Option<u32>,
    /// The answer of a full vFIFO to a request.
    pub when_full: WhenFull,
    /// A record is on the replicas of its shard only. Otherwise it is on every node. [MINOS24 II-A]
    pub sharded: bool,
    /// Writes of a client in a scope: the paper gives none.
    pub scope_writes: u32,
    /// Bytes of the largest value.
    pub value_bytes: u64,
    /// Records of deleted keys are forgotten. The paper deletes nothing.
    pub forgets: bool,
    /// Memory for the records of a node; `None`: no limit.
    pub memory: Option<Bytes>,
    /// Time after which a client of an unreliable route gives an operation up: its outcome is
    /// unknown.
    pub timeout: Nanos,
    pub errata: Errata,
    #[doc(hidden)]
    pub sabotage: Sabotage,
}

impl MinosConfig {
    /// Questions of the steps that a planted fault may answer wrongly.
    pub(super) const fn hooks(&self) -> Hooks {
        Hooks(self.sabotage)
    }

    /// The paper's choices for one end of the line, or the other.
    pub const fn paper(model: Persistency, offload: bool, value_bytes: u64) -> Self {
        Self {
            model,
            offload,
            batching: offload,
            broadcast: offload,
            // Table III.
            queue_entries: Some(5),
            // "can reject": what Table III's five entries are worth in the figures is what waits
            // there.
            when_full: WhenFull::Wait,
            sharded: false,
            scope_writes: 10,
            value_bytes,
            forgets: false,
            memory: None,
            timeout: Nanos::from_millis(20),
            errata: Errata::FIXED,
            sabotage: Sabotage::None,
        }
    }

    /// Whose engines run the protocol.
    pub(super) const fn side(&self) -> Side {
        if self.offload { Side::Nic } else { Side::Host }
    }

    /// Whether a SmartNIC that runs no algorithm passes on one INV and gathers ACKs.
    pub(super) const fn relays(&self) -> bool {
        self.batching && !self.offload
    }

    /// Whether the model tells when an update is durable everywhere.
    pub(super) const fn tracks_durability(&self) -> bool {
        !matches!(self.model, Persistency::Event | Persistency::Scope)
    }

    pub(super) const fn fanout(&self) -> Fanout {
        if self.broadcast { Fanout::Broadcast } else { Fanout::Loop }
    }
}
