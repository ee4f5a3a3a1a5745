//! Blocks for values out of line, in the last part of the table's region.

use super::layout::block_bytes;

/// The smallest block is 64 bytes, the largest holds a value of `nicol_core::txn::VALUE_MAX`.
const SMALLEST_CLASS: u32 = 6;
const CLASSES: usize = 16;

/// Hands out blocks by power-of-two size class; what is taken back serves its class again.
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

    /// The offset of a block for a value of `len` bytes; `None` if memory is short.
    pub(super) fn take(&mut self, len: u32) -> Option<u64> {
        let class = class_of(len);
        let bytes = class_bytes(class);
        let larger = (class..CLASSES).find(|&class| !self.free[class].is_empty());
        let block = match larger.and_then(|larger| Some((larger, self.free[larger].pop()?))) {
            Some((larger, block)) => {
                // The upper halves of a larger block serve their own classes.
                for half in class..larger {
                    self.free[half].push(block + class_bytes(half));
                }
                block
            }
            None if self.end - self.next >= bytes => {
                self.next += bytes;
                self.next - bytes
            }
            None => return None,
        };
        self.in_use += bytes;
        Some(block)
    }

    /// Takes back the block at `offset`, taken for `len` bytes. Readers that still hold its
    /// pointer notice its reuse.
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

    /// Is an eighth of the memory not handed out?
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
}
