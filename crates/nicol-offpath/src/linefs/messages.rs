//! Messages: of the chain, of a host to its SoC, of clients on other nodes.

use std::borrow::Cow;

use nicol_core::fabric::Message;
use nicol_core::ids::{Epoch, Key, NodeId, RKey, ShardId};
use nicol_core::wire::{Malformed, Reader, Writer};

use super::chain::{Chain, Life, Page};
use super::compress::unpacked;
use super::layout::records;

/// Asks which memory it may write chunks to.
pub(super) const HELLO: u16 = 1;
/// Host to its SoC: replicate what is in this slot of my log.
pub(super) const SUBMIT: u16 = 2;
/// To a backup: a chunk is in your memory.
pub(super) const CHUNK: u16 = 3;
/// Client to the primary's host: write a block, or remove it.
pub(super) const WRITE: u16 = 4;
/// Client to the primary's host: a block.
pub(super) const READ: u16 = 5;
const KEYS: u16 = 6;
const DONE: u16 = 7;
const WRITTEN: u16 = 8;
const FOUND: u16 = 9;
/// To a member that is complete: files of a shard.
pub(super) const SHIP: u16 = 10;
/// To a head: this member has the same files.
pub(super) const ALIGNED: u16 = 11;
const SHIPPED: u16 = 12;

/// HELLO: asks which memory takes chunks.
pub(super) struct Hello;

impl Message for Hello {
    const KIND: u16 = HELLO;

    fn emit(&self, _: &mut Writer<'_>) {}
}

/// The answer to HELLO: the keys of what others write chunks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Keys {
    pub(super) host: RKey,
    pub(super) soc: RKey,
}

impl Message for Keys {
    const KIND: u16 = KEYS;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u32(self.host.0);
        to.u32(self.soc.0);
    }
}

impl Keys {
    pub(super) fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(body);
        let (host, soc) = (RKey(from.u32()?), RKey(from.u32()?));
        from.finish().map(|()| Self { host, soc })
    }
}

/// The slot of a log, and whose log: that of a host engine of a primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) node: NodeId,
    pub(super) core: u8,
    pub(super) slot: u8,
}

impl Slot {
    fn emit(self, to: &mut Writer<'_>) {
        to.u16(self.node.0);
        to.bytes(&[self.core, self.slot]);
    }

    fn parse(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self { node: NodeId(from.u16()?), core: from.u8()?, slot: from.u8()? })
    }
}

/// The chain along which a chunk travels: its shard, its view, and the members behind the receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) shard: ShardId,
    pub(super) epoch: Epoch,
    /// Since when its head, whose log the chunk is in, has been a member.
    pub(super) since: Epoch,
    pub(super) rest: Vec<NodeId>,
}

impl Way {
    pub(super) fn along(shard: ShardId, chain: &Chain) -> Self {
        let rest = chain.backups.iter().map(|life| life.node).collect();
        Self { shard, epoch: chain.epoch, since: chain.head.since, rest }
    }

    fn emit(&self, to: &mut Writer<'_>) {
        to.u16(self.shard.0);
        to.u32(self.epoch.0);
        to.u32(self.since.0);
        self.rest.iter().for_each(|node| to.u16(node.0));
    }

    /// The last part of a message.
    fn parse(mut from: Reader<'_>) -> Result<Self, Malformed> {
        let shard = ShardId(from.u16()?);
        let (epoch, since) = (Epoch(from.u32()?), Epoch(from.u32()?));
        let mut rest = Vec::new();
        while !from.rest().is_empty() {
            rest.push(NodeId(from.u16()?));
        }
        Ok(Self { shard, epoch, since, rest })
    }
}

/// SUBMIT: so many bytes are in this slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Submit {
    pub(super) slot: Slot,
    pub(super) len: u32,
    pub(super) way: Way,
}

impl Message for Submit {
    const KIND: u16 = SUBMIT;

    fn emit(&self, to: &mut Writer<'_>) {
        self.slot.emit(to);
        to.u32(self.len);
        self.way.emit(to);
    }
}

