//! Values out of line: what memory they take, and that it serves whatever comes next.

use super::super::size_class::SizeClass;
use super::*;

fn limited(slots: u64, inline: usize, memory_max: u64) -> HostTable {
    let growth = Growth::Doubling { memory_max: Bytes(memory_max) };
    HostTable::new(Geometry::new(slots, 16, inline), slots, growth)
}

/// Applies a write that is admitted, and splits what is due; whether it was.
fn put(table: &HostTable, key: u64, old: Option<usize>, version: u64, value: &[u8]) -> bool {
    let admitted = !table.exhausted_space().refuses(old, value.len());
    if admitted {
        table.apply(Key(key), Version(version), Some(value));
        table.advance(1);
    }
    admitted
}

#[test]
fn a_value_out_of_line_takes_little_more_than_itself() {
    let table = HostTable::new(Geometry::new(1_024, 16, 0), 1 << 12, ENOUGH);
    let empty = table.memory().0;
    assert_eq!(table.resident(), Bytes(0), "none of it is touched");
    // A key of 16 bytes and a value of 100, as a front stores them.
    for key in 0..4_096 {
        table.load(Key(key), &[7; 122]);
        table.advance(1);
    }
    let slots = table.slots.bytes() - empty + table.pages.bytes();
    let heap = table.writer().heap.bytes();
    assert!(heap <= 4_096 * 144 + (1 << 16), "{heap} bytes for 4,096 values of 122");
    assert!(slots > 0 && table.memory().0 == empty + slots + heap);
    assert_eq!(table.resident(), table.memory());
    // Loaded by half at the least, and 32 bytes a slot.
    assert!(slots <= 4_096 * 80, "{slots} bytes of slots and pages for 4,096 records");
    table.check();
}

/// A value of the same size is written where the one before it stood; no stale pointer to that
/// finds it.
#[test]
fn a_value_is_rewritten_in_its_block() {
    for inline in [0, 16] {
        let table = HostTable::new(Geometry::new(64, 16, inline), 64, ENOUGH);
        let block = |table: &HostTable| {
            table.find(table.home_now(SlotHash::of(Key(1))), Key(1)).unwrap().block.unwrap()
        };
        table.load(Key(1), &[1; 100]);
        let (first, heap) = (block(&table), table.writer().heap.bytes());
        for version in 2..100 {
            let len = 97 + version % 8;
            table.apply(Key(1), Version(version), Some(&vec![version as u8; len as usize]));
            let now = block(&table);
            assert_eq!((now.chunk, now.block, now.len), (first.chunk, first.block, len as u32));
        }
        assert_eq!(get(&table, 1), (99, Some(vec![99; 100])));
        let Span { region, offset, len } = table.block_span(first);
        let mut bytes = vec![0; len];
        region.read(offset, &mut bytes).unwrap();
        assert_eq!(HostTable::parse_block(&bytes, Key(1), Version(1), first.len), None);
        assert!(HostTable::parse_block(&bytes, Key(1), Version(99), 100).is_some());
        assert_eq!(table.writer().heap.bytes(), heap);
        // Of another size it moves.
        table.apply(Key(1), Version(100), Some(&[3; 300]));
        assert_ne!(block(&table), first);
        table.check();
    }
}

#[test]
fn memory_of_one_size_serves_any_other_once_it_is_free() {
    let table = limited(16_384, 16, 6 << 20);
    let mut version = 1;
    for (len, fits) in [(10_000, 400), (100, 9_000), (900_000, 4), (1_500, 2_500), (40, 12_000)] {
        for key in 0..fits {
            assert!(put(&table, key, None, version, &vec![1; len]), "{key} of {len} bytes");
        }
        assert!(table.memory().0 <= 6 << 20);
        table.check();
        version += 1;
        for key in 0..fits {
            table.apply(Key(key), Version(version), None);
        }
        version += 1;
        assert_eq!(table.writer().heap.bytes(), 0, "after values of {len} bytes");
    }
}

#[test]
fn sizes_that_drift_beside_others_find_memory() {
    let table = limited(2_048, 16, 16 << 20);
    let (keys, mut len) = (1_000, 10_000);
    for key in 0..keys {
        assert!(put(&table, key, None, 1, &vec![1; len]));
    }
    for version in 2..12 {
        let next = len * 3 / 4;
        for key in 0..keys {
            assert!(put(&table, key, Some(len), version, &vec![1; next]), "{len} to {next} bytes");
        }
        len = next;
        let live = keys * (24 + len as u64).next_multiple_of(8);
        let heap = table.writer().heap.bytes();
        assert!(heap <= live * 5 / 4 + 4 * (1 << 16), "{heap} bytes for {live}");
    }
    table.check();
}

/// What is left of many values after most of them are gone stands together, wherever it stood.
#[test]
fn slabs_that_have_become_sparse_are_emptied() {
    let keys = if cfg!(miri) { 100 } else { 20_000 };
    let table = growing(1_024, 16);
    let mut random = Stream::new(3, Purpose::Test, 0);
    for key in 0..keys {
        table.load(Key(key), &vec![key as u8; 120 + random.below(8) as usize]);
        table.advance(1);
    }
    let all = table.writer().heap.bytes();
    for key in 0..keys {
        if random.below(10) > 0 {
            table.apply(Key(key), Version(2), None);
        }
    }
    table.check();
    let left = table.writer().heap.bytes();
    assert!(left * 6 <= all || cfg!(miri), "{left} of {all} bytes for a tenth of the values");
    let mut whole = 0;
    table
        .for_each(&mut |key, _, value| whole += u64::from(value.iter().all(|b| *b == key.0 as u8)));
    assert_eq!(whole, table.len());
}

