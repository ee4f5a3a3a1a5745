//! What an entry keeps when it is split or its objects go, and where judgements turn.

use super::*;

fn install(index: &NicIndex, key: u64, version: u64, value: Option<&[u8]>) {
    let (hash, key) = of(key);
    index.install(hash, key, Version(version), value);
    index.unpin(hash, key);
}

fn seen(index: &NicIndex, key: u64) -> Option<(u64, bool)> {
    let (hash, key) = of(key);
    match index.lookup(hash, key, &mut Vec::new()) {
        IndexLookup::Hit { version, present } => Some((version.0, present)),
        IndexLookup::Miss(_) => None,
    }
}

/// Pushes every object that may go out of a stripe, and says so.
fn push_out(index: &NicIndex, keys: &[u64]) {
    index.set_capacity(1);
    for _ in 0..8 {
        for &key in keys {
            let (hash, key) = of(key);
            assert_eq!(index.lock(hash, key, TxnId(99)), Ok(()));
            assert!(index.unlock(hash, key, TxnId(99)));
        }
    }
}

/// The entries on either side of a split, as keys of one segment before it.
fn twins() -> ([u64; 2], [u64; 2]) {
    let keys: [u64; 40] = neighbours();
    let side = |side: u64| {
        let mut keys = keys.iter().filter(|key| of(**key).0.copy(1) == side);
        std::array::from_fn(|_| *keys.next().unwrap())
    };
    (side(0), side(1))
}

fn split(index: &NicIndex) {
    index.follow(Progress::new(1, 0));
    for key in 0..2_000 {
        hint(index, key);
    }
    index.check();
}

#[test]
fn a_read_that_began_before_an_install_is_not_cached_after_a_split() {
    let ([left, other_left], [right, other_right]) = twins();
    for (key, other) in [(left, other_left), (right, other_right)] {
        let index = index(64, 64);
        let epoch = hint(&index, key).unwrap().epoch;
        install(&index, key, 2, Some(b"new"));
        push_out(&index, &[key, other]);
        assert_eq!(seen(&index, key), None, "it was not pushed out");
        split(&index);
        let (hash, name) = of(key);
        assert!(!index.learn(hash, name, epoch, Version(1), Some((b"old", 0))));
    }
}

#[test]
fn both_sides_of_a_split_know_what_was_deleted_and_forgotten() {
    let ([left, other_left], [right, other_right]) = twins();
    let index = index(64, 64);
    install(&index, left, 9, None);
    install(&index, right, 4, Some(b"x"));
    push_out(&index, &[other_left, other_right]);
    assert_eq!((seen(&index, left), seen(&index, right)), (None, None), "not pushed out");
    split(&index);
    for key in [left, right] {
        assert_eq!(index.floor(of(key).0), Version(9));
        assert_eq!(current(&index, key, 8, true), None, "a version that was forgotten");
        assert_eq!(current(&index, key, 9, true), Some(true));
    }
}

#[test]
fn a_segment_s_floor_is_its_highest_deletion() {
    let index = index(64, 64);
    let [one, two, three] = neighbours();
    install(&index, one, 9, None);
    install(&index, two, 3, None);
    assert_eq!(index.floor(of(three).0), Version(9));
}

#[test]
fn keys_with_the_same_tag_are_distinguished() {
    // One segment: whatever has the same tag meets.
    let index = NicIndex::new(IndexConfig {
        segments: 1,
        cached_objects_max: 64 * STRIPES,
        busy_objects_max: 64,
        homes_per_hint: HomesPerHint::ONE,
        value_bytes_max: usize::MAX,
    });
    let mut tags = BTreeMap::new();
    let meets = |key: u64| tags.insert(of(key).0.tag(), key).map(|earlier| (earlier, key));
    let (one, two) = (0..1 << 20).find_map(meets).unwrap();
    install(&index, one, 2, Some(b"one"));
    assert_eq!((seen(&index, one), seen(&index, two)), (Some((2, true)), None));
    assert_eq!((lock(&index, one, 1), lock(&index, two, 2)), (Ok(()), Ok(())));
    index.check();
}

