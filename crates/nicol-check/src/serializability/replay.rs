//! Runs the effective operations one after the other and compares what each saw. A history is
//! accepted only after this, so that a mistake in the graph cannot accept a wrong one.

use std::collections::BTreeSet;
use std::ops::Range;

use nicol_core::history::Effect;

use super::index::Index;
use super::search::Search;

/// A key that a scan did not return although it was there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Missed {
    pub(super) node: u32,
    pub(super) key: u32,
    pub(super) version: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    version: u64,
    /// The highest version at which the key was read absent since.
    floor: u64,
    present: bool,
    digest: Option<u64>,
}

struct Replay<'i, 'h> {
    index: &'i Index<'h>,
    states: Vec<State>,
    /// Those of the scanned keys that are present.
    present: BTreeSet<u32>,
    /// The keys that some scan covers, as ranges that do not overlap.
    scanned: Vec<Range<u32>>,
}

/// Runs the operations in `order`, over the initial records `loaded`; returns what scans missed.
///
/// # Panics
/// If an operation did not see what it read: then the order, which agrees with the graph, shows
/// that the graph lacks an edge.
pub(super) fn replay(
    index: &Index<'_>,
    search: &Search<'_, '_>,
    loaded: &[(u32, u64, Option<u64>)],
    order: &[u32],
) -> Vec<Missed> {
    let mut replay = Replay {
        index,
        states: vec![State::default(); index.keys()],
        present: BTreeSet::new(),
        scanned: merged(index.scans.iter().map(|scan| scan.covers.clone()).collect()),
    };
    for &(key, version, digest) in loaded {
        replay.install(key, version, Some(digest));
    }
    let mut used: Vec<(u32, u32, u64)> = search.used().collect();
    used.sort_unstable();
    let mut missed = Vec::new();
    for &node in order.iter().filter(|&&node| search.is_effective(node)) {
        replay.look(node, &mut missed);
        let of_node = &index.nodes[node as usize].writes;
        for write in &index.writes[of_node.start as usize..of_node.end as usize] {
            let value = match write.effect {
                Effect::Put { digest } => Some(digest),
                Effect::Delete | Effect::Unknown => None,
            };
            if let Some(version) = write.version {
                replay.install(write.key, version, value);
            }
        }
        let from = used.partition_point(|&(other, ..)| other < node);
        for &(_, key, version) in used[from..].iter().take_while(|(other, ..)| *other == node) {
            let install = search.installs.at(key, version).expect("what is used is installed");
            replay.install(key, version, (!install.deleted).then_some(install.digest));
        }
    }
    missed
}

/// Ranges joined where they overlap or touch.
fn merged(mut ranges: Vec<Range<u32>>) -> Vec<Range<u32>> {
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|next, range| {
        let joins = next.start <= range.end;
        if joins {
            range.end = range.end.max(next.end);
        }
        joins
    });
    ranges
}

impl Replay<'_, '_> {
    fn look(&mut self, node: u32, missed: &mut Vec<Missed>) {
        let of_node = &self.index.nodes[node as usize];
        let id = self.index.id(node);
        for read in &self.index.reads[of_node.reads.start as usize..of_node.reads.end as usize] {
            let Some(version) = read.version else { continue };
            let state = &mut self.states[read.key as usize];
            assert!(state.present == read.present, "operation {id} saw presence wrongly");
            if read.present {
                assert!(state.version == version, "operation {id} saw another version");
                if let (Some(saw), Some(wrote)) = (read.digest, state.digest) {
                    assert!(saw == wrote, "operation {id} saw another value");
                }
                state.digest = state.digest.or(read.digest);
            } else {
                assert!(state.version <= version, "operation {id} saw an older absence");
                state.floor = state.floor.max(version);
            }
        }
        for scan in &self.index.scans[of_node.scans.start as usize..of_node.scans.end as usize] {
            for &key in self.present.range(scan.covers.clone()) {
                if scan.found.binary_search(&key).is_err() {
                    let version = self.states[key as usize].version;
                    missed.push(Missed { node, key, version });
                }
            }
        }
    }

    /// Installs a version: with a value, whose digest may be unknown, or without one.
    fn install(&mut self, key: u32, version: u64, value: Option<Option<u64>>) {
        let state = &mut self.states[key as usize];
        assert!(state.version < version, "versions of a key grow in the order that was found");
        assert!(state.floor < version, "a write exceeds the version at which its key was absent");
        let digest = value.flatten();
        *state = State { version, floor: 0, present: value.is_some(), digest };
        let at = self.scanned.partition_point(|range| range.end <= key);
        if self.scanned.get(at).is_some_and(|range| range.contains(&key)) {
            match value {
                Some(_) => self.present.insert(key),
                None => self.present.remove(&key),
            };
        }
    }
}
