//! A transaction at its coordinator, in buffers that its steps reuse.

use std::cell::{Cell, RefCell};
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use nicol_core::fabric::{Fabric, FabricError, RequestId};
use nicol_core::ids::{NodeId, ShardId, TxnId, Version};
use nicol_core::txn::{Abort, Txn};
use nicol_kit::{Calls, Selection};
use nicol_store::remote_table::{BlockRef, Header, Walk};

use crate::part::count_shards;
use crate::rdma_occ::OPEN_MAX;
use crate::rdma_occ::node::Node;

/// A coordinator's state of one key besides the transaction's entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct AccessRecord {
    pub(super) shard: ShardId,
    /// The node of its shard's primary.
    pub(super) node: NodeId,
    /// True if that is this node.
    pub(super) here: bool,
    pub(super) source: ValidationSource,
    pub(super) held: Held,
}

/// The source by which a key's version is validated.
#[derive(Clone, Copy, Debug)]
pub(super) enum ValidationSource {
    /// Its owner said so.
    Owner,
    /// The record's header word, at this address; does the value stand in the slot?
    Header { address: u64, unlocked: Header, inline: bool },
    /// The bucket version of an absent key's home.
    BucketVersion { address: u64, version: u64 },
}

/// How a key is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    No,
    /// Its owner was asked, and has not answered.
    Asked,
    /// By its owner, for this transaction.
    ByOwner,
    /// By a CAS of this engine.
    BySwap,
    /// By a CAS, or by its owner for this engine; its new value is in place, under the old header.
    Written,
    /// A CAS was posted; if it failed, it took place or not.
    Perhaps,
}

/// A key that is being read.
pub(super) struct Lookup<F: Fabric> {
    /// Its index in the transaction.
    pub(super) index: usize,
    pub(super) node: NodeId,
    pub(super) at: At,
    /// READs so far, one after the other.
    pub(super) reads: u32,
    /// The READ of the block where the value stood last, posted with that of its slot.
    pub(super) ahead: Option<(BlockRef, F::Completion)>,
}

/// The place that a lookup reads next.
#[derive(Clone, Copy, Debug)]
pub(super) enum At {
    Address(u64),
    Bucket(Walk),
    /// The value of a record whose slot it has read.
    Block {
        block: BlockRef,
        version: Version,
        source: ValidationSource,
    },
}

/// A log record on its way to a backup.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) shard: ShardId,
    pub(super) to: NodeId,
    /// Of the transaction's log bytes.
    pub(super) bytes: Range<usize>,
    pub(super) way: Way,
}

/// How a log record travels.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    /// A LOG that carries the record's body; the request, if it went unanswered and may still take
    /// effect.
    Rpc(Option<RequestId>),
    /// A WRITE of the framed record to `offset`; the ring's tail was at `end` behind it.
    Write { offset: u64, end: u64 },
}

/// A transaction at its coordinator.
pub(super) struct OpenTxn<F: Fabric> {
    /// What is left to do when the client has its outcome is done with this copy.
    pub(super) txn: Txn,
    /// True once the time of its beginning has passed (`SharedMemory::caught_up`).
    pub(super) caught_up: bool,
    /// Rounds of execution logic so far.
    pub(super) rounds: usize,
    /// Per entry of the transaction.
    pub(super) accesses: Vec<AccessRecord>,
    /// Shards whose primary left a request that locks unanswered: its ABORT must fence it.
    pub(super) unanswered: Vec<(ShardId, RequestId)>,
    /// The keys of one message.
    pub(super) keys: Selection,
    /// The keys that a step is to lock.
    pub(super) to_lock: Selection,
    /// Requests to the primaries of shards.
    pub(super) calls: Calls<F, ShardId>,
    /// READs of keys.
    pub(super) lookups: Calls<F, Lookup<F>>,
    /// Verbs about a header or a bucket version, each of the key of this index.
    pub(super) verbs: Calls<F, usize>,
    /// WRITEs to the record of the key of this index.
    pub(super) writes: Calls<F, usize>,
    /// What is to be logged of each shard: a range of `bodies`.
    pub(super) shards: Vec<(ShardId, Range<usize>)>,
    pub(super) bodies: Vec<u8>,
    /// Log records on their way; each is a range of `bytes`.
    pub(super) records: Calls<F, Record>,
    pub(super) bytes: Vec<u8>,
    /// Log records that did not arrive in time, or perhaps did.
    pub(super) lost: Vec<Record>,
    /// Of each record that its backup, which is gone, has not acknowledged: the shard.
    pub(super) excused: Vec<ShardId>,
    /// The second round of LOG: requests to the backups.
    pub(super) acks: Calls<F, NodeId>,
    /// True if it was begun.
    pub(super) acknowledged: bool,
    /// How far the rings must have landed.
    pub(super) ends: Vec<(NodeId, u64)>,
}

