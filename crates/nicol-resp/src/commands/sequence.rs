//! Elements in an order, of which each has a place: what lists are made of.
//!
//! A small sequence stands packed in its key's record. A large one stands in pages: the key holds
//! the root, and the pages form a tree in which every page has the same depth. Those at the bottom
//! hold elements, packed; the others name pages, each with the number of elements below it. So a
//! place is found in as many steps as the tree is deep, and a command writes the pages on its way.
//!
//! A page that becomes too large is divided in two: where elements are added at an end, so that the
//! full one stays full, otherwise in the middle. A page that becomes empty is freed, and so is the
//! topmost one if it names a single page. A sequence that has become small is packed again.
//!
//! Each change first asks for the pages that it needs, and takes what it needs off the
//! transaction's budget; then nothing can stop it any more.

mod tree;

use std::borrow::Cow;
use std::ops::Range;

use super::packed;
use crate::transactions::page::Root;
use crate::transactions::work::{Found, Stop, Work};

/// A sequence with more elements or bytes than these stands in pages.
const PACKED_COUNT: usize = 128;
const PACKED_BYTES: usize = 4 << 10;
/// One that has this share of them is packed again.
const AGAIN: usize = 2;

/// Elements that a search looks at first; then it takes ever more at a time.
const SEARCHED: usize = 4 << 10;
/// What a value takes besides its elements in the budget of a transaction: roots, counts.
const OVERHEAD: usize = 256;

/// The elements of a key.
#[derive(Debug)]
pub struct Sequence<'t> {
    found: Found,
    form: Form<'t>,
}

#[derive(Debug)]
enum Form<'t> {
    Packed(Cow<'t, [u8]>),
    Paged(Root),
}

impl<'t> Sequence<'t> {
    /// The elements of a key that holds some, or is absent: then there are none.
    pub fn open(work: &Work<'t>, found: Found) -> Self {
        let form = match work.root(found) {
            Some(root) => Form::Paged(root),
            None => Form::Packed(work.contents(found)),
        };
        Self { found, form }
    }

    pub fn len(&self) -> Result<usize, Stop> {
        match &self.form {
            Form::Packed(value) => packed::count(value),
            Form::Paged(root) => Ok(root.count as usize),
        }
    }

    /// Hands out the elements at `places`, which there are, in order.
    ///
    /// Cost: the pages on the way to them and those that hold them, all in one round per depth.
    pub fn visit(
        &self,
        work: &mut Work<'t>,
        places: Range<usize>,
        mut take: impl FnMut(&[u8]),
    ) -> Result<(), Stop> {
        match &self.form {
            Form::Packed(value) => {
                packed::from(value, places.start)?.take(places.len()).for_each(take);
            }
            Form::Paged(root) => {
                for (page, inside) in tree::pages(work, self.found, root, places)? {
                    let elements = packed::from(work.page_bytes(page), inside.start)?;
                    elements.take(inside.len()).for_each(&mut take);
                }
            }
        }
        Ok(())
    }

    /// The first `wanted` places among `places` at which `element` stands, in order.
    ///
    /// Cost: what is behind the last of them is not read, but for some pages.
    pub fn search(
        &self,
        work: &mut Work<'t>,
        places: Range<usize>,
        element: &[u8],
        wanted: usize,
    ) -> Result<Vec<usize>, Stop> {
        let (mut found, mut from, mut step) = (Vec::new(), places.start, SEARCHED);
        while from < places.end && found.len() < wanted {
            let to = places.end.min(from + step);
            let mut place = from;
            self.visit(work, from..to, |other| {
                if other == element {
                    found.push(place);
                }
                place += 1;
            })?;
            (from, step) = (to, 2 * step);
        }
        found.truncate(wanted);
        Ok(found)
    }

    /// The elements at `places`, which there are.
    pub fn part(&self, work: &mut Work<'t>, places: Range<usize>) -> Result<Vec<Vec<u8>>, Stop> {
        let mut part = Vec::new();
        self.visit(work, places, |element| part.push(element.to_vec()))?;
        Ok(part)
    }

