//! Which sides of which nodes live, in which incarnation, and what a crash does to what is under
//! way.

use nicol_core::engine::Loss;
use nicol_core::faults::CrashScope;
use nicol_core::ids::{Incarnation, NodeId, Side};
use nicol_core::units::Nanos;

use crate::kernel::Event;
use crate::state::State;
use crate::world::Shared;

/// How long one side of a node takes to notice over PCIe that the other has crashed, or is back.
pub const PCIE_DETECTION: Nanos = Nanos::from_micros(10);

/// A side of a node.
#[derive(Clone, Copy, Debug)]
pub struct Life {
    /// Does it live?
    pub up: bool,
    /// Its incarnation, or the next one if it does not live.
    pub incarnation: Incarnation,
}

impl Life {
    /// Every side at the start.
    pub const FIRST: Self = Self { up: true, incarnation: Incarnation::FIRST };
}

/// The incarnations of a node's host and NIC when something began: it does not outlive them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Since([Incarnation; 2]);

/// Something that engines learn about a side after a while.
#[derive(Clone, Copy, Debug)]
pub struct News {
    /// The node.
    pub node: NodeId,
    /// The side.
    pub side: Side,
    /// Its state.
    pub life: Life,
    /// Does it go to the node's other side only, over PCIe? Else to every engine.
    pub over_pcie: bool,
}

impl State {
    /// The incarnations of `node` now.
    pub fn since(&self, node: NodeId) -> Since {
        Since(self.lives[usize::from(node.0)].map(|life| life.incarnation))
    }

    /// Has `side` of `node` crashed since then, or was it down already?
    pub fn has_crashed(&self, node: NodeId, side: Side, since: Since) -> bool {
        let life = self.lives[usize::from(node.0)][side as usize];
        !life.up || life.incarnation != since.0[side as usize]
    }

    /// Does `side` of `node` live?
    pub fn is_up(&self, node: NodeId, side: Side) -> bool {
        self.lives[usize::from(node.0)][side as usize].up
    }
}

impl Shared {
    /// The sides that crash `index` of the plan takes down, of those that live.
    pub fn losses(&self, state: &State, index: usize) -> Vec<Loss> {
        let crash = state.faults.plan().crashes[index];
        let nodes = self.view.nodes();
        let hit = self.view.node_ids().filter(|&node| crash.hits(node, nodes));
        hit.filter_map(|node| living(state, node, crash.scope)).collect()
    }

    /// The sides that the restart of crash `index` of the plan brings back: those that are down.
    pub fn returns(&self, state: &State, index: usize) -> Vec<(NodeId, Side)> {
        let crash = state.faults.plan().crashes[index];
        let nodes = self.view.nodes();
        let hit = self.view.node_ids().filter(|&node| crash.hits(node, nodes));
        let sides = |node| crash.scope.sides().iter().map(move |&side| (node, side));
        hit.flat_map(sides).filter(|&(node, side)| !state.is_up(node, side)).collect()
    }

    /// Takes sides down: from here on nothing of them runs, moves or arrives.
    pub fn take_down(&self, state: &mut State, loss: Loss) {
        let node = usize::from(loss.node.0);
        for side in [Side::Host, Side::Nic].into_iter().filter(|&side| loss.of(side)) {
            let life = &mut state.lives[node][side as usize];
            assert!(life.up, "a side that is down does not crash");
            *life = Life { up: false, incarnation: life.incarnation.next() };
            for index in (0..self.engines.len()).filter(|&index| {
                (self.engines[index].node, self.engines[index].side) == (loss.node, side)
            }) {
                self.silence(state, index);
            }
            self.tell(state, loss.node, side);
        }
        if loss.nic {
            self.land_in_part(state, loss.node);
        }
        if loss.host && !self.keeps_unsynced {
            state.media[node].crash(&mut state.medium_rng);
        }
        // Chains are executed by the card, or in software by NIC engines.
        let model = self.model(loss.node);
        let executes = if model.has_verbs() { model.card_side() } else { Side::Nic };
        if loss.of(executes) {
            self.abort_executions(state, loss.node);
            self.tables[node].forget_chains();
        }
    }

    /// Forgets what waits for a core that has crashed.
    fn silence(&self, state: &mut State, index: usize) {
        let core = &mut state.cores[index];
        core.stop();
        core.done.clear();
        let inbox = std::mem::take(&mut core.inbox);
        inbox.into_iter().for_each(|frame| self.recycle_frame(frame));
        while let Some(number) = state.cores[index].forward.pop_front() {
            self.drop_frame(state, number);
        }
    }

    /// Lets engines learn about a side whose state has just changed: those of the node's other side
    /// over PCIe, the others if the configuration says after how long.
    pub fn tell(&self, state: &mut State, node: NodeId, side: Side) {
        let life = state.lives[usize::from(node.0)][side as usize];
        let after = [(true, Some(PCIE_DETECTION)), (false, self.detect_after)];
        for (over_pcie, after) in after {
            let Some(after) = after else { continue };
            state.news.push(News { node, side, life, over_pcie });
            let number = (state.news.len() - 1) as u32;
            state.kernel.push(state.kernel.now().saturating_add(after), Event::News(number));
        }
    }
}

/// What of `scope` lives at `node`; `None` if nothing does.
fn living(state: &State, node: NodeId, scope: CrashScope) -> Option<Loss> {
    let hit = |side| scope.sides().contains(&side) && state.is_up(node, side);
    let loss = Loss { node, host: hit(Side::Host), nic: hit(Side::Nic) };
    (loss.host || loss.nic).then_some(loss)
}
