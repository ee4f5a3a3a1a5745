//! Free lists of buffers, which remote ALLOCATEs pop and their owner posts to. [PRISM21 3.2, 4.2]
//!
//! A recycled buffer may still be read by a chain that followed an old pointer to it. So a posted
//! buffer waits until every chain that was under way at the time has ended: chains are counted by
//! epoch, an epoch ends when no chain of the epoch before is left, and a buffer is safe after two
//! ends.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{AccessError, WORD};
use crate::ids::{FreeListKey, RKey};

/// Chains under way at one node. [PRISM21 4.2]: 256 KiB of NIC memory hold 8192 scratch buffers of
/// 32 bytes. A further chain is refused (receiver not ready).
pub const CHAINS_MAX: u32 = 8_192;

/// Buffers of one size, side by side in a registered region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffers {
    /// The region's key; only operations that present it may allocate.
    pub rkey: RKey,
    /// Offset of the first buffer.
    pub first: u64,
    /// Bytes of each, a multiple of eight.
    pub size: u64,
    pub count: u32,
    /// How many of them, from the first on, are in use from the start (by a loaded table).
    pub in_use: u32,
}

/// One use of a buffer: from the ALLOCATE that popped it until it is posted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BufferUse {
    pub offset: u64,
    /// Which use of it: later ones have higher numbers.
    pub number: u64,
}

/// Which buffers of a free list are in use. It may be read from any thread.
#[derive(Debug)]
pub struct BufferUses {
    buffers: Buffers,
    /// By buffer: uses begun and ended, so that it is odd while one lasts.
    turns: Box<[AtomicU64]>,
    /// All of them together.
    turned: AtomicU64,
}

impl BufferUses {
    fn new(buffers: Buffers) -> Self {
        let turn = |buffer| AtomicU64::new(u64::from(buffer < buffers.in_use));
        let turns = (0..buffers.count).map(turn).collect();
        Self { buffers, turns, turned: AtomicU64::new(0) }
    }

    /// The buffers, as they were registered.
    pub const fn buffers(&self) -> Buffers {
        self.buffers
    }

    /// The use of the buffer at `offset`; `None` if it is free, or no buffer of the list.
    pub fn of(&self, offset: u64) -> Option<BufferUse> {
        let number = self.turns.get(self.buffers.index_of(offset)?)?.load(Ordering::Acquire);
        (number % 2 == 1).then_some(BufferUse { offset, number })
    }

    /// Every use that lasts, by offset.
    pub fn iter(&self) -> impl Iterator<Item = BufferUse> {
        self.among(0..self.buffers.count)
    }

    /// Every use that lasts of these buffers, by offset; there are none beyond the last buffer.
    pub fn among(&self, buffers: Range<u32>) -> impl Iterator<Item = BufferUse> {
        let Buffers { first, size, count, .. } = self.buffers;
        let buffers = buffers.start.min(count)..buffers.end.min(count);
        buffers.filter_map(move |buffer| self.of(first + u64::from(buffer) * size))
    }

    /// Uses that have begun or ended since the list was registered: while this stays, nothing has
    /// been allocated.
    pub fn turned(&self) -> u64 {
        self.turned.load(Ordering::Acquire)
    }

    /// Begins or ends a use of a buffer.
    fn turn(&self, buffer: usize) {
        self.turned.fetch_add(1, Ordering::AcqRel);
        self.turns[buffer].fetch_add(1, Ordering::AcqRel);
    }
}

#[derive(Debug)]
struct FreeList {
    ready: VecDeque<u32>,
    uses: Arc<BufferUses>,
}

/// The epoch in which a chain began.
#[derive(Debug)]
#[must_use = "a chain that never leaves keeps buffers from being recycled"]
pub struct Entered {
    epoch: u64,
    generation: u32,
}

/// A node's free lists, and the chains that might still use what is posted to them.
#[derive(Debug, Default)]
pub(super) struct FreeLists {
    lists: BTreeMap<FreeListKey, FreeList>,
    epoch: u64,
    /// Chains under way that began in the current epoch and in the one before, by parity.
    chains: [u32; 2],
    /// How often the engines that execute chains have crashed: the chains of before never end.
    generation: u32,
    /// Posted buffers that such a chain may still use, oldest first.
    waiting: VecDeque<(u64, FreeListKey, u32)>,
    /// The latest epoch that is waited for.
    wanted: u64,
}

/// The chains that were under way at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainMark(u64);

impl FreeLists {
    pub(super) fn add(&mut self, buffers: Buffers, mut draw: impl FnMut() -> u32) -> FreeListKey {
        let count = buffers.count as usize;
        let mut ready = VecDeque::with_capacity(count);
        ready.extend(buffers.in_use..buffers.count);
        let uses = Arc::new(BufferUses::new(buffers));
        self.waiting.reserve(count);
        loop {
            let key = FreeListKey(draw());
            if key.0 != 0 && !self.lists.contains_key(&key) {
                self.lists.insert(key, FreeList { ready, uses });
                return key;
            }
        }
    }

