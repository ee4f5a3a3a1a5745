//! Which sides of which nodes live, and in which incarnation: the book of a world that crashes them.

use super::Loss;
use crate::faults::Crash;
use crate::ids::{Incarnation, NodeId, Side};
use crate::view::{SideState, View};

const SIDES: [Side; 2] = [Side::Host, Side::Nic];

/// A side of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// The sides of a cluster's nodes.
#[derive(Clone, Debug)]
pub struct Lives(Vec<[Life; 2]>);

impl Lives {
    /// A cluster of so many nodes, all up.
    pub fn new(nodes: usize) -> Self {
        Self(vec![[Life::FIRST; 2]; nodes])
    }

    /// A side.
    pub fn of(&self, node: NodeId, side: Side) -> Life {
        self.0[node.index()][side as usize]
    }

    /// Does a side live?
    pub fn is_up(&self, node: NodeId, side: Side) -> bool {
        self.of(node, side).up
    }

    /// Every side of every node.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, Side, Life)> {
        let nodes = (0..).map(NodeId).zip(&self.0);
        nodes.flat_map(|(node, lives)| SIDES.map(|side| (node, side, lives[side as usize])))
    }

    /// Does `view` tell of everything that has happened? A side that is down is down in it, and one
    /// that lives is a member of it in its present life.
    pub fn are_told_by(&self, view: &View) -> bool {
        self.iter().all(|(node, side, life)| {
            let SideState { up, incarnation } = view.side(node, side);
            up == life.up && (!up || incarnation == life.incarnation)
        })
    }

    /// Ends the life of a side.
    ///
    /// # Panics
    /// If it is down already.
    pub fn take_down(&mut self, node: NodeId, side: Side) {
        let life = &mut self.0[node.index()][side as usize];
        assert!(life.up, "a side that is down does not crash");
        *life = Life { up: false, incarnation: life.incarnation.next() };
    }

    /// Begins the next life of a side.
    ///
    /// # Panics
    /// If it is up.
    pub fn bring_up(&mut self, node: NodeId, side: Side) {
        let life = &mut self.0[node.index()][side as usize];
        assert!(!life.up, "a side that is up does not start");
        life.up = true;
    }

    /// What of `loss` lives; `None` if nothing does.
    pub fn living(&self, loss: Loss) -> Option<Loss> {
        let hit = |side| loss.of(side) && self.is_up(loss.node, side);
        let loss = Loss { node: loss.node, host: hit(Side::Host), nic: hit(Side::Nic) };
        (loss.host || loss.nic).then_some(loss)
    }

    /// What `crash` takes down: the sides in its scope that live.
    pub fn losses(&self, crash: &Crash) -> Vec<Loss> {
        let hit = |side| crash.scope.sides().contains(&side);
        let loss = |node| Loss { node, host: hit(Side::Host), nic: hit(Side::Nic) };
        self.hit_by(crash).filter_map(|node| self.living(loss(node))).collect()
    }

    /// What the restart after `crash` brings back: the sides in its scope that are down.
    pub fn returns(&self, crash: &Crash) -> Vec<(NodeId, Side)> {
        let sides = |node| crash.scope.sides().iter().map(move |&side| (node, side));
        let hit = self.hit_by(crash).flat_map(sides);
        hit.filter(|&(node, side)| !self.is_up(node, side)).collect()
    }

    fn hit_by(&self, crash: &Crash) -> impl Iterator<Item = NodeId> {
        let nodes = self.0.len();
        (0..).map(NodeId).take(nodes).filter(move |&node| crash.hits(node, nodes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::CrashScope;
    use crate::units::Nanos;

    #[test]
    fn what_is_down_neither_crashes_again_nor_is_missed_by_a_restart() {
        let mut lives = Lives::new(3);
        let crash = |scope| Crash { scope, node: 4, at: Nanos::ZERO, restart_after: None };
        let (node, all) = (crash(CrashScope::Node), crash(CrashScope::All));
        let one = NodeId(1);
        assert_eq!(lives.losses(&node), [Loss { node: one, host: true, nic: true }]);
        lives.take_down(one, Side::Nic);
        assert_eq!(lives.losses(&node), [Loss { node: one, host: true, nic: false }]);
        assert_eq!(lives.losses(&crash(CrashScope::Nic)), []);
        assert_eq!(lives.losses(&all).len(), 3);
        assert_eq!(lives.returns(&all), [(one, Side::Nic)]);
        assert_eq!(lives.returns(&crash(CrashScope::Host)), []);
        let next = Life { up: false, incarnation: Incarnation::FIRST.next() };
        assert_eq!(lives.of(one, Side::Nic), next);
        lives.bring_up(one, Side::Nic);
        assert_eq!(lives.of(one, Side::Nic), Life { up: true, ..next });
        let beyond = lives.iter().filter(|(.., life)| *life != Life::FIRST).count();
        assert_eq!((beyond, lives.iter().count()), (1, 6));
    }

    #[test]
    fn a_view_tells_of_a_crash_once_it_has_the_life_that_counts() {
        let first = View::new(2, 2, 1, 1).unwrap();
        let (node, mut lives) = (NodeId(1), Lives::new(2));
        assert!(lives.are_told_by(&first));
        lives.take_down(node, Side::Host);
        assert!(!lives.are_told_by(&first));
        let down = SideState { up: false, incarnation: Incarnation(2) };
        let without = first.with_sides(&[(node, Side::Host, down)]);
        assert!(lives.are_told_by(&without));
        lives.bring_up(node, Side::Host);
        assert!(!lives.are_told_by(&without));
        let back = |incarnation| SideState { up: true, incarnation };
        let first_life = without.with_sides(&[(node, Side::Host, back(Incarnation::FIRST))]);
        assert!(!lives.are_told_by(&first_life));
        let second = lives.of(node, Side::Host).incarnation;
        assert!(lives.are_told_by(&without.with_sides(&[(node, Side::Host, back(second))])));
    }
}
