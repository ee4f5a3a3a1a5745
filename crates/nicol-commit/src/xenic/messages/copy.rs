//! Messages that give a node that comes back its records. (decision 0105)

use nicol_core::fabric::Message;
use nicol_core::ids::{Key, ShardId, Version};
use nicol_core::wire::{Malformed, Reader, Writer};

use super::{COPIED, COPY, COPY_RANGE};
use crate::messages::{emit_value, parse_value};

/// Where a range of a shard begins: the tables come one after the other, and behind them the
/// ordered ones, all as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::xenic) struct Place {
    /// The place of the table in the order of the shard's.
    pub(in crate::xenic) table: u16,
    /// The position in a hash table, or the first key of an ordered one.
    pub(in crate::xenic) at: u64,
}

impl Place {
    fn parse(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self { table: from.u16()?, at: from.u64()? })
    }

    fn emit(self, to: &mut Writer<'_>) {
        to.u16(self.table);
        to.u64(self.at);
    }
}

/// COPY_RANGE: the records of a shard from this place on, some kilobytes of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::xenic) struct CopyRange {
    pub(in crate::xenic) shard: ShardId,
    pub(in crate::xenic) from: Place,
}

impl CopyRange {
    pub(in crate::xenic) fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(body);
        let parsed = Self { shard: ShardId(from.u16()?), from: Place::parse(&mut from)? };
        from.finish()?;
        Ok(parsed)
    }
}

impl Message for CopyRange {
    const KIND: u16 = COPY_RANGE;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u16(self.shard.0);
        self.from.emit(to);
    }
}

/// The records of a range, each with its version.
#[derive(Debug, Default)]
pub(in crate::xenic) struct Records {
    bytes: Vec<u8>,
    count: u32,
}

impl Records {
    /// Adds a record.
    pub(in crate::xenic) fn add(&mut self, key: Key, version: Version, value: &[u8]) {
        let mut to = Writer::new(&mut self.bytes);
        to.u64(key.0);
        to.u64(version.0);
        emit_value(Some(value), &mut to);
        self.count += 1;
    }

    /// Bytes that they take.
    pub(in crate::xenic) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// How many they are.
    pub(in crate::xenic) const fn count(&self) -> u32 {
        self.count
    }
}

/// The host's answer to COPY_RANGE: the records, and where the next range begins, if any is left.
pub(in crate::xenic) struct RangeReply {
    pub(in crate::xenic) next: Option<Place>,
    pub(in crate::xenic) records: Records,
}

impl Message for RangeReply {
    const KIND: u16 = 0;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u8(u8::from(self.next.is_some()));
        self.next.unwrap_or_default().emit(to);
        to.bytes(&self.records.bytes);
    }
}

/// Where the next range begins, if any is left, and the records of this one.
pub(in crate::xenic) fn parse_range(body: &[u8]) -> Result<(Option<Place>, &[u8]), Malformed> {
    let mut from = Reader::new(body);
    let more = from.u8()? == 1;
    let next = Place::parse(&mut from)?;
    Ok((more.then_some(next), from.rest()))
}

/// COPY: records of a shard, as a [`RangeReply`] has them.
pub(in crate::xenic) struct Copy<'a> {
    pub(in crate::xenic) shard: ShardId,
    pub(in crate::xenic) records: &'a [u8],
}

impl Message for Copy<'_> {
    const KIND: u16 = COPY;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u16(self.shard.0);
        to.bytes(self.records);
    }
}

/// A record of a COPY.
pub(in crate::xenic) type Copied<'a> = (Key, Version, &'a [u8]);

/// The shard and the records of a COPY.
pub(in crate::xenic) fn parse_copy(body: &[u8]) -> Result<(ShardId, Vec<Copied<'_>>), Malformed> {
    let mut from = Reader::new(body);
    let (shard, mut records) = (ShardId(from.u16()?), Vec::new());
    while !from.rest().is_empty() {
        let (key, version, len) = (Key(from.u64()?), Version(from.u64()?), from.u32()?);
        let Some(value) = parse_value(&mut from, len)? else {
            return Err(Malformed { what: "a deletion in a copy" });
        };
        records.push((key, version, value));
    }
    Ok((shard, records))
}

/// COPIED: the receiver has every record of a shard.
pub(in crate::xenic) struct CopiedShard(pub(in crate::xenic) ShardId);

impl CopiedShard {
    pub(in crate::xenic) fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(body);
        let shard = ShardId(from.u16()?);
        from.finish()?;
        Ok(Self(shard))
    }
}

impl Message for CopiedShard {
    const KIND: u16 = COPIED;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u16(self.0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_host_reads_is_what_another_one_applies() {
        let mut records = Records::default();
        records.add(Key(7), Version(3), b"seven");
        records.add(Key(9), Version(1), b"");
        let next = Some(Place { table: 2, at: 77 });
        let mut body = Vec::new();
        RangeReply { next, records }.emit(&mut Writer::new(&mut body));
        let (parsed, records) = parse_range(&body).unwrap();
        assert_eq!(parsed, next);
        let mut copy = Vec::new();
        Copy { shard: ShardId(4), records }.emit(&mut Writer::new(&mut copy));
        let (shard, records) = parse_copy(&copy).unwrap();
        assert_eq!(shard, ShardId(4));
        let expected: [Copied<'_>; 2] = [(Key(7), Version(3), b"seven"), (Key(9), Version(1), b"")];
        assert_eq!(records, expected);
        assert!(parse_copy(&copy[..copy.len() - 1]).is_err());
    }
}
