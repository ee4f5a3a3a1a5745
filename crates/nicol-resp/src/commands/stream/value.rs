//! A stream as it stands in the value of its key.
//!
//! Layout: format (1 byte: 1), live entries (8, little-endian as all numbers but ids), last id
//! (16), greatest id ever deleted (16), entries ever added (8), number of nodes (4), bytes of the
//! groups (4); of each node its id (16) and its bytes (4); the groups, as `groups` lays them out;
//! the nodes. So a command that adds an entry changes the last node and copies the others, and one
//! that changes a group copies all nodes: neither reads them.

use std::borrow::Cow;

use super::id::Id;
use super::node::{Entry, Node};
use crate::transactions::sizes::Sizes;
use crate::transactions::work::Stop;

const FORMAT: u8 = 1;
const HEAD: usize = 57;
/// Bytes of a node before the nodes.
const LISTED: usize = Id::LEN + 4;

/// A stream: nodes of entries, and groups.
#[derive(Clone, Debug, Default)]
pub struct Stream<'a> {
    /// Live entries.
    pub length: u64,
    pub last: Id,
    pub max_deleted: Id,
    /// Entries ever added.
    pub added: u64,
    pub nodes: Vec<Node<'a>>,
    groups: Cow<'a, [u8]>,
}

/// What a stream is trimmed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    Length(u64),
    /// Entries before it go.
    First(Id),
}

/// How a stream is trimmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trim {
    pub to: Bound,
    /// Whole nodes only.
    pub roughly: bool,
    /// Entries that may go; 0: any number.
    pub most: u64,
}

/// Takes `N` bytes off `rest`.
pub fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], Stop> {
    let (taken, behind) = rest.split_first_chunk::<N>().ok_or(Stop::Malformed)?;
    *rest = behind;
    Ok(*taken)
}

/// Takes `len` bytes off `rest`.
pub fn take_bytes<'a>(rest: &mut &'a [u8], len: usize) -> Result<&'a [u8], Stop> {
    let (taken, behind) = rest.split_at_checked(len).ok_or(Stop::Malformed)?;
    *rest = behind;
    Ok(taken)
}

impl<'a> Stream<'a> {
    /// The stream of a value; a new one of an empty value.
    pub fn parse(value: &'a [u8]) -> Result<Self, Stop> {
        let mut rest = value;
        if rest.is_empty() {
            return Ok(Self::default());
        }
        if take::<1>(&mut rest)? != [FORMAT] {
            return Err(Stop::Malformed);
        }
        let length = u64::from_le_bytes(take(&mut rest)?);
        let [last, max_deleted] = [take(&mut rest)?, take(&mut rest)?].map(Id::from_bytes);
        let added = u64::from_le_bytes(take(&mut rest)?);
        let [nodes, groups] =
            [take(&mut rest)?, take(&mut rest)?].map(|len| u32::from_le_bytes(len) as usize);
        let mut listed = take_bytes(&mut rest, nodes.checked_mul(LISTED).ok_or(Stop::Malformed)?)?;
        let groups = Cow::Borrowed(take_bytes(&mut rest, groups)?);
        let mut all = Vec::with_capacity(nodes);
        for _ in 0..nodes {
            let first = Id::from_bytes(take(&mut listed)?);
            let len = u32::from_le_bytes(take(&mut listed)?) as usize;
            all.push(Node { first, pack: Cow::Borrowed(take_bytes(&mut rest, len)?) });
        }
        Ok(Self { length, last, max_deleted, added, nodes: all, groups })
    }

    /// The value of the stream.
    pub fn pack(&self) -> Vec<u8> {
        let bytes: usize = self.nodes.iter().map(|node| node.pack.len() + LISTED).sum();
        let mut value = Vec::with_capacity(HEAD + self.groups.len() + bytes);
        value.push(FORMAT);
        value.extend_from_slice(&self.length.to_le_bytes());
        value.extend_from_slice(&self.last.bytes());
        value.extend_from_slice(&self.max_deleted.bytes());
        value.extend_from_slice(&self.added.to_le_bytes());
        for len in [self.nodes.len(), self.groups.len()] {
            value.extend_from_slice(&(len as u32).to_le_bytes());
        }
        for node in &self.nodes {
            value.extend_from_slice(&node.first.bytes());
            value.extend_from_slice(&(node.pack.len() as u32).to_le_bytes());
        }
        value.extend_from_slice(&self.groups);
        self.nodes.iter().for_each(|node| value.extend_from_slice(&node.pack));
        value
    }

