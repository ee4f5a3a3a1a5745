//! Where events are collected.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Event, Flow, TaskNumber, Track, What};
use crate::units::Nanos;

/// Events that a tracer keeps before it hands them to its sink.
const CHUNK: usize = 4_096;

/// The limits of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Events of all tracks together.
    pub events: u64,
    /// Only what happens within this time.
    pub window: Range<Nanos>,
}

impl Limits {
    /// So many events, whenever they happen.
    pub const fn events(events: u64) -> Self {
        Self { events, window: Nanos::ZERO..Nanos::MAX }
    }
}

/// The events of one run, from all its tracks.
#[derive(Debug)]
pub struct Sink {
    limits: Limits,
    taken: AtomicU64,
    /// Frames and tasks that were numbered.
    numbered: (AtomicU64, AtomicU32),
    /// Steps that were numbered.
    steps: AtomicU64,
    /// The time of the first event that there was no room for.
    full_at: AtomicU64,
    tracks: Mutex<BTreeMap<Track, Vec<Event>>>,
    /// Message types by kind, for messages that are sent again.
    kinds: Mutex<BTreeMap<u16, &'static str>>,
    /// Frames under way, by the address of their buffer, which no other frame has until they
    /// arrive.
    frames: Mutex<BTreeMap<usize, u64>>,
}

/// A trace that is complete.
#[derive(Debug, Default)]
pub struct Recorded {
    /// Events by track, each in the order of their times.
    pub tracks: BTreeMap<Track, Vec<Event>>,
    /// Message types by kind.
    pub kinds: BTreeMap<u16, &'static str>,
    /// From when on events are missing, because the limit was reached.
    pub full_at: Option<Nanos>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sink {
    pub fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            taken: AtomicU64::new(0),
            numbered: Default::default(),
            steps: AtomicU64::new(0),
            full_at: AtomicU64::new(u64::MAX),
            tracks: Mutex::default(),
            kinds: Mutex::default(),
            frames: Mutex::default(),
        })
    }

    /// Takes out what was recorded. Call it when the engines have stopped: what a tracer still
    /// keeps is not in it.
    pub fn take(&self) -> Recorded {
        let mut tracks = std::mem::take(&mut *lock(&self.tracks));
        // Several tracers may share a track, and each hands over its own events in chunks.
        tracks.values_mut().for_each(|events| events.sort_by_key(|event| event.at));
        let full_at = self.full_at.load(Ordering::Acquire);
        Recorded {
            tracks,
            kinds: std::mem::take(&mut *lock(&self.kinds)),
            full_at: (full_at != u64::MAX).then_some(Nanos(full_at)),
        }
    }

    /// True if there is room for `events` of which the first happens at `at`.
    fn admits(&self, at: Nanos, events: u64) -> bool {
        if !self.limits.window.contains(&at) {
            return false;
        }
        let taken = self.taken.fetch_add(events, Ordering::AcqRel);
        let admitted = taken + events <= self.limits.events;
        if !admitted {
            self.full_at.fetch_min(at.0, Ordering::AcqRel);
        }
        admitted
    }

    pub fn number_frame(&self) -> u64 {
        self.numbered.0.fetch_add(1, Ordering::Relaxed)
    }

    pub fn number_task(&self) -> TaskNumber {
        self.numbered.1.fetch_add(1, Ordering::Relaxed)
    }

    /// A number for the next step of a protocol.
    pub fn number_step(&self) -> u64 {
        self.steps.fetch_add(1, Ordering::Relaxed)
    }

    /// The frame in `buffer` leaves its sender as number `frame`.
    pub fn frame_sent(&self, buffer: &[u8], frame: u64) {
        lock(&self.frames).insert(buffer.as_ptr().addr(), frame);
    }

    /// The frame in `from` was copied on its way.
    pub fn frame_copied(&self, from: &[u8], to: &[u8]) {
        let mut frames = lock(&self.frames);
        match frames.get(&from.as_ptr().addr()).copied() {
            Some(frame) => frames.insert(to.as_ptr().addr(), frame),
            None => frames.remove(&to.as_ptr().addr()),
        };
    }

    /// The number of the frame in `buffer`; `None` if it left before the trace began.
    pub fn frame_of(&self, buffer: &[u8]) -> Option<u64> {
        lock(&self.frames).get(&buffer.as_ptr().addr()).copied()
    }

    /// The frame in `buffer` has arrived, or was lost. Its number.
    pub fn frame_ended(&self, buffer: &[u8]) -> Option<u64> {
        lock(&self.frames).remove(&buffer.as_ptr().addr())
    }

    /// Messages of `kind` are of the type `name`.
    pub fn name_kind(&self, kind: u16, name: &'static str) {
        lock(&self.kinds).entry(kind).or_insert(name);
    }

    /// The type of messages of `kind`, if one was sent.
    pub fn kind_name(&self, kind: u16) -> Option<&'static str> {
        lock(&self.kinds).get(&kind).copied()
    }
}