#[test]
fn released_space_is_free_at_once() {
    let segments = 1;
    let config = IndexConfig {
        segments,
        cached_objects_max: 4 * STRIPES,
        busy_objects_max: 1 << 12,
        homes_per_hint: HomesPerHint::ONE,
        value_bytes_max: usize::MAX,
    };
    let known = |index: &NicIndex, key: u64| {
        assert!(!access(index, key), "learnt twice");
    };
    let index = NicIndex::new(config);
    (0..24).for_each(|key| assert_eq!(lock(&index, key, 1), Ok(())));
    (0..24).for_each(|key| known(&index, key));
    assert_eq!(index.object_count(), 24);
    (0..24).for_each(|key| assert!(unlock(&index, key, 1)));
    assert_eq!(index.object_count(), 4, "unlocked");
    index.check();

    let index = NicIndex::new(config);
    (0..24).map(of).for_each(|(hash, key)| index.lock_shared(hash, key).unwrap());
    (0..24).for_each(|key| known(&index, key));
    (0..24).map(of).for_each(|(hash, key)| index.unlock_shared(hash, key));
    assert_eq!(index.object_count(), 4, "unshared");
    index.check();

    let index = NicIndex::new(config);
    for (hash, key) in (0..24).map(of) {
        index.install(hash, key, Version(2), Some(&[7; 5_000]));
    }
    (0..24).map(of).for_each(|(hash, key)| index.unpin(hash, key));
    assert_eq!(index.object_count(), 4, "unpinned");
    index.check();
}

#[test]
fn a_read_lock_on_an_unknown_key_leaves_nothing_behind() {
    let index = index(64, 64);
    let (hash, key) = of(1);
    assert_eq!((index.lock_shared(hash, key), index.lock_shared(hash, key)), (Ok(()), Ok(())));
    index.unlock_shared(hash, key);
    assert_eq!(index.object_count(), 1);
    index.unlock_shared(hash, key);
    assert_eq!(index.object_count(), 0);
}

#[test]
fn a_negative_entry_that_was_raised_stays_so() {
    let index = index(64, 64);
    let (hash, key) = of(1);
    assert!(index.learn(hash, key, 0, Version(2), None));
    assert_eq!(current(&index, 1, 6, false), Some(true));
    // A lookup that began before, and read the floor then.
    assert!(index.learn(hash, key, 0, Version(2), None));
    assert_eq!(seen(&index, 1), Some((6, false)));
    assert_eq!(current(&index, 1, 3, false), Some(false), "seen absent at 6 already");
    assert_eq!(seen(&index, 1), Some((6, false)));
}

#[test]
fn a_record_is_judged_by_its_own_version_and_an_absent_one_by_what_was_forgotten() {
    let index = index(4 * STRIPES, 64);
    let [one, two, three, four] = neighbours();
    install(&index, one, 2, Some(b"x"));
    install(&index, two, 9, None);
    let verdicts = [1, 2, 3].map(|version| current(&index, one, version, true));
    assert_eq!(verdicts, [Some(false), Some(true), Some(false)], "whatever the floor");
    push_out(&index, &[one, two]);
    assert_eq!(seen(&index, two), None, "it was not pushed out");
    // Either key may have been inserted at a low version and forgotten.
    assert_eq!(lock(&index, three, 1), Ok(()));
    assert_eq!(current(&index, three, 10, false), None);
    assert_eq!(current(&index, four, 10, false), None);
}

#[test]
#[should_panic = "a COMMIT moves the version forward"]
fn a_version_is_installed_once() {
    let index = index(64, 64);
    install(&index, 1, 2, Some(b"one"));
    install(&index, 1, 2, Some(b"two"));
}

