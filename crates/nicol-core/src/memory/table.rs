//! The regions that a node lets others reach, by rkey.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use super::{AccessError, Region};
use crate::ids::{RKey, Side};

/// What holders of an rkey may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// READ only.
    Read,
    /// READ, WRITE and the atomics.
    ReadWrite,
}

#[derive(Debug)]
struct Registration {
    region: Arc<Region>,
    access: Access,
    side: Side,
}

/// A node's registered regions.
#[derive(Debug, Default)]
pub struct RegionTable {
    regions: RwLock<BTreeMap<RKey, Registration>>,
}

impl RegionTable {
    /// Registers `region`, which is memory of `side`, under the first of `candidates` that is free. The caller draws the
    /// candidates from its world's source of randomness; 0 is never used.
    pub fn register(
        &self,
        region: Arc<Region>,
        access: Access,
        side: Side,
        mut candidates: impl FnMut() -> u32,
    ) -> RKey {
        let mut regions = self.regions.write().unwrap_or_else(|poison| poison.into_inner());
        loop {
            let rkey = RKey(candidates());
            if rkey.0 != 0 && !regions.contains_key(&rkey) {
                regions.insert(rkey, Registration { region, access, side });
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
            Some(found) if !write || found.access == Access::ReadWrite => Ok(found.region.clone()),
            _ => Err(AccessError::Denied { rkey: rkey.0 }),
        }
    }

    /// Which side's memory the region of `rkey` is.
    pub fn side_of(&self, rkey: RKey) -> Option<Side> {
        let regions = self.regions.read().unwrap_or_else(|poison| poison.into_inner());
        regions.get(&rkey).map(|found| found.side)
    }
}
