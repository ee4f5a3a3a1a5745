//! The commit family broken on purpose, for the checkers' negative tests. What stands before a
//! system's own steps and spoils them is the system's (`xenic/broken.rs`, `rdma_occ/broken.rs`,
//! decision 0017). Here is what it cannot spoil from there: the steps ask [`Hooks`], and know no
//! fault by name.

/// Ways to break the protocol on purpose, so that a sweep can show that its checkers see it.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// The protocol as it should be.
    None,
    /// VALIDATE is skipped.
    NoValidate,
    /// VALIDATE compares versions and ignores locks.
    ValidateIgnoresLocks,
    /// EXECUTE takes no locks.
    NoLocks,
    /// COMMIT unlocks before it installs.
    UnlockFirst,
    /// Locks are released when execution is done.
    EarlyUnlock,
    /// An aborted transaction installs its writes all the same.
    AbortInstalls,
    /// What was read of ordered tables is taken for current.
    IgnoresRangeVersions,
    /// Ranges are not held for a coordinator's own new records, which have no locks.
    UncoversInserts,
    /// After a crash: locks that a dead coordinator has left are given to the next transaction.
    StealsLocks,
    /// After a crash, or a timeout: a transaction commits although a backup that lives has not
    /// acknowledged.
    ForgetsBackups,
    /// After a crash: requests of transactions that a later view has overruled are served.
    TakesOverruled,
    /// Backups apply what they have logged at once, though they should wait for its decision.
    AppliesUndecided,
    /// After a crash: who comes to lead a shard does not lock what is undecided there.
    RebuildsNoLocks,
    /// After a crash: who comes to lead a shard serves it before what was begun there is decided.
    ServesAtOnce,
    /// After a crash: absent keys of a shard that another node has come to lead begin with
    /// version 0.
    RestartsVersions,
    /// After a crash: a survivor reports before its logs are read.
    ReportsUnread,
    /// After a crash: a decision is told though not all survivors have the record that it needs.
    DecidesUnreplicated,
    /// A backup acknowledges a LOG before it has it.
    AcksBeforeLogging,
    /// A primary that must log, too, acknowledges a LOG and keeps nothing of it.
    PrimaryLogsNothing,
    /// A LOG names one shard, whichever others its transaction updates.
    ListsOwnShard,
    /// Backups are told that a transaction has committed before its primaries are.
    DecidesAtLogs,
    /// After a crash: a survivor tells nothing of the locks that it has granted.
    ReportsNoLocks,
    /// After a crash: no survivor but the one that recovers is waited for.
    ReportsNothing,
    /// After a crash: a primary installs nothing of what survivors have decided.
    SkipsInstall,
    /// After a crash: survivors are told what commits, and not what aborts.
    TellsNoAborts,
}

/// What the steps ask. Every answer is the protocol's, but for the one that a planted fault spoils.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hooks(pub(crate) Sabotage);

impl Hooks {
    fn is(self, fault: Sabotage) -> bool {
        self.0 == fault
    }

    fn is_whole(self) -> bool {
        self.is(Sabotage::None)
    }

    /// Is a backup not waited for? `lost`: a view says that it is gone.
    pub(crate) fn excuses(self, lost: bool) -> bool {
        lost || self.is(Sabotage::ForgetsBackups)
    }

    /// Does a backup apply what nobody has decided yet?
    pub(crate) fn applies_undecided(self) -> bool {
        self.is(Sabotage::AppliesUndecided)
    }

    /// Does who comes to lead a shard lock what is undecided there?
    pub(crate) fn rebuilds_locks(self) -> bool {
        !self.is(Sabotage::RebuildsNoLocks)
    }

    /// Does who comes to lead a shard serve it at once?
    pub(crate) fn serves_at_once(self) -> bool {
        self.is(Sabotage::ServesAtOnce)
    }

    /// Do versions of a shard that another node has come to lead go on above all earlier ones?
    pub(crate) fn continues_versions(self) -> bool {
        !self.is(Sabotage::RestartsVersions)
    }

    /// Does a survivor report only what its logs tell once they are read?
    pub(crate) fn reads_before_reporting(self) -> bool {
        !self.is(Sabotage::ReportsUnread)
    }

    /// Are requests served that a later view has overruled?
    pub(crate) fn takes_overruled(self) -> bool {
        self.is(Sabotage::TakesOverruled)
    }

    /// Are backups told of a commit only when all primaries have acknowledged it?
    pub(crate) fn decides_after_commit(self) -> bool {
        !self.is(Sabotage::DecidesAtLogs)
    }

    /// Does an aborted transaction install its writes?
    pub(crate) fn installs_aborted(self) -> bool {
        self.is(Sabotage::AbortInstalls)
    }

    /// May an install bring a version that is not later than the one there? Such a protocol is for
    /// the checkers to find, and not for an assertion.
    pub(crate) fn installs_older(self) -> bool {
        !self.is_whole()
    }

    /// Are ranges held for a coordinator's own new records?
    pub(crate) fn covers_inserts(self) -> bool {
        !self.is(Sabotage::UncoversInserts)
    }
}