impl<F: Fabric> Default for OpenTxn<F> {
    fn default() -> Self {
        Self {
            txn: Txn::default(),
            caught_up: false,
            rounds: 0,
            accesses: Vec::new(),
            unanswered: Vec::new(),
            keys: Selection::default(),
            to_lock: Selection::default(),
            calls: Calls::default(),
            lookups: Calls::default(),
            verbs: Calls::default(),
            writes: Calls::default(),
            shards: Vec::new(),
            bodies: Vec::new(),
            records: Calls::default(),
            bytes: Vec::new(),
            lost: Vec::new(),
            excused: Vec::new(),
            acks: Calls::default(),
            acknowledged: false,
            ends: Vec::new(),
        }
    }
}

impl<F: Fabric> OpenTxn<F> {
    /// How many shards `txn` updates.
    pub(super) fn count_shards_updated(&self, txn: &Txn) -> u16 {
        count_shards(shards_of(&self.accesses, |index, _| txn.update(index).is_some()).flatten())
    }

    /// Selects the keys of the next shard that has any which `wanted` accepts.
    pub(super) fn next_shard(
        &mut self,
        last: Option<ShardId>,
        wanted: impl Fn(usize, &AccessRecord) -> bool,
    ) -> Option<ShardId> {
        self.keys.next_shard(last, shards_of(&self.accesses, wanted))
    }

    /// Selects the keys of `shard` that `wanted` accepts.
    pub(super) fn select(&mut self, shard: ShardId, wanted: impl Fn(usize, &AccessRecord) -> bool) {
        self.keys.of(shard, shards_of(&self.accesses, wanted));
    }

    /// Selects the keys that the primary of `shard` holds locked, or may.
    pub(super) fn select_held(&mut self, shard: ShardId) {
        self.select(shard, |_, access| access.is_owners());
    }

    /// Does it hold no lock, and can it hold none?
    fn holds_nothing(&self) -> bool {
        self.accesses.iter().all(|access| access.held == Held::No)
    }
}

impl AccessRecord {
    /// Does the transaction hold it locked, for certain?
    pub(super) fn is_locked(&self) -> bool {
        matches!(self.held, Held::ByOwner | Held::BySwap)
    }

    /// Does its owner hold it locked for the transaction, or may it?
    pub(super) fn is_owners(&self) -> bool {
        matches!(self.held, Held::ByOwner | Held::Asked)
    }
}

/// The shard of each key that is `wanted`.
pub(super) fn shards_of(
    accesses: &[AccessRecord],
    wanted: impl Fn(usize, &AccessRecord) -> bool,
) -> impl Iterator<Item = Option<ShardId>> {
    let of = move |(index, access): (usize, &AccessRecord)| {
        wanted(index, access).then_some(access.shard)
    };
    accesses.iter().enumerate().map(of)
}

/// Notes what the answer of the primary of `shard` says about the locks that it was asked for: all
/// or none, and nothing yet if there was no answer.
pub(super) fn note_answer(
    accesses: &mut [AccessRecord],
    unanswered: &mut Vec<(ShardId, RequestId)>,
    shard: ShardId,
    granted: Result<(), Abort>,
) -> Result<(), Abort> {
    let asked =
        accesses.iter_mut().filter(|access| access.held == Held::Asked && access.shard == shard);
    if let Err(Abort::Fabric(FabricError::TimedOut { request })) = granted {
        // It may have locked, or may still: its ABORT fences the request.
        if asked.count() > 0 {
            unanswered.push((shard, request));
        }
        return granted;
    }
    let held = if granted.is_ok() { Held::ByOwner } else { Held::No };
    asked.for_each(|access| access.held = held);
    granted
}

