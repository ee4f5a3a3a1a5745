//! The decisions of the view service, the same in both worlds: which sides have a lease, which are
//! given up, and which join again.

use super::{SideState, View};
use crate::ids::{Incarnation, NodeId, Side};
use crate::units::Nanos;

const SIDES: [Side; 2] = [Side::Host, Side::Nic];

/// A side that asks for a lease.
pub type Asking = (NodeId, Side, Incarnation);

/// The members of a cluster, and until when each has a lease by the service's clock.
///
/// A side whose lease has ended is given up: a newer view is without it. A new incarnation
/// registers when it first asks, and has no lease before. One that was given up and still lives
/// must start anew. Sides that [need](super::Halves) their other half are given up with it, in the
/// same view, and become members together: the side that registers first waits.
#[derive(Debug)]
pub struct Membership {
    view: View,
    /// By node and side: until when the member has a lease.
    leases: Vec<[Nanos; 2]>,
    /// By node and side: a later life than the view has, and until when it counts as asking.
    registering: Vec<[Option<(Incarnation, Nanos)>; 2]>,
}

impl Membership {
    /// Every side that is up in `view` has a lease until `until`.
    pub fn new(view: View, until: Nanos) -> Self {
        let (leases, registering) = (vec![[until; 2]; view.nodes()], vec![[None; 2]; view.nodes()]);
        Self { view, leases, registering }
    }

    pub const fn view(&self) -> &View {
        &self.view
    }

    /// Takes the requests that have come by `now`: who asks has a lease until `until`, unless it
    /// was given up, and whose lease has ended is given up. True if the view is another now.
    pub fn update(&mut self, now: Nanos, asking: &[Asking], until: Nanos) -> bool {
        for &(node, side, incarnation) in asking {
            if self.is_given_up((node, side, incarnation)) {
                // It must start anew.
                continue;
            }
            if self.has((node, side, incarnation)) {
                self.leases[node.index()][side as usize] = until;
            } else {
                self.registering[node.index()][side as usize] = Some((incarnation, until));
            }
        }
        let mut changes = Vec::new();
        for node in self.view.node_ids() {
            let states = self.next_states(node, now, until);
            for (side, state) in SIDES.into_iter().zip(states) {
                if state != self.view.side(node, side) {
                    changes.push((node, side, state));
                }
            }
        }
        if !changes.is_empty() {
            self.view = self.view.with_sides(&changes);
        }
        !changes.is_empty()
    }

    /// This side of a member says that its node has caught up. True if the view is another now.
    pub fn complete(&mut self, asking: Asking) -> bool {
        let changes = self.has(asking) && self.view.is_catching_up(asking.0);
        if changes {
            self.view = self.view.with_complete(asking.0);
        }
        changes
    }

    /// What becomes of the sides of `node`. Those that register have a lease until `until`.
    fn next_states(&mut self, node: NodeId, now: Nanos, until: Nanos) -> [SideState; 2] {
        let (leases, registering) =
            (&mut self.leases[node.index()], &mut self.registering[node.index()]);
        let mut states = SIDES.map(|side| self.view.side(node, side));
        // A side that no longer asks does not become a member when its other half comes.
        registering.iter_mut().for_each(|one| *one = one.filter(|(_, until)| *until >= now));
        let is_over = |of: usize| states[of].up && (leases[of] < now || registering[of].is_some());
        let ends = [0, 1].map(is_over);
        for (of, side) in SIDES.into_iter().enumerate() {
            let halved = self.view.halves().needs_other(side) && ends[1 - of];
            if states[of].up && (ends[of] || halved) {
                let incarnation = states[of].incarnation.next();
                states[of] = SideState { up: false, incarnation };
            }
            if let Some((incarnation, _)) = registering[of] {
                // Whatever was before it is over.
                states[of].incarnation = incarnation;
            }
        }
        let can_join = [0, 1].map(|of| states[of].up || registering[of].is_some());
        for (of, side) in SIDES.into_iter().enumerate() {
            let whole = !self.view.halves().needs_other(side) || can_join[1 - of];
            if whole && registering[of].take().is_some() {
                states[of].up = true;
                leases[of] = until;
            }
        }
        states
    }

    /// True if this incarnation of a side is part of the newest view.
    pub fn has(&self, (node, side, incarnation): Asking) -> bool {
        self.view.side(node, side) == SideState { up: true, incarnation }
    }

    /// Until when a member of the newest view has a lease: one that needs its other half not longer
    /// than that one, since both are given up together.
    pub fn lease_until(&self, node: NodeId, side: Side) -> Nanos {
        let leases = self.leases[node.index()];
        let own = leases[side as usize];
        let needs_other = self.view.halves().needs_other(side);
        if needs_other { own.min(leases[side.other() as usize]) } else { own }
    }

