//! The event kernel: integer virtual time, one total order, small copied events.

use nicol_core::units::Nanos;

use crate::queue::Queue;

/// An event of the kernel. Numbers are engine indices or places in the world's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A core looks for work.
    Core(u32),
    /// An engine's earliest timer may be due.
    Timer(u32),
    /// A frame reaches the next resource on its way.
    Frame(u32),
    /// A vector of transfers reaches the DMA engine.
    DmaSubmitted(u32),
    /// The first halves of a vector's long reads move.
    DmaHalfMoved(u32),
    /// The bytes of a vector move, or the rest of them.
    DmaMoved(u32),
    /// The completion of a vector or of a persist reaches its core.
    DmaCompleted(u32),
    /// A verb reaches the next stage of its way.
    Verb(u32),
    /// The first half of a long DMA read moves that is a verb.
    VerbHalfMoved(u32),
    /// Sides of nodes crash.
    Crash(u32),
    /// Sides that have crashed start again.
    Restart(u32),
    /// Engines learn of a crash or a restart.
    News(u32),
    /// Every side asks the view service for its lease.
    LeaseRenewal,
    /// The view service's answers arrive.
    ViewAnswers,
}

impl Event {
    /// Kind and number, for the digest.
    const fn key(self) -> u64 {
        let (kind, number) = match self {
            Self::Core(number) => (1, number),
            Self::Timer(number) => (2, number),
            Self::Frame(number) => (3, number),
            Self::DmaSubmitted(number) => (4, number),
            Self::DmaMoved(number) => (5, number),
            Self::DmaCompleted(number) => (6, number),
            Self::Verb(number) => (7, number),
            Self::Crash(number) => (8, number),
            Self::DmaHalfMoved(number) => (9, number),
            Self::VerbHalfMoved(number) => (10, number),
            Self::Restart(number) => (11, number),
            Self::News(number) => (12, number),
            Self::LeaseRenewal => (13, 0),
            Self::ViewAnswers => (14, 0),
        };
        (kind as u64) << 32 | number as u64
    }
}

/// A running hash of everything that happened: equal digests, equal runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }
}

impl Digest {
    /// Takes one number in.
    pub const fn add(&mut self, number: u64) {
        let product = (self.0 ^ number) as u128 * 0x2d35_8dcc_aa6c_78a5;
        self.0 = (product >> 64) as u64 ^ product as u64 ^ self.0.rotate_left(23);
    }

    /// The hash so far.
    pub const fn value(self) -> u64 {
        self.0
    }
}

/// Pending events in the order (time, sequence of insertion), and what has happened.
#[derive(Debug, Default)]
pub struct Kernel {
    queue: Queue<Event>,
    handled: u64,
    idle: usize,
    digest: Digest,
}

impl Kernel {
    /// The time of the last event handed out.
    pub fn now(&self) -> Nanos {
        Nanos(self.queue.now())
    }

    pub const fn handled(&self) -> u64 {
        self.handled
    }

    /// The digest of the events handed out and of what was [noted](Self::note).
    pub const fn digest(&self) -> u64 {
        self.digest.value()
    }

    /// Takes a number into the digest.
    pub const fn note(&mut self, number: u64) {
        self.digest.add(number);
    }

    /// Whether anything is pending besides timers, crashes, restarts and the news of them.
    pub fn is_active(&self) -> bool {
        self.queue.len() > self.idle
    }

    /// Lets `event` happen at `time`.
    ///
    /// # Panics
    /// If `time` has passed.
    // In line, so that callers decide when they are compiled whether their kind is idle.
    #[inline(always)]
    pub fn push(&mut self, time: Nanos, event: Event) {
        self.idle += usize::from(is_idle(event));
        self.queue.push(time.0, event);
    }

    pub fn next_time(&self) -> Option<Nanos> {
        self.queue.next_time().map(Nanos)
    }

    /// Moves the clock forward to `time`, at which nothing happens.
    ///
    /// # Panics
    /// If an event is pending before `time`.
    pub fn advance(&mut self, time: Nanos) {
        self.queue.advance(time.0);
    }

    /// Takes the next event.
    pub fn pop(&mut self) -> Option<Event> {
        self.pop_by(Nanos::MAX)
    }

    /// Takes the next event if it comes by `limit`.
    #[inline]
    pub fn pop_by(&mut self, limit: Nanos) -> Option<Event> {
        let event = self.queue.pop_by(limit.0)?;
        self.handled += 1;
        self.idle -= usize::from(is_idle(event));
        self.digest.add(self.queue.now());
        self.digest.add(event.key());
        Some(event)
    }
}

const fn is_idle(event: Event) -> bool {
    matches!(
        event,
        Event::Timer(_)
            | Event::Crash(_)
            | Event::Restart(_)
            | Event::News(_)
            | Event::LeaseRenewal
            | Event::ViewAnswers
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_by_insertion() {
        let mut kernel = Kernel::default();
        for (time, number) in [(7, 0), (3, 1), (7, 2), (3, 3)] {
            kernel.push(Nanos(time), Event::Core(number));
        }
        let order: Vec<_> = std::iter::from_fn(|| kernel.pop()).collect();
        assert_eq!(order, [1, 3, 0, 2].map(Event::Core));
        assert_eq!((kernel.now(), kernel.handled()), (Nanos(7), 4));
    }

    #[test]
    fn the_digest_tells_orders_apart_and_is_pinned() {
        let run = |first: u32, second: u32| {
            let mut kernel = Kernel::default();
            kernel.push(Nanos(1), Event::Frame(first));
            kernel.push(Nanos(1), Event::Frame(second));
            while kernel.pop().is_some() {}
            kernel.digest()
        };
        assert_ne!(run(1, 2), run(2, 1));
        // The same in debug and release builds and on every machine.
        assert_eq!(run(1, 2), PINNED);
    }

    const PINNED: u64 = 3_987_905_940_528_544_269;

    #[test]
    fn timers_alone_are_not_activity() {
        let mut kernel = Kernel::default();
        kernel.push(Nanos(5), Event::Timer(0));
        assert!(!kernel.is_active());
        kernel.push(Nanos(6), Event::Core(0));
        assert!(kernel.is_active());
        assert_eq!(kernel.pop(), Some(Event::Timer(0)));
        assert_eq!(kernel.pop(), Some(Event::Core(0)));
        assert!(!kernel.is_active());
    }
}
