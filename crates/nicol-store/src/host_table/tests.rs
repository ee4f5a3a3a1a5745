use std::collections::BTreeMap;
use std::thread;

use nicol_core::ids::Key;
use nicol_core::rng::{Purpose, Stream, test_steps};

use super::*;

fn table(slots: u64, displacement_max: u16) -> HostTable {
    HostTable::new(Geometry::new(slots, displacement_max, 16), u64::MAX, Growth::Off)
}

const ENOUGH: Growth = Growth::Doubling { memory_max: Bytes(1 << 30) };

fn growing(slots: u64, displacement_max: u16) -> HostTable {
    HostTable::new(Geometry::new(slots, displacement_max, 16), slots / 2, ENOUGH)
}

/// One all of whose values stand in blocks; it grows.
fn references(slots: u64, displacement_max: u16) -> HostTable {
    HostTable::new(Geometry::new(slots, displacement_max, 0), slots / 2, ENOUGH)
}

fn get(table: &HostTable, key: u64) -> (u64, Option<Vec<u8>>) {
    let mut value = Vec::new();
    let found = table.get(Key(key), &mut value);
    (found.version.0, found.present.then_some(value))
}

/// Random writes of `keys` keys against a map, the structure checked after every step.
fn agree(table: &HostTable, seed: u64, keys: u64, count: u64) {
    let mut random = Stream::new(seed, Purpose::Test, 0);
    let mut model: BTreeMap<u64, (u64, Option<Vec<u8>>)> = BTreeMap::new();
    for step in 0..count {
        let key = random.below(keys);
        let entry = model.entry(key).or_insert((0, None));
        entry.0 += 1;
        let len = if random.below(4) == 0 { 300 + random.below(2_000) } else { random.below(17) };
        entry.1 = (random.below(4) != 0).then(|| vec![step as u8; len as usize]);
        let applied = table.apply(Key(key), Version(entry.0), entry.1.as_deref());
        assert_eq!(applied, Applied::Changed);
        assert_eq!(table.apply(Key(key), Version(entry.0), Some(b"again")), Applied::Skipped);
        table.check();
        if random.below(3) == 0 {
            table.advance(1 + random.below(3));
            table.check();
        }
        let (version, value) = get(table, key);
        assert_eq!(value, entry.1);
        assert!(if value.is_some() { version == entry.0 } else { version >= entry.0 });
    }
    for (key, (_, value)) in &model {
        assert_eq!(get(table, *key).1, *value, "key {key}");
    }
    let present = model.values().filter(|(_, value)| value.is_some()).count();
    assert_eq!(table.len(), present as u64);
}

#[test]
fn it_agrees_with_a_map_whatever_happens() {
    for (seed, displacement_max) in [(3, 8), (4, 16), (5, 64), (6, 1)] {
        let table = table(64, displacement_max);
        agree(&table, seed, 90, 4_000);
        let overflows = displacement_max <= 16;
        assert!(!overflows || table.overflowed() > 0, "D_m {displacement_max}: no overflow");
        assert_eq!(table.slots(), 64);
    }
}

#[test]
fn a_growing_table_agrees_with_a_map_at_every_step() {
    for (seed, table) in [(7, growing(64, 8)), (8, growing(64, 32)), (9, references(64, 8))] {
        agree(&table, seed, 700, 4_000);
        assert!(table.progress().level() >= 3, "{:?}", table.progress());
    }
}

#[test]
fn growth_ends_below_the_load_limit_and_keeps_every_record() {
    for slots in [16, 48, 1_024, 20_000] {
        let table = growing(slots, 16);
        let records = slots * 7;
        for key in 0..records {
            table.load(Key(key), &key.to_le_bytes());
            table.advance(1);
        }
        while table.advance(64).segments > 0 {}
        table.check();
        assert_eq!((table.len(), table.progress().split()), (records, 0));
        assert!(table.len() * 100 < table.slots() * LOAD_MAX_PERCENT, "{table:?}");
        assert!(table.overflowed() * 20 <= records, "{} in overflow", table.overflowed());
        for key in 0..records {
            assert_eq!(get(&table, key), (1, Some(key.to_le_bytes().to_vec())));
        }
    }
}

