//! Effects of a crash: frames and transfers under way are dropped, and other engines are told.

use nicol_core::engine::Loss;
use nicol_core::ids::{NodeId, Side};
use nicol_core::units::Nanos;

use crate::in_flight::{News, Since};
use crate::kernel::Event;
use crate::shared::Shared;
use crate::state::State;
use crate::{frames, vectors, verbs};

/// Time until a side of a node notices over PCIe that the other side has crashed, or is back.
pub const PCIE_DETECTION: Nanos = Nanos::from_micros(10);

impl State {
    /// The incarnations of `node` now.
    pub fn since(&self, node: NodeId) -> Since {
        Since([Side::Host, Side::Nic].map(|side| self.lives.of(node, side).incarnation))
    }

    /// Whether `side` of `node` has crashed since then, or was down already.
    pub fn has_crashed(&self, node: NodeId, side: Side, since: Since) -> bool {
        if !self.has_crashes {
            return false;
        }
        let life = self.lives.of(node, side);
        !life.up || life.incarnation != since.0[side as usize]
    }

    /// Whether `side` of `node` is up.
    pub fn is_up(&self, node: NodeId, side: Side) -> bool {
        self.lives.is_up(node, side)
    }
}

/// Takes sides down: from here on nothing of them runs, moves or arrives. Their devices end
/// what they have begun, unless that is lost with them.
pub(crate) fn take_down(shared: &Shared, state: &mut State, loss: Loss, loses: bool) {
    let node = usize::from(loss.node.0);
    for side in [Side::Host, Side::Nic].into_iter().filter(|&side| loss.of(side)) {
        state.lives.take_down(loss.node, side);
        state.has_crashes = true;
        for index in (0..shared.engines.len()).filter(|&index| {
            (shared.engines[index].node, shared.engines[index].side) == (loss.node, side)
        }) {
            silence(shared, state, index);
        }
        tell(shared, state, loss.node, side);
    }
    if loss.nic {
        vectors::land_in_part(shared, state, loss.node);
    }
    let sides = [Side::Host, Side::Nic].into_iter().filter(|&side| loss.of(side));
    if !loses {
        sides.for_each(|side| state.media[node].settle(side));
    } else if !shared.keeps_unsynced {
        state.media[node].crash(|side| loss.of(side), &mut state.medium_rng);
    }
    // Chains are executed by the card, or in software by NIC engines; verbs by the card, if it
    // has any.
    let model = shared.model(loss.node);
    if model.has_verbs() && loss.of(model.card_side()) {
        verbs::abort_executions(state, loss.node);
    }
    if loss.of(if model.runs_chains() { model.card_side() } else { Side::Nic }) {
        shared.tables[node].forget_chains();
    }
}

/// Forgets what waits for a core that has crashed.
fn silence(shared: &Shared, state: &mut State, index: usize) {
    let core = &mut state.cores[index];
    core.stop();
    core.done.clear();
    // What is still on its way finds out when it arrives.
    let now = state.kernel.now();
    for (arrival, number) in std::mem::take(&mut state.cores[index].inbox) {
        if arrival <= now {
            frames::drop_frame(shared, state, number);
        } else {
            state.kernel.push(arrival, Event::Frame(number));
        }
    }
    while let Some(number) = state.cores[index].forward.pop_front() {
        frames::drop_frame(shared, state, number);
    }
}

/// Lets engines learn about a side whose state has just changed: those of the node's other side
/// over PCIe, the others if the configuration says after how long.
pub(crate) fn tell(shared: &Shared, state: &mut State, node: NodeId, side: Side) {
    let life = state.lives.of(node, side);
    let after = [(true, Some(PCIE_DETECTION)), (false, shared.detect_after)];
    for (over_pcie, after) in after {
        let Some(after) = after else { continue };
        state.news.push(News { node, side, life, over_pcie });
        let number = (state.news.len() - 1) as u32;
        state.kernel.push(state.kernel.now().saturating_add(after), Event::News(number));
    }
}