impl Submit {
    pub(super) fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(body);
        let (slot, len) = (Slot::parse(&mut from)?, from.u32()?);
        Ok(Self { slot, len, way: Way::parse(from)? })
    }
}

/// CHUNK: a chunk that was written to the receiver's memory, and the members behind it in the
/// chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    pub(super) slot: Slot,
    /// Bytes of its writes.
    pub(super) raw: u32,
    /// Bytes as they were written.
    pub(super) len: u32,
    pub(super) crc: u32,
    pub(super) way: Way,
}

impl Message for Chunk {
    const KIND: u16 = CHUNK;

    fn emit(&self, to: &mut Writer<'_>) {
        self.slot.emit(to);
        to.u32(self.raw);
        to.u32(self.len);
        to.u32(self.crc);
        self.way.emit(to);
    }
}

impl Chunk {
    pub(super) fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(body);
        let slot = Slot::parse(&mut from)?;
        let (raw, len, crc) = (from.u32()?, from.u32()?, from.u32()?);
        Ok(Self { slot, raw, len, crc, way: Way::parse(from)? })
    }

    /// Whose chunk it is.
    pub(super) const fn head(&self) -> Life {
        Life { since: self.way.since, node: self.slot.node }
    }
}

/// The answer to SUBMIT and CHUNK: the request was carried out.
pub(super) struct Done;

impl Message for Done {
    const KIND: u16 = DONE;

    fn emit(&self, _: &mut Writer<'_>) {}
}

/// A SUBMIT or a CHUNK, and the bytes of the chunk, which say whose blocks it has.
pub(super) struct Containing<'a, M> {
    pub(super) message: &'a M,
    pub(super) content: Content<'a>,
}

/// The bytes of a chunk.
#[derive(Clone, Copy, Debug)]
pub(super) enum Content<'a> {
    /// As they were written.
    Raw(&'a [u8]),
    Packed(&'a [u8], usize),
}

impl<M: Message> Message for Containing<'_, M> {
    const KIND: u16 = M::KIND;

    fn emit(&self, to: &mut Writer<'_>) {
        self.message.emit(to);
    }

    fn name() -> &'static str {
        M::name()
    }

    fn keys(&self, each: &mut dyn FnMut(Key)) {
        let raw = match self.content {
            Content::Raw(bytes) => Ok(Cow::Borrowed(bytes)),
            Content::Packed(bytes, len) => unpacked(bytes, len).map(Cow::Owned),
        };
        // What was damaged on the way names nothing.
        let Ok(raw) = raw else { return };
        let named = records(&raw).unwrap_or_default();
        named.iter().for_each(|record| each(record.key));
    }
}

impl Life {
    fn emit(self, to: &mut Writer<'_>) {
        to.u32(self.since.0);
        to.u16(self.node.0);
    }

    fn parse(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self { since: Epoch(from.u32()?), node: NodeId(from.u16()?) })
    }
}

/// SHIP: the files of a shard from a key on, under this head and in this view or a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ship {
    pub(super) shard: ShardId,
    pub(super) epoch: Epoch,
    pub(super) head: Life,
    pub(super) first: Key,
}

impl Message for Ship {
    const KIND: u16 = SHIP;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u16(self.shard.0);
        to.u32(self.epoch.0);
        self.head.emit(to);
        to.u64(self.first.0);
    }
}

impl Ship {
    pub(super) fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(body);
        let (shard, epoch) = (ShardId(from.u16()?), Epoch(from.u32()?));
        let (head, first) = (Life::parse(&mut from)?, Key(from.u64()?));
        from.finish().map(|()| Self { shard, epoch, head, first })
    }
}

/// The answer to SHIP: the last key that it speaks of, and blocks as they are in a chunk.
pub(super) struct Shipped<'a> {
    pub(super) last: Key,
    pub(super) blocks: &'a [u8],
}

impl Message for Shipped<'_> {
    const KIND: u16 = SHIPPED;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u8(0);
        to.u64(self.last.0);
        to.bytes(self.blocks);
    }
}

