//! What is explored: where replicas are, what the transactions do, what may go wrong, and what is
//! broken on purpose.

use crate::state::{FIRST, Node, Reply, SHARDS, Set, State, TXNS, VIEWS, View, shard_of};

/// A transaction's programme. What it writes it has read.
#[derive(Clone, Copy, Debug)]
pub struct Programme {
    /// Its coordinator's node.
    pub node: usize,
    pub reads: &'static [usize],
    pub writes: &'static [usize],
}

/// A mend that is taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// EXECUTE, VALIDATE and LOG are taken whatever their transaction's epoch is.
    EpochIgnored,
    /// They are taken whatever their coordinator's incarnation is.
    IncarnationIgnored,
    /// A message carries the epoch in which it was last sent.
    EpochAtTransmission,
    /// A LOG that waits to be appended is not checked again.
    UncheckedAfterWait,
    /// A backup applies a LOG when it arrives.
    AppliedAtLog,
    /// A replica that is catching up votes.
    StaleVote,
    /// A record that one replica has is not replicated before the decision.
    UnreplicatedVote,
    /// The mark passes a transaction when its LOGs are acknowledged.
    MarkAtLogAcks,
    /// Undecided records fill the logs.
    FullLogs,
    /// A restart reads every log there is and no aborts.
    RevivedAtRestart,
    /// A restart heeds aborts, and reads the logs of removed nodes too.
    RemovedLogsRead,
    /// A new primary does not lock what is undecided.
    LockNotRebuilt,
    /// A lock that recovery rebuilt falls with the first of its holders.
    OneHolder,
    /// A replica forgets a decision when it has applied it.
    EarlyTruncation,
    /// The decider of an earlier view may have a decision forgotten.
    EarlierTruncation,
    /// A living coordinator decides beside its replacement.
    DecidedTwice,
    /// A new primary serves while others' leases of earlier views last.
    LeaseOverlap,
    /// No record at the primary where the coordinator is a backup. AMB-50
    BackupsOnly,
    /// The same where a backup is missing, or the coordinator is one that catches up.
    MissingBackups,
    /// A coordinator leaves what has not logged to recovery.
    UnloggedLeft,
    /// A write's version has its transaction's epoch.
    VersionOfTransaction,
    /// A record is not replicated to replicas that are catching up.
    CatchingUpLeftOut,
    /// A copy replaces what has been written since it was read.
    CopyOverNewer,
    /// A range is copied while older transactions are under way.
    CopyBeforeEnd,
}

