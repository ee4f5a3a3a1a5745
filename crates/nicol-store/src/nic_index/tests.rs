use std::collections::BTreeMap;

use nicol_core::chance::{Purpose, Stream};

use super::*;

fn txn(number: u64) -> TxnId {
    TxnId(number)
}

#[test]
fn a_lock_has_one_holder_and_outlives_eviction() {
    let index = NicIndex::new(IndexConfig { segments: 64, cached_objects_max: 1 });
    assert_eq!(index.lock(0, Key(1), txn(1)), Ok(()));
    assert_eq!(index.lock(0, Key(1), txn(1)), Ok(()));
    assert_eq!(index.lock(0, Key(1), txn(2)), Err(Locked { holder: Some(txn(1)) }));
    for key in 10..100 {
        assert!(index.learn(0, Key(key), 0, Version(1), Some((b"value", 0))));
        index.check();
    }
    assert_eq!(index.holder(0, Key(1)), Some(txn(1)));
    assert!(!index.unlock(0, Key(1), txn(2)));
    assert!(index.unlock(0, Key(1), txn(1)));
    assert_eq!((index.locked_count(), index.holder(0, Key(1))), (0, None));
    index.check();
}

#[test]
fn a_shared_key_is_not_locked_and_stays() {
    let index = NicIndex::new(IndexConfig { segments: 64, cached_objects_max: 1 });
    assert_eq!(index.share(0, Key(1)), Ok(()));
    assert_eq!(index.share(0, Key(1)), Ok(()));
    index.unshare(0, Key(1));
    assert_eq!(index.lock(0, Key(1), txn(1)), Err(Locked { holder: None }));
    index.check();
    index.unshare(0, Key(1));
    assert_eq!(index.lock(0, Key(1), txn(1)), Ok(()));
    assert_eq!(index.share(0, Key(1)), Err(Locked { holder: Some(txn(1)) }));
    assert_eq!(index.locked_count(), 1);
    index.check();
}

#[test]
fn what_the_host_read_is_current_until_an_install_even_an_evicted_one() {
    let index = NicIndex::new(IndexConfig { segments: 64, cached_objects_max: 1 });
    let current =
        |key, version, present| index.is_current(0, Key(key), txn(1), (Version(version), present));
    assert_eq!((current(1, 4, true), current(2, 0, false)), (Some(true), Some(true)));
    index.install(0, Key(1), Version(5), Some(b"new"));
    assert_eq!((current(1, 4, true), current(1, 5, true)), (Some(false), Some(true)));
    index.unpin(0, Key(1));
    index.install(0, Key(3), Version(1), Some(b"pushes 1 out"));
    index.install(0, Key(4), Version(1), Some(b"pushes 1 out"));
    index.unpin(0, Key(3));
    assert_eq!(current(1, 4, true), None);
    assert_eq!(current(1, 5, true), Some(true));
    index.install(0, Key(2), Version(7), None);
    assert_eq!((current(2, 6, false), current(2, 7, false)), (Some(false), Some(true)));
    assert_eq!(current(2, 7, true), Some(false));
    assert_eq!(current(5, 6, false), Some(false), "below the segment's floor");
}

#[test]
fn a_key_seen_absent_is_inserted_above_that() {
    let index = NicIndex::new(IndexConfig { segments: 64, cached_objects_max: 8 });
    let current = |by| index.is_current(0, Key(1), txn(by), (Version(6), false));
    assert!(index.learn(0, Key(1), 0, Version(2), None));
    assert_eq!(index.lock(0, Key(1), txn(1)), Ok(()));
    assert_eq!(current(2), Some(false), "its holder may insert it at 3");
    assert!(index.unlock(0, Key(1), txn(1)));
    assert_eq!(current(2), Some(true));
    let raised = IndexLookup::Hit { version: Version(6), present: false };
    assert_eq!(index.lookup(0, Key(1), &mut Vec::new()), raised);
}

#[test]
fn a_read_that_began_before_an_install_is_not_cached() {
    let index = NicIndex::new(IndexConfig { segments: 4, cached_objects_max: 64 });
    let IndexLookup::Miss { epoch, .. } = index.lookup(3, Key(7), &mut Vec::new()) else {
        panic!("an empty index misses");
    };
    index.install(3, Key(7), Version(2), Some(b"new"));
    index.unpin(3, Key(7));
    assert!(!index.learn(3, Key(7), epoch, Version(1), Some((b"old", 0))));
    let mut value = Vec::new();
    let hit = index.lookup(3, Key(7), &mut value);
    assert_eq!(hit, IndexLookup::Hit { version: Version(2), present: true });
    assert_eq!(value, b"new");
}

#[test]
fn it_agrees_with_a_model_whatever_happens() {
    let mut random = Stream::new(5, Purpose::Test, 0);
    let index = NicIndex::new(IndexConfig { segments: 8, cached_objects_max: 16 });
    let mut host: BTreeMap<u64, (u64, Option<Vec<u8>>)> = BTreeMap::new();
    let mut pins: Vec<u64> = Vec::new();
    let mut sometimes_evicted = false;
    for step in 0..20_000u64 {
        let key = random.below(200);
        let segment = key % 8;
        match random.below(3) {
            0 => {
                let (version, value) = host.entry(key).or_insert((0, None));
                *version += 1;
                let floor = index.floor(segment).0;
                *version = (*version).max(floor + 1);
                *value = (random.below(4) != 0).then(|| step.to_le_bytes().to_vec());
                index.install(segment, Key(key), Version(*version), value.as_deref());
                pins.push(key);
            }
            1 => {
                if let Some(key) = pins.pop() {
                    index.unpin(key % 8, Key(key));
                }
            }
            _ => {
                let mut read = Vec::new();
                match index.lookup(segment, Key(key), &mut read) {
                    IndexLookup::Hit { version, present } => {
                        let (expected, value) = &host[&key];
                        assert_eq!(version.0, *expected);
                        assert_eq!(present.then_some(read), *value);
                    }
                    IndexLookup::Miss { epoch, .. } => {
                        sometimes_evicted |= host.contains_key(&key);
                        if let Some((version, Some(value))) = host.get(&key) {
                            let found = Some((value.as_slice(), 1));
                            index.learn(segment, Key(key), epoch, Version(*version), found);
                        }
                    }
                }
            }
        }
        index.check();
    }
    assert!(sometimes_evicted, "the capacity was never reached");
}
