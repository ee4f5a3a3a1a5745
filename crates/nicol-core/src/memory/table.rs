//! The regions that a node lets others reach, by rkey.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use super::{AccessError, Region};
use crate::ids::RKey;

/// What holders of an rkey may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// READ only.
    Read,
    /// READ, WRITE and the atomics.
    ReadWrite,
}

/// A node's registered regions.
#[derive(Debug, Default)]
pub struct RegionTable {
    regions: RwLock<BTreeMap<RKey, (Arc<Region>, Access)>>,
}

impl RegionTable {
    /// Registers `region` under the first of `candidates` that is free. The caller draws the
    /// candidates from its world's source of randomness; 0 is never used.
    pub fn register(
        &self,
        region: Arc<Region>,
        access: Access,
        mut candidates: impl FnMut() -> u32,
    ) -> RKey {
        let mut regions = self.regions.write().unwrap_or_else(|poison| poison.into_inner());
        loop {
            let rkey = RKey(candidates());
            if rkey.0 != 0 && !regions.contains_key(&rkey) {
                regions.insert(rkey, (region, access));
                return rkey;
            }
        }
    }

    /// Takes `rkey` back: later accesses are denied. Returns whether it was registered.
    pub fn revoke(&self, rkey: RKey) -> bool {
        self.regions.write().unwrap_or_else(|poison| poison.into_inner()).remove(&rkey).is_some()
    }

    /// The region of `rkey` if it allows reading, or also writing where `write` is set.
    pub fn find(&self, rkey: RKey, write: bool) -> Result<Arc<Region>, AccessError> {
        let regions = self.regions.read().unwrap_or_else(|poison| poison.into_inner());
        match regions.get(&rkey) {
            Some((region, access)) if !write || *access == Access::ReadWrite => Ok(region.clone()),
            _ => Err(AccessError::Denied { rkey: rkey.0 }),
        }
    }
}
