//! Blocks for values out of line, in the last part of the table's region.

use super::layout::block_bytes;

/// The smallest block is 64 bytes, the largest 2 MB.
const SMALLEST_CLASS: u32 = 6;
const CLASSES: usize = 16;

/// Allocates blocks by power-of-two size class; a freed block serves its class again. Free
/// neighbours are merged only when no block is left for a value.
#[derive(Clone, Debug)]
pub(super) struct Heap {
    start: u64,
    next: u64,
    end: u64,
    in_use: u64,
    free: [Vec<u64>; CLASSES],
}

fn class_of(len: u32) -> usize {
    let bits = block_bytes(len).next_power_of_two().trailing_zeros();
    (bits.max(SMALLEST_CLASS) - SMALLEST_CLASS) as usize
}

const fn class_bytes(class: usize) -> u64 {
    1 << (SMALLEST_CLASS as usize + class)
}

impl Heap {
    pub(super) fn new(offset: u64, bytes: u64) -> Self {
        let free = std::array::from_fn(|_| Vec::new());
        Self { start: offset, next: offset, end: offset + bytes, in_use: 0, free }
    }

    /// The offset of a block for a value of `len` bytes; `None` if there is none.
    pub(super) fn take(&mut self, len: u32) -> Option<u64> {
        let class = Some(class_of(len)).filter(|class| *class < CLASSES)?;
        let block = self.find(class).or_else(|| {
            // Merging helps only if enough is free in all.
            if self.end - self.start - self.in_use < class_bytes(class) {
                return None;
            }
            self.merge();
            self.find(class)
        })?;
        self.in_use += class_bytes(class);
        Some(block)
    }

    /// A block of `class`, if necessary cut from a larger one or from unused memory.
    fn find(&mut self, class: usize) -> Option<u64> {
        let bytes = class_bytes(class);
        let larger = (class..CLASSES).find(|&class| !self.free[class].is_empty());
        match larger.and_then(|larger| Some((larger, self.free[larger].pop()?))) {
            Some((larger, block)) => {
                // The upper halves of a larger block serve their own classes.
                for half in class..larger {
                    self.free[half].push(block + class_bytes(half));
                }
                Some(block)
            }
            None if self.end - self.next >= bytes => {
                self.next += bytes;
                Some(self.next - bytes)
            }
            None => None,
        }
    }

    /// Merges free neighbours: each run becomes the largest blocks that fit, and the last run joins
    /// the unused memory. Cost: a sort of the free blocks.
    fn merge(&mut self) {
        let mut blocks = Vec::new();
        for (class, free) in self.free.iter_mut().enumerate() {
            blocks.extend(free.drain(..).map(|block| (block, block + class_bytes(class))));
        }
        blocks.sort_unstable();
        let runs = blocks.chunk_by(|before, after| before.1 == after.0);
        for run in runs {
            let (mut at, end) = (run[0].0, run[run.len() - 1].1);
            if end == self.next {
                self.next = at;
                continue;
            }
            while at < end {
                let class = ((end - at).ilog2() - SMALLEST_CLASS).min(CLASSES as u32 - 1) as usize;
                self.free[class].push(at);
                at += class_bytes(class);
            }
        }
    }

    /// Frees the block at `offset`, allocated for `len` bytes. Readers that still hold its pointer
    /// detect its reuse.
    pub(super) fn take_back(&mut self, offset: u64, len: u32) {
        self.in_use -= class_bytes(class_of(len));
        self.free[class_of(len)].push(offset);
    }

    /// Bytes of blocks handed out.
    pub(super) fn in_use(&self) -> u64 {
        self.in_use
    }

    /// Bytes that a block for `len` bytes takes.
    pub(super) fn cost(len: u32) -> u64 {
        class_bytes(class_of(len))
    }

    /// Returns true if an eighth of the memory is free.
    pub(super) fn has_reserve(&self) -> bool {
        let size = self.end - self.start;
        size - self.in_use >= size / 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_taken_back_serves_its_class_and_smaller_ones() {
        let mut heap = Heap::new(1_000, 192);
        let first = heap.take(40).unwrap();
        let second = heap.take(57).unwrap();
        assert_eq!((first, second, heap.take(1)), (1_000, 1_064, None));
        heap.take_back(second, 57);
        assert_eq!((heap.take(3), heap.take(56), heap.take(1)), (Some(1_064), Some(1_128), None));
        heap.take_back(first, 40);
        assert_eq!((heap.take(57), heap.in_use()), (None, 128));
        assert_eq!(heap.take(u32::MAX), None);
    }

    #[test]
    fn blocks_stay_apart_and_an_empty_heap_serves_every_size() {
        let (start, bytes) = (1_000, 4_096);
        let mut heap = Heap::new(start, bytes);
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        for round in 0..500 {
            let mut held: Vec<(u64, u32)> = Vec::new();
            for _ in 0..200 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                if random.is_multiple_of(3) && !held.is_empty() {
                    let (offset, len) = held.swap_remove(random as usize / 3 % held.len());
                    heap.take_back(offset, len);
                    continue;
                }
                let len = 1 + (random >> 8) as u32 % (30 << (random >> 40 & 5));
                let cost = Heap::cost(len);
                // The model: a free gap that is long enough serves.
                let mut spans: Vec<_> = held.iter().map(|&(at, l)| (at, Heap::cost(l))).collect();
                spans.push((start + bytes, 0));
                spans.sort_unstable();
                let mut at = start;
                let mut gap = 0;
                for (offset, size) in spans {
                    assert!(offset >= at, "blocks overlap in round {round}");
                    gap = gap.max(offset - at);
                    at = offset + size;
                }
                let taken = heap.take(len);
                assert_eq!(taken.is_some(), gap >= cost, "round {round}: {gap} for {cost}");
                held.extend(taken.map(|offset| (offset, len)));
            }
            for (offset, len) in held {
                heap.take_back(offset, len);
            }
            assert_eq!(heap.in_use(), 0);
        }
    }
}
