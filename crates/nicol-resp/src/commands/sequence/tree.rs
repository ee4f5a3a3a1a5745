//! The tree of a large sequence: pages of elements below pages that name pages.

use std::ops::Range;

use crate::commands::packed;
use crate::transactions::page::{Child, Root, Subtree};
use crate::transactions::work::{Found, Page, Stop, Work};

/// A page with more elements or bytes than these is divided.
const PAGE_COUNT: usize = 512;
const PAGE_BYTES: usize = 4 << 10;
/// Pages that one page names.
const CHILDREN: usize = 128;

/// A page that names pages, and which of them is meant.
#[derive(Clone, Copy, Debug)]
struct Step {
    page: Page,
    child: usize,
}

/// The way to an element, and its place in the page that holds it.
#[derive(Debug)]
pub struct Path {
    steps: Vec<Step>,
    page: Page,
    place: usize,
}

/// The way to the element at `place`; behind the last one, to the end of the last page.
pub fn path(work: &mut Work<'_>, found: Found, root: &Root, place: u64) -> Result<Path, Stop> {
    let (mut steps, mut number, mut left) = (Vec::new(), root.top.page, place);
    for _ in 1..root.top.depth {
        let page = work.page(found, root.name(number))?;
        let children = Child::all(work.page_bytes(page));
        let last = children.len().checked_sub(1).ok_or(Stop::Malformed)?;
        for (child, Child { page: below, count }) in children.enumerate() {
            if left < count || child == last {
                steps.push(Step { page, child });
                number = below;
                break;
            }
            left -= count;
        }
    }
    let page = work.page(found, root.name(number))?;
    Ok(Path { steps, page, place: left as usize })
}

/// The pages that hold the elements at `places`, in order, each with the places inside it.
pub fn pages(
    work: &mut Work<'_>,
    found: Found,
    root: &Root,
    places: Range<usize>,
) -> Result<Vec<(Page, Range<usize>)>, Stop> {
    // Each page with the place of its first element.
    let mut level = vec![(Child { page: root.top.page, count: root.count }, 0)];
    for depth in (1..=root.top.depth).rev() {
        let (mut below, mut held, mut asks) = (Vec::new(), Vec::new(), false);
        for (Child { page, count }, start) in level {
            let end = start + count as usize;
            let (from, to) = (places.start.max(start), places.end.min(end));
            if from >= to {
                continue;
            }
            let page = match work.page(found, root.name(page)) {
                Err(Stop::More) => {
                    asks = true;
                    continue;
                }
                page => page?,
            };
            if depth == 1 {
                held.push((page, from - start..to - start));
                continue;
            }
            let mut start = start;
            for child in Child::all(work.page_bytes(page)) {
                below.push((child, start));
                start += child.count as usize;
            }
        }
        if asks {
            return Err(Stop::More);
        }
        if depth == 1 {
            return Ok(held);
        }
        level = below;
    }
    Err(Stop::Malformed)
}

/// The only page, if there is one only and it is here.
pub fn single(work: &Work<'_>, root: &Root) -> Option<Page> {
    if root.top.depth > 1 {
        return None;
    }
    work.loaded_page(root.name(root.top.page))
}

/// Adds an element before that at `place`, or behind all.
pub fn insert(
    work: &mut Work<'_>,
    found: Found,
    root: &mut Root,
    place: u64,
    element: &[u8],
) -> Result<(), Stop> {
    let path = path(work, found, root, place)?;
    packed::insert(work.page_mut(path.page), path.place, element)?;
    grow(work, root, &path, 1);
    divide(work, root, path)
}

/// Puts another element at `place`, where there is one.
pub fn set(
    work: &mut Work<'_>,
    found: Found,
    root: &mut Root,
    place: u64,
    element: &[u8],
) -> Result<(), Stop> {
    let path = path(work, found, root, place)?;
    let page = work.page_mut(path.page);
    packed::remove(page, path.place..path.place + 1)?;
    packed::insert(page, path.place, element)?;
    divide(work, root, path)
}

