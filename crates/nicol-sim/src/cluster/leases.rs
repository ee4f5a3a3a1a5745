//! How the view service's views and leases reach engines.

use nicol_core::engine::{Life, Loss};
use nicol_core::ids::Side;
use nicol_core::units::Nanos;
use nicol_core::view::{Asking, SideState};

use super::SimCluster;
use crate::kernel::Event;
use crate::shared::Shared;
use crate::state::State;
use crate::view_service::{Answers, LEASE, RENEWAL, SERVICE_LATENCY};

const SIDES: [Side; 2] = [Side::Host, Side::Nic];

/// The sides ask for their leases.
pub(super) fn renew(cluster: &SimCluster) {
    let shared = &*cluster.shared;
    let state = &mut *shared.state.borrow_mut();
    let now = state.kernel.now();
    let asking = asking(shared, state, now);
    let Some(service) = &mut state.view_service else { return };
    service.members.update(now, &asking, now + SERVICE_LATENCY + LEASE);
    for &side in &asking {
        let (node, of, _) = side;
        let mut engines = shared.engines_of(node, of);
        if engines.next().is_some_and(|index| cluster.engine_at(index).is_complete()) {
            service.members.complete(side);
        }
    }
    let view = service.members.view().clone();
    let until = |node, side| match service.endless {
        true => Nanos::MAX,
        false => service.members.lease_until(node, side).min(now.saturating_add(LEASE)),
    };
    let leased = |asking: Asking| (asking, until(asking.0, asking.1));
    let sides = asking.into_iter().map(leased).collect();
    service.answers.push_back(Answers { view, sides });
    state.kernel.push(now + SERVICE_LATENCY * 2, Event::ViewAnswers);
    state.kernel.push(now + RENEWAL, Event::LeaseRenewal);
}

/// The service's answers reach those that asked, if they still live. A side that has been given
/// up meanwhile begins a new life: the others have gone on without it. One that waits for its
/// other half gets no lease.
pub(super) fn take_answers(cluster: &SimCluster) {
    let shared = &*cluster.shared;
    let answers = {
        let state = &mut *shared.state.borrow_mut();
        state.view_service.as_mut().and_then(|service| service.answers.pop_front())
    };
    let Some(Answers { view, sides }) = answers else { return };
    let mut given_up = Vec::<Loss>::new();
    for ((node, side, incarnation), lease_until) in sides {
        let lives = {
            let state = shared.state.borrow();
            let Life { up, incarnation: newest } = state.lives.of(node, side);
            up && newest == incarnation
        };
        let SideState { up, incarnation: registered } = view.side(node, side);
        if lives && incarnation < registered {
            // Sides of one node asked one after the other.
            let [host, nic] = SIDES.map(|of| of == side);
            match given_up.last_mut().filter(|loss| loss.node == node) {
                Some(loss) => (loss.host, loss.nic) = (loss.host || host, loss.nic || nic),
                None => given_up.push(Loss { node, host, nic }),
            }
        }
        let is_member = up && registered == incarnation;
        for index in shared.engines_of(node, side).filter(|_| lives && is_member) {
            let engine = cluster.engine_at(index);
            if engine.install_view(&view) {
                let state = &mut *shared.state.borrow_mut();
                state.known[node.index()] = Some(view.clone());
                state.request_round(index, cluster.now());
            }
            engine.grant_lease(lease_until);
        }
    }
    given_up.into_iter().for_each(|loss| cluster.begin_anew(loss));
}

/// The sides that ask now and whose requests arrive: those that live, are not stalled, and are
/// not cut off.
fn asking(shared: &Shared, state: &State, now: Nanos) -> Vec<Asking> {
    let count = shared.engines.len();
    let mut asking = Vec::new();
    for node in shared.view.node_ids() {
        if state.faults.cuts_off(now, node) {
            continue;
        }
        for side in SIDES {
            let Life { up, incarnation } = state.lives.of(node, side);
            // Its first engine asks for the side.
            let mut engines = shared.engines_of(node, side);
            let stalled = |index| state.faults.stands_still_until(now, index, count).is_some();
            if up && engines.next().is_some_and(|index| !stalled(index)) {
                asking.push((node, side, incarnation));
            }
        }
    }
    asking
}
