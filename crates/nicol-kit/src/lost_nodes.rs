//! Nodes that lost their data in a crash, and the transactions that they left undecided.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nicol_core::fabric::Local;
use nicol_core::ids::{EngineId, Incarnation, NodeId, ShardId, Side, TxnId};
use nicol_core::units::Nanos;
use nicol_core::view::{Succession, View};

/// Time that an engine whose call ended with `Unreachable` waits for the view that confirms the end
/// of the target's incarnation.
pub const VIEW_WAIT: Nanos = Nanos::from_micros(50);

/// The nodes that lost their data, as one node knows them; its engines share this. Only views add
/// to it, since a node that does not answer may be up.
///
/// A node whose [halves](nicol_core::view::Halves) are lost with a side that has crashed has lost
/// what was loaded. Where nobody [succeeds](Succession) it holds nothing of it in a later life
/// either. Where backups do, it is lost until a view has it again: then it is given the records.
#[derive(Debug)]
pub struct LostNodes {
    /// The view under which everything was loaded.
    loaded: View,
    /// Whether any node was ever lost. Without a crash every question costs this one read.
    any: AtomicBool,
    /// Whether one is back that was.
    returned: AtomicBool,
    /// By node: see [`told`].
    nodes: Box<[AtomicU64]>,
    /// By shard: the node that holds its primary by the newest view known here, below the epoch of
    /// that view; [`NOBODY`] if the view says that the shard is lost.
    primaries: Box<[AtomicU64]>,
    /// Transactions of coordinators that live which a lost node has left undecided.
    undecided: Mutex<BTreeSet<TxnId>>,
}

impl LostNodes {
    /// None: everything has just been loaded under `view`.
    pub fn new(view: &View) -> Self {
        Self {
            loaded: view.clone(),
            any: AtomicBool::new(false),
            returned: AtomicBool::new(false),
            nodes: view.node_ids().map(|node| told(view, node, false).into()).collect(),
            primaries: view.shard_ids().map(|shard| led_in(view, shard).into()).collect(),
            undecided: Mutex::default(),
        }
    }

    /// The view under which everything was loaded.
    pub fn loaded(&self) -> &View {
        &self.loaded
    }

    /// Learns from `view`, a later one, which nodes have lost what was loaded.
    pub fn learn(&self, view: &View) {
        let may_return = self.loaded.succession() == Succession::Backups;
        for node in view.node_ids() {
            let needs = |side: &Side| self.loaded.halves().are_lost_with(*side);
            let needed = || [Side::Host, Side::Nic].into_iter().filter(needs);
            let lives_on = |side| view.side(node, side) == self.loaded.side(node, side);
            if needed().all(lives_on) {
                continue;
            }
            let is_back = may_return && needed().all(|side| view.side(node, side).up);
            // Engines learn views at different times: an earlier one changes nothing.
            let told = told(view, node, !is_back);
            self.nodes[node.index()].fetch_max(told, Ordering::AcqRel);
            self.returned.fetch_or(is_back, Ordering::AcqRel);
            self.any.store(true, Ordering::Release);
        }
        // Engines learn views at different times: an earlier one changes nothing.
        for (shard, primary) in view.shard_ids().zip(&self.primaries) {
            primary.fetch_max(led_in(view, shard), Ordering::AcqRel);
        }
    }

    pub fn are_any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Whether a node is back that was lost.
    pub fn have_returned(&self) -> bool {
        self.returned.load(Ordering::Acquire)
    }

    /// Whether `node` has lost its data, and no view has it again.
    pub fn contain(&self, node: NodeId) -> bool {
        self.are_any() && self.nodes[node.index()].load(Ordering::Acquire) & LOST != 0
    }

    /// Whether no node serves `shard`: that which leads it by the newest view has lost its data.
    pub fn contain_primary_of(&self, shard: ShardId) -> bool {
        let primary = || self.primaries[usize::from(shard.0)].load(Ordering::Acquire) as u16;
        let is_lost = |primary| primary == NOBODY || self.contain(NodeId(primary));
        self.are_any() && is_lost(primary())
    }

    /// A lost node had the decision about `txn`, of a coordinator that lives.
    pub fn leave_undecided(&self, txn: TxnId) {
        self.undecided().insert(txn);
    }

    /// Whether a lost node has left `txn` undecided, as its coordinator or as the node that was to
    /// decide. Only a recovery may release what it has locked.
    pub fn have_left(&self, txn: TxnId) -> bool {
        self.are_any()
            && (txn.engine().is_some_and(|coordinator| self.have_ended(coordinator, txn))
                || self.undecided().contains(&txn))
    }

    /// Is the life over in which `coordinator` began `txn`?
    fn have_ended(&self, coordinator: EngineId, txn: TxnId) -> bool {
        let Some(told) = self.nodes.get(coordinator.node.index()) else { return true };
        let told = told.load(Ordering::Acquire);
        let life = Incarnation((told as u32 & !LOST as u32) >> 1);
        told & LOST != 0 || TxnId::new(coordinator, life, txn.sequence()) != txn
    }

