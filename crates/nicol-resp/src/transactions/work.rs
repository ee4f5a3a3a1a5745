//! The keys of a transaction as its commands read and change them.
//!
//! A key is looked up in its record at its first use; what commands change of it is seen by those
//! after them, and becomes new records at the end. Commands reach keys through [`Work`] only, and
//! what a type of value writes is told apart from the others by the number in its record.

mod budget;
mod events;
mod pages;
mod rows;
mod scripts;

use std::borrow::Cow;
use std::ops::Range;
use std::time::Instant;

use nicol_core::ids::Key;
use nicol_core::txn::{KEYS_MAX, Txn, VALUE_MAX};

use self::budget::Budget;
use self::pages::Pages;
use self::rows::Rows;
use super::news::News;
use super::output::{Growth, Lookups};
use super::page::Place;
use super::plan::{Arg, Plan};
use super::record::{self, Database, Pair};
use super::sizes::Sizes;
pub use super::stop::Stop;
use crate::commands::kind::{STRING, Type};
use crate::config::COLLECTION_BYTES_MAX;
use crate::connection::encode::Reply;
use crate::scripts::arena::Arena;
use crate::scripts::caller::Caller;

pub use self::{pages::Page, scripts::Scripted};

pub const WRONG_TYPE: &[u8] = b"WRONGTYPE Operation against a key holding the wrong kind of value";

const TOO_MANY: &[u8] = b"ERR collection is too large: its elements exceed 1000000 bytes";
const _: () = assert!(COLLECTION_BYTES_MAX == 1_000_000, "as the text says");

const TOO_MANY_KEYS: &[u8] = b"ERR too many keys: BY and GET name more than a transaction may have";

/// A key as the commands so far have left it.
#[derive(Debug)]
struct Slot<'t> {
    entry: usize,
    key: &'t [u8],
    value: Option<Cow<'t, [u8]>>,
    /// The number of its type; of an absent key, of the type that it will have.
    kind: u8,
    expires: Option<i64>,
    dirty: bool,
    next: Option<usize>,
    /// The command that saw it last, and whether it was there before that one.
    seen: u32,
    was_present: bool,
}

/// A key that a command has looked up: its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found(usize);

/// What a key holds that no argument names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peek {
    Absent,
    /// A value of the type with this number.
    Value(u8, Vec<u8>),
    /// Its record is not there yet: it has been asked for.
    Asked,
}

/// What a transaction needs of the commands, which need it.
#[derive(Debug)]
pub struct Commands {
    /// The type of a number.
    pub types: fn(u8) -> Option<&'static Type>,
    /// Runs the command of a script, into a buffer.
    pub call: for<'t> fn(&mut Work<'t>, &mut Caller<'t>, &mut Vec<u8>) -> Result<(), Stop>,
    /// Whether its user may have it run. Errors: what is wrong with it.
    pub may_call: fn(&Caller<'_>) -> Result<bool, &'static [u8]>,
}

/// New records: where each lies in a buffer, or its deletion.
pub type Updates = Vec<(usize, Option<Range<usize>>)>;

#[derive(Debug)]
pub struct Work<'t> {
    txn: &'t Txn,
    plan: Plan<'t>,
    commands: &'static Commands,
    slots: Vec<Slot<'t>>,
    /// Entries whose records are to be rewritten without what has expired.
    purged: Vec<usize>,
    /// Entries whose records are to be deleted.
    emptied: Vec<usize>,
    /// Records that commands have asked for, to read or to write.
    asked: Vec<(Key, bool)>,
    pages: Pages<'t>,
    /// Where scripts keep the arguments of their commands.
    arena: &'t Arena,
    rows: Rows<'t>,
    /// What scripts have left of their budget, and until when; `None`: there was none yet.
    script_budget: Option<(u64, Instant)>,
    /// Per entry of the transaction, its first slot.
    heads: Vec<Option<usize>>,
    budget: Budget,
    lookups: Lookups,
    news: News,
    /// The number of the command that is run, from 1.
    command: u32,
    /// It answers what its key holds.
    reads: bool,
    /// The slots that it has changed, as often as it has, if that is told.
    touched: Vec<usize>,
}

