//! [`Local`] and [`Completions`] for engines.

use std::any::type_name;
use std::future::Future;
use std::rc::Rc;

use super::completions::Waits;
use super::timers::Timer;
use super::{Charge, Completion, Engine, Payload, Wake, World};
use crate::exec::Signal;
use crate::fabric::{Completions, Local, Work};
use crate::ids::{EngineId, Incarnation, Key};
use crate::trace::{Phase, PhaseLog, Step};
use crate::units::Nanos;
use crate::view::View;

impl<W: World> Local for Engine<W> {
    type Wake = Wake;

    fn here(&self) -> EngineId {
        self.site().here()
    }

    fn incarnation(&self) -> Incarnation {
        self.site().incarnation()
    }

    fn view(&self) -> &View {
        self.site().membership().view()
    }

    fn view_changes(&self) -> Signal {
        self.site().membership().changes().clone()
    }

    fn has_lease(&self) -> bool {
        self.is_leased()
    }

    fn declare_complete(&self) {
        self.site().membership().declare_complete();
    }

    fn now(&self) -> Nanos {
        self.site().now()
    }

    fn sleep_until(&self, deadline: Nanos) -> Wake {
        let (token, completion) = self.site().completions().open();
        self.0.timers.set(self.world(), deadline, Timer::Wake(token));
        Wake(Waits::Event(completion))
    }

    fn yield_now(&self) -> Wake {
        Wake(Waits::Round(self.0.next_round.wait()))
    }

    fn random(&self) -> u64 {
        self.world().random()
    }

    fn spawn<T: Future<Output = ()> + 'static>(&self, task: T) {
        let task_ref = self.0.executor.spawn(task);
        if let Some(trace) = self.site().trace() {
            trace.task_begins(self.site().now(), task_ref, type_name::<T>());
        }
    }

    fn phase(&self, name: &'static str) -> Phase {
        let Some(trace) = self.site().trace() else { return Phase::default() };
        let log: Rc<dyn PhaseLog> = self.0.clone();
        trace.phase_begins(self.site().now(), self.0.executor.running(), log, name)
    }

    fn about(&self, key: Key) {
        if let Some(trace) = self.site().trace() {
            trace.about(key);
        }
    }

    fn about_each(&self, name: impl FnOnce(&mut dyn FnMut(Key))) {
        if let Some(trace) = self.site().trace() {
            name(&mut |key| trace.about(key));
        }
    }

    fn step(&self, step: impl FnOnce() -> Step) {
        if let Some(trace) = self.site().trace() {
            trace.step(self.site().now(), self.site().incarnation(), step());
        }
    }

    fn records_steps(&self) -> bool {
        self.site().trace().is_some()
    }

    fn work(&self, work: Work) {
        self.world().charge(Charge::Work(work));
    }

    fn signal(&self) -> Signal {
        Signal::new(self.0.executor.clone())
    }
}

impl<W: World> Completions for Engine<W> {
    type Completion = Completion;
    type Payload = Payload;

    fn keep(&self, bytes: &[u8]) -> Payload {
        self.site().pool().copy(bytes)
    }
}
