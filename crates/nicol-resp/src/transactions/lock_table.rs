//! Locks of records among the transactions of one front.
//!
//! Two transactions that lock one record cost an abort and a retry; here the second one waits for
//! the first, in order. Conflicts with other threads and nodes are left to the protocol.

use nicol_core::ids::{IdMap, Key};
use nicol_core::serving::Request;
use std::collections::VecDeque;

use super::plan::Planned;

/// A transaction with the connection that waits for it.
#[derive(Clone, Debug)]
pub struct Waiter {
    pub slot: usize,
    pub connection: u64,
    pub planned: Planned,
}

#[derive(Debug, Default)]
struct Hold {
    readers: usize,
    writer: bool,
    waiting: VecDeque<Waiter>,
}

/// The keys of the transactions in progress. Bounded by the connections: each has one at most.
#[derive(Debug, Default)]
pub struct LockTable {
    holds: IdMap<Key, Hold>,
}

impl LockTable {
    /// Lets `waiter` in, or keeps it until what it conflicts with is released.
    pub fn enter(&mut self, waiter: Waiter) -> Option<Waiter> {
        match self.conflict(waiter.planned.request(), true) {
            None => {
                self.hold(waiter.planned.request());
                Some(waiter)
            }
            Some(key) => {
                self.holds.entry(key).or_default().waiting.push_back(waiter);
                None
            }
        }
    }

    /// Whether a transaction holds `row`, or waits for it.
    pub fn is_held(&self, row: Key) -> bool {
        self.holds.contains_key(&row)
    }

    /// Releases the keys of `request`; appends those that may go in now to `admitted`.
    pub fn leave(&mut self, request: &Request, admitted: &mut Vec<Waiter>) {
        for key in &request.reads {
            if let Some(hold) = self.holds.get_mut(key) {
                assert!(hold.readers > 0, "a key is released once for each time it was held");
                hold.readers -= 1;
            }
        }
        for key in &request.writes {
            if let Some(hold) = self.holds.get_mut(key) {
                assert!(hold.writer, "a key is released once for each time it was held");
                hold.writer = false;
            }
        }
        for key in request.reads.iter().chain(&request.writes) {
            self.admit(*key, admitted);
        }
    }

    /// Takes out the requests that are next in line for a key that `leader` writes, while `rides`
    /// allows it.
    pub fn followers(
        &mut self,
        leader: &Request,
        mut rides: impl FnMut(&Waiter) -> bool,
    ) -> Vec<Waiter> {
        let mut followers = Vec::new();
        for key in &leader.writes {
            let Some(hold) = self.holds.get_mut(key) else { continue };
            while let Some(waiter) = hold.waiting.pop_front_if(|waiter| rides(waiter)) {
                followers.push(waiter);
            }
        }
        followers
    }

    /// Whether no record is held, and no transaction waits.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.holds.is_empty()
    }

    /// Lets in the waiters of `key`, in order, up to the first that must still wait for it.
    fn admit(&mut self, key: Key, admitted: &mut Vec<Waiter>) {
        loop {
            let Some(hold) = self.holds.get_mut(&key) else { return };
            let Some(waiter) = hold.waiting.pop_front() else {
                if hold.readers == 0 && !hold.writer {
                    self.holds.remove(&key);
                }
                return;
            };
            match self.conflict(waiter.planned.request(), false) {
                None => {
                    self.hold(waiter.planned.request());
                    admitted.push(waiter);
                }
                Some(other) if other == key => {
                    if let Some(hold) = self.holds.get_mut(&key) {
                        hold.waiting.push_front(waiter);
                    }
                    return;
                }
                Some(other) => self.holds.entry(other).or_default().waiting.push_back(waiter),
            }
        }
    }

    /// A key of `request` that is held against it, or (`in_turn`) that others wait for already.
    fn conflict(&self, request: &Request, in_turn: bool) -> Option<Key> {
        let blocked = |key: &&Key, write: bool| {
            self.holds.get(*key).is_some_and(|hold| {
                hold.writer || write && hold.readers > 0 || in_turn && !hold.waiting.is_empty()
            })
        };
        let write = request.writes.iter().find(|key| blocked(key, true));
        write.or_else(|| request.reads.iter().find(|key| blocked(key, false))).copied()
    }

    fn hold(&mut self, request: &Request) {
        for key in &request.reads {
            self.holds.entry(*key).or_default().readers += 1;
        }
        for key in &request.writes {
            self.holds.entry(*key).or_default().writer = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use nicol_core::rng::{Purpose, Stream};

    use super::super::plan::{Bounds, Kind, Op, PlanBuilder};
    use super::*;
    use crate::connection::encode::Protocol;

    fn waiter(connection: u64, reads: &[u64], writes: &[u64]) -> Waiter {
        let mut plan = PlanBuilder::new();
        for (writes, rows) in [(false, reads), (true, writes)] {
            plan.begin(Op::LITERAL, writes);
            rows.iter().for_each(|row| plan.key(Key(*row), b""));
        }
        let planned = plan.finish(Kind::Batch, Protocol::Resp2, Bounds::values(0), &[], 0);
        Waiter { slot: 0, connection, planned }
    }

    #[test]
    fn writers_wait_in_order_and_readers_go_together() {
        let mut locks = LockTable::default();
        let first = locks.enter(waiter(1, &[], &[7])).unwrap();
        assert!(locks.enter(waiter(2, &[7], &[])).is_none());
        assert!(locks.enter(waiter(3, &[7], &[8])).is_none());
        assert!(locks.enter(waiter(4, &[], &[7])).is_none());
        let mut admitted = Vec::new();
        locks.leave(first.planned.request(), &mut admitted);
        let ids: Vec<_> = admitted.iter().map(|waiter| waiter.connection).collect();
        assert_eq!(ids, [2, 3]);
    }

    #[test]
    fn whatever_enters_leaves_and_no_two_hold_one_key_for_writing() {
        let mut random = Stream::new(5, Purpose::Test, 0);
        for _ in 0..200 {
            let (mut locks, mut inside, mut entered) = (LockTable::default(), Vec::new(), 0);
            for connection in 0..40 {
                let key = random.below(4);
                let (reads, writes) = match random.below(3) {
                    0 => (vec![key], vec![]),
                    1 => (vec![], vec![key]),
                    _ => (vec![key], vec![key + 1]),
                };
                inside.extend(locks.enter(waiter(connection, &reads, &writes)));
            }
            while !inside.is_empty() {
                for (index, one) in inside.iter().enumerate() {
                    for other in &inside[index + 1..] {
                        let all = |w: &Waiter| {
                            [w.planned.request().reads.clone(), w.planned.request().writes.clone()]
                        };
                        let clash = |a: &Waiter, b: &Waiter| {
                            a.planned
                                .request()
                                .writes
                                .iter()
                                .any(|key| all(b).concat().contains(key))
                        };
                        assert!(!clash(one, other) && !clash(other, one));
                    }
                }
                let left = inside.swap_remove(random.below(inside.len() as u64) as usize);
                entered += 1;
                locks.leave(left.planned.request(), &mut inside);
            }
            assert_eq!(entered, 40, "nobody may be forgotten");
            assert!(locks.is_empty());
        }
    }
}