impl<'t> Work<'t> {
    pub fn new(
        txn: &'t Txn,
        plan: &Plan<'t>,
        arena: &'t Arena,
        commands: &'static Commands,
    ) -> Self {
        Self {
            txn,
            plan: *plan,
            commands,
            slots: Vec::with_capacity(plan.commands),
            purged: Vec::new(),
            emptied: Vec::new(),
            asked: Vec::new(),
            pages: Pages::default(),
            arena,
            rows: Rows::new(txn),
            script_budget: None,
            heads: vec![None; txn.entries().len()],
            budget: Budget::default(),
            lookups: Lookups::default(),
            news: News::default(),
            command: 0,
            reads: false,
            touched: Vec::new(),
        }
    }

    /// The transaction's time, in milliseconds of Unix time.
    pub fn now(&self) -> i64 {
        self.plan.now
    }

    /// Bytes of the largest value that a command may build.
    pub fn value_max(&self) -> usize {
        self.plan.bounds.value_max
    }

    /// The sizes beyond which Redis holds a value in another form.
    pub fn sizes(&self) -> Sizes {
        self.plan.bounds.sizes
    }

    /// The next command begins; `reads`: it answers what its key holds, whatever it writes.
    pub fn begin(&mut self, reads: bool) {
        self.command += 1;
        self.reads = reads;
        self.touched.clear();
    }

    /// Looks up a key of any type. One of a command that only reads is counted.
    pub fn find(&mut self, key: &Arg<'t>) -> Result<Found, Stop> {
        let found = self.slot(key)?;
        if !key.writes {
            let present = u32::from(self.is_present(found));
            self.lookups.hits += present;
            self.lookups.misses += 1 - present;
        }
        if (!key.writes || self.reads) && self.plan.tells && !self.is_present(found) {
            self.tell_miss(found.0);
        }
        Ok(found)
    }

    fn slot(&mut self, key: &Arg<'t>) -> Result<Found, Stop> {
        let entry = self.rows.entry(key.row.ok_or(Stop::Malformed)?)?;
        if entry == self.heads.len() {
            self.heads.push(None);
        }
        let mut at = self.heads[entry];
        while let Some(slot) = at {
            if self.slots[slot].key == key.bytes {
                self.see(slot);
                return Ok(Found(slot));
            }
            at = self.slots[slot].next;
        }
        let pair = match self.rows.record(entry) {
            Some(record) => record::find(record, key.bytes)?,
            None => None,
        };
        let pair = pair.filter(|pair| !pair.is_over(self.plan.now));
        let slot = Slot {
            entry,
            key: key.bytes,
            value: pair.map(|pair| Cow::Borrowed(pair.value)),
            kind: pair.map_or(0, |pair| pair.kind),
            expires: pair.and_then(|pair| pair.expires),
            dirty: false,
            next: self.heads[entry],
            seen: 0,
            was_present: false,
        };
        self.slots.push(slot);
        let slot = self.slots.len() - 1;
        self.heads[entry] = Some(slot);
        self.see(slot);
        Ok(Found(slot))
    }

    /// Notes how a key is before the command changes it.
    fn see(&mut self, slot: usize) {
        let slot = &mut self.slots[slot];
        if slot.seen != self.command {
            slot.seen = self.command;
            slot.was_present = slot.value.is_some();
        }
    }

    /// Reads the key `name`, which no argument names, in its record.
    pub fn peek(&mut self, row: Key, name: &[u8]) -> Result<Peek, Stop> {
        let entry = self.txn.find(row).filter(|entry| self.txn.entries()[*entry].fetched);
        let Some(entry) = entry else {
            if self.txn.entries().len() + self.asked.len() >= KEYS_MAX {
                return Err(Stop::Error(TOO_MANY_KEYS));
            }
            self.asked.push((row, false));
            return Ok(Peek::Asked);
        };
        let slots = std::iter::successors(self.heads[entry], |slot| self.slots[*slot].next);
        let slot = slots.map(|slot| &self.slots[slot]).find(|slot| slot.key == name);
        let (kind, value) = match slot {
            Some(slot) => (slot.kind, slot.value.as_deref()),
            None => {
                let record = self.txn.value(entry).unwrap_or_default();
                let pair = record::find(record, name)?.filter(|pair| !pair.is_over(self.plan.now));
                (pair.map_or(0, |pair| pair.kind), pair.map(|pair| pair.value))
            }
        };
        Ok(value.map_or(Peek::Absent, |value| Peek::Value(kind, value.to_vec())))
    }

    /// The records that commands have asked for, each once, and whether to write them.
    pub fn take_asked(&mut self) -> Vec<(Key, bool)> {
        let mut asked = std::mem::take(&mut self.asked);
        // Those to be written stand first among equal ones.
        asked.sort_unstable_by_key(|(row, writes)| (*row, !writes));
        asked.dedup_by_key(|(row, _)| *row);
        asked
    }

