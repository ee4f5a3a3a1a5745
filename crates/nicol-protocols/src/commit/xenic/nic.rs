//! A NIC engine: dispatches messages to the coordinator's and the server's side.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use nicol_core::fabric::{Delivery, Fabric, FabricError, RequestId, Service};
use nicol_core::ids::{IdMap, NodeId, ShardId, TxnId};
use nicol_core::txn::{ProcedureId, Procedures, Txn};
use nicol_core::view::ShardSet;
use nicol_core::wire::Malformed;
use nicol_store::host_table::ExhaustedSpace;

use super::log::LogWriter;
use super::lookup::Lookups;
use super::messages::{
    self, LOCK, LOG_ACK, READ, SHIP, SHIP_OUTCOME, TXN_ABORT, TXN_COMMIT, TXN_EXECUTE, TXN_LOCAL,
    TXN_REQUEST, local, ship, split_requests,
};
use super::node::{Node, Path};
use super::shipped::RemoteExecution;
use crate::commit::messages::{ABORT, COMMIT, EXECUTE, Keys, LOG, Reads, VALIDATE, Writes};

/// Spare transaction states kept for reuse.
const SPARE_MAX: usize = 4_096;

/// A transaction at its coordinator NIC, with the buffers that its phases reuse.
pub(super) struct OpenTxn<F: Fabric> {
    pub(super) txn: Txn,
    /// Shards whose primaries may hold locks of it.
    pub(super) held: ShardSet,
    /// Shards whose EXECUTE went unanswered: their ABORT must fence it.
    pub(super) unanswered: Vec<(ShardId, RequestId)>,
    /// Requests in flight.
    pub(super) calls: Vec<Sent<F>>,
    /// Indices of keys, for one message.
    pub(super) keys: Vec<usize>,
    /// Indices of the keys fetched in this round.
    pub(super) fetched: Vec<usize>,
    /// Indices of the keys that are locked for reading at this node.
    pub(super) shared_locks: Vec<usize>,
    /// The requests under which backups ack what another node logs. [Xenic21 4.2.3]
    pub(super) delegated: Vec<RequestId>,
    /// Which values the primaries that it has asked have no room for.
    pub(super) exhausted: ExhaustedSpace,
    /// The way it takes.
    pub(super) path: Path,
}

/// A request in flight.
pub(super) struct Sent<F: Fabric> {
    pub(super) to: NodeId,
    pub(super) shard: ShardId,
    pub(super) reply: F::Completion,
}

/// One NIC engine of a node.
#[expect(clippy::vec_box, reason = "the boxes travel between tasks; only their memory is kept")]
pub(super) struct Nic<F: Fabric> {
    pub(super) fabric: F,
    pub(super) node: Arc<Node>,
    pub(super) procedures: Procedures,
    pub(super) log: LogWriter<F>,
    pub(super) lookups: Lookups<F>,
    pub(super) shipped: RefCell<IdMap<TxnId, RemoteExecution<F>>>,
    /// Procedures that have asked for further keys: they are not shipped again.
    pub(super) multi_round: RefCell<Vec<ProcedureId>>,
    open: RefCell<IdMap<TxnId, Box<OpenTxn<F>>>>,
    spare: RefCell<Vec<Box<OpenTxn<F>>>>,
    this: std::rc::Weak<Self>,
}

impl<F: Fabric> Nic<F> {
    pub(super) fn new(fabric: F, node: Arc<Node>, procedures: Procedures) -> Rc<Self> {
        let memory = node.log(fabric.here().core).clone();
        Rc::new_cyclic(|this| Self {
            log: LogWriter::new(fabric.clone(), memory),
            lookups: Lookups::new(fabric.clone(), node.clone()),
            fabric,
            node,
            procedures,
            shipped: RefCell::default(),
            multi_round: RefCell::default(),
            open: RefCell::default(),
            spare: RefCell::default(),
            this: this.clone(),
        })
    }

    /// A blank transaction state.
    pub(super) fn blank(&self) -> Box<OpenTxn<F>> {
        self.spare.borrow_mut().pop().unwrap_or_else(|| {
            Box::new(OpenTxn {
                txn: Txn::default(),
                held: ShardSet::new(),
                unanswered: Vec::new(),
                calls: Vec::new(),
                keys: Vec::new(),
                fetched: Vec::new(),
                shared_locks: Vec::new(),
                delegated: Vec::new(),
                exhausted: ExhaustedSpace::default(),
                path: Path::Ordinary,
            })
        })
    }

    /// Takes a finished transaction's state back.
    pub(super) fn recycle(&self, mut open: Box<OpenTxn<F>>) {
        assert!(open.held.is_empty(), "a finished transaction holds no locks");
        assert!(open.unanswered.is_empty(), "a finished transaction awaits no answer");
        assert!(open.calls.is_empty(), "a finished transaction has no calls");
        assert!(open.shared_locks.is_empty(), "a finished transaction shares no key");
        open.txn.reset(Default::default(), &[]);
        open.exhausted = ExhaustedSpace::default();
        open.path = Path::Ordinary;
        let mut spare = self.spare.borrow_mut();
        if spare.len() < SPARE_MAX {
            spare.push(open);
        }
    }

    /// Keeps a transaction whose host is executing.
    pub(super) fn park(&self, open: Box<OpenTxn<F>>) {
        let previous = self.open.borrow_mut().insert(open.txn.id, open);
        assert!(previous.is_none(), "a transaction id is used once");
    }

