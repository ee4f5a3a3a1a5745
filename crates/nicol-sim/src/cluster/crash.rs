//! Crashes and restarts of a simulated cluster: engines are dropped and started anew, and their
//! frames and transfers under way end.

use nicol_core::engine::{CrashSabotage, Ending, Engine, Loss, Revival, restart_name};
use nicol_core::ids::{EngineId, NodeId, Side};
use nicol_core::medium::{MediumCounts, MediumWrite};

use super::SimCluster;
use crate::in_flight::News;
use crate::lives;
use crate::world::SimWorld;

impl SimCluster {
    /// Crashes sides of nodes now: their engines are taken apart, and what is lost is lost. Sides
    /// that are down already stay down; what waits between two lives is lost as well.
    pub fn crash(&self, loss: Loss) {
        let (living, waiting) = {
            let lives = &mut self.shared.state.borrow_mut().lives;
            (lives.living(loss), lives.end_waiting(loss))
        };
        living.into_iter().for_each(|loss| self.take_apart(loss, Ending::Crash));
        if let (Some(started), Some(waiting)) = (&*self.started.borrow(), waiting) {
            started.crashed(&waiting);
        }
    }

    /// Starts a new incarnation of each of these sides of a node that is down.
    pub fn restart(&self, node: NodeId, sides: &[Side]) {
        let down = |side: &&Side| !self.shared.state.borrow().lives.is_up(node, **side);
        let sides: Vec<_> = sides.iter().filter(down).map(|&side| (node, side)).collect();
        self.bring_back(&sides);
    }

    /// The effect of crashes on writes that log devices had not synced.
    pub fn medium_counts(&self) -> MediumCounts {
        let state = self.shared.state.borrow();
        let mut sum = MediumCounts::default();
        state.media.iter().for_each(|medium| sum.add(&medium.counts()));
        sum
    }

    /// The content of a node's medium, to be read back after a crash of everything.
    pub fn medium_writes(&self, node: NodeId) -> Vec<MediumWrite> {
        self.shared.state.borrow().media[node.index()].writes().to_vec()
    }

    /// Of that, what a crash leaves in any case: writes that are synced, and whole.
    pub fn synced_writes(&self, node: NodeId) -> Vec<MediumWrite> {
        self.shared.state.borrow().media[node.index()].synced().cloned().collect()
    }

    pub(super) fn planned_crash(&self, index: usize) {
        let losses = {
            let state = &mut *self.shared.state.borrow_mut();
            let crash = state.faults.plan().crashes[index];
            if let Some(at) = crash.restarts_at() {
                state.kernel.push(at, crate::kernel::Event::Restart(index as u32));
            }
            state.lives.losses(&crash)
        };
        losses.into_iter().for_each(|loss| self.crash(loss));
    }

    pub(super) fn planned_restart(&self, index: usize) {
        let sides = {
            let state = self.shared.state.borrow();
            state.lives.returns(&state.faults.plan().crashes[index])
        };
        self.bring_back(&sides);
    }

    fn take_apart(&self, loss: Loss, ending: Ending) {
        let shared = &*self.shared;
        if let Some(trace) = &shared.trace {
            trace.fault(self.now(), loss.node, loss.name(ending));
        }
        let loses = ending.loses_memory(shared.state.borrow().lives.halves());
        lives::take_down(shared, &mut shared.state.borrow_mut(), loss, loses);
        let keeps_engines = self.sabotage == CrashSabotage::TimersFire;
        for index in (0..shared.engines.len()).filter(|&index| is_hit(shared.engines[index], &loss))
        {
            if keeps_engines {
                continue;
            }
            let fresh = self.fresh(index);
            let old = std::mem::replace(&mut self.engines.borrow_mut()[index], fresh);
            self.retired.borrow_mut().add(&old.stats());
            // Not within a borrow: the tasks' own ends may call the world.
            old.dismantle();
        }
        let durable = shared.model(loss.node).memory_is_durable();
        for side in [Side::Host, Side::Nic].into_iter().filter(|&side| loss.of(side)) {
            let lost = shared.tables[usize::from(loss.node.0)].lose(side, durable);
            self.lost.borrow_mut().extend(lost);
        }
        if let Some(started) = &*self.started.borrow() {
            if loses { started.crashed(&loss) } else { started.ended(&loss) }
        }
    }

