//! A host engine: what its coordinator and its server share, and where messages arrive.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use nicol_core::fabric::{
    Delivery, Fabric, FabricError, Message, ReplyTo, RequestId, Service, Timeout,
};
use nicol_core::ids::{EngineId, IdMap, Key, NodeId, RKey, ShardId, TxnId};
use nicol_core::memory::Access;
use nicol_core::txn::{Procedures, Txn};
use nicol_core::units::Nanos;
use nicol_core::wire::Malformed;
use nicol_store::remote_table::Header;

use super::Transport;
use super::logging::{LocalLog, Lost, Record, Ring};
use super::message_log::MessageLogs;
use super::messages::{HELLO, Hello, LOCK, RESERVE, RemoteHandles, parse_handles, parse_hello};
use super::node::Node;
use super::reads::Lookup;
use super::server::Scratch;
use crate::commit::log::LogMemory;
use crate::commit::messages::{ABORT, COMMIT, EXECUTE, LOG, VALIDATE};

/// Transactions that one engine may have open, those included that only have something to tidy up;
/// beyond it they abort.
pub(super) const OPEN_MAX: usize = 8_192;
/// How long what found no space, or failed and must happen, waits before it is tried again.
pub(super) const RETRY_WAIT: Nanos = Nanos::from_micros(5);

/// What a coordinator knows of one key besides the transaction's entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct AccessRecord {
    /// Its shard.
    pub(super) shard: ShardId,
    /// The node of its shard's primary.
    pub(super) node: NodeId,
    pub(super) source: ValidationSource,
    pub(super) held: Held,
}

/// What validates a key's version.
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

/// A transaction at its coordinator, with the buffers that its phases reuse.
pub(super) struct Open<F: Fabric> {
    /// What is left to do when the client has its outcome is done with this copy.
    pub(super) txn: Txn,
    /// Has the time of its beginning passed (`SharedMemory::caught_up`)?
    pub(super) caught_up: bool,
    /// Per entry of the transaction.
    pub(super) accesses: Vec<AccessRecord>,
    /// Nodes whose lock request went unanswered: their ABORT must fence it.
    pub(super) unanswered: Vec<(NodeId, RequestId)>,
    /// Requests in flight.
    pub(super) calls: Vec<Sent<F>>,
    /// READs in flight.
    pub(super) lookups: VecDeque<Lookup<F>>,
    /// Verbs in flight, each about one key.
    pub(super) verbs: Vec<Verb<F>>,
    /// WRITEs of records in flight.
    pub(super) writes: Vec<Verb<F>>,
    /// Indices of keys, for one message.
    pub(super) keys: Vec<usize>,
    /// What is to be logged of each shard: a range of `bodies`.
    pub(super) shards: Vec<(ShardId, Range<usize>)>,
    pub(super) bodies: Vec<u8>,
    /// Log records on their way; each is a range of `bytes`.
    pub(super) records: Vec<Record<F>>,
    pub(super) bytes: Vec<u8>,
    /// Log records that must be sent again, and how far the rings must have landed.
    pub(super) lost: Vec<Lost>,
    pub(super) ends: Vec<(NodeId, u64)>,
}

/// A request in flight.
pub(super) struct Sent<F: Fabric> {
    pub(super) to: NodeId,
    pub(super) reply: F::Completion,
}

/// A verb in flight.
pub(super) struct Verb<F: Fabric> {
    /// The key's index in the transaction.
    pub(super) index: usize,
    pub(super) done: F::Completion,
}

impl<F: Fabric> Open<F> {
    fn new() -> Self {
        Self {
            txn: Txn::default(),
            caught_up: false,
            accesses: Vec::new(),
            unanswered: Vec::new(),
            calls: Vec::new(),
            lookups: VecDeque::new(),
            verbs: Vec::new(),
            writes: Vec::new(),
            keys: Vec::new(),
            shards: Vec::new(),
            bodies: Vec::new(),
            records: Vec::new(),
            bytes: Vec::new(),
            lost: Vec::new(),
            ends: Vec::new(),
        }
    }

    /// Puts the indices of the keys of `node`'s shard that `wanted` accepts into `keys`; are there
    /// any?
    pub(super) fn select(
        &mut self,
        node: NodeId,
        wanted: impl Fn(usize, &AccessRecord) -> bool,
    ) -> bool {
        self.select_any(|index, access| access.node == node && wanted(index, access))
    }

