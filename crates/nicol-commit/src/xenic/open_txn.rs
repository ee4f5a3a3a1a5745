//! A transaction at a NIC engine, in buffers that its steps reuse.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

use nicol_core::exec::Signal;
use nicol_core::fabric::{Fabric, ReplyTo, RequestId};
use nicol_core::ids::{Epoch, NodeId, ShardId};
use nicol_core::txn::{Entry, Txn, Verdict};
use nicol_kit::{Calls, HeldLocks, KeyShards, Selection};
use nicol_store::host_table::ExhaustedSpace;

use super::node::{Node, Path};
use crate::part::count_shards;
use crate::writes::Updated;

/// Spare transaction states kept for reuse.
const SPARE_MAX: usize = 4_096;
/// Bytes of values that one keeps at most: several groups of commands (decision 0187).
const KEPT_BYTES_MAX: usize = 512 << 10;

/// A transaction at its coordinator's NIC, or at the NIC that executes it for another one.
pub(super) struct OpenTxn<F: Fabric> {
    pub(super) txn: Txn,
    /// The shards of its keys.
    pub(super) shards: KeyShards,
    /// Where the host waits for the next answer.
    pub(super) host: ReplyTo,
    /// What the host has decided, once it has executed.
    pub(super) decided: Option<Verdict>,
    /// Wakes the coordinator when the host has decided.
    pub(super) turn: Signal,
    /// Has the host been told the outcome?
    pub(super) reported: bool,
    /// Rounds of execution logic so far.
    pub(super) rounds: usize,
    /// The way it takes.
    pub(super) path: Path,
    /// The shards whose primaries may hold locks of it.
    pub(super) locks: HeldLocks,
    /// Indices of the keys that are locked for reading at this node.
    pub(super) shared_locks: Vec<usize>,
    /// Which values the primaries that it has asked have no space for.
    pub(super) exhausted: ExhaustedSpace,
    /// The keys of one message.
    pub(super) keys: Selection,
    /// Indices of the keys fetched in this round.
    pub(super) fetched: Vec<usize>,
    /// Requests to the primaries of shards.
    pub(super) calls: Calls<F, PrimaryCall>,
    /// The epoch of its first EXECUTE, if messages say it.
    pub(super) began: Option<Epoch>,
    /// Does this engine coordinate it?
    coordinated: bool,
    /// The shards that it updates, as its LOGs say.
    pub(super) updates: UpdatedShards,
    /// Requests to backups.
    pub(super) logs: Calls<F, LogCall>,
    /// Of each LOG that went unacknowledged because its receiver is gone: the shard.
    pub(super) excused: Vec<ShardId>,
    /// At the node that executes for another one: the requests under which backups ack to that
    /// one. [Xenic21 4.2.3]
    pub(super) delegated: Vec<RequestId>,
}

impl<F: Fabric> OpenTxn<F> {
    /// Works out the shards of the keys that it has been given.
    pub(super) fn place_keys(&mut self, node: &Node) {
        self.shards.follow(&self.txn, node.view());
    }

    /// Notes which shards it updates, for what its LOGs and COMMITs say.
    pub(super) fn note_shards_updated(&mut self) {
        let shards = self.shards.of(&self.txn, Entry::is_updated).flatten();
        self.updates.note(self.began, shards);
    }

    /// Selects the keys of `shard` that are `wanted`.
    pub(super) fn select(&mut self, shard: ShardId, wanted: impl Fn(&Entry) -> bool) {
        self.keys.of(shard, self.shards.of(&self.txn, wanted));
    }

    /// Selects the keys of the first shard behind `last` that has any which are `wanted`, and
    /// returns that shard.
    pub(super) fn next_shard(
        &mut self,
        last: Option<ShardId>,
        wanted: impl Fn(&Entry) -> bool,
    ) -> Option<ShardId> {
        self.keys.next_shard(last, self.shards.of(&self.txn, wanted))
    }

    /// Notes which keys this round of EXECUTE fetches.
    pub(super) fn note_fetched(&mut self) {
        let entries = self.txn.entries();
        self.fetched.clear();
        self.fetched.extend((0..entries.len()).filter(|&index| !entries[index].fetched));
    }

    /// The primary of `shard` is known to hold locks of the transaction.
    pub(super) fn holds_locks_at(&mut self, shard: ShardId) {
        self.locks.asked(shard);
        self.locks.granted(shard);
    }
}

/// The shards that a transaction updates.
#[derive(Debug, Default)]
pub(super) struct UpdatedShards {
    began: Option<Epoch>,
    count: u16,
    /// Only where messages list them.
    list: Vec<ShardId>,
}

impl UpdatedShards {
    /// Notes them, of a transaction that began in this epoch, if its messages say that. A shard may
    /// come more than once.
    fn note(&mut self, began: Option<Epoch>, shards: impl Iterator<Item = ShardId>) {
        self.began = began;
        if began.is_none() {
            self.count = count_shards(shards);
            return;
        }
        self.list.clear();
        self.list.extend(shards);
        self.list.sort_unstable();
        self.list.dedup();
        self.count = self.list.len() as u16;
    }

    /// How many they are.
    pub(super) const fn count(&self) -> u16 {
        self.count
    }

    /// They, in ascending order, where messages list them.
    pub(super) fn list(&self) -> &[ShardId] {
        &self.list
    }

    /// As LOGs and COMMITs say it.
    pub(super) fn told(&self) -> Updated<'_> {
        match self.began {
            Some(began) => Updated::Listed { began, shards: &self.list },
            None => Updated::Counted(self.count),
        }
    }
}

