use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nicol_core::chance::{Purpose, Stream};

use super::*;

fn table(slots: u64, displacement_max: u16) -> HostTable {
    HostTable::new(Geometry::new(slots, displacement_max, 16), u64::MAX)
}

fn get(table: &HostTable, key: u64) -> (u64, Option<Vec<u8>>) {
    let mut value = Vec::new();
    let found = table.get(Key(key), &mut value);
    (found.version.0, found.present.then_some(value))
}

#[test]
fn it_agrees_with_a_map_whatever_happens() {
    let mut random = Stream::new(3, Purpose::Test, 0);
    let table = table(64, 8);
    let mut model: BTreeMap<u64, (u64, Option<Vec<u8>>)> = BTreeMap::new();
    let (mut overflowed, mut out_of_line) = (false, false);
    for step in 0..6_000u64 {
        let key = random.below(90);
        let entry = model.entry(key).or_insert((0, None));
        entry.0 += 1;
        let len = if random.below(4) == 0 { 300 + random.below(2_000) } else { random.below(17) };
        entry.1 = (random.below(3) != 0).then(|| vec![step as u8; len as usize]);
        let applied = table.apply(Key(key), Version(entry.0), entry.1.as_deref());
        assert_eq!(applied, Applied::Changed);
        assert_eq!(table.apply(Key(key), Version(entry.0), Some(b"again")), Applied::Skipped);
        overflowed |= table.overflowed() > 0;
        out_of_line |= len > 16;
        table.check();
        let (version, value) = get(&table, key);
        assert_eq!(value, entry.1);
        assert!(if value.is_some() { version == entry.0 } else { version >= entry.0 });
    }
    for (key, (_, value)) in &model {
        assert_eq!(get(&table, *key).1, *value);
    }
    assert!(overflowed, "the table never overflowed");
    assert!(out_of_line, "no value was out of line");
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

#[test]
fn readers_never_miss_a_record_that_is_there() {
    let table = Arc::new(table(128, 8));
    for key in 0..60 {
        table.load(Key(key), &[key as u8; 12]);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (table, stop) = (table.clone(), stop.clone());
            thread::spawn(move || {
                let mut reads = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    for key in 0..60 {
                        let value = get(&table, key).1;
                        assert_eq!(value, Some(vec![key as u8; 12]), "key {key}");
                        reads += 1;
                    }
                }
                reads
            })
        })
        .collect();
    let mut random = Stream::new(9, Purpose::Test, 1);
    for step in 2..20_000u64 {
        let key = Key(100 + random.below(60));
        let value = [7; 600];
        let len = if random.below(2) == 0 { 8 } else { 600 };
        table.apply(key, Version(step), (random.below(2) == 0).then_some(&value[..len]));
    }
    stop.store(true, Ordering::Relaxed);
    for reader in readers {
        assert!(reader.join().unwrap() > 0, "a reader read nothing");
    }
    table.check();
}
