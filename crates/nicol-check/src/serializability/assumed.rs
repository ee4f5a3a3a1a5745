//! The edges that rest on what is assumed of operations of unknown outcome, and of scans.

use super::edges::add;
use super::graph::{Edge, EdgeKind};
use super::index::{Index, NOBODY, ReadAt};
use super::installs::Install;
use super::search::Search;

/// Collects edges with the levels that they rest on.
#[derive(Default)]
struct Edges(Vec<(Edge, [u32; 2])>);

impl Edges {
    fn add(&mut self, from: u32, to: u32, kind: EdgeKind, key: u32, levels: [u32; 2]) {
        if from != to && from != NOBODY && to != NOBODY {
            self.0.push((Edge { from, to, key, kind }, levels));
        }
    }
}

/// The edges of the present state of the search.
pub(super) fn edges(index: &Index<'_>, search: &Search<'_, '_>) -> Vec<(Edge, [u32; 2])> {
    let mut edges = Edges::default();
    for install in search.installs.assumed() {
        around(index, search, install, &mut edges);
    }
    for (number, node) in index.nodes.iter().enumerate() {
        if node.unknown && search.is_effective(number as u32) {
            let reads = &index.reads[node.reads.start as usize..node.reads.end as usize];
            reads.iter().for_each(|read| of_read(search, read, &mut edges));
        }
    }
    for (key, node, floor, level) in search.pins() {
        if let Some(newest) = search.installs.newest(key, floor) {
            let levels = [level, newest.level];
            edges.add(newest.writer, node, EdgeKind::FindsAbsent, key, levels);
        }
        if let Some(next) = search.installs.next(key, floor) {
            edges.add(node, next.writer, EdgeKind::Phantom, key, [level, next.level]);
        }
    }
    edges.0
}

/// The edges between an assumed install and the installs and reads next to it.
fn around(index: &Index<'_>, search: &Search<'_, '_>, install: &Install, edges: &mut Edges) {
    let Install { key, version, writer, level, .. } = *install;
    let before = version.checked_sub(1).and_then(|below| search.installs.newest(key, below));
    let next = search.installs.next(key, version);
    if let Some(before) = before {
        let levels = [level, before.level];
        edges.add(before.writer, writer, EdgeKind::Overwrites, key, levels);
    }
    if let Some(next) = next {
        edges.add(writer, next.writer, EdgeKind::Overwrites, key, [level, next.level]);
    }
    let from = before.map_or(0, |before| before.version);
    let to = next.map(|next| next.version);
    for &read in search.reads_of(key, from, to) {
        let ReadAt { node, version: Some(read), .. } = index.reads[read as usize] else { continue };
        if !search.is_effective(node) {
            continue;
        }
        if read < version {
            edges.add(node, writer, EdgeKind::Anti, key, [level, 0]);
        } else {
            edges.add(writer, node, EdgeKind::Reads, key, [level, 0]);
        }
    }
}

/// The edges of a read of an operation of unknown outcome.
fn of_read(search: &Search<'_, '_>, read: &ReadAt, edges: &mut Edges) {
    let ReadAt { node, key, version: Some(version), .. } = *read else { return };
    if let Some(newest) = search.installs.newest(key, version) {
        edges.add(newest.writer, node, EdgeKind::Reads, key, [newest.level, 0]);
    }
    if let Some(next) = search.installs.next(key, version) {
        edges.add(node, next.writer, EdgeKind::Anti, key, [next.level, 0]);
    }
}

/// The edges of a scan by `node` that can have seen one absence of `key` only, at `floor`.
pub(super) fn of_floor(
    search: &Search<'_, '_>,
    node: u32,
    key: u32,
    floor: u64,
    certain: &mut Vec<Edge>,
) {
    if let Some(newest) = search.installs.newest(key, floor) {
        add(certain, newest.writer, node, EdgeKind::FindsAbsent, key);
    }
    if let Some(next) = search.installs.next(key, floor) {
        add(certain, node, next.writer, EdgeKind::Phantom, key);
    }
}
