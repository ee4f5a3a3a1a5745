//! Locks that are taken all or none, and the nodes that may hold them.

use nicol_core::fabric::RequestId;
use nicol_core::ids::ShardId;

/// Locks every key or none: the first one that is refused gives back those before it. Nothing waits
/// for a lock, so there is no deadlock.
pub fn lock_all<K, E>(
    keys: impl Iterator<Item = K> + Clone,
    mut lock: impl FnMut(K) -> Result<(), E>,
    unlock: impl FnMut(K),
) -> Result<(), E> {
    for (locked, key) in keys.clone().enumerate() {
        if let Err(refused) = lock(key) {
            keys.take(locked).for_each(unlock);
            return Err(refused);
        }
    }
    Ok(())
}

/// A shard whose primary may hold locks of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    shard: ShardId,
    /// Requests that lock whose answers are awaited.
    in_flight: u16,
    /// Whether a request was granted.
    granted: bool,
    /// The requests that went unanswered: each may have locked, or may still.
    unanswered: Vec<RequestId>,
}

/// The shards whose primaries may hold locks of a transaction, in ascending order. Primaries lock
/// all that one request asks for, or none of it. Several requests may ask one primary at a time.
#[derive(Clone, Debug, Default)]
pub struct HeldLocks(Vec<Held>);

impl HeldLocks {
    /// A request that locks goes to `shard`.
    pub fn asked(&mut self, shard: ShardId) {
        let position = self.position(shard).unwrap_or_else(|position| {
            let unanswered = Vec::new();
            self.0.insert(position, Held { shard, in_flight: 0, granted: false, unanswered });
            position
        });
        self.0[position].in_flight += 1;
    }

    /// A request was granted: its locks are held.
    pub fn granted(&mut self, shard: ShardId) {
        if let Some(held) = self.answered(shard) {
            held.granted = true;
        }
    }

    /// A request was denied: the primary holds what other requests have locked, or may lock.
    pub fn denied(&mut self, shard: ShardId) {
        if let Some(held) = self.answered(shard)
            && *held == (Held { shard, in_flight: 0, granted: false, unanswered: Vec::new() })
        {
            self.0.retain(|held| held.shard != shard);
        }
    }

    /// `request` went unanswered. What releases the locks must fence it, or it might lock
    /// afterwards.
    pub fn unanswered(&mut self, shard: ShardId, request: RequestId) {
        if let Some(held) = self.answered(shard) {
            held.unanswered.push(request);
        }
    }

    /// The requests to `shard` that must be fenced, each by a message of its own.
    pub fn to_fence(&self, shard: ShardId) -> &[RequestId] {
        self.position(shard).map_or(&[], |position| &self.0[position].unanswered)
    }

    /// The answer of a request to `shard` has come, or will not. It may have been one that locks
    /// nothing, at a shard that holds locks: then none is counted.
    fn answered(&mut self, shard: ShardId) -> Option<&mut Held> {
        let position = self.position(shard).ok()?;
        let held = &mut self.0[position];
        held.in_flight = held.in_flight.saturating_sub(1);
        Some(held)
    }

    /// The first shard behind `last`, in ascending order.
    pub fn after(&self, last: Option<ShardId>) -> Option<ShardId> {
        self.shards().find(|&shard| last.is_none_or(|last| shard > last))
    }

    /// The shards, in ascending order.
    pub fn shards(&self) -> impl Iterator<Item = ShardId> {
        self.0.iter().map(|held| held.shard)
    }

    /// Whether no primary can hold a lock.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Every primary has released its locks.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    fn position(&self, shard: ShardId) -> Result<usize, usize> {
        self.0.binary_search_by_key(&shard, |held| held.shard)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_refusal_gives_back_what_was_locked_before_and_nothing_else() {
        let held = RefCell::new(BTreeSet::from([3]));
        let lock = |key| if held.borrow_mut().insert(key) { Ok(()) } else { Err(key) };
        let unlock = |key| assert!(held.borrow_mut().remove(&key));
        assert_eq!(lock_all([1, 2, 3, 4].into_iter(), lock, unlock), Err(3));
        assert_eq!(*held.borrow(), BTreeSet::from([3]), "the other transaction's lock stays");
        assert_eq!(lock_all([1, 2].into_iter(), lock, unlock), Ok(()));
        assert_eq!(*held.borrow(), BTreeSet::from([1, 2, 3]));
    }

    #[test]
    fn a_denial_leaves_what_an_earlier_round_has_locked() {
        let shards = |held: &HeldLocks| held.shards().map(|shard| shard.0).collect::<Vec<_>>();
        let mut held = HeldLocks::default();
        [4, 1].into_iter().for_each(|shard| held.asked(ShardId(shard)));
        assert_eq!(shards(&held), [1, 4]);
        held.granted(ShardId(4));
        held.denied(ShardId(1));
        assert_eq!(shards(&held), [4]);
        [4, 2].into_iter().for_each(|shard| held.asked(ShardId(shard)));
        [4, 2].into_iter().for_each(|shard| held.denied(ShardId(shard)));
        assert_eq!(shards(&held), [4], "its first round was granted");
        held.clear();
        assert!(held.is_empty());
    }

    #[test]
    fn a_request_that_went_unanswered_is_fenced_where_it_may_have_locked() {
        let request = RequestId { slot: 3, sequence: 5 };
        let mut held = HeldLocks::default();
        held.asked(ShardId(0));
        held.unanswered(ShardId(0), request);
        held.unanswered(ShardId(1), request);
        assert_eq!(held.to_fence(ShardId(0)), [request]);
        assert_eq!(held.to_fence(ShardId(1)), [], "it was not asked to lock");
        assert_eq!(held.shards().count(), 1);
    }

    /// AMB-45: one request for each object.
    #[test]
    fn several_requests_to_a_shard_are_answered_each_for_itself() {
        let shard = ShardId(2);
        let request = |slot| RequestId { slot, sequence: 1 };
        let mut held = HeldLocks::default();
        (0..2).for_each(|_| held.asked(shard));
        held.denied(shard);
        assert_eq!(held.shards().count(), 1, "the other request may be granted");
        held.granted(shard);
        assert_eq!(held.shards().count(), 1);
        held.clear();

        (0..2).for_each(|_| held.asked(shard));
        (0..2).for_each(|_| held.denied(shard));
        assert!(held.is_empty(), "both were denied");

        (0..3).for_each(|_| held.asked(shard));
        held.unanswered(shard, request(1));
        held.denied(shard);
        held.unanswered(shard, request(2));
        assert_eq!(held.to_fence(shard), [request(1), request(2)]);
        assert_eq!(held.shards().count(), 1);
    }
}