#[test]
fn capacity_ends_with_the_records_or_with_the_memory() {
    let fixed = HostTable::new(Geometry::new(64, 8, 16), 40, Growth::Off);
    for key in 0..40 {
        assert!(fixed.has_capacity(), "{key} records of 40");
        fixed.load(Key(key), b"x");
    }
    assert!(!fixed.has_capacity());
    let memory_max = Bytes(200_000);
    let limited = HostTable::new(Geometry::new(1_024, 8, 16), 100, Growth::Doubling { memory_max });
    let mut key = 0;
    while limited.has_capacity() {
        limited.load(Key(key), b"x");
        limited.advance(1);
        key += 1;
    }
    // Overflow pages of records that were admitted below the load limit come on top.
    assert!(limited.memory().0 * 10 <= memory_max.0 * 11, "{:?}", limited.memory());
    assert!(key >= 1_024 * LOAD_MAX_PERCENT / 100, "refused at {key} records");
    // A write that was admitted before is applied all the same, and nothing is split for it.
    let segments = limited.segments();
    limited.load(Key(key), b"x");
    assert_eq!((limited.advance(9).segments, limited.segments()), (0, segments));
    limited.check();
}

#[test]
fn a_header_tells_where_a_key_went() {
    let table = growing(64, 8);
    let known = table.progress();
    for key in 0..1_000 {
        table.load(Key(key), b"x");
        table.advance(1);
    }
    let mut moved = 0;
    for key in 0..1_000 {
        let hash = SlotHash::of(Key(key));
        let (mut known, mut hops) = (known, 0);
        loop {
            let home = table.home(hash, known);
            let header = table.header(home.chunk, home.local());
            if table.proves(hash, home, &header) {
                assert_eq!(home, table.home(hash, table.progress()));
                break;
            }
            let learned = table.geometry().progress_of(home.segment, header.level);
            assert!(learned > known, "{learned:?} after {known:?}");
            assert!(learned <= table.progress());
            known = learned;
            hops += 1;
        }
        moved += u64::from(hops > 0);
    }
    assert!(moved > 0, "no key had moved");
}

#[test]
fn an_old_write_does_not_bring_a_deleted_record_back() {
    let table = table(64, 8);
    table.load(Key(1), b"one");
    assert_eq!(table.apply(Key(1), Version(3), None), Applied::Changed);
    assert_eq!(table.apply(Key(1), Version(2), Some(b"late")), Applied::Skipped);
    assert_eq!(get(&table, 1), (3, None));
    assert_eq!(table.apply(Key(1), Version(4), Some(b"new")), Applied::Changed);
    assert_eq!(get(&table, 1), (4, Some(b"new".to_vec())));
}

#[test]
fn a_deletion_elsewhere_raises_the_floor_of_absent_keys() {
    let table = growing(64, 8);
    table.deleted_elsewhere(Key(7), Version(9));
    assert_eq!((table.floor(Key(7)), get(&table, 7)), (Version(9), (9, None)));
    for key in 100..500 {
        table.load(Key(key), b"x");
        table.advance(1);
    }
    assert!(table.progress().level() > 0, "it has not grown");
    assert_eq!(table.floor(Key(7)), Version(9), "a split keeps floors");
    table.check();
}

#[test]
fn a_block_that_is_reused_under_a_reader_does_not_pass_for_the_old_one() {
    // All of one size class; what comes next has the same version, and another key.
    for (len, next) in [(600, 600), (600, 520), (520, 600)] {
        let table = table(64, 8);
        table.load(Key(1), &vec![1; len]);
        let home = table.home_now(SlotHash::of(Key(1)));
        let slot = table.slots_span(home, 0, 1);
        let mut bytes = vec![0; slot.len];
        slot.region.read(slot.offset, &mut bytes).unwrap();
        let slot = table.parse_slots(&bytes).next();
        let Some(SlotView::Record { stored: StoredValue::OutOfLine(block), version, .. }) = slot
        else {
            panic!("{slot:?} is not the record");
        };
        let Span { region, offset, len: block_len } = table.block_span(block);
        let mut bytes = vec![0; block_len];
        // Upwards, as DMA reads; halfway the writer comes in between.
        let (seen, unseen) = bytes.split_at_mut(64);
        region.read(offset, seen).unwrap();
        table.apply(Key(1), Version(2), Some(b"in the slot"));
        table.load(Key(2), &vec![2; next]);
        region.read(offset + 64, unseen).unwrap();
        let parsed = HostTable::parse_block(&bytes, Key(1), version, block.len);
        assert!(parsed.is_none(), "{next} bytes over {len}");
    }
}

#[test]
fn full_pages_are_read_before_the_one_with_space() {
    let table = table(64, 1);
    for key in 0..200 {
        table.load(Key(key), b"x");
    }
    table.check();
    let free = |position: &writer::Position| table.key_of(*position).is_none();
    let mut long = 0;
    for segment in 0..table.segments() {
        let slots: Vec<_> = table.overflow_of(0, segment).collect();
        long += u64::from(slots.len() as u64 > PAGE_SLOTS);
        let used = slots.iter().position(free).unwrap_or(slots.len());
        assert!(slots[used..].iter().all(free), "segment {segment}: a gap before slot {used}");
    }
    assert!(long > 0, "no segment has two pages");
}