    /// Has the newest view gone on without this incarnation of a side? Then it must start anew. Who
    /// is neither this nor a [member](Membership::has) waits for its other half.
    pub fn is_given_up(&self, (node, side, incarnation): Asking) -> bool {
        incarnation < self.view.side(node, side).incarnation
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::Halves;

    #[test]
    fn who_does_not_ask_is_given_up_and_joins_as_a_new_incarnation_only() {
        let view = View::new(2, 2, 1, 1).unwrap();
        let mut members = Membership::new(view, Nanos(10));
        let first = Incarnation::FIRST;
        let one = (NodeId(1), Side::Nic, first);
        let others = [(0, Side::Host), (0, Side::Nic), (1, Side::Host)];
        let others = others.map(|(node, side)| (NodeId(node), side, first));
        assert!(!members.update(Nanos(9), &others, Nanos(30)));
        assert!(!members.update(Nanos(10), &[], Nanos(0)), "a lease holds until its end");
        assert!(members.update(Nanos(11), &[], Nanos(0)));
        assert!(!members.has(one) && others.iter().all(|&side| members.has(side)));
        let epoch = members.view().epoch();
        assert!(!members.update(Nanos(12), &[one], Nanos(99)), "it was given up");
        let again = (NodeId(1), Side::Nic, first.next());
        assert!(members.update(Nanos(13), &[again], Nanos(40)));
        assert!(members.has(again) && !members.has(one));
        assert_eq!(members.view().epoch(), epoch.next());
        // A life that ended between two requests is registered without having been given up.
        let later = (NodeId(1), Side::Nic, first.next().next());
        assert!(members.update(Nanos(14), &[later], Nanos(40)) && members.has(later));
    }

    /// The sides of node 1 in a cluster of such halves, whose node 0 is of no concern.
    struct Node1(Membership);

    impl Node1 {
        fn new(halves: Halves) -> Self {
            let view = View::new(2, 2, 1, 1).unwrap().with_halves(halves);
            Self(Membership::new(view, Nanos(10)))
        }

        /// These sides ask at `now` for leases of 10.
        fn ask(&mut self, now: u64, asking: &[(Side, u32)]) {
            let asking = asking.iter().map(|&(side, life)| (NodeId(1), side, Incarnation(life)));
            self.0.update(Nanos(now), &asking.collect::<Vec<_>>(), Nanos(now + 10));
        }

        /// Which sides are members, and in which life.
        fn sides(&self) -> [(bool, u32); 2] {
            SIDES.map(|side| {
                let SideState { up, incarnation } = self.0.view().side(NodeId(1), side);
                (up, incarnation.0)
            })
        }
    }

    #[test]
    fn a_node_whose_halves_need_one_another_is_given_up_and_registers_as_a_whole() {
        let (host, nic) = (Side::Host, Side::Nic);
        let mut node = Node1::new(Halves::Together);
        node.ask(8, &[(host, 1)]);
        let before = node.0.view().epoch();
        node.ask(11, &[(host, 1)]);
        assert_eq!(node.sides(), [(false, 2), (false, 2)], "the NIC has not asked");
        assert!(node.0.view().epoch() > before);
        assert!(node.0.is_given_up((NodeId(1), host, Incarnation(1))));
        let without = node.0.view().epoch();
        node.ask(12, &[(nic, 2)]);
        assert_eq!(node.sides(), [(false, 2), (false, 2)], "it waits for the host");
        assert_eq!(node.0.view().epoch(), without);
        let waiting = (NodeId(1), nic, Incarnation(2));
        assert!(!node.0.has(waiting) && !node.0.is_given_up(waiting));
        node.ask(14, &[(host, 2)]);
        assert_eq!(node.sides(), [(true, 2), (true, 2)]);
        assert_eq!(node.0.view().epoch(), without.next(), "both in one view");
        // Whose new life is seen before the old one's lease has ended takes the other half along.
        node.ask(15, &[(nic, 3), (host, 2)]);
        assert_eq!(node.sides(), [(false, 3), (false, 3)]);
        // One that has asked and is gone again does not become a member.
        node.ask(30, &[(host, 3)]);
        assert_eq!(node.sides(), [(false, 3), (false, 3)]);
        node.ask(31, &[(host, 3), (nic, 4)]);
        assert_eq!(node.sides(), [(true, 3), (true, 4)]);
    }

    #[test]
    fn a_host_that_is_worth_something_alone_outlives_its_nic_and_not_the_other_way_round() {
        let (host, nic) = (Side::Host, Side::Nic);
        let mut node = Node1::new(Halves::HostAlone);
        node.ask(8, &[(host, 1)]);
        node.ask(11, &[(host, 1)]);
        assert_eq!(node.sides(), [(true, 1), (false, 2)]);
        node.ask(12, &[(host, 1), (nic, 2)]);
        assert_eq!(node.sides(), [(true, 1), (true, 2)]);
        node.ask(20, &[(nic, 2)]);
        node.ask(23, &[(nic, 2)]);
        assert_eq!(node.sides(), [(false, 2), (false, 3)]);
        node.ask(24, &[(nic, 3)]);
        assert_eq!(node.sides(), [(false, 2), (false, 3)]);
        node.ask(25, &[(host, 2)]);
        assert_eq!(node.sides(), [(true, 2), (true, 3)]);
    }
}
