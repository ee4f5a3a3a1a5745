//! Other nodes' memory: the handles under which one host engine reaches it, and the verbs that do.

use std::cell::RefCell;
use std::sync::Arc;

use nicol_core::exec::Signal;
use nicol_core::fabric::{Delivery, Fabric, FabricError, OneSided, ReplyTo, Timeout};
use nicol_core::ids::{EngineId, Key, NodeId, RKey};
use nicol_core::memory::{Access, WORD};
use nicol_core::units::Nanos;
use nicol_core::wire::Malformed;
use nicol_kit::VIEW_WAIT;
use nicol_store::remote_table::{Header, Span};

use super::config::{Transport, Verbs};
use super::messages::{Hello, RemoteHandles, parse_handles, parse_hello};
use super::node::Node;
use crate::log::LogMemory;
use crate::survivor::Survivor;

/// How long what found no space, or failed and must happen, waits before it is tried again.
const RETRY_WAIT: Nanos = Nanos::from_micros(5);

/// How many times [`VIEW_WAIT`] an engine whose verb failed waits for the view that confirms the
/// crash: 50 ms, which is several leases. By then a node that had merely not started yet is up.
const VIEW_WAITS_MAX: u32 = 1_000;

/// The memory of other nodes that one host engine may reach, and its own that they may reach.
pub(super) struct Reach<F: Fabric> {
    fabric: F,
    node: Arc<Node>,
    /// This node's own table, for others.
    table: RKey,
    /// The memory that this engine may reach, by node, as far as it has asked.
    handles: RefCell<Vec<Option<RemoteHandles>>>,
    /// The memory that others may reach here, by node, as far as they have asked.
    granted: RefCell<Vec<Option<RemoteHandles>>>,
    /// Nodes that have been granted rings here which nobody reads yet.
    unread: RefCell<Vec<NodeId>>,
    newly_granted: Signal,
}

/// The word that a READ of one has brought, or that a CAS, which never fails halfway, has found.
pub(super) fn word_of(bytes: &[u8]) -> Result<u64, FabricError> {
    bytes.first_chunk().map(|word| u64::from_le_bytes(*word)).ok_or(FabricError::Malformed)
}

impl<F: Fabric> Reach<F> {
    pub(super) fn new(fabric: F, node: Arc<Node>) -> Self {
        let nodes = fabric.view().nodes();
        let table = fabric.register(node.primary().replica.region(), Access::ReadWrite);
        let (handles, granted) = (RefCell::new(vec![None; nodes]), RefCell::new(vec![None; nodes]));
        let (unread, newly_granted) = (RefCell::default(), fabric.signal());
        Self { fabric, node, table, handles, granted, unread, newly_granted }
    }

    /// The host engine of `node` that works for this one.
    pub(super) fn engine_of(&self, node: NodeId) -> EngineId {
        EngineId::host(node, self.fabric.here().core)
    }

    pub(super) fn is_here(&self, node: NodeId) -> bool {
        node == self.fabric.here().node
    }

    /// True if `node` has lost its data, so that nothing can be reached there any more.
    pub(super) fn is_gone(&self, node: NodeId) -> bool {
        self.node.lost().contain(node)
    }

    /// Waits after `error`, which is why a request to `node` that must take effect has not: if a
    /// life of the node is over, for the view that tells so. A later life that has no lease yet
    /// drops what it is asked, so that nothing is asked again before.
    pub(super) async fn wait_after(&self, node: NodeId, error: FabricError) {
        if error != FabricError::Unreachable {
            return self.wait_to_retry().await;
        }
        for _ in 0..VIEW_WAITS_MAX {
            if self.is_gone(node) {
                return;
            }
            self.fabric.sleep_until(self.fabric.now() + VIEW_WAIT).await;
        }
    }

    /// Waits before what found no space, or failed and must happen, is tried again.
    pub(super) async fn wait_to_retry(&self) {
        self.fabric.sleep_until(self.fabric.now() + RETRY_WAIT).await;
    }

