//! The lives of a node, one after the other. A crash takes the memory of one; the next begins
//! empty, and is given the records. (decision 0105)

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use nicol_core::ids::{Incarnation, NodeId, ShardId, Side};
use nicol_core::txn::Procedures;
use nicol_core::view::{SideState, View};

use super::Node;
use crate::tables::{ByTable, Rows};

/// One life of a node, and those that follow.
#[derive(Debug)]
pub(in crate::xenic) struct Lives {
    is_first: bool,
    /// The tables of a shard, as a later life makes them.
    tables: ByTable<Rows>,
    /// What its transactions execute, once its engines have started.
    procedures: OnceLock<Procedures>,
    /// Of a later life: that of its NIC, by which views name it.
    nic: OnceLock<Incarnation>,
    /// Of which shards its leaders have said that it has every record.
    copied: Mutex<BTreeSet<ShardId>>,
    /// Does the view say that it has caught up?
    complete: AtomicBool,
    next: OnceLock<Arc<Node>>,
}

impl Lives {
    /// The first one: everything is loaded.
    pub(super) fn first(tables: ByTable<Rows>) -> Self {
        Self {
            is_first: true,
            tables,
            procedures: OnceLock::new(),
            nic: OnceLock::new(),
            copied: Mutex::default(),
            complete: AtomicBool::new(true),
            next: OnceLock::new(),
        }
    }

    /// A later one: nothing is.
    pub(super) fn later(tables: ByTable<Rows>) -> Self {
        Self { is_first: false, complete: AtomicBool::new(false), ..Self::first(tables) }
    }

    pub(in crate::xenic) const fn is_first(&self) -> bool {
        self.is_first
    }

    pub(super) const fn tables(&self) -> &ByTable<Rows> {
        &self.tables
    }

    /// Keeps `procedures` for later lives.
    pub(in crate::xenic) fn keep_procedures(&self, procedures: &Procedures) {
        let _kept = self.procedures.get_or_init(|| procedures.clone());
    }

    pub(super) fn procedures(&self) -> Option<&Procedures> {
        self.procedures.get()
    }

    /// A later one begins with this life of its NIC.
    pub(super) fn begin(&self, nic: Incarnation) {
        let _begun = self.nic.get_or_init(|| nic);
    }

    /// The life after this one, if there is one.
    pub(super) fn next(&self) -> Option<&Node> {
        self.next.get().map(|next| &**next)
    }

    /// The life after this one, which `make` makes if there is none.
    pub(super) fn next_or(&self, make: impl FnOnce() -> Arc<Node>) -> Arc<Node> {
        self.next.get_or_init(make).clone()
    }

    /// Does this life of `node` have the place that `view` gives the node? One that an engine knows
    /// when it starts is of an earlier life.
    pub(super) fn is_meant_by(&self, view: &View, node: NodeId) -> bool {
        let state = |&incarnation| SideState { up: true, incarnation };
        let nic = self.nic.get().map(state);
        self.is_first || nic == Some(view.side(node, Side::Nic))
    }

    /// Learns from a view which [means](Lives::is_meant_by) this life whether it has caught up.
    pub(super) fn learn(&self, view: &View, node: NodeId) {
        if !view.is_catching_up(node) {
            self.complete.store(true, Ordering::Release);
        }
    }

    /// Has it every record of all shards that the view gives it?
    pub(in crate::xenic) fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Acquire)
    }

    /// It has every record of `shard`.
    pub(in crate::xenic) fn note_copied(&self, shard: ShardId) {
        self.copied().insert(shard);
    }

    /// Has it every record of `shard`, as its leader has said?
    pub(in crate::xenic) fn has_copied(&self, shard: ShardId) -> bool {
        self.copied().contains(&shard)
    }

    fn copied(&self) -> std::sync::MutexGuard<'_, BTreeSet<ShardId>> {
        self.copied.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