    /// The bytes of the groups, as `groups` reads them.
    pub fn group_bytes(&self) -> Cow<'a, [u8]> {
        self.groups.clone()
    }

    pub fn set_groups(&mut self, packed: Vec<u8>) {
        self.groups = Cow::Owned(packed);
    }

    /// The live entries from `from` to `to`, both included.
    pub fn range(
        &self,
        from: Id,
        to: Id,
    ) -> impl DoubleEndedIterator<Item = Result<Entry<'_>, Stop>> {
        let begin = self.nodes.partition_point(|node| node.first <= from).saturating_sub(1);
        let end = self.nodes.partition_point(|node| node.first <= to).max(begin);
        self.nodes[begin..end].iter().flat_map(move |node| match node.entries() {
            Ok(mut entries) => {
                entries.retain(|entry| !entry.is_deleted() && (from..=to).contains(&entry.id));
                entries.into_iter().map(Ok).collect()
            }
            Err(stop) => vec![Err(stop)],
        })
    }

    /// The first live entry.
    pub fn first_entry(&self) -> Result<Option<Entry<'_>>, Stop> {
        self.range(Id::ZERO, Id::MAX).next().transpose()
    }

    /// The last live entry.
    pub fn last_entry(&self) -> Result<Option<Entry<'_>>, Stop> {
        self.range(Id::ZERO, Id::MAX).next_back().transpose()
    }

    /// The id of the first live entry; without one, zero.
    pub fn first(&self) -> Result<Id, Stop> {
        Ok(self.first_entry()?.map_or(Id::ZERO, |entry| entry.id))
    }

    /// Whether there is an entry behind `id`.
    pub fn has_behind(&self, id: Id) -> Result<bool, Stop> {
        Ok(self.length > 0 && self.last_entry()?.is_some_and(|entry| entry.id > id))
    }

    /// The live entry `id`.
    pub fn entry(&self, id: Id) -> Result<Option<Entry<'_>>, Stop> {
        self.range(id, id).next().transpose()
    }

    /// Adds an entry, whose id is behind the last one.
    pub fn append(&mut self, id: Id, pairs: &[[&[u8]; 2]], sizes: &Sizes) -> Result<(), Stop> {
        Node::append(&mut self.nodes, id, pairs, sizes)?;
        self.length += 1;
        self.added += 1;
        self.last = id;
        Ok(())
    }

    /// Deletes an entry; whether it was there.
    pub fn delete(&mut self, id: Id) -> Result<bool, Stop> {
        let place = self.nodes.partition_point(|node| node.first <= id).checked_sub(1);
        let Some(place) = place else { return Ok(false) };
        let gone = self.nodes[place].delete(|entry| Some(entry.id == id))?;
        if self.nodes[place].live()? == 0 {
            self.nodes.remove(place);
        }
        self.length -= gone;
        if gone > 0 {
            self.max_deleted = self.max_deleted.max(id);
        }
        Ok(gone > 0)
    }

    /// Deletes entries at the start; returns how many.
    pub fn trim(&mut self, trim: Trim) -> Result<u64, Stop> {
        let (mut gone, mut whole) = (0, 0);
        for node in &mut self.nodes {
            let live = node.live()?;
            let fits = |length| matches!(trim.to, Bound::Length(max) if length <= max);
            if fits(self.length) || trim.most > 0 && gone + live > trim.most {
                break;
            }
            let goes = match trim.to {
                Bound::Length(max) => self.length - live >= max,
                Bound::First(id) => node.entries()?.last().is_some_and(|entry| entry.id < id),
            };
            if goes {
                (gone, whole, self.length) = (gone + live, whole + 1, self.length - live);
                continue;
            }
            if !trim.roughly {
                let mut length = self.length;
                let part = node.delete(|entry| {
                    let stays = match trim.to {
                        Bound::Length(max) => length <= max,
                        Bound::First(id) => entry.id >= id,
                    };
                    length -= u64::from(!stays && !entry.is_deleted());
                    (!stays).then_some(true)
                })?;
                (gone, self.length) = (gone + part, self.length - part);
            }
            break;
        }
        self.nodes.drain(..whole);
        Ok(gone)
    }

    /// How many entries were added up to `id`, as far as that can be told.
    pub fn added_up_to(&self, id: Id) -> Result<Option<u64>, Stop> {
        if self.added == 0 {
            return Ok(Some(0));
        }
        if self.length == 0 && id < self.last || id == self.last {
            return Ok(Some(self.added));
        }
        if id > self.last {
            return Ok(None);
        }
        let first = self.first()?;
        // Nothing is missing behind the first entry.
        let is_whole = self.max_deleted == Id::ZERO || self.max_deleted < first;
        Ok(match id.cmp(&first) {
            std::cmp::Ordering::Less if is_whole => Some(self.added - self.length),
            std::cmp::Ordering::Equal if is_whole => Some(self.added - self.length + 1),
            _ => None,
        })
    }

    /// Whether an entry at or behind `id` may have been deleted.
    pub fn has_gap_behind(&self, id: Id) -> bool {
        self.length > 0 && self.max_deleted != Id::ZERO && id <= self.max_deleted
    }

    /// The nodes of the tree in which Redis keeps the ids of the nodes: what XINFO tells.
    pub fn tree_nodes(&self) -> u64 {
        let ids: Vec<_> = self.nodes.iter().map(|node| node.first.bytes()).collect();
        tree_nodes(&ids, 0)
    }
}

/// Nodes of a tree of ids whose first `depth` bytes are the same: one for a run of bytes that all
/// share, one where they part or end.
fn tree_nodes(ids: &[[u8; Id::LEN]], depth: usize) -> u64 {
    let (Some(first), Some(last)) = (ids.first(), ids.last()) else { return 1 };
    let shared = (depth..Id::LEN).take_while(|at| first[*at] == last[*at]).count();
    let (run, parts) = (u64::from(shared > 0), depth + shared);
    if parts == Id::LEN {
        return run + 1;
    }
    let below = ids.chunk_by(|one, other| one[parts] == other[parts]);
    run + 1 + below.map(|ids| tree_nodes(ids, parts + 1)).sum::<u64>()
}
