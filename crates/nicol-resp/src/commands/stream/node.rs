//! Nodes: neighbouring entries of a stream in one listpack, laid out as in Redis' files.
//!
//! First stand the number of live entries, the number of deleted ones, the names of the fields of
//! the first entry behind their number, and a zero. Then each entry: flags, its id as differences
//! from the node's, values (with names and their number before them, if those are others than the
//! node's), and how many elements it has. An entry that is deleted is marked only; a node without
//! live entries is removed.

use std::borrow::Cow;

use super::id::Id;
use crate::commands::listpack::{Cursor, Element, HEAD, counted, empty, splice};
use crate::connection::encode::Reply;
use crate::transactions::sizes::Sizes;
use crate::transactions::work::Stop;

/// Flags of an entry.
const DELETED: i64 = 1;
/// Its names are those of the node.
const SAME_NAMES: i64 = 2;

/// Entries in one listpack.
#[derive(Clone, Debug)]
pub struct Node<'a> {
    /// The id of its first entry, deleted or not.
    pub first: Id,
    pub pack: Cow<'a, [u8]>,
}

/// What stands before the entries of a node.
#[derive(Clone, Copy, Debug)]
struct Master {
    live: i64,
    deleted: i64,
    names: usize,
    /// Where the names stand, and the first entry.
    names_at: usize,
    entries_at: usize,
}

/// An entry of a node.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'n> {
    pub id: Id,
    flags: i64,
    /// Where its flags stand.
    at: usize,
    /// Its number of fields; the names and the values, which are the same place if the entry has
    /// names of its own.
    fields: usize,
    names: Cursor<'n>,
    values: Cursor<'n>,
}

impl Entry<'_> {
    pub fn is_deleted(&self) -> bool {
        self.flags & DELETED != 0
    }

    /// Answers the id and the fields.
    pub fn answer(&self, reply: &mut Reply<'_>) -> Result<(), Stop> {
        reply.array(2);
        self.id.answer(reply);
        reply.array(2 * self.fields);
        let (mut names, mut values) = (self.names, self.values);
        for _ in 0..self.fields {
            let name = if self.flags & SAME_NAMES != 0 { names.next() } else { values.next() };
            for element in [name, values.next()] {
                match element.ok_or(Stop::Malformed)? {
                    Element::Text(bytes) => reply.bulk(bytes),
                    number @ Element::Number(_) => reply.bulk(&number.to_vec()),
                }
            }
        }
        Ok(())
    }
}

impl<'a> Node<'a> {
    /// A node for an entry of id `first` with these names, without any entry so far.
    fn new(first: Id, pairs: &[[&[u8]; 2]]) -> Self {
        let (mut pack, mut master) = (empty(), Vec::new());
        let end = pack.len() - 1;
        for number in [0, 0, pairs.len() as i64] {
            Element::Number(number).push(&mut master);
        }
        pairs.iter().for_each(|[name, _]| Element::of(name).push(&mut master));
        Element::Number(0).push(&mut master);
        splice(&mut pack, (end, end), (0, pairs.len() + 4), &master);
        Self { first, pack: Cow::Owned(pack) }
    }

    /// A node of `pack`, which is looked at element by element. `None`: it is not in the format.
    pub fn checked(first: Id, pack: Vec<u8>) -> Option<Self> {
        let count = counted(&pack)?;
        let mut cursor = Cursor::at(&pack, HEAD);
        let mut elements = 0;
        while !cursor.is_over() {
            cursor.next()?;
            elements += 1;
        }
        let node = Self { first, pack: Cow::Owned(pack) };
        let (master, entries) = (node.master()?, node.entries().ok()?);
        let deleted = entries.iter().filter(|entry| entry.is_deleted()).count() as i64;
        let live = entries.len() as i64 - deleted;
        let ascending = entries.windows(2).all(|pair| pair[0].id < pair[1].id);
        // A flag is one byte, which is changed in place.
        let flags = entries.iter().all(|entry| matches!(node.pack[entry.at], 0..=3));
        let behind = entries.first().is_some_and(|entry| entry.id >= first);
        let whole = (count == elements || count == usize::from(u16::MAX))
            && (master.live, master.deleted) == (live, deleted)
            && live > 0;
        (whole && ascending && flags && behind).then_some(node)
    }

    fn master(&self) -> Option<Master> {
        let mut cursor = Cursor::at(&self.pack, HEAD);
        let [live, deleted, names] = [cursor.number()?, cursor.number()?, cursor.number()?];
        let names = usize::try_from(names).ok()?;
        let names_at = cursor.place();
        for _ in 0..names {
            cursor.next()?;
        }
        // The zero behind the names.
        cursor.number()?;
        Some(Master { live, deleted, names, names_at, entries_at: cursor.place() })
    }

    /// The number of live entries.
    pub fn live(&self) -> Result<u64, Stop> {
        let live = Cursor::at(&self.pack, HEAD).number();
        live.and_then(|live| u64::try_from(live).ok()).ok_or(Stop::Malformed)
    }

