//! Pending events by time and, at one time, by insertion.
//!
//! Most events happen within microseconds. Those of the next [`SPAN`] nanoseconds lie in a wheel
//! with a list for each nanosecond, in which the next one is found by two words of bits; the others
//! in a heap. They move to the wheel as soon as the clock allows, before anything else can be
//! inserted for the same time, so a list is in the order of insertion.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Nanoseconds that the wheel spans: a bit for each in [`WORDS`] words, a bit for each word in one.
const SPAN: u64 = 64 * WORDS as u64;
const WORDS: usize = 64;
const NONE: u32 = u32::MAX;

/// One event in the wheel's lists.
#[derive(Clone, Copy, Debug)]
struct Entry<E> {
    event: E,
    next: u32,
}

/// A list of the wheel: its first and its last entry.
#[derive(Clone, Copy, Debug)]
struct List {
    first: u32,
    last: u32,
}

/// An event beyond the wheel.
#[derive(Clone, Copy, Debug)]
struct Far<E> {
    time: u64,
    sequence: u64,
    event: E,
}

impl<E> Far<E> {
    const fn order(&self) -> (u64, u64) {
        (self.time, self.sequence)
    }
}

impl<E> PartialEq for Far<E> {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl<E> Eq for Far<E> {}

impl<E> PartialOrd for Far<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Far<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.order().cmp(&other.order())
    }
}

/// See the module. Its memory is the most events that were ever pending at once.
#[derive(Debug)]
pub struct Queue<E> {
    /// The clock: nothing is pending before it, and the wheel begins at it.
    now: u64,
    lists: Box<[List]>,
    /// By list: whether it holds anything.
    full: [u64; WORDS],
    /// By word of `full`: whether a bit is set.
    words: u64,
    entries: Vec<Entry<E>>,
    vacant: u32,
    far: BinaryHeap<Reverse<Far<E>>>,
    sequence: u64,
    len: usize,
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Self {
            now: 0,
            lists: vec![List { first: NONE, last: NONE }; SPAN as usize].into_boxed_slice(),
            full: [0; WORDS],
            words: 0,
            entries: Vec::new(),
            vacant: NONE,
            far: BinaryHeap::new(),
            sequence: 0,
            len: 0,
        }
    }
}

impl<E: Copy> Queue<E> {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn now(&self) -> u64 {
        self.now
    }

    /// Inserts `event` at `time`.
    ///
    /// # Panics
    /// If `time` has passed.
    #[inline]
    pub fn push(&mut self, time: u64, event: E) {
        assert!(time >= self.now, "an event cannot happen in the past");
        self.len += 1;
        if time - self.now < SPAN { self.insert(time, event) } else { self.insert_far(time, event) }
    }

    fn insert_far(&mut self, time: u64, event: E) {
        self.far.push(Reverse(Far { time, sequence: self.sequence, event }));
        self.sequence += 1;
    }

    #[inline]
    pub fn next_time(&self) -> Option<u64> {
        if self.words == 0 {
            return self.far.peek().map(|Reverse(next)| next.time);
        }
        // The lists go round: those from the clock's on come first, then those before it.
        let here = (self.now % SPAN) as usize;
        let (word, bit) = (here / 64, here % 64);
        let rest = self.full[word] >> bit;
        if rest != 0 {
            return Some(self.now + u64::from(rest.trailing_zeros()));
        }
        let others = self.words.rotate_right(word as u32) & !1;
        // Without another word, what is left lies in the clock's, before it.
        let ahead = if others == 0 { WORDS as u32 } else { others.trailing_zeros() };
        let next = (word + ahead as usize) % WORDS;
        let ahead = u64::from(ahead) * 64 + u64::from(self.full[next].trailing_zeros());
        Some(self.now - bit as u64 + ahead)
    }

    /// Moves the clock to `time`.
    ///
    /// # Panics
    /// If an event is pending before `time`.
    pub fn advance(&mut self, time: u64) {
        assert!(self.next_time().is_none_or(|next| next >= time), "an event would be skipped");
        self.set_now(self.now.max(time));
    }

