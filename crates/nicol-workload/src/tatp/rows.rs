//! TATP's keys and values, and what a transaction is asked for.

use std::ops::Range;

use nicol_core::ids::{Key, TableId};

use crate::placement::mix;

const fn table(number: u8) -> TableId {
    TableId(TableId::PARTITIONED.0 + number)
}

/// SUBSCRIBER.
pub const SUBSCRIBER: TableId = table(1);
/// ACCESS_INFO, by subscriber and type.
pub const ACCESS_INFO: TableId = table(2);
/// SPECIAL_FACILITY, by subscriber and type.
pub const SPECIAL_FACILITY: TableId = table(3);
/// CALL_FORWARDING, by subscriber, type of facility and start.
pub const CALL_FORWARDING: TableId = table(4);
/// Index: subscribers by number.
pub const NUMBERS: TableId = table(5);

/// Types of access and of facilities.
pub(super) const TYPES: u64 = 4;
/// When forwarding may start: each eight hours of a day.
pub(super) const STARTS: u64 = 3;
pub(super) const HOURS: u8 = 8;
/// Bytes of the longest value.
pub const VALUE_BYTES_MAX: usize = subscriber::LEN;

pub(super) mod subscriber {
    use super::Range;
    pub const KEY: Range<usize> = 0..8;
    pub const BITS: Range<usize> = 8..10;
    /// Ten numbers of four bits, ten bytes, and a location that stays.
    pub const FIXED: Range<usize> = 10..29;
    pub const LOCATION: Range<usize> = 29..33;
    pub const LEN: usize = LOCATION.end;
}

pub(super) mod access {
    pub const LEN: usize = 18;
}

pub(super) mod facility {
    use super::Range;
    pub const IS_ACTIVE: usize = 8;
    pub const DATA_A: usize = 9;
    /// Error control and another five bytes.
    pub const FIXED: Range<usize> = 10..16;
    pub const LEN: usize = FIXED.end;
}

pub(super) mod forwarding {
    use super::Range;
    pub const END: usize = 8;
    pub const NUMBER: Range<usize> = 9..24;
    pub const LEN: usize = NUMBER.end;
}

/// Arguments: a subscriber or its number, and what the transaction wants of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) subscriber: u64,
    pub(super) kind: u8,
    pub(super) start: u8,
    pub(super) end: u8,
    pub(super) data: u32,
}

impl Asked {
    const LEN: usize = 15;

    pub(super) fn emit(self) -> [u8; Self::LEN] {
        let mut args = [0; Self::LEN];
        args[..8].copy_from_slice(&self.subscriber.to_le_bytes());
        args[8..11].copy_from_slice(&[self.kind, self.start, self.end]);
        args[11..].copy_from_slice(&self.data.to_le_bytes());
        args
    }

    /// `None` of what no client sends.
    pub(super) fn parse(args: &[u8]) -> Option<Self> {
        let args: &[u8; Self::LEN] = args.try_into().ok()?;
        let (subscriber, rest) = args.split_first_chunk::<8>()?;
        let [kind, start, end, data @ ..] = rest else { return None };
        let asked = Self {
            subscriber: u64::from_le_bytes(*subscriber),
            kind: *kind,
            start: *start,
            end: *end,
            data: u32::from_le_bytes(data.try_into().ok()?),
        };
        let known = asked.subscriber >> 32 == 0
            && u64::from(asked.kind) < TYPES
            && asked.start.is_multiple_of(HOURS)
            && u64::from(asked.start / HOURS) < STARTS;
        known.then_some(asked)
    }
}

fn key(table: TableId, subscriber: u64, row: u64) -> Key {
    Key::partitioned(table, mix(subscriber) as u16, row)
}

pub(super) fn subscriber_of(number: u64) -> Key {
    key(SUBSCRIBER, number, number)
}

pub(super) fn number_of(subscriber: u64) -> Key {
    key(NUMBERS, subscriber, subscriber)
}

pub(super) fn access_of(subscriber: u64, kind: u64) -> Key {
    key(ACCESS_INFO, subscriber, TYPES * subscriber + kind)
}

pub(super) fn facility_of(subscriber: u64, kind: u64) -> Key {
    key(SPECIAL_FACILITY, subscriber, TYPES * subscriber + kind)
}

pub(super) fn forwarding_of(subscriber: u64, kind: u64, start: u8) -> Key {
    let row = (TYPES * subscriber + kind) * STARTS + u64::from(start / HOURS);
    key(CALL_FORWARDING, subscriber, row)
}

/// True if `member` is among the `least` to `of` members that `bits` draw of `of`.
fn is_drawn(bits: u64, member: u64, least: u64, of: u64) -> bool {
    let count = least + bits % (of + 1 - least);
    let first = (bits >> 32) % of;
    (member + of - first) % of < count
}