/// Removes the element at `place`, where there is one.
pub fn remove(work: &mut Work<'_>, found: Found, root: &mut Root, place: u64) -> Result<(), Stop> {
    let Path { mut steps, page, place } = path(work, found, root, place)?;
    packed::remove(work.page_mut(page), place..place + 1)?;
    root.count -= 1;
    for step in &steps {
        change_child(work.page_mut(step.page), step.child, -1);
    }
    // Pages that have become empty, from the bottom up.
    let mut empty = work.page_bytes(page).is_empty().then_some(page);
    while let Some(page) = empty
        && let Some(step) = steps.pop()
    {
        work.free_page(page);
        remove_children(work.page_mut(step.page), step.child..step.child + 1);
        empty = work.page_bytes(step.page).is_empty().then_some(step.page);
    }
    lower(work, root);
    Ok(())
}

/// Keeps only the elements at `places`; without any of them the tree is left as it is, empty by
/// its count. Subtrees that go are not read.
pub fn keep(
    work: &mut Work<'_>,
    found: Found,
    root: &mut Root,
    places: Range<u64>,
) -> Result<(), Stop> {
    if places.is_empty() {
        root.count = 0;
        return Ok(());
    }
    let (before, behind) = (places.start, root.count - places.end);
    // Both ways are here before anything is changed.
    if before > 0 {
        path(work, found, root, places.start)?;
    }
    if behind > 0 {
        path(work, found, root, places.end - 1)?;
    }
    let mut gone = Vec::new();
    for end in [(before, true), (behind, false)] {
        if end.0 > 0 {
            cut(work, found, root, end, &mut gone)?;
        }
    }
    work.bury(root, &gone);
    lower(work, root);
    Ok(())
}

/// Removes so many elements at an end, not all: whole subtrees first.
fn cut(
    work: &mut Work<'_>,
    found: Found,
    root: &mut Root,
    (mut wanted, front): (u64, bool),
    gone: &mut Vec<Subtree>,
) -> Result<(), Stop> {
    root.count -= wanted;
    let mut number = root.top.page;
    for depth in (2..=root.top.depth).rev() {
        let page = work.page(found, root.name(number))?;
        if wanted == 0 {
            return Ok(());
        }
        let children: Vec<_> = Child::all(work.page_bytes(page)).collect();
        let (mut whole, len) = (0, children.len());
        let at = |place: usize| if front { place } else { len - 1 - place };
        while children[at(whole)].count <= wanted {
            wanted -= children[at(whole)].count;
            gone.push(Subtree { page: children[at(whole)].page, depth: depth - 1 });
            whole += 1;
        }
        let bytes = work.page_mut(page);
        change_child(bytes, at(whole), -(wanted as i64));
        remove_children(bytes, if front { 0..whole } else { len - whole..len });
        number = children[at(whole)].page;
    }
    let page = work.page(found, root.name(number))?;
    if wanted > 0 {
        let (count, wanted) = (packed::count(work.page_bytes(page))?, wanted as usize);
        let places = if front { 0..wanted } else { count - wanted..count };
        packed::remove(work.page_mut(page), places)?;
    }
    Ok(())
}

/// Stands packed elements in pages of a new object.
pub fn build(work: &mut Work<'_>, found: Found, value: &[u8]) -> Result<Root, Stop> {
    let mut root = work.new_object(found);
    root.count = packed::count(value)? as u64;
    let (mut level, mut part, mut bytes) = (Vec::new(), Vec::<&[u8]>::new(), 0);
    let mut pages = Vec::new();
    for element in packed::from(value, 0)? {
        let size = packed::size(element);
        if part.len() == PAGE_COUNT || !part.is_empty() && bytes + size > PAGE_BYTES {
            pages.push((part.len(), packed::pack(&part)));
            (part, bytes) = (Vec::new(), 0);
        }
        part.push(element);
        bytes += size;
    }
    pages.push((part.len(), packed::pack(&part)));
    for (count, bytes) in pages {
        let name = root.new_name();
        level.push(Child { page: name.number, count: count as u64 });
        work.new_page(name, bytes);
    }
    while level.len() > 1 {
        let above = level.chunks(CHILDREN).map(|children| {
            let name = root.new_name();
            work.new_page(name, children.iter().flat_map(|child| child.bytes()).collect());
            Child { page: name.number, count: children.iter().map(|child| child.count).sum() }
        });
        level = above.collect();
        root.top.depth += 1;
    }
    root.top.page = level.first().ok_or(Stop::Malformed)?.page;
    Ok(root)
}

