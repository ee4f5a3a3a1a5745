//! The pages of large collections, as a transaction reads and changes them.
//!
//! A page is fetched when a command first asks for it: the command ends with [`Stop::More`], and
//! the procedure is run again with the record. So a command asks for all that it needs before it
//! changes anything. New pages, freed ones and graves become records at the end
//! ([`Work::updates`]).
//!
//! Whoever writes a page writes the record of the root, too: so the root's lock is the object's,
//! and its version tells a WATCH of each change.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use nicol_core::ids::Key;
use nicol_core::txn::{KEYS_MAX, VALUE_MAX};

use super::{Found, Stop, Updates, Work};
use crate::transactions::page::{Child, ObjectId, PageName, Place, Root, Subtree};
use crate::transactions::record::{self, Pair};

/// Pages that are asked for in one round.
const ASKED: usize = 256;
/// Pages that one transaction frees in the background.
const FREED: usize = 128;

const TOO_MANY_PAGES: &[u8] =
    b"ERR the collection has more pages than a transaction may read (limit 16384 keys)";

/// A page, or a grave, as the commands so far have left it.
#[derive(Debug)]
struct PageSlot<'t> {
    place: Place,
    name: PageName,
    /// `None`: there is none any more.
    bytes: Option<Cow<'t, [u8]>>,
    dirty: bool,
    /// This transaction has created it.
    fresh: bool,
}

/// A page that a command has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page(usize);

/// The pages of a transaction.
#[derive(Debug, Default)]
pub(super) struct Pages<'t> {
    slots: Vec<PageSlot<'t>>,
    places: BTreeMap<(Place, PageName), usize>,
    /// The roots of the objects that commands have changed, as they are now.
    roots: BTreeMap<ObjectId, Root>,
    /// Objects that this transaction has created.
    created: Vec<ObjectId>,
    /// Objects whose pages have been freed with them.
    ended: Vec<ObjectId>,
    freed: usize,
}

impl<'t> Pages<'t> {
    fn add(&mut self, slot: PageSlot<'t>) -> Page {
        self.places.insert((slot.place, slot.name), self.slots.len());
        self.slots.push(slot);
        Page(self.slots.len() - 1)
    }
}

impl<'t> Work<'t> {
    /// The root of the key's object; `None` if the key is absent or its elements stand in it.
    /// The key holds a value of a type that has elements.
    pub fn root(&self, found: Found) -> Option<Root> {
        Root::parse(self.value(found)?)
    }

    /// Creates an object for a key: it has no page yet.
    pub fn new_object(&mut self, found: Found) -> Root {
        let entry = self.txn.entries()[self.slots[found.0].entry];
        let number = self.pages.created.len();
        let object = ObjectId::new(entry.key, entry.version, self.plan.now, number);
        self.pages.created.push(object);
        Root { object, next: 0, top: Subtree { page: 0, depth: 1 }, count: 0 }
    }

    /// Notes how an object is now; the command stores the root in its key, too.
    pub fn note_root(&mut self, root: Root) {
        self.pages.roots.insert(root.object, root);
    }

    /// The key gives up its object, whose pages have all been freed.
    pub fn end_object(&mut self, root: &Root) {
        self.pages.ended.push(root.object);
    }

    /// A page of the object of `found`. Errors: [`Stop::More`] if it has to be fetched.
    pub fn page(&mut self, found: Found, name: PageName) -> Result<Page, Stop> {
        let writes = self.txn.entries()[self.slots[found.0].entry].write;
        self.load(Place::Page, name, writes)?.ok_or(Stop::Malformed)
    }

    /// The same page if it is here; nothing is asked for.
    pub fn loaded_page(&self, name: PageName) -> Option<Page> {
        let slot = *self.pages.places.get(&(Place::Page, name))?;
        self.pages.slots[slot].bytes.is_some().then_some(Page(slot))
    }

