//! Looks at the pages of large collections in the records of a store: read here from the bytes, so
//! that what the front believes of them is not taken for granted.

use std::collections::BTreeMap;

use nicol_resp::DATABASES;

use super::MemoryBackend;

type Name = (Vec<u8>, u64);

/// What stands in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Keys whose elements stand in pages.
    pub roots: usize,
    pub pages: usize,
    /// The depth of the deepest.
    pub depth: u8,
    /// Subtrees that are to be freed.
    pub buried: usize,
}

/// Walks from every root and every grave over all pages.
///
/// # Panics
/// If a page is missing, is reached twice or not at all, or holds another number of elements than
/// is said above it.
pub fn look(backend: &MemoryBackend) -> Seen {
    let (mut roots, mut graves, mut pages) = (Vec::new(), Vec::new(), BTreeMap::new());
    for (row, record) in backend.all() {
        for (kind, key, value) in pairs(&record) {
            match usize::from(row.table().0) {
                0..DATABASES if kind != 0 && value[0] == 2 => roots.push(value),
                0..DATABASES => {}
                DATABASES => assert!(pages.insert(name(&key), value).is_none(), "a page twice"),
                _ => graves.push((name(&key), value)),
            }
        }
    }
    let (mut seen, all) = (Seen::default(), pages.len());
    for value in &roots {
        let (object, top, depth) = (value[1..17].to_vec(), word(&value[25..]), value[33]);
        let count = walk(&mut pages, (object, top), depth);
        assert_eq!(count, word(&value[34..]), "elements of a root");
        seen.depth = seen.depth.max(depth);
    }
    for ((object, _), value) in &graves {
        for subtree in value.chunks(9) {
            walk(&mut pages, (object.clone(), word(subtree)), subtree[8]);
            seen.buried += 1;
        }
    }
    assert!(pages.is_empty(), "{} of {all} pages belong to nothing", pages.len());
    Seen { roots: roots.len(), pages: all, ..seen }
}

/// Takes a page and those below it out of `pages`; their elements.
fn walk(pages: &mut BTreeMap<Name, Vec<u8>>, name: Name, depth: u8) -> u64 {
    let Some(page) = pages.remove(&name) else { panic!("page {name:?} is not there") };
    if depth == 1 {
        return match page.len() {
            0 => 0,
            _ => word(&[&page[1..5], &[0; 4]].concat()),
        };
    }
    let mut sum = 0;
    for child in page.chunks(16) {
        let count = walk(pages, (name.0.clone(), word(child)), depth - 1);
        assert_eq!(count, word(&child[8..]), "elements below page {name:?}");
        sum += count;
    }
    sum
}

fn name(key: &[u8]) -> Name {
    (key[..16].to_vec(), word(&key[16..]))
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(*bytes.first_chunk().unwrap())
}

/// The pairs of a record: kind, key, value.
fn pairs(mut record: &[u8]) -> Vec<(u16, Vec<u8>, Vec<u8>)> {
    let mut all = Vec::new();
    while !record.is_empty() {
        let head = u16::from_le_bytes(*record.first_chunk().unwrap());
        let (key, start) = (usize::from(head & 0x3ff), if head & 0x8000 == 0 { 6 } else { 14 });
        let value = u32::from_le_bytes(*record[2..].first_chunk().unwrap()) as usize;
        let (pair, rest) = record.split_at(start + key + value);
        all.push((
            head >> 10 & 0x1f,
            pair[start..start + key].to_vec(),
            pair[start + key..].to_vec(),
        ));
        record = rest;
    }
    all
}
