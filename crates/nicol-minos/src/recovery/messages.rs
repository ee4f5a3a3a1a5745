//! What nodes ask one another for, and ship, when one of them recovers.

use std::ops::RangeInclusive;

use nicol_core::fabric::Message;
use nicol_core::ids::Key;
use nicol_core::wire::{Malformed, Reader, Writer};

use crate::messages::SHIP;
use crate::timestamp::Timestamp;
use crate::value::Value;

/// Asks for what the sender lacks of the records from `first` up to `last`.
// DEVIATION [MINOS24 III-E]: "the log of all the updates that have been committed since the time
// when F stopped responding" is found by comparing timestamps. What F has acknowledged before it
// stopped may not have become durable there in the weak models, so that the time alone does not
// tell what it lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ship<'a> {
    /// The view in which the sender is a member.
    pub(super) epoch: u64,
    pub(super) first: Key,
    pub(super) last: Key,
    /// The sender's records of the range, by ascending key.
    pub(super) own: &'a [(Key, Timestamp)],
}

impl Message for Ship<'_> {
    const KIND: u16 = SHIP;

    fn emit(&self, to: &mut Writer<'_>) {
        let own = self.own.iter().flat_map(|(key, ts)| [key.0, ts.bits()]);
        [self.epoch, self.first.0, self.last.0]
            .into_iter()
            .chain(own)
            .for_each(|word| to.u64(word));
    }
}

/// The epoch, the keys, and what the sender has of them.
pub(super) type Asked = (u64, RangeInclusive<Key>, Vec<(Key, Timestamp)>);

impl Ship<'_> {
    pub(super) fn parse(body: &[u8]) -> Result<Asked, Malformed> {
        let mut reader = Reader::new(body);
        let [epoch, first, last] = reader.u64s()?;
        let mut own = Vec::new();
        while !reader.rest().is_empty() {
            let [key, ts] = reader.u64s()?;
            own.push((Key(key), Timestamp::of_bits(ts)));
        }
        if !own.is_sorted_by_key(|(key, _)| *key) {
            return Err(Malformed { what: "timestamps of records out of order" });
        }
        Ok((epoch, Key(first)..=Key(last), own))
    }
}

/// A record as it is shipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shipped {
    pub(super) key: Key,
    pub(super) ts: Timestamp,
    pub(super) glb_volatile_ts: Timestamp,
    pub(super) glb_durable_ts: Timestamp,
    /// The owner of its read lock; [`Timestamp::NONE`] if it is free.
    pub(super) owner: Timestamp,
    pub(super) value: Option<Value>,
}

/// Records of the sender that differ from the receiver's or are under way, in the order of their
/// keys.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Page {
    /// Whether the sender serves.
    pub(super) ready: bool,
    /// Whether more records follow.
    pub(super) more: bool,
    /// The highest version that the sender has forgotten.
    pub(super) forgotten: u64,
    pub(super) records: Vec<Shipped>,
}

impl Message for Page {
    const KIND: u16 = 25;

    fn emit(&self, to: &mut Writer<'_>) {
        // Where nothing is forgotten, nothing is said of it.
        let forgets = if self.forgotten > 0 { Self::FORGETS } else { 0 };
        to.u8(u8::from(self.ready) | forgets);
        to.u8(u8::from(self.more));
        if self.forgotten > 0 {
            to.u64(self.forgotten);
        }
        for record in &self.records {
            let times = [record.ts, record.glb_volatile_ts, record.glb_durable_ts, record.owner];
            to.u64(record.key.0);
            times.into_iter().for_each(|ts| to.u64(ts.bits()));
            to.u8(u8::from(record.value.is_some()));
            let value = record.value.as_deref().unwrap_or_default();
            to.u32(value.len() as u32);
            to.bytes(value);
        }
    }
}

impl Page {
    /// Flag of the first byte: what the sender has forgotten is told.
    const FORGETS: u8 = 2;

    pub(super) fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let (flags, more) = (reader.u8()?, reader.u8()? == 1);
        let ready = flags & 1 == 1;
        let forgotten = if flags & Self::FORGETS != 0 { reader.u64()? } else { 0 };
        let mut records = Vec::new();
        while !reader.rest().is_empty() {
            let [key, times @ ..] = reader.u64s::<5>()?;
            let [ts, glb_volatile_ts, glb_durable_ts, owner] = times.map(Timestamp::of_bits);
            let (present, len) = (reader.u8()? == 1, reader.u32()?);
            let value = reader.bytes(len as usize)?;
            let (key, value) = (Key(key), present.then(|| value.into()));
            records.push(Shipped { key, ts, glb_volatile_ts, glb_durable_ts, owner, value });
        }
        Ok(Self { ready, more, forgotten, records })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_node_has_is_told_in_order() {
        let own = [(Key(1), Timestamp::of_bits(8)), (Key(4), Timestamp::NONE)];
        let asked = Ship { epoch: 3, first: Key(0), last: Key(9), own: &own };
        let mut body = Vec::new();
        asked.emit(&mut Writer::new(&mut body));
        assert_eq!(Ship::parse(&body), Ok((3, Key(0)..=Key(9), own.to_vec())));
        assert!(Ship::parse(&body[..body.len() - 8]).is_err(), "a key without a timestamp");
        body[24] = 5;
        assert!(Ship::parse(&body).is_err(), "out of order");
    }

    #[test]
    fn pages_survive_the_wire_and_torn_ones_are_refused() {
        let ts = Timestamp::of_bits;
        let record = |key, owner, value: Option<&[u8]>| Shipped {
            key: Key(key),
            ts: ts(5),
            glb_volatile_ts: ts(4),
            glb_durable_ts: ts(3),
            owner: ts(owner),
            value: value.map(Into::into),
        };
        let records = vec![record(1, 0, Some(b"one")), record(2, 7, None)];
        for forgotten in [0, 9] {
            let page = Page { ready: true, more: false, forgotten, records: records.clone() };
            let mut body = Vec::new();
            page.emit(&mut Writer::new(&mut body));
            assert_eq!(Page::parse(&body), Ok(page));
            assert!(Page::parse(&body[..body.len() - 1]).is_err());
        }
    }
}
