//! What a later view has overruled: requests of transactions that began before a shard of theirs
//! changed, and of coordinators whose life is over. [Xenic21 4.2.1] (decision 0100)
//!
//! A message of the fabric is fenced by the life of who sends it. That does not tell of what it
//! waits for at its receiver, of what a third node sends on behalf of a coordinator, nor of a
//! living coordinator whose shard is led by another node since. So requests say it in their bodies.

use std::sync::atomic::{AtomicU32, Ordering};

use nicol_core::fabric::FabricError;
use nicol_core::ids::{Epoch, ShardId, Side, TxnId};
use nicol_core::txn::Abort;
use nicol_core::view::{SideState, View};
use nicol_core::wire::Malformed;

use crate::broken::Hooks;
use crate::xenic::config::{Recovery, XenicConfig};

/// Tells transactions that a later view has overruled from others; shared by a node's engines.
#[derive(Debug)]
pub(in crate::xenic) struct Begun {
    recovery: Recovery,
    hooks: Hooks,
    /// By shard: the last view known here in which its primary has changed, or was lost.
    changed: Box<[AtomicU32]>,
}

impl Begun {
    /// No shard has changed: everything has just been loaded under `view`.
    pub(super) fn new(view: &View, config: &XenicConfig) -> Self {
        let changed = view.shard_ids().map(|shard| view.led_since(shard).0.into()).collect();
        Self { recovery: config.recovery, hooks: config.hooks(), changed }
    }

    /// Learns from `view` which shards have changed.
    pub(super) fn learn(&self, view: &View) {
        for (shard, changed) in view.shard_ids().zip(&self.changed) {
            let Epoch(since) = view.led_since(shard);
            changed.fetch_max(since, Ordering::Release);
        }
    }

    /// Has `shard` changed since a transaction `began`, as this node knows? Nobody holds locks that
    /// its primary had granted then.
    pub(in crate::xenic) fn has_changed_since(&self, began: Option<Epoch>, shard: ShardId) -> bool {
        let changed = || Epoch(self.changed[usize::from(shard.0)].load(Ordering::Acquire));
        began.is_some_and(|began| changed() > began)
    }

    /// What a transaction that begins under `view` says of that; nothing if messages are as
    /// printed.
    pub(in crate::xenic) fn in_epoch_of(&self, view: &View) -> Option<Epoch> {
        (self.recovery == Recovery::Prepared).then(|| view.epoch())
    }

    /// Errors: a message that says when its transaction began, where none does, or the other way
    /// round.
    pub(in crate::xenic) fn expect(&self, began: Option<Epoch>) -> Result<(), Malformed> {
        if began.is_some() == (self.recovery == Recovery::Prepared) {
            return Ok(());
        }
        Err(Malformed { what: "whether a message says when its transaction began" })
    }

    /// Errors: `txn`, which says that it `began` then, is overruled: its coordinator's life is not
    /// in `view`, or one of `shards` has changed since. Without a change the cost is one read.
    pub(in crate::xenic) fn check(
        &self,
        view: &View,
        txn: TxnId,
        began: Option<Epoch>,
        shards: impl IntoIterator<Item = ShardId>,
    ) -> Result<(), Abort> {
        if began.is_none() || view.epoch() == Epoch::FIRST || self.hooks.takes_overruled() {
            return Ok(());
        }
        if !is_of_member(view, txn) {
            return Err(Abort::Fabric(FabricError::Unreachable));
        }
        self.check_shards(began, shards)
    }

    /// The same of the shards alone.
    pub(in crate::xenic) fn check_shards(
        &self,
        began: Option<Epoch>,
        shards: impl IntoIterator<Item = ShardId>,
    ) -> Result<(), Abort> {
        if began.is_none() || self.hooks.takes_overruled() {
            return Ok(());
        }
        let changed = shards.into_iter().find(|&shard| self.has_changed_since(began, shard));
        changed.map_or(Ok(()), |shard| Err(Abort::ShardUnavailable { shard }))
    }
}

