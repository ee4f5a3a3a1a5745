//! The indexes against a model, and under threads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;

use nicol_core::ids::TableId;
use nicol_core::records::Empty;
use nicol_core::rng::{Purpose, Stream, test_steps};

use super::*;

const TAKEN: u64 = 2;

fn store() -> Multicore {
    Multicore::new(&Empty { capacity_per_shard: 64 }, 16, &[0; TABLES], 4)
}

fn key(random: &mut Stream, rows: u64) -> Key {
    let table = if random.below(2) == 0 { TableId(1) } else { TableId::ORDERED };
    Key::new(table, random.below(rows))
}

/// Takes the record of `key` out, if there is one, and frees it.
fn take_out(store: &Multicore, key: Key) -> bool {
    let Ok(Located { place, is_new, .. }) = store.locate(key, |_, _, _| Some(0)) else {
        return false;
    };
    let word = store.record(place).word();
    let taken = word.compare_exchange(0, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    if taken {
        store.take_out(place, 0).for_each(|garbage| store.free(garbage));
    }
    taken && !is_new
}

#[test]
fn what_was_located_is_found_in_order_until_it_is_taken_out() {
    let store = store();
    let mut random = Stream::new(3, Purpose::Test, 0);
    let mut model = BTreeMap::new();
    let (mut near, mut room) = (Near::NOWHERE, Room::default());
    let trails = Trails::default();
    for step in 0..test_steps(30_000) {
        // Grows, shrinks to nothing, grows again.
        let grows = step / 5_000 % 2 == 0;
        let key = key(&mut random, 2_000);
        let mut elsewhere = near;
        assert_eq!(store.place_near(key, &mut near), model.get(&key).copied());
        let along = trails.follow(key, |near| store.place_near(key, near));
        assert_eq!(along, model.get(&key).copied());
        if grows == (random.below(8) > 0) {
            let begins_at = if random.below(2) == 0 { &mut near } else { &mut elsewhere };
            let located = match model.contains_key(&key) {
                false => store.make(key, begins_at, Some(&mut room), |_, _, _| Some(0)).unwrap(),
                true => store.locate(key, |_, _, _| Some(0)).unwrap(),
            };
            assert_eq!(located.is_new, !model.contains_key(&key));
            assert_eq!(*model.entry(key).or_insert(located.place), located.place);
            assert_eq!(store.record(located.place).key(), key);
        } else {
            assert_eq!(take_out(&store, key), model.remove(&key).is_some());
        }
        let first = Key::new(TableId::ORDERED, random.below(2_000));
        let leaf = store.leaf_of(first);
        let along = trails.follow(first, |near| store.leaf_near(first, near));
        assert_eq!((along.node, along.version), (leaf.node, leaf.version));
        assert_eq!(along.entries(), leaf.entries());
        assert!(leaf.low <= first.0 && first.0 <= leaf.high);
        let known = model.range(Key(leaf.low)..=Key(leaf.high)).filter(|(key, _)| key.is_ordered());
        assert!(leaf.entries().iter().copied().eq(known.map(|(key, place)| (key.0, *place))));
        if step.is_multiple_of(64) {
            store.tree.check();
        }
    }
    let mut found = BTreeMap::new();
    store.for_each(&mut |record| assert!(found.insert(record.key(), ()).is_none()));
    assert!(found.keys().eq(model.keys()) && store.records() == model.len() as u64);
}

#[test]
fn an_insertion_and_a_removal_move_the_version_of_their_leaf_and_of_no_other() {
    let store = store();
    let key = |row| Key::new(TableId::ORDERED, row);
    (0..100).for_each(|row| assert!(store.locate(key(10 * row), |_, _, _| Some(0)).is_ok()));
    let (near, far) = (store.leaf_of(key(500)), store.leaf_of(key(0)));
    let inserted = store.locate(key(501), |_, _, _| Some(0)).unwrap().inserted.unwrap();
    assert!(inserted.node == near.node && inserted.before == near.version);
    assert!(!store.is_unchanged(near.node, near.version));
    assert!(store.is_unchanged(near.node, inserted.after));
    assert!(take_out(&store, key(501)));
    assert!(!store.is_unchanged(near.node, inserted.after));
    assert!(store.is_unchanged(far.node, far.version));
    store.read_until(near.node, 9);
    let mut near = Near::NOWHERE;
    let until = [500, 0].map(|row| store.was_read_until(key(row), &mut near));
    assert_eq!(until, [9, 0]);
}

#[test]
fn a_new_record_begins_above_the_versions_of_those_that_were_taken_out() {
    let store = store();
    let one = Key::new(TableId(1), 1);
    let place = store.locate(one, |_, _, _| Some(0)).unwrap().place;
    let state = State { version: Version(41), ..State::default() };
    store.record(place).set_state(state);
    assert!(take_out(&store, one) && store.find(one).is_none());
    let again = store.locate(one, |_, _, _| Some(0)).unwrap();
    assert_eq!(store.record(again.place).state().version, Version(41));
}

#[test]
fn no_version_of_a_key_is_used_twice_while_threads_make_and_take_out() {
    for table in [TableId(1), TableId::ORDERED] {
        let (store, newest) = (Arc::new(store()), Arc::new(AtomicU64::new(0)));
        let threads = (0..2).map(|_| {
            let (store, newest) = (store.clone(), newest.clone());
            thread::spawn(move || {
                for turn in 0..test_steps(20_000) {
                    // Now and then others come in while a record is made; they spin where the index
                    // is locked.
                    let word = |_: &Multicore, _, _: Option<&mut Room>| {
                        if turn % 256 == 0 {
                            thread::yield_now();
                        }
                        Some(0)
                    };
                    let place = store.locate(Key::new(table, 1), word).unwrap().place;
                    let record = store.record(place);
                    // Whoever makes it gone has it alone. It is not freed: others may look at it.
                    let order = (Ordering::AcqRel, Ordering::Relaxed);
                    if record.word().compare_exchange(0, TAKEN, order.0, order.1).is_ok() {
                        let version = record.state().version;
                        assert_eq!(version.0, newest.fetch_add(1, Ordering::SeqCst));
                        record.set_state(State { version: version.next(), ..State::default() });
                        assert!(store.take_out(place, 0).count() > 0);
                    }
                }
            })
        });
        threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
    }
}

#[test]
fn who_looks_at_the_past_waits_for_a_record_that_is_being_made() {
    for (table, other) in [(TableId(1), TableId::ORDERED), (TableId::ORDERED, TableId(1))] {
        let store = Arc::new(store());
        let key = Key::new(table, 1);
        let mut looks = None;
        let located = store.locate(key, |_, _, _| {
            // The floor is raised, and somebody looks, before the record can be found.
            let place = store.locate(Key::new(other, 1), |_, _, _| Some(0)).unwrap().place;
            let version = Version(9);
            store.record(place).set_state(State { version, ..State::default() });
            store.take_out(place, 0).for_each(drop);
            let (begun, store) = (Arc::new(AtomicU64::new(0)), store.clone());
            looks = Some(thread::spawn({
                let begun = begun.clone();
                move || {
                    begun.store(1, Ordering::Relaxed);
                    store.place_or_floor(key, &mut { Near::NOWHERE })
                }
            }));
            while begun.load(Ordering::Relaxed) == 0 {
                thread::yield_now();
            }
            thread::sleep(std::time::Duration::from_millis(20));
            Some(0)
        });
        let place = located.unwrap().place;
        assert_eq!(store.record(place).state().version, Version(0));
        assert_eq!(looks.unwrap().join().unwrap(), Ok(place));
    }
}

#[test]
fn what_is_absent_in_the_past_has_a_version_between_its_neighbours() {
    for table in [TableId(1), TableId::ORDERED] {
        let (store, over) = (Arc::new(store()), Arc::new(AtomicU64::new(0)));
        let look = |store: &Multicore| {
            let mut near = Near::NOWHERE;
            let found = store.place_or_floor(Key::new(table, 1), &mut near);
            found.map_or_else(|floor| floor, |place| store.record(place).state().version)
        };
        assert_eq!(look(&store), Version(0));
        let writers = (1..3).map(|row| {
            let (store, over) = (store.clone(), over.clone());
            thread::spawn(move || {
                for _ in 0..test_steps(20_000) {
                    let key = Key::new(table, row);
                    let place = store.locate(key, |_, _, _| Some(0)).unwrap().place;
                    // Written and deleted. Nothing is freed: others may look at it.
                    for _ in 0..2 {
                        let version = store.record(place).state().version.next();
                        store.record(place).set_state(State { version, ..State::default() });
                    }
                    store.take_out(place, 0).for_each(drop);
                }
                over.fetch_add(1, Ordering::Relaxed);
            })
        });
        let writers = writers.collect::<Vec<_>>();
        let mut last = Version(0);
        while over.load(Ordering::Relaxed) < 2 {
            let seen = look(&store);
            assert!(seen >= last, "{last:?} before {seen:?}");
            last = seen;
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    }
}

#[test]
fn a_record_is_not_used_again_while_a_core_that_has_found_it_may_read_it() {
    for table in [TableId(1), TableId::ORDERED] {
        let (store, over) = (Arc::new(store()), Arc::new(AtomicU64::new(0)));
        let key = Key::new(table, 1);
        store.locate(key, |_, _, _| Some(0)).unwrap();
        let reader = {
            let (store, over) = (store.clone(), over.clone());
            thread::spawn(move || {
                while over.load(Ordering::Relaxed) == 0 {
                    store.epochs().advance();
                    store.epochs().enter(0);
                    if let Some(record) = store.find(key) {
                        (0..4).for_each(|_| thread::yield_now());
                        assert_eq!(record.key(), key);
                    }
                    store.epochs().leave(0);
                }
            })
        };
        // Each step waits for the reader.
        for turn in 0..test_steps(20_000).min(1_000) {
            let place = store.place_of(key).unwrap();
            store.record(place).word().store(TAKEN, Ordering::Release);
            let garbage = store.take_out(place, 0).collect::<Vec<_>>();
            let taken_out = store.epochs().of_removal();
            while store.epochs().oldest() <= taken_out {
                assert!(!reader.is_finished(), "it saw a record that is used again");
                thread::yield_now();
            }
            garbage.into_iter().for_each(|one| store.free(one));
            // Others stand where it stood.
            let other = store.locate(Key::new(TableId(2), turn), |_, _, _| Some(0)).unwrap();
            assert_eq!(other.place, place);
            store.locate(key, |_, _, _| Some(0)).unwrap();
        }
        over.store(1, Ordering::Relaxed);
        reader.join().unwrap();
    }
}

#[test]
fn threads_lose_no_record_and_see_no_other_s() {
    let store = Arc::new(store());
    let rows = test_steps(20_000);
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let store = store.clone();
            thread::spawn(move || {
                let mut random = Stream::new(thread, Purpose::Test, 1);
                let mut own = BTreeMap::new();
                let (mut near, mut room) = (Near::NOWHERE, Room::default());
                for _ in 0..rows {
                    // Rows of the threads alternate, so that they meet in every leaf and chain.
                    let row = 4 * random.below(500) + thread;
                    let table = if row % 8 < 4 { TableId(1) } else { TableId::ORDERED };
                    let key = Key::new(table, row);
                    let found = store.place_near(key, &mut near);
                    assert_eq!(found, own.get(&key).copied());
                    if random.below(3) > 0 {
                        let located = match found {
                            Some(_) => store.locate(key, |_, _, _| Some(0)).unwrap(),
                            None => store
                                .make(key, &mut near, Some(&mut room), |_, _, _| Some(0))
                                .unwrap(),
                        };
                        assert_eq!(*own.entry(key).or_insert(located.place), located.place);
                    } else if let Some(place) = own.remove(&key) {
                        store.record(place).word().store(TAKEN, Ordering::Release);
                        // Never freed here: others may look at it.
                        assert!(store.take_out(place, 0).count() > 0);
                    }
                    let other = Key::new(TableId::ORDERED, random.below(2_000));
                    let leaf = store.leaf_of(other);
                    assert!(leaf.entries().is_sorted() && leaf.low <= other.0);
                }
                own
            })
        })
        .collect();
    let mut all = BTreeMap::new();
    threads.into_iter().for_each(|thread| all.append(&mut thread.join().unwrap()));
    store.tree.check();
    let mut found = BTreeMap::new();
    store.for_each(&mut |record| assert!(found.insert(record.key(), ()).is_none()));
    assert!(found.keys().eq(all.keys()));
    assert!(all.iter().all(|(key, place)| store.find(*key).unwrap().key() == *key
        && store.locate(*key, |_, _, _| None).unwrap().place == *place));
}

