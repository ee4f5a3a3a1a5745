use nicol_core::history::first::{Read, Write};
use nicol_core::rng::{Purpose, Stream};

use super::*;

/// A committed transaction: reads as (key, version), writes as (key, version).
fn txn(id: u64, time: (u64, u64), reads: &[(u64, u64)], writes: &[(u64, u64)]) -> Event {
    Event {
        client: id as u32,
        id,
        start_ns: time.0,
        end_ns: time.1,
        end: End::Committed,
        reads: reads.iter().map(|&(key, version)| Read { key, version, present: true }).collect(),
        writes: writes
            .iter()
            .map(|&(key, version)| Write { key, version, deleted: false })
            .collect(),
        unseen_writes: Vec::new(),
    }
}

const ANY: (u64, u64) = (0, 1_000);

fn found(events: &[Event]) -> Vec<Anomaly> {
    check(events).violations.iter().map(|violation| violation.anomaly).collect()
}

#[test]
fn every_anomaly_class_is_caught_and_named() {
    let aborted = Event { end: End::Aborted, ..txn(1, ANY, &[], &[(1, 2)]) };
    let deleted = Event {
        writes: vec![Write { key: 1, version: 2, deleted: true }],
        ..txn(1, ANY, &[(1, 1)], &[])
    };
    let missing =
        Event { reads: vec![Read { key: 1, version: 9, present: false }], ..txn(2, ANY, &[], &[]) };
    let cases: Vec<(Anomaly, Vec<Event>)> = vec![
        (Anomaly::DuplicateInstall, vec![txn(1, ANY, &[], &[(1, 2)]), txn(2, ANY, &[], &[(1, 2)])]),
        (Anomaly::AbortedRead, vec![aborted, txn(2, ANY, &[(1, 2)], &[])]),
        (Anomaly::UnknownVersion, vec![txn(1, ANY, &[(1, 7)], &[])]),
        (Anomaly::WrongPresence, vec![deleted, txn(2, ANY, &[(1, 2)], &[])]),
        (Anomaly::WrongPresence, vec![txn(1, ANY, &[(1, 1)], &[(1, 2)]), missing]),
        (
            Anomaly::DirtyWrite,
            vec![txn(1, ANY, &[], &[(1, 2), (2, 3)]), txn(2, ANY, &[], &[(1, 3), (2, 2)])],
        ),
        (
            Anomaly::CircularInformation,
            vec![txn(1, ANY, &[(2, 2)], &[(1, 2)]), txn(2, ANY, &[(1, 2)], &[(2, 2)])],
        ),
        (
            Anomaly::LostUpdate,
            vec![txn(1, ANY, &[(1, 1)], &[(1, 2)]), txn(2, ANY, &[(1, 1)], &[(1, 3)])],
        ),
        (
            Anomaly::ReadSkew,
            vec![txn(1, ANY, &[], &[(1, 2), (2, 2)]), txn(2, ANY, &[(1, 1), (2, 2)], &[])],
        ),
        (
            Anomaly::WriteSkew,
            vec![
                txn(1, ANY, &[(1, 1), (2, 1)], &[(1, 2)]),
                txn(2, ANY, &[(1, 1), (2, 1)], &[(2, 2)]),
            ],
        ),
        (
            Anomaly::RealTime,
            vec![txn(1, (0, 10), &[(1, 1)], &[(1, 2)]), txn(2, (20, 30), &[(1, 1)], &[])],
        ),
    ];
    for (anomaly, events) in cases {
        let found = found(&events);
        assert!(found.contains(&anomaly), "{anomaly:?} expected, {found:?} found");
    }
}

#[test]
fn an_unknown_transaction_counts_only_if_it_was_seen() {
    let unknown = |writes| Event { end: End::Unknown, ..txn(1, (0, 5), &[(1, 1)], writes) };
    let overtaken = vec![unknown(&[(1, 2)]), txn(2, (10, 20), &[(1, 1)], &[(1, 2)])];
    assert_eq!(found(&overtaken), []);
    let seen = vec![unknown(&[(1, 2)]), txn(2, (10, 20), &[(1, 2)], &[(1, 3)])];
    let report = check(&seen);
    assert_eq!((report.violations.len(), report.unknown_effective), (0, 1));
    // Its effect may come late, but not before its start.
    let early = vec![txn(2, (0, 1), &[(1, 2)], &[]), Event { start_ns: 5, ..unknown(&[(1, 2)]) }];
    assert_eq!(found(&early), [Anomaly::RealTime]);
}