/// What records the events of one track. Hands them to its sink when it is dropped, at the latest.
#[derive(Debug)]
pub struct Tracer {
    sink: Arc<Sink>,
    track: Track,
    events: RefCell<Vec<Event>>,
    /// Slices that have begun and not ended, whether they were admitted or not.
    open: RefCell<Vec<bool>>,
}

impl Tracer {
    /// A tracer of `track`.
    pub fn new(sink: &Arc<Sink>, track: Track) -> Self {
        Self { sink: sink.clone(), track, events: RefCell::default(), open: RefCell::default() }
    }

    /// Where it records to.
    pub fn sink(&self) -> &Sink {
        &self.sink
    }

    /// Records an event, if the sink admits it. False if it does not.
    pub fn record(&self, at: Nanos, what: What) -> bool {
        self.take(at, what, 1)
    }

    fn take(&self, at: Nanos, what: What, events: u64) -> bool {
        let admitted = self.sink.admits(at, events);
        if admitted {
            self.push(Event { at, what });
        }
        admitted
    }

    /// Begins a slice: [`Tracer::end`] ends it, in the room that is taken now.
    pub fn begin(&self, at: Nanos, what: What) {
        let admitted = self.take(at, what, 2);
        self.open.borrow_mut().push(admitted);
    }

    /// Ends the innermost slice. The end of one that was recorded is recorded as well, so that a
    /// trace which is full still nests.
    pub fn end(&self, at: Nanos) {
        if self.open.borrow_mut().pop().unwrap_or_default() {
            self.push(Event { at, what: What::End });
        }
    }

    /// Hands what was recorded to the sink.
    pub fn flush(&self) {
        let mut events = self.events.borrow_mut();
        if !events.is_empty() {
            lock(&self.sink.tracks).entry(self.track).or_default().append(&mut events);
        }
    }

    fn push(&self, event: Event) {
        let full = {
            let mut events = self.events.borrow_mut();
            events.push(event);
            events.len() >= CHUNK
        };
        if full {
            self.flush();
        }
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        self.flush();
    }
}

impl Flow {
    /// A message of the frame `frame`.
    pub const fn new(frame: u64, place: u16) -> Self {
        Self { frame, place }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{EngineId, NodeId};

    #[test]
    fn a_full_trace_says_since_when_and_its_slices_still_end() {
        let sink = Sink::new(Limits::events(4));
        let tracer = Tracer::new(&sink, Track::Engine(EngineId::host(NodeId(0), 0)));
        tracer.begin(Nanos(1), What::Round);
        tracer.begin(Nanos(2), What::Poll(0));
        tracer.begin(Nanos(3), What::Poll(1));
        for at in 4..7 {
            tracer.end(Nanos(at));
        }
        drop(tracer);
        let recorded = sink.take();
        let events = recorded.tracks.into_values().next().unwrap_or_default();
        let whats: Vec<_> = events.iter().map(|event| (event.at.0, event.what)).collect();
        let expected = [(1, What::Round), (2, What::Poll(0)), (5, What::End), (6, What::End)];
        assert_eq!(whats, expected);
        assert_eq!(recorded.full_at, Some(Nanos(3)));
    }

    #[test]
    fn a_window_admits_what_happens_in_it() {
        let window = Nanos(10)..Nanos(20);
        let sink = Sink::new(Limits { events: 100, window });
        let tracer = Tracer::new(&sink, Track::Hardware(NodeId(1)));
        let admitted = [9, 10, 19, 20].map(|at| tracer.record(Nanos(at), What::Fault("crash")));
        assert_eq!(admitted, [false, true, true, false]);
        tracer.flush();
        assert_eq!(sink.take().full_at, None, "a window is no limit");
    }

    #[test]
    fn a_frame_is_known_by_its_buffer_until_it_arrives() {
        let sink = Sink::new(Limits::events(1));
        let (frame, copy) = (vec![1_u8; 8], vec![1_u8; 8]);
        sink.frame_sent(&frame, 7);
        sink.frame_copied(&frame, &copy);
        assert_eq!(sink.frame_ended(&frame), Some(7));
        assert_eq!(sink.frame_ended(&frame), None);
        assert_eq!(sink.frame_ended(&copy), Some(7));
        sink.frame_copied(&frame, &copy);
        assert_eq!(sink.frame_of(&copy), None, "a copy of what is not known is not known");
    }
}
