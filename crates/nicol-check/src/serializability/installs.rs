//! Which operation installed which version of which key: what is certain, and what is assumed of
//! operations of unknown outcome.

use std::collections::BTreeMap;

use nicol_core::history::Effect;

use super::index::{Index, NOBODY};

/// One version of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Install {
    pub(super) key: u32,
    pub(super) version: u64,
    /// [`NOBODY`]: it was loaded.
    pub(super) writer: u32,
    pub(super) deleted: bool,
    pub(super) digest: Option<u64>,
    /// The decision that it rests on; 0 if it is certain.
    pub(super) level: u32,
}

/// The versions of all keys.
pub(super) struct Installs {
    /// The certain ones, by key and version.
    certain: Vec<Install>,
    /// Where each key's begin.
    starts: Vec<u32>,
    assumed: BTreeMap<(u32, u64), Install>,
}

/// Two certain installs of one version.
pub(super) struct Twice {
    pub(super) one: Install,
    pub(super) other: Install,
}

impl Installs {
    /// The installs of committed operations, over the initial records `loaded`.
    pub(super) fn certain(
        index: &Index<'_>,
        loaded: &[(u32, u64, Option<u64>)],
    ) -> (Self, Vec<Twice>) {
        let initial = loaded.iter().map(|&(key, version, digest)| Install {
            key,
            version,
            writer: NOBODY,
            deleted: false,
            digest,
            level: 0,
        });
        let written = index
            .writes
            .iter()
            .filter(|write| !index.nodes[write.node as usize].unknown && write.version.is_some());
        let written = written.map(|write| Install {
            key: write.key,
            version: write.version.unwrap_or_default(),
            writer: write.node,
            deleted: write.effect == Effect::Delete,
            digest: if let Effect::Put { digest } = write.effect { digest } else { None },
            level: 0,
        });
        let mut certain: Vec<Install> = initial.chain(written).collect();
        certain.sort_unstable_by_key(|install| (install.key, install.version, !install.writer));
        let mut twice = Vec::new();
        certain.dedup_by(|other, one| {
            let same = (one.key, one.version) == (other.key, other.version);
            if same {
                twice.push(Twice { one: *one, other: *other });
            }
            same
        });
        let mut starts = vec![0; index.keys() + 1];
        certain.iter().for_each(|install| starts[install.key as usize + 1] += 1);
        for key in 0..index.keys() {
            starts[key + 1] += starts[key];
        }
        (Self { certain, starts, assumed: BTreeMap::new() }, twice)
    }

    /// The certain installs of `key`, by version.
    pub(super) fn certain_of(&self, key: u32) -> &[Install] {
        let range = self.starts[key as usize] as usize..self.starts[key as usize + 1] as usize;
        &self.certain[range]
    }

    pub(super) fn all_certain(&self) -> &[Install] {
        &self.certain
    }

    /// Sets the digest of a certain install that has none.
    pub(super) fn learn(&mut self, key: u32, version: u64, digest: u64) {
        let range = self.starts[key as usize] as usize..self.starts[key as usize + 1] as usize;
        let of_key = &mut self.certain[range];
        if let Ok(at) = of_key.binary_search_by_key(&version, |install| install.version) {
            of_key[at].digest.get_or_insert(digest);
        }
    }

    pub(super) fn assumed(&self) -> impl Iterator<Item = &Install> {
        self.assumed.values()
    }

    pub(super) fn assumed_of(&self, key: u32) -> impl Iterator<Item = &Install> {
        self.assumed.range((key, 0)..=(key, u64::MAX)).map(|(_, install)| install)
    }

    /// Assumes an install, unless there is one of this version, which is returned.
    pub(super) fn assume(&mut self, install: Install) -> Result<(), Install> {
        if let Some(there) = self.at(install.key, install.version) {
            return Err(there);
        }
        self.assumed.insert((install.key, install.version), install);
        Ok(())
    }

    pub(super) fn drop(&mut self, key: u32, version: u64) {
        let dropped = self.assumed.remove(&(key, version));
        assert!(dropped.is_some(), "only what was assumed is dropped");
    }

    pub(super) fn at(&self, key: u32, version: u64) -> Option<Install> {
        self.newest(key, version).filter(|install| install.version == version)
    }

    /// The newest install up to `version`.
    pub(super) fn newest(&self, key: u32, version: u64) -> Option<Install> {
        let of_key = self.certain_of(key);
        let at = of_key.partition_point(|install| install.version <= version);
        let certain = at.checked_sub(1).map(|at| of_key[at]);
        let assumed = self.assumed.range((key, 0)..=(key, version)).next_back();
        let assumed = assumed.map(|(_, install)| *install);
        [certain, assumed].into_iter().flatten().max_by_key(|install| install.version)
    }

    /// The oldest install above `version`.
    pub(super) fn next(&self, key: u32, version: u64) -> Option<Install> {
        let of_key = self.certain_of(key);
        let at = of_key.partition_point(|install| install.version <= version);
        let certain = of_key.get(at).copied();
        let above = version.checked_add(1)?;
        let assumed = self.assumed.range((key, above)..=(key, u64::MAX)).next();
        let assumed = assumed.map(|(_, install)| *install);
        [certain, assumed].into_iter().flatten().min_by_key(|install| install.version)
    }
}