impl<'a> Shipped<'a> {
    /// `None`: the node that was asked lacks the files.
    pub(super) fn parse(body: &'a [u8]) -> Result<Option<Self>, Malformed> {
        let mut from = Reader::new(body);
        match from.u8()? {
            0 => Ok(Some(Self { last: Key(from.u64()?), blocks: from.rest() })),
            1 => from.finish().map(|()| None),
            _ => Err(Malformed { what: "an answer with files" }),
        }
    }

    /// The page of files from `first` on.
    pub(super) fn page(&self, first: Key) -> Result<Page<'a>, Malformed> {
        let (records, last) = (records(self.blocks)?, self.last);
        let keys = || records.iter().map(|record| record.key);
        let in_order = keys().zip(keys().skip(1)).all(|(one, next)| one < next);
        if !in_order || !keys().all(|key| (first..=last).contains(&key)) {
            return Err(Malformed { what: "a page of files" });
        }
        Ok(Page { records, last })
    }
}

/// The answer to SHIP of a node that lacks the files.
pub(super) struct Lacking;

impl Message for Lacking {
    const KIND: u16 = SHIPPED;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u8(1);
    }
}

/// ALIGNED: this follower has the files of this head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Aligned {
    pub(super) shard: ShardId,
    pub(super) head: Life,
    pub(super) follower: Life,
}

impl Message for Aligned {
    const KIND: u16 = ALIGNED;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u16(self.shard.0);
        self.head.emit(to);
        self.follower.emit(to);
    }
}

impl Aligned {
    pub(super) fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(body);
        let shard = ShardId(from.u16()?);
        let (head, follower) = (Life::parse(&mut from)?, Life::parse(&mut from)?);
        from.finish().map(|()| Self { shard, head, follower })
    }
}

/// WRITE: a write of a client on another node.
pub(super) struct Write<'a> {
    pub(super) key: Key,
    /// The new content of the block; `None`: it is removed.
    pub(super) value: Option<&'a [u8]>,
}

impl Message for Write<'_> {
    const KIND: u16 = WRITE;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u64(self.key.0);
        to.u8(u8::from(self.value.is_some()));
        to.bytes(self.value.unwrap_or_default());
    }

    fn keys(&self, each: &mut dyn FnMut(Key)) {
        each(self.key);
    }
}

impl<'a> Write<'a> {
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(body);
        let (key, kind) = (Key(from.u64()?), from.u8()?);
        match (kind, from.rest()) {
            (0, []) => Ok(Self { key, value: None }),
            (1, value) => Ok(Self { key, value: Some(value) }),
            _ => Err(Malformed { what: "a write of a block" }),
        }
    }
}

/// The answer to WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// It has this version.
    Held(u64),
    /// It may be there or not.
    Unknown,
    /// It had no effect: the files are out of service.
    Unavailable,
}

impl Message for Written {
    const KIND: u16 = WRITTEN;

    fn emit(&self, to: &mut Writer<'_>) {
        let (kind, version) = match self {
            Self::Held(version) => (0, *version),
            Self::Unknown => (1, 0),
            Self::Unavailable => (2, 0),
        };
        to.u8(kind);
        to.u64(version);
    }
}

impl Written {
    pub(super) fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(body);
        let (kind, version) = (from.u8()?, from.u64()?);
        from.finish()?;
        match kind {
            0 => Ok(Self::Held(version)),
            1 => Ok(Self::Unknown),
            2 => Ok(Self::Unavailable),
            _ => Err(Malformed { what: "an answer to a write" }),
        }
    }
}

/// READ: asks the head of a chain for a block.
pub(super) struct Read(pub(super) Key);

impl Message for Read {
    const KIND: u16 = READ;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u64(self.0.0);
    }

    fn keys(&self, each: &mut dyn FnMut(Key)) {
        each(self.0);
    }
}

impl Read {
    pub(super) fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(body);
        let key = Key(from.u64()?);
        from.finish().map(|()| Self(key))
    }
}

/// The answer to READ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found<'a> {
    pub(super) version: u64,
    pub(super) value: Option<&'a [u8]>,
}

impl Message for Found<'_> {
    const KIND: u16 = FOUND;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u64(self.version);
        to.u8(u8::from(self.value.is_some()));
        to.bytes(self.value.unwrap_or_default());
    }
}

