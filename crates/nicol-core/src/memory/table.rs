//! The regions that a node lets others reach, by rkey, and the free lists in them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

use super::buffers::{BufferUses, Buffers, ChainMark, Entered, FreeLists};
use super::{AccessError, Region};
use crate::fabric::FabricError;
use crate::ids::{FreeListKey, RKey, Side};

/// The rights of the holders of an rkey.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    /// READ, WRITE and the atomics.
    ReadWrite,
}

/// A registered region.
#[derive(Clone, Debug)]
pub struct Registered {
    pub region: Arc<Region>,
    /// Which side's memory it is.
    pub side: Side,
    access: Access,
}

/// A node's registered regions and free lists.
#[derive(Debug, Default)]
pub struct RegionTable {
    regions: RwLock<BTreeMap<RKey, Registered>>,
    /// How many keys have been taken back.
    revocations: AtomicU64,
    lists: Mutex<FreeLists>,
    /// Regions that the fabric has seen, and whose memory they are: what a crash takes away.
    seen: Mutex<Vec<(Side, Weak<Region>)>>,
}

impl RegionTable {
    /// Registers `region`, which is memory of `side`, under the first of `candidates` that is free.
    /// The caller draws the candidates from its world's source of randomness; 0 is never used.
    pub fn register(
        &self,
        region: Arc<Region>,
        access: Access,
        side: Side,
        mut candidates: impl FnMut() -> u32,
    ) -> RKey {
        self.adopt(&region, side);
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        loop {
            let rkey = RKey(candidates());
            if rkey.0 != 0 && !regions.contains_key(&rkey) {
                regions.insert(rkey, Registered { region, side, access });
                return rkey;
            }
        }
    }

    /// Notes that `region` is memory of `side` of this node, unless that is known of it.
    #[inline]
    pub fn adopt(&self, region: &Arc<Region>, side: Side) {
        if region.adopt(side) {
            self.seen().push((side, Arc::downgrade(region)));
        }
    }

    /// The crash of `side`: takes every registration of its memory back, and marks the memory that
    /// the fabric has seen as [lost](Region::lose), apart from logs if `keep_logs`. Returns what
    /// was lost.
    pub fn lose(&self, side: Side, keep_logs: bool) -> Vec<Arc<Region>> {
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        regions.retain(|_, registered| registered.side != side);
        let keys: Vec<RKey> = regions.keys().copied().collect();
        drop(regions);
        self.lists().keep_only(&keys);
        let mut lost = Vec::new();
        self.seen().retain(|(owner, region)| {
            let Some(region) = region.upgrade() else { return false };
            if *owner != side || keep_logs && region.is_log() {
                return true;
            }
            region.lose();
            lost.push(region);
            false
        });
        lost
    }

    /// Ends the chains under way, for the crash of whatever executes them.
    pub fn forget_chains(&self) {
        self.lists().forget_chains();
    }

    fn seen(&self) -> MutexGuard<'_, Vec<(Side, Weak<Region>)>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes `rkey` back: later accesses are denied, also those of an operation that is under way
    /// and has found its region already. Returns whether it was registered.
    pub fn revoke(&self, rkey: RKey) -> bool {
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        let was_registered = regions.remove(&rkey).is_some();
        // After the removal: whoever sees the new count finds the key gone.
        self.revocations.fetch_add(u64::from(was_registered), Ordering::Release);
        was_registered
    }

    /// How many keys have been taken back so far: as long as that is the same, what
    /// [`RegionTable::find`] has found is still registered, unless a crash has taken it away.
    pub fn revocations(&self) -> u64 {
        self.revocations.load(Ordering::Acquire)
    }

    /// The region of `rkey` if it allows reading, or also writing where `write` is set.
    pub fn find(&self, rkey: RKey, write: bool) -> Result<Registered, AccessError> {
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        match regions.get(&rkey) {
            Some(found) if !write || found.access == Access::ReadWrite => Ok(found.clone()),
            _ => Err(AccessError::Denied { rkey: rkey.0 }),
        }
    }

    /// Registers a free list under the first of `candidates` that is free; 0 is never used. Its
    /// buffers must lie in a region that may be written.
    pub fn register_buffers(
        &self,
        buffers: Buffers,
        candidates: impl FnMut() -> u32,
    ) -> Result<FreeListKey, AccessError> {
        let span = buffers.span()?;
        self.find(buffers.rkey, true)?.region.check(buffers.first, span)?;
        assert!(buffers.in_use <= buffers.count, "no more buffers are in use than there are");
        Ok(self.lists().add(buffers, candidates))
    }

    /// Posts buffers that were allocated (or in use from the start) to their free list again. Each
    /// may be popped once the chains that are under way now have ended [PRISM21 3.2, 4.2]. At the
    /// first that is not in use this stops with an error; those before it are posted.
    pub fn post_buffers(&self, list: FreeListKey, offsets: &[u64]) -> Result<(), AccessError> {
        self.lists().post(list, offsets)
    }

    /// Which buffers of `list` are in use; `None` if there is no such list.
    pub fn buffer_uses(&self, list: FreeListKey) -> Option<Arc<BufferUses>> {
        self.lists().uses(list)
    }

    /// Marks the chains that are under way at this node now.
    pub fn mark_chains(&self) -> ChainMark {
        self.lists().mark()
    }

    /// Have all chains ended that were under way at `mark`? Those that began later may not have.
    pub fn have_ended(&self, mark: ChainMark) -> bool {
        self.lists().have_ended(mark)
    }

    /// Buffers that an ALLOCATE could pop now.
    pub fn buffers_ready(&self, list: FreeListKey) -> usize {
        self.lists().ready(list)
    }

    /// Pops the first ready buffer of `list` for an operation under `rkey` with `len` bytes to
    /// write; resolves to its offset. `NoResources` if none is ready.
    pub fn allocate(&self, list: FreeListKey, rkey: RKey, len: u64) -> Result<u64, FabricError> {
        let mut lists = self.lists();
        let Buffers { size, .. } = lists.find(list, rkey).map_err(FabricError::AccessDenied)?;
        if len > size {
            let error = AccessError::OutOfBounds { offset: 0, len, size };
            return Err(FabricError::AccessDenied(error));
        }
        lists.pop(list).ok_or(FabricError::NoResources)
    }

    /// A chain begins: until it [leaves](RegionTable::leave), what is posted stays unallocated.
    /// `NoResources` beyond [`CHAINS_MAX`](super::CHAINS_MAX).
    pub fn enter(&self) -> Result<Entered, FabricError> {
        self.lists().enter().ok_or(FabricError::NoResources)
    }

    pub fn leave(&self, entered: Entered) {
        self.lists().leave(entered);
    }

    fn lists(&self) -> MutexGuard<'_, FreeLists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