/// What is explored.
#[derive(Clone, Debug)]
pub struct Scope {
    pub name: &'static str,
    /// Failures at a time that nothing may be lost by.
    pub f: usize,
    /// The replicas of each shard, its first primary first. A shard may have none.
    pub replicas: [&'static [usize]; SHARDS],
    pub programmes: &'static [Programme],
    /// Does the primary of every shard keep the record before the client is told? Then what is told
    /// survives a loss of power, too.
    pub is_synced: bool,
    /// May a node be taken for dead while it runs?
    pub suspects: bool,
    /// May a node that was removed come back?
    pub returns: bool,
    pub fault: Option<Fault>,
    /// The only property that is checked, if not all are.
    pub only: Option<&'static str>,
}

impl Scope {
    pub fn breaks(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    pub fn txns(&self) -> impl Iterator<Item = usize> {
        0..self.programmes.len()
    }

    /// Where a transaction's coordinator is.
    pub fn coordinator(&self, txn: usize) -> usize {
        self.programmes[txn].node
    }

    pub fn reads(&self, txn: usize, shard: usize) -> impl Iterator<Item = usize> {
        self.programmes[txn].reads.iter().copied().filter(move |key| shard_of(*key) == shard)
    }

    pub fn writes(&self, txn: usize, shard: usize) -> impl Iterator<Item = usize> {
        self.programmes[txn].writes.iter().copied().filter(move |key| shard_of(*key) == shard)
    }

    /// Keys that it reads and does not write: VALIDATE looks at them.
    pub fn only_reads(&self, txn: usize, shard: usize) -> impl Iterator<Item = usize> {
        self.reads(txn, shard).filter(move |key| !self.programmes[txn].writes.contains(key))
    }

    /// The shards that a transaction touches.
    pub fn touched(&self, txn: usize) -> impl Iterator<Item = usize> {
        (0..SHARDS).filter(move |shard| self.reads(txn, *shard).next().is_some())
    }

    /// The shards that its LOG records list.
    pub fn listed(&self, txn: usize) -> impl Iterator<Item = usize> {
        (0..SHARDS).filter(move |shard| self.writes(txn, *shard).next().is_some())
    }

    /// Every node up, every replica complete, nothing begun.
    pub fn first(&self) -> State {
        let members = self.replicas.iter().fold(Set::default(), |all, one| all.and(Set::of(one)));
        let mut view = View { changed: [FIRST; SHARDS], added: [FIRST; SHARDS], ..View::default() };
        let mut nodes = [Node::default(); crate::state::NODES];
        for (n, node) in nodes.iter_mut().enumerate() {
            node.is_up = members.has(n);
            (node.life, node.view) = (1, FIRST);
            view.lives[n] = u8::from(node.is_up);
        }
        for (shard, replicas) in self.replicas.iter().enumerate() {
            let Some(&primary) = replicas.first() else { continue };
            view.primary[shard] = u8::try_from(primary).expect("few nodes");
            view.complete[shard] = Set::of(replicas);
            nodes[primary].replicas[shard].is_serving = true;
        }
        let mut views = [View::default(); VIEWS];
        views[0] = view;
        State { views, newest: FIRST, nodes, txns: Default::default() }
    }

    /// Does the incarnation of the coordinator that began the transaction run?
    pub fn is_alive(&self, state: &State, txn: usize) -> bool {
        let node = &state.nodes[self.coordinator(txn)];
        node.is_up && node.life == state.txns[txn].life
    }

    /// Is it a member of the newest view?
    pub fn is_member(&self, state: &State, txn: usize) -> bool {
        state.newest().lives[self.coordinator(txn)] == state.txns[txn].life
    }

    /// Has a shard that the transaction touches changed since it began, as `view` says?
    pub fn has_changed(&self, state: &State, txn: usize, view: &View) -> bool {
        self.touched(txn).any(|shard| view.changed[shard] > state.txns[txn].epoch)
    }

    /// The replicas that a transaction's LOG of a shard goes to.
    pub fn log_targets(&self, state: &State, txn: usize, shard: usize) -> Set {
        let view = state.view(state.txns[txn].epoch);
        let primary = view.primary(shard);
        let coordinator = self.coordinator(txn);
        let others = view.complete[shard].without(primary).without(coordinator);
        // AMB-50: the values are at f + 1 data nodes before the client is told. The primary keeps
        // the record where the coordinator is a backup, or backups are missing.
        let is_short = coordinator != primary && others.iter().count() < self.f;
        let keeps_at_primary = match self.fault {
            Some(Fault::BackupsOnly) => false,
            Some(Fault::MissingBackups) => is_short && view.complete[shard].has(coordinator),
            _ => is_short,
        };
        if self.is_synced || keeps_at_primary {
            return view.replicas(shard);
        }
        view.replicas(shard).without(primary)
    }

    /// Are all LOGs acknowledged? Nobody waits for a replica that was removed while it caught up.
    pub fn is_logged(&self, state: &State, txn: usize) -> bool {
        let began = state.view(state.txns[txn].epoch);
        let known = state.known(self.coordinator(txn));
        state.txns[txn].has_logged
            && self.listed(txn).all(|shard| {
                self.log_targets(state, txn, shard).iter().all(|node| {
                    let is_gone = known.lives[node] != began.lives[node];
                    let excused = is_gone && began.catching_up[shard].has(node);
                    excused || state.txns[txn].acks[shard].has(node)
                })
            })
    }

    /// Have all primaries that `shards` names replied, and has any refused?
    pub fn replies(
        shards: impl Iterator<Item = usize>,
        replies: &[Reply; SHARDS],
    ) -> Option<Reply> {
        let mut all = Reply::Granted;
        for shard in shards {
            match replies[shard] {
                Reply::None => return None,
                Reply::Granted => {}
                Reply::Refused => all = Reply::Refused,
            }
        }
        Some(all)
    }

    /// May another node fail? Those that are not complete members of the newest view already have.
    pub fn may_fail(&self, state: &State, node: usize) -> bool {
        let view = state.newest();
        let has_failed = |n: usize| {
            let found = &state.nodes[n];
            let lacks =
                |(shard, all): (usize, &&[usize])| all.contains(&n) && !view.complete[shard].has(n);
            !found.is_up
                || view.lives[n] != found.life
                || self.replicas.iter().enumerate().any(lacks)
        };
        let others = view_nodes().filter(|n| *n != node && has_failed(*n)).count();
        others < self.f && !has_failed(node)
    }
}

/// Every node.
pub fn view_nodes() -> impl Iterator<Item = usize> {
    0..crate::state::NODES
}

const _: () = assert!(TXNS <= 8, "transactions are members of a set");