    /// The entries in order, deleted ones among them.
    pub fn entries(&self) -> Result<Vec<Entry<'_>>, Stop> {
        self.parse().ok_or(Stop::Malformed)
    }

    fn parse(&self) -> Option<Vec<Entry<'_>>> {
        let master = self.master()?;
        let mut cursor = Cursor::at(&self.pack, master.entries_at);
        let mut all = Vec::new();
        while !cursor.is_over() {
            let at = cursor.place();
            let [flags, ms, seq] = [cursor.number()?, cursor.number()?, cursor.number()?];
            let Id { ms: first_ms, seq: first_seq } = self.first;
            let id = Id {
                ms: first_ms.wrapping_add(ms as u64),
                seq: first_seq.wrapping_add(seq as u64),
            };
            let same = flags & SAME_NAMES != 0;
            let fields = match same {
                true => master.names,
                false => usize::try_from(cursor.number()?).ok()?,
            };
            let values = cursor;
            for _ in 0..fields.checked_mul(if same { 1 } else { 2 })? {
                cursor.next()?;
            }
            // The number of its elements.
            cursor.number()?;
            let names = Cursor::at(&self.pack, master.names_at);
            all.push(Entry { id, flags, at, fields, names, values });
        }
        Some(all)
    }

    /// Whether an entry of these fields belongs into a new node behind this one.
    fn is_full(&self, pairs: &[[&[u8]; 2]], sizes: &Sizes) -> Result<bool, Stop> {
        let bytes: usize = pairs.as_flattened().iter().map(|text| text.len()).sum();
        let master = self.master().ok_or(Stop::Malformed)?;
        let entries = master.live + master.deleted;
        Ok(self.pack.len() + bytes >= sizes.node_bytes()
            || entries as usize >= sizes.node_entries())
    }

    /// Adds an entry behind all others of `nodes`, which are of these `sizes`.
    pub fn append(
        nodes: &mut Vec<Self>,
        id: Id,
        pairs: &[[&[u8]; 2]],
        sizes: &Sizes,
    ) -> Result<(), Stop> {
        let begins = match nodes.last() {
            Some(last) => last.is_full(pairs, sizes)?,
            None => true,
        };
        if begins {
            nodes.push(Self::new(id, pairs));
        }
        let node = nodes.last_mut().ok_or(Stop::Malformed)?;
        let master = node.master().ok_or(Stop::Malformed)?;
        let mut names = Cursor::at(&node.pack, master.names_at);
        let same = pairs.len() == master.names
            && pairs.iter().all(|[name, _]| names.next() == Some(Element::of(name)));
        let (mut entry, mut elements) = (Vec::new(), 0);
        let mut push = |element: Element<'_>| {
            element.push(&mut entry);
            elements += 1;
        };
        push(Element::Number(if same { SAME_NAMES } else { 0 }));
        push(Element::Number(id.ms.wrapping_sub(node.first.ms) as i64));
        push(Element::Number(id.seq.wrapping_sub(node.first.seq) as i64));
        if !same {
            push(Element::Number(pairs.len() as i64));
        }
        for [name, value] in pairs {
            if !same {
                push(Element::of(name));
            }
            push(Element::of(value));
        }
        let before = if same { pairs.len() + 3 } else { 2 * pairs.len() + 4 };
        push(Element::Number(before as i64));
        let pack = node.pack.to_mut();
        let end = pack.len() - 1;
        splice(pack, (end, end), (0, elements), &entry);
        node.count(1, 0)
    }

    /// Changes the numbers of live and deleted entries.
    fn count(&mut self, live: i64, deleted: i64) -> Result<(), Stop> {
        let master = self.master().ok_or(Stop::Malformed)?;
        let mut cursor = Cursor::at(&self.pack, HEAD);
        cursor.next();
        cursor.next();
        let (end, mut numbers) = (cursor.place(), Vec::new());
        Element::Number(master.live + live).push(&mut numbers);
        Element::Number(master.deleted + deleted).push(&mut numbers);
        splice(self.pack.to_mut(), (HEAD, end), (2, 2), &numbers);
        Ok(())
    }

    /// Marks the entries as deleted for which `chosen` says so, up to the first for which it says
    /// nothing; returns how many were.
    pub fn delete(
        &mut self,
        mut chosen: impl FnMut(&Entry<'_>) -> Option<bool>,
    ) -> Result<u64, Stop> {
        let mut places = Vec::new();
        for entry in &self.entries()? {
            match chosen(entry) {
                Some(true) if !entry.is_deleted() => places.push((entry.at, entry.flags)),
                Some(_) => {}
                None => break,
            }
        }
        for (at, flags) in &places {
            // The flags are below 128: one byte, and another one for its length.
            let mut new = Vec::new();
            Element::Number(flags | DELETED).push(&mut new);
            splice(self.pack.to_mut(), (*at, at + new.len()), (1, 1), &new);
        }
        if !places.is_empty() {
            let gone = places.len() as i64;
            self.count(-gone, gone)?;
        }
        Ok(places.len() as u64)
    }
}