    /// A chain begins; `None` if too many are under way.
    pub(super) fn enter(&mut self) -> Option<Entered> {
        if self.chains[0] + self.chains[1] >= CHAINS_MAX {
            return None;
        }
        self.chains[(self.epoch % 2) as usize] += 1;
        Some(Entered { epoch: self.epoch, generation: self.generation })
    }

    pub(super) fn leave(&mut self, entered: Entered) {
        if entered.generation == self.generation {
            self.chains[(entered.epoch % 2) as usize] -= 1;
            self.advance();
        }
    }

    /// Ends the chains under way: the engine or card that executed them has crashed.
    pub(super) fn forget_chains(&mut self) {
        self.generation += 1;
        self.chains = [0; 2];
        self.advance();
    }

    /// Marks the chains that are under way now.
    pub(super) fn mark(&mut self) -> ChainMark {
        let mark = ChainMark(self.epoch);
        self.wanted = self.epoch + 2;
        self.advance();
        mark
    }

    /// Have all chains ended that were under way at `mark`?
    pub(super) fn have_ended(&self, mark: ChainMark) -> bool {
        self.epoch >= mark.0 + 2
    }

    /// Ends epochs while a buffer or a mark waits for that, and no chain of an earlier epoch is
    /// left.
    fn advance(&mut self) {
        while (!self.waiting.is_empty() || self.epoch < self.wanted)
            && self.chains[((self.epoch + 1) % 2) as usize] == 0
        {
            self.epoch += 1;
            while let Some(&(posted, key, buffer)) = self.waiting.front()
                && posted + 2 <= self.epoch
            {
                self.waiting.pop_front();
                if let Some(list) = self.lists.get_mut(&key) {
                    list.ready.push_back(buffer);
                }
            }
        }
    }

    /// Posts the buffers at `offsets`; at the first that is not in use it stops and says so.
    pub(super) fn post(&mut self, key: FreeListKey, offsets: &[u64]) -> Result<(), AccessError> {
        let list = self.lists.get_mut(&key).ok_or(AccessError::Denied { rkey: key.0 })?;
        let mut posted = Ok(());
        for &offset in offsets {
            let used = list.uses.of(offset).and_then(|_| list.uses.buffers.index_of(offset));
            let Some(buffer) = used else {
                posted = Err(AccessError::NotInUse { offset });
                break;
            };
            list.uses.turn(buffer);
            self.waiting.push_back((self.epoch, key, buffer as u32));
        }
        self.advance();
        posted
    }

    /// The list's buffers, if operations under `rkey` may allocate from it.
    pub(super) fn find(&self, key: FreeListKey, rkey: RKey) -> Result<Buffers, AccessError> {
        let list = self.lists.get(&key).filter(|list| list.uses.buffers.rkey == rkey);
        list.map(|list| list.uses.buffers).ok_or(AccessError::Denied { rkey: key.0 })
    }

    /// Which buffers of the list are in use; `None` if there is no such list.
    pub(super) fn uses(&self, key: FreeListKey) -> Option<Arc<BufferUses>> {
        self.lists.get(&key).map(|list| list.uses.clone())
    }

    /// Pops the first ready buffer's offset.
    pub(super) fn pop(&mut self, key: FreeListKey) -> Option<u64> {
        let list = self.lists.get_mut(&key)?;
        let buffer = list.ready.pop_front()?;
        list.uses.turn(buffer as usize);
        let Buffers { first, size, .. } = list.uses.buffers;
        Some(first + u64::from(buffer) * size)
    }

    /// Forgets the lists whose buffers lie under none of these keys, which are sorted.
    pub(super) fn keep_only(&mut self, rkeys: &[RKey]) {
        self.lists.retain(|_, list| rkeys.binary_search(&list.uses.buffers.rkey).is_ok());
        let lists = &self.lists;
        self.waiting.retain(|(_, key, _)| lists.contains_key(key));
    }

    /// Buffers that an ALLOCATE could pop now.
    pub(super) fn ready(&self, key: FreeListKey) -> usize {
        self.lists.get(&key).map_or(0, |list| list.ready.len())
    }
}

impl Buffers {
    /// The number of the buffer at `offset`, if one begins there.
    fn index_of(&self, offset: u64) -> Option<usize> {
        let from_first = offset.checked_sub(self.first)?;
        let index = from_first.checked_div(self.size).filter(|&index| index < self.count.into())?;
        (index * self.size == from_first).then_some(index as usize)
    }