#[test]
fn what_is_inserted_behind_a_prefix_changes_no_leaf_of_the_next() {
    let store = store();
    let order = |district: u64, number: u64| Key::new(TableId::ORDERED, district << 32 | number);
    for district in 1..4 {
        (200..300).for_each(|number| _ = store.locate(order(district, number), |_, _, _| Some(0)));
    }
    for number in 300..600 {
        // A scan for a district's oldest order begins before it.
        let leaf = store.leaf_of(order(2, 0));
        store.locate(order(1, number), |_, _, _| Some(0)).unwrap();
        assert!(store.is_unchanged(leaf.node, leaf.version), "{number}");
    }
}

/// The key of a district's order.
fn order(district: u64, number: u64) -> Key {
    Key::new(TableId::ORDERED, district << 32 | number)
}

#[test]
fn an_emptied_leaf_goes_to_its_own_prefix_whatever_its_parent() {
    let store = store();
    for number in 0..300 {
        (1..6).for_each(|district| _ = store.locate(order(district, number), |_, _, _| Some(0)));
    }
    for (oldest, newest) in (0..290).zip(300..) {
        assert!((2..6).all(|district| take_out(&store, order(district, oldest))));
        store.tree.check();
        for district in 2..6 {
            let leaf = store.leaf_of(order(district, 0));
            assert_eq!(leaf.low >> 32, order(district, 0).0 >> 32, "{district}: {oldest}");
            store.locate(order(district - 1, newest), |_, _, _| Some(0)).unwrap();
            assert!(store.is_unchanged(leaf.node, leaf.version), "{district}: {oldest}");
        }
    }
}

