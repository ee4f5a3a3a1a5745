//! The execution logic of TATP's transactions. Each outputs by how many forwardings there are more,
//! then what it has found.

use nicol_core::ids::Key;
use nicol_core::txn::{Entry, Txn, Verdict};

use super::rows::{
    Asked, HOURS, access, access_of, call_forwarding, facility, facility_of, forwarding,
    forwarding_of, number_of, subscriber, subscriber_of,
};

/// The value at `index`, `LEN` bytes long; `None` of one that is absent, or of another length.
fn row<const LEN: usize>(txn: &Txn, index: usize) -> Option<[u8; LEN]> {
    txn.value(index)?.try_into().ok()
}

/// Has the transaction these keys from `first` on, fetched, and does it write them? What comes from
/// a peer may have others.
fn has_from(txn: &Txn, first: usize, keys: &[(Key, bool)]) -> bool {
    let entries = txn.entries().get(first..).unwrap_or_default();
    entries.len() == keys.len() && is_of(entries, keys)
}

fn is_of(entries: &[Entry], keys: &[(Key, bool)]) -> bool {
    entries.iter().zip(keys).all(|(entry, key)| entry.fetched && (entry.key, entry.write) == *key)
}

/// True if it has these keys, and no others.
fn has(txn: &Txn, keys: &[(Key, bool)]) -> bool {
    has_from(txn, 0, keys)
}

/// Ends a procedure: `None` refuses, otherwise outputs by how many forwardings there are more.
fn finish(txn: &mut Txn, change: Option<i64>) -> Verdict {
    let Some(change) = change else { return Verdict::Refuse };
    txn.output.extend_from_slice(&change.to_le_bytes());
    Verdict::Commit
}

/// Adds `keys` behind the number's if they are not there yet: the index has led to them. `None`
/// once they are fetched.
fn found_by_number(txn: &mut Txn, asked: Asked, keys: &[(Key, bool)]) -> Option<Verdict> {
    let number = [(number_of(asked.subscriber), false)];
    if has(txn, &number) {
        if row(txn, 0) != Some(asked.subscriber.to_le_bytes()) {
            return Some(Verdict::Refuse);
        }
        for &(key, write) in keys {
            if write {
                txn.write(key)
            } else {
                txn.read(key)
            };
        }
        return Some(Verdict::More);
    }
    if txn.entries().first().is_some_and(|first| is_of(&[*first], &number))
        && has_from(txn, 1, keys)
    {
        None
    } else {
        Some(Verdict::Refuse)
    }
}

/// Outputs the subscriber's record.
pub(super) fn get_subscriber_data(txn: &mut Txn) -> Verdict {
    let read = |txn: &Txn| {
        let asked = Asked::parse(txn.args())?;
        has(txn, &[(subscriber_of(asked.subscriber), false)]).then_some(())?;
        row::<{ subscriber::LEN }>(txn, 0)
    };
    let Some(found) = read(txn) else { return Verdict::Refuse };
    let verdict = finish(txn, Some(0));
    txn.output.extend_from_slice(&found);
    verdict
}

/// Outputs the numbers that calls of that hour go to.
pub(super) fn get_new_destination(txn: &mut Txn) -> Verdict {
    let Some(asked) = Asked::parse(txn.args()) else { return Verdict::Refuse };
    let (subscriber, kind) = (asked.subscriber, u64::from(asked.kind));
    let forwarding = |start| (forwarding_of(subscriber, kind, start), false);
    let keys = [
        (facility_of(subscriber, kind), false),
        forwarding(0),
        forwarding(HOURS),
        forwarding(2 * HOURS),
    ];
    // From hours up to the one that is asked for.
    let keys = &keys[..2 + usize::from(asked.start / HOURS)];
    if !has(txn, keys) {
        return Verdict::Refuse;
    }
    let verdict = finish(txn, Some(0));
    let active = row::<{ facility::LEN }>(txn, 0).is_some_and(|row| row[facility::IS_ACTIVE] == 1);
    for index in 1..keys.len() {
        if let Some(found) = row::<{ forwarding::LEN }>(txn, index)
            && active
            && asked.end < found[forwarding::END]
        {
            txn.output.extend_from_slice(&found[forwarding::NUMBER]);
        }
    }
    verdict
}