    /// Puts the keys that are `wanted` into `keys`; are there any?
    pub(super) fn select_any(&mut self, wanted: impl Fn(usize, &AccessRecord) -> bool) -> bool {
        self.keys.clear();
        for (index, access) in self.accesses.iter().enumerate() {
            if wanted(index, access) {
                self.keys.push(index);
            }
        }
        !self.keys.is_empty()
    }

    /// Does it hold no lock, and can it hold none?
    pub(super) fn holds_nothing(&self) -> bool {
        self.accesses.iter().all(|access| access.held == Held::No)
    }
}

/// One host engine of a node.
#[expect(clippy::vec_box, reason = "the boxes travel between tasks; only their memory is kept")]
pub(super) struct Host<F: Fabric> {
    pub(super) fabric: F,
    pub(super) node: Arc<Node>,
    pub(super) procedures: Procedures,
    /// The logs that this engine writes at other nodes, by node.
    pub(super) rings: Vec<Ring>,
    /// What this engine backs up for itself, and for others by RPC.
    pub(super) local_log: LocalLog,
    /// The message logs that this engine writes at other nodes, unless messages are SENDs.
    pub(super) messages: Option<MessageLogs<F>>,
    pub(super) scratch: RefCell<Scratch>,
    /// Keys that this engine locks by CAS, or tries to: a header names the engine only, so that
    /// its transactions must keep out of one another's way here.
    pub(super) swapping: RefCell<IdMap<Key, TxnId>>,
    sequence: Cell<u64>,
    opened: Cell<usize>,
    handles: RefCell<Vec<Option<RemoteHandles>>>,
    table: RKey,
    granted: RefCell<Vec<Option<RemoteHandles>>>,
    spare: RefCell<Vec<Box<Open<F>>>>,
    pub(super) this: std::rc::Weak<Self>,
}

impl<F: Fabric> Host<F> {
    pub(super) fn new(fabric: F, node: Arc<Node>, procedures: Procedures) -> Rc<Self> {
        let nodes = fabric.view().nodes();
        let size = node.log_of(fabric.here()).size();
        Rc::new_cyclic(|this| Self {
            rings: (0..nodes).map(|_| Ring::new(size, fabric.signal())).collect(),
            messages: MessageLogs::new(&fabric, &node),
            local_log: LocalLog::new(node.log_of(fabric.here()).clone()),
            scratch: RefCell::default(),
            swapping: RefCell::default(),
            sequence: Cell::new(0),
            opened: Cell::new(0),
            handles: RefCell::new(vec![None; nodes]),
            table: fabric.register(node.primary().replica.table.region(), Access::ReadWrite),
            granted: RefCell::new(vec![None; nodes]),
            spare: RefCell::default(),
            fabric,
            node,
            procedures,
            this: this.clone(),
        })
    }

    /// A blank transaction state, and an id for it; `None` if too many are open.
    pub(super) fn open(&self) -> Option<(TxnId, Box<Open<F>>)> {
        if self.opened.get() == OPEN_MAX {
            return None;
        }
        self.opened.set(self.opened.get() + 1);
        self.node.opened();
        self.sequence.set(self.sequence.get() + 1);
        let id = TxnId::new(self.fabric.here(), self.fabric.incarnation(), self.sequence.get());
        let spare = self.spare.borrow_mut().pop();
        Some((id, spare.unwrap_or_else(|| Box::new(Open::new()))))
    }

    /// Takes a finished transaction's state back.
    pub(super) fn close(&self, mut open: Box<Open<F>>) {
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
        open.accesses.clear();
        open.shards.clear();
        open.bodies.clear();
        open.bytes.clear();
        self.node.closed();
        self.opened.set(self.opened.get() - 1);
        self.spare.borrow_mut().push(open);
    }

    /// The host engine of `node` that works for this one.
    pub(super) fn engine_of(&self, node: NodeId) -> EngineId {
        EngineId::host(node, self.fabric.here().core)
    }

    pub(super) fn is_here(&self, node: NodeId) -> bool {
        node == self.fabric.here().node
    }

    /// A request that may give up.
    pub(super) fn ask<M: Message>(&self, node: NodeId, message: &M) -> F::Completion {
        let timeout = Timeout::After(self.node.config().timeout);
        match self.node.config().rpc_by {
            Transport::Send => self.fabric.call(self.engine_of(node), message, timeout),
            Transport::Write => self.write_request(node, message, timeout),
        }
    }

