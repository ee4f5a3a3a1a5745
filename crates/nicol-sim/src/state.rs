//! What changes while a simulated cluster runs: events, cores, hardware, what is under way.

use std::collections::VecDeque;

use nicol_core::engine::{Charge, Lives, Operation};
use nicol_core::medium::Medium;
use nicol_core::rng::Stream;
use nicol_core::units::{Nanos, Picos};

use crate::hw::{NodeHardware, Resource, picos};
use crate::in_flight::{FrameInFlight, News, Vector, VerbInFlight};
use crate::kernel::{Event, Kernel};
use crate::slab::Slab;
use crate::view_service::ViewService;
use nicol_core::faults::Faults;
use nicol_core::view::View;

/// No event is scheduled.
const NEVER: Nanos = Nanos::MAX;

/// One modelled core and what waits for it.
#[derive(Debug)]
pub struct Core {
    /// Frames that have arrived or will soon: when, and their numbers, in that order.
    pub inbox: VecDeque<(Nanos, u32)>,
    /// Finished operations, each with what handling it costs.
    pub done: VecDeque<(Operation, Option<Charge>)>,
    /// Frames to pass on between the host and the wire.
    pub forward: VecDeque<u32>,
    /// The end of its last round.
    pub busy_until: Picos,
    /// The time that it worked.
    pub busy: Picos,
    /// Frames of it that wait for the link or the PCIe queue.
    pub queued: u64,
    /// The times at which those of them leave that are known to have a place on the link.
    pub leaving: VecDeque<Nanos>,
    /// Whether the engine holds frames back until there is space.
    pub blocked: bool,
    pub dead: bool,
    /// The NIC's processing of this requester's verbs.
    pub requester: Resource,
    /// Persists that the core makes itself.
    pub flushes: Resource,
    next_round: Nanos,
    next_timer: Nanos,
}

impl Default for Core {
    fn default() -> Self {
        Self {
            inbox: VecDeque::new(),
            done: VecDeque::new(),
            forward: VecDeque::new(),
            busy_until: Picos(0),
            busy: Picos(0),
            queued: 0,
            leaving: VecDeque::new(),
            blocked: false,
            dead: false,
            requester: Resource::default(),
            flushes: Resource::default(),
            next_round: NEVER,
            next_timer: NEVER,
        }
    }
}

impl Core {
    /// The time that it worked until `now`; of a round that has not ended, the time that has
    /// passed.
    pub fn worked(&self, now: Picos) -> Picos {
        Picos(self.busy.0.saturating_sub(self.busy_until.0.saturating_sub(now.0)))
    }

    /// The time at which the next frame arrives, or has arrived.
    pub fn next_frame(&self) -> Option<Nanos> {
        self.inbox.front().map(|(arrival, _)| *arrival)
    }

    /// Puts a frame into the inbox that arrives at `arrival`, behind those that arrive by then.
    pub fn await_frame(&mut self, arrival: Nanos, number: u32) {
        let place = self.inbox.partition_point(|(other, _)| *other <= arrival);
        self.inbox.insert(place, (arrival, number));
    }

    /// Those of its frames that leave by `now` wait no more.
    #[inline]
    pub fn let_frames_leave(&mut self, now: Nanos) {
        while self.leaving.pop_front_if(|leaves| *leaves <= now).is_some() {
            self.queued -= 1;
        }
    }

    /// Takes the core down: no event of it does anything any more.
    pub fn stop(&mut self) {
        self.dead = true;
        self.blocked = false;
        self.flushes = Resource::default();
        (self.next_round, self.next_timer) = (NEVER, NEVER);
    }
}

/// The mutable state of a simulated cluster: hardware in use, frames, transfers, crashes.
#[derive(Debug)]
pub struct State {
    pub kernel: Kernel,
    pub cores: Vec<Core>,
    pub nodes: Vec<NodeHardware>,
    pub frames: Slab<FrameInFlight>,
    /// Of these, those that wait on the wire until they are released.
    pub held: Vec<u32>,
    /// Vectors whose completions wait until a test releases them.
    pub held_completions: Vec<u32>,
    /// Vectors of transfers under way.
    pub vectors: Slab<Vector>,
    pub verbs: Slab<VerbInFlight>,
    pub faults: Faults,
    /// The view service, if the run has one.
    pub view_service: Option<ViewService>,
    pub lives: Lives,
    /// By node: the newest view that the service has told it, if any.
    pub known: Vec<Option<View>>,
    /// Whether any side has crashed so far.
    pub has_crashes: bool,
    /// News that engines are about to learn; an event's number is a place here.
    pub news: Vec<News>,
    /// By node: what its log device holds. Only a plan with crashes has content kept.
    pub media: Vec<Medium>,
    /// Draws what crashes leave of writes that are not synced, and of DMA writes under way.
    pub medium_rng: Stream,
}

impl State {
    /// Schedules a round of engine `index` at `earliest` or when its core is free.
    #[inline]
    pub fn request_round(&mut self, index: usize, earliest: Nanos) {
        let core = &mut self.cores[index];
        if core.dead {
            return;
        }
        let at = earliest.max(core.busy_until.to_nanos_up()).max(self.kernel.now());
        if at < core.next_round {
            core.next_round = at;
            self.kernel.push(at, Event::Core(index as u32));
        }
    }

    /// Whether a round of engine `index` is due now. An event that an earlier one has overtaken
    /// asks for none.
    #[inline]
    pub fn take_round(&mut self, index: usize) -> bool {
        let core = &mut self.cores[index];
        if core.dead || core.next_round != self.kernel.now() {
            return false;
        }
        core.next_round = NEVER;
        let now = self.kernel.now();
        if picos(now) < core.busy_until {
            self.request_round(index, now);
            return false;
        }
        if let Some(until) = self.faults.stalled_until(now, index, self.cores.len()) {
            self.faults.counts.stalled += 1;
            self.request_round(index, until);
            return false;
        }
        true
    }

    /// Schedules a look at the timers of engine `index`, unless a round is due by then, whose end
    /// asks again.
    #[inline]
    pub fn request_timer(&mut self, index: usize, deadline: Nanos) {
        let core = &mut self.cores[index];
        let at = deadline.max(core.busy_until.to_nanos_up()).max(self.kernel.now());
        if !core.dead && at < core.next_timer && at < core.next_round {
            core.next_timer = at;
            self.kernel.push(at, Event::Timer(index as u32));
        }
    }

    /// Handles a timer event.
    pub fn timer(&mut self, index: usize) {
        let now = self.kernel.now();
        if self.cores[index].next_timer == now {
            self.cores[index].next_timer = NEVER;
            self.request_round(index, now);
        }
    }

    /// Hands a finished operation to its engine.
    #[inline]
    pub fn finish(&mut self, index: usize, operation: Operation, charge: Option<Charge>) {
        if !self.cores[index].dead {
            self.cores[index].done.push_back((operation, charge));
            self.request_round(index, self.kernel.now());
        }
    }
}
