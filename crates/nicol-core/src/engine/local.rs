//! [`Local`] and [`Completions`] for engines.

use std::any::type_name;
use std::future::Future;

use super::completions::Waits;
use super::{Charge, Completion, Engine, Payload, Timer, Wake, World};
use crate::exec::Signal;
use crate::fabric::{Completions, Local, Work};
use crate::ids::{EngineId, Incarnation, Key};
use crate::trace::{Phase, Step};
use crate::units::Nanos;
use crate::view::View;

impl<W: World> Local for Engine<W> {
    type Wake = Wake;

    fn here(&self) -> EngineId {
        self.0.here
    }

    fn incarnation(&self) -> Incarnation {
        self.0.incarnation
    }

    fn view(&self) -> &View {
        self.0.views.current()
    }

    fn view_changes(&self) -> Signal {
        self.0.view_changes.clone()
    }

    fn has_lease(&self) -> bool {
        self.is_leased()
    }

    fn now(&self) -> Nanos {
        self.0.world.now()
    }

    fn sleep_until(&self, deadline: Nanos) -> Wake {
        let (token, completion) = self.0.completions.open();
        self.0.set_timer(deadline, Timer::Wake(token));
        Wake(Waits::Event(completion))
    }

    fn yield_now(&self) -> Wake {
        Wake(Waits::Round(self.0.next_round.wait()))
    }

    fn random(&self) -> u64 {
        self.0.world.random()
    }

    fn spawn<T: Future<Output = ()> + 'static>(&self, task: T) {
        let task_ref = self.0.executor.spawn(task);
        if let Some(trace) = &self.0.trace {
            trace.task_begins(self.0.world.now(), task_ref, type_name::<T>());
        }
    }

    fn phase(&self, name: &'static str) -> Phase {
        if self.0.trace.is_none() { Phase::default() } else { self.open_phase(name) }
    }

    fn about(&self, key: Key) {
        if let Some(trace) = &self.0.trace {
            trace.about(key);
        }
    }

    fn about_each(&self, name: impl FnOnce(&mut dyn FnMut(Key))) {
        if let Some(trace) = &self.0.trace {
            name(&mut |key| trace.about(key));
        }
    }

    fn step(&self, step: impl FnOnce() -> Step) {
        if let Some(trace) = &self.0.trace {
            trace.step(self.0.world.now(), self.0.incarnation, step());
        }
    }

    fn records_steps(&self) -> bool {
        self.0.trace.is_some()
    }

    fn work(&self, work: Work) {
        self.0.world.charge(Charge::Work(work));
    }

    fn signal(&self) -> Signal {
        Signal::new(self.0.executor.clone())
    }
}

impl<W: World> Completions for Engine<W> {
    type Completion = Completion;
    type Payload = Payload;

    fn keep(&self, bytes: &[u8]) -> Payload {
        self.0.pool.copy(bytes)
    }
}