    /// Looks up a key that holds a value of `kind`, or will if it is absent. Errors: WRONGTYPE.
    pub fn typed(&mut self, key: &Arg<'t>, kind: &Type) -> Result<Found, Stop> {
        let found = self.find(key)?;
        if self.is_of(found, kind) {
            self.slots[found.0].kind = kind.number;
            return Ok(found);
        }
        Err(Stop::Error(WRONG_TYPE))
    }

    /// Whether the key is absent or holds a value of `kind`.
    pub fn is_of(&self, found: Found, kind: &Type) -> bool {
        let slot = &self.slots[found.0];
        slot.value.is_none() || slot.kind == kind.number
    }

    /// The type of the key's value; `None` if it is absent.
    pub fn type_of(&self, found: Found) -> Result<Option<&'static Type>, Stop> {
        let slot = &self.slots[found.0];
        match slot.value {
            None => Ok(None),
            Some(_) => (self.commands.types)(slot.kind).map(Some).ok_or(Stop::Malformed),
        }
    }

    pub fn value(&self, found: Found) -> Option<&[u8]> {
        self.slots[found.0].value.as_deref()
    }

    pub fn is_present(&self, found: Found) -> bool {
        self.slots[found.0].value.is_some()
    }

    /// Bytes of the value; 0 if the key is absent.
    pub fn len(&self, found: Found) -> usize {
        self.value(found).map_or(0, <[u8]>::len)
    }

    pub fn expires(&self, found: Found) -> Option<i64> {
        self.slots[found.0].expires
    }

    /// Takes the value out to be changed; the command must put it back. An absent one is empty.
    pub fn take(&mut self, found: Found) -> Vec<u8> {
        self.slots[found.0].value.take().unwrap_or(Cow::Borrowed(&[])).into_owned()
    }

    /// The value, to be read while the key is changed; empty if the key is absent. Only a value
    /// that this transaction has made is copied.
    pub fn contents(&self, found: Found) -> Cow<'t, [u8]> {
        self.slots[found.0].value.clone().unwrap_or_default()
    }

    /// Stores the packed elements of a collection, which takes the old one's deadline; without
    /// elements the key is deleted.
    pub fn put(&mut self, found: Found, packed: Vec<u8>) -> Result<(), Stop> {
        self.put_until(found, packed, self.expires(found))
    }

    fn put_until(&mut self, found: Found, packed: Vec<u8>, at: Option<i64>) -> Result<(), Stop> {
        self.reserve(found, &packed)?;
        if packed.is_empty() {
            // What was absent stays as it was: a WATCH sees no change.
            return if self.is_present(found) { self.replace(found, None, None) } else { Ok(()) };
        }
        self.replace(found, Some(Cow::Owned(packed)), at)
    }

    /// Takes what storing `packed` needs off the budget: if this transaction has made the value
    /// that it replaces, only what it is longer.
    fn reserve(&self, found: Found, packed: &[u8]) -> Result<(), Stop> {
        if packed.len() > self.value_max().min(COLLECTION_BYTES_MAX) {
            return Err(Stop::Error(TOO_MANY));
        }
        self.budget.copy(packed.len())?;
        let replaced = if self.is_owned(found) { self.len(found) } else { 0 };
        self.spend(packed.len().saturating_sub(replaced))
    }

    /// Stores the packed elements of two collections, as [`Work::put`] does; both or none.
    pub fn put_both(&mut self, both: [(Found, Vec<u8>); 2]) -> Result<(), Stop> {
        self.put_all(both.into())
    }

    /// Stores the packed elements of several collections, as [`Work::put`] does; all or none.
    pub fn put_all(&mut self, all: Vec<(Found, Vec<u8>)>) -> Result<(), Stop> {
        all.iter().try_for_each(|(found, packed)| self.reserve(*found, packed))?;
        for (found, packed) in all {
            let expires = self.expires(found);
            let value = (!packed.is_empty()).then_some(Cow::Owned(packed));
            self.replace(found, value, expires)?;
        }
        Ok(())
    }

    /// Stores the packed elements of a collection of `kind` without a deadline, whatever the key
    /// held; without elements the key is deleted.
    pub fn put_new(&mut self, found: Found, kind: &Type, packed: Vec<u8>) -> Result<(), Stop> {
        self.put_until(found, packed, None)?;
        self.slots[found.0].kind = kind.number;
        Ok(())
    }

    /// Stores a value of `kind` with a deadline, whatever the key held.
    pub fn put_whole(
        &mut self,
        found: Found,
        kind: &Type,
        value: Vec<u8>,
        expires: Option<i64>,
    ) -> Result<(), Stop> {
        if kind.number == STRING {
            self.spend_on_value(value.len())?;
        } else {
            self.reserve(found, &value)?;
        }
        self.overwrite(found, kind, Cow::Owned(value), expires)
    }

    /// Whether a command of this transaction has made the value: a further change copies nothing.
    pub fn is_owned(&self, found: Found) -> bool {
        matches!(self.slots[found.0].value, Some(Cow::Owned(_)))
    }

    /// Answers the value, or null.
    pub fn answer(&mut self, found: Found, reply: &mut Reply<'_>) -> Result<(), Stop> {
        self.spend_on_value(self.len(found))?;
        reply.bulk_or_null(self.value(found));
        Ok(())
    }

    /// Stores a value that takes the old one's deadline.
    pub fn store(&mut self, found: Found, value: Cow<'t, [u8]>) -> Result<(), Stop> {
        self.spend_on_value(value.len())?;
        self.change(found, Some(value))
    }

    /// Changes a value, if not to none with its old deadline.
    pub fn change(&mut self, found: Found, value: Option<Cow<'t, [u8]>>) -> Result<(), Stop> {
        self.replace(found, value, self.expires(found))
    }

    /// Changes a value and its deadline; one that is over leaves nothing.
    pub fn replace(
        &mut self,
        found: Found,
        value: Option<Cow<'t, [u8]>>,
        expires: Option<i64>,
    ) -> Result<(), Stop> {
        let is_written = self.rows.is_written(self.slots[found.0].entry);
        let slot = &mut self.slots[found.0];
        if !is_written {
            return Err(Stop::Malformed);
        }
        let over = expires.is_some_and(|deadline| deadline <= self.plan.now);
        slot.value = value.filter(|_| !over);
        slot.expires = expires.filter(|_| slot.value.is_some());
        slot.dirty = true;
        if self.plan.tells {
            self.touched.push(found.0);
        }
        Ok(())
    }

    /// Stores a value of `kind`, whatever the key held.
    pub fn overwrite(
        &mut self,
        found: Found,
        kind: &Type,
        value: Cow<'t, [u8]>,
        expires: Option<i64>,
    ) -> Result<(), Stop> {
        self.slots[found.0].kind = kind.number;
        self.replace(found, Some(value), expires)
    }

    /// Gives a key another deadline; its value is written again with it.
    pub fn move_deadline(&mut self, found: Found, deadline: Option<i64>) -> Result<(), Stop> {
        self.spend_on_value(self.len(found))?;
        let value = self.slots[found.0].value.take();
        self.replace(found, value, deadline)
    }

    /// Moves the value of one key, its type and its deadline to another.
    pub fn rename(&mut self, from: Found, to: Found) -> Result<(), Stop> {
        self.spend_on_value(self.len(from))?;
        let Slot { value, kind, expires, .. } = &mut self.slots[from.0];
        let (value, kind, expires) = (value.take(), *kind, *expires);
        self.replace(from, None, None)?;
        self.slots[to.0].kind = kind;
        self.replace(to, value, expires)
    }

    /// Gives a key the type and the deadline of another, and a copy of its value.
    pub fn copy(&mut self, from: Found, to: Found, value: Cow<'t, [u8]>) -> Result<(), Stop> {
        self.spend_on_value(value.len())?;
        let Slot { kind, expires, .. } = self.slots[from.0];
        self.slots[to.0].kind = kind;
        self.replace(to, Some(value), expires)
    }

    /// Answers the keys of a row that are there, each with the number of its type.
    pub fn list(&self, row: &Arg<'t>, reply: &mut Reply<'_>) -> Result<(), Stop> {
        let entry = entry(self.txn, row.row.ok_or(Stop::Malformed)?)?;
        let record = self.txn.value(entry).unwrap_or_default();
        let pairs = record::pairs(record).collect::<Result<Vec<_>, _>>()?;
        let there = || pairs.iter().filter(|pair| !pair.is_over(self.plan.now));
        reply.array(2 * there().count());
        for pair in there() {
            reply.bulk(pair.key);
            reply.integer(pair.kind.into());
        }
        Ok(())
    }

    /// Deletes every key of a row; returns how many there were.
    pub fn empty(&mut self, row: &Arg<'t>) -> Result<i64, Stop> {
        let entry = entry(self.txn, row.row.ok_or(Stop::Malformed)?)?;
        if !self.txn.entries()[entry].write {
            return Err(Stop::Malformed);
        }
        let keys = record::key_count(self.txn.value(entry).unwrap_or_default());
        if keys > 0 {
            self.emptied.push(entry);
        }
        Ok(keys as i64)
    }

    /// Rewrites a row without what has expired; returns the next deadline in it, or 0.
    pub fn purge(&mut self, row: &Arg<'t>) -> Result<i64, Stop> {
        let key = row.row.ok_or(Stop::Malformed)?;
        let entry = self.txn.find(key).ok_or(Stop::Malformed)?;
        if Place::is_grave(key) {
            return self.free_graves(entry);
        }
        let (mut next, mut over) = (None, false);
        for pair in record::pairs(self.txn.value(entry).unwrap_or_default()) {
            let pair = pair?;
            over |= pair.is_over(self.plan.now);
            let deadline = pair.expires.filter(|_| !pair.is_over(self.plan.now));
            next = next.into_iter().chain(deadline).min();
        }
        if over {
            self.purged.push(entry);
        }
        Ok(next.unwrap_or(0))
    }

    /// Takes `bytes` off the transaction's budget.
    pub fn spend(&self, bytes: usize) -> Result<(), Stop> {
        self.budget.spend(bytes)
    }

    /// Takes a value of `bytes` off the budget, from which a large one is apart.
    pub fn spend_on_value(&self, bytes: usize) -> Result<(), Stop> {
        self.budget.spend_on_value(bytes)
    }

    /// The new records, in `values`: what the old one held of other keys, then the changed ones.
    /// Also by how many keys they exceed the old ones. More records may have been asked for: then
    /// these are not all.
    pub fn updates(
        &mut self,
        values: &mut Vec<u8>,
    ) -> Result<(Updates, Growth), record::Malformed> {
        let (mut updates, mut growth, mut expired) = (Vec::new(), Growth::default(), 0);
        let mut ended = Vec::new();
        for (entry, head) in self.heads.iter().enumerate() {
            let chain = || std::iter::successors(*head, |slot| self.slots[*slot].next);
            let dirty = chain().any(|slot| self.slots[slot].dirty);
            let emptied = self.emptied.contains(&entry);
            if !dirty && !emptied && !self.purged.contains(&entry) {
                continue;
            }
            let (start, mut grown) = (values.len(), 0);
            for pair in record::pairs(self.txn.value(entry).unwrap_or_default()) {
                let pair = pair?;
                let dirty =
                    |slot: usize| self.slots[slot].dirty && self.slots[slot].key == pair.key;
                let over = pair.is_over(self.plan.now);
                if !over && !emptied && !chain().any(dirty) {
                    record::push(values, pair);
                } else {
                    expired += u32::from(over);
                    grown -= 1;
                }
                if over {
                    // No plan names what has expired.
                    self.news.wrote(self.txn.entries()[entry].key, pair.key);
                }
                if over && self.plan.tells {
                    ended.push((entry, pair.key));
                }
            }
            for slot in chain().map(|slot| &self.slots[slot]).filter(|slot| slot.dirty) {
                if self.script_budget.is_some() {
                    self.news.wrote(self.txn.entries()[entry].key, slot.key);
                }
                if let Some(value) = &slot.value {
                    let Slot { key, kind, expires, .. } = *slot;
                    record::push(values, Pair { key, kind, value, expires });
                    grown += 1;
                }
            }
            // Refused: keys of one row whose values together exceed a record. It needs a collision
            // of 56 bits between keys of half a megabyte each.
            if values.len() - start > VALUE_MAX {
                return Err(record::Malformed);
            }
            let put = (values.len() > start).then_some(start..values.len());
            updates.push((entry, put));
            // The front's own records are in no database.
            if let Some(database) = Database::of(self.txn.entries()[entry].key) {
                growth.add(database, grown);
            }
        }
        self.news.tell_ended(self.txn, &ended);
        self.lookups.expired += expired;
        self.bury_lost(&updates, values)?;
        self.page_updates(values, &mut updates)?;
        Ok((updates, growth))
    }
}

/// The entry of a key that the plan names; it is missing only in arguments from a hostile peer.
pub fn entry(txn: &Txn, row: Key) -> Result<usize, record::Malformed> {
    let index = txn.find(row).ok_or(record::Malformed)?;
    match txn.entries()[index].fetched {
        true => Ok(index),
        false => Err(record::Malformed),
    }
}
