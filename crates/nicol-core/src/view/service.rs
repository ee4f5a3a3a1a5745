//! What a service of views decides, whatever world it stands in: who has a lease, who is given up,
//! who has joined again.

use super::{SideState, View};
use crate::ids::{Incarnation, NodeId, Side};
use crate::units::Nanos;

/// A side that asks for a lease.
pub type Asking = (NodeId, Side, Incarnation);

/// The members of a cluster, and until when each has a lease by the service's clock.
///
/// A side whose lease has ended is given up: a newer view is without it. A new incarnation
/// registers when it first asks, and has no lease before. One that was given up and still lives
/// must start anew.
#[derive(Debug)]
pub struct Membership {
    view: View,
    /// By node and side.
    leases: Vec<[Nanos; 2]>,
}

impl Membership {
    /// Every side that is up in `view` has a lease until `until`.
    pub fn new(view: View, until: Nanos) -> Self {
        let leases = vec![[until; 2]; view.nodes()];
        Self { view, leases }
    }

    /// The newest view.
    pub const fn view(&self) -> &View {
        &self.view
    }

    /// Takes the requests that have come by `now`: who asks has a lease until `until`, unless it
    /// was given up, and whose lease has ended is given up. True if the view is another now.
    pub fn update(&mut self, now: Nanos, asking: &[Asking], until: Nanos) -> bool {
        let mut changes = Vec::new();
        for &(node, side, incarnation) in asking {
            let known = self.view.side(node, side);
            // One that was given up must start anew: its incarnation is over.
            if incarnation < known.incarnation {
                continue;
            }
            let registered = SideState { up: true, incarnation };
            if registered != known {
                changes.push((node, side, registered));
            }
            self.leases[node.index()][side as usize] = until;
        }
        for node in self.view.node_ids() {
            for side in [Side::Host, Side::Nic] {
                let SideState { up, incarnation } = self.view.side(node, side);
                let over = self.leases[node.index()][side as usize] < now;
                if up && over {
                    let incarnation = incarnation.next();
                    changes.push((node, side, SideState { up: false, incarnation }));
                }
            }
        }
        if !changes.is_empty() {
            self.view = self.view.with_sides(&changes);
        }
        !changes.is_empty()
    }

    /// Is this incarnation of a side part of the newest view?
    pub fn has(&self, (node, side, incarnation): Asking) -> bool {
        self.view.side(node, side) == SideState { up: true, incarnation }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