#[test]
fn at_the_limit_a_value_takes_a_larger_block_that_is_free() {
    let table = limited(4_096, 16, 2 << 20);
    let mut key = 0;
    while put(&table, key, None, 1, &[1; 400]) {
        key += 1;
    }
    for key in 0..20 {
        table.apply(Key(key), Version(2), None);
    }
    let full = table.memory();
    for other in 0..16 {
        assert!(put(&table, key + other, None, 3, &[2; 300]), "{other} values of 300 bytes");
    }
    assert!(!put(&table, key + 16, None, 3, &[2; 150]), "less than half of a block");
    assert_eq!(table.memory(), full);
    table.check();
}

/// A reader in the middle of a value whose slab is emptied, and of one whose value is moved.
#[test]
fn a_value_that_has_moved_does_not_pass_for_another() {
    let table = growing(1_024, 16);
    for key in 0..2_000 {
        table.load(Key(key), &[key as u8; 200]);
        table.advance(1);
    }
    let block_of =
        |key| table.find(table.home_now(SlotHash::of(Key(key))), Key(key)).unwrap().block;
    let before: Vec<_> = (0..2_000).map(|key| block_of(key).unwrap()).collect();
    for key in (0..2_000).filter(|key| key % 8 != 0) {
        table.apply(Key(key), Version(2), None);
    }
    let mut moved = 0;
    for key in (0..2_000).step_by(8) {
        let old = before[key as usize];
        moved += u64::from(block_of(key) != Some(old));
        let Span { region, offset, len } = table.block_span(old);
        let mut bytes = vec![0; len];
        region.read(offset, &mut bytes).unwrap();
        let found = HostTable::parse_block(&bytes, Key(key), Version(1), old.len);
        assert!(found.is_none_or(|value| value == [key as u8; 200] && block_of(key) == Some(old)));
    }
    assert!(moved > 50, "{moved} values have moved");
}

#[test]
fn readers_find_every_value_while_values_are_moved() {
    let (keys, others) = if cfg!(miri) { (8, 24) } else { (100, 4_000) };
    let table = growing(1_024, 16);
    let (reads, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    for key in 0..keys + others {
        table.load(Key(key), &vec![key as u8; 1_000]);
        table.advance(1);
    }
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    for key in 0..keys {
                        assert_eq!(get(&table, key).1, Some(vec![key as u8; 1_000]), "key {key}");
                    }
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for round in 1..if cfg!(miri) { 2 } else { 20 } {
            for key in keys..keys + others {
                table.apply(Key(key), Version(2 * round), None);
            }
            let seen = reads.load(Ordering::Relaxed);
            while reads.load(Ordering::Relaxed) == seen {
                thread::yield_now();
            }
            for key in keys..keys + others {
                table.apply(Key(key), Version(2 * round + 1), Some(&[key as u8; 1_000]));
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    table.check();
}

#[test]
fn values_that_grow_are_refused_once_the_memory_is_used_up() {
    let memory_max = 3 << 19;
    let table = limited(256, 16, memory_max);
    let fixed = HostTable::new(Geometry::new(256, 16, 16), 256, Growth::Off);
    let mut random = Stream::new(5, Purpose::Test, 0);
    let mut lengths: [Option<usize>; 200] = [None; 200];
    let mut versions = [0; 200];
    let mut refused = 0;
    for _ in 0..if cfg!(miri) { 500 } else { 20_000 } {
        let key = random.below(200) as usize;
        let len = 1 + random.below(20_000) as usize;
        let new = (random.below(4) > 0).then_some(len);
        let found = table.exhausted_space();
        let exhausted = ExhaustedSpace::from_bits(found.to_bits(), found.refuses_records());
        assert_eq!(exhausted, found);
        if let Some(new) = new.filter(|&new| exhausted.refuses(lengths[key], new)) {
            let class = |len: usize| (len > 16).then(|| SizeClass::of_value(len as u32));
            assert!(class(new).is_some() && lengths[key].and_then(class) != class(new));
            refused += 1;
            continue;
        }
        versions[key] += 1;
        for table in [&table, &fixed] {
            let value = new.map(|len| vec![key as u8; len]);
            table.apply(Key(key as u64), Version(versions[key]), value.as_deref());
        }
        lengths[key] = new;
        // At most one slab beyond, for each size that is overwritten when there is no free block.
        assert!(table.memory().0 <= memory_max + 4 * (1 << 16), "{:?}", table.memory());
    }
    assert!(refused > 0 && fixed.exhausted_space().is_none() && !table.exhausted_space().is_none());
    assert!(
        !table.exhausted_space().refuses(Some(1_000), 990)
            && !table.exhausted_space().refuses(None, 16)
    );
    table.check();
}