    fn undecided(&self) -> MutexGuard<'_, BTreeSet<TxnId>> {
        self.undecided.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Instead of a primary: the shard is lost.
const NOBODY: u16 = u16::MAX;

/// The node that holds the primary of `shard` in `view`, below the epoch of the view.
fn led_in(view: &View, shard: ShardId) -> u64 {
    let primary = if view.is_lost(shard) { NOBODY } else { view.primary(shard).0 };
    u64::from(view.epoch().0) << 16 | u64::from(primary)
}

/// The bit that says that a node is lost.
const LOST: u64 = 1;

/// What `view` tells of `node`: its epoch, the life of the host, and whether the node is lost.
fn told(view: &View, node: NodeId, is_lost: bool) -> u64 {
    let Incarnation(life) = view.side(node, Side::Host).incarnation;
    let low = u64::from(life << 1) | if is_lost { LOST } else { 0 };
    u64::from(view.epoch().0) << u32::BITS | low
}

/// Calls `learn` with the current view of `fabric` and with every later one; never ends. Each
/// engine that needs views runs this itself, so that it learns a view before the tasks that the
/// view wakes run.
pub async fn follow_views<F: Local>(fabric: F, learn: impl Fn(&View)) {
    let changes = fabric.view_changes();
    loop {
        let change = changes.wait();
        learn(fabric.view());
        change.await;
    }
}

#[cfg(test)]
mod tests {
    use nicol_core::view::{Halves, SideState};

    use super::*;

    fn txn_of(node: u16) -> TxnId {
        TxnId::new(EngineId::host(NodeId(node), 0), Incarnation::FIRST, 7)
    }

    #[test]
    fn a_node_is_lost_with_either_side_and_in_every_later_life() {
        let view = View::new(3, 2, 1, 1).unwrap();
        let lost = LostNodes::new(&view);
        lost.learn(&view);
        assert!(!lost.are_any() && !lost.contain(NodeId(1)) && !lost.have_left(txn_of(1)));
        let second = Incarnation::FIRST.next();
        let down =
            view.with_side(NodeId(1), Side::Nic, SideState { up: false, incarnation: second });
        lost.learn(&down);
        assert!(lost.contain(NodeId(1)) && !lost.contain(NodeId(0)));
        let back =
            down.with_side(NodeId(1), Side::Nic, SideState { up: true, incarnation: second });
        lost.learn(&back);
        let lost_later = LostNodes::new(&view);
        lost_later.learn(&back);
        assert!(lost.contain(NodeId(1)) && lost_later.contain(NodeId(1)));
        assert!(lost.have_left(txn_of(1)) && !lost.have_left(txn_of(2)));
    }

    #[test]
    fn where_backups_succeed_a_node_is_lost_until_a_view_has_it_again() {
        let view = View::new(3, 2, 1, 1).unwrap().with_halves(Halves::Together);
        let view = view.with_succession(Succession::Backups);
        let lost = LostNodes::new(&view);
        let both = |view: &View, up, life| {
            let state = SideState { up, incarnation: Incarnation(life) };
            view.with_sides(&[(NodeId(1), Side::Host, state), (NodeId(1), Side::Nic, state)])
        };
        let down = both(&view, false, 2);
        let back = both(&down, true, 2);
        lost.learn(&back);
        lost.learn(&down);
        assert!(!lost.contain(NodeId(1)) && lost.have_returned(), "an earlier view is no news");
        assert!(lost.have_left(txn_of(1)), "its first life is over");
        let later = TxnId::new(EngineId::host(NodeId(1), 0), Incarnation(2), 7);
        assert!(!lost.have_left(later) && !lost.have_left(txn_of(0)));
        // Shard 1 is lost if its other replica goes before node 1 has caught up.
        let state = SideState { up: false, incarnation: Incarnation(2) };
        lost.learn(&back.with_side(NodeId(2), Side::Host, state));
        assert!(lost.contain_primary_of(ShardId(1)) && !lost.contain_primary_of(ShardId(2)));
    }

    #[test]
    fn a_shard_is_served_as_long_as_a_node_that_has_its_data_leads_it() {
        let down = SideState { up: false, incarnation: Incarnation::FIRST.next() };
        for (succession, served) in [(Succession::Nobody, false), (Succession::Backups, true)] {
            let view = View::new(3, 2, 1, 1).unwrap().with_succession(succession);
            let lost = LostNodes::new(&view);
            let second = view.with_side(NodeId(1), Side::Nic, down);
            let third = second.with_side(NodeId(2), Side::Nic, down);
            assert!(!lost.contain_primary_of(ShardId(1)));
            lost.learn(&second);
            assert_eq!(lost.contain_primary_of(ShardId(1)), !served);
            assert!(!lost.contain_primary_of(ShardId(2)));
            lost.learn(&third);
            assert!(lost.contain_primary_of(ShardId(1)), "the backup is lost, too");
            assert_eq!(lost.contain_primary_of(ShardId(2)), !served, "node 0 leads it");
            lost.learn(&second);
            assert!(lost.contain_primary_of(ShardId(1)), "an earlier view changes nothing");
        }
    }

    #[test]
    fn a_node_whose_host_goes_on_alone_is_not_lost_with_its_nic() {
        let view = View::new(2, 2, 1, 1).unwrap().with_halves(Halves::HostAlone);
        let lost = LostNodes::new(&view);
        let down = SideState { up: false, incarnation: Incarnation::FIRST.next() };
        let without_nic = view.with_side(NodeId(1), Side::Nic, down);
        lost.learn(&without_nic);
        assert!(!lost.are_any());
        lost.learn(&without_nic.with_side(NodeId(1), Side::Host, down));
        assert!(lost.contain(NodeId(1)));
    }

    #[test]
    fn a_living_coordinator_s_transaction_may_be_left_undecided_too() {
        let view = View::new(2, 2, 1, 1).unwrap();
        let lost = LostNodes::new(&view);
        let incarnation = Incarnation::FIRST.next();
        lost.learn(&view.with_side(NodeId(1), Side::Host, SideState { up: false, incarnation }));
        assert!(!lost.have_left(txn_of(0)));
        lost.leave_undecided(txn_of(0));
        assert!(lost.have_left(txn_of(0)));
    }
}
