//! What the model knows: views, nodes with a replica of each shard, and transactions. A message is
//! no value of its own: that it was sent follows from its sender's state, so that it may be lost
//! (nobody ever takes it), late (taken whenever) and repeated (taken again).

/// Nodes, shards, keys of a shard, transactions, and views that a run may go through, at most.
pub const NODES: usize = 3;
pub const SHARDS: usize = 2;
pub const ROWS: usize = 2;
pub const KEYS: usize = SHARDS * ROWS;
pub const TXNS: usize = 3;
pub const VIEWS: usize = 5;
/// The number of the first view; a number is also an epoch.
pub const FIRST: u8 = 1;

/// A set of nodes, shards, keys or transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Set(u8);

impl Set {
    pub fn of(members: &[usize]) -> Self {
        members.iter().fold(Self::default(), |set, member| set.with(*member))
    }

    pub fn has(self, member: usize) -> bool {
        self.0 & 1 << member != 0
    }

    pub fn with(self, member: usize) -> Self {
        Self(self.0 | 1 << member)
    }

    pub fn without(self, member: usize) -> Self {
        Self(self.0 & !(1 << member))
    }

    pub fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..u8::BITS as usize).filter(move |member| self.has(*member))
    }
}

/// The shard of a key.
pub fn shard_of(key: usize) -> usize {
    key / ROWS
}

/// A value: its version, which orders the values of a key, and who wrote it (0: it was loaded).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value {
    pub epoch: u8,
    pub number: u8,
    pub writer: u8,
}

/// Who writes what `txn` writes.
pub fn writer(txn: usize) -> u8 {
    u8::try_from(txn + 1).expect("few transactions")
}

/// A view, whose number is its place in the view log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct View {
    /// The incarnation of each node, 0 if it is no member.
    pub lives: [u8; NODES],
    pub primary: [u8; SHARDS],
    /// The complete replicas, the primary among them.
    pub complete: [Set; SHARDS],
    /// Replicas that are sent LOGs but lack older records.
    pub catching_up: [Set; SHARDS],
    /// The view that last removed a complete replica of the shard.
    pub changed: [u8; SHARDS],
    /// The view that last added a replica of the shard.
    pub added: [u8; SHARDS],
}

impl View {
    pub fn has(&self, node: usize) -> bool {
        self.lives[node] > 0
    }

    pub fn primary(&self, shard: usize) -> usize {
        usize::from(self.primary[shard])
    }

    pub fn replicas(&self, shard: usize) -> Set {
        self.complete[shard].and(self.catching_up[shard])
    }
}

/// What a replica knows of a transaction's writes in its shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Fate {
    #[default]
    Nothing,
    /// It has the LOG record, and knows no decision.
    Logged,
    /// It has applied the record, and remembers that.
    Committed,
    /// It has dropped what it had, and remembers that.
    Aborted,
    /// The coordinator's mark has passed: the record is applied and gone.
    BelowMark,
    /// Recovery's decision is truncated: it says "nothing" when it is asked, but takes no LOG.
    Truncated,
}

impl Fate {
    pub fn is_committed(self) -> bool {
        matches!(self, Self::Committed | Self::BelowMark)
    }

    /// Is it neither undecided nor without any trace?
    pub fn is_decided(self) -> bool {
        !matches!(self, Self::Nothing | Self::Logged)
    }

    pub fn has_record(self) -> bool {
        self == Self::Logged || self.is_committed()
    }

    /// Can it send the record to others?
    pub fn can_send(self) -> bool {
        matches!(self, Self::Logged | Self::Committed)
    }
}

/// A node's replica of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Replica {
    pub is_serving: bool,
    pub values: [Value; ROWS],
    /// The transactions that hold each key's lock: one, or several after a recovery.
    pub locks: [Set; ROWS],
    pub fates: [Fate; TXNS],
    /// The view as which it last told a transaction as undecided, 0 if it has not.
    pub reports: [u8; TXNS],
    /// The view in which it last voted on a transaction, 0 if it has not, and what it said.
    pub votes: [u8; TXNS],
    pub said: [Fate; TXNS],
    /// The values that it is sent by the primary to catch up.
    pub chunk: Option<[Value; ROWS]>,
    /// Has it caught up?
    pub is_copied: bool,
}