    /// The transaction whose host has executed.
    pub(super) fn resume(&self, id: TxnId) -> Option<Box<OpenTxn<F>>> {
        self.open.borrow_mut().remove(&id)
    }

    fn host_message(&self, this: Rc<Self>, delivery: Delivery<'_>) -> Result<(), Malformed> {
        let Some(reply_to) = delivery.reply_to else {
            return Err(Malformed { what: "a host request that wants no reply" });
        };
        if delivery.from.node != self.fabric.here().node {
            return Err(Malformed { what: "a host request from another node" });
        }
        if delivery.kind == TXN_REQUEST {
            let mut open = self.blank();
            if let Err(malformed) = messages::parse_txn_request(delivery.body, &mut open.txn) {
                self.recycle(open);
                return Err(malformed);
            }
            self.fabric.spawn(async move { this.begin(open, reply_to).await });
            return Ok(());
        }
        if delivery.kind == TXN_LOCAL {
            let mut open = self.blank();
            let parsed = local::parse_txn_local(delivery.body, &mut open.txn);
            let ranges = open.txn.range_versions().iter().map(|version| version.range.first());
            let keys = open.txn.entries().iter().map(|entry| entry.key);
            let here = self.node.is_local(keys.chain(ranges));
            let (Ok(refused), true) = (parsed, here) else {
                self.recycle(open);
                return Err(Malformed { what: "a local transaction" });
            };
            self.fabric.spawn(async move { this.commit_local(open, refused, reply_to).await });
            return Ok(());
        }
        let id = messages::parse_txn_id(delivery.body)?;
        let Some(mut open) = self.resume(id) else {
            self.fabric.refuse(reply_to, FabricError::Unreachable);
            return Ok(());
        };
        let parsed = match delivery.kind {
            TXN_EXECUTE => messages::parse_txn_execute(delivery.body, &mut open.txn),
            TXN_COMMIT => messages::parse_txn_commit(delivery.body, &mut open.txn),
            _ => Ok(()),
        };
        if let Err(malformed) = parsed {
            self.park(open);
            return Err(malformed);
        }
        match delivery.kind {
            TXN_EXECUTE => {
                self.fabric.spawn(async move { this.execute_more(open, reply_to).await })
            }
            TXN_COMMIT => self.fabric.spawn(async move { this.finish(open, reply_to).await }),
            _ => self.fabric.spawn(async move { this.refuse(open, reply_to).await }),
        }
        Ok(())
    }

    fn peer_message(&self, this: Rc<Self>, delivery: Delivery<'_>) -> Result<(), Malformed> {
        let Some(reply_to) = delivery.reply_to else {
            return Err(Malformed { what: "a request that wants no reply" });
        };
        match delivery.kind {
            SHIP => return self.take_ship(this, delivery, reply_to),
            SHIP_OUTCOME => {
                let id = ship::parse_ship_outcome(delivery.body)?;
                self.tell_outcome(id, reply_to);
                return Ok(());
            }
            EXECUTE | READ | ABORT => {
                let keys = Keys::parse(delivery.body)?;
                if keys.iter().any(|access| !self.node.is_primary_of(access.key)) {
                    return Err(Malformed { what: "a key of another shard" });
                }
            }
            VALIDATE => {
                let reads = Reads::parse(delivery.body)?;
                if reads.iter().any(|read| !self.node.is_primary_of(read.key)) {
                    return Err(Malformed { what: "a key of another shard" });
                }
            }
            LOCK => {
                let (_, reads) = split_requests::parse_lock(delivery.body)?;
                if reads.iter().any(|read| !self.node.is_primary_of(read.key)) {
                    return Err(Malformed { what: "a key of another shard" });
                }
            }
            LOG => {
                if !self.node.is_backup_of(Writes::parse(delivery.body)?.shard) {
                    return Err(Malformed { what: "a LOG for a shard not backed up here" });
                }
            }
            COMMIT => {
                let writes = Writes::parse(delivery.body)?;
                if writes.iter().any(|(key, ..)| !self.node.is_primary_of(key)) {
                    return Err(Malformed { what: "a key of another shard" });
                }
            }
            _ => return Err(Malformed { what: "an unknown kind of message" }),
        }
        let body = self.fabric.keep(delivery.body);
        match delivery.kind {
            EXECUTE | READ => {
                self.fabric.spawn(async move { this.serve_execute(body, reply_to).await })
            }
            LOCK => self.fabric.spawn(async move { this.serve_lock(body, reply_to).await }),
            VALIDATE => self.fabric.spawn(async move { this.serve_validate(body, reply_to).await }),
            LOG => self.fabric.spawn(async move { this.serve_log(body, reply_to).await }),
            COMMIT => self.fabric.spawn(async move { this.serve_commit(body, reply_to).await }),
            // A task too, so that it runs behind an EXECUTE that was delivered before it.
            _ => self.fabric.spawn(async move { this.serve_abort(body, reply_to) }),
        }
        Ok(())
    }
}

impl<F: Fabric> Service for Nic<F> {
    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        let Some(this) = self.this.upgrade() else {
            return Err(Malformed { what: "a message to an engine that is shutting down" });
        };
        match delivery.kind {
            LOG_ACK => {
                let ack = messages::parse_log_ack(delivery.body)?;
                self.log.acknowledge(ack.applied, |key| self.node.unpin(key));
                Ok(())
            }
            TXN_REQUEST | TXN_EXECUTE | TXN_COMMIT | TXN_ABORT | TXN_LOCAL => {
                self.host_message(this, delivery)
            }
            _ => self.peer_message(this, delivery),
        }
    }
}