#[test]
fn a_queue_takes_as_many_nodes_as_what_stands_in_it() {
    let store = store();
    let mut most = 0;
    for number in 0..test_steps(60_000) {
        store.locate(order(1, number), |_, _, _| Some(0)).unwrap();
        if number >= 200 {
            assert!(take_out(&store, order(1, number - 200)));
            most = most.max(store.tree.check());
        }
    }
    // 200 keys in leaves of 8 to 16, and the nodes above them.
    assert!((13..60).contains(&most), "{most} nodes");
}

#[test]
fn records_that_are_prefetched_are_what_they_were_whatever_is_in_the_chains() {
    let store = store();
    let keys = |rows: std::ops::Range<u64>| rows.map(|row| Key::new(TableId(1), row));
    // More than heads: chains have several records; more than are touched at once; some absent.
    for key in keys(0..200) {
        let located = store.locate(key, |_, _, _| Some(key.row())).unwrap();
        store.record(located.place).write_value(&key.0.to_le_bytes());
    }
    let beyond_of = std::cell::RefCell::new(Vec::new());
    let beyond = |record: Record<'_>| {
        beyond_of.borrow_mut().push(record.word().load(Ordering::Relaxed));
        store.place_of(record.key()).unwrap()
    };
    store.prefetch(keys(150..250).chain([Key::new(TableId::ORDERED, 1)]), Some(beyond));
    let beyond_of = beyond_of.into_inner();
    assert!(beyond_of.len() >= 50 && beyond_of.iter().all(|word| *word < 200), "{beyond_of:?}");
    assert_eq!(store.records(), 200, "nothing was made");
    for key in keys(0..200) {
        let mut value = Vec::new();
        let record = store.find(key).unwrap();
        record.copy_value(8, &mut value);
        assert_eq!(
            (record.word().load(Ordering::Relaxed), value),
            (key.row(), key.0.to_le_bytes().into())
        );
    }
    store.prefetch(keys(0..200), None::<fn(Record<'_>) -> Place>);
    store.prefetch(std::iter::empty(), None::<fn(Record<'_>) -> Place>);
}