/// Is the life in which the coordinator of `txn` began it in `view`?
pub(super) fn is_of_member(view: &View, txn: TxnId) -> bool {
    txn.engine().is_some_and(|engine| {
        let SideState { up, incarnation } = view.side(engine.node, Side::Host);
        up && TxnId::new(engine, incarnation, txn.sequence()) == txn
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nicol_core::ids::{EngineId, Incarnation, Key, NodeId};
    use nicol_core::records::RecordSource;
    use nicol_core::system::{Sequential, load_nodes};
    use nicol_core::view::ShardMap;

    use super::*;
    use crate::Sabotage;
    use crate::xenic::Node;

    fn txn(node: u16, life: u32) -> TxnId {
        TxnId::new(EngineId::host(NodeId(node), 0), Incarnation(life), 9)
    }

    /// The view that follows, without node 1.
    fn without_1(view: &View) -> View {
        let down = SideState { up: false, incarnation: Incarnation(2) };
        view.with_sides(&[(NodeId(1), Side::Host, down), (NodeId(1), Side::Nic, down)])
    }

    #[test]
    fn a_transaction_is_of_a_member_in_the_life_that_began_it_only() {
        let view = View::new(2, 2, 1, 1).unwrap();
        assert!(is_of_member(&view, txn(1, 1)) && !is_of_member(&view, txn(1, 2)));
        let without = without_1(&view);
        assert!(!is_of_member(&without, txn(1, 1)) && !is_of_member(&without, txn(1, 2)));
        let state = SideState { up: true, incarnation: Incarnation(2) };
        let back = without.with_side(NodeId(1), Side::Host, state);
        assert!(!is_of_member(&back, txn(1, 1)) && is_of_member(&back, txn(1, 2)));
        assert!(!is_of_member(&view, TxnId(u64::MAX)), "no engine has this id");
    }

    struct NoRecords;

    impl RecordSource for NoRecords {
        fn load(&self, _: &dyn ShardMap, _: ShardId, _: &mut dyn FnMut(Key, &[u8])) {}

        fn records_per_shard(&self) -> u64 {
            1
        }
    }

    fn node_with(sabotage: Sabotage) -> (View, Arc<Node>) {
        let view = View::new(3, 2, 1, 1).unwrap();
        let recovery = Recovery::Prepared;
        let config = XenicConfig { recovery, sabotage, ..XenicConfig::paper(1, 8) };
        let nodes = load_nodes::<Node>(&view, &config, &NoRecords, &Sequential).unwrap();
        (view, nodes[0].clone())
    }

    #[test]
    fn what_a_change_has_overruled_is_refused_and_what_began_after_it_is_not() {
        let (first, node) = node_with(Sabotage::None);
        let shards = [0, 1, 2].map(ShardId);
        let began = node.begun().in_epoch_of(&first);
        assert_eq!(began, Some(Epoch::FIRST));
        assert_eq!(node.begun().check(&first, txn(1, 1), began, shards), Ok(()));
        let second = without_1(&first);
        node.learn(&second);
        let lost = Err(Abort::ShardUnavailable { shard: ShardId(1) });
        assert_eq!(node.begun().check(&second, txn(0, 1), began, shards), lost);
        assert_eq!(node.begun().check(&second, txn(0, 1), began, [ShardId(0), ShardId(2)]), Ok(()));
        let gone = Err(Abort::Fabric(FabricError::Unreachable));
        assert_eq!(node.begun().check(&second, txn(1, 1), began, [ShardId(0)]), gone);
        assert_eq!(
            node.begun().check(&second, txn(0, 1), node.begun().in_epoch_of(&second), shards),
            Ok(())
        );
        // A later view without a change moves nothing.
        let third = second.with_sides(&[]);
        node.learn(&third);
        assert_eq!(
            node.begun().check(&third, txn(0, 1), node.begun().in_epoch_of(&second), shards),
            Ok(())
        );
        assert!(node.begun().expect(None).is_err() && node.begun().expect(began).is_ok());
    }

    #[test]
    fn the_planted_fault_takes_what_is_overruled() {
        let (first, node) = node_with(Sabotage::TakesOverruled);
        let second = without_1(&first);
        node.learn(&second);
        let (began, shards) = (node.begun().in_epoch_of(&first), [0, 1, 2].map(ShardId));
        assert_eq!(node.begun().check(&second, txn(1, 1), began, shards), Ok(()));
    }
}