/// A transaction in the hands of its coordinator, until a task of its own ends it.
pub(super) struct InHand<F: Fabric>(Option<Box<OpenTxn<F>>>);

impl<F: Fabric> InHand<F> {
    /// Hands it over to the task that ends it.
    pub(super) fn hand_over(&mut self) -> Box<OpenTxn<F>> {
        match self.0.take() {
            Some(open) => open,
            None => panic!("a transaction is ended once"),
        }
    }
}

impl<F: Fabric> Deref for InHand<F> {
    type Target = OpenTxn<F>;

    fn deref(&self) -> &OpenTxn<F> {
        match &self.0 {
            Some(open) => open,
            None => panic!("no step comes after the last one"),
        }
    }
}

impl<F: Fabric> DerefMut for InHand<F> {
    fn deref_mut(&mut self) -> &mut OpenTxn<F> {
        match &mut self.0 {
            Some(open) => open,
            None => panic!("no step comes after the last one"),
        }
    }
}

/// The open transactions of one engine, and spare states for more.
#[expect(clippy::vec_box, reason = "the boxes travel between tasks; only their memory is kept")]
pub(super) struct OpenTxns<F: Fabric> {
    fabric: F,
    node: Arc<Node>,
    sequence: Cell<u64>,
    opened: Cell<usize>,
    spare: RefCell<Vec<Box<OpenTxn<F>>>>,
}

impl<F: Fabric> OpenTxns<F> {
    pub(super) fn new(fabric: F, node: Arc<Node>) -> Self {
        let (sequence, opened, spare) = (Cell::new(0), Cell::new(0), RefCell::default());
        Self { fabric, node, sequence, opened, spare }
    }

    /// A blank transaction state, and an id for it; `None` if too many are open.
    pub(super) fn open(&self) -> Option<(TxnId, InHand<F>)> {
        if self.opened.get() == OPEN_MAX {
            return None;
        }
        self.opened.set(self.opened.get() + 1);
        self.node.opened();
        self.sequence.set(self.sequence.get() + 1);
        let (here, life) = (self.fabric.here(), self.fabric.incarnation());
        let id = TxnId::new(here, life, self.sequence.get());
        let spare = self.spare.borrow_mut().pop();
        Some((id, InHand(Some(spare.unwrap_or_default()))))
    }

    /// Takes the state of a transaction that holds nothing; returns that of another one.
    pub(super) fn close_idle(&self, open: Box<OpenTxn<F>>) -> Option<Box<OpenTxn<F>>> {
        if open.holds_nothing() {
            self.close(open);
            return None;
        }
        Some(open)
    }

    /// Takes a finished transaction's state back.
    pub(super) fn close(&self, mut open: Box<OpenTxn<F>>) {
        assert!(open.holds_nothing(), "a finished transaction holds no locks");
        assert!(open.unanswered.is_empty(), "a finished transaction awaits no answer");
        assert!(open.calls.is_empty(), "a finished transaction has no calls");
        assert!(open.lookups.is_empty(), "a finished transaction reads nothing");
        assert!(open.verbs.is_empty(), "a finished transaction has no verbs");
        assert!(open.writes.is_empty(), "a finished transaction writes nothing");
        assert!(open.records.is_empty(), "a finished transaction has logged");
        assert!(open.lost.is_empty(), "a finished transaction has logged everywhere");
        open.txn.reset(Default::default(), &[]);
        open.caught_up = false;
        open.rounds = 0;
        open.accesses.clear();
        open.shards.clear();
        open.excused.clear();
        open.acknowledged = false;
        open.bodies.clear();
        open.bytes.clear();
        open.ends.clear();
        self.node.closed();
        self.opened.set(self.opened.get() - 1);
        self.spare.borrow_mut().push(open);
    }
}
