//! What a walk over a host table finds in the index above it.

use std::collections::BTreeSet;

use nicol_core::units::Bytes;

use super::*;
use crate::host_table::{Geometry, Growth, HostTable, WalkPosition};

#[test]
fn a_walk_names_what_is_locked_or_pinned_however_far_the_index_follows() {
    let growth = Growth::Doubling { memory_max: Bytes(1 << 24) };
    let table = HostTable::new(Geometry::new(SEGMENTS * 16, 8, 0), 1 << 20, growth);
    let index = index(1 << 12, 1 << 12);
    let mut busy = BTreeSet::new();
    for key in 0..6_000 {
        let (hash, id) = of(key);
        table.apply(id, Version(1), Some(b"value"));
        table.advance(2);
        match key % 40 {
            0 => index.lock(hash, id, TxnId(1)).unwrap(),
            1 => index.install(hash, id, Version(2), Some(b"newer")),
            2 => _ = access(&index, key),
            _ => continue,
        }
        if key % 40 < 2 {
            busy.insert(id);
        }
        // It lags behind the table, as far as it is behind when the loop ends.
        if key < 4_000 {
            index.follow(table.progress());
        }
    }
    assert!(table.progress() > index.known(), "the index is behind");
    for _ in 0..2 {
        let (mut at, mut met) = (WalkPosition::default(), BTreeSet::new());
        loop {
            let range = at.range(&table).unwrap();
            index.for_each_busy(range, &mut |key| _ = met.insert(key));
            match at.step(&table, &mut |_| {}) {
                Some(next) => at = next,
                None => break,
            }
        }
        assert_eq!(met, busy);
        index.follow(table.progress());
    }
}