/// Counts elements that have been added at the end of a way.
fn grow(work: &mut Work<'_>, root: &mut Root, path: &Path, elements: i64) {
    root.count = root.count.wrapping_add_signed(elements);
    for step in &path.steps {
        change_child(work.page_mut(step.page), step.child, elements);
    }
}

/// Divides the page at the end of a way if it is too large, and then those above it.
fn divide(work: &mut Work<'_>, root: &mut Root, path: Path) -> Result<(), Stop> {
    let Path { mut steps, page, place } = path;
    let bytes = work.page_bytes(page);
    let count = packed::count(bytes)?;
    if count <= PAGE_COUNT && (bytes.len() <= PAGE_BYTES || count == 1) {
        return Ok(());
    }
    let at = match place {
        0 => 1,
        place if place + 1 == count => place,
        _ => packed::middle(bytes)?,
    };
    let other = packed::split_off(work.page_mut(page), at)?;
    let mut halves = [at, count - at].map(|count| count as u64);
    let mut name = root.new_name();
    work.new_page(name, other);
    while let Some(Step { page, child }) = steps.pop() {
        let bytes = work.page_mut(page);
        let mut children: Vec<_> = Child::all(bytes).collect();
        children[child].count = halves[0];
        children.insert(child + 1, Child { page: name.number, count: halves[1] });
        let (len, mut other) = (children.len(), Vec::new());
        if len > CHILDREN {
            other = children.split_off(match child {
                0 => 1,
                child if child + 2 == len => len - 1,
                _ => len / 2,
            });
        }
        let all = |children: &[Child]| children.iter().flat_map(|child| child.bytes()).collect();
        *bytes = all(&children);
        if other.is_empty() {
            return Ok(());
        }
        halves = [&children, &other].map(|half| half.iter().map(|child| child.count).sum());
        name = root.new_name();
        work.new_page(name, all(&other));
    }
    let left = Child { page: root.top.page, count: halves[0] };
    let right = Child { page: name.number, count: halves[1] };
    name = root.new_name();
    work.new_page(name, [left.bytes(), right.bytes()].concat());
    root.top = Subtree { page: name.number, depth: root.top.depth + 1 };
    Ok(())
}

/// Takes topmost pages away that name a single page.
fn lower(work: &mut Work<'_>, root: &mut Root) {
    while root.top.depth > 1
        && let Some(page) = work.loaded_page(root.name(root.top.page))
        && let mut children = Child::all(work.page_bytes(page))
        && let (Some(Child { page: below, .. }), None) = (children.next(), children.next())
    {
        drop(children);
        work.free_page(page);
        root.top = Subtree { page: below, depth: root.top.depth - 1 };
    }
}

/// Counts elements of a child that have come or gone.
fn change_child(bytes: &mut [u8], child: usize, elements: i64) {
    let of = Child::all(bytes).nth(child);
    if let Some(Child { page, count }) = of {
        let changed = Child { page, count: count.wrapping_add_signed(elements) };
        bytes[child * Child::LEN..][..Child::LEN].copy_from_slice(&changed.bytes());
    }
}

fn remove_children(bytes: &mut Vec<u8>, children: Range<usize>) {
    bytes.drain(children.start * Child::LEN..children.end * Child::LEN);
}
