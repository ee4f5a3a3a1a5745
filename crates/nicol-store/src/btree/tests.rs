use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use nicol_core::rng::{Purpose, Stream};
use proptest::prelude::*;

use super::*;

type Model = BTreeMap<Key, (Version, Vec<u8>)>;

fn forward(tree: &BTree, from: u64, to: u64, most: usize) -> Vec<(Key, Version, Vec<u8>)> {
    let mut seen = Vec::new();
    tree.scan(Key(from)..=Key(to), &mut |key, version, value| {
        seen.push((key, version, value.to_vec()));
        seen.len() < most
    });
    seen
}

fn backward(tree: &BTree, from: u64, to: u64) -> Vec<(Key, Version, Vec<u8>)> {
    let mut seen = Vec::new();
    tree.scan_back(Key(from)..=Key(to), &mut |key, version, value| {
        seen.push((key, version, value.to_vec()));
        true
    });
    seen
}

fn expected(model: &Model, from: u64, to: u64) -> Vec<(Key, Version, Vec<u8>)> {
    let range = (from <= to).then(|| model.range(Key(from)..=Key(to)));
    let records = range.into_iter().flatten();
    records.map(|(key, (version, value))| (*key, *version, value.clone())).collect()
}

#[derive(Clone, Debug)]
enum Step {
    /// Consecutive keys, as orders come.
    Append(u64, u8),
    Put(u64, u8),
    Delete(u64),
    /// The lowest keys go, as deliveries do.
    DeleteFirst(u8),
    Scan(u64, u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = 0..2_000u64;
    let step = prop_oneof![
        2 => (key.clone(), any::<u8>()).prop_map(|(key, count)| Step::Append(key, count)),
        8 => (key.clone(), any::<u8>()).prop_map(|(key, len)| Step::Put(key, len)),
        6 => key.clone().prop_map(Step::Delete),
        2 => any::<u8>().prop_map(Step::DeleteFirst),
        4 => (key.clone(), key).prop_map(|(from, to)| Step::Scan(from, to)),
    ];
    prop::collection::vec(step, 1..120)
}

fn put(tree: &BTree, model: &mut Model, key: u64, version: u64, value: Vec<u8>) {
    assert_eq!(tree.apply(Key(key), Version(version), Some(&value)), Applied::Changed);
    model.insert(Key(key), (Version(version), value));
}

proptest! {
    #[test]
    fn it_agrees_with_a_map(steps in steps()) {
        let (tree, mut model) = (BTree::new(), Model::new());
        for (number, step) in steps.into_iter().enumerate() {
            let version = number as u64 + 1;
            match step {
                Step::Append(from, count) => {
                    for key in from..from + u64::from(count) {
                        put(&tree, &mut model, key, version, key.to_le_bytes().to_vec());
                    }
                }
                Step::Put(key, len) => {
                    put(&tree, &mut model, key, version, vec![number as u8; len as usize]);
                }
                Step::Delete(key) => {
                    tree.apply(Key(key), Version(version), None);
                    model.remove(&Key(key));
                }
                Step::DeleteFirst(count) => {
                    for _ in 0..count {
                        let Some((key, _)) = model.pop_first() else { break };
                        tree.apply(key, Version(version), None);
                    }
                }
                Step::Scan(from, to) => {
                    let mut want = expected(&model, from, to);
                    prop_assert_eq!(&forward(&tree, from, to, usize::MAX), &want);
                    let first = &want[..want.len().min(3)];
                    prop_assert_eq!(&forward(&tree, from, to, 3)[..], first);
                    want.reverse();
                    prop_assert_eq!(backward(&tree, from, to), want);
                    let mut value = Vec::new();
                    let below = tree.last_below(Key(from), &mut value);
                    let want = model.range(..Key(from)).next_back();
                    prop_assert_eq!(below, want.map(|(key, (version, _))| (*key, *version)));
                    let want = want.map(|(_, (_, value))| value.as_slice());
                    prop_assert_eq!(&value[..], want.unwrap_or_default());
                    value.clear();
                    let found = tree.get(Key(from), &mut value);
                    let want = model.get(&Key(from));
                    prop_assert_eq!(found.present.then_some(value), want.map(|want| want.1.clone()));
                }
            }
            prop_assert_eq!(tree.check(), Vec::<String>::new());
            prop_assert_eq!(tree.len(), model.len() as u64);
        }
        prop_assert_eq!(forward(&tree, 0, u64::MAX, usize::MAX), expected(&model, 0, u64::MAX));
    }
}

#[test]
fn a_tree_grows_and_shrinks_by_levels() {
    let tree = BTree::new();
    for key in 0..40_000u64 {
        tree.load(Key(key.wrapping_mul(0x9e37_79b9_7f4a_7c15)), &key.to_le_bytes());
    }
    assert_eq!((tree.len(), tree.check()), (40_000, Vec::new()));
    for key in 0..40_000u64 {
        let key = Key(key.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        assert_eq!(tree.apply(key, Version(2), None), Applied::Changed);
        if key.0.is_multiple_of(64) {
            assert_eq!(tree.check(), Vec::<String>::new());
        }
    }
    assert!(tree.is_empty());
    assert_eq!((tree.check(), tree.digest()), (Vec::new(), 0));
    assert_eq!(tree.last_below(Key(u64::MAX), &mut Vec::new()), None);
}

#[test]
fn a_tree_that_shrinks_and_grows_again_is_whole() {
    let mut random = Stream::new(33, Purpose::Test, 0);
    let (tree, mut keys) = (BTree::new(), BTreeSet::new());
    for version in 2..400 {
        // Roots come and go: small trees are as likely as large ones.
        let most = 2 << random.below(12);
        let size = random.below(most);
        while keys.len() as u64 > size {
            let key = match random.below(3) {
                0 => *keys.first().unwrap(),
                1 => *keys.last().unwrap(),
                _ => *keys.range(random.below(4_096)..).next().unwrap_or(keys.first().unwrap()),
            };
            keys.remove(&key);
            assert_eq!(tree.apply(Key(key), Version(version), None), Applied::Changed);
        }
        while (keys.len() as u64) < size {
            let key = random.below(4_096);
            if keys.insert(key) {
                let value = key.to_le_bytes();
                assert_eq!(tree.apply(Key(key), Version(version), Some(&value)), Applied::Changed);
            }
        }
        assert_eq!(tree.check(), Vec::<String>::new());
        let seen = forward(&tree, 0, u64::MAX, usize::MAX);
        assert!(seen.iter().map(|(key, ..)| key.0).eq(keys.iter().copied()));
        assert!(seen.iter().all(|(key, _, value)| *value == key.0.to_le_bytes()));
    }
}

#[test]
fn the_first_and_the_last_key_are_keys_like_others() {
    let tree = BTree::new();
    let rows = |from, to| -> (Vec<u64>, Vec<u64>) {
        let keys =
            |seen: Vec<(Key, Version, Vec<u8>)>| seen.iter().map(|(key, ..)| key.0).collect();
        (keys(forward(&tree, from, to, usize::MAX)), keys(backward(&tree, from, to)))
    };
    assert_eq!(rows(0, u64::MAX), (vec![], vec![]));
    // Many enough that either end is a leaf of its own.
    let inner = 1..=500;
    for key in inner.clone().chain([0, u64::MAX, u64::MAX - 1]) {
        tree.load(Key(key), b"x");
    }
    assert_eq!(rows(u64::MAX, u64::MAX), (vec![u64::MAX], vec![u64::MAX]));
    assert_eq!(rows(0, 0), (vec![0], vec![0]));
    let end = vec![u64::MAX - 1, u64::MAX];
    assert_eq!(rows(501, u64::MAX), (end.clone(), end.into_iter().rev().collect()));
    assert_eq!(rows(501, u64::MAX - 2), (vec![], vec![]), "between two keys");
    assert_eq!(rows(7, 6), (vec![], vec![]), "from behind its end");
    assert_eq!(rows(u64::MAX, 0), (vec![], vec![]));
    let whole = forward(&tree, 0, u64::MAX, usize::MAX);
    assert_eq!((whole.len(), whole.len() as u64), (inner.count() + 3, tree.len()));
    let below = |key| tree.last_below(Key(key), &mut Vec::new()).map(|(key, _)| key.0);
    assert_eq!((below(u64::MAX), below(1), below(0)), (Some(u64::MAX - 1), Some(0), None));
    for key in [0, u64::MAX] {
        assert_eq!(tree.apply(Key(key), Version(2), None), Applied::Changed);
        assert!(!tree.get(Key(key), &mut Vec::new()).present);
    }
    assert_eq!((tree.check(), below(1)), (Vec::new(), None));
}

#[test]
fn an_absent_key_has_the_version_of_the_highest_deletion() {
    let tree = BTree::new();
    let version = |key| tree.get(Key(key), &mut Vec::new()).version;
    assert_eq!(version(1), Version(0));
    tree.apply(Key(1), Version(9), None);
    tree.apply(Key(2), Version(3), None);
    assert_eq!((version(1), version(2)), (Version(9), Version(9)));
    assert_eq!(version(3), Version(0), "above all that ever were there");
}

#[test]
fn a_write_that_is_repeated_changes_nothing() {
    let tree = BTree::new();
    tree.apply(Key(1), Version(2), Some(b"two"));
    assert_eq!(tree.apply(Key(1), Version(2), Some(b"too")), Applied::Skipped);
    assert_eq!(tree.apply(Key(1), Version(3), None), Applied::Changed);
    assert_eq!(tree.apply(Key(1), Version(3), None), Applied::Skipped);
    assert_eq!(tree.apply(Key(1), Version(3), Some(b"late")), Applied::Skipped);
    assert!(tree.is_empty());
}

#[test]
fn a_copy_is_equal_and_its_own() {
    let tree = BTree::new();
    (0..100).for_each(|key| tree.load(Key(key), &[key as u8]));
    tree.apply(Key(7), Version(5), None);
    let copy = tree.copy();
    assert_eq!((copy.len(), copy.digest(), copy.check()), (99, tree.digest(), Vec::new()));
    assert_eq!(copy.apply(Key(7), Version(4), Some(b"late")), Applied::Skipped);
    tree.apply(Key(8), Version(2), None);
    assert_eq!((copy.len(), tree.len()), (99, 98));
}

#[test]
fn a_record_that_comes_and_goes_takes_no_more_memory() {
    let tree = BTree::new();
    for version in (2..2_000).step_by(2) {
        let key = Key(version % 7);
        tree.apply(key, Version(version), Some(b"x"));
        assert_eq!(tree.read().tombstones.deleted_at(key), Version(0), "it is there again");
        tree.apply(key, Version(version + 1), None);
    }
    assert_eq!((tree.len(), tree.read().records.len()), (0, 1));
}

#[test]
fn an_old_write_does_not_bring_a_deleted_record_back() {
    let tree = BTree::new();
    tree.load(Key(1), b"one");
    assert_eq!(tree.apply(Key(1), Version(3), None), Applied::Changed);
    assert_eq!(tree.apply(Key(1), Version(2), Some(b"late")), Applied::Skipped);
    assert_eq!(tree.get(Key(1), &mut Vec::new()), Lookup { version: Version(3), present: false });
    tree.forget_old_deletions();
    assert_eq!(tree.apply(Key(1), Version(2), Some(b"late")), Applied::Skipped);
    assert_eq!(tree.apply(Key(1), Version(4), Some(b"new")), Applied::Changed);
}

#[test]
fn a_tree_has_the_digest_of_a_host_table_with_its_records() {
    let tree = BTree::new();
    let geometry = crate::host_table::Geometry::new(64, 8, 16);
    let table =
        crate::host_table::HostTable::new(geometry, u64::MAX, crate::host_table::Growth::Off);
    for key in (0..50).rev().map(Key) {
        tree.load(key, &key.0.to_le_bytes());
        table.load(key, &key.0.to_le_bytes());
    }
    assert_eq!(tree.digest(), table.digest());
    tree.apply(Key(7), Version(2), Some(b"changed"));
    assert_ne!(tree.digest(), table.digest());
}

#[test]
fn a_scan_misses_nothing_beside_a_writer() {
    let tree = BTree::new();
    for key in (0..1_000).step_by(10) {
        tree.load(Key(key), &key.to_le_bytes());
    }
    let scans = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while scans.load(Ordering::Relaxed) < 2_000 {
                    let seen = forward(&tree, 0, 999, usize::MAX);
                    let kept = seen.iter().filter(|(key, ..)| key.0.is_multiple_of(10)).count();
                    assert_eq!(kept, 100, "a record was missed");
                    assert!(seen.iter().all(|(key, _, value)| *value == key.0.to_le_bytes()));
                    let mut back = backward(&tree, 0, 999);
                    back.reverse();
                    assert!(back.is_sorted_by(|one, next| one.0 < next.0), "out of order");
                    for key in (0..1_000).step_by(10).map(Key) {
                        let mut value = Vec::new();
                        assert!(tree.get(key, &mut value).present, "{key:?} was missed");
                        assert_eq!(value, key.0.to_le_bytes());
                    }
                    scans.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut version = 1u64;
        while scans.load(Ordering::Relaxed) < 2_000 && version < 1_000_000 {
            version += 1;
            let key = version * 7 % 1_000;
            if !key.is_multiple_of(10) {
                let value = key.to_le_bytes();
                let value = version.is_multiple_of(2).then_some(&value[..]);
                tree.apply(Key(key), Version(version), value);
            }
        }
    });
    assert_eq!(tree.check(), Vec::<String>::new());
}

#[test]
fn an_absent_key_has_a_version_of_its_own_until_deletions_are_forgotten() {
    let tree = BTree::new();
    let read = |key| {
        let found = tree.get_exact(Key(key), &mut Vec::new());
        assert_eq!(found, tree.state_of(Key(key)));
        found
    };
    let insert = |key: u64| {
        let version = read(key).version.next();
        assert_eq!(tree.apply(Key(key), version, Some(b"x")), Applied::Changed);
        assert_eq!(read(key), Lookup { version, present: true });
    };
    let delete = |key: u64| {
        let version = read(key).version.next();
        assert_eq!(tree.apply(Key(key), version, None), Applied::Changed);
        assert_eq!(read(key), Lookup { version, present: false });
    };
    let (one, two) = (read(1), read(2));
    insert(1);
    delete(1);
    assert!(read(1).version > one.version, "it was there meanwhile");
    assert_eq!(read(2), two, "another key's deletion does not matter");
    insert(1);
    delete(1);
    let gone = read(1);
    tree.forget_old_deletions();
    assert_eq!((read(1), read(2)), (gone, two));
    tree.forget_old_deletions();
    assert!(read(1).version >= gone.version);
    assert_eq!(read(2), read(1), "what is forgotten may concern any key");
    insert(2);
}
