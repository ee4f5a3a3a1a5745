//! The engine's own resources: time, randomness, tasks, and its core.

use std::future::Future;

use super::Work;
use crate::exec::Signal;
use crate::ids::{EngineId, Incarnation, Key};
use crate::trace::{Phase, Step};
use crate::units::Nanos;
use crate::view::View;

/// What an engine has to itself: its name, its clock, its random bits, its tasks and its core's
/// time.
///
/// Contract: nothing here involves another engine. Time never goes back. Tasks run one at a time,
/// each from one await to the next; which of the ready ones is next is the order in which they
/// became ready. Randomness is a stream of this engine's own, so that what one engine draws moves
/// no other's.
///
/// A value is a handle of one engine; clones are handles of the same engine, and none of them
/// leaves its thread.
pub trait Local: Clone + 'static {
    /// Resolves when the engine wakes it.
    type Wake: Future<Output = ()> + Unpin + 'static;

    /// The engine this is a handle of.
    fn here(&self) -> EngineId;

    /// The life of its side that the engine belongs to: what another life numbered is another
    /// thing.
    fn incarnation(&self) -> Incarnation;

    /// The newest view that this engine knows. What is borrowed here stays as it is when a newer
    /// one comes.
    fn view(&self) -> &View;
    /// Wakes the tasks that wait for it whenever [`Local::view`] has become another.
    fn view_changes(&self) -> Signal;
    /// May this engine serve others now? An engine without a lease drops what other nodes ask of
    /// it. What it answers from its own memory alone, it may only report while it has one: others
    /// may have gone on without its node. Always true where no view service hands out leases.
    fn has_lease(&self) -> bool;

    /// Tells the view service that this node has caught up: it has the records of every shard for
    /// which its view says that it is being given them. Said once in a life, by the first NIC
    /// engine; the view that follows makes the node a backup.
    fn declare_complete(&self);

    /// The time at this engine.
    fn now(&self) -> Nanos;

    /// Resolves at `deadline` or soon after.
    fn sleep_until(&self, deadline: Nanos) -> Self::Wake;

    /// Lets every other ready task of this engine run once.
    fn yield_now(&self) -> Self::Wake;

    /// Random bits from this engine's protocol stream.
    fn random(&self) -> u64;

    /// Runs `task` on this engine, starting in this poll round. Its memory is pooled by type.
    fn spawn<T: Future<Output = ()> + 'static>(&self, task: T);

    /// Enters a phase of a protocol, named as its tag names the step; it ends when the result is
    /// dropped. Only traces show it: where none is taken it costs a branch.
    fn phase(&self, name: &'static str) -> Phase {
        let _not_traced = name;
        Phase::default()
    }

    /// Names the key that the one-sided operation posted next is about. Only traces show it: where
    /// none is taken it costs a branch.
    fn about(&self, key: Key) {
        let _not_traced = key;
    }

    /// The same of several keys, which `name` hands over. Only called where a trace is taken.
    fn about_each(&self, name: impl FnOnce(&mut dyn FnMut(Key))) {
        let _not_traced = name;
    }

    /// Records that the protocol has taken a step on a record. Call it where nothing was awaited
    /// since the step changed memory. Only traces show it: where none is taken it costs a branch,
    /// and `step` is not called.
    fn step(&self, step: impl FnOnce() -> Step) {
        let _not_traced = step;
    }

    /// Are steps recorded? For steps of which each has to be looked for.
    fn records_steps(&self) -> bool {
        false
    }

    /// Charges a step's computation to this core: free in the live world.
    fn work(&self, work: Work);

    /// A condition that tasks of this engine may wait for.
    fn signal(&self) -> Signal;
}