    /// Restarts sides that the view service gave up while they were up: their engines are dropped,
    /// and start again at once, or together with the other side of their node if they need it.
    pub(super) fn begin_anew(&self, given_up: Loss) {
        self.take_apart(given_up, Ending::Anew);
        let again = self.shared.state.borrow_mut().lives.start_again(given_up);
        self.bring_back(&again);
    }

    /// The engine of the next incarnation.
    fn fresh(&self, index: usize) -> Engine<SimWorld> {
        let world = SimWorld::reborn(self.engines.borrow()[index].world());
        Engine::new(self.shared.engines[index], world)
    }

    /// Starts sides that are down, and the other sides of their nodes that need them: of these, a
    /// side that is up is crashed first.
    fn bring_back(&self, sides: &[(NodeId, Side)]) {
        let shared = &*self.shared;
        let along = shared.state.borrow().lives.start_along(sides);
        for &(node, side) in &along {
            let loss = Loss { node, host: side == Side::Host, nic: side == Side::Nic };
            let living = shared.state.borrow().lives.living(loss);
            living.into_iter().for_each(|loss| self.take_apart(loss, Ending::Anew));
        }
        let sides = [sides, &along].concat();
        for &(node, side) in &sides {
            let state = &mut *shared.state.borrow_mut();
            state.lives.bring_up(node, side);
            lives::tell(shared, state, node, side);
            if let Some(trace) = &shared.trace {
                trace.fault(self.now(), node, restart_name(side));
            }
        }
        for (index, id) in shared.engines.iter().enumerate() {
            if !sides.contains(&(id.node, id.side)) {
                continue;
            }
            let (incarnation, medium) = {
                let state = &mut *shared.state.borrow_mut();
                state.cores[index].dead = false;
                let life = state.lives.of(id.node, id.side);
                (life.incarnation, state.media[usize::from(id.node.0)].writes().to_vec())
            };
            let memory_is_durable = shared.model(id.node).memory_is_durable();
            let revival = Revival { incarnation, medium: &medium, memory_is_durable };
            let engine = self.engines.borrow()[index].clone();
            self.catch_up(&engine);
            if let Some(started) = &*self.started.borrow() {
                started.restart(&engine, &revival);
            }
            shared.state.borrow_mut().request_round(index, self.now());
        }
    }

    /// Tells a new engine what the others know: the sides that have crashed before.
    fn catch_up(&self, engine: &Engine<SimWorld>) {
        let state = self.shared.state.borrow();
        if state.view_service.is_some() {
            // It has to register first.
            engine.revoke_lease();
        }
        // Nobody has told it yet of those that are down just now.
        for (node, side, life) in state.lives.iter().filter(|(.., life)| life.up) {
            engine.welcome(node, side, life.incarnation);
        }
    }

    /// Engines learn what has happened to a side.
    pub(super) fn break_news(&self, number: usize) {
        let News { node, side, life, over_pcie } = self.shared.state.borrow().news[number];
        for (index, id) in self.shared.engines.iter().enumerate() {
            let near = id.node == node;
            let other = near && id.side != side;
            if near && id.side == side || over_pcie != other {
                continue;
            }
            if self.shared.state.borrow().cores[index].dead {
                continue;
            }
            self.engine_at(index).learn(node, side, life);
            self.shared.state.borrow_mut().request_round(index, self.now());
        }
    }

    /// # Panics
    /// If anything has accessed memory that a crash has taken away: a bug.
    pub(super) fn check_lost_memory(&self) {
        for region in self.lost.borrow().iter() {
            let accesses = region.lost_accesses();
            assert!(accesses == 0, "{region:?} was lost in a crash and is accessed afterwards");
        }
    }
}

fn is_hit(engine: EngineId, loss: &Loss) -> bool {
    engine.node == loss.node && loss.of(engine.side)
}
