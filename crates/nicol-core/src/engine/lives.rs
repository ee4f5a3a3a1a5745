//! Which sides of which nodes are up, and in which incarnation, in a world with crashes.

use super::Loss;
use crate::faults::Crash;
use crate::ids::{Incarnation, NodeId, Side};
use crate::view::{Halves, SideState, View};

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
pub struct Lives {
    lives: Vec<[Life; 2]>,
    halves: Halves,
    /// The sides whose life ended because they had been given up while they lived, and that start
    /// again when their other half does.
    waiting: Vec<[bool; 2]>,
}

impl Lives {
    /// The cluster of `view`, all up.
    pub fn new(view: &View) -> Self {
        let (lives, waiting) =
            (vec![[Life::FIRST; 2]; view.nodes()], vec![[false; 2]; view.nodes()]);
        Self { lives, halves: view.halves(), waiting }
    }

    /// Which sides of a node the system needs together.
    pub const fn halves(&self) -> Halves {
        self.halves
    }

    /// A side.
    pub fn of(&self, node: NodeId, side: Side) -> Life {
        self.lives[node.index()][side as usize]
    }

    /// Does a side live?
    pub fn is_up(&self, node: NodeId, side: Side) -> bool {
        self.of(node, side).up
    }

    /// Every side of every node.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, Side, Life)> {
        let nodes = (0..).map(NodeId).zip(&self.lives);
        nodes.flat_map(|(node, lives)| SIDES.map(|side| (node, side, lives[side as usize])))
    }

    /// Does `view` tell of everything that has happened? A side that is down is down in it, and so
    /// is one that lacks the other half that it needs; any other is a member of it in its present
    /// life.
    pub fn are_told_by(&self, view: &View) -> bool {
        self.iter().all(|(node, side, life)| {
            let SideState { up, incarnation } = view.side(node, side);
            up == (life.up && self.is_whole(node, side)) && (!up || incarnation == life.incarnation)
        })
    }

    /// Does what `side` of `node` needs of its other half live?
    pub fn is_whole(&self, node: NodeId, side: Side) -> bool {
        !self.halves.needs_other(side) || self.is_up(node, side.other())
    }

    /// What starts together with these sides, which are down: their other halves that need them, if
    /// these live, and so must end first, or if they wait for it.
    pub fn start_along(&self, sides: &[(NodeId, Side)]) -> Vec<(NodeId, Side)> {
        let others = sides.iter().map(|&(node, side)| (node, side.other()));
        let along = |&(node, side): &(NodeId, Side)| {
            let waits = self.waiting[node.index()][side as usize];
            self.halves.needs_other(side) && (self.is_up(node, side) || waits)
        };
        others.filter(|other| along(other) && !sides.contains(other)).collect()
    }

    /// The sides of `given_up`, whose life has just ended since the others have gone on without
    /// them, that start again at once. The others do with the half that they need.
    pub fn start_again(&mut self, given_up: Loss) -> Vec<(NodeId, Side)> {
        let node = given_up.node;
        let sides = SIDES.into_iter().filter(|&side| given_up.of(side));
        let (again, waiting): (Vec<_>, Vec<_>) =
            sides.partition(|&side| given_up.of(side.other()) || self.is_whole(node, side));
        for side in waiting {
            self.waiting[node.index()][side as usize] = true;
        }
        again.into_iter().map(|side| (node, side)).collect()
    }

    /// Ends the life of a side.
    ///
    /// # Panics
    /// If it is down already.
    pub fn take_down(&mut self, node: NodeId, side: Side) {
        let life = &mut self.lives[node.index()][side as usize];
        assert!(life.up, "a side that is down does not crash");
        *life = Life { up: false, incarnation: life.incarnation.next() };
    }

    /// Begins the next life of a side.
    ///
    /// # Panics
    /// If it is up.
    pub fn bring_up(&mut self, node: NodeId, side: Side) {
        let life = &mut self.lives[node.index()][side as usize];
        assert!(!life.up, "a side that is up does not start");
        life.up = true;
        self.waiting[node.index()][side as usize] = false;
    }

    /// What of `loss` lives; `None` if nothing does.
    pub fn living(&self, loss: Loss) -> Option<Loss> {
        let hit = |side| loss.of(side) && self.is_up(loss.node, side);
        let loss = Loss { node: loss.node, host: hit(Side::Host), nic: hit(Side::Nic) };
        (loss.host || loss.nic).then_some(loss)
    }

    /// What `crash` hits: the sides in its scope that live, or wait for their other half.
    pub fn losses(&self, crash: &Crash) -> Vec<Loss> {
        let sides = crash.scope.sides();
        let loss = |node: NodeId| {
            let waits = self.waiting[node.index()];
            let hit =
                |side| sides.contains(&side) && (self.is_up(node, side) || waits[side as usize]);
            Loss { node, host: hit(Side::Host), nic: hit(Side::Nic) }
        };
        self.hit_by(crash).map(loss).filter(|loss| loss.host || loss.nic).collect()
    }

    /// The sides of `loss` that wait for their other half, and crash meanwhile: they wait no more.
    pub fn end_waiting(&mut self, loss: Loss) -> Option<Loss> {
        let waiting = &mut self.waiting[loss.node.index()];
        let mut hit = |side| loss.of(side) && std::mem::take(&mut waiting[side as usize]);
        let loss = Loss { node: loss.node, host: hit(Side::Host), nic: hit(Side::Nic) };
        (loss.host || loss.nic).then_some(loss)
    }

    /// What the restart after `crash` brings back: the sides in its scope that are down.
    pub fn returns(&self, crash: &Crash) -> Vec<(NodeId, Side)> {
        let sides = |node| crash.scope.sides().iter().map(move |&side| (node, side));
        let hit = self.hit_by(crash).flat_map(sides);
        hit.filter(|&(node, side)| !self.is_up(node, side)).collect()
    }

    fn hit_by(&self, crash: &Crash) -> impl Iterator<Item = NodeId> {
        let nodes = self.lives.len();
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
        let mut lives = Lives::new(&View::new(3, 2, 1, 1).unwrap());
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
        let (node, mut lives) = (NodeId(1), Lives::new(&first));
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

    #[test]
    fn halves_that_need_one_another_start_together() {
        let lives = |halves| Lives::new(&View::new(2, 2, 1, 1).unwrap().with_halves(halves));
        let (node, loss) = (NodeId(1), Loss { node: NodeId(1), host: true, nic: false });
        let [host, nic] = SIDES.map(|side| (node, side));
        let mut together = lives(Halves::Together);
        together.take_down(node, Side::Nic);
        assert!(together.is_up(node, Side::Host) && !together.is_whole(node, Side::Host));
        assert_eq!(together.start_along(&[nic]), [host], "its life ends, and both begin");
        // The host learns that its node was given up.
        together.take_down(node, Side::Host);
        assert_eq!(together.start_again(loss), [], "not without its NIC");
        assert_eq!(together.start_along(&[nic]), [host]);
        [host, nic].into_iter().for_each(|(node, side)| together.bring_up(node, side));
        // One that waits crashes like one that lives, and waits no more.
        together.take_down(node, Side::Nic);
        together.take_down(node, Side::Host);
        assert_eq!(together.start_again(loss), []);
        let at = Crash { scope: CrashScope::Host, node: 1, at: Nanos::ZERO, restart_after: None };
        assert_eq!(together.losses(&at), [loss]);
        assert_eq!((together.living(loss), together.end_waiting(loss)), (None, Some(loss)));
        assert_eq!((together.losses(&at), together.start_along(&[nic])), (vec![], vec![]));
        [host, nic].into_iter().for_each(|(node, side)| together.bring_up(node, side));
        // One that has crashed by itself does not wait.
        [host, nic].into_iter().for_each(|(node, side)| together.take_down(node, side));
        assert_eq!(together.start_along(&[nic]), []);
        assert_eq!(together.start_again(Loss { nic: true, ..loss }), [host, nic]);

        let mut spare = lives(Halves::HostAlone);
        spare.take_down(node, Side::Nic);
        assert!(spare.is_whole(node, Side::Host) && spare.start_along(&[nic]).is_empty());
        spare.take_down(node, Side::Host);
        assert_eq!(spare.start_again(loss), [host]);
    }

    #[test]
    fn a_view_needs_not_have_a_half_that_lacks_the_other() {
        let first = View::new(2, 2, 1, 1).unwrap().with_halves(Halves::Together);
        let (node, mut lives) = (NodeId(1), Lives::new(&first));
        lives.take_down(node, Side::Nic);
        let down = SideState { up: false, incarnation: Incarnation(2) };
        let half = first.with_sides(&[(node, Side::Nic, down)]);
        assert!(!lives.are_told_by(&first) && !lives.are_told_by(&half));
        let without = first.with_sides(&[(node, Side::Nic, down), (node, Side::Host, down)]);
        assert!(lives.are_told_by(&without));
    }
}
