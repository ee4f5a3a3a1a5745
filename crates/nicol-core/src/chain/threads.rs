//! Chains that several threads execute at once, as the engines of a live node do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use super::tests::{encoded, execute};
use super::*;
use crate::ids::{FreeListKey, RKey, Side};
use crate::memory::{Access, Buffers, Compare, MaskedSwap, Region, RegionTable};
use crate::rng::test_steps;
use crate::units::Bytes;

/// The word that points to the item, the first buffer, and how many there are.
const SLOT: u64 = 8;
const FIRST: u64 = 64;
const BUFFER: u64 = 32;
const BUFFERS: u32 = 8;
const WRITERS: u64 = 2;

struct Node {
    regions: RegionTable,
    rkey: RKey,
    list: FreeListKey,
}

impl Node {
    /// One whose slot points to an item.
    fn new() -> Self {
        let region = Arc::new(Region::new(Bytes(FIRST + u64::from(BUFFERS) * BUFFER)));
        region.write(FIRST, &item(1)).unwrap();
        region.store(SLOT, FIRST).unwrap();
        let (regions, mut keys) = (RegionTable::default(), 1..);
        let mut draw = || keys.next().unwrap_or_default();
        let rkey = regions.register(region, Access::ReadWrite, Side::Nic, &mut draw);
        let buffers = Buffers { rkey, first: FIRST, size: BUFFER, count: BUFFERS, in_use: 1 };
        let list = regions.register_buffers(buffers, &mut draw).unwrap();
        Self { regions, rkey, list }
    }

    /// READs what the slot points to.
    fn read(&self) -> [u64; 4] {
        let from = Target::Indirect(SLOT);
        let mut chain = Chain::default();
        chain.push(Primitive::Read { from, len: BUFFER as u32 }.under(self.rkey));
        let results = execute(&self.regions, &encoded(&chain)).unwrap();
        ChainResults::parse(&results).unwrap().outcome(0).words()
    }

    /// A PUT: a new item, and the swap of the slot's pointer to it, if it is still `old`. Returns
    /// what the slot held, and what was allocated; `None` if there was no buffer.
    fn put(&self, stamp: u64, old: u64) -> Option<(u64, u64)> {
        let data = item(stamp);
        let allocate = Primitive::Allocate { list: self.list, data: &data }.under(self.rkey);
        let swap = MaskedSwap::new(Compare::Equal, [old], [0]);
        let (target, new) = (Target::At(SLOT), Some(scratch(0)));
        let swap = Primitive::CompareSwap { target, swap, compare_at: None, swap_at: new };
        let mut chain = Chain::default();
        chain.push(allocate.redirected(scratch(0)));
        chain.push(swap.under(self.rkey).conditional());
        chain.push(Primitive::Read { from: Target::At(scratch(0)), len: 8 }.under(RKey(0)));
        let results = execute(&self.regions, &encoded(&chain)).unwrap();
        let results = ChainResults::parse(&results).unwrap();
        match results.outcome(1) {
            Outcome::Skipped => None,
            found => Some((found.words()[0], results.outcome(2).words()[0])),
        }
    }
}

/// An item whose words follow from its stamp.
fn item(stamp: u64) -> Vec<u8> {
    [stamp, stamp * 3, stamp * 5, stamp * 7].map(u64::to_le_bytes).as_flattened().to_vec()
}

/// Writers replace an item and post its buffer; a reader that follows the pointer meanwhile gets
/// one whole item, never the next use of its buffer.
#[test]
fn whoever_reads_while_others_install_and_recycle_sees_one_whole_item() {
    let (node, installed) = (Node::new(), AtomicU64::new(0));
    let steps = test_steps(20_000);
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (node, installed) = (&node, &installed);
            scope.spawn(move || {
                let mut old = FIRST;
                for step in 1..=steps {
                    let stamp = 1 + step * WRITERS + writer;
                    let Some((found, allocated)) = node.put(stamp, old) else {
                        thread::yield_now();
                        continue;
                    };
                    let is_installed = found == old;
                    installed.fetch_add(u64::from(is_installed), Ordering::Relaxed);
                    let unused = if is_installed { old } else { allocated };
                    node.regions.post_buffers(node.list, &[unused]).unwrap();
                    old = if is_installed { allocated } else { found };
                }
            });
        }
        for _ in 0..steps {
            let words = node.read();
            assert_eq!(item(words[0]), words.map(u64::to_le_bytes).as_flattened());
        }
    });
    assert!(installed.into_inner() > steps / 100, "hardly an item was replaced");
    let left = node.regions.buffers_ready(node.list);
    assert_eq!(left, BUFFERS as usize - 1, "every other buffer is free again");
}