    fn load(&mut self, place: Place, name: PageName, writes: bool) -> Result<Option<Page>, Stop> {
        if let Some(slot) = self.pages.places.get(&(place, name)) {
            return Ok(self.pages.slots[*slot].bytes.is_some().then_some(Page(*slot)));
        }
        let row = name.row(place);
        let txn = self.txn;
        let entry = txn.find(row).filter(|entry| txn.entries()[*entry].fetched);
        let Some(entry) = entry else {
            if txn.entries().len() + self.asked.len() >= KEYS_MAX {
                return Err(Stop::Error(TOO_MANY_PAGES));
            }
            if self.asked.len() < ASKED {
                self.asked.push((row, writes));
            }
            return Err(Stop::More);
        };
        let record = txn.value(entry).unwrap_or_default();
        let Some(pair) = record::find(record, &name.bytes())? else { return Ok(None) };
        // It is read, and perhaps written.
        self.spend(pair.value.len() * if writes { 2 } else { 1 })?;
        let bytes = Some(Cow::Borrowed(pair.value));
        Ok(Some(self.pages.add(PageSlot { place, name, bytes, dirty: false, fresh: false })))
    }

    /// What a page holds.
    pub fn page_bytes(&self, page: Page) -> &[u8] {
        self.pages.slots[page.0].bytes.as_deref().unwrap_or_default()
    }

    /// What a page holds, to be changed. The budget is the command's: it has spent it before.
    pub fn page_mut(&mut self, page: Page) -> &mut Vec<u8> {
        let slot = &mut self.pages.slots[page.0];
        slot.dirty = true;
        slot.bytes.get_or_insert_default().to_mut()
    }

    /// Creates a page.
    pub fn new_page(&mut self, name: PageName, bytes: Vec<u8>) -> Page {
        let (place, bytes) = (Place::Page, Some(Cow::Owned(bytes)));
        self.pages.add(PageSlot { place, name, bytes, dirty: true, fresh: true })
    }

    /// Frees a page.
    pub fn free_page(&mut self, page: Page) {
        let slot = &mut self.pages.slots[page.0];
        (slot.bytes, slot.dirty) = (None, true);
    }

    /// Frees subtrees of an object, which goes on without them, in the background.
    pub fn bury(&mut self, root: &mut Root, subtrees: &[Subtree]) {
        if !subtrees.is_empty() {
            let name = root.new_name();
            self.dig(name, subtrees);
        }
    }

    fn dig(&mut self, name: PageName, subtrees: &[Subtree]) {
        let mut bytes = Vec::new();
        subtrees.iter().for_each(|subtree| subtree.emit(&mut bytes));
        self.news.grave(name.row(Place::Grave));
        let (place, bytes) = (Place::Grave, Some(Cow::Owned(bytes)));
        self.pages.add(PageSlot { place, name, bytes, dirty: true, fresh: true });
    }

    /// Frees some pages of the graves of a record; returns the deadline of the rest: 0 if there is
    /// none.
    pub(super) fn free_graves(&mut self, entry: usize) -> Result<i64, Stop> {
        let record = self.txn.value(entry).unwrap_or_default();
        let (mut rest, mut asks) = (0, false);
        for pair in record::pairs(record) {
            let pair = pair?;
            let name = PageName::parse(pair.key).ok_or(Stop::Malformed)?;
            let mut left = Subtree::parse_all(pair.value);
            let now = left.len().min(FREED - self.pages.freed);
            self.pages.freed += now;
            for subtree in left.split_off(left.len() - now) {
                let name = PageName { number: subtree.page, ..name };
                match self.load(Place::Page, name, true) {
                    Ok(Some(page)) => {
                        if subtree.depth > 1 {
                            let children = Child::all(self.page_bytes(page));
                            let depth = subtree.depth - 1;
                            left.extend(children.map(|Child { page, .. }| Subtree { page, depth }));
                        }
                        self.free_page(page);
                    }
                    // It is gone: what else has expired must not wait for it.
                    Ok(None) => {}
                    Err(Stop::More) => asks = true,
                    Err(stop) => return Err(stop),
                }
            }
            rest += left.len();
            let mut bytes = Vec::new();
            left.iter().for_each(|subtree| subtree.emit(&mut bytes));
            let bytes = (!bytes.is_empty()).then_some(Cow::Owned(bytes));
            let place = Place::Grave;
            self.pages.add(PageSlot { place, name, bytes, dirty: true, fresh: false });
        }
        if asks { Err(Stop::More) } else { Ok(i64::from(rest > 0)) }
    }