#[test]
fn a_write_that_its_client_never_learnt_explains_what_others_read_of_its_key_only() {
    let unknown = Event { end: End::Unknown, unseen_writes: vec![1], ..txn(1, (0, 5), &[], &[]) };
    let reader = |key| txn(2, (10, 20), &[(key, 2)], &[(key, 3)]);
    assert_eq!(found(&[unknown.clone(), reader(1)]), []);
    assert_eq!(found(&[unknown.clone(), reader(2)]), [Anomaly::UnknownVersion]);
    // What is known of the key still counts: the third read the version that the second replaced.
    let stale = txn(3, (30, 40), &[(1, 2)], &[]);
    assert_eq!(found(&[unknown, reader(1), stale]), [Anomaly::RealTime]);
}

#[test]
fn an_absent_read_sees_the_newest_deletion_below_its_floor() {
    let delete = Event {
        writes: vec![Write { key: 1, version: 2, deleted: true }],
        ..txn(1, (0, 10), &[(1, 1)], &[])
    };
    let absent = |version| Event {
        reads: vec![Read { key: 1, version, present: false }],
        ..txn(2, (20, 30), &[], &[(1, version + 1)])
    };
    assert_eq!(found(&[delete.clone(), absent(2)]), []);
    assert_eq!(found(&[delete, absent(7)]), []);
}

/// A random tiny history: transactions that ran at instants, with reads that may be wrong.
fn tiny(random: &mut Stream) -> Vec<Event> {
    let count = 2 + random.below(4);
    let mut versions = [1u64; 3];
    (0..count)
        .map(|id| {
            let start = random.below(20);
            let mut event = txn(id + 1, (start, start + random.below(20)), &[], &[]);
            for key in 0..3 {
                let seen = versions[key as usize];
                if random.below(2) == 0 {
                    let back = random.below(3).min(seen - 1);
                    let version = if random.below(4) == 0 { seen - back } else { seen };
                    event.reads.push(Read { key, version, present: true });
                }
                if random.below(3) == 0 {
                    versions[key as usize] += 1;
                    let version = versions[key as usize];
                    event.writes.push(Write { key, version, deleted: false });
                }
            }
            event
        })
        .collect()
}

/// Is some order of the transactions serial, in agreement with versions and real time?
fn some_order_works(events: &[Event]) -> bool {
    fn extend(events: &[Event], done: &mut Vec<usize>) -> bool {
        if done.len() == events.len() {
            return true;
        }
        (0..events.len()).any(|next| {
            let rest = (0..events.len()).filter(|index| !done.contains(index));
            let in_time = rest.clone().all(|other| events[other].end_ns >= events[next].start_ns);
            if done.contains(&next) || !in_time {
                return false;
            }
            let current = |key: u64| {
                let writes = done.iter().flat_map(|&index| &events[index].writes);
                writes.filter(|write| write.key == key).map(|write| write.version).max()
            };
            let reads = events[next]
                .reads
                .iter()
                .all(|read| current(read.key).unwrap_or(1) == read.version);
            let writes = events[next]
                .writes
                .iter()
                .all(|write| current(write.key).unwrap_or(1) < write.version);
            if !reads || !writes {
                return false;
            }
            done.push(next);
            let works = extend(events, done);
            done.pop();
            works
        })
    }
    extend(events, &mut Vec::new())
}

#[test]
fn it_agrees_with_trying_every_order() {
    let mut random = Stream::new(11, Purpose::Test, 0);
    let (mut good, mut bad) = (0, 0);
    for _ in 0..4_000 {
        let events = tiny(&mut random);
        let works = some_order_works(&events);
        let report = check(&events);
        assert_eq!(report.violations.is_empty(), works, "{events:#?}\n{report:#?}");
        if works { good += 1 } else { bad += 1 }
    }
    assert!(good > 400 && bad > 400, "{good} good and {bad} bad: one side is not tested");
}

#[test]
fn a_long_serial_history_passes_and_one_wrong_read_in_it_does_not() {
    let mut random = Stream::new(2, Purpose::Test, 1);
    let mut versions = vec![1u64; 1_000];
    let mut events: Vec<Event> = (0..50_000u64)
        .map(|id| {
            let (a, b) = (random.below(1_000), random.below(1_000));
            let reads = [(a, versions[a as usize]), (b, versions[b as usize])];
            versions[a as usize] += 1;
            // Ends overlap the next starts, as with clients side by side.
            txn(id + 1, (id * 10, id * 10 + 45), &reads, &[(a, versions[a as usize])])
        })
        .collect();
    assert_eq!(found(&events), []);
    let victim = events.iter_mut().rev().find(|event| event.reads[1].version > 5).unwrap();
    victim.reads[1].version -= 3;
    assert!(!found(&events).is_empty(), "a stale read was not noticed");
}