    /// All elements, packed. Errors: [`Stop::Overflow`] if they exceed a transaction's budget.
    pub fn whole(self, work: &mut Work<'t>) -> Result<Cow<'t, [u8]>, Stop> {
        match self.form {
            Form::Packed(value) => Ok(value),
            Form::Paged(root) => {
                let pages = tree::pages(work, self.found, &root, 0..root.count as usize)?;
                let pages = pages.iter().map(|(page, _)| work.page_bytes(*page));
                packed::join(pages).map(Cow::Owned)
            }
        }
    }

    /// Sees to it that the next change near `place` finds its pages, and takes what it may write
    /// besides `bytes` off the budget.
    pub fn prepare(&self, work: &mut Work<'t>, place: usize, bytes: usize) -> Result<(), Stop> {
        match &self.form {
            Form::Packed(value) => work.spend(value.len() + bytes + OVERHEAD),
            Form::Paged(root) => {
                tree::path(work, self.found, root, place as u64)?;
                work.spend(bytes + OVERHEAD)
            }
        }
    }

    /// Adds an element before that at `place`, or behind all.
    pub fn insert(
        &mut self,
        work: &mut Work<'t>,
        place: usize,
        element: &[u8],
    ) -> Result<(), Stop> {
        match &mut self.form {
            Form::Packed(value) => packed::insert(value.to_mut(), place, element),
            Form::Paged(root) => tree::insert(work, self.found, root, place as u64, element),
        }
    }

    /// Puts another element at `place`, where there is one.
    pub fn set(&mut self, work: &mut Work<'t>, place: usize, element: &[u8]) -> Result<(), Stop> {
        match &mut self.form {
            Form::Packed(value) => {
                let value = value.to_mut();
                packed::remove(value, place..place + 1)?;
                packed::insert(value, place, element)
            }
            Form::Paged(root) => tree::set(work, self.found, root, place as u64, element),
        }
    }

    /// Removes the element at `place`, where there is one.
    pub fn remove(&mut self, work: &mut Work<'t>, place: usize) -> Result<(), Stop> {
        match &mut self.form {
            Form::Packed(value) => packed::remove(value.to_mut(), place..place + 1),
            Form::Paged(root) => tree::remove(work, self.found, root, place as u64),
        }
    }

    /// Keeps only the elements at `places`, which there are. Pages in which none of them stands
    /// are not read.
    pub fn keep(&mut self, work: &mut Work<'t>, places: Range<usize>) -> Result<(), Stop> {
        let len = self.len()?;
        work.spend(OVERHEAD)?;
        match &mut self.form {
            Form::Packed(value) if places.len() < len => {
                work.spend(value.len())?;
                let value = value.to_mut();
                packed::remove(value, places.end..len)?;
                packed::remove(value, 0..places.start)
            }
            Form::Packed(_) => Ok(()),
            Form::Paged(root) => {
                tree::keep(work, self.found, root, places.start as u64..places.end as u64)
            }
        }
    }

    /// Stores the changed elements in their key; if there are none it is deleted.
    pub fn store(self, work: &mut Work<'t>) -> Result<(), Stop> {
        let found = self.found;
        let value = match self.form {
            Form::Packed(value) if value.is_empty() => {
                // What was absent stays as it was: a WATCH sees no change.
                return if work.is_present(found) { work.change(found, None) } else { Ok(()) };
            }
            Form::Packed(value) if is_large(&value, 1)? => Cow::Owned(build(work, found, &value)?),
            Form::Packed(value) => value,
            Form::Paged(root) => {
                work.note_root(root);
                match tree::single(work, &root) {
                    _ if root.count == 0 => return work.change(found, None),
                    Some(page) if !is_large(work.page_bytes(page), AGAIN)? => {
                        let value = work.page_bytes(page).to_vec();
                        work.free_page(page);
                        work.end_object(&root);
                        Cow::Owned(value)
                    }
                    _ => Cow::Owned(root.emit()),
                }
            }
        };
        work.change(found, Some(value))
    }
}

/// Whether packed elements exceed this share of what stands in a key's record.
fn is_large(value: &[u8], share: usize) -> Result<bool, Stop> {
    Ok(value.len() > PACKED_BYTES / share || packed::count(value)? > PACKED_COUNT / share)
}

/// The value of `to` that holds the same elements as `from`: with pages of its own, if it has any.
/// The key `from` holds a sequence.
pub fn copy<'t>(work: &mut Work<'t>, from: Found, to: Found) -> Result<Cow<'t, [u8]>, Stop> {
    let source = Sequence::open(work, from);
    let is_paged = matches!(source.form, Form::Paged(_));
    let value = source.whole(work)?;
    if is_paged { build(work, to, &value).map(Cow::Owned) } else { Ok(value) }
}

/// Stands packed elements in pages of an object of `found`; returns the value of the key.
fn build(work: &mut Work<'_>, found: Found, value: &[u8]) -> Result<Vec<u8>, Stop> {
    work.spend(value.len())?;
    let root = tree::build(work, found, value)?;
    work.note_root(root);
    Ok(root.emit())
}