#[test]
fn digests_do_not_depend_on_the_order_of_insertion() {
    let (one, other) = (table(256, 8), table(256, 16));
    for key in 0..200 {
        one.load(Key(key), &key.to_le_bytes());
        other.load(Key(199 - key), &(199 - key).to_le_bytes());
    }
    assert_eq!(one.digest(), other.digest());
    one.apply(Key(5), Version(2), Some(b"x"));
    assert_ne!(one.digest(), other.digest());
}

/// Readers spin over `keys` records while `write` runs; each must find every one, every time.
fn spin(table: &HostTable, keys: u64, readers: usize, write: impl FnOnce(&dyn Fn())) {
    let (reads, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..readers {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    for key in 0..keys {
                        let value = get(table, key).1;
                        assert_eq!(value, Some(vec![key as u8; 12]), "key {key}");
                    }
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // Lets the readers finish a pass, so that they run beside the writer on few cores too.
        let breathe = || {
            let seen = reads.load(Ordering::Relaxed);
            while reads.load(Ordering::Relaxed) < seen + 1 {
                thread::yield_now();
            }
        };
        breathe();
        write(&breathe);
        stop.store(true, Ordering::Relaxed);
    });
    table.check();
}

#[test]
fn readers_never_miss_a_record_that_is_there() {
    // Long runs: D_m is small against the run that a deletion shifts back.
    for table in [table(192, 4), table(192, 16), references(192, 4)] {
        let keys = if cfg!(miri) { 20 } else { 100 };
        for key in 0..keys {
            table.load(Key(key), &[key as u8; 12]);
        }
        spin(&table, keys, 2, |breathe| {
            let mut random = Stream::new(9, Purpose::Test, 1);
            for step in 2..test_steps(30_000) {
                let key = Key(1_000 + random.below(140));
                let value = [7; 600];
                let len = if random.below(2) == 0 { 8 } else { 600 };
                let put = random.below(2) == 0;
                table.apply(key, Version(step), put.then_some(&value[..len]));
                if step % 1_000 == 0 {
                    breathe();
                }
            }
        });
    }
}

#[test]
fn readers_never_miss_a_record_while_the_table_doubles() {
    for table in [growing(256, 8), references(256, 8)] {
        double_beside_readers(&table);
    }
}

fn double_beside_readers(table: &HostTable) {
    let keys = if cfg!(miri) { 20 } else { 200 };
    for key in 0..keys {
        table.load(Key(key), &[key as u8; 12]);
        table.advance(1);
    }
    let before = table.progress().level();
    spin(table, keys, 2, |breathe| {
        let mut key = 10_000;
        while table.progress().level() < before + if cfg!(miri) { 1 } else { 6 } {
            table.apply(Key(key), Version(1), Some(b"more"));
            if key % 5 == 0 {
                table.apply(Key(key - 3), Version(2), None);
            }
            if table.advance(1).segments > 0 && key % 16 == 0 {
                breathe();
            }
            key += 1;
        }
    });
}

#[test]
fn whatever_moves_to_the_left_or_away_shows_in_its_segments_header() {
    let table = growing(256, 8);
    let mut random = Stream::new(11, Purpose::Test, 0);
    let places = || {
        let mut places = BTreeMap::new();
        for chunk in 0..address::CHUNKS_MAX as u32 {
            let Some(region) = table.slots.get(chunk) else { continue };
            for slot in 0..table.geometry.chunk_slots(chunk) {
                let offset = table.geometry.slot_offset(chunk, slot);
                places.extend(layout::key_at(region, offset).map(|key| (key, (chunk, slot))));
            }
        }
        places
    };
    let mut moved = 0;
    for step in 1..3_000 {
        let before = places();
        let homes: BTreeMap<Key, _> =
            before.keys().map(|&key| (key, table.home_now(SlotHash::of(key)))).collect();
        let moves = |home: &Home| table.header(home.chunk, home.local()).moves;
        let counters: BTreeMap<Key, u64> =
            homes.iter().map(|(&k, home)| (k, moves(home))).collect();
        let key = Key(random.below(300));
        table.apply(key, Version(step), (random.below(16) != 0).then_some(&b"x"[..]));
        if step % 500 == 0 {
            table.advance(1);
        }
        for (key, now) in places() {
            let Some(was) = before.get(&key) else { continue };
            if now.0 != was.0 || now.1 < was.1 {
                assert_ne!(moves(&homes[&key]), counters[&key], "{key:?} at step {step}");
                moved += 1;
            }
        }
    }
    assert!(moved > 0, "nothing moved to the left");
    table.check();
}

mod values;