    /// Takes the next event if it comes by `limit`, and moves the clock to its time.
    #[inline]
    pub fn pop_by(&mut self, limit: u64) -> Option<E> {
        let time = self.next_time().filter(|time| *time <= limit)?;
        assert!(time >= self.now, "time does not run backwards");
        if time > self.now {
            self.set_now(time);
        }
        let here = (time % SPAN) as usize;
        let list = &mut self.lists[here];
        let number = list.first;
        let entry = &mut self.entries[number as usize];
        let event = entry.event;
        list.first = std::mem::replace(&mut entry.next, self.vacant);
        self.vacant = number;
        if list.first == NONE {
            self.full[here / 64] &= !(1 << (here % 64));
            if self.full[here / 64] == 0 {
                self.words &= !(1 << (here / 64));
            }
        }
        self.len -= 1;
        Some(event)
    }

    #[inline]
    fn set_now(&mut self, now: u64) {
        self.now = now;
        while let Some(Reverse(next)) = self.far.peek()
            && next.time - now < SPAN
        {
            let Far { time, event, .. } = *next;
            self.far.pop();
            self.insert(time, event);
        }
    }

    /// Puts an event at the end of its list in the wheel.
    #[inline]
    fn insert(&mut self, time: u64, event: E) {
        let entry = Entry { event, next: NONE };
        let number = self.vacant;
        let number = if number == NONE {
            self.entries.push(entry);
            (self.entries.len() - 1) as u32
        } else {
            self.vacant = std::mem::replace(&mut self.entries[number as usize], entry).next;
            number
        };
        let here = (time % SPAN) as usize;
        let list = &mut self.lists[here];
        if list.first == NONE {
            list.first = number;
            self.full[here / 64] |= 1 << (here % 64);
            self.words |= 1 << (here / 64);
        } else {
            self.entries[list.last as usize].next = number;
        }
        list.last = number;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use nicol_core::rng::{Purpose, Stream};

    use super::*;

    /// Times ahead that meet the wheel's edges.
    const AHEAD: [u64; 9] = [0, 1, 63, 64, 65, SPAN - 1, SPAN, SPAN + 1, 3 * SPAN];

    #[test]
    fn it_is_a_set_of_times_and_sequences() {
        for seed in 0..200 {
            let mut random = Stream::new(seed, Purpose::Workload, 0);
            let (mut queue, mut model) = (Queue::default(), BTreeSet::new());
            let mut now = 0;
            for number in 0..3_000_u64 {
                // Sometimes fuller, sometimes empty.
                if random.below(100) < 45 + seed % 10 {
                    let ahead = match random.below(3) {
                        0 => AHEAD[random.below(AHEAD.len() as u64) as usize],
                        1 => random.below(100),
                        _ => random.below(5 * SPAN),
                    };
                    queue.push(now + ahead, number);
                    model.insert((now + ahead, number));
                } else if random.below(20) == 0 {
                    let next = model.first().map_or(now + 2 * SPAN, |(time, _)| *time);
                    now += random.below(next - now + 1);
                    queue.advance(now);
                } else {
                    let expected = model.pop_first();
                    let next = expected.map(|(time, _)| time);
                    assert_eq!(queue.next_time(), next);
                    if let Some(before) = next.and_then(|next| next.checked_sub(1)) {
                        assert_eq!(queue.pop_by(before), None);
                    }
                    let popped = queue.pop_by(next.unwrap_or(u64::MAX));
                    assert_eq!(popped, expected.map(|(_, number)| number));
                    now = expected.map_or(now, |(time, _)| time);
                }
                assert_eq!((queue.len(), queue.now()), (model.len(), now));
            }
        }
    }

    #[test]
    #[should_panic(expected = "in the past")]
    fn nothing_is_inserted_in_the_past() {
        let mut queue = Queue::default();
        queue.advance(5);
        queue.push(4, ());
    }

    #[test]
    #[should_panic(expected = "skipped")]
    fn nothing_is_skipped() {
        let mut queue = Queue::default();
        queue.push(SPAN * 2, ());
        queue.advance(SPAN * 2 + 1);
    }
}
