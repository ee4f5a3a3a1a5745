//! Groups of consumers, each with the entries that it has got and not acknowledged.
//!
//! Layout, numbers little-endian: the number of groups (4); of each its name behind its length (4),
//! the last id delivered (16), the entries read (8; -1: not known), the number of consumers (4), of
//! pending entries (4); of each consumer its name behind its length, and when it was seen (8:
//! milliseconds of Unix time); of each pending entry its id (16), when it was delivered (8), how
//! often (8), and the place of its consumer (4).

use std::collections::BTreeMap;

use super::id::Id;
use super::value::{Stream, take, take_bytes};
use crate::transactions::work::Stop;

/// The groups of a stream by name.
#[derive(Clone, Debug, Default)]
pub struct Groups<'a>(pub BTreeMap<&'a [u8], Group<'a>>);

/// A group.
#[derive(Clone, Debug, Default)]
pub struct Group<'a> {
    /// The last entry that was delivered.
    pub last: Id,
    /// How many entries it has read; `None`: that cannot be told.
    pub read: Option<u64>,
    /// When each consumer was seen last, in milliseconds of Unix time.
    pub consumers: BTreeMap<&'a [u8], i64>,
    pub pending: BTreeMap<Id, Pending<'a>>,
}

/// An entry that a consumer has got and not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending<'a> {
    pub consumer: &'a [u8],
    /// When it was delivered, in milliseconds of Unix time.
    pub since: i64,
    /// How often it was.
    pub count: u64,
}

fn text<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], Stop> {
    let len = u32::from_le_bytes(take(rest)?) as usize;
    take_bytes(rest, len)
}

fn push_text(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
    out.extend_from_slice(text);
}

impl<'a> Groups<'a> {
    /// The groups of these bytes.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Stop> {
        let (mut rest, mut all) = (bytes, BTreeMap::new());
        if bytes.is_empty() {
            return Ok(Self(all));
        }
        for _ in 0..u32::from_le_bytes(take(&mut rest)?) {
            let name = text(&mut rest)?;
            all.insert(name, Group::parse(&mut rest)?);
        }
        if rest.is_empty() { Ok(Self(all)) } else { Err(Stop::Malformed) }
    }

    /// The bytes of these groups; none if there are none.
    pub fn pack(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if self.0.is_empty() {
            return out;
        }
        out.extend_from_slice(&(self.0.len() as u32).to_le_bytes());
        for (name, group) in &self.0 {
            push_text(&mut out, name);
            group.emit(&mut out);
        }
        out
    }
}

impl<'a> Group<'a> {
    fn parse(rest: &mut &'a [u8]) -> Result<Self, Stop> {
        let last = Id::from_bytes(take(rest)?);
        let read = u64::try_from(i64::from_le_bytes(take(rest)?)).ok();
        let [consumers, pending] = [take(rest)?, take(rest)?].map(u32::from_le_bytes);
        let mut group = Self { last, read, ..Self::default() };
        let mut names = Vec::new();
        for _ in 0..consumers {
            let name = text(rest)?;
            names.push(name);
            group.consumers.insert(name, i64::from_le_bytes(take(rest)?));
        }
        for _ in 0..pending {
            let id = Id::from_bytes(take(rest)?);
            let since = i64::from_le_bytes(take(rest)?);
            let count = u64::from_le_bytes(take(rest)?);
            let place = u32::from_le_bytes(take(rest)?) as usize;
            let consumer = *names.get(place).ok_or(Stop::Malformed)?;
            group.pending.insert(id, Pending { consumer, since, count });
        }
        Ok(group)
    }

    fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.last.bytes());
        let read = self.read.map_or(-1, |read| read as i64);
        out.extend_from_slice(&read.to_le_bytes());
        for len in [self.consumers.len(), self.pending.len()] {
            out.extend_from_slice(&(len as u32).to_le_bytes());
        }
        let mut places = BTreeMap::new();
        for (place, (name, seen)) in self.consumers.iter().enumerate() {
            push_text(out, name);
            out.extend_from_slice(&seen.to_le_bytes());
            places.insert(*name, place as u32);
        }
        for (id, Pending { consumer, since, count }) in &self.pending {
            out.extend_from_slice(&id.bytes());
            out.extend_from_slice(&since.to_le_bytes());
            out.extend_from_slice(&count.to_le_bytes());
            let place = places.get(consumer).copied().unwrap_or_default();
            out.extend_from_slice(&place.to_le_bytes());
        }
    }

    /// The entries that `consumer` has got and not acknowledged.
    pub fn pending_of<'g>(
        &'g self,
        consumer: &'g [u8],
    ) -> impl Iterator<Item = (Id, Pending<'a>)> + use<'g, 'a> {
        let all = self.pending.iter().map(|(id, pending)| (*id, *pending));
        all.filter(move |(_, pending)| pending.consumer == consumer)
    }

    /// Entries of the stream that the group has yet to read, as far as that can be told.
    pub fn lag(&self, stream: &Stream<'_>) -> Result<Option<i64>, Stop> {
        if stream.added == 0 {
            return Ok(Some(0));
        }
        let read = match self.read {
            Some(read) if !stream.has_gap_behind(self.last) => Some(read),
            _ => stream.added_up_to(self.last)?,
        };
        Ok(read.map(|read| stream.added.wrapping_sub(read) as i64))
    }

    /// The entry `id` of the stream is delivered to the group.
    pub fn advance(&mut self, stream: &Stream<'_>, id: Id) -> Result<(), Stop> {
        if id > self.last {
            match &mut self.read {
                Some(read) if !stream.has_gap_behind(id) => *read += 1,
                read if stream.added > 0 => *read = stream.added_up_to(id)?,
                _ => {}
            }
            self.last = id;
        }
        Ok(())
    }
}
