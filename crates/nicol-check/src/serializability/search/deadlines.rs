//! By when a write of a version must have begun, in real time.

use std::collections::BTreeMap;

use super::super::index::{Index, NOBODY};
use super::super::installs::Installs;

/// Of each key that unknown operations may have written: versions, and by when a write of one of
/// them or of an older one had begun, since a committed operation that saw or replaced it had
/// ended.
#[derive(Debug, Default)]
pub(super) struct Deadlines(BTreeMap<u32, Vec<(u64, u64)>>);

impl Deadlines {
    /// `by_key`: the reads of these keys.
    pub(super) fn new(
        index: &Index<'_>,
        installs: &Installs,
        by_key: &BTreeMap<u32, Vec<u32>>,
    ) -> Self {
        let ended = |node: u32| match index.nodes[node as usize].unknown {
            true => None,
            false => index.operation(node).responded,
        };
        let of_key = |(&key, reads): (&u32, &Vec<u32>)| {
            let reads = reads.iter().map(|&read| &index.reads[read as usize]);
            let reads = reads.filter_map(|read| Some((read.version?, ended(read.node)?)));
            let certain = installs.certain_of(key).iter().filter(|one| one.writer != NOBODY);
            let certain = certain.filter_map(|one| Some((one.version, ended(one.writer)?)));
            let mut ends: Vec<(u64, u64)> = reads.chain(certain).collect();
            ends.sort_unstable();
            let mut first = u64::MAX;
            for (_, ended) in ends.iter_mut().rev() {
                first = first.min(*ended);
                *ended = first;
            }
            (key, ends)
        };
        Self(by_key.iter().map(of_key).collect())
    }

    /// By when a write of `version` of `key` had begun.
    pub(super) fn of(&self, key: u32, version: u64) -> u64 {
        let ends = self.0.get(&key).map_or(&[][..], Vec::as_slice);
        let at = ends.partition_point(|(other, _)| *other < version);
        ends.get(at).map_or(u64::MAX, |(_, ended)| *ended)
    }
}