/// Somebody has seen a key absent at version 3; nothing but the segment's memory of what it evicted
/// tells so. An older reading must not be confirmed, or version 3 would be written, too.
#[test]
fn an_absence_that_was_forgotten_is_not_confirmed_at_an_earlier_version() {
    let index = NicIndex::new(IndexConfig {
        segments: 1,
        cached_objects_max: STRIPES,
        busy_objects_max: 64 * STRIPES,
        homes_per_hint: HomesPerHint::ONE,
        value_bytes_max: usize::MAX,
    });
    let ((hash, seen), (other_hash, other)) = (of(1), of(2));
    let learn = |hash, key, version| {
        let IndexLookup::Miss(hint) = index.lookup(hash, key, &mut Vec::new()) else {
            panic!("the key is not cached");
        };
        assert!(index.learn(hash, key, hint.epoch, version, None));
    };
    for is_locked in [false, true] {
        learn(hash, seen, Version(3));
        learn(other_hash, other, Version(1));
        assert!(matches!(index.lookup(hash, seen, &mut Vec::new()), IndexLookup::Miss(_)));
        if is_locked {
            index.lock(hash, seen, TxnId(7)).unwrap();
        }
        let confirmed = |version| index.confirm_absent_at(hash, seen, TxnId(7), Version(version));
        assert!(!confirmed(2), "locked: {is_locked}");
        assert!(confirmed(3), "locked: {is_locked}");
    }
    index.unlock(hash, seen, TxnId(7));
    index.check();
}

#[test]
fn a_lock_is_passed_by_who_holds_it_only_and_needs_no_space() {
    let index = index(1, 1);
    let ((hash, key), holds) = (of(1), |index: &NicIndex| index.holder(of(1).0, of(1).1));
    assert!(index.pass_lock(hash, key, None, TxnId(1)));
    assert!(!index.pass_lock(hash, key, None, TxnId(2)), "it is locked");
    assert!(!index.pass_lock(hash, key, Some(TxnId(3)), TxnId(2)), "who does not hold it");
    assert!(index.pass_lock(hash, key, Some(TxnId(1)), TxnId(2)));
    assert_eq!((holds(&index), index.locked_count()), (Some(TxnId(2)), 1));
    for key in 2..200 {
        let (hash, key) = of(key);
        assert!(index.pass_lock(hash, key, None, TxnId(2)));
        assert!(index.unlock(hash, key, TxnId(2)));
    }
    assert!(index.unlock(hash, key, TxnId(2)));
    assert_eq!((holds(&index), index.locked_count()), (None, 0));
    assert!(index.lock_shared(hash, key).is_ok());
    assert!(!index.pass_lock(hash, key, None, TxnId(2)), "it is read");
    index.unlock_shared(hash, key);
    index.check();
}

#[test]
fn what_is_forgotten_is_read_again_but_for_what_is_pinned() {
    let index = index(64, 64);
    let (hash, key) = of(1);
    let epoch = hint(&index, 1).unwrap().epoch;
    assert!(index.learn(hash, key, epoch, Version(4), Some((b"old", 0))));
    assert_eq!(index.lock(hash, key, TxnId(7)), Ok(()));
    index.forget(hash, key);
    assert_eq!((seen(&index, 1), index.holder(hash, key)), (None, Some(TxnId(7))));
    assert!(!index.learn(hash, key, epoch, Version(4), Some((b"old", 0))), "read before");
    assert_eq!(seen(&index, 1), None);
    index.install(hash, key, Version(5), Some(b"new"));
    assert!(index.unlock(hash, key, TxnId(7)));
    index.forget(hash, key);
    assert_eq!(seen(&index, 1), Some((5, true)), "the table lacks it");
    index.unpin(hash, key);
    index.forget(hash, key);
    assert_eq!(seen(&index, 1), None);
    index.check();
}

#[test]
fn absent_keys_of_a_later_index_begin_above_an_earlier_one() {
    let config = IndexConfig {
        segments: 64,
        cached_objects_max: 64,
        busy_objects_max: 64,
        homes_per_hint: HomesPerHint::ONE,
        value_bytes_max: usize::MAX,
    };
    let index = NicIndex::above(config, Version(1 << 40));
    assert_eq!(index.floor(of(1).0), Version(1 << 40));
    install(&index, 2, (1 << 40) + 1, Some(b"new"));
    install(&index, 2, (1 << 40) + 2, None);
    assert!(index.floor(of(2).0) > Version(1 << 40));
}