/// A node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Node {
    /// It runs, and its lease is valid by its own clock.
    pub is_up: bool,
    pub life: u8,
    /// The newest view that it knows.
    pub view: u8,
    pub replicas: [Replica; SHARDS],
}

/// Where a transaction's coordinator stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Phase {
    #[default]
    NotBegun,
    Executing,
    Validating,
    Logging,
    /// All LOGs are acknowledged; the client is told, and COMMITs are sent.
    Committing,
    /// Before any LOG: the client is told, and ABORTs are sent.
    Aborting,
    /// It has left the transaction to recovery.
    Frozen,
}

/// A primary's reply to EXECUTE or VALIDATE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reply {
    #[default]
    None,
    Granted,
    Refused,
}

/// What has become of a transaction, as somebody was told or as some replica has applied it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Outcomes {
    pub committed: bool,
    pub aborted: bool,
}

impl Outcomes {
    pub fn add(&mut self, commits: bool) {
        self.committed |= commits;
        self.aborted |= !commits;
    }

    pub fn is_any(self) -> bool {
        self.committed || self.aborted
    }
}

/// A transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Txn {
    pub phase: Phase,
    /// The epoch of its first EXECUTE, and its coordinator's incarnation.
    pub epoch: u8,
    pub life: u8,
    /// Those that were told "committed" before it began.
    pub after: Set,
    pub executed: [Reply; SHARDS],
    pub validated: [Reply; SHARDS],
    pub seen: [Value; KEYS],
    pub wrote: [Value; KEYS],
    /// Has it sent LOGs?
    pub has_logged: bool,
    /// The nodes that have acknowledged a LOG of each shard.
    pub acks: [Set; SHARDS],
    /// The nodes whose log files hold the record.
    pub files: [Set; SHARDS],
    /// LOGs that were accepted, and wait to be appended (a planted fault).
    pub waiting: [Set; SHARDS],
    /// The shards whose primaries have acknowledged COMMIT.
    pub committed_at: Set,
    pub is_marked: bool,
    /// What the client was told.
    pub told: Outcomes,
    /// What it was told, or some replica has done.
    pub outcomes: Outcomes,
    /// What each view's recovery has decided, 0 if nothing.
    pub decisions: [Option<bool>; VIEWS + 1],
}

/// A state of the whole.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The view log, and how many it has.
    pub views: [View; VIEWS],
    pub newest: u8,
    pub nodes: [Node; NODES],
    pub txns: [Txn; TXNS],
}

impl State {
    pub fn view(&self, number: u8) -> &View {
        &self.views[usize::from(number - FIRST)]
    }

    pub fn newest(&self) -> &View {
        self.view(self.newest)
    }

    /// The newest view that a node knows.
    pub fn known(&self, node: usize) -> &View {
        self.view(self.nodes[node].view)
    }

    pub fn replica(&self, node: usize, shard: usize) -> &Replica {
        &self.nodes[node].replicas[shard]
    }

    /// Does the node run, and know the newest view, of which it is a member?
    pub fn is_current(&self, node: usize) -> bool {
        let found = &self.nodes[node];
        found.is_up && found.view == self.newest && self.newest().lives[node] == found.life
    }

    /// Adds a view to the log.
    pub fn push(&mut self, view: View) {
        self.newest += 1;
        self.views[usize::from(self.newest - FIRST)] = view;
    }

    /// Can the view log take another, and still one for each node that has stopped?
    pub fn has_room(&self) -> bool {
        let has_stopped = |n: &usize| self.newest().has(*n) && !self.nodes[*n].is_up;
        usize::from(self.newest) + (0..NODES).filter(has_stopped).count() < VIEWS
    }

    /// A replica installs a transaction's writes, each if it is newer than what is there.
    pub fn install(&mut self, txn: usize, node: usize, shard: usize) {
        let wrote = self.txns[txn].wrote;
        let values = &mut self.nodes[node].replicas[shard].values;
        for (row, value) in values.iter_mut().enumerate() {
            *value = (*value).max(wrote[shard * ROWS + row]);
        }
    }

    /// A replica knows what has become of a transaction, and its locks fall.
    pub fn close(&mut self, txn: usize, node: usize, shard: usize, fate: Fate) {
        let replica = &mut self.nodes[node].replicas[shard];
        replica.fates[txn] = fate;
        replica.locks = replica.locks.map(|holders| holders.without(txn));
    }
}