    /// Looks at the new records of keys: objects that none of them has any more get a grave, and
    /// pages of those that were created in vain are forgotten.
    pub(super) fn bury_lost(
        &mut self,
        updates: &Updates,
        values: &[u8],
    ) -> Result<(), record::Malformed> {
        let (mut before, mut after) = (BTreeMap::new(), BTreeSet::new());
        for (entry, update) in updates {
            for root in roots(self.txn.value(*entry).unwrap_or_default()) {
                let root = root?;
                before.insert(root.object, root);
            }
            for root in roots(update.clone().map_or(&[], |span| &values[span])) {
                after.insert(root?.object);
            }
        }
        for (object, root) in before {
            if after.contains(&object) || self.pages.ended.contains(&object) {
                continue;
            }
            let root = self.pages.roots.get(&object).copied().unwrap_or(root);
            self.dig(root.grave(), &[root.top]);
        }
        for object in &self.pages.created {
            if !after.contains(object) {
                let own = |slot: &&mut PageSlot<'_>| slot.name.object == *object;
                self.pages.slots.iter_mut().filter(own).for_each(|slot| slot.dirty = false);
            }
        }
        Ok(())
    }

    /// The new records of pages and graves; asks for those that are not there yet.
    pub(super) fn page_updates(
        &mut self,
        values: &mut Vec<u8>,
        updates: &mut Updates,
    ) -> Result<(), record::Malformed> {
        let mut rows: BTreeMap<Key, Vec<usize>> = BTreeMap::new();
        for (place, slot) in self.pages.slots.iter().enumerate() {
            if slot.dirty && (slot.bytes.is_some() || !slot.fresh) {
                rows.entry(slot.name.row(slot.place)).or_default().push(place);
            }
        }
        let txn = self.txn;
        for (row, slots) in rows {
            let is_ours =
                |entry: &usize| txn.entries()[*entry].fetched && txn.entries()[*entry].write;
            let Some(entry) = txn.find(row).filter(is_ours) else {
                if txn.entries().len() + self.asked.len() >= KEYS_MAX {
                    return Err(record::Malformed);
                }
                self.asked.push((row, true));
                continue;
            };
            updates.push((entry, self.page_record(entry, &slots, values)?));
        }
        Ok(())
    }

    /// The new record of an entry in which these pages have changed.
    fn page_record(
        &self,
        entry: usize,
        changed: &[usize],
        values: &mut Vec<u8>,
    ) -> Result<Option<Range<usize>>, record::Malformed> {
        let start = values.len();
        let slots = || changed.iter().map(|slot| &self.pages.slots[*slot]);
        for pair in record::pairs(self.txn.value(entry).unwrap_or_default()) {
            let pair = pair?;
            if slots().all(|slot| slot.name.bytes() != pair.key) {
                record::push(values, pair);
            }
        }
        for slot in slots() {
            if let Some(value) = slot.bytes.as_deref() {
                let (key, expires) = (&slot.name.bytes()[..], slot.place.deadline());
                record::push(values, Pair { key, kind: 0, value, expires });
            }
        }
        if values.len() - start > VALUE_MAX {
            return Err(record::Malformed);
        }
        Ok((values.len() > start).then_some(start..values.len()))
    }
}

/// The roots of the objects whose keys a record holds.
fn roots(record: &[u8]) -> impl Iterator<Item = Result<Root, record::Malformed>> + '_ {
    record::pairs(record).filter_map(|pair| match pair {
        // A string has bytes, whatever they say.
        Ok(pair) if pair.kind == 0 => None,
        Ok(pair) => Root::parse(pair.value).map(Ok),
        Err(malformed) => Some(Err(malformed)),
    })
}
