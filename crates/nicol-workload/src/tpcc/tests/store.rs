//! A store of rows in which transactions run one after the other.

use std::collections::BTreeMap;

use nicol_core::ids::{Key, ShardId, Version};
use nicol_core::records::{RecordSource, Records};
use nicol_core::txn::{KeyRange, Txn, Verdict};
use nicol_core::view::{ShardMap, View};
use nicol_core::workload::Workload;

use crate::tpcc::Tpcc;

#[derive(Clone)]
pub(super) struct Store(pub(super) BTreeMap<Key, Vec<u8>>);

impl Records for Store {
    fn read(&mut self, key: Key) -> Option<Vec<u8>> {
        self.0.get(&key).cloned()
    }

    fn for_each(&mut self, each: &mut dyn FnMut(Key, &[u8])) {
        self.0.iter().for_each(|(&key, row)| each(key, row));
    }
}

impl Store {
    pub(super) fn load(workload: &Tpcc) -> Self {
        let view = View::new(usize::from(workload.config.nodes), 1, 1, 1).unwrap();
        let mut rows = BTreeMap::new();
        for shard in (0..view.shards()).map(ShardId) {
            workload.load(&view, shard, &mut |key, row| {
                assert_eq!(view.shard_of(key), shard);
                assert!(rows.insert(key, row.to_vec()).is_none(), "{key:?} is loaded once");
            });
        }
        Self(rows)
    }

    /// Runs `txn` to its end; returns whether it committed, and its rounds.
    pub(super) fn run(&mut self, workload: &Tpcc, txn: &mut Txn) -> (bool, usize) {
        let procedures = workload.procedures();
        for round in 1.. {
            for index in 0..txn.entries().len() {
                let entry = txn.entries()[index];
                if !entry.fetched {
                    let row = self.0.get(&entry.key);
                    txn.fetched(index, Version(1), row.map(Vec::as_slice));
                }
            }
            self.scan(txn);
            match procedures.execute(txn) {
                Verdict::More => {}
                Verdict::Refuse => return (false, round),
                Verdict::Commit => {
                    for write in txn.updates() {
                        match write.value {
                            Some(row) => self.0.insert(write.key, row.to_vec()),
                            None => self.0.remove(&write.key),
                        };
                    }
                    return (true, round);
                }
            }
        }
        unreachable!("a transaction ends")
    }

    /// Makes the scans that `txn` waits for.
    fn scan(&self, txn: &mut Txn) {
        for scan in 0..txn.scans().len() {
            if txn.scans()[scan].is_done() {
                continue;
            }
            let KeyRange { first, last, backward, limit } = txn.scans()[scan].range;
            let mut found: Vec<_> = self.0.range(first..=last).collect();
            if backward {
                found.reverse();
            }
            let fits = txn.scanned(scan, |into| {
                for (key, row) in found.into_iter().take(limit as usize) {
                    into.add(*key, Version(1), row);
                }
            });
            assert!(fits, "TPC-C's scans are small");
        }
    }

    pub(super) fn audit(&self, workload: &Tpcc) -> Vec<String> {
        workload.audit_state(&mut self.clone())
    }
}
