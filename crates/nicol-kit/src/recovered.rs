//! Records as recovery finds them in logs.

use nicol_core::ids::{IdMap, Key, Version};
use nicol_core::records::RecordSource;
use nicol_core::system::ReadBack;
use nicol_core::view::View;

/// Called with a key, the version that is installed, and the value; `None` deletes.
pub type EachWrite<'e> = &'e mut dyn FnMut(Key, Version, Option<&[u8]>);

/// Counts of what the logs of a run held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub records: u64,
    /// Transactions, or updates of single records, that are taken.
    pub taken: u64,
    /// Those that are left out: they had not been acknowledged.
    pub left_out: u64,
    /// Lost records that another replica's log has made up for.
    pub repaired: u64,
}

impl Counts {
    /// Adds those of another run.
    pub const fn add(&mut self, other: &Self) {
        self.records += other.records;
        self.taken += other.taken;
        self.left_out += other.left_out;
        self.repaired += other.repaired;
    }
}

/// The newest write of a key: its version, and the value unless it deletes.
type Newest = (Version, Option<Box<[u8]>>);

/// Records as recovery finds them: of each key the newest write, deletions included.
#[derive(Debug, Default)]
pub struct Recovered {
    newest: IdMap<Key, Newest>,
}

impl Recovered {
    /// Takes a write, if it is newer than what is known of its key: logs have no common order.
    pub fn apply(&mut self, key: Key, version: Version, value: Option<&[u8]>) {
        use std::collections::hash_map::Entry;
        match self.newest.entry(key) {
            Entry::Occupied(mut known) if known.get().0 < version => {
                known.insert((version, value.map(Box::from)));
            }
            Entry::Occupied(_) => {}
            Entry::Vacant(free) => {
                free.insert((version, value.map(Box::from)));
            }
        }
    }

    /// The records that `source` loads on all shards.
    pub fn loaded(view: &View, source: &dyn RecordSource) -> Self {
        let mut loaded = Self::default();
        for shard in view.shard_ids() {
            let mut load = |key, value: &[u8]| loaded.apply(key, Version(1), Some(value));
            source.load(view, shard, &mut load);
        }
        loaded
    }

    /// All that is known of every key, deletions included.
    pub fn into_owned(self) -> ReadBack {
        let owned = |(key, (version, value)): (Key, Newest)| (key, (version, value.map(Vec::from)));
        self.newest.into_iter().map(owned).collect()
    }

    /// All that is known of `key`: its version, and the value unless it was deleted.
    pub fn get(&self, key: Key) -> Option<(Version, Option<&[u8]>)> {
        self.newest.get(&key).map(|(version, value)| (*version, value.as_deref()))
    }

    /// All that is known of every key, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (Key, Version, Option<&[u8]>)> {
        self.newest.iter().map(|(key, (version, value))| (*key, *version, value.as_deref()))
    }

    /// The records, in the order of their keys; deletions are forgotten.
    pub fn into_records(self) -> Vec<(Key, Version, Box<[u8]>)> {
        let mut records: Vec<_> = self
            .newest
            .into_iter()
            .filter_map(|(key, (version, value))| value.map(|value| (key, version, value)))
            .collect();
        records.sort_unstable_by_key(|&(key, ..)| key);
        records
    }
}