    /// The memory of `node` that this engine may reach, asked for at first use.
    pub(super) async fn handles_of(&self, node: NodeId) -> Result<RemoteHandles, FabricError> {
        loop {
            if let Some(handles) = self.find_handles(node) {
                return Ok(handles);
            }
            // Where answers are WRITEs, the other must know this engine's handles, too.
            let writes = self.node.config().rpc_by == Transport::Write;
            let mine = writes.then(|| self.grant(self.engine_of(node)));
            let timeout = Timeout::After(self.node.config().timeout);
            match self.fabric.call(self.engine_of(node), &Hello(mine), timeout).await {
                Ok(body) => {
                    let handles =
                        parse_handles(body.as_ref()).map_err(|_| FabricError::Malformed)?;
                    self.handles.borrow_mut()[usize::from(node.0)] = Some(handles);
                }
                // It has not started yet.
                Err(FabricError::Unreachable) if !self.is_gone(node) => self.wait_to_retry().await,
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
        *granted.get_or_insert_with(|| {
            self.unread.borrow_mut().push(engine.node);
            self.newly_granted.notify();
            RemoteHandles {
                table: self.table,
                ring: register(self.node.log_of(engine)),
                messages: self.node.messages_of(engine).map(|log| register(log)),
            }
        })
    }

    /// Calls `read` once with each node that is granted rings here, for ever.
    pub(super) async fn read_granted(&self, mut read: impl FnMut(NodeId)) {
        loop {
            let nodes = std::mem::take(&mut *self.unread.borrow_mut());
            nodes.into_iter().for_each(&mut read);
            self.newly_granted.wait().await;
        }
    }

    pub(super) fn serve_hello(
        &self,
        delivery: Delivery<'_>,
        reply_to: ReplyTo,
    ) -> Result<(), Malformed> {
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

    /// Posts a verb, to the card or to the software that executes this system's verbs.
    fn post(&self, node: NodeId, verb: OneSided<'_>) -> F::Completion {
        match self.node.config().verbs {
            Verbs::Card => self.fabric.one_sided(node, verb),
            Verbs::Software => self.fabric.one_sided_like_chain(node, verb),
        }
    }

    /// READs `span` of the table of `node`, for the sake of `key`.
    pub(super) fn read(&self, node: NodeId, key: Key, span: Span) -> F::Completion {
        self.fabric.about(key);
        let rkey = self.known_handles(node).table;
        let read = OneSided::Read { rkey, offset: span.offset, len: span.len as u32 };
        self.post(node, read)
    }

    /// READs the word at `address` of the table of `node`, for the sake of `key`.
    pub(super) fn read_word(&self, node: NodeId, key: Key, address: u64) -> F::Completion {
        self.read(node, key, Span { offset: address, len: WORD })
    }

    /// WRITEs to the record of `key` in the table of `node`.
    pub(super) fn write(&self, node: NodeId, key: Key, offset: u64, bytes: &[u8]) -> F::Completion {
        self.fabric.about(key);
        let rkey = self.known_handles(node).table;
        self.post(node, OneSided::Write { rkey, offset, bytes })
    }

    /// CASes the header word of `key` in the table of `node`.
    pub(super) fn swap(
        &self,
        node: NodeId,
        key: Key,
        address: u64,
        expected: Header,
        new: Header,
    ) -> F::Completion {
        let rkey = self.known_handles(node).table;
        self.fabric.about(key);
        let (expected, new) = (expected.word(), new.word());
        let swap = OneSided::CompareSwap { rkey, offset: address, expected, new };
        self.post(node, swap)
    }

    /// READs a word of a ring of another node, or one that its reader keeps behind it.
    pub(super) async fn read_log_word(
        &self,
        log: LogHandle,
        offset: u64,
    ) -> Result<u64, FabricError> {
        let read = OneSided::Read { rkey: log.rkey, offset, len: WORD as u32 };
        word_of(self.post(log.node, read).await?.as_ref())
    }

    /// WRITEs to a ring of another node.
    pub(super) fn write_log(&self, log: LogHandle, offset: u64, bytes: &[u8]) -> F::Completion {
        let write = OneSided::Write { rkey: log.rkey, offset, bytes };
        self.post(log.node, write)
    }
}

/// A ring in another node's memory that this engine alone writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogHandle {
    pub(super) node: NodeId,
    pub(super) rkey: RKey,
    pub(super) size: u64,
}