    /// Bytes from the first buffer to the end of the last, if the buffers are words and in range.
    pub(super) fn span(&self) -> Result<u64, AccessError> {
        if self.size == 0 || !self.size.is_multiple_of(WORD as u64) {
            return Err(AccessError::Misaligned { offset: self.size });
        }
        Ok(self.size.saturating_mul(u64::from(self.count)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists(count: u32, in_use: u32) -> (FreeLists, FreeListKey) {
        let mut lists = FreeLists::default();
        let buffers = Buffers { rkey: RKey(9), first: 64, size: 32, count, in_use };
        let key = lists.add(buffers, || 5);
        (lists, key)
    }

    #[test]
    fn buffers_are_popped_in_order_and_come_back() {
        let (mut lists, key) = lists(3, 1);
        assert_eq!([lists.pop(key), lists.pop(key), lists.pop(key)], [Some(96), Some(128), None]);
        assert_eq!(lists.post(key, &[128, 64]), Ok(()));
        assert_eq!([lists.pop(key), lists.pop(key), lists.pop(key)], [Some(128), Some(64), None]);
    }

    #[test]
    fn what_is_not_in_use_cannot_be_posted() {
        let (mut lists, key) = lists(3, 1);
        for offset in [96, 65, 0, 160, u64::MAX] {
            assert_eq!(lists.post(key, &[offset]), Err(AccessError::NotInUse { offset }));
        }
        assert_eq!(lists.post(key, &[64, 64]), Err(AccessError::NotInUse { offset: 64 }));
        assert_eq!(lists.ready(key), 3);
        let unknown = lists.post(FreeListKey(6), &[64]);
        assert_eq!(unknown, Err(AccessError::Denied { rkey: 6 }));
    }

    #[test]
    fn a_posted_buffer_waits_for_the_chains_that_were_under_way() {
        let (mut lists, key) = lists(1, 1);
        let old = lists.enter().unwrap();
        lists.post(key, &[64]).unwrap();
        // Chains that begin later cannot have a pointer to the buffer, and need not be waited for
        // for ever.
        let mut newer = lists.enter().unwrap();
        for _ in 0..10 {
            let newest = lists.enter().unwrap();
            lists.leave(newer);
            newer = newest;
            assert_eq!(lists.pop(key), None, "the old chain may still read the buffer");
        }
        lists.leave(old);
        for _ in 0..2 {
            let newest = lists.enter().unwrap();
            lists.leave(newer);
            newer = newest;
        }
        assert_eq!(lists.pop(key), Some(64));
        lists.leave(newer);
    }

    #[test]
    fn chains_that_a_crash_has_cut_off_keep_no_buffer() {
        let (mut lists, key) = lists(1, 1);
        let cut_off = lists.enter().unwrap();
        lists.post(key, &[64]).unwrap();
        assert_eq!(lists.pop(key), None);
        lists.forget_chains();
        let later = lists.enter().unwrap();
        lists.leave(cut_off);
        assert_eq!(lists.pop(key), Some(64));
        lists.leave(later);
        lists.keep_only(&[RKey(8)]);
        assert_eq!(lists.find(key, RKey(9)), Err(AccessError::Denied { rkey: 5 }));
    }

    #[test]
    fn a_mark_ends_with_the_chains_that_were_under_way_and_no_later_one() {
        let (mut lists, key) = lists(1, 1);
        let before = lists.mark();
        assert!(lists.have_ended(before), "nothing was under way");
        let old = lists.enter().unwrap();
        let mark = lists.mark();
        let newer = lists.enter().unwrap();
        assert!(!lists.have_ended(mark));
        lists.leave(newer);
        assert!(!lists.have_ended(mark));
        let newest = lists.enter().unwrap();
        lists.leave(old);
        lists.leave(newest);
        assert!(lists.have_ended(mark) && lists.waiting.is_empty());
        assert_eq!(lists.post(key, &[64]), Ok(()));
    }

    #[test]
    fn uses_of_a_buffer_are_told_apart() {
        let (mut lists, key) = lists(2, 1);
        let uses = lists.uses(key).unwrap();
        let loaded = BufferUse { offset: 64, number: 1 };
        assert_eq!(uses.iter().collect::<Vec<_>>(), [loaded]);
        assert_eq!([uses.of(96), uses.of(65), uses.of(0), uses.of(128)], [None; 4]);
        lists.post(key, &[64]).unwrap();
        assert_eq!(uses.iter().count(), 0);
        assert_eq!([lists.pop(key), lists.pop(key)], [Some(96), Some(64)]);
        assert_eq!(uses.of(64), Some(BufferUse { offset: 64, number: 3 }));
        assert_eq!((uses.iter().count(), lists.uses(FreeListKey(6)).is_none()), (2, true));
        assert_eq!(uses.turned(), 3, "one posted, two popped");
    }

    #[test]
    fn chains_beyond_the_limit_are_refused() {
        let (mut lists, _) = lists(1, 1);
        let entered: Vec<_> = (0..CHAINS_MAX).map(|_| lists.enter().unwrap()).collect();
        assert!(lists.enter().is_none());
        entered.into_iter().for_each(|one| lists.leave(one));
        assert!(lists.enter().is_some());
    }
}