    /// A request that must take effect, after `unanswered`, which was asked before and may not.
    pub(super) fn demand<M: Message>(
        &self,
        node: NodeId,
        message: &M,
        unanswered: Option<RequestId>,
    ) -> F::Completion {
        let to = self.engine_of(node);
        match (self.node.config().rpc_by, unanswered) {
            (Transport::Send, Some(request)) => self.fabric.call_superseding(to, message, request),
            (Transport::Send, None) => self.fabric.call(to, message, Timeout::Never),
            // A message log is read in order: what was asked before is done before.
            (Transport::Write, _) => self.write_request(node, message, Timeout::Never),
        }
    }

    /// Answers a request.
    pub(super) fn answer<M: Message>(&self, to: ReplyTo, message: &M) {
        match self.node.config().rpc_by {
            Transport::Send => self.fabric.reply(to, message),
            Transport::Write => self.write_answer(to, message),
        }
    }

    /// What this engine may reach of `node`, asked for at first use.
    pub(super) async fn remote_handles(&self, node: NodeId) -> Result<RemoteHandles, FabricError> {
        loop {
            let known = self.handles.borrow()[usize::from(node.0)];
            if let Some(handles) = known {
                return Ok(handles);
            }
            // Where answers are WRITEs, the other must know this engine's handles, too.
            let mine = self.messages.is_some().then(|| self.grant(self.engine_of(node)));
            let timeout = Timeout::After(self.node.config().timeout);
            match self.fabric.call(self.engine_of(node), &Hello(mine), timeout).await {
                Ok(body) => {
                    let handles =
                        parse_handles(body.as_ref()).map_err(|_| FabricError::Malformed)?;
                    self.handles.borrow_mut()[usize::from(node.0)] = Some(handles);
                }
                // It has not started yet.
                Err(FabricError::Unreachable) => {
                    self.fabric.sleep_until(self.fabric.now() + RETRY_WAIT).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The handles of `node`, if they are known.
    pub(super) fn find_handles(&self, node: NodeId) -> Option<RemoteHandles> {
        self.handles.borrow()[usize::from(node.0)]
    }

    /// The handles of a node that has been asked before.
    pub(super) fn known_handles(&self, node: NodeId) -> RemoteHandles {
        match self.find_handles(node) {
            Some(handles) => handles,
            None => panic!("a node is asked for its handles before anything is posted to it"),
        }
    }

    /// Registers the logs that `engine` writes here, once.
    fn grant(&self, engine: EngineId) -> RemoteHandles {
        let granted = &mut self.granted.borrow_mut()[usize::from(engine.node.0)];
        let register = |log: &LogMemory| self.fabric.register(log.region(), Access::ReadWrite);
        *granted.get_or_insert_with(|| RemoteHandles {
            table: self.table,
            ring: register(self.node.log_of(engine)),
            messages: self.node.messages_of(engine).map(|log| register(log)),
        })
    }

    /// Answers HELLO.
    fn serve_hello(&self, delivery: &Delivery<'_>, reply_to: ReplyTo) -> Result<(), Malformed> {
        let from = delivery.from;
        if from != self.engine_of(from.node) {
            return Err(Malformed { what: "HELLO from an engine that works for others" });
        }
        if let Some(handles) = parse_hello(delivery.body)? {
            self.handles.borrow_mut()[usize::from(from.node.0)] = Some(handles);
        }
        self.fabric.reply(reply_to, &self.grant(from));
        Ok(())
    }
}

impl<F: Fabric> Service for Host<F> {
    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        let Some(reply_to) = delivery.reply_to else {
            return Err(Malformed { what: "a request that wants no reply" });
        };
        let Some(this) = self.this.upgrade() else {
            return Err(Malformed { what: "a message to an engine that is shutting down" });
        };
        match delivery.kind {
            EXECUTE => self.serve_execute(delivery.body, reply_to),
            LOCK => self.serve_lock(delivery.body, reply_to),
            VALIDATE => self.serve_validate(delivery.body, reply_to),
            RESERVE => self.serve_reserve(delivery.body, reply_to),
            LOG => this.serve_log(delivery.body, reply_to),
            COMMIT => this.serve_commit(delivery.body, reply_to),
            ABORT => self.serve_abort(delivery.body, reply_to),
            HELLO => self.serve_hello(&delivery, reply_to),
            _ => Err(Malformed { what: "an unknown kind of message" }),
        }
    }
}
