//! The records of a shard: how many it holds, and which ones it loads.

use nicol_core::ids::{Key, ShardId};
use nicol_core::view::ShardMap;

/// An upper bound of the records that one of `shards` shards gets of `total` hashed ones: the mean
/// plus eight standard deviations (each at most the root of the mean). It is exceeded with a
/// probability of about 1e-15.
pub(crate) fn records_at_most(total: u64, shards: u16) -> u64 {
    assert!(shards > 0, "a cluster has a shard");
    let mean = total.div_ceil(u64::from(shards));
    (mean + 8 * (mean.isqrt() + 1)).min(total)
}

/// Does `shard` hold `key`?
pub(crate) fn holds(shards: &dyn ShardMap, shard: ShardId, key: Key) -> bool {
    shards.shard_of(key) == shard
}

/// 64 well-mixed bits of `value` (the finaliser of SplitMix64): initial contents that differ from
/// record to record without a random stream.
pub(crate) const fn mix(value: u64) -> u64 {
    let mut bits = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Collects violations up to a limit, and counts the rest, since a lost shard would yield a million
/// lines.
#[derive(Debug, Default)]
pub(crate) struct Violations {
    lines: Vec<String>,
    more: u64,
}

impl Violations {
    const LINES_MAX: usize = 20;

    pub(crate) fn add(&mut self, line: impl FnOnce() -> String) {
        if self.lines.len() < Self::LINES_MAX {
            self.lines.push(line());
        } else {
            self.more += 1;
        }
    }

    pub(crate) fn into_lines(mut self) -> Vec<String> {
        if self.more > 0 {
            self.lines.push(format!("and {} more", self.more));
        }
        self.lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicol_core::ids::TableId;
    use nicol_core::view::View;

    #[test]
    fn no_shard_gets_more_than_the_bound() {
        for (total, nodes) in [(1, 1), (10, 3), (1_000, 5), (50_000, 6)] {
            let view = View::new(nodes, 1, 1, 1).unwrap();
            for shard in (0..view.shards()).map(ShardId) {
                let held = (0..total)
                    .filter(|row| holds(&view, shard, Key::new(TableId(1), *row)))
                    .count() as u64;
                assert!(held <= records_at_most(total, view.shards()));
            }
        }
    }

    #[test]
    fn violations_are_capped_and_counted() {
        let mut violations = Violations::default();
        (0..25).for_each(|i| violations.add(|| format!("line {i}")));
        let lines = violations.into_lines();
        assert_eq!(lines.len(), 21);
        assert_eq!(lines[20], "and 5 more");
    }
}