/// Outputs the record, if it exists.
pub(super) fn get_access_data(txn: &mut Txn) -> Verdict {
    let Some(asked) = Asked::parse(txn.args()) else { return Verdict::Refuse };
    if !has(txn, &[(access_of(asked.subscriber, asked.kind.into()), false)]) {
        return Verdict::Refuse;
    }
    // What does not exist is an answer, too.
    let found = row::<{ access::LEN }>(txn, 0);
    let verdict = finish(txn, Some(0));
    txn.output.extend_from_slice(found.as_ref().map_or(&[], |found| &found[8..]));
    verdict
}

/// Refuses without the facility.
pub(super) fn update_subscriber_data(txn: &mut Txn) -> Verdict {
    let update = |txn: &mut Txn| {
        let asked = Asked::parse(txn.args())?;
        let facility = facility_of(asked.subscriber, asked.kind.into());
        has(txn, &[(subscriber_of(asked.subscriber), true), (facility, true)]).then_some(())?;
        let mut found = row::<{ subscriber::LEN }>(txn, 0)?;
        let mut facility = row::<{ facility::LEN }>(txn, 1)?;
        let [data, bit, ..] = asked.data.to_le_bytes();
        let bits = &mut found[subscriber::BITS];
        bits[0] = bits[0] & !1 | bit & 1;
        facility[facility::DATA_A] = data;
        txn.put(0, &found);
        txn.put(1, &facility);
        Some(0)
    };
    let change = update(txn);
    finish(txn, change)
}

/// Finds the subscriber by number.
pub(super) fn update_location(txn: &mut Txn) -> Verdict {
    let Some(asked) = Asked::parse(txn.args()) else { return Verdict::Refuse };
    if let Some(early) = found_by_number(txn, asked, &[(subscriber_of(asked.subscriber), true)]) {
        return early;
    }
    let found = row::<{ subscriber::LEN }>(txn, 1).map(|mut found| {
        found[subscriber::LOCATION].copy_from_slice(&asked.data.to_le_bytes());
        txn.put(1, &found);
        0
    });
    finish(txn, found)
}

/// Refuses without the facility, or if it is there already.
pub(super) fn insert_call_forwarding(txn: &mut Txn) -> Verdict {
    let Some(asked) = Asked::parse(txn.args()) else { return Verdict::Refuse };
    let (subscriber, kind) = (asked.subscriber, u64::from(asked.kind));
    // It asks for all types of facilities, of which one is its own.
    let facility = |kind| (facility_of(subscriber, kind), false);
    let key = forwarding_of(subscriber, kind, asked.start);
    let keys = [facility(0), facility(1), facility(2), facility(3), (key, true)];
    if let Some(early) = found_by_number(txn, asked, &keys) {
        return early;
    }
    let facility = 1 + usize::from(asked.kind);
    let fits = (asked.start + 1..=asked.start + HOURS).contains(&asked.end);
    if !fits || txn.value(facility).is_none() || txn.value(keys.len()).is_some() {
        return Verdict::Refuse;
    }
    txn.put(keys.len(), &call_forwarding(key, asked.end));
    finish(txn, Some(1))
}

/// Refuses if there is none.
pub(super) fn delete_call_forwarding(txn: &mut Txn) -> Verdict {
    let Some(asked) = Asked::parse(txn.args()) else { return Verdict::Refuse };
    let key = forwarding_of(asked.subscriber, asked.kind.into(), asked.start);
    if let Some(early) = found_by_number(txn, asked, &[(key, true)]) {
        return early;
    }
    if txn.value(1).is_none() {
        return Verdict::Refuse;
    }
    txn.delete(1);
    finish(txn, Some(-1))
}
