//! The edges that hold whatever happened to operations of unknown outcome.

use nicol_core::history::Promise;

use super::graph::{Edge, EdgeKind};
use super::index::{Index, NOBODY, ReadAt};
use super::installs::Installs;

/// The certain edges, and the nodes that they connect.
pub(super) struct Certain {
    pub(super) edges: Vec<Edge>,
    /// Operations and, behind them, instants of time.
    pub(super) nodes: usize,
}

/// Adds an edge; one from an operation to itself, or from the load, says nothing.
pub(super) fn add(edges: &mut Vec<Edge>, from: u32, to: u32, kind: EdgeKind, key: u32) {
    if from != to && from != NOBODY && to != NOBODY {
        edges.push(Edge { from, to, key, kind });
    }
}

/// The edges of the certain installs, of the committed reads that are not `wrong`, and, by
/// `promise`, of time and of clients.
pub(super) fn certain(
    index: &Index<'_>,
    installs: &Installs,
    wrong: &[bool],
    promise: Promise,
) -> Certain {
    let mut edges = Vec::new();
    for pair in installs.all_certain().windows(2) {
        if pair[0].key == pair[1].key {
            let key = pair[0].key;
            add(&mut edges, pair[0].writer, pair[1].writer, EdgeKind::Overwrites, key);
        }
    }
    for (read, wrong) in index.reads.iter().zip(wrong) {
        if index.nodes[read.node as usize].unknown || *wrong {
            continue;
        }
        let ReadAt { node, key, version: Some(version), .. } = *read else { continue };
        if let Some(newest) = installs.newest(key, version) {
            add(&mut edges, newest.writer, node, EdgeKind::Reads, key);
        }
        if let Some(next) = installs.next(key, version) {
            add(&mut edges, node, next.writer, EdgeKind::Anti, key);
        }
    }
    let mut nodes = index.nodes.len();
    if index.loads_from() < nodes as u32 {
        loads_first(index, &mut edges, nodes as u32);
        nodes += 1;
    }
    if promise != Promise::Serializable {
        client_order(index, &mut edges);
    }
    if is_strict(promise) {
        nodes += real_time(index, &mut edges, nodes);
    }
    Certain { edges, nodes }
}

/// True if real time is a part of `promise`.
pub(super) fn is_strict(promise: Promise) -> bool {
    !matches!(promise, Promise::Serializable | Promise::SessionSerializable)
}

/// Loads that may have happened come before the node `begin`, and that before every operation.
fn loads_first(index: &Index<'_>, edges: &mut Vec<Edge>, begin: u32) {
    let loads = index.loads_from();
    (loads..begin).for_each(|load| add(edges, load, begin, EdgeKind::Load, 0));
    (0..loads).for_each(|node| add(edges, begin, node, EdgeKind::Load, 0));
}

/// Each operation comes after the last one of its client whose end the client knows.
fn client_order(index: &Index<'_>, edges: &mut Vec<Edge>) {
    for nodes in index.clients().values() {
        let mut before = NOBODY;
        for &node in nodes {
            add(edges, before, node, EdgeKind::Client, 0);
            if !index.nodes[node as usize].unknown {
                before = node;
            }
        }
    }
}

/// Adds the real-time order: a chain of instants; a committed operation comes before the first
/// instant after its end, and every operation after the last instant before its start. Returns the
/// number of instants, whose nodes begin at `first`. Of two operations at one nanosecond neither
/// comes first.
fn real_time(index: &Index<'_>, edges: &mut Vec<Edge>, first: usize) -> usize {
    let mut starts: Vec<u64> =
        (0..index.loads_from()).map(|node| index.operation(node).invoked).collect();
    starts.sort_unstable();
    starts.dedup();
    // Instant `i` is just before the starts at `starts[i]`.
    let instant = |position: usize| (first + position) as u32;
    for position in 1..starts.len() {
        let (from, to) = (instant(position - 1), instant(position));
        add(edges, from, to, EdgeKind::RealTime, 0);
    }
    for node in 0..index.loads_from() {
        let operation = index.operation(node);
        let begins = starts.partition_point(|start| *start < operation.invoked);
        add(edges, instant(begins), node, EdgeKind::RealTime, 0);
        let Some(responded) = operation.responded else { continue };
        if index.nodes[node as usize].unknown {
            continue;
        }
        let after = starts.partition_point(|start| *start <= responded);
        if after < starts.len() {
            add(edges, node, instant(after), EdgeKind::RealTime, 0);
        }
    }
    starts.len()
}