/// A request to the primary of a shard in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct PrimaryCall {
    pub(super) shard: ShardId,
    /// The index of the only key that it names; `None`: it names all that its step concerns.
    pub(super) only: Option<usize>,
    /// The request that it fences; `NONE`: it fences none.
    pub(super) fenced: RequestId,
}

impl PrimaryCall {
    /// One for all keys that its step concerns, which fences nothing.
    pub(super) fn to(shard: ShardId) -> Self {
        Self { shard, only: None, fenced: RequestId::NONE }
    }
}

/// A LOG in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogCall {
    pub(super) shard: ShardId,
    /// A backup, or the primary. AMB-50
    pub(super) to: NodeId,
    /// The request that another node sends on behalf of this one; `NONE` for one sent from here.
    pub(super) delegated: RequestId,
}

/// A transaction in the hands of its coordinator. While the host executes it is lent to
/// [`AtHost`](super::coordinator), where the host's next message finds it.
pub(super) struct InHand<F: Fabric>(Option<Box<OpenTxn<F>>>);

impl<F: Fabric> InHand<F> {
    pub(super) fn new(open: Box<OpenTxn<F>>) -> Self {
        Self(Some(open))
    }

    /// Lends it.
    pub(super) fn lend(&mut self) -> Box<OpenTxn<F>> {
        match self.0.take() {
            Some(open) => open,
            None => panic!("a transaction is lent once at a time"),
        }
    }

    /// Takes it back.
    pub(super) fn take_back(&mut self, open: Box<OpenTxn<F>>) {
        let lent = self.0.replace(open);
        assert!(lent.is_none(), "only what was lent comes back");
    }
}

impl<F: Fabric> Deref for InHand<F> {
    type Target = OpenTxn<F>;

    fn deref(&self) -> &OpenTxn<F> {
        match &self.0 {
            Some(open) => open,
            None => panic!("a coordinator waits while its transaction is lent"),
        }
    }
}

impl<F: Fabric> DerefMut for InHand<F> {
    fn deref_mut(&mut self) -> &mut OpenTxn<F> {
        match &mut self.0 {
            Some(open) => open,
            None => panic!("a coordinator waits while its transaction is lent"),
        }
    }
}

/// Spare transaction states of one NIC engine.
#[expect(clippy::vec_box, reason = "the boxes travel between tasks; only their memory is kept")]
pub(super) struct OpenTxns<F: Fabric> {
    fabric: F,
    spare: RefCell<Vec<Box<OpenTxn<F>>>>,
    /// How many of those that this engine coordinates began in which epoch, where messages say it.
    begun: RefCell<BTreeMap<Epoch, usize>>,
}

impl<F: Fabric> OpenTxns<F> {
    pub(super) fn new(fabric: F) -> Self {
        Self { fabric, spare: RefCell::default(), begun: RefCell::default() }
    }

    /// A blank transaction state, whose answers go to `host`.
    pub(super) fn open(&self, host: ReplyTo) -> Box<OpenTxn<F>> {
        let spare = self.spare.borrow_mut().pop();
        let mut open = spare.unwrap_or_else(|| {
            Box::new(OpenTxn {
                txn: Txn::default(),
                shards: KeyShards::default(),
                host,
                decided: None,
                turn: self.fabric.signal(),
                reported: false,
                rounds: 0,
                path: Path::Ordinary,
                locks: HeldLocks::default(),
                shared_locks: Vec::new(),
                exhausted: ExhaustedSpace::default(),
                keys: Selection::default(),
                fetched: Vec::new(),
                calls: Calls::default(),
                began: None,
                coordinated: false,
                updates: UpdatedShards::default(),
                logs: Calls::default(),
                excused: Vec::new(),
                delegated: Vec::new(),
            })
        });
        open.host = host;
        open
    }

    /// A transaction that this engine coordinates begins in this epoch, if messages say it.
    pub(super) fn begin(&self, open: &mut OpenTxn<F>, epoch: Option<Epoch>) {
        open.began = epoch;
        open.coordinated = true;
        if let Some(epoch) = epoch {
            *self.begun.borrow_mut().entry(epoch).or_default() += 1;
        }
    }

    /// Has every transaction ended that this engine coordinates and that began before `epoch`?
    pub(super) fn have_ended_before(&self, epoch: Epoch) -> bool {
        self.begun.borrow().range(..epoch).next().is_none()
    }

    fn note_end(&self, open: &mut OpenTxn<F>) {
        let began = open.began.take();
        let (true, Some(epoch)) = (std::mem::take(&mut open.coordinated), began) else { return };
        let begun = &mut *self.begun.borrow_mut();
        if let Some(left) = begun.get_mut(&epoch) {
            *left -= 1;
            if *left == 0 {
                begun.remove(&epoch);
            }
        }
    }

    /// Takes a finished transaction's state back.
    pub(super) fn close(&self, mut open: Box<OpenTxn<F>>) {
        assert!(open.locks.is_empty(), "a finished transaction holds no locks");
        assert!(open.shared_locks.is_empty(), "a finished transaction shares no key");
        assert!(open.calls.is_empty(), "a finished transaction has no calls");
        assert!(open.logs.is_empty(), "a finished transaction has logged");
        open.txn.reset(Default::default(), &[]);
        if open.txn.values().capacity() > KEPT_BYTES_MAX {
            open.txn = Txn::default();
        }
        open.shards.clear();
        self.note_end(&mut open);
        open.decided = None;
        open.reported = false;
        open.rounds = 0;
        open.excused.clear();
        open.exhausted = ExhaustedSpace::default();
        open.path = Path::Ordinary;
        let mut spare = self.spare.borrow_mut();
        if spare.len() < SPARE_MAX {
            spare.push(open);
        }
    }
}