fn has_access(subscriber: u64, kind: u64) -> bool {
    is_drawn(mix(subscriber ^ 1 << 40), kind, 1, TYPES)
}

fn has_facility(subscriber: u64, kind: u64) -> bool {
    is_drawn(mix(subscriber ^ 2 << 40), kind, 1, TYPES)
}

/// Does the facility forward calls from then on, before anything runs?
fn has_forwarding(subscriber: u64, kind: u64, start: u8) -> bool {
    let bits = mix((TYPES * subscriber + kind) ^ 3 << 40);
    has_facility(subscriber, kind) && is_drawn(bits, u64::from(start / HOURS), 0, STARTS)
}

/// Fills `bytes` with what follows from `seed`.
fn fill(bytes: &mut [u8], seed: u64) {
    for (at, chunk) in bytes.chunks_mut(8).enumerate() {
        chunk.copy_from_slice(&mix(seed ^ at as u64).to_le_bytes()[..chunk.len()]);
    }
}

fn initial_subscriber(key: Key) -> [u8; subscriber::LEN] {
    let mut value = [0; subscriber::LEN];
    fill(&mut value, key.0);
    value[subscriber::KEY].copy_from_slice(&key.0.to_le_bytes());
    value
}

fn access_info(key: Key) -> [u8; access::LEN] {
    let mut value = [0; access::LEN];
    fill(&mut value, key.0);
    value[subscriber::KEY].copy_from_slice(&key.0.to_le_bytes());
    value
}

fn initial_facility(key: Key) -> [u8; facility::LEN] {
    let mut value = [0; facility::LEN];
    fill(&mut value, key.0);
    value[subscriber::KEY].copy_from_slice(&key.0.to_le_bytes());
    value[facility::IS_ACTIVE] = u8::from(mix(key.0 ^ 1) % 100 < 85);
    value
}

/// The number that calls go to follows from key and end, so that a torn value shows.
pub(super) fn call_forwarding(key: Key, end: u8) -> [u8; forwarding::LEN] {
    let mut value = [0; forwarding::LEN];
    fill(&mut value[forwarding::NUMBER], key.0 ^ u64::from(end));
    value[subscriber::KEY].copy_from_slice(&key.0.to_le_bytes());
    value[forwarding::END] = end;
    value
}

/// The initial records of a subscriber.
pub(super) fn each_of(subscriber: u64, each: &mut dyn FnMut(Key, &[u8])) {
    let key = subscriber_of(subscriber);
    each(key, &initial_subscriber(key));
    each(number_of(subscriber), &subscriber.to_le_bytes());
    for kind in 0..TYPES {
        if has_access(subscriber, kind) {
            let key = access_of(subscriber, kind);
            each(key, &access_info(key));
        }
        if has_facility(subscriber, kind) {
            let key = facility_of(subscriber, kind);
            each(key, &initial_facility(key));
        }
        for start in [0, HOURS, 2 * HOURS] {
            if has_forwarding(subscriber, kind, start) {
                let key = forwarding_of(subscriber, kind, start);
                each(key, &call_forwarding(key, end_of(start, mix(key.0))));
            }
        }
    }
}

/// One to eight hours after `start`.
pub(super) fn end_of(start: u8, bits: u64) -> u8 {
    start + 1 + (bits % u64::from(HOURS)) as u8
}

/// The damage in the value of `key`, if anything is.
pub(super) fn damage(key: Key, value: &[u8]) -> Option<&'static str> {
    let names_key = value.get(subscriber::KEY) == Some(&key.0.to_le_bytes()[..]);
    let stays = |initial: &[u8], fixed: Range<usize>| {
        names_key && value.len() == initial.len() && value[fixed.clone()] == initial[fixed]
    };
    let holds = match key.table() {
        SUBSCRIBER => stays(&initial_subscriber(key), subscriber::FIXED),
        ACCESS_INFO => value == access_info(key),
        SPECIAL_FACILITY => {
            let initial = initial_facility(key);
            stays(&initial, facility::FIXED)
                && value[facility::IS_ACTIVE] == initial[facility::IS_ACTIVE]
        }
        CALL_FORWARDING => {
            let row = key.row() & ((1 << Key::PARTITIONED_ROW_BITS) - 1);
            let (facility, start) = (row / STARTS, (row % STARTS) as u8 * HOURS);
            if !has_facility(facility / TYPES, facility % TYPES) {
                return Some("forwards calls of no facility");
            }
            let end = value.get(forwarding::END).copied().unwrap_or_default();
            (start + 1..=start + HOURS).contains(&end) && value == call_forwarding(key, end)
        }
        NUMBERS => {
            let row = key.row() & ((1 << Key::PARTITIONED_ROW_BITS) - 1);
            value == row.to_le_bytes()
        }
        _ => return Some("is of no table"),
    };
    (!holds).then_some("holds a torn or foreign value")
}