impl<'a> Found<'a> {
    /// `None`: the node that was asked does not serve it.
    pub(super) fn parse(body: &'a [u8]) -> Result<Option<Self>, Malformed> {
        let mut from = Reader::new(body);
        let (version, kind) = (from.u64()?, from.u8()?);
        match (kind, from.rest()) {
            (0, []) => Ok(Some(Self { version, value: None })),
            (1, value) => Ok(Some(Self { version, value: Some(value) })),
            (2, []) => Ok(None),
            _ => Err(Malformed { what: "a block that was read" }),
        }
    }
}

/// The answer to READ of a node that does not serve the block.
pub(super) struct NotServed;

impl Message for NotServed {
    const KIND: u16 = FOUND;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u64(0);
        to.u8(2);
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::Record;
    use super::*;

    fn body(message: &impl Message) -> Vec<u8> {
        let mut body = Vec::new();
        message.emit(&mut Writer::new(&mut body));
        body
    }

    #[test]
    fn messages_survive_the_way_and_truncated_ones_are_refused() {
        let slot = Slot { node: NodeId(2), core: 3, slot: 1 };
        let rest = vec![NodeId(4), NodeId(5)];
        let way = Way { shard: ShardId(6), epoch: Epoch(9), since: Epoch(3), rest };
        let chunk = Chunk { slot, raw: 9, len: 8, crc: 7, way: way.clone() };
        assert_eq!(Chunk::parse(&body(&chunk)), Ok(chunk.clone()));
        assert!(Chunk::parse(&body(&chunk)[..25]).is_err());
        let submit = Submit { slot, len: 77, way };
        assert_eq!(Submit::parse(&body(&submit)), Ok(submit));
        let head = Life { since: Epoch(3), node: NodeId(2) };
        let ship = Ship { shard: ShardId(1), epoch: Epoch(4), head, first: Key(5) };
        assert_eq!(Ship::parse(&body(&ship)), Ok(ship));
        let follower = Life { since: Epoch(4), node: NodeId(0) };
        let aligned = Aligned { shard: ShardId(1), head, follower };
        assert_eq!(Aligned::parse(&body(&aligned)), Ok(aligned));
        assert!(Aligned::parse(&body(&aligned)[1..]).is_err());
        for answer in [Written::Held(4), Written::Unknown, Written::Unavailable] {
            assert_eq!(Written::parse(&body(&answer)), Ok(answer));
        }
        assert!(Written::parse(&[3; 9]).is_err() && Written::parse(&[0]).is_err());
        for value in [None, Some(&b"block"[..]), Some(&b""[..])] {
            let write = body(&Write { key: Key(5), value });
            assert_eq!(Write::parse(&write).unwrap().value, value);
            let found = Found { version: 2, value };
            assert_eq!(Found::parse(&body(&found)), Ok(Some(found)));
        }
        assert!(Write::parse(&[0; 10]).is_err() && Found::parse(&[3; 9]).is_err());
        assert_eq!(Found::parse(&body(&NotServed)), Ok(None));
    }

    #[test]
    fn a_page_speaks_of_keys_in_their_order_and_of_no_others() {
        let page = |keys: &[u64], last| {
            let mut blocks = Vec::new();
            keys.iter().for_each(|&key| {
                Record { key: Key(key), version: 1, value: Some(b"block") }.emit(&mut blocks);
            });
            let shipped = body(&Shipped { last: Key(last), blocks: &blocks });
            let shipped = Shipped::parse(&shipped).unwrap().unwrap();
            shipped.page(Key(3)).map(|page| page.records.len())
        };
        assert_eq!(page(&[3, 4, 9], 9), Ok(3));
        assert_eq!(page(&[], u64::MAX), Ok(0));
        assert!(Shipped::parse(&body(&Lacking)).unwrap().is_none());
        assert!(Shipped::parse(&[1, 0]).is_err() && Shipped::parse(&[2]).is_err());
        assert!(page(&[4, 3], 9).is_err() && page(&[2], 9).is_err() && page(&[10], 9).is_err());
    }
}
