//! A coordinator tells the backups how its transactions have ended, which apply nothing before.
//! (decision 0101)

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use nicol_core::exec::Signal;
use nicol_core::fabric::{Fabric, FabricError, Timeout};
use nicol_core::ids::{Epoch, IdMap, NodeId, ShardId, TxnId};
use nicol_core::units::Nanos;
use nicol_kit::VIEW_WAIT;

use crate::decided::{Decided, Decision, Fate};
use crate::survivor::Survivor;
use crate::xenic::config::{Recovery, SLOT_WAIT};
use crate::xenic::node::Node;

/// How long a decision waits for others: as long as a log's ack does.
const WAIT: Nanos = Nanos::from_micros(50);
/// So many decisions for one backup do not wait.
const AT_ONCE: usize = 32;

/// The decisions of one NIC engine that its backups do not know yet.
pub(super) struct Decisions<F: Fabric> {
    fabric: F,
    node: Arc<Node>,
    /// By node.
    untold: RefCell<Vec<Vec<Decision>>>,
    /// Of each transaction that commits: its backups, and how many do not know yet.
    known: RefCell<IdMap<TxnId, (usize, Vec<NodeId>)>>,
    /// Does any wait?
    waiting: Cell<bool>,
    wanted: Signal,
}

impl<F: Fabric> Decisions<F> {
    pub(super) fn new(fabric: F, node: Arc<Node>) -> Rc<Self> {
        let untold = fabric.view().node_ids().map(|_| Vec::new()).collect();
        let wanted = fabric.signal();
        let (untold, known, waiting) = (RefCell::new(untold), RefCell::default(), Cell::new(false));
        let waits = node.config().recovery == Recovery::Prepared;
        let this = Rc::new(Self { fabric, node, untold, known, waiting, wanted });
        if waits {
            this.fabric.spawn(this.clone().tell_overdue());
        }
        this
    }

    /// The backups of `shards` will be told, some time later, that `txn` commits.
    pub(super) fn note(self: &Rc<Self>, txn: TxnId, shards: &[ShardId]) {
        let (most, backups) = (self.most(), self.backups(shards));
        let decision = Decision { txn, fate: Fate::Committed };
        if !backups.is_empty() {
            self.known.borrow_mut().insert(txn, (backups.len(), backups.clone()));
        }
        for backup in backups {
            let list = {
                let untold = &mut self.untold.borrow_mut()[backup.index()];
                untold.push(decision);
                if untold.len() >= most { std::mem::take(untold) } else { Vec::new() }
            };
            if !list.is_empty() {
                let this = self.clone();
                self.fabric.spawn(async move { this.tell(backup, &list).await });
            } else if !self.waiting.replace(true) {
                self.wanted.notify();
            }
        }
    }

    /// How many decisions are told at a time.
    fn most(&self) -> usize {
        AT_ONCE.min(Decision::most(self.node.log(self.fabric.here().core).body_max()))
    }

    /// Tells the backups of `shards` that `txn` has aborted, of which they may have LOGs; returns
    /// when all that are left know.
    pub(super) async fn abort(&self, txn: TxnId, shards: &[ShardId]) {
        let decision = Decision { txn, fate: Fate::Aborted };
        for backup in self.backups(shards) {
            self.tell(backup, &[decision]).await;
        }
    }

    /// Tells, for ever, what has waited long enough.
    async fn tell_overdue(self: Rc<Self>) {
        loop {
            while !self.waiting.get() {
                self.wanted.wait().await;
            }
            self.fabric.sleep_until(self.fabric.now() + WAIT).await;
            self.waiting.set(false);
            for backup in self.fabric.view().node_ids() {
                let list = std::mem::take(&mut self.untold.borrow_mut()[backup.index()]);
                if !list.is_empty() {
                    let this = self.clone();
                    self.fabric.spawn(async move { this.tell(backup, &list).await });
                }
            }
        }
    }

    /// The nodes that may have LOGs of any of `shards`, each once: their backups, those that catch
    /// up, and those that were either until they came to lead them; of what this node backs up, the
    /// primaries, where these log.
    fn backups(&self, shards: &[ShardId]) -> Vec<NodeId> {
        let (view, now, lost) = (self.node.view(), self.fabric.view(), self.node.lost());
        let here = self.fabric.here().node;
        let nodes = shards.iter().flat_map(|&shard| {
            let at_primary = self.node.logs_at_primary(here, shard);
            let has_moved = now.led_since(shard) > Epoch::FIRST;
            let heir = has_moved.then(|| now.primary(shard));
            let first = view.backups(shard).chain(at_primary.then(|| view.primary(shard)));
            first.chain(now.followers(shard)).chain(heir)
        });
        let mut nodes: Vec<NodeId> = nodes.filter(|&node| !lost.contain(node)).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// Tells one backup, until it has it in its log or is lost. What all backups know then, they
    /// may forget: that travels with later decisions.
    async fn tell(&self, backup: NodeId, list: &[Decision]) {
        for part in list.chunks(self.most()) {
            self.tell_at_once(backup, part).await;
        }
        for decision in list.iter().filter(|decision| decision.fate == Fate::Committed) {
            self.note_known(decision.txn);
        }
    }

    /// One backup more knows that `txn` commits.
    fn note_known(&self, txn: TxnId) {
        let known = &mut *self.known.borrow_mut();
        let Some((unknowing, _)) = known.get_mut(&txn) else { return };
        *unknowing -= 1;
        if *unknowing == 0
            && let Some((_, backups)) = known.remove(&txn)
        {
            let untold = &mut *self.untold.borrow_mut();
            for backup in backups {
                untold[backup.index()].push(Decision { txn, fate: Fate::KnownToAll });
            }
        }
    }

    async fn tell_at_once(&self, backup: NodeId, list: &[Decision]) {
        // The engine that its LOGs went to: what is said here stands behind them.
        let to = self.fabric.view().nic_of(backup, self.fabric.here().core);
        while let Err(error) = self.fabric.call(to, &Decided(list), Timeout::Never).await {
            if self.node.is_excused(backup) {
                return;
            }
            let wait = match error {
                FabricError::NoResources => SLOT_WAIT,
                // That life is over, as the next view says.
                FabricError::Unreachable => VIEW_WAIT,
                error => panic!("a backup refused to learn a decision: {error}"),
            };
            self.fabric.sleep_until(self.fabric.now() + wait).await;
        }
    }
}
